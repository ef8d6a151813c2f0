// SPDX-License-Identifier: Apache-2.0
//
// See calls.h. Everything here happens in the compiler.

#include "detectors/hang/slots/calls.h"

#include <initializer_list>

namespace resil::hang {

static_assert(kCallCount <= 1024, "call ids in signatures have 10 bits");

namespace {

constexpr bool starts_with(const char* text, const char* prefix) {
  while (*prefix != 0)
    if (*text++ != *prefix++) return false;
  return true;
}

constexpr bool equal(const char* a, const char* b) { return starts_with(a, b) && starts_with(b, a); }

/// Is the function of that name, or its `_c` twin?
constexpr bool is(const char* name, const char* wanted) {
  return equal(name, wanted) || (starts_with(name, wanted) && [&] {
           while (*wanted != 0) ++name, ++wanted;
           return equal(name, "_c");
         }());
}

constexpr bool is_any(const char* name, std::initializer_list<const char*> list) {
  for (const char* wanted : list)
    if (is(name, wanted)) return true;
  return false;
}

/// Does the collective's name, without MPI_, a leading I and the endings _init and _c, equal `base`?
constexpr bool is_form(const char* name, const char* base) {
  name += 4;  // MPI_
  if (*name == 'I' && name[1] != 'n') {
    ++name;
    if (*name != base[0] + ('a' - 'A')) return false;
    ++name, ++base;
  }
  while (*base != 0)
    if (*name++ != *base++) return false;
  return equal(name, "") || equal(name, "_c") || equal(name, "_init") || equal(name, "_init_c");
}

struct Named {
  const char* base;
  Kind kind;
};
constexpr Named kForms[] = {
    {"Barrier", Kind::kBarrier},
    {"Bcast", Kind::kBcast},
    {"Reduce", Kind::kReduce},
    {"Allreduce", Kind::kAllreduce},
    {"Gather", Kind::kGather},
    {"Gatherv", Kind::kGatherv},
    {"Scatter", Kind::kScatter},
    {"Scatterv", Kind::kScatterv},
    {"Allgather", Kind::kAllgather},
    {"Allgatherv", Kind::kVector},
    {"Alltoall", Kind::kAlltoall},
    {"Alltoallv", Kind::kVector},
    {"Alltoallw", Kind::kVector},
    {"Reduce_scatter", Kind::kReduceScatter},
    {"Reduce_scatter_block", Kind::kReduceScatterBlock},
    {"Scan", Kind::kScan},
    {"Exscan", Kind::kScan},
};

constexpr Kind kind_of(const CallInfo& info) {
  const char* name = info.name;
  if (info.attributes & kCallCollective) {
    for (const Named& form : kForms)
      if (is_form(name, form.base)) return form.kind;
    return Kind::kNeighbor;
  }
  if (is_any(name, {"MPI_Comm_create_group", "MPI_Comm_create_from_group", "MPI_Intercomm_create_from_groups",
                    "MPI_Comm_spawn", "MPI_Comm_spawn_multiple", "MPI_Comm_accept", "MPI_Comm_connect", "MPI_Comm_join",
                    "MPIX_Comm_shrink", "MPIX_Comm_ishrink"}))
    return Kind::kNone;  // over a group, with another world, or over those that are left
  if (is(name, "MPI_Intercomm_create")) return Kind::kBetween;
  if ((info.attributes & kCallCreatesComm) ||
      is_any(name, {"MPI_Win_allocate", "MPI_Win_allocate_shared", "MPI_Win_create", "MPI_Win_create_dynamic"}))
    return Kind::kCreate;
  if (is_any(name, {"MPI_Comm_free", "MPI_Comm_disconnect"})) return Kind::kRelease;
  if (is_any(name, {"MPI_File_read_ordered", "MPI_File_write_ordered", "MPI_File_read_ordered_begin",
                    "MPI_File_write_ordered_begin", "MPI_File_read_ordered_end", "MPI_File_write_ordered_end"}))
    return Kind::kOrdered;
  if (is_any(name, {"MPI_File_close",
                    "MPI_File_set_size",
                    "MPI_File_preallocate",
                    "MPI_File_set_view",
                    "MPI_File_seek_shared",
                    "MPI_File_set_atomicity",
                    "MPI_File_sync",
                    "MPI_File_read_all",
                    "MPI_File_write_all",
                    "MPI_File_read_at_all",
                    "MPI_File_write_at_all",
                    "MPI_File_read_all_begin",
                    "MPI_File_write_all_begin",
                    "MPI_File_read_at_all_begin",
                    "MPI_File_write_at_all_begin",
                    "MPI_File_read_all_end",
                    "MPI_File_write_all_end",
                    "MPI_File_read_at_all_end",
                    "MPI_File_write_at_all_end",
                    "MPI_File_iread_all",
                    "MPI_File_iwrite_all",
                    "MPI_File_iread_at_all",
                    "MPI_File_iwrite_at_all"}))
    return Kind::kFile;
  return is(name, "MPI_File_open") ? Kind::kFile : is(name, "MPI_Finalize") ? Kind::kFinalize : Kind::kNone;
}

constexpr SendMode mode_of(const char* name) {
  const char* base = name + 4 + (name[4] == 'I' && name[5] != 'n');
  return (*base | 0x20) == 'b'                              ? SendMode::kBuffered
         : (*base | 0x20) == 'r' && (base[1] | 0x20) == 's' ? SendMode::kReady
         : (*base | 0x20) == 's' && (base[1] | 0x20) == 's' ? SendMode::kSynchronous
                                                            : SendMode::kStandard;
}

constexpr Role role_of(const CallInfo& info, Kind kind) {
  const uint32_t has = info.attributes;
  const char* name = info.name;
  const bool starts = (has & kCallStarts) != 0, persistent = (has & kCallPersistent) != 0;
  if (has & kCallPartitioned) return Role::kPartitioned;
  if ((kind == Kind::kFile || kind == Kind::kOrdered) && !is(name, "MPI_File_open")) return Role::kFile;
  if (is(name, "MPI_Finalize")) return Role::kFinalize;
  if (is_any(name, {"MPI_Win_fence", "MPI_Win_free"})) return Role::kWindow;
  if (is_any(name, {"MPI_Win_post", "MPI_Win_start", "MPI_Win_complete", "MPI_Win_wait", "MPI_Win_lock",
                    "MPI_Win_lock_all", "MPI_Win_unlock", "MPI_Win_unlock_all", "MPI_Win_flush", "MPI_Win_flush_all",
                    "MPI_Win_flush_local", "MPI_Win_flush_local_all"}))
    return Role::kSync;
  if (is(name, "MPI_Win_test")) return Role::kSyncPoll;
  if (is_any(name, {"MPI_Put", "MPI_Get", "MPI_Accumulate", "MPI_Get_accumulate", "MPI_Fetch_and_op",
                    "MPI_Compare_and_swap", "MPI_Rput", "MPI_Rget", "MPI_Raccumulate", "MPI_Rget_accumulate"}))
    return Role::kOperate;
  if (is_any(name,
             {"MPI_Comm_spawn", "MPI_Comm_spawn_multiple", "MPI_Comm_accept", "MPI_Comm_connect", "MPI_Comm_join"}))
    return Role::kForeign;
  if (is(name, "MPI_Cancel")) return Role::kCancel;
  if (is(name, "MPI_Request_free")) return Role::kFree;
  if ((has & kCallCompletes) || is(name, "MPI_Request_get_status")) return has & kCallPoll ? Role::kTest : Role::kWait;
  if (kind != Kind::kNone)
    return persistent ? Role::kMakeCollective : starts ? Role::kPostCollective : Role::kCollective;
  if (is_any(name, {"MPI_Iprobe", "MPI_Improbe"})) return Role::kProbePoll;
  if (has & kCallPoll) return Role::kOtherPoll;
  if (is_any(name, {"MPI_Probe", "MPI_Mprobe"})) return Role::kProbe;
  if (is(name, "MPI_Imrecv")) return Role::kPostMatched;
  if (!(has & kCallP2P) || is(name, "MPI_Mrecv") || is(name, "MPI_Buffer_detach")) return Role::kOther;
  if (has & kCallBothWays) return starts ? Role::kPostBoth : Role::kSendReceive;
  if (has & kCallReceives) return persistent ? Role::kMakeReceive : starts ? Role::kPostReceive : Role::kReceive;
  return persistent ? Role::kMakeSend : starts ? Role::kPostSend : Role::kSend;
}

/// Twins follow all plain calls, in the same order (shim/api/gen.py).
constexpr CallMeanings make() {
  CallMeanings made = {};
  unsigned twin_of = 0;
  for (unsigned id = 0; id < kCallCount; ++id) {
    const CallInfo& info = kCallInfo[id];
    if (info.attributes & kCallLargeCount) {
      while (!(kCallInfo[twin_of].attributes & kCallLarge)) ++twin_of;
      made.of[id] = made.of[twin_of];
      made.plain[id] = static_cast<uint16_t>(twin_of++);
      continue;
    }
    const Kind kind = kind_of(info);
    made.of[id] = {role_of(info, kind), kind, mode_of(info.name)};
    made.plain[id] = static_cast<uint16_t>(id);
  }
  return made;
}

}  // namespace

constinit const CallMeanings kCallMeanings = make();

static_assert([] {
  constexpr CallMeanings made = make();
  for (unsigned id = 0; id < kCallCount; ++id)
    if (!is(kCallInfo[id].name, kCallInfo[made.plain[id]].name)) return false;
  return true;
}());

}  // namespace resil::hang
