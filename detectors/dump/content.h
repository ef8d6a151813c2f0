// SPDX-License-Identifier: Apache-2.0
//
// The sections of a dump, from the ring and from the collected stacks. Async-signal-safe. May touch: the ring, read
// only.
#pragma once

#include <cstdint>

#include "detectors/dump/describe.h"
#include "detectors/dump/threads.h"
#include "shim/base/safe_text.h"
#include "shim/runtime/stacks/symbols.h"

namespace resil::dump {

constexpr uint32_t kListedRequests = 64;
constexpr uint32_t kListedRecords = 16;
constexpr uint32_t kListedComms = 64;
constexpr uint32_t kListedTraces = 64;
constexpr uint32_t kBriefFrames = 10;  ///< frames of the stack in one line
constexpr uint32_t kBriefNameBytes = 48;

/// The oldest pending requests, by index, and how many there are.
struct Pending {
  uint32_t oldest[kListedRequests];
  uint32_t listed;
  uint32_t total;
};
/// `most`: entries of the table to look at.
void find_pending(Pending* pending, uint32_t most = UINT32_MAX);

/// Everything a section needs.
struct Content {
  SafeText& text;
  Symbols& symbols;
  const Moment& moment;
  const Pending& pending;
  uint32_t most_communicators = ~0u;  ///< entries of section "comms" that are looked at

  /// "rank 3 of 16 (node17, pid 812): in MPI_Recv from rank 2, …, for 12.4 s, called at …" One line for each trace
  /// buffer, newline included; at most `most` trace buffers, and a line that counts the rest. `prefix` begins each
  /// line.
  void what_it_waits_for(const char* prefix, uint32_t most) const;
  /// Phase, time, reason, versions: one line.
  void header(uint32_t number, const char* reason) const;
  /// Step, call count, pending requests and the oldest one: one or two lines.
  void progress(const char* prefix) const;
  /// What other modules have to say of this moment (Module::dump).
  void modules(const char* prefix) const;
  void records() const;
  void requests() const;
  void communicators() const;
  void stacks(const Threads& threads, int signal) const;
  /// Paths and bases of what was named; last.
  void objects() const;
  /// The stack of the main thread in one line: "a < b < c".
  void brief_stack(const Threads& threads, const char* prefix) const;

 private:
  void trace_sentence(const ring::TraceBuffer& trace) const;
  void frame(uint64_t address) const;
  void stack(const Stack& stack) const;
};

/// "starting, inside MPI_Init", "running", …
const char* phase_name(uint32_t phase);

}  // namespace resil::dump
