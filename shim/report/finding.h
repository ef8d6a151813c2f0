// SPDX-License-Identifier: Apache-2.0
//
// Findings: what resil claims about the job, each a sentence with evidence. They go to standard error at once and into
// the `findings` of the rank's report. Modules make them; the core keeps and prints them.
//
// Context: any thread inside an MPI wrapper; short internal lock, no MPI. Not for signal handlers. At most 64 are kept,
// further ones are counted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

class JsonWriter;

enum class Confidence : uint8_t { kProved, kVerified, kSuspected };

/// One finding, filled by its maker. `kind` is from the closed list in docs/REPORT.md. Texts are cut to their room.
struct Finding {
  struct Evidence {
    char name[28];
    char value[132];
  };
  const char* kind;
  Confidence confidence;
  uint32_t culprit_count, victim_count, evidence_count;
  int32_t culprit_ranks[8], victim_ranks[8];  ///< world ranks
  char message[600];
  char to_do_text[400];
  Evidence evidence[28];

  void start(const char* of_kind, Confidence how_sure);
  void culprit(int world_rank);
  void victim(int world_rank);
  [[gnu::format(printf, 2, 3)]] void say(const char* format, ...);
  /// What the user does next: node to exclude, setting to run again with, what to send to whom.
  [[gnu::format(printf, 2, 3)]] void to_do(const char* format, ...);
  [[gnu::format(printf, 3, 4)]] void add(const char* name, const char* format, ...);
};

/// Keeps it and prints a short block. Returns how many findings there are now, dropped ones included.
unsigned finding_publish(const Finding& finding);
/// Keeps it for the report, should there be no more: it is not settled yet. Returns the same.
unsigned finding_keep(const Finding& finding);
/// Prints `finding`, and keeps it in the place of what finding_keep() has returned `number` for.
void finding_settle(unsigned number, const Finding& finding);
unsigned finding_count();
void findings_report(JsonWriter& json);

/// Ends the job with that exit status (90 data corruption, 91 divergence, 92 hang): reports are on disk first, then
/// MPI_Abort on MPI_COMM_WORLD. On the application's thread, inside one of its MPI calls. Does not return.
[[noreturn]] void stop_job(int exit_status);

}  // namespace resil
