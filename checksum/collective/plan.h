// SPDX-License-Identifier: Apache-2.0
//
// One collective as this rank takes part in it: what it gives, what it gets, and with whom that is compared. Made from
// the arguments that the standard calls significant on this rank (MPI 4.0, chapters 6 and 8), on the stack for blocking
// calls, in memory.h's blocks for what outlives its call. Nothing in it points to an argument array of the program.
#pragma once

#include <cstdint>

#include "checksum/collective/agreement.h"
#include "checksum/collective/findings.h"
#include "checksum/collective/reduction.h"
#include "checksum/collective/tree.h"
#include "shim/model/calls.h"
#include "shim/model/view.h"

namespace resil {
struct Event;
}

namespace resil::collective {

/// Data that goes to or comes from one rank, or one part of a result.
struct Block {
  ledger::Peer* peer;  ///< null: this rank's own block, which was compared
  View view;
  uint64_t digest;  ///< of what is given or has come, once read
  bool repeated;  ///< see Edge
  uint64_t posted;  ///< full blame, what is received: evidence of the buffer before the call; 0: none
  uint64_t evidence;  ///< the same once it has come
  uint64_t handle;  ///< full blame, what is given: blame's of the packet, until the call is complete; 0: none
};

struct Blocks {
  Block* items;  ///< `room` when there is one only
  uint32_t count, capacity;
  size_t memory;  ///< bytes from memory.h, 0: none
  Block room;
};

struct Plan {
  Name name;
  Collective form;
  bool persistent, blocking;
  bool active;  ///< persistent: started and not complete
  bool moves;  ///< what plan_make() returned
  uint64_t life;  ///< nonblocking, persistent: its number in ledger/lives.h since it was started; 0: none
  bool inputs_read;  ///< sends, own part and contribution have been read
  bool in_place;
  bool intercomm;
  ledger::Reason reason;  ///< kNone; else everything is announced and expected as unchecked
  ledger::Reason outcome;  ///< for the report: first reason met by any part
  uint32_t unreachable;  ///< partners that notes cannot be exchanged with
  ledger::Reason unreachable_why;
  uint64_t unreachable_bytes;

  Blocks sends, receives;

  // A result that is equal everywhere.
  bool agrees;
  bool result_parts;  ///< `parts` instead of `result`: parts that lie apart
  View result;
  Blocks parts;
  const Tree* tree;  ///< null: a group of one

  // The own part of an allgathered result.
  bool own;
  bool own_compared;  ///< and right
  View own_given, own_got;
  uint64_t own_digest;

  // Reductions.
  bool reduces;
  Reduction reduction;
  bool sums;  ///< takes part in a sum up the tree
  bool gets_result;
  uint64_t result_posted;  ///< full blame: evidence of the result's buffer before the call; 0: none
  Outcome how;  ///< full blame, once it is complete
  ledger::Peer *chain_next, *chain_before;  ///< prefix reductions: ranks after and before

  Tree tree_room;
};

/// False: moves nothing between ranks that resil could see (a group of one without data for itself, no data).
/// `plan` is filled in either case as far as plan_free() needs.
bool plan_make(Plan& plan, Event& event);
/// The tree no longer lies in the cache: for plans that are looked at after other collectives may have been made.
void plan_keep_tree(Plan& plan);
/// Keeps types and tree for what goes on after the call.
void plan_hold(Plan& plan);
void plan_release(Plan& plan);  ///< undoes plan_hold
void plan_free(Plan& plan);  ///< gives the blocks back

}  // namespace resil::collective
