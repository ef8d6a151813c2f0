// SPDX-License-Identifier: Apache-2.0
//
// See parts.h. Program's thread, in MPI_Init; resil_parts_prepare on any thread, inside a call.

#include "shim/call/parts.h"

#include "shim/abi/backend.h"
#include "shim/call/fed_comms.h"
#include "shim/call/runtime.h"
#include "shim/tables/tables.h"

extern "C" {
extern void* resil_slots[];
/// By slot: the stubs for handles of 4 and of 8 bytes, and where a call is looked at first (parts.S).
extern void* const resil_parts_stubs[][3];
[[gnu::visibility("hidden")]] uint64_t resil_parts_world, resil_parts_comm;
[[gnu::visibility("hidden")]] void* resil_parts_inner[2 * resil::kCallCount];
[[gnu::visibility("hidden"), gnu::used]] void* resil_parts_prepare(unsigned slot, uint64_t* arguments);
}

namespace resil {

constinit PartPlace part_place = {};

namespace {

constinit PartHooks part_hooks = {};

bool is_world(uint64_t handle) {
  return backend->handle_bytes == 4 ? static_cast<uint32_t>(handle) == static_cast<uint32_t>(resil_parts_world)
                                    : handle == resil_parts_world;
}

void* stub_of(unsigned slot) { return resil_parts_stubs[slot][backend->handle_bytes == 4 ? 0 : 1]; }

void put(unsigned slot, void* target) {
  resil_parts_inner[slot] = __atomic_load_n(&resil_slots[slot], __ATOMIC_RELAXED);
  __atomic_store_n(&resil_slots[slot], target, __ATOMIC_RELEASE);
}

/// Calls that are given the world are given the part's communicator first.
void put_with_world(unsigned slot, void* target) {
  void* stub = stub_of(slot);
  resil_parts_inner[slot] = target;
  __atomic_store_n(&resil_slots[slot], stub != nullptr ? stub : target, __ATOMIC_RELEASE);
}

}  // namespace

const PartHooks& parts_hooks() { return part_hooks; }

bool parts_begin(const PartPlace& where, const PartHooks& hooks) {
  uint64_t comm;
  const int colour = where.is_fed() ? runtime.rank : where.part;
  if (backend->parts == nullptr || !backend->parts->split(colour, where.members, runtime.size, &comm)) return false;
  part_hooks = hooks;
  part_place = where;
  if (where.is_fed() && !fed_begin(comm)) return false;
  comm_register_part(comm, where.part);
  resil_parts_world = backend->comm_world();
  resil_parts_comm = comm;
  if (hooks.processor != nullptr) backend->parts->set_processor_name(hooks.processor);
  for (unsigned slot = 0; slot < 2 * kCallCount; ++slot) {
    const auto id = static_cast<CallId>(slot % kCallCount);
    if (id == CallId::kMPI_Get_processor_name && hooks.processor != nullptr)
      put(slot, backend->parts->get_processor_name);
    if (id == CallId::kMPI_Comm_get_attr || id == CallId::kMPI_Attr_get) put(slot, backend->parts->get_attribute);
    else if (void* answer = where.fed && where.has_partner() ? backend->fed->answer(id, where.is_fed()) : nullptr)
      put_with_world(slot, answer);
    else if (void* first = resil_parts_stubs[slot][2]) put(slot, first);
    else if (void* stub = stub_of(slot)) put(slot, stub);
  }
  return true;
}

void parts_waiting() {
  if (part_hooks.waiting != nullptr) part_hooks.waiting();
}

bool parts_hopeful() { return part_hooks.hopeful != nullptr && part_hooks.hopeful(); }

void parts_tell_finalized() {
  for (unsigned layer = 0; layer < 2; ++layer) {
    put(layer * kCallCount + static_cast<unsigned>(CallId::kMPI_Finalized), backend->parts->finalized);
    put(layer * kCallCount + static_cast<unsigned>(CallId::kMPI_Finalize), backend->parts->finalize_again);
  }
}

void parts_may_differ(const char* why) {
  if (part_hooks.may_differ != nullptr) part_hooks.may_differ(why);
}

}  // namespace resil

// Before a call that concerns more than a communicator: what it is given may be changed in `arguments`, the first six.
// Returns where the call goes on.
void* resil_parts_prepare(unsigned slot, uint64_t* arguments) {
  using namespace resil;
  const auto id = static_cast<CallId>(slot % kCallCount);
  switch (id) {
    case CallId::kMPI_Comm_set_errhandler:
    case CallId::kMPI_Errhandler_set:  // errors without a communicator are raised on the world
      if (is_world(arguments[0])) backend->parts->set_world_handler(arguments[1]);
      break;
    case CallId::kMPI_File_open:
    case CallId::kMPI_File_delete: {
      const bool removes = id == CallId::kMPI_File_delete;
      uint64_t& name = arguments[removes ? 0 : 1];
      if (part_hooks.file == nullptr || name == 0) break;
      if (const char* other = part_hooks.file(reinterpret_cast<const char*>(name), removes,
                                              removes ? 0 : static_cast<int>(arguments[2])))
        name = reinterpret_cast<uint64_t>(other);
      break;
    }
    case CallId::kMPI_Comm_spawn:
    case CallId::kMPI_Comm_spawn_multiple:
      if (part_place.fed) break;  // the leading part alone makes it, and copies are told
      [[fallthrough]];
    default:
      if (part_hooks.refuse != nullptr) part_hooks.refuse(call_info(id).name);
  }
  void* stub = stub_of(slot);
  return stub != nullptr ? stub : resil_parts_inner[slot];
}
