// SPDX-License-Identifier: Apache-2.0
//
// By which means a packet's data is copied. The driver's copies need no room on the device's processors, and so come
// through while the program's kernels have them all; each order costs microseconds of the driver's time, though. So few
// orders are copies; many pieces are gathered or scattered by a kernel, straight from or to pinned memory; and where
// there is no kernel, they come down together with the gaps between them. Gaps are never written on the device.

#include "pipeline/gpu/kernels/kernels.h"
#include "pipeline/gpu/pinned.h"
#include "pipeline/staging/device_stream.h"
#include "pipeline/staging/packet_copy.h"

namespace resil::staging {

namespace {

/// Orders to the driver up to which nothing else is tried.
constexpr uint64_t kFewOrders = 64;
/// A span of at most this many times its data is copied down at once.
constexpr uint64_t kSpanFactor = 4;
/// Orders beyond which even a longer span is.
constexpr uint64_t kManyOrders = 4096;

Part part_of(const Packet& packet) {
  const bool packed = packet.layout == Layout::kPacked;
  return {packet.type, packet.count, packet.buffer, packed ? packet.host : packet.host - packet.low, packed};
}

Part part_of(const Packet& packet, const Block& block) {
  return {block.type, block.count, packet.buffer + block.offset, packet.host - packet.low + block.offset, false};
}

struct Range {
  int64_t low, high;  ///< from the buffer's address
  uint64_t bytes;  ///< of data
};

/// Of whole blocks, or of the one datatype.
Range range_of(const Packet& packet) {
  const CopyRange& copy = packet.copy;
  if (packet.blocks == nullptr || (copy.first == 0 && copy.last == packet.block_count))
    return {packet.low, packet.high, packet.bytes};
  Range range = {};
  for (uint32_t i = copy.first; i < copy.last; ++i) {
    const Block& block = packet.blocks[i];
    const uint64_t bytes = type_bytes(*block.type, block.count);
    if (bytes == 0) continue;
    int64_t low, high;
    type_span(*block.type, block.count, &low, &high);
    range.low = range.bytes == 0 || block.offset + low < range.low ? block.offset + low : range.low;
    range.high = range.bytes == 0 || block.offset + high > range.high ? block.offset + high : range.high;
    range.bytes += bytes;
  }
  return range;
}

/// Copies the parts that it is given, or counts the orders that they would take. Blocks in one piece that follow each
/// other, as those of most vector collectives do, are one.
class Parts {
 public:
  Parts(Packet& packet, bool copy, bool up) : packet_(packet), copy_(copy), up_(up) {}

  void add(const Part& part, uint64_t bytes) {
    const TypeMap& type = *part.type;
    const bool solid = !part.packed && type.run_count == 1 && type.runs[0].count == 1 &&
                       (type.runs[0].bytes == type.extent || bytes <= type.size);
    char* const at = solid ? part.device + type.runs[0].offset : nullptr;
    if (bytes == 0 || (solid && at == piece_ + piece_bytes_ && piece_bytes_ != 0)) {
      piece_bytes_ += bytes;
      return;
    }
    flush();
    if (solid) {
      piece_ = at;
      piece_bytes_ = bytes;
    } else if (copy_) {
      good_ = good_ && copy_part(*packet_.device, part, bytes, up_);
    } else {
      orders_ += copy_orders(part, bytes);
    }
  }
  bool done() {
    flush();
    return good_;
  }
  uint64_t orders() {
    flush();
    return orders_;
  }

 private:
  void flush() {
    if (piece_bytes_ == 0) return;
    char* host = packet_.host - packet_.low + (piece_ - packet_.buffer);
    if (!copy_) ++orders_;
    else if (good_)
      good_ = up_ ? gpu::copy_up(*packet_.device, piece_, host, piece_bytes_)
                  : gpu::copy_down(*packet_.device, host, piece_, piece_bytes_);
    piece_bytes_ = 0;
  }

  Packet& packet_;
  const bool copy_, up_;
  bool good_ = true;
  uint64_t orders_ = 0, piece_bytes_ = 0;
  char* piece_ = nullptr;
};

void add_all(Parts* parts, const Packet& packet) {
  if (packet.blocks == nullptr) return parts->add(part_of(packet), packet.copy.bytes);
  uint64_t bytes = packet.copy.bytes;
  for (uint32_t i = packet.copy.first; i < packet.copy.last && bytes != 0; ++i) {
    const Block& block = packet.blocks[i];
    const uint64_t all = type_bytes(*block.type, block.count), some = all < bytes ? all : bytes;
    parts->add(part_of(packet, block), some);
    bytes -= some;
  }
}

/// Between the device's buffer and `contiguous`, pinned memory, by a kernel. False: there is none, or no room for what
/// it needs; nothing has been enqueued then.
bool by_kernel(Packet* packet, char* contiguous) {
  gpu::Device& device = *packet->device;
  const bool up = packet->copy.up;
  void* kernel = gpu::kernel(device, up ? "resil_unpack" : "resil_pack");
  if (kernel == nullptr || packet_stream(packet) != Refusal::kNone) return false;
  gpu::PackJob job = {packet->stream, 0, packet->copy.bytes,
                      reinterpret_cast<uint64_t>(gpu::device_address(device, contiguous))};
  if (job.contiguous == 0) return false;
  void* arguments[] = {&job};
  return gpu::launch(device, up ? gpu::StreamRole::kUp : gpu::StreamRole::kDown, kernel,
                     gpu::kernel_blocks(gpu::kernel_leaves(job.bytes)), gpu::kKernelThreads, 0, arguments);
}

/// Data of a shadow, one after the other.
void pack_shadow(const Packet& packet, char* to) {
  uint64_t bytes = packet.copy.bytes;
  if (packet.blocks == nullptr) {
    type_pack(*packet.type, packet.host - packet.low, packet.count, 0, bytes, to);
    return;
  }
  for (uint32_t i = packet.copy.first; i < packet.copy.last && bytes != 0; ++i) {
    const Block& block = packet.blocks[i];
    const uint64_t done = type_pack(*block.type, packet.host - packet.low + block.offset, block.count, 0, bytes, to);
    to += done;
    bytes -= done;
  }
}

bool copy_all(Packet* packet) {
  Parts parts(*packet, true, packet->copy.up);
  add_all(&parts, *packet);
  return parts.done();
}

/// That copy_all() would take.
uint64_t orders_of(Packet* packet) {
  Parts counted(*packet, false, packet->copy.up);
  add_all(&counted, *packet);
  return counted.orders();
}

}  // namespace

Refusal packet_stream(Packet* packet) {
  if (packet->has_stream) return Refusal::kNone;
  const CopyRange& copy = packet->copy;
  const Block* blocks = packet->blocks != nullptr ? packet->blocks + copy.first : nullptr;
  const uint32_t count = copy.last - copy.first;
  const uint64_t entries =
      blocks != nullptr ? stream_entries(blocks, count) : stream_entries(*packet->type, packet->count);
  if (entries > kMostEntries) return Refusal::kDatatype;
  uint64_t seen_at = 0;
  if (entries != 0) {
    if (packet->table == nullptr)
      packet->table = gpu::pinned_acquire(*packet->device, entries * sizeof(gpu::KernelRun));
    if (packet->table != nullptr)
      seen_at = reinterpret_cast<uint64_t>(gpu::device_address(*packet->device, packet->table));
    if (seen_at == 0) return Refusal::kPinnedMemory;
  }
  auto* table = static_cast<gpu::KernelRun*>(packet->table);
  packet->stream = blocks != nullptr
                       ? make_stream(blocks, count, packet->buffer, copy.bytes, table, seen_at)
                       : make_stream(*packet->type, packet->buffer, packet->count, copy.bytes, table, seen_at);
  packet->has_stream = true;
  return Refusal::kNone;
}

bool plan_down(Packet* packet) {
  const Range range = range_of(*packet);
  const auto span = static_cast<uint64_t>(range.high - range.low);
  const bool dense = span / kSpanFactor <= range.bytes, packed = packet->layout == Layout::kPacked;
  auto span_to = [&](char* to) { return gpu::copy_down(*packet->device, to, packet->buffer + range.low, span); };
  char* const shadow = packet->host + (range.low - packet->low);
  if (!packed && dense) return span_to(shadow);
  const uint64_t orders = orders_of(packet);
  if (!packed && orders > kManyOrders) return span_to(shadow);
  if (packed && orders > kFewOrders) {
    if (by_kernel(packet, packet->host)) return true;
    packet->scratch = dense ? static_cast<char*>(gpu::pinned_acquire(*packet->device, span)) : nullptr;
    packet->to_pack = packet->scratch != nullptr;
    if (packet->to_pack) return span_to(packet->scratch);
  }
  return copy_all(packet);
}

bool plan_up(Packet* packet) {
  if (orders_of(packet) > kFewOrders) {
    char* from = packet->host;
    if (packet->layout == Layout::kShadow) {
      packet->scratch = static_cast<char*>(gpu::pinned_acquire(*packet->device, packet->copy.bytes));
      if ((from = packet->scratch) != nullptr) pack_shadow(*packet, from);
    }
    if (from != nullptr && by_kernel(packet, from)) return true;
  }
  return copy_all(packet);
}

void plan_copied(Packet* packet) {
  if (packet->to_pack)
    type_pack(*packet->type, packet->scratch - packet->low, packet->count, 0, packet->bytes, packet->host);
  packet->to_pack = false;
}

void plan_end(Packet* packet) {
  packet->to_pack = packet->has_stream = false;
  gpu::pinned_release(packet->scratch);
  gpu::pinned_release(packet->table);
  packet->scratch = nullptr;
  packet->table = nullptr;
}

}  // namespace resil::staging
