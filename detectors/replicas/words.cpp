// SPDX-License-Identifier: Apache-2.0
//
// The sequence of words: batches of followers, and their comparison in the leading part. See words.h.
//
// The leading part keeps its words until all followers' have come. A follower waits for nobody
// before MPI_Finalize: if its batches are not taken it leaves words out, and says so by their numbers. Where another
// part comes to lead it keeps its own from there on; what has not been compared by then is left out.

#include "detectors/replicas/words.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "detectors/replicas/consequence.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/call/parts.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/report/json.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/progress.h"

namespace resil::replicas {

namespace {

constexpr uint32_t kBatch = 256, kBatches = 1024, kPosted = 16;
constexpr uint64_t kMostKept = 1u << 20;  ///< own words of the leading part: 16 MiB, and 32 MiB of origins
constexpr int kMostParts = 3;
constexpr uint64_t kLast = 1, kLeft = 2;  ///< Batch::last; left: there would be more
constexpr double kPatience = 10;  ///< seconds that a leader waits for a follower which is a million words behind

struct Batch {
  uint64_t first;  ///< number of its first word
  uint32_t count, part;
  uint64_t last;  ///< not 0: there are no more, and these were all
  Word words[kBatch];
};

uint64_t added, compared, left_out, differing;
bool open;
bool leads;  // compares

// A follower's.
Batch* batches;
uint64_t requests[kBatches];
uint32_t first_sent, filling;  // by number, modulo kBatches: under way are [first_sent, filling)
uint64_t last_flush;  // of the leading part: when it last looked what has come

// The leading part's.
Word* own;
Origin* origins;
mailbox::Inbox<Batch> inbox;
Batch* posted;
uint64_t posted_requests[kPosted];
struct Follower {
  Word* words;  // numbers [from, until), modulo kMostKept
  bool* missing;
  uint64_t until;
  bool ended, apart, lost;  // no more come; compared no more; the last ones have not come
} followers[kMostParts];
uint64_t from;  // the next number to be compared
bool own_apart;
bool leaving;  // this copy has left the program, without a difference
bool given_up;  // from here on there is nothing to compare
constinit Consequences consequences = {};
Difference first, row;  // of what is open; since a word has agreed
struct Votes {
  uint32_t parts[kMostParts + 1];  // how often each is the odd one; nobody
} votes, row_votes;
bool got_one, got_others;  // data that differs: since then; before, without consequence

size_t bytes_of(const Batch& batch) { return offsetof(Batch, words) + batch.count * sizeof(Word); }

void take_back_sent() {
  while (first_sent != filling && backend->test(&requests[first_sent % kBatches])) ++first_sent;
}

/// Sends the batch that is being filled.
void send_batch(uint64_t last) {
  Batch& batch = batches[filling % kBatches];
  batch.part = static_cast<uint32_t>(place.part);
  batch.last = last;
  if (!mailbox::send(&batch, bytes_of(batch), place.partner(part_that_leads()), tags::kReplicas[0],
                     &requests[filling % kBatches])) {
    left_out += batch.count;
    batch.count = 0;
    return;
  }
  ++filling;
  batches[filling % kBatches].count = 0;
}

bool room_for_batch() {
  if (filling - first_sent < kBatches - 1) return true;
  take_back_sent();
  return filling - first_sent < kBatches - 1;
}

void take_batch(const Batch& batch) {
  Follower& follower = followers[batch.part];
  if (batch.count == 0 && batch.last == 0) return;  // says only that it goes on
  for (uint64_t number = follower.until; number < batch.first + batch.count; ++number) {
    if (number < from) continue;  // of a part that has come apart, and is not waited for
    const uint64_t at = number % kMostKept;
    follower.missing[at] = number < batch.first;
    if (number >= batch.first) follower.words[at] = batch.words[number - batch.first];
  }
  if (batch.first + batch.count > follower.until) follower.until = batch.first + batch.count;
  if (batch.last != 0) follower.ended = true;
  if (batch.last == kLeft) follower.lost = true;
}

bool equal(const Word& one, const Word& other) { return one.data == other.data && one.shape == other.shape; }

Consequences::Kind kind_of(const Origin& origin) {
  const uint64_t call = hash_combine(origin.site, uint64_t{origin.call} << 1 | origin.gave);
  return {call, hash_combine(call, origin.bytes)};
}

/// Replicas that have come apart differ for ever: one finding says it.
void come_apart(bool sure) {
  uint32_t all = 0, most = kMostParts;
  for (uint32_t i = 0; i <= kMostParts; ++i) {
    all += votes.parts[i];
    if (votes.parts[i] > votes.parts[most]) most = i;
  }
  first.odd = most < kMostParts && votes.parts[most] * 4 >= all * 3 ? static_cast<int>(most) : -1;
  for (int part = 0; part < place.parts; ++part)
    if (first.odd < 0 || part == first.odd) (part == place.part ? own_apart : followers[part].apart) = true;
  found_difference(first, sure);
}

void no_consequence() {
  got_others |= got_one;
  found_no_consequence(first, consequences.agreeing(), consequences.differing());
}

/// `words` of the parts `has`, of which `odd` is the odd one, differ.
void differs(uint64_t number, const Word* words, const bool* has, const Origin& origin, int odd, bool certain) {
  using Verdict = Consequences::Verdict;
  ++differing;
  const bool was_open = consequences.open(), was_row = consequences.counting() && consequences.in_a_row() != 0;
  const Verdict verdict = consequences.differs(kind_of(origin), certain);
  if (!was_row) {
    row = {number, {}, {}, origin, odd, got_others};
    memcpy(row.words, words, sizeof(row.words));
    memcpy(row.compared, has, sizeof(row.compared));
    row_votes = {};
  }
  ++row_votes.parts[odd < 0 ? kMostParts : odd];
  if (verdict == Verdict::kKnown) return;
  if (!was_open) {
    // Words of kinds that are known to differ may have brought it.
    first = row;
    votes = row_votes;
    got_one = false;
  } else {
    ++votes.parts[odd < 0 ? kMostParts : odd];
  }
  got_one |= !origin.gave;
  if (verdict == Verdict::kOpened) found_something(first);
  else if (verdict == Verdict::kReal) come_apart(true);
}

/// Compares word `number`, which all parts that are still compared have.
void compare(uint64_t number) {
  const uint64_t at = number % kMostKept;
  Word words[kMostParts] = {};
  bool has[kMostParts] = {};
  int parts[kMostParts], count = 0;
  for (int part = 0; part < place.parts; ++part) {
    const bool is_own = part == place.part;
    if (is_own ? own_apart : followers[part].apart || followers[part].missing[at]) continue;
    words[part] = is_own ? own[at] : followers[part].words[at];
    has[part] = true;
    parts[count++] = part;
  }
  if (count < 2) {
    left_out += 1;
    return;
  }
  ++compared;
  bool same = true, same_call = true;
  for (int i = 1; i < count; ++i) {
    same = same && equal(words[parts[0]], words[parts[i]]);
    same_call = same_call && words[parts[0]].shape == words[parts[i]].shape;
  }
  const Origin& origin = origins[at];
  if (same) [[likely]] {
    // A copy that is fed gets what is right, whatever it has computed.
    if (consequences.counting() && (origin.gave || !place.fed) &&
        consequences.agrees(kind_of(origin), words[parts[0]].data) == Consequences::Verdict::kNone)
      no_consequence();
    return;
  }
  int odd = -1;
  for (int i = 0; i < count && count == 3; ++i)
    if (equal(words[parts[(i + 1) % 3]], words[parts[(i + 2) % 3]])) odd = parts[i];
  differs(number, words, has, origin, odd, !same_call || origin.sums);
}

void compare_what_is_there() {
  for (int part = 0; part < place.parts; ++part) followers[part].apart |= part == place.part || is_dropped(part);
  for (; open;) {
    if (from >= added) return;
    for (int part = 0; part < place.parts; ++part)
      if (!followers[part].apart && !followers[part].ended && followers[part].until <= from) return;
    const uint64_t at = from % kMostKept;
    for (int part = 0; part < place.parts; ++part)
      if (followers[part].ended && followers[part].until <= from && followers[part].missing != nullptr)
        followers[part].missing[at] = true;
    compare(from);
    ++from;
  }
}

/// Takes what has come, as far as there is room for it.
void take_what_came() {
  bool failed = false;
  while (inbox.is_open() && inbox.has_come(&failed)) {
    if (failed) {
      inbox.close();
      return;
    }
    const Batch& batch = inbox.message();
    if (batch.part >= kMostParts || followers[batch.part].words == nullptr) {
      if (!inbox.again()) return;
      continue;
    }
    dropped_heard(static_cast<int>(batch.part));
    if (open && batch.first + batch.count > from + kMostKept) return;  // later: the follower is that far ahead
    if (open) take_batch(batch);
    else if (batch.last != 0) followers[batch.part].ended = true;
    if (!inbox.again()) return;
  }
}

/// From here on this rank compares. False: no memory, or MPI would not.
bool begin_to_lead() {
  own = memory::map_array<Word>(kMostKept);
  origins = memory::map_array<Origin>(kMostKept);
  posted = memory::map_array<Batch>(kPosted);
  bool ready = own != nullptr && origins != nullptr && posted != nullptr;
  for (int part = 0; part < place.parts; ++part) {
    if (part == place.part || is_dropped(part)) continue;
    followers[part].words = memory::map_array<Word>(kMostKept);
    followers[part].missing = memory::map_array<bool>(kMostKept);
    followers[part].until = added;
    ready = ready && followers[part].words != nullptr && followers[part].missing != nullptr;
  }
  leads = true;
  from = added;
  return ready && inbox.open(tags::kReplicas[0], posted, posted_requests, kPosted);
}

/// Another part may have come to lead: this one.
void look_who_leads() {
  if (leads || part_that_leads() != place.part) [[likely]]
    return;
  left_out = added;  // who has compared them cannot say so any more
  open = begin_to_lead() && open;
}

}  // namespace

void words_begin() {
  if (place.part == 0) {
    open = begin_to_lead();
    return;
  }
  batches = memory::map_array<Batch>(kBatches);
  open = batches != nullptr;
}

void words_add(Thread& thread, const Word& word, const Origin& origin) {
  if (!open || given_up) {
    left_out += 1;
    return;
  }
  const uint64_t number = added++;
  if (leads) {
    if (number - from >= kMostKept) [[unlikely]] {
      // So far ahead of a follower, which does not wait for anybody. Not for ever: it may be stopped.
      const uint64_t limit = ticks() + static_cast<uint64_t>(kPatience * runtime.header->ticks_per_second);
      wait_until(
          thread,
          [&] {
            take_what_came();
            dropped_look();
            compare_what_is_there();
            return number - from < kMostKept || ticks() > limit;
          },
          kForOthers);
      for (int part = 0; number - from >= kMostKept && part < place.parts; ++part)
        followers[part].apart |= followers[part].until <= from;
      compare_what_is_there();
      if (number - from >= kMostKept) {
        open = false;
        return;
      }
    }
    own[number % kMostKept] = word;
    origins[number % kMostKept] = origin;
    return;
  }
  (void)thread;
  Batch& batch = batches[filling % kBatches];
  if (batch.count == 0) batch.first = number;
  if (batch.count == kBatch || batch.first + batch.count != number) {  // full, and could not be sent
    left_out += 1;
    return;
  }
  batch.words[batch.count++] = word;
  if (batch.count == kBatch && room_for_batch()) send_batch(0);
}

void words_progress(uint64_t now) {
  look_who_leads();
  if (leads) {
    // A test may offer the processor to others, and costs more than a small message.
    if (now - last_flush < static_cast<uint64_t>(runtime.header->ticks_per_second) / 50000) return;
    last_flush = now;
    take_what_came();
    compare_what_is_there();
    return;
  }
  if (!open) return;
  take_back_sent();
  Batch& batch = batches[filling % kBatches];
  // One that has nothing to send says that it goes on.
  const auto second = static_cast<uint64_t>(runtime.header->ticks_per_second);
  if (batch.count == kBatch || now - last_flush > (batch.count != 0 ? second / 10 : dropped_pulse())) {
    last_flush = now;
    if (batch.count == 0) batch.first = added;
    if (room_for_batch()) send_batch(0);
  }
}

void words_diverge(Thread& thread) {
  if (open) words_add(thread, {0, 0}, {0, 0, -1, -1, 0, true, false, 0});
}

void words_leave() { leaving = true; }

void words_give_up() {
  compare_what_is_there();
  given_up = true;
}

namespace {

/// Gives the leading part the rest. True: it has it, or another part has come to lead.
bool end_to(Thread& thread, int lead) {
  if (batches[filling % kBatches].count == 0) batches[filling % kBatches].first = added;
  send_batch(leaving ? kLeft : kLast);
  goodbye();
  // A library that waits in MPI_Finalize need not pass on what it has taken: so this rank stays until the leader has
  // it.
  static uint64_t request;
  static char nothing;
  static int leading;
  leading = lead;
  if (mailbox::receive(&nothing, sizeof(nothing), place.partner(lead), tags::kReplicas[2], &request) &&
      (!wait_for_partner(thread, place.partner(lead),
                         [] {
                           take_back_sent();
                           bool failed = false;
                           return mailbox::is_over(&request, &failed) || part_that_leads() != leading;
                         }) ||
       part_that_leads() != lead))
    backend->messages->cancel(&request);
  return part_that_leads() == lead;
}

}  // namespace

void words_end(Thread& thread) {
  if (!leads) {
    if (!open) return;
    wait_until(thread, room_for_batch, kForOthers);
    for (int lead = part_that_leads(); lead < place.part; lead = part_that_leads())
      if (end_to(thread, lead)) return;
    look_who_leads();
    if (!leads) return;
  }
  goodbye();
  // All followers come to MPI_Finalize as well: it would wait for them, too.
  static int part_waited_for;
  for (part_waited_for = 0; part_waited_for < place.parts; ++part_waited_for) {
    if (part_waited_for == place.part) continue;
    const bool came = wait_for_partner(thread, place.partner(part_waited_for), [] {
      take_what_came();
      compare_what_is_there();
      return followers[part_waited_for].ended || is_dropped(part_waited_for) || !inbox.is_open();
    });
    if (!came) followers[part_waited_for].lost = true;
  }
  compare_what_is_there();
  static uint64_t requests_of_goodbyes[kMostParts];
  static char nothing;
  for (int part = 0; part < place.parts; ++part) {
    uint64_t& request = requests_of_goodbyes[part];
    if (part == place.part || is_dropped(part)) continue;
    if (mailbox::send(&nothing, sizeof(nothing), place.partner(part), tags::kReplicas[2], &request))
      for (int i = 0; i < 100000 && !backend->test(&request); ++i) {}
  }
  // A part that has made more calls, or fewer.
  for (int part = 0; part < place.parts; ++part) {
    Follower& follower = followers[part];
    if (part == place.part) continue;
    follower.lost = follower.lost || given_up;
    if (follower.lost && follower.until < added) left_out += added - follower.until;
    if (follower.lost || follower.apart || own_apart || !open || follower.until == added) continue;
    const uint64_t number = follower.until < added ? follower.until : added;
    Word words[kMostParts] = {};
    bool has[kMostParts] = {};
    has[place.part] = has[part] = true;
    Origin origin = number < added && added - number <= kMostKept ? origins[number % kMostKept] : Origin{};
    origin.gave = true;
    differs(number, words, has, origin, -1, true);
    follower.apart = true;
  }
  switch (consequences.end()) {
    case Consequences::Verdict::kNone: no_consequence(); break;
    case Consequences::Verdict::kUndecided: come_apart(false); break;
    default: break;
  }
  open = false;
  found_end(thread);
}

void words_close() {
  open = false;
  if (inbox.is_open()) inbox.close();
}

bool words_in_words(char* text, size_t room) {
  snprintf(text, room, "rank %d compared %" PRIu64 " of %" PRIu64 " words with its cop%s", place.rank, compared, added,
           place.parts == 2 ? "y" : "ies");
  return compared == added;
}

void words_report(JsonWriter& json) {
  json.integer("words", static_cast<int64_t>(added));
  if (leads) json.integer("compared", static_cast<int64_t>(compared));
  json.integer("left_out", static_cast<int64_t>(left_out));
  if (!leads) return;
  json.integer("differing", static_cast<int64_t>(differing));
  json.integer("without_consequence", static_cast<int64_t>(consequences.known()));
}

}  // namespace resil::replicas
