// SPDX-License-Identifier: Apache-2.0
//
// Layout of rank-NNNNN.ring, the node-local segment of one rank: what every reader (the SIGHUP handler,
// a node's helper, scripts/resil after `kill -9`) sees. Fixed-size, little-endian, plain structs; no pointer
// is ever stored. A writer may die at any instruction, so a reader trusts no count it has not clamped.
//
// Version rule: adding a section or using a reserved field keeps `version`; moving or re-typing a field raises it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::ring {

constexpr uint64_t kMagic = 0x474e524c49534552;  // the bytes "RESILRNG"
constexpr uint32_t kVersion = 1;

/// What a rank is doing, as its own calls told us; stays at its last value after a kill.
enum class Phase : uint32_t { kStarting = 0, kRunning = 1, kFinalizing = 2, kFinished = 3, kAborted = 4, kStopped = 5 };

/// Where a section lies in the file. Offsets and sizes in bytes.
struct Section {
  char name[16];  ///< "lanes" (trace buffers), "comms", "requests", "modules", "names", "calls", or a module's own
  uint64_t offset;
  uint64_t bytes;
  uint32_t entry_bytes;  ///< size of one entry
  uint32_t entries;  ///< number of entries
};

/// First bytes of the file. 4,096 bytes reserved.
struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;  ///< offset of the first section
  uint64_t file_bytes;
  int32_t rank;  ///< rank in MPI_COMM_WORLD, or the launcher's rank for a sessions-only program; -1 unknown
  int32_t world_size;
  int32_t pid;
  int32_t world;  ///< 0 for the first world, N for a spawned one (directory world-N)
  char host[64];
  char job[64];  ///< the LAUNCH part of RESIL_DIR's default name
  char directory[1024];  ///< absolute RESIL_DIR of this rank; empty when there is none
  char executable[256];
  char mpi[128];  ///< first line of MPI_Get_library_version
  char resil_version[32];
  uint32_t phase;  ///< Phase
  uint32_t exit_status;  ///< with kStopped
  // Time: ticks of the CPU's counter, converted with two (ticks, CLOCK_REALTIME) pairs.
  uint64_t ticks_start;  ///< ticks at attachment
  uint64_t realtime_start_ns;
  uint64_t ticks_sync;  ///< a later pair; refreshed now and then, last at MPI_Finalize
  uint64_t realtime_sync_ns;
  double ticks_per_second;
  uint64_t untracked_requests;  ///< requests that did not fit into the request table
  uint64_t unrecorded_calls;  ///< calls of threads that found no trace buffer
  uint32_t dumps;  ///< state dumps written so far
  uint32_t section_count;
  uint32_t pid_start_lo;  ///< start time of the process in clock ticks after boot (field 22 of /proc/PID/stat),
  uint32_t pid_start_hi;  ///< so that a reused pid is not taken for this rank
  Section sections[16];
  uint64_t pid_namespace;  ///< inode of /proc/self/ns/pid: only there does `pid` mean this process
  uint64_t term_ticks;  ///< when somebody ended this process by a signal (SIGTERM); 0: nobody did
  int32_t term_pid;  ///< who
  uint32_t term_signal;
  char term_sender[16];  ///< name of that process, as in /proc/PID/comm
  uint64_t nonce;  ///< this rank's own random number, part of the live ring's name; 0: an older version's ring
  char launch[24];  ///< launch key, hexadecimal: equal on all ranks of a launch and on no others; see launch_agreed
  uint32_t launch_agreed;  ///< 0: `launch` is this rank's own nonce, the other ranks' are not known
  uint32_t held;  ///< 1: the process has the live file locked (flock) as long as it lives, seen from any pid namespace
  uint64_t view;  ///< of the file system (mount namespace and root): only there does `directory` mean that directory
  uint32_t fed;  ///< 1: MPI carries out none of this rank's calls (shim/call/fed_comms.h); nobody waits for it
};
static_assert(sizeof(Header) <= 4096);

enum class RecordState : uint8_t {
  kOpen = 0,  ///< the call has not returned
  kDone = 1,  ///< returned; `duration` may be 0: not measured (see Record::duration)
  kStep = 2,  ///< resil_step: `aux` = name index
  kNorm = 3,  ///< resil_norm: `aux` = bits of the double, `comm` = name index
  kChecksum = 4,  ///< resil_checksum: `aux` = value, `comm` = name index
  kCount = 5,  ///< resil_count: `aux` = value, `comm` = name index
};

/// Bits of Record::flags.
enum RecordFlag : uint8_t {
  kFailed = 1,  ///< the call returned other than MPI_SUCCESS
  kFolded = 2,  ///< a run of failing polls or of local queries from one call site, `repeat` of them
  kCallback = 4,  ///< called from a callback that MPI itself had called
  kUntimed = 8,  ///< `time` is an earlier call's: at most that long ago (tight loops of calls, local queries)
};

/// One call, or one run of identical polls. 64 bytes, one cache line, written by one thread only.
struct Record {
  uint64_t time;  ///< ticks on entry
  float duration;  ///< ticks inside the call; 0: not measured (1 in 8 of the calls that usually return at once is)
  uint16_t call;  ///< call id: index into section "calls"
  uint8_t state;  ///< RecordState; written last on entry (release) and first on exit
  uint8_t flags;  ///< RecordFlag
  uint32_t comm;  ///< index into section "comms"; 0: none
  int32_t peer;  ///< destination, source or root as communicator rank; kNoPeer, kAnySource, kProcNull
  int32_t tag;  ///< kNoTag, kAnyTag
  uint32_t repeat;  ///< calls this record stands for, at least 1
  uint64_t bytes;  ///< bytes named by the call (count * size); what arrived may be less
  uint64_t site;  ///< return address into the caller, see section "modules"
  uint64_t sequence;  ///< collectives: number of this collective on `comm`, from 1; else calls of this thread so far
  uint64_t aux;  ///< request key for starts, number of requests for completions, value for user records; blocking
                 ///< collectives: signature, see CollectiveHistory, 0 without hang detection
};
static_assert(sizeof(Record) == 64);

constexpr int32_t kNoPeer = -32768;
constexpr int32_t kAnySource = -1;
constexpr int32_t kProcNull = -2;
constexpr int32_t kRootSelf = -3;  ///< MPI_ROOT of an intercommunicator
constexpr int32_t kNoTag = -32768;
constexpr int32_t kAnyTag = -1;

enum class TraceState : uint32_t { kFree = 0, kLive = 1, kEnded = 2 };

struct CallCounter {
  uint64_t count;
  double ticks;  ///< measured ticks, unmeasured calls extrapolated from the measured ones of the same call site class
  uint64_t bytes;
};

/// Traffic with one world rank, as named by this rank's calls.
struct PeerCounter {
  int32_t rank;  ///< world rank; -1: free entry
  uint32_t reserved;
  uint64_t sent_messages, sent_bytes, received_messages, received_bytes;
};

constexpr uint32_t kMaxCalls = 704;  ///< capacity, at least the number of call ids
constexpr uint32_t kPeerEntries =
    128;  ///< per trace buffer; the last one collects all ranks that found no place (rank -2)
constexpr uint32_t kRecordsPerTrace = 2048;
constexpr uint32_t kRecordsOfFurther = 256;  ///< used of these by every thread but the first one

/// One thread that calls MPI. Section "trace buffers" is an array of these.
struct TraceBuffer {
  uint32_t state;  ///< TraceState
  int32_t tid;
  uint64_t head;  ///< records written since the trace buffer was first used; the newest is record_at(head - 1)
  uint64_t calls;  ///< MPI calls made by this trace buffer's threads; the step counter of programs that name no steps
  uint64_t current;  ///< head value + 1 of the outermost open record while inside MPI, 0 outside
  uint64_t step;  ///< resil_step's counter, 0 when the program names no steps
  uint32_t step_name;  ///< index into "names"
  uint32_t depth;  ///< nesting of application calls inside callbacks
  char name[16];  ///< thread name when it was first seen
  uint64_t last_place;  ///< of `records` that is used, a power of two less one; 0: all are
  uint64_t reserved[6];
  CallCounter counters[kMaxCalls];
  PeerCounter peers[kPeerEntries];
  alignas(64) Record records[kRecordsPerTrace];
};

/// How many records it holds at most; whatever stands in another process's, no more than there are.
inline uint64_t records_of(const TraceBuffer& trace) {
  const uint64_t last = __atomic_load_n(&trace.last_place, __ATOMIC_RELAXED);
  return (last != 0 ? last % kRecordsPerTrace : kRecordsPerTrace - 1) + 1;
}
/// Record number `number`, from 0, or the one that has taken its place.
inline const Record& record_at(const TraceBuffer& trace, uint64_t number) {
  return trace.records[number & (records_of(trace) - 1)];
}
inline Record& record_at(TraceBuffer& trace, uint64_t number) {
  return trace.records[number & (records_of(trace) - 1)];
}

/// Section "comms": one communicator. Entry 0 is unused; entries are reused after MPI_Comm_free.
struct Comm {
  uint64_t id;  ///< job-wide id; 0: free entry
  uint64_t collectives;  ///< collectives entered on it by this rank
  uint64_t handle;  ///< the MPI handle's bits
  int32_t size, rank;  ///< of the local group; rank of this process in it
  int32_t remote_size;  ///< -1 for an intracommunicator
  uint32_t flags;  ///< bit 0: id agreed by this side of the intercommunicator only; 1: made out of sight; 2: by accept
                   ///< and connect in one world. With any of them ranks may have the ids in another order
  uint16_t last_collective;  ///< call id
  uint16_t unnamed;  ///< 1: `name` says how it was made
  uint32_t generation;  ///< how often the entry has been used
  uint64_t ordered;  ///< operations started on it that all its ranks must start in the same order (hang detection)
  uint64_t was;  ///< id of the communicator that had this entry, and the name, when id is 0
  uint64_t site;  ///< of the call that made it; 0: not known
  char name[56];  ///< MPI_Comm_get_name or how it was made, e.g. "MPI_Comm_split of MPI_COMM_WORLD"
};
static_assert(sizeof(Comm) == 128);

enum class RequestKind : uint8_t {
  kNone = 0,
  kSend = 1,
  kReceive = 2,
  kCollective = 3,
  kRma = 4,
  kIo = 5,
  kCommunicator = 6,
  kGeneralized = 7
};
/// kPostedLater: `time` is that of an earlier call of a tight loop; posted at most that long ago.
enum RequestFlag : uint8_t { kPersistent = 1, kActive = 2, kPartitioned = 4, kPostedLater = 8 };

/// Section "requests": one request that is not complete, as far as its program has been told.
struct Request {
  uint64_t key;  ///< the MPI handle's bits; 0: free entry
  uint64_t time;  ///< ticks when posted (persistent: started)
  uint64_t site;
  uint64_t bytes;
  uint32_t serial;  ///< time of posting in units of 64 ticks (Arm: 20 to 40 ns), wraps
  uint32_t comm;
  int32_t peer, tag;
  uint16_t call;
  uint8_t kind;  ///< RequestKind
  uint8_t flags;  ///< RequestFlag
  uint32_t trace;  ///< of the posting thread
  uint64_t cleanup;  ///< the library's own; meaningless to readers
};
static_assert(sizeof(Request) == 64);

/// A request lies in one of the `kRequestReach` buckets of `kRequestBucket` entries from its home on, round the end.
constexpr uint32_t kRequestBucket = 8;
constexpr uint32_t kRequestReach = 4;
constexpr uint32_t request_home(uint64_t key, uint32_t bucket_count) {
  return static_cast<uint32_t>((key * 0x9e3779b97f4a7c15) >> 32) & (bucket_count - 1);
}

/// Section "modules": an object file with call sites in it, so that addresses can be symbolised later.
struct Module {
  uint64_t start, end;  ///< mapped range; 0: free entry
  uint64_t base;  ///< load bias: file address = address - base
  char path[232];
};
static_assert(sizeof(Module) == 256);

/// Section "calls": names of the call ids, so that a reader needs no table of its own. Entry i: id i.
struct CallName {
  char name[48];  ///< "MPI_Send"
};

/// Section "names": interned names of resil_step, resil_norm, … Entry 0 is "".
struct Name {
  char name[64];
};

}  // namespace resil::ring
