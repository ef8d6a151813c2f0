// SPDX-License-Identifier: Apache-2.0
//
// One simulated rank for the units of collectives: checksum/collective/ with a ledger, datatypes and a backend made for
// the test, as a shared object that is loaded once for each rank, so that each has globals of its own. The test carries
// records and messages between them, in the order and with the delays that it likes.
#pragma once

#include <cstdint>

#include "checksum/ledger/record.h"
#include "shim/abi/backend_types.h"
#include "shim/model/event.h"

/// Handles. Datatypes: element kinds; kStride is 4 bytes of every 12.
enum Type : uint64_t {
  kInt = 1,
  kUnsigned,
  kLong,
  kByte,
  kFloat,
  kDouble,
  kLongDouble,
  kComplex,
  kDoubleInt,
  kStride,
  kOpaque
};
inline const void* in_place() { return reinterpret_cast<const void*>(~uintptr_t{0}); }

/// What a rank has concluded so far.
struct RankState {
  uint64_t checked, mismatches, uncovered[32], cases, pending, unverified;  ///< cases: blocks that differ
  int64_t held;  ///< references to datatypes
  uint32_t findings, culprits[16];  ///< findings published; by world rank, how often it was named
  char last[600];
  bool stopped;
};

struct RankApi {
  void (*start)(int rank, int size, bool abort_wanted, void* bus,
                void (*send)(void* bus, int from, int to, int kind, const void* data, size_t bytes));
  /// `local`, `remote`: world ranks; remote null: intracommunicator. Neighbours as communicator ranks, -2: none.
  resil::CommInfo* (*comm)(uint64_t id, const int* local, int local_size, const int* remote, int remote_size,
                           const int* sources, int in, const int* destinations, int out);
  void (*enter)(resil::Event&);
  void (*leave)(resil::Event&);
  void (*activating)(resil::Event&, uint64_t*);
  void (*activated)(resil::Event&, uint64_t*);
  void (*completed)(resil::Event&, uint64_t*, bool freed);
  void (*arrive)(int from, int kind, const void* data, size_t bytes);  ///< kind 0: a record
  void (*progress)();
  void (*finalize)();  ///< MPI_Finalize has begun
  void (*state)(RankState*);
  resil::Thread* (*thread)();
};
