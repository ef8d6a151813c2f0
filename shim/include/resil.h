/* SPDX-License-Identifier: Apache-2.0
 *
 * resil.h: tell resil what your program is doing. Header only, C and C++, nothing to link: without libresil.so in
 * LD_PRELOAD every function here is a test of a null pointer.
 *
 * All functions may be called from any thread, also before MPI_Init and after MPI_Finalize (then they do nothing), but
 * not from signal handlers. Names are copied (at most 63 bytes); use a few dozen of them, not one for each step.
 */
#ifndef RESIL_H
#define RESIL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)
extern void resil_step(const char* name) __attribute__((weak));
extern void resil_norm(const char* name, double value) __attribute__((weak));
extern void resil_checksum(const char* name, uint64_t value) __attribute__((weak));
extern void resil_count(const char* name, int64_t value) __attribute__((weak));
extern int resil_drain(void) __attribute__((weak));
extern const char* resil_version(void) __attribute__((weak));
#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

/* The program begins a step with this name; the step counter of the thread goes up by one. Dumps and reports say
 * "in step 1204 (pressure solve)". Programs that name no steps are counted by MPI calls. */
#define RESIL_STEP(name) ((void)(resil_step ? (resil_step(name), 0) : 0))
/* A norm (residual, energy, ...) into the flight recorder, bit for bit. */
#define RESIL_NORM(name, value) ((void)(resil_norm ? (resil_norm(name, value), 0) : 0))
/* A 64-bit checksum that the program computed itself. */
#define RESIL_CHECKSUM(name, value) ((void)(resil_checksum ? (resil_checksum(name, value), 0) : 0))
/* An iteration count. */
#define RESIL_COUNT(name, value) ((void)(resil_count ? (resil_count(name, value), 0) : 0))
/* Everything sent and received so far is verified before this returns, as far as the mode verifies anything; call it
 * before writing a checkpoint with plain POSIX I/O. Returns how many messages stayed unverified; 0 without resil. */
#define RESIL_DRAIN() (resil_drain ? resil_drain() : 0)

#endif
