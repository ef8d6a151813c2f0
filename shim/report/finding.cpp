// SPDX-License-Identifier: Apache-2.0
//
// See finding.h.

#include "shim/report/finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "shim/abi/backend.h"
#include "shim/base/own_stack.h"
#include "shim/base/spinlock.h"
#include "shim/call/attach.h"
#include "shim/call/runtime.h"
#include "shim/messages.h"
#include "shim/report/json.h"
#include "shim/report/log.h"

namespace resil {

namespace {

constexpr unsigned kKept = 64, kPrinted = 8;
constexpr const char* kConfidence[] = {"proved", "verified", "suspected"};

SpinLock lock;
Finding kept[kKept];
unsigned made;

void append(char* text, size_t bytes, const char* format, ...) __attribute__((format(printf, 3, 4)));
void append(char* text, size_t bytes, const char* format, ...) {
  size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, bytes - used, format, arguments);
  va_end(arguments);
}

void print(const Finding& finding, unsigned number) {
  char block[6000] = "";
  append(block, sizeof(block), "resil: %s [%s] rank %d on %s:", finding.kind,
         kConfidence[static_cast<int>(finding.confidence)], runtime.rank, runtime.host);
  for (const char* sentence = finding.message; *sentence != 0;) {
    const auto length = static_cast<int>(sentence_bytes(sentence));
    append(block, sizeof(block), "%s%.*s", sentence == finding.message ? " " : "\nresil:   ", length, sentence);
    sentence += length + (sentence[length] == ' ');
  }
  for (uint32_t i = 0; i < finding.evidence_count; ++i)
    append(block, sizeof(block), "\nresil:     %-24s %s", finding.evidence[i].name, finding.evidence[i].value);
  if (finding.to_do_text[0] != 0) append(block, sizeof(block), "\nresil:     To do: %s", finding.to_do_text);
  if (number == kPrinted) append(block, sizeof(block), "\nresil: %s", messages::core::further_findings);
  if (runtime.directory[0] != 0) append(block, sizeof(block), "\nresil:     next: resil report %s", runtime.directory);
  log_block(block);
}

}  // namespace

void Finding::start(const char* of_kind, Confidence how_sure) {
  kind = of_kind;
  confidence = how_sure;
  culprit_count = victim_count = evidence_count = 0;
  message[0] = to_do_text[0] = 0;
}

void Finding::culprit(int world_rank) {
  if (culprit_count < 8) culprit_ranks[culprit_count++] = world_rank;
}

void Finding::victim(int world_rank) {
  if (victim_count < 8) victim_ranks[victim_count++] = world_rank;
}

void Finding::say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
}

void Finding::to_do(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(to_do_text, sizeof(to_do_text), format, arguments);
  va_end(arguments);
}

void Finding::add(const char* name, const char* format, ...) {
  if (evidence_count == sizeof(evidence) / sizeof(evidence[0])) return;
  Evidence& item = evidence[evidence_count++];
  snprintf(item.name, sizeof(item.name), "%s", name);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(item.value, sizeof(item.value), format, arguments);
  va_end(arguments);
}

unsigned finding_keep(const Finding& finding) {
  SpinGuard guard(lock);
  const unsigned number = ++made;
  if (number <= kKept) kept[number - 1] = finding;
  return number;
}

void finding_settle(unsigned number, const Finding& finding) {
  if (number <= kKept) {
    SpinGuard guard(lock);
    kept[number - 1] = finding;
  }
  if (number <= kPrinted) on_own_stack([&] { print(finding, number); });
}

unsigned finding_publish(const Finding& finding) {
  const unsigned number = finding_keep(finding);
  if (number <= kPrinted) on_own_stack([&] { print(finding, number); });
  return number;
}

unsigned finding_count() { return __atomic_load_n(&made, __ATOMIC_RELAXED); }

void findings_report(JsonWriter& json) {
  auto ranks = [&json](const char* name, const int32_t* list, uint32_t count) {
    json.begin_array(name);
    for (uint32_t i = 0; i < count; ++i) json.integer(nullptr, list[i]);
    json.end_array();
  };
  const unsigned total = finding_count();
  json.begin_array("findings");
  for (unsigned i = 0; i < total && i < kKept; ++i) {
    const Finding& finding = kept[i];
    json.begin_object();
    json.text("kind", finding.kind);
    json.text("confidence", kConfidence[static_cast<int>(finding.confidence)]);
    ranks("culprit_ranks", finding.culprit_ranks, finding.culprit_count);
    ranks("victim_ranks", finding.victim_ranks, finding.victim_count);
    json.text("message", finding.message);
    if (finding.to_do_text[0] != 0) json.text("to_do", finding.to_do_text);
    json.begin_object("evidence");
    for (uint32_t k = 0; k < finding.evidence_count; ++k)
      json.text(finding.evidence[k].name, finding.evidence[k].value);
    json.end_object();
    json.end_object();
  }
  json.end_array();
  json.integer("findings_dropped", total > kKept ? total - kKept : 0);
}

void stop_job(int exit_status) {
  on_own_stack([&] { finish_stopped(exit_status); });
  log_taken();
  backend->messages->abort(exit_status);
  __builtin_unreachable();
}

}  // namespace resil
