// SPDX-License-Identifier: Apache-2.0
//
// Selective particle replication (Cavelan, Cabezón, Ciorba 2019): the module, its settings and its place in the report.
// It wants no call: programs call it (resil.h, api.cpp). docs/SPR.md.

#include "detectors/spr/set.h"
#include "shim/call/module.h"
#include "shim/config/config.h"
#include "shim/report/json.h"

namespace resil::spr {

namespace {

constexpr ConfigEntry kConfig[] = {
    {"RESIL_SPR", ConfigType::kChoice, "off|cover|hashed|greedy", "off",
     "computes replicas of some particles of programs that call resil_spr_... (docs/SPR.md), selected so that they "
     "cover "
     "most, by a hash of their ids (the same on any number of ranks), or in the order of their indices"},
    {"RESIL_SPR_BITS", ConfigType::kInteger, "0..52", "0",
     "how many low bits of a number may differ between a particle and its replica"},
    {"RESIL_SPR_DISTANCE", ConfigType::kInteger, "1..", "1",
     "how many ranks on a rank's replicas are computed; the number of ranks of a node puts them on another node"},
    {"RESIL_SPR_INPUTS", ConfigType::kSwitch, "", "1",
     "compares what kernels have read, of every particle, with the copy that was sent, and results that "
     "resil_spr_computed has kept"},
    {"RESIL_SPR_TIMEOUT", ConfigType::kReal, "0.1..", "300",
     "seconds after which a rank that does not come to compare is not waited for any more"},
};

bool enabled() {
  settings.method = static_cast<Method>(config_integer("RESIL_SPR"));
  settings.low_bits = static_cast<int>(config_integer("RESIL_SPR_BITS"));
  settings.distance = static_cast<int>(config_integer("RESIL_SPR_DISTANCE"));
  settings.inputs = config_integer("RESIL_SPR_INPUTS") != 0;
  settings.timeout = config_real("RESIL_SPR_TIMEOUT");
  return settings.method != Method::kOff;
}

/// Receives that nothing will come for are taken back, so that MPI_Finalize finds none.
void before_finalize() {
  for (uint32_t i = 0; i < set_count(); ++i) {
    Set& set = set_at(i);
    if (!set.used) continue;
    set.head_receive.cancel();
    set.receives.cancel();
  }
}

void report_set(JsonWriter& json, const Set& set) {
  const Counters& of = set.counters;
  json.begin_object();
  json.text("name", set.name);
  json.integer("members", set.size);
  json.integer("next_rank", set.next);
  json.integer("selections", of.selections);
  json.integer("particles", of.particles);
  json.integer("replicas", of.replicas);
  json.integer("phases", of.phases);
  json.integer("compared", of.compared);
  json.integer("differing", of.differing);
  json.integer("changed", of.changed);
  json.integer("rollbacks", of.rollbacks);
  json.integer("kernel_failures", of.kernel_failures);
  json.integer("kept", set.keeps);
  json.integer("sent_bytes", of.bytes);
  json.begin_object("seconds");
  json.number("select", 1e-9 * static_cast<double>(of.select_ns));
  json.number("begin", 1e-9 * static_cast<double>(of.begin_ns));
  json.number("kernel", 1e-9 * static_cast<double>(of.kernel_ns));
  json.number("wait", 1e-9 * static_cast<double>(of.wait_ns));
  json.number("compare", 1e-9 * static_cast<double>(of.compare_ns));
  json.number("keep", 1e-9 * static_cast<double>(of.keep_ns));
  json.end_object();
  json.begin_object("uncovered");
  for (unsigned why = 1; why < static_cast<unsigned>(Why::kCount); ++why)
    if (of.uncovered[why] != 0) json.integer(reason_name(static_cast<Why>(why)), of.uncovered[why]);
  json.end_object();
  json.end_object();
}

void report(JsonWriter& json) {
  json.begin_array("spr");
  for (uint32_t i = 0; i < set_count(); ++i)
    if (set_at(i).name[0] != 0) report_set(json, set_at(i));
  json.end_array();
}

constexpr Module kSpr = {
    .name = "spr",
    .description = "computes replicas of particles on other ranks and compares them (resil.h)",
    .stage = Stage::kSteps,
    .config = kConfig,
    .enabled = enabled,
    .before_finalize = before_finalize,
    .report = report,
};
RESIL_MODULE(kSpr);

}  // namespace
}  // namespace resil::spr
