// SPDX-License-Identifier: Apache-2.0
//
// Files in directories that others may write to: nothing is opened through a link, truncated, waited for, or believed
// when it belongs to somebody else. What needs a second user runs as root only.
#include "shim/report/own_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "check.h"
#include "shim/presence/files.h"
#include "shim/report/directory_lock.h"

namespace {

using namespace resil;

constexpr uid_t kStranger = 64002;

struct Scratch {
  Scratch() {
    char name[] = "/tmp/resil-own-XXXXXX";
    path = mkdtemp(name);
  }
  ~Scratch() { system(("rm -rf " + path).c_str()); }
  std::string file(const char* name) const { return path + "/" + name; }
  int open() const { return own_directory_open(path.c_str(), false); }
  std::string path;
};

std::string content(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

int entries(const std::string& path) {
  DIR* folder = opendir(path.c_str());
  int count = 0;
  while (folder != nullptr && readdir(folder) != nullptr) ++count;
  if (folder != nullptr) closedir(folder);
  return count - 2;
}

bool write_file(const std::string& path, const char* text) {
  OwnFile file;
  if (!own_file_begin(&file, path.c_str(), 0666)) return false;
  if (write(file.fd, text, strlen(text)) < 0) {
    own_file_drop(&file);
    return false;
  }
  return own_file_commit(&file);
}

TEST_CASE("a file is put in place of a link, not through it") {
  Scratch scratch, victim;
  put(victim.file("precious"), "precious");
  for (const char* name : {"rank-00000.json", "rank-00000.json.tmp", "rank-00000.ring.tmp"})
    REQUIRE(symlink(victim.file("precious").c_str(), scratch.file(name).c_str()) == 0);
  REQUIRE(write_file(scratch.file("rank-00000.json"), "report"));
  CHECK(content(scratch.file("rank-00000.json")) == "report");
  CHECK(content(victim.file("precious")) == "precious");
  CHECK(entries(scratch.path) == 3);  // no temporary file is left
  OwnFile file;
  REQUIRE(own_file_begin(&file, scratch.file("other").c_str(), 0666));
  own_file_drop(&file);
  CHECK(entries(scratch.path) == 3);
}

TEST_CASE("what is no file of ours is neither read, appended to nor waited for") {
  Scratch scratch, victim;
  put(victim.file("precious"), "precious");
  REQUIRE(symlink(victim.file("precious").c_str(), scratch.file("link").c_str()) == 0);
  REQUIRE(link(victim.file("precious").c_str(), scratch.file("hard").c_str()) == 0);
  REQUIRE(mkfifo(scratch.file("fifo").c_str(), 0666) == 0);
  REQUIRE(mkdir(scratch.file("folder").c_str(), 0777) == 0);
  alarm(60);  // an open that waits ends the test
  for (const char* name : {"link", "fifo", "folder", "nothing"}) {
    INFO(name);
    CHECK(own_file_read(scratch.file(name).c_str()) < 0);
  }
  for (const char* name : {"link", "hard", "fifo", "folder"}) {
    INFO(name);
    CHECK(own_file_append(scratch.file(name).c_str(), 0666) < 0);
    const int at = scratch.open();
    CHECK(own_file_create_at(at, name, 0666) < 0);
    CHECK(errno == EEXIST);
    close(at);
  }
  alarm(0);
  CHECK(content(victim.file("precious")) == "precious");
  const int fd = own_file_append(scratch.file("log").c_str(), 0666);
  REQUIRE(fd >= 0);
  close(fd);
  CHECK(own_file_exists(scratch.file("link").c_str()));
  CHECK(own_file_remove(scratch.file("link").c_str()));
  CHECK(content(victim.file("precious")) == "precious");
}

TEST_CASE("of several claims one wins, and it is whole whenever it can be seen") {
  Scratch scratch;
  DirectoryLock mine = {};
  strcpy(mine.name, "4711.0.");
  strcpy(mine.program, "app");
  mine.time = 1795372655123;
  constexpr int kChildren = 8;
  for (int i = 1; i <= kChildren; ++i)
    if (fork() == 0) {
      const int at = scratch.open();
      mine.id = static_cast<uint64_t>(i);
      DirectoryLock seen;
      const int error = directory_lock_make(at, mine);
      const bool whole = directory_lock_read(at, &seen) == LockState::kThere && strcmp(seen.name, mine.name) == 0 &&
                         seen.time == mine.time;
      _exit(!whole ? 2 : error == 0 ? 0 : error == EEXIST ? 1 : 3);
    }
  int won = 0, status;
  for (int i = 0; i < kChildren; ++i) {
    REQUIRE(wait(&status) > 0);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) <= 1);
    won += WEXITSTATUS(status) == 0;
  }
  CHECK(won == 1);
  CHECK(entries(scratch.path) == 1);
}

TEST_CASE("damaged claims are none") {
  Scratch scratch;
  DirectoryLock found;
  const int at = scratch.open();
  CHECK(directory_lock_read(at, &found) == LockState::kNone);
  const std::string long_name(300, 'a');
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string(100000, '"'), std::string("{\"time\": 1, \"claim\": \"1"),
        "{\"launch\": \"\", \"claim\": \"1\", \"name\": \"" + long_name +
            "\", \"origin\": \"\", \"program\": \"\", \"time\": 1}",
        std::string("{\"launch\": \"\", \"claim\": \"1\", \"name\": \"\", \"origin\": \"\", \"program\": \"\", "
                    "\"time\": 99999999999999999999}")}) {
    put(scratch.file("launch.json"), text);
    CHECK(directory_lock_read(at, &found) == LockState::kOther);
  }
  unlink(scratch.file("launch.json").c_str());
  mkfifo(scratch.file("launch.json").c_str(), 0666);
  alarm(60);
  CHECK(directory_lock_read(at, &found) == LockState::kOther);
  CHECK(directory_lock_make(at, found) == EEXIST);
  alarm(0);
  close(at);
}

TEST_CASE("a directory that was exchanged is not written to") {
  Scratch scratch, other;
  const std::string place = scratch.file("report");
  mkdir(place.c_str(), 0777);
  const int at = own_directory_open(place.c_str(), false);
  own_directory_expect(place.c_str(), at, true);
  close(at);
  CHECK(write_file(place + "/rank-00000.json", "first"));
  rename(place.c_str(), scratch.file("away").c_str());
  put(other.file("rank-00000.json"), "precious");
  REQUIRE(symlink(other.path.c_str(), place.c_str()) == 0);
  CHECK_FALSE(write_file(place + "/rank-00000.json", "second"));
  CHECK(errno == ESTALE);
  CHECK(own_file_append((place + "/node-x.jsonl").c_str(), 0666) < 0);
  CHECK(content(other.file("rank-00000.json")) == "precious");
  CHECK(entries(other.path) == 1);
  own_directory_expect("", -1, false);
}

TEST_CASE("files of another user are not believed, their directories are told apart") {
  if (geteuid() != 0) {
    WARN("skipped: only root can make files of another user");
    return;
  }
  Scratch scratch;
  put(scratch.file("value"), "stop");
  CHECK(own_file_read(scratch.file("value").c_str()) >= 0);
  REQUIRE(chown(scratch.file("value").c_str(), kStranger, kStranger) == 0);
  CHECK(own_file_read(scratch.file("value").c_str()) < 0);
  CHECK(own_file_append(scratch.file("value").c_str(), 0666) < 0);
  struct stat status;
  const int at = scratch.open();
  REQUIRE(fstat(at, &status) == 0);
  CHECK(own_directory_trust(at, status) == DirectoryTrust::kOwn);
  CHECK(own_directory_path_safe(at));
  fchmod(at, 0777);
  REQUIRE(fstat(at, &status) == 0);
  CHECK(own_directory_trust(at, status) == DirectoryTrust::kShared);
  CHECK_FALSE(own_directory_path_safe(at));
  REQUIRE(fchown(at, kStranger, kStranger) == 0);
  REQUIRE(fstat(at, &status) == 0);
  CHECK(own_directory_trust(at, status) == DirectoryTrust::kForeign);
  CHECK(entries(scratch.path) == 1);
  close(at);
}

TEST_CASE("a presence value that another user put there is no value") {
  if (geteuid() != 0) {
    WARN("skipped: only root can make files of another user");
    return;
  }
  Scratch scratch;
  LaunchIdentity identity = {};
  strcpy(identity.job, "4711");
  strcpy(identity.key, "0");
  char value[kPresenceBytes];
  REQUIRE(kFilesCarrier.publish(identity, scratch.path.c_str(), "mine"));
  REQUIRE(kFilesCarrier.get(0, value, sizeof value));
  CHECK(std::string(value) == "mine");
  const std::string other = scratch.file(".present/4711.0..rank-1");
  put(other, "3|another version");
  CHECK(kFilesCarrier.get(1, value, sizeof value));
  REQUIRE(chown(other.c_str(), kStranger, kStranger) == 0);
  CHECK_FALSE(kFilesCarrier.get(1, value, sizeof value));
  unlink(other.c_str());
  mkfifo(other.c_str(), 0666);
  alarm(60);
  CHECK_FALSE(kFilesCarrier.get(1, value, sizeof value));
  alarm(0);
  unlink(other.c_str());
  kFilesCarrier.remove();
  CHECK(entries(scratch.path) == 0);
  // A link in place of the directory, or somebody else's directory: files carry nothing.
  Scratch victim;
  REQUIRE(symlink(victim.path.c_str(), scratch.file(".present").c_str()) == 0);
  CHECK_FALSE(kFilesCarrier.publish(identity, scratch.path.c_str(), "mine"));
  CHECK(entries(victim.path) == 0);
  unlink(scratch.file(".present").c_str());
  mkdir(scratch.file(".present").c_str(), 0777);
  REQUIRE(chown(scratch.file(".present").c_str(), kStranger, kStranger) == 0);
  CHECK_FALSE(kFilesCarrier.publish(identity, scratch.path.c_str(), "mine"));
}

}  // namespace
