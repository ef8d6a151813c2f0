// SPDX-License-Identifier: Apache-2.0
//
// What the accounts of a whole job say.

#include <cstdio>
#include <initializer_list>

#include "detectors/hang/mismatch/accounts_frame.h"
#include "shim/base/hash.h"

namespace resil::hang {

namespace {

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

void list_one(UnreceivedList& list, const Account& account, uint64_t messages) {
  list.total += messages;
  if (list.listed < kMostUnreceived)
    list.entries[list.listed++] = {account.source, account.destination, account.tag >= 0 ? account.tag : -1,
                                   messages,       account.comm,        ""};
}

bool judge_messages(const void* frame, const AccountsHeader& header, Verdict& verdict, UnreceivedList& list) {
  uint64_t messages = 0, answers = 0;
  Account first = {};
  bool any = false, any_mark = false;
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
    auto one = [&](const Account& account, int64_t difference) {
      if (difference == 0) return;
      if (difference > 0) name_rank(verdict.culprits, kMaxCulprits, &verdict.culprit_count, account.source);
      name_rank(verdict.victims, kMaxVictims, &verdict.victim_count, account.destination);
      if (!any) first = account;
      any = true;
      (difference > 0 ? messages : answers) += size_of(difference);
      if (difference > 0) list_one(list, account, size_of(difference));
    };
    if (mixed) {
      Account all = pair;
      all.tag = kOtherTags;
      one(all, sum);
    } else {
      for (uint32_t k = i; k < end; ++k) one(account_at(frame, k), account_at(frame, k).difference);
    }
  }
  if (!any && (header.folded_sum == 0 || any_mark)) return false;
  if (messages != 0) verdict.add(Message::kUnreceived).n[0] = messages;
  if (answers != 0) verdict.add(Message::kUnsent).n[0] = answers;
  if (!any) verdict.add(Message::kUnbalanced);
  if (any) {
    Statement& made = verdict.add(first.tag >= 0 ? Message::kFirstUnmatched : Message::kFirstUnmatchedAnyTag);
    made.rank = first.source;
    made.n[0] = static_cast<uint64_t>(first.destination);
    made.n[1] = static_cast<uint64_t>(first.tag);
    made.comm = first.comm;
  }
  verdict.add(Message::kMustComplete);
  verdict.comm = first.comm;
  verdict.signature = hash_combine(hash_combine(first.comm, messages), answers + 1);
  return true;
}

/// The first communicator whose members do not agree.
bool judge_counts(const void* frame, const AccountsHeader& header, Verdict& verdict) {
  for (uint32_t i = 0; i < header.counts; ++i) {
    const Count count = count_at(frame, header, i);
    // Members that are not in have freed it, and their number with it.
    if (count.present != count.members || count.marked != 0 || count.least == count.most) continue;
    verdict.comm = count.comm;
    verdict.sequence = count.least + 1;
    name_rank(verdict.culprits, kMaxCulprits, &verdict.culprit_count,
              count.at_least <= count.at_most ? count.least_rank : count.most_rank);
    Statement& made = verdict.add(Message::kUnequalCounts);
    made.comm = count.comm;
    made.rank = count.least_rank;
    made.n[0] = count.least;
    made.n[1] = static_cast<uint64_t>(count.most_rank);
    made.n[2] = count.most;
    made.n[3] = count.at_least;
    verdict.add(Message::kUnequalRule);
    verdict.signature = hash_combine(verdict.comm, verdict.sequence);
    return true;
  }
  return false;
}

}  // namespace

bool accounts_judge(const void* merged, uint32_t bytes, Verdict* verdict, UnreceivedList* list) {
  AccountsHeader header;
  if (!accounts_check(merged, bytes, &header) || !complete(header)) return false;
  verdict->begin(list != nullptr ? HangClass::kUnreceived : HangClass::kUnequalCollectives, Confidence::kSuspected);
  if (list == nullptr) return judge_counts(merged, header, *verdict);
  *list = {true, 0, 0, {}};
  return judge_messages(merged, header, *verdict, *list);
}

bool accounts_name(const void* merged, uint32_t bytes, uint32_t index, uint64_t* comm, char* text, uint32_t room) {
  AccountsHeader header;
  if (!accounts_check(merged, bytes, &header) || index >= header.names) return false;
  const CommName name = name_at(merged, header, index);
  *comm = name.comm;
  snprintf(text, room, "%.*s", static_cast<int>(sizeof(name.text)), name.text);
  return true;
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
