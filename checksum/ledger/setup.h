// SPDX-License-Identifier: Apache-2.0
//
// Beginning and end of the ledger; for checksum.cpp only. On the application's thread in MPI_Init and MPI_Finalize.
#pragma once

namespace resil {
class JsonWriter;
struct Thread;
}

namespace resil::ledger {

bool setup_memory();  ///< before_init: maps memory, reads the configuration
bool setup_connection(bool multiple);  ///< after_init: true when records can travel
/// MPI_Finalize: drains, says good-bye to every rank met, takes the posted receives back.
void finish(Thread& thread, double seconds);
void drain_connect();
void setup_end();

/// Members of the report's `checksum` object.
void report(JsonWriter& json);
/// Rank N checked so many of so many messages. False: some are still unverified.
bool coverage_in_words(char* text, size_t bytes);

}  // namespace resil::ledger
