// SPDX-License-Identifier: Apache-2.0
//
// Who may touch the private communicator: a token that nobody waits for. Who finds it taken and has records that must
// go now asks for that and leaves; whoever gives the token back looks whether somebody has asked. Both store first and
// then look at the other's word, each in the one order of sequentially consistent operations: so one of them sees the
// other.
#pragma once

#include <atomic>

namespace resil::ledger {

struct TokenWords {
  std::atomic<bool> taken;
  std::atomic<bool> asked;  ///< somebody found the token taken and has records that must go now
};

/// Held for a moment by whoever talks to the private communicator; others skip and come again.
class TokenGuard {
 public:
  /// `concurrent`: several threads may call MPI.
  TokenGuard(TokenWords& words, bool concurrent) : words_(words), concurrent_(concurrent), held_(take()) {}
  ~TokenGuard() {
    if (held_) words_.taken.store(false, concurrent_ ? std::memory_order_seq_cst : std::memory_order_release);
  }
  TokenGuard(const TokenGuard&) = delete;
  explicit operator bool() const { return held_; }

 private:
  bool take() {
    if (concurrent_)  // in the order of all: after who has asked, or it may find the token taken that is already back
      return !words_.taken.exchange(true, std::memory_order_seq_cst);
    if (words_.taken.load(std::memory_order_relaxed))  // further out on this thread's stack
      return false;
    words_.taken.store(true, std::memory_order_relaxed);
    return true;
  }
  TokenWords& words_;
  const bool concurrent_;
  const bool held_;
};

/// After the token has been given back, or was found taken: does `work` with it for those who have asked.
template <class Work>
inline void token_serve(TokenWords& words, bool concurrent, Work work) {
  while (words.asked.load(std::memory_order_seq_cst)) [[unlikely]] {
      TokenGuard mine(words, concurrent);
      if (!mine) return;  // its holder will look
      words.asked.store(false, std::memory_order_seq_cst);
      work();
    }
}

inline void token_ask(TokenWords& words) { words.asked.store(true, std::memory_order_seq_cst); }

}  // namespace resil::ledger
