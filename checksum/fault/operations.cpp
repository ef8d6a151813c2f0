// SPDX-License-Identifier: Apache-2.0
//
// See operations.h.

#include "checksum/fault/operations.h"

#include "checksum/fault/pool.h"
#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/model/event.h"
#include "shim/tables/tables.h"

namespace resil::fault {

namespace {

constexpr unsigned kBuckets = 4096;
constexpr int kUndefinedIndex = -32766;  // MPI_UNDEFINED in all three ABIs
Operation* buckets[kBuckets];
SpinLock lock;

Operation** bucket_of(uint64_t key) { return &buckets[(key * 0x9e3779b97f4a7c15) >> 52]; }

}  // namespace

Operation* operation_add(const Operation& operation) {
  auto* entry = static_cast<Operation*>(pool.allocate(sizeof(Operation)));
  if (entry == nullptr) return nullptr;
  *entry = operation;
  entry->next = nullptr;
  if (!flat_keep(&entry->layout)) {
    pool.release(entry);
    return nullptr;
  }
  SpinGuard guard(lock);
  Operation** place = bucket_of(entry->key);
  while (*place != nullptr) place = &(*place)->next;
  *place = entry;
  return entry;
}

Operation* operation_find(uint64_t key) {
  SpinGuard guard(lock);
  Operation* entry = *bucket_of(key);
  while (entry != nullptr && entry->key != key) entry = entry->next;
  return entry;
}

void operation_drop(Operation* operation, bool in_use) {
  {
    SpinGuard guard(lock);
    Operation** place = bucket_of(operation->key);
    while (*place != nullptr && *place != operation) place = &(*place)->next;
    if (*place == nullptr) return;
    *place = operation->next;
  }
  flat_drop(&operation->layout);
  pool.release(operation->kept);
  if (!in_use) pool.release(operation->shadow);
  pool.release(operation);
}

bool is_shared_handle(uint64_t key) {
  return key == backend->request_null() || key == backend->request_empty() ||
         key - backend->shared_first < backend->shared_span;
}

void for_each_completed(Event& e, void (*visit)(Event&, uint64_t, int64_t, bool)) {
  const int64_t count = e.request_count;
  if (count <= 0 || e.saved_requests == nullptr) return;
  auto saved = [&e](int64_t i) { return e.request_count == 1 ? e.saved_few[0] : request_handle(e.saved_requests, i); };
  const bool flag = e.flag == nullptr || *e.flag != 0;
  if (e.result != 0) {
    for (int64_t i = 0; i < count; ++i)
      if (request_handle(e.requests, i) == backend->request_null() && saved(i) != backend->request_null())
        visit(e, saved(i), i, true);
  } else if (e.outcount != nullptr) {
    for (int i = 0; *e.outcount != kUndefinedIndex && i < *e.outcount; ++i) visit(e, saved(e.indices[i]), i, false);
  } else if (e.index != nullptr) {
    if (flag && *e.index >= 0) visit(e, saved(*e.index), 0, false);
  } else if (flag) {
    for (int64_t i = 0; i < count; ++i) visit(e, saved(i), i, false);
  }
}

}  // namespace resil::fault
