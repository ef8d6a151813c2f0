// SPDX-License-Identifier: Apache-2.0
//
// Devices, and what an API must be able to do for them. gpu.cpp is written against Driver; cuda.cpp and hip.cpp each
// give one. Inside pipeline/gpu only.
#pragma once

#include <atomic>

#include "pipeline/gpu/gpu.h"
#include "shim/base/spinlock.h"
#include "shim/runtime/accelerators/runtimes.h"

namespace resil::gpu {

/// Something that is found out once; threads that come meanwhile wait for it (milliseconds, once).
class Once {
 public:
  /// What `find` said.
  template <class Find>
  bool find_out(Find find) {
    uint32_t state = state_.load(std::memory_order_acquire);
    if (state > kBusy) [[likely]]
      return state == kYes;
    if (state == kNew && state_.compare_exchange_strong(state, kBusy)) {
      state = find() ? kYes : kNo;
      state_.store(state, std::memory_order_release);
    }
    while ((state = state_.load(std::memory_order_acquire)) == kBusy) sched_yield();
    return state == kYes;
  }

 private:
  enum : uint32_t { kNew, kBusy, kYes, kNo };
  std::atomic<uint32_t> state_;
};

/// What was current before make_current(), and restore() gives back.
struct Previous {
  void* context;
  int device, capture_mode, error;
  bool changed, exchanged;
};

/// Which context a pointer's memory is copied through. CUDA: a context and the id that tells it from a later one at the
/// same address (0: the driver gives none); HIP: the device alone.
struct Place {
  void* context;
  uint64_t id;
  int ordinal;
};

/// Results are the API's own; 0 is success in both, and HIP's other numbers are CUDA's (cuda_api.h). All but place()
/// and version() are called between make_current() and restore(). Those without a default are each driver's own, the
/// others are of driver_common.h.
struct Driver {
  Api api;
  bool (*ready)();  ///< all functions have been found; looks the first time
  bool (*place)(const Said& said, uintptr_t address, Place* place);
  /// A device that is new: takes what tells later whether its context is still there. Null function: nothing is needed.
  void (*adopt)(Device& device) = nullptr;
  /// See gpu::settle(): the memory's promise. False: not to be had from this driver. Null function: no need.
  bool (*settle)(const void* address) = nullptr;
  /// Behind what is in the default stream now, if that may be asked.
  int (*record_default)(void* event) = nullptr;
  int (*make_current)(const Device& device, Previous* previous);
  void (*restore)(const Device& device, const Previous& previous);
  int (*stream_create)(void** stream) = nullptr;
  int (*stream_destroy)(void* stream) = nullptr;
  int (*stream_wait)(void* stream, void* event) = nullptr;
  int (*event_create)(void** event) = nullptr;
  int (*event_destroy)(void* event) = nullptr;
  int (*event_record)(void* event, void* stream) = nullptr;
  int (*event_query)(void* event) = nullptr;
  int (*copy)(void* to, const void* from, size_t bytes, bool up, void* stream);
  int (*copy_2d)(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows, bool up,
                 void* stream);
  int (*copy_peer)(const Device& to_device, void* to, const Device& from_device, const void* from, size_t bytes,
                   void* stream);
  int (*pin)(void* memory, size_t bytes) = nullptr;
  int (*unpin)(void* memory) = nullptr;
  int (*device_pointer)(void** pointer, void* pinned);
  int (*allocate)(void** memory, size_t bytes);
  int (*release)(void* memory);
  int (*room)(size_t* unused, size_t* all) = nullptr;
  int (*module_load)(void** module, const void* image) = nullptr;
  int (*module_function)(void** function, void* module, const char* name) = nullptr;
  int (*launch)(void* function, unsigned blocks, unsigned threads, unsigned shared, void* stream,
                void** arguments) = nullptr;
  // Memory of other processes. Null functions: the driver has none. Handles are 64 bytes in both APIs, UUIDs 16.
  int (*ipc_export)(uint8_t* handle, void* memory);
  int (*ipc_open)(void** memory, const uint8_t* handle);
  int (*ipc_close)(void* memory);
  int (*device_uuid)(uint8_t* uuid, int ordinal) = nullptr;
  int (*device_reaches)(int* can, int ordinal, int other) = nullptr;
  const char* (*error_name)(int result);
  int (*version)();  ///< 0: not known
};

extern const Driver cuda_driver, hip_driver;

constexpr unsigned kStreamRoles = 4, kKernels = 16;

struct Device {
  const Driver* driver;
  Place place;
  std::atomic<bool> lost;
  /// CUDA: memory of resil's in the context, and its number, which no other memory ever has. A driver may crash when it
  /// is given a context that has been destroyed; about an address it says whose it is. 0: there is none.
  std::atomic<uint64_t> mark;
  uint64_t mark_number;
  std::atomic<void*> streams[kStreamRoles];

  SpinLock events_lock;
  uint32_t event_count;
  uint32_t event_room;
  void** events;  ///< free ones

  Once module_found;
  void* module;  ///< of resil's kernels
  const char* no_module;  ///< why there is none
  SpinLock kernels_lock;
  uint32_t kernel_count;
  struct {
    const char* name;
    void* function;  ///< null: the image has none of this name
  } kernels[kKernels];
};

/// The device for memory that `said` is about; made when it is new. Null: its runtime does not say enough, is too old,
/// or the table is full.
Device* device_for(const Said& said, uintptr_t address);
/// One of a CUDA device's contexts that is known already, by number; null: none.
const Device* device_known(Api api, int ordinal);

/// The device's context is current for a few calls. When it is not good(), none must be made.
class Inside {
 public:
  explicit Inside(Device& device);
  ~Inside();
  Inside(const Inside&) = delete;
  bool good() const { return good_; }
  /// Was it a success? Else keeps the error's name, and marks the device when its context is gone.
  bool check(int result);
  /// Was it a success? Else keeps the error's name, no more: for functions that answer "invalid context" or "invalid
  /// handle" about something else than the device.
  bool tried(int result);

 private:
  Device& device_;
  Previous previous_;
  bool good_;
};

/// Keeps the name for last_error().
void keep_error(const char* name);

}  // namespace resil::gpu
