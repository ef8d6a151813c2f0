// SPDX-License-Identifier: Apache-2.0
//
// Verify, where a program makes many calls from one place (a class for messages, a wrapper of its own): whose data
// differ there. A caller is a return address of the program's own code above the call site. Any thread, off the call
// path: only where values differ, and after that for some thousand values at the same call site.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {
struct Event;
}

namespace resil::record {

constexpr unsigned kFrames = 12;
struct Frames {
  unsigned count;
  uint64_t at[kFrames];  ///< return addresses, innermost first
};
/// The frames of the calling thread from `first` on, a return address; what lies below it is resil's own.
Frames frames_from(uint64_t first);

/// Does RESIL_VERIFY_IGNORE name one of the callers, as object+0xoffset? Reads no files.
bool caller_ignored(const Event& e);
/// A value differs there, for a cause that is only suspected; it is number `compared` at its call site.
void callers_differ(const Event& e, uint64_t compared);
/// A value agrees at a call site at which others have differed.
void callers_agree(const Event& e);
/// What may be ignored in place of the whole call site, separated by commas: for each way that led to a difference the
/// caller whose data differ. False: there is none for one of them.
bool callers_to_ignore(uint64_t site, char* text, size_t bytes);

}  // namespace resil::record
