// SPDX-License-Identifier: Apache-2.0
//
// Whether a difference between partners has consequences: sequences of words as programs have them.
#include "detectors/replicas/consequence.h"

#include <memory>

#include "check.h"

using resil::replicas::Consequences;
using Verdict = Consequences::Verdict;

namespace {

Consequences::Kind kind(uint64_t call, uint64_t bytes = 8) { return {call * 1000003, call * 1000003 + bytes + 1}; }

std::unique_ptr<Consequences> fresh() { return std::make_unique<Consequences>(); }

}  // namespace

TEST_CASE("what differs from there on is real after 64 words") {
  auto words = fresh();
  CHECK(words->differs(kind(1), false) == Verdict::kOpened);
  for (int i = 1; i < 63; ++i) REQUIRE(words->differs(kind(1 + i % 3), false) == Verdict::kNothing);
  CHECK(words->differs(kind(1), false) == Verdict::kReal);
  CHECK(!words->open());
}

TEST_CASE("a kind that differs each time while others agree has no consequence, and is told once") {
  auto words = fresh();
  uint64_t data = 0;
  unsigned opened = 0, none = 0, known = 0;
  for (int step = 0; step < 1000; ++step) {
    const Verdict verdict = words->differs(kind(1), false);
    REQUIRE(verdict != Verdict::kReal);
    opened += verdict == Verdict::kOpened;
    known += verdict == Verdict::kKnown;
    if (words->counting()) none += words->agrees(kind(2), ++data) == Verdict::kNone;
  }
  CHECK(opened == 1);
  CHECK(none == 1);
  CHECK(known == 1000 - 65);  // 64 words agree after the second one, which has another value than the first
  CHECK(words->known() == 1000);
  CHECK(words->end() == Verdict::kNothing);
}

TEST_CASE("words that say the same each time say nothing") {
  auto words = fresh();
  REQUIRE(words->differs(kind(1), false) == Verdict::kOpened);
  for (int i = 0; i < 1000; ++i) REQUIRE(words->agrees(kind(2), 7) == Verdict::kNothing);
  for (int i = 0; i < 62; ++i) {
    REQUIRE(words->differs(kind(1), false) == Verdict::kNothing);
    REQUIRE(words->agrees(kind(2), 7) == Verdict::kNothing);
  }
  CHECK(words->differs(kind(1), false) == Verdict::kReal);
}

TEST_CASE("other calls, and the sum of one number, are a consequence at once") {
  auto words = fresh();
  CHECK(words->differs(kind(1), true) == Verdict::kReal);
  CHECK(words->differs(kind(2), false) == Verdict::kOpened);
  CHECK(words->differs(kind(3), true) == Verdict::kReal);
  CHECK(!words->open());
}

TEST_CASE("a difference that spreads after others were without consequence is real") {
  auto words = fresh();
  uint64_t data = 0;
  words->differs(kind(1), false);
  while (words->agrees(kind(2), ++data) != Verdict::kNone) {}
  CHECK(words->differs(kind(1), false) == Verdict::kKnown);
  CHECK(words->differs(kind(2), false) == Verdict::kOpened);
  CHECK(words->differs(kind(1), false) == Verdict::kKnown);
  Verdict verdict = Verdict::kNothing;
  for (int i = 0; i < 62 && verdict != Verdict::kReal; ++i) verdict = words->differs(kind(i % 2 ? 2 : 3), false);
  CHECK(verdict == Verdict::kReal);
}

TEST_CASE("where kinds that are known to differ come to differ alone, that is real") {
  auto words = fresh();
  uint64_t data = 0;
  words->differs(kind(1), false);
  words->differs(kind(2), false);
  while (words->agrees(kind(3), ++data) != Verdict::kNone) {}
  for (int turn = 0; turn < 500; ++turn) {
    REQUIRE(words->differs(kind(1), false) == Verdict::kKnown);
    REQUIRE(words->differs(kind(2), false) == Verdict::kKnown);
    REQUIRE(!words->open());
    REQUIRE(words->agrees(kind(3), ++data) == Verdict::kNothing);
  }
  for (int i = 0; i < 63; ++i) REQUIRE(words->differs(kind(1 + i % 2), false) == Verdict::kKnown);
  CHECK(words->differs(kind(1), false) == Verdict::kReal);
  CHECK(words->in_a_row() == 64);
}

TEST_CASE("a new kind that differs begins the count again") {
  auto words = fresh();
  uint64_t data = 0;
  words->differs(kind(1), false);
  for (int i = 0; i < 64; ++i) REQUIRE(words->agrees(kind(9), ++data) == Verdict::kNothing);
  words->differs(kind(2), false);
  for (int i = 0; i < 63; ++i) REQUIRE(words->agrees(kind(9), ++data) == Verdict::kNothing);
  CHECK(words->agrees(kind(9), ++data) == Verdict::kNone);
  CHECK(words->differing() == 2);
}

TEST_CASE("at the end eight words are enough, and none are not") {
  auto words = fresh();
  uint64_t data = 0;
  words->differs(kind(1), false);
  for (int i = 0; i < 8; ++i) words->agrees(kind(2), ++data);  // the first of a kind says nothing
  CHECK(words->end() == Verdict::kUndecided);
  words->differs(kind(3), false);
  for (int i = 0; i < 8; ++i) words->agrees(kind(2), ++data);
  CHECK(words->end() == Verdict::kNone);
  CHECK(words->end() == Verdict::kNothing);
}

TEST_CASE("a call whose data differs in each amount is one kind in the end") {
  auto words = fresh();
  uint64_t data = 0, opened = 0, real = 0;
  for (uint64_t bytes = 1; bytes < 2000; ++bytes) {
    const Verdict verdict = words->differs(kind(1, bytes), false);
    opened += verdict == Verdict::kOpened;
    real += verdict == Verdict::kReal;
    if (words->counting()) words->agrees(kind(2), ++data);
  }
  CHECK(opened == 1);
  CHECK(real == 0);
}

TEST_CASE("more kinds than are kept") {
  auto words = fresh();
  uint64_t data = 0;
  REQUIRE(words->differs(kind(1), false) == Verdict::kOpened);
  for (uint64_t call = 10; call < 100010; ++call) REQUIRE(words->agrees(kind(call), ++data) == Verdict::kNothing);
  Verdict verdict = Verdict::kNothing;
  for (uint64_t i = 0; i < 65 && verdict != Verdict::kNone; ++i) verdict = words->agrees(kind(2), ++data);
  CHECK(verdict == Verdict::kNone);
  CHECK(words->differs(kind(1), false) == Verdict::kKnown);
  for (uint64_t call = 10; call < 3010; ++call) {
    const Verdict one = words->differs(kind(call), false);
    REQUIRE(one != Verdict::kKnown);
  }
}
