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

struct resil_spr_replicas;

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
  int (*spr_create)(const char*, const int*, int);
  void (*spr_destroy)(int);
  int (*spr_field)(int, const char*, void*, size_t, size_t, int);
  int (*spr_select)(int, int64_t, int64_t, const int64_t*, const int*, const int*, int, const int*);
  void (*spr_begin)(int, int64_t, int64_t, int64_t, uint64_t);
  int64_t (*spr_end)(int, uint64_t, int (*)(void*, const struct resil_spr_replicas*), void*, int);
  void (*spr_computed)(int, uint64_t, int64_t, int64_t);
  void (*spr_rollback)(int, int (*)(void*, int64_t), void*);
  int (*spr_keep)(int, int64_t, int64_t, uint64_t);
  int64_t (*spr_kept)(int, int64_t, int, struct resil_spr_replicas*);
  int (*spr_copy)(int, struct resil_spr_replicas*);
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
    resil_find_("resil_spr_create", &api.spr_create);
    resil_find_("resil_spr_destroy", &api.spr_destroy);
    resil_find_("resil_spr_field", &api.spr_field);
    resil_find_("resil_spr_select", &api.spr_select);
    resil_find_("resil_spr_begin", &api.spr_begin);
    resil_find_("resil_spr_end", &api.spr_end);
    resil_find_("resil_spr_computed", &api.spr_computed);
    resil_find_("resil_spr_rollback", &api.spr_rollback);
    resil_find_("resil_spr_keep", &api.spr_keep);
    resil_find_("resil_spr_kept", &api.spr_kept);
    resil_find_("resil_spr_copy", &api.spr_copy);
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

/* Selective particle replication (docs/SPR.md): some particles of each rank are computed once more, by the program's
 * own kernel, on the next rank, and compared bit for bit. Off unless RESIL_SPR is set: then, and without resil,
 * resil_spr_create returns -1, and with a handle of -1 the others are a compare. All members call select, begin and end
 * together, in the same order, like collectives; one thread at a time in one set. */

/* What a kernel for replicas is given: the particles of rank `rank`, packed. It computes the first `count`; their
 * neighbours are neighbour[offset[i]] to neighbour[offset[i + 1] - 1], from 0 on, in the order of the program's own
 * list. field[n] is the array of the field with the number n (as resil_spr_field returned it), without gaps, for all
 * `particles`. */
struct resil_spr_replicas {
  int rank, count, particles, fields;
  const int* offset;
  const int* neighbour;
  const int64_t* id;
  void* const* field;
};

/* Computes what resil_spr_end names as results, from the fields, in the order of the program's own kernel. Neither MPI
 * nor anything that differs between ranks. Not 0: it cannot. */
typedef int (*resil_spr_kernel)(void* argument, const struct resil_spr_replicas* replicas);

enum {
  RESIL_SPR_DOUBLE = 1, /* the field is of 64-bit floating point numbers: RESIL_SPR_BITS low bits of each may differ */
  RESIL_SPR_FLOAT = 2, /* the same with 32-bit ones; without either it is compared byte by byte */
  RESIL_SPR_ID = 4, /* 8 or 4 bytes that a particle keeps for its life, on all ranks; one field of a set */
  RESIL_SPR_MAY_CHANGE = 8 /* the program changes it while kernels run: not compared with what was sent */
};

#define RESIL_SPR_BIT(field) ((field) >= 0 ? (uint64_t)1 << (field) : (uint64_t)0)

/* A set of particles; a handle, or -1. `members`: world ranks that have some, in the same order on all of them; NULL:
 * all ranks of MPI_COMM_WORLD. At most 4 at a time. */
static inline int resil_spr_create(const char* name, const int* members, int count) {
  return resil_api_()->spr_create ? resil_api_()->spr_create(name, members, count) : -1;
}

static inline void resil_spr_destroy(int set) {
  if (set >= 0 && resil_api_()->spr_destroy) resil_api_()->spr_destroy(set);
}

/* Declares an array with `bytes` for each particle, `stride` bytes from one to the next, local particles first. Again
 * with the same name: it has moved. The same fields in the same order on all ranks. Returns its number, or -1: device
 * memory, or more than 43. */
static inline int resil_spr_field(int set, const char* name, void* data, size_t bytes, size_t stride, int flags) {
  return set >= 0 && resil_api_()->spr_field ? resil_api_()->spr_field(set, name, data, bytes, stride, flags) : -1;
}

/* Selects, from the neighbour lists of the `local` particles; behind them lie copies of other ranks', `total` in all.
 * Neighbours of i: neighbour[offset[i]] and so on, count[i] of them, or with `count` NULL up to offset[i + 1]; offsets
 * from 0 on, neighbours from `base` on. `owner`: world ranks of the copies, for RESIL_SPR=hashed; else NULL. After each
 * change of the lists. Nothing given is kept. Returns how many replicas this rank's particles have. */
static inline int resil_spr_select(int set, int64_t local, int64_t total, const int64_t* offset, const int* count,
                                   const int* neighbour, int base, const int* owner) {
  return set >= 0 && resil_api_()->spr_select
             ? resil_api_()->spr_select(set, local, total, offset, count, neighbour, base, owner)
             : 0;
}

/* Before a kernel: sends the fields (bits of their numbers) that have changed since they were last sent, and whatever
 * the kernel reads after a selection. From here on the program leaves fields that were sent as they are, until they are
 * results of a kernel or named here again. `total` -1, on all members: around what changes none of the fields and is no
 * kernel (a search for neighbours, a long wait): nothing is sent, resil_spr_end(set, 0, NULL, NULL, policy) compares
 * them with what they were, and the next kernel needs a selection. */
static inline void resil_spr_begin(int set, int64_t step, int64_t local, int64_t total, uint64_t fields) {
  if (set >= 0 && resil_api_()->spr_begin) resil_api_()->spr_begin(set, step, local, total, fields);
}

/* After the program's own kernel has computed `results`: computes the replicas of the rank before and compares this
 * rank's own. Returns how many particles differ; `policy` says what else happens (RESIL_POLICY_...). -1: the hook of
 * resil_spr_rollback was called on all ranks, and the program goes on from what it has restored, with a new selection.
 */
static inline int64_t resil_spr_end(int set, uint64_t results, resil_spr_kernel kernel, void* argument, int policy) {
  return set >= 0 && resil_api_()->spr_end ? resil_api_()->spr_end(set, results, kernel, argument, policy) : 0;
}

/* Within a kernel, after it has finished `results` of the local particles `first` to `first + count - 1`: keeps them
 * until resil_spr_end, which compares. So a result that changes in memory while the kernel still computes others is
 * found, which no replica can: the next kernel would be sent it as it is. In blocks of some 10 particles; each once;
 * from any thread. */
static inline void resil_spr_computed(int set, uint64_t results, int64_t first, int64_t count) {
  if (set >= 0 && resil_api_()->spr_computed) resil_api_()->spr_computed(set, results, first, count);
}

/* For RESIL_POLICY_RETRY: restores a checkpoint; called on all members, outside MPI, with the step in which some rank's
 * particles differed. It may call MPI. Not 0: it cannot, and the job ends with exit status 90. */
static inline void resil_spr_rollback(int set, int (*hook)(void* argument, int64_t step), void* argument) {
  if (set >= 0 && resil_api_()->spr_rollback) resil_api_()->spr_rollback(set, hook, argument);
}

/* Keeps the fields (bits) of the local particles as they are, here and on the next rank; the last two that were kept
 * remain. All members together, with the same step and fields, outside of begin and end, when resil_spr_end has found
 * nothing: a checkpoint without a file, to which a program can go back, also after a rank has died. 0: it is complete
 * on all members. 1: it is not, and the older one remains. */
static inline int resil_spr_keep(int set, int64_t step, int64_t local, uint64_t fields) {
  return set >= 0 && resil_api_()->spr_keep ? resil_api_()->spr_keep(set, step, local, fields) : 1;
}

/* The newest that was kept and is not after `step` (INT64_MAX: the newest): of this rank's particles, or of those of
 * the rank before. Returns its step; -1: there is none. `copy` has all of them in count and particles, ids, and in
 * field[] what was kept, else NULL; valid until the next resil_spr_keep, or the end of the set. When a rank has died,
 * those that are left agree on the smallest of their newest steps: of that one each has both. */
enum { RESIL_SPR_OWN = 0, RESIL_SPR_BEFORE = 1 };
static inline int64_t resil_spr_kept(int set, int64_t step, int of, struct resil_spr_replicas* copy) {
  return set >= 0 && resil_api_()->spr_kept ? resil_api_()->spr_kept(set, step, of, copy) : -1;
}

/* All particles of the rank before, as they were last sent: for a program that goes on after that rank has died. Valid
 * until the next call for this set. 1: they are not here. */
static inline int resil_spr_copy(int set, struct resil_spr_replicas* copy) {
  return set >= 0 && resil_api_()->spr_copy ? resil_api_()->spr_copy(set, copy) : 1;
}

#endif
