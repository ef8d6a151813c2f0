// SPDX-License-Identifier: Apache-2.0
//
// Within the checker: its state, and what an access to memory does. For model.cpp and hooks.cpp.
#pragma once

#include <ucontext.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <unordered_map>
#include <unordered_set>

#include "tests/litmus/model.h"

namespace litmus {

constexpr unsigned kThreads = 5;  // the main one, which sets up and checks, included
constexpr unsigned kLocations = 192;
constexpr size_t kStack = 256 * 1024;
constexpr unsigned kSteps = 4000;  // of one execution
constexpr unsigned kStale = 3;  // loads in a row of one place that may see an old value: all is seen some time

struct View {
  uint16_t at[kLocations];
  uint32_t clock[kThreads];
  void join(const View& other) {
    for (unsigned i = 0; i < kLocations; ++i) at[i] = std::max(at[i], other.at[i]);
    for (unsigned i = 0; i < kThreads; ++i) clock[i] = std::max(clock[i], other.clock[i]);
  }
};

struct Message {
  unsigned char value[16];
  View view;
};

/// Bytes that are read and written as one.
struct Location {
  uintptr_t begin;
  unsigned bytes;
  std::deque<Message> messages;
};

/// Latest accesses to eight bytes, to find races.
struct Access {
  uint8_t mask, thread;
  bool write, atomic;
  uint32_t clock;
};

struct Write {
  uintptr_t begin;
  unsigned bytes;
};

struct Thread {
  ucontext_t context;
  std::vector<Write> pending;  // plain stores that are about to be made
  size_t copying;  // bytes of an aggregate whose store has been announced, before its load
  std::unique_ptr<char[]> stack;
  std::function<void()> body;
  bool done, yielded;
  View view, acquired, released;
  uintptr_t stale_place;
  unsigned stale;
};

struct Block {
  void* begin;
  size_t bytes;
};

struct Choice {
  uint32_t taken, count;
};

struct Machine {
  Thread threads[kThreads];
  unsigned count = 0, current = 0;
  ucontext_t scheduler;
  std::deque<Location> locations;
  std::unordered_map<uintptr_t, unsigned> location_at;
  std::unordered_map<uintptr_t, std::vector<Access>> accesses;
  std::vector<Write> regions;  // racy
  std::vector<Write> unwatched;
  std::vector<Block> blocks;  // memory(), the same in each execution
  size_t blocks_used = 0;
  View serial;  // of sequentially consistent operations
  std::vector<char> variables;  // of the program before its first execution: what an abandoned one left must not last
  std::vector<Choice> trail;
  size_t position = 0;
  unsigned preemptions = 0, steps = 0, bound = 0;
  bool running = false, at_random = false, abandoned = false, inside = false;
  const char* failure = nullptr;
  const void* weakened = nullptr;
  std::unordered_set<const void*> ordered;
  std::mt19937_64 random;
};

extern Machine* machine;  // null: not exploring

/// Another thread may go on here. `yield`: this one waits for what others do.
void schedule(bool yield);
void flush_pending();
/// The order that this place in the code has in this execution.
int effective(int order, const void* place);
bool is_racy(uintptr_t address);
bool is_unwatched(uintptr_t address);
void check_race(uintptr_t begin, size_t bytes, bool write, bool atomic);
Location& atomic_location(uintptr_t address, unsigned bytes);
const Message& get(Location& place, int order, bool latest);
/// `read`: the message that a read-modify-write has read.
void put(Location& place, const void* value, int order, const Message* read);
/// A plain access. `range`: of an aggregate.
void plain(uintptr_t begin, size_t bytes, bool write, bool range = false);
void fence(int order, const void* caller);

template <class T>
T atomic_load(const volatile T* address, int order, const void* caller) {
  if (machine == nullptr || !machine->running || machine->inside || is_unwatched(reinterpret_cast<uintptr_t>(address)))
    return *address;
  machine->inside = true;
  flush_pending();
  order = effective(order, caller);
  schedule(false);
  const auto at = reinterpret_cast<uintptr_t>(address);
  Location& place = atomic_location(at, sizeof(T));
  if (!is_racy(at)) check_race(at, sizeof(T), false, true);
  T value;
  memcpy(&value, get(place, order, false).value, sizeof(T));
  machine->inside = false;
  return value;
}

/// Reads, and writes what `change` makes of it unless that says no.
template <class T, class Change>
T atomic_change(volatile T* address, int order, const void* caller, bool reads, const Change& change) {
  if (machine == nullptr || !machine->running || machine->inside ||
      is_unwatched(reinterpret_cast<uintptr_t>(address))) {
    T old = *address, value = old;
    if (change(value)) *address = value;
    return old;
  }
  machine->inside = true;
  flush_pending();
  order = effective(order, caller);
  schedule(false);
  const auto at = reinterpret_cast<uintptr_t>(address);
  Location& place = atomic_location(at, sizeof(T));
  if (!is_racy(at)) check_race(at, sizeof(T), true, true);
  T old{}, value;
  if (reads) {
    const Message read = get(place, order, true);
    memcpy(&old, read.value, sizeof(T));
    value = old;
    if (change(value)) put(place, &value, order, &read);
  } else {
    value = old;
    change(value);
    put(place, &value, order, nullptr);
  }
  machine->inside = false;
  return old;
}

}  // namespace litmus
