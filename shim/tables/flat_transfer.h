// SPDX-License-Identifier: Apache-2.0
//
// The transfers of an event (transfers.h) with their datatypes flattened, block by block as memory that can be read and
// written, and kept for what goes on after the call. May ask MPI for datatypes and topologies (local calls).
#pragma once

#include "shim/model/transfers.h"
#include "shim/model/view.h"

namespace resil {

struct FlatTransfer : Transfer {
  const TypeMap* map;  ///< of `type`; null: no elements, or a type for each block
  CommInfo* comm;  ///< null: one-sided, files, MPI_Mrecv
  char* copies;  ///< of the arrays: flat_keep
};

/// sent() and received() of the event with their datatypes, by what is known of its communicator: nothing of a
/// collective on one that is not known. False: nothing moves, or the datatype cannot be flattened (`any()` tells).
bool flat_sent(Event& event, FlatTransfer* flat);
bool flat_received(Event& event, FlatTransfer* flat);
/// A transfer of nothing.
FlatTransfer flat_nothing();

/// For what goes on after the call (nonblocking, persistent): holds the datatype and copies the arrays of counts and
/// displacements, which programs free as soon as the call has returned, as the libraries let them. Not for a transfer
/// with `types`. False: no memory, nothing is kept. Any thread.
bool flat_keep(FlatTransfer* flat);
void flat_drop(FlatTransfer* flat);  ///< undoes flat_keep

/// One block, whatever memory it is in; MPI_IN_PLACE makes no difference. Reason kDatatype: it has elements of a type
/// that cannot be flattened.
View block_of(Thread& thread, const FlatTransfer& flat, int64_t index);
/// The same as the host may read it: also reason kDeviceBuffer.
View block_view(Thread& thread, const FlatTransfer& flat, int64_t index);

/// World rank at the other end of a block; -1: not one, or not known.
int32_t block_partner(const FlatTransfer& flat, int64_t index);

}  // namespace resil
