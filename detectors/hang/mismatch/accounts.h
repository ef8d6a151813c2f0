// SPDX-License-Identifier: Apache-2.0
//
// The accounts of a job that has come to its end: messages sent and never received, and communicators whose ranks made
// unequal numbers of collective calls. Taken when every rank has entered MPI_Finalize, since no count changes any more.
// A program may leave messages behind without harm: what is found is a note, suspected, and no reason for any action.
//
// An account is linear: for each envelope what was sent minus what was received, so that nodes add up what they know in
// any order, and what cancels out leaves the answer. Helper thread only; no MPI; no system call but mmap, once.
#pragma once

#include <cstdint>

#include "detectors/hang/reader/snapshot.h"
#include "detectors/hang/verdict/verdict.h"

namespace resil::hang {

/// Messages of one sender, receiver, communicator and tag that nobody has received.
struct Unreceived {
  int32_t sender, receiver;  ///< world ranks
  int32_t tag;  ///< -1: tags are not told apart
  uint64_t count;
  uint64_t comm;  ///< id
  char communicator[88];  ///< its name, by whoever formats the verdict
};
constexpr uint32_t kMostUnreceived = 64;
struct UnreceivedList {
  bool judged;  ///< accounts of all ranks have been compared
  uint64_t total;  ///< messages, also those that are not listed
  uint32_t listed;
  Unreceived entries[kMostUnreceived];
};

/// This node's part; bytes, 0: no room for anything. Every node must be in the merged answer exactly once.
uint32_t accounts_collect(const Watched* watched, uint32_t count, void* room, uint32_t room_bytes);
/// Adds one answer to another. False: `from` is no answer.
bool accounts_merge(void* into, uint32_t* bytes, uint32_t room, const void* from, uint32_t from_bytes);
/// True: `verdict` is filled: kUnreceived, and `list` with the messages one by one; without a list
/// kUnequalCollectives. False: these accounts agree, or not all ranks of the job are in them.
bool accounts_judge(const void* merged, uint32_t bytes, Verdict* verdict, UnreceivedList* list);
/// Names of communicators that came with the accounts: whoever has freed one may be the only one to know it. By
/// `index` from 0; false: no more.
bool accounts_name(const void* merged, uint32_t bytes, uint32_t index, uint64_t* comm, char* text, uint32_t room);

/// What the accounts of a merged answer do not cover.
struct AccountsCoverage {
  bool complete;  ///< all ranks of the job are in, each once
  uint32_t left_out;  ///< ranks whose counts are bounds only (IrregularFlag)
  uint64_t folded;  ///< envelopes for which there was no room: only their sum is known
};
AccountsCoverage accounts_coverage(const void* merged, uint32_t bytes);

}  // namespace resil::hang
