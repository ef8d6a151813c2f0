// SPDX-License-Identifier: Apache-2.0
//
// See progress.h.

#include "shim/runtime/progress.h"

#include <sched.h>

namespace resil {

Pollers pollers;

void Wait::progress() {
  const uint32_t round = round_ - 1;
  if (round == kIdleRounds)
    for (auto* hook = pollers.hand_over; *hook != nullptr; ++hook) (*hook)(thread_);
  if ((round - pace_.first) % pace_.every == 0)
    for (auto* hook = pollers.progress; *hook != nullptr; ++hook) (*hook)(thread_);
  if (round >= pace_.yields) sched_yield();
}

}  // namespace resil
