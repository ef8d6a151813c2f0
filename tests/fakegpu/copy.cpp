// SPDX-License-Identifier: Apache-2.0
//
// Copies and fills: which engine carries them, whether they may be asynchronous, and their faults.

#include <cstring>
#include <memory>
#include <vector>

#include "tests/fakegpu/engine.h"

namespace fakegpu {

namespace {

size_t span(size_t pitch, size_t width, size_t rows) { return rows == 0 ? 0 : pitch * (rows - 1) + width; }

/// One end of a copy.
struct End {
  Kind kind;
  Device* device;
  bool good;
  unsigned on_node = 0;  ///< number of the device where the memory lies
  bool foreign = false;  ///< another process's
};

/// Are these bytes within the allocation, or in pieces that are mapped side by side?
bool within(const Allocation* it, uintptr_t at, size_t bytes) {
  for (;;) {
    const size_t rest = it->bytes - (at - it->base);
    if (bytes <= rest) return true;
    if (it->mapped == nullptr) return false;
    at += rest;
    bytes -= rest;
    it = find(at);
    if (it == nullptr || it->mapped == nullptr) return false;
  }
}

/// Device memory must be live, and of one allocation; about ordinary memory nobody knows.
End end_of(uintptr_t at, size_t bytes) {
  const Allocation* it = find(at);
  if (it == nullptr) return {Kind::kHost, nullptr, at != 0 && !device_range(at)};
  if (bytes > it->bytes - (at - it->base) && it->kind == Kind::kRegistered) return {Kind::kHost, nullptr, true};
  return {it->kind, it->device, within(it, at, bytes), number_on_node(*it), it->opened != nullptr};
}

bool on_device(Kind kind) { return kind == Kind::kDevice || kind == Kind::kManaged; }

void copy_rows(const Copy& what) {
  char* to = view(what.to);
  const char* from = view(what.from);
  for (size_t row = 0; row < what.rows; ++row)
    memmove(to + row * what.to_pitch, from + row * what.from_pitch, what.width);
}

std::vector<char> taken_rows(const Copy& what) {
  std::vector<char> data;
  for (size_t row = 0; row < what.rows; ++row) {
    const char* from = view(what.from) + row * what.from_pitch;
    data.insert(data.end(), from, from + what.width);
  }
  return data;
}

/// The data of the last copy in each direction, for alias faults.
std::vector<char>& last_data(bool down) {
  static auto* const data = new std::vector<char>[2];
  return data[down];
}

constexpr size_t kKept = size_t{16} << 20;

void spoil(const Copy& what, bool down, bool corrupt, bool alias) {
  const size_t bytes = what.width * what.rows;
  std::vector<char> data;
  if (has_fault(down ? Fault::kAliasDown : Fault::kAliasUp))
    for (size_t row = 0; row < what.rows && data.size() < kKept; ++row) {
      const char* from = view(what.from) + row * what.from_pitch;
      data.insert(data.end(), from, from + what.width);
    }
  char* to = view(what.to);
  if (corrupt && bytes > 0) {
    const size_t at = bytes / 3;
    to[at / what.width * what.to_pitch + at % what.width] ^= 0x10;
    made_fault(down ? Fault::kCorruptDown : Fault::kCorruptUp, bytes);
  }
  std::vector<char>& last = last_data(down);
  if (alias && !last.empty() && bytes > 0) {
    bool differs = false;
    for (size_t i = 0; i < bytes && i < last.size(); ++i) {
      char& place = to[i / what.width * what.to_pitch + i % what.width];
      differs = differs || place != last[i];
      place = last[i];
    }
    if (differs) made_fault(down ? Fault::kAliasDown : Fault::kAliasUp, bytes);
  }
  if (!data.empty()) last.swap(data);
}

Copied finish(Stream& stream, bool wait_for_end) {
  if (!wait_for_end) return Copied::kDone;
  return wait(*stream.context,
              [&stream, last = stream.last] {
                return stream.operations.empty() || stream.operations.front().sequence > last;
              })
             ? Copied::kDone
             : Copied::kGone;
}

}  // namespace

bool synchronous(const Context& context, uintptr_t address) {
  constexpr unsigned kSyncMemops = 0x80;  // CU_CTX_SYNC_MEMOPS
  const Allocation* it = find(address);
  return (context.flags & kSyncMemops) != 0 ||
         (it != nullptr && (it->kind == Kind::kManaged || (it->synchronous && !it->pool)));
}

bool wait_plain(const Context& context) {
  uint64_t last;
  {
    const Locked hold;
    last = context.last_plain;
  }
  return wait(context,
              [&] { return context.legacy.operations.empty() || context.legacy.operations.front().sequence > last; });
}

Copied copy(Stream& stream, const Copy& what, bool wait_for_end) {
  const size_t bytes = what.width * what.rows;
  if (bytes == 0) return Copied::kDone;
  {
    const Locked hold;
    const End to = end_of(what.to, span(what.to_pitch, what.width, what.rows));
    const End from = end_of(what.from, span(what.from_pitch, what.width, what.rows));
    if (!to.good || !from.good) return Copied::kBadAddress;
    const Settings& set = settings();
    if (!on_device(to.kind) && !on_device(from.kind)) {
      enqueue(stream, nullptr, bytes, set.digest, [what](Time) { copy_rows(what); });
      wait_for_end = wait_for_end || to.kind == Kind::kHost || from.kind == Kind::kHost;
    } else if (!on_device(to.kind) || !on_device(from.kind)) {
      const bool down = on_device(from.kind);
      count(down ? Count::kDown : Count::kUp);
      const bool corrupt = due_fault(down ? Fault::kCorruptDown : Fault::kCorruptUp, bytes);
      const bool alias = due_fault(down ? Fault::kAliasDown : Fault::kAliasUp, bytes);
      Device& owner = down ? *from.device : *to.device;
      const bool pageable = (down ? to.kind : from.kind) == Kind::kHost;
      if (pageable) count(Count::kPageable);
      if (pageable && !down && what.ends_early) {
        // The data has been taken when the call returns. A call without a stream that may be relied on waits all the
        // same.
        auto taken = std::make_shared<std::vector<char>>(taken_rows(what));
        enqueue(stream, &owner.up, bytes, set.up, [=](Time) {
          Copy it = what;
          it.from = reinterpret_cast<uintptr_t>(taken->data());
          it.from_pitch = what.width;
          copy_rows(it);
          spoil(it, down, corrupt, alias);
        });
        wait_for_end = wait_for_end && synchronous(*stream.context, what.to);
      } else {
        enqueue(stream, down ? &owner.down : &owner.up, bytes, down ? set.down : set.up, [=](Time) {
          copy_rows(what);
          spoil(what, down, corrupt, alias);
        });
        wait_for_end = wait_for_end || pageable;
      }
    } else {
      const bool peer = to.on_node != from.on_node || to.foreign || from.foreign;
      count(peer ? Count::kPeer : Count::kInside);
      enqueue(stream, peer ? &to.device->peer : nullptr, bytes, peer ? set.peer : set.digest / 2,
              [what](Time) { copy_rows(what); });
    }
  }
  return finish(stream, wait_for_end);
}

Copied fill(Stream& stream, uintptr_t to, size_t pitch, size_t width, size_t rows, unsigned value, unsigned value_bytes,
            bool wait_for_end) {
  if (width * rows == 0) return Copied::kDone;
  {
    const Locked hold;
    const End end = end_of(to, span(pitch, width, rows));
    if (!end.good || end.kind == Kind::kHost) return Copied::kBadAddress;
    enqueue(stream, nullptr, width * rows, settings().digest, [=](Time) {
      char* start = view(to);
      for (size_t row = 0; row < rows; ++row)
        for (size_t i = 0; i < width; i += value_bytes) memcpy(start + row * pitch + i, &value, value_bytes);
    });
  }
  return finish(stream, wait_for_end);
}

}  // namespace fakegpu
