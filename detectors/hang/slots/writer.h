// SPDX-License-Identifier: Apache-2.0
//
// The writing side of the state slots (layout.h): what the module's hooks call. Threads of the program, inside its MPI
// calls; no allocation, no system call and no lock in steady state. See docs/HANGS.md, "State slots".
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/call/stages.h"

namespace resil {
struct Event;
struct SiteEntry;
struct Thread;
}

namespace resil::hang {

/// Which word beside a request is hang detection's (stages.h).
constexpr unsigned kHangCookie = request_word(Stage::kHang);

/// Module::ring_bytes.
size_t writer_ring_bytes(uint32_t* entry_bytes);
/// before_init: finds the section. False: there is none, all hooks do nothing.
bool writer_start();
/// after_init, may come more than once: thread level, and the threads that MPI_Init has made.
void writer_after_init();

void writer_thread_start(Thread& thread);
void writer_enter(Event& event);
void writer_leave(Event& event);
/// Module::fast.
bool writer_fast(Event& event, SiteEntry& site);
void writer_activated(Event& event, uint64_t* cookie);
void writer_completed(Event& event, int64_t place, uint64_t* cookie, bool freed);

}  // namespace resil::hang
