// SPDX-License-Identifier: Apache-2.0
//
// RESIL_BLAME=full: conflicting accesses to a window within one epoch of active synchronisation, at the target, when
// the lists of all origins are there. Told is what conflicts by MPI 4.0, section 12.7, and has had an effect;
// accumulations among themselves do not conflict. What is known of the memory: when the epoch began, when this rank
// entered the call that closes it, when it was over. It names what it found in docs/CHECKSUM.md, "One-sided".

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "checksum/ledger/touch.h"
#include "checksum/messages.h"
#include "checksum/rma/wire.h"
#include "checksum/rma/workspace.h"
#include "shim/base/own_stack.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/model/calls.h"
#include "shim/report/finding.h"

namespace resil::rma {

namespace {

constexpr uint64_t kMaxPieces = 1 << 16, kMaxPairs = 1 << 18;
constexpr unsigned kTold = 16;

struct Member {
  Item* item;
  int origin;
};

struct Told {
  uint64_t window, one, other;  ///< call sites; 0: the target's own stores
} told[kTold];
unsigned told_count;

bool accumulates(const Item& item) {
  const RmaOperation operation = call_info(static_cast<CallId>(item.call)).rma;
  return operation != RmaOperation::kPut && operation != RmaOperation::kGet;
}

/// "MPI_Put by rank 2 (app+0x12)"
void access_text(const Window& w, const Member& member, char* text, size_t bytes) {
  char site[112];
  if (member.origin == w.rank) site_text(member.item->site, site, sizeof(site));
  else snprintf(site, sizeof(site), "at 0x%" PRIx64 " there", member.item->site);
  snprintf(text, bytes, "%s by rank %d (%s)", call_info(static_cast<CallId>(member.item->call)).name,
           world_rank(w, member.origin), site);
}

void tell(const Window& w, const Member& one, const Member* other, int64_t start, int64_t end, const char* effect) {
  const uint64_t second = other != nullptr ? other->item->site : 0;
  for (unsigned i = 0; i < told_count; ++i)
    if (told[i].window == w.id && ((told[i].one == one.item->site && told[i].other == second) ||
                                   (told[i].other == one.item->site && told[i].one == second)))
      return;
  if (told_count == kTold) return;
  told[told_count++] = {w.id, one.item->site, second};
  on_own_stack([&] {
    char first[200], rest[200];
    access_text(w, one, first, sizeof(first));
    if (other != nullptr) access_text(w, *other, rest, sizeof(rest));
    else snprintf(rest, sizeof(rest), "a store of rank %d itself", world_rank(w, w.rank));
    Finding finding;
    finding.start("one_sided_race", Confidence::kProved);
    finding.culprit(world_rank(w, one.origin));
    if (const int culprit = world_rank(w, other != nullptr ? other->origin : w.rank);
        culprit != world_rank(w, one.origin))
      finding.culprit(culprit);
    finding.victim(world_rank(w, w.rank));
    finding.say(messages::checksum::one_sided_race, first, rest, world_rank(w, w.rank), static_cast<long long>(start),
                static_cast<long long>(end - 1), effect);
    finding.to_do(messages::checksum::one_sided_race_to_do);
    finding.add("one", "%s", first);
    finding.add("other", "%s", rest);
    finding.add("window_bytes", "%lld to %lld", static_cast<long long>(start), static_cast<long long>(end - 1));
    finding_publish(finding);
  });
}

/// Its pieces are those bytes that it names, and no others.
bool is_exact(const Item& item, const Interval& piece) {
  return !item.anywhere && (intervals_of(item) > 1 || static_cast<uint64_t>(piece.end - piece.start) == item.bytes);
}

bool differ(const char* a, const char* b, int64_t start, int64_t end) {
  return memcmp(a + start, b + start, static_cast<size_t>(end - start)) != 0;
}

/// Two that conflict, if what one of them did is seen; else null.
const char* effect_of(const Item& a, const Item& b, const char* before, const char* after, int64_t start, int64_t end) {
  if (accumulates(a) && accumulates(b)) return nullptr;
  const bool a_gets = a.what == What::kGet, b_gets = b.what == What::kGet;
  if (a_gets != b_gets)
    return before != nullptr && differ(before, after, start, end) ? messages::checksum::race_read : nullptr;
  const bool lost = (a.what == What::kPut && a.outcome == Outcome::kDifferent) ||
                    (b.what == What::kPut && b.outcome == Outcome::kDifferent);
  return lost ? messages::checksum::race_lost : nullptr;
}

}  // namespace

void find_races(const Window& w, Packet* packets, Message list) {
  if (packets == nullptr || w.bytes <= 0 || w.flavor == WindowFlavor::kDynamic || w.flavor == WindowFlavor::kShared ||
      !touch::enabled || shares_memory(w))
    return;
  const char* before = snapshot_of(w);
  // After a fence others may be in the next epoch by now; the copy was made while all were inside.
  const char* after = list != Message::kFenceList ? w.base : w.snapshot_next ? w.snapshots[1 - w.snapshot] : nullptr;
  if (after == nullptr) return;
  uint64_t pieces = 0, items = 0;
  for (Packet* packet = packets; packet != nullptr; packet = packet->next)
    each_item(*packet, [&](Item& item) {
      pieces += intervals_of(item);
      items += 1;
    });
  if (items == 0 || pieces > kMaxPieces) return;
  Workspace workspace(pieces * sizeof(Interval) + items * sizeof(Member));
  auto* all = reinterpret_cast<Interval*>(workspace.data());
  if (all == nullptr) return;
  auto* members = reinterpret_cast<Member*>(all + pieces);
  size_t made = 0;
  uint32_t number = 0;
  for (Packet* packet = packets; packet != nullptr; packet = packet->next)
    each_item(*packet, [&](Item& item) {
      members[number] = {&item, packet->header.origin};
      made += fill_intervals(w, item, number++, all + made);
    });
  std::sort(all, all + made, [](const Interval& a, const Interval& b) { return a.start < b.start; });
  uint64_t pairs = 0;
  for (size_t i = 0; i < made; ++i) {
    const Interval& piece = all[i];
    Member& one = members[piece.item];
    if (!is_exact(*one.item, piece) || piece.start < 0 || piece.end > w.bytes) continue;
    for (size_t k = i + 1; k < made && all[k].start < piece.end && ++pairs < kMaxPairs; ++k) {
      const Member& other = members[all[k].item];
      if (all[k].item == piece.item || !is_exact(*other.item, all[k]) || all[k].end > w.bytes) continue;
      const int64_t end = std::min(piece.end, all[k].end);
      if (const char* effect = effect_of(*one.item, *other.item, before, after, all[k].start, end); effect != nullptr)
        tell(w, one, &other, all[k].start, end, effect);
    }
    if (one.item->overlapped || before == nullptr || accumulates(*one.item)) continue;
    if (one.item->what == What::kGet && differ(before, after, piece.start, piece.end)) {
      one.item->overlapped = true;  // nobody's fault but the program's
      tell(w, one, nullptr, piece.start, piece.end, messages::checksum::race_read);
    } else if (one.item->what == What::kPut && one.item->outcome == Outcome::kSame && w.snapshot_entered) {
      // The Put has brought what is there now; the target's memory was what it is now or what it was before, until
      // somebody stored something else there.
      const char* entered = w.snapshots[2];
      for (int64_t at = piece.start; at < piece.end; ++at) {
        if (entered[at] == before[at] || entered[at] == after[at]) continue;
        tell(w, one, nullptr, piece.start, piece.end, messages::checksum::race_lost);
        break;
      }
    }
  }
}

}  // namespace resil::rma
