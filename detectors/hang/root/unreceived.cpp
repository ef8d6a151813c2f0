// SPDX-License-Identifier: Apache-2.0
#include "detectors/hang/root/unreceived.h"

namespace resil::hang {

UnreceivedList& unreceived_list() {
  static UnreceivedList list;
  return list;
}

void unreceived_report(JsonWriter& json) {
  const UnreceivedList& list = unreceived_list();
  if (!list.judged) return;
  json.begin_array("unreceived_messages");
  for (uint32_t i = 0; i < list.listed; ++i) {
    const Unreceived& entry = list.entries[i];
    json.begin_object();
    json.integer("sender", entry.sender);
    json.integer("receiver", entry.receiver);
    json.text("communicator", entry.communicator);
    if (entry.tag >= 0) json.integer("tag", entry.tag);
    else json.null("tag");  // more tags than are told apart
    json.integer("count", static_cast<int64_t>(entry.count));
    json.end_object();
  }
  json.end_array();
  json.integer("unreceived_messages_total", static_cast<int64_t>(list.total));
}

}  // namespace resil::hang
