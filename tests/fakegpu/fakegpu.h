/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for a GPU and its driver: libcuda.so.1 and libamdhip64.so.5 over ordinary memory. A test double, never
 * installed. What it keeps of the real ones:
 *
 *  - Device memory faults when the host touches it: addresses that programs see are mapped without access; the driver's
 *    own copies go through a second mapping of the same pages. A fault is said in one line, then the process dies.
 *  - Copies and kernels are asynchronous and in order on their stream; each has a due time that follows from FAKEGPU's
 *    speeds. What is due is done by the thread that asks (query, synchronise, the next enqueueing), never earlier: until
 *    then the destination holds what it held, and the source may still change what will be copied.
 *  - One engine for each direction of a device: copies one way are serialised.
 *  - Events, streams, contexts (current one per thread), pinned and registered memory, managed memory, pools, pointer
 *    attributes, peers, several devices. Errors as the real drivers give them. NULL stream semantics.
 *
 * FAKEGPU in the environment, comma-separated NAME=VALUE; what is not named is as for the first value:
 *    devices=1        0: a driver without a device
 *    memory=1024      MiB on each device
 *    down=2 up=2 peer=8  GB/s of copies; digest=20: of kernels that read memory
 *    latency=5        microseconds before a copy or kernel begins
 *    fault=KIND[:N]   every N-th (default 7th) operation of the kind goes wrong:
 *        early-stream, early-device, early-event   synchronise returns (and query says done) before the work is done
 *        lost-stream, lost-device, lost-event      the work is done, synchronise does not return (until FAKEGPU_RELEASE)
 *        corrupt-down, corrupt-up                  one bit of the copy differs
 *        alias-down, alias-up                      the copy has another packet's data: that of the copy before
 *        gone                                      the context is destroyed under way
 *    log=FILE         one line for each fault that was made
 * Injection as the real one: CUDA_INJECTION64_PATH is opened by cuInit, which calls its InitializeInjection.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For tests that link or dlsym the stand-in: */
void* fakegpu_host_view(const void* device_address); /* the second mapping; NULL: not device memory */
uint64_t fakegpu_faults(void);                       /* how many faults of FAKEGPU's have been made */
uint64_t fakegpu_count(const char* what);            /* "down", "up", "peer", "launch", "pinned", "event", "query", "sync": calls so far */
double fakegpu_now(void);                            /* seconds of its clock (CLOCK_MONOTONIC) */

/* Kernels that the stand-in can run, by name; defined in tests/fakegpu/kernels.cpp. `arguments` as cuLaunchKernel gets
 * them; device addresses in them are seen through fakegpu_host_view. */
typedef void fakegpu_kernel(unsigned blocks, unsigned threads, void** arguments);
fakegpu_kernel* fakegpu_find_kernel(const char* name);
/* Bytes of device memory that this launch reads and writes: its time follows. */
uint64_t fakegpu_kernel_bytes(const char* name, unsigned blocks, unsigned threads, void** arguments);

#ifdef __cplusplus
}
#endif
