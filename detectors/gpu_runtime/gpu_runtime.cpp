// SPDX-License-Identifier: Apache-2.0
//
// The module: do the waits of the accelerator runtime tell the truth? See docs/GPU-RUNTIME.md.

#include "detectors/gpu_runtime/call.h"
#include "detectors/gpu_runtime/cupti.h"
#include "shim/call/module.h"
#include "shim/config/config.h"
#include "shim/report/json.h"

namespace resil::gpu_runtime {

namespace {

constexpr ConfigEntry kConfig[] = {
    {"RESIL_GPU", ConfigType::kChoice, "off|watch|check", "watch",
     "waits in CUDA and HIP: shown in dumps, or also checked by fence words: returned too early, completion lost"},
    {"RESIL_GPU_SYNC", ConfigType::kChoice, "native|double|kernel|poll", "native",
     "how waits in CUDA and HIP are carried out: as the runtime does, twice, after a kernel without effect, or by "
     "polling a fence word"},
    {"RESIL_GPU_LOST", ConfigType::kReal, "0.1..86400", "10",
     "seconds that a wait may go on after the device is done before it counts as lost"},
    {"RESIL_GPU_INJECT", ConfigType::kSwitch, "", "1",
     "RESIL_GPU=check: follow CUDA runtimes that are linked statically, through the driver's injection path and CUPTI"},
};

bool enabled() { return !config_has("RESIL_GPU", "off"); }

void before_init() {
  if (running.load()) return;
  settings.watch = true;
  settings.check = config_has("RESIL_GPU", "check");
  settings.inject = config_integer("RESIL_GPU_INJECT") != 0;
  settings.sync = static_cast<Sync>(config_integer("RESIL_GPU_SYNC"));
  settings.check =
      settings.check || settings.sync == Sync::kPoll || settings.sync == Sync::kKernel;  // these need pinned words
  settings.lost_seconds = config_real("RESIL_GPU_LOST");
  streams_all_seen(Api::kHip);  // HIP has no other way in than its names
  running.store(true, std::memory_order_release);
  if (settings.check && settings.inject) cupti_prepare();
}

void after_init() {
  if (settings.check && settings.inject) cupti_look();
}

void before_finalize() { watcher_stop(); }
void after_finalize() { running.store(false); }
void on_abort(int) { watcher_stop(); }

void report(JsonWriter& json) {
  if (calls_so_far() == 0 && !settings.check) return;
  constexpr const char* kSync[] = {"native", "double", "kernel", "poll"};
  json.begin_object("gpu_runtime");
  json.text("mode", settings.check ? "check" : "watch");
  json.text("waits", kSync[static_cast<unsigned>(settings.sync)]);
  json.text("injection", cupti_state());
  counts_report(json);
  json.end_object();
}

constexpr Module kGpuRuntime = {
    .name = "gpu_runtime",
    .description = "proves that waits of CUDA and HIP return neither too early nor never",
    .stage = Stage::kWatch,
    .config = kConfig,
    .enabled = enabled,
    .before_init = before_init,
    .after_init = after_init,
    .before_finalize = before_finalize,
    .after_finalize = after_finalize,
    .on_abort = on_abort,
    .dump = open_waits_dump,
    .report = report,
};
RESIL_MODULE(kGpuRuntime);

}  // namespace
}  // namespace resil::gpu_runtime
