// SPDX-License-Identifier: Apache-2.0
//
// Stacks of all threads of a node's ranks, taken from outside while they go on, and Sunway's filter of abnormal
// threads: those whose program counter is the same in each of s samples. Equal stacks are one entry with the ranks that
// have it; the tree merges entries on the way up. Helper thread; nobody is stopped or signalled; what takes longer than
// kStacksSeconds is left out.
#pragma once

#include <cstdint>

#include "detectors/hang/reader/watch.h"
#include "detectors/hang/verdict/verdict.h"

namespace resil::hang {

constexpr uint32_t kStackRanks = 64, kStackThreads = 192, kRankThreads = 24;  ///< of a node
constexpr double kStacksSeconds = 0.5;
constexpr uint32_t kMostSamples = 16, kMostStacks = 1u << 20;  ///< bytes of a merged answer

struct StacksQuestion {
  uint32_t samples;  ///< s
  uint32_t count;
  int32_t first[kStackRanks];  ///< these ranks before all others
};

/// How many samples it takes until fewer than one healthy thread of `threads` is expected to show the same program
/// counter in each: threads * (1/loop)^(s-1) < 1, with loops of 250 instructions.
uint32_t samples_for(uint64_t threads);

struct StacksHead {
  uint32_t ranks, threads, unread;  ///< unread: threads of which the kernel tells nothing
  uint32_t left_out;  ///< ranks for which there was no time or room
};

/// Followed by its text, padded to 8 bytes: "object+0xoffset" a line, the outermost frame first; of a Python program
/// "function at file.py:12" in place of the interpreter's own.
struct alignas(8) StackEntry {
  uint32_t bytes;  ///< with the text
  uint32_t text_bytes;
  uint8_t steady;  ///< the program counter was the same in all samples
  uint8_t sleeps;  ///< in a system call
  uint8_t complete;  ///< up to the thread's first function
  uint8_t library;  ///< began inside MPI_Init: a thread of MPI's, or of what that uses
  uint32_t threads;
  RankSet ranks;
};

uint32_t stacks_collect(Watch& watch, const void* question, uint32_t question_bytes, char* room, uint32_t room_bytes);
bool stacks_merge(void* accumulated, uint32_t* bytes, uint32_t room, const void* incoming, uint32_t incoming_bytes);
/// One entry of an answer, wherever that lies.
struct StackText {
  StackEntry entry;
  const char* text;
};
/// The entry at `at`; false where there is none that is whole. `at` is that of the next one then.
bool next_stack(const void* answer, uint32_t bytes, uint32_t* at, StackText* found);
/// Both; ranks that are in one of them by number are once in it.
RankSet joined(const RankSet& a, const RankSet& b);

}  // namespace resil::hang
