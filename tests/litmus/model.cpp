// SPDX-License-Identifier: Apache-2.0
//
// Executions are explored by a trail of choices: which thread goes on, which of the stores that it may see a load sees.
// The threads are contexts of one system thread, switched before each atomic access. Views and messages: each store is
// a message with the view of memory that whoever acquires it takes over; a view is for each place the oldest message
// that may still be read, and for each thread how much of it has happened before.
#include "tests/litmus/machine.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" char __data_start, _end;

namespace litmus {

Machine* machine;  // null: not exploring

[[noreturn]] void leave_execution() {
  setcontext(&machine->scheduler);
  abort();
}

void fail(const char* what) {
  machine->failure = what;
  machine->abandoned = true;
  if (machine->current != 0) leave_execution();
}

unsigned pick(unsigned count) {
  Machine& m = *machine;
  if (count <= 1) return 0;
  if (m.at_random) return static_cast<unsigned>(m.random() % count);
  if (m.position == m.trail.size()) m.trail.push_back({0, count});
  Choice& choice = m.trail[m.position++];
  if (choice.count != count) {
    fprintf(stderr, "litmus: the program does not do the same twice (%u of %u choices)\n", choice.count, count);
    abort();
  }
  return choice.taken;
}

/// The next sequence of choices; false: that was the last one.
bool advance_trail(std::vector<Choice>& trail) {
  while (!trail.empty() && trail.back().taken + 1 == trail.back().count) trail.pop_back();
  if (trail.empty()) return false;
  ++trail.back().taken;
  return true;
}

void switch_to(unsigned next) {
  Machine& m = *machine;
  const unsigned from = m.current;
  const bool inside = m.inside;
  m.current = next;
  if (from != next) swapcontext(&m.threads[from].context, &m.threads[next].context);
  m.inside = inside;
}

void schedule(bool yield) {
  Machine& m = *machine;
  if (m.current == 0) return;
  if (++m.steps > kSteps) fail("no end: threads wait for each other");
  Thread& self = m.threads[m.current];
  self.yielded = yield;
  unsigned candidates[kThreads], count = 0;
  if (!yield) candidates[count++] = m.current;
  if (yield || m.preemptions < m.bound)
    for (unsigned i = 1; i <= m.count; ++i)
      if (i != m.current && !m.threads[i].done && !(yield && m.threads[i].yielded)) candidates[count++] = i;
  if (count == 0) {  // all wait: they look once more
    for (unsigned i = 1; i <= m.count; ++i) {
      m.threads[i].yielded = false;
      if (!m.threads[i].done && i != m.current) candidates[count++] = i;
    }
    if (count == 0) return;
  }
  const unsigned next = candidates[pick(count)];
  if (next != m.current && !yield) ++m.preemptions;
  if (!yield)
    for (unsigned i = 1; i <= m.count; ++i) m.threads[i].yielded = i != next && m.threads[i].yielded;
  switch_to(next);
}

void thread_main() {
  Machine& m = *machine;
  m.inside = false;
  m.threads[m.current].body();
  end_thread();
}

bool own_stack(uintptr_t address) {
  const Thread& self = machine->threads[machine->current];
  const auto begin = reinterpret_cast<uintptr_t>(self.stack.get());
  return self.stack != nullptr && address - begin < kStack;
}

bool is_racy(uintptr_t address) {
  for (const Write& region : machine->regions)
    if (address - region.begin < region.bytes) return true;
  return false;
}

bool is_unwatched(uintptr_t address) {
  for (const Write& region : machine->unwatched)
    if (address - region.begin < region.bytes) return true;
  return false;
}

bool racy_begins(uintptr_t address) {
  for (const Write& region : machine->regions)
    if (address == region.begin) return true;
  return false;
}

Location& make_location(uintptr_t begin, unsigned bytes) {
  Machine& m = *machine;
  if (m.locations.size() == kLocations) {
    fprintf(stderr, "litmus: more than %u places\n", kLocations);
    abort();
  }
  m.locations.push_back({begin, bytes, {}});
  Location& place = m.locations.back();
  Message first{};
  memcpy(first.value, reinterpret_cast<void*>(begin), bytes);
  place.messages.push_back(first);
  for (unsigned i = 0; i < bytes; ++i) m.location_at[begin + i] = static_cast<unsigned>(m.locations.size() - 1);
  return place;
}

Location* find_location(uintptr_t address) {
  const auto found = machine->location_at.find(address);
  return found == machine->location_at.end() ? nullptr : &machine->locations[found->second];
}

unsigned index_of(const Location& place) { return machine->location_at[place.begin]; }

void check_race(uintptr_t begin, size_t bytes, bool write, bool atomic) {
  Machine& m = *machine;
  Thread& self = m.threads[m.current];
  for (uintptr_t word = begin & ~uintptr_t{7}; word < begin + bytes; word += 8) {
    const unsigned from = word < begin ? static_cast<unsigned>(begin - word) : 0;
    const unsigned to = static_cast<unsigned>(std::min<uintptr_t>(8, begin + bytes - word));
    const auto mask = static_cast<uint8_t>(((1u << to) - 1) & ~((1u << from) - 1));
    auto& seen = m.accesses[word];
    Access* same = nullptr;
    for (Access& access : seen) {
      if ((access.mask & mask) == 0) continue;
      if (access.thread == m.current) {
        if (access.mask == mask && access.write == write && access.atomic == atomic) same = &access;
      } else if ((write || access.write) && !(atomic && access.atomic) &&
                 access.clock > self.view.clock[access.thread]) {
        fail("a race: two threads access one place, one of them writes, and nothing orders them");
        return;
      }
    }
    const Access now = {mask, static_cast<uint8_t>(m.current), write, atomic, self.view.clock[m.current]};
    if (same != nullptr) *same = now;
    else seen.push_back(now);
  }
}

bool acquires(int order) {
  return order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME || order == __ATOMIC_ACQ_REL ||
         order == __ATOMIC_SEQ_CST;
}
bool releases(int order) { return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST; }

int effective(int order, const void* place) {
  if (order == __ATOMIC_RELAXED || machine->current == 0) return order;
  machine->ordered.insert(place);
  return place == machine->weakened ? __ATOMIC_RELAXED : order;
}

void put(Location& place, const void* value, int order, const Message* read) {
  Machine& m = *machine;
  Thread& self = m.threads[m.current];
  const unsigned index = index_of(place);
  const auto stamp = static_cast<uint16_t>(place.messages.size());
  self.view.at[index] = stamp;
  Message message{};
  memcpy(message.value, value, place.bytes);
  message.view = releases(order) ? self.view : self.released;
  message.view.at[index] = stamp;
  if (read != nullptr) message.view.join(read->view);  // the release sequence goes on
  self.acquired.at[index] = stamp;
  if (order == __ATOMIC_SEQ_CST) m.serial.at[index] = stamp;
  ++self.view.clock[m.current];  // what comes now has not happened before those who see this message
  place.messages.push_back(message);
  memcpy(reinterpret_cast<void*>(place.begin), value, place.bytes);
}

const Message& get(Location& place, int order, bool latest) {
  Machine& m = *machine;
  Thread& self = m.threads[m.current];
  const unsigned index = index_of(place);
  unsigned oldest = self.view.at[index];
  if (order == __ATOMIC_SEQ_CST) oldest = std::max<unsigned>(oldest, m.serial.at[index]);
  const auto newest = static_cast<unsigned>(place.messages.size() - 1);
  if (latest || m.current == 0) oldest = newest;
  if (self.stale_place == place.begin && self.stale >= kStale) oldest = newest;
  const unsigned seen = newest - pick(newest - oldest + 1);
  self.stale = self.stale_place == place.begin && seen != newest ? self.stale + 1 : seen != newest;
  self.stale_place = place.begin;
  const Message& message = place.messages[seen];
  self.view.at[index] = static_cast<uint16_t>(seen);
  self.acquired.join(message.view);
  self.acquired.at[index] = std::max(self.acquired.at[index], static_cast<uint16_t>(seen));
  if (acquires(order)) self.view.join(message.view);
  return message;
}

Location& atomic_location(uintptr_t address, unsigned bytes) {
  Location* place = find_location(address);
  if (place == nullptr) return make_location(address, bytes);
  if (place->begin != address || place->bytes != bytes) {
    fprintf(stderr, "litmus: one place is accessed with %u and with %u bytes\n", place->bytes, bytes);
    abort();
  }
  return *place;
}

/// Plain stores have no hook behind them: their values are there by the next one.
void flush_pending() {
  Thread& self = machine->threads[machine->current];
  for (const Write write : self.pending) {
    Location* place = find_location(write.begin);
    unsigned char value[16];
    // Other bytes of the place are the newest, not what a load was shown.
    memcpy(value, place->messages.back().value, place->bytes);
    memcpy(value + (write.begin - place->begin), reinterpret_cast<void*>(write.begin), write.bytes);
    put(*place, value, __ATOMIC_RELAXED, nullptr);
  }
  self.pending.clear();
}

/// Each part of a plain access that has a history, or must have one.
template <class Part>
void parts(uintptr_t begin, size_t bytes, const Part& part) {
  const uintptr_t end = begin + bytes;
  while (begin < end) {
    Location* place = find_location(begin);
    if (place != nullptr) {
      const uintptr_t stop = std::min(end, place->begin + place->bytes);
      part(*place, begin, static_cast<unsigned>(stop - begin));
      begin = stop;
      continue;
    }
    uintptr_t stop = std::min(end, (begin | 7) + 1);
    for (uintptr_t byte = begin + 1; byte < stop; ++byte)
      if (find_location(byte) != nullptr || racy_begins(byte)) stop = byte;
    if (is_racy(begin))
      part(make_location(begin, static_cast<unsigned>(stop - begin)), begin, static_cast<unsigned>(stop - begin));
    begin = stop;
  }
}

void plain(uintptr_t begin, size_t bytes, bool write, bool range) {
  if (machine == nullptr || !machine->running || machine->inside) return;
  machine->inside = true;
  Thread& self = machine->threads[machine->current];
  if (write || !range ||
      self.copying != bytes)  // an aggregate's assignment: first its store is announced, then its load
    flush_pending();
  self.copying = write && range ? bytes : 0;
  if (own_stack(begin) || is_unwatched(begin)) {
    machine->inside = false;
    return;
  }
  const bool free = is_racy(begin);
  if (free) schedule(false);
  else check_race(begin, bytes, write, false);
  parts(begin, bytes, [&](Location& place, uintptr_t at, unsigned part) {
    if (write) {
      machine->threads[machine->current].pending.push_back({at, part});
      return;
    }
    const Message& message = get(place, __ATOMIC_RELAXED, false);
    memcpy(reinterpret_cast<void*>(place.begin), message.value, place.bytes);
  });
  machine->inside = false;
}

void fence(int order, const void* caller) {
  if (machine == nullptr || !machine->running || machine->inside) return;
  machine->inside = true;
  flush_pending();
  order = effective(order, caller);
  Thread& self = machine->threads[machine->current];
  if (acquires(order)) self.view.join(self.acquired);
  if (order == __ATOMIC_SEQ_CST) {
    machine->serial.join(self.view);
    self.view.join(machine->serial);
  }
  if (releases(order)) {
    self.released = self.view;
    ++self.view.clock[machine->current];
  }
  machine->inside = false;
}

void run_once(const Program& program) {
  Machine& m = *machine;
  memcpy(&__data_start, m.variables.data(), m.variables.size());
  m.locations.clear();
  m.location_at.clear();
  m.accesses.clear();
  m.regions.clear();
  m.unwatched.clear();
  m.position = m.blocks_used = 0;
  m.preemptions = m.steps = 0;
  m.abandoned = false;
  m.serial = {};
  m.current = 0;
  for (Thread& thread : m.threads) {
    thread.view = thread.acquired = thread.released = {};
    thread.done = thread.yielded = false;
    thread.stale_place = thread.stale = 0;
    thread.pending.clear();
    thread.copying = 0;
  }
  m.running = false;
  program.setup();
  m.running = true;
  m.count = static_cast<unsigned>(program.threads.size());
  for (unsigned i = 1; i <= m.count; ++i) {
    Thread& thread = m.threads[i];
    thread.view.clock[i] = 1;
    thread.body = program.threads[i - 1];
    if (thread.stack == nullptr) thread.stack.reset(new char[kStack]);
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = kStack;
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, thread_main, 0);
  }
  volatile bool entered = false;
  getcontext(&m.scheduler);
  if (!entered) {
    entered = true;
    m.current = 1 + pick(m.count);
    setcontext(&m.threads[m.current].context);
  }
  m.inside = false;
  m.current = 0;
  if (!m.abandoned && program.check) {
    for (unsigned i = 1; i <= m.count; ++i) m.threads[0].view.join(m.threads[i].view);
    for (Location& place : m.locations)
      memcpy(reinterpret_cast<void*>(place.begin), place.messages.back().value, place.bytes);
    program.check();
  }
  m.running = false;
}

void end_thread() {
  Machine& m = *machine;
  flush_pending();
  Thread& self = m.threads[m.current];
  self.done = true;
  unsigned candidates[kThreads], count = 0;
  for (unsigned i = 1; i <= m.count; ++i)
    if (!m.threads[i].done) candidates[count++] = i;
  if (count == 0) leave_execution();
  const unsigned next = candidates[pick(count)];
  m.current = next;
  setcontext(&m.threads[next].context);
  abort();
}

Outcome explore(const Program& program, const Bounds& bounds, const void* weakened) {
  Machine* m = new Machine;
  machine = m;
  m->variables.assign(&__data_start, &_end);
  m->weakened = weakened;
  m->bound = bounds.preemptions;
  Outcome outcome{};
  for (;;) {
    run_once(program);
    ++outcome.executions;
    if (m->failure != nullptr) break;
    m->trail.resize(m->position);
    if (!advance_trail(m->trail)) {
      outcome.complete = true;
      break;
    }
    if (outcome.executions >= bounds.executions) break;
  }
  if (m->failure == nullptr && !outcome.complete) {
    m->at_random = true;
    m->bound = 1000;
    for (uint64_t i = 0; i < bounds.random && m->failure == nullptr; ++i) {
      m->random.seed(i);
      run_once(program);
      ++outcome.executions;
    }
  }
  memcpy(&__data_start, m->variables.data(), m->variables.size());
  outcome.failure = m->failure;
  outcome.ordered.assign(m->ordered.begin(), m->ordered.end());
  for (const Block& block : m->blocks) free(block.begin);
  machine = nullptr;
  delete m;
  return outcome;
}

void expect(bool holds, const char* what) {
  if (!holds) fail(what);
}

void racy(const void* begin, size_t bytes) {
  machine->regions.push_back({reinterpret_cast<uintptr_t>(begin), static_cast<unsigned>(bytes)});
}

void unwatched(const void* begin, size_t bytes) {
  machine->unwatched.push_back({reinterpret_cast<uintptr_t>(begin), static_cast<unsigned>(bytes)});
}

void* memory(size_t bytes) {
  Machine& m = *machine;
  bytes = (bytes + 63) / 64 * 64;
  if (m.blocks_used == m.blocks.size()) m.blocks.push_back({aligned_alloc(64, bytes), bytes});
  Block& block = m.blocks[m.blocks_used++];
  if (block.bytes != bytes) {
    fprintf(stderr, "litmus: the program does not do the same twice (memory)\n");
    abort();
  }
  memset(block.begin, 0, bytes);
  return block.begin;
}

unsigned choose(unsigned count) { return pick(count); }

void abandon() {
  machine->abandoned = true;
  leave_execution();
}

}  // namespace litmus
