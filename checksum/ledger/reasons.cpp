// SPDX-License-Identifier: Apache-2.0
//
// Why data was not checked, in reports.

#include "checksum/ledger/record.h"
#include "checksum/messages.h"
#include "shim/report/json.h"

namespace resil::ledger {

namespace {

const char* reason_name(Reason reason) {
  namespace why = messages::checksum::uncovered;
  constexpr const char* kNames[] = {"none",
                                    why::device_buffer,
                                    why::datatype,
                                    why::error,
                                    why::not_connected,
                                    why::other_world,
                                    why::unknown_communicator,
                                    why::order_lost,
                                    why::memory,
                                    why::reduction,
                                    why::user_operator,
                                    why::passive_target,
                                    why::accumulate,
                                    why::overlapped,
                                    why::shared_window,
                                    why::one_sided,
                                    why::file,
                                    why::collective,
                                    why::request_freed,
                                    why::no_status,
                                    why::early,
                                    why::calls_differ,
                                    why::given_back};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == static_cast<unsigned>(Reason::kCount));
  return kNames[static_cast<unsigned>(reason)];
}

}  // namespace

uint64_t report_reasons(JsonWriter& json, const char* name,
                        const uint64_t (&counts)[static_cast<size_t>(Reason::kCount)]) {
  uint64_t sum = 0;
  json.begin_object(name);
  for (unsigned i = 1; i < static_cast<unsigned>(Reason::kCount); ++i) {
    sum += counts[i];
    if (counts[i] != 0) json.integer(reason_name(static_cast<Reason>(i)), counts[i]);
  }
  json.end_object();
  return sum;
}

}  // namespace resil::ledger
