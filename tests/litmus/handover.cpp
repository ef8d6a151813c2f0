// SPDX-License-Identifier: Apache-2.0
//
// Work that one thread leaves to another: records to whoever holds the transport's token, chunks of a digest to helper
// threads, sends in lanes to a thread that is about to block. What the files under test call besides stands here.
#include <linux/futex.h>
#include <sched.h>

#include <atomic>
#include <cstring>

#include "checksum/ledger/token.h"
#include "detectors/gpu_runtime/open_waits.h"
#include "pipeline/staging/message.h"
#include "shim/base/digest/digest.h"
#include "shim/base/digest/helpers.h"
#include "shim/base/digest/variant.h"
#include "shim/base/helper_thread.h"
#include "shim/base/spinlock.h"
#include "tests/litmus/programs.h"

namespace {

void (*help)();  // what the thread would run
bool helping;

uint64_t whole(const char* data, size_t leaves, uint64_t first) {
  // The first byte, which is all there is, says which buffer it is.
  uint64_t sum = 0;
  for (size_t i = 0; i < leaves; i += 32)
    sum += static_cast<unsigned char>(data[-static_cast<int64_t>(first * resil::kDigestLeaf)]) * 1000 + first + i;
  return sum;
}

const resil::DigestVariant stand_in = {"litmus", nullptr, whole};

}  // namespace

namespace resil {

const DigestVariant& digest_variant() { return stand_in; }
bool helper_thread_start(const char*, void (*body)()) {
  __atomic_store_n(&help, body, __ATOMIC_RELEASE);
  return true;
}

}  // namespace resil

extern "C" int __wrap_pthread_atfork(void (*)(), void (*)(), void (*)()) { return 0; }
// help() never returns; in these programs it ends where it would sleep.
extern "C" long __wrap_syscall(long, void* word, int operation, ...) {
  (void)word;
  if ((operation & 127) == FUTEX_WAIT && helping) litmus::end_thread();
  return 0;
}

namespace litmus {
namespace {

using namespace resil;

// --- the transport's token ---

ledger::TokenWords token;
SpinLock lock;
unsigned unsent, sent;  // under the lock; by whoever has the token

void begin_token() {
  memset(static_cast<void*>(&token), 0, sizeof token);
  memset(static_cast<void*>(&lock), 0, sizeof lock);
  unsent = sent = 0;
}

/// With the token.
void send_all() {
  unsigned taken;
  {
    SpinGuard guard(lock);
    taken = unsent;
    unsent = 0;
  }
  sent += taken;  // a race, were two here
}

/// As transport_flush_peer(): a record that must go now.
void record_goes() {
  {
    SpinGuard guard(lock);
    ++unsent;
  }
  {
    ledger::TokenGuard mine(token, true);
    if (mine) send_all();
    else ledger::token_ask(token);
  }
  ledger::token_serve(token, true, send_all);
}

// --- helpers of a digest ---

char buffers[2];

void digest_one(char& buffer) {
  uint64_t sum = 0;
  LITMUS_EXPECT(share_with_helpers(&buffer, 64, &sum));
  LITMUS_EXPECT(sum == 2000u * static_cast<unsigned char>(buffer) + 32);
  buffer = 0;  // it is the program's again
}

void begin_helpers() {
  help = nullptr;
  helping = false;
  buffers[0] = 1;
  buffers[1] = 2;
  allow_helpers(1);
  digest_one(buffers[0]);
}

void help_once() {
  void (*body)() = __atomic_load_n(&help, __ATOMIC_ACQUIRE);
  if (body == nullptr) return;
  helping = true;
  body();
}

// --- a request that is freed while its data comes ---

staging::Message* message;
char program_buffer;

void begin_message() {
  message = zeroed<staging::Message>();
  message->marks.store(0);
  message->rising.store(false);
  program_buffer = 0;
}

/// As whole_arrived() and finish().
void data_comes() {
  if (staging::rises(*message)) LITMUS_EXPECT(program_buffer == 0);  // the check
  message->marks.fetch_or(staging::kFinished, std::memory_order_acq_rel);
}

/// As free_request().
void request_freed() {
  if (staging::leaves(*message))
    while (!staging::finished(*message)) sched_yield();
  program_buffer = 1;
}

// --- a wait for a device, looked at by dumps and findings ---

gpu_runtime::OpenWait* device_wait;

void begin_device_wait() {
  device_wait = zeroed<gpu_runtime::OpenWait>();
  device_wait->version.store(2);
  device_wait->tid.store(1);
  device_wait->open = true;
  device_wait->site = 1;
  device_wait->since = 1;
  racy(&device_wait->site, 8);
  racy(&device_wait->since, 8);
}

void next_device_wait() {
  gpu_runtime::wait_write_begins(*device_wait);
  device_wait->site = 2;
  device_wait->since = 2;
  gpu_runtime::wait_write_ends(*device_wait);
}

void read_device_wait() {
  static gpu_runtime::OpenWait copy;
  if (gpu_runtime::open_wait_copy(*device_wait, &copy)) LITMUS_EXPECT(static_cast<double>(copy.site) == copy.since);
}

}  // namespace

std::vector<Program> handover_programs() {
  return {
      {"token: a record that must go while another thread sends",
       "token of the transport",
       begin_token,
       {record_goes, record_goes},
       [] { LITMUS_EXPECT(sent == 2 && unsent == 0); },
       9,
       {1000, 500, 3}},
      {"helpers: the buffer after another one",
       "chunks of a digest",
       begin_helpers,
       {[] { digest_one(buffers[1]); }, help_once},
       {},
       4,
       {500, 150, 3}},
      {"staging: a request is freed while its data comes",
       "messages through pinned memory",
       begin_message,
       {data_comes, request_freed},
       {},
       6},
      {"device wait: read while the next one begins",
       "open waits for devices",
       begin_device_wait,
       {next_device_wait, read_device_wait},
       {},
       4,
       {2000, 500, 3}},
  };
}

}  // namespace litmus
