// SPDX-License-Identifier: Apache-2.0
//
// One node of the overlay as a process of its own, for overlay_hosts_test.py. Publishes where it listens as a file in
// DIRECTORY, waits for the files of the others, and then lives until it is killed. Whenever it leads it asks everybody,
// again and again. Says on standard output what it sees, one line each:
//   listens IP | parent N | root N | round NUMBER lacks [N ...] | strangers refused N
// While it leads and there is a file `waits` in DIRECTORY ("FROM TO"), it has node FROM ping node TO, and others vote:
//   way FROM-TO REACH failures N asked N from N to N both N
//
//   overlay_node DIRECTORY NODE COUNT FAN_OUT leader|standby     a standby takes over on SIGUSR1
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "detectors/hang/overlay/overlay.h"
#include "detectors/hang/root/probes.h"

using namespace resil::hang;

namespace {

constexpr uint32_t kMost = 64;
const char* directory;
volatile sig_atomic_t taking_over;
uint64_t asked;
char last_lacks[600];
Overlay* overlay;
Probes probes;
bool up[kMost];
uint32_t wait_from, wait_to;
constexpr uint16_t kProbeRound = 2;

double seconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void pause_a_little() {
  const timespec wait = {0, 10000000};
  nanosleep(&wait, nullptr);
}

uint32_t answer(void* self, uint16_t kind, const void* request, uint32_t bytes, void* room, uint32_t room_bytes) {
  if (kind == kProbeRound)
    return sizeof(ProbeAnswer) * answer_probes(overlay, *static_cast<uint32_t*>(self), seconds(),
                                               static_cast<const ProbeQuestion*>(request),
                                               bytes / sizeof(ProbeQuestion), static_cast<ProbeAnswer*>(room),
                                               room_bytes / sizeof(ProbeAnswer));
  memcpy(room, self, sizeof(uint32_t));
  return sizeof(uint32_t);
}

/// What has become of the way that is asked for.
void tell_way() {
  static char last[200];
  char text[200];
  for (uint32_t i = 0; i < probes.count; ++i) {
    const Way& way = probes.ways[i];
    if (way.from != wait_from || way.to != wait_to) continue;
    const Vote vote = probes_vote(probes, way);
    snprintf(text, sizeof(text), "way %u-%u %u failures %u asked %u from %u to %u both %u", way.from, way.to,
             static_cast<unsigned>(way.reach), way.failures > kFailures ? kFailures : way.failures, vote.asked,
             vote.reach_from, vote.reach_to, vote.reach_both);
    if (strcmp(text, last) != 0) printf("%s\n", text);
    memcpy(last, text, sizeof(last));
  }
}

/// Puts the next question about ways, if somebody waits.
void ask_ways() {
  char name[512];
  snprintf(name, sizeof(name), "%s/waits", directory);
  FILE* file = fopen(name, "r");
  if (file == nullptr) return;
  const bool whole = fscanf(file, "%u %u", &wait_from, &wait_to) == 2;
  fclose(file);
  if (!whole) return;
  probes_want(probes, wait_from, wait_to, seconds());
  if (const uint32_t count = probes_questions(probes, seconds()); count != 0)
    overlay_ask(overlay, kProbeRound, probes.questions, count * static_cast<uint32_t>(sizeof(ProbeQuestion)),
                seconds() + 5);
}

void finished(void*, uint64_t round, uint16_t kind, const void* merged, uint32_t bytes, const uint32_t* unanswered,
              uint32_t count) {
  if (kind == kProbeRound) {
    probes_came(probes, static_cast<const ProbeAnswer*>(merged), bytes / sizeof(ProbeAnswer), seconds());
    probes_want_votes(
        probes, [](const void*, uint32_t node) { return up[node]; }, nullptr, seconds());
    return tell_way();
  }
  for (bool& one : up) one = true;
  for (uint32_t i = 0; i < count; ++i) up[unanswered[i]] = false;
  static uint32_t known_bytes;
  char lacks[sizeof(last_lacks)] = "";
  for (uint32_t i = 0; i < count; ++i)
    snprintf(lacks + strlen(lacks), sizeof(lacks) - strlen(lacks), i == 0 ? "%u" : " %u", unanswered[i]);
  if (asked == 1 || bytes != known_bytes || strcmp(lacks, last_lacks) != 0)
    printf("round %llu lacks [%s] has %u\n", static_cast<unsigned long long>(round), lacks,
           static_cast<unsigned>(bytes / sizeof(uint32_t)));
  known_bytes = bytes;
  memcpy(last_lacks, lacks, sizeof(lacks));
}

void name_of(char* name, size_t size, uint32_t node, bool standby) {
  snprintf(name, size, "%s/%s-%u", directory, standby ? "standby" : "leader", node);
}

void publish(const Address& address, uint32_t node, bool standby) {
  char name[512], temporary[520];
  name_of(name, sizeof(name), node, standby);
  snprintf(temporary, sizeof(temporary), "%s.new", name);
  FILE* file = fopen(temporary, "w");
  if (file == nullptr || fwrite(&address, sizeof(address), 1, file) != 1 || fclose(file) != 0 ||
      rename(temporary, name) != 0)
    exit(1);
}

Address wait_for(uint32_t node, bool standby) {
  char name[512];
  name_of(name, sizeof(name), node, standby);
  Address address = {};
  for (const double end = seconds() + 60; seconds() < end; pause_a_little()) {
    FILE* file = fopen(name, "r");
    if (file == nullptr) continue;
    const bool whole = fread(&address, sizeof(address), 1, file) == 1;
    fclose(file);
    if (whole) return address;
  }
  printf("node %u did not come\n", node);
  exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  directory = argv[1];
  uint32_t own = static_cast<uint32_t>(atoi(argv[2]));
  const uint32_t count = static_cast<uint32_t>(atoi(argv[3]));
  const bool standby = strcmp(argv[5], "standby") == 0;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  signal(SIGUSR1, [](int) { taking_over = 1; });
  Address address;
  const int listener = overlay_listen(&address, false);
  if (listener < 0 || count > kMost) return 1;
  char text[64] = "";
  inet_ntop(address.family == 4 ? AF_INET : AF_INET6, address.ip, text, sizeof(text));
  printf("listens %s\n", text);
  publish(address, own, standby);
  NodeEntry table[kMost] = {};
  for (uint32_t i = 0; i < count; ++i)
    table[i] = {wait_for(i, false), i == 0 ? wait_for(i, true) : Address{}, i, 1, {}};  // only node 0 has two ranks
  while (standby && taking_over == 0) pause_a_little();

  OverlayOptions options = {};
  options.fan_out = static_cast<uint32_t>(atoi(argv[4]));
  options.keep_alive = 0.25, options.silence = 1, options.leg = 0.5, options.leg_margin = 0.1;
  options.handshake = 0.8, options.settle = 1, options.stagger = 0.3, options.probe = 1;
  const uint8_t key[16] = {3, 1, 4};
  const OverlayHandler handler = {&own, answer, nullptr, finished, nullptr, nullptr, nullptr};
  overlay = overlay_open(listener, table, count, own, standby, key, handler, options);
  if (overlay == nullptr) return 1;
  probes.nodes = count;
  uint32_t parent = kMost, root = kMost;
  uint64_t refused = 0;
  for (double next = 0;;) {
    overlay_step(overlay, seconds(), 50);
    const OverlayState state = overlay_state(overlay);
    if (state.parent != parent) printf("parent %d\n", static_cast<int>(parent = state.parent));
    if (state.root != root) printf("root %d\n", static_cast<int>(root = state.root));
    const uint64_t strangers = overlay_counters(overlay).refused_address;
    if (strangers != refused) printf("strangers refused %llu\n", static_cast<unsigned long long>(refused = strangers));
    if (state.is_root && seconds() >= next) {
      next = seconds() + 0.2;
      asked += overlay_ask(overlay, 1, nullptr, 0, seconds() + 5) != 0 ? 1 : 0;
      ask_ways();
    }
  }
}
