// SPDX-License-Identifier: Apache-2.0
//
// Recordings: what was written is read back; what was cut off ends there; what was changed is refused.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <thread>

#include "checksum/record/writer_internal.h"
#include "record_fixture.h"

using namespace record_test;

namespace {

constexpr uint64_t kFirst = 0x1080;  // where streams begin

std::string file_of(const Directory& directory) { return directory.path + "/rank-00000.rec"; }

/// How many items are equal, from the first one.
size_t common(const std::vector<Kept>& a, const std::vector<Kept>& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n])
    ++n;
  return n;
}

void check_equal(const std::vector<Kept>& read, const std::vector<Kept>& written) {
  const size_t same = common(read, written);
  if (same < written.size()) {
    INFO("written: " << describe(written[same]));
    INFO("read:    " << (same < read.size() ? describe(read[same]) : "nothing"));
    CHECK(same == written.size());
  }
  CHECK(read.size() == written.size());
}

bool open(Recording* recording, const Directory& directory, const Identity& mine, Problem* problem) {
  return recording->open(directory.path.c_str(), mine, names, problem);
}

/// A finished recording of one stream.
std::vector<Kept> make(const Directory& directory, Identity* used, int calls, unsigned variety, uint64_t seed) {
  std::mt19937_64 random(seed);
  start(directory, used);
  Stream* stream = stream_open(kFirst);
  REQUIRE(stream != nullptr);
  std::vector<Kept> written = write_items(stream, random, calls, variety);
  writer_close(Ending::kFinished);
  return written;
}

/// In a process of its own; its exit status, or 256 + the signal that ended it.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(body());
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("record: random items are read back as they were") {
  // With variety 5000 every table of a segment overflows and is used again from its begin.
  const auto [calls, variety] = GENERATE(std::pair{0, 1u}, std::pair{1, 1u}, std::pair{3000, 3u}, std::pair{20000, 40u},
                                         std::pair{20000, 700u}, std::pair{20000, 5000u});
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
    REQUIRE(recording.end() ==
            (killed ? FileEnd::kKilled : size == whole.size() ? FileEnd::kFinished : FileEnd::kCutOff));
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
    if (at > 0)
      put(at - 1, whole[at - 1]);
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

TEST_CASE("record: partial blocks of a running program hold whole items") {
  Directory directory;
  Identity mine;
  std::mt19937_64 random(11);
  start(directory, &mine);
  Stream* stream = stream_open(kFirst);
  std::vector<Kept> written;
  for (int round = 0; round < 40; ++round) {
    for (const Kept& kept : write_items(stream, random, 20, 30))
      written.push_back(kept);
    writer_flush(round == 0);
  }
  Recording recording;
  Problem problem;
  REQUIRE(open(&recording, directory, mine, &problem));
  CHECK(recording.end() == FileEnd::kKilled);
  const Read read = read_all(recording, kFirst);
  CHECK(read.end == Reading::kCut);
  CHECK(common(read.items, written) == read.items.size());
  CHECK(read.items.size() + 1 >= written.size());  // all but a run of polls that may go on
  recording.close();
  writer_close(Ending::kFinished);
}

TEST_CASE("record: killed after a flush, everything before it is there") {
  Directory directory;
  const Identity mine = identity();
  const int status = in_child([&] {
    Problem problem;
    if (!directory_claim(directory.path.c_str(), mine, &problem) ||
        !writer_open(directory.path.c_str(), mine, names, &problem))
      return 1;
    Stream* stream = stream_open(kFirst);
    CallRecord call = {};
    call.site = kFirst;
    for (int i = 0; i < 100000; ++i) {
      call.in = static_cast<uint64_t>(i);
      call.in_type = ValueType::kUnsigned;
      stream->call(call);
      if (i == 49999)
        writer_flush(false);
    }
    raise(SIGKILL);
    return 2;
  });
  CHECK(status == 256 + SIGKILL);
  Recording recording;
  Problem problem;
  REQUIRE(open(&recording, directory, mine, &problem));
  CHECK(recording.end() == FileEnd::kKilled);
  const Read read = read_all(recording, kFirst);
  CHECK(read.end == Reading::kCut);
  REQUIRE(read.items.size() >= 50000);
  for (size_t i = 0; i < read.items.size(); ++i)
    REQUIRE(read.items[i].item.call.in == i);
  recording.close();
}

TEST_CASE("record: what is complete is written without being asked") {
  Directory directory;
  start(directory);
  Stream* stream = stream_open(kFirst);
  CallRecord call = {};
  stream->call(call);
  while (std::filesystem::file_size(file_of(directory)) < 4096 + 64 + 10)
    usleep(1000);  // the test's time limit ends it
  writer_close(Ending::kFinished);
}

TEST_CASE("record: threads write for themselves where there is no helper") {
  Directory directory;
  Identity mine;
  std::mt19937_64 random(5);
  start(directory, &mine);
  helper_end(10);
  Stream* stream = stream_open(kFirst);
  const std::vector<Kept> written = write_items(stream, random, 50000, 20);
  WriterStatus status;
  writer_status(&status);
  CHECK(status.bytes > 200000);
  CHECK(status.stalls > 0);
  writer_close(Ending::kFinished);
  Recording recording;
  Problem problem;
  REQUIRE(open(&recording, directory, mine, &problem));
  const Read read = read_all(recording, kFirst);
  CHECK(read.end == Reading::kEnd);
  check_equal(read.items, written);
  recording.close();
}

TEST_CASE("record: a forked child writes nothing, the parent goes on") {
  Directory directory;
  Identity mine;
  std::mt19937_64 random(5);
  start(directory, &mine);
  Stream* stream = stream_open(kFirst);
  std::vector<Kept> written = write_items(stream, random, 50, 5);
  CHECK(in_child([&] {
    CallRecord call = {};
    for (int i = 0; i < 1000000; ++i)
      stream->call(call);
    writer_flush(false);
    WriterStatus status;
    writer_status(&status);
    return status.recording ? 1 : 0;
  }) == 0);
  for (const Kept& kept : write_items(stream, random, 50, 5))
    written.push_back(kept);
  writer_close(Ending::kFinished);
  Recording recording;
  Problem problem;
  REQUIRE(open(&recording, directory, mine, &problem));
  const Read read = read_all(recording, kFirst);
  CHECK(read.end == Reading::kEnd);
  check_equal(read.items, written);
  recording.close();
}

namespace {
int told;
void count_failure(const char* line) {
  ++told;
  if (strstr(line, "recording ended: ") != line)
    told += 100;
}

/// Records until it fails, and some more. 0: as it must be.
int record_until_full(const Directory& directory, const Identity& mine, int more) {
  Problem problem;
  if (!directory_claim(directory.path.c_str(), mine, &problem) ||
      !writer_open(directory.path.c_str(), mine, names, &problem))
    return 1;
  writer_on_failure(count_failure);
  told = 0;
  Stream* stream = stream_open(kFirst);
  CallRecord call = {};
  call.site = kFirst;
  call.in_type = ValueType::kDigest;
  WriterStatus status;
  uint64_t i = 0;
  do {
    for (int k = 0; k < 10000; ++k, ++i) {
      call.in = i;
      stream->call(call);
    }
    writer_status(&status);
  } while (status.recording && i < 100000000);
  for (int k = 0; k < more; ++k)
    stream->call(call);
  writer_flush(false);
  writer_close(Ending::kFinished);
  writer_status(&status);
  return status.recording || told != 1 || status.failure[0] == 0 ? 2 : 0;
}

void check_full(const Directory& directory, const Identity& mine, const char* why) {
  Recording recording;
  Problem problem;
  REQUIRE(open(&recording, directory, mine, &problem));
  CHECK(recording.end() == FileEnd::kFailed);
  CHECK_THAT(recording.end_text(), Catch::Contains(why));
  const Read read = read_all(recording, kFirst);
  CHECK(read.end == Reading::kCut);
  CHECK_THAT(read.problem, Catch::Contains(why));
  CHECK(read.items.size() > 1000);
  for (size_t i = 0; i < read.items.size(); ++i)
    REQUIRE(read.items[i].item.call.in == i);
  recording.close();
}
}  // namespace

TEST_CASE("record: a file-size limit ends the recording, not the program") {
  Directory directory;
  const Identity mine = identity();
  CHECK(in_child([&] {
    const rlimit limit = {300000, 300000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
      return 3;
    signal(SIGXFSZ, SIG_DFL);
    return record_until_full(directory, mine, 1000000);
  }) == 0);
  CHECK(std::filesystem::file_size(file_of(directory)) <= 300000);
  check_full(directory, mine, "File too large");
}

TEST_CASE("record: a file system that takes nothing is not waited for without end") {
  Directory directory;
  start(directory);
  writer_on_failure(count_failure);
  told = 0;
  REQUIRE(writer.file_lock.lock(10));  // as somebody would who is stuck in a write
  writer.patience = 0.05;
  Stream* stream = stream_open(kFirst);
  CallRecord call = {};
  call.in_type = ValueType::kDigest;
  for (int i = 0; i < 1000000; ++i) {
    call.in = static_cast<uint64_t>(i);
    stream->call(call);
  }
  WriterStatus status;
  writer_status(&status);
  CHECK_FALSE(status.recording);
  CHECK_THAT(status.failure, Catch::Contains("takes nothing"));
  CHECK(told == 1);
  writer_close(Ending::kFinished);
  writer.file_lock.unlock();
  writer_close(Ending::kFinished);
  CHECK(told == 1);
}

TEST_CASE("record: a full file system ends the recording, what was written stays readable") {
  Directory directory;
  const Identity mine = identity();
  std::filesystem::create_directories(directory.path);
  const int status = in_child([&] {
    // Mounts of its own: for root, and in some containers for nobody.
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", directory.path.c_str(), "tmpfs", 0, "size=400k") != 0)
      return 77;
    if (const int result = record_until_full(directory, mine, 1000000))
      return result;
    Recording recording;
    Problem problem;
    const Item* item;
    uint64_t read = 0;
    if (!open(&recording, directory, mine, &problem) || recording.end() != FileEnd::kFailed ||
        strstr(recording.end_text(), "No space left on device") == nullptr)
      return 3;
    Cursor* cursor = recording.next_stream(kFirst, &problem);
    for (; cursor->peek(&item) == Reading::kItem && item->call.in == read; ++read)
      cursor->skip();
    return cursor->peek(&item) == Reading::kCut && read > 10000 ? 0 : 4;
  });
  if (status == 77)
    WARN("no file system can be mounted here");
  else
    CHECK(status == 0);
}

TEST_CASE("record: a file-size limit of nothing is told when the file is made") {
  Directory directory;
  const Identity mine = identity();
  CHECK(in_child([&] {
    Problem problem;
    if (!directory_claim(directory.path.c_str(), mine, &problem))
      return 1;
    const rlimit limit = {0, 0};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
      return 3;
    return writer_open(directory.path.c_str(), mine, names, &problem) || !strstr(problem.text, "File too large") ? 2 : 0;
  }) == 0);
  CHECK_FALSE(std::filesystem::exists(file_of(directory)));
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
    if (pending.size() >= window)
      complete(random() % pending.size());
  }
  while (!pending.empty())
    complete(random() % pending.size());
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

TEST_CASE("record: every thread has its stream") {
  constexpr int kThreads = 6, kRounds = 3;
  Directory directory;
  Identity mine;
  start(directory, &mine);
  std::vector<std::vector<Kept>> written(kThreads * kRounds);
  std::vector<uint32_t> ids(kThreads * kRounds);
  for (int round = 0; round < kRounds; ++round) {  // later threads use the buffers of earlier ones
    std::vector<Stream*> streams;
    for (int i = 0; i < kThreads; ++i)
      streams.push_back(stream_open(kFirst + i % 2));
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
    for (std::thread& thread : threads)
      thread.join();
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
          if (cursor->next(&kept.item) != Reading::kItem)
            break;
          kept.text.clear();
          good += kept == expected;
          if (kept.item.kind == ItemKind::kCall)
            good -= recording.match(cursor->id(), kept.item.ordinal, &match) != Reading::kItem || match.source != i;
        }
        if (good != written[round * kThreads + i].size() || cursor->next(&kept.item) != Reading::kEnd)
          abort();
        recording.release(cursor);
      });
    }
  for (std::thread& thread : threads)
    thread.join();
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

TEST_CASE("record: who may not read it is told why") {
  Directory directory;
  Identity mine;
  make(directory, &mine, 10, 3, 1);
  Recording recording;
  Problem problem;
  auto refused = [&](const Identity& reader, ProblemKind kind, const char* text) {
    const bool opened = open(&recording, directory, reader, &problem);
    CHECK_FALSE(opened);
    CHECK(problem.kind == kind);
    CHECK_THAT(problem.text, Catch::Contains(text));
    CHECK(strchr(problem.text, '\n') == nullptr);
  };
  Identity other = mine;
  other.world_size = 8;
  refused(other, ProblemKind::kOtherSize, "is a recording of 2 ranks, this job has 8");
  other.rank = 5;  // there is no such file, but rank 0 knows why
  refused(other, ProblemKind::kOtherSize, "is a recording of 2 ranks, this job has 8");
  other = mine;
  other.rank = 1;
  refused(other, ProblemKind::kMissing, "holds no recording of rank 1");
  other = mine;
  strcpy(other.build, "fedcba");
  refused(other, ProblemKind::kOtherProgram, "another program");
  other = mine;
  strcpy(other.reduce, "exact");
  refused(other, ProblemKind::kOtherReduce, "RESIL_REDUCE=order, this job has RESIL_REDUCE=exact");
  other = mine;
  strcpy(other.mpi, "Another MPI 5.0");
  REQUIRE(open(&recording, directory, other, &problem));
  CHECK_THAT(recording.differences(), Catch::Equals("recorded with Some MPI 4.1, this is Another MPI 5.0"));
  recording.close();

  std::string bytes = contents(file_of(directory));
  std::filesystem::rename(file_of(directory), directory.path + "/rank-00001.rec");
  other = mine;
  other.rank = 1;
  refused(other, ProblemKind::kOtherRank, "is the recording of rank 0, not of rank 1");
  refused(mine, ProblemKind::kMissing, "holds no recording of rank 0");
  set_contents(file_of(directory), "#!/bin/sh\n");
  refused(mine, ProblemKind::kNotRecording, "is not a recording");
  bytes[8] = 9;
  set_contents(file_of(directory), bytes);
  refused(mine, ProblemKind::kVersion, "is a recording of format 9");
  std::filesystem::remove(file_of(directory));
  REQUIRE(mkfifo(file_of(directory).c_str(), 0600) == 0);
  refused(mine, ProblemKind::kNotRecording, "is not a recording");
  CHECK_FALSE(recording.open("/nonexistent/place", mine, names, &problem));
  CHECK(problem.kind == ProblemKind::kMissing);
}

TEST_CASE("record: a directory is taken only when empty or record's own") {
  Directory directory;
  Problem problem;
  std::filesystem::create_directories(directory.path);
  set_contents(directory.path + "/results.dat", "the work of a month");
  CHECK_FALSE(directory_claim(directory.path.c_str(), identity(), &problem));
  CHECK(problem.kind == ProblemKind::kNotEmpty);
  CHECK_THAT(problem.text, Catch::Contains("results.dat"));
  CHECK(contents(directory.path + "/results.dat") == "the work of a month");
  CHECK_FALSE(writer_open(directory.path.c_str(), identity(), names, &problem));
  std::filesystem::remove(directory.path + "/results.dat");
  set_contents(directory.path + "/rank-00000.rec", "not made by record: there is no recording.json");
  CHECK_FALSE(writer_open(directory.path.c_str(), identity(), names, &problem));
  std::filesystem::remove(directory.path + "/rank-00000.rec");

  make(directory, nullptr, 10, 3, 1);
  set_contents(directory.path + "/rank-00007.rec", "of an older recording with more ranks");
  std::filesystem::create_directory(directory.path + "/.claim-dead");
  Identity mine;
  make(directory, &mine, 20, 3, 2);  // in its place
  CHECK_FALSE(std::filesystem::exists(directory.path + "/rank-00007.rec"));
  CHECK_FALSE(std::filesystem::exists(directory.path + "/.claim-dead"));
  Identity again = mine;
  again.rank = 1;
  CHECK(directory_claim(directory.path.c_str(), again, &problem));  // another rank of that launch removes nothing
  CHECK(std::filesystem::exists(file_of(directory)));
  CHECK_FALSE(writer_open(directory.path.c_str(), mine, names, &problem));
  CHECK_THAT(problem.text, Catch::Contains("is there already"));
  set_contents(directory.path + "/notes.txt", "mine");
  CHECK_FALSE(directory_claim(directory.path.c_str(), identity(), &problem));
  CHECK(std::filesystem::exists(file_of(directory)));
}

TEST_CASE("record: ranks that claim at the same time leave one clean directory") {
  Directory directory;
  make(directory, nullptr, 10, 3, 1);
  const Identity mine = identity(0, 8);
  std::vector<pid_t> children;
  for (int rank = 0; rank < 8; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      Problem problem;
      _exit(directory_claim(directory.path.c_str(), mine, &problem) ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path))
    left.push_back(entry.path().filename());
  CHECK(left == std::vector<std::string>{"recording.json"});
  CHECK_THAT(contents(directory.path + "/recording.json"), Catch::Contains(mine.launch));
}
