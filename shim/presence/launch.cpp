// SPDX-License-Identifier: Apache-2.0
//
// See launch.h. May touch the random numbers of the system and the header of this rank's ring.

#include "shim/presence/launch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/clock.h"
#include "shim/base/hash.h"
#include "shim/call/runtime.h"
#include "shim/runtime/memory.h"

namespace resil {

namespace {

uint64_t own;
uint64_t* known;  // by rank
int known_size;

/// Where the system gives no random numbers (a sandbox): what the loader got at the program's start, and what tells
/// this process from a fork of the same program.
uint64_t improvise() {
  uint64_t start[2] = {};
  if (const unsigned long address = getauxval(AT_RANDOM); address != 0)
    memcpy(start, reinterpret_cast<const void*>(address), sizeof(start));
  const timespec now = clock_now(CLOCK_REALTIME);
  uint64_t mixed = hash_combine(hash_combine(start[0], start[1]), static_cast<uint64_t>(getpid()));
  mixed = hash_combine(hash_combine(mixed, static_cast<uint64_t>(now.tv_sec)), static_cast<uint64_t>(now.tv_nsec));
  return hash_combine(mixed, ticks());
}

void set_key(uint64_t key, bool agreed) {
  launch_text(key, runtime.launch_key);
  runtime.launch_agreed = agreed;
  if (runtime.header == nullptr) return;
  memcpy(runtime.header->launch, runtime.launch_key, sizeof(runtime.launch_key));
  __atomic_store_n(&runtime.header->launch_agreed, agreed, __ATOMIC_RELEASE);
}

}  // namespace

void launch_text(uint64_t nonce, char* text) {
  for (int i = 0; i < 16; ++i) text[i] = "0123456789abcdef"[nonce >> (60 - 4 * i) & 15];
  text[16] = 0;
}

void launch_draw() {
  ssize_t drawn;
  do drawn = getrandom(&own, sizeof(own), GRND_NONBLOCK);
  while (drawn < 0 && errno == EINTR);
  if (drawn != static_cast<ssize_t>(sizeof(own))) own = improvise();
  if (own == 0) own = 1;
  set_key(own, false);
}

uint64_t launch_nonce() { return own; }

bool launch_expect(int size) {
  memory::unmap_array(known, static_cast<size_t>(known_size));
  known = size > 0 ? memory::map_array<uint64_t>(static_cast<size_t>(size)) : nullptr;
  known_size = known != nullptr ? size : 0;
  return known != nullptr;
}

void launch_learn(int rank, uint64_t nonce) {
  if (rank >= 0 && rank < known_size) __atomic_store_n(&known[rank], nonce, __ATOMIC_RELEASE);
}

void launch_agree(bool synchronised) {
  int root = 0;
  while (root < known_size && known[root] == 0) ++root;
  if (root < known_size && (root == 0 || synchronised)) set_key(known[root], true);
}

uint64_t launch_nonce_of(int rank) {
  if (rank == runtime.rank) return own;
  return rank >= 0 && rank < known_size ? __atomic_load_n(&known[rank], __ATOMIC_ACQUIRE) : 0;
}

}  // namespace resil
