// SPDX-License-Identifier: Apache-2.0
//
// See publish.h. Files first, then standard error, then the hook, then the action: who reads only one of them finds the
// others there.

#include "detectors/hang/root/publish.h"

#include <stdio.h>
#include <string.h>

#include "detectors/hang/root/hang_log.h"
#include "detectors/hang/root/hook.h"
#include "detectors/hang/root/quiet_notice.h"
#include "detectors/hang/root/report_files.h"
#include "detectors/hang/root/stacks_file.h"
#include "detectors/hang/verdict/note.h"
#include "shim/report/log.h"

namespace resil::hang {

namespace {

constexpr uint32_t kRemembered = sizeof(ControlBlock::seen) / sizeof(ControlBlock::seen[0]);
constexpr uint32_t kMostLines = 8;  // of evidence on standard error
constexpr uint32_t kMostReports = 16;  // of one job; a broken program could find ever new ones

/// The short form: what and who, a sentence a line, the evidence, and the file to read next. One write, so that lines
/// of ranks do not mix.
void print_block(const Verdict& verdict, const Explanation& explanation, const char* text_path) {
  static char room[6800];  // one thread
  Text block(room, sizeof(room) - 1400);  // leaves room for the path
  block.add("resil: hang [%s, %s]", class_name(verdict.type), confidence_name(verdict.confidence));
  for (const char* sentence = explanation.message; *sentence != 0;) {
    const auto length = static_cast<int>(sentence_bytes(sentence));
    block.add("%s%.*s", sentence == explanation.message ? " " : "\nresil:   ", length, sentence);
    sentence += length + (sentence[length] == ' ');
  }
  uint32_t lines = 0;
  for (const char* line = explanation.evidence; *line != 0 && lines < kMostLines; ++lines) {
    const auto length = static_cast<int>(strcspn(line, "\n"));
    block.add("\nresil:     %.*s", length > 180 ? 180 : length, line);
    line += length + (line[length] != 0);
  }
  block.bytes = sizeof(room);
  if (text_path[0] != 0) block.add("\nresil:     next: less %s", text_path);
  log_block(room);
}

}  // namespace

bool was_published(const ControlBlock& control, const Verdict& verdict) {
  for (const uint64_t& seen : control.seen)
    if (__atomic_load_n(&seen, __ATOMIC_RELAXED) == verdict.signature) return true;
  return false;
}

void publish(Root& root) {
  const Verdict& verdict = root.verdict;
  const Explanation& explanation = root.explanation;
  ControlBlock& control = *root.control;
  if (verdict.notice) {
    want_stacks(root, "notice");
    return print_notice(root);
  }
  if (was_published(control, verdict)) return;
  __atomic_store_n(&control.seen[control.reported % kRemembered], verdict.signature, __ATOMIC_RELAXED);
  if (control.reported >= kMostReports) return;
  log_hang(confidence_name(verdict.confidence), verdict, explanation, names_of(root.names));
  if (verdict.confidence == Confidence::kSuspected) return;
  root.published_at = monotonic_seconds();
  char json_path[1300] = "", text_path[1300] = "";
  write_hang_files(root, HangFile::kFinding, control.reported,
                   root.aborts && root.last_look.name == 0 ? "abort" : "report", json_path, text_path,
                   sizeof(json_path));
  control.reported += 1;
  want_stacks(root, json_path);
  print_block(verdict, explanation, text_path);
  run_hook(json_path);
  if (root.last_look.name != 0) {
    log_taken();  // the job ends, by somebody else and with another status
  } else if (root.aborts) {
    print(Message::kAborting);
    root.abort_wanted = true;
  }
}

}  // namespace resil::hang
