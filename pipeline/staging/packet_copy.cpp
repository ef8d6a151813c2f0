// SPDX-License-Identifier: Apache-2.0
//
// See packet_copy.h. Elements one after the other, each run of equally spaced pieces as one two-dimensional copy; or,
// when that is fewer, piece by piece of the element, each over all elements as rows.

#include "pipeline/staging/packet_copy.h"

namespace resil::staging {

namespace {

/// Largest pitch that the drivers take (CU_DEVICE_ATTRIBUTE_MAX_PITCH).
constexpr int64_t kMostPitch = INT32_MAX;

bool one_run(const TypeMap& type, int64_t count) {
  const Run& run = type.runs[0];
  return type.run_count == 1 && (run.count == 1 || count == 1 || run.count * run.stride == type.extent);
}

uint64_t pieces_of(const TypeMap& type) {
  uint64_t pieces = 0;
  for (uint32_t i = 0; i < type.run_count; ++i) pieces += static_cast<uint64_t>(type.runs[i].count);
  return pieces;
}

/// Rows are pieces: one element's next piece never begins before the one before ends.
bool as_rows(const Part& part, uint64_t bytes) {
  const TypeMap& type = *part.type;
  const uint64_t whole = bytes / type.size;
  return whole > 1 && !one_run(type, part.count) && type.extent >= type.high - type.low && type.extent <= kMostPitch &&
         (!part.packed || type.size <= kMostPitch) && pieces_of(type) < whole * type.run_count;
}

struct Copier {
  gpu::Device& device;
  const Part& part;
  uint64_t packed_at;  ///< bytes of the stream so far
  bool up, good;

  char* host_of(char* at) const { return part.packed ? part.host + packed_at : part.host + (at - part.device); }

  bool one(char* at, char* host, uint64_t bytes) {
    return good = up ? gpu::copy_up(device, at, host, bytes) : gpu::copy_down(device, host, at, bytes);
  }

  bool rows(char* at, int64_t pitch, char* host, int64_t host_pitch, uint64_t bytes, int64_t count) {
    const auto width = static_cast<int64_t>(bytes);
    if (count == 1 || (pitch == width && host_pitch == width))
      return one(at, host, bytes * static_cast<uint64_t>(count));
    if (pitch >= width && pitch <= kMostPitch && host_pitch >= width && host_pitch <= kMostPitch) {
      const auto n = static_cast<size_t>(count), p = static_cast<size_t>(pitch), hp = static_cast<size_t>(host_pitch);
      return good = up ? gpu::copy_up_2d(device, at, p, host, hp, bytes, n)
                       : gpu::copy_down_2d(device, host, hp, at, p, bytes, n);
    }
    for (int64_t i = 0; i < count && one(at + i * pitch, host + i * host_pitch, bytes); ++i) {}
    return good;
  }

  static bool group(void* argument, const Pieces& pieces) {
    auto& self = *static_cast<Copier*>(argument);
    char* host = self.host_of(pieces.at);
    self.packed_at += pieces.bytes * static_cast<uint64_t>(pieces.count);
    return self.rows(pieces.at, pieces.stride, host,
                     self.part.packed ? static_cast<int64_t>(pieces.bytes) : pieces.stride, pieces.bytes, pieces.count);
  }
};

}  // namespace

uint64_t copy_orders(const Part& part, uint64_t bytes) {
  const TypeMap& type = *part.type;
  if (bytes == 0 || type.size == 0) return 0;
  if (one_run(type, part.count)) return 1;
  if (as_rows(part, bytes)) return pieces_of(type) + (bytes % type.size != 0 ? type.run_count : 0);
  return (bytes + type.size - 1) / type.size * type.run_count;
}

bool copy_part(gpu::Device& device, const Part& part, uint64_t bytes, bool up) {
  const TypeMap& type = *part.type;
  if (bytes == 0 || type.size == 0) return true;
  Copier copier = {device, part, 0, up, true};
  uint64_t first = 0;
  if (as_rows(part, bytes)) {
    const auto elements = static_cast<int64_t>(bytes / type.size);
    const int64_t host_pitch = part.packed ? static_cast<int64_t>(type.size) : type.extent;
    for (uint32_t i = 0; i < type.run_count; ++i) {
      const Run& run = type.runs[i];
      for (int64_t piece = 0; piece < run.count; ++piece) {
        char* at = part.device + run.offset + piece * run.stride;
        char* host = copier.host_of(at);
        copier.packed_at += static_cast<uint64_t>(run.bytes);
        if (!copier.rows(at, type.extent, host, host_pitch, static_cast<uint64_t>(run.bytes), elements)) return false;
      }
    }
    copier.packed_at = first = static_cast<uint64_t>(elements) * type.size;
  }
  if (first < bytes) type_walk(type, part.device, part.count, first, bytes - first, Copier::group, &copier);
  return copier.good;
}

}  // namespace resil::staging
