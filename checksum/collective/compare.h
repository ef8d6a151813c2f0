// SPDX-License-Identifier: Apache-2.0
//
// The three steps of a collective's check. All on the application's thread inside one of its MPI calls.
#pragma once

#include "checksum/collective/plan.h"

namespace resil::collective {

/// Reads what this rank gives: digests of blocks, of its part of an allgathered result, its contribution to a
/// reduction. Before the call where the result overwrites it, else after the operation has been started.
void read_inputs(Plan& plan);
/// Of a blocking call that has returned, before read_inputs(), with cheap blame: what this rank gives itself is
/// compared byte by byte where it lies in one piece on both sides, and needs no digest then.
void compare_given_to_itself(Plan& plan);
/// Full blame: what the receive buffers hold before the call.
void read_before(Plan& plan);

/// Tells the receivers of blocks what they must get. After the operation has been started without error.
void tell_receivers(Thread& thread, Plan& plan);

/// The operation is complete: compares what this rank got. `failed`: kNone, or why the result cannot be looked at; the
/// partners are then told that nothing can be compared.
void compare_results(Thread& thread, Plan& plan, ledger::Reason failed);

}  // namespace resil::collective
