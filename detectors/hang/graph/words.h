// SPDX-License-Identifier: Apache-2.0
//
// Ranks, calls and waits in words.
#pragma once

#include "detectors/dump/text.h"
#include "detectors/hang/graph/core.h"

namespace resil::hang::graph {

/// Appends sentences to a fixed buffer; what does not fit is left out. Ends with NUL after done().
class Words {
 public:
  Words(const Graph& graph, const Names& names, char* buffer, size_t bytes)
      : text(buffer, bytes - 1, -1), graph_(graph), names_(names), buffer_(buffer), bytes_(bytes) {}

  /// "rank 3" or "ranks 0-511,513-1023"; of more than 12 ranges the rest is counted. Not `named`: numbers only.
  void ranks(const uint8_t* flags, bool named = true);
  void rank(uint32_t rank) { text.str("rank ").u64(rank); }
  void comm(uint64_t id);
  void call(uint16_t id);
  /// " at lmp+0x1578", or nothing.
  void site(uint32_t rank, const ThreadWait& wait);
  /// "MPI_Recv from rank 0, tag 7, on MPI_COMM_WORLD", "call 17 of MPI_Allreduce on …", "MPI_Waitall for …"
  void wait(const Wait& wait);
  /// "; that message was never sent" and the like: why this wait does not end.
  void why(const Wait& wait);
  /// Seconds since the thread entered; nothing is known of the future.
  void age(const ThreadWait& wait);
  void done() { buffer_[text.size() < bytes_ - 1 ? text.size() : bytes_ - 1] = 0; }

  dump::Text text;

 private:
  void peer(uint32_t rank, int32_t peer);

  const Graph& graph_;
  const Names& names_;
  char* buffer_;
  size_t bytes_;
};

/// A sentence begins with a capital letter.
inline void capital(char* text) {
  if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
}

inline const ThreadWait& thread_of(const Graph& graph, const Wait& wait) {
  return graph.view(wait.rank).threads[wait.thread];
}
inline const Part& part_of(const Graph& graph, const Wait& wait) { return graph.view(wait.rank).parts[wait.part]; }

}  // namespace resil::hang::graph
