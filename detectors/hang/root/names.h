// SPDX-License-Identifier: Apache-2.0
//
// Names for a verdict that stands: what this node knows at once, and the questions for the other nodes. Helper thread
// of the root's node.
#pragma once

#include "detectors/hang/monitor/wireup.h"
#include "detectors/hang/reader/watch.h"
#include "detectors/hang/verdict/format.h"

namespace resil::hang {

constexpr uint32_t kMaxNames = 512;

struct NameList {
  Watch* watch;  ///< this node's ranks; null: none
  const Wiring* wiring;
  uint32_t count;
  bool missing;  ///< some have to be asked of other nodes
  NameQuestion questions[kMaxNames];
  char texts[kMaxNames][sizeof(NameAnswer::text)];  ///< "": not known (yet)
  char node[96];
};

void names_forget(NameList& names);
/// What other nodes have answered to `questions`.
void names_learn(NameList& names, const NameAnswer* answers, uint32_t count);
/// A name that came another way.
void names_add(NameList& names, NameKind kind, uint64_t value, const char* text);
/// For format.h: what is not known is looked up here, or becomes a question.
Names names_of(NameList& names);

}  // namespace resil::hang
