// SPDX-License-Identifier: Apache-2.0
//
// A tool between the library and MPI, for start.c.
#define _GNU_SOURCE
#include <mpi.h>

#include "start.h"

struct times start_tool_times[4];  // MPI_Init entered, left; MPI_Finalize entered, left

int MPI_Init(int* argc, char*** argv) {
  start_tool_times[0] = times_now();
  const int result = PMPI_Init(argc, argv);
  start_tool_times[1] = times_now();
  return result;
}

int MPI_Finalize(void) {
  start_tool_times[2] = times_now();
  const int result = PMPI_Finalize();
  start_tool_times[3] = times_now();
  return result;
}
