/* SPDX-License-Identifier: Apache-2.0
 *
 * resil.h: tell resil what your program is doing. Header only, C and C++, nothing to link: the library is looked up
 * once at run time, and without libresil.so in LD_PRELOAD every function here is a test of a null pointer.
 *
 * All functions may be called from any thread, also before MPI_Init and after MPI_Finalize (then they do nothing), but
 * not from signal handlers. Names are copied (at most 63 bytes); use a few dozen of them, not one for each step.
 */
#ifndef RESIL_H
#define RESIL_H

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

/* In the C library since glibc 2.34; before that every MPI program has it through the MPI library. Weak, so that a
 * program linked without either still links. (A weak reference to resil's own functions would not do: the linker
 * resolves it to null for good in programs that are not position-independent.) */
#pragma weak dlsym

struct resil_api_ {
  int looked_up;
  void (*step)(const char*);
  void (*norm)(const char*, double);
  void (*checksum)(const char*, uint64_t);
  void (*count)(const char*, int64_t);
  int (*drain)(void);
};

static inline void resil_find_(const char* name, void* function) {
  void* address = dlsym ? dlsym((void*)0, name) : (void*)0; /* RTLD_DEFAULT */
  memcpy(function, &address, sizeof address);
}

static inline const struct resil_api_* resil_api_(void) {
  static struct resil_api_ api;
  if (!__atomic_load_n(&api.looked_up, __ATOMIC_ACQUIRE)) { /* several threads at a time find the same */
    resil_find_("resil_step", &api.step);
    resil_find_("resil_norm", &api.norm);
    resil_find_("resil_checksum", &api.checksum);
    resil_find_("resil_count", &api.count);
    resil_find_("resil_drain", &api.drain);
    __atomic_store_n(&api.looked_up, 1, __ATOMIC_RELEASE);
  }
  return &api;
}

/* The program begins a step with this name; the step counter of the thread goes up by one. Dumps and reports say
 * "in step 1204 (pressure solve)". Programs that name no steps are counted by MPI calls. */
static inline void resil_step(const char* name) {
  if (resil_api_()->step) resil_api_()->step(name);
}

/* A norm (residual, energy, ...) into the flight recorder, bit for bit. */
static inline void resil_norm(const char* name, double value) {
  if (resil_api_()->norm) resil_api_()->norm(name, value);
}

/* A 64-bit checksum that the program computed itself. */
static inline void resil_checksum(const char* name, uint64_t value) {
  if (resil_api_()->checksum) resil_api_()->checksum(name, value);
}

/* An iteration count. */
static inline void resil_count(const char* name, int64_t value) {
  if (resil_api_()->count) resil_api_()->count(name, value);
}

/* Everything sent and received so far is verified before this returns, as far as the mode verifies anything; call it
 * before writing a checkpoint with plain POSIX I/O. Returns how many messages stayed unverified; 0 without resil. */
static inline int resil_drain(void) { return resil_api_()->drain ? resil_api_()->drain() : 0; }

#endif
