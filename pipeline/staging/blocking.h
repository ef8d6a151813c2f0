// SPDX-License-Identifier: Apache-2.0
//
// With MPI_THREAD_MULTIPLE: which threads are inside calls of the library's that may block. While any
// thread is blocked there, sends go to the library at once and wait in no queue: that thread may depend on them and
// cannot progress them. See docs/STAGING.md.
#pragma once

namespace resil {
struct Event;
}

namespace resil::staging {

/// This call is about to go to the library, and may stay there until another rank has done something. Everything that
/// waits in a send queue is handed over first; from now until the call's end (or end_blocking) others hand over their
/// own.
void begin_blocking(Event& event);
/// At the end of the call, or when it goes on by tests. Does nothing where none has begun.
void end_blocking(const Event& event);
/// The calling thread ends: a call that was left by longjmp may still be counted.
void end_blocking_thread();

/// May a thread be inside such a call? Asked after a send has been put into its queue: of a thread that begins one
/// afterwards, begin_blocking() finds the send.
bool somebody_blocks();

}  // namespace resil::staging
