// SPDX-License-Identifier: Apache-2.0
//
// What a way of telling the other ranks something must be able to do. Internal to shim/presence/.
#pragma once

#include <cstddef>

#include "shim/presence/identity.h"

namespace resil {

constexpr size_t kPresenceBytes = 208;  ///< longest value with its zero byte

struct Carrier {
  const char* name;
  /// Makes `value` known under this rank's number; before PMPI_Init. `directory` may be null. False: try another.
  bool (*publish)(const LaunchIdentity& identity, const char* directory, const char* value);
  /// Value of another rank; after PMPI_Init. Never waits for that rank. False: it has published nothing.
  bool (*get)(int rank, char* value, size_t size);
  /// Called once when publish has failed or after the last get: gives back what this process holds.
  void (*release)();
  /// After MPI_Finalize, when every rank has read: removes what others could see. May be null.
  void (*remove)();
};

}  // namespace resil
