// SPDX-License-Identifier: Apache-2.0
//
// Blame: cases, their questions and answers, bounds, rates, threads. The verdicts are in blame_verdict_test.cpp.
#include "blame_fixture.h"

#include <unistd.h>

#include <memory>
#include <thread>
#include <tuple>

#include "shim/report/json.h"
#include "shim/runtime/looked_at.h"

using namespace fake;

TEST_CASE("blame: a withdrawn packet is no mismatch") {
  Job job(false);
  const Job::Sent s = job.send(data(1), CallId::kMPI_Isend);
  Job::withdraw(s);
  Job::open(s, {{99, 5, 512, 0x2000, 7, 0, 0, 0}, 77});
  Job::run();
  CHECK(findings.empty());
  CHECK(ledger::coverage.mismatches == 0);
  REQUIRE(returned.size() == 1);
  CHECK(returned[0].record.digest == 5);
  CHECK(returned[0].evidence == 77);
}

TEST_CASE("blame: the packets behind a withdrawn one move up") {
  Job job(false);
  const Job::Sent a = job.send(data(1), CallId::kMPI_Isend), b = job.send(data(2)), c = job.send(data(3));
  Job::withdraw(a);
  auto record = [](unsigned seed) { return Record{99, digest(data(seed).data(), 512), 512, 0x2000, 7, 0, 0, 0}; };
  // The receiver got 2, something that was never sent, and 4; it took them for 1, 2 and 3.
  Job::open(b, {record(1234), 0});
  Job::open(c, {record(4), 0});
  Job::open(a, {record(2), 0});
  Job::run();
  REQUIRE(findings.size() == 1);
  CHECK(contains(evidence(findings[0], "packet"), "number 2 of rank 0"));
  CHECK(checked == 1);
  REQUIRE(returned.size() == 1);
  CHECK(returned[0].record.digest == record(4).digest);
}

TEST_CASE("blame: a withdrawn packet that equals the next ones is no mismatch either, once") {
  auto record = [](unsigned seed) { return Record{99, digest(data(seed).data(), 512), 512, 0x2000, 7, 0, 0, 0}; };
  for (bool told_late : {false, true}) {
    Job job(false);
    const Job::Sent withdrawn = job.send(data(1), CallId::kMPI_Isend);
    job.send(data(1));
    const Job::Sent third = job.send(data(1));
    job.send(data(2));
    Record taken;
    be_rank(0);
    REQUIRE(blame::cancel_begin(withdrawn.handle));
    be_rank(1);
    auto end = [&] {
      be_rank(0);
      CHECK(blame::cancel_end(withdrawn.handle, blame::CancelEnd::kWithdrawn, &taken) == 1);
      be_rank(1);
    };
    if (!told_late) end();
    // The second was taken for the first, the third for the second; then the fourth arrived.
    Job::open(third, {record(2), 5});
    blame::progress(thread_state);
    deliver();
    blame::progress(thread_state);
    if (told_late) {
      CHECK(blame::open_cases() == 1);
      end();
    }
    Job::run();
    CHECK(findings.empty());
    REQUIRE(returned.size() == 1);
    CHECK(returned[0].record.digest == record(2).digest);
    CHECK(returned[0].evidence == 5);
    CHECK(taken.digest == record(1).digest);
    // One withdrawn packet explains one packet too few.
    const Job::Sent fifth = job.send(data(1));
    Job::open(fifth, {record(77), 0});
    Job::run();
    CHECK(findings.size() == 1);
    CHECK(blame::cancel_end(withdrawn.handle, blame::CancelEnd::kWithdrawn, &taken) == -1);
  }
}

TEST_CASE("blame: a cancelled send that was sent all the same, or whose end nobody is told") {
  auto record = [](unsigned seed) { return Record{99, digest(data(seed).data(), 512), 512, 0x2000, 7, 0, 0, 0}; };
  for (const auto& [end, arrived, no_mismatch] :
       {std::tuple{blame::CancelEnd::kSent, 2u, false}, std::tuple{blame::CancelEnd::kUnknown, 2u, true},
        std::tuple{blame::CancelEnd::kUnknown, 77u, false}}) {
    Job job(false);
    const Job::Sent cancelled = job.send(data(1), CallId::kMPI_Isend), next = job.send(data(1));
    job.send(data(9), CallId::kMPI_Send, 1, 8);  // another matching queue
    job.send(data(2));
    Record taken;
    be_rank(0);
    REQUIRE(blame::cancel_begin(cancelled.handle));
    CHECK(blame::cancel_end(cancelled.handle, end, &taken) == -1);
    be_rank(1);
    Job::open(next, {record(arrived), 0});
    Job::run();
    CHECK(findings.size() == (no_mismatch ? 0 : 1));
    CHECK(returned.size() == (no_mismatch ? 1 : 0));
  }
  Job job(false);
  CHECK_FALSE(blame::cancel_begin(job.send(data(1)).handle + 1));  // never announced
}

TEST_CASE("blame: holes of a datatype are no data") {
  Job job(true);
  std::string source(24 * 100, 'a'), target(24 * 100, 'b');
  const std::string payload = data(1, 800);
  for (size_t i = 0; i < 100; ++i) {
    memcpy(&source[24 * i], &payload[8 * i], 8);
    memcpy(&target[24 * i], &payload[8 * i], 8);
  }
  auto strided = [](const std::string& s) { return View{s.data(), 100, &strided_type, 800, ledger::Reason::kNone}; };
  const Job::Sent s = job.send(strided(source), CallId::kMPI_Isend, 1, 7, false);
  source[12] = 'x';  // a hole: the program may write there
  Job::complete(s, strided(source));
  target[24 * 50] = static_cast<char>(target[24 * 50] + 1);
  const uint64_t posted = blame::receive_posted(strided(target));
  target[24 * 50] = static_cast<char>(target[24 * 50] + 1);
  target[13] = 'y';
  Job::open(s, Job::received(strided(target), posted, 800, view_digest(strided(target), 800)));
  Job::run();
  CHECK(verdict(Job::only()) == "transit or staging");
  CHECK(evidence(findings[0], "first_difference") == "byte 400 of 800");
}

TEST_CASE("blame: padding of long doubles is no data") {
  Job job(true);
  TypeMap padded = bytes_type;
  const Run run = {0, 16, 1, 0};
  padded.size = 16, padded.extent = padded.high = 16;
  padded.contiguous = false;
  padded.padded = true;
  padded.runs = &run;
  auto doubles = [&](const std::string& s) { return View{s.data(), 300, &padded, 4800, ledger::Reason::kNone}; };
  const std::string source = data(1, 4800);
  std::string target = source;
  for (size_t i = 10; i < 4800; i += 16) target[i] = 'x';
  const uint64_t posted = blame::receive_posted(doubles(data(2, 4800)));
  target[4100] = static_cast<char>(target[4100] ^ 1);
  Job::open(job.send(doubles(source)),
            Job::received(doubles(target), posted, 4800, view_digest(doubles(target), 4800)));
  Job::run();
  CHECK(evidence(Job::only(), "first_difference") == "byte 4100 of 4800");
  CHECK(evidence(findings[0], "differing") ==
        "1 byte, 1 bit, from byte 4100 to 4100, in the first 4 KiB that differ, from byte 4096 on");
  CHECK(contains(evidence(findings[0], "differing_pieces"), "1 of the 2 pieces of 4 KiB"));
  std::string first = source;
  first[16] = static_cast<char>(first[16] ^ 1);
  first[26] = 'y';
  Job::open(job.send(doubles(source)), Job::received(doubles(first), 0, 4800, view_digest(doubles(first), 4800)));
  Job::run();
  CHECK(contains(evidence(findings[1], "differing"), "1 byte, 1 bit, from byte 16 to 16"));
}

TEST_CASE("blame: evidence slots are bounded, given back, and old handles mean nothing") {
  Job job(true);
  const std::string buffer = data(1, 16);
  const View v = view(buffer.data(), buffer.size());
  std::vector<uint64_t> posted;
  for (uint32_t i = 0; i < blame::kSlots; ++i) posted.push_back(blame::receive_posted(v));
  CHECK(posted.back() != 0);
  CHECK(blame::receive_posted(v) == 0);
  CHECK(blame::receive_complete(0, v, 16, 5) == 0);
  blame::drop(posted[10]);
  blame::drop(posted[10]);
  blame::drop_posted(0);
  const uint64_t again = blame::receive_posted(v);
  CHECK(again != 0);
  CHECK(again != posted[10]);
  CHECK(blame::receive_posted(v) == 0);
  blame::drop(posted[10]);
  CHECK(blame::receive_posted(v) == 0);
  CHECK(blame::receive_posted({nullptr, 0, nullptr, 0, ledger::Reason::kDeviceBuffer}) == 0);
}

TEST_CASE("blame: cheap keeps nothing of receives") {
  Job job(false);
  const std::string buffer = data(1, 16);
  CHECK(blame::receive_posted(view(buffer.data(), 16)) == 0);
  CHECK(blame::receive_complete(0, view(buffer.data(), 16), 16, 5) == 0);
}

TEST_CASE("blame: copies that have been overwritten are not used") {
  Job job(true);
  const Job::Sent s = job.send(data(1, 4096));
  for (int i = 0; i < 4200; ++i)  // 4 KiB each: once round the store, but not round the history
    job.send(data(2, 4096));
  Job::open(s, Job::receive(data(9, 4096), data(3, 4096)));
  Job::run();
  CHECK(verdict(Job::only()) == "transit or staging");
  CHECK(evidence(findings[0], "first_difference") == "(none)");
}

TEST_CASE("blame: more cases than are kept open are published at once") {
  Job job(false);
  answers = false;
  checked = 1'000'000;
  std::vector<Job::Sent> sent;
  for (uint32_t i = 0; i < blame::kCases + 3; ++i) sent.push_back(job.send(data(i)));
  for (const auto& s : sent) Job::open(s, {{99, 5, 512, 0x2000, 7, 0, 0, 0}, 0});
  CHECK(findings.size() == 3);
  CHECK(verdict(findings[0]) == "undetermined");
  CHECK(blame::open_cases() == blame::kCases);
  drain_seconds = 0;
  Job::run();
  CHECK(blame::open_cases() == 0);
  CHECK(ledger::coverage.mismatches == blame::kCases + 3);
}

TEST_CASE("blame: no room for a question or an answer: later") {
  Job job(false);
  Job::open(job.send(data(1)), {{99, 5, 512, 0x2000, 7, 0, 0, 0}, 0});
  has_room = false;
  blame::progress(thread_state);
  CHECK(letters.empty());
  has_room = true;
  while (letters.empty()) blame::progress(thread_state);
  has_room = false;
  deliver();
  CHECK(letters.empty());
  CHECK(blame::open_cases() == 1);
  has_room = true;
  be_rank(0);
  blame::progress(thread_state);  // rank 0 owes an answer
  be_rank(1);
  REQUIRE(letters.size() == 1);
  CHECK(letters[0].kind == ledger::Kind::kAnswer);
  Job::run();
  CHECK(findings.size() == 1);
}

TEST_CASE("blame: an answer that found no room goes out with the next question") {
  Job job(false);
  Job::open(job.send(data(1)), {{99, 5, 512, 0x2000, 7, 0, 0, 0}, 0});
  blame::progress(thread_state);
  has_room = false;
  deliver();
  has_room = true;
  const Job::Sent s = job.send(data(2));
  const blame::Query query = {12345, s.ordinal, s.record, s.record, 0, 0};
  be_rank(0);
  handlers[static_cast<int>(ledger::Kind::kQuery)](thread_state, peers[1], &query, sizeof(query));
  be_rank(1);
  CHECK(letters.size() == 2);
  deliver();
  blame::progress(thread_state);
  CHECK(findings.size() == 1);
}

TEST_CASE("blame: ordinals of concurrent senders may be off, those of others may not") {
  Job job(false, GENERATE(true, false));
  Job::Sent s = job.send(data(1));
  s.ordinal += 2;
  Job::open(s, {{99, 5, 512, 0x2000, 7, 0, 0, 0}, 0});
  Job::run();
  CHECK(contains(Job::only().message, "no longer knows the message") == !is_concurrent);
}

TEST_CASE("blame: messages that make no sense are ignored") {
  Job job(true);
  Job::open(job.send(data(1)), Job::receive(data(9), data(3)));
  blame::progress(thread_state);
  REQUIRE(letters.size() == 1);
  const auto query = handlers[static_cast<int>(ledger::Kind::kQuery)],
             answer = handlers[static_cast<int>(ledger::Kind::kAnswer)];
  query(thread_state, peers[1], letters[0].payload.data(), letters[0].payload.size() - 1);
  CHECK(letters.size() == 1);
  deliver();
  blame::Answer wrong = {};
  std::string text(reinterpret_cast<const char*>(&wrong), sizeof(wrong));
  answer(thread_state, peers[0], text.data(), text.size());  // no such case
  answer(thread_state, peers[0], text.data(), text.size() - 8);  // short
  wrong.leaf_count = 60000;
  text.assign(reinterpret_cast<const char*>(&wrong), sizeof(wrong));
  answer(thread_state, peers[0], text.data(), text.size());
  Job::run();
  CHECK(verdict(Job::only()) == "transit or staging");
}

TEST_CASE("blame: an answer from another rank than the one that was asked is ignored") {
  Job job(true);
  Job::open(job.send(data(1)), Job::receive(data(9), data(3)));
  blame::progress(thread_state);
  Letter letter = letters[0];
  letters.clear();
  be_rank(2);
  handlers[static_cast<int>(ledger::Kind::kQuery)](thread_state, peers[1], letter.payload.data(),
                                                   letter.payload.size());
  be_rank(1);
  deliver();
  blame::progress(thread_state);
  CHECK(findings.empty());
}

TEST_CASE("blame: messages to the rank itself need no private communicator") {
  Job job(true);
  has_room = false;
  const std::string text = data(1);
  Job::Sent s = job.send(text);
  s.handle = blame::sent(1, s.ordinal, s.record, view(text.data(), text.size()));
  blame::sent_complete(s.handle, view(text.data(), text.size()));
  Job::open(s, Job::receive(data(9), data(3)), 1);
  Job::run();
  CHECK(verdict(Job::only()) == "transit or staging");
}

TEST_CASE("blame: abort stops the job once the open cases are published, log goes on") {
  Job job(true);
  wants_abort = true;
  checked = 1'000'000;
  for (unsigned i = 1; i <= 3; ++i) Job::open(job.send(data(i)), Job::receive(data(9), data(50 + i)));
  int status = 0;
  try {
    Job::run();
  } catch (const Stopped& stopped) { status = stopped.status; }
  CHECK(status == 90);
  CHECK(findings.size() == 3);
  Job logging(true);
  Job::open(logging.send(data(1)), Job::receive(data(9), data(3)));
  Job::run();
  CHECK(findings.size() == 1);
}

TEST_CASE("blame: abort waits a little for cases whose answers are under way") {
  Job job(true);
  wants_abort = true;
  Job::open(job.send(data(1)), Job::receive(data(9), data(3)));
  blame::progress(thread_state);
  deliver();
  const Job::Sent late = job.send(data(2), CallId::kMPI_Isend, 1, 7, false);
  Job::open(late, Job::receive(data(9), data(4)));
  CHECK_NOTHROW(blame::progress(thread_state));
  CHECK(findings.size() == 1);
  CHECK_THROWS_AS(Job::run(), Stopped);
}

TEST_CASE("blame: three wrong packets of a thousand are systemic, one is not, nor are those of the program") {
  auto transit = [](Job& job, unsigned seed) { full_verdict(job, data(seed), data(seed + 1000)); };
  auto systemic = [] {
    for (const auto& f : findings)
      if (std::string(f.kind) == "systemic") return true;
    return false;
  };
  Job job(true);
  checked = 2000;
  transit(job, 1);
  transit(job, 2);
  CHECK_FALSE(systemic());
  transit(job, 3);
  CHECK(systemic());
  CHECK(findings.size() == 4);
  CHECK(findings[3].confidence == Confidence::kVerified);
  CHECK(evidence(findings[3], "path_1") == "node0 -> node1: 3");
  CHECK(evidence(findings[3], "packets") == "3 wrong of 2003");
  transit(job, 4);
  CHECK(findings.size() == 5);  // said once

  Job rare(true);
  checked = 1'000'000;
  for (unsigned i = 0; i < 10; ++i) transit(rare, i);
  CHECK_FALSE(systemic());

  Job own(true);
  for (unsigned i = 0; i < 5; ++i) {
    std::string buffer = data(i);
    const Job::Sent s = own.send(view(buffer.data(), 512), CallId::kMPI_Isend, 1, 7, false);
    buffer[0] = 'x';
    Job::complete(s, view(buffer.data(), 512));
    Job::open(s, Job::receive(data(9), buffer));
    Job::run();
  }
  CHECK_FALSE(systemic());

  // A matching queue that lost one packet: everything behind it is wrong, and it is one event.
  Job lost(true);
  std::vector<Job::Sent> sent;
  for (unsigned i = 0; i < 6; ++i) sent.push_back(lost.send(data(i)));
  for (unsigned i = 0; i < 5; ++i) Job::open(sent[i], Job::receive(data(99), data(i + 1)));
  Job::run();
  CHECK(findings.size() == 5);
  CHECK_FALSE(systemic());
}

TEST_CASE("blame: steps count when the program names them") {
  static ring::TraceBuffer match_queue;
  Job job(true);
  checked = 1'000'000;
  runtime.traces = &match_queue;
  runtime.trace_count = 1;
  match_queue.step = 100;
  for (unsigned i = 1; i <= 3; ++i) full_verdict(job, data(i), data(i + 1000));
  runtime.traces = nullptr;
  runtime.trace_count = 0;
  REQUIRE(findings.size() == 4);
  CHECK(std::string(findings[3].kind) == "systemic");
  CHECK(evidence(findings[3], "steps") == "100");
}

TEST_CASE("blame: communicators and call sites by name") {
  static ring::Comm comm = {};
  static ring::Module module = {};
  comm.id = 99;
  snprintf(comm.name, sizeof(comm.name), "MPI_COMM_WORLD");
  module.start = 0x1000, module.end = 0x3000, module.base = 0x800;
  snprintf(module.path, sizeof(module.path), "/usr/bin/solver");
  Job job(true);
  runtime.comms = &comm;
  runtime.modules = &module;
  runtime.comm_count = runtime.module_count = 1;
  full_verdict(job, data(1), data(2));
  runtime.comm_count = runtime.module_count = 0;
  const Finding& f = Job::only();
  CHECK(contains(f.message, "tag 7 on MPI_COMM_WORLD"));
  CHECK(evidence(f, "sender_site") == "solver+0x800");
  CHECK(evidence(f, "receiver_site") == "solver+0x1800");
}

TEST_CASE("blame: the report counts verdicts") {
  Job job(true);
  checked = 998;
  full_verdict(job, data(1), data(2));
  std::string text(4096, 0);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  static JsonWriter json;
  json.restart(ends[1], true);
  json.begin_object();
  blame::report(json);
  json.end_object();
  REQUIRE(json.finish());
  text.resize(static_cast<size_t>(read(ends[0], text.data(), text.size())));
  close(ends[0]);
  close(ends[1]);
  CHECK(contains(text, "\"mismatches\": 1"));
  CHECK(contains(text, "\"transit_or_staging\": 1"));
  CHECK(contains(text, "\"packet_of_another_slot\": 0"));
  CHECK(contains(text, "\"systemic\": false"));
}

TEST_CASE("blame: several threads announce, complete, receive and ask at the same time", "[threads]") {
  Job job(true, true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (uint64_t i = 0; i < 3000; ++i) {
        const uint32_t bytes = i % 50 == 0 ? 20000 : 64;  // the former are kept in two stores
        const std::string text = data(static_cast<unsigned>(t * 10000 + static_cast<int>(i)), bytes);
        const View v = view(text.data(), bytes);
        Record record = {99, digest(text.data(), bytes), bytes, 0, static_cast<uint32_t>(t), 0, 0, 0};
        const uint64_t handle = blame::sent(t, i, record, v), posted = blame::receive_posted(v);
        blame::sent_complete(handle, v);
        if (i % 3 == 0) blame::history_void(handle, true);
        blame::drop(posted);
        if (i % 100 == 0) {
          static thread_local blame::Known known;
          static thread_local char rest[8000];
          blame::history_find(t, i, record, &known);
          if (!known.found || known.entry.record.digest != record.digest || known.at_end != record.digest ||
              ((known.entry.flags & blame::kVoid) != 0) != (i % 3 == 0) ||
              memcmp(known.content.data, text.data(), 64) != 0 ||
              blame::history.rest.get(known.rest, 12000, sizeof(rest), rest) != sizeof(rest) ||
              memcmp(rest, text.data() + 12000, sizeof(rest)) != 0)
            throw Stopped{1};  // ends the test program: Catch is not for threads
        }
      }
    });
  for (auto& t : threads) t.join();
  blame::Known known;
  blame::history_find(9, 0, {}, &known);
  CHECK(known.oldest == 12000 - blame::kHistory + 1);
}

namespace {

uint32_t looks;
void count_look(const void*, uint32_t) { ++looks; }
/// The receive of the tests below.
std::string unchanged;
uint64_t unchanged_evidence;
Job::Sent unchanged_sent;

/// A receive that left its buffer as it was.
void receive_unchanged(Job& job, const std::string& sent) {
  looks = 0;
  buffer_looked_at = count_look;
  unchanged_sent = job.send(sent);
  unchanged = data(2);
  const View v = view(unchanged.data(), unchanged.size());
  const uint64_t posted = blame::receive_posted(v);
  unchanged_evidence = blame::receive_complete(posted, v, v.bytes, view_digest(v, v.bytes));
  REQUIRE(unchanged_evidence != 0);
}

}  // namespace

TEST_CASE("blame: a buffer that did not change is not looked at when the sender's record says that it is right") {
  Job job(true);
  receive_unchanged(job, data(2));
  for (int i = 0; i < 5; ++i) coming.push_back([] {});
  coming.push_back([] { blame::right(unchanged_evidence); });
  blame::looks_finish(thread_state);
  CHECK(takes == 6);
  CHECK(looks == 0);
  blame::Evidence evidence;
  auto content = std::make_unique<blame::Content>();
  CHECK(!blame::receive_evidence(unchanged_evidence, &evidence, content.get()));
  blame::looks_finish(thread_state);  // nothing is left
  CHECK(takes == 6);
  buffer_looked_at = nullptr;
}

TEST_CASE("blame: a look ends when the sender's record comes meanwhile") {
  Job job(true);
  receive_unchanged(job, data(2));
  for (int i = 0; i < 16; ++i) coming.push_back([] {});  // then the looks begin
  coming.push_back([] { blame::right(unchanged_evidence); });
  blame::looks_finish(thread_state);
  CHECK(takes == 17);
  CHECK(looks == 2);  // the first, and one more
  buffer_looked_at = nullptr;
}

TEST_CASE("blame: without the sender's record a buffer that did not change is looked at for 100 us") {
  Job job(true);
  receive_unchanged(job, data(2));
  blame::looks_finish(thread_state);
  blame::Evidence evidence = {};
  auto content = std::make_unique<blame::Content>();
  REQUIRE(blame::receive_evidence(unchanged_evidence, &evidence, content.get()));
  CHECK(evidence.looked >= 100e-6);
  CHECK(evidence.untouched);
  CHECK(!evidence.changed);
  CHECK(evidence.looks + 1 == looks);
  CHECK(content->bytes == unchanged.size());
  CHECK(memcmp(content->data, unchanged.data(), unchanged.size()) == 0);
  buffer_looked_at = nullptr;
}

TEST_CASE("blame: a record that says that it is wrong lets the look go on: nothing came, or it came late") {
  for (const bool late : {false, true}) {
    Job job(true);
    receive_unchanged(job, data(1));
    if (late)
      buffer_looked_at = [](const void*, uint32_t number) {
        if (number == 2) memcpy(unchanged.data(), data(1).data(), unchanged.size());
      };
    coming.push_back([] {
      const View v = view(unchanged.data(), unchanged.size());
      Job::Received r;
      r.record = {99, view_digest(v, v.bytes), v.bytes, 0x2000, 7, static_cast<uint16_t>(CallId::kMPI_Recv), 0, 0};
      r.evidence = unchanged_evidence;
      Job::open(unchanged_sent, r);
    });
    blame::looks_finish(thread_state);
    CHECK(takes == 1);
    Job::run();
    CHECK(verdict(Job::only()) == (late ? "completed before the data landed" : "nothing delivered"));
    buffer_looked_at = nullptr;
  }
}
