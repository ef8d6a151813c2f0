// SPDX-License-Identifier: Apache-2.0
//
// What the accounts of a whole job say.

#include <cinttypes>
#include <cstdio>
#include <initializer_list>

#include "detectors/hang/mismatch/accounts_frame.h"
#include "detectors/hang/mismatch/text.h"
#include "shim/base/hash.h"

namespace resil::hang {

namespace {

constexpr uint32_t kShown = 12;

bool complete(const AccountsHeader& header) {
  constexpr uint32_t kMostRanks = 1u << 24;
  if (header.ranks != header.world || header.world > kMostRanks) return false;
  uint64_t sum = 0;
  for (uint64_t rank = 0; rank < header.world; ++rank) sum += mix64(rank + 1);
  return header.rank_sum == sum;
}

void name_rank(int32_t* ranks, uint32_t room, uint32_t* count, int32_t rank) {
  uint32_t place = 0;
  const uint32_t kept = *count < room ? *count : room;
  while (place < kept && ranks[place] < rank) ++place;
  if (place < kept && ranks[place] == rank) return;
  if (kept < room) {
    for (uint32_t i = kept; i > place; --i) ranks[i] = ranks[i - 1];
    ranks[place] = rank;
  }
  ++*count;
}

/// Marks stand first: communicator 0.
bool is_marked(const void* frame, const AccountsHeader& header, int32_t rank, int32_t mark) {
  for (uint32_t i = 0; i < header.accounts; ++i) {
    const Account account = account_at(frame, i);
    if (account.comm != 0) return false;
    if (account.source == rank && account.tag == mark) return true;
  }
  return false;
}

bool is_trusted(const void* frame, const AccountsHeader& header, const Account& account) {
  for (const int32_t rank : {account.source, account.destination})
    if (is_marked(frame, header, rank, kMarkTag) ||
        (account.comm != header.world_comm && is_marked(frame, header, rank, kForgotTag)))
      return false;
  return true;
}

/// By whoever had it; else by those whom the root can still ask.
const char* comm_text(const void* frame, const AccountsHeader& header, const Names& names, uint64_t comm) {
  static CommName name;  // one thread
  for (uint32_t i = 0; i < header.names; ++i)
    if (name = name_at(frame, header, i); name.comm == comm) {
      name.text[sizeof(name.text) - 1] = 0;
      return name.text;
    }
  return names.comm(names.self, comm);
}

struct Found {
  uint64_t messages, answers, envelopes;
};

void list_one(UnreceivedList& list, const Account& account, uint64_t messages, const char* comm) {
  list.total += messages;
  if (list.listed == kMostUnreceived) return;
  Unreceived& entry = list.entries[list.listed++];
  entry.sender = account.source;
  entry.receiver = account.destination;
  entry.tag = account.tag >= 0 ? account.tag : -1;
  entry.count = messages;
  snprintf(entry.communicator, sizeof(entry.communicator), "%s", comm);
}

void take(const Account& account, int64_t difference, Found& found, const char* comm, UnreceivedList* list,
          Text& evidence) {
  if (difference == 0) return;
  const uint64_t messages = size_of(difference);
  (difference > 0 ? found.messages : found.answers) += messages;
  if (difference > 0 && list != nullptr) list_one(*list, account, messages, comm);
  if (++found.envelopes > kShown) return;
  evidence.add(difference > 0 ? "never received: %" PRIu64 " messages of rank %d to rank %d on %s"
                              : "never sent: %" PRIu64 " messages of rank %d to rank %d on %s",
               messages, account.source, account.destination, comm);
  if (account.tag >= 0) evidence.add(", tag %d", account.tag);
  evidence.add("\n");
}

bool judge_messages(const void* frame, const AccountsHeader& header, const Names& names, Verdict& verdict,
                    UnreceivedList* list) {
  Found found = {};
  Text evidence = {verdict.evidence, sizeof(verdict.evidence), 0};
  Account first = {};
  int64_t first_difference = 0;
  bool any_mark = false;
  for (uint32_t i = 0, end; i < header.accounts; i = end) {
    const Account pair = account_at(frame, i);
    bool mixed = false;
    int64_t sum = 0;
    for (end = i; end < header.accounts; ++end) {
      const Account account = account_at(frame, end);
      if (account.comm != pair.comm || account.source != pair.source || account.destination != pair.destination) break;
      mixed = mixed || account.tag == kMixedTag || account.tag == kOtherTags;
      sum = sum_of(sum, account.tag == kMixedTag ? 0 : account.difference);
    }
    if (pair.comm == 0) {
      any_mark = true;
      continue;
    }
    if (!is_trusted(frame, header, pair)) continue;
    auto one = [&](Account account, int64_t difference) {
      if (difference > 0) name_rank(verdict.culprits, kMaxCulprits, &verdict.culprit_count, account.source);
      if (difference != 0) name_rank(verdict.victims, kMaxVictims, &verdict.victim_count, account.destination);
      if (difference != 0 && first_difference == 0) {
        first = account;
        first_difference = difference;
      }
      take(account, difference, found, comm_text(frame, header, names, account.comm), list, evidence);
    };
    if (mixed) {
      Account all = pair;
      all.tag = kOtherTags;
      one(all, sum);
    } else {
      for (uint32_t k = i; k < end; ++k) one(account_at(frame, k), account_at(frame, k).difference);
    }
  }
  const bool folded = header.folded_sum != 0 && !any_mark;
  if (found.envelopes == 0 && !folded) return false;
  verdict.type = HangClass::kUnreceived;
  verdict.confidence = Confidence::kSuspected;
  verdict.call = static_cast<uint16_t>(~0u);
  Text text = {verdict.message, sizeof(verdict.message), 0};
  text.add("When all ranks had called MPI_Finalize, ");
  if (found.messages != 0) text.add("%" PRIu64 " messages had been sent that nobody had received", found.messages);
  if (found.answers != 0)
    text.add("%s%" PRIu64 " receives had been started for which no message had been sent",
             found.messages != 0 ? ", and " : "", found.answers);
  if (found.envelopes == 0)
    text.add("messages sent and messages received did not balance; for which ranks there was no room to tell");
  else
    text.add(": first of them from rank %d to rank %d on %s%s", first.source, first.destination,
             comm_text(frame, header, names, first.comm), first.tag >= 0 ? "" : " (tags not told apart)");
  if (found.envelopes != 0 && first.tag >= 0) text.add(", tag %d", first.tag);
  text.add(". MPI wants all communication to be complete by then; most libraries let it pass.");
  if (found.envelopes > kShown) evidence.add("further envelopes: %" PRIu64 "\n", found.envelopes - kShown);
  if (folded) evidence.add("further pairs of ranks do not balance; no room to tell which\n");
  verdict.comm = first.comm;
  verdict.signature = hash_combine(hash_combine(first.comm, found.messages), found.answers + 1);
  return true;
}

bool judge_counts(const void* frame, const AccountsHeader& header, const Names& names, Verdict& verdict) {
  Text evidence = {verdict.evidence, sizeof(verdict.evidence), 0};
  uint32_t found = 0;
  for (uint32_t i = 0; i < header.counts; ++i) {
    const Count count = count_at(frame, header, i);
    // Members that are not in have freed it, and their number with it.
    if (count.present != count.members || count.marked != 0 || count.least == count.most) continue;
    if (++found > kShown) continue;
    const char* comm = comm_text(frame, header, names, count.comm);
    const bool few = count.at_least <= count.at_most;
    evidence.add("collectives on %s: %" PRIu64 " to %" PRIu64
                 " (%u ranks made the least, one is %d; %u the most, one is %d)\n",
                 comm, count.least, count.most, count.at_least, count.least_rank, count.at_most, count.most_rank);
    if (found != 1) continue;
    verdict.comm = count.comm;
    verdict.sequence = count.least + 1;
    name_rank(verdict.culprits, kMaxCulprits, &verdict.culprit_count, few ? count.least_rank : count.most_rank);
    Text text = {verdict.message, sizeof(verdict.message), 0};
    text.add("Ranks made unequal numbers of collective calls on %s: rank %d made %" PRIu64 ", ", comm, count.least_rank,
             count.least);
    text.add(
        "rank %d made %" PRIu64
        "; %u of %u made the least. MPI wants all of them to make the same calls; nobody waited for the last ones.",
        count.most_rank, count.most, count.at_least, count.members);
  }
  if (found == 0) return false;
  if (found > kShown) evidence.add("further communicators: %u\n", found - kShown);
  verdict.type = HangClass::kUnequalCollectives;
  verdict.confidence = Confidence::kSuspected;
  verdict.call = static_cast<uint16_t>(~0u);
  verdict.signature = hash_combine(verdict.comm, verdict.sequence);
  return true;
}

}  // namespace

bool accounts_judge(const void* merged, uint32_t bytes, const Names& names, Verdict* verdict, bool again,
                    UnreceivedList* list) {
  AccountsHeader header;
  *verdict = {};
  if (!accounts_check(merged, bytes, &header) || !complete(header)) return false;
  if (list != nullptr && !again) *list = {true, 0, 0, {}};
  return again ? judge_counts(merged, header, names, *verdict) : judge_messages(merged, header, names, *verdict, list);
}

AccountsCoverage accounts_coverage(const void* merged, uint32_t bytes) {
  AccountsHeader header;
  if (!accounts_check(merged, bytes, &header)) return {};
  AccountsCoverage coverage = {complete(header), 0, header.folded};
  for (uint32_t i = 0; i < header.accounts && account_at(merged, i).comm == 0; ++i)
    coverage.left_out += account_at(merged, i).tag == kMarkTag;
  return coverage;
}

}  // namespace resil::hang
