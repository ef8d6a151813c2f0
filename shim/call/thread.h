// SPDX-License-Identifier: Apache-2.0
//
// Per-thread state of the shim: nesting depth, the flight recorder's trace buffer, and small caches that make the usual
// lookup a compare. One is mapped for each thread on its first MPI call; nothing here is shared between threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/model/calls.h"
#include "shim/ring/ring_format.h"
#include "shim/ring/state_slots.h"

namespace resil {

struct CommInfo;
struct Event;
struct TypeMap;

enum class SiteClass : uint8_t { kUnknown, kApplication, kBinding, kInternal };

/// SiteEntry::id: no call's envelope is kept; and bits on top of a call's number: it may go the fast path; of calls
/// that send and receive: `seen` is what the last one received.
constexpr uint16_t kNoCall = 0x3fff, kSeen = 0x4000, kFast = 0x8000;
static_assert(kCallCount < kNoCall);

/// The receiving half of a call that sends and receives, from whatever call site.
struct alignas(64) ReceivingHalf {
  uint64_t comm_handle, type;
  int64_t count;
  int32_t peer, tag;
  uint32_t generation;
  int32_t world;  ///< the partner's rank
  ring::Envelope* envelope;
  uint64_t* traffic;  ///< messages and bytes received from the partner
  uint64_t bytes;
};
static_assert(sizeof(ReceivingHalf) == 64);

/// A call site, and the envelope of the last call from it: loops mostly repeat themselves, and then all that was
/// looked up still holds.
struct alignas(64) SiteEntry {
  uint64_t return_address;
  uint64_t comm_handle, type, site;
  int64_t count;  ///< or both_counts()
  CommInfo* comm;
  int32_t peer, tag;
  uint32_t generation;
  uint16_t id;  ///< the call whose envelope it is, with kFast, kSeen or without; kNoCall
  bool special;  ///< not simply the application: `kind` says what
  SiteClass kind;
  uint64_t shift;  ///< what is added to a return address (objects.h)
  uint64_t module_start;  ///< bindings: the program's object that called last
  uint64_t* traffic;  ///< messages and bytes of the partner
  // What modules have worked out for calls that go the fast path (fast_path.h): of messages, then of collectives.
  union {
    uint64_t op;
    uint64_t receive_type;  ///< of calls that have two (has_two_types)
  };
  union {
    ring::Envelope* envelope;
    uint64_t signature;  ///< of probes; a collective's is its record's `aux`
    uintptr_t check;  ///< of collectives: see fast::checked; 0: nobody looks at what they brought
  };
  union {
    ReceivingHalf* receiving;  ///< of calls that send and receive; it may be another one's by now
    uint64_t mixed;
  };
  int32_t world;  ///< the partner's rank, or the root's
  union {
    uint32_t seen;
    uint32_t basic_type;
  };
  uint32_t module_bytes;  ///< from module_start on; at most 4 GiB - 1
  uint32_t offset;  ///< bindings: bytes above the frame at which the caller's return address lies; kNoPlace;
                    ///< likewise of the library's own calls
  alignas(64) ring::Record record;  ///< what an equal call writes, but for its time and its number

  /// The entry that the fast path took after this one, in bytes from Thread::sites: in the record's room for a number.
  uint64_t& follower() { return record.sequence; }
};
static_assert(sizeof(SiteEntry) == 192);

inline bool has_two_types(const SiteEntry& site) {
  const unsigned id = site.id & kNoCall;
  return id < kCallCount && call_info(static_cast<CallId>(id)).has(kCallHasBlocks | kCallBothWays);
}

constexpr unsigned kSiteCache = 256, kFormerSites = 512, kReceivingHalves = 32, kCommCache = 8, kTypeCache = 64,
                   kMaxModules = 16;

/// Which call sites may remember a datatype: a bit for each eight of `sites`, then for each 16 of `former`, under two
/// numbers that follow from the handle: those that have both by accident are few.
struct TypeSites {
  static constexpr unsigned kBuckets = 32, kTogether = 8, kFormerTogether = 16, kOfSites = kSiteCache / kTogether;
  static_assert(kSiteCache % kTogether == 0 && kFormerSites % kFormerTogether == 0);
  static_assert(kOfSites + kFormerSites / kFormerTogether <= 64);
  uint64_t first[kBuckets], second[kBuckets];
  static uint64_t mixed(uint64_t type) { return type * 0x9e3779b97f4a7c15; }
  static unsigned first_of(uint64_t type) { return mixed(type) >> 59; }
  static unsigned second_of(uint64_t type) { return mixed(type) >> 54 & (kBuckets - 1); }
  /// `entry`: its place in `sites`; of those in `former` kSiteCache more.
  void add(uint64_t type, unsigned entry) {
    const unsigned group = entry < kSiteCache ? entry / kTogether : kOfSites + (entry - kSiteCache) / kFormerTogether;
    const uint64_t bit = uint64_t{1} << group;
    first[first_of(type)] |= bit;
    second[second_of(type)] |= bit;
  }
};

/// When the calls of one function are timed, in one thread (flight.h).
struct Timing {
  uint8_t until_timed;  ///< calls to go before the next timed one
  uint8_t watch;  ///< calls that are timed whatever they take
  uint16_t untimed;  ///< since the last timed one
  float mean;  ///< ticks, of the short ones
};

struct CommCacheEntry {
  uint64_t handle;
  CommInfo* info;
};

struct TypeCacheEntry {
  uint64_t handle;
  int64_t size;  ///< bytes of one element
  const TypeMap* map;  ///< of a module that flattens datatypes; null: not asked for yet
};

/// One message as the program gave it to the call.
struct GivenMessage {
  CommInfo* comm;
  const void* buffer;
  int64_t count;
  uint64_t type;
  int32_t peer, tag;  ///< `peer`: as Events have it
};

/// Of the former envelopes' places those that are used until they no longer suffice: pages that few need stay
/// untouched.
constexpr unsigned kFewFormer = 32;

/// Buffers that do not activate the dormant module (module.h), host memory that is: all of them while `*word == value`,
/// else those in [low, low + bytes).
struct HostRangeCache {
  static constexpr uint64_t kNever = 0;
  const uint64_t* word;
  uint64_t value;
  uintptr_t low, bytes;
  bool all() const { return __atomic_load_n(word, __ATOMIC_RELAXED) == value; }
};

struct Thread {
  uint32_t depth;  ///< 0 outside MPI; inside, calls from MPI's own text go straight through
  bool disabled;  ///< forked child, or after MPI_Finalize: nothing is looked at
  uint32_t comm_generation, type_generation;  ///< of the caches; compared with call_ and handle_generation
  HostRangeCache host_ranges;
  ring::Wait* wait;  ///< state slot of its open call; null: nobody wants to know (fast_path.h)
  uint32_t objects_unloaded;  ///< when `sites` was last emptied (objects.h)
  uint32_t last_entry;  ///< that the fast path took, in bytes from `sites`
  uint64_t outer_frame;  ///< frame of the innermost open call, to notice calls that were left by an exception
  ring::TraceBuffer* trace;  ///< where this thread writes; never null
  uint32_t trace_index;  ///< in the ring file; runtime.trace_count and above: a private trace buffer
  uint64_t last_time;  ///< ticks of the last clock read
  Timing* open_timing;  ///< of a call since then that may block and was not timed; null: none
  uint32_t unstamped;  ///< calls to go that take over that time
  uint64_t unattributed;  ///< ticks, see flight.h
  uint64_t freed_type;  ///< no call site of the only thread remembers it: its MPI_Type_free is under way; 0: none is
  uint64_t no_traffic[2];  ///< where calls without a partner count, instead of a test on the way
  CommCacheEntry comms[kCommCache];
  TypeCacheEntry types[kTypeCache];
  SiteEntry sites[kSiteCache];
  ReceivingHalf receiving[kReceivingHalves];
  uint32_t halves_moved;  ///< how often one of these has made place for another one
  TypeSites type_sites;
  Timing timing[kCallCount];
  struct {
    uintptr_t check;  ///< SiteEntry's
    const void *sent, *received;  ///< buffers, as the program gave them
  } checked;  ///< of the collective of the fast path that is open, where somebody looks at what it brought
  GivenMessage message, received;  ///< likewise of the message that is open, and of the one that it receives besides
  uint64_t announced;  ///< of that: a module's handle of what it has told of it early; 0: none
  void* module_data[kMaxModules];  ///< a module's own, by thread_slot()
  uint64_t
      started;  ///< word of the reduction that the open call has started, until it lies beside its request; 0: none
  char* scratch;  ///< handle copies of completing calls, a stack
  size_t scratch_bytes, scratch_top;
  uint32_t former_more;  ///< further bits of their number: 0 while kFewFormer are enough
  uint32_t former_moved;  ///< how often one has made place for another one
  uint32_t partners_moved;  ///< likewise, for the same but to or from another rank
  SiteEntry former[kFormerSites];  ///< envelopes before the last one: loops over partners, a binding that all call
};

static_assert(offsetof(Thread, former) + kFewFormer * sizeof(SiteEntry) <= 64 << 10);  // what a thread usually touches

/// How many have ever been made.
extern std::atomic<uint32_t> threads_made;
extern constinit thread_local Thread* current_thread __attribute__((tls_model("initial-exec")));

/// The calling thread's state, made if needed. Null when resil is not attached to this process. May map memory.
Thread* thread_register();

/// A place in Thread::module_data for the calling module; ask once, in before_init.
unsigned thread_slot();

/// Cuts the calling thread off for good (after MPI_Finalize, in a forked child).
void thread_disable();

/// `bytes` of scratch for the call with that frame, until the matching release; grows by mapping. What calls that were
/// left by an exception or longjmp did not release is taken back: their frames lie no higher. Null when memory is
/// refused.
void* scratch_acquire(Thread& thread, size_t bytes, uint64_t frame);
void scratch_release(Thread& thread, void* memory);

/// Trace buffers of all threads so far: those in the ring file, then private ones (more threads than trace buffers).
extern std::atomic<uint64_t> unattributed_ticks;  ///< of threads that have ended
constexpr uint32_t kMostTraces = 64;
uint32_t trace_total();  ///< at most so many
ring::TraceBuffer& trace_at(uint32_t index);

/// Classifies a return address and finds the application's call site (may call the dynamic loader; first time only).
SiteEntry& site_resolve(Thread& thread, uint64_t return_address, uint64_t frame);

inline unsigned site_place(uint64_t return_address) { return (return_address ^ (return_address >> 8)) % kSiteCache; }

/// Where the envelope of a call from `site` is kept once another one has followed from its return address: in one of
/// two places, by these bits.
inline uint64_t former_bits(uint64_t site, uint64_t comm, uint64_t type, int64_t count, int32_t peer) {
  const uint64_t mixed =
      site ^ comm * 3 ^ type * 5 ^ static_cast<uint64_t>(count) << 20 ^ static_cast<uint64_t>(peer) << 40;
  return mixed * 0x9e3779b97f4a7c15;
}
inline unsigned former_place(const Thread& thread, uint64_t bits) { return bits >> (59 - thread.former_more); }
inline unsigned former_other(unsigned place, uint64_t bits) { return place ^ (1 + (bits >> 32 & 15)); }
/// Once these do not suffice, and once those do not, for a loop over many ranks.
constexpr unsigned kFormerMore = 2, kFormerMost = 4;
static_assert(kFewFormer == 1 << (64 - 59) && kFormerSites == kFewFormer << kFormerMost && kFewFormer > 16);

inline SiteEntry& site_lookup(Thread& thread, uint64_t return_address, uint64_t frame) {
  SiteEntry& entry = thread.sites[site_place(return_address)];
  if (entry.return_address == return_address) [[likely]]
    return entry;
  return site_resolve(thread, return_address, frame);
}

/// Empties the thread's call sites: an object was unloaded since, and others may lie there now.
void sites_forget(Thread& thread);

constexpr uint32_t kNoPlace = ~0u;  ///< the caller's return address lies here now, there then

/// The program's call behind a call in a language binding, whatever object of the program's it is in and however many
/// bindings lie between. The binding's own return address if it cannot be found. May unwind the stack.
uint64_t site_beyond(SiteEntry& entry, uint64_t frame);

/// False: the code there is a language binding's, another tool's or the MPI library's. May ask the dynamic loader.
bool site_is_programs(uint64_t site);

/// The call site behind `entry`: the return address itself, or for a language binding its caller's.
inline uint64_t site_address(SiteEntry& entry, uint64_t frame) {
  if (entry.offset == 0) return entry.return_address + entry.shift;
  if (entry.offset == kNoPlace) return site_beyond(entry, frame);
  const uint64_t caller = *reinterpret_cast<const uint64_t*>(frame + entry.offset);
  return caller - entry.module_start < entry.module_bytes ? caller + entry.shift : site_beyond(entry, frame);
}

}  // namespace resil
