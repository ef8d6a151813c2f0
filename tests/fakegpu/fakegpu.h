/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for a GPU and its driver: libcuda.so.1 and libamdhip64.so.5 over ordinary memory. A test double, never
 * installed. What it keeps of the real ones:
 *
 *  - Device memory faults when the host touches it: addresses that programs see are mapped without access; the driver's
 *    own copies go through a second mapping of the same pages. A fault is said in one line, then the process dies.
 *  - Copies and kernels are asynchronous and in order on their stream; each has a due time that follows from FAKEGPU's
 *    speeds. What is due is done by the thread that asks (query, synchronise, the next enqueueing), never earlier:
 * until then the destination holds what it held, and the source may still change what will be copied. What nobody asked
 *    for when it is `overdue` is done by a thread of the driver's, so that who polls memory alone gets there too.
 *  - One engine for each direction of a device: copies one way are serialised.
 *  - Copies down to pageable memory wait for their end, also those that are called asynchronous. Copies up from it are
 * over, with CUDA, when the data has been taken; so are fills, and copies inside a device, when they are ordered,
 * unless CU_POINTER_ATTRIBUTE_SYNC_MEMOPS or CU_CTX_SYNC_MEMOPS says otherwise, which memory of pools takes and does
 * not keep, and mapped memory refuses. As seen with 580.159 on an H100.
 *  - Handles of a destroyed context, and of events in it, end the process: with the real driver they may.
 *  - Events, streams, contexts (current one per thread), pinned and registered memory, managed memory, pools, pointer
 *    attributes, peers, several devices. Errors as the real drivers give them. NULL stream semantics.
 *  - Handles for other processes: these map the exporter's memory, without access as well. Opening one's own, exporters
 *    that are gone, freeing what others have open (undefined with the real ones: here the process says so and dies).
 *  - Names of which the real libcuda has a version for old programs (cuMemAlloc) are here as _v2 alone.
 *
 * FAKEGPU in the environment, comma-separated NAME=VALUE; what is not named is as for the first value:
 *    devices=1        0: a driver without a device
 *    first=0          number on the node of the first of them, as with CUDA_VISIBLE_DEVICES; UUIDs follow from it
 *    memory=1024      MiB on each device
 *    pinned=4096      MiB of page-locked memory that this process can have
 *    down=2 up=2 peer=8  GB/s of copies; digest=20: of kernels that read memory, and of copies inside a device
 *    ipc=1            0: memory cannot be exported; 2: nothing of other processes can be opened (containers);
 *                     3: only on the device where it lies (no peer access)
 *    latency=5        microseconds before a copy or kernel begins
 *    code=1           0: modules of code (cubin, fat binary, code object) are refused, as by a device that is newer
 *    text=1           0: modules of PTX are refused, as by a driver that is older
 *    overdue=1000     microseconds; 0: what nobody asks for is never done
 *    fault=KIND[:N[:MIN]]  every N-th (default 7th) operation of the kind, of MIN bytes or more, goes wrong; more than
 *                     one with + between them:
 *        early-stream, early-device, early-event   synchronise returns (and query says done) before the work is done
 *        lost-stream, lost-device, lost-event      the work is done, synchronise does not return and query says "not
 *                                                  ready", until fakegpu_release() or until the file FAKEGPU_RELEASE is
 *        corrupt-down, corrupt-up                  one bit of the copy differs
 *        alias-down, alias-up                      the copy has another packet's data: that of the copy before
 *        gone                                      the context is destroyed under way: once, at its N-th operation
 *        poison                                    likewise, by an illegal access in a kernel
 *      An operation is a record of an event; for streams and devices, work of which a synchronise or query asks for the
 *      first time; for the others a copy or an enqueueing.
 *    log=FILE         one line for each fault that was made; %p is the process id
 * Injection as the real one: CUDA_INJECTION64_PATH is opened by cuInit, which calls its InitializeInjection.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For tests that link or dlsym the stand-in: */
/* The second mapping; pinned, registered and managed memory are their own. NULL: nothing that a kernel could reach. */
void* fakegpu_host_view(const void* device_address);
uint64_t fakegpu_faults(void); /* how many faults of FAKEGPU's have been made */
/* Calls so far: "down", "up", "peer" (also with memory of other processes), "inside" (copies), "pageable" (those of
 * them with pageable memory), "launch",
 * "alloc", "pinned", "registered", "event" (records), "query", "sync". UINT64_MAX: no such word. */
uint64_t fakegpu_count(const char* what);
double fakegpu_now(void); /* seconds of its clock (CLOCK_MONOTONIC) */
void fakegpu_release(void); /* completions that are lost come true, also all later ones */

/* Kernels that the stand-in can run, by name; defined in tests/fakegpu/kernels.cpp. `arguments` as cuLaunchKernel gets
 * them; device addresses in them are seen through fakegpu_host_view. */
typedef void fakegpu_kernel(unsigned blocks, unsigned threads, void** arguments);
fakegpu_kernel* fakegpu_find_kernel(const char* name);
/* Sizes in bytes of its arguments, ending with 0: the driver copies them at the launch. At most 16, 4096 bytes in all.
 */
const uint16_t* fakegpu_kernel_arguments(const char* name);
/* Bytes of device memory that this launch reads and writes: its time follows. */
uint64_t fakegpu_kernel_bytes(const char* name, unsigned blocks, unsigned threads, void** arguments);

#ifdef __cplusplus
}
#endif
