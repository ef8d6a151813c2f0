// SPDX-License-Identifier: Apache-2.0
//
// What the balances of a whole job say.

#include <cstdio>
#include <initializer_list>

#include "detectors/hang/mismatch/unmatched_frame.h"
#include "shim/base/hash.h"

namespace resil::hang {

namespace {

bool complete(const UnmatchedHeader& header) {
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
bool is_marked(const void* frame, const UnmatchedHeader& header, int32_t rank, int32_t mark) {
  for (uint32_t i = 0; i < header.balances; ++i) {
    const Balance balance = balance_at(frame, i);
    if (balance.comm != 0) return false;
    if (balance.source == rank && balance.tag == mark) return true;
  }
  return false;
}

bool is_trusted(const void* frame, const UnmatchedHeader& header, const Balance& balance) {
  for (const int32_t rank : {balance.source, balance.destination})
    if (is_marked(frame, header, rank, kMarkTag) ||
        (balance.comm != header.world_comm && is_marked(frame, header, rank, kForgotTag)))
      return false;
  return true;
}

void list_one(UnmatchedList& list, const Balance& balance, uint64_t messages) {
  list.total += messages;
  if (list.listed < kMostUnmatched)
    list.entries[list.listed++] = {balance.source, balance.destination, balance.tag >= 0 ? balance.tag : -1,
                                   messages,       balance.comm,        {}};
}

bool judge_messages(const void* frame, const UnmatchedHeader& header, Verdict& verdict, UnmatchedList& list) {
  uint64_t messages = 0, answers = 0;
  Balance first = {};
  bool any = false, any_mark = false;
  for (uint32_t i = 0, end; i < header.balances; i = end) {
    const Balance pair = balance_at(frame, i);
    bool mixed = false;
    int64_t sum = 0;
    for (end = i; end < header.balances; ++end) {
      const Balance balance = balance_at(frame, end);
      if (balance.comm != pair.comm || balance.source != pair.source || balance.destination != pair.destination) break;
      mixed = mixed || balance.tag == kMixedTag || balance.tag == kOtherTags;
      sum = sum_of(sum, balance.tag == kMixedTag ? 0 : balance.difference);
    }
    if (pair.comm == 0) {
      any_mark = true;
      continue;
    }
    if (!is_trusted(frame, header, pair)) continue;
    auto one = [&](const Balance& balance, int64_t difference) {
      if (difference == 0) return;
      if (difference > 0) name_rank(verdict.culprits, kMaxCulprits, &verdict.culprit_count, balance.source);
      name_rank(verdict.victims, kMaxVictims, &verdict.victim_count, balance.destination);
      if (!any) first = balance;
      any = true;
      (difference > 0 ? messages : answers) += size_of(difference);
      if (difference > 0) list_one(list, balance, size_of(difference));
    };
    if (mixed) {
      Balance all = pair;
      all.tag = kOtherTags;
      one(all, sum);
    } else {
      for (uint32_t k = i; k < end; ++k) one(balance_at(frame, k), balance_at(frame, k).difference);
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

}  // namespace

bool unmatched_judge(const void* merged, uint32_t bytes, Verdict* verdict, UnmatchedList* list) {
  UnmatchedHeader header;
  if (!unmatched_check(merged, bytes, &header) || !complete(header)) return false;
  verdict->begin(HangClass::kUnreceived, Confidence::kSuspected);
  *list = {true, 0, 0, {}};
  return judge_messages(merged, header, *verdict, *list);
}

bool message_types_judge(const void* merged, uint32_t bytes, Verdict* verdict) {
  UnmatchedHeader header;
  if (!unmatched_check(merged, bytes, &header) || !complete(header)) return false;
  verdict->begin(HangClass::kMessageMismatch, Confidence::kSuspected);
  uint64_t count = 0;
  for (uint32_t i = 0; i < header.balances; ++i) {
    const Balance balance = balance_at(merged, i);
    if (balance.comm == 0 || balance.difference != 0 || !types_differ(balance) ||
        !is_trusted(merged, header, balance) || count++ != 0)
      continue;
    Statement& first = verdict->add(Message::kMessageTypes);
    first.rank = balance.source;
    first.n[0] = static_cast<uint64_t>(balance.destination);
    first.n[1] = static_cast<uint64_t>(balance.tag);
    first.n[2] = balance.sent_type;
    first.n[3] = balance.received_type;
    first.comm = verdict->comm = balance.comm;
    verdict->add_victim(balance.source);
    if (balance.destination != balance.source) verdict->add_victim(balance.destination);
    verdict->signature = hash_combine(hash_combine(balance.comm, balance.sent_type), balance.received_type);
  }
  if (count > 1) verdict->add(Message::kMoreMessageTypes).n[0] = count - 1;
  if (count != 0) verdict->add(Message::kDoCompareTypes);
  return count != 0;
}

bool unmatched_name(const void* merged, uint32_t bytes, uint32_t index, uint64_t* comm, char* text, uint32_t room) {
  UnmatchedHeader header;
  if (!unmatched_check(merged, bytes, &header) || index >= header.names) return false;
  const CommName name = name_at(merged, header, index);
  *comm = name.comm;
  snprintf(text, room, "%.*s", static_cast<int>(sizeof(name.text)), name.text);
  return true;
}

}  // namespace resil::hang
