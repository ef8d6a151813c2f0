// SPDX-License-Identifier: Apache-2.0
//
// Checks of collectives; called by checksum.cpp for every collective call. Thread context as in ledger.h.
#pragma once

#include <cstdint>

namespace resil {
struct Event;
struct Thread;
class JsonWriter;
}

namespace resil::collective {

bool prepare();   ///< before_init
void connect();   ///< after_init: registers handlers with the ledger
void enter(Event& event);
void leave(Event& event);
void activated(Event& event, uint64_t* cookie);
void completed(Event& event, int64_t place, uint64_t* cookie, bool freed);
/// Closes what is overdue; from ledger::progress().
void tend(Thread& thread);
/// Collectives whose check still waits for other ranks' records (sums up the tree); part of drains.
uint64_t unverified();
void report(JsonWriter& json);

}  // namespace resil::collective
