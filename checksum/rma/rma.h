// SPDX-License-Identifier: Apache-2.0
//
// Checks of one-sided communication; called by checksum.cpp for every call on windows. Thread context as in ledger.h.
#pragma once

#include <cstdint>

namespace resil {
struct Event;
class JsonWriter;
}

namespace resil::rma {

bool prepare();  ///< before_init
void connect();  ///< after_init: registers handlers with the ledger
void enter(Event& event);
void leave(Event& event);
void completed(Event& event, int64_t place, uint64_t* cookie, bool freed);
void report(JsonWriter& json);

}  // namespace resil::rma
