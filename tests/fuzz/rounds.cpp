// SPDX-License-Identifier: Apache-2.0
//
// What other nodes answer: records of ranks' states up to the wait-for graph's verdict, samples, collectives, balances.
// The frames around them are the overlay's (overlay.cpp); who sends them holds the job's key, but may be damaged.
#include <algorithm>
#include <vector>

#include "detectors/hang/graph.h"
#include "detectors/hang/mismatch/frame.h"
#include "detectors/hang/mismatch/mismatch.h"
#include "detectors/hang/mismatch/unmatched.h"
#include "detectors/hang/mismatch/unmatched_frame.h"
#include "detectors/hang/reader/records.h"
#include "detectors/hang/reader/stacks.h"
#include "detectors/hang/root/probes.h"
#include "detectors/hang/verdict/format.h"
#include "fuzz.h"
#include "shim/model/calls.h"
#include "verdicts.h"

namespace fuzz {

namespace {

using namespace resil;
using namespace resil::hang;

const char* name_of(void*, NameKind kind, int32_t, uint64_t value) {
  return value % 3 == 0 ? "" : kind == NameKind::kComm ? "a communicator" : "app+0x1234";
}
const char* call_of(void*, uint16_t id) { return id < kCallCount ? call_info(static_cast<CallId>(id)).name : "?"; }

const Explanation& explained(const Verdict& verdict) {
  static Explanation words;
  memset(&words, 'x', sizeof(words));
  explain(verdict, {nullptr, name_of, call_of}, &words);
  must_end(words.message, sizeof(words.message), "a message ends");
  must_end(words.evidence, sizeof(words.evidence), "evidence ends");
  must(words.message[0] != 0, "a verdict says something");
  return words;
}

void check(const Verdict& verdict, uint32_t world) {
  explained(verdict);
  must(verdict.statement_count <= kMaxStatements, "statements fit");
  must(verdict.type != HangClass::kNone && verdict.type <= HangClass::kUnknown, "a verdict has a class");
  for (uint32_t i = 0; i < verdict.culprit_count && i < kMaxCulprits; ++i)
    must(verdict.culprits[i] >= 0 && static_cast<uint32_t>(verdict.culprits[i]) < world,
         "who is blamed is a rank of the job");
  for (uint32_t i = 0; i < verdict.victim_count && i < kMaxVictims; ++i)
    must(verdict.victims[i] >= 0 && static_cast<uint32_t>(verdict.victims[i]) < world,
         "who waits is a rank of the job");
}

Verdict& blank() {
  static Verdict verdict;
  memset(&verdict, 'x', sizeof(verdict));
  return verdict;
}

}  // namespace

void judge_states(const char* records, uint32_t bytes, uint32_t world, Input& in) {
  constexpr uint32_t kRoom = 64;
  const RankState* by_rank[64] = {};
  for (uint32_t at = 0; at + sizeof(RankState) <= bytes;) {  // as in root.cpp
    const auto* state = reinterpret_cast<const RankState*>(records + at);
    if (!state_is_whole(*state, bytes - at)) break;
    if (state->rank >= 0 && state->rank < static_cast<int32_t>(world)) by_rank[state->rank] = state;
    if (const Part* part = first_part(*state); part != nullptr)
      must(reinterpret_cast<const char*>(part + 1) <= records + bytes, "a part lies within its record");
    at += state->bytes;
  }
  const GraphInput input = {by_rank, world, 1700000003000000000, 0x1234567890};
  Question questions[kRoom];
  const uint32_t count = graph_questions(input, questions, kRoom);
  must(count <= kRoom, "questions fit");
  Answer answers[kRoom + 4];
  uint32_t given = 0;
  for (; given < kRoom + 4 && in.left() != 0; ++given) answers[given] = in.get<Answer>();
  for (const bool may_buffer : {false, true}) {
    Verdict& verdict = blank();
    const Judgement found = graph_judge(input, questions, count, answers, given, may_buffer, &verdict);
    if (found != Judgement::kNothing) check(verdict, world);
    must(graph_judge(input, questions, count, answers, given, may_buffer, nullptr) == found, "asked twice, the same");
  }
}

void judge_frames(const void* frame, uint32_t bytes, bool collectives) {
  constexpr uint32_t kWorld = 4;
  Verdict& verdict = blank();
  if (!collectives) {
    static UnmatchedList list;
    list = {};
    if (unmatched_judge(frame, bytes, &verdict, &list)) explained(verdict);
    uint64_t comm;
    char name[64];
    for (uint32_t i = 0; unmatched_name(frame, bytes, i, &comm, name, sizeof(name)); ++i)
      must_end(name, sizeof(name), "a name ends");
    must(list.listed <= kMostUnmatched, "a list has its length");
    return;
  }
  Mismatch* history = mismatch_create(kWorld);
  must(history != nullptr, "there is memory");
  for (int found = 0; mismatch_judge(*history, found == 0 ? frame : nullptr, found == 0 ? bytes : 0, &verdict);
       ++found) {
    must(found < 1000, "findings end");
    check(verdict, kWorld);
  }
  mismatch_destroy(history);
}

namespace {

constexpr uint64_t kComms[] = {0x1234567890, 2, 3, 0};

int32_t some_rank(Input& in, uint32_t world) {
  const auto value = in.get<int8_t>();
  return value < 0 ? value : static_cast<int32_t>(static_cast<uint32_t>(value) % (world + 1));
}

/// A record as a node makes it, with anything in its fields.
void make_state(Input& in, uint32_t rank, uint32_t world, std::vector<char>& records) {
  RankState state = {};
  state.rank = static_cast<int32_t>(rank);
  const auto flags = in.get<uint8_t>();
  state.activity = static_cast<RankActivity>(flags % 8);
  state.stable = (flags & 0x80) == 0;
  state.provable = (flags & 0x40) == 0;
  state.in_finalize = (flags & 0x30) == 0x30;
  state.irregular = (flags & 8) != 0 ? in.get<uint16_t>() : 0;
  state.calls = in.get<uint8_t>();
  const auto counts = in.get<uint8_t>();
  state.thread_count = counts % 3;
  state.comm_count = counts / 3 % 4;
  std::vector<ThreadWait> threads;
  std::vector<Part> parts;
  std::vector<Membership> comms;
  for (uint32_t i = 0; i < state.thread_count; ++i) {
    ThreadWait wait = {};
    const auto what = in.get<uint8_t>();
    wait.instance = what;
    wait.kind = static_cast<WaitKind>(what & 1);
    wait.truncated = (what & 0x0e) == 0x0e;
    wait.call = in.get<uint16_t>() % (kCallCount + 2);
    wait.first_part = static_cast<uint32_t>(parts.size());
    wait.part_count = what >> 5;
    for (uint32_t k = 0; k < wait.part_count; ++k) {
      Part part = {};
      part.kind = static_cast<PartKind>(in.get<uint8_t>() % 10);
      part.flags = in.get<uint8_t>();
      part.call = in.get<uint16_t>() % (kCallCount + 2);
      part.peer = some_rank(in, world);
      part.comm = kComms[in.get<uint8_t>() % 4];
      part.tag = in.get<int8_t>();
      part.ordinal = in.get<uint8_t>();
      part.needed = in.get<uint8_t>() % 4;
      part.sequence = in.get<uint8_t>() % 4;
      part.bytes = uint64_t{in.get<uint8_t>()} << 13;
      parts.push_back(part);
    }
    threads.push_back(wait);
  }
  for (uint32_t i = 0; i < state.comm_count; ++i) {
    const auto what = in.get<uint8_t>();
    comms.push_back({kComms[what % 4], what / 4u % 4, (what & 0x80) != 0 ? some_rank(in, world) : state.rank,
                     (what & 0x40) != 0 ? some_rank(in, world) : static_cast<int32_t>(world),
                     (what & 0x20) != 0 ? some_rank(in, world) : -1, i});
  }
  state.part_count = static_cast<uint32_t>(parts.size());
  state.bytes = static_cast<uint32_t>(sizeof(state) + threads.size() * sizeof(ThreadWait) +
                                      parts.size() * sizeof(Part) + comms.size() * sizeof(Membership));
  const auto add = [&](const void* from, size_t bytes) {
    const auto* at = static_cast<const char*>(from);
    records.insert(records.end(), at, at + bytes);
  };
  add(&state, sizeof(state));
  add(threads.data(), threads.size() * sizeof(ThreadWait));
  add(parts.data(), parts.size() * sizeof(Part));
  add(comms.data(), comms.size() * sizeof(Membership));
}

/// A frame as a node makes it: whole blocks of claims.
std::vector<char> make_frame(Input& in, uint32_t world) {
  std::vector<char> frame(sizeof(FrameHeader));
  uint64_t comm = 0;
  uint32_t count = 0;
  for (int blocks = in.get<uint8_t>() % 4; blocks > 0; --blocks, ++count) {
    Block block = {};
    block.comm = comm += in.get<uint8_t>() % 3 + 1;
    block.members = in.get<uint8_t>() % 8;
    block.flags = in.get<uint8_t>();
    block.claims = in.get<uint8_t>() % 5 + 1;
    std::vector<BlockClaim> claims;
    std::vector<RankRun> runs;
    uint64_t n = 0;
    for (uint16_t i = 0; i < block.claims; ++i) {
      BlockClaim claim = {};
      claim.n = n += in.get<uint8_t>() % 3 + (i == 0);
      claim.rolling = in.get<uint8_t>() % 4;
      claim.signature = in.get<uint8_t>() % 2 != 0 ? in.get<uint64_t>() : in.get<uint8_t>() % 4u;
      claim.site = in.get<uint8_t>() % 3;
      claim.site_rank = some_rank(in, world);
      const auto parent = in.get<uint8_t>();
      claim.parent =
          i == 0 || parent % 4 == 0 || claims[parent % i].n >= claim.n ? kNoClaim : static_cast<uint16_t>(parent % i);
      claim.runs = in.get<uint8_t>() % 3;
      for (uint32_t k = 0; k < claim.runs; ++k) runs.push_back({in.get<uint8_t>() % static_cast<int32_t>(world), 1, 1});
      claims.push_back(claim);
    }
    block.runs = static_cast<uint32_t>(runs.size());
    const size_t begin = frame.size(),
                 bytes = sizeof(block) + claims.size() * sizeof(BlockClaim) + runs.size() * sizeof(RankRun);
    block.bytes = static_cast<uint32_t>((bytes + 7) & ~size_t{7});
    frame.resize(begin + block.bytes);
    memcpy(frame.data() + begin, &block, sizeof(block));
    memcpy(frame.data() + begin + sizeof(block), claims.data(), claims.size() * sizeof(BlockClaim));
    if (!runs.empty())
      memcpy(frame.data() + begin + sizeof(block) + claims.size() * sizeof(BlockClaim), runs.data(),
             runs.size() * sizeof(RankRun));
  }
  const FrameHeader header = {kFrameMagic, static_cast<uint32_t>(frame.size()), count, in.get<uint8_t>(), world, 0};
  memcpy(frame.data(), &header, sizeof(header));
  return frame;
}

}  // namespace

/// World, then a sample, then lengths and records (raw, or made from what is there), then answers.
void states(const uint8_t* data, size_t size) {
  Input in(data, size);
  const uint32_t world = in.get<uint8_t>() % 8 + 1;
  const auto flags = in.get<uint8_t>();
  if ((flags & 2) != 0) {
    std::vector<char> made;
    for (uint32_t rank = 0; rank < world; ++rank)
      if (const auto skipped = in.get<uint8_t>(); skipped % 8 != 7) make_state(in, rank, world, made);
    judge_states(made.data(), static_cast<uint32_t>(made.size()), world, in);
    return;
  }
  if (flags % 2 != 0) {
    auto one = in.get<Summary>(), other = in.get<Summary>();
    for (Summary* sample : {&one, &other})  // of doubles nothing is asked but that they are compared
      sample->event_count %= 2 * kMaxEvents;
    summary_add(&one, other);
  }
  alignas(8) static char records[1 << 15];
  const uint32_t bytes = std::min<uint32_t>(in.get<uint16_t>(), sizeof(records));
  memset(records, 0, sizeof(records));
  const auto used = static_cast<uint32_t>(in.take(records, bytes));
  std::vector<char> exact(records, records + used);  // so that a byte too far is seen
  judge_states(exact.data(), used, world, in);
  RankSet ranks = {};
  for (int i = 0; i < 5; ++i) ranks.add(in.get<int32_t>());
  char room[64];
  Text text(room, 32 + in.get<uint8_t>() % 32);
  add_ranks(text, ranks);
  must_end(room, text.bytes, "ranges of ranks end");
}

/// A bit field, two answers that are merged, and judged.
void mismatch(const uint8_t* data, size_t size) {
  constexpr uint32_t kRoom = 8192;
  Input in(data, size);
  const auto flags = in.get<uint8_t>();
  const bool collectives = (flags & 1) != 0;
  if (collectives && (flags & 4) != 0) {
    Mismatch* node = mismatch_create(4);
    must(node != nullptr, "there is memory");
    alignas(8) static char sum[kRoom];
    uint32_t used = 0;
    for (int frames = 0; frames < 3; ++frames) {
      const std::vector<char> one = make_frame(in, 4);
      judge_frames(one.data(), static_cast<uint32_t>(one.size()), true);
      if (mismatch_merge(*node, sum, &used, kRoom, one.data(), static_cast<uint32_t>(one.size())))
        must(used <= kRoom, "what is merged fits");
    }
    judge_frames(sum, used, true);
    mismatch_destroy(node);
    return;
  }
  alignas(8) static char merged[kRoom];
  memset(merged, 0, sizeof(merged));
  uint32_t bytes = std::min<uint32_t>(in.get<uint16_t>(), kRoom);
  bytes = static_cast<uint32_t>(in.take(merged, bytes));
  // Lengths and magic numbers, which the one at the wire sets, are set right half of the time.
  const auto seal = [&](char* frame, uint32_t length) {
    if ((flags & 2) == 0) return;
    if (collectives && length >= sizeof(FrameHeader)) {
      auto* header = reinterpret_cast<FrameHeader*>(frame);
      header->magic = kFrameMagic, header->bytes = length, header->world = 4;
    } else if (!collectives && length >= sizeof(UnmatchedHeader)) {
      auto* header = reinterpret_cast<UnmatchedHeader*>(frame);
      header->magic = kUnmatchedMagic, header->bytes = length;
      header->world = 4;
      const uint64_t room = length - sizeof(UnmatchedHeader);
      header->balances = static_cast<uint32_t>(std::min<uint64_t>(header->balances % 64, room / sizeof(Balance)));
      header->names = 0;
      header->bytes = static_cast<uint32_t>(sizeof(UnmatchedHeader) + header->balances * sizeof(Balance));
    }
  };
  seal(merged, bytes);
  if (!collectives && (flags & 2) != 0 && bytes >= sizeof(UnmatchedHeader))
    bytes = reinterpret_cast<UnmatchedHeader*>(merged)->bytes;
  const size_t rest = std::min<size_t>(in.left(), kRoom);
  alignas(8) static char other[kRoom];
  memset(other, 0, sizeof(other));
  auto other_bytes = static_cast<uint32_t>(in.take(other, rest));
  seal(other, other_bytes);
  if (!collectives && (flags & 2) != 0 && other_bytes >= sizeof(UnmatchedHeader))
    other_bytes = reinterpret_cast<UnmatchedHeader*>(other)->bytes;
  std::vector<char> exact(other, other + other_bytes);
  judge_frames(exact.data(), other_bytes, collectives);
  if (collectives) {
    Mismatch* node = mismatch_create(4);
    must(node != nullptr, "there is memory");
    if (mismatch_merge(*node, merged, &bytes, kRoom, exact.data(), other_bytes))
      must(bytes <= kRoom, "what is merged fits");
    mismatch_destroy(node);
  } else if (unmatched_merge(merged, &bytes, kRoom, exact.data(), other_bytes)) {
    must(bytes <= kRoom, "what is merged fits");
  }
  must(bytes <= kRoom, "what is merged fits");
  judge_frames(merged, bytes, collectives);
}

/// Nodes that wait for others, and answers that may be anything.
void probes(const uint8_t* data, size_t size) {
  Input in(data, size);
  static Probes ways;
  memset(static_cast<void*>(&ways), 0, sizeof(ways));
  ways.nodes = in.get<uint8_t>() % 64 + 1;
  const auto silent = in.get<uint64_t>();
  double now = 1000;
  while (in.left() != 0) {
    now += in.get<uint8_t>() * 0.05;
    const auto from = in.get<uint8_t>(), to = in.get<uint8_t>();
    probes_want(ways, from, to, now);
    const uint32_t asked = probes_questions(ways, now);
    must(asked <= kMostWays && ways.count <= kMostWays, "ways have room");
    for (uint32_t i = 0; i < asked; ++i) {
      const ProbeQuestion& question = ways.questions[i];
      must(question.from < ways.nodes && question.to < ways.nodes && question.from != question.to, "nodes are asked");
      must(question.seconds >= 0 && question.seconds < 100, "a probe has an age");
    }
    ProbeAnswer answers[8];
    const uint32_t count = in.get<uint8_t>() % 9;
    for (uint32_t i = 0; i < count; ++i) {
      answers[i] = in.get<ProbeAnswer>();
      if (asked != 0 && i % 2 == 0)
        answers[i].from = ways.questions[i % asked].from, answers[i].to = ways.questions[i % asked].to;
    }
    probes_came(ways, answers, count, now);
    probes_want_votes(
        ways, [](const void* of, uint32_t node) { return (*static_cast<const uint64_t*>(of) >> node & 1) == 0; },
        &silent, now);
    for (uint32_t i = 0; i < ways.count; ++i) {
      const Vote vote = probes_vote(ways, ways.ways[i]);
      must(vote.reach_from <= vote.asked && vote.reach_to <= vote.asked && vote.reach_both <= vote.reach_from &&
               vote.reach_both <= vote.reach_to && vote.asked < ways.nodes,
           "votes are of nodes");
    }
  }
}

void stacks(const uint8_t* data, size_t size) {
  Input in(data, size);
  constexpr uint32_t kRoom = 4096;
  alignas(8) static char merged[kRoom];
  const uint32_t room = in.get<uint16_t>() % (kRoom + 1);
  uint32_t bytes = 0;
  while (in.left() != 0) {
    char part[1024];
    const uint32_t length = in.get<uint16_t>() % (sizeof(part) + 1);
    const uint32_t some = static_cast<uint32_t>(in.take(part, length)), before = bytes;
    const bool taken = stacks_merge(merged, &bytes, room, part, some);
    must(bytes <= room && bytes >= before, "an answer stays within its room, and grows");
    must(taken || bytes == before, "what is refused changes nothing");
  }
  StackText found;
  uint32_t at = sizeof(StacksHead), count = 0;
  for (uint32_t before = at; next_stack(merged, bytes, &at, &found); before = at, ++count) {
    must(at > before && at <= bytes, "entries follow each other");
    must(found.text >= merged && found.text + found.entry.text_bytes <= merged + bytes,
         "a text lies within the answer");
    must(found.entry.ranks.count <= RankSet::kMaxRanges, "ranks are a set");
  }
}

}  // namespace fuzz
