// SPDX-License-Identifier: Apache-2.0
//
// The one interface to accelerator runtimes: whose memory is this, pinned memory, streams, events, copies, kernels.
// Behind it CUDA (through the driver's own library, so that static and shared runtimes are all the same) and HIP. Both
// are found in the process by dlopen(RTLD_NOLOAD): nothing is linked, nothing is loaded, nothing is initialised that
// the program has not initialised itself. A process that has neither pays two compares for each buffer (host_memory.h).
//
// Application's threads only (helper threads never come here), no signal handlers. No function raises an error: each
// says in its result what happened, and the caller passes the call through or counts it. Every function leaves the
// thread's current context or device as it was.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/runtime/accelerators/memory.h"

namespace resil::gpu {

/// One context of one device: what a copy needs beside its addresses. Lives as long as the process; `lost` once its
/// runtime has said that the context is gone (destroyed, or poisoned by a fault), then every function fails.
struct Device;

struct Pointer {
  Memory memory;
  Device* device;  ///< null unless memory is kDevice or kManaged; null too when the table of devices (64) is full
  uintptr_t base;  ///< allocation that holds the address; 0: the runtime would not say
  size_t bytes;  ///< of the allocation
  bool settled;  ///< see settle()
  bool in_context;  ///< not of a pool, nor mapped
};

/// Whose is [address, address + bytes)? Asks the runtime each time, so that freed and reused addresses, pools, static
/// runtimes and memory allocated before MPI_Init are all right. A range that begins on the device and ends beyond its
/// allocation is kDevice as far as it goes: `bytes` and `base` tell.
Pointer classify(const void* address, size_t bytes);

/// Before the buffer's first copy: makes sure that what the program's calls have begun, and what they are named after
/// says is over, is over for resil's streams, too. CUDA's copies from pageable memory return when the data has been
/// taken, its fills and copies inside a device when they have been ordered; the default stream orders them, and resil's
/// streams do not wait for it. Memory of a context is told to finish such calls before they return, what has been begun
/// included, and is `settled` then (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, as MPI libraries that take device buffers do).
/// For other memory, resil's streams wait for what the default stream has now. Nothing is done with HIP, whose such
/// calls wait. `address`: in the buffer.
void settle(const Pointer& pointer, const void* address);

/// Has a runtime with devices been seen in this process so far? One load; false until classify() has met one.
bool seen();

/// Names for reports: "cuda", "hip"; "libcuda.so.1"; the driver's version as it says it (CUDA: 12040), 0: not known.
Api api_of(const Device& device);
const char* api_name(Api api);
int ordinal_of(const Device& device);  ///< device's number in its runtime
int driver_version(Api api);
/// Is its context still there? Asks the runtime.
bool alive(Device& device);
/// Name of the last error that this thread's functions met, as the runtime calls it; "" none.
const char* last_error();

// --- Streams and events ---------------------------------------------------------------------------------------------

/// The streams that resil owns on each device, all non-blocking: they wait for the program's default stream only where
/// settle() says so. MPI does not know the program's streams: a program completes its kernels before it hands their
/// data to MPI, so none of its streams has to be waited for.
enum class StreamRole : uint8_t { kDown, kUp, kPeer, kKernel };

/// An event of a device's; 0: none. Taken from a free list, made when that is empty.
using EventHandle = uint64_t;
EventHandle event_acquire(Device& device);
void event_release(Device& device, EventHandle event);
/// Everything enqueued on the stream so far is complete when the event is.
bool event_record(Device& device, StreamRole role, EventHandle event);
/// The stream goes on only when the event is complete.
bool stream_wait(Device& device, StreamRole role, EventHandle event);
enum class State : uint8_t { kPending, kDone, kFailed };
/// Never blocks.
State event_query(Device& device, EventHandle event);

// --- Copies: enqueued, never waited for. `host` is pinned memory of resil's -----------------------------------------

bool copy_down(Device& device, void* host, const void* from, size_t bytes);
bool copy_up(Device& device, void* to, const void* host, size_t bytes);
/// `rows` pieces of `width` bytes; pitches in bytes from one piece to the next. Strides of derived datatypes.
bool copy_down_2d(Device& device, void* host, size_t host_pitch, const void* from, size_t pitch, size_t width,
                  size_t rows);
bool copy_up_2d(Device& device, void* to, size_t pitch, const void* host, size_t host_pitch, size_t width, size_t rows);
/// Between two devices, or on one, on that stream of `to_device`.
bool copy_peer(Device& to_device, void* to, Device& from_device, const void* from, size_t bytes,
               StreamRole role = StreamRole::kPeer);

// --- Kernels --------------------------------------------------------------------------------------------------------

/// One of resil's own kernels (pipeline/gpu/kernels/), by name (a constant's: it is kept); loaded into the device's
/// context on first use. Null: not built, no code for this device, or refused; last_error() says which.
void* kernel(Device& device, const char* name);
/// `arguments` as the drivers take them: an array of addresses of the arguments. `event`: complete when the kernel is;
/// 0: none.
bool launch(Device& device, StreamRole role, void* kernel, unsigned blocks, unsigned threads, unsigned shared_bytes,
            void** arguments, EventHandle event = 0);
/// The device's address of pinned memory of resil's, for kernels that write results there; null: none.
void* device_address(Device& device, void* pinned);
/// Scratch memory on the device, for tables of a batch; null: out of device memory.
void* device_allocate(Device& device, size_t bytes);
void device_free(Device& device, void* memory);
/// How much memory the device has, and how much of it nobody uses now. False: its driver does not say.
bool device_room(Device& device, size_t* unused, size_t* all);

// --- Memory of another process of this node -------------------------------------------------------------------------

/// What another process needs in order to reach memory of this one's: plain bytes, which may travel in messages.
struct IpcHandle {
  uint8_t driver[64];  ///< the driver's own handle, of the whole allocation
  uint8_t device[16];  ///< UUID of the device where the memory lies; zeros: its driver does not say
  uint64_t offset;  ///< of the memory in its allocation
  Api api;
  uint8_t unused[7];  ///< zero
};

/// For plain memory of the device: device_allocate()'s, or the program's. Not for pools, mapped, managed or host
/// memory: the drivers refuse these. The allocation must not be freed while another process has it open: what happens
/// then is undefined. A driver gives out memory in pieces of larger blocks, of which a handle opens the whole to the
/// other process; sizes of whole 2 MiB avoid that. False: refused, last_error() says by whom.
bool ipc_export(Device& device, const void* memory, IpcHandle* handle);
/// Maps it for copies by copy_peer() with `on` at both ends: `on` is the device of this process's end of the copy,
/// whichever device the memory lies on. Open a handle in one context of a device alone, and once only: what a second
/// time does differs between the APIs. Takes as long as an allocation does, and may wait for the device.
/// False, and nothing has changed: another API, a handle of this very process (the drivers refuse these),
/// devices that do not reach each other, containers, a driver without such functions, or memory that is gone. A device
/// that this process does not see (CUDA_VISIBLE_DEVICES) is no reason: the driver is asked.
bool ipc_open(Device& on, const IpcHandle& handle, void** memory);
/// `memory` as ipc_open() gave it. No copy with it may be under way. May wait for the device.
void ipc_close(Device& on, const IpcHandle& handle, void* memory);

}  // namespace resil::gpu
