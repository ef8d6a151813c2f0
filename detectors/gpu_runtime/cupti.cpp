// SPDX-License-Identifier: Apache-2.0
//
// See cupti.h. Own declarations of what is used of CUPTI; tests compare them with its headers where these are
// installed.

#include "detectors/gpu_runtime/cupti.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
#include <unwind.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "detectors/gpu_runtime/call.h"
#include "detectors/gpu_runtime/cupti_api.h"
#include "detectors/gpu_runtime/messages.h"
#include "shim/call/attach.h"
#include "shim/report/log.h"
#include "shim/runtime/accelerators/cuda_api.h"

namespace resil::gpu_runtime {

namespace {

using cupti::CallbackData;

constinit std::atomic<int> subscribed;  // 0 no, 1 being done, 2 yes, 3 refused for good
constinit const char* state = "none";

/// The call that this thread is in, from the callback on entry to that on exit. Calls that the driver makes inside one
/// of its own functions are not looked at.
struct Open {
  Call call;
  uint32_t id;  ///< callback id; 0: none open
  void* event;
  void* stream;
};

static_assert(sizeof(Open) <= sizeof(OpenWait::aside));

/// Not thread-local: the driver of a child process, without LD_PRELOAD, may open this library when there is little room
/// for such data.
Open* open_of_thread() {
  OpenWait* own = own_wait();
  return own != nullptr ? reinterpret_cast<Open*>(own->aside) : nullptr;
}

void* stream_of(const cupti::Function& function, void* stream) {
  if (!function.per_thread || stream != nullptr) return stream;
  stream_per_thread_seen(Api::kCuda);
  return kPerThreadStream;
}

void enter(const cupti::Function& function, const CallbackData& data, Open& open) {
  const auto* argument = static_cast<void* const*>(data.params);
  open.id = function.id;
  Call& call = open.call;
  call.api = Api::kCuda, call.name = function.name, call.site = 0, call.function = nullptr, call.alters = false;
  switch (function.what) {
    case cupti::What::kStreamWait:
    case cupti::What::kStreamQuery: call.handle = stream_of(function, argument[0]); break;
    case cupti::What::kEventWait:
    case cupti::What::kEventQuery: call.handle = argument[0]; break;
    case cupti::What::kDeviceWait:
      call.handle = function.flags ? argument[0] : nullptr;  // of the context that is named
      break;
    default: call.handle = nullptr;
  }
  const Driver* d = driver(Api::kCuda);
  int result = kSuccess;
  switch (function.what) {
    case cupti::What::kStreamWait:
    case cupti::What::kEventWait:
    case cupti::What::kDeviceWait:
      call.kind = function.what == cupti::What::kStreamWait  ? Kind::kStreamWait
                  : function.what == cupti::What::kEventWait ? Kind::kEventWait
                                                             : Kind::kDeviceWait;
      call_begin(call);
      if (settings.sync == Sync::kPoll)
        call_poll(call, &result);  // the runtime's own wait cannot be left out; it has nothing to wait for then
      break;
    case cupti::What::kStreamQuery:
    case cupti::What::kEventQuery:
      call.kind = function.what == cupti::What::kStreamQuery ? Kind::kStreamQuery : Kind::kEventQuery;
      query_begin(call);
      break;
    case cupti::What::kRecord:
      open.event = argument[0], open.stream = stream_of(function, argument[1]);
      if (function.flags && *reinterpret_cast<const unsigned*>(argument + 2) != 0) events_in_graphs();
      if (d != nullptr) event_recording(*d, open.event, open.stream);
      break;
    case cupti::What::kEventGone: event_forget(Api::kCuda, argument[0], false); break;
    case cupti::What::kEventExported: event_forget(Api::kCuda, argument[1], true); break;
    case cupti::What::kStreamGone: stream_gone(Api::kCuda, argument[0]); break;
    case cupti::What::kGraph: events_in_graphs(); break;
    case cupti::What::kStreamMade: break;
  }
}

void leave(const cupti::Function& function, const CallbackData& data, Open& open) {
  const auto* argument = static_cast<void* const*>(data.params);
  const int result = data.result != nullptr ? *static_cast<const int*>(data.result) : kSuccess;
  open.id = 0;
  const Driver* d = driver(Api::kCuda);
  switch (function.what) {
    case cupti::What::kStreamWait:
    case cupti::What::kEventWait:
    case cupti::What::kDeviceWait:
      if (settings.sync == Sync::kDouble && result == kSuccess && d != nullptr) {
        if (function.what == cupti::What::kStreamWait) d->stream_synchronize(open.call.handle);
        else if (function.what == cupti::What::kEventWait) d->event_synchronize(open.call.handle);
        else if (d->device_synchronize != nullptr) d->device_synchronize();
      }
      call_end(open.call, result);
      break;
    case cupti::What::kStreamQuery:
    case cupti::What::kEventQuery: query_end(open.call, result, nullptr); break;
    case cupti::What::kRecord:
      if (d != nullptr) event_recorded(*d, open.event, open.stream, result == kSuccess);
      break;
    case cupti::What::kStreamMade: {
      auto* made = static_cast<void**>(argument[0]);
      if (result == kSuccess && made != nullptr)
        stream_made(Api::kCuda, data.context, *made, *reinterpret_cast<const unsigned*>(argument + 1));
      break;
    }
    default: break;
  }
}

/// On the thread that calls the driver, inside its function. Calls of the driver from here come back as callbacks too:
/// `inside` keeps them out.
void callback(void*, int, uint32_t id, const void* given) {
  const auto* data = static_cast<const CallbackData*>(given);
  const cupti::Function* function = cupti::function_of(id);
  if (inside != 0 || function == nullptr || !runtime_attached()) return;
  Open* open = open_of_thread();
  if (open == nullptr || (data->site == 0 && !running.load(std::memory_order_relaxed))) return;
  if (data->site == 0 ? open->id != 0 : open->id != id) return;
  ++inside;
  data->site == 0 ? enter(*function, *data, *open) : leave(*function, *data, *open);
  --inside;
}

// --- Finding and starting CUPTI ---

/// CUPTI of the driver's own major version, else of an older one: a newer one than the driver does not work with it.
void* open_cupti() {
  const gpu::cuda::Functions* driver = gpu::loaded_cuda();
  int version = 0;
  if (driver == nullptr || driver->driver_version == nullptr || driver->driver_version(&version) != kSuccess)
    return nullptr;
  const char* home = getenv("CUDA_HOME");
  if (home == nullptr || home[0] == 0) home = getenv("CUDA_PATH");
  char file[1024];
  for (int major = version / 1000; major >= 11; --major)
    for (const char* folder : {"", home, "/usr/local/cuda"})
      for (const char* part : {"/extras/CUPTI/lib64/", "/lib64/"}) {
        if (folder == nullptr) continue;
        snprintf(file, sizeof(file), "%s%slibcupti.so.%d", folder, folder[0] != 0 ? part : "", major);
        if (void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
      }
  return nullptr;
}

bool give_up(const char* why) {
  state = why;
  subscribed.store(3);
  add_note_format(messages::gpu_runtime::static_runtime, why);
  return false;
}

/// Has the program begun to use a device? Then there may be streams that are not known.
bool contexts_exist() {
  const gpu::cuda::Functions* driver = gpu::loaded_cuda();
  if (driver == nullptr) return true;
  int devices = 0;
  void* context = nullptr;
  bool exist = driver->device_count == nullptr || driver->device_get == nullptr || driver->primary_state == nullptr ||
               driver->context_current == nullptr || driver->device_count(&devices) != kSuccess ||
               driver->context_current(&context) != kSuccess || context != nullptr;
  for (int i = 0; i < devices && !exist; ++i) {
    int device = 0, active = 0;
    unsigned flags = 0;
    exist = driver->device_get(&device, i) != kSuccess || driver->primary_state(device, &flags, &active) != kSuccess ||
            active != 0;
  }
  return exist;
}

bool subscribe(bool late) {
  int expected = 0;
  if (!subscribed.compare_exchange_strong(expected, 1)) return expected == 2;
  void* library = open_cupti();
  if (library == nullptr) return give_up("no libcupti");
  const auto begin = reinterpret_cast<cupti::Subscribe>(dlsym(library, "cuptiSubscribe"));
  const auto enable = reinterpret_cast<cupti::EnableCallback>(dlsym(library, "cuptiEnableCallback"));
  void* subscriber = nullptr;
  if (begin == nullptr || enable == nullptr) return give_up("libcupti lacks its callbacks");
  ++inside;
  const int error = begin(&subscriber, callback, nullptr);
  unsigned enabled = 0;
  for (unsigned i = 0; error == 0 && i < cupti::kFunctionCount; ++i)
    enabled += enable(1, subscriber, cupti::kDriverDomain, cupti::kFunctions[i].id) == 0 ? 1 : 0;
  --inside;
  if (error == cupti::kMultipleSubscribers || error == cupti::kMaxLimit) return give_up("refused: a profiler is there");
  if (error != 0 || enabled == 0) return give_up("libcupti refused");
  const bool unseen = late && contexts_exist();
  state = unseen ? "subscribed, contexts are older" : "subscribed";
  if (!unseen) streams_all_seen(Api::kCuda);
  subscribed.store(2);
  return true;
}

/// Without initialising it.
bool driver_initialised() {
  const gpu::cuda::Functions* driver = gpu::loaded_cuda();
  int devices = 0;
  return driver != nullptr && driver->device_count != nullptr && driver->device_count(&devices) != kNotInitialized;
}

}  // namespace

bool subscribe_from_driver() { return subscribe(false); }

void cupti_prepare() {
  Dl_info self;
  if (driver_initialised()) {
    subscribe(true);
    return;
  }
  if (const char* other = getenv("CUDA_INJECTION64_PATH"); other != nullptr && other[0] != 0) {
    state = "not prepared: CUDA_INJECTION64_PATH is in use";
    return;
  }
  if (dladdr(reinterpret_cast<const void*>(&cupti_prepare), &self) == 0 || self.dli_fname == nullptr) return;
  char path[4096];
  if (realpath(self.dli_fname, path) == nullptr) return;
  setenv("CUDA_INJECTION64_PATH", path, 1);
  state = "prepared";
}

void cupti_look() {
  if (subscribed.load() == 0 && driver_initialised()) subscribe(true);
}

const char* cupti_state() { return state; }

namespace {

struct Frames {
  uint64_t found;
  unsigned seen;
};

bool runtime_object(const char* path) {
  const char* slash = strrchr(path, '/');
  const char* base = slash != nullptr ? slash + 1 : path;
  for (const char* name : {"libcuda", "libcupti", "libresil", "libamdhip64"})
    if (strncmp(base, name, strlen(name)) == 0) return true;
  return false;
}

_Unwind_Reason_Code visit(_Unwind_Context* context, void* given) {
  auto* frames = static_cast<Frames*>(given);
  const uint64_t pc = _Unwind_GetIP(context);
  Dl_info info;
  if (pc == 0 || ++frames->seen > 64) return _URC_END_OF_STACK;
  if (dladdr(reinterpret_cast<void*>(pc), &info) == 0 || info.dli_fname == nullptr || runtime_object(info.dli_fname))
    return _URC_NO_REASON;
  frames->found = pc;
  return _URC_END_OF_STACK;
}

}  // namespace

uint64_t program_site() {
  Frames frames = {};
  _Unwind_Backtrace(visit, &frames);
  return frames.found;
}

}  // namespace resil::gpu_runtime

#pragma GCC visibility push(default)
extern "C" {

/// Called by the CUDA driver in cuInit. 1: fine. In a process that is not attached (a child of the job without MPI,
/// which has inherited the variable) nothing is done.
int InitializeInjection() {
  if (resil::gpu_runtime::running.load() && resil::gpu_runtime::settings.check && resil::gpu_runtime::settings.inject &&
      resil::runtime_attached())
    resil::gpu_runtime::subscribe_from_driver();
  return 1;
}

}  // extern "C"
#pragma GCC visibility pop
