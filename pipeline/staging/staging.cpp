// SPDX-License-Identifier: Apache-2.0
//
// The module that takes device buffers through pinned host memory. See docs/STAGING.md.

#include "pipeline/staging/staging.h"

#include "pipeline/staging/aware.h"
#include "pipeline/staging/blocking.h"
#include "pipeline/staging/chunked_peer.h"
#include "pipeline/staging/message.h"
#include "pipeline/staging/operation.h"
#include "shim/base/clock.h"
#include "shim/base/safe_text.h"
#include "shim/call/dispatch.h"
#include "shim/call/module.h"
#include "shim/call/registry.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/model/describe.h"
#include "shim/model/event.h"
#include "shim/report/json.h"
#include "shim/ring/device_work.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/accelerators/runtimes.h"
#include "shim/runtime/block_pool.h"
#include "shim/runtime/staged.h"

namespace resil::staging {

constinit Mode mode = {Setting::kOff, false, 0};

namespace {

constexpr ConfigEntry kConfig[] = {
    {"RESIL_STAGE", ConfigType::kChoice, "auto|on|off", "auto",
     "whether data in device memory goes through pinned host memory instead of to the MPI library: `auto`, where the "
     "library does not say that it takes device buffers; `on`, always; `off`, never"},
    {"RESIL_STAGE_MEMORY", ConfigType::kInteger, "16..1048576", "2048",
     "most pinned host memory that a rank takes for device buffers, in MiB; it is taken as needed"},
    {"RESIL_STAGE_CHUNK", ConfigType::kInteger, "0..65536", "1024",
     "chunks into which a large message from a device is cut when it travels alone, in KiB, so that its copies and the "
     "wire overlap; 0: none is cut"},
    {"RESIL_STAGE_PEER", ConfigType::kInteger, "0..1048576", "256",
     "most device memory that a rank takes to get large messages of its node by copies from device to device, in MiB; "
     "at "
     "least one eighth of a device's memory is left free; 0: none"},
};

unsigned slot;

bool enabled() {
  mode.setting = config_has("RESIL_STAGE", "on")    ? Setting::kOn
                 : config_has("RESIL_STAGE", "off") ? Setting::kOff
                                                    : Setting::kAuto;
  chunked_peer_memory = static_cast<uint64_t>(config_integer("RESIL_STAGE_PEER")) << 20;
  chunk_bytes = static_cast<uint64_t>(config_integer("RESIL_STAGE_CHUNK")) << 10;
  mode.memory = static_cast<uint64_t>(config_integer("RESIL_STAGE_MEMORY")) << 20;
  return mode.setting != Setting::kOff;
}

/// The kernel begins the heap at most 32 MiB behind the program, and puts nothing between.
bool close_together() {
  const uintptr_t end = __atomic_load_n(&host_memory_detail::data.high, __ATOMIC_RELAXED);
  const uintptr_t start = __atomic_load_n(&host_memory_detail::heap.low, __ATOMIC_RELAXED);
  return end != 0 && start >= end && start - end <= uintptr_t{32} << 20;
}

/// Device buffers come with an accelerator runtime, which may be loaded between any two calls. While none is there, no
/// buffer is looked at.
bool activate_on_buffer(const void* buffer, HostRangeCache* cache) {
  if (!active()) {
    cache->value = *cache->word;
    cache->low = 0;
    cache->bytes = ~uintptr_t{0};
    return false;
  }
  if (const gpu::Absence absence = gpu::absence(); absence.word != nullptr && gpu::runtimes() == 0) {
    cache->word = absence.word;
    cache->value = gpu::absence().value;
    return false;
  }
  if (!host_memory(buffer, 1)) return true;
  using namespace host_memory_detail;
  const auto at = reinterpret_cast<uintptr_t>(buffer);
  Range range = {0, 0};
  if (stack.holds(at, 1)) range = stack;
  else if (data.holds(at, 1) || heap.holds(at, 1))
    range = close_together() ? Range{data.low, heap.high} : data.holds(at, 1) ? data : heap;
  if (range.high != 0) {
    cache->low = range.low;
    cache->bytes = range.high - range.low;
  }
  return false;
}

bool is_start(CallId id) { return class_of(id) == CallClass::kStart; }

bool intercepts(CallId id) {
  return p2p_handles(id) || completes(id) || collective_handles(id) || is_start(id) || chunked_sees(id);
}

void after_call(Event& e) {
  if (chunked_sees(e.id)) chunked_returned(e);
  else collective_after(e);
}

/// A call that is not carried out by way of host memory, with a buffer that may be on a device.
void count_passed(const Event& e) {
  const bool window = call_info(e.id).plain == CallId::kMPI_Win_create;  // with memory of the program
  if (!window && !(e.attributes & (kCallHasData | kCallPartitioned))) return;
  const void* buffer = window || (e.attributes & kCallReceives) ? e.receive.buffer : e.send.buffer;
  if (host_memory_known(buffer, 1)) return;
  if (!gpu::is_host(gpu::classify(buffer, 1).memory))
    count_uncovered(e.attributes & kCallRma ? Uncovered::kOneSided : Uncovered::kOther, e.bytes);
}

void make_progress(Event& e) {
  // Also what only may block: split collectives of files, one-sided operations. Persistent sends must not overtake.
  const bool returns = (e.attributes & (kCallStarts | kCallPoll)) != 0 && !(e.attributes & (kCallIo | kCallRma));
  if (!returns && !p2p_handles(e.id) && !completes(e.id)) begin_blocking(e);
  else progress(*e.thread, (e.attributes & (kCallStarts | kCallActivates)) != 0);
}

/// First of all modules, so that the others see the buffers that the library is given.
void enter(Event& e) {
  if (under_way() || several_threads()) make_progress(e);
  if (!active()) return;
  if (chunked_sees(e.id)) chunked_entered(e);
  const bool message = (e.attributes & kCallP2P) != 0;
  if (e.attributes & kCallCollective) {
    if (collective_handles(e.id)) collective_before(e);
  } else if (is_start(e.id)) {
    start_entered(*e.thread);
  } else if (class_of(e.id) == CallClass::kCompletion || class_of(e.id) == CallClass::kGetStatus) {
    if (__atomic_load_n(&persistent_receives, __ATOMIC_RELAXED) != 0) give_statuses(e);
  } else if (message && (e.attributes & kCallPersistent) && !(e.attributes & kCallPartitioned)) {
    persistent_before(e);
  } else if (e.attributes & (kCallRma | kCallIo | kCallPartitioned)) {
    count_passed(e);
  }
}

bool execute_instead(Event& e) {
  if (is_start(e.id) || collective_handles(e.id)) return refused(e);
  if (p2p_handles(e.id)) return p2p_replace(e);
  const CallClass of = class_of(e.id);
  if (of == CallClass::kRequestFree && persistent_freed(e)) return true;
  if (!completes(e.id)) return false;
  const bool decides = of != CallClass::kRequestFree && of != CallClass::kCancel;
  return (decides && staged_replay != nullptr && staged_replay->completion(e)) || wait_replace(e);
}

/// Last of all.
void leave(Event& e) {
  release_retired(*e.thread);
  end_blocking(e);
  auto* state = static_cast<ThreadState*>(e.thread->module_data[slot]);
  if (state == nullptr) return;
  operations_finished(e, *state);
  if (Operation* o = state->calls; o != nullptr && o->frame == e.frame) {
    state->calls = o->next;
    operation_end(e, o);
  }
  if (class_of(e.id) == CallClass::kGetStatus) look_at_status(e);
}

void before_init() {
  slot = thread_slot();
  connect_checks();
  gpu::runtimes();  // how many objects are loaded, before MPI loads more (loads.h)
}

void after_init() {
  ask_library();
  gpu::runtimes();
}

void thread_end(Thread& thread) {
  end_blocking_thread();
  memory::blocks.release(thread.module_data[slot]);
  thread.module_data[slot] = nullptr;
}

void before_finalize() {
  if (current_thread == nullptr) return;
  if (under_way()) flush(*current_thread);
  if (active()) chunked_end(*current_thread);
}

extern const Module kStaging;
void report(JsonWriter& json) {
  json.begin_object("staging");
  json.text("mode", mode.setting == Setting::kOn ? "on" : "auto");
  json.boolean("mpi_takes_device_buffers", mode.mpi_takes_device);
  json.boolean("active", active() && !is_dormant(kStaging));
  if (!is_dormant(kStaging)) report_counts(json);
  json.end_object();
}

/// Copies that are late, of this rank. Async-signal-safe.
void dump_late(SafeText& text, const char* prefix) {
  const uint64_t now = monotonic_ns();
  for (uint32_t i = kDeviceWaits; i < kDeviceWaits + kDeviceCopies; ++i) {
    DeviceWork work;
    if (!device_work_read(device_work[i], &work)) continue;
    const bool up = work.kind == DeviceWorkKind::kCopyUp;
    text.str(prefix)
        .str("staging: the copy ")
        .str(up ? "up" : "down")
        .str(" of a message of ")
        .u64(work.bytes)
        .str(" bytes");
    if (work.peer >= 0) put_peer(text.str(up ? " from " : " to "), work.peer);
    if (work.tag >= 0) put_tag(text, work.tag);
    text.str(" has been under way for ").seconds(static_cast<double>(now - work.since_ns) * 1e-9).chr('\n');
  }
}

constexpr Module kStaging = {
    .name = "staging",
    .description = "device buffers through pinned host memory",
    .stage = Stage::kStaging,
    .config = kConfig,
    .enabled = enabled,
    .before_init = before_init,
    .after_init = after_init,
    .before_finalize = before_finalize,
    .activate_on_buffer = activate_on_buffer,
    .local_enter = local_begin,
    .local_leave = local_end,
    .thread_end = thread_end,
    .enter = enter,
    .leave = leave,
    .intercepts = intercepts,
    .execute_instead = execute_instead,
    .asks_status = true,
    .after_call = after_call,
    .activating = collective_activating,
    .completed = collective_completed,
    .progress = progress_besides,
    .dump = dump_late,
    .report = report,
};
RESIL_MODULE(kStaging);

}  // namespace

ThreadState* thread_state(Thread& thread) {
  void*& place = thread.module_data[slot];
  if (place == nullptr && (place = memory::blocks.allocate(sizeof(ThreadState))) != nullptr)
    *static_cast<ThreadState*>(place) = {};
  return static_cast<ThreadState*>(place);
}

}  // namespace resil::staging
