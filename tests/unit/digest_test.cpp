// SPDX-License-Identifier: Apache-2.0
//
// The digest: its definition written down once more, every variant that this CPU has against plain arithmetic, pieces,
// copies, helper threads, fork. tests/unit/digest_power_test.cpp is about what it detects.
#define XXH_INLINE_ALL
#define XXH_VECTOR 0  // scalar: no code in common with the variants
#include <xxhash.h>

#include "check.h"
#include "shim/base/digest/digest.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shim/base/digest/helpers.h"
#include "shim/base/digest/variant.h"

namespace {

using resil::digest;
using resil::kDigestLeaf;

std::vector<char> noise(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<char> data(bytes + 8);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = random();
    memcpy(&data[i], &word, 8);
  }
  data.resize(bytes);
  return data;
}

/// D as docs/CHECKSUM.md defines it, on its own.
uint64_t defined(const char* data, size_t bytes) {
  uint64_t sum = 0;
  for (size_t j = 0; j == 0 || j * 4096 < bytes; ++j) {
    const size_t length = bytes - j * 4096 < 4096 ? bytes - j * 4096 : 4096;
    uint64_t x = XXH3_64bits(data + j * 4096, length) ^ (0x6a09e667f3bcc908 + (j * 8192 + length) * 0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    sum += x ^ (x >> 31);
  }
  return sum;
}

std::vector<const resil::DigestVariant*> variants() {
  std::vector<const resil::DigestVariant*> all{&resil::digest_portable::variant};
#ifdef __x86_64__
  if (resil::digest_has_avx2()) all.push_back(&resil::digest_avx2::variant);
  if (resil::digest_has_avx512()) all.push_back(&resil::digest_avx512::variant);
#endif
  return all;
}

/// Digests with this variant until the end of the scope.
struct Use {
  explicit Use(const resil::DigestVariant& variant) { resil::digest_use(variant); }
  ~Use() { resil::digest_use(resil::digest_portable::variant); }
};

/// Allows helpers until the end of the scope.
struct Helpers {
  explicit Helpers(int count) { resil::allow_helpers(count); }
  ~Helpers() { resil::allow_helpers(0); }
};

TEST_CASE("values are fixed: processes of different builds compare them") {
  const std::vector<char> zeros(8192, 0);
  CHECK(digest(nullptr, 0) == 0xb8f438ff45a70944);
  CHECK(digest("a", 1) == 0x82b9bf1b7df9fdeb);
  CHECK(digest(zeros.data(), 8192) == 0x2f2c6414e1e78542);
}

TEST_CASE("every variant gives the defined value at every length and alignment") {
  const std::vector<char> data = noise(9000 + 64, 1);
  for (const resil::DigestVariant* variant : variants()) {
    INFO(variant->name);
    Use use(*variant);
    for (size_t bytes = 0; bytes <= 9000; ++bytes) {
      const size_t offset = bytes * 7 % 64;
      if (digest(&data[offset], bytes) != defined(&data[offset], bytes))
        FAIL("digest of " << bytes << " bytes at " << offset);
    }
    for (size_t offset = 0; offset < 64; ++offset)
      for (size_t bytes : {1, 8, 17, 240, 241, 1023, 4095, 4096, 4097, 8999})
        if (digest(&data[offset], bytes) != defined(&data[offset], bytes))
          FAIL("digest of " << bytes << " bytes at " << offset);
  }
}

template <class Number>
void look_beyond(const resil::DigestVariant& variant) {
  std::mt19937_64 random(7);
  for (size_t count = 0; count < 70; ++count)
    for (size_t shift = 0; shift < 3; ++shift) {
      std::vector<char> room(count * sizeof(Number) + shift);
      char* data = room.data() + shift;
      for (size_t i = 0; i < count; ++i) {
        const Number number = static_cast<Number>(static_cast<int64_t>(random())) * (random() % 2 ? 1 : 1e-30f);
        memcpy(data + i * sizeof(Number), &number, sizeof(Number));
      }
      CHECK(!variant.beyond(data, count * sizeof(Number), sizeof(Number)));
      for (size_t i = 0; i < count; ++i)
        for (const Number odd :
             {std::numeric_limits<Number>::infinity(), -std::numeric_limits<Number>::infinity(),
              std::numeric_limits<Number>::quiet_NaN(), -std::numeric_limits<Number>::signaling_NaN(),
              std::numeric_limits<Number>::max(), -std::numeric_limits<Number>::denorm_min()}) {
          Number before;
          memcpy(&before, data + i * sizeof(Number), sizeof(Number));
          memcpy(data + i * sizeof(Number), &odd, sizeof(Number));
          CHECK(variant.beyond(data, count * sizeof(Number), sizeof(Number)) == !std::isfinite(odd));
          memcpy(data + i * sizeof(Number), &before, sizeof(Number));
        }
    }
}

TEST_CASE("infinities and what is no number are seen at every place") {
  for (const resil::DigestVariant* variant : variants()) {
    INFO(variant->name);
    look_beyond<double>(*variant);
    look_beyond<float>(*variant);
  }
}

TEST_CASE("the variant for this CPU is one that it can run") {
  resil::digest_prepare();
  const resil::DigestVariant* best = variants().back();
  CHECK(std::string(resil::digest_variant().name) == best->name);
  Use use(resil::digest_variant());
}

TEST_CASE("nothing beside the buffer is read") {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), usable = 4 * page;
  void* mapped = mmap(nullptr, usable + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(mapped != MAP_FAILED);
  char* memory = static_cast<char*>(mapped);
  mprotect(memory, page, PROT_NONE);
  mprotect(memory + page + usable, page, PROT_NONE);
  const std::vector<char> data = noise(usable, 2);
  char* first = memory + page;
  memcpy(first, data.data(), usable);
  for (const resil::DigestVariant* variant : variants()) {
    INFO(variant->name);
    Use use(*variant);
    for (size_t bytes = 1; bytes <= usable; bytes += bytes < 600 ? 1 : 997) {
      const char* last = first + usable - bytes;
      if (digest(first, bytes) != defined(data.data(), bytes) ||
          digest(last, bytes) != defined(&data[usable - bytes], bytes))
        FAIL(bytes << " bytes");
    }
  }
  munmap(memory, usable + 2 * page);
}

TEST_CASE("leaves may be added in any order, and pieces may be cut anywhere") {
  const std::vector<char> data = noise(50000, 4);
  std::mt19937_64 random(5);
  resil::DigestStream stream;
  CHECK(stream.finish() == digest(nullptr, 0));
  for (int round = 0; round < 300; ++round) {
    const size_t bytes = round < 20 ? static_cast<size_t>(round) * 4096 / 2 : random() % data.size();
    const uint64_t whole = digest(data.data(), bytes);
    const size_t most = round % 3 == 0 ? 40 : round % 3 == 1 ? 5000 : 20000;
    for (size_t at = 0; at < bytes;) {
      size_t part = random() % (most + 1);
      part = part < bytes - at ? part : bytes - at;
      stream.add(part == 0 ? nullptr : &data[at], part);
      at += part;
    }
    if (stream.finish() != whole)  // and is empty again
      FAIL("a stream of " << bytes << " bytes");
    uint64_t sum = 0;
    const size_t leaves = bytes == 0 ? 1 : (bytes + kDigestLeaf - 1) / kDigestLeaf;
    for (size_t j = leaves; j-- > 0;)
      sum += resil::digest_leaf(&data[j * kDigestLeaf], j + 1 < leaves ? kDigestLeaf : bytes - j * kDigestLeaf, j);
    if (sum != whole) FAIL("leaves of " << bytes << " bytes");
  }
}

TEST_CASE("helpers only where cores are clearly free") {
  CHECK(resil::helper_count(1, 1, 1) == 0);
  CHECK(resil::helper_count(2, 1, 1) == 0);
  CHECK(resil::helper_count(3, 1, 1) == 0);
  CHECK(resil::helper_count(4, 1, 1) == 1);
  CHECK(resil::helper_count(64, 64, 1) == 0);
  CHECK(resil::helper_count(128, 64, 1) == 0);  // two hardware threads for a core
  CHECK(resil::helper_count(64, 4, 1) == 3);
  CHECK(resil::helper_count(64, 4, 16) == 0);
  CHECK(resil::helper_count(64, 4, 4) == 1);
  CHECK(resil::helper_count(64, 0, -3) == 3);
  CHECK(resil::helper_count(8, 1 << 30, 1 << 30) == 0);
}

TEST_CASE("helpers change no value", "[threads]") {
  const size_t bytes = resil::kDigestLarge + 3 * kDigestLeaf + 77;
  std::vector<char> data = noise(bytes, 6);
  const uint64_t alone = digest(data.data(), bytes);
  REQUIRE(alone == defined(data.data(), bytes));
  Helpers helpers(2);
  const uint64_t before = resil::helper_chunks();
  // Until helpers have taken part often: whether one gets a core in time is the scheduler's business.
  while (resil::helper_chunks() < before + 300) REQUIRE(digest(data.data(), bytes) == alone);
  // The buffer is the application's again as soon as the digest returns.
  for (int round = 0; round < 20; ++round) {
    data[static_cast<size_t>(round) * 200003 % bytes] ^= 1;
    const uint64_t changed = digest(data.data(), bytes);
    CHECK(changed == defined(data.data(), bytes));
  }
}

// A variant whose helper is in the middle of its chunk when the caller has done all others.
std::thread::id caller;
std::atomic<size_t> helper_claims, caller_chunks;

uint64_t late_helper(const char* data, size_t leaves, uint64_t first) {
  constexpr size_t kChunks = resil::kDigestLarge / kDigestLeaf / 32;
  if (std::this_thread::get_id() == caller) {
    while (helper_claims == 0) std::this_thread::yield();
    ++caller_chunks;
  } else {
    ++helper_claims;
    while (helper_claims + caller_chunks < kChunks) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i)  // needed for no pass, only for a failure if the caller does not wait
      std::this_thread::yield();
  }
  return resil::digest_portable::variant.whole(data, leaves, first);
}

TEST_CASE("a digest returns only when the last helper has done its chunk") {
  const std::vector<char> data = noise(resil::kDigestLarge, 8);
  caller = std::this_thread::get_id();
  helper_claims = caller_chunks = 0;
  const resil::DigestVariant variant = {"late", resil::digest_portable::variant.xxh3, late_helper};
  Helpers helpers(1);
  Use use(variant);
  CHECK(digest(data.data(), data.size()) == defined(data.data(), data.size()));
  CHECK(helper_claims > 0);
}

TEST_CASE("many threads digest large buffers at the same time", "[threads]") {
  Helpers helpers(2);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t seed = 10; seed < 14; ++seed)
    threads.emplace_back([seed, &wrong] {
      for (size_t round = 0; round < 6; ++round) {
        const std::vector<char> data = noise(resil::kDigestLarge + round * 12345, seed + round);
        wrong += digest(data.data(), data.size()) != defined(data.data(), data.size());
      }  // freed at once: a helper that still read it would be seen by the sanitizers
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("a child of fork has no helpers and digests alone") {
  const std::vector<char> data = noise(resil::kDigestLarge, 7);
  const uint64_t alone = defined(data.data(), data.size());
  Helpers helpers(1);
  REQUIRE(digest(data.data(), data.size()) == alone);
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    const uint64_t before = resil::helper_chunks();
    const bool right = digest(data.data(), data.size()) == alone;
    uint64_t sum = 0;
    const bool shared = resil::share_with_helpers(data.data(), data.size() / kDigestLeaf, &sum);
    _exit(right && !shared && resil::helper_chunks() == before ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(digest(data.data(), data.size()) == alone);
}

}  // namespace
