// SPDX-License-Identifier: Apache-2.0
//
// Which collective a call is, whatever its variant: blocking, nonblocking, persistent, large-count, v and w.
#pragma once

#include <cstddef>

#include "shim/model/call_info.h"

namespace resil::collective {

enum class Form : uint8_t {
  kNone,  ///< moves no data that could be checked: barriers, creation of communicators, ...
  kBcast,
  kGather,
  kScatter,
  kAllgather,
  kAlltoall,
  kReduce,
  kAllreduce,
  kReduceScatter,
  kScan,
  kExscan,
  kNeighborAllgather,
  kNeighborAlltoall,
};

namespace form_detail {

/// "MPI_Ialltoallv_c" -> "alltoallv", compared with `wanted` up to a v or w at its end.
constexpr bool is(const char* name, const char* wanted, bool nonblocking) {
  size_t length = 0, at = 0;
  while (name[length] != 0) ++length;
  auto cut = [&](const char* end, size_t bytes) {
    if (length <= bytes) return;
    for (size_t i = 0; i < bytes; ++i)
      if (name[length - bytes + i] != end[i]) return;
    length -= bytes;
  };
  auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  cut("_c", 2);
  cut("_init", 5);
  at = nonblocking ? 5 : 4;
  for (; *wanted != 0; ++wanted, ++at)
    if (at >= length || lower(name[at]) != *wanted) return false;
  return at == length || (at + 1 == length && (name[at] == 'v' || name[at] == 'w'));
}

constexpr Form find(const CallInfo& info) {
  constexpr const char* kNames[] = {
      "bcast",     "gather",         "scatter", "allgather", "alltoall",           "reduce",
      "allreduce", "reduce_scatter", "scan",    "exscan",    "neighbor_allgather", "neighbor_alltoall"};
  if (!(info.attributes & kCallCollective)) return Form::kNone;
  const bool nonblocking = (info.attributes & kCallStarts) && !(info.attributes & kCallPersistent);
  for (size_t i = 0; i < sizeof(kNames) / sizeof(kNames[0]); ++i)
    if (is(info.name, kNames[i], nonblocking)) return static_cast<Form>(i + 1);
  return is(info.name, "reduce_scatter_block", nonblocking) ? Form::kReduceScatter : Form::kNone;
}

struct Table {
  Form of[kCallCount];
  constexpr Table() : of() {
    for (size_t i = 0; i < kCallCount; ++i) of[i] = find(kCallInfo[i]);
  }
};

inline constexpr Table kTable;

}  // namespace form_detail

constexpr Form form_of(CallId id) { return form_detail::kTable.of[static_cast<unsigned>(id)]; }

static_assert(form_of(CallId::kMPI_Ialltoallw) == Form::kAlltoall && form_of(CallId::kMPI_Scan) == Form::kScan &&
              form_of(CallId::kMPI_Neighbor_alltoallw_init_c) == Form::kNeighborAlltoall &&
              form_of(CallId::kMPI_Ireduce_scatter_block) == Form::kReduceScatter &&
              form_of(CallId::kMPI_Barrier) == Form::kNone && form_of(CallId::kMPI_Comm_split) == Form::kNone);

constexpr bool is_reduction(Form form) { return form >= Form::kReduce && form <= Form::kExscan; }

}  // namespace resil::collective
