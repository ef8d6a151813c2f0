// SPDX-License-Identifier: Apache-2.0
//
// Which memory receiving operations had, and from when to when. MPI forbids that two which are pending at a time share
// memory, but programs do it where they do not care for the data. What is found there is then no proof of anything:
// wrong data is looked up here before anybody is accused. Operations whose data lies in one piece, the last 8,192; blocking
// ones while others are pending.
#pragma once

#include <cstdint>

#include "shim/hash.h"

namespace resil::ledger {

struct alignas(64) Life {
  uint64_t number;      ///< of the operation, in the order of posting; 0: none
  uint64_t end;         ///< operations posted until it was complete; less than `number` (what was here before): it is not
  uint64_t low, bytes;  ///< memory
  uint64_t digest;      ///< of what a message brought; collectives: life_name()
};
inline bool life_is_over(const Life& life) { return life.end >= life.number; }

constexpr uint32_t kLives = 8192;
inline Life lives[kLives];
inline uint64_t life_clock;  ///< operations so far
inline uint64_t collectives_pending;  ///< nonblocking and persistent ones that are under way

/// Under MPI_THREAD_MULTIPLE collectives and messages count at once.
inline uint64_t life_next(bool concurrent) {
  return concurrent ? __atomic_add_fetch(&life_clock, 1, __ATOMIC_RELAXED) : ++life_clock;
}

inline void collective_pends(bool concurrent, uint64_t change) {
  if (concurrent)
    __atomic_fetch_add(&collectives_pending, change, __ATOMIC_RELAXED);
  else
    collectives_pending += change;
}

inline void life_begin(uint64_t number, const void* buffer, uint64_t bytes) {
  Life& life = lives[number % kLives];
  life.number = number;
  life.low = reinterpret_cast<uint64_t>(buffer);
  life.bytes = bytes;
}

inline void life_end(uint64_t number, uint64_t digest) {
  Life& life = lives[number % kLives];
  if (life.number != number)
    return;
  life.digest = digest;
  life.end = life_clock;
}

/// A blocking operation is over.
inline void life_passed(bool concurrent, const void* buffer, uint64_t bytes, uint64_t digest) {
  const uint64_t number = life_next(concurrent);
  life_begin(number, buffer, bytes);
  life_end(number, digest);
}

/// In place of a digest: the collective with that number on a communicator.
inline uint64_t life_name(uint64_t comm, uint32_t tag) { return hash_combine(comm, tag); }

/// Did another operation that was pending at the same time have some of its memory? Among the last `most` posted.
inline bool life_shared(const Life& one, uint64_t most) {
  if (one.number == 0 || one.bytes == 0)
    return false;
  const uint64_t last = life_clock, first = last > most ? last - most + 1 : 1;
  for (uint64_t number = first; number <= last; ++number) {
    const Life& other = lives[number % kLives];
    if (other.number == number && number != one.number && other.low < one.low + one.bytes &&
        one.low < other.low + other.bytes && (!life_is_over(other) || one.number <= other.end) &&
        (!life_is_over(one) || number <= one.end))
      return true;
  }
  return false;
}

/// Was a message with that content, or the result of a collective of that name, received into such memory?
inline bool life_shared_by_digest(uint64_t digest) {
  for (const Life& one : lives)
    if (one.number != 0 && life_is_over(one) && one.digest == digest && life_shared(one, kLives))
      return true;
  return false;
}

/// Counts it as uncovered, and says so once. See ledger.cpp.
void note_shared_memory();

}  // namespace resil::ledger
