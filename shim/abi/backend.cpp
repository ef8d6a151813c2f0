// SPDX-License-Identifier: Apache-2.0
//
// One MPI ABI: the generated wrappers and the calls that the core makes. Compiled once per ABI with
// -DRESIL_ABI=openmpi|mpich|standard; everything lives in that ABI's namespace, because the same C++ names stand for
// types of different size (merged template instances would corrupt silently).

#include "shim/abi/backend.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cfloat>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "shim/abi/handler_change.h"
#include "shim/call/attach.h"
#include "shim/call/dispatch.h"
#include "shim/call/fast_messages.h"
#include "shim/call/fast_path.h"
#include "shim/call/fed_comms.h"
#include "shim/call/large_count_fallback.h"
#include "shim/call/parts.h"
#include "shim/runtime/block_pool.h"
#include "shim/runtime/progress.h"
#include "shim/runtime/staged.h"
#include "shim/tables/deferred_free.h"
#include "shim/tables/freed.h"
#include "shim/tables/live_objects.h"
#include "shim/tables/tables.h"

#define RESIL_STRING_(x) #x
#define RESIL_STRING(x) RESIL_STRING_(x)

namespace resil::RESIL_ABI {

// Each needs the one before it.
// clang-format off
#include RESIL_STRING(shim/abi/RESIL_ABI.h)
constexpr unsigned kAbiColumn = kAbiName[0] == 'o' ? 0 : kAbiName[0] == 'm' ? 1 : 2;
#include "shim/call/wrap.h"
#include "wrappers.inc"
#include "shim/call/lifecycle.inc"
// clang-format on

namespace {

inline bool may_ask_of_type(uint64_t type);

}  // namespace

#include "shim/abi/backend_messages.inc"
#include "shim/abi/backend_replay.inc"
#include "shim/abi/backend_windows.inc"

namespace {

#define ROW(name) reinterpret_cast<void*>(&wrap_##name<0>),
void* const kWrappersMpi[kCallCount] = {
#include "rows.inc"
};
#undef ROW
#define ROW(name) reinterpret_cast<void*>(&wrap_##name<1>),
void* const kWrappersPmpi[kCallCount] = {
#include "rows.inc"
};
#undef ROW
#define ROW(name) reinterpret_cast<void*>(&fallback_##name),
void* const kFallbacks[kCallCount] = {
#include "rows.inc"
};
#undef ROW

extern Backend kBackend;

uint64_t comm_world() { return bits(constants.comm_world); }
uint64_t comm_self() { return bits(constants.comm_self); }
uint64_t comm_null() { return bits(constants.comm_null); }
uint64_t request_null() { return bits(constants.request_null); }
uint64_t request_empty() { return bits(constants.request_empty); }
bool is_in_place(const void* buffer) { return buffer == in_place(); }

bool initialized() {
  int flag = 0;
  return pmpi::Initialized(&flag) == 0 && flag != 0;
}

bool finalized() {
  int flag = 0;
  return pmpi::Finalized(&flag) == 0 && flag != 0;
}

bool thread_multiple() {
  int provided = kThreadMultiple;
  return pmpi::Query_thread(&provided) != 0 || provided == kThreadMultiple;
}

bool library_has(CallId id) {
  return next_functions[kCallCount + static_cast<unsigned>(id)] != kFallbacks[static_cast<unsigned>(id)];
}

Comm own_comm;
bool own_comm_made;

/// Of a datatype that no call here has given out: a predefined one, or one made out of sight.
[[gnu::noinline]] bool may_ask_elsewhere(uint64_t type) {
  if (type == bits(constants.datatype_null)) return false;
  if (type_is_taken) return true;
  if (is_freed(HandleKind::kType, type)) return false;
  if (kAbiColumn == 0 || !own_comm_made || !library_has(CallId::kMPI_Pack_size_c)) return true;
  int64_t bytes = 0;
  if (pmpi::Pack_size_c(1, handle_of<Datatype>(type), own_comm, &bytes) != 0) return false;
  if (kAbiColumn == 1 && type >> 30 == 1)  // MPICH's own: never freed
    handle_given(HandleKind::kType, type);
  return true;
}

/// Would MPI take this datatype? Asked on a communicator of resil's own, whose errors are returned: an error of the
/// program's is MPI's to find, in the program's own call. Open MPI checks nothing here but null handles, nor in its
/// other questions about sizes; one that was freed is refused by the list of those, on both. What a call that was seen
/// here gave out, and none has freed, is valid.
[[gnu::always_inline]] inline bool may_ask_of_type(uint64_t type) {
  return is_given(HandleKind::kType, type) || may_ask_elsewhere(type);
}

bool type_size(uint64_t type, int64_t* bytes) {
  if (!may_ask_of_type(type)) return false;
  // MPI_Type_size_x where there is one: a type may be larger than an int can say.
  return pmpi::Type_size_x(handle_of<Datatype>(type), bytes) == 0 && *bytes >= 0;
}

bool comm_shape(uint64_t handle, int* size, int* rank, int* remote_size) {
  Comm comm = handle_of<Comm>(handle);
  int inter = 0;
  *remote_size = -1;
  if (is_freed(HandleKind::kComm, handle) || handle == 0) return false;
  if (const FedComm* fed = fed_comm(handle); fed != nullptr) {
    *size = fed->size, *rank = fed->rank, *remote_size = fed->remote_size;
    return true;
  }
  // MPICH's handles say what they are of: bits 26 to 29 the class, 30 and 31 where it lies (0: nowhere).
  if (kAbiColumn == 1 && ((handle >> 26 & 0xf) != 1 || handle >> 30 == 0)) return false;
  if (pmpi::Comm_size(comm, size) != 0 || pmpi::Comm_rank(comm, rank) != 0 || pmpi::Comm_test_inter(comm, &inter) != 0)
    return false;
  return !inter || pmpi::Comm_remote_size(comm, remote_size) == 0;
}

bool translate(Group group, int count, const int* ranks, int* world_ranks) {
  Group world;
  if (pmpi::Comm_group(constants.comm_world, &world) != 0) return false;
  bool ok = pmpi::Group_translate_ranks(group, count, ranks, world, world_ranks) == 0;
  pmpi::Group_free(&world);
  for (int i = 0; ok && i < count; ++i)
    if (world_ranks[i] == kUndefined) world_ranks[i] = -1;
  return ok;
}

bool comm_world_ranks(uint64_t handle, bool remote, int count, const int* ranks, int* world_ranks) {
  if (!runtime_has_world()) return false;  // a sessions-only program has no MPI_COMM_WORLD to translate to
  if (const FedComm* fed = fed_comm(handle); fed != nullptr) {
    const int members = remote ? fed->remote_size : fed->size;
    for (int i = 0; i < count; ++i)
      world_ranks[i] = ranks[i] >= 0 && ranks[i] < members ? fed->members[(remote ? fed->size : 0) + ranks[i]] : -1;
    return true;
  }
  Group group;
  CallId get = remote ? CallId::kMPI_Comm_remote_group : CallId::kMPI_Comm_group;
  if (real<int(Comm, Group*)>(1, get)(handle_of<Comm>(handle), &group) != 0) return false;
  bool ok = translate(group, count, ranks, world_ranks);
  pmpi::Group_free(&group);
  return ok;
}

bool group_world_ranks(uint64_t handle, int capacity, int* world_ranks, int* size) {
  Group group = handle_of<Group>(handle);
  // To ask about no group is an error, of which the program's handler would hear.
  if (!runtime_has_world() || handle == bits(constants.group_null) || pmpi::Group_size(group, size) != 0 ||
      *size > capacity)
    return false;
  int ranks[256];  // not the output array itself: MPI forbids that the two overlap
  bool ok = true;
  for (int first = 0; ok && first < *size; first += 256) {
    int count = *size - first < 256 ? *size - first : 256;
    for (int i = 0; i < count; ++i) ranks[i] = first + i;
    ok = translate(group, count, ranks, world_ranks + first);
  }
  return ok;
}

bool comm_degree(uint64_t handle, int* in, int* out) {
  if (const FedComm* fed = fed_comm(handle); fed != nullptr) {
    *in = fed->degree_in, *out = fed->degree_out;
    return fed->degree_in >= 0;
  }
  Comm comm = handle_of<Comm>(handle);
  int topology = kUndefined;
  if (pmpi::Topo_test(comm, &topology) != 0 || topology == kUndefined) return false;
  if (topology == kTopologyCart) {
    int dims = 0;
    pmpi::Cartdim_get(comm, &dims);
    *in = *out = 2 * dims;
  } else if (topology == kTopologyGraph) {
    int rank = 0;
    pmpi::Comm_rank(comm, &rank);
    pmpi::Graph_neighbors_count(comm, rank, out);
    *in = *out;
  } else {
    int weighted = 0;
    pmpi::Dist_graph_neighbors_count(comm, in, out, &weighted);
  }
  return true;
}

void comm_name(uint64_t comm, char* text, size_t bytes) {
  char name[512];
  int length = 0;
  text[0] = 0;
  if (pmpi::Comm_get_name(handle_of<Comm>(comm), name, &length) != 0 || length <= 0) return;
  size_t copied = static_cast<size_t>(length) < bytes - 1 ? static_cast<size_t>(length) : bytes - 1;
  memcpy(text, name, copied);
  text[copied] = 0;
}

int comm_keyval;
bool comm_keyval_made;

int copy_nothing(Comm, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return 0;
}

int delete_attribute(Comm, int, void* info, void*) {
  comm_forget(static_cast<CommInfo*>(info));
  return 0;
}

/// MPICH's requests under the standard ABI are addresses. Those of operations that completed at once lie in one array,
/// by kind: sends are the second, receives the third, nobody the fourteenth. Asked of two messages with nobody.
void learn_shared_requests(Comm comm) {
  Request sent = constants.request_null, received = constants.request_null;
  char nothing = 0;
  if (pmpi::Isend(&nothing, 0, constants.byte, kProcNull, 0, comm, &sent) != 0) return;
  const uint64_t second = bits(sent);
  uint64_t third = second;
  pmpi::Wait(&sent, status_ignore());
  if (pmpi::Irecv(&nothing, 0, constants.byte, kProcNull, 0, comm, &received) == 0) {
    third = bits(received);
    pmpi::Wait(&received, status_ignore());
  }
  const uint64_t stride = third - second;
  if (second == bits(constants.request_null) || second == bits(constants.request_empty) || stride < 64 || stride > 4096)
    return;
  kBackend.shared_first = second - stride;
  __atomic_store_n(&kBackend.shared_span, 14 * stride,
                   __ATOMIC_RELEASE);  // several threads, where there are sessions alone
}

/// A process of sessions alone has no communicator of resil's own: there the first one of the program's is asked.
bool comm_attach(uint64_t comm, void* info) {
  if (kAbiColumn == 2 && !runtime_has_world() && kBackend.shared_span == 0)
    learn_shared_requests(handle_of<Comm>(comm));
  if (!comm_keyval_made) {
    // Racing threads would at worst make a second keyval, which works as well.
    if (pmpi::Comm_create_keyval(reinterpret_cast<void*>(copy_nothing), reinterpret_cast<void*>(delete_attribute),
                                 &comm_keyval, nullptr) != 0)
      return false;
    comm_keyval_made = true;
  }
  return pmpi::Comm_set_attr(handle_of<Comm>(comm), comm_keyval, info) == 0;
}

/// Not a duplicate: that would call the program's copy callbacks when resil comes late.
void make_own_comm() {
  if (own_comm_made || pmpi::Comm_split(constants.comm_self, 0, 0, &own_comm) != 0) return;
  pmpi::Comm_set_errhandler(own_comm, constants.errors_return);
  pmpi::Comm_set_name(own_comm, "resil, for questions");
  own_comm_made = true;
  if (kAbiColumn == 2) learn_shared_requests(own_comm);
}

bool dup_world(uint64_t* handle) {
  Comm comm;
  if (pmpi::Comm_dup(constants.comm_world, &comm) != 0) return false;
  pmpi::Comm_set_errhandler(comm, constants.errors_return);
  pmpi::Comm_set_name(comm, "resil");
  *handle = bits(comm);
  return true;
}

bool send(uint64_t comm, const void* data, size_t bytes, int destination, PrivateTag tag, uint64_t* request) {
  Request handle;
  if (!fits<int>(static_cast<int64_t>(bytes)) || pmpi::Isend(data, static_cast<int>(bytes), constants.byte, destination,
                                                             tag.value(), handle_of<Comm>(comm), &handle) != 0)
    return false;
  *request = bits(handle);
  return true;
}

bool receive(uint64_t comm, void* data, size_t bytes, int source, PrivateTag tag, uint64_t* request) {
  Request handle;
  if (!fits<int>(static_cast<int64_t>(bytes)) ||
      pmpi::Irecv(data, static_cast<int>(bytes), constants.byte, rank_of(source), tag.value(), handle_of<Comm>(comm),
                  &handle) != 0)
    return false;
  *request = bits(handle);
  return true;
}

bool test(uint64_t* request) {
  Request handle = handle_of<Request>(*request);
  int flag = 0;
  if (pmpi::Test(&handle, &flag, status_ignore()) != 0) return false;
  *request = bits(handle);
  return flag != 0;
}

#include "shim/abi/backend_types.inc"

}  // namespace

#include "shim/abi/backend_collectives.inc"
#include "shim/abi/backend_failures.inc"
#include "shim/abi/backend_fed.inc"
#include "shim/abi/backend_parts.inc"
#include "shim/abi/backend_staging.inc"

namespace {
constexpr StatusLayout kStatusLayout = kAbiColumn == 0   ? StatusLayout::kOpenMpi
                                       : kAbiColumn == 1 ? StatusLayout::kMpich
                                                         : StatusLayout::kOpaque;
static_assert(kStatusLayout != StatusLayout::kOpenMpi || sizeof(Status) == sizeof(OpenMpiStatus));
static_assert(kStatusLayout != StatusLayout::kMpich || sizeof(Status) == sizeof(MpichStatus));

Backend kBackend = {.abi = kAbiName,
                    .wrappers = {kWrappersMpi, kWrappersPmpi},
                    .fallbacks = kFallbacks,
                    .threaded = {kThreadedBy0, kThreadedBy1},
                    .threaded_count = sizeof(kThreadedBy0) / sizeof(kThreadedBy0[0]),
                    .reductions = {kReductionsBy0, kReductionsBy1},
                    .handle_bytes = sizeof(Comm),
                    .status_bytes = sizeof(Status),
                    .bind = bind_backend,
                    .comm_world = comm_world,
                    .comm_self = comm_self,
                    .comm_null = comm_null,
                    .request_null = request_null,
                    .request_empty = request_empty,
                    .shared_first = kSharedFirst,
                    .shared_span = kSharedSpan,
                    .status_layout = kStatusLayout,
                    .is_in_place = is_in_place,
                    .in_place = kInPlace,
                    .initialized = initialized,
                    .finalized = finalized,
                    .thread_multiple = thread_multiple,
                    .type_size = type_size,
                    .comm_shape = comm_shape,
                    .comm_world_ranks = comm_world_ranks,
                    .group_world_ranks = group_world_ranks,
                    .comm_degree = comm_degree,
                    .comm_name = comm_name,
                    .comm_attach = comm_attach,
                    .make_own_comm = make_own_comm,
                    .dup_world = dup_world,
                    .send = send,
                    .receive = receive,
                    .test = test,
                    .messages = &kMessageFunctions,
                    .types = &kTypeFunctions,
                    .windows = &kWindowFunctions,
                    .replay = &kReplayFunctions,
                    .collectives = &kCollectiveFunctions,
                    .staging = &kStagingFunctions,
                    .failures = &kFailureFunctions,
                    .parts = &kPartFunctions,
                    .fed = &kFedFunctions};

}  // namespace
}  // namespace resil::RESIL_ABI

namespace resil {
#define RESIL_PASTE_(a, b) a##b
#define RESIL_PASTE(a, b) RESIL_PASTE_(a, b)
const Backend* RESIL_PASTE(RESIL_ABI, _backend)() { return &RESIL_ABI::kBackend; }
}  // namespace resil
