// SPDX-License-Identifier: Apache-2.0
//
// What a difference is told as, the counters, and the report's `one_sided`.

#include <dlfcn.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "checksum/rma/rma.h"
#include "checksum/rma/trust.h"
#include "checksum/rma/wire.h"
#include "checksum/to_do.h"
#include "shim/base/own_stack.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/config/config.h"
#include "shim/model/calls.h"
#include "shim/report/finding.h"
#include "shim/report/json.h"

namespace resil::rma {

Counters counters;

void add_to(uint64_t& counter, uint64_t value) {
  if (ledger::concurrent()) __atomic_fetch_add(&counter, value, __ATOMIC_RELAXED);
  else counter += value;
}

static Trust trust;  // in the others' answers

bool wait_for_others(Thread& thread, bool (*done)(void*), void* argument) {
  static double seconds;
  if (seconds == 0) {
    const double asked = config_real("RESIL_DRAIN_SECONDS");
    seconds = asked > 1 ? asked : 1;
  }
  const bool over = ledger::progress_until(thread, trust.wait(seconds), done, argument);
  if (over) trust.answered();
  else trust.in_vain();
  return over;
}

void operation_checked(uint64_t bytes) {
  add_to(counters.checked, 1);
  ledger::count_checked(1, bytes);
}

void operation_uncovered(Reason reason, uint64_t operations, uint64_t bytes) {
  add_to(counters.uncovered[static_cast<unsigned>(reason)], operations);
  ledger::count_uncovered(reason, operations, bytes);
}

static void say_what_to_do(Finding& finding, const Mismatch& m, int origin, const char* one, const char* other,
                           const char* site) {
  if (m.culprit >= 0) finding.to_do(messages::checksum::to_do_send_buffer, site, origin);
  else if (!ledger::full_blame()) finding.to_do(messages::checksum::to_do_full_blame);
  else exclude_nodes(finding, one, other);
}

static void say_mismatch(Thread&, const Mismatch& m) {
  ledger::count_mismatch();
  add_to(counters.mismatches, 1);
  const int origin = world_rank(*m.window, m.origin), target = world_rank(*m.window, m.target);
  auto host = [](int world) {
    if (world == runtime.rank) return static_cast<const char*>(runtime.host);
    const ledger::Peer* peer = ledger::peer_of(world);
    const char* name = peer != nullptr ? ledger::host_of(*peer) : "";
    return name[0] != 0 ? name : "an unknown host";
  };
  const char* call = m.call < kCallCount ? call_info(static_cast<CallId>(m.call)).name : "?";
  const bool reads = strstr(call, "_Get") != nullptr || strstr(call, "_Rget") != nullptr;
  char site[96];
  if (m.site_text[0] != 0) snprintf(site, sizeof(site), "%s", m.site_text);
  else snprintf(site, sizeof(site), "0x%" PRIx64 " of rank %d", m.site, origin);
  Finding finding;
  finding.start("one_sided_corrupted", Confidence::kProved);
  if (m.culprit >= 0) finding.culprit(world_rank(*m.window, m.culprit));
  finding.victim(reads ? origin : target);
  finding.say(messages::checksum::transfer_differs, call, origin, host(origin), target, host(target), site, m.bytes,
              m.displacement, target, reads ? messages::checksum::that_arrived : messages::checksum::that_were_sent);
  say_what_to_do(finding, m, origin, host(origin), host(target), site);
  if (m.verdict != nullptr) {
    finding.add("verdict", "%s", m.verdict);
    finding.add("reached_by", "%s", m.reached_by);
  } else {
    // Read a second time when all ranks had answered: everything that was on its way has had time to come.
    finding.add("verdict", "%s", m.again == m.digest ? "completed before the data landed" : "undetermined");
  }
  finding.add("origin", "rank %d on %s", origin, host(origin));
  finding.add("target", "rank %d on %s", target, host(target));
  finding.add("call", "%s", call);
  finding.add("call_site", "%s", site);
  finding.add("window", "%016" PRIx64 ", %" PRId64 " bytes at the target", m.window->id,
              m.target == m.window->rank ? m.window->bytes : -1);
  finding.add("displacement", "%" PRId64 " in units of the target's window", m.displacement);
  finding.add("bytes", "%" PRIu64, m.bytes);
  finding.add("digest_origin", "%016" PRIx64, m.digest);
  finding.add("digest_target", "%016" PRIx64, m.found);
  finding.add("digest_target_later", "%016" PRIx64 " (%s)", m.again,
              m.again == m.digest  ? "right now"
              : m.again == m.found ? "the same"
                                   : "changed again");
  finding.add("compared", "%s", m.how);
  finding_publish(finding);
  if (ledger::abort_wanted()) stop_job(90);
}

void publish_mismatch(Thread& thread, const Mismatch& m) {
  on_own_stack([&] { say_mismatch(thread, m); });
}

void report(JsonWriter& json) {
  json.begin_object("one_sided");
  json.integer("windows", counters.windows);
  json.integer("operations", counters.operations);
  json.integer("bytes", counters.bytes);
  json.integer("checked", counters.checked);
  ledger::report_reasons(json, "uncovered", counters.uncovered);
  json.integer("mismatches", counters.mismatches);
  json.integer("windows_misplaced", counters.misplaced);
  json.integer("windows_given_up", counters.off);
  json.end_object();
}

}  // namespace resil::rma
