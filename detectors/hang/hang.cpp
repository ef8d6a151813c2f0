// SPDX-License-Identifier: Apache-2.0
//
// The module: what hang detection wants from the shim. The wrappers write slots (writer.h); one helper thread a node
// reads them (monitor.h). See docs/HANGS.md.

#include "detectors/hang/writer.h"
#include "shim/config.h"
#include "shim/event.h"
#include "shim/module.h"

namespace resil::hang {

namespace {

constexpr ConfigEntry kConfig[] = {
    {"RESIL_HANG", ConfigType::kChoice, "report|abort|off", "report",
     "hangs: report them, or also end the job with exit status 92 when one is proved or verified"},
    {"RESIL_HANG_ALPHA", ConfigType::kReal, "1e-9..0.1", "0.001",
     "significance of the test that raises the suspicion of a hang: chance that a healthy program looks like this"},
    {"RESIL_HANG_INTERVAL", ConfigType::kReal, "0.01..60", "0.4", "mean seconds between two samples, doubled until they are random"},
    {"RESIL_HANG_HOOK", ConfigType::kText, "a command", "",
     "run by /bin/sh on the node that reports, once for each proved or verified hang, with RESIL_HANG_REPORT set to the report"},
};

bool enabled() { return !config_has("RESIL_HANG", "off"); }

void before_init() { writer_start(); }

constexpr Module kHang = {
    .name = "hang",
    .description = "notices hangs: statistics, proof, mismatched collectives",
    .kind = ModuleKind::kWatch,
    .config = kConfig,
    .config_count = sizeof(kConfig) / sizeof(kConfig[0]),
    .enabled = enabled,
    .ring_bytes = writer_ring_bytes,
    .before_init = before_init,
    .after_init = writer_after_init,
    .thread_start = writer_thread_start,
    .enter = writer_enter,
    .leave = writer_leave,
    .cookie = kHangCookie,
    .activated = writer_activated,
    .completed = writer_completed,
};
RESIL_MODULE(kHang);

}  // namespace
}  // namespace resil::hang
