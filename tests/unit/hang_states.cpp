// SPDX-License-Identifier: Apache-2.0

#include "hang_states.h"

#include <algorithm>
#include <cstring>

namespace hang_test {

namespace {

constexpr uint64_t kNow = 2000000000000;

const char* name_text(void*, NameKind kind, int32_t rank, uint64_t value) {
  static std::string site;
  if (kind == NameKind::kSite) {
    char text[40];
    snprintf(text, sizeof(text), "app+0x%llx.%d", static_cast<unsigned long long>(value), rank);
    return (site = text).c_str();
  }
  return value == kWorld    ? "MPI_COMM_WORLD"
         : value == kOther  ? "other"
         : value == kWindow ? "a window"
         : value == kInter  ? "two groups"
                            : "";
}
const char* call_name(void*, uint16_t id) { return call_text(id); }

bool covers(int32_t asked, int32_t any, int32_t value) { return asked == any || value == any || asked == value; }

Part make(PartKind kind, uint64_t comm) {
  Part part{};
  part.kind = kind;
  part.comm = comm;
  part.peer = ring::kNoPeer;
  part.tag = ring::kNoTag;
  return part;
}

}  // namespace

const char* call_text(uint16_t id) {
  static const char* const names[] = {"?",
                                      "MPI_Send",
                                      "MPI_Recv",
                                      "MPI_Wait",
                                      "MPI_Waitall",
                                      "MPI_Waitany",
                                      "MPI_Irecv",
                                      "MPI_Isend",
                                      "MPI_Sendrecv",
                                      "MPI_Barrier",
                                      "MPI_Allreduce",
                                      "MPI_Bcast",
                                      "MPI_Scan",
                                      "MPI_Reduce",
                                      "MPI_Ibarrier",
                                      "MPI_Finalize",
                                      "MPI_Probe",
                                      "MPI_Ssend",
                                      "MPI_Win_start",
                                      "MPI_Win_complete",
                                      "MPI_Win_post",
                                      "MPI_Win_wait",
                                      "MPI_Win_lock",
                                      "MPI_Win_unlock"};
  return id < kCallCount ? names[id] : "?";
}

Part receive(int32_t peer, int32_t tag, uint64_t needed, uint64_t comm) {
  Part part = make(PartKind::kReceive, comm);
  part.call = kRecvCall;
  part.peer = peer;
  part.tag = tag;
  part.needed = peer == ring::kAnySource || tag == ring::kAnyTag ? 0 : needed;
  part.ordinal = static_cast<uint32_t>(needed);
  return part;
}

Part probe(int32_t peer, int32_t tag, uint64_t needed, uint64_t comm) {
  Part part = receive(peer, tag, needed, comm);
  part.kind = PartKind::kProbe;
  part.call = kProbeCall;
  return part;
}

Part send(int32_t peer, int32_t tag, uint32_t ordinal, uint8_t flags, uint64_t comm) {
  Part part = make(PartKind::kSend, comm);
  part.call = kSendCall;
  part.flags = flags;
  part.peer = peer;
  part.tag = tag;
  part.ordinal = ordinal;
  part.needed = ordinal;
  part.bytes = (flags & kMayBuffer) != 0 ? 8 : 4000000;
  return part;
}

Part collective(uint16_t call, uint64_t sequence, uint64_t comm, uint8_t flags, int32_t root) {
  Part part = make(PartKind::kCollective, comm);
  part.call = call;
  part.flags = flags;
  part.sequence = sequence;
  part.peer = root;
  return part;
}

Part token(int32_t peer, int32_t tag, uint32_t number, uint8_t flags, uint64_t window) {
  Part part = make(PartKind::kToken, window);
  part.call = tag == kPostToken ? kPostCall : kCompleteCall;
  part.flags = flags;
  part.peer = peer;
  part.tag = tag;
  part.needed = part.ordinal = number;
  return part;
}

Part lock(int32_t target, bool exclusive, uint8_t flags) {
  Part part = make(PartKind::kLock, kWindow);
  part.call = kLockCall;
  part.flags = flags;
  part.peer = target;
  part.tag = exclusive ? 1 : 0;
  return part;
}

Part sink() { return make(PartKind::kSink, 0); }
Part other() { return make(PartKind::kOther, 0); }

World::World(int32_t count) : ranks(static_cast<size_t>(count)) {
  std::vector<int32_t> all;
  for (int32_t rank = 0; rank < count; ++rank) all.push_back(rank);
  comm(kWorld, all);
}

void World::comm(uint64_t id, const std::vector<int32_t>& members) {
  for (size_t i = 0; i < members.size(); ++i)
    ranks[static_cast<size_t>(members[i])].comms.push_back(
        {id, 0, static_cast<int32_t>(i), static_cast<int32_t>(members.size()), -1, 0});
}

void World::intercomm(uint64_t id, const std::vector<int32_t>& one, const std::vector<int32_t>& other) {
  comm(id, one);
  comm(id, other);
  for (int32_t rank : one) membership(rank, id).remote_size = static_cast<int32_t>(other.size());
  for (int32_t rank : other) membership(rank, id).remote_size = static_cast<int32_t>(one.size());
}

Membership& World::membership(int32_t rank, uint64_t id) {
  for (Membership& membership : ranks[static_cast<size_t>(rank)].comms)
    if (membership.comm == id) return membership;
  abort();
}

Part& World::frees(int32_t rank, uint64_t id, uint8_t flags) {
  Rank& r = ranks[static_cast<size_t>(rank)];
  const Membership was = membership(rank, id);
  Part part = make(PartKind::kFreed, id);
  part.flags = flags;
  part.call = kBarrierCall;  // any name will do
  part.peer = was.rank;
  part.tag = was.size;
  part.ordinal = static_cast<uint32_t>(was.remote_size);
  part.sequence = was.sequence + 1;
  part.site = 0x7000;
  std::erase_if(r.comms, [id](const Membership& membership) { return membership.comm == id; });
  r.parts.push_back(part);
  return r.parts.back();
}

ThreadWait& World::block(int32_t rank, uint16_t call, const std::vector<Part>& parts, WaitKind kind) {
  Rank& r = ranks[static_cast<size_t>(rank)];
  r.activity = RankActivity::kBlocked;
  ThreadWait wait{};
  wait.instance = 1000 + r.threads.size();
  wait.entered_ns = kNow - 12000000000;
  wait.site = 0x1000 + static_cast<uint64_t>(rank);
  wait.call = call;
  wait.kind = kind;
  wait.first_part = static_cast<uint32_t>(r.parts.size());
  wait.part_count = static_cast<uint32_t>(parts.size());
  for (const Part& part : parts) {
    r.parts.push_back(part);
    if (part.kind == PartKind::kSend) {
      uint64_t& sent = count(part.comm, rank, part.peer, part.tag).sent;
      sent = std::max<uint64_t>(sent, part.ordinal);
    } else if (part.kind == PartKind::kReceive && (part.peer == ring::kAnySource || part.tag == ring::kAnyTag)) {
      wilds.push_back({part.comm, rank, part.peer, part.tag});
    } else if (part.kind == PartKind::kReceive) {
      Count& counted = count(part.comm, rank, part.peer, part.tag);
      ++counted.pending;
      counted.posted = std::max<uint64_t>(counted.posted, part.ordinal);
    } else if (part.kind == PartKind::kCollective) {
      uint64_t& sequence = membership(rank, part.comm).sequence;
      sequence = std::max(sequence, part.sequence);
    }
  }
  r.threads.push_back(wait);
  return r.threads.back();
}

void World::holds(int32_t rank, int32_t target, bool exclusive) {
  Part part = lock(target, exclusive);
  part.kind = PartKind::kHold;
  ranks[static_cast<size_t>(rank)].parts.push_back(part);
}

void World::finish(int32_t rank) {
  ranks[static_cast<size_t>(rank)].activity = RankActivity::kFinished;
  ++membership(rank, kWorld).sequence;  // MPI_Finalize counts
}
void World::die(int32_t rank) { ranks[static_cast<size_t>(rank)].activity = RankActivity::kGone; }
void World::finalize(int32_t rank) {
  block(rank, kFinalizeCall, {collective(kFinalizeCall, membership(rank, kWorld).sequence + 1)});
  ranks[static_cast<size_t>(rank)].in_finalize = true;
}

std::vector<const RankState*> World::states() {
  std::vector<const RankState*> pointers;
  records_.clear();
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Rank& r = ranks[i];
    const size_t bytes = sizeof(RankState) + r.threads.size() * sizeof(ThreadWait) + r.parts.size() * sizeof(Part) +
                         r.comms.size() * sizeof(Membership);
    records_.emplace_back((bytes + 7) / 8);
    char* at = reinterpret_cast<char*>(records_.back().data());
    RankState state{};
    state.rank = static_cast<int32_t>(i);
    state.bytes = static_cast<uint32_t>(bytes);
    state.activity = r.activity;
    state.stable = r.stable;
    state.provable = r.provable;
    state.in_finalize = r.in_finalize;
    state.irregular = r.irregular;
    state.thread_count = static_cast<uint32_t>(r.threads.size());
    state.part_count = static_cast<uint32_t>(r.parts.size());
    state.comm_count = static_cast<uint32_t>(r.comms.size());
    auto put = [&](const void* data, size_t size) {
      if (size != 0) memcpy(at, data, size);
      at += size;
    };
    put(&state, sizeof(state));
    put(r.threads.data(), r.threads.size() * sizeof(ThreadWait));
    put(r.parts.data(), r.parts.size() * sizeof(Part));
    put(r.comms.data(), r.comms.size() * sizeof(Membership));
    pointers.push_back(r.unknown ? nullptr : reinterpret_cast<const RankState*>(records_.back().data()));
  }
  return pointers;
}

std::vector<Question> World::questions() {
  const auto pointers = states();
  std::vector<Question> asked_now(question_room);
  asked_now.resize(graph_questions({pointers.data(), static_cast<uint32_t>(pointers.size()), kNow, kWorld},
                                   asked_now.data(), question_room));
  return asked_now;
}

/// By the definitions at Question and Answer, counter by counter.
std::vector<Answer> World::answers(const std::vector<Question>& asked_now) const {
  std::vector<Answer> all;
  for (size_t i = 0; i < asked_now.size(); ++i) {
    const Question& q = asked_now[i];
    const int32_t last = static_cast<int32_t>(ranks.size());
    const int32_t ends[2] = {q.source / node_ranks * node_ranks, q.destination / node_ranks * node_ranks};
    for (int32_t node = 0; node < last; node += node_ranks) {
      if (q.source >= 0 && node != ends[0] && node != ends[1]) continue;
      Answer answer{};
      answer.question = static_cast<uint32_t>(i);
      answer.source = q.source;
      answer.destination = q.destination;
      answer.tag = q.tag;
      for (int32_t rank = node; rank < node + node_ranks && rank < last; ++rank) {
        if (q.source >= 0 && rank != q.source && rank != q.destination) continue;
        if (std::find(silent.begin(), silent.end(), rank) != silent.end()) continue;
        if (q.source == ring::kAnySource || q.source == rank) {
          answer.from_source = 1;
          ++answer.covered;
        }
        if (q.destination == rank) answer.from_destination = 1;
        for (auto at = counts.lower_bound({rank, 0, INT32_MIN, INT32_MIN});
             at != counts.end() && std::get<0>(at->first) == rank; ++at) {
          const auto& [owner, comm, peer, tag] = at->first;
          const Count& value = at->second;
          if (q.comm != 0 && comm != q.comm) continue;
          const bool by_tag = q.tag == ring::kAnyTag || tag == q.tag;
          if ((q.source == ring::kAnySource || q.source == rank) && peer == q.destination) {
            answer.sent += by_tag ? value.sent : 0;
            answer.other_tags |= q.tag != ring::kAnyTag && tag == kOtherTags;
          }
          if (q.destination == rank && (q.source == ring::kAnySource || q.source == peer)) {
            answer.posted += by_tag ? value.posted : 0;
            answer.taken += by_tag ? value.taken : 0;
            answer.pending += by_tag ? value.pending : 0;
            answer.other_tags |= q.tag != ring::kAnyTag && tag == kOtherTags;
          }
        }
        for (const Wild& wild : wilds)
          if (q.destination == rank && wild.owner == rank && (q.comm == 0 || q.comm == wild.comm) &&
              covers(q.source, ring::kAnySource, wild.source) && covers(q.tag, ring::kAnyTag, wild.tag))
            ++answer.wild_pending;
      }
      if (answer.from_source != 0 || answer.from_destination != 0) all.push_back(answer);
    }
  }
  return all;
}

std::optional<Verdict> World::judge(bool may_buffer) {
  const auto asked_now = questions();
  asked = static_cast<uint32_t>(asked_now.size());
  const auto answered = answers(asked_now);
  const auto pointers = states();
  auto verdict = std::make_unique<Verdict>();
  const Judgement found =
      graph_judge({pointers.data(), static_cast<uint32_t>(pointers.size()), kNow, kWorld}, asked_now.data(), asked,
                  answered.data(), static_cast<uint32_t>(answered.size()), may_buffer, verdict.get());
  if (found == Judgement::kNothing) return {};
  return *verdict;
}

std::string message_of(const Verdict& verdict) {
  const auto words = std::make_unique<Explanation>();
  explain(verdict, {nullptr, name_text, call_name}, words.get());
  return words->message;
}

std::string evidence_of(const Verdict& verdict) {
  const auto words = std::make_unique<Explanation>();
  explain(verdict, {nullptr, name_text, call_name}, words.get());
  return words->evidence;
}

std::vector<int32_t> culprits(const Verdict& verdict) {
  return {verdict.culprits, verdict.culprits + std::min(verdict.culprit_count, kMaxCulprits)};
}
std::vector<int32_t> victims(const Verdict& verdict) {
  return {verdict.victims, verdict.victims + std::min(verdict.victim_count, kMaxVictims)};
}

}  // namespace hang_test
