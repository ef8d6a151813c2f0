// SPDX-License-Identifier: Apache-2.0
//
// Memory of the library (shim/runtime/): blocks are large enough, aligned, disjoint and used again; what is refused is
// refused quietly.

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "shim/runtime/arena.h"
#include "shim/runtime/block_pool.h"
#include "shim/runtime/pool.h"

using namespace resil::memory;

namespace {

struct Object {
  uint64_t value;
  Object* next;
};

/// The classes of the pools that this one replaced: the smallest power of two that holds `bytes`.
size_t class_of(size_t bytes, unsigned least) {
  unsigned order = least;
  while ((size_t{1} << order) < bytes) ++order;
  return size_t{1} << order;
}

struct DeferredFree {
  unsigned char* block;
  size_t bytes;
  unsigned char mark;
};

/// Random blocks, each filled with its own mark, which must still be there when it is released.
template <class Allocate, class Release>
void churn(unsigned seed, int rounds, size_t most, uintptr_t align, Allocate allocate, Release release) {
  std::mt19937 random(seed);
  std::vector<DeferredFree> held;
  auto drop = [&](size_t at) {
    const DeferredFree h = held[at];
    const bool intact = std::all_of(h.block, h.block + h.bytes, [&](unsigned char c) { return c == h.mark; });
    if (!intact) abort();
    release(h.block, h.bytes);
    held[at] = held.back();
    held.pop_back();
  };
  for (int i = 0; i < rounds; ++i) {
    if (held.size() > 40 || (!held.empty() && random() % 2 == 0)) {
      drop(random() % held.size());
      continue;
    }
    const size_t bytes = 1 + random() % (size_t{1} << random() % static_cast<unsigned>(std::bit_width(most)));
    auto* block = static_cast<unsigned char*>(allocate(bytes));
    if (block == nullptr || reinterpret_cast<uintptr_t>(block) % align != 0) abort();
    const auto mark = static_cast<unsigned char>(random());
    memset(block, mark, bytes);
    held.push_back({block, bytes, mark});
  }
  while (!held.empty()) drop(held.size() - 1);
}

constexpr BlockRules kBounded = {.header = 0, .least = 9, .most = 16, .chunk = 64 << 10, .bound = 256 << 10};

}  // namespace

TEST_CASE("mapped memory is zeroed, and null can be unmapped") {
  int* numbers = map_array<int>(1000);
  REQUIRE(numbers != nullptr);
  CHECK(std::all_of(numbers, numbers + 1000, [](int n) { return n == 0; }));
  unmap_array(numbers, 1000);
  unmap_array<int>(nullptr, 1000);
  unmap(nullptr, 1);
}

TEST_CASE("what the system refuses is null") {
  CHECK(map(size_t{1} << 62) == nullptr);
  CHECK(map(0) == nullptr);
  CHECK(blocks.allocate(SIZE_MAX) == nullptr);
  CHECK(blocks.allocate(SIZE_MAX - 8) == nullptr);
  CHECK(blocks.allocate(size_t{1} << 62) == nullptr);
  Arena<4096> arena;
  CHECK(arena.allocate<char>(size_t{1} << 62) == nullptr);
  CHECK(arena.failed());
  CHECK(arena.allocate<char>(1) == nullptr);
}

TEST_CASE("an array that grows keeps its items") {
  uint64_t* items = nullptr;
  uint32_t room = 0;
  for (uint32_t i = 0; i < 5000; ++i) {
    REQUIRE(grow_array(&items, &room, i + 1, 16u));
    items[i] = i * i;
  }
  CHECK(room == 8192);
  for (uint32_t i = 0; i < 5000; ++i) REQUIRE(items[i] == uint64_t{i} * i);
  REQUIRE(grow_array(&items, &room, 100000u, 16u));
  CHECK(room == 131072);
  CHECK(items[4999] == uint64_t{4999} * 4999);
  CHECK(std::all_of(items + 5000, items + room, [](uint64_t item) { return item == 0; }));
  unmap_array(items, room);
}

TEST_CASE("a pool hands out what was released, up to its bound") {
  static Pool<Object, &Object::next, 8, 24> pool;
  CHECK_FALSE(pool.has_ready());
  CHECK(pool.allocate_ready() == nullptr);
  std::vector<Object*> objects;
  for (uint64_t i = 0; i < 24; ++i) {
    objects.push_back(pool.allocate());
    REQUIRE(objects.back() != nullptr);
    REQUIRE(objects.back()->value == 0);
    objects.back()->value = i + 1;
  }
  CHECK(pool.allocate() == nullptr);
  for (uint64_t i = 0; i < 24; ++i) REQUIRE(objects[i]->value == i + 1);
  pool.release(objects[7]);
  CHECK(pool.has_ready());
  CHECK(pool.allocate() == objects[7]);
  CHECK(objects[7]->value == 8);
  CHECK_FALSE(pool.has_ready());
}

TEST_CASE("blocks have the sizes of the pools that they replaced") {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    const size_t bytes = i < 1200 ? static_cast<size_t>(i) * 64 : random() % (size_t{1} << 22);
    void* block = blocks.allocate(bytes);
    REQUIRE(block != nullptr);
    const size_t whole = bytes + 16 <= 65536 ? class_of(bytes + 16, 8) : (bytes + 16 + 4095) / 4096 * 4096;
    REQUIRE(blocks.capacity(block) == whole - 16);
    blocks.release(block);
  }
  blocks.release(nullptr);
}

TEST_CASE("a block is used again by whoever fits into it") {
  static BlockPool<BlockRules{.header = 64, .least = 12, .most = 47}> pool;
  void* one = pool.allocate(10000);
  REQUIRE(one != nullptr);
  CHECK(pool.capacity(one) == 16384 - 64);
  pool.release(one);
  CHECK(pool.allocate(9000) == one);
  CHECK(pool.allocate(9000) != one);
  CHECK(pool.allocate(size_t{1} << 47) == nullptr);
}

TEST_CASE("a bounded pool refuses, and goes on with what comes back") {
  static BlockPool<kBounded> pool;
  std::vector<void*> taken;
  while (void* block = pool.allocate(60000)) taken.push_back(block);
  CHECK(taken.size() == 4);
  CHECK(pool.allocate(1) == nullptr);
  CHECK(pool.allocate(65537) == nullptr);
  pool.release(taken[2], 60000);
  CHECK(pool.allocate(40000) == taken[2]);
}

TEST_CASE("blocks in use do not overlap, on several threads") {
  static BlockPool<BlockRules{.header = 0, .least = 9, .most = 24, .chunk = 64 << 10}> plain;
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 3; ++seed)
    threads.emplace_back([seed] {
      churn(
          seed, 3000, 200000, 16, [](size_t bytes) { return blocks.allocate(bytes); },
          [](void* block, size_t) { blocks.release(block); });
      churn(
          seed + 10, 3000, 100000, 64, [](size_t bytes) { return plain.allocate(bytes); },
          [](void* block, size_t bytes) { plain.release(block, bytes); });
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("pieces of an arena are zeroed, aligned and apart") {
  std::mt19937 random(2);
  Arena<65536> arena;
  Arena<0, 64> aligned;
  std::vector<DeferredFree> held;
  for (int i = 0; i < 400; ++i) {
    const size_t bytes = random() % (i % 50 == 0 ? 200000 : 3000);
    const bool of_first = random() % 2 == 0;
    auto* piece = of_first ? arena.allocate<unsigned char>(bytes) : aligned.allocate<unsigned char>(bytes);
    REQUIRE(piece != nullptr);
    REQUIRE(reinterpret_cast<uintptr_t>(piece) % (of_first ? 16 : 64) == 0);
    REQUIRE(std::all_of(piece, piece + bytes, [](unsigned char c) { return c == 0; }));
    const auto mark = static_cast<unsigned char>(1 + i % 255);
    memset(piece, mark, bytes);
    held.push_back({piece, bytes, mark});
  }
  for (const DeferredFree& h : held)
    REQUIRE(std::all_of(h.block, h.block + h.bytes, [&](unsigned char c) { return c == h.mark; }));
  CHECK_FALSE(arena.failed());
}
