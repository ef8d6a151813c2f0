// SPDX-License-Identifier: Apache-2.0
//
// What a difference means, and what is told of it. See words.h.
//
// Who gave the first wrong word computed it: everybody else has it from there. Such a rank of the leading part
// publishes the finding, and leaves the file `replicas-differ` in the report directory, so that nobody publishes what
// follows from it. Until it is known whether it has consequences there is a line, and a finding for the report should
// the job end before (`replicas-open-N`, four in a job). What may differ without a fault leaves `replicas-may-differ`.

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "detectors/replicas/messages.h"
#include "detectors/replicas/words.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/config/config.h"
#include "shim/model/calls.h"
#include "shim/model/datatype/constructors.h"
#include "shim/report/finding.h"
#include "shim/report/log.h"
#include "shim/ring/ring_format.h"
#include "shim/runtime/progress.h"

namespace resil::replicas {

namespace text = messages::replicas;

namespace {

std::atomic<bool> seen_choice;
const char* first_choice;

/// Of a difference that this rank has got from elsewhere.
bool kept_any, kept_sure;
Difference kept;
unsigned open_finding;  ///< of a difference that this rank has given; 0: none
constexpr const char* kOpen[] = {"replicas-open-0", "replicas-open-1", "replicas-open-2", "replicas-open-3"};

void mark_path(char* path, size_t bytes, const char* name) { snprintf(path, bytes, "%s/%s", runtime.directory, name); }

/// True: it is new.
bool mark(const char* name) {
  char path[1200];
  mark_path(path, sizeof(path), name);
  const int file = openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return errno != EEXIST;
  close(file);
  return true;
}

bool marked(const char* name) {
  char path[1200];
  mark_path(path, sizeof(path), name);
  return access(path, F_OK) == 0;
}

void call_text(const Origin& origin, char* line, size_t bytes) {
  char site[112] = "an unknown place", peer[40] = "";
  if (origin.site != 0) site_text(origin.site, site, sizeof(site));
  if (origin.peer >= 0) snprintf(peer, sizeof(peer), " with rank %d of its communicator", origin.peer);
  snprintf(line, bytes, "%s%s, %" PRIu64 " bytes, at %s",
           origin.site != 0 ? call_info(static_cast<CallId>(origin.call)).name : "what follows its last call", peer,
           origin.bytes, site);
}

void element_text(uint16_t element, char* line, size_t bytes) {
  const char* what = nullptr;
  switch (static_cast<BasicKind>(element >> 8)) {
    case BasicKind::kSigned:
    case BasicKind::kUnsigned: what = "integers"; break;
    case BasicKind::kFloating:
    case BasicKind::kLongDouble: what = "floating-point numbers"; break;
    case BasicKind::kComplex:
    case BasicKind::kLongDoubleComplex: what = "complex numbers"; break;
    case BasicKind::kLogical: what = "logical values"; break;
    case BasicKind::kByte: what = "bytes"; break;
    case BasicKind::kPacked: what = "packed data"; break;
    case BasicKind::kCharacter: what = "characters"; break;
    case BasicKind::kPair: what = "pairs of a value and an index"; break;
    case BasicKind::kUnknown: break;
  }
  if (what == nullptr) snprintf(line, bytes, "of a type with several kinds of elements, or that is not known");
  else if ((element & 0xff) == 1) snprintf(line, bytes, "%s", what);
  else snprintf(line, bytes, "%s of %d bytes", what, element & 0xff);
}

/// Ranks that were compared, and, where nobody knows which of them is wrong, that they are concerned.
void name_partners(const Difference& of, bool all, Finding* finding, char* text, size_t bytes) {
  int length = 0;
  text[0] = 0;
  for (int part = 0; part < place.parts; ++part) {
    if (!of.compared[part]) continue;
    length += snprintf(text + length, bytes - static_cast<size_t>(length), "%s%d", length != 0 ? ", " : "",
                       place.partner(part));
    if (all && finding != nullptr) finding->victim(place.partner(part));
  }
}

void add_words(const Difference& of, Finding* finding) {
  for (int part = 0; part < place.parts; ++part) {
    if (!of.compared[part]) continue;
    char name[24];
    snprintf(name, sizeof(name), "rank %d", place.partner(part));
    finding->add(name, "on %.60s: data %016" PRIx64 ", call %016" PRIx64, host_of(place.partner(part)),
                 of.words[part].data, of.words[part].shape);
  }
  finding->add("word", "%" PRIu64 " of rank %d of each part", of.number, place.rank);
  char element[64];
  element_text(of.origin.element, element, sizeof(element));
  if (of.origin.element != 0) finding->add("data", "%s", element);
}

void settle(const Finding& finding) {
  if (open_finding != 0) finding_settle(open_finding, finding);
  else finding_publish(finding);
  open_finding = 0;
}

void publish(const Difference& of) {
  Finding finding;
  const Origin& origin = of.origin;
  // One fault makes one part differ. Where all three do, the program's data is another in each run.
  const bool no_two_agree = of.odd < 0 && place.parts == 3 && of.compared[0] && of.compared[1] && of.compared[2];
  const bool open = may_anything_differ() || no_two_agree;
  finding.start("parts_differ", open ? Confidence::kSuspected : Confidence::kVerified);
  char call[320], partners[64];
  call_text(origin, call, sizeof(call));
  name_partners(of, of.odd < 0, &finding, partners, sizeof(partners));
  const char* what = origin.gave ? "gives MPI" : "has got from MPI";
  if (of.odd >= 0 && !origin.gave) {  // whose memory it was is not known
    finding.victim(place.partner(of.odd));
    finding.say(text::one_got_other, place.partner(of.odd), host_of(place.partner(of.odd)), call, partners);
    finding.to_do(text::one_got_other_to_do);
  } else if (of.odd >= 0) {
    if (of.after_others) finding.victim(place.partner(of.odd));
    else finding.culprit(place.partner(of.odd));
    finding.say(text::one_differs, place.partner(of.odd), host_of(place.partner(of.odd)), what, call, partners);
    finding.to_do(text::one_differs_to_do, host_of(place.partner(of.odd)));
  } else {
    finding.say(text::parts_differ, partners, what, call);
    finding.to_do(text::parts_differ_to_do);
  }
  add_words(of, &finding);
  if (of.after_others)
    finding.add("before it", "the rank had got data that differ, and nothing seemed to depend on them");
  if (open)
    finding.add("may differ", "%s",
                first_choice != nullptr ? first_choice
                : no_two_agree ? "no two of the three parts agree: what the program sends is another in each run"
                               : "another rank has made a call whose outcome depends on time");
  settle(finding);
  // Of two nobody knows which is right, nor whether either is wrong. That ends a job only where somebody has asked for
  // it.
  const bool ends = of.odd >= 0 || !config_is_default("RESIL_ON_MISMATCH");
  if (!open && ends && strcmp(config_text("RESIL_ON_MISMATCH"), "log") != 0) stop_job(90);
}

}  // namespace

void may_differ(const char* why) {
  if (!place.has_partner() || place.parts == 0 || seen_choice.load(std::memory_order_relaxed) ||
      seen_choice.exchange(true))
    return;
  first_choice = why;
  mark("replicas-may-differ");
}

bool may_anything_differ() { return marked("replicas-may-differ"); }

void found_something(const Difference& of) {
  if (!of.origin.gave || marked("replicas-differ")) return;
  bool told = false;
  for (const char* name : kOpen)
    if (told = mark(name); told) break;
  if (!told) return;
  char call[320], partners[64];
  Finding finding;
  finding.start("parts_differ", Confidence::kSuspected);
  call_text(of.origin, call, sizeof(call));
  name_partners(of, true, &finding, partners, sizeof(partners));
  log_format(text::something_differs, partners, call);
  finding.say(text::something_differs, partners, call);
  finding.to_do(text::parts_differ_to_do);
  add_words(of, &finding);
  open_finding = finding_keep(finding);
}

void found_no_consequence(const Difference& of, uint64_t agreeing, uint64_t differing) {
  if (open_finding == 0) return;
  char call[320], partners[64];
  Finding finding;
  finding.start("parts_differ", Confidence::kSuspected);
  call_text(of.origin, call, sizeof(call));
  name_partners(of, true, &finding, partners, sizeof(partners));
  finding.say(text::no_consequence, partners, call);
  finding.to_do(text::no_consequence_to_do);
  add_words(of, &finding);
  finding.add("after it", "%" PRIu64 " words agree whose data had changed, %" PRIu64 " differ, of the same kinds",
              agreeing, differing - 1);
  settle(finding);
}

void found_difference(const Difference& of, bool sure) {
  if (of.origin.gave) {
    if (mark("replicas-differ")) publish(of);
    return;
  }
  if (kept_any) return;
  kept_any = true;
  kept_sure = sure;
  kept = of;
}

void found_end(Thread& thread) {
  // Too little came after it, and another rank has given what differs without consequence: it was that.
  if (!kept_any || (!kept_sure && marked(kOpen[0]))) return;
  // Who gave the wrong data may compare later than who has got it.
  const auto second = static_cast<uint64_t>(runtime.header->ticks_per_second);
  uint64_t look = 0, limit = UINT64_MAX;
  int left = 0;
  wait_until(
      thread,
      [&] {
        const uint64_t now = ticks();
        if (now < look) return false;
        look = now + second / 20;
        dropped_look();
        while (left < runtime.size && (is_dropped(place.part_of(left)) || has_said_goodbye(left))) ++left;
        if (left == runtime.size && limit == UINT64_MAX)
          limit = now + static_cast<uint64_t>(config_real("RESIL_DRAIN_SECONDS") * static_cast<double>(second));
        return marked("replicas-differ") || now > limit;
      },
      kForOthers);
  if (mark("replicas-differ")) publish(kept);
}

// --- Goodbyes ------------------------------------------------------------------------------------------------------

// A rank that has come to MPI_Finalize is told by a file `replicas-end-RANK` in the report directory: messages may be
// late, or lost.

namespace {

void name_of(int rank, char* path, size_t bytes) {
  snprintf(path, bytes, "%s/replicas-end-%d", runtime.directory, rank);
}

}  // namespace

void goodbye() {
  if (is_dropped_by_now()) return;  // nobody waits for it, and nobody may be left to remove its file
  char path[1200];
  name_of(runtime.rank, path, sizeof(path));
  const int file = openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0) close(file);
}

bool has_said_goodbye(int world_rank) {
  char path[1200];
  name_of(world_rank, path, sizeof(path));
  return access(path, F_OK) == 0;
}

void goodbye_forget(int world_rank) {
  char path[1200];
  name_of(world_rank, path, sizeof(path));
  unlink(path);
}

bool wait_for_partner(Thread& thread, int from, bool (*over)()) {
  char path[1200];
  name_of(from, path, sizeof(path));
  const auto second = static_cast<uint64_t>(runtime.header->ticks_per_second);
  uint64_t look = ticks() + second / 10, limit = UINT64_MAX;
  bool came = false;
  wait_until(
      thread,
      [&] {
        if (came = over(); came) return true;
        dropped_look();
        const uint64_t now = ticks();
        if (limit == UINT64_MAX && now > look) {
          look = now + second / 10;
          if (access(path, F_OK) == 0)
            limit = now + static_cast<uint64_t>(config_real("RESIL_DRAIN_SECONDS") * static_cast<double>(second));
        }
        return now > limit;
      },
      kForOthers);
  return came;
}

}  // namespace resil::replicas
