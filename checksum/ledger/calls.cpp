// SPDX-License-Identifier: Apache-2.0
//
// See calls.h.

#include "checksum/ledger/calls.h"

#include <atomic>
#include <cinttypes>
#include <cstdio>

#include "checksum/messages.h"
#include "shim/base/hash.h"
#include "shim/base/own_stack.h"
#include "shim/base/spinlock.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/model/datatype/signature.h"
#include "shim/report/finding.h"
#include "shim/runtime/memory.h"
#include "shim/tables/tables.h"

namespace resil::ledger {

namespace {

namespace text = messages::checksum;

constexpr uint32_t kTold = 64;

SpinLock lock;
uint64_t told[kTold];
uint32_t told_count;
std::atomic<bool> stop;

struct CallsGuard : OptionalGuard {
  CallsGuard() : OptionalGuard(lock, concurrent()) {}
};

/// What is told once.
uint64_t name_of(const Record& own, const Record& other) {
  if (is_collective(own)) return own.comm;
  return hash_combine(hash_combine(own.site, own.type()), hash_combine(other.type(), other.call));
}

bool same_data(const Record& a, const Record& b) { return a.digest == b.digest && a.bytes == b.bytes; }

void count_packet(const Record& own, const Record& other) {
  if (same_data(own, other)) count_checked(1, own.bytes);
  else count_uncovered(Reason::kCallsDiffer, 1, own.bytes);
}

const char* call_name(uint16_t call) { return call < kCallCount ? call_info(static_cast<CallId>(call)).name : "?"; }

const char* op_name(OpKind op) {
  constexpr const char* kNames[] = {"MPI_OP_NULL", "MPI_MAX",     "MPI_MIN",   "MPI_SUM",
                                    "MPI_PROD",    "MPI_LAND",    "MPI_BAND",  "MPI_LOR",
                                    "MPI_BOR",     "MPI_LXOR",    "MPI_BXOR",  "MPI_MAXLOC",
                                    "MPI_MINLOC",  "MPI_REPLACE", "MPI_NO_OP", "its own operator"};
  const auto index = static_cast<unsigned>(op);
  return index < sizeof(kNames) / sizeof(kNames[0]) ? kNames[index] : "?";
}

const char* comm_name(uint64_t id) {
  for (uint32_t i = 0; i < runtime.comm_count; ++i)
    if (runtime.comms[i].id == id && id != 0 && runtime.comms[i].name[0] != 0) return runtime.comms[i].name;
  return text::comm_freed;
}

/// What the two calls differ in, and each side's, in words.
struct Sides {
  const char* what;
  char own[96], other[96];
};

void put_type(const Record& record, char* words, size_t bytes) {
  const uint32_t type = is_collective(record) ? static_cast<uint32_t>(record.lower) : record.type();
  const uint32_t width = signature_width(type);
  if (width != 0) snprintf(words, bytes, "%" PRIu32 "-byte %s", width, signature_words(type));
  else snprintf(words, bytes, "%s", signature_words(type));
}

void compare(const CallsDiffer& d, Sides* sides) {
  auto amount = [](const Record& record, char* words, size_t bytes) {
    snprintf(words, bytes, "%" PRIu64 " bytes", uint64_t{record.bytes});
  };
  const Called &a = d.own_called, &b = d.other_called;
  const bool both = a.known && b.known;
  const bool collective = is_collective(d.own);
  sides->own[0] = sides->other[0] = 0;
  if (collective && !same_call(d.own.call, d.other.call)) {
    sides->what = text::other_function;
  } else if (collective && both && a.op != b.op) {
    sides->what = text::other_operator;
    snprintf(sides->own, sizeof(sides->own), "%s", op_name(a.op));
    snprintf(sides->other, sizeof(sides->other), "%s", op_name(b.op));
  } else if (collective && both && a.root != b.root) {
    sides->what = text::other_root;
    snprintf(sides->own, sizeof(sides->own), "root %d", a.root);
    snprintf(sides->other, sizeof(sides->other), "root %d", b.root);
  } else if (collective && !half_matches(d.own.upper, d.other.upper)) {
    sides->what = both ? text::other_history : text::other_root_or_operator;
  } else if (collective && d.own.bytes != d.other.bytes) {
    sides->what = text::other_amount;
    amount(d.own, sides->own, sizeof(sides->own));
    amount(d.other, sides->other, sizeof(sides->other));
  } else {
    sides->what = text::other_types;
    put_type(d.own, sides->own, sizeof(sides->own));
    put_type(d.other, sides->other, sizeof(sides->other));
  }
}

void say(const CallsDiffer& d) {
  char own_site[112], place[110];
  if (d.own_site != nullptr) snprintf(own_site, sizeof(own_site), "%s", d.own_site);
  else site_text(d.own.site, own_site, sizeof(own_site));
  const bool collective = is_collective(d.own);
  const int here = runtime.rank, there = world_rank_of(*d.there);
  snprintf(place, sizeof(place), "%s %" PRIu32 " on %.64s", collective ? "collective number" : "tag", d.own.tag,
           comm_name(d.own.comm));
  Sides sides;
  compare(d, &sides);
  Finding finding;
  finding.start("call_mismatch", d.confirmed ? Confidence::kProved : Confidence::kSuspected);
  finding.victim(here);
  finding.victim(there);
  if (d.absent) {
    finding.say(text::calls_absent, here, call_name(d.own.call), place, there);
  } else {
    finding.say(text::calls_differ, sides.what, here, call_name(d.own.call), sides.own[0] != 0 ? ", " : "", sides.own,
                there, call_name(d.other.call), sides.other[0] != 0 ? ", " : "", sides.other, place,
                collective ? text::not_corrupted : text::types_only);
  }
  finding.to_do(collective ? text::to_do_compare_calls : text::to_do_compare_types);
  finding.add("call", "%s", call_name(d.own.call));
  finding.add("site", "%s", own_site);
  if (!d.absent) {
    finding.add("other_call", "%s", call_name(d.other.call));
    if (d.other_site != nullptr && d.other_site[0] != 0) finding.add("other_site", "%s", d.other_site);
    finding.add("bytes", "%" PRIu64 " in rank %d, %" PRIu64 " in rank %d", uint64_t{d.own.bytes}, here,
                uint64_t{d.other.bytes}, there);
  }
  finding.add("communicator", "id %016" PRIx64, d.own.comm);
  finding_publish(finding);
}

}  // namespace

Rolling* rolling;
Called* called;
uint64_t called_count;
bool calls_concurrent = true;

bool calls_create() {
  rolling = memory::map_array<Rolling>(runtime.comm_count + 64);
  called = memory::map_array<Called>(kCalled);
  return rolling != nullptr && called != nullptr;
}

void calls_note_slowly(const Called& one) {
  CallsGuard guard;
  called[called_count++ % kCalled] = one;
}

Called calls_find(uint64_t comm, uint32_t tag) {
  CallsGuard guard;
  for (uint64_t i = called_count, last = called_count > kCalled ? called_count - kCalled : 0; i-- > last;)
    if (const Called& one = called[i % kCalled]; one.comm == comm && (one.tag == tag || one.tag == 0)) return one;
  return {};
}

bool calls_agree(const Called& a, const Called& b) {
  return !a.known || !b.known ||
         (same_call(a.call, b.call) && half_matches(a.calls, b.calls) && half_matches(a.type, b.type));
}

bool calls_told(const Record& sent, const Record& received) {
  const uint64_t name = name_of(received, sent);
  bool known = false;
  {
    CallsGuard guard;
    for (uint32_t i = 0; i < told_count && !known; ++i) known = told[i] == name;
  }
  if (known) count_packet(received, sent);
  return known;
}

void calls_differ(const CallsDiffer& differ) {
  if (calls_told(differ.other, differ.own)) return;
  {
    CallsGuard guard;
    if (told_count == kTold) return count_packet(differ.own, differ.other);
    told[told_count++] = name_of(differ.own, differ.other);
  }
  count_packet(differ.own, differ.other);
  on_own_stack([&] { say(differ); });
  if (is_collective(differ.own) && differ.confirmed && !differ.absent && !same_data(differ.own, differ.other))
    stop.store(true, std::memory_order_release);
}

bool calls_stop() { return stop.load(std::memory_order_acquire) && abort_wanted(); }

}  // namespace resil::ledger
