// SPDX-License-Identifier: Apache-2.0
//
// The standard C ABI of MPI 5.0 (libmpi_abi.so), chapter "Application Binary Interface". Included inside the
// backend's namespace. No Debian 12 package has it: tests/preload/fakempi stands in.

#include "shim/abi/pointer_handles.h"

struct Status {
  int source, tag, error, internal[5];
};

// The other fields are the library's own business.
constexpr bool kStatusIsOpen = false;
inline uint64_t status_bytes(const Status&) { return 0; }
inline bool status_cancelled(const Status&) { return false; }

constexpr int kAnySource = -1, kAnyTag = -2, kProcNull = -3, kRoot = -4;
constexpr int kErrCount = 2, kErrUnsupported = 55, kUndefined = -32766;
constexpr int kErrTruncate = 15, kErrOther = 16, kErrPending = 18, kErrInStatus = 19;
constexpr int kThreadMultiple = 4096;
constexpr int kTopologyCart = 211, kTopologyGraph = 212;
constexpr const char* kAbiName = "standard";
constexpr intptr_t kInPlace = 1;
inline const void* in_place() { return reinterpret_cast<const void*>(kInPlace); }
inline Status* status_ignore() { return nullptr; }

// Filled by bind_constants: an integer is no constant expression of a pointer type, and the library has no constructor.
struct Constants {
  Comm comm_null, comm_world, comm_self;
  Request request_null, request_empty;
  Datatype byte, datatype_null;
  Errhandler errors_return, errors_are_fatal;
  Group group_null;
};
inline constinit Constants constants{};

inline bool bind_constants(void* (*lookup)(const char*)) {
  constants.comm_null = reinterpret_cast<Comm>(0x100);
  constants.comm_world = reinterpret_cast<Comm>(0x101);
  constants.comm_self = reinterpret_cast<Comm>(0x102);
  constants.request_null = constants.request_empty = reinterpret_cast<Request>(0x180);
  if (void* empty = lookup("ompi_request_empty");
      empty != nullptr)  // Open MPI's requests are addresses under this ABI too
    constants.request_empty = static_cast<Request>(empty);
  constants.byte = reinterpret_cast<Datatype>(0x247);
  constants.datatype_null = reinterpret_cast<Datatype>(0x200);
  constants.errors_return = reinterpret_cast<Errhandler>(0x143);
  constants.errors_are_fatal = reinterpret_cast<Errhandler>(0x141);
  constants.group_null = reinterpret_cast<Group>(0x108);
  return true;
}

// Predefined handles are small integers; a library may hand out one for an operation that completed at once. Open MPI
// hands out its own two, MPICH one of an array of its own: bind_backend(), learn_shared_requests().
constexpr uint64_t kSharedFirst = 0, kSharedSpan = 0x1000;
