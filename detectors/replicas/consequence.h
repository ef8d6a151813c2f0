// SPDX-License-Identifier: Apache-2.0
//
// Whether a difference between partners has consequences. What depends on a wrong number is wrong as well, word after
// word, and spreads from one kind of call to the next; memory that was sent without having been initialised differs
// where it is sent, each time, and nowhere else. Numbers alone; no MPI, no allocation. One thread at a time.
//
// A difference begins with a word of a kind that has not differed before. It is open until one of these is known:
//   it is real: the calls themselves differ, or the sum of one number, or 64 words in a row, or 64 words, and since the
//     last new kind of word that differs fewer than one for 16 of them has agreed;
//   it has no consequence: since then 64 words have agreed.
// Words agree in this sense that are of kinds that have never differed, with other data than their kind had before. At
// the end 8 words are enough, and a difference that is still open then is taken for real. Kinds that have differed
// without consequence are counted on: where they come to differ alone, that is real as well.
#pragma once

#include <cstdint>

namespace resil::replicas {

class Consequences {
 public:
  enum class Verdict : uint8_t {
    kNothing,  ///< nothing new, of an open difference
    kKnown,  ///< of a kind that was known before to differ without consequence
    kOpened,  ///< of a kind that has not differed before
    kReal,  ///< the open difference; or, where none is open, that began with the row of words that differ
    kNone,  ///< it had no consequence
    kUndecided  ///< end() alone: too little came after it
  };

  /// The kind of a word: who calls what, in which direction; and how much. Neither is 0.
  struct Kind {
    uint64_t call, amount;
  };

  /// A word differs. `certain`: that alone is a consequence.
  Verdict differs(const Kind& kind, bool certain);
  /// A word agrees. Only while counting().
  Verdict agrees(const Kind& kind, uint64_t data);
  /// There are no more words.
  Verdict end();

  bool open() const { return open_; }
  bool counting() const { return counting_; }
  /// Words that differ, since one has agreed.
  uint64_t in_a_row() const { return in_a_row_; }
  /// Of the open difference, or of the last one.
  uint64_t differing() const { return all_differing_; }
  uint64_t agreeing() const { return all_agreeing_; }
  /// Words of kinds that differ without consequence.
  uint64_t known() const { return known_; }

 private:
  static constexpr uint32_t kPlaces = 1024, kMost = 768;
  static constexpr uint64_t kReal = 64, kFew = 16, kNone = 64, kNoneAtEnd = 8, kAmounts = 8;

  struct Place {
    uint64_t kind;  ///< 0: free
    uint64_t data;  ///< of the last word that agreed; of a call: how many of its amounts differ
    uint64_t differs;  ///< 0: it does not; else the number of the difference in which it did first
  };

  Place* find(uint64_t kind);
  Place* make(uint64_t kind);
  void forget_agreeing();
  uint64_t differs_since(const Kind& kind);  // 0: it has not
  void close() { open_ = counting_ = false; }

  Place places_[kPlaces], kept_[kMost];
  uint32_t used_;
  bool open_;
  bool counting_;  // words that agree are wanted: open, or words of known kinds differ
  uint64_t differing_, agreeing_;  // since the last new kind, or the first word that is counted
  uint64_t in_a_row_;
  uint64_t all_differing_, all_agreeing_, known_, number_;
};

}  // namespace resil::replicas
