// SPDX-License-Identifier: Apache-2.0
//
// Flattening of datatypes: trees of constructors with small arguments, against a walk element by element that knows
// nothing of runs.
#include <algorithm>
#include <vector>

#include "fuzz.h"
#include "shim/model/datatype/flatten.h"

namespace fuzz {

namespace {

using namespace resil;

constexpr size_t kMostBytes = 1 << 14;  ///< of one type: more is not built
constexpr int64_t kFar = 1 << 20;

struct Made {
  Combiner combiner;
  std::vector<int64_t> integers, addresses;
  std::vector<uint64_t> types;
  std::vector<int64_t> bytes;  ///< the offset of each byte of data, in order: what is compared
  int64_t low, extent;
};
std::vector<Made> made;
int references;

Decoded decode(uint64_t handle, int64_t* memory, int64_t words, TypeContents* out) {
  *out = {};
  if (handle >= made.size()) return Decoded::kFailed;
  const Made& type = made[handle];
  out->combiner = type.combiner;
  if (is_predefined(type.combiner)) return Decoded::kDone;
  out->words_needed = static_cast<int64_t>(type.integers.size() + type.addresses.size() + type.types.size());
  if (words < out->words_needed || memory == nullptr) return Decoded::kMoreMemory;
  out->integers = std::copy(type.integers.begin(), type.integers.end(), memory) - type.integers.size();
  memory += type.integers.size();
  out->addresses = std::copy(type.addresses.begin(), type.addresses.end(), memory) - type.addresses.size();
  memory += type.addresses.size();
  std::copy(type.types.begin(), type.types.end(), reinterpret_cast<uint64_t*>(memory));
  out->types = reinterpret_cast<uint64_t*>(memory);
  out->integer_count = static_cast<int64_t>(type.integers.size());
  out->address_count = static_cast<int64_t>(type.addresses.size());
  out->type_count = static_cast<int64_t>(type.types.size());
  references += static_cast<int>(type.types.size());
  return Decoded::kDone;
}

void release(uint64_t) { --references; }

BasicType basic(uint64_t type) {
  BasicType made_of = {};
  made_of.kind = BasicKind::kSigned;
  made_of.width = static_cast<uint16_t>(made[type].bytes.size());
  return made_of;
}

bool extent_of(uint64_t type, int64_t* lower_bound, int64_t* bytes) {
  *lower_bound = made[type].low;
  *bytes = made[type].extent;
  return true;
}

bool size_of(uint64_t type, int64_t* bytes) {
  *bytes = static_cast<int64_t>(made[type].bytes.size());
  return true;
}

void repeat(Made& type, const Made& old, int64_t count, int64_t step, int64_t base) {
  for (int64_t i = 0; i < count; ++i)
    for (const int64_t byte : old.bytes) type.bytes.push_back(base + i * step + byte);
}

/// One dimension after the other, as the standard's formula for subarrays and block-cyclic arrays puts the elements.
void array(Made& type, const Made& old, const std::vector<std::vector<int64_t>>& indices,
           const std::vector<int64_t>& sizes, bool fortran) {
  std::vector<int64_t> places = {0};
  int64_t stride = old.extent;
  for (size_t k = 0; k < sizes.size(); ++k) {
    const size_t d = fortran ? k : sizes.size() - 1 - k;
    std::vector<int64_t> next;
    for (const int64_t index : indices[d])
      for (const int64_t place : places) next.push_back(index * stride + place);
    places = next;
    stride *= sizes[d];
  }
  for (const int64_t place : places) repeat(type, old, 1, 0, place);
}

/// Natural bounds, which the tree's own constructor kResized replaces.
void bound(Made& type) {
  type.low = type.extent = 0;
  if (type.bytes.empty()) return;
  const auto ends = std::minmax_element(type.bytes.begin(), type.bytes.end());
  type.low = *ends.first;
  type.extent = *ends.second + 1 - *ends.first;
}

bool build(Input& in) {
  const auto kind = in.get<uint8_t>() % 12;
  const auto count = [&] { return static_cast<int64_t>(in.get<uint8_t>() % 6); };
  const auto place = [&] { return static_cast<int64_t>(in.get<int8_t>() % 24); };
  const uint64_t from = in.get<uint8_t>() % made.size();
  Made type = {};
  const Made& old = made[from];
  type.types = {from};
  switch (kind) {
    case 0:
      type.combiner = Combiner::kDup;
      type.bytes = old.bytes;
      type.low = old.low, type.extent = old.extent;
      break;
    case 1:
      type.combiner = Combiner::kContiguous;
      type.integers = {count()};
      repeat(type, old, type.integers[0], old.extent, 0);
      break;
    case 2:
    case 3: {
      const bool bytes = kind == 3;
      type.combiner = bytes ? Combiner::kHvector : Combiner::kVector;
      type.integers = {count(), count()};
      const int64_t step = place();
      (bytes ? type.addresses : type.integers).push_back(step);
      for (int64_t i = 0; i < type.integers[0]; ++i)
        repeat(type, old, type.integers[1], old.extent, i * step * (bytes ? 1 : old.extent));
      break;
    }
    case 4:
    case 5:
    case 6:
    case 7: {
      constexpr Combiner kOf[] = {Combiner::kIndexed, Combiner::kHindexed, Combiner::kIndexedBlock,
                                  Combiner::kHindexedBlock};
      const bool bytes = kind % 2 != 0, equal = kind >= 6;
      type.combiner = kOf[kind - 4];
      const int64_t n = count();
      std::vector<int64_t> lengths, places;
      for (int64_t i = 0; i < n; ++i) {
        lengths.push_back(equal && i > 0 ? lengths[0] : count());
        places.push_back(place());
        repeat(type, old, lengths.back(), old.extent, places.back() * (bytes ? 1 : old.extent));
      }
      type.integers = {n};
      if (equal) type.integers.push_back(n > 0 ? lengths[0] : 0);
      else type.integers.insert(type.integers.end(), lengths.begin(), lengths.end());
      (bytes ? type.addresses : type.integers)
          .insert((bytes ? type.addresses : type.integers).end(), places.begin(), places.end());
      break;
    }
    case 8: {
      type.combiner = Combiner::kStruct;
      const int64_t n = count();
      type.types.clear();
      type.integers = {n};
      for (int64_t i = 0; i < n; ++i) {
        type.types.push_back(in.get<uint8_t>() % made.size());
        type.integers.push_back(count());
        type.addresses.push_back(place());
        const Made& part = made[type.types.back()];
        repeat(type, part, type.integers.back(), part.extent, type.addresses.back());
      }
      break;
    }
    case 9: {
      type.combiner = Combiner::kSubarray;
      const int64_t dims = count() % 3 + 1;
      std::vector<int64_t> sizes, parts, starts;
      std::vector<std::vector<int64_t>> indices;
      for (int64_t d = 0; d < dims; ++d) {
        sizes.push_back(count() + 1);
        parts.push_back(count() % sizes.back() + 1);
        starts.push_back(count() % (sizes.back() - parts.back() + 1));
        indices.emplace_back();
        for (int64_t i = 0; i < parts.back(); ++i) indices.back().push_back(starts.back() + i);
      }
      const bool fortran = count() % 2 != 0;
      type.integers = {dims};
      for (const auto* list : {&sizes, &parts, &starts})
        type.integers.insert(type.integers.end(), list->begin(), list->end());
      type.integers.push_back(fortran);
      array(type, old, indices, sizes, fortran);
      break;
    }
    case 10: {
      type.combiner = Combiner::kDarray;
      const int64_t dims = count() % 3 + 1;
      std::vector<int64_t> sizes, ways, arguments, grid;
      int64_t ranks = 1;
      for (int64_t d = 0; d < dims; ++d) {
        sizes.push_back(count() + 1);
        ways.push_back(count() % 3);
        grid.push_back(ways.back() == kDistributeNone ? 1 : count() % 3 + 1);
        const int64_t least = (sizes.back() + grid.back() - 1) / grid.back();
        arguments.push_back(count() % 2 != 0 ? -1 : ways.back() == kDistributeBlock ? least + count() : count() + 1);
        ranks *= grid.back();
      }
      const int64_t rank = count() % ranks;
      const bool fortran = count() % 2 != 0;
      std::vector<std::vector<int64_t>> indices(static_cast<size_t>(dims));
      for (int64_t d = dims - 1, left = rank; d >= 0; --d) {
        const auto at = static_cast<size_t>(d);
        const int64_t coordinate = left % grid[at];
        left /= grid[at];
        const int64_t least = (sizes[at] + grid[at] - 1) / grid[at];
        const int64_t block = ways[at] == kDistributeNone    ? sizes[at]
                              : arguments[at] > 0            ? arguments[at]
                              : ways[at] == kDistributeBlock ? least
                                                             : 1;
        for (int64_t i = 0; i < sizes[at]; ++i)
          if (i / block % grid[at] == coordinate) indices[at].push_back(i);
      }
      type.integers = {ranks, rank, dims};
      for (const auto* list : {&sizes, &ways, &arguments, &grid})
        type.integers.insert(type.integers.end(), list->begin(), list->end());
      type.integers.push_back(fortran);
      array(type, old, indices, sizes, fortran);
      break;
    }
    default:
      type.combiner = Combiner::kResized;
      type.addresses = {place(), count() * 9};
      type.bytes = old.bytes;
  }
  if (type.bytes.size() > kMostBytes) return false;
  if (kind != 0) bound(type);
  if (kind > 10) type.low = type.addresses[0], type.extent = type.addresses[1];
  if (type.extent > kFar || type.low > kFar || type.low < -kFar) return false;
  made.push_back(type);
  return true;
}

constexpr TypeQueries kQueries = {decode, release, basic, size_of, extent_of};

}  // namespace

void datatype(const uint8_t* data, size_t size) {
  made.clear();
  references = 0;
  for (const int64_t width : {1, 4, 8}) {
    Made type = {};
    type.combiner = Combiner::kNamed;
    for (int64_t i = 0; i < width; ++i) type.bytes.push_back(i);
    type.extent = width;
    made.push_back(type);
  }
  Input in(data, size);
  while (in.left() != 0 && made.size() < 12 && build(in))
    ;
  Flattened flat;
  const bool ok = flatten(made.size() - 1, kQueries, flat);
  must(references == 0, "every datatype is given back");
  must(ok, "a small datatype can be flattened");
  std::vector<int64_t> bytes;
  for (uint32_t i = 0; i < flat.runs.count(); ++i) {
    const Run& run = flat.runs.runs()[i];
    must(run.count > 0 && run.bytes > 0, "a run has data");
    for (int64_t n = 0; n < static_cast<int64_t>(run.count); ++n)
      for (int64_t byte = 0; byte < static_cast<int64_t>(run.bytes); ++byte)
        bytes.push_back(run.offset + n * run.stride + byte);
    must(bytes.size() <= 4 * kMostBytes, "there is no more data than the type has");
  }
  must(bytes == made.back().bytes, "the runs are the type's data, in its order");
}

}  // namespace fuzz
