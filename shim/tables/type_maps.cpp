// SPDX-License-Identifier: Apache-2.0
//
// Where flattened datatypes are kept: predefined ones in a table for good, derived ones as an attribute of the handle,
// so that they go when MPI lets the type go. In front of both is the per-thread cache of type_map().

#include "shim/tables/type_maps.h"

#include <cstring>

#include "shim/abi/backend.h"
#include "shim/base/spinlock.h"
#include "shim/model/datatype/flatten.h"
#include "shim/runtime/block_pool.h"
#include "shim/tables/freed.h"

namespace resil {

namespace {

/// What hangs on a handle. A type that cannot be flattened gets one as well, so that it is tried once.
struct Kept {
  TypeMap map;
  uint64_t type;
  bool usable;
};

// --- Predefined types: open addressing, entries are never removed. ---

constexpr unsigned kPredefined = 256;
struct PredefinedEntry {
  std::atomic<uint64_t> type;
  const TypeMap* map;  ///< written before `type`
};
constinit PredefinedEntry predefined[kPredefined] = {};
SpinLock predefined_lock;
unsigned predefined_count;

unsigned place(uint64_t type) { return static_cast<unsigned>((type * 0x9e3779b97f4a7c15u) >> 56) % kPredefined; }

const TypeMap* find_predefined(uint64_t type) {
  for (unsigned i = place(type);; i = (i + 1) % kPredefined) {
    const uint64_t key = predefined[i].type.load(std::memory_order_acquire);
    if (key == type) return predefined[i].map;
    if (key == 0) return nullptr;
  }
}

/// The entry for `type`: `map`, or another thread's that was faster. Null: the table is full.
const TypeMap* keep_predefined(uint64_t type, const TypeMap* map) {
  SpinGuard guard(predefined_lock);
  if (predefined_count == kPredefined - 1 || type == 0) return nullptr;
  unsigned i = place(type);
  for (; predefined[i].type.load(std::memory_order_relaxed) != 0; i = (i + 1) % kPredefined)
    if (predefined[i].type.load(std::memory_order_relaxed) == type) return predefined[i].map;
  predefined[i].map = map;
  predefined[i].type.store(type, std::memory_order_release);
  ++predefined_count;
  return map;
}

// --- Making one ---

/// Lowest and highest byte of one element; false: it reaches beyond what MPI says, and is not to be trusted.
bool measure(uint64_t type, TypeMap& map) {
  map.size = 0;
  for (uint32_t i = 0; i < map.run_count; ++i) {
    const Run& run = map.runs[i];
    const int64_t last = run.offset + (run.count - 1) * run.stride;
    const int64_t low = run.offset < last ? run.offset : last,
                  high = (run.offset < last ? last : run.offset) + run.bytes;
    map.low = i == 0 || low < map.low ? low : map.low;
    map.high = i == 0 || high > map.high ? high : map.high;
    map.size += static_cast<uint64_t>(run.bytes * run.count);
  }
  int64_t size = 0, lower_bound = 0, true_extent = 0;
  if (!backend->type_size(type, &size) || static_cast<uint64_t>(size) != map.size) return false;
  return size == 0 || (backend->types->true_extent(type, &lower_bound, &true_extent) && map.low >= lower_bound &&
                       map.high <= lower_bound + true_extent);
}

TypeQueries queries_of_backend() {
  const TypeFunctions& types = *backend->types;
  TypeQueries queries = {};
  queries.release = types.release;
  queries.basic = types.basic;
  queries.size = backend->type_size;
  queries.extent = types.extent;
  queries.decode = types.decode;
  return queries;
}

Kept* make(uint64_t type, bool* is_predefined) {
  Flattened flat;
  int64_t lower_bound = 0, extent = 0;
  bool usable = flatten(type, queries_of_backend(), flat) && backend->types->extent(type, &lower_bound, &extent);
  *is_predefined = flat.predefined;
  const uint32_t runs = usable ? flat.runs.count() : 0;
  const uint32_t signature = signature_of(flat.sequence);
  const bool mixed = usable && (signature & kMixedSignature) != 0;
  auto* kept =
      static_cast<Kept*>(memory::blocks.allocate(sizeof(Kept) + runs * sizeof(Run) + (mixed ? sizeof(MixedType) : 0)));
  if (kept == nullptr) return nullptr;
  auto* own_runs = reinterpret_cast<Run*>(kept + 1);
  if (runs != 0) memcpy(own_runs, flat.runs.runs(), runs * sizeof(Run));
  kept->map = {};
  TypeMap& map = kept->map;
  map.extent = extent;
  map.run_count = runs;
  map.runs = own_runs;
  map.basic = flat.basic;
  map.references = 1;
  map.permanent = flat.predefined;
  map.padded = flat.padded;
  map.signature = mixed ? kMixedSignature : signature;
  if (mixed) {
    map.mixed = reinterpret_cast<MixedType*>(own_runs + runs);
    *map.mixed = {flat.sequence, flat.start, 0};
  }
  kept->usable = usable && measure(type, map) && (!map.padded || map.basic.kind != BasicKind::kUnknown);
  const bool one_piece = runs == 1 && own_runs->count == 1 && own_runs->offset == 0 && own_runs->bytes == extent;
  map.contiguous = !map.padded && (one_piece || (runs == 0 && extent == 0));
  return kept;
}

// --- Derived types ---

/// MPI_Type_set_attr has found another thread's map on the handle and drops it. That thread may be using it.
constinit thread_local bool replacing __attribute__((tls_model("initial-exec"))) = false;

/// Delete callback of the attribute: any thread, inside MPI.
void forget(void* info) {
  const Thread* thread = current_thread;
  handle_generation.fetch_add(1, std::memory_order_release);
  if (thread == nullptr || thread->freed_type != static_cast<Kept*>(info)->type) forget_calls();
  if (!replacing) type_map_release(&static_cast<Kept*>(info)->map);
}

bool attach(uint64_t type, Kept* kept) {
  kept->type = type;
  replacing = true;
  const bool done = backend->types->attach(type, kept, forget);
  replacing = false;
  return done;
}

/// `known`: MPI has told its size since a datatype was freed last.
const TypeMap* find(uint64_t type, bool known) {
  if (const TypeMap* map = find_predefined(type)) return map;
  int64_t size = 0;
  if (!known && !backend->type_size(type, &size)) return nullptr;
  const TakenType and_its_parts;
  if (auto* kept = static_cast<Kept*>(backend->types->attached(type))) return kept->usable ? &kept->map : nullptr;
  bool is_predefined = false;
  Kept* kept = make(type, &is_predefined);
  if (kept == nullptr) return nullptr;
  const TypeMap* map = kept->usable ? &kept->map : nullptr;
  if (is_predefined) {
    map = map != nullptr ? keep_predefined(type, map) : nullptr;
    if (map != &kept->map) memory::blocks.release(kept);
    return map;
  }
  if (attach(type, kept)) return map;
  memory::blocks.release(kept);
  return nullptr;
}

}  // namespace

const TypeMap* type_map_slow(Thread& thread, uint64_t type) {
  const int64_t size = type_size(thread, type);  // brings the cache to the current generation, and the type into it
  TypeCacheEntry& entry = thread.types[(type ^ (type >> 9)) % kTypeCache];
  if (entry.map != nullptr) return entry.map;
  const TypeMap* map = find(type, size > 0);
  if (entry.handle == type) entry.map = map;
  return map;
}

void type_map_hold(const TypeMap* map) {
  if (!map->permanent) __atomic_fetch_add(&const_cast<TypeMap*>(map)->references, 1, __ATOMIC_RELAXED);
}

void type_map_release(const TypeMap* map) {
  if (!map->permanent && __atomic_sub_fetch(&const_cast<TypeMap*>(map)->references, 1, __ATOMIC_ACQ_REL) == 0)
    memory::blocks.release(const_cast<Kept*>(reinterpret_cast<const Kept*>(map)));
}

}  // namespace resil
