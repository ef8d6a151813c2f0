// SPDX-License-Identifier: Apache-2.0
//
// How many calls with device buffers went which way, and the object `staging` of the rank's report. Any thread.

#include "pipeline/gpu/gpu.h"
#include "pipeline/gpu/pinned.h"
#include "pipeline/staging/chunked.h"
#include "pipeline/staging/messages.h"
#include "pipeline/staging/staging.h"
#include "shim/report/json.h"
#include "shim/report/log.h"

namespace resil::staging {

namespace {

struct Counter {
  uint64_t calls, bytes;
};
constexpr unsigned kPaths = 4, kReasons = 7;
Counter staged[kPaths], uncovered[kReasons], pageable;

constexpr const char* kPathNames[kPaths] = {"messages", "collectives", "persistent", "local"};
namespace why = messages::staging::uncovered;
constexpr const char* kReasonNames[kReasons] = {why::foreign_runtime, why::datatype,  why::pinned_memory, why::device,
                                                why::one_sided,       why::reduction, why::other};

void add(Counter& counter, uint64_t bytes) {
  __atomic_fetch_add(&counter.calls, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&counter.bytes, bytes, __ATOMIC_RELAXED);
}

void report_counter(JsonWriter& json, const char* name, const Counter& counter) {
  json.begin_object(name);
  json.integer("calls", static_cast<int64_t>(counter.calls));
  json.integer("bytes", static_cast<int64_t>(counter.bytes));
  json.end_object();
}

}  // namespace

void count_staged(Path path, uint64_t bytes) { add(staged[static_cast<unsigned>(path)], bytes); }

void count_uncovered(Uncovered reason, uint64_t bytes) {
  Counter& counter = uncovered[static_cast<unsigned>(reason)];
  if (__atomic_load_n(&counter.calls, __ATOMIC_RELAXED) == 0)
    add_note_format(messages::staging::passed_through, kReasonNames[static_cast<unsigned>(reason)]);
  add(counter, bytes);
}

void count_refused(Refusal refusal, uint64_t bytes) {
  switch (refusal) {
    case Refusal::kNone:
    case Refusal::kHostBuffer: return;
    case Refusal::kForeign: return count_uncovered(Uncovered::kForeign, bytes);
    case Refusal::kDatatype: return count_uncovered(Uncovered::kDatatype, bytes);
    case Refusal::kPinnedMemory: return count_uncovered(Uncovered::kPinnedMemory, bytes);
    case Refusal::kDevice: return count_uncovered(Uncovered::kDevice, bytes);
    case Refusal::kBeyond: return count_uncovered(Uncovered::kOther, bytes);
  }
}

void count_pageable(uint64_t bytes) {
  if (__atomic_load_n(&pageable.calls, __ATOMIC_RELAXED) == 0)
    add_note_format(messages::staging::pinned_short, static_cast<unsigned long long>(mode.memory >> 20));
  add(pageable, bytes);
}

void report_counts(JsonWriter& json) {
  for (unsigned i = 0; i < kPaths; ++i) report_counter(json, kPathNames[i], staged[i]);
  report_counter(json, "not_pinned", pageable);
  chunked_report(json);
  const gpu::PinnedUse use = gpu::pinned_use();
  json.begin_object("pinned_memory");
  json.integer("bytes", static_cast<int64_t>(use.bytes));
  json.integer("limit", static_cast<int64_t>(mode.memory));
  json.integer("most_used", static_cast<int64_t>(use.most_used));
  json.end_object();
  json.begin_object("uncovered");
  for (unsigned i = 0; i < kReasons; ++i)
    if (uncovered[i].calls != 0) report_counter(json, kReasonNames[i], uncovered[i]);
  json.end_object();
}

}  // namespace resil::staging
