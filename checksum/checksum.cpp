// SPDX-License-Identifier: Apache-2.0
//
// The checksum module: which call goes to which part, drains, and its place in the report. See docs/CHECKSUM.md.

#include "checksum/collective/collective.h"
#include "checksum/collective/fast_path.h"
#include "checksum/cookie.h"
#include "checksum/ledger/blame.h"
#include "checksum/ledger/ledger.h"
#include "checksum/ledger/peer.h"
#include "checksum/ledger/setup.h"
#include "checksum/messages.h"
#include "checksum/p2p/candidates.h"
#include "checksum/p2p/intercept.h"
#include "checksum/p2p/p2p.h"
#include "checksum/rma/rma.h"
#include "shim/abi/backend.h"
#include "shim/call/attach.h"
#include "shim/call/dispatch.h"
#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/model/event.h"
#include "shim/report/json.h"
#include "shim/report/log.h"
#include "shim/report/report.h"
#include "shim/runtime/staged.h"
#include "shim/tables/tables.h"

namespace resil {

namespace {

using ledger::Reason;

constexpr ConfigEntry kConfig[] = {
    {"RESIL_MODE+", ConfigType::kChoices, "checksum", "", "checks that what left one rank arrived at the other"},
    {"RESIL_CHECKSUM", ConfigType::kChoice, "lazy|strict", "lazy",
     "when a packet is verified: within a bounded delay, or before the receive or wait returns"},
    {"RESIL_ON_MISMATCH", ConfigType::kChoice, "abort|log|retry", "abort",
     "what a mismatch does: end the job with exit status 90 (divergence from a recording: 91; calls that do not match: "
     "92), or report it and go on; "
     "retry: double runs go back to their checkpoint, all else as abort"},
    {"RESIL_BLAME", ConfigType::kChoice, "cheap|full", "cheap",
     "reads each buffer once, or again at completion and keeps copies, to tell who corrupted a packet"},
    {"RESIL_DRAIN_SECONDS", ConfigType::kReal, "0..3600", "5", "longest wait of a drain (MPI_Abort: 1)"},
};

/// What a call means to this module.
enum class Handling : uint8_t {
  kNothing,
  kSend,
  kReceive,  // blocking
  kSendReceive,
  kPost,  // nonblocking or persistent receive
  kPostBoth,
  kSendInit,
  kMatchedProbe,
  kMessage,  // MPI_Mrecv
  kPostMessage,  // MPI_Imrecv
  kCompletes,
  kFree,
  kGetStatus,
  kCancel,
  kCollective,
  kOneSided,
  kFile,
  kFileBarrier,  // close, sync: what was received goes out
};
constexpr Handling handling_of(const CallInfo& info) {
  const bool blocking = info.initiation == Initiation::kBlocking;
  switch (info.call_class) {
    case CallClass::kSend: return info.initiation == Initiation::kPersistent ? Handling::kSendInit : Handling::kSend;
    case CallClass::kReceive: return blocking ? Handling::kReceive : Handling::kPost;
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace: return blocking ? Handling::kSendReceive : Handling::kPostBoth;
    case CallClass::kMatchedProbe: return Handling::kMatchedProbe;
    case CallClass::kMatchedReceive: return blocking ? Handling::kMessage : Handling::kPostMessage;
    case CallClass::kPartitionedSend: return Handling::kSendInit;
    case CallClass::kPartitionedReceive: return Handling::kPost;
    case CallClass::kCompletion: return Handling::kCompletes;
    case CallClass::kRequestFree: return Handling::kFree;
    case CallClass::kCancel: return Handling::kCancel;
    case CallClass::kGetStatus: return Handling::kGetStatus;  // the requests stay
    case CallClass::kCollective: return Handling::kCollective;
    case CallClass::kWindow:
    case CallClass::kRma: return Handling::kOneSided;
    case CallClass::kFile:
      switch (info.file) {
        case FileCall::kRead:
        case FileCall::kWrite: return Handling::kFile;
        case FileCall::kClose:
        case FileCall::kSync: return Handling::kFileBarrier;
        case FileCall::kOpen:
        case FileCall::kDelete:
        case FileCall::kSetSize:
        case FileCall::kPreallocate:
        case FileCall::kSetView:
        case FileCall::kSetAtomicity:
        case FileCall::kSeekShared:
        case FileCall::kNone: return Handling::kNothing;
      }
      return Handling::kNothing;
    case CallClass::kProbe:
    case CallClass::kPartitionReady:  // digested when the request is complete
    case CallClass::kPartitionArrived:
    case CallClass::kStart:  // seen as `activated` for each request
    case CallClass::kBuffer:
    case CallClass::kGeneralizedRequest:
    case CallClass::kComm:
    case CallClass::kLifecycle:
    case CallClass::kLocal: return Handling::kNothing;
  }
  return Handling::kNothing;
}

constexpr auto kHandlings = by_call(handling_of);

bool enabled() { return config_has("RESIL_MODE", "checksum"); }

constexpr StagedChecks kStagedChecks = {p2p::receive_posting, p2p::send_announcing, p2p::send_posted, p2p::send_dropped,
                                        ledger::abort_wanted};

bool usable;  // memory is there; checks across ranks need ledger::connected() besides
bool multiple;

void before_init() {
  staged_checks = &kStagedChecks;
  digest_prepare();
  usable = ledger::setup_memory() && blame::prepare() && p2p::prepare() && collective::prepare() && rma::prepare();
  if (!usable) log_line(messages::checksum::no_memory);
}

void after_init() {
  if (!usable || ledger::connected()) return;  // called again: a session beside MPI_COMM_WORLD
  multiple = !runtime_has_world() || backend->thread_multiple();
  if (!ledger::setup_connection(multiple)) {
    add_note(messages::checksum::not_connected);
    return;
  }
  if (runtime.local_size > 0) digest_helpers(runtime.local_size);
  ledger::drain_connect();
  blame::connect();
  collective::connect();
  collective::fast_path_connect();
  p2p::fast_path_connect();
  rma::connect();
}

/// What is checked of a collective once it is over is left with its call site.
bool may_be_fast(Event& e, SiteEntry& site) {
  if (!usable) return false;
  return fast::is_collective(e.id) ? collective::fast_path_prepare(e, site) : p2p::fast_path_prepare(e);
}

void count_file(Event& e) {
  if (e.result == 0) ledger::count_uncovered(Reason::kFile, 1, e.bytes);
}

void enter(Event& e) {
  if (!usable) return;
  switch (kHandlings[e.id]) {
    case Handling::kNothing:
    case Handling::kGetStatus:
    case Handling::kFile: return;
    case Handling::kSend: p2p::send_enter(e, false); break;
    case Handling::kReceive:
      give_statuses(e);
      p2p::receive_enter(e);
      break;
    case Handling::kSendReceive: give_statuses(e); [[fallthrough]];
    case Handling::kPostBoth:
      p2p::send_enter(e, true);
      p2p::receive_enter(e);
      break;
    case Handling::kPost: p2p::receive_enter(e); return;
    case Handling::kMessage: give_statuses(e); [[fallthrough]];
    case Handling::kPostMessage: p2p::message_enter(e); break;
    case Handling::kMatchedProbe: give_statuses(e); break;
    case Handling::kCompletes:
      if (e.request_count > 0) give_statuses(e);
      break;
    case Handling::kCancel: p2p::cancel_enter(e); return;
    case Handling::kCollective: collective::enter(e); break;
    case Handling::kOneSided: rma::enter(e); break;
    case Handling::kFileBarrier:
      ledger::drain(*e.thread, config_real("RESIL_DRAIN_SECONDS"), call_info(e.id).name);
      return;
    case Handling::kFree:
    case Handling::kSendInit: return;
  }
  if (e.attributes & kCallBlocking) p2p::before_blocking(e);
}

/// MPI_Request_get_status: the request stays, but what it says to be complete is the program's again.
void told_complete(Event& e) {
  const uint64_t* cookies =
      e.result == 0 && *e.flag != 0 ? request_cookies(*e.thread, request_handle(e.requests, 0)) : nullptr;
  const uint64_t cookie = cookies != nullptr ? cookies[kChecksumWord] : 0;
  if ((cookie & kCookieMask) == kCookieSend) p2p::send_told_complete(cookie);
  else if ((cookie & kCookieMask) == kCookieReceive) p2p::receive_told_complete(cookie);
}

void leave(Event& e) {
  if (!usable) return;
  switch (kHandlings[e.id]) {
    case Handling::kSend:
      if (ledger::is_straight && p2p::fast_path_sent(e)) return;
      p2p::send_leave(e);
      if (ledger::full_blame() && (e.attributes & kCallBlocking)) ledger::flush(*e.thread);
      return;
    case Handling::kReceive:
      if (!ledger::is_plain || !p2p::fast_path_received(e)) p2p::receive_leave(e);
      break;
    case Handling::kSendReceive:
      p2p::send_leave(e);
      p2p::receive_leave(e);
      break;
    case Handling::kPostBoth: p2p::send_leave(e); return p2p::receive_posted(e);
    case Handling::kPost:
      if (ledger::is_straight && p2p::fast_path_posted(e)) return;
      [[fallthrough]];
    case Handling::kPostMessage: return p2p::receive_posted(e);
    case Handling::kMessage: p2p::receive_leave(e); break;
    case Handling::kMatchedProbe: return p2p::matched_probe(e);
    case Handling::kSendInit: return p2p::send_init_leave(e);
    case Handling::kCompletes:
    case Handling::kFree: break;
    case Handling::kCollective: collective::leave(e); break;
    case Handling::kOneSided: rma::leave(e); break;
    case Handling::kFile: return count_file(e);
    case Handling::kGetStatus: return told_complete(e);
    case Handling::kNothing:
    case Handling::kCancel:
    case Handling::kFileBarrier: return;
  }
  if (ledger::full_blame()) {
    ledger::flush(*e.thread);  // other ranks look at what they got until its record comes
    blame::looks_finish(*e.thread);
  }
  if (ledger::strict()) ledger::await_all(*e.thread);
}

void activating(Event& e, uint64_t* cookie) {
  if ((*cookie & kCookieMask) == kCookieReceive) p2p::receive_starting(e, cookie);
  else if ((*cookie & kCookieMask) == kCookieCollective) collective::activating(e, cookie);
}

void activated(Event& e, uint64_t* cookie) {
  switch (*cookie & kCookieMask) {
    case kCookieReceive: return p2p::receive_started(e, cookie);
    case kCookieSend: return p2p::send_started(e, *cookie);
    case kCookieCollective: return collective::activated(e, cookie);
    default: return;
  }
}

void completed(Event& e, int64_t place, uint64_t* cookie, bool freed) {
  switch (*cookie & kCookieMask) {
    case kCookieReceive:
      if (!ledger::is_plain || freed || !p2p::fast_path_completed(e, place, *cookie))
        p2p::receive_completed(e, place, cookie, freed);
      return;
    case kCookieSend:
    case kCookieSendHandle: return p2p::send_completed(e, place, cookie, freed);
    case kCookieCollective: return collective::completed(e, place, cookie, freed);
    case kCookieRma: return rma::completed(e, place, cookie, freed);
    default: return;
  }
}

void before_finalize() {
  if (usable && current_thread != nullptr) ledger::finish(*current_thread, config_real("RESIL_DRAIN_SECONDS"));
  ledger::setup_end();
}

uint64_t drain() {
  return usable ? ledger::drain(*current_thread, config_real("RESIL_DRAIN_SECONDS"), "resil_drain").unverified : 0;
}

void on_abort(int) {
  if (usable && current_thread != nullptr) ledger::drain(*current_thread, 1, "MPI_Abort");
}

void report(JsonWriter& json) {
  if (!usable) return;
  json.begin_object("checksum");
  json.text("mode", config_text("RESIL_CHECKSUM"));
  json.text("blame", config_text("RESIL_BLAME"));
  ledger::report(json);
  p2p::wild_report(json);
  blame::report(json);
  collective::report(json);
  rma::report(json);
  json.end_object();
  char words[160];
  const bool all = ledger::coverage_in_words(words, sizeof(words));
  report_last_words(words, all);
}

constexpr Module kChecksum = {
    .name = "checksum",
    .description = "checks that what left one rank arrived at the other",
    .stage = Stage::kChecksum,
    .config = kConfig,
    .enabled = enabled,
    .before_init = before_init,
    .after_init = after_init,
    .before_finalize = before_finalize,
    .on_abort = on_abort,
    .enter = enter,
    .leave = leave,
    .fast = may_be_fast,
    .fast_kinds = fast::kCollectives | fast::kOthers,
    .intercepts = p2p::intercepts,
    .execute_instead = p2p::intercept,
    .activating = activating,
    .activated = activated,
    .completed = completed,
    .hand_over = ledger::flush,
    .progress = ledger::progress,
    .drain = drain,
    .report = report,
};
RESIL_MODULE(kChecksum);

}  // namespace
}  // namespace resil
