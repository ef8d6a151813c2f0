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

/// Of the blocks [first, last), or of the one datatype.
Range range_of(const Packet& packet, uint32_t first, uint32_t last) {
  if (packet.blocks == nullptr || (first == 0 && last == packet.block_count))
    return {packet.low, packet.high, packet.bytes};
  Range range = {};
  for (uint32_t i = first; i < last; ++i) {
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

/// The first `bytes` bytes of the blocks [first, last), or of the one datatype.
void add_all(Parts* parts, const Packet& packet, uint32_t first, uint32_t last, uint64_t bytes) {
  if (packet.blocks == nullptr) return parts->add(part_of(packet), bytes);
  for (uint32_t i = first; i < last && bytes != 0; ++i) {
    const Block& block = packet.blocks[i];
    const uint64_t all = type_bytes(*block.type, block.count), some = all < bytes ? all : bytes;
    parts->add(part_of(packet, block), some);
    bytes -= some;
  }
}

/// Between the device's buffer and `contiguous`, pinned memory, by a kernel. False: there is none, or no room for what
/// it needs; nothing has been enqueued then.
bool by_kernel(Packet* packet, uint32_t first, uint32_t last, uint64_t bytes, char* contiguous, bool up) {
  gpu::Device& device = *packet->device;
  void* kernel = gpu::kernel(device, up ? "resil_unpack" : "resil_pack");
  if (kernel == nullptr) return false;
  const Block* blocks = packet->blocks != nullptr ? packet->blocks + first : nullptr;
  const uint32_t count = last - first;
  const uint64_t entries =
      blocks != nullptr ? stream_entries(blocks, count) : stream_entries(*packet->type, packet->count);
  gpu::KernelRun* table = nullptr;
  if (entries != 0) {
    packet->table = entries <= kMostEntries ? gpu::pinned_acquire(device, entries * sizeof(gpu::KernelRun)) : nullptr;
    table = static_cast<gpu::KernelRun*>(packet->table);
    if (table == nullptr) return false;
  }
  const auto seen_at = table != nullptr ? reinterpret_cast<uint64_t>(gpu::device_address(device, table)) : 0;
  const auto data_at = reinterpret_cast<uint64_t>(gpu::device_address(device, contiguous));
  if (data_at == 0 || (table != nullptr && seen_at == 0)) return false;
  gpu::PackJob job = {};
  job.stream = blocks != nullptr ? make_stream(blocks, count, packet->buffer, bytes, table, seen_at)
                                 : make_stream(*packet->type, packet->buffer, packet->count, bytes, table, seen_at);
  job.bytes = bytes;
  job.contiguous = data_at;
  void* arguments[] = {&job};
  return gpu::launch(device, up ? gpu::StreamRole::kUp : gpu::StreamRole::kDown, kernel,
                     gpu::kernel_blocks(gpu::kernel_leaves(bytes)), gpu::kKernelThreads, 0, arguments);
}

/// Data of a shadow, one after the other.
void pack_shadow(const Packet& packet, uint32_t first, uint32_t last, uint64_t bytes, char* to) {
  if (packet.blocks == nullptr) {
    type_pack(*packet.type, packet.host - packet.low, packet.count, 0, bytes, to);
    return;
  }
  for (uint32_t i = first; i < last && bytes != 0; ++i) {
    const Block& block = packet.blocks[i];
    const uint64_t done = type_pack(*block.type, packet.host - packet.low + block.offset, block.count, 0, bytes, to);
    to += done;
    bytes -= done;
  }
}

bool copy_all(Packet* packet, uint32_t first, uint32_t last, uint64_t bytes, bool up) {
  Parts parts(*packet, true, up);
  add_all(&parts, *packet, first, last, bytes);
  return parts.done();
}

}  // namespace

bool plan_down(Packet* packet, uint32_t first, uint32_t last) {
  const Range range = range_of(*packet, first, last);
  const auto span = static_cast<uint64_t>(range.high - range.low);
  const bool dense = span / kSpanFactor <= range.bytes, packed = packet->layout == Layout::kPacked;
  auto span_to = [&](char* to) { return gpu::copy_down(*packet->device, to, packet->buffer + range.low, span); };
  char* const shadow = packet->host + (range.low - packet->low);
  if (!packed && dense) return span_to(shadow);
  Parts counted(*packet, false, false);
  add_all(&counted, *packet, first, last, range.bytes);
  const uint64_t orders = counted.orders();
  if (!packed && orders > kManyOrders) return span_to(shadow);
  if (packed && orders > kFewOrders) {
    if (by_kernel(packet, 0, 0, packet->bytes, packet->host, false)) return true;
    packet->scratch = dense ? static_cast<char*>(gpu::pinned_acquire(*packet->device, span)) : nullptr;
    packet->to_pack = packet->scratch != nullptr;
    if (packet->to_pack) return span_to(packet->scratch);
  }
  return copy_all(packet, first, last, range.bytes, false);
}

bool plan_up(Packet* packet, uint32_t first, uint32_t last, uint64_t bytes) {
  Parts counted(*packet, false, true);
  add_all(&counted, *packet, first, last, bytes);
  if (counted.orders() > kFewOrders) {
    char* from = packet->host;
    if (packet->layout == Layout::kShadow) {
      packet->scratch = static_cast<char*>(gpu::pinned_acquire(*packet->device, bytes));
      if ((from = packet->scratch) != nullptr) pack_shadow(*packet, first, last, bytes, from);
    }
    if (from != nullptr && by_kernel(packet, first, last, bytes, from, true)) return true;
  }
  return copy_all(packet, first, last, bytes, true);
}

void plan_end(Packet* packet, bool good) {
  if (packet->to_pack && good)
    type_pack(*packet->type, packet->scratch - packet->low, packet->count, 0, packet->bytes, packet->host);
  packet->to_pack = false;
  gpu::pinned_release(packet->scratch);
  gpu::pinned_release(packet->table);
  packet->scratch = nullptr;
  packet->table = nullptr;
}

}  // namespace resil::staging
