// SPDX-License-Identifier: Apache-2.0
//
// What the helper of a node sees, for tests:   hang_reader RING...
// RING: files of the ranks of one job in rank order; each is waited for until it is there. Then one line of JSON on
// standard output for each line of standard input:
//   look   the quick looks           state   looks, then the whole states
//   ask COMM SOURCE DESTINATION TAG  the answer to that question (COMM: a job-wide id, or the name in section "comms")
// The library's own objects are in it; no MPI is.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "detectors/hang/reader/snapshot.h"
#include "shim/model/calls.h"

using namespace resil;
using namespace resil::hang;

namespace {

Watched watched[64];
uint32_t rank_count;

const char* const kActivities[] = {"unknown", "computing", "blocked", "polling", "finished", "gone", "stopped"};
const char* const kParts[] = {"receive", "probe", "send", "collective", "sink",
                              "other",   "token", "lock", "hold",       "freed"};

void print_looks() {
  printf("[");
  for (uint32_t i = 0; i < rank_count; ++i) {
    const QuickLook quick = look(watched[i], ~uint64_t{0});
    char letter;
    uint64_t cpu;
    const RankActivity life = liveness(watched[i], &letter, &cpu);
    printf("%s{\"in_mpi\":%d,\"polling\":%d,\"moved\":%d,\"finished\":%d,\"inside_finalize\":%d,\"instance\":%" PRIu64
           ",\"open_since_ns\":%" PRIu64 ",\"life\":\"%s\",\"letter\":\"%c\",\"cpu_ns\":%" PRIu64 "}",
           i == 0 ? "" : ",", quick.in_mpi, quick.polling, quick.moved, quick.finished, quick.inside_finalize,
           quick.instance, quick.open_since_ns, kActivities[static_cast<int>(life)], letter != 0 ? letter : '?', cpu);
  }
  printf("]\n");
}

const char* call_name(uint16_t id) { return id < kCallCount ? kCallInfo[id].name : "?"; }

void print_state(Watched& of) {
  alignas(8) static char room[kStateRoom];
  look(of, ~uint64_t{0});
  if (snapshot(of, room, sizeof(room)) == 0) {
    printf("null");
    return;
  }
  auto& state = *reinterpret_cast<const RankState*>(room);
  auto* threads = reinterpret_cast<const ThreadWait*>(&state + 1);
  auto* parts = reinterpret_cast<const Part*>(threads + state.thread_count);
  auto* comms = reinterpret_cast<const Membership*>(parts + state.part_count);
  printf(
      "{\"rank\":%d,\"bytes\":%u,\"activity\":\"%s\",\"provable\":%d,\"in_finalize\":%d,\"irregular\":%u,\"pid\":%d,"
      "\"calls\":%" PRIu64 ",\"polls\":%" PRIu64 ",\"threads\":[",
      state.rank, state.bytes, kActivities[static_cast<int>(state.activity)], state.provable, state.in_finalize,
      state.irregular, state.pid, state.calls, state.polls);
  for (uint32_t i = 0; i < state.thread_count; ++i) {
    const ThreadWait& thread = threads[i];
    char site[256] = "";
    site_name(of, thread.site, site, sizeof(site));
    printf("%s{\"call\":\"%s\",\"instance\":%" PRIu64 ",\"tid\":%d,\"kind\":\"%s\",\"truncated\":%d,\"polls\":%" PRIu64
           ",\"entered_ns\":%" PRIu64 ",\"site\":\"%s\",\"parts\":[",
           i == 0 ? "" : ",", call_name(thread.call), thread.instance, thread.tid,
           thread.kind == WaitKind::kAny ? "any" : "all", thread.truncated, thread.polls, thread.entered_ns, site);
    for (uint32_t k = 0; k < thread.part_count; ++k) {
      const Part& part = parts[thread.first_part + k];
      char comm[64] = "";
      comm_name(of, part.comm, comm, sizeof(comm));
      printf("%s{\"kind\":\"%s\",\"flags\":%u,\"call\":\"%s\",\"peer\":%d,\"comm\":\"%s\",\"id\":%" PRIu64
             ",\"tag\":%d,\"ordinal\":%u,\"bytes\":%" PRIu64 ",\"needed\":%" PRIu64 ",\"sequence\":%" PRIu64 "}",
             k == 0 ? "" : ",", kParts[static_cast<int>(part.kind)], part.flags, call_name(part.call), part.peer, comm,
             part.comm, part.tag, part.ordinal, part.bytes, part.needed, part.sequence);
    }
    printf("]}");
  }
  printf("],\"comms\":[");
  for (uint32_t i = 0; i < state.comm_count; ++i)
    printf("%s{\"id\":%" PRIu64 ",\"sequence\":%" PRIu64 ",\"rank\":%d,\"size\":%d,\"remote_size\":%d}",
           i == 0 ? "" : ",", comms[i].comm, comms[i].sequence, comms[i].rank, comms[i].size, comms[i].remote_size);
  printf("]}");
}

void print_answer(const char* line) {
  Question question = {};
  char name[64];
  if (sscanf(line, "ask %63s %d %d %d", name, &question.source, &question.destination, &question.tag) != 4) {
    printf("null\n");
    return;
  }
  question.comm = strtoull(name, nullptr, 10);
  for (uint32_t i = 2; question.comm == 0 && strcmp(name, "0") != 0 && i < watched[0].comm_count; ++i)
    if (strcmp(watched[0].comms[i].name, name) == 0) question.comm = watched[0].comms[i].id;
  Answer made;
  if (answer(watched, rank_count, &question, 1, &made, 1) == 0) {
    printf("null\n");
    return;
  }
  printf("{\"sent\":%" PRIu64 ",\"posted\":%" PRIu64 ",\"taken\":%" PRIu64 ",\"pending\":%" PRIu64
         ",\"wild_pending\":%" PRIu64 ",\"from_source\":%d,\"from_destination\":%d,\"other_tags\":%d,\"covered\":%u}\n",
         made.sent, made.posted, made.taken, made.pending, made.wild_pending, made.from_source, made.from_destination,
         made.other_tags, made.covered);
}

}  // namespace

int main(int count, char** arguments) {
  rank_count = static_cast<uint32_t>(count - 1 < 64 ? count - 1 : 64);
  for (uint32_t i = 0; i < rank_count; ++i)
    while (!watched_open_file(watched[i], arguments[i + 1], static_cast<int32_t>(i))) usleep(2000);
  char line[256];
  while (fgets(line, sizeof(line), stdin) != nullptr) {
    if (strncmp(line, "look", 4) == 0) {
      print_looks();
    } else if (strncmp(line, "state", 5) == 0) {
      printf("[");
      for (uint32_t i = 0; i < rank_count; ++i) {
        if (i != 0) printf(",");
        if (watched[i].section != nullptr) print_state(watched[i]);
        else printf("\"no section\"");
      }
      printf("]\n");
    } else {
      print_answer(line);
    }
    fflush(stdout);
  }
  return 0;
}
