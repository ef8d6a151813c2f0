// SPDX-License-Identifier: Apache-2.0
//
// What the tree between nodes costs: N leaders on this machine, in as many processes as asked for, each leader with its
// own listening port on loopback and its own place in the tree. Prints lines "name value unit":
// the time from opening until all are attached, rounds in which every answer is 256 bytes (merged to 256, or appended
// to 256 N), rounds with one leader dead, stopped or both in the worst place, and what an idle tree sends and costs.
//
//   overlay_bench LEADERS PROCESSES ROUNDS [FAN_OUT]
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "detectors/hang/overlay/overlay.h"

using namespace resil::hang;

namespace {

constexpr uint32_t kPart = 256;
constexpr uint32_t kRanks = 4, kState = 450;  ///< ranks a node, and bytes of a state in a job that hangs
constexpr uint16_t kMerged = 1, kAppended = 2, kStates = 3, kFew = 4;
/// The rounds of an answer to `resil why`: summary, states, counters of messages, states once more, names.
constexpr double kGather = 0.3;  ///< of monitor.cpp: who leads instead of another asks nobody before
constexpr uint16_t kAnswerRounds[] = {kMerged, kStates, kFew, kStates, kFew};

struct Shared {
  std::atomic<uint32_t> stopped, dead;  ///< node numbers; kNoNode: none
  std::atomic<bool> over;
  std::atomic<uint64_t> bytes, frames, cpu_microseconds;  ///< sums over processes, when each is told to tell
  std::atomic<uint32_t> tell, told;
  std::atomic<uint32_t> asked;  ///< node that is to call the root; kNoNode: none
  std::atomic<double> answered;  ///< when who leads instead of node 0 has all of an answer; 0: not yet
  std::atomic<uint32_t> missed;  ///< nodes that were not in it
};
Shared* shared;

double seconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

struct Finish {
  uint64_t round = 0;
  double at = 0;
  uint32_t bytes = 0, unanswered = 0, first = kNoNode;
};

uint32_t answer(void*, uint16_t kind, const void*, uint32_t, void* room, uint32_t) {
  const uint32_t bytes = kind == kStates ? kRanks * kState : kind == kFew ? kPart / 2 : kPart;
  memset(room, 1, bytes);
  return bytes;
}

bool merge(void*, uint16_t kind, void* accumulated, uint32_t* bytes, uint32_t room, const void* incoming,
           uint32_t incoming_bytes) {
  auto* to = static_cast<uint8_t*>(accumulated);
  auto* from = static_cast<const uint8_t*>(incoming);
  if (kind == kMerged) {
    for (uint32_t i = 0; i < kPart && i < incoming_bytes; ++i) to[i] = std::max(to[i], from[i]);
    return true;
  }
  if (incoming_bytes > room - *bytes) return false;
  memcpy(to + *bytes, from, incoming_bytes);
  *bytes += incoming_bytes;
  return true;
}

void finished(void* self, uint64_t round, uint16_t, const void*, uint32_t bytes, const uint32_t* unanswered,
              uint32_t count) {
  *static_cast<Finish*>(self) = {round, seconds(), bytes, count, count > 0 ? unanswered[0] : kNoNode};
}

/// The leaders of one process, node numbers first, first + step, ...
class Leaders {
 public:
  Leaders(const std::vector<NodeEntry>& table, const std::vector<int>& listeners, uint32_t first, uint32_t step,
          const OverlayOptions& options)
      : overlays_(table.size()), first_(first), step_(step), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    const uint8_t key[16] = {1, 2, 3};
    const OverlayHandler handler = {&finish, answer, merge, finished, nullptr, nullptr, nullptr};
    for (uint32_t i = 0; i < table.size(); ++i) {
      if (i % step != first) {
        close(listeners[i]);
        continue;
      }
      overlays_[i] = overlay_open(listeners[i], table.data(), static_cast<uint32_t>(table.size()), i, false, key,
                                  handler, options);
      if (overlays_[i] == nullptr) {
        perror("overlay_bench: overlay_open");
        exit(1);
      }
      epoll_event event = {};
      event.events = EPOLLIN, event.data.u32 = i;
      epoll_ctl(epoll_, EPOLL_CTL_ADD, overlay_descriptor(overlays_[i]), &event);
    }
  }

  void turn(int timeout_ms) {
    const uint32_t stopped = shared->stopped, dead = shared->dead;
    if (dead < overlays_.size() && overlays_[dead] != nullptr) {
      overlay_drop(overlays_[dead]);
      overlays_[dead] = nullptr;
    }
    if (stopped != unwatched_) {
      watch(unwatched_, EPOLLIN);
      watch(unwatched_ = stopped, 0);
    }
    const uint32_t asked = shared->asked;
    if (asked < overlays_.size() && overlays_[asked] != nullptr && overlay_raise(overlays_[asked], 1, nullptr, 0))
      shared->asked = kNoNode;
    const double now = seconds();
    if (now >= sweep_) {  // timers
      sweep_ = now + 0.1;
      for (uint32_t i = first_; i < overlays_.size(); i += step_) step(i, stopped);
    }
    epoll_event events[64];
    const int ready = epoll_wait(epoll_, events, 64, timeout_ms);
    for (int i = 0; i < ready; ++i) step(events[i].data.u32, stopped);
  }

  void count(bool add) {
    rusage used;
    getrusage(RUSAGE_SELF, &used);
    uint64_t bytes = 0, frames = 0;
    for (Overlay* one : overlays_)
      if (one != nullptr) bytes += overlay_counters(one).bytes_out, frames += overlay_counters(one).frames_out;
    const uint64_t cpu = static_cast<uint64_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
                         static_cast<uint64_t>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    shared->bytes += add ? bytes : -bytes;
    shared->frames += add ? frames : -frames;
    shared->cpu_microseconds += add ? cpu : -cpu;
  }

  Overlay* root() { return overlays_[lead]; }
  uint32_t lead = 0;  ///< of this process
  Finish finish;

 private:
  void watch(uint32_t i, uint32_t events) {
    epoll_event event = {};
    event.events = events, event.data.u32 = i;
    if (i < overlays_.size() && overlays_[i] != nullptr)
      epoll_ctl(epoll_, EPOLL_CTL_MOD, overlay_descriptor(overlays_[i]), &event);
  }
  void step(uint32_t i, uint32_t stopped) {
    if (overlays_[i] != nullptr && i != stopped) overlay_step(overlays_[i], seconds(), 0);
  }

  std::vector<Overlay*> overlays_;
  uint32_t first_, step_;
  int epoll_;
  double sweep_ = 0;
  uint32_t unwatched_ = kNoNode;
};

void answer_instead(Leaders& leaders);

/// Until the flag in shared memory.
void serve(Leaders& leaders) {
  for (uint32_t tell = 0; !shared->over;) {
    leaders.turn(5);
    answer_instead(leaders);
    if (shared->tell != tell) {
      tell = shared->tell;
      leaders.count(tell % 2 == 0);
      ++shared->told;
    }
  }
}

void fail(const char* what) {
  fprintf(stderr, "overlay_bench: %s\n", what);
  shared->over = true;
  exit(1);
}

template <class Done>
bool until(Leaders& leaders, double patience, const Done& done) {
  for (const double end = seconds() + patience; seconds() < end; leaders.turn(5))
    if (done()) return true;
  return done();
}

/// Seconds of one round; how many others than `expected` did not answer.
double ask(Leaders& leaders, uint16_t kind, uint32_t expected, uint32_t* unexpected) {
  const double began = seconds();
  overlay_step(leaders.root(), began, 0);
  const uint64_t round = overlay_ask(leaders.root(), kind, "what?", 5, began + 30);
  if (round == 0 || !until(leaders, 30, [&] { return leaders.finish.round == round; })) fail("a round did not end");
  *unexpected = leaders.finish.unanswered - expected;
  return leaders.finish.at - began;
}

double ask(Leaders& leaders, uint16_t kind, uint32_t expected) {
  uint32_t unexpected;
  const double took = ask(leaders, kind, expected, &unexpected);
  if (unexpected != 0) {
    fprintf(stderr, "overlay_bench: %u nodes did not answer, the first is %u; expected %u\n", leaders.finish.unanswered,
            leaders.finish.first, expected);
    fail("not everybody answered");
  }
  return took;
}

/// Rounds that miss somebody who lives (a process here had no processor for a second) have a line of their own.
void print_rounds(Leaders& leaders, const char* name, uint16_t kind, uint32_t missing, uint32_t rounds) {
  std::vector<double> times;
  uint32_t partial = 0;
  for (uint32_t i = 0; i < rounds; ++i) {
    uint32_t unexpected;
    const double took = ask(leaders, kind, missing, &unexpected);
    if (unexpected == 0) times.push_back(took * 1e3);
    else ++partial;
  }
  if (times.empty()) fail("no round was whole");
  std::sort(times.begin(), times.end());
  printf("%s_median %.2f ms\n%s_greatest %.2f ms\n", name, times[times.size() / 2], name, times.back());
  if (partial > 0) printf("%s_partial %u rounds\n", name, partial);
  fflush(stdout);
}

/// Milliseconds of all rounds of an answer; how many of them missed others than `expected`.
double ask_why(Leaders& leaders, uint32_t expected, uint32_t* partial) {
  const double began = seconds();
  for (const uint16_t kind : kAnswerRounds) {
    uint32_t unexpected;
    ask(leaders, kind, expected, &unexpected);
    *partial += unexpected != 0;
  }
  return (seconds() - began) * 1e3;
}

/// Node 1, when it leads while node 0 is stopped.
void answer_instead(Leaders& leaders) {
  leaders.lead = 1;
  if (shared->stopped != 0 || shared->answered != 0 || leaders.root() == nullptr ||
      !overlay_state(leaders.root()).is_root)
    return;
  const double end = seconds() + kGather;
  until(leaders, kGather, [&] { return seconds() >= end; });
  uint32_t partial = 0;
  ask_why(leaders, 1, &partial);
  shared->missed = leaders.finish.unanswered;
  shared->answered = seconds();
}

void print_answers(Leaders& leaders, const char* name, uint32_t missing, uint32_t count) {
  std::vector<double> times;
  uint32_t partial = 0;
  for (uint32_t i = 0; i < count; ++i) times.push_back(ask_why(leaders, missing, &partial));
  std::sort(times.begin(), times.end());
  printf("%s_median %.0f ms\n%s_greatest %.0f ms\n", name, times[times.size() / 2], name, times.back());
  if (partial > 0) printf("%s_partial %u rounds\n", name, partial);
  fflush(stdout);
}

uint64_t difference(Leaders& leaders, uint32_t processes, double wait) {
  const auto tell = [&] {
    shared->told = 0;
    ++shared->tell;
    leaders.count(shared->tell % 2 == 0);
    if (!until(leaders, 10, [&] { return shared->told == processes - 1; })) fail("a process does not answer");
  };
  shared->bytes = shared->frames = shared->cpu_microseconds = 0;
  tell();
  const double end = seconds() + wait;
  until(leaders, wait, [&] { return seconds() >= end; });
  tell();
  return shared->bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t count = argc > 1 ? static_cast<uint32_t>(atoi(argv[1])) : 0;
  const uint32_t processes = argc > 2 ? static_cast<uint32_t>(atoi(argv[2])) : 0;
  const uint32_t rounds = argc > 3 ? static_cast<uint32_t>(atoi(argv[3])) : 0;
  const uint32_t fan_out = argc > 4 ? static_cast<uint32_t>(atoi(argv[4])) : 32;
  if (count < 3 || processes < 1 || rounds < 1 || fan_out < 2) {
    fprintf(stderr, "usage: overlay_bench LEADERS PROCESSES ROUNDS [FAN_OUT]\n");
    return 2;
  }
  rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  shared =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  shared->stopped = shared->dead = shared->asked = kNoNode;

  std::vector<NodeEntry> table(count);
  std::vector<int> listeners(count);
  for (uint32_t i = 0; i < count; ++i) {
    table[i].first_rank = i, table[i].ranks = 1;
    listeners[i] = overlay_listen(&table[i].leader, true);
    if (listeners[i] < 0) {
      perror("overlay_bench: overlay_listen");
      return 1;
    }
  }
  OverlayOptions options = {};
  options.fan_out = fan_out;
  options.stagger = 2;  // all share two cores: the start is slow, not dead
  std::vector<pid_t> children;
  for (uint32_t process = 1; process < processes; ++process) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Leaders leaders(table, listeners, process, processes, options);
      serve(leaders);
      _exit(0);
    }
    children.push_back(pid);
  }
  const double began = seconds();
  Leaders leaders(table, listeners, 0, processes, options);
  if (!until(leaders, 60, [&] { return overlay_state(leaders.root()).reachable == count; }))
    fail("not all nodes found their place");
  printf("attached_and_known_at_the_root %.0f ms\n", (seconds() - began) * 1e3);
  ask(leaders, kMerged, 0);
  print_rounds(leaders, "round_256_bytes", kMerged, 0, rounds);
  print_rounds(leaders, "round_256_bytes_a_node", kAppended, 0, rounds);
  print_answers(leaders, "answer", 0, rounds / 4 + 1);

  constexpr double kIdle = 10;
  const uint64_t bytes = difference(leaders, processes, kIdle);
  printf("idle_bytes_a_node_and_second %.1f bytes\n", static_cast<double>(bytes) / kIdle / count);
  printf("idle_cpu_a_node_and_second %.1f us\n", static_cast<double>(shared->cpu_microseconds) / kIdle / count);

  shared->stopped = count - 1;  // a leaf
  until(leaders, 0.2, [] { return false; });
  printf("round_leaf_stopped %.0f ms\n", ask(leaders, kMerged, 1) * 1e3);
  printf("next_round_leaf_stopped %.2f ms\n", ask(leaders, kMerged, 1) * 1e3);
  shared->stopped = kNoNode;
  const auto all_are_back = [&] {
    overlay_ask(leaders.root(), kMerged, "", 0, seconds() + 30);
    return until(leaders, 2, [&] { return leaders.finish.unanswered == 0; });
  };
  if (!until(leaders, 30, all_are_back)) fail("the stopped node did not come back");
  shared->stopped = count - 2;  // another leaf, while an answer is asked for
  until(leaders, 0.2, [] { return false; });
  uint32_t partial = 0;
  printf("answer_leaf_stopped %.0f ms\n", ask_why(leaders, 1, &partial));
  if (partial > 0) printf("answer_leaf_stopped_partial %u rounds\n", partial);
  shared->stopped = kNoNode;
  if (!until(leaders, 30, [&] {
        overlay_ask(leaders.root(), kMerged, "", 0, seconds() + 30);
        return until(leaders, 2, [&] { return leaders.finish.unanswered == 0; });
      }))
    fail("the stopped node did not come back");

  if (processes > 1) {  // the root, and a leaf is asked
    const double asked = seconds();
    shared->stopped = 0;
    shared->asked = count - 1;
    if (!until(leaders, 30, [] { return shared->answered != 0; })) fail("nobody answers instead of the root");
    printf("answer_root_stopped %.0f ms\n", (shared->answered - asked) * 1e3);
    printf("answer_root_stopped_missed %u nodes\n", shared->missed - 1);
    shared->stopped = kNoNode;
    if (!until(leaders, 60, all_are_back)) fail("not all came back to the root");
  }

  shared->dead = 1;  // with a subtree below it, which has to go elsewhere
  const double died = seconds();
  double took = 0;
  if (!until(leaders, 30, [&] {
        const double start = seconds();
        const uint64_t round = overlay_ask(leaders.root(), kMerged, "", 0, start + 30);
        until(leaders, 5, [&] { return leaders.finish.round == round; });
        took = leaders.finish.at - start;
        return leaders.finish.round == round && leaders.finish.unanswered == 1 && leaders.finish.first == 1;
      }))
    fail("the children of the dead leader did not come back");
  printf("leader_dead_until_all_others_answer %.0f ms\n", (seconds() - died) * 1e3);
  printf("that_round %.2f ms\n", took * 1e3);
  print_rounds(leaders, "round_leader_dead", kMerged, 1, rounds);

  shared->stopped = 2;  // the whole subtree is silent until its nodes notice
  until(leaders, 0.2, [] { return false; });
  const double start = seconds();
  const uint64_t round = overlay_ask(leaders.root(), kMerged, "", 0, start + 30);
  until(leaders, 30, [&] { return leaders.finish.round == round; });
  printf("round_inner_leader_stopped %.0f ms\n", (leaders.finish.at - start) * 1e3);
  printf("nodes_missed_then %u nodes\n", leaders.finish.unanswered - 1);
  const double stopped = seconds();
  if (!until(leaders, 60, [&] {
        const uint64_t next = overlay_ask(leaders.root(), kMerged, "", 0, seconds() + 30);
        until(leaders, 5, [&] { return leaders.finish.round == next; });
        return leaders.finish.unanswered == 2;
      }))
    fail("the children of the stopped leader did not come back");
  printf("inner_leader_stopped_until_all_others_answer %.0f ms\n", (seconds() - stopped) * 1e3);
  shared->over = true;
  for (const pid_t pid : children) waitpid(pid, nullptr, 0);
  return 0;
}
