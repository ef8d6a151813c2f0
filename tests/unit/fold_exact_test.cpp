// SPDX-License-Identifier: Apache-2.0
//
// Correctly rounded sums against MPFR's (fold_oracle.h), bit for bit, in any order of the contributions.
//
// A failure here means that `exact` is not exact: either a sum was rounded wrongly (the test of whether floating-point
// arithmetic suffices let one through, or the integers that decide otherwise are wrong), or it depends on the order of
// the ranks, which is the one thing it promises not to.
#include <algorithm>
#include <cmath>

#include "tests/unit/fold_fixture.h"

using namespace fold_fixture;
using namespace resil::reduction;
using resil::BasicKind;

namespace {

std::vector<TypeCase> summed() {
  std::vector<TypeCase> list;
  for (const TypeCase& type : fold_oracle::types())
    if (fold_exact_defined(OpKind::kSum, type.type)) list.push_back(type);
  return list;
}

void compare(Problem& problem, size_t target, std::mt19937_64& random) {
  const TypeCase& type = problem.type;
  std::vector<Bytes> wanted;
  for (const auto& element : problem.values) wanted.push_back(fold_oracle::exact_sum(type, element));
  for_each_variant([&] {
    problem.reset();
    Memory apart(problem.count * type.extent, random() % 16);
    const std::vector<void*> x = problem.pointers();
    unsigned char* result = target < problem.ranks ? problem.buffers[target].data() : apart.data();
    fold(OpKind::kSum, type.type, Mode::kExact, x.data(), problem.ranks, result, problem.count);
    for (size_t i = 0; i < problem.count; ++i) check_element(type, wanted[i], result + i * type.extent, problem, i);
  });
}

uint64_t bits(double value) {
  uint64_t all;
  memcpy(&all, &value, sizeof(all));
  return all;
}

/// By every variant, and as the last prefix.
double sum(std::vector<double> values) {
  const resil::BasicType type = {BasicKind::kFloating, {}, 8, 0, 0, 0};
  std::vector<double> prefixes(values.size());
  std::vector<const void*> x;
  std::vector<void*> results;
  for (size_t i = 0; i < values.size(); ++i) {
    x.push_back(&values[i]);
    results.push_back(&prefixes[i]);
  }
  fold_prefixes(OpKind::kSum, type, Mode::kExact, x.data(), x.size(), results.data(), 1);
  for_each_variant([&] {
    double result;
    fold(OpKind::kSum, type, Mode::kExact, x.data(), x.size(), &result, 1);
    CHECK(bits(result) == bits(prefixes.back()));
  });
  return prefixes.back();
}

}  // namespace

TEST_CASE("exact sums are the rounded ones") {
  std::mt19937_64 random(seed(11));
  for (const TypeCase& type : summed())
    for (int round = 0; round < 120; ++round) {
      const size_t ranks = round < 30 ? 1 + random() % 5 : 3 + random() % 31;
      Problem problem(type, ranks, random() % 24, random() % 4, random);
      compare(problem, random() % (ranks + 1), random);
    }
}

TEST_CASE("exact sums of many ranks and long vectors") {
  std::mt19937_64 random(seed(12));
  for (const TypeCase& type : summed())
    for (auto [ranks, count] : {std::pair<size_t, size_t>{3, 900}, {9, 600}, {24, 300}, {100, 40}, {1000, 4}})
      for (unsigned wild : {0u, 2u}) {
        Problem problem(type, ranks, count / type.extent * 4 + 1, wild, random);
        compare(problem, ranks, random);
      }
}

TEST_CASE("exact sums do not know the order of the ranks") {
  std::mt19937_64 random(seed(13));
  for (const TypeCase& type : summed())
    for (size_t ranks : {3, 4, 5, 6})
      for (unsigned wild : {0u, 1u, 2u, 3u}) {
        Problem problem(type, ranks, 5, wild, random);
        std::vector<void*> x = problem.pointers();
        std::sort(x.begin(), x.end());
        Bytes first(problem.count * type.extent), again(first.size());
        fold(OpKind::kSum, type.type, Mode::kExact, x.data(), ranks, first.data(), problem.count);
        while (std::next_permutation(x.begin(), x.end())) {
          fold(OpKind::kSum, type.type, Mode::kExact, x.data(), ranks, again.data(), problem.count);
          if (first != again)
            FAIL(type.name << ": " << fold_oracle::hex(first.data(), first.size()) << " and "
                           << fold_oracle::hex(again.data(), again.size()));
        }
      }
}

TEST_CASE("exact prefixes are the exact sums of the first ranks, in place or not") {
  std::mt19937_64 random(seed(14));
  for (const TypeCase& type : summed())
    for (int round = 0; round < 30; ++round) {
      const size_t ranks = 1 + random() % 12;
      Problem problem(type, ranks, 1 + random() % 6, random() % 4, random);
      std::vector<Memory> apart;
      std::vector<void*> x = problem.pointers(), results;
      for (size_t r = 0; r < ranks; ++r) {
        apart.emplace_back(problem.count * type.extent, random() % 16);
        results.push_back(round % 2 == 0 ? x[r] : apart[r].data());
      }
      fold_prefixes(OpKind::kSum, type.type, Mode::kExact, x.data(), ranks, results.data(), problem.count);
      for (size_t r = 0; r < ranks; ++r)
        for (size_t i = 0; i < problem.count; ++i) {
          const std::vector<Bytes> first(problem.values[i].begin(),
                                         problem.values[i].begin() + static_cast<long>(r) + 1);
          INFO("prefix of rank " << r);
          check_element(type, fold_oracle::exact_sum(type, first),
                        static_cast<unsigned char*>(results[r]) + i * type.extent, problem, i);
        }
    }
}

TEST_CASE("half-way cases that a hair decides") {
  // 1 + 2^-53 is half-way between two doubles; what is added decides, however small it is.
  const double half = 0x1p-53, hair = 0x1p-1074;
  CHECK(sum({1, half, 0}) == 1);
  CHECK(sum({1, half, hair}) == 1 + 0x1p-52);
  CHECK(sum({1, half, -hair}) == 1);
  CHECK(sum({1 + 0x1p-52, half, 0}) == 1 + 0x1p-51);
  CHECK(sum({1 + 0x1p-52, half, -hair}) == 1 + 0x1p-52);
  CHECK(sum({hair, -1, 1, half, -half, 1, half}) == 1 + 0x1p-52);
  // Sums, errors and the errors' errors cancel, these with a loss of their own.
  CHECK(sum({1, 0x1p-60, 0x1p-120, 0x1p-180, -0x1p-120, -0x1p-60, -1}) == 0x1p-180);
  CHECK(sum({1e300, 1, 1e-300, -1e300, 1e-300, -1}) == 2e-300);
  CHECK(sum({0x1p-1074, 0x1p-1022, -0x1.8p-1022}) == -0x1p-1023 + 0x1p-1074);
}

TEST_CASE("nothing overflows on the way") {
  const double most = 0x1.fffffffffffffp1023;
  CHECK(sum({most, most, -most}) == most);
  CHECK(sum({most, most, most, -most, -most}) == most);
  CHECK(sum({most, 0x1p969, 0}) == most);
  CHECK(sum({most, 0x1p970, 0}) == HUGE_VAL);  // half-way to the next power of two: to even, which is not there
  CHECK(sum({most, 0x1p970, -0x1p-1074}) == most);
  CHECK(sum({-most, -most, -most}) == -HUGE_VAL);
}

TEST_CASE("infinities, NaN and zeros in exact sums") {
  const double infinity = HUGE_VAL, nan = __builtin_nan("0x123");
  const uint64_t canonical = 0x7ff8000000000000;
  CHECK(sum({1, infinity, 2}) == infinity);
  CHECK(sum({1, -infinity, 0x1.fffffffffffffp1023, 0x1.fffffffffffffp1023}) == -infinity);
  CHECK(bits(sum({infinity, 1, -infinity})) == canonical);
  CHECK(bits(sum({1, nan, 2})) == canonical);
  CHECK(bits(sum({infinity, nan, -nan})) == canonical);
  CHECK(bits(sum({-0.0, -0.0, -0.0})) == bits(-0.0));
  CHECK(bits(sum({-0.0, 0.0, -0.0})) == bits(0.0));
  CHECK(bits(sum({1, -1, -0.0})) == bits(0.0));
  CHECK(bits(sum({-0.0, -0.0, 0x1p-1074, -0x1p-1074, -0.0, -0.0, -0.0, -0.0, -0.0, -0.0})) == bits(0.0));
}
