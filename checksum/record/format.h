// SPDX-License-Identifier: Apache-2.0
//
// What a recording holds, for its writer, its reader and those who use them. docs/RECORD.md, "Format", describes the
// bytes; scripts/resil_tool/recording.py reads them too.
//
// A recording is a directory: recording.json says that record made it and for which launch, rank-NNNNN.rec is one
// rank's. Each thread of the rank has a stream of items: a call, then what belongs to it (its outcome, the requests
// that it completed). Values here are this process's: call ids and call sites are translated on the way in and out,
// because ids change between versions of resil and addresses from run to run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/model/value_type.h"

namespace resil::record {

using resil::ValueType;

/// What is written. 1, which is read as well, has no kTime items.
constexpr uint32_t kFormatVersion = 2, kOldestFormat = 1;

/// Bits of CallRecord::flags.
enum CallFlag : uint16_t {
  kCallFailed = 1,  ///< returned other than MPI_SUCCESS
  kCallNested = 2,  ///< made from a callback inside another call
  kCallStarted = 4,  ///< started `count` requests; their ordinals are the stream's next ones
  kCallPolls = 8,  ///< a run of `count` polls in a row that found nothing. Made by poll(), not by call()
  kCallUnread = 16,  ///< it has data that was not read: device memory, or data of a kind that is not looked at
  kCallUnforced = 32,  ///< its outcome depends on what is not recorded (order between threads, another process, time)
  kCallFirstModuleFlag = 256,  ///< this bit and those above are the module's own
};

/// One call, or one run of failing polls. 64 bytes.
struct CallRecord {
  uint64_t comm;  ///< job-wide id of the communicator; 0: none
  uint64_t in;  ///< what the call took: send buffer or contribution
  uint64_t out;  ///< what came out of it, when known as the call ends
  uint64_t bytes;  ///< named by the call
  uint64_t site;  ///< call site, an address in this process; read back: 0 when its object file is not loaded
  int32_t peer, tag;  ///< as the call names them, kAnySource and so on of shim/ring/ring_format.h
  uint32_t step;  ///< resil_step's counter; 0: the program names no steps. Below 2^32
  uint32_t count;  ///< with kCallStarted and kCallPolls; else ignored, and 1 when read back
  uint16_t call;  ///< CallId; read back: kUnknownCall when this version does not know the name
  uint16_t flags;  ///< CallFlag
  ValueType in_type, out_type;
  uint8_t reserved[2];
};
static_assert(sizeof(CallRecord) == 64);
constexpr uint16_t kUnknownCall = 0xffff;

/// Bits of Completion::flags.
enum CompletionFlag : uint8_t {
  kCompletionMatch = 1,  ///< source and tag are set: it was posted with a wildcard. Also goes to the matches
  kCompletionBytes = 2,  ///< bytes are set: fewer came than were posted
  kCompletionCancelled = 4,
  kCompletionFailed = 8,  ///< its status has an error
  kCompletionFreed = 16,  ///< MPI_Request_free: nothing is known of what came
  kCompletionUnread = 32,  ///< it has data that was not read
};

/// A request is complete, as the application was told by the call before. Written as at most 16 bytes unless another
/// stream started it, or the flags ask for more; 10 usually.
struct Completion {
  uint64_t ordinal;  ///< of the request in the stream that started it, from 1
  uint64_t digest;  ///< of what came, or a value
  uint64_t bytes;
  uint32_t stream;  ///< that started it; 0: the same as this
  int32_t source, tag;
  ValueType type;
  uint8_t flags;  ///< CompletionFlag
};

/// Bits of Outcome::what: which members are set.
enum OutcomePart : uint8_t {
  kOutcomeFlag = 1,  ///< flag: MPI_Test, Iprobe, Test_cancelled, Request_get_status, ...
  kOutcomeIndex = 2,  ///< index: Waitany, Testany; -1 for MPI_UNDEFINED
  kOutcomeMatch = 4,  ///< source and tag: Probe, Iprobe, a blocking receive with wildcards
  kOutcomeBytes = 8,  ///< bytes: what came or was probed
};

/// What the MPI decided in the call before, where it had a choice.
struct Outcome {
  uint64_t bytes;
  int32_t index, source, tag;
  bool flag;
  uint8_t what;  ///< OutcomePart
};

enum class ItemKind : uint8_t {
  kCall = 1,
  kCompletion = 2,
  kOutcome = 3,
  kIndices =
      4,  ///< of Waitsome, Testsome: a list in pieces of kMaxIndices; a list is at its end when a piece is shorter
  kLogged = 5,  ///< a named value: norm, checksum, count, MPI_Wtime. Stands between calls
  kText = 6,  ///< a remark for people, which readers skip
  kTime = 7,  ///< what a clock said; stands between calls
};

enum class LoggedKind : uint8_t {
  kNorm = 1,
  kChecksum = 2,
  kCount = 3,
  kTime = 4,
  kStep = 5,
  kFingerprint = 6,
  kOther = 7
};

constexpr uint32_t kMaxIndices = 256;
constexpr uint32_t kMaxName = 64;  ///< bytes of a name with its zero; longer ones are cut

/// Which clock a kTime item is of.
enum ClockId : uint8_t {
  kClockWtime = 0,  ///< MPI_Wtime, MPI_Wtick: bits of a double
  kClockWtick = 1,
  kClockCpu = 2,  ///< clock(): its value
  kClockSeconds = 3,  ///< time()
  kClockOfDay = 4,  ///< gettimeofday(): nanoseconds
  kClockGettime = 5,  ///< + clockid_t: clock_gettime(), nanoseconds
};
constexpr unsigned kClocks = 32;

/// One item as it is read. Pointers hold until the stream's next one.
struct Item {
  ItemKind kind;
  LoggedKind logged;  ///< with kLogged
  ValueType type;  ///< with kLogged
  uint32_t indices;  ///< with kIndices: how many
  uint64_t number;  ///< of the call (in this stream, from 1) that it is or belongs to; kLogged: calls before it
  uint64_t ordinal;  ///< with kCall and kCallStarted: of the first request that it started
  uint64_t bits;  ///< with kLogged, kTime: the value
  uint8_t clock;  ///< with kTime: ClockId
  const char* text;  ///< with kLogged: its name; with kText
  const int32_t* index_list;
  CallRecord call;
  Completion completion;
  Outcome outcome;
};

/// Which source and tag a receive with wildcards got, or which of them was cancelled.
struct Match {
  int32_t source, tag;
  uint8_t flags;  ///< CompletionFlag
};

/// A call site that holds from run to run.
struct SiteName {
  const char* object;  ///< path of the object file; "": no object file (generated code, whose sites all look alike)
  uint64_t offset;  ///< return address in it, as addr2line takes it
};

/// How a writer and a reader get at this process's tables. No allocation; any thread.
struct Names {
  /// Call site of an address; false: in no known object file. First call from a site in each segment only.
  bool (*site)(uint64_t address, SiteName* name);
  /// The reverse; 0: the object file is not loaded.
  uint64_t (*address)(const SiteName& name);
  const char* (*call_name)(uint16_t call);
  uint16_t (*call_id)(const char* name);  ///< kUnknownCall: there is none
};
/// Of the running library (identity.cpp).
extern const Names kLibraryNames;

/// Whose recording it is. Written as it stands at the head of every file; text ends with a zero, longer text is cut.
struct Identity {
  int32_t rank, world_size, world;
  int32_t thread_level;  ///< 3: MPI_THREAD_MULTIPLE; -1: less
  uint64_t created;  ///< seconds since 1970
  char launch[96];  ///< differs from launch to launch; equal on all ranks
  char host[64];
  char program[1024];  ///< path of the executable
  char build[64];  ///< its build id in hexadecimal, else "size-SIZE-mtime-NANOSECONDS"
  char mpi[128];  ///< first line of MPI_Get_library_version
  char abi[16];  ///< "openmpi", "mpich", "standard"
  char resil_version[32];
  char reduce[16];  ///< RESIL_REDUCE
};

/// Fills in everything but `reduce` from the running library. Before MPI_Init has returned, rank and size are the
/// launcher's and thread_level means nothing.
void identity_of_this_rank(Identity* identity);

enum class ProblemKind : uint8_t {
  kNone,
  kMissing,  ///< no such directory or file
  kPermission,
  kNotRecording,
  kVersion,  ///< written in another format
  kOtherProgram,
  kOtherSize,
  kOtherRank,
  kOtherReduce,
  kDamaged,  ///< a checksum does not match
  kSystem,  ///< any other error of the system
  kNotEmpty,  ///< writer: the directory holds what record did not make
};

/// What is wrong, for people: one line without a newline that names the file.
struct Problem {
  ProblemKind kind;
  char text[1400];
};

}  // namespace resil::record
