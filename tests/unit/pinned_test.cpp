// SPDX-License-Identifier: Apache-2.0
//
// The pool of pinned memory: its arenas against a plain model, then growth, limits and what it says, on the stand-in.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>

#include "pipeline/gpu/arena.h"
#include "pipeline/gpu/kernels/image.h"
#include "pipeline/gpu/pinned.h"
#include "tests/unit/gpu_fixture.h"

using namespace resil;
using gpu::Arena;

namespace resil::gpu {
KernelImage kernel_image(Api) { return {nullptr, 0}; }
}  // namespace resil::gpu

namespace {

constexpr size_t kMiB = 1 << 20;

/// What an arena must be: pieces that do not overlap, and none lost.
class Model {
 public:
  explicit Model(uint32_t granules) : granules_(granules), nodes_(Arena::bookkeeping(granules)) {
    arena.open(nodes_.data(), granules);
  }
  bool acquire(uint32_t size) {
    const uint32_t first = arena.acquire(size);
    if (first == Arena::kNone) return false;
    REQUIRE(size <= granules_);
    REQUIRE(first <= granules_ - size);
    auto after = used.lower_bound(first);
    REQUIRE((after == used.end() || first + size <= after->first));
    if (after != used.begin()) {
      --after;
      REQUIRE(after->first + after->second <= first);
    }
    used[first] = size;
    in_use += size;
    return true;
  }
  void release(std::map<uint32_t, uint32_t>::iterator block) {
    REQUIRE(arena.release(block->first) == block->second);
    CHECK(arena.release(block->first) == 0);  // twice: nothing is done
    in_use -= block->second;
    used.erase(block);
  }
  /// Largest free piece, by the model.
  uint32_t largest() const {
    uint32_t at = 0, most = 0;
    for (const auto& [first, size] : used) {
      most = std::max(most, first - at);
      at = first + size;
    }
    return std::max(most, granules_ - at);
  }

  std::map<uint32_t, uint32_t> used;
  uint32_t in_use = 0;
  Arena arena;

 private:
  uint32_t granules_;
  std::vector<char> nodes_;
};

/// Standard error while it lives.
class Captured {
 public:
  Captured() : file_(memfd_create("stderr", 0)), kept_(dup(2)) { dup2(file_, 2); }
  ~Captured() { end(); }
  std::string end() {
    if (kept_ < 0) return "";
    dup2(kept_, 2);
    close(kept_);
    kept_ = -1;
    std::string text(static_cast<size_t>(lseek(file_, 0, SEEK_END)), 0);
    REQUIRE(pread(file_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
    close(file_);
    return text;
  }

 private:
  int file_, kept_;
};

}  // namespace

TEST_CASE("an arena gives out every granule, once, and becomes whole again", "[arena]") {
  for (const uint32_t granules : {1u, 7u, 8u, 100u, 4096u, 5000u}) {
    Model model(granules);
    CHECK(model.acquire(granules));  // all of it in one
    CHECK(!model.acquire(1));
    model.release(model.used.begin());
    CHECK(!model.acquire(granules + 1));
    for (uint32_t i = 0; i < granules; ++i) REQUIRE(model.acquire(1));
    CHECK(!model.acquire(1));
    while (!model.used.empty()) model.release(model.used.begin());
    CHECK(model.acquire(granules));
    CHECK(model.arena.largest() == 0);
  }
}

TEST_CASE("an arena over a long run: no piece overlaps, none is lost, little is wasted", "[arena]") {
  constexpr uint32_t kGranules = 1 << 14;
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    Model model(kGranules);
    std::mt19937 random(seed);
    unsigned refused = 0, unfair = 0;
    for (unsigned step = 0; step < 18000; ++step) {
      // Mostly small, some large; in phases that fill it and empty it.
      const uint32_t magnitude = random() % 12, size = 1 + random() % (1u << magnitude);
      const bool filling = step / 3000 % 2 == 0;
      if (random() % 4 < (filling ? 3u : 1u) || model.used.empty()) {
        const uint32_t largest = model.largest();
        if (!model.acquire(size)) {
          ++refused;
          unfair += largest >= size + size / 8 + 1;
        }
      } else {
        auto block = model.used.lower_bound(random() % kGranules);
        model.release(block == model.used.end() ? model.used.begin() : block);
      }
      if (step % 1000 == 0) REQUIRE(model.arena.largest() <= model.largest());
    }
    CHECK(refused > 0);
    CHECK(unfair == 0);  // a piece that is an eighth larger than asked for is always found
    while (!model.used.empty()) {
      auto block = model.used.lower_bound(random() % kGranules);
      model.release(block == model.used.end() ? model.used.begin() : block);
    }
    CHECK(model.acquire(kGranules));
  }
}

TEST_CASE("an arena refuses what is no block of it") {
  Model model(100);
  REQUIRE(model.acquire(10));
  REQUIRE(model.acquire(10));
  for (const uint32_t first : {1u, 9u, 11u, 20u, 50u, 99u, 100u, 1000u, UINT32_MAX})
    CHECK(model.arena.release(first) == 0);
  while (!model.used.empty()) model.release(model.used.begin());
  CHECK(model.acquire(100));
}

// --- The pool: one for the process, so these go on from each other ---

TEST_CASE("before it is prepared there is nothing to be had") {
  fakegpu_begin();
  gpu::Device& device = device_of(device_memory(4096));
  Captured captured;
  CHECK(gpu::pinned_acquire(device, 1) == nullptr);
  CHECK(captured.end() != "");
  CHECK(gpu::pinned_use().bytes == 0);
}

TEST_CASE("it grows by doubling, to its limit, and says once that it cannot grow further") {
  fakegpu_begin();
  gpu::Device& device = device_of(device_memory(4096));
  const size_t limit = 200 * kMiB;
  const uint64_t registered = calls_of("registered");
  REQUIRE(gpu::pinned_prepare(device, limit));
  REQUIRE(gpu::pinned_prepare(device, limit));
  CHECK_CALLS(calls_of("registered") == registered + 1);
  CHECK(gpu::pinned_use().bytes == 32 * kMiB);

  std::vector<void*> blocks;
  std::vector<size_t> sizes;
  for (size_t total = 0; total < limit; total += 8 * kMiB) {
    void* block = gpu::pinned_acquire(device, 8 * kMiB);
    REQUIRE(block != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(block) % 256 == 0);
    CHECK(is_registered(block));
    CHECK(gpu::classify(block, 8 * kMiB).memory == gpu::Memory::kHost);
    memset(block, 1, 8 * kMiB);
    blocks.push_back(block);
    if (sizes.empty() || sizes.back() != gpu::pinned_use().bytes) sizes.push_back(gpu::pinned_use().bytes);
  }
  CHECK(sizes == std::vector<size_t>{32 * kMiB, 64 * kMiB, 128 * kMiB, 200 * kMiB});
  CHECK(gpu::pinned_use().used == limit);
  CHECK(gpu::pinned_use().most_used == limit);
  CHECK(gpu::pinned_use().slabs == 4);

  const uint64_t refused = gpu::pinned_use().refused;
  Captured captured;
  for (int i = 0; i < 3; ++i) CHECK(gpu::pinned_acquire(device, 1) == nullptr);
  CHECK(gpu::pinned_acquire(device, limit + 1) == nullptr);
  CHECK(captured.end() == "");  // the test before has had the message
  CHECK(gpu::pinned_use().refused == refused + 4);

  for (void* block : blocks) gpu::pinned_release(block);
  gpu::pinned_release(nullptr);
  char local;
  gpu::pinned_release(&local);
  CHECK(gpu::pinned_use().used == 0);
  void* block = gpu::pinned_acquire(device, 72 * kMiB);  // a whole slab
  CHECK(block != nullptr);
  gpu::pinned_release(block);
  CHECK(gpu::pinned_use().bytes == limit);
  CHECK(gpu::pinned_use().most_used == limit);
}

TEST_CASE("threads take and give; a forked child has none of it") {
  fakegpu_begin();
  gpu::Device& device = device_of(device_memory(4096));
  std::vector<std::thread> threads;
  std::atomic<unsigned> wrong{0};
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&device, &wrong, t] {
      std::mt19937 random(t);
      std::vector<std::pair<unsigned char*, size_t>> mine;
      for (unsigned step = 0; step < 2000; ++step) {
        if (mine.size() < 20 && random() % 2 == 0) {
          const size_t bytes = 1 + random() % 20000;
          auto* block = static_cast<unsigned char*>(gpu::pinned_acquire(device, bytes));
          wrong += block == nullptr;
          if (block == nullptr) continue;
          block[0] = block[bytes - 1] = static_cast<unsigned char>(t);
          mine.emplace_back(block, bytes);
        } else if (!mine.empty()) {
          const auto [block, bytes] = mine.back();
          wrong += block[0] != t || block[bytes - 1] != t;
          gpu::pinned_release(block);
          mine.pop_back();
        }
      }
      for (const auto& [block, bytes] : mine) gpu::pinned_release(block);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(gpu::pinned_use().used == 0);
}

TEST_CASE("another device registers anew what went with its context") {
  fakegpu_begin();
  gpu::Device& device = device_of(device_memory(4096));
  auto* block = static_cast<char*>(gpu::pinned_acquire(device, 4096));
  REQUIRE(block != nullptr);
  strcpy(block, "still there");
  REQUIRE(FAKE(cuDevicePrimaryCtxReset_v2)(0) == CUDA_SUCCESS);
  CHECK(gpu::device_allocate(device, 1) == nullptr);
  CHECK(gpu::pinned_acquire(device, 1) == nullptr);
  fakegpu_begin();
  gpu::Device& next = device_of(device_memory(4096));
  CHECK(!is_registered(block));
  void* other = gpu::pinned_acquire(next, 4096);
  CHECK(other != nullptr);
  CHECK(is_registered(block));
  CHECK(std::string(block) == "still there");
}

TEST_CASE("a runtime that gives no more", "[.little]") {
  fakegpu_begin();
  gpu::Device& device = device_of(device_memory(4096));
  Captured captured;
  REQUIRE(gpu::pinned_prepare(device, 1024 * kMiB));  // 40 MiB can be had
  void* first = gpu::pinned_acquire(device, 30 * kMiB);
  void* second = gpu::pinned_acquire(device, 6 * kMiB);  // not 32 more, but these
  CHECK((first != nullptr && second != nullptr));
  CHECK(gpu::pinned_use().bytes <= 40 * kMiB);
  const uint64_t registered = calls_of("registered");
  for (int i = 0; i < 1000; ++i) CHECK(gpu::pinned_acquire(device, 30 * kMiB) == nullptr);
  const uint64_t tried = calls_of("registered") - registered;
  CHECK_CALLS((tried >= 6 && tried <= 22));  // the runtime is asked again, but not again and again
  const std::string said = captured.end();
  CHECK(said.find("no more pinned memory") != std::string::npos);
  CHECK(std::count(said.begin(), said.end(), '\n') == 1);
  gpu::pinned_release(first);
  CHECK(gpu::pinned_acquire(device, 20 * kMiB) != nullptr);
}
