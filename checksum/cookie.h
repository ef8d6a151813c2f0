// SPDX-License-Identifier: Apache-2.0
//
// The verifying module's word beside a request (Module::cookie).
#pragma once

#include <cstdint>

#include "shim/call/stages.h"

namespace resil {

/// The module's word beside a request, its cookie.
constexpr unsigned kChecksumWord = request_word(Stage::kChecksum);
/// What kind of operation a cookie belongs to; in its low three bits.
enum CookieKind : uint64_t {
  kCookieReceive = 1,
  kCookieSend = 2,
  kCookieCollective = 3,
  kCookieRma = 4,
  kCookieSendHandle = 5,
  kCookieMask = 7
};

}  // namespace resil
