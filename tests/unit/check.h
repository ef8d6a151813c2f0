// SPDX-License-Identifier: Apache-2.0
//
// Catch2 with REQUIRE, CHECK and their _FALSE twins of our own, to be included in its place. They hold and count as
// Catch's do, and show the values of numbers, texts and pointers; Catch's make three classes for each pair of types
// that is compared, which was a third of what a unit costs to compile. An exception within one ends its test case, as
// anywhere else.
#pragma once
#pragma GCC system_header  // signs are compared as the test writes them, as in Catch's

#include <catch2/catch.hpp>
#include <string>
#include <string_view>
#include <type_traits>

namespace unit {

// One side of a comparison, read only when the comparison fails: a pointer need not point to text, nor to anything.
struct Operand {
  enum class Kind : unsigned char { kOther, kSigned, kUnsigned, kReal, kBool, kCharacters, kText, kPointer, kApprox };

  template <typename T>
  static Operand of(const T& value) {
    Operand operand;
    if constexpr (std::is_same_v<T, bool>) {
      operand.kind = Kind::kBool;
      operand.natural = value;
    } else if constexpr (std::is_enum_v<T>) {
      operand.kind = Kind::kSigned;
      operand.number = static_cast<long long>(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      operand.kind = Kind::kReal;
      operand.real = static_cast<double>(value);
    } else if constexpr (std::is_integral_v<T>) {
      operand.kind = std::is_signed_v<T> ? Kind::kSigned : Kind::kUnsigned;
      operand.natural = static_cast<unsigned long long>(value);
    } else if constexpr (std::is_null_pointer_v<T>) {
      operand.kind = Kind::kPointer;
      operand.pointer = nullptr;
    } else if constexpr (std::is_same_v<T, Catch::Detail::Approx>) {
      operand.kind = Kind::kApprox;
      operand.pointer = &value;
    } else if constexpr (std::is_convertible_v<const T&, const char*>) {
      operand.kind = Kind::kCharacters;
      operand.characters = value;
    } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      operand.kind = Kind::kText;
      operand.text = value;
    } else if constexpr (std::is_convertible_v<const T&, const volatile void*>) {
      operand.kind = Kind::kPointer;
      operand.pointer = value;
    }
    return operand;
  }

  Kind kind = Kind::kOther;
  union {
    long long number;
    unsigned long long natural = 0;
    double real;
    const char* characters;
    const volatile void* pointer;
  };
  std::string_view text;
};

struct Outcome {
  bool holds;
  const char* comparison;  // null: left alone, as a truth value
  Operand left, right;
};

template <typename L>
struct Left {
  const L& left;

#define RESIL_UNIT_COMPARISON(COMPARISON)                                                                  \
  template <typename R>                                                                                    \
  Outcome operator COMPARISON(const R& right) const {                                                      \
    return {static_cast<bool>(left COMPARISON right), #COMPARISON, Operand::of(left), Operand::of(right)}; \
  }
  RESIL_UNIT_COMPARISON(==)
  RESIL_UNIT_COMPARISON(!=)
  RESIL_UNIT_COMPARISON(<)
  RESIL_UNIT_COMPARISON(<=)
  RESIL_UNIT_COMPARISON(>)
  RESIL_UNIT_COMPARISON(>=)
#undef RESIL_UNIT_COMPARISON

  operator Outcome() const { return {static_cast<bool>(left), nullptr, Operand::of(left), {}}; }
};

struct Split {
  template <typename L>
  Left<L> operator<=(const L& left) const {
    return {left};
  }
};

// catch_main.cpp. text: the expression as it is written. how: Catch's ResultDisposition.
void judge(const Outcome& outcome, const char* name, const char* text, const char* file, int line, int how);

}  // namespace unit

#undef REQUIRE
#undef CHECK
#undef REQUIRE_FALSE
#undef CHECK_FALSE
#define RESIL_UNIT_JUDGE(NAME, HOW, ...)                                                             \
  do {                                                                                               \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wparentheses\"")::unit::judge( \
        ::unit::Split() <= __VA_ARGS__, NAME, #__VA_ARGS__, __FILE__, __LINE__, HOW);                \
    _Pragma("GCC diagnostic pop")                                                                    \
  } while (false)
#define REQUIRE(...) RESIL_UNIT_JUDGE("REQUIRE", Catch::ResultDisposition::Normal, __VA_ARGS__)
#define CHECK(...) RESIL_UNIT_JUDGE("CHECK", Catch::ResultDisposition::ContinueOnFailure, __VA_ARGS__)
#define REQUIRE_FALSE(...) \
  RESIL_UNIT_JUDGE("REQUIRE_FALSE", Catch::ResultDisposition::Normal | Catch::ResultDisposition::FalseTest, __VA_ARGS__)
#define CHECK_FALSE(...)                                                                                             \
  RESIL_UNIT_JUDGE("CHECK_FALSE", Catch::ResultDisposition::ContinueOnFailure | Catch::ResultDisposition::FalseTest, \
                   __VA_ARGS__)
