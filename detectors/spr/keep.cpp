// SPDX-License-Identifier: Apache-2.0
//
// resil_spr_keep(): this rank's particles as they are, here and on the next rank, the last two of them. What is kept of
// a step is whole on every rank or is none on any: a rank comes to the end of keep only after all have the data, so
// that whoever dies in the next one leaves the one before to the others.

#include <cstring>

#include "detectors/spr/set.h"
#include "shim/base/clock.h"
#include "shim/call/inside_mpi.h"

namespace resil::spr {

namespace {

constexpr size_t kAlign = 16;

size_t rounded(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

bool holds(const Set& set, uint64_t fields, uint32_t number) {
  return (fields >> number & 1) != 0 && static_cast<int>(number) != set.id_field;
}

/// Ids, then the fields, each at a place of its own.
size_t size_of(const Set& set, int64_t particles, uint64_t fields) {
  const auto many = static_cast<size_t>(particles);
  size_t bytes = rounded(many * sizeof(int64_t));
  for (uint32_t i = 0; i < set.field_count; ++i)
    if (holds(set, fields, i)) bytes += rounded(many * set.fields[i].bytes);
  return bytes;
}

Why pack(const Set& set, Kept& kept) {
  if (kept.particles < 0 || kept.particles > INT32_MAX) return Why::kCounts;
  const auto particles = static_cast<size_t>(kept.particles);
  if (!kept.data.reserve(size_of(set, kept.particles, kept.fields))) return Why::kMemory;
  char* to = kept.data.data();
  for (int64_t i = 0; i < kept.particles; ++i) {
    const int64_t id = set.id_field >= 0 ? id_of(set.fields[set.id_field], i) : i;
    memcpy(to + static_cast<size_t>(i) * sizeof(id), &id, sizeof(id));
  }
  to += rounded(particles * sizeof(int64_t));
  for (uint32_t i = 0; i < set.field_count; ++i) {
    if (!holds(set, kept.fields, i)) continue;
    const Field& field = set.fields[i];
    if (field.data == nullptr) return Why::kDevice;
    if (field.stride == field.bytes) {
      memcpy(to, field.data, particles * field.bytes);
    } else {
      for (size_t k = 0; k < particles; ++k) memcpy(to + k * field.bytes, field.data + k * field.stride, field.bytes);
    }
    to += rounded(particles * field.bytes);
  }
  return Why::kNone;
}

Head head_of(const Set& set, const Kept& kept, Why why) {
  Head head = make_head(set, why);
  head.step = kept.step;
  head.local = kept.particles;
  head.fields = kept.fields;
  return head;
}

/// The data to the next rank, and that of the rank before. `here`: why not, of this rank or its neighbours.
Why exchange(Thread& thread, Set& set, Kept& own, Kept& before, Why* here) {
  const Head out = head_of(set, own, *here);
  Head in = {}, answer = {};
  Why why = of_waited(swap_heads(thread, set, out, set.next, &in, set.previous));
  if (why != Why::kNone) return why;
  Why there = in.why != Why::kNone ? Why::kPartner : Why::kNone;
  if (in.magic != out.magic || in.set != out.set || in.fields != out.fields) there = Why::kFields;
  else if (in.step != out.step) there = Why::kStep;
  before.step = in.step;
  before.particles = in.local;
  before.fields = in.fields;
  const size_t coming = there == Why::kNone ? size_of(set, in.local, in.fields) : 0;
  if (there == Why::kNone && !before.data.reserve(coming)) there = Why::kMemory;
  why = of_waited(swap_heads(thread, set, head_of(set, own, there), set.previous, &answer, set.next));
  if (why != Why::kNone) return why;
  Messages messages;
  if (there == Why::kNone) messages.receive(before.data.data(), coming, set.previous, tag_of(set, TagOf::kSelect));
  if (*here == Why::kNone && answer.why == Why::kNone) {
    const size_t bytes = size_of(set, own.particles, own.fields);
    messages.send(own.data.data(), bytes, set.next, tag_of(set, TagOf::kSelect));
    set.counters.bytes += bytes;
  }
  why = of_waited(wait(thread, messages, timeout_of(set)));
  if (why != Why::kNone) {  // MPI may still read and write there
    own.data.abandon();
    before.data.abandon();
    return why;
  }
  if (*here == Why::kNone) *here = there != Why::kNone ? there : answer.why != Why::kNone ? Why::kPartner : Why::kNone;
  return Why::kNone;
}

}  // namespace

bool keep(Thread& thread, Set& set, int64_t step, int64_t local, uint64_t fields) {
  if (set.broken != Why::kNone) {
    uncovered(set, set.broken);
    return false;
  }
  const uint64_t begin = monotonic_ns();
  InsideMpi inside(thread);
  KeptPair& pair = set.kept[set.keeps % 2];  // the older one
  pair.valid = false;
  pair.own.step = step;
  pair.own.particles = local;
  pair.own.fields = fields & ((uint64_t{1} << set.field_count) - 1);
  Why here = set.open ? Why::kOrder : pack(set, pair.own);
  Why gone = exchange(thread, set, pair.own, pair.before, &here);
  int64_t cannot = here != Why::kNone;
  if (gone == Why::kNone) {
    pair.valid = cannot == 0;
    gone = of_waited(sum_over(thread, set.members.data(), set.size, set.position, &cannot, tag_of(set, TagOf::kAgree),
                              timeout_of(set)));
  }
  set.counters.keep_ns += monotonic_ns() - begin;
  if (gone != Why::kNone) {
    break_set(set, gone);
    uncovered(set, gone);
    return false;
  }
  if (cannot != 0) {
    pair.valid = false;
    uncovered(set, here != Why::kNone ? here : Why::kPartner);
    return false;
  }
  ++set.keeps;
  return true;
}

int64_t kept(Set& set, int64_t step, bool before, resil_spr_replicas* copy) {
  const KeptPair* newest = nullptr;
  for (const KeptPair& pair : set.kept)
    if (pair.valid && pair.own.step <= step && (newest == nullptr || pair.own.step > newest->own.step)) newest = &pair;
  if (newest == nullptr) return -1;
  const Kept& of = before ? newest->before : newest->own;
  const auto particles = static_cast<size_t>(of.particles);
  void** const pointers = set.kept_pointers[before];
  const char* at = of.data.data();
  const auto* const ids = reinterpret_cast<const int64_t*>(at);
  at += rounded(particles * sizeof(int64_t));
  for (uint32_t i = 0; i < set.field_count; ++i) {
    pointers[i] = nullptr;
    if (!holds(set, of.fields, i)) continue;
    pointers[i] = const_cast<char*>(at);
    at += rounded(particles * set.fields[i].bytes);
  }
  *copy = {before ? set.previous : set.members[static_cast<size_t>(set.position)],
           static_cast<int>(of.particles),
           static_cast<int>(of.particles),
           static_cast<int>(set.field_count),
           nullptr,
           nullptr,
           ids,
           pointers};
  return newest->own.step;
}

}  // namespace resil::spr
