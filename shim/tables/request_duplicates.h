// SPDX-License-Identifier: Apache-2.0
//
// MPI_Comm_idup: what the end of its request needs, since the communicator exists only then. For the request table.
#pragma once

#include <cstdint>

namespace resil {

struct Event;
struct Thread;

/// A number for ring::Request::cleanup, from 1; 0 when there is no room.
uint64_t keep_duplicate(const Event& e);

/// `lost`: freed, or failed, and then nobody knows what the handle is; the communicator is seen once it is used.
void finish_duplicate(Thread& thread, uint64_t number, bool lost);

}  // namespace resil
