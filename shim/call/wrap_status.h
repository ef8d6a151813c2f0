// SPDX-License-Identifier: Apache-2.0
//
// MPI_Request_get_status_all, _any and _some (MPI 4.1), carried out by MPI_Request_get_status for each request while
// some module has to do with a request that the program looks at: what they know of one request is then true of
// several. All four are polls, so no wait becomes one. Included by wrap.h once per ABI, inside its namespace.
//
// MPICH 4.2 and 5.0 make a persistent request inactive that MPI_Request_get_status finds complete: its status is given
// once, and MPI_Waitany passes over it. MPI_Request_get_status_all does so only when all are complete. So the
// persistent ones of a list are asked about last and together, by the library's own MPI_Request_get_status_all.

/// MPI_Request_get_status as if the program had called it where it called the other; `ask` is the library's part of it.
template <int layer, class Ask>
int get_status_by(uint64_t return_address, uint64_t frame, const Request& request, int* flag, Status* status, Ask ask) {
  constexpr CallId id = CallId::kMPI_Request_get_status;
  Event e;
  clear_event<id>(e);
  e.thread = current_thread;
  e.return_address = return_address;
  e.frame = frame;
  e.requests = const_cast<Request*>(&request);
  e.request_count = 1;
  e.flag = flag;
  e.statuses = e.given_statuses = status;
  if (e.thread == nullptr || e.thread->depth != 0) [[unlikely]]
    admit(e);
  if (e.thread == nullptr || !enter(e)) [[unlikely]]
    return ask(flag, static_cast<Status*>(e.given_statuses));
  if (!intercepted[static_cast<unsigned>(id)] || !intercept(e))
    e.result = ask(flag, static_cast<Status*>(e.given_statuses));
  if (intercepted[static_cast<unsigned>(id)]) after_call(e);
  leave(e);
  return e.result;
}

template <int layer>
int get_status(uint64_t return_address, uint64_t frame, const Request& request, int* flag, Status* status) {
  return get_status_by<layer>(return_address, frame, request, flag, status, [&](int* complete, Status* room) {
    return real<int(Request, int*, Status*)>(layer, CallId::kMPI_Request_get_status)(request, complete, room);
  });
}

inline bool is_ignored(Status* statuses) { return backend->messages->status_ignored(statuses); }

/// Null, or persistent and not started: _any and _some do as if it were not in the list.
inline bool is_passed_over(const Request& request) {
  return bits(request) == backend->request_null() ||
         (current_thread != nullptr && request_is_inactive(*current_thread, bits(request)));
}

/// What MPI says when no request of the list is active.
template <int layer>
int none_is_active(uint64_t return_address, uint64_t frame, Status* status) {
  int flag;
  return get_status<layer>(return_address, frame, handle_of<Request>(backend->request_null()), &flag, status);
}

/// Persistent, started, and the library's own affair: staging keeps the answers of its messages itself.
inline bool goes_together(const Request& request) {
  const uint64_t key = bits(request);
  return current_thread != nullptr && key != backend->request_null() && request_is_persistent(*current_thread, key) &&
         !request_is_inactive(*current_thread, key) && (staged_requests == nullptr || !staged_requests->knows(key));
}

/// The persistent ones of a list, asked about in one call when the first of them is asked about; what it says of each.
template <int layer>
class Together {
 public:
  Together(const Request* requests, int count, int together, uint64_t frame)
      : requests_(requests), count_(count), together_(together),
        room_(scratch_acquire(*current_thread, together * (sizeof(Status) + sizeof(Request)), frame)),
        statuses_(static_cast<Status*>(room_)) {}
  ~Together() {
    if (room_ != nullptr) scratch_release(*current_thread, room_);
  }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

  /// MPI_Request_get_status of the list's i-th, which is the n-th of the persistent ones.
  int ask(int i, int n, int* flag, Status* status) {
    if (n == 0 && room_ != nullptr) ask_all();
    // The first was decided by a module, which then decides on all; or there is no memory.
    if (!asked_)
      return real<int(Request, int*, Status*)>(layer, CallId::kMPI_Request_get_status)(requests_[i], flag, status);
    *flag = complete_;
    if (complete_ == 0) return result_;
    if (!is_ignored(status)) *status = statuses_[n];
    return result_ == backend->replay->error_in_status ? statuses_[n].error : result_;
  }

 private:
  void ask_all() {
    auto* handles = reinterpret_cast<Request*>(statuses_ + together_);
    for (int i = 0, n = 0; i < count_ && n < together_; ++i)
      if (goes_together(requests_[i])) handles[n++] = requests_[i];
    memset(static_cast<void*>(statuses_), 0, together_ * sizeof(Status));
    result_ = real<int(int, const Request*, int*, Status*)>(layer, CallId::kMPI_Request_get_status_all)(
        together_, handles, &complete_, statuses_);
    asked_ = true;
  }

  const Request* requests_;
  int count_, together_;
  void* room_;
  Status* statuses_;
  bool asked_ = false;
  int complete_ = 0, result_ = 0;
};

template <int layer>
int request_get_status_all(uint64_t return_address, uint64_t frame, int count, const Request* requests, int* flag,
                           Status* statuses) {
  const auto place = [&](int i) { return is_ignored(statuses) ? statuses : statuses + i; };
  *flag = 1;
  int together = 0;
  for (int i = 0; i < count && *flag != 0; ++i)
    if (goes_together(requests[i])) ++together;
    else if (const int result = get_status<layer>(return_address, frame, requests[i], flag, place(i))) return result;
  if (*flag == 0 || together == 0) return 0;
  Together<layer> persistent{requests, count, together, frame};
  for (int i = 0, n = 0; n < together && *flag != 0; ++i) {
    if (!goes_together(requests[i])) continue;
    const auto ask = [&](int* complete, Status* room) { return persistent.ask(i, n, complete, room); };
    if (const int result = get_status_by<layer>(return_address, frame, requests[i], flag, place(i), ask)) return result;
    ++n;
  }
  return 0;
}

template <int layer>
int request_get_status_any(uint64_t return_address, uint64_t frame, int count, const Request* requests, int* index,
                           int* flag, Status* status) {
  bool active = false;
  *flag = 0;
  *index = backend->replay->undefined;
  for (int i = 0; i < count; ++i) {
    if (is_passed_over(requests[i])) continue;
    active = true;
    const int result = get_status<layer>(return_address, frame, requests[i], flag, status);
    if (result != 0 || *flag != 0) {
      *index = i;
      return result;
    }
  }
  if (active) return 0;
  *flag = 1;
  return none_is_active<layer>(return_address, frame, status);
}

template <int layer>
int request_get_status_some(uint64_t return_address, uint64_t frame, int count, const Request* requests, int* found,
                            int* indices, Status* statuses) {
  bool active = false;
  *found = 0;
  for (int i = 0; i < count; ++i) {
    if (is_passed_over(requests[i])) continue;
    active = true;
    int flag = 0;
    if (const int result = get_status<layer>(return_address, frame, requests[i], &flag,
                                             is_ignored(statuses) ? statuses : statuses + *found))
      return result;
    if (flag != 0) indices[(*found)++] = i;
  }
  if (!active) *found = backend->replay->undefined;
  return 0;
}

#define RESIL_ONE_BY_ONE(function, ...)                                           \
  if (status_one_by_one) [[unlikely]]                                             \
  return function<layer>(reinterpret_cast<uint64_t>(__builtin_return_address(0)), \
                         reinterpret_cast<uint64_t>(__builtin_dwarf_cfa()), __VA_ARGS__)
