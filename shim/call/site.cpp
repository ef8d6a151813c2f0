// SPDX-License-Identifier: Apache-2.0
//
// Whose call is it? Finds the program's call behind a language binding. First call from an address, or by a new way;
// may unwind the stack and ask the dynamic loader.

#include <unwind.h>

#include <atomic>

#include "shim/call/objects.h"
#include "shim/call/thread.h"

namespace resil {

namespace {

SiteClass class_of(uint64_t address) {
  const SiteClass kind = object_at(address).kind;
  return kind != SiteClass::kUnknown ? kind : SiteClass::kApplication;  // generated code: nobody's library
}

// The way from a call inside a binding to the program's own call. A binding may be called by any object, and by another
// binding (Open MPI: mpi_f08's functions call mpif.h's), so each step is known by itself: from a return address inside
// a binding to the place on the stack where that function's own return address lies. Learnt by an unwind, for all
// threads; followed in each call.
constexpr unsigned kSteps = 4096, kPairs = 8192, kLongestWay = 16;
struct Step {
  std::atomic<uint64_t> key;  ///< return address inside the binding
  std::atomic<uint64_t> how;  ///< 0: not known yet; else kReady, kMayVary or kVaries, and the two distances
};
constinit Step steps[kSteps];
// Both in bytes above the canonical frame address of the function that was called.
constexpr uint64_t place_of(uint64_t how) { return how >> 8 & 0xfffffff; }  ///< where the return address lies
constexpr uint64_t size_of(uint64_t how) { return how >> 36; }  ///< where this function's canonical frame address is
constexpr uint64_t kReady = 1;
constexpr uint64_t kMayVary = 2;  ///< found by a frame pointer, as frames of variable size are: see `pairs`
constexpr uint64_t kVaries = 4;  ///< seen elsewhere: unwind each time
// Steps of kMayVary that an unwind has confirmed: return address inside the binding and its caller's, as one number.
std::atomic<uint64_t> pairs[kPairs];

constexpr uint64_t spread(uint64_t x) { return x * 0x9e3779b97f4a7c15; }

Step* step_of(uint64_t return_address, bool add) {
  for (unsigned probe = 0; probe < 16; ++probe) {
    Step& step = steps[((spread(return_address) >> 40) + probe) % kSteps];
    uint64_t key = step.key.load(std::memory_order_acquire);
    if (key == return_address) return &step;
    if (key == 0 && (!add || step.key.compare_exchange_strong(key, return_address))) return add ? &step : nullptr;
    if (key == return_address) return &step;
  }
  return nullptr;
}

uint64_t pair_of(uint64_t return_address, uint64_t caller) { return spread(spread(return_address) ^ caller) | 1; }

bool confirmed(uint64_t return_address, uint64_t caller) {
  const uint64_t pair = pair_of(return_address, caller);
  for (unsigned probe = 0; probe < 4; ++probe)
    if (pairs[((pair >> 40) + probe) % kPairs].load(std::memory_order_relaxed) == pair) return true;
  return false;
}

void confirm(uint64_t return_address, uint64_t caller) {
  const uint64_t pair = pair_of(return_address, caller);
  for (unsigned probe = 0; probe < 4; ++probe) {
    std::atomic<uint64_t>& place = pairs[((pair >> 40) + probe) % kPairs];
    uint64_t there = 0;
    if (place.compare_exchange_strong(there, pair) || there == pair) return;
  }
}

struct Walk {
  uint64_t wanted;  ///< return address in the binding
  struct Frame {
    uint64_t pc, below;  ///< `below`: canonical frame address of what it has called
    bool frame_pointer;  ///< filled with the frame above
    uint64_t record;  ///< aarch64: x29, where the caller's x29 and the return address lie
  } frames[kLongestWay];
  unsigned count;
  int visited;
  uint64_t frame_pointer_below;  ///< in the last frame
  bool complete;  ///< the last frame is the program's
};

_Unwind_Reason_Code visit_frame(_Unwind_Context* context, void* data) {
  auto* walk = static_cast<Walk*>(data);
  const uint64_t pc = _Unwind_GetIP(context);
  if (++walk->visited > 64 || walk->count == kLongestWay) return _URC_END_OF_STACK;
  if (walk->count == 0 && pc != walk->wanted) return _URC_NO_REASON;
  Walk::Frame& frame = walk->frames[walk->count++];
  frame = {pc, _Unwind_GetCFA(context), true, 0};
#if defined(__x86_64__)
  // A canonical frame address 16 above rbp: found by the frame pointer. With any other distance it is rsp's, and
  // constant.
  static constexpr int kRbp = 6;
  if (walk->count > 1) {
    Walk::Frame& called = walk->frames[walk->count - 2];
    called.frame_pointer = frame.below == walk->frame_pointer_below + 16;
  }
  walk->frame_pointer_below = _Unwind_GetGR(context, kRbp);
#elif defined(__aarch64__)
  static constexpr int kX29 = 29;
  frame.record = _Unwind_GetGR(context, kX29);
#endif
  walk->complete = walk->count > 1 && class_of(pc) == SiteClass::kApplication;
  return walk->complete ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/// Notes the step from frame `i` of a way to the next one.
void learn(const Walk& walk, unsigned i) {
  const uint64_t below = walk.frames[i].below, top = walk.frames[i + 1].below, caller = walk.frames[i + 1].pc;
  Step* step = step_of(walk.frames[i].pc, true);
  if (step == nullptr || top <= below || top - below >= 1 << 20) return;
  const uint64_t known = step->how.load(std::memory_order_acquire);
  auto holds = [&](uint64_t place) { return *reinterpret_cast<const uint64_t*>(below + place) == caller; };
  if (known != 0) {
    if ((known & kVaries) == 0 && (size_of(known) != top - below || !holds(place_of(known))))
      step->how.store(kVaries, std::memory_order_release);
    else if (known & kMayVary) confirm(walk.frames[i].pc, caller);
    return;
  }
#if defined(__aarch64__)
  // Nowhere else: the loader's resolver, of a first call, leaves a copy that stands there still in later calls from
  // elsewhere.
  const bool at_top = false;
  const uint64_t record = walk.frames[i].record;
  const bool found = record >= below && record + 2 * sizeof(void*) <= top;
  const uint64_t place = found ? record + sizeof(void*) - below : 0;
#else
  // Just below the canonical frame address on x86-64; elsewhere in the frame on other machines.
  uint64_t place = top - below - sizeof(void*);
  const bool at_top = holds(place), found = true;
  while (place >= sizeof(void*) && !holds(place)) place -= sizeof(void*);
#endif
  if (!found || !holds(place)) {
    step->how.store(kVaries, std::memory_order_release);
    return;
  }
  const bool may_vary = walk.frames[i].frame_pointer || !at_top;
  if (may_vary) confirm(walk.frames[i].pc, caller);
  step->how.store((top - below) << 36 | place << 8 | kReady | (may_vary ? kMayVary : 0), std::memory_order_release);
}

/// The program's call by an unwind; 0: it does not get there. What it sees on the way is learnt.
uint64_t caller_by_unwind(uint64_t return_address) {
  Walk walk = {};
  walk.wanted = return_address;
  _Unwind_Backtrace(visit_frame, &walk);
  if (!walk.complete) return 0;
  for (unsigned i = 0; i + 1 < walk.count; ++i) learn(walk, i);
  return walk.frames[walk.count - 1].pc;
}

/// By what is known of the steps; 0: a step is not known, or may be another one this time.
uint64_t caller_by_steps(uint64_t return_address, uint64_t frame) {
  for (unsigned i = 0; i < kLongestWay; ++i) {
    const Step* step = step_of(return_address, false);
    const uint64_t how = step != nullptr ? step->how.load(std::memory_order_acquire) : 0;
    if ((how & kReady) == 0)
      return i != 0 && object_at(return_address).kind == SiteClass::kApplication ? return_address : 0;
    const uint64_t caller = *reinterpret_cast<const uint64_t*>(frame + place_of(how));
    if ((how & kMayVary) && !confirmed(return_address, caller)) return 0;
    frame += size_of(how);
    return_address = caller;
  }
  return 0;
}

/// Of objects that are there no more: what lies in their place now has other frames.
void forget_steps() {
  static std::atomic<uint32_t> seen;
  const uint32_t unloaded = objects_unloaded.load(std::memory_order_acquire);
  if (seen.exchange(unloaded) == unloaded) return;
  for (Step& step : steps) step.how.store(0, std::memory_order_relaxed);
  for (std::atomic<uint64_t>& pair : pairs) pair.store(0, std::memory_order_relaxed);
}

}  // namespace

uint64_t site_beyond(SiteEntry& entry, uint64_t frame) {
  uint64_t caller = caller_by_steps(entry.return_address, frame);
  if (caller == 0) caller = caller_by_unwind(entry.return_address);
  if (caller == 0) return entry.return_address;
  if (caller - entry.module_start >= entry.module_bytes) {
    const CodeObject object = object_at(caller);
    entry.module_start = object.start;
    entry.module_bytes = static_cast<uint32_t>(object.end - object.start < ~0u ? object.end - object.start : ~0u);
    entry.shift = object.shift;
  }
  return caller + entry.shift;
}

void sites_forget(Thread& thread) {
  thread.objects_unloaded = objects_unloaded.load(std::memory_order_acquire);
  for (SiteEntry& entry : thread.sites) entry.return_address = 0;
  for (unsigned i = 0; i < kFewFormer << thread.former_more; ++i) thread.former[i].return_address = 0;
  forget_steps();
}

bool site_is_programs(uint64_t site) { return class_of(site) == SiteClass::kApplication; }

SiteEntry& site_resolve(Thread& thread, uint64_t return_address, uint64_t frame) {
  SiteEntry& entry = thread.sites[site_place(return_address)];
  SiteEntry fresh = {};
  fresh.id = kNoCall;
  fresh.return_address = return_address;
  const CodeObject object = object_at(return_address);
  fresh.kind = object.kind != SiteClass::kUnknown ? object.kind : SiteClass::kApplication;
  fresh.special = fresh.kind != SiteClass::kApplication || object.shift != 0;
  if (fresh.kind == SiteClass::kApplication) fresh.shift = object.shift;
  if (fresh.kind == SiteClass::kInternal) fresh.offset = kNoPlace;
  if (fresh.kind == SiteClass::kBinding) {
    auto known = [&] {
      const Step* step = step_of(return_address, false);
      return step != nullptr ? step->how.load(std::memory_order_acquire) : 0;
    };
    // Where the program's call cannot be found no later call looks for it.
    if (known() != 0 || caller_by_unwind(return_address) != 0) {
      fresh.offset = (known() & (kReady | kMayVary)) == kReady ? place_of(known()) : kNoPlace;
      site_beyond(fresh, frame);
    }
  }
  entry = fresh;
  return entry;
}

}  // namespace resil
