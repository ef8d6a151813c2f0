// SPDX-License-Identifier: Apache-2.0
//
// What the generated wrappers are made of. Included by backend.cpp once per ABI, inside its namespace: nothing here
// may be shared between ABIs (MPI_Status and the handles differ in size).

inline int32_t peer(int rank) {
  if (rank >= 0) [[likely]]
    return rank;
  return rank == kAnySource  ? ring::kAnySource
         : rank == kProcNull ? ring::kProcNull
         : rank == kRoot     ? ring::kRootSelf
                             : rank;
}

/// For the module that is dormant until it is given a buffer of a certain kind.
template <bool sends, bool receives>
[[gnu::always_inline]] inline void notice_buffers(Event& e) {
  if ((!sends && !receives) || e.thread->host_ranges.all()) [[likely]]
    return;
  if constexpr (sends) notice(*e.thread, e.send.buffer);
  if constexpr (receives) notice(*e.thread, e.receive.buffer);
}

// The frame address must be taken in the wrapper itself, so beginning and end of a wrapper are macros; all logic is
// in dispatch.cpp.
#define RESIL_BEGIN(call_id, signature)                                                    \
  using Signature = signature;                                                             \
  constexpr CallId id = call_id;                                                           \
  const uint64_t return_address = reinterpret_cast<uint64_t>(__builtin_return_address(0)); \
  const uint64_t frame = reinterpret_cast<uint64_t>(__builtin_dwarf_cfa());                \
  Event e;                                                                                 \
  clear_event<id>(e);                                                                      \
  e.thread = current_thread;                                                               \
  e.return_address = return_address;                                                       \
  e.frame = frame;

// The two ways of a call that has a fast one (fast_path.h) are functions of their own, to which the wrapper jumps: they
// so have its return address and frame, and neither saves a register that only the other needs. Where nothing is
// optimised, and under sanitizers, there are no such jumps.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define RESIL_APART [[gnu::noinline]]
#else
#define RESIL_APART [[gnu::always_inline]] inline
#endif

// The fast path, before an Event is made (fast_path.h).
#define RESIL_FAST_MESSAGE(call_id, signature, arguments, buffer, count, type, rank, tag, comm)                        \
  if (fast::Call call; fast::message<call_id, kThreads>(call, reinterpret_cast<uint64_t>(__builtin_return_address(0)), \
                                                        reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()), buffer,     \
                                                        count, bits(type), rank, tag, bits(comm))) [[likely]] {        \
    if (!kThreads && fast::messages != nullptr) [[unlikely]]                                                           \
      return send_checked<layer, call_id>(call, buffer, count, type, rank, tag, comm);                                 \
    const int result = real<signature>(layer, call_id) arguments;                                                      \
    fast::message_done<call_id>(call, result);                                                                         \
    return result;                                                                                                     \
  }
#define RESIL_FAST_START(call_id, signature, arguments, buffer, count, type, rank, tag, comm, request)                 \
  if (fast::Call call; fast::message<call_id, kThreads>(call, reinterpret_cast<uint64_t>(__builtin_return_address(0)), \
                                                        reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()), buffer,     \
                                                        count, bits(type), rank, tag, bits(comm))) [[likely]] {        \
    const int result = real<signature>(layer, call_id) arguments;                                                      \
    return fast::started<call_id>(call, result, request);                                                              \
  }
#define RESIL_FAST_RECEIVE(call_id, signature, arguments, buffer, count, type, rank, tag, comm, status)                \
  if (fast::Call call; fast::message<call_id, kThreads>(call, reinterpret_cast<uint64_t>(__builtin_return_address(0)), \
                                                        reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()), buffer,     \
                                                        count, bits(type), rank, tag, bits(comm))) [[likely]] {        \
    if (!kThreads && fast::messages != nullptr) [[unlikely]]                                                           \
      return receive_by_tests<call_id>(call, buffer, count, type, rank, tag, comm, status);                            \
    const int result = real<signature>(layer, call_id) arguments;                                                      \
    fast::message_done<call_id>(call, result);                                                                         \
    return result;                                                                                                     \
  }
#define RESIL_FAST_EXCHANGE(call_id, signature, arguments, sent, count, type, rank, tag, received, receive_count, \
                            receive_type, source, receive_tag, comm, status, given, given_arguments)              \
  if (fast::Call call; fast::exchange<call_id, kThreads>(                                                         \
          call, reinterpret_cast<uint64_t>(__builtin_return_address(0)),                                          \
          reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()), sent, count, bits(type), peer(rank), tag, received,  \
          receive_count, bits(receive_type), source, receive_tag, bits(comm))) [[likely]] {                       \
    if (!kThreads && fast::messages != nullptr) [[unlikely]] {                                                    \
      Status own;                                                                                                 \
      Status* const given = status != status_ignore() ? status : &own;                                            \
      fast::exchange_begins<call_id>(call);                                                                       \
      const int result = real<signature>(layer, call_id) given_arguments;                                         \
      fast::message_checked<call_id>(call, result, given);                                                        \
      return result;                                                                                              \
    }                                                                                                             \
    const int result = real<signature>(layer, call_id) arguments;                                                 \
    fast::message_done<call_id>(call, result);                                                                    \
    return result;                                                                                                \
  }
#define RESIL_FAST_WAIT(call_id, signature, arguments, requests, count, statuses, room)                              \
  {                                                                                                                  \
    fast::Call call;                                                                                                 \
    Request saved[room];                                                                                             \
    if (fast::wait<call_id>(call, reinterpret_cast<uint64_t>(__builtin_return_address(0)),                           \
                            reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()), requests, count, saved)) [[likely]] { \
      if (fast::messages != nullptr) [[unlikely]]                                                                    \
        return complete_by_tests<call_id>(call, requests, count, saved, statuses);                                   \
      const int result = real<signature>(layer, call_id) arguments;                                                  \
      return fast::waited<call_id>(call, result, requests, count, saved, statuses);                                  \
    }                                                                                                                \
  }
#define RESIL_FAST_TEST(call_id, signature, arguments, request, flag, status)                            \
  if (fast::Call call;                                                                                   \
      fast::poll<call_id>(call, reinterpret_cast<uint64_t>(__builtin_return_address(0)),                 \
                          reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()), bits(*request), 0, 0, 0)) { \
    const Request saved = *request;                                                                      \
    const int result = real<signature>(layer, call_id) arguments;                                        \
    return fast::polled<call_id>(call, result, result != 0 || *flag != 0, request, saved, status);       \
  }
#define RESIL_FAST_PROBE(call_id, signature, arguments, rank, tag, comm, flag)                                   \
  if (fast::Call call; fast::poll<call_id>(call, reinterpret_cast<uint64_t>(__builtin_return_address(0)),        \
                                           reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()), 0, peer(rank),     \
                                           tag_of(tag), bits(comm))) {                                           \
    const int result = real<signature>(layer, call_id) arguments;                                                \
    return fast::polled<call_id, Request>(call, result, result != 0 || *flag != 0, nullptr, Request{}, nullptr); \
  }
template <CallId id>
inline bool lies_in_place(const void* sent, const void* received) {
  if constexpr ((call_info(id).attributes & kCallHasBlocks) != 0) return sent == in_place() || received == in_place();
  else return false;
}
template <class Signature>
inline Signature* real(int layer, CallId id) {
  return reinterpret_cast<Signature*>(next_functions[layer * kCallCount + static_cast<unsigned>(id)]);
}

/// Of a call of the fast path.
template <class Signature, CallId id>
inline Signature* fast_real(int layer) {
  if constexpr (fast::is_own_reduction(id))
    return reinterpret_cast<Signature*>(__atomic_load_n(
        &fast::reductions[layer][fast::reductions_before(static_cast<unsigned>(id))], __ATOMIC_RELAXED));
  else return real<Signature>(layer, id);
}
#define RESIL_FAST_COLLECTIVE(call_id, signature, arguments, sent, received, count, type, root, op, comm)           \
  if (fast::Call call;                                                                                              \
      !lies_in_place<call_id>(sent, received) &&                                                                    \
      fast::collective<call_id, kThreads>(call, reinterpret_cast<uint64_t>(__builtin_return_address(0)),            \
                                          reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()), sent, received, count, \
                                          type, root, op, bits(comm))) [[likely]] {                                 \
    const int result = fast_real<signature, call_id>(layer) arguments;                                              \
    fast::collective_done<call_id, kThreads>(call, result);                                                         \
    return result;                                                                                                  \
  }
#define RESIL_FAST_COLLECTIVE_START(call_id, signature, arguments, sent, received, count, type, root, op, comm,     \
                                    request)                                                                        \
  if (fast::Call call; !lies_in_place<call_id>(sent, received) &&                                                   \
                       fast::collective<call_id>(call, reinterpret_cast<uint64_t>(__builtin_return_address(0)),     \
                                                 reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()), sent, received, \
                                                 count, type, root, op, bits(comm))) [[likely]] {                   \
    const int result = fast_real<signature, call_id>(layer) arguments;                                              \
    return fast::started<call_id>(call, result, request);                                                           \
  }

// A reduction of the fast path that a module carries out instead of the library (fast::reductions).
#define RESIL_REDUCTION(call_id, signature, arguments, sent, received, element_count, datatype, root, operation, \
                        communicator, request)                                                                   \
  Event e;                                                                                                       \
  e.id = call_id;                                                                                                \
  e.thread = current_thread;                                                                                     \
  e.comm_handle = bits(communicator);                                                                            \
  e.comm = comm_lookup(*e.thread, e.comm_handle);                                                                \
  e.peer = root;                                                                                                 \
  e.op = bits(operation);                                                                                        \
  e.send = {sent, element_count, bits(datatype), nullptr, nullptr, nullptr};                                     \
  e.receive = {received, element_count, bits(datatype), nullptr, nullptr, nullptr};                              \
  e.given_send = sent;                                                                                           \
  e.given_receive = received;                                                                                    \
  e.requests = request;                                                                                          \
  switch (fast::execute_instead(e)) {                                                                            \
    [[likely]] case fast::Instead::kDone : return e.result;                                                      \
    case fast::Instead::kLibrarys: return real<signature>(layer, call_id) arguments;                             \
    case fast::Instead::kUnknown: break;                                                                         \
  }                                                                                                              \
  fast::complete_event(e);                                                                                       \
  if (!intercept(e)) e.result = real<signature>(layer, call_id) arguments;                                       \
  after_call(e);                                                                                                 \
  return e.result

#define RESIL_CALL(arguments, sends, receives)                                             \
  if (e.thread == nullptr || e.thread->depth != 0) [[unlikely]]                            \
    admit(e);                                                                              \
  if (e.thread == nullptr || (notice_buffers<sends, receives>(e), !enter(e))) [[unlikely]] \
    return real<Signature>(layer, id) arguments;                                           \
  if (!intercepted[static_cast<unsigned>(id)]) [[likely]] {                                \
    e.result = real<Signature>(layer, id) arguments;                                       \
  } else {                                                                                 \
    if (!intercept(e)) e.result = real<Signature>(layer, id) arguments;                    \
    after_call(e);                                                                         \
  }                                                                                        \
  leave(e);                                                                                \
  return e.result

template <class T>
inline uint64_t bits(T handle) {
  if constexpr (std::is_pointer_v<T>) return reinterpret_cast<uint64_t>(handle);
  else return static_cast<uint32_t>(handle);
}

template <class Handle>
inline Handle handle_of(uint64_t value) {
  if constexpr (std::is_pointer_v<Handle>) return reinterpret_cast<Handle>(value);
  else return static_cast<Handle>(value);
}

inline int32_t tag_of(int tag) { return tag >= 0 ? tag : tag == kAnyTag ? ring::kAnyTag : tag; }

Op null_op();

/// MPI_Op_free and MPI_Type_free of a handle that resil still needs: the program's handle becomes null, as if it were
/// freed; the operator or type lives on until then, as it does in MPI itself while operations are pending.
template <CallId id, class Handle>
inline bool defer_free(Handle* handle) {
  constexpr bool is_op = id == CallId::kMPI_Op_free;
  if (!defer_handle_free(is_op ? FreedKind::kOp : FreedKind::kType, bits(*handle))) return false;
  if constexpr (is_op) *handle = null_op();
  else *handle = constants.datatype_null;
  return true;
}

#include "shim/call/wrap_local.h"
#include "shim/call/wrap_objects.h"
#include "shim/call/wrap_status.h"
#include "shim/call/wrap_tests.h"

constexpr bool frees(CallId id) { return id == CallId::kMPI_Op_free || id == CallId::kMPI_Type_free; }
constexpr bool makes_operator(CallId id) {
  return id == CallId::kMPI_Op_create || id == CallId::kMPI_Op_create_c || id == CallId::kMPIX_Op_create_x;
}
/// Local calls by which a datatype can come into use, or an operator. All other constructors make types that must be
/// committed first.
constexpr bool gives_out(CallId id) {
  return id == CallId::kMPI_Type_commit || id == CallId::kMPI_Type_dup || id == CallId::kMPI_Type_get_contents ||
         id == CallId::kMPI_Type_get_contents_c || id == CallId::kMPI_Type_get_value_index || makes_operator(id);
}

/// Of a call of these: handles are given out, or about to be freed. The handle is the last argument's.
template <CallId id, bool given, class Handle>
inline void mark_handles(Handle* last, int64_t count) {
  constexpr HandleKind kind = id == CallId::kMPI_Op_free || makes_operator(id) ? HandleKind::kOp : HandleKind::kType;
  for (int64_t i = 0; i < count; ++i) given ? handle_given(kind, bits(last[i])) : handle_freed(kind, bits(last[i]));
}
template <class First, class... Rest>
constexpr auto last_of(First first, Rest... rest) {
  if constexpr (sizeof...(rest) == 0) return first;
  else return last_of(rest...);
}

template <CallId id, class... A>
inline int64_t handles_given(A... arguments) {
  if constexpr (id == CallId::kMPI_Type_get_contents || id == CallId::kMPI_Type_get_contents_c) {
    constexpr unsigned place = id == CallId::kMPI_Type_get_contents ? 3 : 4;  // max_datatypes
    const auto number = [](auto argument) {
      if constexpr (std::is_integral_v<decltype(argument)>) return static_cast<int64_t>(argument);
      else return int64_t{0};
    };
    const int64_t numbers[] = {number(arguments)...};
    return numbers[place];
  }
  return 1;
}

inline void renamed(Comm comm, const char*) { comm_renamed(bits(comm)); }

template <int layer, CallId id, class Signature>
struct LocalCall;

template <int layer, CallId id, class R, class... A>
struct LocalCall<layer, id, R(A...)> {
  [[gnu::always_inline]] static inline R call(uint64_t return_address, uint64_t frame, A... arguments) {
    Thread* thread = current_thread;
    if (thread == nullptr || thread->depth != 0) [[unlikely]] {
      Event e;
      clear_event<id>(e);
      e.return_address = return_address;
      e.frame = frame;
      admit(e);
      thread = e.thread;
    }
    if (thread != nullptr) [[likely]]
      count_local(thread, id, return_address, frame);
    if constexpr (id == CallId::kMPI_Op_free || id == CallId::kMPI_Type_free) {
      if (thread != nullptr && __atomic_load_n(&deferred_free_count, __ATOMIC_RELAXED) != 0 &&
          defer_free<id>(arguments...))
        return 0;
    }
    if constexpr (frees(id)) {
      const auto last = last_of(arguments...);
      if (last == nullptr) return real<R(A...)>(layer, id)(arguments...);
      auto handle = *last;
      if constexpr (id == CallId::kMPI_Type_free) forget_type(thread, bits(handle));
      mark_handles<id, false>(&handle, 1);
      const R result = real<R(A...)>(layer, id)(arguments...);
      if (result != 0) [[unlikely]]
        handle_kept(id == CallId::kMPI_Op_free ? HandleKind::kOp : HandleKind::kType, bits(handle));
      if constexpr (id == CallId::kMPI_Type_free)
        if (thread != nullptr) thread->freed_type = 0;
      return result;
    }
    if constexpr (gives_out(id)) {
      const R result = real<R(A...)>(layer, id)(arguments...);
      if (result == 0) mark_handles<id, true>(last_of(arguments...), handles_given<id>(arguments...));
      return result;
    }
    if constexpr (id == CallId::kMPI_Comm_set_errhandler || id == CallId::kMPI_Errhandler_set) {
      const HandlerChange change;
      return real<R(A...)>(layer, id)(arguments...);
    }
    if constexpr (id == CallId::kMPI_Comm_set_name) {
      const R result = real<R(A...)>(layer, id)(arguments...);
      if (result == 0 && thread != nullptr) renamed(arguments...);
      return result;
    }
    if constexpr (moves_data(id)) {
      if (thread != nullptr && !thread->host_ranges.all()) [[unlikely]]
        return move_data<layer, id>(*thread, arguments...);
    }
    if constexpr (id == CallId::kMPI_Wtime || id == CallId::kMPI_Wtick) {
      const R value = real<R(A...)>(layer, id)(arguments...);
      return time_hook != nullptr && thread != nullptr ? time_hook(*thread, id, value) : value;
    }
    return real<R(A...)>(layer, id)(arguments...);
  }
};

#define RESIL_HERE_IS                                                                      \
  const uint64_t return_address = reinterpret_cast<uint64_t>(__builtin_return_address(0)); \
  const uint64_t frame = reinterpret_cast<uint64_t>(__builtin_dwarf_cfa())

#define RESIL_LOCAL(call_id, signature, ...)                                                                 \
  return LocalCall<layer, call_id, signature>::call(reinterpret_cast<uint64_t>(__builtin_return_address(0)), \
                                                    reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()) __VA_ARGS__)

// Of a query that programs make again and again: without a call, so that its arguments stay where they are.
#define RESIL_OFTEN(call_id, signature, arguments)                                          \
  if (fast::counted<call_id>(reinterpret_cast<uint64_t>(__builtin_return_address(0)),       \
                             reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()))) [[likely]] \
  return real<signature>(layer, call_id) arguments

// --- Names that the library lacks ------------------------------------------------------------------------------

inline int unsupported() { return kErrUnsupported; }

/// A count that does not fit the int function: through the error handler of the communicator, as MPI would.
inline int count_error(uint64_t comm) {
  uint64_t target = comm != 0 ? comm : bits(constants.comm_world);
  real<int(Comm, int)>(1, CallId::kMPI_Comm_call_errhandler)(handle_of<Comm>(target), kErrCount);
  return kErrCount;
}

template <class T>
inline bool fits(int64_t value) {
  return static_cast<int64_t>(static_cast<T>(value)) == value;
}

inline int64_t counts_length(uint64_t comm, bool neighbours) {
  int size = 0, rank = 0, remote = -1;
  backend->comm_shape(comm, &size, &rank, &remote);
  if (neighbours) {
    int in = 0, out = 0;
    return backend->comm_degree(comm, &in, &out) ? (in > out ? in : out) : 0;
  }
  return remote >= 0 ? remote : size;
}

/// The arrays of Gatherv and Scatterv are significant at the root only.
inline int64_t root_counts_length(uint64_t comm, int root) {
  int size = 0, rank = 0, remote = -1;
  backend->comm_shape(comm, &size, &rank, &remote);
  return remote >= 0 ? (root == kRoot ? remote : 0) : (root == rank ? size : 0);
}
