// SPDX-License-Identifier: Apache-2.0
//
// What a way of telling the other ranks something must be able to do. Internal to shim/presence/.
#pragma once

#include <cstddef>

#include "shim/presence/identity.h"

namespace resil {

constexpr size_t kPresenceBytes = 352;  ///< longest value with its zero byte

struct Carrier {
  const char* name;
  /// Makes `value`, which stays where it is, known under this rank's number, or sees to it that this happens inside
  /// PMPI_Init; before PMPI_Init. `directory` may be null. False: try another.
  bool (*publish)(const LaunchIdentity& identity, const char* directory, const char* value);
  /// After PMPI_Init: has it happened? Null: it had when publish returned.
  bool (*published)();
  /// Value of another rank; after PMPI_Init. Never waits for that rank. False: it has published nothing.
  bool (*get)(int rank, char* value, size_t size);
  /// When publish has failed, after the last get, and at the end: gives back what this process holds.
  void (*release)();
  /// After MPI_Finalize, when every rank has read: removes what others could see. May be null.
  void (*remove)();
};

}  // namespace resil
