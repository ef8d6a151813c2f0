// SPDX-License-Identifier: Apache-2.0
//
// Buffers touched while pending (touch.h): a module of its own, so that no call looks at them without RESIL_BLAME=full;
// and the sentences.

#include <cstring>

#include "checksum/ledger/touch.h"
#include "checksum/messages.h"
#include "shim/base/own_stack.h"
#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/config/config.h"
#include "shim/model/calls.h"
#include "shim/model/event.h"
#include "shim/report/finding.h"

namespace resil::touch {

namespace {

void tell(const Told& told) {
  const Touch& t = told.touch;
  char posted[112], after[112], before[112];
  site_text(t.posted_site, posted, sizeof(posted));
  const char* name = call_info(static_cast<CallId>(t.posted_call)).name;
  Finding finding;
  finding.start(told.receive ? "receive_buffer_touched" : "send_buffer_touched", Confidence::kProved);
  finding.culprit(runtime.rank);
  if (told.receive) {
    site_text(t.after_site, after, sizeof(after));
    site_text(t.before_site, before, sizeof(before));
    const bool behind = t.bytes == 0;
    finding.say(messages::checksum::receive_touched, runtime.rank, runtime.host, name, posted,
                static_cast<unsigned long long>(behind ? t.behind : t.bytes),
                static_cast<unsigned long long>(behind ? t.behind_first : t.first), after, before,
                behind ? messages::checksum::touched_behind : messages::checksum::touched_lost);
    finding.to_do(messages::checksum::receive_touched_to_do, posted);
    finding.add("site", "%s", posted);
    finding.add("call", "%s", name);
    finding.add("after", "%s at %s", call_info(static_cast<CallId>(t.after_call)).name, after);
    finding.add("before", "%s at %s", call_info(static_cast<CallId>(t.before_call)).name, before);
  } else {
    finding.say(messages::checksum::send_touched, runtime.rank, runtime.host, name, posted,
                static_cast<unsigned long long>(told.bytes));
    finding.to_do(messages::checksum::send_touched_to_do, posted);
    finding.add("site", "%s", posted);
    finding.add("call", "%s", name);
  }
  finding_publish(finding);
}

void tell_queued() {
  for (Told next; next_told(&next);) on_own_stack([&] { tell(next); });
}

void enter(Event& e) { entered(e); }

void leave(Event& e) {
  if (!e.nested) tell_queued();
  left(e);
}

bool wanted() {
  return config_has("RESIL_MODE", "checksum") && strcmp(config_text("RESIL_BLAME"), "full") == 0 &&
         config_is_default("RESIL_FAULT");  // what is damaged on purpose is not the program's doing
}

constexpr Module kTouch = {
    .name = "touch",
    .description = "buffers that the program writes into while they are MPI's",
    .stage = Stage::kWatch,
    .enabled = wanted,
    .before_init = prepare,
    .before_finalize = tell_queued,
    .enter = enter,
    .leave = leave,
};
RESIL_MODULE(kTouch);

}  // namespace

}  // namespace resil::touch
