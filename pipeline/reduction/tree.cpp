// SPDX-License-Identifier: Apache-2.0
//
// See tree.h. What is folded half-way lies in the caller's scratch memory: a block for each level of the tree.
#include "pipeline/reduction/tree.h"

#include "pipeline/reduction/fold.h"

#include <bit>
#include <cstring>

namespace resil::reduction {

namespace {

constexpr size_t kMostBlock = 4 << 10;
constexpr unsigned kMostLeaves = 8;

/// Units in a block when `levels` blocks share the scratch memory.
size_t block_units(const Kernel& kernel, unsigned levels) {
  const size_t room = kFoldScratch / levels / 64 * 64;
  return (room < kMostBlock ? room : kMostBlock) / kernel.unit;
}

struct Walk {
  const Kernel& kernel;
  const char* const* contributions;
  size_t offset;  ///< of the block, in bytes
  size_t units;  ///< in the block
  size_t block;  ///< bytes of scratch memory for a level

  bool one_step(size_t count, bool before) const {
    if (kernel.wide) return count <= 4 || count == kMostLeaves;
    return count == 1 || (count == 2 && !before);
  }
  void step(char* to, const char* before, size_t first, size_t count) const {
    const char* leaves[kMostLeaves];
    for (size_t i = 0; i < count; ++i) leaves[i] = contributions[first + i] + offset;
    kernel.step(to, before, leaves, static_cast<unsigned>(count), units);
  }
  /// to = T(first, first + count). `to` is written only when all but the last leaves of the walk have been read and
  /// these are read with it, so that it may be a contribution.
  void evaluate(size_t first, size_t count, char* to, char* scratch) const {
    if (one_step(count, false)) return step(to, nullptr, first, count);
    const size_t half = std::bit_floor(count - 1), rest = count - half;
    evaluate(first, half, scratch, scratch + block);
    if (one_step(rest, true)) return step(to, scratch, first + half, rest);
    evaluate(first + half, rest, to, scratch + block);
    const char* leaf = to;
    kernel.step(to, scratch, &leaf, 1, units);
  }
};

}  // namespace

void fold_tree(const Kernel& kernel, const char* const* contributions, size_t ranks, char* result, size_t units,
               char* scratch) {
  Walk walk{kernel, contributions, 0, units, 0};
  if (walk.one_step(ranks, false)) return walk.step(result, nullptr, 0, ranks);
  // A level for each halving above the nodes that are one step.
  const unsigned levels = static_cast<unsigned>(std::bit_width(ranks));
  const size_t most = block_units(kernel, levels);
  walk.block = most * kernel.unit;
  for (size_t done = 0; done < units; done += most) {
    walk.offset = done * kernel.unit;
    walk.units = units - done < most ? units - done : most;
    walk.evaluate(0, ranks, result + walk.offset, scratch);
  }
}

void fold_tree_prefixes(const Kernel& kernel, const char* const* contributions, size_t ranks, char* const* results,
                        size_t units, char* scratch) {
  // Perfect subtrees over consecutive ranks, the largest first, as the bits of r + 1 say: level k's block holds that of
  // 2^k leaves. T(0, r + 1) joins them from the smallest.
  const unsigned levels = static_cast<unsigned>(std::bit_width(ranks)) + 1;
  const size_t most = block_units(kernel, levels), block = most * kernel.unit;
  char* const joined = scratch + (levels - 1) * block;
  for (size_t done = 0; done < units; done += most) {
    const size_t offset = done * kernel.unit, now = units - done < most ? units - done : most;
    for (size_t r = 0; r < ranks; ++r) {
      const char* leaf = contributions[r] + offset;
      // The new leaf is joined with the subtrees that r's low bits stand for, and becomes that of the next level.
      const unsigned level = static_cast<unsigned>(std::countr_one(r));
      char* const subtree = scratch + level * block;
      if (level == 0) {
        kernel.step(subtree, nullptr, &leaf, 1, now);
      } else {
        const char* pair[] = {scratch, leaf};
        kernel.step(subtree, nullptr, pair, 2, now);
        const char* last = subtree;
        for (unsigned k = 1; k < level; ++k) kernel.step(subtree, scratch + k * block, &last, 1, now);
      }
      char* const result = results[r] + offset;
      size_t rest = (r + 1) & r;
      if (rest == 0) {
        const char* value = subtree;
        kernel.step(result, nullptr, &value, 1, now);
      }
      for (const char* value = subtree; rest != 0;) {
        const char* larger = scratch + static_cast<unsigned>(std::countr_zero(rest)) * block;
        rest &= rest - 1;
        char* const to = rest == 0 ? result : joined;
        kernel.step(to, larger, &value, 1, now);
        value = to;
      }
    }
  }
}

}  // namespace resil::reduction
