// SPDX-License-Identifier: Apache-2.0
//
// Which memory receiving operations had, and from when to when. MPI forbids that two which are pending at a time share
// memory, but programs do it where they do not care for the data. What is found there is then no proof of anything:
// wrong data is looked up here before anybody is accused. The last 8,192 operations on all communicators; blocking ones
// while others are pending. Of data in several pieces the first and the last byte of one element: what shares one of
// them with another's data shares memory for certain, and columns that lie between each other's elements do not.
#pragma once

#include <cstdint>

#include "shim/base/hash.h"
#include "shim/model/view.h"

namespace resil::ledger {

struct alignas(64) Life {
  uint64_t number;  ///< of the operation, in the order of posting; 0: none
  uint64_t end;  ///< operations posted until it was complete; less than `number` (what was here before): it is not
  uint64_t low, bytes;  ///< memory, kInPieces: two bytes of it and what is between them, holes too
  uint64_t digest;  ///< of what a message brought; collectives: life_name()
};
inline bool life_is_over(const Life& life) { return life.end >= life.number; }

constexpr uint32_t kLives = 8192;
inline Life lives[kLives];
inline uint64_t life_clock;  ///< operations so far
inline uint64_t collectives_pending;  ///< nonblocking and persistent ones that are under way
inline uint64_t receives_pending;  ///< on all communicators; under the lock of p2p/receive_queue.h

constexpr uint64_t kInPieces = uint64_t{1} << 63;
inline uint64_t life_bytes(const Life& life) { return life.bytes & ~kInPieces; }

/// Under MPI_THREAD_MULTIPLE collectives and messages count at once.
inline uint64_t life_next(bool concurrent) {
  return concurrent ? __atomic_add_fetch(&life_clock, 1, __ATOMIC_RELAXED) : ++life_clock;
}

inline bool others_pend() {
  return (__atomic_load_n(&collectives_pending, __ATOMIC_RELAXED) |
          __atomic_load_n(&receives_pending, __ATOMIC_RELAXED)) != 0;
}

/// Under the lock of p2p/receive_queue.h; others look without it.
inline void receive_pends(uint64_t change) {
  __atomic_store_n(&receives_pending, receives_pending + change, __ATOMIC_RELAXED);
}

inline void collective_pends(bool concurrent, uint64_t change) {
  if (concurrent) __atomic_fetch_add(&collectives_pending, change, __ATOMIC_RELAXED);
  else collectives_pending += change;
}

/// Where `bytes` of data lie that came there, or may: its first byte, and what life_begin() is to be given.
inline const char* life_memory(const View& view, uint64_t* bytes) {
  const auto* buffer = static_cast<const char*>(view.buffer);
  if (view.type == nullptr || view.type->contiguous || *bytes == 0) [[likely]]
    return buffer;  // of an unknown type there are no bytes
  *bytes = static_cast<uint64_t>(view.type->high - view.type->low) | kInPieces;
  return buffer + view.type->low;
}

/// `bytes`: see Life.
inline void life_begin(uint64_t number, const void* buffer, uint64_t bytes) {
  Life& life = lives[number % kLives];
  __atomic_store_n(&life.low, reinterpret_cast<uint64_t>(buffer), __ATOMIC_RELAXED);
  __atomic_store_n(&life.bytes, bytes, __ATOMIC_RELAXED);
  __atomic_store_n(&life.number, number,
                   __ATOMIC_RELEASE);  // last: nobody takes another operation's memory for its own
}

inline void life_end(uint64_t number, uint64_t digest) {
  Life& life = lives[number % kLives];
  if (life.number != number) return;
  __atomic_store_n(&life.digest, digest, __ATOMIC_RELAXED);
  __atomic_store_n(&life.end, __atomic_load_n(&life_clock, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
}

/// A blocking operation is over.
inline void life_passed(bool concurrent, const void* buffer, uint64_t bytes, uint64_t digest) {
  const uint64_t number = life_next(concurrent);
  life_begin(number, buffer, bytes);
  life_end(number, digest);
}

/// In place of a digest: the collective with that number on a communicator.
inline uint64_t life_name(uint64_t comm, uint32_t tag) { return hash_combine(comm, tag); }

inline bool life_touches(const Life& life, uint64_t at) { return at - life.low < life_bytes(life); }

/// Do they share memory for certain?
inline bool lives_overlap(const Life& one, const Life& other) {
  const uint64_t bytes = life_bytes(one), others = life_bytes(other);
  if (bytes == 0 || others == 0) return false;
  const bool pieces = (one.bytes & kInPieces) != 0, others_pieces = (other.bytes & kInPieces) != 0;
  if (!pieces && !others_pieces) return other.low < one.low + bytes && one.low < other.low + others;
  if (pieces && others_pieces) return one.low == other.low || one.low + bytes == other.low + others;
  const Life &whole = pieces ? other : one, &holes = pieces ? one : other;
  return life_touches(whole, holes.low) || life_touches(whole, holes.low + life_bytes(holes) - 1);
}

/// As another thread may be writing it: `number` 0, or memory of the operation with that number.
inline Life life_read(const Life& from) {
  Life copy = {};
  copy.number = __atomic_load_n(&from.number, __ATOMIC_ACQUIRE);
  copy.end = __atomic_load_n(&from.end, __ATOMIC_RELAXED);
  copy.low = __atomic_load_n(&from.low, __ATOMIC_RELAXED);
  copy.bytes = __atomic_load_n(&from.bytes, __ATOMIC_RELAXED);
  copy.digest = __atomic_load_n(&from.digest, __ATOMIC_RELAXED);
  return copy;
}

/// Did another operation that was pending at the same time have some of its memory? Among the last `most` posted.
inline bool life_shared(const Life& one, uint64_t most) {
  if (one.number == 0 || one.bytes == 0) return false;
  const uint64_t last = __atomic_load_n(&life_clock, __ATOMIC_RELAXED), first = last > most ? last - most + 1 : 1;
  for (uint64_t number = first; number <= last; ++number) {
    if (__atomic_load_n(&lives[number % kLives].number, __ATOMIC_RELAXED) != number) continue;
    const Life other = life_read(lives[number % kLives]);
    if (other.number == number && number != one.number && lives_overlap(one, other) &&
        (!life_is_over(other) || one.number <= other.end) && (!life_is_over(one) || number <= one.end))
      return true;
  }
  return false;
}

/// Was a message with that content, or the result of a collective of that name, received into such memory?
inline bool life_shared_by_digest(uint64_t digest) {
  for (const Life& one : lives)
    if (one.number != 0 && life_is_over(one) && one.digest == digest && life_shared(one, kLives)) return true;
  return false;
}

/// Counts it as uncovered, and says so once. See ledger.cpp.
void note_shared_memory();

}  // namespace resil::ledger
