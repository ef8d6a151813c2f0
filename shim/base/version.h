// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace resil {
constexpr char kIdentity[] = "resil " RESIL_VERSION;  ///< what `strings libresil.so | grep '^resil '` and the tool find
constexpr const char* kVersionText = kIdentity + 6;  ///< from meson.build
}
