// SPDX-License-Identifier: Apache-2.0
//
// Who made the recordings of units and fuzzing: an invented rank.
#pragma once

#include <cstring>

#include "checksum/record/format.h"

inline resil::record::Identity invented_identity(int rank, int size, const char* launch) {
  resil::record::Identity made = {};
  made.rank = rank;
  made.world_size = size;
  made.thread_level = -1;
  strcpy(made.launch, launch);
  strcpy(made.host, "node-1");
  strcpy(made.program, "/opt/app");
  strcpy(made.build, "0123456789abcdef");
  strcpy(made.mpi, "Some MPI 4.1");
  strcpy(made.abi, "mpich");
  strcpy(made.reduce, "order");
  return made;
}
