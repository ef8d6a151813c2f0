// SPDX-License-Identifier: Apache-2.0
//
// Parsers of text: the environment (twice: resil's own variables, the launcher's), what ranks publish, hydra's answers,
// fault specs, claims of report directories. Inputs are texts with a zero byte after each.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "checksum/fault/spec.h"
#include "detectors/replicas/ranks.h"
#include "fake_backend.h"
#include "fuzz.h"
#include "shim/config/config.h"
#include "shim/config/config_value.h"
#include "shim/presence/compare.h"
#include "shim/presence/identity.h"
#include "shim/presence/pmi1.h"
#include "shim/report/directory_lock.h"

namespace fuzz {

namespace {

using namespace resil;

std::vector<std::string> texts_of(Input& in, size_t most) {
  std::vector<std::string> texts;
  while (in.left() != 0 && texts.size() < most) {
    const auto* begin = reinterpret_cast<const char*>(in.data());
    texts.emplace_back(begin, strnlen(begin, in.left()));
    in.skip(texts.back().size() + 1);
  }
  return texts;
}

std::vector<char*> environment_of(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

/// One line for a terminal: no control characters, whatever was in the input.
void must_be_a_line(const char* text, const char* what) {
  for (; *text != 0; ++text) must(static_cast<unsigned char>(*text) >= ' ' && *text != 127, what);
}

/// A part of a file name.
void must_be_a_name(const char* text, size_t room, const char* what) {
  must_end(text, room, what);
  for (; *text != 0; ++text) must(*text != '/' && static_cast<unsigned char>(*text) > ' ', what);
}

// Names that the rows of the modules use.
using fault::kAllowed;
bool check(Slice text, ValueProblem* problem) {
  static fault::Specs specs;
  return fault::parse(text, &specs, problem);
}
bool check_list(Slice text, ValueProblem* problem) {
  static replicas::RankList ranks;
  return text == "all" || ranks.parse(text, problem);
}

const ConfigEntry kEntries[] = {
#include "config_rows.inc"
};

const Module kModule = {.name = "fuzz", .description = "", .stage = Stage::kWatch, .config = kEntries};

}  // namespace

void config(const uint8_t* data, size_t size) {
  fake::modules = {&kModule};
  Input in(data, size);
  std::vector<std::string> texts = texts_of(in, 64);
  ConfigError error;
  memset(&error, 'x', sizeof(error));
  std::string lines;
  for (const std::string& text : texts) lines += text + "\n";
  SiteFile site;
  site.path = "site";
  site.text = {lines.data(), lines.size()};
  std::vector<std::string> nothing;
  must(config_load(environment_of(nothing).data(), &error, site), "a site's file ends no job");
  for (size_t i = 0; i < config_warning_count(); ++i) must_be_a_line(config_warning(i), "a warning is one line");
  const bool good = config_load(environment_of(texts).data(), &error);
  must_end(error.line, sizeof(error.line), "an error is a text");
  must(good == (error.line[0] == 0), "an error is said when there is one, and only then");
  must_be_a_line(error.line, "an error is one line");
  for (size_t i = 0; i < config_warning_count(); ++i) must_be_a_line(config_warning(i), "a warning is one line");
  std::vector<std::string> again;
  for (size_t i = 0; i < config_count(); ++i) {
    const ConfigValue value = config_at(i);
    must(value.text != nullptr && config_text(value.entry->name) == value.text, "every variable has a value");
    if (!value.is_default) again.push_back(std::string(value.entry->name) + "=" + value.text);
  }
  const double real = config_real("RESIL_HANG_ALPHA");
  const int64_t whole = config_integer("RESIL_STAGE_MEMORY"), number = config_integer("RESIL_SIGNAL");
  const uint64_t hash = config_hash();
  must(hash != 0, "a hash is not 0");
  if (!good) return;
  must(real >= 1e-9 && real <= 0.1, "a number is in its range");
  must(whole >= 16 && whole <= 1048576 && number >= 0 && number <= 64, "a number is in its range");
  if (size > 3000) return;  // what is written out may be longer than what was given
  must(config_load(environment_of(again).data(), &error), "what a value reads as is a value");
  must(config_hash() == hash, "what a value reads as is the same value");
}

void identity(const uint8_t* data, size_t size) {
  static std::string kvs;
  Input in(data, size);
  const auto flags = in.get<uint8_t>();
  std::vector<std::string> texts = texts_of(in, 40);
  kvs = texts.empty() ? "" : texts[0];
  auto kvs_name = [](char* name, size_t bytes) {
    if (kvs.size() >= bytes) return false;
    memcpy(name, kvs.c_str(), kvs.size() + 1);
    return true;
  };
  const std::vector<char*> environment = environment_of(texts);
  const IdentitySource source = {.environment = environment.data(),
                                 .family = static_cast<MpiFamily>(flags % 3),
                                 .pid = 4711,
                                 .parent_pid = 4710,
                                 .pmix_linked = (flags & 4) != 0,
                                 .kvs_name = (flags & 8) != 0 ? +kvs_name : nullptr};
  const LaunchIdentity made = launch_identity(source);
  must_be_a_name(made.job, sizeof(made.job), "a job's id is a name");
  must_be_a_name(made.launch, sizeof(made.launch), "a launch is a name");
  must_be_a_name(made.key, sizeof(made.key), "a key is a name");
  must(made.launch[0] != 0 && made.key[0] != 0, "a launch has a name");
  must(made.rank >= -1 && made.size >= -1 && made.local_rank >= -1 && made.local_size >= -1, "numbers of ranks");
  must(made.world >= 0, "a world's number");
  char name[136];
  memset(name, 'x', sizeof(name));
  directory_name(made, name, sizeof(name));
  must_be_a_name(name, sizeof(name), "a report directory is a name");
  must(strncmp(name, "resil-", 6) == 0, "a report directory begins with resil-");
  const LaunchIdentity again = launch_identity(source);
  must(strcmp(made.launch, again.launch) == 0 && strcmp(made.key, again.key) == 0 && made.world == again.world,
       "ranks with one environment have one launch");
}

void presence(const uint8_t* data, size_t size) {
  Input in(data, size);
  const auto flags = in.get<uint8_t>();
  PresenceComparison comparison;
  int rank = 0, ranks = 0, given = 0;
  for (const std::string& text : texts_of(in, 64)) {
    PresenceValue value, again;
    memset(&value, 'x', sizeof(value));
    if (presence_parse(text.c_str(), &value)) {
      must_end(value.version, sizeof(value.version), "a version ends");
      must_end(value.modes, sizeof(value.modes), "modes end");
      must_end(value.host, sizeof(value.host), "a host ends");
      char out[208], twice[208];
      presence_format(value, out, sizeof(out));
      must(presence_parse(out, &again), "what is written can be read");
      must(strcmp(value.version, again.version) == 0 && strcmp(value.modes, again.modes) == 0 &&
               value.settings == again.settings && value.flags == again.flags && value.pid == again.pid &&
               strcmp(value.host, again.host) == 0,
           "what is read again is the same");
      presence_format(again, twice, sizeof(twice));
      must(strcmp(out, twice) == 0, "what is written again is the same");
    }
    rank += 1 + (text.size() % 7 == 6);
    comparison.add(rank, text.empty() ? nullptr : text.c_str());
    given += !text.empty();
    ++ranks;
  }
  must(comparison.missing().count() == ranks - given, "every rank is counted");
  LaunchIdentity identity{};
  identity.launcher = (flags & 1) != 0 ? "hydra" : "srun";
  char line[1024];
  const size_t room = 1 + (flags & 0x7f) * 8;
  memset(line, 'x', sizeof(line));
  comparison.describe_difference(line, room);
  must_end(line, room, "a difference ends");
  must_be_a_line(line, "a difference is one line");
  must(room < 100 || comparison.equal() == (line[0] == 0), "a difference is said");
  comparison.describe_missing(identity, rank + 1, (flags & 0x80) != 0, line, room);
  must_end(line, room, "a list of ranks ends");
  must_be_a_line(line, "a list of ranks is one line");
}

void pmi1(const uint8_t* data, size_t size) {
  int pair[2];
  if (size > 16384 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return;
  char number[16];
  snprintf(number, sizeof(number), "%d", pair[0]);
  setenv("PMI_FD", number, 1);
  setenv("PMI_RANK", "0", 1);
  setenv("MPI_LOCALNRANKS", "2", 1);
  [[maybe_unused]] const ssize_t written = send(pair[1], data, size, MSG_NOSIGNAL);
  shutdown(pair[1], SHUT_WR);
  char name[64], value[208];
  memset(name, 'x', sizeof(name));
  if (pmi1_kvs_name(name, sizeof(name))) must_end(name, sizeof(name), "a name ends");
  LaunchIdentity identity{};
  kPmi1Carrier.publish(identity, nullptr, "1|0.1.0|watch|7|0|1|host with a blank");
  for (int rank = 0; rank < 3; ++rank) {
    memset(value, 'x', sizeof(value));
    if (kPmi1Carrier.get(rank, value, sizeof(value))) must_end(value, sizeof(value), "a value ends");
  }
  pmi1_abort(93);
  kPmi1Carrier.release();
  close(pair[0]);
  close(pair[1]);
  unsetenv("PMI_FD");
}

void faults(const uint8_t* data, size_t size) {
  static fault::Specs specs;
  const std::string text(reinterpret_cast<const char*>(data), size);
  ValueProblem problem;
  const bool good = fault::parse({text.data(), text.size()}, &specs, &problem);
  must_end(problem.hint, sizeof(problem.hint), "a hint ends");
  must(good == (problem.what == nullptr), "a problem is said when there is one, and only then");
  if (problem.part.data != nullptr)
    must(problem.part.data >= text.data() && problem.part.data + problem.part.size <= text.data() + text.size(),
         "a part is a part");
  must(specs.count <= fault::kMaxSpecs, "not too many");
  for (unsigned i = 0; good && i < specs.count; ++i) {
    const fault::Spec& spec = specs.list[i];
    must(spec.rank >= -1 && spec.peer >= -1 && spec.min <= spec.max, "ranks and sizes");
    must((spec.nth != 0) != (spec.chance != 0), "at one packet, or by chance");
    must(spec.delay <= 1000000, "a delay");
  }
}

void claims(const uint8_t* data, size_t size) {
  static int directory = -1;
  static std::string path;
  if (directory < 0) {
    char name[] = "/tmp/resil-fuzz-XXXXXX";
    must(mkdtemp(name) != nullptr && (directory = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0,
         "a directory can be made");
    path = name;
    atexit([] {
      unlink((path + "/launch.json").c_str());
      rmdir(path.c_str());
    });
  }
  const std::string file = path + "/launch.json";
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  must(fd >= 0 && write(fd, data, size) == static_cast<ssize_t>(size), "a file can be written");
  close(fd);
  DirectoryLock claim, again;
  memset(&claim, 'x', sizeof(claim));
  const LockState state = directory_lock_read(directory, &claim);
  must(state != LockState::kNone, "a file that is there is there");
  must(directory_lock_make(directory, claim) == EEXIST, "a claim is made once");
  if (state != LockState::kThere) return;
  must_end(claim.name, sizeof(claim.name), "a name ends");
  must_end(claim.origin, sizeof(claim.origin), "an origin ends");
  must_end(claim.program, sizeof(claim.program), "a program ends");
  must_end(claim.launch, sizeof(claim.launch), "a launch ends");
  if (!directory_lock_replace(directory, claim)) return;
  must(directory_lock_read(directory, &again) == LockState::kThere, "what is written can be read");
  must(claim.id == again.id && claim.time == again.time && strcmp(claim.name, again.name) == 0 &&
           strcmp(claim.origin, again.origin) == 0 && strcmp(claim.program, again.program) == 0 &&
           strcmp(claim.launch, again.launch) == 0,
       "what is read again is the same");
}

}  // namespace fuzz
