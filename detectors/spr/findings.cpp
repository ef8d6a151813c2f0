// SPDX-License-Identifier: Apache-2.0
//
// What a difference says: which particle, which field, both values. At most eight of each kind a rank: the counters
// have the rest.

#include <cinttypes>
#include <cstring>

#include "detectors/spr/messages.h"
#include "detectors/spr/set.h"
#include "shim/call/runtime.h"
#include "shim/report/finding.h"

namespace resil::spr {

namespace text = messages::spr;

namespace {

constexpr uint32_t kMostFindings = 8;
std::atomic<uint32_t> told[2];

void add_values(Finding& finding, const Field& field, int element, const char* own, const char* other,
                const char* other_name) {
  if ((field.flags & kDouble) != 0) {
    double values[2];
    uint64_t bits[2];
    memcpy(&values[0], own, 8);
    memcpy(&values[1], other, 8);
    memcpy(bits, values, 16);
    finding.add("here", "%016" PRIx64 " (%a)", bits[0], values[0]);
    finding.add(other_name, "%016" PRIx64 " (%a)", bits[1], values[1]);
    finding.add("bits", "%d of 64 differ", __builtin_popcountll(bits[0] ^ bits[1]));
  } else if ((field.flags & kFloat) != 0) {
    float values[2];
    uint32_t bits[2];
    memcpy(&values[0], own, 4);
    memcpy(&values[1], other, 4);
    memcpy(bits, values, 8);
    finding.add("here", "%08" PRIx32 " (%a)", bits[0], static_cast<double>(values[0]));
    finding.add(other_name, "%08" PRIx32 " (%a)", bits[1], static_cast<double>(values[1]));
    finding.add("bits", "%d of 32 differ", __builtin_popcount(bits[0] ^ bits[1]));
  }
  finding.add("element", "%d of the particle's \"%s\"", element, field.name);
}

}  // namespace

void say_difference(const Set& set, const Field& field, const Difference& seen, const char* with, bool changed,
                    int64_t of_particles) {
  if (told[changed].fetch_add(1, std::memory_order_relaxed) >= kMostFindings) return;
  Finding finding;
  finding.start(changed ? "particle_changed" : "replica_mismatch", Confidence::kVerified);
  const auto first = static_cast<size_t>(seen.first);
  const int64_t id = set.own.id[first];
  if (changed) {
    finding.culprit(runtime.rank);
    finding.say(text::particle_changed, id, field.name, runtime.rank, set.step, set.name, seen.count, of_particles);
    finding.to_do(text::particle_changed_to_do, runtime.host);
  } else {
    finding.victim(runtime.rank);
    if (set.next != runtime.rank) finding.victim(set.next);
    finding.say(text::replica_differs, id, field.name, runtime.rank, set.next, set.step, set.name, seen.count,
                of_particles);
    finding.to_do(text::replica_differs_to_do, runtime.host);
  }
  const size_t width = comparison_of(field).element_bytes != 0 ? comparison_of(field).element_bytes : field.bytes;
  const size_t at = static_cast<size_t>(seen.element) * width;
  const char* const own = field.data + static_cast<size_t>(set.own.index[first]) * field.stride + at;
  add_values(finding, field, seen.element, own, with + first * field.bytes + at, changed ? "sent" : "replica");
  finding.add("index", "%d of %" PRId64 " local, %" PRId64 " in all", set.own.index[first], set.local, set.total);
  finding.add("phase", "%" PRIu64 " of the set, selection %" PRIu64, set.phase, set.epoch);
  finding_publish(finding);
}

void say_result_changed(const Set& set, const Field& field, int64_t particle, int element, int64_t count) {
  if (told[1].fetch_add(1, std::memory_order_relaxed) >= kMostFindings) return;
  Finding finding;
  finding.start("particle_changed", Confidence::kVerified);
  const int64_t id = set.id_field >= 0 ? id_of(set.fields[set.id_field], particle) : particle;
  finding.culprit(runtime.rank);
  finding.say(text::result_changed, id, field.name, runtime.rank, set.step, set.name, count, set.computed_room);
  finding.to_do(text::result_changed_to_do, runtime.host);
  const size_t width = comparison_of(field).element_bytes != 0 ? comparison_of(field).element_bytes : field.bytes;
  const size_t at = static_cast<size_t>(element) * width, number = static_cast<size_t>(particle);
  add_values(finding, field, element, field.data + number * field.stride + at,
             field.computed.data() + number * field.bytes + at, "computed");
  finding.add("index", "%" PRId64 " of %" PRId64 " local", particle, set.computed_room);
  finding.add("phase", "%" PRIu64 " of the set, selection %" PRIu64, set.phase, set.epoch);
  finding_publish(finding);
}

}  // namespace resil::spr
