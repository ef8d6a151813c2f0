// SPDX-License-Identifier: Apache-2.0
//
// Clocks say in every part what they said in the leading one: MPI_Wtime, and those of libc that the program's own
// objects ask. So do random numbers of the kernel's. Values travel in the order in which they were asked for, by how
// many calls the rank had made by then: between the same two calls a follower is told the same. Of the thread that has
// initialised MPI; others are told the truth.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/model/calls.h"

namespace resil {
struct Thread;
class JsonWriter;
}  // namespace resil

namespace resil::replicas {

/// After `place` is known, in MPI_Init.
void times_begin();
/// What MPI_Wtime or MPI_Wtick returns in place of `value`.
double times_told(Thread& thread, CallId id, double value);
/// Which clock: those of clock_gettime by their numbers, then others.
enum Clock : uint8_t {
  kClockGettime = 1,
  kGettimeofday = 20,
  kTime,
  kClock,
  kUserTime,
  kSystemTime,
  kOtherOfMpi,
  kRandom,
  kClockCount
};
/// What a clock of libc says in place of `value`, in its own unit. Outside of MPI calls; any thread.
int64_t times_told_by_libc(Clock clock, int64_t value);
/// Random bytes, as they were in the leading part. Likewise.
void random_told(void* bytes, size_t count);
/// The rank makes another call. `poll`: one that may be repeated as often as time allows, so that it does not count.
void times_call(Thread& thread, bool poll, uint64_t now);
/// A copy that has left the program: what still comes is taken.
void times_pass_over();
/// Between the calls, and while this rank waits: has another part come to lead? Has all been taken that was told?
void times_look();
/// Twice how many calls the rank has made, but for polls, and one if it waits for a clock: where it is in the program,
/// the same in each part. Any thread.
uint64_t times_place();
void times_end(Thread& thread);
void times_report(JsonWriter& json);

}  // namespace resil::replicas
