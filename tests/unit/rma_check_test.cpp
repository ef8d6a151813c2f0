// SPDX-License-Identifier: Apache-2.0
//
// One-sided checks without MPI: this is rank 0 of two, rank 1 what the test says. Overlaps against a brute-force count.

#include <algorithm>
#include <cstdarg>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "check.h"
#include "checksum/ledger/blame_internal.h"
#include "checksum/rma/rma.h"
#include "checksum/rma/wire.h"
#include "shim/abi/backend.h"
#include "shim/base/digest/digest.h"
#include "shim/call/runtime.h"
#include "shim/model/event.h"
#include "shim/report/finding.h"
#include "shim/report/log.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/tables/tables.h"
#include "shim/tables/type_maps.h"

namespace resil::blame {
void (*looked_at)(const void*, uint32_t);
const char* verdict_text(Verdict verdict) {
  constexpr const char* kTexts[] = {"modified", "early", "other slot", "nothing", "transit", "undetermined"};
  return kTexts[static_cast<int>(verdict)];
}
}  // namespace resil::blame

using namespace resil;
using rma::Header;
using rma::Message;

namespace {

constexpr uint64_t kByte = 7, kColumn = 8, kWindow = 77;
constexpr Run kColumnRun = {0, 8, 4, 32};

ledger::Peer peers[2];
[[maybe_unused]] const int numbered = peers[1].world_rank = 1;
struct Letter {
  Header header;
  std::vector<char> payload;
};
std::deque<Letter> letters;
void (*handler)(Thread&, ledger::Peer&, const void*, size_t);
std::vector<Finding> findings;
std::vector<std::string> notes;
uint64_t checked, mismatches, uncovered[static_cast<unsigned>(ledger::Reason::kCount)];
bool full;  ///< RESIL_BLAME=full
char verdict[64];  ///< of the last finding
bool (*answer)(const Letter&);  // what rank 1 does; true: something arrived
Thread thread;
TypeMap byte_type, column_type;
alignas(64) char window_memory[4096];
rma::Window* window;
int64_t trial_shift;

uint64_t without(ledger::Reason reason) { return uncovered[static_cast<unsigned>(reason)]; }

void arrive(Header header, const std::vector<char>& items = {}) {
  std::vector<char> payload(sizeof(Header) + items.size());
  header.window = window->id;
  header.origin = 1;
  memcpy(payload.data(), &header, sizeof(header));
  std::copy(items.begin(), items.end(), payload.begin() + sizeof(header));
  handler(thread, peers[1], payload.data(), payload.size());
}

rma::Item item_of(const void* data, uint64_t bytes, int64_t displacement, rma::What what = rma::What::kPut) {
  rma::Item item = {};
  item.digest = digest(data, bytes);
  item.bytes = bytes;
  item.displacement = displacement;
  item.count = 1;
  item.high = item.extent = static_cast<int64_t>(bytes);
  item.site = 0x1234;
  item.call = static_cast<uint16_t>(CallId::kMPI_Put);
  item.what = what;
  return item;
}

void arrive_list(const std::vector<rma::Item>& items, uint32_t epoch) {
  std::vector<char> bytes(items.size() * sizeof(rma::Item));
  memcpy(bytes.data(), items.data(), bytes.size());
  arrive({0, epoch, 1, Message::kFenceList, true, false, 0, static_cast<uint32_t>(items.size()), 0}, bytes);
}

/// A rank 1 that does what it should.
bool good_neighbour(const Letter& letter) {
  const Header& h = letter.header;
  if (h.message == Message::kFenceList && h.last) arrive({0, h.epoch, 1, Message::kDigested, false, false, 0, 0, 0});
  else if (h.message == Message::kBarrier) arrive({0, h.epoch, 1, Message::kBarrier, false, false, 0, h.count, 0});
  else if (h.message == Message::kAsk) arrive({0, h.epoch, 1, Message::kAnswer, false, false, 0, h.count, 0});
  else return false;
  return true;
}
double waited;  // seconds that progress_until() was asked to wait for what was not there yet
bool silent_neighbour(const Letter&) { return false; }
/// It gave up waiting for this rank's answer, and went on to change the memory.
bool leaving_neighbour(const Letter& letter) {
  if (letter.header.message == Message::kAsk)
    arrive({0, letter.header.epoch, 1, Message::kAbandon, false, false, 0, 0, 0});
  return letter.header.message == Message::kAsk;
}

Event event(CallId id) {
  Event e;
  memset(static_cast<void*>(&e), 0, sizeof(e));
  e.id = id;
  e.attributes = call_info(id).attributes;
  e.thread = &thread;
  e.object = kWindow;
  return e;
}

void call(CallId id, int assertion = 0) {
  Event e = event(id);
  e.assertion = assertion;
  rma::enter(e);
  rma::leave(e);
}

void put(const void* from, int64_t count, int64_t displacement, int target = 1, uint64_t target_type = kByte,
         int64_t target_count = 0) {
  Event e = event(CallId::kMPI_Put);
  e.peer = target;
  e.send.buffer = from;
  e.send.count = count;
  e.send.type = kByte;
  e.target_displacement = displacement;
  e.target_type = target_type;
  e.target_count = target_count != 0 ? target_count : count;
  e.bytes = static_cast<uint64_t>(count);
  rma::leave(e);
}

int no_window_handle = 0;
WindowInfo described;

void make_window(const void* base) {
  static CommInfo comm;
  static ring::Comm shape;
  shape.id = 99, comm.ring = &shape;
  comm.index = comm.size = 2;
  comm.remote_size = -1;
  comm.world_ranks_are_ranks = true;
  described = {base, static_cast<int64_t>(sizeof(window_memory)), 1, WindowFlavor::kCreate, true};
  Event e = event(CallId::kMPI_Win_create);
  e.comm = &comm, e.receive.buffer = window_memory;
  e.new_window = &no_window_handle;
  rma::enter(e);
  rma::leave(e);
  window = rma::window_find(kWindow);
  REQUIRE(window != nullptr);
}

struct Fixture {
  Fixture() {
    static const bool prepared = rma::prepare();
    REQUIRE(prepared);
    rma::connect();
    answer = good_neighbour;
    letters.clear();
    findings.clear();
    notes.clear();
    checked = mismatches = 0;
    memset(uncovered, 0, sizeof(uncovered));
    for (size_t i = 0; i < sizeof(window_memory); ++i) window_memory[i] = static_cast<char>(i * 31 + i / 256);
    make_window(window_memory);
    call(CallId::kMPI_Win_fence);
    letters.clear();
  }
  ~Fixture() { call(CallId::kMPI_Win_free); }
};

}  // namespace

TEST_CASE("Overlaps are those of a brute-force count") {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    const unsigned items = 1 + random() % 8;
    std::vector<bool> writes(items);
    std::vector<rma::Interval> intervals;
    for (unsigned i = 0; i < items; ++i) {
      writes[i] = random() % 2;
      for (unsigned k = 0; k <= random() % 3; ++k) {
        const auto start = static_cast<int64_t>(random() % 40), bytes = static_cast<int64_t>(1 + random() % 8);
        intervals.push_back({start, start + bytes, i, writes[i]});
      }
    }
    std::vector<bool> expected(items);
    for (const auto& a : intervals)
      for (const auto& b : intervals)
        if (a.item != b.item && (a.writes || b.writes) && a.start < b.end && b.start < a.end) expected[a.item] = true;
    bool found[8] = {};
    rma::mark_overlaps(intervals.data(), intervals.size(), found);
    for (unsigned i = 0; i < items; ++i) REQUIRE(found[i] == expected[i]);
  }
}

TEST_CASE("A fence sends its lists, waits for their targets, and leaves by a barrier") {
  Fixture fixture;
  put("some bytes", 10, 100);
  put("others", 6, 300);
  CHECK(letters.empty());
  call(CallId::kMPI_Win_fence);
  REQUIRE(letters.size() == 2);
  CHECK(letters[0].header.message == Message::kFenceList);
  CHECK(letters[0].header.count == 2);
  CHECK(letters[0].header.last);
  CHECK(letters[1].header.message == Message::kBarrier);
  auto* items = reinterpret_cast<const rma::Item*>(letters[0].payload.data() + sizeof(Header));
  CHECK(items[0].digest == digest("some bytes", 10));
  CHECK(items[1].displacement == 300);
  CHECK(checked == 0);  // that is for the target to say
  CHECK(notes.empty());
}

TEST_CASE("A target compares its memory with the lists") {
  Fixture fixture;
  arrive_list({item_of(window_memory + 100, 50, 100), item_of(window_memory + 200, 8, 200, rma::What::kGet)}, 2);
  call(CallId::kMPI_Win_fence);
  CHECK(checked == 2);
  CHECK(findings.empty());
}

TEST_CASE("A difference is believed when all others are still in the fence") {
  Fixture fixture;
  arrive_list({item_of("not what is there", 17, 100), item_of(window_memory + 400, 8, 400)}, 2);
  call(CallId::kMPI_Win_fence);
  CHECK(checked == 1);
  REQUIRE(findings.size() == 1);
  CHECK(mismatches == 1);
  CHECK(findings[0].kind == std::string("one_sided_corrupted"));
  CHECK(std::string(findings[0].message).find("17 bytes at displacement 100") != std::string::npos);
  CHECK(letters[0].header.message == Message::kAsk);
  CHECK(letters[1].header.message == Message::kDigested);  // only after the answer
}

TEST_CASE("A difference is not believed when another rank gave up and left") {
  Fixture fixture;
  answer = leaving_neighbour;
  arrive_list({item_of("not what is there", 17, 100)}, 2);
  call(CallId::kMPI_Win_fence);
  CHECK(findings.empty());
  CHECK(without(ledger::Reason::kOneSided) == 1);
  answer = silent_neighbour;
  letters.clear();
  call(CallId::kMPI_Win_fence);  // and no fence of that window waits again
  CHECK(letters.empty());
}

TEST_CASE("A rank that does not answer costs one wait, and all others are told") {
  Fixture fixture;
  answer = silent_neighbour;
  put("some bytes", 10, 100);
  call(CallId::kMPI_Win_fence);
  REQUIRE(!letters.empty());
  CHECK(letters.back().header.message == Message::kAbandon);
  CHECK(without(ledger::Reason::kOneSided) == 1);
  CHECK(notes.size() == 1);
  CHECK(findings.empty());
  letters.clear();
  put("some bytes", 10, 100);
  call(CallId::kMPI_Win_fence);
  CHECK(letters.empty());
  CHECK(without(ledger::Reason::kOneSided) == 2);
}

TEST_CASE("Windows whose other ranks never answer cost less and less, and trust comes back") {
  auto fence_of_new_window = [](bool (*neighbour)(const Letter&)) {
    Fixture fixture;
    answer = neighbour, waited = 0;
    put("some bytes", 10, 100);
    call(CallId::kMPI_Win_fence);
    return waited;
  };
  double all = 0;
  for (int i = 0; i < 200; ++i) all += fence_of_new_window(silent_neighbour);
  CHECK(all <= 20);
  for (int i = 0; i < 400; ++i) fence_of_new_window(good_neighbour);
  CHECK(fence_of_new_window(silent_neighbour) == 5);
}

TEST_CASE("What several operations touched is not judged") {
  Fixture fixture;
  rma::Item sum = item_of("", 0, 220, rma::What::kTouch);
  sum.bytes = 4;
  sum.high = sum.extent = 4;
  arrive_list({item_of("wrong", 5, 100), item_of("wrong too", 9, 104), item_of("wrong", 5, 218), sum,
               item_of(window_memory + 300, 4, 300)},
              2);
  put("over 104", 8, 106, 0);  // its own
  call(CallId::kMPI_Win_fence);
  CHECK(findings.empty());
  CHECK(without(ledger::Reason::kOverlapped) == 4);
  CHECK(checked == 1);
}

TEST_CASE("A list whose origin ran out of room makes nobody suspect anything") {
  Fixture fixture;
  std::vector<char> bytes(sizeof(rma::Item));
  const rma::Item item = item_of("wrong", 5, 100);
  memcpy(bytes.data(), &item, bytes.size());
  arrive({0, 2, 1, Message::kFenceList, true, true, 0, 1, 0}, bytes);
  call(CallId::kMPI_Win_fence);
  CHECK(findings.empty());
  CHECK(without(ledger::Reason::kMemory) == 1);
}

TEST_CASE("Derived datatypes at the target: only their bytes count") {
  Fixture fixture;
  char column[64];
  for (int i = 0; i < 8; ++i) memcpy(column + 8 * i, window_memory + 512 + 32 * i, 8);
  put(column, 64, 512, 0, kColumn, 2);
  put(window_memory + 520, 8, 520, 0);  // between two pieces of the column
  call(CallId::kMPI_Win_fence);
  CHECK(checked == 2);
  CHECK(findings.empty());
  column[9] ^= 1;
  put(column, 64, 512, 0, kColumn, 2);
  call(CallId::kMPI_Win_fence);
  REQUIRE(findings.size() == 1);
}

namespace {

struct Full {
  Full() { full = true; }
  ~Full() { full = false; }
};

/// An operation whose origin's data was stable.
rma::Item stable(const void* data, uint64_t bytes, int64_t displacement, rma::What what = rma::What::kPut) {
  rma::Item item = item_of(data, bytes, displacement, what);
  item.at_end = item.digest;
  item.ended = true;
  return item;
}

/// What is said of the only wrong one among these operations.
std::string verdict_of(const std::vector<rma::Item>& items) {
  arrive_list(items, 2);
  call(CallId::kMPI_Win_fence);
  REQUIRE(findings.size() == 1);
  return verdict;
}

const char kData[] = "sixteen bytes of", kOther[] = "bytes of another", kWrong[] = "quite wrong data";

/// What was late comes while the others are asked.
bool late_neighbour(const Letter& letter) {
  if (letter.header.message == Message::kAsk) memcpy(window_memory + 100, kData, 16);
  return good_neighbour(letter);
}

}  // namespace

TEST_CASE("Full blame: nothing written, something wrong, another operation's data, late data, a changed origin") {
  Full on;
  Fixture fixture;
  SECTION("nothing") { CHECK(verdict_of({stable(kData, 16, 100)}) == "nothing"); }
  SECTION("something wrong") {
    memcpy(window_memory + 100, kWrong, 16);
    CHECK(verdict_of({stable(kData, 16, 100)}) == "transit");
  }
  SECTION("another operation's") {
    memcpy(window_memory + 100, kOther, 16);
    memcpy(window_memory + 400, kOther, 16);
    CHECK(verdict_of({stable(kData, 16, 100), stable(kOther, 16, 400)}) == "other slot");
  }
  SECTION("late") {
    answer = late_neighbour;
    CHECK(verdict_of({stable(kData, 16, 100)}) == "early");
  }
  SECTION("changed origin") {
    memcpy(window_memory + 100, kWrong, 16);
    rma::Item item = stable(kData, 16, 100);
    item.at_end = digest(kWrong, 16);
    CHECK(verdict_of({item}) == "modified");
    REQUIRE(findings[0].culprit_count == 1);
    CHECK(findings[0].culprit_ranks[0] == 1);
  }
  SECTION("no copy of an epoch that nobody has closed") {
    window->snapshot_good = false;
    CHECK(verdict_of({stable(kData, 16, 100)}) == "undetermined");
  }
  SECTION("the copy is of the epoch before") {
    memcpy(window_memory + 100, kData, 16);
    arrive_list({stable(kData, 16, 100)}, 2);
    call(CallId::kMPI_Win_fence);
    arrive_list({stable(kOther, 16, 100)}, 3);
    call(CallId::kMPI_Win_fence);
    REQUIRE(findings.size() == 1);
    CHECK(std::string(verdict) == "nothing");
  }
}

TEST_CASE("Full blame: what a get brought") {
  Full on;
  Fixture fixture;
  rma::Item item = stable(kWrong, 16, 100, rma::What::kGet);
  item.has_before = true;
  item.before = digest(kOther, 16);
  SECTION("something wrong") { CHECK(verdict_of({item}) == "transit"); }
  SECTION("nothing") {
    item.before = item.digest;
    CHECK(verdict_of({item}) == "nothing");
  }
  SECTION("late") {
    item.at_end = digest(window_memory + 100, 16);
    CHECK(verdict_of({item}) == "early");
  }
  SECTION("another one's data") {
    memcpy(window_memory + 400, kWrong, 16);
    CHECK(verdict_of({item, stable(kWrong, 16, 400, rma::What::kGet)}) == "other slot");
  }
  SECTION("what was there before is not known") {
    item.has_before = false;
    CHECK(verdict_of({item}) == "undetermined");
  }
}

TEST_CASE("Operations outside of the window are not followed") {
  Fixture fixture;
  arrive_list({item_of("x", 1, 1 << 20), item_of("x", 1, -5)}, 2);
  call(CallId::kMPI_Win_fence);
  CHECK(findings.empty());
  CHECK(checked == 0);
}

TEST_CASE("Under a shared lock nothing is noted; more operations than the list holds are counted") {
  Fixture fixture;
  call(CallId::kMPI_Win_lock_all);
  put("some bytes", 10, 100);
  CHECK(without(ledger::Reason::kPassiveTarget) == 1);
  call(CallId::kMPI_Win_unlock_all);
  for (uint32_t i = 0; i < rma::kMaxOperations + 3; ++i) put("x", 1, i % 4096, 0);
  CHECK(without(ledger::Reason::kMemory) == 3);
  call(CallId::kMPI_Win_fence);
  CHECK(without(ledger::Reason::kMemory) == 3 + rma::kMaxOperations);
  CHECK(findings.empty());
  put(window_memory, 4, 0, 0);
  call(CallId::kMPI_Win_fence);
  CHECK(checked == 1);
}

TEST_CASE("A fence without anything before it does not wait") {
  Fixture fixture;
  answer = silent_neighbour;
  call(CallId::kMPI_Win_fence, 2);
  CHECK(letters.empty());
  CHECK(notes.empty());
}

TEST_CASE("A window whose memory lies elsewhere is found, once, and its users are told") {
  Fixture fixture;
  call(CallId::kMPI_Win_free);
  trial_shift = 0;
  make_window(window_memory - 16);
  CHECK(findings.empty());  // operations land where they should all the same
  CHECK(notes.size() == 1);
  call(CallId::kMPI_Win_free);
}

// What the module has of the ledger and the shim.
namespace resil {

Runtime runtime;

namespace host_memory_detail {
constinit thread_local Range stack __attribute__((tls_model("initial-exec"))) = {};
constinit Range data = {}, heap = {};
bool ask(const void*, size_t) { return true; }
}  // namespace host_memory_detail

const TypeMap* type_map_slow(Thread&, uint64_t type) {
  for (TypeMap* map : {&byte_type, &column_type}) {
    *map = {};
    map->permanent = true;
  }
  byte_type.size = 1;
  byte_type.extent = byte_type.high = 1;
  byte_type.contiguous = true;
  column_type.size = 32;  // four pieces of 8, 32 apart
  column_type.extent = 128;
  column_type.high = 104;
  column_type.run_count = 1;
  column_type.runs = &kColumnRun;
  return type == kByte ? &byte_type : type == kColumn ? &column_type : nullptr;
}
void type_map_hold(const TypeMap*) {}
void type_map_release(const TypeMap*) {}
int comm_world_rank(CommInfo&, int rank) { return rank; }
double config_real(const char*) { return 5; }
void add_note(const char* text) { notes.push_back(text); }
void add_note_format(const char* format, ...) { notes.push_back(format); }
void stop_job(int) { std::abort(); }

void Finding::start(const char* of_kind, Confidence how_sure) {
  kind = of_kind;
  confidence = how_sure;
  culprit_count = victim_count = evidence_count = 0;
  to_do_text[0] = 0;
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
  if (std::string(name) == "verdict") {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict, sizeof(verdict), format, arguments);
    va_end(arguments);
  }
  ++evidence_count;
}
unsigned finding_publish(const Finding& finding) {
  CHECK(finding.to_do_text[0] != 0);
  findings.push_back(finding);
  return static_cast<unsigned>(findings.size());
}

namespace {
uint64_t handle_at(const void*) { return kWindow; }
bool describe(uint64_t, WindowInfo* info) {
  *info = described;
  return true;
}
bool no_precede(int assertion) { return assertion == 2; }
bool no_succeed(int) { return false; }
bool no_check(int) { return false; }
bool exclusive(int) { return false; }
bool get(uint64_t, int, int64_t, void*, size_t) { return false; }
bool flush(uint64_t, int) { return true; }
bool lands_off(size_t, int64_t shift) { return shift == trial_shift; }
const WindowFunctions window_functions = {handle_at, handle_at, describe, no_precede, no_succeed, no_check,
                                          exclusive, get,       flush,    lands_off,  false};
Backend table() {
  Backend made = {};
  made.windows = &window_functions;
  return made;
}
const Backend fake_backend = table();
}  // namespace
const Backend* backend = &fake_backend;

namespace ledger {
bool connected() { return true; }
bool concurrent() { return false; }
bool full_blame() { return full; }
bool abort_wanted() { return false; }
Peer* peer_of(int rank) { return &peers[rank]; }
const char* host_of(const Peer&) { return "node1"; }
void count_checked(uint64_t messages, uint64_t) { checked += messages; }
void count_uncovered(Reason reason, uint64_t messages, uint64_t) {
  uncovered[static_cast<unsigned>(reason)] += messages;
}
void count_mismatch() { ++mismatches; }
void handle_kind(Kind, void (*of)(Thread&, Peer&, const void*, size_t)) { handler = of; }
bool post(Thread&, Peer& to, Kind, const void* payload, size_t bytes) {
  REQUIRE(to.world_rank == 1);
  REQUIRE(bytes <= kMessageBytes);
  Letter letter;
  memcpy(&letter.header, payload, sizeof(Header));
  letter.payload.assign(static_cast<const char*>(payload), static_cast<const char*>(payload) + bytes);
  letters.push_back(letter);
  return true;
}
void progress(Thread&) {}
/// Rank 1 answers what has been letters, letter by letter; when it has nothing more to say, time is over.
bool progress_until(Thread&, double seconds, bool (*done)(void*), void* argument) {
  if (!done(argument)) waited += seconds;
  for (size_t next = 0; !done(argument);) {
    bool arrived = false;
    while (next < letters.size() && !arrived) arrived = answer(Letter(letters[next++]));
    if (!arrived && !done(argument)) return false;
  }
  return true;
}
}  // namespace ledger
}  // namespace resil
