// SPDX-License-Identifier: Apache-2.0
//
// The directory of a recording: made, emptied of an older recording and marked by one rank of all that see it. Which
// one is decided by mkdir(2), the one operation that is atomic on every shared file system. Application's thread,
// before PMPI_Init; system calls.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "checksum/record/directory_lock.h"
#include "checksum/record/file.h"
#include "checksum/record/writer.h"
#include "shim/base/hash.h"
#include "shim/report/json.h"
#include "shim/report/own_files.h"

namespace resil::record {

namespace {

constexpr char kManifest[] = "recording.json";
constexpr char kMark[] = "\"resil_recording\": ";
constexpr int kRoom = 1200;

bool fail(Problem* problem, ProblemKind kind, const char* path, const char* what) {
  problem->kind = kind;
  snprintf(problem->text, sizeof(problem->text), "%.1000s: %s", path, what);
  return false;
}

bool fail(Problem* problem, const char* path, int error) {
  const bool denied = error == EACCES || error == EPERM || error == EROFS;
  return fail(problem, denied ? ProblemKind::kPermission : ProblemKind::kSystem, path, strerror(error));
}

/// `launch` as it stands in recording.json: nothing that JSON would escape.
void plain(char (&to)[96], const char* launch) {
  size_t i = 0;
  for (; launch[i] != 0 && i + 1 < sizeof(to); ++i) {
    const char c = launch[i];
    const bool usual = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    to[i] = usual || c == '.' || c == '-' || c == '_' || c == ':' || c == '@' ? c : '_';
  }
  to[i] = 0;
}

enum class Manifest { kNone, kOurs, kOlder, kForeign };

Manifest manifest_of(const char* directory, const char* launch) {
  char path[kRoom], text[4096], wanted[128], own[96];
  snprintf(path, sizeof(path), "%s/%s", directory, kManifest);
  const int descriptor = own_file_read(path);
  if (descriptor < 0) return errno == ENOENT ? Manifest::kNone : Manifest::kForeign;
  const ssize_t got = read(descriptor, text, sizeof(text) - 1);
  close(descriptor);
  if (got <= 0) return Manifest::kForeign;
  text[got] = 0;
  if (strstr(text, kMark) == nullptr) return Manifest::kForeign;
  plain(own, launch);
  snprintf(wanted, sizeof(wanted), "\"launch\": \"%s\"", own);
  return strstr(text, wanted) != nullptr ? Manifest::kOurs : Manifest::kOlder;
}

bool digits(const char* text, const char* end) {
  for (; *text >= '0' && *text <= '9'; ++text) {}
  return strcmp(text, end) == 0;
}

bool begins(const char* text, const char* with) { return strncmp(text, with, strlen(with)) == 0; }

bool is_rank_file(const char* name) { return begins(name, "rank-") && name[5] != '.' && digits(name + 5, ".rec"); }
bool is_world(const char* name) { return begins(name, "world-") && name[6] != 0 && digits(name + 6, ""); }
bool is_claim(const char* name) { return begins(name, ".claim-"); }
bool is_own(const char* name) {
  return is_rank_file(name) || is_world(name) || is_claim(name) || begins(name, kManifest) || strcmp(name, ".") == 0 ||
         strcmp(name, "..") == 0;
}

/// The first name in it that record does not make; "" if there is none. False: it cannot be read.
bool foreign_name(const char* directory, char* name, size_t bytes) {
  DIR* folder = opendir(directory);
  if (folder == nullptr) return false;
  name[0] = 0;
  while (const dirent* entry = readdir(folder))
    if (!is_own(entry->d_name)) {
      snprintf(name, bytes, "%s", entry->d_name);
      break;
    }
  closedir(folder);
  return true;
}

/// Removes an older recording's files; `claim` is this launch's and stays. The manifest goes last, so that a removal
/// that was interrupted can be taken up.
bool empty(const char* directory, const char* claim, bool inner) {
  const int at = own_directory_open(directory, !inner);  // a world-N that is a link is not this recording's
  DIR* folder = at >= 0 ? fdopendir(at) : nullptr;
  if (folder == nullptr) {
    if (at >= 0) close(at);
    return false;
  }
  char path[kRoom];
  bool ok = true;
  while (const dirent* entry = readdir(folder)) {
    const char* name = entry->d_name;
    if (name[0] == '.' && !is_claim(name)) continue;
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (is_rank_file(name) || (begins(name, kManifest) && strcmp(name, kManifest) != 0))
      ok = (unlinkat(at, name, 0) == 0 || errno == ENOENT) && ok;
    else if (is_claim(name) && strcmp(name, claim) != 0) unlinkat(at, name, AT_REMOVEDIR);
    else if (is_world(name) && !inner && manifest_of(path, "") != Manifest::kForeign)
      ok = empty(path, "", true) && (unlinkat(at, name, AT_REMOVEDIR) == 0 || errno == ENOENT) && ok;
  }
  ok = ok && (unlinkat(at, kManifest, 0) == 0 || errno == ENOENT);
  closedir(folder);
  return ok;
}

/// Whether `directory` may be made ready for a recording: it holds nothing but what record itself makes.
bool is_usable(const char* directory, Manifest manifest, Problem* problem) {
  char name[300], what[400];
  if (!foreign_name(directory, name, sizeof(name))) return fail(problem, directory, errno);
  if (name[0] == 0 && manifest != Manifest::kForeign) return true;
  snprintf(what, sizeof(what), "is not empty and not a recording (it holds %.300s); name another directory",
           name[0] != 0 ? name : kManifest);
  return fail(problem, ProblemKind::kNotEmpty, directory, what);
}

bool write_manifest(const char* directory, const Identity& identity) {
  char path[kRoom], launch[96];
  OwnFile file;
  snprintf(path, sizeof(path), "%s/%s", directory, kManifest);
  if (!own_file_begin(&file, path, 0666)) return false;
  plain(launch, identity.launch);
  static JsonWriter json;  // 64 KiB
  json.restart(file.fd, false);
  json.begin_object();
  json.integer("resil_recording", kFormatVersion);
  json.text("launch", launch);
  json.integer("world_size", identity.world_size);
  json.integer("world", identity.world);
  json.text("program", identity.program);
  json.text("resil_version", identity.resil_version);
  json.integer("created", static_cast<int64_t>(identity.created));
  json.end_object();
  if (json.finish()) return own_file_commit(&file);
  own_file_drop(&file);
  errno = json.error();
  return false;
}

}  // namespace

bool directory_lock(const char* directory, const Identity& identity, Problem* problem) {
  SizeSignalShield shield;
  problem->kind = ProblemKind::kNone;
  problem->text[0] = 0;
  char path[kRoom], claim[40];
  if (directory[0] == 0 || strlen(directory) > 1000) return fail(problem, directory, ENAMETOOLONG);
  if (!own_directory_make(directory)) return fail(problem, directory, errno);
  if (manifest_of(directory, identity.launch) == Manifest::kOurs) return true;
  // Before anything is made: a rank that finds a directory of the user's ends the job, and the others are killed in
  // the middle of what they do, so that a claim made in there would stay. By names only: another rank may be replacing
  // the manifest at this moment.
  if (!is_usable(directory, Manifest::kNone, problem)) return false;
  snprintf(claim, sizeof(claim), ".claim-%016llx", static_cast<unsigned long long>(hash_text(identity.launch)));
  snprintf(path, sizeof(path), "%s/%s", directory, claim);
  if (mkdir(path, 0777) != 0)
    return errno == EEXIST || fail(problem, directory, errno);  // another rank is at it; writer_open looks again
  // Another rank may have been, and gone, since we looked.
  const Manifest manifest = manifest_of(directory, identity.launch);
  bool ok = true;
  if (manifest != Manifest::kOurs) {
    ok = is_usable(directory, manifest, problem);
    if (ok &&
        ((manifest == Manifest::kOlder && !empty(directory, claim, false)) || !write_manifest(directory, identity)))
      ok = fail(problem, directory, errno);
  }
  rmdir(path);
  return ok;
}

bool directory_is_locked(const char* directory, const char* launch, Problem* problem) {
  problem->kind = ProblemKind::kNone;
  problem->text[0] = 0;
  switch (manifest_of(directory, launch)) {
    case Manifest::kOurs: return true;
    case Manifest::kNone:
      return fail(problem, ProblemKind::kMissing, directory, "was not made ready for recording by any rank");
    default: return fail(problem, ProblemKind::kNotEmpty, directory, "is in use by another recording");
  }
}

}  // namespace resil::record
