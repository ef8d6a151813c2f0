// SPDX-License-Identifier: Apache-2.0
//
// What the checker itself must see and must not: the known small programs of the literature.
#include <atomic>

#include "tests/litmus/programs.h"

namespace litmus {
namespace {

std::atomic<int> x, y;
int data, seen_x, seen_y;

void clear() {
  x = y = 0;
  data = 0;
  seen_x = seen_y = -1;
}

const auto kRelease = std::memory_order_release;
const auto kAcquire = std::memory_order_acquire;
const auto kRelaxed = std::memory_order_relaxed;

}  // namespace

std::vector<Program> basics() {
  return {
      {"message passing",
       "",
       clear,
       {[] {
          data = 1;
          x.store(1, kRelease);
        },
        [] {
          if (x.load(kAcquire) == 1) LITMUS_EXPECT(data == 1);
        }},
       {},
       2},
      {"message passing by fences",
       "",
       clear,
       {[] {
          y.store(1, kRelaxed);
          std::atomic_thread_fence(kRelease);
          x.store(1, kRelaxed);
        },
        [] {
          if (x.load(kRelaxed) == 1) {
            std::atomic_thread_fence(kAcquire);
            LITMUS_EXPECT(y.load(kRelaxed) == 1);
          }
        }},
       {},
       2},
      {"store buffering",
       "",
       clear,
       {[] {
          x.store(1, std::memory_order_seq_cst);
          seen_y = y.load(std::memory_order_seq_cst);
        },
        [] {
          y.store(1, std::memory_order_seq_cst);
          seen_x = x.load(std::memory_order_seq_cst);
        }},
       [] { LITMUS_EXPECT(seen_x == 1 || seen_y == 1); },
       4},
      {"a sum",
       "",
       clear,
       {[] { x.fetch_add(1, kRelaxed); }, [] { x.fetch_add(1, kRelaxed); }, [] { x.fetch_add(1, kRelaxed); }},
       [] { LITMUS_EXPECT(x.load() == 3); },
       0},
      {"one place is seen in its order",
       "",
       clear,
       {[] {
          x.store(1, kRelaxed);
          x.store(2, kRelaxed);
        },
        [] {
          const int a = x.load(kRelaxed), b = x.load(kRelaxed);
          LITMUS_EXPECT(a <= b);
        }},
       {},
       0},
      {"a release sequence",
       "",
       clear,
       {[] {
          data = 1;
          x.store(1, kRelease);
        },
        [] { x.fetch_add(1, kRelaxed); },
        [] {
          if (x.load(kAcquire) == 2) LITMUS_EXPECT(data == 1);
        }},
       {},
       2},
  };
}

std::vector<Program> wrong_basics() {
  return {
      {"message passing, relaxed",
       "",
       clear,
       {[] {
          y.store(1, kRelaxed);
          x.store(1, kRelaxed);
        },
        [] {
          if (x.load(kRelaxed) == 1) LITMUS_EXPECT(y.load(kRelaxed) == 1);
        }},
       {},
       0},
      {"a race",
       "",
       clear,
       {[] {
          data = 1;
          x.store(1, kRelaxed);
        },
        [] {
          if (x.load(kAcquire) == 1) LITMUS_EXPECT(data == 1);
        }},
       {},
       0},
      {"write after publishing",
       "",
       clear,
       {[] {
          x.store(1, kRelease);
          data = 1;
        },
        [] {
          if (x.load(kAcquire) == 1) seen_x = data;
        }},
       {},
       0},
      {"store buffering, released only",
       "",
       clear,
       {[] {
          x.store(1, kRelease);
          seen_y = y.load(kAcquire);
        },
        [] {
          y.store(1, kRelease);
          seen_x = x.load(kAcquire);
        }},
       [] { LITMUS_EXPECT(seen_x == 1 || seen_y == 1); },
       0},
      {"independent reads",
       "",
       clear,
       {[] {
          x.store(1, kRelease);
          y.store(1, kRelaxed);
        },
        [] {
          if (y.load(kAcquire) == 1) LITMUS_EXPECT(x.load(kRelaxed) == 1);
        }},
       {},
       0},
  };
}

}  // namespace litmus
