// SPDX-License-Identifier: Apache-2.0
//
// The ledger: what this rank announced (sent) to each other rank and what it expects (received) from it, compared.
// Records travel in batches on the private communicator (lazy) or one by one (strict); see docs/CHECKSUM.md.
//
// Context: the application's threads inside MPI wrappers. One short lock, taken only under MPI_THREAD_MULTIPLE, never
// held across an MPI call. No function here allocates in steady state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "checksum/ledger/record.h"

namespace resil {
struct Thread;
struct CommInfo;
}

namespace resil::ledger {

struct Peer;  ///< another rank of MPI_COMM_WORLD, or this one

/// Can records travel at all?
bool connected();
bool strict();  ///< RESIL_CHECKSUM=strict
bool full_blame();  ///< RESIL_BLAME=full
bool abort_wanted();  ///< RESIL_ON_MISMATCH=abort
bool concurrent();  ///< MPI_THREAD_MULTIPLE

/// Null: no such rank in this world, not connected, or no memory.
Peer* peer_of(int world_rank);
/// The partner behind a communicator rank (remote group of an intercommunicator); null and `why` when it cannot be
/// reached or the communicator's id is not agreed between its ranks.
Peer* peer_of(CommInfo& comm, int rank, Reason* why);
int world_rank_of(const Peer& peer);
const char* host_of(const Peer& peer);  ///< "" until it has said

/// "I sent this packet": appended to the stream to that rank. Returns its ordinal in the stream.
uint64_t announce(Thread& thread, Peer& to, const Record& record);
/// Did records to that rank find no memory since the last page went out? Maybe the last one announced.
bool records_dropped(const Peer& to);
/// "I received this packet", in the order of posting within its matching queue. `evidence`: 0, or what blame.h keeps of
/// it. Compared at once if the other side's record is there, else when it comes. Strict mode: see await().
void expect(Thread& thread, Peer& from, const Record& record, uint64_t evidence = 0);
/// Strict mode: waits until the records expected so far from that rank have been compared, at most
/// RESIL_DRAIN_SECONDS; what is left then is counted as deferred.
void await(Thread& thread, Peer& from);

/// Coverage. "checked": compared with what another rank (or this one) noted of the same data.
void count_checked(uint64_t messages, uint64_t bytes);
void count_uncovered(Reason reason, uint64_t messages, uint64_t bytes);
void count_mismatch();

/// Records of these spaces go to a handler instead of the matching queues (in the order of the stream, no lock held).
void handle_space(Space space, void (*handler)(Thread&, Peer& from, const Record&));
/// Differences found in the matching queues of a space go there instead of blame.h's cases. `sent` came from `peer`,
/// `received` is this rank's own.
void handle_mismatch(Space space, void (*handler)(Thread&, Peer& peer, const Record& sent, const Record& received));

/// Messages of other kinds on the private communicator: at most kMessageBytes of payload each, delivered to the
/// handler of that kind by progress() of the receiving rank, in order per sender. False: no room now, try later.
enum class Kind : uint8_t {
  kBatch = 1,
  kCredit,
  kDrain,
  kQuery,
  kAnswer,
  kRma,
  kRmaReply,
  kRmaBarrier,
  kCollective,
  kCollectiveReply,
  kBye,
  kLast
};
constexpr size_t kMessageBytes = 3840;
bool post(Thread& thread, Peer& to, Kind kind, const void* payload, size_t bytes);
void handle_kind(Kind kind, void (*handler)(Thread&, Peer& from, const void* payload, size_t bytes));

/// Takes what has arrived and flushes what is due. Any time inside a wrapper; cheap when there is nothing.
void progress(Thread& thread);
/// Takes records that have come through shared memory; `messages`: also one message. At the end of a call.
void take_come(Thread& thread, bool messages);
/// Sends every unsent record.
void flush(Thread& thread);
/// progress() until `done` or for `seconds`; yields the processor. True: done.
bool progress_until(Thread& thread, double seconds, bool (*done)(void*), void* argument);

/// Verifies what has been received so far: flush, ask those who owe records, wait. Returns what stayed unverified.
struct DrainResult {
  uint64_t unverified;  ///< packets received whose sender's record has not come
  uint32_t silent_count;  ///< ranks that owe records
  int32_t silent_ranks[8];  ///< the first of them
};
DrainResult drain(Thread& thread, double seconds, const char* where);

/// Packets whose record has not come yet, or whose case is open.
uint64_t unverified();

}  // namespace resil::ledger
