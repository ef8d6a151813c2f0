// SPDX-License-Identifier: Apache-2.0
//
// Digests of device memory, in batches. Packets wait in a queue for each device; what is ready in it is launched
// together
//   - when 64 wait,
//   - when one of them is asked for and its copy is complete, so that only the digest is still wanted,
//   - when all of them have been asked for and none was added since: whoever asks has nothing else to do.
// So a program that starts many sends, and a round that starts many copies up, cost few launches without anybody saying
// where a round ends. A packet is ready when its data is on the device: before a copy down at once (MPI allows nobody
// to change the buffer of a pending send, so digest and copy may read it at the same time), after a copy up when that
// is complete. Batches write to pinned memory and are complete when their event is.

#include "pipeline/staging/device_check.h"

#include <sched.h>
#include <time.h>

#include "pipeline/gpu/kernels/image.h"
#include "pipeline/gpu/kernels/kernels.h"
#include "pipeline/gpu/pinned.h"
#include "pipeline/staging/messages.h"
#include "pipeline/staging/packet.h"
#include "shim/base/clock.h"
#include "shim/base/digest/digest.h"
#include "shim/base/spinlock.h"
#include "shim/report/json.h"
#include "shim/report/log.h"
#include "shim/runtime/block_pool.h"

namespace resil::staging {

constinit bool checking = false;

namespace {

using gpu::kDigestJobs;

constexpr unsigned kBatches = 8;  ///< of a device, under way
constexpr unsigned kKnown = 256;
/// What a result is before the device has written it. An event that is complete while one is there still is early.
constexpr uint64_t kUnwritten = 0x8000000000000000;
constexpr double kLongest = 1;  ///< seconds to wait for results then

struct Batch {
  gpu::EventHandle event;
  uint32_t jobs;  ///< 0: free
  double early;  ///< since when its event is complete without its results; 0: it is not
  Packet* packets[kDigestJobs];
};

/// Of one device. Locked for short bookkeeping and for orders to the driver, never across an MPI call.
struct Checker {
  gpu::Device* device;
  Checker* next;
  SpinLock lock;
  bool usable;
  bool first;  ///< digests come before copies down: see check_before()
  bool no_memory;  ///< that is why not: it is tried again when so many packets have gone unchecked
  uint32_t unchecked, again_at;
  void *plain, *with_runs;  ///< kernels
  uint64_t sums;  ///< on the device: DigestSum[kBatches][kDigestJobs]
  uint64_t* results;  ///< pinned: [kBatches][kDigestJobs]
  uint64_t results_at;  ///< where the device sees them
  Packet *head, *last;  ///< queue
  uint32_t queued, downs;  ///< of which are copied down, and ready therefore
  uint32_t asked;  ///< since the last one was added
  Batch batches[kBatches];
  gpu::DigestBatch order;
};

enum class Skipped : uint8_t { kKernel, kLayout, kMemory, kFailed, kFreed };
constexpr unsigned kSkipped = 5;
namespace why_not = messages::staging::uncovered;
constexpr const char* kSkippedNames[kSkipped] = {why_not::no_kernel, why_not::layout, why_not::memory, why_not::failed,
                                                 why_not::request_freed};

struct {
  uint64_t packets, bytes, launches, mismatches, early, skipped[kSkipped];
} counts;

constinit Checker* checkers;
constinit SpinLock checkers_lock;
Known known[kKnown];
uint32_t known_next;

void count(uint64_t& counter, uint64_t by = 1) { __atomic_fetch_add(&counter, by, __ATOMIC_RELAXED); }

void skip(Packet* packet, Skipped why) {
  uint64_t& counter = counts.skipped[static_cast<unsigned>(why)];
  if (__atomic_load_n(&counter, __ATOMIC_RELAXED) == 0)
    add_note_format(messages::staging::copies_unchecked, kSkippedNames[static_cast<unsigned>(why)]);
  count(counter);
  packet->check.state = CheckState::kUnchecked;
}

/// Null: it is. Else why not, in words; what it has got so far stays for the next attempt.
const char* prepare(Checker& c) {
  gpu::Device& device = *c.device;
  c.plain = gpu::kernel(device, "resil_digest");
  c.with_runs = gpu::kernel(device, "resil_digest_runs");
  void* fill = gpu::kernel(device, "resil_fill");
  if (c.plain == nullptr || c.with_runs == nullptr || fill == nullptr) return "no kernels";
  constexpr size_t kSums = kBatches * kDigestJobs * sizeof(gpu::DigestSum);
  c.no_memory = true;
  if (c.sums == 0 && (c.sums = reinterpret_cast<uint64_t>(gpu::device_allocate(device, kSums))) == 0)
    return "no memory on the device for their sums";
  if (c.results == nullptr)
    c.results = static_cast<uint64_t*>(gpu::pinned_acquire(device, kBatches * kDigestJobs * sizeof(uint64_t)));
  if (c.results == nullptr) return "no pinned memory for them";
  c.no_memory = false;
  c.results_at = reinterpret_cast<uint64_t>(gpu::device_address(device, c.results));
  gpu::FillJob zero = {c.sums, kSums / 8, 0};
  void* arguments[] = {&zero};
  if (c.results_at == 0 || !gpu::launch(device, gpu::StreamRole::kKernel, fill, 8, gpu::kKernelThreads, 0, arguments))
    return "the runtime refused a launch";
  for (Batch& batch : c.batches)
    if ((batch.event = gpu::event_acquire(device)) == 0) return "the runtime refused an event";
  __atomic_store_n(&c.usable, true, __ATOMIC_RELEASE);
  return nullptr;
}

Checker* checker_of(gpu::Device* device) {
  for (Checker* c = __atomic_load_n(&checkers, __ATOMIC_ACQUIRE); c != nullptr; c = c->next)
    if (c->device == device) return c;
  SpinGuard guard(checkers_lock);
  for (Checker* c = checkers; c != nullptr; c = c->next)
    if (c->device == device) return c;
  auto* made = static_cast<Checker*>(memory::blocks.allocate(sizeof(Checker)));
  if (made == nullptr) return nullptr;
  __builtin_memset(static_cast<void*>(made), 0, sizeof(Checker));
  made->device = device;
  made->again_at = 16;
  if (const char* why = prepare(*made); why != nullptr)
    log_format(messages::staging::no_device_digests, made->no_memory ? messages::staging::for_now : "",
               gpu::api_name(gpu::api_of(*device)), why, *gpu::last_error() != 0 ? ", " : "", gpu::last_error());
  made->next = checkers;
  __atomic_store_n(&checkers, made, __ATOMIC_RELEASE);
  return made;
}

/// Memory that could not be had may be there later: asked for more and more seldom.
bool usable(Checker& c) {
  if (__atomic_load_n(&c.usable, __ATOMIC_ACQUIRE)) [[likely]]
    return true;
  SpinGuard guard(c.lock);
  if (c.usable || !c.no_memory || ++c.unchecked < c.again_at) return c.usable;
  c.again_at *= 2;
  prepare(c);
  return c.usable;
}

void append(Checker& c, Packet* packet) {
  packet->check.next = nullptr;
  (c.head != nullptr ? c.last->check.next : c.head) = packet;
  c.last = packet;
  ++c.queued;
  c.downs += !packet->copy.up;
  c.asked = 0;
}

void unlink(Checker& c, Packet* packet) {
  Packet* before = nullptr;
  for (Packet* p = c.head; p != nullptr; before = p, p = p->check.next) {
    if (p != packet) continue;
    (before != nullptr ? before->check.next : c.head) = p->check.next;
    if (c.last == p) c.last = before;
    --c.queued;
    c.downs -= !packet->copy.up;
    return;
  }
}

/// Has the device written all results of a batch whose event is complete? What a runtime says too early is noted, and
/// waited for.
bool is_written(Batch& batch, const uint64_t* results) {
  uint32_t missing = 0;
  for (uint32_t i = 0; i < batch.jobs; ++i) missing += __atomic_load_n(&results[i], __ATOMIC_ACQUIRE) == kUnwritten;
  if (missing == 0) return true;
  const double seconds = monotonic_seconds();
  if (batch.early != 0) return seconds - batch.early > kLongest;
  batch.early = seconds;
  count(counts.early);
  add_note(messages::staging::event_early);
  return false;
}

/// Frees the batch once it is complete.
void harvest(Checker& c, Batch& batch) {
  if (batch.jobs == 0) return;
  const gpu::State state = gpu::event_query(*c.device, batch.event);
  if (state == gpu::State::kPending) return;
  const uint64_t* results = c.results + static_cast<size_t>(&batch - c.batches) * kDigestJobs;
  if (state == gpu::State::kDone && !is_written(batch, results)) return;
  for (uint32_t i = 0; i < batch.jobs; ++i) {
    Packet* packet = batch.packets[i];
    if (packet == nullptr) continue;
    if (state == gpu::State::kFailed || results[i] == kUnwritten) {
      skip(packet, Skipped::kFailed);
      continue;
    }
    Check& check = packet->check;
    check.device = results[i];
    check.state = CheckState::kDigested;
    known[__atomic_fetch_add(&known_next, 1, __ATOMIC_RELAXED) % kKnown] = {check.device, packet->copy.bytes,
                                                                            packet->buffer, packet->copy.up};
  }
  batch.jobs = 0;
  batch.early = 0;
}

Batch* free_batch(Checker& c) {
  for (Batch& batch : c.batches) {
    harvest(c, batch);
    if (batch.jobs == 0) return &batch;
  }
  return nullptr;
}

bool is_ready(Packet* packet, bool* pending_before) {
  Check& check = packet->check;
  if (!packet->copy.up || check.copied) return true;
  if (*pending_before)  // copies up are complete in the order of their orders
    return false;
  check.copied = gpu::event_query(*packet->device, packet->event) == gpu::State::kDone;
  *pending_before = !check.copied;
  return check.copied;
}

/// Launches a batch of what is ready; false: nothing is, or no batch is free.
bool launch(Checker& c) {
  if (c.head == nullptr) return false;
  Batch* batch = free_batch(c);
  if (batch == nullptr) return false;
  const auto number = static_cast<uint64_t>(batch - c.batches);
  gpu::DigestBatch& order = c.order;
  order.results = c.results_at + number * kDigestJobs * sizeof(uint64_t);
  order.sums = c.sums + number * kDigestJobs * sizeof(gpu::DigestSum);
  order.jobs = order.leaves = 0;
  bool pending = false, with_runs = false;
  Packet* next;
  for (Packet* packet = c.head; packet != nullptr && order.jobs < kDigestJobs; packet = next) {
    next = packet->check.next;
    const uint64_t leaves = gpu::kernel_leaves(packet->copy.bytes);
    if (!is_ready(packet, &pending) || leaves > UINT32_MAX - order.leaves) continue;
    unlink(c, packet);
    gpu::KernelStream& stream = order.stream[order.jobs];
    stream = packet->stream;
    with_runs = with_runs || stream.element != 0;
    stream.first_leaf = order.leaves;
    order.leaves += static_cast<uint32_t>(leaves);
    packet->check.batch = static_cast<uint8_t>(number);
    c.results[number * kDigestJobs + order.jobs] = kUnwritten;
    packet->check.state = CheckState::kLaunched;
    batch->packets[order.jobs++] = packet;
  }
  if (order.jobs == 0) return false;
  batch->jobs = order.jobs;
  count(counts.launches);
  void* arguments[] = {&order};
  const bool good = gpu::launch(*c.device, gpu::StreamRole::kKernel, with_runs ? c.with_runs : c.plain,
                                gpu::kernel_blocks(order.leaves), gpu::kKernelThreads,
                                with_runs ? gpu::kGatherShared : 0, arguments, batch->event);
  if (!good) {
    for (uint32_t i = 0; i < batch->jobs; ++i) skip(batch->packets[i], Skipped::kFailed);
    batch->jobs = 0;
  }
  return good;
}

/// Has one of the types that the copy moves gaps inside its basic types? Their bytes may be anything.
bool is_padded(const Packet& packet) {
  if (packet.blocks == nullptr) return packet.type->padded;
  for (uint32_t i = packet.copy.first; i < packet.copy.last; ++i)
    if (packet.blocks[i].type->padded) return true;
  return false;
}

/// Queues the copy's digest.
void begin(Packet* packet) {
  packet->check = {};
  Checker* c = checker_of(packet->device);
  if (c == nullptr || !usable(*c))
    return skip(packet, c == nullptr || c->no_memory ? Skipped::kMemory : Skipped::kKernel);
  const Refusal refusal = is_padded(*packet) ? Refusal::kDatatype : packet_stream(packet);
  if (refusal != Refusal::kNone)
    return skip(packet, refusal == Refusal::kDatatype ? Skipped::kLayout : Skipped::kMemory);
  packet->check.state = CheckState::kQueued;
  SpinGuard guard(c->lock);
  append(*c, packet);
  if (c->downs >= kDigestJobs) launch(*c);
}

/// Goes on with the packet's digest; true: it is known, or never will be.
bool advance_check(Checker& c, Packet* packet) {
  SpinGuard guard(c.lock);
  Check& check = packet->check;
  if (check.state == CheckState::kQueued) {
    ++c.asked;
    if (check.copied || c.asked > c.queued) launch(c);
  } else if (check.state == CheckState::kLaunched) {
    harvest(c, c.batches[check.batch]);
  }
  return check.state != CheckState::kQueued && check.state != CheckState::kLaunched;
}

/// D of what the copy's range has in pinned memory.
uint64_t pinned_digest(const Packet& packet, const CopyRange& range) {
  if (packet.layout == Layout::kPacked) return digest(packet.host, range.bytes);
  char* const shadow = packet.host - packet.low;
  if (packet.blocks == nullptr) return type_digest(*packet.type, shadow, packet.count, range.bytes);
  DigestStream stream;
  uint64_t bytes = range.bytes;
  for (uint32_t i = range.first; i < range.last && bytes != 0; ++i) {
    const Block& block = packet.blocks[i];
    const char* at = shadow + block.offset;
    const uint64_t all = type_bytes(*block.type, block.count), wanted = all < bytes ? all : bytes;
    bytes -= wanted;
    if (block.type->contiguous) {
      stream.add(at, wanted);
      continue;
    }
    char piece[kDigestLeaf];
    for (uint64_t done = 0; done < wanted; done += kDigestLeaf) {
      const uint64_t part = wanted - done < kDigestLeaf ? wanted - done : kDigestLeaf;
      type_pack(*block.type, at, block.count, done, part, piece);
      stream.add(piece, part);
    }
  }
  return stream.finish();
}

}  // namespace

void check_before(Packet* packet) {
  packet->check = {};
  Checker* c = packet->copy.up ? nullptr : checker_of(packet->device);
  if (c == nullptr || !__atomic_load_n(&c->first, __ATOMIC_RELAXED) || !usable(*c)) return;
  begin(packet);
  SpinGuard guard(c->lock);
  if (packet->check.state == CheckState::kQueued) launch(*c);
  packet->check.before =
      packet->check.state == CheckState::kLaunched &&
      gpu::stream_wait(*packet->device, gpu::StreamRole::kDown, c->batches[packet->check.batch].event);
}

void check_copy(Packet* packet) {
  if (packet->check.state == CheckState::kNone && packet->state == PacketState::kCopying) begin(packet);
}

void digest_first(Packet* packet) {
  if (Checker* c = checker_of(packet->device); c != nullptr) __atomic_store_n(&c->first, true, __ATOMIC_RELAXED);
}

CheckResult check_poll(Packet* packet, bool copied) {
  Check& check = packet->check;
  if (check.state == CheckState::kNone) return copied ? CheckResult::kSettled : CheckResult::kPending;
  if (copied) __atomic_store_n(&check.copied, true, __ATOMIC_RELAXED);  // another thread's launch may look
  if ((check.state == CheckState::kQueued || check.state == CheckState::kLaunched) &&
      !advance_check(*checker_of(packet->device), packet))
    return CheckResult::kPending;
  if (!check.copied) return CheckResult::kPending;
  if (check.state == CheckState::kDigested) {
    check.host = copied_digest(*packet);
    check.host_known = true;
    check.state = CheckState::kCompared;
    count(counts.packets);
    count(counts.bytes, packet->copy.bytes);
    if (check.host != check.device) [[unlikely]] {
      count(counts.mismatches);
      if (check_mismatch(packet)) return CheckResult::kAgain;
    }
  }
  return CheckResult::kSettled;
}

void check_forget(Packet* packet) {
  Check& check = packet->check;
  if (check.state == CheckState::kNone) return;
  if (check.state == CheckState::kQueued || check.state == CheckState::kLaunched) {
    Checker& c = *checker_of(packet->device);
    for (bool gone = false; !gone;) {
      {
        SpinGuard guard(c.lock);
        if (check.state == CheckState::kQueued) unlink(c, packet);
        else harvest(c, c.batches[check.batch]);
        gone = check.state != CheckState::kLaunched;
      }
      if (!gone) sched_yield();
    }
  }
  check = {};
}

uint64_t copied_digest(const Packet& packet) { return pinned_digest(packet, packet.copy); }

uint64_t host_digest(const Packet& packet, uint64_t bytes) {
  const CopyRange& copy = packet.copy;
  const bool known =
      packet.check.host_known && copy.bytes == bytes && copy.first == 0 && copy.last == packet.block_count;
  return known ? packet.check.host : pinned_digest(packet, {0, packet.block_count, bytes, false});
}

void check_never(Packet* packet) {
  if (packet->check.state != CheckState::kQueued && packet->check.state != CheckState::kLaunched) return;
  check_forget(packet);
  skip(packet, Skipped::kFreed);
}

bool digest_again(Packet* packet, uint64_t* result) {
  const Check before = packet->check;
  begin(packet);
  packet->check.copied = true;
  while (packet->check.state == CheckState::kQueued || packet->check.state == CheckState::kLaunched)
    if (!advance_check(*checker_of(packet->device), packet)) sched_yield();
  const bool good = packet->check.state == CheckState::kDigested;
  *result = packet->check.device;
  packet->check = before;
  return good;
}

const Known* known_digest(uint64_t value, uint64_t bytes, const void* not_this) {
  for (const Known& one : known)
    if (one.digest == value && one.bytes == bytes && one.buffer != not_this && one.buffer != nullptr) return &one;
  return nullptr;
}

void check_report(JsonWriter& json) {
  json.begin_object("device_digests");
  json.integer("packets", static_cast<int64_t>(counts.packets));
  json.integer("bytes", static_cast<int64_t>(counts.bytes));
  json.integer("launches", static_cast<int64_t>(counts.launches));
  json.integer("mismatches", static_cast<int64_t>(counts.mismatches));
  json.integer("early_events", static_cast<int64_t>(counts.early));
  json.text("cuda_compiler", gpu::kernel_compiler(gpu::Api::kCuda));
  json.text("hip_compiler", gpu::kernel_compiler(gpu::Api::kHip));
  json.begin_object("unchecked");
  for (unsigned i = 0; i < kSkipped; ++i)
    if (counts.skipped[i] != 0) json.integer(kSkippedNames[i], static_cast<int64_t>(counts.skipped[i]));
  json.end_object();
  json.end_object();
}

}  // namespace resil::staging
