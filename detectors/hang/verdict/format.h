// SPDX-License-Identifier: Apache-2.0
//
// The only place that makes sentences of what hang detection finds: the catalogue (messages.inc), and a verdict's ids
// put into its placeholders. Names are asked for through `Names`; who does not know one yet notes the question, gets
// the answer and formats once more. Helper thread.
#pragma once

#include "detectors/hang/monitor/rounds.h"
#include "detectors/hang/verdict/text.h"
#include "detectors/hang/verdict/verdict.h"

namespace resil::hang {

struct Names {
  void* self;
  /// Of a rank (-1: of any): site, communicator, host, last call, node. Null or "": not known.
  const char* (*name)(void* self, NameKind kind, int32_t rank, uint64_t value);
  const char* (*call)(void* self, uint16_t id);  ///< "MPI_Recv"
};

/// A verdict for people.
struct Explanation {
  char message[1600];  ///< whole sentences; the last ones say what to do
  char evidence[4096];  ///< lines
};
void explain(const Verdict& verdict, const Names& names, Explanation* explanation);

/// One statement, as a line of hang.log has it.
void explain(const Statement& statement, const Names& names, char* text, size_t bytes);

/// "0-2,4 and 7 more"
void add_ranks(Text& text, const RankSet& ranks);
const char* confidence_name(Confidence of);  ///< "proved", "verified", "suspected"
/// "blocked", "computing", …
const char* activity_name(RankActivity activity);
/// "waits for its device in …"
void add_device(Text& text, const DeviceSeen& device);
const char* comm_name(const Names& names, uint64_t id);

}  // namespace resil::hang
