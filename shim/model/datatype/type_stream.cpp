// SPDX-License-Identifier: Apache-2.0
//
// The packed stream of a buffer, read or written through its flattened datatype. Everything goes through one walk that
// hands out groups of equally spaced pieces, so that the inner loops are short and know their piece size.

#include <cstring>

#include "shim/base/digest/digest.h"
#include "shim/model/datatype/type_map.h"
#include "shim/runtime/work_memory.h"

namespace resil {

namespace {

/// Copies `count` pieces of `bytes` between places that advance by `to_step` and `from_step`.
template <size_t bytes>
void copy_fixed(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t count) {
  for (int64_t i = 0; i < count; ++i) memcpy(to + i * to_step, from + i * from_step, bytes);
}

void copy_pieces(char* to, int64_t to_step, const char* from, int64_t from_step, size_t bytes, int64_t count) {
  switch (bytes) {
    case 1: return copy_fixed<1>(to, to_step, from, from_step, count);
    case 2: return copy_fixed<2>(to, to_step, from, from_step, count);
    case 4: return copy_fixed<4>(to, to_step, from, from_step, count);
    case 8: return copy_fixed<8>(to, to_step, from, from_step, count);
    case 12: return copy_fixed<12>(to, to_step, from, from_step, count);
    case 16: return copy_fixed<16>(to, to_step, from, from_step, count);
    case 24: return copy_fixed<24>(to, to_step, from, from_step, count);
    case 32: return copy_fixed<32>(to, to_step, from, from_step, count);
    default:
      for (int64_t i = 0; i < count; ++i) memcpy(to + i * to_step, from + i * from_step, bytes);
  }
}

/// MPI_BOTTOM: the buffer's address is 0 and the offsets are addresses.
char* at(uint64_t address) { return reinterpret_cast<char*>(address); }

/// Part of a run: `skip` bytes of it are passed over, then `left` handed out at most. Returns the bytes handed out.
template <class Sink>
uint64_t walk_run(Sink& sink, uint64_t base, int64_t bytes, int64_t count, int64_t stride, uint64_t skip,
                  uint64_t left) {
  const auto piece = static_cast<uint64_t>(bytes);
  auto index = static_cast<int64_t>(skip / piece);
  const uint64_t inside = skip % piece;
  uint64_t done = 0;
  if (inside != 0 && index < count) {
    const uint64_t rest = piece - inside < left ? piece - inside : left;
    sink.pieces(at(base + static_cast<uint64_t>(index * stride) + inside), rest, 1, 0);
    done = rest;
    ++index;
  }
  const uint64_t whole = (left - done) / piece;
  const int64_t n = static_cast<uint64_t>(count - index) < whole ? count - index : static_cast<int64_t>(whole);
  if (n > 0) {
    sink.pieces(at(base + static_cast<uint64_t>(index * stride)), piece, n, stride);
    done += static_cast<uint64_t>(n) * piece;
    index += n;
  }
  if (index < count && done < left) {
    sink.pieces(at(base + static_cast<uint64_t>(index * stride)), left - done, 1, 0);
    done = left;
  }
  return done;
}

/// Bytes [first, first + bytes) of the stream of `count` elements, in order. Returns how many there were.
template <class Sink>
uint64_t walk(Sink& sink, const TypeMap& map, const void* buffer, int64_t count, uint64_t first, uint64_t bytes) {
  const uint64_t total = type_bytes(map, count);
  if (first >= total) return 0;
  const uint64_t wanted = bytes < total - first ? bytes : total - first;
  if (wanted == 0) return 0;
  const auto base = reinterpret_cast<uint64_t>(buffer);
  if (map.run_count == 1) {  // often all elements together are one run
    const Run& run = map.runs[0];
    const uint64_t start = base + static_cast<uint64_t>(run.offset);
    if (run.count == 1) {
      if (run.bytes == map.extent) return walk_run(sink, start, static_cast<int64_t>(total), 1, 0, first, wanted);
      return walk_run(sink, start, run.bytes, count, map.extent, first, wanted);
    }
    if (count == 1 || run.count * run.stride == map.extent)
      return walk_run(sink, start, run.bytes, run.count * count, run.stride, first, wanted);
  }
  auto element = static_cast<int64_t>(first / map.size);
  uint64_t skip = first % map.size, done = 0;
  for (; done < wanted; ++element) {
    const uint64_t start = base + static_cast<uint64_t>(element * map.extent);
    for (uint32_t i = 0; i < map.run_count && done < wanted; ++i) {
      const Run& run = map.runs[i];
      const auto in_run = static_cast<uint64_t>(run.bytes * run.count);
      if (skip >= in_run) {
        skip -= in_run;
        continue;
      }
      done += walk_run(sink, start + static_cast<uint64_t>(run.offset), run.bytes, run.count, run.stride, skip,
                       wanted - done);
      skip = 0;
    }
  }
  return done;
}

/// Gathers small pieces into whole leaves; leaves that lie in one piece of memory are hashed in place.
template <class Room>
class DigestSink {
 public:
  void pieces(const char* from, uint64_t bytes, int64_t count, int64_t stride) {
    while (count > 0) {
      const auto room = static_cast<int64_t>((kDigestLeaf - used_) / bytes);
      if (room == 0) {
        split(from, bytes);
        from = step(from, stride);
        --count;
        continue;
      }
      const int64_t n = count < room ? count : room;
      copy_pieces(leaf_ + used_, static_cast<int64_t>(bytes), from, stride, bytes, n);
      used_ += static_cast<size_t>(n) * bytes;
      from = step(from, n * stride);
      count -= n;
    }
  }
  uint64_t finish() {
    if (used_ != 0 || index_ == 0) end_leaf(leaf_, used_);
    return sum_;
  }

 private:
  static const char* step(const char* from, int64_t bytes) {
    return at(reinterpret_cast<uint64_t>(from) + static_cast<uint64_t>(bytes));
  }

  void end_leaf(const char* leaf, size_t bytes) { sum_ += digest_leaf(leaf, bytes, index_++); }

  /// A piece that is longer than what the leaf still takes.
  void split(const char* from, uint64_t bytes) {
    if (used_ != 0) {
      const size_t head = kDigestLeaf - used_;
      memcpy(leaf_ + used_, from, head);
      end_leaf(leaf_, kDigestLeaf);
      from += head;
      bytes -= head;
    }
    for (; bytes > kDigestLeaf; from += kDigestLeaf, bytes -= kDigestLeaf) end_leaf(from, kDigestLeaf);
    memcpy(leaf_, from, bytes);
    used_ = bytes;
  }

  uint64_t sum_ = 0, index_ = 0;
  size_t used_ = 0;  ///< of leaf_; a full one is ended when more comes
  Room room_;
  char* const leaf_ = room_->bytes;
};

/// Of a stream that is shorter: on the stack.
struct ShortLeaf {
  alignas(64) char bytes[256];
  ShortLeaf* operator->() { return this; }
};
static_assert(sizeof(WorkLeaf) == kDigestLeaf);

struct PackSink {
  char* to;
  void pieces(const char* from, uint64_t bytes, int64_t count, int64_t stride) {
    copy_pieces(to, static_cast<int64_t>(bytes), from, stride, bytes, count);
    to += static_cast<uint64_t>(count) * bytes;
  }
};

struct UnpackSink {
  const char* from;
  void pieces(char* to, uint64_t bytes, int64_t count, int64_t stride) {
    copy_pieces(to, stride, from, static_cast<int64_t>(bytes), bytes, count);
    from += static_cast<uint64_t>(count) * bytes;
  }
};

struct CallSink {
  bool (*each)(void* argument, const Pieces& pieces);
  void* argument;
  bool wanted;
  void pieces(char* from, uint64_t bytes, int64_t count, int64_t stride) {
    wanted = wanted && each(argument, {from, bytes, count, stride});
  }
};

/// Leaf by leaf, with the padding of long doubles as zeros. What the stream consists of repeats every `period` bytes.
uint64_t digest_padded(const TypeMap& map, const void* buffer, int64_t count, uint64_t bytes) {
  constexpr uint64_t kValue = 10, kWhole = 16;
  const uint64_t period = map.basic.kind == BasicKind::kPair ? map.basic.width : kWhole;
  Work<WorkLeaf> room;
  char* const leaf = room->bytes;
  uint64_t sum = 0, index = 0, first = 0;
  do {
    const uint64_t n = bytes - first < kDigestLeaf ? bytes - first : kDigestLeaf;
    type_pack(map, buffer, count, first, n, leaf);
    for (uint64_t item = first - first % period; item < first + n; item += period) {
      const uint64_t from = item + kValue > first ? item + kValue : first;
      const uint64_t to = item + kWhole < first + n ? item + kWhole : first + n;
      if (from < to) memset(leaf + (from - first), 0, to - from);
    }
    sum += digest_leaf(leaf, n, index++);
    first += n;
  } while (first < bytes);
  return sum;
}

}  // namespace

uint64_t type_bytes(const TypeMap& map, int64_t count) {
  uint64_t bytes;
  if (count <= 0) return 0;
  return __builtin_mul_overflow(static_cast<uint64_t>(count), map.size, &bytes) || bytes > INT64_MAX ? INT64_MAX
                                                                                                     : bytes;
}

namespace {

template <class Room>
[[gnu::always_inline]] inline uint64_t digest_pieces(const TypeMap& map, const void* buffer, int64_t count,
                                                     uint64_t wanted) {
  DigestSink<Room> sink;
  walk(sink, map, buffer, count, 0, wanted);
  return sink.finish();
}

[[gnu::noinline]] uint64_t digest_long(const TypeMap& map, const void* buffer, int64_t count, uint64_t wanted) {
  return digest_pieces<Work<WorkLeaf>>(map, buffer, count, wanted);
}

}  // namespace

uint64_t type_digest(const TypeMap& map, const void* buffer, int64_t count, uint64_t bytes) {
  const uint64_t total = type_bytes(map, count);
  const uint64_t wanted = bytes < total ? bytes : total;
  if (map.padded) return digest_padded(map, buffer, count, wanted);
  // One piece of memory: contiguous, or a single element without a hole.
  if (map.contiguous ||
      (map.run_count == 1 && map.runs[0].count == 1 && (wanted <= map.size || map.runs[0].bytes == map.extent)))
    return digest(at(reinterpret_cast<uint64_t>(buffer) + static_cast<uint64_t>(map.low)), wanted);
  return wanted <= sizeof(ShortLeaf) ? digest_pieces<ShortLeaf>(map, buffer, count, wanted)
                                     : digest_long(map, buffer, count, wanted);
}

uint64_t type_pack(const TypeMap& map, const void* buffer, int64_t count, uint64_t first, uint64_t bytes, void* to) {
  PackSink sink{static_cast<char*>(to)};
  return walk(sink, map, buffer, count, first, bytes);
}

uint64_t type_unpack(const TypeMap& map, void* buffer, int64_t count, uint64_t first, uint64_t bytes,
                     const void* from) {
  UnpackSink sink{static_cast<const char*>(from)};
  return walk(sink, map, buffer, count, first, bytes);
}

void type_walk(const TypeMap& map, const void* buffer, int64_t count, uint64_t first, uint64_t bytes,
               bool (*each)(void* argument, const Pieces& pieces), void* argument) {
  CallSink sink{each, argument, true};
  walk(sink, map, buffer, count, first, bytes);
}

void type_span(const TypeMap& map, int64_t count, int64_t* low, int64_t* high) {
  *low = *high = 0;
  if (count <= 0 || map.size == 0) return;
  const int64_t last = (count - 1) * map.extent;
  *low = map.low + (last < 0 ? last : 0);
  *high = map.high + (last > 0 ? last : 0);
}

}  // namespace resil
