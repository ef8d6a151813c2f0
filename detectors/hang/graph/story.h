// SPDX-License-Identifier: Apache-2.0
//
// From the core of the graph to one verdict: whose fault, what class, and the sentences.
#pragma once

#include "detectors/hang/graph/words.h"

namespace resil::hang::graph {

/// What may have been meant: a message that nearly matches.
struct NearMiss {
  enum Kind : uint8_t { kNothing = 0, kOtherTag, kOtherComm, kOtherDestination, kOtherSource } kind = kNothing;
  Wait receive;  ///< that misses it
  uint32_t sender = kNone;
  Wait send;  ///< the blocked send, if it is one
  uint64_t count = 0;  ///< else: messages that were sent and nobody has received
};

class Story {
 public:
  Story(Graph& graph, const Core& core, const Names& names, Verdict* verdict);
  /// False: no memory.
  bool tell();

 private:
  bool blame();
  void blame_wave();
  void near_misses();
  NearMiss near_miss(const Wait& receive);
  void message();
  void tell_wave(const Wave& wave);
  void tell_late(const Wave& wave);
  void tell_orders();
  void tell_cycle();
  void tell_wait(const Wait& wait, bool with_why);
  void tell_near_miss(Words& words);
  void tell_others();
  void advise();
  void evidence();
  void evidence_of(const Wait& wait);
  void mark_alike(const Wait& wait, uint8_t* said);
  Wait reason(uint32_t rank) const;
  uint64_t signature() const;

  Graph& g_;
  const Core& core_;
  Verdict& v_;
  Words message_, evidence_;
  uint8_t *culprit_ = nullptr, *victim_ = nullptr, *scratch_ = nullptr;
  NearMiss near_;
  bool wave_story_ = false;
};

void set_ranks(const uint8_t* flags, uint32_t ranks, int32_t* kept, uint32_t room, uint32_t* count);

/// For long patience: calls that all they wait for have made, or to which everything was sent, and that do not return.
/// Nobody is accused. False: none.
bool tell_inside_mpi(Graph& graph, const Names& names, Verdict* verdict);

}  // namespace resil::hang::graph
