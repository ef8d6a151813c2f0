// SPDX-License-Identifier: Apache-2.0
//
// Why data was not read or checked.
#pragma once

#include <cstdint>

namespace resil {

/// Why a packet, or a share of the traffic, was not checked. Names for reports: ledger::reason_name().
enum class Reason : uint8_t {
  kNone,  ///< it was
  kDeviceBuffer,  ///< the buffer is, or may be, device memory
  kDatatype,  ///< the datatype cannot be flattened
  kError,  ///< the call returned an error, or the message was truncated by its receiver
  kNotConnected,  ///< no private communicator: not every rank is preloaded, or sessions only
  kOtherWorld,  ///< the partner is in another world (spawn, connect)
  kUnknownCommunicator,  ///< made out of sight: its id may not be agreed
  kOrderLost,  ///< a receive of that trace buffer could not be followed (freed while active, or untracked)
  kMemory,  ///< the ledger's memory bound was reached and the sums could not decide
  kReduction,  ///< a reduction whose arithmetic has no check (native floating point, products, ...)
  kUserOperator,  ///< a reduction by a user's operator
  kPassiveTarget,  ///< one-sided, under a shared lock or lock_all
  kAccumulate,  ///< one-sided accumulation: the target's old value is not known
  kOverlapped,  ///< another operation that was pending (one-sided: of the epoch) touched the same memory
  kSharedWindow,  ///< MPI_Win_allocate_shared: loads and stores are not seen
  kOneSided,  ///< other one-sided traffic that has no check
  kFile,  ///< MPI_File reads and writes
  kCollective,  ///< a collective form that has no check
  kRequestFreed,  ///< the receive's request was freed: its end is not seen
  kNoStatus,  ///< the MPI does not say what the receive took (MPICH 4.0: MPI_Isendrecv)
  kEarly,  ///< one-sided: the MPI completed the request before the data was there, or may have
  kCallsDiffer,  ///< the calls on both sides do not belong together: the program's mistake
  kGivenBack,  ///< MPI_Request_get_status has told its end: the buffer may be the program's own since
  kCount
};

}  // namespace resil
