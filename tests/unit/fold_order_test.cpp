// SPDX-License-Identifier: Apache-2.0
//
// Folds in the canonical association, against a literal tree of slow operations (fold_oracle.h), bit for bit.
//
// A failure here means that two ranks, two builds or two CPUs could disagree on the result of a reduction, or that the
// result is not the one that docs/REDUCTIONS.md defines: a recording made with another build would no longer verify.
// One about variants or counts means that the loops differ; one about a single operator, that its rule for NaN, zeros,
// ties or overflow broke.
#include <algorithm>
#include <cmath>

#include "tests/unit/fold_fixture.h"

using namespace fold_fixture;
using namespace resil::reduction;
using resil::BasicKind;
using resil::BasicType;

namespace {

std::vector<size_t> some_ranks(std::mt19937_64& random) {
  std::vector<size_t> list{1, 2, 3, 4, 8};
#if defined(__SANITIZE_ADDRESS__)
  constexpr int kMore = 1;  // the run without sanitizers has them
#else
  constexpr int kMore = 4;
#endif
  for (int i = 0; i < kMore; ++i) list.push_back(5 + random() % 29);
  return list;
}

}  // namespace

TEST_CASE("which operators are defined on which types") {
  for (const TypeCase& type : fold_oracle::types()) {
    INFO(type.name);
    CHECK(element_extent(type.type) == type.extent);
    for (unsigned op = 0; op <= static_cast<unsigned>(OpKind::kUser); ++op) {
      INFO("operator " << op);
      const bool wanted = std::count(type.ops.begin(), type.ops.end(), static_cast<OpKind>(op)) != 0;
      CHECK(fold_defined(static_cast<OpKind>(op), type.type) == wanted);
      const bool exact = op == static_cast<unsigned>(OpKind::kSum) &&
                         (fold_oracle::is_floating(type.type) || fold_oracle::is_complex(type.type));
      CHECK(fold_exact_defined(static_cast<OpKind>(op), type.type) == exact);
    }
  }
  for (BasicKind kind : {BasicKind::kUnknown, BasicKind::kPacked, BasicKind::kCharacter})
    for (unsigned op = 0; op <= static_cast<unsigned>(OpKind::kUser); ++op)
      CHECK_FALSE(fold_defined(static_cast<OpKind>(op), {kind, {}, 1, 0, 0, 0}));
  CHECK_FALSE(fold_defined(OpKind::kMinloc, {BasicKind::kPair, BasicKind::kComplex, 16, 8, 8, 1}));  // MPI_2COMPLEX
  CHECK_FALSE(fold_defined(OpKind::kSum, {BasicKind::kFloating, {}, 12, 0, 0, 0}));
}

TEST_CASE("what is left to the library") {
  auto native = [](OpKind op, BasicKind kind, unsigned width) {
    return fold_is_native(op, {kind, {}, static_cast<uint16_t>(width), 0, 0, 0});
  };
  CHECK(native(OpKind::kSum, BasicKind::kSigned, 4));
  CHECK(native(OpKind::kProd, BasicKind::kUnsigned, 8));
  CHECK(native(OpKind::kMax, BasicKind::kSigned, 4));
  CHECK(native(OpKind::kBor, BasicKind::kByte, 1));
  CHECK(native(OpKind::kLxor, BasicKind::kLogical, 4));
  for (unsigned width : {1, 2}) {  // Open MPI's vectors saturate
    CHECK_FALSE(native(OpKind::kSum, BasicKind::kSigned, width));
    CHECK_FALSE(native(OpKind::kSum, BasicKind::kUnsigned, width));
  }
  for (unsigned width : {1, 2, 4, 8})  // MPICH compares as if there were a sign
    CHECK_FALSE(native(OpKind::kMin, BasicKind::kUnsigned, width));
  CHECK_FALSE(native(OpKind::kMin, BasicKind::kSigned, 8));  // MPI_OFFSET in Open MPI
  CHECK_FALSE(native(OpKind::kMax, BasicKind::kFloating, 8));
  CHECK_FALSE(native(OpKind::kMinloc, BasicKind::kPair, 8));
  CHECK_FALSE(native(OpKind::kSum, BasicKind::kLogical, 4));  // not defined at all
}

TEST_CASE("a fold is the canonical tree, for every operator and type") {
  std::mt19937_64 random(seed(1));
  for (const TypeCase& type : fold_oracle::types())
    for (OpKind op : type.ops)
      for (size_t ranks : some_ranks(random)) {
        INFO("operator " << static_cast<int>(op));
        Problem problem(type, ranks, random() % 3 == 0 ? random() % 3 : random() % 40, random() % 4, random);
        std::vector<Bytes> wanted;
        for (const auto& element : problem.values) wanted.push_back(fold_oracle::tree(type, op, element));
        if (ranks > 1 && type.type.kind == BasicKind::kPair)
          for (size_t i = 0; i < problem.count; ++i)
            REQUIRE(fold_oracle::same(type, wanted[i].data(), fold_oracle::winner(type, op, problem.values[i]).data()));
        const size_t target = random() % (ranks + 1);  // which contribution the result overwrites, if any
        for_each_variant([&] {
          problem.reset();
          Memory apart(problem.count * type.extent, random() % 16);
          memset(apart.data(), 0xa5, problem.count * type.extent);
          const std::vector<void*> x = problem.pointers();
          unsigned char* result = target < ranks ? problem.buffers[target].data() : apart.data();
          fold(op, type.type, Mode::kOrder, x.data(), ranks, result, problem.count);
          for (size_t i = 0; i < problem.count; ++i)
            check_element(type, wanted[i], result + i * type.extent, problem, i);
        });
      }
}

TEST_CASE("prefixes are folds of the first ranks, in place or not") {
  std::mt19937_64 random(seed(2));
  for (const TypeCase& type : fold_oracle::types())
    for (OpKind op : type.ops)
      for (size_t ranks : {size_t{1}, size_t{2}, size_t{3}, 4 + random() % 30}) {
        INFO("operator " << static_cast<int>(op));
        Problem problem(type, ranks, random() % 8, random() % 4, random);
        const bool in_place = random() % 2 == 0;
        for_each_variant([&] {
          problem.reset();
          std::vector<Memory> apart;
          for (size_t r = 0; r < ranks; ++r) apart.emplace_back(problem.count * type.extent, random() % 16);
          const std::vector<void*> x = problem.pointers();
          std::vector<void*> results;
          for (size_t r = 0; r < ranks; ++r) results.push_back(in_place ? x[r] : apart[r].data());
          fold_prefixes(op, type.type, Mode::kOrder, x.data(), ranks, results.data(), problem.count);
          for (size_t r = 0; r < ranks; ++r)
            for (size_t i = 0; i < problem.count; ++i) {
              const std::vector<Bytes> first(problem.values[i].begin(),
                                             problem.values[i].begin() + static_cast<long>(r) + 1);
              INFO("prefix of rank " << r);
              check_element(type, fold_oracle::tree(type, op, first),
                            static_cast<unsigned char*>(results[r]) + i * type.extent, problem, i);
            }
        });
      }
}

TEST_CASE("combine joins two neighbours, whichever of them it overwrites") {
  std::mt19937_64 random(seed(3));
  for (const TypeCase& type : fold_oracle::types())
    for (OpKind op : type.ops) {
      Problem problem(type, 2, random() % 30, random() % 4, random);
      for_each_variant([&] {
        for (bool high : {false, true}) {
          problem.reset();
          unsigned char *x = problem.buffers[0].data(), *y = problem.buffers[1].data();
          if (high) combine_into_high(op, type.type, x, y, problem.count);
          else combine(op, type.type, x, y, problem.count);
          for (size_t i = 0; i < problem.count; ++i)
            check_element(type, fold_oracle::tree(type, op, problem.values[i]), (high ? y : x) + i * type.extent,
                          problem, i);
        }
      });
    }
}

TEST_CASE("groups of 2^k ranks folded first give the same as all at once") {
  std::mt19937_64 random(seed(4));
  for (const TypeCase& type : fold_oracle::types())
    for (OpKind op : type.ops) {
      const size_t group = size_t{1} << random() % 5, ranks = 1 + random() % 70;
      Problem problem(type, ranks, 1 + random() % 5, random() % 4, random);
      const std::vector<void*> x = problem.pointers();
      Memory once(problem.count * type.extent, 0);
      fold(op, type.type, Mode::kOrder, x.data(), ranks, once.data(), problem.count);
      std::vector<Memory> parts;
      std::vector<void*> pointers;
      for (size_t first = 0; first < ranks; first += group) {
        parts.emplace_back(problem.count * type.extent, 3);
        pointers.push_back(parts.back().data());
        fold(op, type.type, Mode::kOrder, x.data() + first, std::min(group, ranks - first), pointers.back(),
             problem.count);
      }
      Memory twice(problem.count * type.extent, 1);
      fold(op, type.type, Mode::kOrder, pointers.data(), pointers.size(), twice.data(), problem.count);
      for (size_t i = 0; i < problem.count; ++i)
        CHECK(fold_oracle::same(type, once.data() + i * type.extent, twice.data() + i * type.extent));
    }
}

TEST_CASE("many ranks and long vectors: blocks of the cache meet seamlessly") {
  std::mt19937_64 random(seed(5));
  for (const TypeCase& type : fold_oracle::types()) {
    const OpKind op = type.ops[random() % type.ops.size()];
    for (const auto& [of, count] : {std::pair<size_t, size_t>{3, 1500}, {11, 700}, {16, 1100}, {300, 90}, {1500, 3}}) {
      const size_t ranks = of;  // a binding cannot be captured
      Problem problem(type, ranks, std::min(count, size_t{24000} / ranks), random() % 4, random);
      for_each_variant([&] {
        problem.reset();
        const std::vector<void*> x = problem.pointers();
        Memory result(problem.count * type.extent, random() % 16);
        fold(op, type.type, Mode::kOrder, x.data(), ranks, result.data(), problem.count);
        for (size_t i = 0; i < problem.count; ++i) {  // each element alone is computed without blocks
          std::vector<void*> alone;
          for (void* contribution : x) alone.push_back(static_cast<unsigned char*>(contribution) + i * type.extent);
          Bytes wanted(type.extent);
          fold(op, type.type, Mode::kOrder, alone.data(), ranks, wanted.data(), 1);
          check_element(type, wanted, result.data() + i * type.extent, problem, i);
        }
        for (size_t i = 0; i < problem.count; i += 1 + problem.count / 3)
          check_element(type, fold_oracle::tree(type, op, problem.values[i]), result.data() + i * type.extent, problem,
                        i);
      });
    }
  }
}

TEST_CASE("gaps inside pairs are the program's own") {
  struct Gapped {
    short value;
    unsigned char gap[2];
    int index;
  } x[2] = {{3, {1, 2}, 7}, {2, {3, 4}, 8}}, result = {0, {0xaa, 0xbb}, 0};
  const void* contributions[] = {&x[0], &x[1]};
  fold(OpKind::kMinloc, {BasicKind::kPair, BasicKind::kSigned, 6, 2, 4, 0}, Mode::kOrder, contributions, 2, &result, 1);
  CHECK(result.value == 2);
  CHECK(result.index == 8);
  CHECK(result.gap[0] == 0xaa);
  CHECK(result.gap[1] == 0xbb);
}

TEST_CASE("small numbers of a kind wrap, all of them") {
  for (unsigned a = 0; a < 256; ++a)
    for (unsigned b = 0; b < 256; ++b) {
      const uint8_t x = static_cast<uint8_t>(a), y = static_cast<uint8_t>(b);
      const void* contributions[] = {&x, &y};
      uint8_t sum, product;
      fold(OpKind::kSum, {BasicKind::kUnsigned, {}, 1, 0, 0, 0}, Mode::kOrder, contributions, 2, &sum, 1);
      fold(OpKind::kProd, {BasicKind::kSigned, {}, 1, 0, 0, 0}, Mode::kOrder, contributions, 2, &product, 1);
      if (sum != static_cast<uint8_t>(a + b) || product != static_cast<uint8_t>(a * b)) FAIL(a << " and " << b);
    }
}

TEST_CASE("pairs of value and index: ties, zeros, NaN") {
  struct Pair {
    double value;
    int index;
  };
  auto of = [](OpKind op, Pair a, Pair b) {
    const void* contributions[] = {&a, &b};
    Pair result;
    fold(op, {BasicKind::kPair, BasicKind::kFloating, 12, 8, 4, 0}, Mode::kOrder, contributions, 2, &result, 1);
    const void* turned[] = {&b, &a};
    Pair again;
    fold(op, {BasicKind::kPair, BasicKind::kFloating, 12, 8, 4, 0}, Mode::kOrder, turned, 2, &again, 1);
    CHECK(memcmp(&result, &again, 12) == 0);
    return result;
  };
  auto is = [](Pair got, double value, int index) {
    CHECK(memcmp(&got.value, &value, sizeof(value)) == 0);
    CHECK(got.index == index);
  };
  const double nan = __builtin_nan("");
  is(of(OpKind::kMinloc, {2, 9}, {2, 4}), 2, 4);
  is(of(OpKind::kMaxloc, {2, 9}, {2, -4}), 2, -4);
  is(of(OpKind::kMinloc, {-0.0, 5}, {0.0, 5}), -0.0, 5);
  is(of(OpKind::kMaxloc, {-0.0, 5}, {0.0, 5}), 0.0, 5);
  is(of(OpKind::kMinloc, {-0.0, 5}, {0.0, 3}), 0.0, 3);  // equal values: the pair with the least index, as it is
  is(of(OpKind::kMaxloc, {-0.0, 3}, {0.0, 5}), -0.0, 3);
  is(of(OpKind::kMinloc, {__builtin_nan("7"), 8}, {-HUGE_VAL, 1}), nan, 8);
  is(of(OpKind::kMaxloc, {-__builtin_nan("7"), 8}, {__builtin_nan("1"), 6}), nan, 6);
}
