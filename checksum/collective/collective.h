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

bool prepare();  ///< before_init
void connect();  ///< after_init: registers handlers with the ledger
void enter(Event& event);
void leave(Event& event);
/// Before the real MPI_Start: reads contributions that the result will overwrite.
void activating(Event& event, uint64_t* cookie);
void activated(Event& event, uint64_t* cookie);
void completed(Event& event, int64_t place, uint64_t* cookie, bool freed);
/// Passes on sums, asks and decides about disagreements, stops the job if that is wanted. From progress(), not from
/// handlers; cheap when there is nothing.
void progress(Thread& thread);
/// What drains wait for: disagreements that are being looked into and, once MPI_Finalize has begun, sums that wait for
/// other ranks' records (before that, these come when those ranks send them).
uint64_t unverified();
void report(JsonWriter& json);

}  // namespace resil::collective
