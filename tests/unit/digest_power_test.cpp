// SPDX-License-Identifier: Apache-2.0
//
// What the digest detects, and what the compatibility fingerprint does not: damage of the kinds that transports do,
// injected into messages like those of real codes. Seeded, so that a failure can be repeated.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "shim/base/digest/compat.h"
#include "shim/base/digest/digest.h"

namespace {

using resil::compat_fingerprint;
using resil::digest;

constexpr int kInjections = 10000;
constexpr size_t kLine = 64, kBytes = 16384;  // four leaves

using Message = std::vector<unsigned char>;
using Random = std::mt19937_64;

/// Fields of doubles: random, few distinct values (+1, -1), half zero, constant but for the ends, small integers.
Message field(int kind, Random& random) {
  std::vector<double> values(kBytes / 8);
  std::normal_distribution<double> normal;
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = normal(random);
    const bool end = i == 0 || i + 1 == values.size();
    const double kinds[] = {x, x < 0 ? -1.0 : 1.0, x < 0 ? 0.0 : x, end ? x : 300.0, std::trunc(4 * x)};
    values[i] = kinds[kind];
  }
  Message message(kBytes);
  memcpy(message.data(), values.data(), kBytes);
  return message;
}

void swap_blocks(Message& m, size_t block, size_t a, size_t b) {
  std::swap_ranges(m.begin() + static_cast<long>(a * block), m.begin() + static_cast<long>((a + 1) * block),
                   m.begin() + static_cast<long>(b * block));
}

struct Damage {
  const char* name;
  std::function<void(Message&, Random&)> inflict;
};

const Damage kDamages[] = {
    {"a bit flipped", [](Message& m, Random& r) { m[r() % kBytes] ^= static_cast<unsigned char>(1u << (r() % 8)); }},
    {"the same bit flipped in two words",
     [](Message& m, Random& r) {
       const size_t bit = r() % 64, a = r() % (kBytes / 8), b = r() % (kBytes / 8);
       for (size_t word : {a, b}) m[word * 8 + bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
     }},
    {"two words swapped", [](Message& m, Random& r) { swap_blocks(m, 8, r() % (kBytes / 8), r() % (kBytes / 8)); }},
    {"two lines swapped",
     [](Message& m, Random& r) { swap_blocks(m, kLine, r() % (kBytes / kLine), r() % (kBytes / kLine)); }},
    {"two leaves swapped", [](Message& m, Random& r) { swap_blocks(m, resil::kDigestLeaf, r() % 4, r() % 4); }},
    {"the message rotated",
     [](Message& m, Random& r) { std::rotate(m.begin(), m.begin() + static_cast<long>(r() % kBytes), m.end()); }},
    {"a line rotated",
     [](Message& m, Random& r) {
       const auto line = m.begin() + static_cast<long>(r() % (kBytes / kLine) * kLine);
       std::rotate(line, line + static_cast<long>(8 * (1 + r() % 7)), line + kLine);
     }},
    {"a line zeroed", [](Message& m, Random& r) { memset(&m[r() % (kBytes / kLine) * kLine], 0, kLine); }},
    {"the end zeroed",
     [](Message& m, Random& r) {
       const size_t from = r() % kBytes;
       memset(&m[from], 0, kBytes - from);
     }},
    {"a line doubled over another",
     [](Message& m, Random& r) {
       const size_t from = r() % (kBytes / kLine) * kLine, to = r() % (kBytes / kLine) * kLine;
       memmove(&m[to], &m[from], kLine);
     }},
    {"a leaf doubled over another",
     [](Message& m, Random& r) {
       const size_t from = r() % 4 * resil::kDigestLeaf, to = r() % 4 * resil::kDigestLeaf;
       memmove(&m[to], &m[from], resil::kDigestLeaf);
     }},
};

struct Count {
  int injected = 0, missed = 0;
};

/// Injects until `kInjections` have changed the message, and counts those that left `value` as it was.
Count inject(const Damage& damage, const std::function<uint64_t(const Message&)>& value) {
  Random random(42);
  Count count;
  for (int kind = 0; count.injected < kInjections; kind = (kind + 1) % 5) {
    const Message message = field(kind, random);
    const uint64_t before = value(message);
    for (int i = 0; i < 100; ++i) {
      Message damaged = message;
      damage.inflict(damaged, random);
      if (damaged == message) continue;
      ++count.injected;
      count.missed += value(damaged) == before;
    }
  }
  return count;
}

uint64_t digest_of(const Message& m) { return digest(m.data(), m.size()); }
uint64_t fingerprint_of(const Message& m) { return compat_fingerprint(m.data(), m.size()); }

TEST_CASE("the digest misses none of ten thousand damages of each kind", "[slow]") {
  resil::digest_prepare();
  for (const Damage& damage : kDamages) {
    INFO(damage.name);
    CHECK(inject(damage, digest_of).missed == 0);
  }
}

TEST_CASE("truncated, extended and empty messages of zeros differ") {
  const Message zeros(3 * resil::kDigestLeaf, 0);
  std::vector<uint64_t> seen;
  for (size_t bytes = 0; bytes <= zeros.size(); ++bytes) seen.push_back(digest(zeros.data(), bytes));
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  CHECK(std::count(seen.begin(), seen.end(), 0u) == 0);
}

TEST_CASE("equal leaves do not cancel, whatever their number") {
  // XOR of leaves would give 0 for an even number of equal ones.
  const Message leaf(resil::kDigestLeaf, 0x5a);
  std::vector<uint64_t> seen;
  uint64_t sum = 0;
  for (uint64_t j = 0; j < 100000; ++j) {
    sum += resil::digest_leaf(leaf.data(), leaf.size(), j);
    seen.push_back(sum);
  }
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

TEST_CASE("the compatibility fingerprint is what the codes compute") {
  CHECK(resil::compat_crc32("123456789", 9) == 0xcbf43926);  // the check value of CRC-32/ISO-HDLC
  CHECK(resil::compat_crc32("", 0) == 0);
  Random random(1);
  const Message m = field(0, random);
  uint64_t expected = 0;
  for (size_t at = 0; at < 1000; at += 8) expected ^= resil::compat_crc32(&m[at], 8);
  CHECK(compat_fingerprint(m.data(), 1000) == expected);
  for (size_t tail = 1; tail < 8; ++tail)
    CHECK(compat_fingerprint(m.data(), 1000 + tail) == (expected ^ resil::compat_crc32(&m[1000], tail)));
  CHECK(compat_fingerprint(nullptr, 0) == 0);
  CHECK(resil::compat_salt(3, 2) == 2003);
}

TEST_CASE("the compatibility fingerprint misses every permutation of words, the digest none") {
  Random random(7);
  Message message = field(0, random);
  const uint64_t fingerprint = fingerprint_of(message), exact = digest_of(message);
  std::vector<uint64_t> words(kBytes / 8);
  memcpy(words.data(), message.data(), kBytes);
  for (int i = 0; i < 1000; ++i) {
    std::shuffle(words.begin(), words.end(), random);
    memcpy(message.data(), words.data(), kBytes);
    CHECK(fingerprint_of(message) == fingerprint);
    CHECK(digest_of(message) != exact);
  }
}

TEST_CASE("the compatibility fingerprint misses pairs of equal changes and words that come twice", "[slow]") {
  for (const Damage& damage : kDamages) {
    const std::string name = damage.name;
    INFO(name);
    const Count count = inject(damage, fingerprint_of);
    const auto is = [&name](const char* part) { return name.find(part) != name.npos; };
    if (name == "the message rotated")  // by whole words or not
      CHECK(count.missed > 0);
    else if (is("swapped") || is("rotated") || is("two words")) CHECK(count.missed == count.injected);
    else if (name == "a bit flipped") CHECK(count.missed == 0);
  }
}

TEST_CASE("packet 1000 of tag 0 has the salt of packet 0 of tag 1") {
  CHECK(resil::compat_salt(1000, 0) == resil::compat_salt(0, 1));
  // Two halo packets with the same values in another order, as opposite faces of a symmetric field have them.
  Random random(9);
  const Message first = field(0, random);
  Message second = first;
  std::reverse(reinterpret_cast<uint64_t*>(second.data()), reinterpret_cast<uint64_t*>(second.data() + kBytes));
  // Delivered in each other's slots: each is checked with the salt of the slot in which it arrived.
  const uint64_t sent = fingerprint_of(first) ^ resil::compat_salt(1000, 0);
  const uint64_t arrived = fingerprint_of(second) ^ resil::compat_salt(0, 1);
  CHECK(sent == arrived);
  CHECK(digest_of(first) != digest_of(second));
}

}  // namespace
