// SPDX-License-Identifier: Apache-2.0
#include "detectors/hang/root/unmatched_report.h"

namespace resil::hang {

UnmatchedList& unmatched_list() {
  static UnmatchedList list;
  return list;
}

void unmatched_report(JsonWriter& json) {
  const UnmatchedList& list = unmatched_list();
  if (!list.judged) return;
  json.begin_array("unreceived_messages");
  for (uint32_t i = 0; i < list.listed; ++i) {
    const Unmatched& entry = list.entries[i];
    json.begin_object();
    json.integer("sender", entry.sender);
    json.integer("receiver", entry.receiver);
    json.text("communicator", entry.communicator);
    if (entry.tag >= 0) json.integer("tag", entry.tag);
    else json.null("tag");  // more tags than are told apart
    json.integer("count", entry.count);
    json.end_object();
  }
  json.end_array();
  json.integer("unreceived_messages_total", list.total);
}

}  // namespace resil::hang
