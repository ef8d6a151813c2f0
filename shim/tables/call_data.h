// SPDX-License-Identifier: Apache-2.0
//
// What a call gives and takes, as values: a digest, or the number itself where it is only one. For whoever compares
// what a program gives to MPI with what it gave elsewhere: recordings, replicas. Buffers are read through
// shim/model/datatype and shim/base/digest; device memory never. Reads the program's arguments, changes nothing; the
// first call with a datatype or topology may ask MPI.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"
#include "shim/model/value_type.h"
#include "shim/tables/flat_transfer.h"
#include "shim/tables/tally.h"

namespace resil {

struct Event;

/// What a call does with data.
enum DataFlow : uint16_t {
  kGives = 1,  ///< e.send holds what this rank gives
  kTakes = 2,  ///< e.receive is filled, when the call or its request is complete
  kSwaps = 4,  ///< e.send is filled too: MPI_Sendrecv_replace
  kCollects = 8,  ///< a collective with data
  kMatches = 16,  ///< names a source and a tag, which may be wildcards
  kProbes = 32,
  kMessage = 64,  ///< MPI_Mrecv, MPI_Imrecv
  kWindow = 128,  ///< its data is there at the end of the epoch: MPI_Get and the like
  kSync = 256,  ///< ends an epoch, or completes operations
  kUnforced = 512,  ///< its outcome depends on other processes in a way that is not recorded
  kFile = 1024,
  kBlind = 2048,  ///< moves data that is not read
};
uint16_t data_flow_of(CallId id);  ///< a table
/// Finds out which data are addresses in memory (MPI_AINT): they differ from run to run. In the first call.
void prepare_addresses(Thread& thread);
extern Tally data_bytes_read;  ///< by read_view() and read_blocks() so far
extern Tally address_values;  ///< met so far, and not read; for the report

struct Value {
  uint64_t bits;
  ValueType type;  ///< kNone: no data
  bool unread;  ///< it has data that must not, or cannot, be read
  uint16_t element = 0;  ///< what it consists of: BasicKind << 8 and bytes; 0: several, or not known
};

/// The first `bytes` bytes of what the view shows.
Value read_view(const View& view, uint64_t bytes);
/// All blocks but one that stays where it is.
Value read_blocks(Event& event, const FlatTransfer& layout);

/// What this rank gives: send buffer, contribution, origin, data for a file. Before the call where it overwrites it.
Value input_of(Event& event);
/// Does the call overwrite what it gives?
bool overwrites_input(const Event& event);
/// The buffer that a receive of any kind fills, as the call names it. Not for collectives.
View receive_view(Event& event);
/// What a blocking collective gave this rank.
Value collective_output(Event& event);

}  // namespace resil
