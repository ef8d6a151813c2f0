// SPDX-License-Identifier: Apache-2.0
//
// See set.h: the table of sets, their fields, and what is not compared and why.

#include "detectors/spr/set.h"

#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "detectors/spr/messages.h"
#include "shim/base/hash.h"
#include "shim/base/spinlock.h"
#include "shim/call/attach.h"
#include "shim/call/runtime.h"
#include "shim/report/log.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/mailbox.h"

namespace resil::spr {

namespace text = messages::spr;

Settings settings;

namespace {

SpinLock table_lock;
Set* table;  // kMostSets, mapped with the first one
std::atomic<uint32_t> created;

}  // namespace

const char* reason_name(Why why) {
  switch (why) {
    case Why::kNone:
    case Why::kCount: break;
    case Why::kNoSelection: return text::no_selection;
    case Why::kLists: return text::neighbour_lists;
    case Why::kMemory: return text::no_memory;
    case Why::kDevice: return text::device_memory;
    case Why::kCounts: return text::wrong_count;
    case Why::kMoved: return text::particle_moved;
    case Why::kOrder: return text::call_order;
    case Why::kFields: return text::fields_disagree;
    case Why::kStep: return text::steps_disagree;
    case Why::kKernel: return text::kernel;
    case Why::kPartner: return text::partner;
    case Why::kSilent: return text::partner_silent;
    case Why::kDead: return text::partner_dead;
    case Why::kThreads: return text::two_threads;
  }
  return "";
}

namespace {

/// Equal on two ranks that declared the same set.
uint64_t declared(const Set& set) {
  uint64_t hash = hash_text(set.name);
  for (uint32_t i = 0; i < set.field_count; ++i) {
    const Field& field = set.fields[i];
    hash = hash_combine(hash, hash_text(field.name));
    hash = hash_combine(hash, field.bytes * 256 + static_cast<uint64_t>(field.flags));
  }
  return hash;
}

int find_position(const int* members, int count, int rank) {
  for (int i = 0; i < count; ++i)
    if (members[i] == rank) return i;
  return -1;
}

bool take_members(Set& set, const int* members, int count) {
  const int size = members != nullptr ? count : runtime.size;
  if (size < 1 || !set.members.reserve(static_cast<size_t>(size))) return false;
  for (int i = 0; i < size; ++i) {
    const int rank = members != nullptr ? members[i] : i;
    if (rank < 0 || rank >= runtime.size) return false;
    set.members[static_cast<size_t>(i)] = rank;
  }
  set.size = size;
  set.position = find_position(set.members.data(), size, runtime.rank);
  if (set.position < 0) return false;
  const int distance = settings.distance % size;
  set.next = set.members[static_cast<size_t>((set.position + distance) % size)];
  set.previous = set.members[static_cast<size_t>((set.position + size - distance) % size)];
  return true;
}

void release(Set& set) {
  // What MPI may still read or write stays mapped.
  const bool under_way = !set.sends.over() || !set.receives.over() || !set.result_sends.over();
  for (Field& field : set.fields) {
    field.computed.release();
    field.computed_marks.release();
    for (Buffer<char>* buffer : {&field.copy, &field.theirs, &field.results}) {
      if (under_way) buffer->abandon();
      else buffer->release();
    }
  }
  if (!under_way) {
    set.own.release();
    set.theirs.release();
  }
  for (Messages* messages : {&set.sends, &set.receives, &set.head_receive, &set.result_sends, &set.results})
    if (!under_way) messages->release();
  for (KeptPair& pair : set.kept) {
    pair.own.data.release();
    pair.before.data.release();
  }
  set.members.release();
  set.selected.release();
  set.ids.release();
  set.scratch.covered.release();
  set.scratch.head.release();
  set.scratch.next.release();
}

}  // namespace

int set_create(const char* name, const int* members, int count) {
  if (settings.method == Method::kOff) return -1;
  if (!runtime_has_world() || !mailbox::is_open()) {
    add_note(text::no_private_communicator);
    return -1;
  }
  SpinGuard guard(table_lock);
  if (table == nullptr && (table = memory::map_array<Set>(kMostSets)) == nullptr) return -1;
  // Places are taken in turn, so that what a set that is gone has left under way does not reach a new one.
  const uint32_t first = created.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kMostSets; ++i) {
    Set& set = table[(first + i) % kMostSets];
    if (set.used) continue;
    const uint32_t number = (first + i) % kMostSets;
    memset(static_cast<void*>(&set), 0, sizeof(set));
    snprintf(set.name, sizeof(set.name), "%s", name != nullptr ? name : "");
    set.number = number;
    set.id_field = -1;
    if (!take_members(set, members, count)) {
      add_note_format(text::not_a_member, set.name);
      return -1;
    }
    set.used = true;
    created.store(first + i + 1, std::memory_order_release);
    return static_cast<int>(number);
  }
  add_note_format(text::too_many_sets, name != nullptr ? name : "");
  return -1;
}

void set_destroy(Set& set) {
  if (set.hashed != nullptr) {
    set.hashed->~Hashed();
    memory::unmap_array(set.hashed);
    set.hashed = nullptr;
  }
  release(set);
  SpinGuard guard(table_lock);
  set.used = false;
}

Set* set_find(int handle) {
  if (handle < 0 || handle >= static_cast<int>(kMostSets) || created.load(std::memory_order_acquire) == 0)
    return nullptr;
  Set& set = table[handle];
  return set.used ? &set : nullptr;
}

uint32_t set_count() { return created.load(std::memory_order_acquire) == 0 ? 0 : kMostSets; }

Set& set_at(uint32_t number) { return table[number]; }

int set_field(Set& set, const char* name, void* data, size_t bytes, size_t stride, int flags) {
  uint32_t at = 0;
  while (at < set.field_count && strncmp(set.fields[at].name, name, kNameBytes - 1) != 0) ++at;
  if (at == kMostFields || bytes == 0 || stride < bytes || ((flags & kId) != 0 && bytes != 8 && bytes != 4)) return -1;
  if (data != nullptr && !host_memory(data, bytes)) {
    uncovered(set, Why::kDevice);
    return -1;
  }
  Field& field = set.fields[at];
  if (at == set.field_count) {
    ++set.field_count;
    snprintf(field.name, sizeof(field.name), "%s", name);
    field.bytes = bytes;
    field.flags = flags;
  } else if (field.bytes != bytes || field.flags != flags) {
    field.sent = false;
    field.bytes = bytes;
    field.flags = flags;
    set.out = set.in = false;
    set.kept[0].valid = set.kept[1].valid = false;  // its place there is another one
  }
  field.data = static_cast<char*>(data);
  field.stride = stride;
  if ((flags & kId) != 0) set.id_field = static_cast<int>(at);
  return static_cast<int>(at);
}

Head make_head(const Set& set, Why why) {
  Head head = {};
  head.magic = 0x7265736c73707231;  // "reslspr1"
  head.set = declared(set);
  head.epoch = set.epoch;
  head.phase = set.phase;
  head.fields = set.named;
  head.step = set.step;
  head.local = set.local;
  head.why = why;
  head.replicas = set.own.replicas;
  head.particles = set.own.particles;
  head.entries = set.own.entries;
  return head;
}

Timeout timeout_of(const Set& set) { return {settings.timeout, set.members.data(), set.size}; }

void uncovered(Set& set, Why why) {
  if (__atomic_fetch_add(&set.counters.uncovered[static_cast<size_t>(why)], 1, __ATOMIC_RELAXED) == 0)
    add_note_format(text::not_compared, set.name, runtime.rank, set.step, reason_name(why));
}

void break_set(Set& set, Why why) {
  if (set.broken == Why::kNone) set.broken = why;
  set.out = set.in = false;
}

int64_t id_of(const Field& field, int64_t particle) {
  const char* const at = field.data + static_cast<size_t>(particle) * field.stride;
  int64_t id;
  int32_t narrow;
  if (field.bytes == 8) {
    memcpy(&id, at, 8);
    return id;
  }
  memcpy(&narrow, at, 4);
  return narrow;
}

namespace {

bool first_ids_hold(const Set& set, int particles) {
  if (set.id_field < 0) return true;
  const Field& field = set.fields[set.id_field];
  if (field.data == nullptr) return false;
  bool hold = true;
  for (int i = 0; i < particles; ++i) {
    const auto at = static_cast<size_t>(i);
    hold &= id_of(field, set.own.index[at]) == set.own.id[at];
  }
  return hold;
}

}  // namespace

bool ids_hold(const Set& set) { return first_ids_hold(set, set.own.replicas); }
bool all_ids_hold(const Set& set) { return first_ids_hold(set, set.own.particles); }

PrivateTag tag_of(const Set& set, TagOf what) {
  return tags::kSpr[set.number * kTagsOfSet + static_cast<uint32_t>(what)];
}

PrivateTag tag_of(const Set& set, const Field& field) {
  return tags::kSpr[set.number * kTagsOfSet + static_cast<uint32_t>(&field - set.fields)];
}

Comparison comparison_of(const Field& field) {
  return {(field.flags & kDouble) != 0  ? size_t{8}
          : (field.flags & kFloat) != 0 ? size_t{4}
                                        : size_t{0},
          (field.flags & (kDouble | kFloat)) != 0 ? settings.low_bits : 0};
}

resil_spr_replicas replicas_of(Set& set) {
  for (uint32_t i = 0; i < set.field_count; ++i) set.pointers[i] = set.fields[i].theirs.data();
  return {set.previous,
          set.theirs.replicas,
          set.theirs.particles,
          static_cast<int>(set.field_count),
          set.theirs.offset.data(),
          set.theirs.neighbour.data(),
          set.theirs.id.data(),
          set.pointers};
}

bool set_copy(Set& set, resil_spr_replicas* copy) {
  if (!set.in && set.theirs.particles == 0) return false;
  *copy = replicas_of(set);
  return true;
}

}  // namespace resil::spr
