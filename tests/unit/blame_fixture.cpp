// SPDX-License-Identifier: Apache-2.0
//
// See blame_fixture.h.
#include "blame_fixture.h"

#include <cstdarg>

namespace fake {

Peer peers[4];
std::deque<Letter> letters;
std::vector<Finding> findings;
std::vector<Returned> returned;
std::vector<void (*)()> coming;
uint32_t takes;
void (*handlers[16])(Thread&, Peer&, const void*, size_t);
bool is_full, is_concurrent, wants_abort, has_room, answers;
uint64_t checked;
double drain_seconds;
Thread thread_state;
TypeMap bytes_type, strided_type;

namespace {

constexpr Run kBytes = {0, 1, 1, 0}, kStrided = {0, 8, 1, 0};

void describe(TypeMap& map, uint64_t size, int64_t extent, bool contiguous, const Run& run) {
  map = {};
  map.size = size;
  map.extent = extent;
  map.high = static_cast<int64_t>(size);
  map.contiguous = contiguous;
  map.permanent = true;
  map.run_count = 1;
  map.runs = &run;
}

blame::History histories[4];

}  // namespace

void be_rank(int rank) {
  histories[runtime.rank] = blame::history;
  blame::history = histories[rank];
  runtime.rank = rank;
  static ring::Header header = {};
  runtime.header = &header;
  snprintf(runtime.host, sizeof(runtime.host), "node%d", rank);
}

void reset(bool full, bool concurrent) {
  is_full = full;
  is_concurrent = concurrent;
  wants_abort = false;
  has_room = answers = true;
  drain_seconds = 5;
  checked = 0;
  ledger::coverage = {};
  letters.clear();
  coming.clear();
  takes = 0;
  findings.clear();
  returned.clear();
  for (int i = 0; i < 4; ++i) {
    peers[i] = {};
    peers[i].world_rank = i;
    snprintf(peers[i].host, sizeof(peers[i].host), "node%d", i);
  }
  describe(bytes_type, 1, 1, true, kBytes);
  describe(strided_type, 8, 24, false, kStrided);
  be_rank(1);
  blame::mode = {full, concurrent};
  for (int rank : {0, 1}) {
    be_rank(rank);
    REQUIRE(blame::history_create());
  }
}

void deliver() {
  while (!letters.empty()) {
    Letter letter = letters.front();
    letters.pop_front();
    if (!answers && letter.kind == ledger::Kind::kQuery) continue;
    be_rank(letter.to);
    handlers[static_cast<int>(letter.kind)](thread_state, peers[letter.from], letter.payload.data(),
                                            letter.payload.size());
  }
  be_rank(1);
}

}  // namespace fake

// What the library has of the ledger and the shim.
namespace resil {

Runtime runtime;

double config_real(const char*) { return fake::drain_seconds; }

void Finding::start(const char* of_kind, Confidence how_sure) {
  kind = of_kind;
  confidence = how_sure;
  culprit_count = victim_count = evidence_count = 0;
  message[0] = to_do_text[0] = 0;
}
void Finding::culprit(int rank) { culprit_ranks[culprit_count++] = rank; }
void Finding::victim(int rank) { victim_ranks[victim_count++] = rank; }
void Finding::say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  CHECK(vsnprintf(message, sizeof(message), format, arguments) < static_cast<int>(sizeof(message)));
  va_end(arguments);
}
void Finding::to_do(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  CHECK(vsnprintf(to_do_text, sizeof(to_do_text), format, arguments) < static_cast<int>(sizeof(to_do_text)));
  va_end(arguments);
}
void Finding::add(const char* name, const char* format, ...) {
  REQUIRE(evidence_count < sizeof(evidence) / sizeof(evidence[0]));
  snprintf(evidence[evidence_count].name, sizeof(evidence[0].name), "%s", name);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(evidence[evidence_count++].value, sizeof(evidence[0].value), format, arguments);
  va_end(arguments);
}
unsigned finding_publish(const Finding& finding) {
  CHECK(finding.to_do_text[0] != 0);
  fake::findings.push_back(finding);
  return static_cast<unsigned>(fake::findings.size());
}
void type_map_hold(const TypeMap*) {}
void type_map_release(const TypeMap*) {}
void stop_job(int exit_status) { throw fake::Stopped{exit_status}; }

namespace ledger {

Coverage coverage;

bool full_blame() { return fake::is_full; }
bool concurrent() { return fake::is_concurrent; }
bool abort_wanted() { return fake::wants_abort; }
int world_rank_of(const Peer& peer) { return peer.world_rank; }
const char* host_of(const Peer& peer) { return peer.host; }
uint64_t checked_messages() { return fake::checked; }
void count_mismatch() { ++coverage.mismatches; }
void count_checked(uint64_t messages, uint64_t) { fake::checked += messages; }
void count_uncovered(Reason, uint64_t, uint64_t) {}
void put_back(Thread&, Peer&, const Record& record, uint64_t evidence) { fake::returned.push_back({record, evidence}); }
void take_come(Thread&, bool) {
  ++fake::takes;
  if (fake::coming.empty()) return;
  void (*const come)() = fake::coming.front();
  fake::coming.erase(fake::coming.begin());
  come();
}
void handle_kind(Kind kind, void (*handler)(Thread&, Peer&, const void*, size_t)) {
  fake::handlers[static_cast<int>(kind)] = handler;
}
bool post(Thread&, Peer& to, Kind kind, const void* payload, size_t bytes) {
  CHECK(bytes <= kMessageBytes);
  if (!fake::has_room) return false;
  fake::letters.push_back({runtime.rank, to.world_rank, kind, std::string(static_cast<const char*>(payload), bytes)});
  return true;
}

bool progress_until(Thread& thread, double seconds, bool (*done)(void*), void* argument) {
  const double until = monotonic_seconds() + seconds;
  do {
    fake::deliver();
    blame::progress(thread);
    if (done(argument)) return true;
  } while (monotonic_seconds() < until);
  return false;
}

}  // namespace ledger
}  // namespace resil
