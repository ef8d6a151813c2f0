// SPDX-License-Identifier: Apache-2.0
//
// Who did it: the history of what this rank announced, what is kept of sends and receives as evidence, the questions
// that a mismatch asks of the sender, and the verdict (design: Blame). Six verdicts:
//   send buffer modified while pending | completed before the data landed | packet of another slot |
//   nothing delivered | transit or staging | undetermined
#pragma once

#include <cstddef>
#include <cstdint>

#include "checksum/ledger/record.h"
#include "shim/model/view.h"

namespace resil {
struct Event;
struct Thread;
class JsonWriter;
}

namespace resil::ledger {
struct Peer;
}

namespace resil::blame {

/// Makes the rings. Once, in before_init; maps memory (full: also the copies). False: no memory.
bool prepare();
/// Registers the handlers of kQuery and kAnswer; after the private communicator exists.
void connect();

// --- Sending side ------------------------------------------------------------------------------------------------

/// After ledger::announce: remembers the record under (peer, ordinal); with `full` keeps a copy of up to 4 KiB of the
/// packet. Returns a handle for sent_complete(), 0 when there is nothing to follow.
uint64_t sent(int world_rank, uint64_t ordinal, const ledger::Record& record, const View& view);
/// The send is complete: `view` still names its buffer. With `full` the digest is taken again and compared.
void sent_complete(uint64_t handle, const View& view);
/// The same, with the digest that the buffer has now: one buffer for many partners.
void sent_complete(uint64_t handle, const View& view, uint64_t digest);
/// MPI_Cancel was called for the send: until it is known how it ended, nobody is told that the packet was wrong. False:
/// the packet is not known any more, or there are too many.
bool cancel_begin(uint64_t handle);
enum class CancelEnd : uint8_t { kSent, kWithdrawn, kUnknown };  ///< kUnknown: its request was freed
/// If it never happened: the world rank that it was announced to, and what was announced; else -1.
int32_t cancel_end(uint64_t handle, CancelEnd end, ledger::Record* record);

// --- Receiving side, RESIL_BLAME=full ----------------------------------------------------------------------------

/// Before a receive can begin to land: digest of the bytes that it may overwrite. 0: not kept (cheap, no memory).
uint64_t receive_posted(const View& view);
/// The same of a receive that outlives its call: its buffer is watched for stores of the program, too (touch.h).
uint64_t receive_pending(const View& view, const Event& event);
/// When the buffer is read again, for data that lands late: by looks_finish(), if the sender's record has not come by
/// then; or at once, because its memory may hold something else before the call returns, or no record comes for it:
/// then until `right`, asked again and again, says that the data is.
enum class LookWhen : uint8_t { kAtReturn, kNow };
struct Right {
  bool (*holds)(void* of);
  void* of;
};
/// It is complete with `bytes` and digest `digest`: the buffer is digested again, and a copy kept. Returns the evidence
/// handle for ledger::expect. 0: none.
uint64_t receive_complete(uint64_t posted, const View& view, uint64_t bytes, uint64_t digest,
                          LookWhen when = LookWhen::kAtReturn, const Right* right = nullptr);
/// The call is about to return, and the buffers that it has filled become the program's: takes records, until those of
/// them have come, or the buffers have been looked at for long enough.
void looks_finish(Thread& thread);
/// A block of a collective has come, right or wrong: where exchanged blocks are looked for.
void block_received(ledger::Peer& from, const ledger::Record& record);
/// The packet was right: as drop(), and tells it if the program wrote into the buffer meanwhile. Under locks, too.
void right(uint64_t evidence);
/// It is not known, or the receive never happened: gives the evidence back.
void drop(uint64_t evidence);
/// The same for a receive that never completes (cancelled, freed).
void drop_posted(uint64_t posted);

// --- Cases -------------------------------------------------------------------------------------------------------

/// The sender announced `sent` (stream ordinal `ordinal`), this rank received `received`, and they differ. Opens a
/// case: asks the sender, and closes it with a finding when the answer is there or RESIL_DRAIN_SECONDS are over. The
/// sender may answer that the packet was withdrawn: then `received` is put back at the head of its matching queue
/// (peer.h).
void open_case(Thread& thread, ledger::Peer& from, const ledger::Record& sent, uint64_t ordinal,
               const ledger::Record& received, uint64_t evidence);
/// Closes what is overdue; from progress(). Under RESIL_ON_MISMATCH=abort a closed case stops the job with 90.
void progress(Thread& thread);
/// Strict mode, drains: closes all open cases, waiting for answers until `deadline_seconds`.
void settle(Thread& thread, double deadline_seconds);
unsigned open_cases();

/// Members of the report's `checksum` object: mismatches, mismatch_rate, verdicts by name, systemic.
void report(JsonWriter& json);

}  // namespace resil::blame
