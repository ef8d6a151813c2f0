// SPDX-License-Identifier: Apache-2.0
//
// Open MPI's C ABI (libmpi.so.40: Open MPI 4 and 5), as far as resil needs it. Held against the installed mpi.h by
// tests/unit/abi_openmpi.c. Included inside the backend's namespace.

#include "shim/abi/pointer_handles.h"

struct Status {
  int source, tag, error, cancelled;
  size_t count;
};

// The library's own fields, stable since Open MPI 1.5.
constexpr bool kStatusIsOpen = true;
inline uint64_t status_bytes(const Status& status) { return status.count; }
inline bool status_cancelled(const Status& status) { return status.cancelled != 0; }

constexpr int kAnySource = -1, kAnyTag = -1, kProcNull = -2, kRoot = -4;
constexpr int kErrCount = 2, kErrUnsupported = 52, kUndefined = -32766;
constexpr int kErrTruncate = 15, kErrOther = 16, kErrPending = 19, kErrInStatus = 18;
constexpr int kThreadMultiple = 3;
constexpr int kTopologyCart = 1, kTopologyGraph = 2;
constexpr const char* kAbiName = "openmpi";
constexpr intptr_t kInPlace = 1;
inline const void* in_place() { return reinterpret_cast<const void*>(kInPlace); }
inline Status* status_ignore() { return nullptr; }

// Predefined handles are addresses. An executable holds copies of them (copy relocations), so they are looked up
// through RTLD_DEFAULT first; see resolver.cpp, lookup_data().
struct Constants {
  Comm comm_world, comm_self, comm_null;
  Request request_null, request_empty;
  Datatype byte, datatype_null;
  Errhandler errors_return, errors_are_fatal;
  Group group_null;
};
inline Constants constants;

inline bool bind_constants(void* (*lookup)(const char*)) {
  constants.comm_world = static_cast<Comm>(lookup("ompi_mpi_comm_world"));
  constants.comm_self = static_cast<Comm>(lookup("ompi_mpi_comm_self"));
  constants.comm_null = static_cast<Comm>(lookup("ompi_mpi_comm_null"));
  constants.request_null = static_cast<Request>(lookup("ompi_request_null"));
  constants.request_empty = static_cast<Request>(lookup("ompi_request_empty"));  // null where it is not exported
  constants.byte = static_cast<Datatype>(lookup("ompi_mpi_byte"));
  constants.datatype_null = static_cast<Datatype>(lookup("ompi_mpi_datatype_null"));
  constants.errors_return = static_cast<Errhandler>(lookup("ompi_mpi_errors_return"));
  constants.errors_are_fatal = static_cast<Errhandler>(lookup("ompi_mpi_errors_are_fatal"));
  constants.group_null = static_cast<Group>(lookup("ompi_mpi_group_null"));
  return constants.comm_world && constants.comm_self && constants.request_null && constants.byte;
}

// Operations that complete at once return the address of the one empty request; those of Open MPI 6 also that of a
// second one, which bind_backend() looks up.
constexpr uint64_t kSharedFirst = 0, kSharedSpan = 0;
