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
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* In the C library since glibc 2.34. Before that a program needs -ldl, and must not link without it: the linker
 * resolves a weak reference that it finds nowhere to null for good, even if the MPI library brings libdl along, and no
 * call would reach resil. (So it would with weak references to resil's own functions, in programs that are not
 * position-independent.) Other C libraries: weak, so that a program links in any case. */
#if !defined(__GLIBC__) || __GLIBC__ > 2 || __GLIBC_MINOR__ >= 34
#pragma weak dlsym
#define RESIL_HAVE_DLSYM_ (dlsym != 0)
#else
#define RESIL_HAVE_DLSYM_ 1
#endif

struct resil_api_ {
  int looked_up;
  void (*step)(const char*);
  void (*norm)(const char*, double);
  void (*checksum)(const char*, uint64_t);
  void (*count)(const char*, int64_t);
  int (*drain)(void);
  uint64_t (*fingerprint)(const char*, const void*, size_t);
  uint64_t (*fingerprint_crc32)(const char*, const void*, size_t);
  int (*protect)(const char*, void*, size_t);
  int (*unprotect)(const char*);
  int (*run_twice)(const char*, void (*)(void*), void*, int);
  int64_t (*mismatches)(void);
};

static inline void resil_find_(const char* name, void* function) {
  void* address = RESIL_HAVE_DLSYM_ ? dlsym((void*)0, name) : (void*)0; /* RTLD_DEFAULT */
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
    resil_find_("resil_fingerprint", &api.fingerprint);
    resil_find_("resil_fingerprint_crc32", &api.fingerprint_crc32);
    resil_find_("resil_protect", &api.protect);
    resil_find_("resil_unprotect", &api.unprotect);
    resil_find_("resil_run_twice", &api.run_twice);
    resil_find_("resil_mismatches", &api.mismatches);
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

/* Fingerprint of an array in host memory, logged under this name like a checksum: recorded by RESIL_MODE=record and
 * compared by verify. 64 bits that depend on every byte and its place. Device memory is never touched: 0. Without
 * resil: 0. */
static inline uint64_t resil_fingerprint(const char* name, const void* data, size_t bytes) {
  return resil_api_()->fingerprint ? resil_api_()->fingerprint(name, data, bytes) : 0;
}

/* The same with XOR of the CRC-32 of each 8-byte word, as some codes compute it themselves. Weaker: words that change
 * places, and equal changes in two words, go unseen. */
static inline uint64_t resil_fingerprint_crc32(const char* name, const void* data, size_t bytes) {
  return resil_api_()->fingerprint_crc32 ? resil_api_()->fingerprint_crc32(name, data, bytes) : 0;
}

/* Adds an array to the state that resil_run_twice saves, restores and compares; again with the same name: it has moved
 * or changed its size. Costs as much memory again while steps are run twice. Returns 0; 1: it is, or may be, device
 * memory and is not protected; 2: no room (4,096 arrays). One thread at a time. Without resil: 0. */
static inline int resil_protect(const char* name, void* data, size_t bytes) {
  return resil_api_()->protect ? resil_api_()->protect(name, data, bytes) : 0;
}

/* Takes it out again, before it is freed. 1: there was none of that name. */
static inline int resil_unprotect(const char* name) {
  return resil_api_()->unprotect ? resil_api_()->unprotect(name) : 0;
}

/* What resil_run_twice does when the two results differ. All of them report it. */
enum {
  RESIL_POLICY_DEFAULT = 0, /* as RESIL_ON_MISMATCH says: abort, retry, or log, which is continue */
  RESIL_POLICY_ABORT = 1, /* the job ends with exit status 90 */
  RESIL_POLICY_RETRY = 2, /* the step is run again, on all ranks, until two of its runs agree; six in vain: abort */
  RESIL_POLICY_CONTINUE = 3, /* goes on with the second result */
  RESIL_LOCAL = 16 /* added to one of them: the step does not communicate, each rank is on its own */
};

/* Runs run(argument) twice from the same protected state and compares what it made of it, bit for bit. The step must
 * depend on nothing else that it changes (random numbers, time, files), and sums over ranks must be the same twice: set
 * RESIL_REDUCE=order. Without RESIL_LOCAL every rank of MPI_COMM_WORLD calls it, in the same order, and the ranks agree
 * on the outcome before any of them goes on. Names a step, like resil_step. Returns on how many ranks (with
 * RESIL_LOCAL: here) the results differed; 0 also where nothing could be compared: no array is protected, no memory for
 * copies, ranks without resil, or a call from within another. Without resil it is run(argument), once, and 0. */
static inline int resil_run_twice(const char* step, void (*run)(void*), void* argument, int policy) {
  if (resil_api_()->run_twice) return resil_api_()->run_twice(step, run, argument, policy);
  run(argument);
  return 0;
}

/* Double runs so far whose results differed. */
static inline int64_t resil_mismatches(void) { return resil_api_()->mismatches ? resil_api_()->mismatches() : 0; }

#endif
