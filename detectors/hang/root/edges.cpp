// SPDX-License-Identifier: Apache-2.0
//
// See edges.h. Of a collective those are waited for who are members, by their own account, and have not come to that
// call; a member that gave no state is not named, since nobody says that it is one.

#include "detectors/hang/root/edges.h"

#include <stdio.h>
#include <string.h>

#include "detectors/hang/reader/records.h"
#include "detectors/hang/verdict/format.h"
#include "shim/model/calls.h"

namespace resil::hang {

namespace {

constexpr uint32_t kMostEdges = 1024, kMostWaves = 64, kMostNamed = 4096;

const Membership* memberships_of(const RankState& state) {
  return reinterpret_cast<const Membership*>(parts_of(state) + state.part_count);
}

bool waits_in(const RankState* state, uint64_t comm, uint64_t sequence) {
  for (uint32_t i = 0; state != nullptr && i < state->part_count; ++i)
    if (const Part& part = parts_of(*state)[i];
        part.kind == PartKind::kCollective && part.comm == comm && part.sequence == sequence)
      return true;
  return false;
}

template <class Wanted>
void list(JsonWriter& json, const char* name, const Root& root, Wanted wanted) {
  uint32_t written = 0;
  json.begin_array(name);
  for (uint32_t i = 0; i < root.states.count && written < kMostNamed; ++i)
    if (wanted(root.states.by_rank[i])) {
      json.integer(nullptr, i);
      ++written;
    }
  json.end_array();
}

void place(JsonWriter& json, Root& root, const Part& part) {
  char id[40];
  snprintf(id, sizeof(id), "0x%llx", static_cast<unsigned long long>(part.comm));
  if (part.comm != 0) json.text("communicator", comm_name(names_of(root.names), part.comm));
  if (part.comm != 0) json.text("communicator_id", id);
  if (part.call < kCallCount) json.text("call", call_info(static_cast<CallId>(part.call)).name);
}

void wave(JsonWriter& json, Root& root, const Part& part) {
  json.begin_object();
  json.text("kind", "collective");
  list(json, "from", root, [&](const RankState* state) { return waits_in(state, part.comm, part.sequence); });
  list(json, "to", root, [&](const RankState* state) { return has_not_come(state, part.comm, part.sequence); });
  place(json, root, part);
  json.integer("sequence", part.sequence);
  json.end_object();
}

const char* kind_name(PartKind kind) {
  switch (kind) {
    case PartKind::kReceive: return "receive";
    case PartKind::kProbe: return "probe";
    case PartKind::kSend: return "send";
    case PartKind::kToken: return "call";
    case PartKind::kLock: return "lock";
    default: return nullptr;
  }
}

/// No `to`: any rank may end it, or it is not known who.
void single(JsonWriter& json, Root& root, int32_t rank, const Part& part) {
  json.begin_object();
  json.text("kind", kind_name(part.kind));
  json.begin_array("from");
  json.integer(nullptr, rank);
  json.end_array();
  json.begin_array("to");
  if (part.peer >= 0) json.integer(nullptr, part.peer);
  json.end_array();
  place(json, root, part);
  if (part.kind != PartKind::kToken && part.kind != PartKind::kLock && part.tag >= 0) json.integer("tag", part.tag);
  json.end_object();
}

}  // namespace

bool has_not_come(const RankState* state, uint64_t comm, uint64_t sequence) {
  for (uint32_t i = 0; state != nullptr && i < state->comm_count; ++i)
    if (const Membership& of = memberships_of(*state)[i]; of.comm == comm) return of.sequence < sequence;
  return false;
}

void write_edges(JsonWriter& json, Root& root) {
  uint64_t seen[kMostWaves][2];
  uint32_t waves = 0, edges = 0;
  json.begin_array("edges");
  for (uint32_t i = 0; i < root.states.count && edges < kMostEdges; ++i) {
    const RankState* state = root.states.by_rank[i];
    for (uint32_t k = 0; state != nullptr && k < state->part_count && edges < kMostEdges; ++k) {
      const Part& part = parts_of(*state)[k];
      if (part.kind == PartKind::kCollective) {
        bool known = waves == kMostWaves;
        for (uint32_t w = 0; w < waves && !known; ++w) known = seen[w][0] == part.comm && seen[w][1] == part.sequence;
        if (known) continue;
        seen[waves][0] = part.comm;
        seen[waves++][1] = part.sequence;
        wave(json, root, part);
        ++edges;
      } else if (kind_name(part.kind) != nullptr) {
        single(json, root, static_cast<int32_t>(i), part);
        ++edges;
      }
    }
  }
  json.end_array();
}

}  // namespace resil::hang
