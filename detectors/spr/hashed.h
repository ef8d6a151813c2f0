// SPDX-License-Identifier: Apache-2.0
//
// The selection that is the same on any number of ranks: each particle has a priority, a hash of its id, and is taken
// unless a neighbour of higher priority is (Luby; with fixed priorities: the lexicographically first maximal
// independent set). Who borders on another rank waits for what that rank decides, in rounds; two ranks talk until both
// have decided what borders on the other. No MPI here: what goes to a partner and comes from it are arrays of words.
#pragma once

#include <cstdint>

#include "detectors/spr/buffer.h"
#include "detectors/spr/lists.h"

namespace resil::spr {

/// What one rank tells another about a particle.
struct Word {
  enum Kind : int32_t {
    kSelected,  ///< a particle of the sender's is taken
    kLeftOut,  ///< a particle of the sender's is not
    kCovered,  ///< a particle of the receiver's stands in the list of one that the sender has taken
    kFinished,  ///< the sender has decided all that borders on the receiver; the last one, once
  };
  int64_t id;
  int32_t kind, unused;
};

class Hashed {
 public:
  struct Partner {
    int rank = 0;  ///< world rank
    Buffer<Word> out;
    size_t words = 0;
    bool we_finished = false, they_finished = false;  ///< both: no more rounds
    // Of whoever carries the words.
    bool closed = false;
    uint64_t size = 0, coming = 0;
    Buffer<Word> received;
  };

  /// `ids` of all `total` particles; `owner` of those behind the local ones, null where there are none. False: no
  /// memory, or ids that cannot be (`twice`: one that two local particles have).
  bool begin(const Lists& lists, const int64_t* ids, const int* owner, int rank, int64_t* twice);
  /// Ranks that own neighbours of ours, ascending; others are added by `add_partner` before the first round.
  uint32_t partners() const { return partner_count_; }
  Partner& partner(uint32_t number) { return partners_[number]; }
  bool add_partner(int rank);

  /// Decides what can be decided and fills `out` of each partner that is not finished. False: no memory.
  bool decide();
  /// What that partner has sent in this round.
  void take(Partner& partner, const Word* words, size_t count);
  /// When all are finished, and what they decided last has been taken. Indices ascending.
  bool collect(Buffer<int>& selected, int64_t* count);

 private:
  enum State : uint8_t { kUndecided, kTaken, kOut };
  struct Place {
    int64_t id;
    int32_t index;  ///< -1: free
    int32_t unused;
  };

  bool build_places(int64_t* twice);
  int32_t find(int64_t id) const;
  bool before(int32_t a, int32_t b) const;
  bool pass();
  bool blocked(int32_t particle) const;
  bool tell(int32_t particle, Word::Kind kind);
  bool put(Partner& partner, int64_t id, Word::Kind kind);
  int owner_of(int32_t index) const { return index < local_ ? rank_ : owner_[index - local_]; }
  Partner* partner_of(int rank);
  bool cover_neighbours(int32_t particle);

  Lists lists_ = {};
  const int64_t* ids_ = nullptr;
  const int* owner_ = nullptr;
  int rank_ = 0;
  int64_t local_ = 0;
  Buffer<int32_t> alias_;  ///< the one index that stands for all copies of a particle
  Buffer<Place> places_;
  uint64_t place_mask_ = 0;
  Buffer<uint8_t> state_;
  Buffer<uint64_t> priority_;
  Buffer<int32_t> order_;  ///< undecided local particles, highest priority first
  Buffer<uint8_t> border_;  ///< local particles with neighbours of other ranks
  int64_t undecided_ = 0;
  static constexpr uint32_t kMostPartners = 1024;
  Partner partners_[kMostPartners];
  uint32_t partner_count_ = 0;
};

}  // namespace resil::spr
