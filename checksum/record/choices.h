// SPDX-License-Identifier: Apache-2.0
//
// What MPI chose in the leading part, on its way to this rank's partners in the others (docs/REPLICAS.md). The leader
// sends and waits for nobody but where a partner is far behind; a follower reads in the leader's order, and waits for
// what the leader has not come to. On the thread that is in a call; one at a time.
#pragma once

#include <cstdint>

#include "checksum/record/format.h"

namespace resil {
struct Thread;
}

namespace resil::record {

/// One call of the leader's in which MPI chose, or some polls in a row that found nothing.
struct Choice {
  uint64_t call;  ///< which call it was, the same in each part
  Outcome outcome;
  uint32_t polls;  ///< not 0: that many have found nothing
  uint32_t first, indices;  ///< of the list, if `listed`
  bool listed, failed;
};

/// After the parts are there. False: MPI would not, or no memory.
bool choices_begin();
/// This rank's part leads, as far as choices are concerned: what the one that led before has chosen has been taken, but
/// for what may be left in the queue.
bool choices_are_own();
/// A follower: another part has come to lead, which this rank has not noticed.
bool choices_lead_changed();

// The leader's.
void choices_send(Thread& thread, uint64_t call, const Outcome& outcome, bool failed, const int32_t* list,
                  int64_t count);  ///< count -1: the call has no list
void choices_send_poll(Thread& thread, uint64_t call);
void choices_send_match(Thread& thread, uint64_t ordinal, const Match& match);
/// Sends what there is, unless that was done just now. `in_poll`: in a call that may be repeated at once.
void choices_flush(bool in_poll);

// A follower's. Both wait for the leader, RESIL_REPLICAS_SECONDS at most.
/// The leader's next choice, until choices_taken(). Null: there is none, or it has not come.
const Choice* choices_next(Thread& thread);
const int32_t* choices_indices(const Choice& choice);
void choices_taken();
/// What the receive of that number has got. False: likewise.
bool choices_match(Thread& thread, uint64_t ordinal, Match* match);
/// choices_are_own(), and the receive of that number was not complete in the part that led before: it is not known what
/// that part did from here on, and the rest of what it has said is void. `polls`: failing polls of the current choice
/// that this rank has not made. Others are told.
void choices_cut(Thread& thread, uint64_t ordinal, uint32_t polls);
/// Failing polls of the current choice that are void since then.
uint32_t choices_void_polls();

/// Takes back what was sent, takes what has come.
void choices_progress();
/// In MPI_Finalize.
void choices_end(Thread& thread);

}  // namespace resil::record
