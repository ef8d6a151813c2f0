// SPDX-License-Identifier: Apache-2.0
//
// Where memory lies, as far as accelerators are concerned.
#pragma once

#include <cstdint>

namespace resil::gpu {

enum class Api : uint8_t { kNone, kCuda, kHip };

/// Where a buffer lies. kManaged may be touched by host and device alike; the host's touch moves pages and waits for
/// kernels. kForeign: memory of a runtime that is recognised, and passed through (Level Zero and others), or memory
/// about which its runtime would say nothing. Pinned memory of resil's own is kHost.
enum class Memory : uint8_t { kHost, kPinned, kDevice, kManaged, kForeign };

/// May the host touch it? Managed memory only at a price, of foreign memory it is not known.
constexpr bool is_host(Memory memory) { return memory == Memory::kHost || memory == Memory::kPinned; }

}  // namespace resil::gpu
