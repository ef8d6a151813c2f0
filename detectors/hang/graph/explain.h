// SPDX-License-Identifier: Apache-2.0
//
// From the core of the graph to one verdict: whose fault, what class, and the statements.
#pragma once

#include "detectors/hang/graph/core.h"
#include "detectors/hang/verdict/verdict.h"

namespace resil::hang::graph {

/// What may have been meant: a message that nearly matches.
struct NearMiss {
  enum Kind : uint8_t { kNothing = 0, kOtherTag, kOtherComm, kOtherDestination, kOtherSource } kind = kNothing;
  Wait receive;  ///< that misses it
  uint32_t sender = kNone;
  Wait send;  ///< the blocked send, if it is one
  uint64_t count = 0;  ///< else: messages that were sent and nobody has received
};

class Explainer {
 public:
  Explainer(Graph& graph, const Core& core, Verdict& verdict) : g_(graph), core_(core), v_(verdict) {}
  /// False: no memory.
  bool explain();

 private:
  bool blame();
  bool blame_wave();
  bool blame_odd_communicator();
  bool blame_differing();
  void near_misses();
  bool alone_in_cycle();
  NearMiss near_miss(const Wait& receive);
  void explain_calls();
  void explain_wave(const Wave& wave);
  void explain_late(const Wave& wave);
  void explain_orders();
  void explain_cycle();
  void explain_freed(const Part& of);
  void explain_wait(const Wait& wait);
  void explain_message(const Wait& of, const CallWait& wait);
  void explain_why(const Wait& wait);
  void explain_near_miss();
  void explain_others();
  void advise();
  void evidence();
  void evidence_of(const Wait& wait, uint8_t* told);
  bool waits_in(uint32_t rank, const Wave& wave) const;
  Wait reason(uint32_t rank) const;
  uint64_t signature() const;
  RankSet set_of(const uint8_t* flags) const;

  Graph& g_;
  const Core& core_;
  Verdict& v_;
  uint8_t *culprit_ = nullptr, *victim_ = nullptr, *scratch_ = nullptr;
  NearMiss near_;
  bool in_wave_ = false;  ///< the core waits in a collective
};

/// After a long timeout: calls that all they wait for have made, or to which everything was sent, and that do not
/// return. Nobody is accused. False: none. `verdict` may be null.
bool find_inside_mpi(Graph& graph, Verdict* verdict);

inline const ThreadWait& thread_of(const Graph& graph, const Wait& wait) {
  return graph.view(wait.rank).threads[wait.thread];
}
inline const Part& part_of(const Graph& graph, const Wait& wait) { return graph.view(wait.rank).parts[wait.part]; }
CallWait call_wait(const Graph& graph, const Wait& wait);

}  // namespace resil::hang::graph
