// SPDX-License-Identifier: Apache-2.0
//
// Which MPI runs the program. mpi.h says so where the MPI's own ABI is used; the header of the standard ABI is the same
// for all, so there the library is asked, before MPI_Init or after. For what a program of this folder must do otherwise
// on one.
#ifndef TESTS_WHICH_MPI_H
#define TESTS_WHICH_MPI_H

#include <mpi.h>
#include <string.h>

__attribute__((unused)) static int on_openmpi(void) {
#ifdef OPEN_MPI
  return 1;
#elif !defined(RESIL_STANDARD_ABI)
  return 0;
#else
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  if (text[0] == 0) MPI_Get_library_version(text, &length);
  return strstr(text, "Open MPI") != NULL;
#endif
}

__attribute__((unused)) static int standard_abi(void) {
#ifdef RESIL_STANDARD_ABI
  return 1;
#else
  return 0;
#endif
}

__attribute__((unused)) static int on_mpich(void) { return !on_openmpi(); }

#endif
