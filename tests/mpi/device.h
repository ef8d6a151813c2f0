// SPDX-License-Identifier: Apache-2.0
//
// Device memory for the MPI test programs: the CUDA driver's own functions, from whatever libcuda.so.1 the loader finds
// (in CI the stand-in, tests/fakegpu). No header or library of CUDA's is needed to build them.
#ifndef TESTS_MPI_DEVICE_H
#define TESTS_MPI_DEVICE_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include "check.h"

static struct {
  void* context;
  int (*allocate)(uint64_t*, size_t);
  int (*release)(uint64_t);
  int (*up)(uint64_t, const void*, size_t);
  int (*down)(void*, uint64_t, size_t);
  int (*destroy)(void*);
  int (*set_current)(void*);
} device;

CHECK_UNUSED static void* device_symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  CHECK(found != NULL);
  return found;
}

/// Makes a context current on the calling thread.
CHECK_UNUSED static void device_open(void) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(77);
  }
  int ordinal = 0;
  CHECK(((int (*)(unsigned))device_symbol(library, "cuInit"))(0) == 0);
  CHECK(((int (*)(int*, int))device_symbol(library, "cuDeviceGet"))(&ordinal, 0) == 0);
  CHECK(((int (*)(void**, unsigned, int))device_symbol(library, "cuCtxCreate_v2"))(&device.context, 0, ordinal) == 0);
  *(void**)&device.allocate = device_symbol(library, "cuMemAlloc_v2");
  *(void**)&device.release = device_symbol(library, "cuMemFree_v2");
  *(void**)&device.up = device_symbol(library, "cuMemcpyHtoD_v2");
  *(void**)&device.down = device_symbol(library, "cuMemcpyDtoH_v2");
  *(void**)&device.destroy = device_symbol(library, "cuCtxDestroy_v2");
  *(void**)&device.set_current = device_symbol(library, "cuCtxSetCurrent");
}

/// Memory on the device, or on the host.
CHECK_UNUSED static char* memory_new(int on_device, size_t bytes) {
  if (!on_device) return malloc(bytes + 1);
  uint64_t address = 0;
  CHECK(device.allocate(&address, bytes + 1) == 0);
  return (char*)(uintptr_t)address;
}

CHECK_UNUSED static void memory_free(int on_device, char* memory) {
  if (on_device) CHECK(device.release((uint64_t)(uintptr_t)memory) == 0);
  else free(memory);
}

CHECK_UNUSED static void memory_write(int on_device, char* to, const void* from, size_t bytes) {
  if (on_device) CHECK(bytes == 0 || device.up((uint64_t)(uintptr_t)to, from, bytes) == 0);
  else __builtin_memcpy(to, from, bytes);
}

CHECK_UNUSED static void memory_read(int on_device, void* to, const char* from, size_t bytes) {
  if (on_device) CHECK(bytes == 0 || device.down(to, (uint64_t)(uintptr_t)from, bytes) == 0);
  else __builtin_memcpy(to, from, bytes);
}

#endif
