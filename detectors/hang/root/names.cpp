// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/root/names.h"

#include <stdio.h>
#include <string.h>

#include "shim/model/calls.h"

namespace resil::hang {

namespace {

/// "nid0042, rank 7", or "8 ranks from rank 0 on".
const char* node_name(NameList& names, uint64_t node) {
  if (names.wiring == nullptr || names.wiring->nodes == nullptr || node >= names.wiring->node_count) return nullptr;
  const NodeEntry& entry = names.wiring->nodes[node];
  const char* comma = entry.host[0] != 0 ? ", " : "";
  if (entry.ranks == 1) snprintf(names.node, sizeof(names.node), "%s%srank %u", entry.host, comma, entry.first_rank);
  else
    snprintf(names.node, sizeof(names.node), "%s%s%u ranks from rank %u on", entry.host, comma, entry.ranks,
             entry.first_rank);
  return names.node;
}

const char* name_of(void* self, NameKind kind, int32_t rank, uint64_t value) {
  NameList& names = *static_cast<NameList*>(self);
  if (kind == NameKind::kNode) return node_name(names, value);
  for (uint32_t i = 0; i < names.count; ++i)
    if (names.questions[i].rank == rank && names.questions[i].kind == kind && names.questions[i].value == value)
      return names.texts[i];
  if (names.count == kMaxNames) return nullptr;
  const NameQuestion& question = names.questions[names.count] = {rank, kind, {}, value};
  char* text = names.texts[names.count++];
  text[0] = 0;
  NameAnswer answer;
  if (names.watch != nullptr &&
      watch_names(*names.watch, &question, 1, reinterpret_cast<char*>(&answer), sizeof(answer)) != 0)
    snprintf(text, sizeof(names.texts[0]), "%s", answer.text);
  else names.missing = true;
  return text;
}

const char* call_name(void*, uint16_t id) { return id < kCallCount ? call_info(static_cast<CallId>(id)).name : "?"; }

}  // namespace

void names_forget(NameList& names) {
  names.count = 0;
  names.missing = false;
}

void names_learn(NameList& names, const NameAnswer* answers, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    if (answers[i].question < names.count)
      snprintf(names.texts[answers[i].question], sizeof(names.texts[0]), "%.*s",
               static_cast<int>(sizeof(answers[i].text)), answers[i].text);
}

void names_add(NameList& names, NameKind kind, uint64_t value, const char* text) {
  if (names.count == kMaxNames) return;
  names.questions[names.count] = {-1, kind, {}, value};
  snprintf(names.texts[names.count++], sizeof(names.texts[0]), "%s", text);
}

Names names_of(NameList& names) { return {&names, name_of, call_name}; }

}  // namespace resil::hang
