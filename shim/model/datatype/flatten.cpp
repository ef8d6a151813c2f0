// SPDX-License-Identifier: Apache-2.0
//
// See flatten.h. Each constructor as in the standard's chapter "Datatypes": displacements count in extents of the old
// type where they are integers, in bytes where they are addresses.

#include "shim/model/datatype/flatten.h"

#include "shim/runtime/block_pool.h"

namespace resil {

namespace {

/// x86: the 80-bit format in 16 bytes. Elsewhere a long double fills its bytes.
constexpr bool kPaddedLongDouble = __LDBL_MANT_DIG__ == 64 && sizeof(long double) == 16;

constexpr int kMaxDepth = 64;
/// Parts that are looked at, derived ones counted eightfold: nested twice each, 20 levels would be a million. 0.1 s.
constexpr int64_t kMaxWork = 1 << 20, kDerivedWork = 8;

class Flattener {
 public:
  explicit Flattener(const TypeQueries& queries) : mpi_(queries) {}
  bool run(uint64_t type, Flattened& out, int depth);

 private:
  bool extent_of(uint64_t type, int64_t* extent) {
    int64_t lower_bound;
    return mpi_.extent(type, &lower_bound, extent);
  }
  bool named(uint64_t type, Flattened& out);
  bool derived(const TypeContents& c, Flattened& out, int depth);
  bool structure(const TypeContents& c, Flattened& out, int depth);
  bool blocks(const TypeContents& c, const Flattened& old, int64_t extent, RunList& out);
  bool subarray(const TypeContents& c, const Flattened& old, int64_t extent, RunList& out);
  bool darray(const TypeContents& c, const Flattened& old, int64_t extent, RunList& out);

  const TypeQueries& mpi_;
  int64_t work_ = 0;
};

void merge_basic(Flattened& out, const Flattened& part) {
  if (part.runs.count() == 0) return;
  if (!out.has_basic) out.basic = part.basic;
  else if (!(out.basic == part.basic)) out.basic = {};
  out.has_basic = true;
  out.padded = out.padded || part.padded;
}

void add_sequence(Flattened& out, const Flattened& part, uint64_t times) {
  out.sequence = join(out.sequence, repeat(part.sequence, times));
  out.start.add(part.start, times);
}

void add_basic(Flattened& out, BasicKind kind, unsigned width) {
  const uint16_t basic = basic_class(kind, width);
  TypeSequence one = sequence_of(basic);
  one.bytes = width;
  out.sequence = join(out.sequence, one);
  out.start.add(basic, 1);
}

uint64_t bytes_of(const RunList& list) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < list.count(); ++i)
    bytes += static_cast<uint64_t>(list.runs()[i].bytes) * static_cast<uint64_t>(list.runs()[i].count);
  return bytes;
}

bool Flattener::named(uint64_t type, Flattened& out) {
  const BasicType basic = mpi_.basic(type);
  int64_t size = 0, lower_bound = 0, extent = 0;
  if (!mpi_.size(type, &size) || !mpi_.extent(type, &lower_bound, &extent)) return false;
  out.predefined = true;
  if (size == 0) return true;  // MPI_LB and MPI_UB of old
  out.basic = basic;
  out.has_basic = true;
  auto long_double = [](BasicKind kind) {
    return kind == BasicKind::kLongDouble || kind == BasicKind::kLongDoubleComplex;
  };
  out.padded = kPaddedLongDouble && (long_double(basic.kind) || long_double(basic.value_kind));
  if (basic.kind == BasicKind::kPair) {
    const int64_t index = (basic.value_width + basic.index_width - 1) / basic.index_width * basic.index_width;
    out.runs.add({0, basic.value_width, 1, 0});
    out.runs.add({index, basic.index_width, 1, 0});
    add_basic(out, basic.value_kind, basic.value_width);
    add_basic(out, basic.twin ? basic.value_kind : BasicKind::kSigned, basic.index_width);
    return true;
  }
  out.runs.add({0, size, 1, 0});
  add_basic(out, basic.kind, static_cast<unsigned>(size));
  return size == extent && lower_bound == 0;  // else it has a hole that is not known here
}

bool Flattener::structure(const TypeContents& c, Flattened& out, int depth) {
  Flattened part;
  int64_t extent = 0;
  for (int64_t i = 0; i < c.type_count; ++i) {
    const int64_t length = c.integers[1 + i];
    if (length <= 0) continue;
    if (i == 0 || c.types[i] != c.types[i - 1] || c.integers[i] <= 0) {
      Flattened fresh;
      if (!run(c.types[i], fresh, depth + 1) || !extent_of(c.types[i], &extent)) return false;
      part.runs.swap(fresh.runs);
      part.basic = fresh.basic;
      part.has_basic = fresh.has_basic;
      part.padded = fresh.padded;
      part.sequence = fresh.sequence;
      part.start = fresh.start;
    }
    out.runs.add_copies(part.runs, length, extent, c.addresses[i]);
    merge_basic(out, part);
    add_sequence(out, part, static_cast<uint64_t>(length));
  }
  return true;
}

/// Blocks of elements of one type.
bool Flattener::blocks(const TypeContents& c, const Flattened& old, int64_t extent, RunList& out) {
  const int64_t n = c.integers[0];
  switch (c.combiner) {
    case Combiner::kContiguous: out.add_copies(old.runs, n, extent, 0); return true;
    case Combiner::kVector:
    case Combiner::kHvector: {
      RunList block;
      block.add_copies(old.runs, c.integers[1], extent, 0);
      out.add_copies(block, n, c.combiner == Combiner::kVector ? c.integers[2] * extent : c.addresses[0], 0);
      return !block.failed();
    }
    case Combiner::kIndexed:
      for (int64_t i = 0; i < n; ++i)
        out.add_copies(old.runs, c.integers[1 + i], extent, c.integers[1 + n + i] * extent);
      return true;
    case Combiner::kHindexed:
      for (int64_t i = 0; i < n; ++i) out.add_copies(old.runs, c.integers[1 + i], extent, c.addresses[i]);
      return true;
    case Combiner::kIndexedBlock:
      for (int64_t i = 0; i < n; ++i) out.add_copies(old.runs, c.integers[1], extent, c.integers[2 + i] * extent);
      return true;
    case Combiner::kHindexedBlock:
      for (int64_t i = 0; i < n; ++i) out.add_copies(old.runs, c.integers[1], extent, c.addresses[i]);
      return true;
    default: return false;
  }
}

/// Of an array dimension by dimension, the fastest first: `list` is what one step in the next dimension repeats.
bool Flattener::subarray(const TypeContents& c, const Flattened& old, int64_t extent, RunList& out) {
  const int64_t dims = c.integers[0];
  const int64_t *sizes = c.integers + 1, *subsizes = sizes + dims, *starts = subsizes + dims;
  const bool fortran = starts[dims] != 0;
  RunList list;
  list.add_copies(old.runs, 1, 0, 0);
  int64_t stride = extent;
  for (int64_t i = 0; i < dims; ++i) {
    const int64_t d = fortran ? i : dims - 1 - i;
    RunList next;
    next.add_copies(list, subsizes[d], stride, starts[d] * stride);
    if (next.failed()) return false;
    list.swap(next);
    stride *= sizes[d];
  }
  out.swap(list);
  return true;
}

bool Flattener::darray(const TypeContents& c, const Flattened& old, int64_t extent, RunList& out) {
  const int64_t rank = c.integers[1], dims = c.integers[2];
  const int64_t *sizes = c.integers + 3, *distributions = sizes + dims, *arguments = distributions + dims,
                *grid = arguments + dims;
  const bool fortran = grid[dims] != 0;
  RunList list;
  list.add_copies(old.runs, 1, 0, 0);
  int64_t stride = extent;
  for (int64_t i = 0; i < dims; ++i) {
    const int64_t d = fortran ? i : dims - 1 - i;
    int64_t faster = 1;  // the process grid is in C order whatever the array's order
    for (int64_t k = d + 1; k < dims; ++k) faster *= grid[k];
    if (faster <= 0 || grid[d] <= 0) return false;
    const int64_t coordinate = rank / faster % grid[d], size = sizes[d];
    int64_t block = size, first = 0, period = size;
    if (distributions[d] != kDistributeNone) {
      const bool cyclic = distributions[d] == kDistributeCyclic;
      block = arguments[d] >= 0 ? arguments[d] : cyclic ? 1 : (size + grid[d] - 1) / grid[d];
      if (block <= 0) return false;
      first = coordinate * block;
      period = cyclic ? block * grid[d] : size;
    }
    RunList next;
    for (; first < size && !next.failed(); first += period)
      next.add_copies(list, block < size - first ? block : size - first, stride, first * stride);
    if (next.failed()) return false;
    list.swap(next);
    stride *= size;
  }
  out.swap(list);
  return true;
}

bool Flattener::derived(const TypeContents& c, Flattened& out, int depth) {
  if (c.combiner == Combiner::kStruct) return structure(c, out, depth);
  if (c.combiner == Combiner::kDup || c.combiner == Combiner::kResized) {
    Flattened old;
    const bool ok = c.type_count == 1 && run(c.types[0], old, depth + 1);
    merge_basic(out, old);
    add_sequence(out, old, 1);
    out.runs.swap(old.runs);
    return ok;
  }
  Flattened old;
  int64_t extent = 0;
  if (c.type_count != 1 || !run(c.types[0], old, depth + 1) || !extent_of(c.types[0], &extent)) return false;
  const bool ok = c.combiner == Combiner::kSubarray ? subarray(c, old, extent, out.runs)
                  : c.combiner == Combiner::kDarray ? darray(c, old, extent, out.runs)
                                                    : blocks(c, old, extent, out.runs);
  if (out.runs.count() != 0) merge_basic(out, old);
  if (old.sequence.bytes != 0) add_sequence(out, old, bytes_of(out.runs) / old.sequence.bytes);
  return ok;
}

bool Flattener::run(uint64_t type, Flattened& out, int depth) {
  if (depth > kMaxDepth || ++work_ > kMaxWork) return false;
  TypeContents contents;
  Decoded decoded = mpi_.decode(type, nullptr, 0, &contents);
  if (decoded == Decoded::kDone) return is_predefined(contents.combiner) && named(type, out);
  if (decoded == Decoded::kFailed) return false;
  work_ += kDerivedWork - 1;
  auto* memory =
      static_cast<int64_t*>(memory::blocks.allocate(static_cast<size_t>(contents.words_needed) * sizeof(int64_t)));
  if (memory == nullptr) return false;
  bool ok = mpi_.decode(type, memory, contents.words_needed, &contents) == Decoded::kDone;
  if (ok) {
    ok = derived(contents, out, depth) && !out.runs.failed();
    for (int64_t i = 0; i < contents.type_count; ++i) mpi_.release(contents.types[i]);
  }
  memory::blocks.release(memory);
  return ok;
}

}  // namespace

bool flatten(uint64_t type, const TypeQueries& queries, Flattened& out) { return Flattener(queries).run(type, out, 0); }

}  // namespace resil
