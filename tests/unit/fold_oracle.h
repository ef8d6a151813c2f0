// SPDX-License-Identifier: Apache-2.0
//
// What reductions must give, worked out slowly and in another way than in the library: floating-point values by MPFR
// with the format's precision and range, integers in 128 bits, pairs by looking for the winner among all contributions.
// Shares no code with pipeline/reduction but the names of types and operators.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "pipeline/reduction/fold.h"

namespace fold_oracle {

using resil::BasicKind;
using resil::BasicType;
using resil::OpKind;

using Bytes = std::vector<unsigned char>;

struct TypeCase {
  std::string name;
  BasicType type;
  size_t extent;
  std::vector<OpKind> ops;  ///< those that are defined
};

/// All predefined types that there can be.
const std::vector<TypeCase>& types();
/// How the parts of floating and complex types are rounded; false for other types.
bool is_floating(const BasicType& type);
bool is_complex(const BasicType& type);

/// One random element: values over the whole range, near each other, opposite ones, ties, zeros, subnormals, infinities
/// and NaNs with payloads, as `wild` (0 to 3) allows: 0 ordinary values of one magnitude, 1 the whole range of finite
/// ones, 2 few digits (ties), 3 everything. Padding is noise.
Bytes random_element(const TypeCase& type, unsigned wild, std::mt19937_64& random);

/// a op b.
Bytes apply(const TypeCase& type, OpKind op, const Bytes& a, const Bytes& b);
/// What the canonical tree says of these contributions, literally.
Bytes tree(const TypeCase& type, OpKind op, const std::vector<Bytes>& contributions);
/// MINLOC and MAXLOC in one look at all of them (two at least).
Bytes winner(const TypeCase& type, OpKind op, const std::vector<Bytes>& contributions);
/// The rounded sum of floating or complex contributions.
Bytes exact_sum(const TypeCase& type, const std::vector<Bytes>& contributions);
/// One contribution alone: itself, its padding zero.
Bytes alone(const TypeCase& type, const Bytes& element);

/// Are the bytes that belong to the type the same? (Gaps in pairs do not.)
bool same(const TypeCase& type, const unsigned char* a, const unsigned char* b);
std::string hex(const unsigned char* bytes, size_t count);

}  // namespace fold_oracle
