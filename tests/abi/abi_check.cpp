// SPDX-License-Identifier: Apache-2.0
//
// Holds shim/abi/*.h against an installed mpi.h: types, constants and the layout of MPI_Status at compile time,
// predefined handles at run time. Compiled once per MPI with -DRESIL_ABI=openmpi|mpich.

#include <mpi.h>

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

#ifdef RESIL_STANDARD_ABI  // by the wrappers of scripts/matrix, whichever MPI they are named after
#undef RESIL_ABI
#define RESIL_ABI standard
#endif
#define RESIL_STRING_(x) #x
#define RESIL_STRING(x) RESIL_STRING_(x)

namespace ours {
// clang-format off
#include RESIL_STRING(shim/abi/RESIL_ABI.h)
// clang-format on
#include "shim/abi/windows.h"
}

static_assert(sizeof(ours::Status) == sizeof(MPI_Status));
static_assert(offsetof(ours::Status, source) == offsetof(MPI_Status, MPI_SOURCE));
static_assert(offsetof(ours::Status, tag) == offsetof(MPI_Status, MPI_TAG));
static_assert(offsetof(ours::Status, error) == offsetof(MPI_Status, MPI_ERROR));
static_assert(sizeof(ours::Comm) == sizeof(MPI_Comm) && sizeof(ours::Request) == sizeof(MPI_Request));
static_assert(sizeof(ours::Datatype) == sizeof(MPI_Datatype) && sizeof(ours::Group) == sizeof(MPI_Group));
static_assert(sizeof(ours::Op) == sizeof(MPI_Op) && sizeof(ours::Info) == sizeof(MPI_Info));
static_assert(sizeof(ours::Win) == sizeof(MPI_Win) && sizeof(ours::File) == sizeof(MPI_File));
static_assert(sizeof(ours::Message) == sizeof(MPI_Message) && sizeof(ours::Errhandler) == sizeof(MPI_Errhandler));
static_assert(sizeof(intptr_t) == sizeof(MPI_Aint) && sizeof(int64_t) == sizeof(MPI_Count));
static_assert(sizeof(int64_t) == sizeof(MPI_Offset));
static_assert(ours::kAnySource == MPI_ANY_SOURCE && ours::kAnyTag == MPI_ANY_TAG && ours::kProcNull == MPI_PROC_NULL);
static_assert(ours::kRoot == MPI_ROOT && ours::kUndefined == MPI_UNDEFINED && ours::kErrCount == MPI_ERR_COUNT);
static_assert(ours::kErrUnsupported == MPI_ERR_UNSUPPORTED_OPERATION);
static_assert(ours::kErrTruncate == MPI_ERR_TRUNCATE && ours::kErrPending == MPI_ERR_PENDING);
static_assert(ours::kErrOther == MPI_ERR_OTHER);
static_assert(ours::kErrInStatus == MPI_ERR_IN_STATUS);
static_assert(ours::kThreadMultiple == MPI_THREAD_MULTIPLE);
static_assert(ours::kTopologyCart == MPI_CART && ours::kTopologyGraph == MPI_GRAPH);

constexpr ours::WindowConstants kWindow = ours::kWindowConstants;
static_assert(kWindow.base == MPI_WIN_BASE && kWindow.size == MPI_WIN_SIZE &&
              kWindow.displacement_unit == MPI_WIN_DISP_UNIT);
static_assert(kWindow.flavor == MPI_WIN_CREATE_FLAVOR && kWindow.create == MPI_WIN_FLAVOR_CREATE);
static_assert(kWindow.allocate == MPI_WIN_FLAVOR_ALLOCATE && kWindow.dynamic == MPI_WIN_FLAVOR_DYNAMIC);
static_assert(kWindow.shared == MPI_WIN_FLAVOR_SHARED && kWindow.no_precede == MPI_MODE_NOPRECEDE);
static_assert(kWindow.no_succeed == MPI_MODE_NOSUCCEED && kWindow.no_check == MPI_MODE_NOCHECK);
static_assert(kWindow.lock_exclusive == MPI_LOCK_EXCLUSIVE);

static void* lookup(const char* name) { return dlsym(RTLD_DEFAULT, name); }

static int failures;

template <class Ours, class Theirs>
static void same(const char* what, Ours ours_value, Theirs theirs) {
  if ((uint64_t)ours_value == (uint64_t)theirs) return;
  printf("%s differs\n", what);
  ++failures;
}

// Names that not every MPI has, nor every version of one.
#define ABSENT MPI_DATATYPE_NULL
#ifndef MPIX_C_FLOAT16
#define MPIX_C_FLOAT16 ABSENT
#endif
#ifndef MPI_LOGICAL1
#define MPI_LOGICAL1 ABSENT
#define MPI_LOGICAL2 ABSENT
#define MPI_LOGICAL4 ABSENT
#define MPI_LOGICAL8 ABSENT
#endif
#ifndef MPI_LOGICAL16
#define MPI_LOGICAL16 ABSENT
#endif
#ifndef MPI_INTEGER16
#define MPI_INTEGER16 ABSENT
#endif
#ifndef MPI_REAL2
#define MPI_REAL2 ABSENT
#endif
#ifndef MPI_COMPLEX4
#define MPI_COMPLEX4 ABSENT
#endif
#ifndef MPI_2COMPLEX
#define MPI_2COMPLEX ABSENT
#define MPI_2DOUBLE_COMPLEX ABSENT
#endif

#ifdef RESIL_STANDARD_ABI
constexpr bool kStandard = true;
#else
constexpr bool kStandard = false;
#endif
constexpr bool kOpenMpi = !kStandard && sizeof(MPI_Datatype) == 8;

static uint64_t bits_of(const void* handle) { return (uint64_t)handle; }
static uint64_t bits_of(int handle) { return (uint32_t)handle; }

/// A row of shim/abi/predefined.h: `symbol` is Open MPI's, `handle` MPICH's or the standard one.
static int present;
static void predefined(const char* name, uint64_t theirs, const char* symbol, uint64_t handle) {
  const uint64_t ours_value = kOpenMpi ? (uint64_t)lookup(symbol) : handle;
  if (theirs == bits_of(MPI_DATATYPE_NULL)) return;  // some other version has it
  ++present;
  same(name, ours_value, theirs);
}

static void rows() {
#define TYPE(name, symbol, mpich, standard, kind) \
  predefined(#name, bits_of(name), "ompi_mpi_" #symbol, kStandard ? standard : mpich);
#define PAIR TYPE
#define TWIN TYPE
#define OP(name, symbol, mpich, standard, kind) \
  predefined(#name, bits_of(name), "ompi_mpi_op_" #symbol, kStandard ? standard : mpich);
#include "shim/abi/predefined.h"
  same("the number of predefined types and operators", present > 70, true);
#define COMBINER(name, openmpi, mpich, standard, kind) \
  same(#name, kOpenMpi ? openmpi : kStandard ? standard : mpich, name);
#define ORDER COMBINER
#define DISTRIBUTION COMBINER
#define DEFAULT_ARGUMENT(name, openmpi, mpich, standard) \
  same(#name, kOpenMpi ? openmpi : kStandard ? standard : mpich, name);
#include "shim/abi/combiners.h"
}

int main() {
  if (!ours::bind_constants(lookup)) return printf("the constants of %s were not found\n", ours::kAbiName), 1;
  same("MPI_COMM_WORLD", ours::constants.comm_world, MPI_COMM_WORLD);
  same("MPI_COMM_SELF", ours::constants.comm_self, MPI_COMM_SELF);
  same("MPI_COMM_NULL", ours::constants.comm_null, MPI_COMM_NULL);
  same("MPI_REQUEST_NULL", ours::constants.request_null, MPI_REQUEST_NULL);
  same("MPI_BYTE", ours::constants.byte, MPI_BYTE);
  same("MPI_DATATYPE_NULL", ours::constants.datatype_null, MPI_DATATYPE_NULL);
  same("MPI_ERRORS_RETURN", ours::constants.errors_return, MPI_ERRORS_RETURN);
  same("MPI_ERRORS_ARE_FATAL", ours::constants.errors_are_fatal, MPI_ERRORS_ARE_FATAL);
  same("MPI_GROUP_NULL", ours::constants.group_null, MPI_GROUP_NULL);
  same("MPI_IN_PLACE", ours::in_place(), MPI_IN_PLACE);
  same("MPI_STATUS_IGNORE", ours::status_ignore(), MPI_STATUS_IGNORE);
  rows();
  return failures != 0;
}
