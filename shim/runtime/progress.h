// SPDX-License-Identifier: Apache-2.0
//
// The one way in which resil waits on the application's thread: repeated tests, between which every module makes
// progress with what other ranks may be waiting for here (Module::hand_over, Module::progress). So no rank waits for
// one that waits in resil. Waits for a device, a helper thread or a lock are not of this kind. See
// docs/ARCHITECTURE.md.
#pragma once

#include <cstdint>

namespace resil {

struct Thread;

/// Tests that take 5 to 20 us: whoever waits longer is idle, and hands over what others may wait for.
constexpr uint32_t kIdleRounds = 200;

/// What happens between the tests of a wait, by rounds counted from 0.
struct Pace {
  uint32_t first;  ///< nothing before this round
  uint32_t every;  ///< then progress in each so many rounds
  uint32_t yields;  ///< from this round on the processor is offered to others
};
/// In place of a wait of the library's. It never yields: whether ranks share cores is the library's own knowledge, and
/// its tests yield then.
constexpr Pace kAsTheLibrary = {kIdleRounds, 16, ~0u};
/// For a rank that may need this core, and that no test of the library's waits for.
constexpr Pace kForOthers = {kIdleRounds, 16, 2048};
/// For what progress itself brings about.
constexpr Pace kByProgress = {0, 1, 2048};

/// The modules' hooks, in the order of the stages, null-terminated; filled by registry_enable().
struct Pollers {
  void (*hand_over[17])(Thread&);
  void (*progress[17])(Thread&);
};
extern Pollers pollers;

/// One wait. Application's thread, inside a call.
class Wait {
 public:
  explicit Wait(Thread& thread, Pace pace = kAsTheLibrary) : thread_(thread), pace_(pace) {}
  /// Between two tests.
  void pause() {
    if (round_++ >= pace_.first) progress();
  }
  uint32_t rounds() const { return round_; }

 private:
  void progress();

  Thread& thread_;
  const Pace pace_;
  uint32_t round_ = 0;
};

/// Repeats `over()` until it is true.
template <class Over>
void wait_until(Thread& thread, Over over, Pace pace = kAsTheLibrary) {
  for (Wait wait(thread, pace); !over();) wait.pause();
}

/// Repeats `test(&flag)` until it sets the flag or returns an error, which is returned.
template <class Test>
int wait_by_tests(Thread& thread, Test test) {
  for (Wait wait(thread);; wait.pause()) {
    int flag = 0;
    const int result = test(&flag);
    if (flag != 0 || result != 0) return result;
  }
}

}  // namespace resil
