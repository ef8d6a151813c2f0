// SPDX-License-Identifier: Apache-2.0
//
// Recordings: what was written is read back; what was cut off ends there; what was changed is refused.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "check.h"
#include "record_fixture.h"

using namespace record_test;

TEST_CASE("record: random items are read back as they were") {
  // With variety 5000 every table of a segment overflows and is used again from its begin.
  const auto [calls, variety] = GENERATE(std::pair{0, 1u}, std::pair{1, 1u}, std::pair{3000, 3u}, std::pair{8000, 40u},
                                         std::pair{8000, 700u}, std::pair{8000, 5000u});
  Directory directory;
  Identity mine;
  const std::vector<Kept> written = make(directory, &mine, calls, variety, 7 + variety);
  Recording recording;
  Problem problem;
  REQUIRE(open(&recording, directory, mine, &problem));
  CHECK(recording.end() == FileEnd::kFinished);
  CHECK(std::string(recording.differences()).empty());
  const Read read = read_all(recording, kFirst);
  CHECK(read.end == Reading::kEnd);
  INFO(read.problem);
  check_equal(read.items, written);
  recording.close();
}

TEST_CASE("record: a file cut anywhere ends there") {
  Directory directory;
  Identity mine;
  const std::vector<Kept> written = make(directory, &mine, 25, 4, 3);
  const std::string whole = contents(file_of(directory));
  const bool killed = GENERATE(false, true);
  std::string changed = whole;
  if (killed) {  // as the state is while the program runs; its checksum comes from a file that was just begun
    Directory other;
    start(other);
    changed.replace(4032, 64, contents(file_of(other)), 4032, 64);
    writer_close(Ending::kFinished);
  }
  size_t least = written.size();
  set_contents(file_of(directory), changed);
  for (size_t size = whole.size() + 1; size-- > 0;) {
    std::filesystem::resize_file(file_of(directory), size);
    Recording recording;
    Problem problem;
    if (!open(&recording, directory, mine, &problem)) {
      REQUIRE(size < 4096);
      REQUIRE(problem.kind == ProblemKind::kNotRecording);
      continue;
    }
    REQUIRE(size >= 4096);
    REQUIRE(recording.end() == (killed                 ? FileEnd::kKilled
                                : size == whole.size() ? FileEnd::kFinished
                                                       : FileEnd::kCutOff));
    const Read read = read_all(recording, kFirst);
    REQUIRE(read.end == (!killed && size == whole.size() ? Reading::kEnd : Reading::kCut));
    REQUIRE(common(read.items, written) == read.items.size());
    REQUIRE(read.items.size() <= least);
    REQUIRE((size < whole.size() || read.items.size() == written.size()));
    REQUIRE(std::string(recording.end_text()).empty() == (!killed && size == whole.size()));
    least = read.items.size();
    recording.close();
  }
  CHECK(least == 0);
}

TEST_CASE("record: a changed bit anywhere is found") {
  Directory directory;
  Identity mine;
  make(directory, &mine, 12, 4, 5);
  const std::string whole = contents(file_of(directory));
  const int descriptor = ::open(file_of(directory).c_str(), O_WRONLY);
  auto put = [&](size_t at, char byte) { REQUIRE(pwrite(descriptor, &byte, 1, static_cast<off_t>(at)) == 1); };
  for (size_t at = 0; at < whole.size(); ++at) {
    if (at > 0) put(at - 1, whole[at - 1]);
    put(at, static_cast<char>(whole[at] ^ 1 << (at % 8)));
    Recording recording;
    Problem problem;
    INFO("byte " << at);
    if (!open(&recording, directory, mine, &problem)) {
      REQUIRE(problem.kind != ProblemKind::kNone);
      REQUIRE(strlen(problem.text) > 10);
      REQUIRE(at < 4096);
      continue;
    }
    // A block of matches is read only by who asks for a match.
    Match match;
    const Reading matches = recording.match(7, 1, &match);
    const Read read = read_all(recording, kFirst);
    REQUIRE((read.end == Reading::kDamaged || matches == Reading::kDamaged));
    const std::string line = read.end == Reading::kDamaged ? read.problem : recording.problem();
    REQUIRE(line.find(file_of(directory)) == 0);
    REQUIRE(line.find("block ") != std::string::npos);
    recording.close();
  }
  close(descriptor);
}

TEST_CASE("record: matches are found by ordinal, whatever the order of completion") {
  // 36,000 pending at a time do not fit into the reader's table.
  const uint64_t window = GENERATE(1, 10, 1000, 36000);
  Directory directory;
  Identity mine;
  start(directory, &mine);
  Stream* stream = stream_open(kFirst);
  std::mt19937_64 random(window);
  constexpr uint64_t kRequests = 40000;
  std::vector<uint64_t> pending;
  auto source = [](uint64_t ordinal) { return static_cast<int32_t>(ordinal * 7 % 1000); };
  auto complete = [&](size_t place) {
    Completion completion = {};
    completion.ordinal = pending[place];
    completion.flags = kCompletionMatch;
    completion.source = source(pending[place]);
    completion.tag = -static_cast<int32_t>(pending[place] % 3);
    stream->completion(completion);
    pending[place] = pending.back();
    pending.pop_back();
  };
  CallRecord call = {};
  call.flags = kCallStarted;
  call.count = 1;
  const uint64_t control = stream->call(call);  // complete after all others
  for (uint64_t i = 0; i < kRequests; ++i) {
    pending.push_back(stream->call(call));
    if (pending.size() >= window) complete(random() % pending.size());
  }
  while (!pending.empty()) complete(random() % pending.size());
  pending.push_back(control);
  complete(0);
  const uint64_t never = stream->call(call);
  writer_close(Ending::kFinished);

  Recording recording;
  Problem problem;
  REQUIRE(open(&recording, directory, mine, &problem));
  Match match;
  for (uint64_t ordinal = 1; ordinal < never; ++ordinal) {
    REQUIRE(recording.match(stream->id(), ordinal, &match) == Reading::kItem);
    REQUIRE(match.source == source(ordinal));
    REQUIRE(match.tag == -static_cast<int32_t>(ordinal % 3));
  }
  CHECK(recording.match(stream->id(), never, &match) == Reading::kEnd);
  recording.close();
}

TEST_CASE("record: every thread has its stream", "[threads]") {
  constexpr int kThreads = 6, kRounds = 3;
  Directory directory;
  Identity mine;
  start(directory, &mine);
  std::vector<std::vector<Kept>> written(kThreads * kRounds);
  std::vector<uint32_t> ids(kThreads * kRounds);
  for (int round = 0; round < kRounds; ++round) {  // later threads use the buffers of earlier ones
    std::vector<Stream*> streams;
    for (int i = 0; i < kThreads; ++i) streams.push_back(stream_open(kFirst + i % 2));
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        std::mt19937_64 random(round * 100 + i);
        ids[round * kThreads + i] = streams[i]->id();
        CallRecord call = {};
        call.flags = kCallStarted;
        call.count = 1;
        for (int k = 0; k < 3000; ++k) {
          Kept kept;
          kept.item.kind = ItemKind::kCall;
          kept.item.number = streams[i]->calls() + 1;
          call.in_type = kept.item.call.in_type = ValueType::kDigest;
          call.in = random();
          kept.item.call = call;
          kept.item.ordinal = streams[i]->call(call);
          written[round * kThreads + i].push_back(kept);
          Kept done;
          done.item.kind = ItemKind::kCompletion;
          done.item.number = kept.item.number;
          Completion& completion = done.item.completion;
          completion.ordinal = kept.item.ordinal;
          completion.flags = kCompletionMatch;
          completion.source = i;
          completion.tag = k;
          streams[i]->completion(completion);
          written[round * kThreads + i].push_back(done);
        }
        stream_close(streams[i]);
      });
    for (std::thread& thread : threads) thread.join();
  }
  WriterStatus status;
  writer_status(&status);
  CHECK(status.streams == kThreads * kRounds);
  CHECK(status.calls == uint64_t{kThreads} * kRounds * 3000);
  writer_close(Ending::kFinished);

  Recording recording;
  Problem problem;
  REQUIRE(open(&recording, directory, mine, &problem));
  std::vector<std::thread> threads;
  for (int round = 0; round < kRounds; ++round)
    for (int i = 0; i < kThreads; ++i) {
      Cursor* cursor = recording.next_stream(kFirst + i % 2, &problem);
      REQUIRE(cursor != nullptr);
      REQUIRE(cursor->id() == ids[round * kThreads + i]);
      threads.emplace_back([&, round, i, cursor] {
        Match match;
        size_t good = 0;
        Kept kept;
        for (const Kept& expected : written[round * kThreads + i]) {
          if (cursor->next(&kept.item) != Reading::kItem) break;
          kept.text.clear();
          good += kept == expected;
          if (kept.item.kind == ItemKind::kCall)
            good -= recording.match(cursor->id(), kept.item.ordinal, &match) != Reading::kItem || match.source != i;
        }
        if (good != written[round * kThreads + i].size() || cursor->next(&kept.item) != Reading::kEnd) abort();
        recording.release(cursor);
      });
    }
  for (std::thread& thread : threads) thread.join();
  CHECK(recording.next_stream(kFirst, &problem) == nullptr);
  CHECK(problem.kind == ProblemKind::kMissing);
  recording.close();
}

TEST_CASE("record: a call and a completion stay within their limits") {
  Directory directory;
  Identity mine;
  start(directory, &mine);
  Stream* stream = stream_open(kFirst);
  std::mt19937_64 random(1);
  WriterStatus before, after;
  // The worst: nothing is as before, all numbers are as long as they get, but what names them is known.
  constexpr int kCalls = 4000;
  writer_flush(false);
  writer_status(&before);
  for (int i = 0; i < kCalls; ++i) {
    CallRecord call = {};
    call.site = 0x1000 + 8 * (random() % 16);
    call.call = static_cast<uint16_t>(random() % 16);
    call.comm = random() % 16;
    call.peer = static_cast<int32_t>(random());
    call.tag = static_cast<int32_t>(random());
    call.bytes = random();
    call.step = static_cast<uint32_t>(random());
    call.count = static_cast<uint32_t>(random() >> 34);
    call.flags = static_cast<uint16_t>(0xff00 | kCallStarted);
    call.in_type = call.out_type = ValueType::kSigned;
    call.in = random() | 1ull << 63;
    call.out = random() | 1ull << 63;
    stream->call(call);
  }
  writer_flush(false);
  writer_status(&after);
  INFO(static_cast<double>(after.bytes - before.bytes) / kCalls);
  CHECK(after.bytes - before.bytes <= 64 * kCalls);
  for (int i = 0; i < kCalls; ++i) {
    Completion completion = {};
    completion.ordinal = random() % 1000000;
    completion.type = ValueType::kDigest;
    completion.digest = random();
    stream->completion(completion);
  }
  before = after;
  writer_flush(false);
  writer_status(&after);
  INFO(static_cast<double>(after.bytes - before.bytes) / kCalls);
  CHECK(after.bytes - before.bytes <= 16 * kCalls);
  writer_close(Ending::kFinished);
}
