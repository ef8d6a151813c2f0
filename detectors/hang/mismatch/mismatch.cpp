// SPDX-License-Identifier: Apache-2.0
//
// Memory, merging, and the root's history.

#include "detectors/hang/mismatch/mismatch.h"

#include <cstring>
#include <initializer_list>

#include "detectors/hang/mismatch/state.h"
#include "shim/runtime/memory.h"

namespace resil::hang {

namespace {

struct Layout {
  uint64_t told, entries, hashes, scratch, history[2], tree, verdicts, bytes;
};

Layout layout_of(uint32_t world) {
  uint64_t used = 0;
  auto take = [&](uint64_t bytes) {
    const uint64_t at = used;
    used += (bytes + 4095) & ~uint64_t{4095};
    return at;
  };
  Layout layout;
  take(sizeof(Mismatch));
  const uint64_t ranks = world < kMaxWatched ? world : kMaxWatched;
  layout.told = take(ranks * kHistories * sizeof(Told));
  layout.entries = take(ranks * kHistories * sizeof(Entry));
  layout.hashes = take(ring::kRecordsPerTrace * sizeof(uint64_t));
  layout.scratch = take(kHistoryBytes);
  layout.history[0] = take(kHistoryBytes);
  layout.history[1] = take(kHistoryBytes);
  layout.tree = take(tree_bytes(world));
  layout.verdicts = take(kQueue * sizeof(Verdict));
  layout.bytes = used;
  return layout;
}

/// Walks two frames side by side: `one` or `other` is null where a communicator is in one of them only.
template <class Take>
void join(FrameReader& a, FrameReader& b, Take take) {
  while (a.block != nullptr || b.block != nullptr) {
    const Block* one = a.block != nullptr && (b.block == nullptr || a.block->comm <= b.block->comm) ? a.block : nullptr;
    const Block* other =
        b.block != nullptr && (a.block == nullptr || b.block->comm <= a.block->comm) ? b.block : nullptr;
    take(one, other);
    if (one != nullptr) frame_next(a);
    if (other != nullptr) frame_next(b);
  }
}

/// Both blocks in one tree.
void load_both(Tree& tree, const Block* one, const Block* other) {
  const Block* any = one != nullptr ? one : other;
  const uint32_t members =
      one != nullptr && other != nullptr && other->members > one->members ? other->members : any->members;
  tree_reset(tree, any->comm, members);
  for (const Block* block : {one, other})
    if (block != nullptr) block_load(tree, *block);
}

/// Frames come from buffers of any kind.
const void* aligned(const void* frame, uint32_t bytes, char* room) {
  if (reinterpret_cast<uintptr_t>(frame) % alignof(Block) == 0) return frame;
  memcpy(room, frame, bytes);
  return room;
}

uint32_t round_of(const void* frame, uint32_t bytes) {
  return bytes != 0 ? static_cast<const FrameHeader*>(frame)->round : 0;
}

}  // namespace

Mismatch* mismatch_create(uint32_t world) {
  const Layout layout = layout_of(world);
  auto* base = memory::map_array<char>(layout.bytes);
  if (base == nullptr) return nullptr;
  auto* mismatch = reinterpret_cast<Mismatch*>(base);
  mismatch->world = world;
  mismatch->bytes = layout.bytes;
  mismatch->told = reinterpret_cast<Told*>(base + layout.told);
  mismatch->entries = reinterpret_cast<Entry*>(base + layout.entries);
  mismatch->hashes = reinterpret_cast<uint64_t*>(base + layout.hashes);
  mismatch->scratch = base + layout.scratch;
  mismatch->history[0] = base + layout.history[0];
  mismatch->history[1] = base + layout.history[1];
  mismatch->tree = reinterpret_cast<Tree*>(base + layout.tree);
  mismatch->verdicts = reinterpret_cast<Verdict*>(base + layout.verdicts);
  tree_create(*mismatch->tree, world);
  return mismatch;
}

void mismatch_destroy(Mismatch* mismatch) {
  if (mismatch != nullptr) memory::unmap(mismatch, mismatch->bytes);
}

void mismatch_close(Mismatch& mismatch) { mismatch.closing = true; }

void publish_coverage(Mismatch& mismatch) {
  // Each number stands for itself; a reader in the middle of this has some of the last round and some of this one.
  const auto put = [](uint32_t& to, uint32_t value) { __atomic_store_n(&to, value, __ATOMIC_RELAXED); };
  put(mismatch.published.communicators, mismatch.coverage.communicators);
  put(mismatch.published.deferred, mismatch.coverage.deferred);
  put(mismatch.published.marked, mismatch.coverage.marked);
  put(mismatch.published.unreadable, mismatch.coverage.unreadable);
  put(mismatch.published.broken, mismatch.coverage.broken);
}

MismatchCoverage mismatch_coverage(const Mismatch& mismatch) {
  const auto get = [](const uint32_t& from) { return __atomic_load_n(&from, __ATOMIC_RELAXED); };
  const MismatchCoverage& from = mismatch.published;
  return {get(from.communicators), get(from.deferred), get(from.marked), get(from.unreadable), get(from.broken)};
}

bool mismatch_merge(Mismatch& mismatch, void* into, uint32_t* bytes, uint32_t room, const void* from,
                    uint32_t from_bytes) {
  if (*bytes > kHistoryBytes / 2 || from_bytes > kHistoryBytes / 2 || room < sizeof(FrameHeader)) return false;
  from = aligned(from, from_bytes, mismatch.scratch + kHistoryBytes / 2);
  if (frame_world(from, from_bytes) != mismatch.world) return false;
  memcpy(mismatch.scratch, into, *bytes);
  const uint32_t before = frame_world(mismatch.scratch, *bytes) == mismatch.world ? *bytes : 0;
  FrameReader ours, theirs;
  frame_read(ours, mismatch.scratch, before, mismatch.world);
  frame_read(theirs, from, from_bytes, mismatch.world);
  const uint32_t our_round = round_of(mismatch.scratch, before), their_round = round_of(from, from_bytes);
  FrameWriter writer;
  frame_begin(writer, into, room);
  join(ours, theirs, [&](const Block* one, const Block* other) {
    const Block* any = one != nullptr ? one : other;
    if ((one == nullptr || other == nullptr) && frame_append(writer, *any)) return;
    load_both(*mismatch.tree, one, other);
    frame_tree(writer, *mismatch.tree);  // else left out: it is told again in a later round
  });
  *bytes = frame_end(writer, our_round > their_round ? our_round : their_round, mismatch.world);
  return true;
}

bool mismatch_judge(Mismatch& mismatch, const void* merged, uint32_t bytes, Verdict* verdict) {
  if (bytes > kHistoryBytes) bytes = 0;
  merged = aligned(merged, bytes, mismatch.scratch);
  if (bytes != 0 || mismatch.next == mismatch.queued) {
    if (mismatch.next == mismatch.queued) mismatch.next = mismatch.queued = 0;
    ++mismatch.judged;
    FrameReader known, news;
    frame_read(known, mismatch.history[mismatch.in_use], mismatch.history_bytes, mismatch.world);
    frame_read(news, merged, bytes, mismatch.world);
    FrameWriter writer;
    frame_begin(writer, mismatch.history[1 - mismatch.in_use], kHistoryBytes);
    Tree& tree = *mismatch.tree;
    join(known, news, [&](const Block* one, const Block* other) {
      Block memory = one != nullptr ? *one : Block{};
      if (other != nullptr) memory.touched = mismatch.judged;
      else if (mismatch.judged - memory.touched > kForgetRounds) return;
      if (other == nullptr && memory.waited == 0) {
        frame_append(writer, *one);
        return;
      }
      load_both(tree, one, other);
      judge_types(mismatch, tree, memory);  // before what all have behind them is forgotten
      tree_prune(tree);
      if (tree.flags & kTreeBroken) {
        mismatch.coverage.broken += one == nullptr || (one->flags & kTreeBroken) == 0;
        memory.waited = 0;
      } else {
        judge_tree(mismatch, tree, memory);
      }
      char* place = frame_place(writer);
      const uint32_t used = block_store(tree, kRootClaims, place, frame_room(writer));
      if (used == 0) return;
      auto* block = reinterpret_cast<Block*>(place);
      block->touched = memory.touched;
      block->waited = memory.waited;
      block->said[0] = memory.said[0];
      block->said[1] = memory.said[1];
      block->said_types = memory.said_types;
      frame_took(writer, used);
    });
    mismatch.in_use = 1 - mismatch.in_use;
    mismatch.history_bytes = frame_end(writer, mismatch.judged, mismatch.world);
    publish_coverage(mismatch);
  }
  if (mismatch.next == mismatch.queued) return false;
  *verdict = mismatch.verdicts[mismatch.next++];
  return true;
}

}  // namespace resil::hang
