// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace resil {
constexpr const char* kVersionText = RESIL_VERSION;  ///< from meson.build
}
