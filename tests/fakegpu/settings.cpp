// SPDX-License-Identifier: Apache-2.0
//
// What FAKEGPU says: speeds, sizes, and the faults that are to be made; counts of calls. A bad word ends the process.

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/fakegpu/engine.h"

namespace fakegpu {

namespace {

constexpr const char* kFaultNames[] = {"early-stream", "early-device", "early-event",  "lost-stream",
                                       "lost-device",  "lost-event",   "corrupt-down", "corrupt-up",
                                       "alias-down",   "alias-up",     "gone",         "poison"};
static_assert(std::size(kFaultNames) == static_cast<size_t>(Fault::kCount));
constexpr const char* kCountNames[] = {"down",  "up",     "peer",       "inside", "pageable", "launch",
                                       "alloc", "pinned", "registered", "event",  "query",    "sync"};
static_assert(std::size(kCountNames) == static_cast<size_t>(Count::kCount));

struct Plan {
  uint64_t every, seen;
  size_t minimum;
};
Plan plans[static_cast<size_t>(Fault::kCount)];
std::string* log_path;
std::atomic<uint64_t> made;
std::atomic<uint64_t> counts[static_cast<size_t>(Count::kCount)];
std::atomic<bool> release_called;

[[noreturn]] void refuse(const char* word) {
  fprintf(stderr, "fakegpu: FAKEGPU has '%s', which is not in fakegpu.h\n", word);
  abort();
}

double number(const char* word, const char* text) {
  char* end;
  const double value = strtod(text, &end);
  if (end == text || *end != 0 || !(value >= 0)) refuse(word);
  return value;
}

void read_fault(const char* word, std::string text) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    std::string one = text.substr(begin, end - begin), name = one.substr(0, one.find(':'));
    begin = end + 1;
    size_t kind = 0;
    while (kind < std::size(kFaultNames) && name != kFaultNames[kind]) ++kind;
    if (kind == std::size(kFaultNames)) refuse(word);
    Plan& plan = plans[kind];
    plan.every = 7;
    unsigned long long every = 0, minimum = 0;
    if (name.size() != one.size()) {
      if (sscanf(one.c_str() + name.size(), ":%llu:%llu", &every, &minimum) < 1 || every == 0) refuse(word);
      plan.every = every;
      plan.minimum = minimum;
    }
  }
}

Settings read() {
  double devices = 1, first = 0, memory = 1024, pinned = 4096, down = 2, up = 2, peer = 8, digest = 20, latency = 5,
         overdue = 1000, ipc = 1, code = 1, ptx = 1;
  const struct {
    const char* name;
    double* value;
  } numbers[] = {{"devices", &devices}, {"memory", &memory}, {"pinned", &pinned}, {"down", &down},
                 {"up", &up},           {"peer", &peer},     {"digest", &digest}, {"latency", &latency},
                 {"overdue", &overdue}, {"first", &first},   {"ipc", &ipc},       {"code", &code},
                 {"text", &ptx}};
  const char* text = getenv("FAKEGPU");
  std::string all = text != nullptr ? text : "";
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find(',', begin), all.size());
    const std::string word = all.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = word.find('=');
    if (equals == std::string::npos) refuse(word.c_str());
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    bool known = true;
    if (name == "fault") {
      read_fault(word.c_str(), value);
    } else if (name == "log") {
      log_path = new std::string(value);
      if (const size_t at = value.find("%p"); at != std::string::npos)
        log_path->replace(at, 2, std::to_string(getpid()));
    } else {
      known = false;
      for (auto& entry : numbers)
        if (name == entry.name) {
          *entry.value = number(word.c_str(), value.c_str());
          known = true;
        }
    }
    if (!known) refuse(word.c_str());
  }
  if (!(down > 0 && up > 0 && peer > 0 && digest > 0)) refuse("a speed of 0");
  constexpr double kMiB = 1048576;
  return {static_cast<unsigned>(devices),
          static_cast<size_t>(memory * kMiB),
          static_cast<size_t>(pinned * kMiB),
          down,
          up,
          peer,
          digest,
          static_cast<Time>(latency * 1000),
          static_cast<Time>(overdue * 1000),
          static_cast<unsigned>(first),
          static_cast<unsigned>(ipc),
          code != 0,
          ptx != 0};
}

}  // namespace

Time now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<Time>(time.tv_sec) * 1000000000 + static_cast<Time>(time.tv_nsec);
}

const Settings& settings() {
  static const Settings value = read();
  return value;
}

bool has_fault(Fault kind) { return plans[static_cast<size_t>(kind)].every != 0; }

bool due_fault(Fault kind, size_t bytes) {
  Plan& plan = plans[static_cast<size_t>(kind)];
  return plan.every != 0 && bytes >= plan.minimum && ++plan.seen % plan.every == 0;
}

void made_fault(Fault kind, size_t bytes) {
  const uint64_t number = ++made;
  if (log_path == nullptr) return;
  const int file = open(log_path->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  char line[160];
  const int length =
      snprintf(line, sizeof(line), "%llu %s bytes=%zu pid=%d time=%.6f\n", static_cast<unsigned long long>(number),
               kFaultNames[static_cast<size_t>(kind)], bytes, getpid(), fakegpu_now());
  if (write(file, line, static_cast<size_t>(length)) != length) abort();
  close(file);
}

bool released() {
  if (release_called.load(std::memory_order_relaxed)) return true;
  static const char* const file = getenv("FAKEGPU_RELEASE");
  return file != nullptr && access(file, F_OK) == 0;
}

void count(Count what) { counts[static_cast<size_t>(what)].fetch_add(1, std::memory_order_relaxed); }

}  // namespace fakegpu

using namespace fakegpu;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT uint64_t fakegpu_faults() { return made; }
EXPORT double fakegpu_now() { return static_cast<double>(now()) * 1e-9; }
EXPORT void fakegpu_release() { release_called = true; }
EXPORT uint64_t fakegpu_count(const char* what) {
  for (size_t i = 0; i < std::size(kCountNames); ++i)
    if (strcmp(what, kCountNames[i]) == 0) return counts[i];
  return UINT64_MAX;
}
