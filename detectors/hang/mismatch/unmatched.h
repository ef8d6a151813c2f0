// SPDX-License-Identifier: Apache-2.0
//
// Unmatched messages of a job that has come to its end: sent and never received. Counted when every rank has entered
// MPI_Finalize, since no count changes any more. A program may leave messages behind without harm: what is found is a
// note, suspected, and no reason for any action.
//
// An balance is linear: for each envelope what was sent minus what was received, so that nodes add up what they know in
// any order, and what cancels out leaves the answer. Helper thread only; no MPI; no system call but mmap, once.
#pragma once

#include <cstdint>

#include "detectors/hang/reader/snapshot.h"
#include "detectors/hang/verdict/verdict.h"

namespace resil::hang {

/// Messages of one sender, receiver, communicator and tag that nobody has received.
struct Unmatched {
  int32_t sender, receiver;  ///< world ranks
  int32_t tag;  ///< -1: tags are not told apart
  uint64_t count;
  uint64_t comm;  ///< id
  char communicator[88];  ///< its name, by whoever formats the verdict
};
constexpr uint32_t kMostUnmatched = 64;
struct UnmatchedList {
  bool judged;  ///< balances of all ranks have been compared
  uint64_t total;  ///< messages, also those that are not listed
  uint32_t listed;
  Unmatched entries[kMostUnmatched];
};

/// This node's part; bytes, 0: no room for anything. Every node must be in the merged answer exactly once.
uint32_t unmatched_collect(const Watched* watched, uint32_t count, void* room, uint32_t room_bytes);
/// Adds one answer to another. False: `from` is no answer.
bool unmatched_merge(void* into, uint32_t* bytes, uint32_t room, const void* from, uint32_t from_bytes);
/// True: `verdict` is filled, and `list` with the messages one by one. False: all were received, or not all ranks of
/// the job are in the answer.
bool unmatched_judge(const void* merged, uint32_t bytes, Verdict* verdict, UnmatchedList* list);
/// Messages that are sent as one basic type and received as another, all of their envelope, with no message missing.
/// True: `verdict` is filled.
bool message_types_judge(const void* merged, uint32_t bytes, Verdict* verdict);
/// Names of communicators that came with the balances: whoever has freed one may be the only one to know it. By
/// `index` from 0; false: no more.
bool unmatched_name(const void* merged, uint32_t bytes, uint32_t index, uint64_t* comm, char* text, uint32_t room);

}  // namespace resil::hang
