// SPDX-License-Identifier: Apache-2.0
//
// PMI-1 on hydra's file descriptor (PMI_FD): lines of text, one answer to each question, so that nothing is ever left
// unread for the MPI library, which speaks on the same descriptor. Application's thread, inside MPI_Init only.
#pragma once

#include <cstddef>

#include "shim/presence/carrier.h"

namespace resil {

/// Whether hydra (MPICH, Intel MPI, MVAPICH) listens on PMI_FD. Other owners of a PMI_FD do not take a second
/// "cmd=init" (Slurm's fixes the protocol version with the first one).
bool pmi1_available();

/// Name of the key-value space of this process's world.
bool pmi1_kvs_name(char* name, size_t size);

/// Asks hydra to end the job with this exit status; returns at once. Without it hydra reports a mixture of our status
/// and of the signal that it ended the others with, and does not notice at all that a rank left before it had said
/// "init". Does nothing when hydra does not listen.
void pmi1_abort(int status);

extern const Carrier kPmi1Carrier;

}  // namespace resil
