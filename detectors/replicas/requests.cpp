// SPDX-License-Identifier: Apache-2.0
//
// See requests.h. By handle, open addressing; a place that is freed is filled from behind, so that none is passed in
// vain.

#include "detectors/replicas/requests.h"

#include "shim/base/hash.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/pool.h"
#include "shim/tables/type_maps.h"

namespace resil::replicas {

namespace {

constexpr uint32_t kPlaces = 1u << 16, kMost = kPlaces / 4 * 3;
Request* table;
uint32_t count;
memory::Pool<Layouts, &Layouts::next_free, 64, 1u << 16> pool;

uint32_t place_of(uint64_t handle) { return static_cast<uint32_t>(mix64(handle)) & (kPlaces - 1); }

}  // namespace

bool requests_any() { return count != 0; }

Request* request_find(uint64_t handle) {
  if (count == 0 || handle == 0) return nullptr;
  for (uint32_t at = place_of(handle); table[at].handle != 0; at = (at + 1) & (kPlaces - 1))
    if (table[at].handle == handle) return &table[at];
  return nullptr;
}

bool request_remember(const Request& request) {
  if (table == nullptr) table = memory::map_array<Request>(kPlaces);
  if (Request* old = table != nullptr ? request_find(request.handle) : nullptr; old != nullptr) request_forget(old);
  if (table == nullptr || count == kMost) return false;
  uint32_t at = place_of(request.handle);
  while (table[at].handle != 0) at = (at + 1) & (kPlaces - 1);
  table[at] = request;
  if (request.view.type != nullptr) type_map_hold(request.view.type);
  ++count;
  return true;
}

void request_forget(Request* request) {
  if (request->view.type != nullptr) type_map_release(request->view.type);
  if (request->layouts != nullptr) layouts_drop(request->layouts);
  --count;
  auto hole = static_cast<uint32_t>(request - table);
  for (uint32_t at = (hole + 1) & (kPlaces - 1); table[at].handle != 0; at = (at + 1) & (kPlaces - 1)) {
    const uint32_t wanted = place_of(table[at].handle);
    if (((at - wanted) & (kPlaces - 1)) < ((at - hole) & (kPlaces - 1))) continue;  // it lies before the hole
    table[hole] = table[at];
    hole = at;
  }
  table[hole].handle = 0;
}

Layouts* layouts_make() {
  Layouts* layouts = pool.allocate();
  if (layouts != nullptr) *layouts = {};
  return layouts;
}

void layouts_drop(Layouts* layouts) {
  if (layouts->gives_any) flat_drop(&layouts->gives);
  if (layouts->takes_any) flat_drop(&layouts->takes);
  pool.release(layouts);
}

}  // namespace resil::replicas
