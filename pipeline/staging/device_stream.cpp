// SPDX-License-Identifier: Apache-2.0
//
// See device_stream.h.

#include "pipeline/staging/device_stream.h"

namespace resil::staging {

namespace {

/// Elements of few runs are put together until 32 send queues have a run each.
constexpr uint64_t kWantedRuns = 32;

/// All elements as equally spaced pieces; bytes == 0: they are not.
struct Even {
  int64_t offset;
  uint64_t bytes;  ///< of a piece; all of the data when it is one
  int64_t stride;
  bool one_piece;
};

Even even(const TypeMap& type, int64_t count) {
  const uint64_t all = type_bytes(type, count);
  if (type.contiguous) return {0, all, 0, true};
  if (type.run_count != 1) return {};
  const Run& run = type.runs[0];
  if (run.count == 1) {
    const bool one = count == 1 || run.bytes == type.extent;
    return {run.offset, one ? all : static_cast<uint64_t>(run.bytes), type.extent, one};
  }
  if (count == 1 || run.count * run.stride == type.extent)
    return {run.offset, static_cast<uint64_t>(run.bytes), run.stride, run.stride == run.bytes};
  return {};
}

/// Elements that one round of the table stands for.
int64_t elements_in_table(const TypeMap& type, int64_t count) {
  const auto wanted = static_cast<int64_t>((kWantedRuns + type.run_count - 1) / type.run_count);
  return wanted < count ? wanted : count;
}

uint64_t at(const void* buffer, int64_t offset) {
  return reinterpret_cast<uint64_t>(buffer) + static_cast<uint64_t>(offset);
}

struct Writer {
  gpu::KernelRun* table;
  uint64_t entries, start;

  void add(int64_t offset, uint64_t piece, int64_t stride, uint64_t bytes) {
    table[entries++] = {start, offset, piece, stride};
    start += bytes;
  }
  void add(const TypeMap& type, int64_t count, int64_t base) {
    for (int64_t i = 0; i < count; ++i)
      for (uint32_t k = 0; k < type.run_count; ++k) {
        const Run& run = type.runs[k];
        add(base + i * type.extent + run.offset, static_cast<uint64_t>(run.bytes), run.stride,
            static_cast<uint64_t>(run.bytes * run.count));
      }
  }
  void end() { table[entries] = {start, 0, 0, 0}; }
};

}  // namespace

uint64_t stream_entries(const TypeMap& type, int64_t count) {
  if (type_bytes(type, count) == 0 || even(type, count).bytes != 0) return 0;
  return static_cast<uint64_t>(elements_in_table(type, count)) * type.run_count + 1;
}

gpu::KernelStream make_stream(const TypeMap& type, const void* buffer, int64_t count, uint64_t bytes,
                              gpu::KernelRun* table, uint64_t seen_at) {
  if (bytes == 0) return {};
  if (const Even pieces = even(type, count); pieces.bytes != 0) {
    const uint64_t address = at(buffer, pieces.offset);
    if (pieces.one_piece) return {address, bytes, 0, 0, 0, 0, 0, 0};
    return {address, bytes, type_bytes(type, count), 0, pieces.bytes, pieces.stride, 1, 0};
  }
  Writer writer = {table, 0, 0};
  const int64_t elements = elements_in_table(type, count);
  writer.add(type, elements, 0);
  writer.end();
  return {
      at(buffer, 0), bytes, writer.start, elements * type.extent, seen_at, 0, static_cast<uint32_t>(writer.entries), 0};
}

uint64_t stream_entries(const Block* blocks, uint32_t count) {
  uint64_t entries = 0;
  for (uint32_t i = 0; i < count; ++i)
    if (type_bytes(*blocks[i].type, blocks[i].count) != 0)
      entries += even(*blocks[i].type, blocks[i].count).bytes != 0
                     ? 1
                     : static_cast<uint64_t>(blocks[i].count) * blocks[i].type->run_count;
  return entries + 1;
}

gpu::KernelStream make_stream(const Block* blocks, uint32_t count, const void* buffer, uint64_t bytes,
                              gpu::KernelRun* table, uint64_t seen_at) {
  if (bytes == 0) return {};
  Writer writer = {table, 0, 0};
  for (uint32_t i = 0; i < count; ++i) {
    const TypeMap& type = *blocks[i].type;
    const uint64_t all = type_bytes(type, blocks[i].count);
    if (all == 0) continue;
    if (const Even pieces = even(type, blocks[i].count); pieces.bytes != 0)
      writer.add(blocks[i].offset + pieces.offset, pieces.bytes, pieces.stride, all);
    else writer.add(type, blocks[i].count, blocks[i].offset);
  }
  writer.end();
  if (writer.entries == 1)
    return {at(buffer, table[0].offset), bytes, writer.start, 0, table[0].bytes, table[0].stride, 1, 0};
  return {at(buffer, 0), bytes, writer.start, 0, seen_at, 0, static_cast<uint32_t>(writer.entries), 0};
}

}  // namespace resil::staging
