// SPDX-License-Identifier: Apache-2.0
//
// Tables that several threads of a rank search and fill at once, and that other processes read.
#include <cstring>

#include "detectors/hang/mismatch/read.h"
#include "detectors/hang/slots/envelopes.h"
#include "shim/call/runtime.h"
#include "shim/tables/request_overflow.h"
#include "shim/tables/tables.h"
#include "tests/litmus/programs.h"

namespace litmus {
namespace {

using namespace resil;

// --- collectives of a communicator, read by another process ---

hang::CollectiveHistory history;

void begin_history(uint64_t calls) {
  memset(&history, 0, sizeof history);
  hang::history_begin(history, 9, 2, 0);
  for (uint64_t n = 1; n <= calls; ++n) hang::history_add(history, n, n * 1000 + 1);
}

uint64_t hash_after(uint64_t calls) {
  uint64_t rolling = 0;
  for (uint64_t n = 1; n <= calls; ++n) rolling = hang::roll(rolling, n * 1000 + 1);
  return rolling;
}

void read_points() {
  hang::HistoryRead read;
  const hang::ReadResult result = hang::read_history(history, &read);
  LITMUS_EXPECT(result != hang::ReadResult::kBroken);
  if (result != hang::ReadResult::kRead || read.comm != 9) return;
  for (uint32_t i = 0; i < read.count; ++i) {
    LITMUS_EXPECT(read.points[i].rolling == hash_after(read.points[i].n));
    LITMUS_EXPECT(read.points[i].signature == 0 || read.points[i].signature == read.points[i].n * 1000 + 1);
  }
}

// --- envelopes ---

hang::Section* section;

void begin_envelopes() {
  section = zeroed<hang::Section>();
  hang::envelopes_prepare(*section);
}

void count_message(uint64_t comm, int32_t peer, int32_t tag) {
  hang::Envelope* envelope = hang::envelope_of(comm, peer, tag);
  LITMUS_EXPECT(envelope != nullptr);
  LITMUS_EXPECT(envelope->peer == peer && envelope->tag == tag);
  hang::count_one(envelope->sent);
}

uint64_t counted(uint64_t comm, int32_t peer, int32_t tag) {
  uint64_t sum = 0;
  for (const hang::Envelope& envelope : section->envelopes)
    if (envelope.comm == comm && envelope.peer == peer && envelope.tag == tag) sum += envelope.sent;
  return sum;
}

// --- second level of the request table ---

constexpr uint64_t kKey = 0x1000;
uint64_t handed_on;  // the program's own way of telling another thread of a request
unsigned completions;

void begin_requests() {
  overflow_reset();
  OverflowEntry* warm = overflow_claim(77, false);  // maps the table, which a program cannot see undone
  const OverflowState state = {1, 1, 0, 0};
  warm->state = state.word();
  uint64_t cookies[kRequestWords];
  overflow_release(warm, 77, state, false, cookies);
  __atomic_store_n(&handed_on, 0, __ATOMIC_RELAXED);
  completions = 0;
}

void start_request(uint64_t key, uint32_t trace, uint32_t serial) {
  OverflowEntry* entry = overflow_claim(key, true);
  LITMUS_EXPECT(entry != nullptr);
  for (unsigned i = 0; i < kRequestWords; ++i) entry->cookies[i] = key + serial;
  const OverflowState state = {serial, trace, 0, 0};
  __atomic_store_n(&entry->state, state.word(), __ATOMIC_RELEASE);
}

/// The thread knows the request: it must be found, with its own words.
void complete_request(uint64_t key, uint32_t trace, uint64_t words, uint32_t entered) {
  for (;;) {
    OverflowState state;
    OverflowEntry* entry = overflow_find(key, {trace, entered, true}, true, &state);
    LITMUS_EXPECT(entry != nullptr);
    uint64_t cookies[kRequestWords];
    if (!overflow_release(entry, key, state, true, cookies)) continue;
    for (unsigned i = 0; i < kRequestWords; ++i) LITMUS_EXPECT(cookies[i] == words);
    return;
  }
}

}  // namespace

std::vector<Program> table_programs() {
  return {
      {"history: call number 17 while it is read",
       "collectives of a communicator",
       [] { begin_history(16); },
       {[] { hang::history_add(history, 17, 17001); }, read_points},
       {},
       1,
       {1000, 300, 3}},
      {"history: begun anew",
       "collectives of a communicator",
       [] { begin_history(2); },
       {[] {
          hang::history_begin(history, 10, 2, 0);
          hang::history_add(history, 1, 777);
        },
        read_points},
       {},
       8,
       {1000, 300, 3}},
      {"envelopes: two threads count one",
       "envelopes",
       begin_envelopes,
       {[] { count_message(100, 1, 5); }, [] { count_message(100, 1, 5); }},
       [] { LITMUS_EXPECT(counted(100, 1, 5) == 2); },
       5,
       {4000, 1000, 3}},
      {"envelopes: two threads, two tags",
       "envelopes",
       begin_envelopes,
       {[] {
          count_message(100, 1, 5);
          count_message(100, 1, 6);
        },
        [] { count_message(100, 1, 6); }},
       [] { LITMUS_EXPECT(counted(100, 1, 5) == 1 && counted(100, 1, 6) == 2); },
       4,
       {2000, 500, 3}},
      {"requests: completed by another thread",
       "request table",
       begin_requests,
       {[] {
          start_request(kKey, 1, 1);
          __atomic_store_n(&handed_on, 1, __ATOMIC_RELEASE);
        },
        [] {
          if (__atomic_load_n(&handed_on, __ATOMIC_ACQUIRE) == 1) complete_request(kKey, 2, kKey + 1, 2);
        }},
       {},
       2},
      {"requests: a handle is given again before its end was seen",
       "request table",
       [] {
         begin_requests();
         start_request(kKey, 1, 1);
       },
       {[] {
          __atomic_store_n(&handed_on, 1, __ATOMIC_RELEASE);
          complete_request(kKey, 1, kKey + 1, 2);
        },
        [] {
          if (__atomic_load_n(&handed_on, __ATOMIC_ACQUIRE) == 1) {
            start_request(kKey, 2, 3);
            complete_request(kKey, 2, kKey + 3, 4);
          }
        }},
       {},
       2,
       {4000, 1000, 3}},
  };
}

}  // namespace litmus
