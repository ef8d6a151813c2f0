// SPDX-License-Identifier: Apache-2.0
//
// Flattened datatypes against the MPI library itself: random nested types, each packed and unpacked by both, compared
// byte for byte. The library's objects are linked into this program, so that it is its own shim.
//
// Usage: type_digest [TYPES [SEED]]      one rank, no launcher needed

#include <mpi.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "check.h"
#include "shim/abi/backend.h"
#include "shim/base/digest/digest.h"
#include "shim/tables/freed.h"
#include "shim/tables/type_maps.h"

using resil::type_map;
using resil::TypeMap;

namespace {

uint64_t state;
uint64_t tested;  ///< the type that is being compared

void describe(uint64_t type, int depth);

/// A CHECK that says which type it was.
void same(bool condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "differs from MPI: %s\n", what);
  describe(tested, 0);
  CHECK(condition);
}

uint64_t random_bits() {
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int pick(int low, int high) { return low + static_cast<int>(random_bits() % static_cast<uint64_t>(high - low + 1)); }

/// 1 to `high`, rarely 0.
int some(int high) { return pick(0, 11) == 0 ? 0 : pick(1, high); }

template <class Handle>
uint64_t bits(Handle handle) {
  if constexpr (sizeof(Handle) == 8) return reinterpret_cast<uint64_t>(handle);
  else return static_cast<uint32_t>(handle);
}

resil::Thread& thread() {
  CHECK(resil::current_thread != nullptr);
  return *resil::current_thread;
}

MPI_Datatype basic_type() {
  static const MPI_Datatype types[] = {MPI_CHAR,      MPI_SHORT,
                                       MPI_INT,       MPI_DOUBLE,
                                       MPI_FLOAT,     MPI_LONG_DOUBLE,
                                       MPI_BYTE,      MPI_DOUBLE_INT,
                                       MPI_SHORT_INT, MPI_LONG_INT,
                                       MPI_FLOAT_INT, MPI_LONG_DOUBLE_INT,
                                       MPI_2INT,      MPI_C_DOUBLE_COMPLEX,
                                       MPI_INTEGER,   MPI_DOUBLE_PRECISION,
                                       MPI_LOGICAL,   MPI_2DOUBLE_PRECISION,
                                       MPI_REAL8,     MPI_INT64_T,
                                       MPI_AINT,      MPI_PACKED};
  if (pick(0, 19) == 0) {
    MPI_Datatype type;
    OK(MPI_Type_create_f90_real(12, MPI_UNDEFINED, &type));
    return type;
  }
  return types[pick(0, sizeof(types) / sizeof(types[0]) - 1)];
}

MPI_Datatype random_type(int depth);

/// Frees what was only a part of something larger, as programs do.
void free_derived(MPI_Datatype type) {
  int combiner;
#if MPI_VERSION >= 4
  MPI_Count integers, addresses, counts, types;
  OK(MPI_Type_get_envelope_c(type, &integers, &addresses, &counts, &types, &combiner));
#else
  int integers, addresses, types;
  OK(MPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner));
#endif
  if (combiner != MPI_COMBINER_NAMED && combiner != MPI_COMBINER_F90_REAL) OK(MPI_Type_free(&type));
}

MPI_Aint extent_of(MPI_Datatype type) {
  MPI_Aint lower_bound, extent;
  OK(MPI_Type_get_extent(type, &lower_bound, &extent));
  return extent;
}

MPI_Count size_of(MPI_Datatype type) {
  MPI_Count size;
  OK(MPI_Type_size_x(type, &size));
  return size;
}

/// Block lengths and displacements; the blocks do not overlap and are in any order.
void random_blocks(int n, std::vector<int>& lengths, std::vector<int>& displacements) {
  int at = pick(-5, 5);
  for (int i = 0; i < n; ++i) {
    lengths.push_back(some(3));
    displacements.push_back(at);
    at += lengths.back() + pick(0, 2);
  }
  for (int i = n - 1; i > 0 && pick(0, 1); --i) {
    const int j = pick(0, i);
    std::swap(lengths[static_cast<size_t>(i)], lengths[static_cast<size_t>(j)]);
    std::swap(displacements[static_cast<size_t>(i)], displacements[static_cast<size_t>(j)]);
  }
}

MPI_Datatype random_struct(int depth) {
  const int n = some(4);
  std::vector<int> lengths;
  std::vector<MPI_Aint> displacements;
  std::vector<MPI_Datatype> types;
  MPI_Aint at = pick(-40, 40);
  for (int i = 0; i < n; ++i) {
    types.push_back(i > 0 && pick(0, 3) == 0 ? types.back() : random_type(depth - 1));
    if (size_of(types.back()) == 0) {  // Open MPI 4.1 packs several of such structs without regard to the extent
      free_derived(types.back());
      types.back() = MPI_INT;
    }
    lengths.push_back(some(3));
    MPI_Aint true_bound, true_extent;
    OK(MPI_Type_get_true_extent(types.back(), &true_bound, &true_extent));
    if (size_of(types.back()) == 0) true_bound = true_extent = 0;  // Open MPI: no sense in it
    const MPI_Aint step = extent_of(types.back()), last = lengths.back() > 0 ? (lengths.back() - 1) * step : 0;
    at += last < 0 ? -last : 0;
    displacements.push_back(at - true_bound);
    at += (last > 0 ? last : 0) + true_extent + pick(0, 9);
  }
  MPI_Datatype made;
  OK(MPI_Type_create_struct(n, lengths.data(), displacements.data(), types.data(), &made));
  for (int i = 0; i < n; ++i)
    if (i == 0 || types[static_cast<size_t>(i)] != types[static_cast<size_t>(i) - 1])
      free_derived(types[static_cast<size_t>(i)]);
  return made;
}

MPI_Datatype random_array(MPI_Datatype old) {
  const int dims = pick(1, 4);
  int sizes[4], subsizes[4], starts[4], distributions[4], arguments[4], grid[4], ranks = 1;
  const bool distributed = size_of(old) != 0 && pick(0, 1);  // Open MPI refuses to distribute nothing
  for (int i = 0; i < dims; ++i) {
    sizes[i] = pick(1, 5);
    subsizes[i] = pick(1, sizes[i]);
    starts[i] = pick(0, sizes[i] - subsizes[i]);
    distributions[i] = pick(0, 2) == 0 ? MPI_DISTRIBUTE_NONE
                       : pick(0, 1)    ? MPI_DISTRIBUTE_BLOCK
                                       : MPI_DISTRIBUTE_CYCLIC;
    grid[i] = distributions[i] == MPI_DISTRIBUTE_NONE ? 1 : pick(1, 3);
    arguments[i] = MPI_DISTRIBUTE_DFLT_DARG;
    if (distributions[i] == MPI_DISTRIBUTE_CYCLIC && pick(0, 1)) arguments[i] = pick(1, 3);
    if (distributions[i] == MPI_DISTRIBUTE_BLOCK && pick(0, 1))
      arguments[i] = (sizes[i] + grid[i] - 1) / grid[i] + pick(0, 1);
    ranks *= grid[i];
  }
  const int order = pick(0, 1) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
  MPI_Datatype made;
  if (distributed)
    OK(MPI_Type_create_darray(ranks, pick(0, ranks - 1), dims, sizes, distributions, arguments, grid, order, old,
                              &made));
  else OK(MPI_Type_create_subarray(dims, sizes, subsizes, starts, order, old, &made));
  return made;
}

#if MPI_VERSION >= 4
/// The constructors with MPI_Count arguments.
MPI_Datatype random_large(MPI_Datatype old) {
  const MPI_Count step = extent_of(old);
  std::vector<int> lengths, displacements;
  random_blocks(some(4), lengths, displacements);
  std::vector<MPI_Count> counts(lengths.begin(), lengths.end()), places(displacements.begin(), displacements.end()),
      bytes;
  for (int d : displacements) bytes.push_back(d * (step < 0 ? -step : step));
  std::vector<MPI_Datatype> types(counts.size(), old);
  const auto n = static_cast<MPI_Count>(counts.size());
  const MPI_Count sizes[] = {3, 4}, subsizes[] = {2, 3}, starts[] = {1, 0};
  const int distributions[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC}, grid[] = {2, 2},
            arguments[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
  MPI_Datatype made;
  switch (pick(0, 10)) {
    case 0: OK(MPI_Type_contiguous_c(some(4), old, &made)); break;
    case 1: OK(MPI_Type_vector_c(some(4), 2, pick(2, 5), old, &made)); break;
    case 2: OK(MPI_Type_create_hvector_c(some(4), 1, step + 8, old, &made)); break;
    case 3: OK(MPI_Type_indexed_c(n, counts.data(), places.data(), old, &made)); break;
    case 4: OK(MPI_Type_create_hindexed_c(n, counts.data(), bytes.data(), old, &made)); break;
    case 5: OK(MPI_Type_create_indexed_block_c(n, 1, places.data(), old, &made)); break;
    case 6: OK(MPI_Type_create_hindexed_block_c(n, 1, bytes.data(), old, &made)); break;
    case 7: OK(MPI_Type_create_struct_c(n, counts.data(), bytes.data(), types.data(), &made)); break;
    case 8:
      OK(MPI_Type_create_subarray_c(2, sizes, subsizes, starts, pick(0, 1) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, old,
                                    &made));
      break;
    case 9:
      OK(MPI_Type_create_darray_c(4, pick(0, 3), 2, sizes, distributions, arguments, grid, MPI_ORDER_C, old, &made));
      break;
    default: OK(MPI_Type_create_resized_c(old, pick(-8, 8), step + 16, &made)); break;
  }
  return made;
}
#endif

MPI_Datatype random_type(int depth) {
  if (depth == 0 || pick(0, 9) == 0) return basic_type();
  if (pick(0, 4) == 0) return random_struct(depth);
  MPI_Datatype old = random_type(depth - 1), made;
  const MPI_Aint step = extent_of(old), size = step < 0 ? -step : step;
  std::vector<int> lengths, displacements;
  random_blocks(some(4), lengths, displacements);
  const int n = static_cast<int>(lengths.size());
  std::vector<MPI_Aint> bytes;
  for (int d : displacements) bytes.push_back(d * (size + 3));
  switch (pick(0, 10)) {
    case 0: OK(MPI_Type_contiguous(some(4), old, &made)); break;
    case 1: OK(MPI_Type_vector(some(4), some(2), pick(2, 5) * (pick(0, 3) ? 1 : -1), old, &made)); break;
    case 2:
      OK(MPI_Type_create_hvector(some(4), some(2), (3 * size + pick(0, 9)) * (pick(0, 3) ? 1 : -1), old, &made));
      break;
    case 3: OK(MPI_Type_indexed(n, lengths.data(), displacements.data(), old, &made)); break;
    case 4: OK(MPI_Type_create_hindexed(n, lengths.data(), bytes.data(), old, &made)); break;
    case 5: OK(MPI_Type_create_indexed_block(n, 1, displacements.data(), old, &made)); break;
    case 6: OK(MPI_Type_create_hindexed_block(n, 1, bytes.data(), old, &made)); break;
    case 7: OK(MPI_Type_create_resized(old, pick(-20, 20), size + pick(0, 40), &made)); break;
    case 8: OK(MPI_Type_dup(old, &made)); break;
#if MPI_VERSION >= 4
    case 9: made = random_large(old); break;
#endif
    default: made = random_array(old);
  }
  free_derived(old);
  return made;
}

/// How a type was made, for the report of a failure.
void describe(uint64_t type, int depth) {
  resil::TypeContents c;
  if (resil::backend->types->decode(type, nullptr, 0, &c) != resil::Decoded::kMoreMemory) {
    fprintf(stderr, "%*skind %d width %d\n", 2 * depth, "", static_cast<int>(resil::backend->types->basic(type).kind),
            resil::backend->types->basic(type).width);
    return;
  }
  std::vector<int64_t> memory(static_cast<size_t>(c.words_needed));
  CHECK(resil::backend->types->decode(type, memory.data(), c.words_needed, &c) == resil::Decoded::kDone);
  int64_t bound = 0, extent = 0;
  resil::backend->types->extent(type, &bound, &extent);
  fprintf(stderr, "%*scombiner %d, lower bound %ld, extent %ld:", 2 * depth, "", static_cast<int>(c.combiner), bound,
          extent);
  for (int64_t i = 0; i < c.integer_count; ++i) fprintf(stderr, " %ld", c.integers[i]);
  for (int64_t i = 0; i < c.address_count; ++i) fprintf(stderr, " @%ld", c.addresses[i]);
  fprintf(stderr, "\n");
  for (int64_t i = 0; i < c.type_count; ++i) {
    describe(c.types[i], depth + 1);
    resil::backend->types->release(c.types[i]);
  }
}

/// Memory around a buffer of `count` elements, by what MPI says about the type.
struct Buffer {
  std::vector<char> memory;
  char* address;

  Buffer(MPI_Datatype type, int count) {
    MPI_Aint true_bound, true_extent;
    OK(MPI_Type_get_true_extent(type, &true_bound, &true_extent));
    if (size_of(type) == 0) true_bound = true_extent = 0;  // Open MPI: no sense in it
    const MPI_Aint last = count > 0 ? (count - 1) * extent_of(type) : 0;
    const MPI_Aint low = true_bound + (last < 0 ? last : 0), high = true_bound + true_extent + (last > 0 ? last : 0);
    memory.resize(static_cast<size_t>(high - low) + 128);
    for (char& c : memory) c = static_cast<char>(random_bits());
    address = memory.data() + 64 - low;
  }
  Buffer(const Buffer& other) : memory(other.memory), address(memory.data() + (other.address - other.memory.data())) {}
};

/// Whether some byte belongs to two pieces: then unpacking has no defined result.
bool overlaps(const TypeMap& map, int count, const Buffer& buffer) {
  std::vector<char> seen(buffer.memory.size());
  for (int e = 0; e < count; ++e)
    for (uint32_t r = 0; r < map.run_count; ++r)
      for (int64_t i = 0; i < map.runs[r].count; ++i)
        for (int64_t b = 0; b < map.runs[r].bytes; ++b) {
          const int64_t offset = e * map.extent + map.runs[r].offset + i * map.runs[r].stride + b;
          char& mark = seen[static_cast<size_t>(buffer.address - buffer.memory.data() + offset)];
          if (mark++) return true;
        }
  return false;
}

/// Zeros for the padding of x86 long doubles, which MPI need not carry.
std::vector<char> without_padding(const TypeMap& map, std::vector<char> stream) {
  const size_t period = map.basic.kind == resil::BasicKind::kPair ? map.basic.width : 16;
  for (size_t i = 0; map.padded && i < stream.size(); ++i)
    if (i % period >= 10 && i % period < 16) stream[i] = 0;
  return stream;
}

bool has_long_double(uint64_t type) {
  const resil::TakenType and_its_parts;  // they have been freed, and not committed
  resil::TypeContents c;
  if (resil::backend->types->decode(type, nullptr, 0, &c) != resil::Decoded::kMoreMemory) {
    const resil::BasicType basic = resil::backend->types->basic(type);
    return basic.kind == resil::BasicKind::kLongDouble || basic.value_kind == resil::BasicKind::kLongDouble;
  }
  std::vector<int64_t> memory(static_cast<size_t>(c.words_needed));
  CHECK(resil::backend->types->decode(type, memory.data(), c.words_needed, &c) == resil::Decoded::kDone);
  bool found = false;
  for (int64_t i = 0; i < c.type_count; ++i) {
    found = has_long_double(c.types[i]) || found;
    resil::backend->types->release(c.types[i]);
  }
  return found;
}

int mixed_long_doubles;

void compare(MPI_Datatype type, int count) {
  const TypeMap* map = type_map(thread(), bits(type));
  if (map == nullptr && has_long_double(bits(type))) {
    ++mixed_long_doubles;  // among other data they are not taken apart
    return;
  }
  same(map != nullptr, "not flattened");
  CHECK(map == type_map(thread(), bits(type)));
  Buffer buffer(type, count);
  int capacity = 0, position = 0;
  OK(MPI_Pack_size(count, type, MPI_COMM_SELF, &capacity));
  std::vector<char> packed(static_cast<size_t>(capacity) + 1);
  OK(MPI_Pack(buffer.address, count, type, packed.data(), capacity, &position, MPI_COMM_SELF));
  const auto bytes = static_cast<uint64_t>(position);
  same(resil::type_bytes(*map, count) == bytes, "size");
  if (map->contiguous) same(memcmp(buffer.address, packed.data(), bytes) == 0, "contiguous");

  packed.resize(bytes);
  const std::vector<char> expected = without_padding(*map, packed);
  std::vector<char> ours(bytes, 'x');
  same(resil::type_pack(*map, buffer.address, count, 0, UINT64_MAX, ours.data()) == bytes, "packed length");
  same(without_padding(*map, ours) == expected, "packed");
  same(resil::type_digest(*map, buffer.address, count, bytes) == resil::digest(expected.data(), bytes), "digest");
  for (int i = 0; i < 4 && bytes != 0; ++i) {
    const uint64_t first = random_bits() % bytes, part = random_bits() % (bytes - first + 1);
    std::vector<char> piece(part + 1, 'x');
    same(resil::type_pack(*map, buffer.address, count, first, part, piece.data()) == part, "length of a part");
    same(memcmp(piece.data(), ours.data() + first, part) == 0 && piece[part] == 'x', "packed part");
    same(resil::type_digest(*map, buffer.address, count, part) == resil::digest(expected.data(), part),
         "digest of a part");
  }

  if (overlaps(*map, count, buffer)) return;
  for (char& c : packed) c = static_cast<char>(random_bits());
  Buffer theirs(buffer), mine(buffer), parts(buffer);
  position = 0;
  OK(MPI_Unpack(packed.data(), static_cast<int>(bytes), &position, theirs.address, count, type, MPI_COMM_SELF));
  same(resil::type_unpack(*map, mine.address, count, 0, bytes, packed.data()) == bytes, "unpacked length");
  same(map->padded || mine.memory == theirs.memory, "unpacked");
  const uint64_t unpacked = resil::type_digest(*map, mine.address, count, bytes);
  same(unpacked == resil::type_digest(*map, theirs.address, count, bytes), "digest of what was unpacked");
  same(unpacked == resil::digest(without_padding(*map, packed).data(), bytes), "digest of what was sent");
  for (uint64_t first = 0; first < bytes;) {
    const uint64_t part = random_bits() % (bytes - first) + 1;
    same(resil::type_unpack(*map, parts.address, count, first, part, packed.data() + first) == part,
         "length of an unpacked part");
    first += part;
  }
  same(parts.memory == mine.memory, "unpacked in parts");
}

void random_types(int types) {
  int without_data = 0, contiguous = 0;
  for (int i = 0; i < types; ++i) {
    MPI_Datatype type = random_type(pick(1, 4));
    OK(MPI_Type_commit(&type));
    const MPI_Count size = size_of(type);
    without_data += size == 0;
    if (size < 1 << 20) {
      tested = bits(type);
      compare(type, pick(0, 3));
      compare(type, 1);
      const TypeMap* map = type_map(thread(), bits(type));
      contiguous += map != nullptr && map->contiguous;
    }
    free_derived(type);
  }
  printf("%d random types, %d of them contiguous, %d without data; %d comparisons left out for long doubles\n", types,
         contiguous, without_data, mixed_long_doubles);
  CHECK(types < 100 || (contiguous < types / 2 && without_data < types / 2 && mixed_long_doubles < types / 5));
}

}  // namespace

void fixed_types();  // type_digest_fixed.cpp
void speed();

int main(int argc, char** argv) {
  const int types = argc > 1 ? atoi(argv[1]) : 500;
  state = argc > 2 ? strtoull(argv[2], nullptr, 0) : 1;
  OK(MPI_Init(&argc, &argv));
  int rank;
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  fixed_types();
  random_types(types);
  if (types == 0) speed();
  OK(MPI_Finalize());
  return 0;
}
