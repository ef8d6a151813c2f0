// SPDX-License-Identifier: Apache-2.0
//
// Recordings that end otherwise than they should (kill, fork, full or stuck file systems), that belong to somebody
// else, and directories that record may take or must not.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "check.h"
#include "checksum/record/writer_internal.h"
#include "record_fixture.h"

using namespace record_test;

namespace {

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

TEST_CASE("record: partial blocks of a running program hold whole items") {
  Directory directory;
  Identity mine;
  std::mt19937_64 random(11);
  start(directory, &mine);
  Stream* stream = stream_open(kFirst);
  std::vector<Kept> written;
  for (int round = 0; round < 40; ++round) {
    for (const Kept& kept : write_items(stream, random, 20, 30)) written.push_back(kept);
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
    if (!directory_lock(directory.path.c_str(), mine, &problem) ||
        !writer_open(directory.path.c_str(), mine, names, &problem))
      return 1;
    Stream* stream = stream_open(kFirst);
    CallRecord call = {};
    call.site = kFirst;
    for (int i = 0; i < 100000; ++i) {
      call.in = static_cast<uint64_t>(i);
      call.in_type = ValueType::kUnsigned;
      stream->call(call);
      if (i == 49999) writer_flush(false);
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
  for (size_t i = 0; i < read.items.size(); ++i) REQUIRE(read.items[i].item.call.in == i);
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
  const std::vector<Kept> written = write_items(stream, random, 20000, 20);
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
          for (int i = 0; i < 1000000; ++i) stream->call(call);
          writer_flush(false);
          writer_close(Ending::kFinished);
          WriterStatus status;
          writer_status(&status);
          return status.recording || status.failure[0] != 0 ? 1 : 0;
        }) == 0);
  for (const Kept& kept : write_items(stream, random, 50, 5)) written.push_back(kept);
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
  if (strstr(line, "recording ended: ") != line) told += 100;
}

/// Records until it fails, and some more. 0: as it must be.
int record_until_full(const Directory& directory, const Identity& mine, int more) {
  Problem problem;
  if (!directory_lock(directory.path.c_str(), mine, &problem) ||
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
  for (int k = 0; k < more; ++k) stream->call(call);
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
  for (size_t i = 0; i < read.items.size(); ++i) REQUIRE(read.items[i].item.call.in == i);
  recording.close();
}
}  // namespace

TEST_CASE("record: a file-size limit ends the recording, not the program") {
  Directory directory;
  const Identity mine = identity();
  CHECK(in_child([&] {
          const rlimit limit = {300000, 300000};
          if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 3;
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
  writer.timeout = 0.05;
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
    if (const int result = record_until_full(directory, mine, 1000000)) return result;
    Recording recording;
    Problem problem;
    const Item* item;
    uint64_t read = 0;
    if (!open(&recording, directory, mine, &problem) || recording.end() != FileEnd::kFailed ||
        strstr(recording.end_text(), "No space left on device") == nullptr)
      return 3;
    Cursor* cursor = recording.next_stream(kFirst, &problem);
    for (; cursor->peek(&item) == Reading::kItem && item->call.in == read; ++read) cursor->skip();
    return cursor->peek(&item) == Reading::kCut && read > 10000 ? 0 : 4;
  });
  if (status == 77) WARN("no file system can be mounted here");
  else CHECK(status == 0);
}

TEST_CASE("record: a file-size limit of nothing is told when the file is made") {
  Directory directory;
  const Identity mine = identity();
  CHECK(in_child([&] {
          Problem problem;
          if (!directory_lock(directory.path.c_str(), mine, &problem)) return 1;
          const rlimit limit = {0, 0};
          if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 3;
          return writer_open(directory.path.c_str(), mine, names, &problem) || !strstr(problem.text, "File too large")
                     ? 2
                     : 0;
        }) == 0);
  CHECK_FALSE(std::filesystem::exists(file_of(directory)));
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
  CHECK_FALSE(directory_lock(directory.path.c_str(), identity(), &problem));
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
  CHECK(directory_lock(directory.path.c_str(), again, &problem));  // another rank of that launch removes nothing
  CHECK(std::filesystem::exists(file_of(directory)));
  CHECK_FALSE(writer_open(directory.path.c_str(), mine, names, &problem));
  CHECK_THAT(problem.text, Catch::Contains("is there already"));
  set_contents(directory.path + "/notes.txt", "mine");
  CHECK_FALSE(directory_lock(directory.path.c_str(), identity(), &problem));
  CHECK(std::filesystem::exists(file_of(directory)));
}

TEST_CASE("record: a recording that another job removes says so") {
  Directory directory;
  start(directory);
  stream_open(kFirst);
  Problem problem;
  CHECK(directory_lock(directory.path.c_str(), identity(), &problem));
  writer_close(Ending::kFinished);
  WriterStatus status;
  writer_status(&status);
  CHECK_THAT(status.failure, Catch::Contains("does another job record in this directory?"));
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
      _exit(directory_lock(directory.path.c_str(), mine, &problem) ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path)) left.push_back(entry.path().filename());
  CHECK(left == std::vector<std::string>{"recording.json"});
  CHECK_THAT(contents(directory.path + "/recording.json"), Catch::Contains(mine.launch));
}
