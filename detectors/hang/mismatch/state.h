// SPDX-License-Identifier: Apache-2.0
//
// What one process keeps between rounds. Shared by the parts of this folder only.
#pragma once

#include "detectors/hang/mismatch/frame.h"
#include "detectors/hang/mismatch/mismatch.h"

namespace resil::hang {

constexpr uint32_t kRootClaims = 256;  ///< of one communicator in the history
constexpr uint32_t kRefreshRounds = 8;  ///< an unchanged communicator is told again: an answer may have been lost
constexpr uint32_t kForgetRounds = 64;  ///< without news: the communicator is gone
constexpr uint32_t kWaitRounds = 3;  ///< for ranks that have not shown their side, when most have
constexpr uint32_t kLongWaitRounds = 16;  ///< when most have not
constexpr uint32_t kQueue = 16;  ///< findings of one round
constexpr uint32_t kHistoryBytes = 64u << 20;  ///< address space; used as needed

/// One history of one rank of this node, as last told.
struct Told {
  uint64_t comm;
  uint64_t state;  ///< 2 * sequence + whether the rank has come to its end
};

/// One history of this round.
struct Entry {
  uint64_t comm;
  uint32_t watched;
  uint16_t history;
  bool over;  ///< the rank has come to its end
  bool changed;
  uint64_t state;  ///< as read, see Told; 0: not read
};

struct Mismatch {
  uint32_t world;
  uint64_t bytes;  ///< of this mapping
  // The node's.
  uint32_t round;
  uint64_t cursor;  ///< communicator to begin with: what found no room last time
  Told* told;  ///< [watched][history]
  Entry* entries;
  MismatchCoverage coverage;  ///< of the round that is under way
  MismatchCoverage published;  ///< of the last whole one, for other threads: see publish_coverage
  uint64_t* hashes;  ///< ring::kRecordsPerTrace, see first_difference
  // Merging.
  char* scratch;  ///< kHistoryBytes
  // The root's.
  uint32_t judged;  ///< rounds
  bool closing;  ///< see mismatch_close
  char* history[2];  ///< the frame in use and the next one
  uint32_t history_bytes;
  uint32_t in_use;
  Tree* tree;
  uint32_t queued, next;  ///< verdicts of this round that have not been fetched yet
  Verdict* verdicts;
};

/// Makes `coverage` what mismatch_coverage() tells from now on. The writing thread only.
void publish_coverage(Mismatch& mismatch);

/// Judges one communicator's tree; appends verdicts to the queue. `block`: its memory between rounds.
void judge_tree(Mismatch& mismatch, Tree& tree, Block& memory);
/// The same of the basic types of their data: among the calls that the ranks still know one by one.
void judge_types(Mismatch& mismatch, const Tree& tree, Block& memory);

}  // namespace resil::hang
