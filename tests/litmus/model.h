// SPDX-License-Identifier: Apache-2.0
//
// A checker of lock-free code for weak memory: it runs a small program of two or three threads again and again, each
// time with another order of their steps and other values that their loads may see, and says when an expectation fails
// or when plain accesses race. It runs the library's own code: files that are compiled with -fsanitize=thread call a
// function for each access to memory, and hooks.cpp has these functions in place of the sanitizer's.
//
// The memory is that of C++ (and so allows what Arm and POWER do), with two bounds: stores to one place take effect in
// the order in which they are executed, and a load sees no store that is executed after it (no load buffering). So what
// it finds is real; what it does not find may still be wrong by those two, or lie beyond its bounds on steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace litmus {

struct Bounds {
  uint64_t executions = 10000;  ///< at most, systematically
  uint64_t random = 2000;  ///< more, at random, when that did not cover all
  unsigned preemptions = 3;  ///< switches away from a thread that could go on, in one execution
};

struct Program {
  const char* name;
  const char* protocol;  ///< what it stands for, in words of docs/MEMORY-ORDER.md
  std::function<void()> setup;  ///< before the threads; runs again for each execution
  std::vector<std::function<void()>> threads;
  std::function<void()> check;  ///< after them; may be empty
  unsigned needed;  ///< orderings (places in the code) without which it fails: at least so many
  Bounds bounds = {};
};

struct Outcome {
  uint64_t executions;
  bool complete;  ///< all executions within the bound on preemptions
  const char* failure;  ///< null: none
  std::vector<const void*> ordered;  ///< places in the code with an ordering stronger than relaxed
};

/// Runs the program. `weakened`: a place whose ordering is taken as relaxed; null: none.
Outcome explore(const Program& program, const Bounds& bounds, const void* weakened = nullptr);

// For use inside a program.

/// Fails the execution.
void expect(bool holds, const char* what);
#define LITMUS_EXPECT(condition) ::litmus::expect((condition), #condition)
/// In setup: what lies there is read while it is written, on purpose. Plain accesses to it are as relaxed atomics of
/// their size instead of races, and never of more than one such place.
void racy(const void* begin, size_t bytes);
/// In setup: what lies there is not followed at all, since no expectation is about it. Fewer steps.
void unwatched(const void* begin, size_t bytes);
/// Zeroed memory for this execution, from where the compiler cannot follow it.
void* memory(size_t bytes);
template <class T>
T* zeroed() {
  return static_cast<T*>(memory(sizeof(T)));
}
/// One of `count` at will: 0 to count - 1. For what the program leaves open.
unsigned choose(unsigned count);
/// In a thread: it has done what it does here.
[[noreturn]] void end_thread();
/// Ends this execution without a verdict: a case that is of no interest.
void abandon();

}  // namespace litmus
