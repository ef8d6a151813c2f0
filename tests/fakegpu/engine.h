// SPDX-License-Identifier: Apache-2.0
//
// The engine under both drivers of the stand-in: memory, contexts, streams of operations with due times, events,
// faults. See fakegpu.h for what it promises. It knows neither CUDA nor HIP: cuda*.cpp and hip*.cpp translate.
//
// One lock (`Locked`) over everything. Nothing here is ever destroyed at exit: threads may still be inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "tests/fakegpu/fakegpu.h"

namespace fakegpu {

using Time = uint64_t;  ///< nanoseconds of CLOCK_MONOTONIC
Time now();

// --- settings.cpp: FAKEGPU ---

struct Settings {
  unsigned devices;
  size_t memory, pinned;  ///< bytes
  double down, up, peer, digest;  ///< bytes per nanosecond
  Time latency, overdue;
  unsigned first, ipc;
  bool code, text;  ///< kernels are taken as code for the device, as text
};
const Settings& settings();

enum class Fault : uint8_t {
  kEarlyStream,
  kEarlyDevice,
  kEarlyEvent,
  kLostStream,
  kLostDevice,
  kLostEvent,
  kCorruptDown,
  kCorruptUp,
  kAliasDown,
  kAliasUp,
  kGone,
  kPoison,
  kCount
};
/// Counts one operation of the kind: is it one of those that go wrong?
bool due_fault(Fault kind, size_t bytes = SIZE_MAX);
bool has_fault(Fault kind);
/// One fault has been made.
void made_fault(Fault kind, size_t bytes);
/// May completions that were lost come true?
bool released();

enum class Count : uint8_t {
  kDown,
  kUp,
  kPeer,
  kInside,
  kPageable,
  kLaunch,
  kAlloc,
  kPinned,
  kRegistered,
  kEvent,
  kQuery,
  kSync,
  kCount
};
void count(Count what);

// --- engine.cpp: contexts, streams, events ---

struct Engine {
  Time free_at;
};

struct Context;

struct Device {
  int ordinal;
  int file;  ///< its memory
  uintptr_t low;  ///< the same, as programs see it
  size_t used;
  Engine down, up, peer, kernel;
  Context* primary;
  unsigned primary_users;
};
Device* device(int ordinal);  ///< null: none

/// The completion of a point in a stream; shared by the event and by those who wait for it.
struct Record {
  bool done, early, lost;
  Time time;
};

struct Event {
  Context* context;
  bool timing, interprocess;
  std::shared_ptr<Record> record;  ///< null: never recorded, and so complete
};

struct Operation {
  uint64_t sequence;
  Time enqueued, duration, due;  ///< due 0: not begun
  Engine* engine;  ///< null: none needed
  std::shared_ptr<Record> after;  ///< begins when this is done; null: nothing
  std::function<bool()> ready;  ///< begins when this says so; empty: nothing to ask
  std::function<void(Time)> perform;
};

/// What was decided about the completion of work, once for each amount of work.
struct Decision {
  uint64_t sequence;
  bool early, lost;
};

struct Stream {
  Context* context;
  bool blocking;  ///< waits for the context's default stream, and it for this one
  int priority;
  unsigned flags;
  bool capturing;  ///< what is enqueued goes to a graph
  std::deque<Operation> operations;
  Time free_at;
  uint64_t last;  ///< sequence of the last operation
  Decision decision;
};

struct Context {
  Device* device;
  bool primary, destroyed, poisoned;
  unsigned flags;
  uint64_t id, last;
  uint64_t last_plain;  ///< sequence of the last operation that the program's call did not give a stream for
  Stream legacy;  ///< the default stream
  Decision decision;
};

/// Holds the lock; does what is due. The lock may be held more than once by a thread (kernels).
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
};
bool inside_callback();  ///< is this thread in a function that the driver calls back?

/// Starts the engine; false: there is no device.
bool start();
bool started();

Context* context_create(Device& device, bool primary, unsigned flags);
/// Ends its work, frees its memory. The object stays, as others may still name it.
void context_destroy(Context& context);
bool is_context(const Context* context);

Stream* stream_create(Context& context, bool blocking, unsigned flags, int priority);
void stream_destroy(Stream* stream);
bool is_stream(const Stream* stream);
Event* event_create(Context& context, bool timing);
void event_destroy(Event* event);
bool is_event(const Event* event);

/// Puts an operation at the end of the stream. It takes the latency, and `bytes` at `speed` of the engine.
void enqueue(Stream& stream, Engine* engine, size_t bytes, double speed, std::function<void(Time)> perform);
void enqueue_wait(Stream& stream, std::function<bool()> ready);
void enqueue_now(Stream& stream, std::function<void(Time)> perform);  ///< in order, takes no time
void record(Event& event, Stream& stream);
void wait_event(Stream& stream, const Event& event);
/// Milliseconds between two events that were recorded and are done.
float elapsed(const Event& from, const Event& to);

/// Captures, by modes as both drivers number them: 0 global, 1 of the thread, 2 relaxed.
int& capture_mode();  ///< of this thread
bool capture_begin(Stream& stream, int mode);
bool capture_end(Stream& stream);  ///< false: it has been broken
/// A call that captures do not allow while they last: true, and they are broken, if there is one that this thread's
/// mode does not let it disregard.
bool capture_forbids();
bool capturing_in(const Context& context);  ///< is a blocking stream of the context capturing?
bool captured_in(const Context& context);  ///< the same, and the capture is broken by this

bool idle(const Stream& stream);
bool idle(const Context& context);
/// Answers to queries: faults included.
bool done(Stream& stream);
bool done(Context& context);
bool done(const Event& event);
/// Until `finished` says so, which is asked with the lock held; the lock must not be held by this thread. False: the
/// context went away meanwhile.
bool wait(const Context& context, const std::function<bool()>& finished);
template <class Object>
bool synchronize(const Context& context, Object& object) {
  return wait(context, [&object] { return done(object); });
}

// --- memory.cpp ---

enum class Kind : uint8_t { kHost, kDevice, kManaged, kPinned, kRegistered };

struct Physical;
struct Opened;

struct Allocation {
  uintptr_t base;
  size_t bytes;
  Kind kind;
  bool pool;  ///< from a pool: belongs to no context
  unsigned flags;
  Device* device;
  Context* context;  ///< null: none
  uint64_t id;  ///< never the same twice
  Physical* mapped;  ///< a piece of a reserved range; null: no such thing
  Opened* opened;  ///< memory of another process; null: no such thing
  bool synchronous;  ///< calls without a stream return only when they are done with it
};

bool memory_start();
/// Null: out of memory.
void* allocate(Context& context, Kind kind, size_t bytes, bool pool = false, unsigned flags = 0);
/// Host memory becomes page-locked; 0 done, 1 already registered or the driver's own, 2 out of memory.
int register_host(Context& context, void* address, size_t bytes, unsigned flags);
/// Takes the memory away at once; work with it must be complete. False: not the beginning of such an allocation.
bool release(uintptr_t base, Kind kind, bool alone = true);
void release_all(const Context& context);
/// The live allocation that holds the address; null: ordinary host memory, or freed.
const Allocation* find(uintptr_t address);
/// Is it in memory of a device, live or not?
bool device_range(uintptr_t address);
/// As the driver sees it.
char* view(uintptr_t address);
size_t device_memory_free(const Device& device);

// Virtual memory: ranges of addresses in which memory is mapped in pieces, side by side if the program likes.
constexpr size_t kGranularity = 65536;  ///< of sizes and addresses
uintptr_t reserve(size_t bytes);  ///< 0: there is no room
bool unreserve(uintptr_t at, size_t bytes);
/// The reserved range that holds the address. False: none.
bool reserved_range(uintptr_t address, uintptr_t* low, size_t* bytes);
Physical* physical_create(Device& device, size_t bytes);
bool physical_release(Physical* memory);  ///< gone when nothing is mapped to it any more
bool map_physical(uintptr_t at, size_t bytes, Physical* memory);
bool unmap_physical(uintptr_t at, size_t bytes);

/// Of a device's file: its memory, and behind it the table of what is exported.
constexpr size_t kExportTable = 65536;
size_t file_bytes();
/// Makes a range of a device's file known, from the page of `offset` on. 0: refused.
uintptr_t map_foreign(Context& context, int file, size_t offset, size_t bytes, Opened* opened);
void unmap_foreign(const Allocation& allocation);

// --- ipc.cpp: memory of other processes ---

/// What a handle has in it.
struct Ticket {
  char magic[8];
  int pid, file;  ///< whose; the device's memory there
  unsigned device, slot;  ///< device's number on the node; place in the table of what is exported
  uint64_t id, offset, bytes;
};
static_assert(sizeof(Ticket) <= 64);

enum class Ipc : uint8_t { kDone, kBadAddress, kRefused, kOwn, kGone, kNoPeer };
Ipc ipc_export(uintptr_t base, Ticket& ticket);
/// `counted`: opened once more, it is at the same address.
Ipc ipc_open(Context& context, const Ticket& ticket, bool counted, uintptr_t& base);
Ipc ipc_close(uintptr_t base);
/// The allocation is being freed: dies if another process has it open, unless its whole context goes (`alone` false).
void ipc_freed(const Allocation& allocation, bool alone);
/// Memory of another process is no longer mapped.
void ipc_unmapped(Opened* opened);
/// Of the device where the memory lies, on the node.
unsigned number_on_node(const Allocation& allocation);

// --- copy.cpp ---

struct Copy {
  uintptr_t to, from;
  size_t to_pitch, from_pitch, width, rows;
  /// From pageable memory to a device: over when the data has been taken, not when it has arrived (CUDA).
  bool ends_early = false;
};
enum class Copied : uint8_t { kDone, kBadAddress, kGone };
/// Enqueues; waits for its end if told to, or if pageable memory takes part. The lock must not be held.
Copied copy(Stream& stream, const Copy& what, bool wait_for_end);
Copied fill(Stream& stream, uintptr_t to, size_t pitch, size_t width, size_t rows, unsigned value, unsigned value_bytes,
            bool wait_for_end);

/// Is this memory's, or its context's, promise that calls without a stream are over when they return?
bool synchronous(const Context& context, uintptr_t address);
/// Waits for all that such calls have begun in the context. The lock must not be held.
bool wait_plain(const Context& context);

// --- launch.cpp ---

/// A kernel of a module: any image is taken, kernels are found by name. Null: no such kernel.
struct Function;
Function* function_of(const char* name);
/// Enqueues it. The arguments are copied: from `arguments`, or from a buffer in which they lie at their natural
/// alignment, as the drivers' `extra` says. The lock must be held.
void launch(Stream& stream, const Function& function, unsigned blocks, unsigned threads, void** arguments,
            void** extra);
/// Words in memory, in order with the stream; sizes 4 and 8. False: no such memory. The lock must not be held.
bool write_word(Stream& stream, uintptr_t to, uint64_t value, size_t bytes);
/// `compare` as the drivers' flags: 0 >= (by signed difference), 1 ==, 2 and, 3 nor.
bool wait_word(Stream& stream, uintptr_t from, uint64_t value, uint64_t mask, unsigned compare, size_t bytes);

// --- touch.cpp ---

/// Says so when the host touches device memory.
void watch_touches();

}  // namespace fakegpu
