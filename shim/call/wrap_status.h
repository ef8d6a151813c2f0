// SPDX-License-Identifier: Apache-2.0
//
// MPI_Request_get_status_all, _any and _some (MPI 4.1), carried out by MPI_Request_get_status for each request while
// some module has to do with a request that the program looks at: what they know of one request is then true of
// several. All four are polls, so no wait becomes one. Included by wrap.h once per ABI, inside its namespace.

/// MPI_Request_get_status as if the program had called it where it called the other.
template <int layer>
int get_status(uint64_t return_address, uint64_t frame, const Request& request, int* flag, Status* status) {
  using Signature = int(Request, int*, Status*);
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
  RESIL_CALL((request, flag, static_cast<Status*>(e.given_statuses)), false, false);
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

template <int layer>
int request_get_status_all(uint64_t return_address, uint64_t frame, int count, const Request* requests, int* flag,
                           Status* statuses) {
  *flag = 1;
  for (int i = 0; i < count && *flag != 0; ++i)
    if (const int result =
            get_status<layer>(return_address, frame, requests[i], flag, is_ignored(statuses) ? statuses : statuses + i))
      return result;
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
