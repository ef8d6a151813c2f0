// SPDX-License-Identifier: Apache-2.0
//
// Are two functions called alike: as many arguments, each of the same size and kind (pointer or number)?
#pragma once

#include <cstddef>
#include <type_traits>

template <class Ours, class Theirs>
constexpr bool alike_value =
    sizeof(Ours) == sizeof(Theirs) && std::is_class_v<Ours>&& std::is_class_v<Theirs>&& std::is_trivially_copyable_v<
                                          Ours>&& std::is_trivially_copyable_v<Theirs>;
template <class Ours, class Theirs>
requires(!std::is_class_v<Ours>) constexpr bool alike_value<Ours, Theirs> =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
    (std::is_pointer_v<Ours> || std::is_integral_v<Ours>)&&(std::is_pointer_v<Theirs> || std::is_integral_v<Theirs> ||
                                                            std::is_enum_v<Theirs>);

template <class Ours, class Theirs>
struct AlikeFunction : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct AlikeFunction<R (*)(A...), S (*)(B...)>
    : std::bool_constant<alike_value<R, S> && (alike_value<A, B> && ...)> {
};

/// Written out in a test of the test: these differ.
static_assert(!AlikeFunction<int (*)(int), int (*)(void*)>::value);
static_assert(!AlikeFunction<int (*)(int), int (*)(long)>::value);
static_assert(!AlikeFunction<int (*)(int), int (*)(int, int)>::value);
static_assert(AlikeFunction<int (*)(void*, unsigned), int (*)(const char*, int)>::value);

#define SAME_PLACE(ours, our_member, theirs, their_member)                      \
  static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member) && \
                sizeof(ours::our_member) == sizeof(theirs::their_member))
