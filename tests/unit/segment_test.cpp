// SPDX-License-Identifier: Apache-2.0
//
// The ring file: header, sections, what happens without room for it, and the copy beside the reports.
#include "shim/ring/segment.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "check.h"
#include "fake_backend.h"
#include "shim/call/registry.h"
#include "shim/presence/launch.h"

namespace {

namespace ring = resil::ring;
using resil::runtime;

/// A /dev/shm of this process and its children, where that is permitted: any job that starts on the machine sweeps, and
/// would take what a dead process of this test has left.
const bool of_our_own = unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                        mount("none", "/dev/shm", "tmpfs", 0, nullptr) == 0;

/// Runs `body` in a process of its own, which segment's static state and resource limits need; true: it returned 0.
bool in_child(const std::function<int()>& body) {
  pid_t child = fork();
  if (child == 0) {
    alarm(300);
    _exit(body());
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (WIFSIGNALED(status)) WARN("killed by signal " << WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0)
    WARN("condition in line " << 256 + WEXITSTATUS(status) << " or line " << WEXITSTATUS(status) << " failed");
  return status == 0;
}

// The number of the failing condition's line, modulo 256, tells which one it was.
#define MUST(condition) \
  if (!(condition)) return __LINE__ % 256 == 0 ? 1 : __LINE__ % 256

bool make(const char* launch) {
  runtime = {};
  runtime.pid = getpid();
  runtime.rank = 3;
  runtime.size = 8;
  strcpy(runtime.host, "node-1");
  strcpy(runtime.directory, "/reports/of/job");
  resil::registry_enable();
  resil::launch_draw();
  return resil::segment_create(launch);
}

std::string launch() { return "segment-" + std::to_string(getpid()); }

std::string live_path() {
  return "/dev/shm/resil-" + std::to_string(getuid()) + "-" + launch() + "-0-3-" + runtime.launch_key + ".ring";
}

size_t module_bytes(uint32_t* entry_bytes) {
  *entry_bytes = 48;
  return 48 * 10;
}

struct Directory {
  char path[64] = "/tmp/resil-segment-XXXXXX";
  Directory() { REQUIRE(mkdtemp(path) != nullptr); }
  ~Directory() { CHECK(system((std::string("rm -r ") + path).c_str()) == 0); }
};

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("segment: the live ring is a file that explains itself") {
  CHECK(in_child([] {
    static resil::Module module{};
    module.name = "fakemodule";
    module.ring_bytes = module_bytes;
    fake::modules = {&module};
    MUST(make(launch().c_str()));
    std::string path = resil::segment_path();
    MUST(path == live_path());
    MUST(!resil::segment_is_anonymous());
    struct stat status;
    MUST(stat(path.c_str(), &status) == 0);
    MUST((status.st_mode & 0777) == 0600);
    // Reserved, not just sized: a store can never meet a full file system. But for records that no thread uses.
    const auto reserved = static_cast<uint64_t>(status.st_blocks) * 512;
    uint64_t unused = 0;
    for (uint32_t i = 1; i < runtime.trace_count; ++i) {
      const auto begin = reinterpret_cast<uint64_t>(&runtime.traces[i].records[ring::kRecordsOfFurther]);
      const auto end = reinterpret_cast<uint64_t>(&runtime.traces[i] + 1);
      unused += end / 4096 * 4096 - (begin + 4095) / 4096 * 4096;
    }
    MUST(unused > 700000);
    MUST(reserved >= static_cast<uint64_t>(status.st_size) - unused);
    MUST(reserved <= static_cast<uint64_t>(status.st_size) - unused / 2);
    strcpy(runtime.comms[5].name, "written later");
    std::string bytes = contents(path);
    resil::segment_discard();
    MUST(stat(path.c_str(), &status) != 0 && errno == ENOENT);
    MUST(std::string(resil::segment_path()).empty());

    const auto& header = *reinterpret_cast<const ring::Header*>(bytes.data());
    MUST(memcmp(bytes.data(), "RESILRNG", 8) == 0);
    MUST(header.version == ring::kVersion);
    MUST(header.file_bytes == bytes.size());
    MUST(header.rank == 3 && header.world_size == 8 && header.pid == getpid() && header.world == 0);
    MUST(header.host == std::string("node-1"));
    MUST(header.job == launch());
    MUST(header.directory == std::string("/reports/of/job"));
    char executable[256] = "";
    MUST(readlink("/proc/self/exe", executable, sizeof(executable) - 1) > 0);
    MUST(header.executable == std::string(executable));
    MUST(header.ticks_per_second > 1e6 && header.ticks_per_second < 1e11);
    MUST(header.pid_start_lo != 0);
    MUST(header.section_count == 7);
    uint64_t end = header.header_bytes;
    for (uint32_t i = 0; i < header.section_count; ++i) {
      const ring::Section& section = header.sections[i];
      MUST(section.offset >= end && section.offset % 4096 == 0);
      MUST(section.bytes == uint64_t{section.entry_bytes} * section.entries);
      end = section.offset + section.bytes;
    }
    MUST(end <= bytes.size());
    const char* names[] = {"lanes", "comms", "requests", "modules", "calls", "names", "fakemodule"};
    for (int i = 0; i < 7; ++i) MUST(header.sections[i].name == std::string(names[i]));
    MUST(header.sections[6].entry_bytes == 48 && header.sections[6].entries == 10);
    MUST(header.sections[0].entry_bytes == sizeof(ring::TraceBuffer));
    auto* comms = reinterpret_cast<const ring::Comm*>(bytes.data() + header.sections[1].offset);
    MUST(comms[5].name == std::string("written later"));
    auto* calls = reinterpret_cast<const ring::CallName*>(bytes.data() + header.sections[4].offset);
    for (unsigned i = 0; i < resil::kCallCount; ++i) MUST(calls[i].name == std::string(resil::kCallInfo[i].name));
    unsigned long section_bytes = 0;
    MUST(resil::segment_section("fakemodule", &section_bytes) != nullptr && section_bytes == 480);
    MUST(resil::segment_section("nothing", &section_bytes) == nullptr && section_bytes == 0);
    MUST(bytes.size() <= (8u << 20));  // the budget of a rank
    return 0;
  }));
}

TEST_CASE("segment: two launches whose launcher gave them the same ids have a file each") {
  CHECK(in_child([] {
    MUST(make(launch().c_str()));
    std::string first = resil::segment_path(), key = runtime.launch_key;
    ring::Header* header = runtime.header;
    MUST(header->launch == key && header->launch_agreed == 0 && key.size() == 16);
    MUST(make(launch().c_str()));
    std::string second = resil::segment_path();
    MUST(first != second && runtime.launch_key != key);
    MUST(access(first.c_str(), F_OK) == 0 && header->magic == ring::kMagic && header->launch == key);
    resil::segment_discard();
    MUST(access(first.c_str(), F_OK) == 0);
    MUST(unlink(first.c_str()) == 0);
    return 0;
  }));
}

TEST_CASE("segment: nothing is removed to take its place") {
  CHECK(in_child([] {
    std::string path = "/dev/shm/" + launch();
    std::ofstream(path) << "somebody's";
    MUST(resil::node_file_create(path.c_str(), 8192) == nullptr);
    std::string left = contents(path);
    unlink(path.c_str());
    MUST(left == "somebody's");
    return 0;
  }));
}

TEST_CASE("segment: without a file it is anonymous memory and works on") {
  auto works = []() -> int {
    MUST(make(launch().c_str()));
    MUST(resil::segment_is_anonymous());
    MUST(std::string(resil::segment_path()).empty());
    MUST(runtime.header->magic == ring::kMagic);
    memset(runtime.traces, 1, sizeof(ring::TraceBuffer) * runtime.trace_count);
    resil::segment_discard();
    std::string path = live_path();
    MUST(access(path.c_str(), F_OK) != 0);
    return 0;
  };
  SECTION("it cannot be opened") {
    CHECK(in_child([&] {
      rlimit none = {3, 3};
      MUST(setrlimit(RLIMIT_NOFILE, &none) == 0);
      int status = works();
      return status;
    }));
  }
  SECTION("its size is limited: the signal of that limit would kill the program") {
    CHECK(in_child([&] {
      signal(SIGXFSZ, SIG_DFL);
      rlimit small = {100000, 100000};
      MUST(setrlimit(RLIMIT_FSIZE, &small) == 0);
      return works();
    }));
  }
}

TEST_CASE("segment: the copy has holes where nothing was written") {
  Directory directory;
  std::string target = std::string(directory.path) + "/rank-00003.ring";
  CHECK(in_child([&] {
    MUST(make(launch().c_str()));
    std::string live = resil::segment_path();
    strcpy(runtime.names[7].name, "near the end");
    std::string before = contents(live);
    MUST(resil::segment_store(target.c_str()));
    MUST(access(live.c_str(), F_OK) != 0);
    struct stat status;
    MUST(stat(target.c_str(), &status) == 0);
    MUST(static_cast<uint64_t>(status.st_size) == runtime.header->file_bytes);
    MUST(status.st_blocks * 512 < status.st_size / 2);
    std::string after = contents(target);
    MUST(after == before);
    MUST(access((target + ".tmp").c_str(), F_OK) != 0);
    return 0;
  }));
}

TEST_CASE("segment: a copy that cannot be written says why, leaves nothing and keeps the live ring") {
  Directory directory;
  std::string folder = directory.path;
  CHECK(in_child([&] {
    MUST(make(launch().c_str()));
    std::string live = resil::segment_path();
    errno = 0;
    MUST(!resil::segment_store((folder + "/missing/rank.ring").c_str()));
    MUST(errno == ENOENT);
    MUST(mkdir((folder + "/taken").c_str(), 0700) == 0);
    MUST(!resil::segment_store((folder + "/taken").c_str()));
    MUST(errno == EISDIR);
    MUST(access((folder + "/taken.tmp").c_str(), F_OK) != 0);
    rlimit small = {100000, 100000};
    MUST(setrlimit(RLIMIT_FSIZE, &small) == 0);
    errno = 0;
    MUST(!resil::segment_store((folder + "/rank.ring").c_str()));
    MUST(errno == EFBIG);
    MUST(access((folder + "/rank.ring.tmp").c_str(), F_OK) != 0);
    MUST(access(live.c_str(), F_OK) == 0);
    resil::segment_discard();
    return 0;
  }));
}

TEST_CASE("segment: the clock's rate is refined, but not by a wall clock that was set") {
  CHECK(in_child([] {
    MUST(make(launch().c_str()));
    resil::segment_discard();
    const double first = runtime.header->ticks_per_second;
    runtime.header->realtime_start_ns -= 3600u * 1000000000u;  // an hour back
    resil::segment_sync_clock();
    MUST(runtime.header->ticks_per_second == first);
    MUST(runtime.header->ticks_sync > runtime.header->ticks_start);
    return 0;
  }));
}

namespace {

bool held(const std::string& path) {
  struct stat status;
  const int fd = resil::node_file_open(AT_FDCWD, path.c_str(), false, 1, &status);
  const bool answer = fd >= 0 && resil::node_file_is_held(fd);
  close(fd);
  return answer;
}

/// A rank in a process of its own; "kill" by closing the pipe's other end is not needed: it is killed.
struct Rank {
  pid_t pid;
  std::string path;
  /// `claims` is written into the header's pid namespace when not 0.
  explicit Rank(
      const std::function<void()>& then = [] {}, uint64_t claims = 0, const char* directory = "/nowhere") {
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    pid = fork();
    if (pid == 0) {
      alarm(60);
      if (!make("swept-by-a-test")) _exit(1);
      strcpy(runtime.header->directory, directory);
      if (claims != 0) runtime.header->pid_namespace = claims;
      const std::string made = resil::segment_path();
      then();
      if (write(ready[1], made.c_str(), made.size()) < 0) _exit(1);
      for (;;) pause();
    }
    close(ready[1]);
    char text[256] = "";
    REQUIRE(read(ready[0], text, sizeof(text) - 1) > 0);
    close(ready[0]);
    path = text;
  }
  /// Returns when its memory is gone too, which marks its files: whoever reads in /proc what the dying process has
  /// mapped, or its command line, keeps that beyond the process's end.
  void end() {
    if (pid != 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      for (const time_t late = time(nullptr) + 30; held(path) && time(nullptr) < late;) sched_yield();
    }
    pid = 0;
  }
  ~Rank() {
    end();
    unlink(path.c_str());
  }
};

int sweep() { return resil::segment_sweep(("resil-" + std::to_string(getuid()) + "-swept-by-a-test-").c_str()); }

bool there(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

/// Where node memory is short nothing is kept there.
bool mostly_free() {
  struct statvfs system;
  REQUIRE(statvfs("/dev/shm", &system) == 0);
  return system.f_bavail > system.f_blocks / 2;
}

void make_old(const std::string& ring) {
  const timespec old[2] = {{time(nullptr) - 90000, 0}, {time(nullptr) - 90000, 0}};
  REQUIRE(utimensat(AT_FDCWD, ring.c_str(), old, 0) == 0);
}

}  // namespace

TEST_CASE("node files: whether a process lives is seen without its pid, whatever it does with its descriptors") {
  SECTION("it closes all that it has") {
    Rank rank([] {
      for (int fd = 3; fd < 256; ++fd)
        if (fcntl(fd, F_GETFD) >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_WRONLY)  // but for the pipe
          close(fd);
    });
    CHECK(held(rank.path));
    rank.end();
    CHECK_FALSE(held(rank.path));
  }
  SECTION("a fork of it goes on") {
    static pid_t* child =
        static_cast<pid_t*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    Rank rank([] {
      const pid_t forked = fork();
      if (forked == 0) {
        alarm(60);
        for (;;) pause();
      }
      *child = forked;
    });
    CHECK(held(rank.path));
    rank.end();
    REQUIRE(*child > 1);
    CHECK(kill(*child, 0) == 0);
    CHECK_FALSE(held(rank.path));
    kill(*child, SIGKILL);
  }
}

TEST_CASE("node files: what is no file of this user is not opened, and costs nothing") {
  Directory directory;
  const std::string folder = directory.path;
  struct stat status;
  auto opens = [&](const std::string& name) {
    alarm(20);  // a pipe would make a plain open wait for ever
    const int fd = resil::node_file_open(AT_FDCWD, name.c_str(), false, 1, &status);
    const int second = resil::node_file_open(AT_FDCWD, name.c_str(), true, 1, &status);
    alarm(0);
    close(fd), close(second);
    return fd >= 0 || second >= 0;
  };
  REQUIRE(mkfifo((folder + "/fifo").c_str(), 0666) == 0);
  CHECK_FALSE(opens(folder + "/fifo"));
  REQUIRE(mkdir((folder + "/directory").c_str(), 0777) == 0);
  CHECK_FALSE(opens(folder + "/directory"));
  std::ofstream(folder + "/file") << "contents";
  CHECK(opens(folder + "/file"));
  REQUIRE(symlink("file", (folder + "/link").c_str()) == 0);
  CHECK_FALSE(opens(folder + "/link"));
  REQUIRE(link((folder + "/file").c_str(), (folder + "/second").c_str()) == 0);
  CHECK_FALSE(opens(folder + "/file"));  // a hard link to a file of ours, under a name of ours
  std::ofstream(folder + "/empty");
  CHECK_FALSE(opens(folder + "/empty"));
  std::ofstream(folder + "/huge") << "contents";
  REQUIRE(truncate((folder + "/huge").c_str(), off_t{1} << 40) == 0);
  CHECK_FALSE(opens(folder + "/huge"));
  CHECK_FALSE(opens("/dev/null"));
  CHECK_FALSE(opens(folder + "/nothing"));
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  strcpy(address.sun_path, (folder + "/socket").c_str());
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  CHECK_FALSE(opens(folder + "/socket"));
  close(listener);
  std::ofstream(folder + "/foreign") << "contents";
  if (getuid() == 0) {
    REQUIRE(chown((folder + "/foreign").c_str(), 12345, 12345) == 0);
    CHECK_FALSE(opens(folder + "/foreign"));
  }
  // Somebody who may read a file may hold a lease on it, and a plain open waits until it is given back.
  std::ofstream(folder + "/leased") << "contents";
  const pid_t owner = fork();
  if (owner == 0) {
    signal(SIGIO, SIG_IGN);
    const int fd = open((folder + "/leased").c_str(), O_RDWR);
    _exit(fcntl(fd, F_SETLEASE, F_WRLCK) == 0 ? (kill(getpid(), SIGSTOP), 0) : 1);
  }
  int left = 0;
  REQUIRE(waitpid(owner, &left, WUNTRACED) == owner);
  if (WIFSTOPPED(left)) {
    CHECK_FALSE(opens(folder + "/leased"));
    kill(owner, SIGKILL);
    waitpid(owner, nullptr, 0);
  }
}

TEST_CASE("sweep: rings of the dead go, of whatever pid namespace, and those of the living stay") {
  Rank here, elsewhere([] {}, 4711), old([] { runtime.header->held = 0; }, 4711);
  CHECK(sweep() == 0);
  CHECK((there(here.path) && there(elsewhere.path) && there(old.path)));
  here.end();
  elsewhere.end();
  old.end();
  CHECK(sweep() == 2);
  CHECK_FALSE((there(here.path) || there(elsewhere.path)));
  CHECK(there(old.path));  // made where there were no marks: nothing tells from here
}

TEST_CASE("sweep: a ring is collected into the directory that it reported to, not into one that has taken its name") {
  Directory directory;
  const std::string report = std::string(directory.path) + "/rank-00003.json",
                    ring = std::string(directory.path) + "/rank-00003.ring";
  Rank rank([] {}, 4711, directory.path);
  std::string key;
  {
    const std::string bytes = contents(rank.path);
    key = reinterpret_cast<const ring::Header*>(bytes.data())->launch;
  }
  rank.end();
  SECTION("its own") {
    std::ofstream(report) << "{\"rank\": 3, \"launch\": \"" << key << "\"}";
    CHECK(sweep() == 1);
    CHECK(there(ring));
  }
  SECTION("another launch's") {
    std::ofstream(report) << "{\"rank\": 3, \"launch\": \"0123456789abcdef\"}";
    CHECK(sweep() == 1);
    CHECK_FALSE(there(ring));
  }
  SECTION("nobody's that is known") {
    CHECK(sweep() == 1);
    CHECK(there(ring));
  }
  SECTION("a process that may write no file of that size leaves it to another, for a day") {
    auto limited = [] {
      const rlimit none = {0, 0};
      return setrlimit(RLIMIT_FSIZE, &none) == 0 ? sweep() : -1;
    };
    if (mostly_free()) {
      CHECK(in_child(limited));
      CHECK((there(rank.path) && !there(ring)));
    }
    SECTION("which collects it") {
      CHECK(sweep() == 1);
      CHECK((!there(rank.path) && there(ring)));
    }
    SECTION("which does not come") {
      make_old(rank.path);
      CHECK(in_child([&] { return limited() - 1; }));
      CHECK((!there(rank.path) && !there(ring)));
    }
  }
}

TEST_CASE("sweep: a ring whose directory another container sees, and this one does not, is kept for a day") {
  Rank rank([] { runtime.header->view = 4711; }, 4711);
  rank.end();
  if (mostly_free()) {
    CHECK(sweep() == 0);
    CHECK(there(rank.path));
  }
  make_old(rank.path);
  CHECK(sweep() == 1);
}

TEST_CASE("sweep: pipes, links, directories and files of others under such names cost nothing") {
  std::string base = "/dev/shm/resil-" + std::to_string(getuid()) + "-swept-by-a-test-" + std::to_string(getpid());
  REQUIRE(mkfifo((base + "-1.ring").c_str(), 0666) == 0);
  REQUIRE(mkfifo((base + "-1.node").c_str(), 0666) == 0);
  REQUIRE(symlink("/etc/passwd", (base + "-2.ring").c_str()) == 0);
  REQUIRE(mkdir((base + "-3.ring").c_str(), 0777) == 0);
  std::ofstream(base + "-4.ring") << "RESILRNG, or so it says";
  alarm(60);
  CHECK(sweep() == 0);
  alarm(0);
  for (const char* end : {"-1.ring", "-1.node", "-2.ring", "-4.ring"}) CHECK(unlink((base + end).c_str()) == 0);
  CHECK(rmdir((base + "-3.ring").c_str()) == 0);
}
