// SPDX-License-Identifier: Apache-2.0
//
// Between a stream and contiguous memory, by a group of 32 threads: at most one leaf at a time.
//
// Pieces are moved in units of 8, 4 or 1 bytes, whichever all addresses and lengths of a run allow. A run of many bytes
// is moved by all lanes together, neighbouring lanes having neighbouring units; runs of a few bytes are given one to a
// lane.
#pragma once

#include "pipeline/gpu/kernels/device.h"

namespace resil::gpu::device {

/// Bytes of a run up to which one lane moves it alone.
constexpr uint64_t kLaneRun = 64;

/// Part of a run: the bytes [first, first + bytes) of its stream, bytes <= kLeaf, to or from `contiguous`.
struct Part {
  uint64_t data;  ///< address of the run's first piece
  uint64_t piece;
  int64_t stride;
  uint64_t first;
  uint32_t bytes;
  uint64_t contiguous;
};

/// Units `from`, `from + step`, ... of it.
template <bool to_runs>
RESIL_DEVICE void move_part(const Part& part, unsigned from, unsigned step) {
  const uint64_t all =
      part.data | part.piece | static_cast<uint64_t>(part.stride) | part.first | part.bytes | part.contiguous;
  const unsigned unit = all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : 1;
  // Relative to the piece that holds the first byte, 32 bits are enough: a longer piece than a leaf is left at most
  // once.
  const uint64_t index = part.piece <= part.first ? part.first / part.piece : 0;
  const uint64_t inside = part.first - index * part.piece;
  const uint64_t start = part.data + index * static_cast<uint64_t>(part.stride);
  RESIL_NO_UNROLL for (unsigned u = from * unit; u < part.bytes; u += step * unit) {
    uint64_t place = start + inside + u;
    if (part.piece > kLeaf) {
      if (inside + u >= part.piece) place += static_cast<uint64_t>(part.stride) - part.piece;
    } else {
      const unsigned position = static_cast<unsigned>(inside) + u, piece = static_cast<unsigned>(part.piece);
      place += position / piece * (static_cast<uint64_t>(part.stride) - part.piece);
    }
    const uint64_t to = to_runs ? place : part.contiguous + u, origin = to_runs ? part.contiguous + u : place;
    if (unit == 8) *at<uint64_t>(to) = *at<const uint64_t>(origin);
    else if (unit == 4) *at<uint32_t>(to) = *at<const uint32_t>(origin);
    else *at<unsigned char>(to) = *at<const unsigned char>(origin);
  }
}

/// The run's part that lies in [from, to) of the element's stream; bytes == 0: none. `contiguous` is where `from` goes.
RESIL_DEVICE Part part_of(const KernelRun& run, uint64_t end, uint64_t element, uint64_t from, uint64_t to,
                          uint64_t contiguous) {
  Part part;
  const uint64_t first = run.start > from ? run.start : from, last = end < to ? end : to;
  part.data = element + static_cast<uint64_t>(run.offset);
  part.piece = run.bytes;
  part.stride = run.stride;
  part.first = first - run.start;
  part.bytes = last > first ? static_cast<uint32_t>(last - first) : 0;
  part.contiguous = contiguous + (first - from);
  return part;
}

/// Bytes [from, to) of the stream of one element of many runs, at most a leaf.
template <bool to_runs>
RESIL_DEVICE void move_element(const KernelStream& stream, uint64_t element, uint64_t from, uint64_t to,
                               uint64_t contiguous) {
  const KernelRun* runs = at<const KernelRun>(stream.runs);
  uint32_t low = 0, high = stream.run_count;  // runs[low].start <= from < runs[high].start
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (runs[middle].start <= from) low = middle;
    else high = middle;
  }
  RESIL_NO_UNROLL for (uint32_t first = low; first < stream.run_count && runs[first].start < to; first += kGroup) {
    LANES {
      const uint32_t own = first + lane;
      if (own < stream.run_count && runs[own].start < to) {
        const Part part = part_of(runs[own], runs[own + 1].start, element, from, to, contiguous);
        if (part.bytes <= kLaneRun) move_part<to_runs>(part, 0, 1);
      }
    }
    const uint32_t end = first + kGroup < stream.run_count ? first + kGroup : stream.run_count;
    RESIL_NO_UNROLL for (uint32_t next = first; next < end && runs[next].start < to; ++next) {
      if (runs[next + 1].start - runs[next].start <= kLaneRun) continue;
      const Part part = part_of(runs[next], runs[next + 1].start, element, from, to, contiguous);
      if (part.bytes <= kLaneRun) continue;
      LANES { move_part<to_runs>(part, lane, kGroup); }
    }
  }
}

/// Bytes [from, from + bytes) of the stream, bytes <= kLeaf, to or from `contiguous`.
template <bool to_runs>
RESIL_DEVICE void move_stream(const KernelStream& stream, uint64_t from, uint32_t bytes, uint64_t contiguous) {
  if (stream.element == 0 || stream.run_count == 1) {
    const uint64_t piece = stream.element == 0 ? stream.bytes : stream.runs;
    LANES { move_part<to_runs>({stream.address, piece, stream.stride, from, bytes, contiguous}, lane, kGroup); }
    return;
  }
  uint64_t index = from / stream.element, inside = from - index * stream.element;
  RESIL_NO_UNROLL for (uint64_t done = 0; done < bytes; ++index, inside = 0) {
    const uint64_t rest = bytes - done, left = stream.element - inside, part = rest < left ? rest : left;
    move_element<to_runs>(stream, stream.address + index * static_cast<uint64_t>(stream.extent), inside, inside + part,
                          contiguous + done);
    done += part;
  }
}

/// The address of bytes [from, from + bytes) of a stream that lie in one piece of memory; 0: they do not.
RESIL_DEVICE uint64_t in_one_piece(const KernelStream& stream, uint64_t from, uint32_t bytes) {
  if (stream.element == 0) return stream.address + from;
  if (stream.run_count != 1 || stream.runs < bytes) return 0;
  const uint64_t index = from / stream.runs, inside = from - index * stream.runs;
  return inside + bytes > stream.runs ? 0 : stream.address + index * static_cast<uint64_t>(stream.stride) + inside;
}

}  // namespace resil::gpu::device
