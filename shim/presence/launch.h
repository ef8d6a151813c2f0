// SPDX-License-Identifier: Apache-2.0
//
// What tells this launch from every other one, on this node and in a used report directory. Ids that launchers give
// come again (every Slurm job has a step 0, a pid is reused, two containers both have a process 2), so each rank draws
// a number at random, its nonce. It is part of the names of the rank's files in node-local memory and of the value that
// the rank publishes (presence/), so that after MPI_Init each rank knows the exact names of the others' files and none
// of another launch can be taken for one of them. The launch key of a world is the nonce of its lowest rank that
// is preloaded.
//
// Context: application's thread, in MPI_Init; launch_nonce_of in any thread afterwards.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

constexpr size_t kNonceText = 17;  ///< 16 hexadecimal digits and the zero byte

/// Draws this process's nonce; until launch_agree it is the launch key, too.
void launch_draw();
/// Never 0 after launch_draw.
uint64_t launch_nonce();
/// The nonces of the `size` ranks of this world are told next, by launch_learn. False: no memory; then none is known.
bool launch_expect(int size);
void launch_learn(int rank, uint64_t nonce);
/// Sets `runtime.launch_key` and the ring's header from what has been learned. `synchronised`: all ranks have learned
/// the same; else only rank 0's nonce can be meant by all that agree.
void launch_agree(bool synchronised);
/// What `rank` of this world has published; 0: nothing that this rank knows of.
uint64_t launch_nonce_of(int rank);
/// Sixteen hexadecimal digits.
void launch_text(uint64_t nonce, char* text);

}  // namespace resil
