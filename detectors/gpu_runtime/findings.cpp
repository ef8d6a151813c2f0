// SPDX-License-Identifier: Apache-2.0
//
// What is claimed about the runtime, and the thread that looks for lost completions.
//
// Thread "resil-gpu": sleeps, reads the open waits and their words. It calls neither MPI nor an accelerator runtime:
// the word alone tells a lost completion (everything before it is done, the wait has not returned) from a long kernel.

#include <dlfcn.h>
#include <sched.h>

#include <cstdio>
#include <cstring>

#include "detectors/gpu_runtime/call.h"
#include "detectors/gpu_runtime/messages.h"
#include "shim/base/clock.h"
#include "shim/base/futex.h"
#include "shim/base/helper_thread.h"
#include "shim/call/runtime.h"
#include "shim/report/finding.h"
#include "shim/report/log.h"
#include "shim/report/report.h"
#include "shim/ring/device_work.h"
#include "shim/runtime/request_dump.h"

namespace resil::gpu_runtime {

namespace {

constexpr const char* kApi[] = {"", "CUDA", "HIP"};
constexpr const char* kWaitedFor[] = {"the stream's work", "the device's work", "the event", "the stream's work",
                                      "the event"};
/// Findings of one function from one place: the first ones tell, the counts say the rest.
constexpr unsigned kFindings = 16;

constinit std::atomic<unsigned> made_premature, made_lost;
constinit std::atomic<int> watcher;  // 0 not there, 1 running, 2 told to stop
constinit std::atomic<int> wake;
constinit std::atomic<bool> looking, dumped;
constinit bool told[kThreads];
constinit uint64_t told_version[kThreads];
constinit double written_since[kThreads];
constinit uint64_t written_version[kThreads];

void name_handle(char* text, size_t bytes, Kind kind, const void* handle) {
  if (kind == Kind::kDeviceWait) snprintf(text, bytes, "the device");
  else if (kind == Kind::kEventWait || kind == Kind::kEventQuery) snprintf(text, bytes, "event %p", handle);
  else if (handle == nullptr || is_legacy(handle)) snprintf(text, bytes, "the default stream");
  else snprintf(text, bytes, "stream %p", handle);
}

/// "object+0xoffset", as the report tool wants it.
void site_text(uint64_t site, char* text, size_t bytes) {
  Dl_info info;
  if (site == 0) {
    snprintf(text, bytes, "an unknown place");
  } else if (dladdr(reinterpret_cast<void*>(site), &info) != 0 && info.dli_fname != nullptr) {
    const char* slash = strrchr(info.dli_fname, '/');
    snprintf(text, bytes, "%s+0x%llx", slash != nullptr ? slash + 1 : info.dli_fname,
             static_cast<unsigned long long>(site - reinterpret_cast<uint64_t>(info.dli_fbase)));
  } else {
    snprintf(text, bytes, "0x%llx", static_cast<unsigned long long>(site));
  }
}

bool all_written(const OpenWait& wait) {
  for (uint32_t i = 0; i < wait.words; ++i)
    if (!wait.word[i].written()) return false;
  return wait.words != 0;
}

void lost(const OpenWait& wait, double seconds, double after_word) {
  count_lost();
  if (made_lost.fetch_add(1) >= kFindings) return;
  char what[48], site[300];
  name_handle(what, sizeof(what), wait.kind, wait.handle);
  site_text(wait.site, site, sizeof(site));
  Finding finding;
  finding.start("lost_completion", Confidence::kVerified);
  finding.culprit(runtime.rank);
  finding.say(messages::gpu_runtime::lost_completion, wait.call, what, seconds,
              kWaitedFor[static_cast<unsigned>(wait.kind)], after_word, site);
  finding.to_do(messages::gpu_runtime::lost_completion_to_do);
  finding.add("runtime", "%s", kApi[static_cast<unsigned>(wait.api)]);
  finding.add("function", "%s", wait.call);
  finding.add("waiting_seconds", "%.3f", seconds);
  finding.add("word_there_for_seconds", "at least %.3f", after_word);
  finding.add("words", "%u of %u written", wait.words, wait.words);
  finding.add("thread", "%d", wait.tid.load());
  finding.add("call_site", "%s", site);
  finding.add("not_the_cause", "a long kernel: none stands before the word");
  finding_publish(finding);
  // The program may never come to write it itself.
  report_write("running");
  if (request_dump != nullptr && !dumped.exchange(true))
    request_dump("a completion that an accelerator runtime has lost");
}

void look() {
  for (unsigned i = 0; i < kThreads; ++i) {
    OpenWait wait;
    if (!open_wait_read(i, &wait) || wait.returned || !wait.judged) continue;
    const uint64_t version = wait.version.load();
    const double now = monotonic_seconds();
    if (all_written(wait)) device_wait_done(i, DeviceDone::kYes);
    if (!all_written(wait) || (told[i] && told_version[i] == version)) continue;
    if (written_version[i] != version) {
      written_version[i] = version;
      written_since[i] = now;
    }
    if (now - written_since[i] < settings.lost_seconds) continue;
    told[i] = true, told_version[i] = version;
    lost(wait, now - wait.since, now - written_since[i]);
  }
}

void watch() {
  const double period = settings.lost_seconds / 4 < 1 ? settings.lost_seconds / 4 : 1;
  while (watcher.load(std::memory_order_acquire) == 1) {
    futex_wait(&wake, 0, period);
    looking.store(true);
    if (watcher.load() == 1) look();
    looking.store(false);
  }
}

}  // namespace

void premature(const Call& call, const Slot&, const Word& word, void* stream, double late_seconds, bool still_missing) {
  if (made_premature.fetch_add(1) >= kFindings) return;
  char what[48], on[48], site[300];
  name_handle(what, sizeof(what), call.kind, call.handle);
  name_handle(on, sizeof(on), Kind::kStreamWait, stream);
  site_text(call.site != 0 ? call.site : program_site(), site, sizeof(site));
  const bool query = call.kind == Kind::kStreamQuery || call.kind == Kind::kEventQuery;
  Finding finding;
  finding.start("premature_sync", Confidence::kProved);
  finding.culprit(runtime.rank);
  finding.say(messages::gpu_runtime::premature, call.name, what, query ? "said \"done\"" : "returned",
              kWaitedFor[static_cast<unsigned>(call.kind)],
              call.kind == Kind::kEventWait || call.kind == Kind::kEventQuery ? "before the event" : "behind it",
              still_missing ? "more than " : "", late_seconds * 1e3,
              still_missing ? messages::gpu_runtime::not_ready_told : messages::gpu_runtime::waited, site);
  finding.to_do(messages::gpu_runtime::premature_to_do);
  finding.add("runtime", "%s", kApi[static_cast<unsigned>(call.api)]);
  finding.add("function", "%s", call.name);
  finding.add("stream", "%s", on);
  if (call.context != nullptr) finding.add("context", "%p", call.context);
  finding.add("late_seconds", "%s%.9f", still_missing ? "more than " : "", late_seconds);
  finding.add("ticket", "%llu", static_cast<unsigned long long>(word.ticket));
  finding.add("call_site", "%s", site);
  finding_publish(finding);
}

void watcher_start() {
  int expected = 0;
  if (watcher.load(std::memory_order_relaxed) != 0 || !watcher.compare_exchange_strong(expected, 1)) return;
  if (!helper_thread_start("resil-gpu", watch)) add_note(messages::gpu_runtime::no_thread);
}

void watcher_stop() {
  int expected = 1;
  if (!watcher.compare_exchange_strong(expected, 2)) return;
  wake.store(1);
  futex_wake(&wake);
  while (looking.load())  // it may be writing the report that the caller is about to write
    sched_yield();
}

}  // namespace resil::gpu_runtime
