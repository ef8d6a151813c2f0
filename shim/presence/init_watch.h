// SPDX-License-Identifier: Apache-2.0
//
// Who is in MPI_Init and who is not, said on standard error when it has not returned for 30 s: nothing else watches it.
// One thread in the lowest rank of each node, which sleeps, never calls MPI and is gone when MPI_Init returns.
// Application's thread, around MPI_Init.
#pragma once

namespace resil {

struct LaunchIdentity;

void init_watch_begin(const LaunchIdentity& identity);
/// Also when MPI_Init fails. Does nothing when nothing has begun.
void init_watch_end();

}  // namespace resil
