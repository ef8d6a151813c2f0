// SPDX-License-Identifier: Apache-2.0
//
// The bytes of one type as another: std::bit_cast, which g++ 10 does not have yet.
#pragma once

#include <type_traits>

namespace resil {

template <typename To, typename From>
constexpr To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<To> && std::is_trivially_copyable_v<From>);
#if __has_builtin(__builtin_bit_cast)
  return __builtin_bit_cast(To, from);
#else
  To to;  // not at compile time, then
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
#endif
}

}  // namespace resil
