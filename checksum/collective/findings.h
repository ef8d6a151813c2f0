// SPDX-License-Identifier: Apache-2.0
//
// What collectives that went wrong are said to be: findings of kind "collective_mismatch".
#pragma once

#include <cstdint>

#include "checksum/ledger/ledger.h"
#include "shim/model/calls.h"

namespace resil {
struct CommInfo;
struct Thread;
}

namespace resil::collective {

/// Names one collective: equal on all ranks that take part.
struct Name {
  uint64_t comm;  ///< id of records: the communicator's, or mixed with the request for persistent ones
  uint64_t base;  ///< id of the communicator
  CommInfo* info;  ///< good while info->ring->id is `base`
  uint32_t tag;  ///< low half of the collective's number on the communicator; persistent: number of the start
  uint32_t init;  ///< persistent: low half of the number of the MPI_..._init; else 0
  CallId id;
  int32_t root;  ///< of a broadcast or MPI_Reduce, rank in the local group; else 0
  uint64_t site, bytes;
  uint16_t calls;  ///< Record::upper
  uint16_t type;  ///< of the result or contribution that all ranks have alike: Record::lower
};

/// The communicator behind it, null when it has been freed since.
CommInfo* still_there(const Name& name);
/// "MPI_Bcast number 17 on MPI_COMM_WORLD"; `bytes` of room, 160 are enough.
void describe(const Name& name, char* text, size_t bytes);

enum class Verdict : uint8_t { kUndetermined, kThis, kThat, kBoth };

/// Two ranks whose notes of the same collective differ. `why`: what the verdict rests on. Counts and publishes; what
/// RESIL_ON_MISMATCH=abort asks for is done by stop_if_wanted().
struct Disagreement {
  Name name;
  ledger::Peer* that;
  uint64_t this_digest, that_digest, this_bytes, that_bytes;
  uint64_t that_site;  ///< in the other rank's process
  const char* that_text;  ///< its call site in words, "" unknown
  Verdict verdict;
  bool proved;  ///< by the root's own data, not by a majority
  bool chain;  ///< prefix sums: `that` is the rank before
  uint32_t asked, agree_this, agree_that;  ///< votes, the two themselves included
  bool singled_out;  ///< by the way in which one of the two results came
  bool summed;  ///< proved by the sum of all contributions
  const char *cause, *how;  ///< full blame: one of blame's verdicts for the ranks that are wrong; else null
};
void publish(const Disagreement& disagreement);

/// The sums of all contributions and of the result differ.
struct WrongSum {
  Name name;
  uint64_t words[2];  ///< by how much, in linear digests
  int32_t wrong, changed;  ///< world rank whose result is wrong, and that changed its contribution; -1: not known
  uint32_t asked, agree;  ///< ranks with a result, and with the one that is wrong
  const char *cause, *how;  ///< full blame: one of blame's verdicts, and what it rests on; else null
};
void publish_sum(const WrongSum& sum);
/// What this rank contributed is not in its result. `element`: first wrong one, -1: not known. `cause`, `how`: as
/// above.
void publish_local(const Name& name, const char* what, int64_t element, const char* cause, const char* how);

/// Under RESIL_ON_MISMATCH=abort, once something has been published: ends the job with 90. Not in handlers.
void stop_if_wanted();

}  // namespace resil::collective
