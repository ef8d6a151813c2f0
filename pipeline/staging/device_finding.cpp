// SPDX-License-Identifier: Apache-2.0
//
// A copy between device and pinned memory after which the two digests differ. Both are looked at once more, since what
// differs may have been read too early: a runtime that says "complete" before its copy is, or a program that fills a
// buffer while it is being sent. What stays different was copied wrongly, if the digest of the source is known to be
// from before the copy. A copy down and the digest of its source are ordered side by side; so the first time that they
// differ, what the program had not completed may have been written between them. That is only suspected: the data is
// copied again, behind its digest, and so is all of this device from then on. Nothing here runs unless something is
// wrong.

#include <sched.h>

#include <cinttypes>
#include <cstring>

#include "pipeline/gpu/pinned.h"
#include "pipeline/staging/device_check.h"
#include "pipeline/staging/messages.h"
#include "pipeline/staging/packet.h"
#include "pipeline/staging/staging.h"
#include "shim/base/clock.h"
#include "shim/base/own_stack.h"
#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/report/finding.h"
#include "shim/report/json.h"
#include "shim/runtime/staged.h"

namespace resil::staging {

namespace {

/// Longest wait for data that a runtime has called complete.
constexpr double kLate = 0.005;
/// Copies down to find the bytes that differ.
constexpr int kTries = 3;

enum class Verdict : uint8_t { kCopy, kEarly, kModified, kPinned, kUnclear };

/// Waits for all that was ordered in that direction, as far as the runtime can be believed.
void wait_for_stream(gpu::Device& device, bool up) {
  const gpu::EventHandle event = gpu::event_acquire(device);
  if (event == 0) return;
  if (gpu::event_record(device, up ? gpu::StreamRole::kUp : gpu::StreamRole::kDown, event))
    while (gpu::event_query(device, event) == gpu::State::kPending) sched_yield();
  gpu::event_release(device, event);
}

struct Looks {
  uint64_t device, host;  ///< digests of the last look
  bool device_known;
  double seconds;
};

Looks look_again(Packet* packet) {
  const Check first = packet->check;
  const double start = monotonic_seconds();
  Looks looks = {first.device, first.host, false, 0};
  wait_for_stream(*packet->device, packet->copy.up);
  for (bool more = true; more;) {
    looks.device_known = digest_again(packet, &looks.device);
    looks.host = copied_digest(*packet);
    looks.seconds = monotonic_seconds() - start;
    more = looks.device_known && looks.device != looks.host && looks.seconds < kLate;
  }
  packet->check.host_known = true;
  return looks;
}

Verdict judge(const Check& first, bool up, const Looks& looks) {
  if (!looks.device_known) return up || first.before ? Verdict::kCopy : Verdict::kUnclear;
  const bool target_changed = up ? looks.device != first.device : looks.host != first.host;
  const bool source_changed = up ? looks.host != first.host : looks.device != first.device;
  if (target_changed && looks.device == looks.host) return Verdict::kEarly;
  if (source_changed) return up ? Verdict::kPinned : Verdict::kModified;
  return up || first.before ? Verdict::kCopy : Verdict::kUnclear;
}

/// Where two copies of one piece of memory differ.
struct Difference {
  uint64_t differing, first, last, bits;
  unsigned char device, pinned;
};

void compare(const unsigned char* device, const unsigned char* pinned, uint64_t bytes, uint64_t at, Difference* d) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (device[i] == pinned[i]) continue;
    if (d->differing++ == 0) {
      d->first = at + i;
      d->device = device[i];
      d->pinned = pinned[i];
    }
    d->last = at + i;
    d->bits += static_cast<uint64_t>(__builtin_popcount(device[i] ^ pinned[i]));
  }
}

/// The first `bytes` bytes of a block's stream. `again` is what its elements span on the device, from `low` on.
void compare_streams(const Packet& packet, const Block& block, const char* again, int64_t low, uint64_t bytes,
                     Difference* d) {
  const char* device = again - low;  // as the buffer: the type's displacements hold
  const char* pinned = packet_given(packet) + block.offset;
  unsigned char ours[1024], theirs[1024];
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t want = bytes - at < sizeof(ours) ? bytes - at : sizeof(ours);
    const uint64_t got = type_pack(*block.type, device, block.count, at, want, ours);
    if (got == 0) return;
    if (packet.layout == Layout::kPacked) memcpy(theirs, pinned + at, got);
    else if (type_pack(*block.type, pinned, block.count, at, got, theirs) != got) return;
    compare(ours, theirs, got, at, d);
    at += got;
  }
}

/// Copies what the block has on the device down once more, and compares its first `bytes` bytes of data with the pinned
/// copy. False: none differs, or they cannot be compared.
bool compare_again(Packet* packet, const Block& block, uint64_t bytes, Difference* d) {
  const TypeMap& type = *block.type;
  if (bytes == 0 || type.padded) return false;
  int64_t low, high;
  type_span(type, static_cast<int64_t>((bytes - 1) / type.size) + 1, &low, &high);
  const auto span = static_cast<uint64_t>(high - low);
  auto* again = static_cast<char*>(gpu::pinned_acquire(*packet->device, span));
  if (again == nullptr) return false;
  *d = {};
  for (int tries = 0; tries < kTries && d->differing == 0; ++tries) {
    if (!gpu::copy_down(*packet->device, again, packet->buffer + block.offset + low, span)) break;
    wait_for_stream(*packet->device, false);
    // What copies wrongly once may do so again.
    const bool good =
        packet->blocks != nullptr || type_digest(type, again - low, block.count, bytes) == packet->check.device;
    if (good) compare_streams(*packet, block, again, low, bytes, d);
  }
  gpu::pinned_release(again);
  return d->differing != 0;
}

void add_difference(Finding& finding, Packet* packet) {
  const CopyRange& copy = packet->copy;
  const Block whole = {0, packet->count, packet->type};
  const Block* blocks = packet->blocks != nullptr ? packet->blocks + copy.first : &whole;
  const uint32_t count = packet->blocks != nullptr ? copy.last - copy.first : 1;
  uint64_t before = 0;  // bytes of the stream
  for (uint32_t i = 0; i < count && before < copy.bytes; ++i) {
    const uint64_t all = type_bytes(*blocks[i].type, blocks[i].count), left = copy.bytes - before;
    const uint64_t bytes = all < left ? all : left;
    if (Difference d; compare_again(packet, blocks[i], bytes, &d)) {
      finding.add("first_difference", "byte %" PRIu64 " of %" PRIu64 ": %02x on the device, %02x in pinned memory",
                  before + d.first, copy.bytes, d.device, d.pinned);
      finding.add("differing",
                  "%" PRIu64 " byte%s, %" PRIu64 " bit%s, from byte %" PRIu64 " to %" PRIu64
                  " (device memory copied down once more)",
                  d.differing, d.differing == 1 ? "" : "s", d.bits, d.bits == 1 ? "" : "s", before + d.first,
                  before + d.last);
      return;  // the first block that differs is enough
    }
    before += bytes;
  }
}

void add_evidence(Finding& finding, Packet* packet, const Check& first, const Looks& looks) {
  const bool up = packet->copy.up;
  finding.add("stage", "%s", up ? "up" : "down");
  finding.add("device", "%s %d", gpu::api_name(gpu::api_of(*packet->device)), gpu::ordinal_of(*packet->device));
  finding.add("driver_version", "%d", gpu::driver_version(gpu::api_of(*packet->device)));
  finding.add("buffer", "%p", static_cast<void*>(packet->buffer));
  finding.add("bytes", "%" PRIu64, packet->copy.bytes);
  finding.add("digest_device", "%016" PRIx64, first.device);
  finding.add("digest_pinned", "%016" PRIx64, first.host);
  if (looks.device_known)
    finding.add("digest_device_later", "%016" PRIx64 "%s", looks.device,
                looks.device != first.device ? " (CHANGED)" : "");
  finding.add("digest_pinned_later", "%016" PRIx64 "%s (after %.0f us)", looks.host,
              looks.host != first.host ? " (CHANGED)" : "", looks.seconds * 1e6);
  const uint64_t wrong = up ? first.device : first.host;
  if (const Known* other = known_digest(wrong, packet->copy.bytes, packet->buffer); other != nullptr)
    finding.add("other_packet", "the data is that of the buffer at %p, copied %s a short while ago", other->buffer,
                other->up ? "up" : "down");
}

}  // namespace

/// True: the data is to be copied again.
static bool say_mismatch(Packet* packet) {
  const Check first = packet->check;
  const bool up = packet->copy.up;
  const Looks looks = look_again(packet);
  const Verdict verdict = judge(first, up, looks);
  const char* way = up ? "pinned host memory to the device" : "the device to pinned host memory";
  const int ordinal = gpu::ordinal_of(*packet->device);
  const char* api = gpu::api_name(gpu::api_of(*packet->device));
  Finding finding;
  const bool unclear = verdict == Verdict::kUnclear;
  finding.start(verdict == Verdict::kEarly                 ? "device_copy_early"
                : verdict == Verdict::kModified || unclear ? "send_buffer_modified"
                                                           : "device_copy_corrupted",
                unclear ? Confidence::kSuspected : Confidence::kProved);
  finding.culprit(runtime.rank);
  finding.victim(runtime.rank);
  namespace text = messages::staging;
  switch (verdict) {
    case Verdict::kCopy:
      finding.say(text::copy_changed, runtime.rank, packet->copy.bytes, way, up ? "up" : "down", ordinal, api);
      finding.to_do(text::copy_changed_to_do, runtime.host, runtime.host);
      finding.add("verdict", "copy %s", up ? "up" : "down");
      break;
    case Verdict::kEarly:
      finding.say(text::copy_early, runtime.rank, ordinal, api, packet->copy.bytes, way);
      finding.to_do(text::copy_early_to_do);
      finding.add("verdict", "completed before the data landed");
      break;
    case Verdict::kModified:
      finding.say(text::buffer_modified, runtime.rank, packet->copy.bytes, ordinal, api);
      finding.to_do(text::buffer_modified_to_do);
      finding.add("verdict", "send buffer modified while pending");
      break;
    case Verdict::kUnclear:
      finding.say(text::buffer_or_copy, runtime.rank, packet->copy.bytes, ordinal, api);
      finding.to_do(text::buffer_or_copy_to_do, runtime.host);
      finding.add("verdict", "send buffer modified while pending, or copy down wrong once");
      break;
    case Verdict::kPinned:
      finding.say(text::pinned_changed, runtime.rank, packet->copy.bytes, ordinal, api);
      finding.to_do(text::pinned_changed_to_do, runtime.header->mpi);
      finding.add("verdict", "completed before the data landed");
      break;
  }
  add_evidence(finding, packet, first, looks);
  if (verdict == Verdict::kCopy || unclear) add_difference(finding, packet);
  packet->check.host = looks.host;
  finding_publish(finding);
  if (unclear) {
    digest_first(packet);
    return true;
  }
  if (verdict != Verdict::kEarly && staged_checks != nullptr && staged_checks->ends_job()) stop_job(90);
  return false;
}

bool check_mismatch(Packet* packet) {
  bool again = false;
  on_own_stack([&] { again = say_mismatch(packet); });
  return again;
}

namespace {

bool enabled() { return config_has("RESIL_MODE", "checksum") && !config_has("RESIL_STAGE", "off"); }

void before_init() { checking = true; }

void report(JsonWriter& json) {
  if (gpu::seen()) check_report(json);
}

constexpr Module kDeviceChecks = {
    .name = "device_digests",
    .description = "checks of the copies between device and pinned host memory",
    .stage = Stage::kCopies,
    .enabled = enabled,
    .before_init = before_init,
    .report = report,
};
RESIL_MODULE(kDeviceChecks);

}  // namespace

}  // namespace resil::staging
