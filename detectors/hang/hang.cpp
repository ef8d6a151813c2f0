// SPDX-License-Identifier: Apache-2.0
//
// The module: what hang detection wants from the shim. The wrappers write slots (writer.h); one helper thread a node
// reads them (monitor.h). See docs/HANGS.md.

#include "detectors/hang/monitor/leader.h"
#include "detectors/hang/monitor/monitor.h"
#include "detectors/hang/monitor/overlay_report.h"
#include "detectors/hang/monitor/wireup.h"
#include "detectors/hang/root/action.h"
#include "detectors/hang/root/killed.h"
#include "detectors/hang/root/unmatched_report.h"
#include "detectors/hang/slots/writer.h"
#include "detectors/hang/verdict/note.h"
#include "shim/call/attach.h"
#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/model/event.h"
#include "shim/report/json.h"
#include "shim/ring/segment.h"

namespace resil::hang {

namespace {

constexpr ConfigEntry kConfig[] = {
    {"RESIL_HANG", ConfigType::kChoice, "report|abort|off", "report",
     "hangs: report them, or also end the job with exit status 92 when one is proved or verified"},
    {"RESIL_HANG_ALPHA", ConfigType::kReal, "1e-9..0.1", "0.001",
     "significance of the test that raises the suspicion of a hang: chance that a healthy program looks like this"},
    {"RESIL_HANG_INTERVAL", ConfigType::kReal, "0.01..60", "0.4",
     "mean seconds between two samples, doubled until they are random"},
    {"RESIL_HANG_HOOK", ConfigType::kText, "a command", "",
     "run by /bin/sh on the node that reports, once for each proved or verified hang, with RESIL_HANG_REPORT set to "
     "the report"},
    {"RESIL_HANG_NOTICE", ConfigType::kReal, "0..86400", "30",
     "seconds in which no rank has entered or left an MPI call, while some wait in one, after which one line on "
     "standard "
     "error says so. No verdict, and taken back when the job goes on. 0: never"},
    {"RESIL_HANG_STACKS", ConfigType::kChoice, "0|1", "1",
     "with each hang that is told the stacks of all ranks' threads in stacks-N.txt, read from outside; nobody is "
     "stopped"},
};

constexpr double kLastLook = 1;  // seconds that MPI_Finalize, or the end by MPI_Abort or an error, may wait for it

bool writes, wired;

bool enabled() { return !config_has("RESIL_HANG", "off"); }

Section* own_section() {
  unsigned long bytes = 0;
  return static_cast<Section*>(segment_section("hang", &bytes));
}

void before_init() {
  killed_install();
  writes = writer_start();
  if (writes) own_section()->python = stacks::find_python();
  if (writes && config_has("RESIL_HANG", "abort")) own_section()->abort_signal = action_install();
}

void after_init() {
  if (writes) writer_after_init();
  if (wired || !runtime_has_world()) return;  // sessions alone have no world whose ranks could be counted
  static Wiring wiring;
  wired = true;
  if (!wire_up(wiring, writes)) {
    wired = false;
    note(Message::kNoMemory);
    return;
  }
  if (wiring.unwatched != 0) note(Message::kTooManyRanks, wiring.unwatched, kMaxWatched);
  if (wiring.alone) note(Message::kNotPreloaded);
  leader_start(wiring);
}

void enter(Event& event) {
  writer_enter(event);
  if (standby_wanted()) [[unlikely]]
    leader_offer();
}

void before_abort(int, bool by_library) {
  if (wired) leader_last_look(by_library, kLastLook);
}

void after_finalize() {
  if (wired) leader_end(kLastLook);
}

void report(JsonWriter& json) {
  const LeaderReport leader = leader_report();
  constexpr const char* kRoles[] = {"none", "leader", "standby"};
  json.begin_object("hang");
  json.text("role", kRoles[leader.role < 3 ? leader.role : 0]);
  json.integer("turns", leader.turns);
  json.integer("takeovers", leader.takeovers);
  json.number("helper_cpu_seconds", leader.cpu_seconds);
  overlay_report(json);
  if (leader.role == 1) {
    const MismatchCoverage compared = monitor_compared();
    json.begin_object("collectives");
    json.integer("communicators", compared.communicators);
    json.integer("deferred", compared.deferred);
    json.integer("marked", compared.marked);
    json.integer("unreadable", compared.unreadable);
    json.integer("contradicting", compared.broken);
    json.end_object();
  }
  json.end_object();
  unmatched_report(json);
}

constexpr Module kHang = {
    .name = "hang",
    .description = "notices hangs: statistics, proof, mismatched collectives",
    .stage = Stage::kHang,
    .config = kConfig,
    .enabled = enabled,
    .ring_bytes = writer_ring_bytes,
    .before_init = before_init,
    .after_init = after_init,
    .after_finalize = after_finalize,
    .before_abort = before_abort,
    .thread_start = writer_thread_start,
    .enter = enter,
    .leave = writer_leave,
    .fast = writer_fast,
    .activated = writer_activated,
    .completed = writer_completed,
    .report = report,
};
RESIL_MODULE(kHang);

}  // namespace
}  // namespace resil::hang
