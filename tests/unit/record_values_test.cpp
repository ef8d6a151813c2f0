// SPDX-License-Identifier: Apache-2.0
//
// How values of a recording are shown, and how far two of them are apart.

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "check.h"
#include "checksum/record/data.h"

using namespace resil::record;

namespace {

uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }
uint64_t bits(float value) { return std::bit_cast<uint32_t>(value); }

std::string text(ValueType type, uint64_t value) {
  char buffer[100];
  value_text(type, value, buffer, sizeof(buffer));
  return buffer;
}

}  // namespace

TEST_CASE("distance: steps of nextafter are units in the last place, across zero as well") {
  std::mt19937_64 random(7);
  for (double start : {0.0, 1.0, -1.0, 1e300, -5e-324, 3 * std::numeric_limits<double>::denorm_min(), -1e-310}) {
    double value = start;
    const uint64_t steps = 1 + random() % 50;
    for (uint64_t i = 0; i < steps; ++i) value = std::nextafter(value, std::numeric_limits<double>::infinity());
    uint64_t ulps = 0;
    REQUIRE(distance_in_ulps(ValueType::kDouble, bits(start), bits(value), &ulps));
    CHECK(ulps == steps);
    REQUIRE(distance_in_ulps(ValueType::kDouble, bits(value), bits(start), &ulps));
    CHECK(ulps == steps);
  }
  float value = -std::numeric_limits<float>::denorm_min();
  for (int i = 0; i < 5; ++i) value = std::nextafter(value, 1.0f);
  uint64_t ulps = 0;
  REQUIRE(distance_in_ulps(ValueType::kFloat, bits(-std::numeric_limits<float>::denorm_min()), bits(value), &ulps));
  CHECK(ulps == 5);
}

TEST_CASE("distance: the two zeros are none apart; NaN, digests and integers have none") {
  uint64_t ulps = 1;
  REQUIRE(distance_in_ulps(ValueType::kDouble, bits(0.0), bits(-0.0), &ulps));
  CHECK(ulps == 0);
  REQUIRE(distance_in_ulps(ValueType::kDouble, bits(-std::numeric_limits<double>::infinity()),
                           bits(std::numeric_limits<double>::infinity()), &ulps));
  CHECK(ulps == 2 * bits(std::numeric_limits<double>::infinity()));
  CHECK_FALSE(distance_in_ulps(ValueType::kDouble, bits(1.0), bits(std::nan("")), &ulps));
  CHECK_FALSE(distance_in_ulps(ValueType::kFloat, bits(std::nanf("")), bits(1.0f), &ulps));
  CHECK_FALSE(distance_in_ulps(ValueType::kDigest, 1, 2, &ulps));
  CHECK_FALSE(distance_in_ulps(ValueType::kSigned, 1, 2, &ulps));
}

TEST_CASE("text: floating-point numbers in hexadecimal and decimal, both exact") {
  CHECK(text(ValueType::kDouble, bits(3.0)) == "0x1.8p+1 (3)");
  CHECK(text(ValueType::kDouble, bits(0.1)) == "0x1.999999999999ap-4 (0.10000000000000001)");
  CHECK(text(ValueType::kFloat, bits(-0.5f)) == "-0x1p-1 (-0.5)");
  CHECK(text(ValueType::kSigned, static_cast<uint64_t>(-42)) == "-42");
  CHECK(text(ValueType::kUnsigned, ~uint64_t{0}) == "18446744073709551615");
  CHECK(text(ValueType::kDigest, 0xabc) == "digest 0000000000000abc");
  CHECK(text(ValueType::kNone, 7) == "nothing");
  CHECK(text(ValueType::kBytes, 0x4241) == "bytes 0000000000004241 (first lowest)");
}
