// SPDX-License-Identifier: Apache-2.0
//
// See findings.h. Nothing here runs unless something is wrong.

#include "checksum/collective/findings.h"

#include <atomic>
#include <cinttypes>
#include <cstdio>

#include "checksum/ledger/blame_evidence.h"
#include "checksum/ledger/calls.h"
#include "checksum/ledger/lives.h"
#include "checksum/to_do.h"
#include "shim/base/own_stack.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/report/finding.h"
#include "shim/tables/tables.h"

namespace resil::collective {

namespace {

std::atomic<bool> published;

void add_site(Finding& finding, const char* name, uint64_t site) {
  char text[112];
  site_text(site, text, sizeof(text));
  finding.add(name, "%s", text);
}

/// Full blame.
void add_verdict(Finding& finding, const char* cause, const char* how) {
  if (cause == nullptr) return;
  finding.add("verdict", "%s", cause);
  finding.add("reached_by", "%s", how);
}

void finish(Finding& finding, const Name& name) {
  finding.add("call", "%s", call_info(name.id).name);
  finding.add("communicator", "%s (id %016" PRIx64 ")",
              still_there(name) != nullptr ? name.info->ring->name : "freed since", name.base);
  if (name.init != 0) finding.add("sequence", "start %u of the request made by collective %u", name.tag, name.init);
  else finding.add("sequence", "%u", name.tag);
  finding.add("bytes", "%" PRIu64, name.bytes);
  ledger::count_mismatch();
  finding_publish(finding);
  published.store(true, std::memory_order_release);
}

/// Its result lay in memory that another operation, pending at the same time, received into: no proof of anything.
bool uncovered(const Name& name) {
  if (!ledger::life_shared_by_digest(ledger::life_name(name.comm, name.tag))) return false;
  ledger::note_shared_memory();
  ledger::count_uncovered(ledger::Reason::kOverlapped, 1, name.bytes);
  return true;
}

}  // namespace

CommInfo* still_there(const Name& name) {
  return name.info != nullptr && name.info->ring != nullptr && name.info->ring->id == name.base ? name.info : nullptr;
}

void describe(const Name& name, char* text, size_t bytes) {
  const CommInfo* info = still_there(name);
  const char* comm = info != nullptr ? info->ring->name : "a communicator freed since";
  if (name.init != 0)
    snprintf(text, bytes, "%s (collective number %u, start %u) on %s", call_info(name.id).name, name.init, name.tag,
             comm);
  else snprintf(text, bytes, "%s number %u on %s", call_info(name.id).name, name.tag, comm);
}

static void say(const Disagreement& d) {
  if (uncovered(d.name)) return;
  char what[160];
  describe(d.name, what, sizeof(what));
  const int here = runtime.rank, there = ledger::world_rank_of(*d.that);
  const char* host = ledger::host_of(*d.that)[0] != 0 ? ledger::host_of(*d.that) : "an unknown host";
  Finding finding;
  finding.start("collective_mismatch",
                d.verdict == Verdict::kUndetermined || d.proved ? Confidence::kProved : Confidence::kVerified);
  if (d.verdict == Verdict::kThis || d.verdict == Verdict::kBoth) finding.culprit(here);
  if (d.verdict == Verdict::kThat || d.verdict == Verdict::kBoth) finding.culprit(there);
  if (d.verdict != Verdict::kThat) finding.victim(here);
  if (d.verdict != Verdict::kThis) finding.victim(there);
  namespace text = messages::checksum;
  const bool this_one = d.verdict == Verdict::kThis;
  const int wrong = this_one ? here : there;
  const char* wrong_host = this_one ? runtime.host : host;
  if (d.chain) finding.say(text::scan_differs, what, here, runtime.host, there, host);
  else if (d.verdict == Verdict::kUndetermined)
    finding.say(text::results_differ, what, here, runtime.host, there, host);
  else if (d.verdict == Verdict::kBoth) finding.say(text::both_wrong, what, here, runtime.host, there, host, d.asked);
  else if (d.summed)
    finding.say(text::sum_wrong_at, what, wrong, wrong_host, d.cause != nullptr ? ". " : "",
                d.cause != nullptr ? d.how : "");
  else if (d.singled_out) finding.say(text::singled_out, what, wrong, wrong_host, d.how);
  else if (d.proved) finding.say(text::differs_from_root, what, wrong, wrong_host);
  else finding.say(text::differs_from_most, what, wrong, wrong_host, this_one ? d.agree_that : d.agree_this, d.asked);
  if (!ledger::full_blame()) finding.to_do(text::to_do_full_blame);
  else if (d.chain || d.verdict == Verdict::kUndetermined || d.verdict == Verdict::kBoth)
    exclude_nodes(finding, runtime.host, host);
  else exclude_nodes(finding, wrong_host, wrong_host);
  add_verdict(finding, d.cause, d.how);
  finding.add("rank_host", "rank %d on %s, rank %d on %s", here, runtime.host, there, host);
  finding.add("digests", "%016" PRIx64 " at rank %d, %016" PRIx64 " at rank %d", d.this_digest, here, d.that_digest,
              there);
  if (d.this_bytes != d.that_bytes)
    finding.add("bytes_differ", "%" PRIu64 " at rank %d, %" PRIu64 " at rank %d", d.this_bytes, here, d.that_bytes,
                there);
  add_site(finding, "site", d.name.site);
  if (d.that_text[0] != 0) finding.add("other_site", "%s", d.that_text);
  else finding.add("other_site", "0x%" PRIx64 " in rank %d", d.that_site, there);
  finding.add("asked", "%u ranks: %u have rank %d's data, %u have rank %d's", d.asked, d.agree_this, here, d.agree_that,
              there);
  finish(finding, d.name);
}

void publish(const Disagreement& d) {
  on_own_stack([&] { say(d); });
}

static void say_sum(const WrongSum& sum) {
  if (uncovered(sum.name)) return;
  char what[160], who[96];
  snprintf(who, sizeof(who), "%s", messages::checksum::sum_nobody);
  describe(sum.name, what, sizeof(what));
  Finding finding;
  finding.start("collective_mismatch", Confidence::kProved);
  if (sum.changed >= 0) {
    finding.culprit(sum.changed);
    snprintf(who, sizeof(who), messages::checksum::sum_changed, sum.changed);
  } else if (sum.wrong >= 0 && sum.asked > 1 && sum.agree == sum.asked) {
    snprintf(who, sizeof(who), messages::checksum::sum_all, sum.asked);
  } else if (sum.wrong >= 0) {
    finding.culprit(sum.wrong);
    snprintf(who, sizeof(who), messages::checksum::sum_rank, sum.wrong);
  }
  finding.victim(sum.wrong >= 0 ? sum.wrong : runtime.rank);
  finding.say(messages::checksum::sum_wrong, what, who, sum.cause != nullptr ? ". " : "",
              sum.cause != nullptr ? sum.how : "");
  if (sum.changed >= 0) finding.to_do(messages::checksum::to_do_contribution, sum.changed);
  else if (!ledger::full_blame()) finding.to_do(messages::checksum::to_do_full_blame);
  else finding.to_do(messages::checksum::to_do_report_mpi, runtime.header->mpi);
  add_verdict(finding, sum.cause, sum.how);
  finding.add("linear_digest", "off by %016" PRIx64 " %016" PRIx64, sum.words[0], sum.words[1]);
  if (sum.asked != 0) finding.add("asked", "%u ranks: %u have the wrong result", sum.asked, sum.agree);
  add_site(finding, "site", sum.name.site);
  finish(finding, sum.name);
}

void publish_sum(const WrongSum& sum) {
  on_own_stack([&] { say_sum(sum); });
}

static void say_local(const Name& name, const char* text, int64_t element, const char* cause, const char* how) {
  if (uncovered(name)) return;
  char what[160];
  describe(name, what, sizeof(what));
  Finding finding;
  finding.start("collective_mismatch", Confidence::kProved);
  finding.victim(runtime.rank);
  if (cause != nullptr) finding.culprit(runtime.rank);
  finding.say(messages::checksum::own_part_wrong, what, runtime.rank, runtime.host, text, cause != nullptr ? ". " : "",
              cause != nullptr ? how : "");
  if (ledger::full_blame()) exclude_nodes(finding, runtime.host, runtime.host);
  else finding.to_do(messages::checksum::to_do_full_blame);
  add_verdict(finding, cause, how);
  if (element >= 0) finding.add("element", "%" PRId64, element);
  add_site(finding, "site", name.site);
  finish(finding, name);
}

void publish_local(const Name& name, const char* what, int64_t element, const char* cause, const char* how) {
  on_own_stack([&] { say_local(name, what, element, cause, how); });
}

void stop_if_wanted() {
  if (published.load(std::memory_order_relaxed) && ledger::abort_wanted()) [[unlikely]]
    stop_job(90);
  if (ledger::calls_stop()) [[unlikely]]
    stop_job(92);
}

}  // namespace resil::collective
