// SPDX-License-Identifier: Apache-2.0
//
// A node's part: the histories of its ranks that have moved, one tree a communicator, into an answer.

#include <cstring>

#include "detectors/hang/mismatch/records.h"
#include "detectors/hang/mismatch/state.h"
#include "detectors/hang/slots/signature.h"
#include "shim/base/hash.h"
#include "shim/base/sort.h"
#include "shim/model/calls.h"

namespace resil::hang {

namespace {

uint64_t load(const uint64_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

bool less(const Entry& a, const Entry& b) {
  return a.comm != b.comm ? a.comm < b.comm : a.watched != b.watched ? a.watched < b.watched : a.history < b.history;
}

constexpr uint64_t kBefore = kMaxEarlier - 4;  ///< calls before the slowest rank's last one that are looked for

constexpr uint64_t kEnd =
    signature_pack({static_cast<uint16_t>(CallId::kMPI_Finalize), OpKind::kNone, kNoRoot, kBytesNotCompared});

/// Will this rank call nothing any more? Then MPI_Finalize takes the place of its next call on every communicator, as
/// it does on MPI_COMM_WORLD: who has called more there has called what this rank never will.
bool is_over(const Watched& rank) {
  if (rank.header == nullptr) return false;
  const auto phase = static_cast<ring::Phase>(__atomic_load_n(&rank.header->phase, __ATOMIC_ACQUIRE));
  const uint32_t irregular = __atomic_load_n(&rank.section->irregular, __ATOMIC_ACQUIRE);
  // A callback of an attribute of MPI_COMM_SELF runs inside MPI_Finalize and may still call anything.
  return (irregular & kUnknownOrder) == 0 &&
         (phase == ring::Phase::kFinished || (phase == ring::Phase::kFinalizing && (irregular & kSelfAttribute) == 0));
}

void end_path(HistoryRead& read) {
  const PathPoint& last = read.points[read.count - 1];
  if (last.n == read.sequence && last.signature != kEnd)
    read.points[read.count++] = {last.n + 1, roll(last.rolling, kEnd), kEnd, 0};
}

/// All histories in use that may be compared; by communicator.
uint32_t find_entries(Mismatch& mismatch, const Watched* watched, uint32_t count) {
  uint32_t found = 0;
  for (uint32_t w = 0; w < count; ++w) {
    if (watched[w].section == nullptr || watched[w].rank < 0 ||
        static_cast<uint32_t>(watched[w].rank) >= mismatch.world)
      continue;
    const bool over = is_over(watched[w]);
    const uint32_t end = __atomic_load_n(&watched[w].section->histories_end, __ATOMIC_ACQUIRE);
    for (uint32_t t = 0; t < (end != 0 && end < kHistories ? end : kHistories); ++t) {
      const CollectiveHistory& history = watched[w].section->histories[t];
      const uint64_t comm = load(history.comm), sequence = load(history.sequence), shape = load(history.shape);
      if (comm == 0 || sequence == 0 || (shape & kHistoryMembers) <= 1) continue;
      if (shape & kHistoryMarks) {
        ++mismatch.coverage.marked;
        continue;
      }
      const Told& told = mismatch.told[w * kHistories + t];
      const uint64_t state = 2 * sequence + over;
      mismatch.entries[found++] = {comm, w, static_cast<uint16_t>(t), over, told.comm != comm || told.state != state,
                                   0};
    }
  }
  heap_sort(mismatch.entries, found, less);
  return found;
}

/// The first number of calls after which two histories differ: both claims.
bool first_disagreement(const Tree& tree, uint16_t claims[2]) {
  for (uint32_t i = 1; i < tree.count; ++i) {
    claims[0] = tree.order[i - 1], claims[1] = tree.order[i];
    if (tree.claims[claims[0]].n == tree.claims[claims[1]].n) return true;
  }
  return false;
}

bool is_at_or_above(const Tree& tree, uint16_t claim, uint16_t lower) {
  while (claim != kNoClaim && claim != lower) claim = tree.claims[claim].parent;
  return claim != kNoClaim;
}

/// Calls that both histories are known to have in common.
uint64_t agreed_below(const Tree& tree, uint16_t one, uint16_t other) {
  for (uint16_t claim = tree.claims[one].parent; claim != kNoClaim; claim = tree.claims[claim].parent)
    if (is_at_or_above(tree, other, claim)) return tree.claims[claim].n;
  return 0;
}

/// Where ranks of this node have both gone on past the call in which they part, their histories know no more than check
/// points around it: the call itself, and those after it, out of their flight records.
void name_difference(Mismatch& mismatch, const Watched* watched, const Entry* entries, uint32_t count) {
  Tree& tree = *mismatch.tree;
  tree_make_room(tree, 2 * kMaxEarlier);
  tree_sort(tree);
  uint16_t claims[2];
  if (!first_disagreement(tree, claims)) return;
  const uint64_t before = tree.claims[claims[0]].n, after = agreed_below(tree, claims[0], claims[1]);
  const bool named = tree.claims[claims[0]].signature != 0 && tree.claims[claims[1]].signature != 0;
  if (before == after + 1 && named) return;
  HistoryRead reads[2];
  Side sides[2] = {};
  for (uint32_t i = 0; i < count; ++i) {
    const Watched& rank = watched[entries[i].watched];
    if (rank.rank < 0 || static_cast<uint32_t>(rank.rank) >= tree.world) continue;
    const uint16_t at = tree.position[rank.rank];
    for (uint32_t k = 0; k < 2; ++k)
      if (sides[k].rank == nullptr && entries[i].state != 0 && is_at_or_above(tree, at, claims[k]) &&
          read_history(rank.section->histories[entries[i].history], &reads[k]) == ReadResult::kRead &&
          reads[k].comm == tree.comm)
        sides[k] = {&rank, entries[i].history, &reads[k]};
  }
  if (sides[0].rank == nullptr || sides[1].rank == nullptr) return;
  const uint64_t first = first_difference(sides[0], sides[1], after, before, mismatch.hashes);
  if (first == 0) return;
  for (const Side& side : sides) add_earlier(tree, *side.rank, side.index, *side.read, first);
}

/// The tree of one communicator's entries. False: nothing could be read.
bool grow(Mismatch& mismatch, const Watched* watched, Entry* entries, uint32_t count) {
  Tree& tree = *mismatch.tree;
  tree_reset(tree, entries[0].comm, 0);
  uint64_t least = ~uint64_t{0};  // calls of the rank that has made the fewest: what did the others call then?
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t calls = load(watched[entries[i].watched].section->histories[entries[i].history].sequence);
    if (calls < least) least = calls;
  }
  const uint64_t from = least > kBefore ? least - kBefore : 1;
  for (uint32_t i = 0; i < count; ++i) {
    const Watched& rank = watched[entries[i].watched];
    const CollectiveHistory& history = rank.section->histories[entries[i].history];
    HistoryRead read;
    const ReadResult result = read_history(history, &read);
    if (result == ReadResult::kBroken) tree.flags |= kTreeBroken;
    if (result != ReadResult::kRead || read.comm != tree.comm || (read.shape & kHistoryMarks) != 0) {
      mismatch.coverage.unreadable += result == ReadResult::kMoving;
      continue;
    }
    entries[i].state = 2 * read.sequence + entries[i].over;
    if (entries[i].over) end_path(read);
    tree.members = static_cast<uint32_t>(read.shape & kHistoryMembers);
    tree_make_room(tree, kMaxPath + kMaxEarlier);
    const uint32_t before = tree.count;
    tree_add(tree, rank.rank, read);
    add_earlier(tree, rank, entries[i].history, read, from);
    if (tree.count != before)  // it had something to say that nobody had said
      add_sites(tree, rank, entries[i].history, read);
  }
  if ((tree.flags & kTreeBroken) == 0) name_difference(mismatch, watched, entries, count);
  return tree.count != 0;
}

}  // namespace

uint32_t mismatch_collect(Mismatch& mismatch, const Watched* watched, uint32_t count, void* room, uint32_t room_bytes) {
  mismatch.coverage = {0, 0, 0, 0, mismatch.coverage.broken};
  ++mismatch.round;
  if (count > kMaxWatched) count = kMaxWatched;
  const uint32_t found = find_entries(mismatch, watched, count);
  // Blocks must stand in order, and what found no room last time must come first: two passes, from the cursor to the
  // end and from the beginning to the cursor, give two ascending runs; the second one is put in front.
  uint32_t split = 0;
  while (split < found && mismatch.entries[split].comm < mismatch.cursor) ++split;
  if (room_bytes < sizeof(FrameHeader)) {
    publish_coverage(mismatch);
    return 0;
  }
  if (room_bytes > kHistoryBytes) room_bytes = kHistoryBytes;
  FrameWriter late, early;
  frame_begin(late, mismatch.scratch, room_bytes);
  frame_begin(early, room, room_bytes);
  uint64_t left_out = 0;
  auto take = [&](FrameWriter& writer, uint32_t from, uint32_t to) {
    for (uint32_t i = from, end; i < to; i = end) {
      bool changed = false;
      for (end = i; end < to && mismatch.entries[end].comm == mismatch.entries[i].comm; ++end)
        changed = changed || mismatch.entries[end].changed;
      ++mismatch.coverage.communicators;
      const uint64_t comm = mismatch.entries[i].comm;
      if (!changed && (mix64(comm) + mismatch.round) % kRefreshRounds != 0) continue;
      if (left_out != 0) {
        ++mismatch.coverage.deferred;
        continue;
      }
      if (!grow(mismatch, watched, mismatch.entries + i, end - i)) continue;
      Tree& tree = *mismatch.tree;
      bool tell = end - i < tree.members || (tree.flags & kTreeBroken) != 0;
      if (!tell) {
        tree_sort(tree);
        tell = tree_disagrees(tree) || tree_types_differ(tree) != kNoClaim;
      }
      if (tell) {
        if (!frame_tree(writer, tree)) {
          ++mismatch.coverage.deferred;
          if (early.blocks + late.blocks != 0)  // else it is too large for any frame: the others shall not wait for it
            left_out = comm;
          continue;
        }
      }
      for (uint32_t k = i; k < end; ++k)
        mismatch.told[mismatch.entries[k].watched * kHistories + mismatch.entries[k].history] = {
            comm, mismatch.entries[k].state};
    }
  };
  take(late, split, found);
  const uint32_t late_bytes = late.used - static_cast<uint32_t>(sizeof(FrameHeader));
  early.room -= late_bytes;
  take(early, 0, split);
  mismatch.cursor = left_out;
  if (late.blocks != 0) {
    memcpy(frame_place(early), late.frame + sizeof(FrameHeader), late_bytes);
    early.room = room_bytes;
    early.used += late_bytes;
    early.blocks += late.blocks;
  }
  publish_coverage(mismatch);
  return frame_end(early, mismatch.round, mismatch.world);
}

}  // namespace resil::hang
