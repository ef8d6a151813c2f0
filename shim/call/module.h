// SPDX-License-Identifier: Apache-2.0
//
// The module registry. A module is a folder that defines one constant `Module` and names it in RESIL_MODULE; the
// linker collects the pointers, so that adding a module needs no edit in shim/ and runs no constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shim/call/fast_calls.h"
#include "shim/call/stages.h"
#include "shim/model/calls.h"
#include "shim/ring/ring_format.h"

namespace resil {

struct Event;
struct LocalData;
struct HostRangeCache;
struct SiteEntry;
struct Thread;
struct Slice;
struct ValueProblem;
class JsonWriter;
enum class LocalWay : uint8_t;
class SafeText;

/// How one configuration variable is parsed. Values are kept as text and as number in the table (config.h).
enum class ConfigType : uint8_t { kChoice, kChoices, kInteger, kReal, kText, kSignal, kSwitch };

/// One RESIL_ variable. All members are constants.
struct ConfigEntry {
  const char* name;  ///< with prefix: "RESIL_DIR"
  ConfigType type;
  const char* allowed;  ///< kChoice(s): "off|watch|…"; kInteger, kReal: "MIN..MAX"; else a phrase for messages
  const char* default_value;  ///< text as a user would write it
  const char* description;  ///< one sentence, for docs and messages
  /// Further test of a value that the user gave; false: `problem` (config_value.h) is filled. Looks at nothing else.
  bool (*check)(Slice text, ValueProblem* problem) = nullptr;
};

/// One module. Every hook may be null. Hooks are called on the application's thread unless they say otherwise.
struct Module {
  const char* name;  ///< "recorder"
  const char* description;  ///< one line
  Stage stage;  ///< when its hooks are called (stages.h)
  std::span<const ConfigEntry> config = {};

  /// After the configuration has been parsed, before anything else; returns whether the module takes part in this run.
  bool (*enabled)() = nullptr;
  /// Bytes wanted in the ring file, section name = module name; asked once, before the ring is made. `entry_bytes` out.
  size_t (*ring_bytes)(uint32_t* entry_bytes) = nullptr;
  /// On entry to MPI_Init (any route), before the real one. No MPI call is allowed. The ring exists.
  void (*before_init)() = nullptr;
  /// After the real MPI_Init returned and the tables exist, and after each MPI_Session_init; late initialisation calls
  /// both, one after the other.
  void (*after_init)() = nullptr;
  /// On entry to MPI_Finalize, MPI still usable (local calls only); then after it returned.
  void (*before_finalize)() = nullptr;
  void (*after_finalize)() = nullptr;
  /// The job is about to be ended, by MPI_Abort or (`by_library`) by the MPI library upon an error. Before on_abort.
  /// Peers may be dead or stopped: a second at most, no MPI. On the thread that is in the call.
  void (*before_abort)(int errorcode, bool by_library) = nullptr;
  /// On MPI_Abort, before the real one.
  void (*on_abort)(int errorcode) = nullptr;
  /// Lazy activation, for a module that needs a certain kind of buffer (one in a device's memory). Called with each
  /// buffer of a call until it returns true; from then on the module's hooks run. A range that need not be asked about
  /// again goes into `cache`.
  /// A dormant module costs a call with buffers four instructions, or four for each buffer where the cache holds a
  /// range only. At most one module is dormant; a second one takes part from the start.
  bool (*activate_on_buffer)(const void* buffer, HostRangeCache* cache) = nullptr;
  /// Around local calls that move data (local_data.h), made by the program. One module can have these two.
  LocalWay (*local_enter)(Thread&, LocalData&) = nullptr;
  int (*local_leave)(Thread&, LocalData&, int result, int64_t packed) = nullptr;
  /// A thread's first MPI call, and its end (thread-exit context: no MPI).
  void (*thread_start)(Thread&) = nullptr;
  void (*thread_end)(Thread&) = nullptr;
  /// Around every application call but local queries. No allocation, lock or system call.
  void (*enter)(Event&) = nullptr;
  void (*leave)(Event&) = nullptr;
  /// Whether the next call from there that is the same may go the fast path (fast_path.h), where no hook is called and
  /// all that this one's hooks would do is done by what it leaves in `site` and in the thread. After `enter`.
  bool (*fast)(Event&, SiteEntry& site) = nullptr;
  uint8_t fast_kinds = fast::kAllKinds;  ///< of calls that it is asked about (fast_calls.h); no for all others
  /// Which calls the three hooks below want to see; asked for every call when the hooks are built. Null: all.
  bool (*intercepts)(CallId) = nullptr;
  /// Between all `enter` hooks and the library: may change what the library is given (Event::given_...). For what must
  /// stay out of the other modules' sight: fault injection, staging.
  void (*before_call)(Event&) = nullptr;
  /// Executes the call instead of the library, with the given buffers. Returns true when `event.result` has been set.
  bool (*execute_instead)(Event&) = nullptr;
  /// It has something to do when the program looks at a request without completing it (MPI_Request_get_status): the
  /// calls that look at several then come to it one by one.
  bool asks_status = false;
  /// Right after the library returned, before request tables and `leave` hooks.
  void (*after_call)(Event&) = nullptr;
  /// It reads the statuses of completion calls though no request has a word of its own: the shim sees that there are
  /// some.
  bool reads_statuses = false;
  // The hooks below are for modules whose stage has a word beside each request (kStagesWithWord in stages.h), the
  // cookie: called for requests whose cookie is not 0.
  /// A persistent request with a cookie is about to be started; before the real call.
  void (*activating)(Event&, uint64_t* cookie) = nullptr;
  /// A persistent request with a cookie was started (MPI_Start, MPI_Startall, MPI_Pready...); after the real call.
  void (*activated)(Event&, uint64_t* cookie) = nullptr;
  /// A request with a cookie is complete, or freed, as the application is told by this call; before `leave`. `place`:
  /// which of the given statuses is its own. The cookie of a persistent request stays. In an order of
  /// its own (kCompleting): what has still to be put into the buffer is there when others look.
  void (*completed)(Event&, int64_t place, uint64_t* cookie, bool freed) = nullptr;
  /// For every wait of resil's own, whoever waits (shim/runtime/progress.h): once, when it turns out to be one, hands
  /// over what other ranks may be waiting for; then in its rounds makes progress with whatever else they may wait for
  /// here. On the application's thread, inside a call or in a drain.
  void (*hand_over)(Thread&) = nullptr;
  void (*progress)(Thread&) = nullptr;
  /// resil_drain(): verifies what has been received so far; returns what stayed unverified. On the application's
  /// thread, outside MPI.
  uint64_t (*drain)() = nullptr;
  /// The program named a norm, checksum or count of its own (resil.h): a norm's bits are the double's. Outside MPI.
  void (*logged)(Thread&, ring::RecordState what, const char* name, uint64_t value) = nullptr;
  /// MPI_Wtime or MPI_Wtick returned `value`; what is returned takes its place. Asked only when `times` says so.
  double (*time)(Thread&, CallId, double value) = nullptr;
  bool (*times)() = nullptr;
  /// Adds lines to a state dump, each with this prefix and a newline; nothing when there is nothing to say. In a signal
  /// handler, on any thread, at any time after before_init: no lock, no allocation, async-signal-safe functions only.
  void (*dump)(SafeText& text, const char* prefix) = nullptr;
  /// Adds members to the rank's report object.
  void (*report)(JsonWriter&) = nullptr;
};

/// A module's hooks for requests need a word of its stage.
constexpr bool module_is_sound(const Module& module) {
  const bool follows = module.activating != nullptr || module.activated != nullptr || module.completed != nullptr;
  return module.stage != Stage::kNone && (!follows || request_word(module.stage) < kRequestWords);
}

#define RESIL_MODULE(module)                       \
  static_assert(::resil::module_is_sound(module)); \
  [[gnu::section("resil_modules"), gnu::used]] const ::resil::Module* const resil_module_pointer_##module = &(module)

}  // namespace resil
