// SPDX-License-Identifier: Apache-2.0
//
// Flattening, its cache and its limits, on datatypes that exist in this file only. That each constructor means what
// MPI means by it is tested against the libraries: tests/mpi/type_digest.cpp.

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "check.h"
#include "fake_backend.h"
#include "shim/base/digest/digest.h"
#include "shim/model/datatype/run_list.h"
#include "shim/tables/type_maps.h"

using namespace resil;

namespace {

struct FakeType {
  Combiner combiner = Combiner::kNamed;
  BasicType basic = {};
  std::vector<int64_t> integers, addresses;
  std::vector<uint64_t> types;
  int64_t size = 0, extent = 0, true_low = 0, true_extent = 0;
  void* attribute = nullptr;
};

std::mutex mutex;
std::map<uint64_t, FakeType> types;
void (*forget_attribute)(void*);
std::atomic<int> decodes, references, asked_null, attached_count, forgotten;
std::atomic<bool> attach_works;

const FakeType* find(uint64_t type) {
  std::lock_guard<std::mutex> guard(mutex);
  auto found = types.find(type);
  if (found == types.end()) ++asked_null;
  return found != types.end() ? &found->second : nullptr;
}

Decoded decode(uint64_t handle, int64_t* memory, int64_t words, TypeContents* out) {
  const FakeType* type = find(handle);
  *out = {};
  if (type == nullptr) return Decoded::kFailed;
  out->combiner = type->combiner;
  if (is_predefined(type->combiner) || type->combiner == Combiner::kUnknown) return Decoded::kDone;
  out->words_needed = static_cast<int64_t>(type->integers.size() + type->addresses.size() + type->types.size());
  if (words < out->words_needed || memory == nullptr) return Decoded::kMoreMemory;
  ++decodes;
  auto copy = [&](const auto& values) {
    auto* to = memory;
    if (!values.empty()) memcpy(to, values.data(), values.size() * 8);
    memory += values.size();
    return to;
  };
  out->integers = copy(type->integers);
  out->addresses = copy(type->addresses);
  out->types = reinterpret_cast<uint64_t*>(copy(type->types));
  out->integer_count = static_cast<int64_t>(type->integers.size());
  out->address_count = static_cast<int64_t>(type->addresses.size());
  out->type_count = static_cast<int64_t>(type->types.size());
  references += static_cast<int>(type->types.size());
  return Decoded::kDone;
}

void release(uint64_t) { --references; }

BasicType basic(uint64_t type) { return find(type)->basic; }

bool extent(uint64_t handle, int64_t* lower_bound, int64_t* bytes) {
  const FakeType* type = find(handle);
  *lower_bound = 0;
  *bytes = type != nullptr ? type->extent : 0;
  return type != nullptr;
}

bool true_extent(uint64_t handle, int64_t* lower_bound, int64_t* bytes) {
  const FakeType* type = find(handle);
  *lower_bound = type->true_low;
  *bytes = type->true_extent;
  return true;
}

bool type_size_of(uint64_t handle, int64_t* bytes) {
  const FakeType* type = find(handle);
  *bytes = type != nullptr ? type->size : 0;
  return type != nullptr;
}

bool attach(uint64_t handle, void* info, void (*forget)(void*)) {
  if (!attach_works) return false;
  void* old;
  {
    std::lock_guard<std::mutex> guard(mutex);
    auto found = types.find(handle);
    if (found == types.end()) return false;
    forget_attribute = forget;
    old = found->second.attribute;
    found->second.attribute = info;
  }
  ++attached_count;
  if (old != nullptr) {
    ++forgotten;
    forget(old);
  }
  return true;
}

void* attached(uint64_t handle) {
  std::lock_guard<std::mutex> guard(mutex);
  auto found = types.find(handle);
  return found != types.end() ? found->second.attribute : nullptr;
}

const TypeFunctions kFunctions = {decode, release, basic, nullptr, extent, true_extent, attach, attached};

void free_type(uint64_t handle) {
  void* info;
  {
    std::lock_guard<std::mutex> guard(mutex);
    info = types[handle].attribute;
    types.erase(handle);
  }
  if (info != nullptr) {
    ++forgotten;
    forget_attribute(info);
  }
}

constexpr uint64_t kInt = 0x1001, kReal = 0x1002, kLongDouble = 0x1003, kShortInt = 0x1004, kLongDoubleInt = 0x1005;

/// The fake library with these types in place of its own.
struct Fixture {
  fake::Core core{0, 2};
  const Backend* before = backend;
  Backend mine = *backend;
  uint64_t next = 0x5000;

  Fixture() {
    mine.types = &kFunctions;
    mine.type_size = type_size_of;
    backend = &mine;
    types.clear();
    decodes = references = asked_null = attached_count = forgotten = 0;
    attach_works = true;
    auto named = [](uint64_t handle, BasicType kind, int64_t bytes, int64_t reach) {
      FakeType type;
      type.basic = kind;
      type.size = kind.width;
      type.extent = bytes;
      type.true_extent = reach;
      types[handle] = type;
    };
    named(kInt, {BasicKind::kSigned, {}, 4, 0, 0, 0}, 4, 4);
    named(kReal, {BasicKind::kFloating, {}, 8, 0, 0, 0}, 8, 8);
    named(kLongDouble, {BasicKind::kLongDouble, {}, 16, 0, 0, 0}, 16, 16);
    named(kShortInt, {BasicKind::kPair, BasicKind::kSigned, 6, 2, 4, 0}, 8, 8);
    named(kLongDoubleInt, {BasicKind::kPair, BasicKind::kLongDouble, 20, 16, 4, 0}, 32, 20);
  }
  ~Fixture() {
    CHECK(references == 0);  // every handle that MPI gave out has been given back
    std::vector<uint64_t> left;
    for (auto& [handle, type] : types) left.push_back(handle);
    for (uint64_t handle : left) free_type(handle);
    backend = before;
  }

  uint64_t add(FakeType type) {
    std::lock_guard<std::mutex> guard(mutex);
    if (type.true_extent == 0) {
      type.true_low = -(int64_t{1} << 40);
      type.true_extent = int64_t{1} << 41;
    }
    types[next] = std::move(type);
    return next++;
  }
  uint64_t vector(int64_t count, int64_t length, int64_t stride, uint64_t old, int64_t size, int64_t reach) {
    FakeType type;
    type.combiner = Combiner::kVector;
    type.integers = {count, length, stride};
    type.types = {old};
    type.size = size;
    type.extent = reach;
    return add(type);
  }
  Thread& thread() { return *current_thread; }
  const TypeMap* map(uint64_t type) { return type_map(thread(), type); }
};

std::vector<char> numbered(size_t bytes) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 37 + i / 256 + 1);
  return data;
}

}  // namespace

TEST_CASE("RunList merges neighbours and makes runs of what is equally spaced") {
  RunList list;
  list.add({0, 8, 1, 0});
  list.add({8, 4, 1, 0});
  list.add({12, 0, 5, 1});  // nothing
  REQUIRE(list.count() == 1);
  CHECK(list.runs()[0].bytes == 12);
  list.add({20, 12, 1, 0});
  list.add({40, 12, 1, 0});
  list.add({60, 12, 1, 0});
  REQUIRE(list.count() == 1);
  CHECK((list.runs()[0].count == 4 && list.runs()[0].stride == 20));
  list.add({0, 12, 1, 0});  // back to the start: the order of the type map counts
  CHECK(list.count() == 2);
  RunList copies;
  copies.add_copies(list, 0, 100, 0);
  CHECK(copies.count() == 0);
  RunList column, block;
  column.add({0, 8, 1, 0});
  block.add_copies(column, 1000, 80, 0);
  block.add_copies(column, 1000, 80, 80000);
  REQUIRE(block.count() == 1);
  CHECK(block.runs()[0].count == 2000);
  RunList backwards;
  backwards.add_copies(column, 3, -16, 100);
  CHECK((backwards.count() == 1 && backwards.runs()[0].stride == -16 && backwards.runs()[0].offset == 100));
  RunList endless;
  endless.add({0, 8, 1, 0});
  endless.add({100, 4, 1, 0});
  RunList many;
  many.add_copies(endless, int64_t{1} << 40, 1000, 0);
  CHECK(many.failed());
}

TEST_CASE("a predefined type is asked for once, whatever the generation") {
  Fixture f;
  const TypeMap* map = f.map(kReal);
  REQUIRE(map != nullptr);
  CHECK((map->contiguous && map->permanent && map->size == 8 && map->extent == 8 && map->run_count == 1));
  CHECK(map->basic == BasicType{BasicKind::kFloating, {}, 8, 0, 0, 0});
  handle_generation.fetch_add(1);
  CHECK(f.map(kReal) == map);
  CHECK(attached_count == 0);
  type_map_hold(map);
  type_map_release(map);
  type_map_release(map);
  CHECK(f.map(kReal) == map);
}

TEST_CASE("the hole of a pair is no data") {
  Fixture f;
  const TypeMap* map = f.map(kShortInt);
  REQUIRE(map != nullptr);
  CHECK((map->size == 6 && map->extent == 8 && !map->contiguous));
  std::vector<char> data = numbered(24), packed(18);
  CHECK(type_pack(*map, data.data(), 3, 0, 100, packed.data()) == 18);
  for (int i = 0; i < 3; ++i) {
    CHECK(memcmp(&packed[static_cast<size_t>(6 * i)], &data[static_cast<size_t>(8 * i)], 2) == 0);
    CHECK(memcmp(&packed[static_cast<size_t>(6 * i + 2)], &data[static_cast<size_t>(8 * i + 4)], 4) == 0);
  }
  const uint64_t before = type_digest(*map, data.data(), 3, 18);
  CHECK(before == digest(packed.data(), 18));
  data[2] ^= 1;
  data[19] ^= 1;
  CHECK(type_digest(*map, data.data(), 3, 18) == before);
  data[4] ^= 1;
  CHECK(type_digest(*map, data.data(), 3, 18) != before);
}

TEST_CASE("a stream of large pieces and small ones has the digest of its packed bytes") {
  Fixture f;
  for (int64_t length : {1, 3, 100, 511, 512, 513, 1000, 5000}) {
    const uint64_t type = f.vector(5, length, 2 * length + 1, kReal, 40 * length, 8 * (9 * length + 4));
    const TypeMap* map = f.map(type);
    REQUIRE(map != nullptr);
    CHECK(map->run_count == 1);
    std::vector<char> data = numbered(static_cast<size_t>(2 * map->extent)), packed(static_cast<size_t>(80 * length));
    REQUIRE(type_pack(*map, data.data(), 2, 0, UINT64_MAX, packed.data()) == packed.size());
    for (size_t bytes : {packed.size(), packed.size() / 2, packed.size() / 2 + 3, size_t{1}, size_t{0}})
      CHECK(type_digest(*map, data.data(), 2, bytes) == digest(packed.data(), bytes));
    std::vector<char> back(data.size()), again(packed.size());
    size_t first = 0;
    for (size_t part = 1; first < packed.size(); part = part * 3 + 1)
      first += type_unpack(*map, back.data(), 2, first, part, packed.data() + first);
    type_pack(*map, back.data(), 2, 0, UINT64_MAX, again.data());
    CHECK(again == packed);
    int64_t low, high;
    type_span(*map, 2, &low, &high);
    CHECK((low == 0 && high == map->extent + 8 * (4 * (2 * length + 1) + length)));
  }
}

TEST_CASE("counts of nothing and counts beyond all bounds") {
  Fixture f;
  const TypeMap* map = f.map(f.vector(2, 1, 2, kReal, 16, 24));
  REQUIRE(map != nullptr);
  CHECK(type_bytes(*map, 0) == 0);
  CHECK(type_bytes(*map, -1) == 0);
  CHECK(type_bytes(*map, INT64_MAX) == INT64_MAX);
  CHECK(type_bytes(*map, int64_t{1} << 33) == uint64_t{1} << 37);
  CHECK(type_digest(*map, nullptr, 0, 100) == digest(nullptr, 0));
  int64_t low = 1, high = 1;
  type_span(*map, 0, &low, &high);
  CHECK((low == 0 && high == 0));
  char to[16];
  CHECK(type_pack(*map, nullptr, 5, 80, 16, to) == 0);
  const TypeMap* nothing = f.map(f.vector(0, 1, 2, kReal, 0, 0));
  REQUIRE(nothing != nullptr);
  CHECK((nothing->size == 0 && nothing->run_count == 0));
  CHECK(type_digest(*nothing, nullptr, 7, 100) == digest(nullptr, 0));
}

TEST_CASE("long doubles are digested without their padding") {
  Fixture f;
  for (uint64_t old : {kLongDouble, kLongDoubleInt}) {
    const int64_t size = old == kLongDouble ? 16 : 20, reach = old == kLongDouble ? 16 : 32;
    const TypeMap* map = f.map(f.vector(300, 1, 2, old, 300 * size, reach * 599));
    REQUIRE(map != nullptr);
    CHECK((map->padded && !map->contiguous));
    std::vector<char> data = numbered(static_cast<size_t>(map->extent));
    const uint64_t before = type_digest(*map, data.data(), 1, map->size);
    for (size_t element = 0; element < 300; ++element)
      for (size_t i = 10; i < 16; ++i) data[element * 2 * static_cast<size_t>(reach) + i] ^= 0x55;
    CHECK(type_digest(*map, data.data(), 1, map->size) == before);
    for (size_t element : {0, 1, 203, 204, 255, 256, 299}) {
      data[element * 2 * static_cast<size_t>(reach) + 9] ^= 1;
      CHECK(type_digest(*map, data.data(), 1, map->size) != before);
      data[element * 2 * static_cast<size_t>(reach) + 9] ^= 1;
    }
  }
  // In one piece, which the fast way must not take.
  const TypeMap* plain = f.map(kLongDouble);
  REQUIRE(plain != nullptr);
  CHECK((plain->padded && !plain->contiguous));
  // Among other data they are left alone.
  FakeType mixed;
  mixed.combiner = Combiner::kStruct;
  mixed.integers = {2, 1, 1};
  mixed.addresses = {0, 16};
  mixed.types = {kLongDouble, kReal};
  mixed.size = 24;
  mixed.extent = 32;
  CHECK(f.map(f.add(mixed)) == nullptr);
}

TEST_CASE("what cannot be flattened is tried once") {
  Fixture f;
  FakeType type;
  type.combiner = Combiner::kUnknown;
  const uint64_t unknown = f.add(type);
  CHECK(f.map(unknown) == nullptr);
  CHECK(attached_count == 1);
  CHECK(f.map(unknown) == nullptr);
  CHECK(attached_count == 1);
  const uint64_t huge = f.vector(1 << 21, 1, 1, kShortInt, 6 << 21, 8 << 21);
  CHECK(f.map(huge) == nullptr);
  const int so_far = decodes;
  CHECK(f.map(huge) == nullptr);
  CHECK(decodes == so_far);
  // MPI and this disagree about the type: it is not trusted.
  CHECK(f.map(f.vector(2, 1, 2, kReal, 24, 24)) == nullptr);
  FakeType reaches;
  reaches.combiner = Combiner::kVector;
  reaches.integers = {2, 1, 2};
  reaches.types = {kReal};
  reaches.size = 16;
  reaches.extent = reaches.true_extent = 20;
  CHECK(f.map(f.add(reaches)) == nullptr);
  // Deeper than the stack should go: a chain of duplicates.
  uint64_t last = kReal;
  for (int i = 0; i < 100; ++i) {
    FakeType dup;
    dup.combiner = Combiner::kDup;
    dup.types = {last};
    dup.size = dup.extent = 8;
    last = f.add(dup);
  }
  CHECK(f.map(last) == nullptr);
}

TEST_CASE("nested twice at each of 40 levels does not take forever") {
  Fixture f;
  uint64_t last = kReal;
  for (int i = 0; i < 40; ++i) {
    FakeType twice;
    twice.combiner = Combiner::kStruct;
    twice.integers = {3, 1, 0, 1};  // the one without length keeps the other two from being taken together
    twice.addresses = {0, 0, 8};
    twice.types = {last, kInt, last};
    twice.size = twice.extent = int64_t{8} << (i + 1);
    last = f.add(twice);
  }
  CHECK(f.map(last) == nullptr);
  CHECK(decodes <= 1 << 17);
}

TEST_CASE("a map dies with its handle, unless it is held") {
  Fixture f;
  const uint64_t type = f.vector(3, 1, 2, kReal, 24, 40);
  const TypeMap* map = f.map(type);
  REQUIRE(map != nullptr);
  CHECK(f.map(type) == map);
  type_map_hold(map);
  const uint32_t generation = handle_generation.load();
  free_type(type);
  CHECK(handle_generation.load() != generation);
  CHECK(forgotten == 1);
  // The handle comes back for another type.
  --f.next;
  REQUIRE(f.vector(5, 1, 3, kReal, 40, 104) == type);
  const TypeMap* other = f.map(type);
  REQUIRE(other != nullptr);
  CHECK((other != map && other->size == 40));
  CHECK((map->size == 24 && map->runs[0].count == 3));
  type_map_release(map);
  // Nobody holds it, and the memory is used again.
  free_type(type);
  --f.next;
  f.vector(4, 1, 3, kReal, 32, 80);
  CHECK(f.map(type)->size == 32);
}

TEST_CASE("a handle that takes no attribute has no map") {
  Fixture f;
  attach_works = false;
  const uint64_t type = f.vector(3, 1, 2, kReal, 24, 40);
  CHECK(f.map(type) == nullptr);
  attach_works = true;
  CHECK(f.map(type) != nullptr);
}

TEST_CASE("threads that meet a type at the same time", "[threads]") {
  Fixture f;
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> handles;
    for (int i = 0; i < 4; ++i) handles.push_back(f.vector(3 + i, 1, 2, kReal, 8 * (3 + i), 8 * (5 + 2 * i)));
    std::atomic<int> ready = 0, wrong = 0;
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        std::unique_ptr<Thread> thread = fake::make_thread(t);
        for (++ready; ready < 4;) {}
        for (size_t i = 0; i < handles.size(); ++i) {
          const TypeMap* map = type_map(*thread, handles[i]);
          const TypeMap* real = type_map(*thread, kReal);
          wrong += map == nullptr || map->size != 8 * (3 + i) || map->runs[0].stride != 16 || real->size != 8;
        }
      });
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
    for (uint64_t handle : handles) free_type(handle);
  }
}
