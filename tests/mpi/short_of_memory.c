// SPDX-License-Identifier: Apache-2.0
//
// Preloaded in front of the library: the rank that SHORT_RANK names gets no small anonymous mapping: less than a page,
// which only resil asks for.
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  const char* rank = getenv("OMPI_COMM_WORLD_RANK") != NULL ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
  const char* poor = getenv("SHORT_RANK");
  if ((flags & MAP_ANONYMOUS) && bytes < 4096 && rank != NULL && poor != NULL && strcmp(rank, poor) == 0) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return (void*)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}

void* mmap64(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return mmap(address, bytes, protection, flags, fd, offset);
}
