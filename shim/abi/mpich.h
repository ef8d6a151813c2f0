// SPDX-License-Identifier: Apache-2.0
//
// The MPICH family's C ABI (libmpi.so.12: MPICH, Intel MPI, Cray MPICH, MVAPICH), as far as resil needs it. Held
// against the installed mpi.h by tests/unit/abi_mpich.c. Included inside the backend's namespace.

using Comm = int;
using Group = int;
using Datatype = int;
using Op = int;
using Request = int;
using Info = int;
using Errhandler = int;
using Win = int;
struct FileOpaque;
using File = FileOpaque*;
using Message = int;
using Session = int;

struct Status {
  int count_lo, count_hi_and_cancelled, source, tag, error;
};

// The fields that the family's common ABI fixes: 63 bits of bytes, one of "cancelled".
constexpr bool kStatusIsOpen = true;
inline uint64_t status_bytes(const Status& status) {
  return static_cast<uint32_t>(status.count_lo) |
         static_cast<uint64_t>(static_cast<uint32_t>(status.count_hi_and_cancelled) >> 1) << 32;
}
inline bool status_cancelled(const Status& status) { return (status.count_hi_and_cancelled & 1) != 0; }

constexpr int kAnySource = -2, kAnyTag = -1, kProcNull = -1, kRoot = -3;
constexpr int kErrCount = 2, kErrUnsupported = 44, kUndefined = -32766;
constexpr int kErrTruncate = 14, kErrOther = 15, kErrPending = 18, kErrInStatus = 17;
constexpr int kThreadMultiple = 3;
constexpr int kTopologyCart = 2, kTopologyGraph = 1;
constexpr const char* kAbiName = "mpich";
constexpr intptr_t kInPlace = -1;
inline const void* in_place() { return reinterpret_cast<const void*>(kInPlace); }
inline Status* status_ignore() { return reinterpret_cast<Status*>(1); }

struct Constants {
  static constexpr Comm comm_world = 0x44000000, comm_self = 0x44000001, comm_null = 0x04000000;
  static constexpr Request request_null = 0x2c000000, request_empty = request_null;
  static constexpr Datatype byte = 0x4c00010d, datatype_null = 0x0c000000;
  static constexpr Errhandler errors_return = 0x54000001, errors_are_fatal = 0x54000000;
  static constexpr Group group_null = 0x08000000;
};
inline constexpr Constants constants;

inline bool bind_constants(void* (*)(const char*)) { return true; }

// Top two bits 01: a built-in object; the requests among them stand for operations that completed at once.
constexpr uint64_t kSharedFirst = 0x40000000, kSharedSpan = 0x40000000;
