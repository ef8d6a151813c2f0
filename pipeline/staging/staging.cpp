// SPDX-License-Identifier: Apache-2.0
//
// The module that takes device buffers through pinned host memory. See docs/STAGING.md.

#include "pipeline/staging/staging.h"

#include "shim/config.h"
#include "shim/event.h"
#include "shim/json.h"
#include "shim/module.h"

namespace resil::staging {

constinit Mode mode = {Setting::kOff, false, 0};

namespace {

constexpr ConfigEntry kConfig[] = {
    {"RESIL_STAGE", ConfigType::kChoice, "auto|on|off", "auto",
     "whether data in device memory goes through pinned host memory instead of to the MPI library: `auto`, where the "
     "library does not say that it takes device buffers; `on`, always; `off`, never"},
    {"RESIL_STAGE_MEMORY", ConfigType::kInteger, "16..1048576", "2048",
     "most pinned host memory that a rank takes for device buffers, in MiB; it is taken as needed"},
};

bool enabled() {
  mode.setting = config_has("RESIL_STAGE", "on")    ? Setting::kOn
                 : config_has("RESIL_STAGE", "off") ? Setting::kOff
                                                    : Setting::kAuto;
  mode.memory = static_cast<uint64_t>(config_integer("RESIL_STAGE_MEMORY")) << 20;
  return mode.setting != Setting::kOff;
}

bool between(CallId id) { return p2p_handles(id) || completes(id) || collective_handles(id); }

bool replace(Event& e) {
  if (p2p_handles(e.id))
    return p2p_replace(e);
  if (completes(e.id))
    return wait_replace(e);
  return false;
}

void report(JsonWriter& json) {
  json.begin_object("staging");
  json.text("mode", mode.setting == Setting::kOn ? "on" : "auto");
  json.boolean("mpi_takes_device_buffers", mode.mpi_takes_device);
  report_counts(json);
  json.end_object();
}

constexpr Module kStaging = {
    .name = "staging",
    .description = "device buffers through pinned host memory",
    .kind = ModuleKind::kTransform,
    .config = kConfig,
    .config_count = sizeof(kConfig) / sizeof(kConfig[0]),
    .enabled = enabled,
    .between = between,
    .before_call = collective_before,
    .replace = replace,
    .after_call = collective_after,
    .cookie = kCookie,
    .activating = collective_activating,
    .completed = collective_completed,
    .report = report,
};
RESIL_MODULE(kStaging);

}  // namespace

}  // namespace resil::staging
