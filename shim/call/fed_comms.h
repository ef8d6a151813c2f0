// SPDX-License-Identifier: Apache-2.0
//
// Communicators of a copy that is fed by its leader (docs/REPLICAS.md, "Replicas of some ranks only"). To MPI each has
// this process alone; what the program, and resil itself, is told of its members is what the leader's has. Ranks are
// those of the program, which are also the leading part's world ranks. One thread at a time.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"

namespace resil {

struct FedComm {
  uint64_t handle;  ///< 0: a free place
  int32_t size, rank, remote_size;  ///< remote_size -1: an intracommunicator
  int32_t degree_in, degree_out;  ///< -1: no topology
  int32_t* members;  ///< of the local group, then of the remote one
};

/// The part's communicator, in MPI_Init. False: no memory.
bool fed_begin(uint64_t world);
/// A new one; `comm.members` is copied. Takes the place of an earlier one with that handle. False: no memory.
bool fed_add(const FedComm& comm);
void fed_remove(uint64_t handle);
/// Null: not one of them.
const FedComm* fed_find(uint64_t handle);
/// Is the new communicator a duplicate, with the old one's attributes?
bool comm_is_duplicated(CallId by);
/// In a process that is fed: whether there are any.
extern bool fed_any;
inline const FedComm* fed_comm(uint64_t handle) { return fed_any ? fed_find(handle) : nullptr; }

}  // namespace resil
