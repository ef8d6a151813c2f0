// SPDX-License-Identifier: Apache-2.0
//
// Contributions of the tests of folds: elements in buffers that begin at odd addresses and end where the memory ends.
// RESIL_TEST_SEED=N tries other values than CI does:
//
//   for n in $(seq 100); do RESIL_TEST_SEED=$n build/tests/unit/fold_test || echo "seed $n"; done
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>

#include "check.h"
#include "pipeline/reduction/kernel.h"
#include "tests/unit/fold_oracle.h"

namespace fold_fixture {

using fold_oracle::Bytes;
using fold_oracle::TypeCase;
using resil::OpKind;
using resil::reduction::Mode;
using resil::reduction::Variant;

inline uint64_t seed(uint64_t test) {
  const char* chosen = getenv("RESIL_TEST_SEED");
  return test + (chosen != nullptr ? 1000 * strtoull(chosen, nullptr, 10) : 0);
}

/// `bytes` bytes, `skew` behind an aligned address; its own allocation, so that a sanitizer sees a step too far.
class Memory {
 public:
  Memory(size_t bytes, size_t skew) : all_(new unsigned char[bytes + skew]), skew_(skew) {}
  unsigned char* data() { return all_.get() + skew_; }

 private:
  std::unique_ptr<unsigned char[]> all_;
  size_t skew_;
};

struct Problem {
  const TypeCase& type;
  size_t ranks, count;
  std::vector<std::vector<Bytes>> values;  ///< [element][rank]
  std::vector<Memory> buffers;  ///< one for each rank

  Problem(const TypeCase& type_, size_t ranks_, size_t count_, unsigned wild, std::mt19937_64& random)
      : type(type_), ranks(ranks_), count(count_), values(count_, std::vector<Bytes>(ranks_)) {
    for (auto& element : values)
      for (size_t r = 0; r < ranks; ++r) {
        // Now and then what cancels an earlier one.
        if (r > 0 && random() % 6 == 0 && fold_oracle::is_floating(type.type)) {
          element[r] = element[random() % r];
          element[r][element[r].size() == 16 && type.type.kind == resil::BasicKind::kLongDouble
                         ? 9
                         : element[r].size() - 1] ^= 0x80;
        } else {
          element[r] = fold_oracle::random_element(type, wild == 3 && random() % 8 != 0 ? 1 : wild, random);
        }
      }
    for (size_t r = 0; r < ranks; ++r) buffers.emplace_back(count * type.extent, random() % 16);
    reset();
  }
  void reset() {
    for (size_t r = 0; r < ranks; ++r)
      for (size_t i = 0; i < count; ++i) memcpy(buffers[r].data() + i * type.extent, values[i][r].data(), type.extent);
  }
  std::vector<void*> pointers() {
    std::vector<void*> list;
    for (Memory& buffer : buffers) list.push_back(buffer.data());
    return list;
  }
};

/// Runs `body` with each variant that this CPU has.
template <class Body>
void for_each_variant(const Body& body) {
  const Variant* list = nullptr;
  const size_t count = resil::reduction::fold_variants(&list);
  for (size_t i = 0; i < count; ++i) {
    resil::reduction::fold_use(&list[i]);
    INFO("variant " << list[i].name);
    body();
  }
  resil::reduction::fold_use(nullptr);
}

/// Is element i of `got` what is wanted? Says so if not.
inline void check_element(const TypeCase& type, const Bytes& wanted, const unsigned char* got, const Problem& problem,
                          size_t i) {
  if (fold_oracle::same(type, wanted.data(), got)) return;
  std::string inputs;
  for (size_t r = 0; r < problem.ranks && r < 40; ++r)
    inputs += " " + fold_oracle::hex(problem.values[i][r].data(), type.extent);
  FAIL(type.name << ", " << problem.ranks << " ranks, element " << i << ": wanted "
                 << fold_oracle::hex(wanted.data(), type.extent) << ", got " << fold_oracle::hex(got, type.extent)
                 << ", of" << inputs);
}

}  // namespace fold_fixture
