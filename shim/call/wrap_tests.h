// SPDX-License-Identifier: Apache-2.0
//
// Calls of the fast path that a module which looks at messages has carried out by tests (fast::MessageHooks), so that
// this rank answers others while it waits. Included by wrap.h once per ABI, inside its namespace.

/// MPICH raises what is wrong with a message on the communicator of MPI_Recv, and of a persistent request, but that of
/// another request on MPI_COMM_WORLD or MPI_COMM_SELF when it is complete before it is tested. That is the same as long
/// as no communicator has a handler of the program's.
template <class Count>
int post_receive(void* buffer, Count count, Datatype type, int rank, int tag, Comm comm, Request* request) {
  constexpr bool kLarge = sizeof(Count) == 8;
  using Post = int(void*, Count, Datatype, int, int, Comm, Request*);
  if (kAbiColumn == 0 || !handlers_were_set.load(std::memory_order_relaxed)) [[likely]]
    return real<Post>(1, kLarge ? CallId::kMPI_Irecv_c : CallId::kMPI_Irecv)(buffer, count, type, rank, tag, comm,
                                                                             request);
  const CallId persistent = kLarge ? CallId::kMPI_Recv_init_c : CallId::kMPI_Recv_init;
  const int result = real<Post>(1, persistent)(buffer, count, type, rank, tag, comm, request);
  // MPICH 5 returns MPI_SUCCESS and no request when it has called an error handler of the program's.
  return result != 0 || *request == constants.request_null ? result
                                                           : real<int(Request*)>(1, CallId::kMPI_Start)(request);
}

/// After an MPI_Waitall that was carried out by MPI_Testall, without an error: MPI_SUCCESS in each status, as both
/// libraries' MPI_Waitall says. MPICH's MPI_Testall leaves there what it finds.
inline void all_succeeded(Status* statuses, int64_t count) {
  if (kAbiColumn == 0 || statuses == status_ignore()) return;
  for (int64_t i = 0; i < count; ++i) statuses[i].error = 0;
}

/// The nonblocking twin of a blocking send; kMPI_Wait: it has none.
constexpr CallId twin_of(CallId id) {
  return id == CallId::kMPI_Send      ? CallId::kMPI_Isend
         : id == CallId::kMPI_Ssend   ? CallId::kMPI_Issend
         : id == CallId::kMPI_Rsend   ? CallId::kMPI_Irsend
         : id == CallId::kMPI_Send_c  ? CallId::kMPI_Isend_c
         : id == CallId::kMPI_Ssend_c ? CallId::kMPI_Issend_c
         : id == CallId::kMPI_Rsend_c ? CallId::kMPI_Irsend_c
                                      : CallId::kMPI_Wait;
}

/// A large message is told of while it is under way: its digest then costs no time of its own.
template <int layer, CallId id, class Count>
[[gnu::noinline]] int send_checked(fast::Call call, const void* buffer, Count count, Datatype type, int rank, int tag,
                                   Comm comm) {
  constexpr CallId twin = twin_of(id);
  using Send = int(const void*, Count, Datatype, int, int, Comm);
  if (twin == CallId::kMPI_Wait || call.record->bytes < fast::messages->send_bytes) {
    const int result = real<Send>(layer, id)(buffer, count, type, rank, tag, comm);
    fast::message_sent<id>(call, result);
    return result;
  }
  Request request = constants.request_null;
  using Start = int(const void*, Count, Datatype, int, int, Comm, Request*);
  int result = real<Start>(1, twin)(buffer, count, type, rank, tag, comm, &request);
  if (result != 0) [[unlikely]] {
    fast::message_done<id>(call, result);
    return result;
  }
  fast::messages->sent(call, id);
  const auto test = real<int(Request*, int*, Status*)>(1, CallId::kMPI_Test);
  result = wait_by_tests(*call.thread, [&](int* flag) { return test(&request, flag, status_ignore()); });
  fast::sent_by_tests<id>(call, result);
  return result;
}

template <CallId id, class Count>
[[gnu::noinline]] int receive_by_tests(fast::Call call, void* buffer, Count count, Datatype type, int rank, int tag,
                                       Comm comm, Status* status) {
  Status own;
  Status* const given = status != status_ignore() ? status : &own;
  Request request = constants.request_null;
  int result = post_receive(buffer, count, type, rank, tag, comm, &request);
  if (result == 0 && request != constants.request_null) {
    const auto test = real<int(Request*, int*, Status*)>(1, CallId::kMPI_Test);
    result = wait_by_tests(*call.thread, [&](int* flag) { return test(&request, flag, given); });
  }
  if (request != constants.request_null) [[unlikely]]  // a persistent one
    real<int(Request*)>(1, CallId::kMPI_Request_free)(&request);
  fast::message_checked<id>(call, result, given);
  return result;
}

template <CallId id>
[[gnu::noinline]] int complete_by_tests(fast::Call call, Request* requests, int64_t count, Request* saved,
                                        Status* statuses) {
  constexpr bool kOne = call_info(id).completion == Completion::kOne;
  Status own[kOne ? 1 : ring::kWaitedKeys];
  Status* const given = statuses != status_ignore() ? statuses : own;
  int result;
  if (!fast::messages->tests(*call.thread, saved, count)) [[unlikely]] {
    if constexpr (kOne) result = real<int(Request*, Status*)>(1, CallId::kMPI_Wait)(requests, given);
    else result = real<int(int, Request*, Status*)>(1, CallId::kMPI_Waitall)(static_cast<int>(count), requests, given);
  } else if constexpr (kOne) {
    const auto test = real<int(Request*, int*, Status*)>(1, CallId::kMPI_Test);
    result = wait_by_tests(*call.thread, [&](int* flag) { return test(requests, flag, given); });
  } else {
    const auto test = real<int(int, Request*, int*, Status*)>(1, CallId::kMPI_Testall);
    result =
        wait_by_tests(*call.thread, [&](int* flag) { return test(static_cast<int>(count), requests, flag, given); });
    if (result == 0) all_succeeded(statuses, count);
  }
  fast::waited_checked<id>(call, result, requests, count, saved, given);
  return result;
}
