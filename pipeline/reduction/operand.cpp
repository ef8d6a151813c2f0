// SPDX-License-Identifier: Apache-2.0
//
// See operand.h. User operators: MPI_Reduce_local(low, high) leaves `low op high` in high, so that a tree over ranks in
// order needs no copies; the operator sees elements in the program's own layout.

#include "pipeline/reduction/operand.h"

#include <cstring>

#include "shim/abi/backend.h"
#include "shim/call/runtime.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/mailbox.h"
#include "shim/tables/freed.h"
#include "shim/tables/type_maps.h"

namespace resil::reduction {

namespace {

/// Memory that the elements' data span, and where the buffer's address lies in it.
struct Span {
  int64_t low, bytes;
};

Span span_of(const Operand& o, int64_t count) {
  const int64_t last = (count - 1) * o.extent;
  const int64_t low = o.true_low + (last < 0 ? last : 0), high = o.true_low + o.true_extent + (last > 0 ? last : 0);
  return {low, high - low};
}

int64_t split_of(int64_t ranks) {
  int64_t half = 1;
  while (half * 2 < ranks) half *= 2;
  return half;
}

/// Of elements in memory layout. The result lies where the last contribution was.
int tree(const Operand& o, char** elements, int64_t ranks, int64_t count) {
  if (ranks == 1) return 0;
  const int64_t half = split_of(ranks);
  int result = tree(o, elements, half, count);
  if (result == 0) result = tree(o, elements + half, ranks - half, count);
  if (result == 0)
    result =
        backend->collectives->reduce_local(elements[half - 1], elements[ranks - 1], count, o.type_handle, o.op_handle);
  return result;
}

/// The partial results T over aligned groups of ranks that make up [0, r), largest first, and what they become with r.
int prefixes(const Operand& o, char** elements, int64_t ranks, int64_t count, size_t bytes, int64_t low, Arena& arena) {
  char* groups[64];
  int64_t sizes[64];
  unsigned used = 0, made = 0;
  auto reduce = backend->collectives->reduce_local;
  for (int64_t r = 0; r < ranks; ++r) {
    if (used == made) groups[made++] = arena.allocate(bytes) - low;
    memcpy(groups[used] + low, elements[r] + low, bytes);
    for (unsigned i = used; i-- > 0;)
      if (int result = reduce(groups[i], elements[r], count, o.type_handle, o.op_handle); result != 0) return result;
    sizes[used++] = 1;
    while (used > 1 && sizes[used - 1] == sizes[used - 2]) {
      if (int result = reduce(groups[used - 2], groups[used - 1], count, o.type_handle, o.op_handle); result != 0)
        return result;
      char* merged = groups[used - 1];
      groups[used - 1] = groups[used - 2];
      groups[used - 2] = merged;
      sizes[--used - 1] *= 2;
    }
  }
  return 0;
}

/// Elements at a time whose expanded contributions stay small.
int64_t chunk_of(const Operand& o, int64_t ranks, int64_t count) {
  constexpr int64_t kExpanded = int64_t{4} << 20;
  const int64_t step = o.extent < 0 ? -o.extent : o.extent;
  const int64_t one = step > o.true_extent ? step : o.true_extent;
  const int64_t fit = kExpanded / (ranks * (one > 0 ? one : 1));
  return fit < 1 ? 1 : fit < count ? fit : count;
}

/// Cells of derived types, a chunk at a time: laid out as the program would, given to `work`, packed again.
template <class Work>
int expanded(const Operand& o, char** cells, int64_t ranks, int64_t count, int64_t first_back, Arena& arena,
             Work work) {
  const int64_t chunk = chunk_of(o, ranks, count);
  const size_t mark = arena.mark();
  const Span most = span_of(o, chunk);
  char** elements = arena.array<char*>(ranks);
  for (int64_t r = 0; r < ranks; ++r) {
    elements[r] = arena.allocate(static_cast<size_t>(most.bytes)) - most.low;
    memset(elements[r] + most.low, 0, static_cast<size_t>(most.bytes));
  }
  int result = 0;
  for (int64_t done = 0; done < count && result == 0; done += chunk) {
    const int64_t now = count - done < chunk ? count - done : chunk;
    const size_t offset = static_cast<size_t>(done) * o.cell;
    for (int64_t r = 0; r < ranks; ++r) store(o, elements[r], 0, now, cells[r] + offset);
    const size_t inner = arena.mark();
    result = work(elements, now, span_of(o, now));
    arena.rewind(inner);
    for (int64_t r = first_back; r < ranks && result == 0; ++r) load(o, elements[r], 0, now, cells[r] + offset);
  }
  arena.rewind(mark);
  return result;
}

}  // namespace

Verdict describe(Thread& thread, uint64_t op, uint64_t type, bool exact, Operand* o) {
  *o = {};
  o->op_handle = op;
  o->type_handle = type;
  o->op = is_freed(HandleKind::kOp, op) ? OpKind::kNone : backend->types->op_kind(op);
  if (o->op == OpKind::kNone || o->op == OpKind::kReplace || o->op == OpKind::kNoOp) return Verdict::kOperator;
  o->basic = backend->types->basic(type);
  o->user = o->op == OpKind::kUser;
  if (!o->user) {
    if (fold_is_native(o->op, o->basic)) return Verdict::kSafe;
    if (!fold_defined(o->op, o->basic)) return Verdict::kOperator;
    o->plain = true;
    o->cell = element_extent(o->basic);
    o->extent = static_cast<int64_t>(o->cell);
    o->mode = exact && fold_exact_defined(o->op, o->basic) ? Mode::kExact : Mode::kOrder;
    return Verdict::kFold;
  }
  int64_t size = 0, low = 0;
  if (!backend->type_size(type, &size) || !backend->types->extent(type, &low, &o->extent) ||
      !backend->types->true_extent(type, &o->true_low, &o->true_extent))
    return Verdict::kDatatype;
  if (size == 0) return Verdict::kSafe;
  o->cell = static_cast<size_t>(size);
  o->map = type_map(thread, type);
  o->plain = o->map != nullptr && (o->map->contiguous || (o->map->permanent && o->map->padded)) && o->true_low == 0 &&
             o->extent == size;
  return Verdict::kFold;
}

bool direct(const Operand& o, const void* buffer, int64_t count) {
  return o.plain && host_memory(buffer, static_cast<size_t>(count) * o.cell);
}

namespace {

/// May the host follow the type map through this buffer?
bool readable(const Operand& o, const void* buffer, int64_t count) {
  if (o.plain) return host_memory(buffer, static_cast<size_t>(count) * o.cell);
  if (o.map == nullptr) return false;
  const Span span = span_of(o, count);
  return host_memory(static_cast<const char*>(buffer) + span.low, static_cast<size_t>(span.bytes));
}

/// A predefined type keeps its gaps on both sides; others are packed.
uint64_t cell_type(const Operand& o) { return o.plain ? o.type_handle : 0; }
int64_t cell_count(const Operand& o, int64_t count) { return o.plain ? count : count * static_cast<int64_t>(o.cell); }

}  // namespace

void load(const Operand& o, const void* buffer, int64_t first, int64_t count, char* cells) {
  const char* from = static_cast<const char*>(buffer) + first * o.extent;
  if (!readable(o, from, count)) mailbox::copy(from, count, o.type_handle, cells, cell_count(o, count), cell_type(o));
  else if (o.plain) memcpy(cells, from, static_cast<size_t>(count) * o.cell);
  else type_pack(*o.map, from, count, 0, static_cast<uint64_t>(count) * o.cell, cells);
}

void store(const Operand& o, void* buffer, int64_t first, int64_t count, const char* cells) {
  char* to = static_cast<char*>(buffer) + first * o.extent;
  if (!readable(o, to, count)) mailbox::copy(cells, cell_count(o, count), cell_type(o), to, count, o.type_handle);
  else if (o.plain) memcpy(to, cells, static_cast<size_t>(count) * o.cell);
  else type_unpack(*o.map, to, count, 0, static_cast<uint64_t>(count) * o.cell, cells);
}

int fold_cells(const Operand& o, char** cells, int64_t ranks, char* result, int64_t count, Arena& arena) {
  if (count == 0) return 0;
  if (!o.user) {
    const size_t mark = arena.mark();
    fold(o.op, o.basic, o.mode, reinterpret_cast<const void* const*>(cells), static_cast<size_t>(ranks), result,
         static_cast<size_t>(count), arena.allocate(kFoldScratch));
    arena.rewind(mark);
    return 0;
  }
  int error;
  if (o.plain) error = tree(o, cells, ranks, count);
  else
    error = expanded(o, cells, ranks, count, ranks - 1, arena,
                     [&](char** elements, int64_t now, Span) { return tree(o, elements, ranks, now); });
  if (error == 0 && result != cells[ranks - 1]) memmove(result, cells[ranks - 1], static_cast<size_t>(count) * o.cell);
  return error;
}

int prefix_cells(const Operand& o, char** cells, int64_t ranks, int64_t count, Arena& arena) {
  if (count == 0) return 0;
  if (!o.user) {
    const size_t mark = arena.mark();
    fold_prefixes(o.op, o.basic, o.mode, reinterpret_cast<const void* const*>(cells), static_cast<size_t>(ranks),
                  reinterpret_cast<void* const*>(cells), static_cast<size_t>(count), arena.allocate(kFoldScratch));
    arena.rewind(mark);
    return 0;
  }
  if (o.plain) return prefixes(o, cells, ranks, count, static_cast<size_t>(count) * o.cell, 0, arena);
  return expanded(o, cells, ranks, count, 0, arena, [&](char** elements, int64_t now, Span span) {
    return prefixes(o, elements, ranks, now, static_cast<size_t>(span.bytes), span.low, arena);
  });
}

}  // namespace resil::reduction
