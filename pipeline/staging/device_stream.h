// SPDX-License-Identifier: Apache-2.0
//
// The data of a buffer as the kernels want to have it described (pipeline/gpu/kernels/kernels.h): most layouts are one
// piece, or equally spaced ones, and need no table.
#pragma once

#include <cstdint>

#include "pipeline/gpu/kernels/kernels.h"
#include "pipeline/staging/packet.h"
#include "shim/model/datatype/type_map.h"

namespace resil::staging {

/// Tables with more entries than this are not made: 2 MiB.
constexpr uint64_t kMostEntries = 1 << 16;

/// Entries of the table for `count` elements; 0: none is needed. May be more than kMostEntries.
uint64_t stream_entries(const TypeMap& type, int64_t count);
/// The first `bytes` bytes of the stream of `count` elements at `buffer`. `table`: room for stream_entries, which the
/// device sees at `seen_at`; not touched when there are none.
gpu::KernelStream make_stream(const TypeMap& type, const void* buffer, int64_t count, uint64_t bytes,
                              gpu::KernelRun* table, uint64_t seen_at);

/// The same for blocks, one after the other.
uint64_t stream_entries(const Block* blocks, uint32_t count);
gpu::KernelStream make_stream(const Block* blocks, uint32_t count, const void* buffer, uint64_t bytes,
                              gpu::KernelRun* table, uint64_t seen_at);

}  // namespace resil::staging
