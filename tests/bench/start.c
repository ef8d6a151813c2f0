// SPDX-License-Identifier: Apache-2.0
//
// Processor time of MPI_Init and MPI_Finalize, of this rank in milliseconds, with what of it lies outside the MPI's own
// functions: the tool behind the library (start_tool.c) tells when these are entered and left. Prints for each of both
// "OUTSIDE_PROCESS OUTSIDE_THREAD INSIDE_PROCESS".
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

#include "start.h"

int main(int argc, char** argv) {
  struct times began = times_now(), initialised, ending, ended;
  MPI_Init(&argc, &argv);
  initialised = ending = times_now();
  MPI_Finalize();
  ended = times_now();
  const struct times* inside = dlsym(RTLD_DEFAULT, "start_tool_times");
  if (inside == NULL) return 1;
  char line[200];
  int length = snprintf(
      line, sizeof line, "start %.3f %.3f %.3f %.3f %.3f %.3f\n",
      initialised.process - began.process - (inside[1].process - inside[0].process),
      initialised.thread - began.thread - (inside[1].thread - inside[0].thread), inside[1].process - inside[0].process,
      ended.process - ending.process - (inside[3].process - inside[2].process),
      ended.thread - ending.thread - (inside[3].thread - inside[2].thread), inside[3].process - inside[2].process);
  fwrite(line, 1, (size_t)length, stdout);
  return 0;
}
