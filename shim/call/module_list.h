// SPDX-License-Identifier: Apache-2.0
//
// The modules of this build, as the linker collected them. Unit tests define modules() themselves and pass fakes.
#pragma once

#include <span>

#include "shim/call/module.h"

namespace resil {

/// All registered modules in link order; empty when there is none. Constant, any thread, any context.
std::span<const Module* const> modules();

}  // namespace resil
