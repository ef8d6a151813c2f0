// SPDX-License-Identifier: Apache-2.0
//
// In place of the {fmt} of LAMMPS's own sources, which liblammps-dev does not have, and of Debian's newer one, which
// lacks what LAMMPS's headers name. Nothing here is ever called: these names stand in templates that nobody
// instantiates.
#pragma once

#include <string>

namespace fmt {
using string_view = const std::string&;
struct format_args {};
template <class... Arguments, class Format>
format_args make_args_checked(const Format&, Arguments&&...) {
  return {};
}
}  // namespace fmt
