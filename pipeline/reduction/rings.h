// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a node show each other contributions: each rank has a ring of cells in its own memory, writes one
// after the other, and the others read them there. A cell says itself which number it holds, so that a small
// contribution costs one cache line between two cores. Numbers go up by one with each step that the communicator's
// ranks take together, in all their rings at once: so all know which cell to look at. How far a rank has read stands in
// its own memory, too; whoever wants to write a cell again looks there, seldom.
//
// No MPI, no system call, no wait: each function says whether it can go on. One thread a ring at a time. The orderings:
// docs/MEMORY-ORDER.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::reduction {

/// The first bytes of a cell; the contribution follows.
struct CellHead {
  uint64_t number;  ///< which step's contribution lies here: stored last
  uint64_t what;  ///< kind and length of the step, to be compared
};

/// Where a ring lies in a rank's memory, the same in all ranks'.
struct RingShape {
  size_t control;  ///< of one uint64_t: the first number that its rank has not read in all rings of this shape
  size_t cells;  ///< of the first cell
  size_t stride, data;  ///< from cell to cell; from a cell's beginning to the contribution
  uint32_t count;
  size_t most;  ///< bytes of a contribution
  size_t folds;  ///< of the first cell for folds of groups, of which there are as many; 0: none
};

/// One rank's view of all ranks' rings of one shape.
class Rings {
 public:
  /// `bases[r]`: rank r's memory. `first`: a number above all that were ever used in any of these rings.
  void open(const RingShape& shape, char* const* bases, int size, int rank, uint64_t first) {
    shape_ = &shape;
    bases_ = bases;
    size_ = size;
    rank_ = rank;
    next_ = first;
    all_read_ = first;
  }
  uint64_t next() const { return next_; }
  const RingShape& shape() const { return *shape_; }

  /// May this rank write its next cell? Else `behind` is a rank that has still to read what is there.
  bool writable(int* behind) {
    if (next_ < all_read_ + shape_->count) [[likely]]
      return true;
    uint64_t least = next_;
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      // A ring that has just changed hands still shows what its rank read for another communicator: less than `first`.
      const uint64_t read = __atomic_load_n(control(r), __ATOMIC_ACQUIRE);
      if (read >= least) continue;
      least = read;
      *behind = r;
    }
    if (least > all_read_) all_read_ = least;
    return next_ < all_read_ + shape_->count;
  }
  /// Where this rank's contribution goes; other ranks see it from show() on.
  char* own() const { return cell(rank_, next_) + shape_->data; }
  void show(uint64_t what) {
    auto* head = reinterpret_cast<CellHead*>(cell(rank_, next_));
    head->what = what;
    __atomic_store_n(&head->number, next_, __ATOMIC_RELEASE);
  }

  /// Has that rank shown its contribution to this step? It may be read until finish().
  bool shown(int rank) const {
    return __atomic_load_n(&reinterpret_cast<CellHead*>(cell(rank, next_))->number, __ATOMIC_ACQUIRE) == next_;
  }
  const char* data(int rank) const { return cell(rank, next_) + shape_->data; }
  uint64_t what(int rank) const { return reinterpret_cast<const CellHead*>(cell(rank, next_))->what; }

  /// The same with the fold of a group of ranks (groups.h) that its rank shows beside its contribution, or does not. It
  /// may be written whenever the contribution may.
  char* own_fold() const { return fold_cell(rank_, next_) + shape_->data; }
  void show_fold(uint64_t what) {
    auto* head = reinterpret_cast<CellHead*>(fold_cell(rank_, next_));
    head->what = what;
    __atomic_store_n(&head->number, next_, __ATOMIC_RELEASE);
  }
  bool fold_shown(int rank) const {
    return __atomic_load_n(&reinterpret_cast<CellHead*>(fold_cell(rank, next_))->number, __ATOMIC_ACQUIRE) == next_;
  }
  const char* fold(int rank) const { return fold_cell(rank, next_) + shape_->data; }
  uint64_t fold_what(int rank) const { return reinterpret_cast<const CellHead*>(fold_cell(rank, next_))->what; }
  void prefetch_fold(int rank) const { __builtin_prefetch(fold_cell(rank, next_ + 2)); }

  /// Brings that rank's contribution to the next but one step here, where it is ahead.
  void prefetch(int rank) const { __builtin_prefetch(cell(rank, next_ + 2)); }

  /// This rank has read what it needs of this step. `all`: it has seen everybody's contribution, so that all have read
  /// the step before; the fold of a group vouches for its ranks. The others are told now and then: a writer that waits
  /// needs a cell, not the last one.
  void finish(bool all) {
    if (all && next_ > all_read_) all_read_ = next_;
    ++next_;
    if ((next_ & (told_every() - 1)) == 0) tell();
  }
  /// How far this rank has read, exactly: when there are no more steps.
  void tell() { __atomic_store_n(control(rank_), next_, __ATOMIC_RELEASE); }
  /// Nobody will read this rank's cells any more: every rank has finished all steps, and has told so.
  bool is_quiet() const {
    for (int r = 0; r < size_; ++r)
      if (__atomic_load_n(control(r), __ATOMIC_ACQUIRE) < next_) return false;
    return true;
  }

 private:
  /// A quarter of the ring at most, so that a writer never waits for what has been read and not told.
  uint32_t told_every() const { return shape_->count < 4 ? 1 : shape_->count / 4; }
  uint64_t* control(int rank) const { return reinterpret_cast<uint64_t*>(bases_[rank] + shape_->control); }
  char* cell(int rank, uint64_t number) const {
    return bases_[rank] + shape_->cells + (number & (shape_->count - 1)) * shape_->stride;
  }
  char* fold_cell(int rank, uint64_t number) const {
    return bases_[rank] + shape_->folds + (number & (shape_->count - 1)) * shape_->stride;
  }

  const RingShape* shape_;
  char* const* bases_;
  int32_t size_, rank_;
  uint64_t next_, all_read_;
};

}  // namespace resil::reduction
