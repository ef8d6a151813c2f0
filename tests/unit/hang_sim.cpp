// SPDX-License-Identifier: Apache-2.0

#include "hang_sim.h"

#include <algorithm>
#include <set>

namespace hang_test {

namespace {

bool fits(int32_t wanted, int32_t any, int32_t value) { return wanted == any || wanted == value; }

}  // namespace

/// Programs that fit together, then spoilt here and there.
Sim::Sim(uint64_t seed) {
  std::mt19937_64 random(seed);
  auto below = [&](int n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
  auto chance = [&](int percent) { return below(100) < percent; };
  ranks = 2 + below(chance(20) ? 5 : 3);
  const size_t count = static_cast<size_t>(ranks);
  unexpected.resize(count);
  posted.resize(count);
  finished.resize(count);
  gone.resize(count);
  irregular.resize(count);
  few_tags.resize(count);
  blind.resize(count);
  local_finalize = chance(50);
  late_reduce = chance(30);
  library = {chance(40), chance(40), chance(30), chance(40)};
  epochs.resize(count);
  noisy = chance(40);
  const bool plain = chance(40);
  for (int32_t rank = 0; rank < ranks; ++rank) comms[kWorld].push_back(rank);
  if (ranks > 2 && chance(40))
    for (int32_t rank = 0; rank < ranks; ++rank)
      if (rank < 2 || chance(60)) comms[kOther].push_back(rank);
  if (chance(30)) {
    for (int32_t rank = 0; rank < ranks; ++rank)
      if (rank < 2 || chance(70)) (rank == 0 || (rank != 1 && chance(50)) ? one : other).push_back(rank);
    comms[kInter] = one;
    comms[kInter].insert(comms[kInter].end(), other.begin(), other.end());
  }
  for (const auto& [id, members] : comms)
    for (int i = 0; i < 40; ++i)
      waves[id].push_back(id == kInter || chance(60) ? Wave::kBarrier : static_cast<Wave>(below(4)));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const int32_t number = !plain && chance(15) ? 2 : 1;
    for (int32_t i = 0; i < number; ++i) threads.push_back({.rank = rank, .program = {}, .open = {}, .waiting = {}});
    if (noisy) {
      few_tags[static_cast<size_t>(rank)] = chance(25);
      blind[static_cast<size_t>(rank)] = chance(15);
    }
  }
  auto thread_of = [&](int32_t rank, bool any) -> SimThread& {
    std::vector<size_t> own;
    for (size_t i = 0; i < threads.size(); ++i)
      if (threads[i].rank == rank) own.push_back(i);
    return threads[own[any ? static_cast<size_t>(below(static_cast<int>(own.size()))) : 0]];
  };
  const bool windows_only = chance(15);
  const int events = windows_only ? 0 : 1 + below(chance(30) ? 12 : 5);
  for (int i = 0; i < events; ++i) {
    if (comms.contains(kInter) && chance(20)) {
      for (int32_t member : comms[kInter])
        thread_of(member, false).program.push_back({.what = Do::kCollective, .comm = kInter});
      continue;
    }
    const bool everywhere = !comms.contains(kOther) || chance(70);
    const uint64_t comm = everywhere ? kWorld : kOther;
    const auto& members = comms[comm];
    if (chance(25)) {
      for (int32_t member : members)
        thread_of(member, false)
            .program.push_back({.what = chance(25) ? Do::kIcollective : Do::kCollective, .comm = comm});
      continue;
    }
    const int32_t from = members[static_cast<size_t>(below(static_cast<int>(members.size())))];
    const int32_t to = members[static_cast<size_t>(below(static_cast<int>(members.size())))];
    const int32_t tag = below(3);
    if (from == to && !chance(10)) continue;
    auto& sender = thread_of(from, true).program;
    auto& receiver = thread_of(to, true).program;
    sender.push_back({.what = chance(35) ? Do::kIsend : Do::kSend,
                      .comm = comm,
                      .peer = to,
                      .tag = tag,
                      .small = !plain && chance(40)});
    if (noisy && chance(15)) {  // a receive given up for the next one
      receiver.push_back({.what = Do::kIrecv, .comm = comm, .peer = from, .tag = tag});
      receiver.push_back({.what = Do::kCancel});
    }
    if (noisy && chance(15)) {  // one message taken by anybody's receive, the next by its own
      sender.push_back({.what = Do::kSend, .comm = comm, .peer = to, .tag = tag});
      receiver.push_back({.what = Do::kRecv, .comm = comm, .peer = ring::kAnySource, .tag = tag});
      receiver.push_back({.what = Do::kIrecv, .comm = comm, .peer = from, .tag = tag});
      sender.push_back({.what = Do::kSend, .comm = comm, .peer = to, .tag = tag});
      if (chance(50)) receiver.push_back({.what = Do::kRecv, .comm = comm, .peer = to, .tag = tag});
    }
    const bool any = !plain && chance(25), any_tag = !plain && chance(10);
    if (!plain && chance(10))
      receiver.push_back({.what = Do::kProbe,
                          .comm = comm,
                          .peer = any ? ring::kAnySource : from,
                          .tag = any_tag ? ring::kAnyTag : tag});
    receiver.push_back({.what = chance(35) ? Do::kIrecv : Do::kRecv,
                        .comm = comm,
                        .peer = any ? ring::kAnySource : from,
                        .tag = any_tag ? ring::kAnyTag : tag});
    if (chance(20)) sender.push_back({.what = chance(70) ? Do::kWaitall : Do::kWaitany});
    if (chance(20)) receiver.push_back({.what = chance(70) ? Do::kWaitall : Do::kWaitany});
    if (chance(10)) {
      const int32_t other_tag = below(3);
      sender.push_back(
          {.what = Do::kSendrecv, .comm = comm, .peer = to, .tag = tag, .source = to, .receive_tag = other_tag});
      receiver.push_back(
          {.what = Do::kSendrecv, .comm = comm, .peer = from, .tag = other_tag, .source = from, .receive_tag = tag});
    }
  }
  if (windows_only || chance(35)) plan_windows(random);
  for (int spoils = below(4); spoils > 0; --spoils) {
    auto& program = threads[random() % threads.size()].program;
    if (program.empty()) continue;
    Op& op = program[random() % program.size()];
    switch (below(8)) {
      case 0: program.erase(program.begin() + (&op - program.data())); break;
      case 1: std::swap(op, program[random() % program.size()]); break;
      case 2: op.tag = op.tag >= 0 ? (op.tag + 1) % 3 : op.tag; break;
      case 3: op.peer = op.peer >= 0 ? comms[op.comm][random() % comms[op.comm].size()] : op.peer; break;
      case 4: program.push_back(op); break;
      case 5: op.what = !noisy ? op.what : chance(50) ? Do::kCancel : Do::kDie; break;
      case 6: op.what = chance(50) ? Do::kCompute : Do::kFinish; break;
      default:
        op.comm = comms.contains(kOther) && op.comm != kInter && op.peer < 0 && op.what == Do::kCollective
                      ? (op.comm == kWorld ? kOther : kWorld)
                      : op.comm;
    }
  }
  for (SimThread& thread : threads) {  // collectives belong to the first thread of a rank, and to members
    const bool first = &thread == &thread_of(thread.rank, false);
    std::erase_if(thread.program, [&](const Op& op) {
      const auto& members = comms[op.comm];
      const bool member = std::find(members.begin(), members.end(), thread.rank) != members.end();
      const bool wave = op.what == Do::kCollective || op.what == Do::kIcollective;
      const bool peer =
          op.what > Do::kSendrecv || op.peer < 0 || std::find(members.begin(), members.end(), op.peer) != members.end();
      return !member || !peer || ((wave || op.what >= Do::kPost) && !first);
    });
    thread.program.push_back({.what = Do::kWaitall});
    for (const Op& op : thread.program) {
      active |= op.what >= Do::kPost && op.what <= Do::kWinWait;
      passive |= op.what >= Do::kLock;
      wildcards |= (op.what == Do::kRecv || op.what == Do::kIrecv || op.what == Do::kProbe) &&
                   (op.peer == ring::kAnySource || op.tag == ring::kAnyTag);
    }
  }
}

bool Sim::finalizing(int32_t rank) const {
  return !ended(rank) && std::all_of(threads.begin(), threads.end(),
                                     [&](const SimThread& t) { return t.rank != rank || t.at == t.program.size(); });
}

bool Sim::inside_all(int32_t rank) const {
  return std::all_of(threads.begin(), threads.end(), [&](const SimThread& t) { return t.rank != rank || t.inside; });
}

bool Sim::satisfied(const SimRequest& request) const {
  if (request.kind != SimRequest::kCollective) return request.done;
  const auto& members = comms.at(request.comm);
  const auto in = [&](int32_t rank) {
    const auto found = entered.find({request.comm, rank});
    return found != entered.end() && found->second >= request.ordinal;
  };
  const Wave wave = waves.at(request.comm)[request.ordinal % 40];
  const int32_t root = members[request.ordinal % members.size()];
  const auto needed = awaited(request.comm, request.rank);
  const bool all = std::all_of(needed.begin(), needed.end(), in);
  switch (wave) {
    case Wave::kBarrier: return all;
    case Wave::kBcast: return request.rank == root || in(root);
    case Wave::kScan: return std::all_of(members.begin(), std::find(members.begin(), members.end(), request.rank), in);
    default: return request.rank == root || late_reduce ? all : true;
  }
}

std::vector<int32_t> Sim::awaited(uint64_t comm, int32_t rank) const {
  if (comm != kInter) return comms.at(comm);
  return std::find(one.begin(), one.end(), rank) != one.end() ? other : one;
}

bool Sim::can_return(const SimThread& thread) const {
  const Op& op = thread.program[thread.at];
  const auto done = [&](int32_t r) { return satisfied(requests[static_cast<size_t>(r)]); };
  if (op.what == Do::kProbe) {
    const auto& queue = unexpected[static_cast<size_t>(thread.rank)];
    return std::any_of(queue.begin(), queue.end(), [&](int32_t m) {
      const SimMessage& message = messages[static_cast<size_t>(m)];
      return message.comm == op.comm && fits(op.peer, ring::kAnySource, message.from) &&
             fits(op.tag, ring::kAnyTag, message.tag);
    });
  }
  if (op.what == Do::kCompute) return thread.compute == 0;
  if (op.what >= Do::kPost) {
    bool none = true;
    each_missing(thread, [&](int32_t) { none = false; });
    return none;
  }
  if (op.what == Do::kWaitany)
    return thread.waiting.empty() || std::any_of(thread.waiting.begin(), thread.waiting.end(), done);
  return std::all_of(thread.waiting.begin(), thread.waiting.end(), done);
}

std::vector<Sim::Move> Sim::moves() const {
  std::vector<Move> all;
  std::set<std::tuple<int32_t, int32_t, uint64_t>> before;
  for (size_t i = 0; i < messages.size(); ++i)
    if (!cut && !messages[i].delivered && before.insert({messages[i].from, messages[i].to, messages[i].comm}).second)
      all.push_back({Move::kDeliver, static_cast<int32_t>(i)});
  for (size_t i = 0; i < threads.size(); ++i) {
    const SimThread& thread = threads[i];
    if (ended(thread.rank) || thread.at == thread.program.size()) continue;
    if (!thread.inside) all.push_back({Move::kStart, static_cast<int32_t>(i)});
    else if (can_return(thread)) all.push_back({Move::kFinishCall, static_cast<int32_t>(i)});
  }
  return all;
}

void Sim::apply(const Move& move) {
  if (move.kind == Move::kDeliver) deliver(move.index);
  else if (move.kind == Move::kStart) start(threads[static_cast<size_t>(move.index)]);
  else finish_call(threads[static_cast<size_t>(move.index)]);
  for (int32_t rank = 0; rank < ranks; ++rank)  // MPI_Finalize: at once, or when all have come
    if (finalizing(rank)) {
      bool all = true;
      for (int32_t other = 0; other < ranks; ++other) all = all && (ended(other) || finalizing(other));
      if (all || local_finalize) finished[static_cast<size_t>(rank)] = true;
    }
}

bool Sim::step(std::mt19937_64& random) {
  const auto all = moves();
  if (all.empty()) return false;
  apply(all[random() % all.size()]);
  return true;
}

bool Sim::stuck() const { return moves().empty(); }

void Sim::match(int32_t receive, int32_t message) {
  SimRequest& request = requests[static_cast<size_t>(receive)];
  SimMessage& m = messages[static_cast<size_t>(message)];
  m.matched = true;
  request.done = true;
  request.matched_source = m.from;
  request.matched_tag = m.tag;
  requests[static_cast<size_t>(m.request)].done = true;
}

void Sim::deliver(int32_t index) {
  SimMessage& message = messages[static_cast<size_t>(index)];
  message.delivered = true;
  auto& waiting = posted[static_cast<size_t>(message.to)];
  for (auto at = waiting.begin(); at != waiting.end(); ++at) {
    const SimRequest& request = requests[static_cast<size_t>(*at)];
    if (request.comm != message.comm || !fits(request.peer, ring::kAnySource, message.from) ||
        !fits(request.tag, ring::kAnyTag, message.tag))
      continue;
    const int32_t receive = *at;
    waiting.erase(at);
    return match(receive, index);
  }
  unexpected[static_cast<size_t>(message.to)].push_back(index);
}

int32_t Sim::post_send(int32_t rank, const Op& op) {
  const int32_t index = static_cast<int32_t>(requests.size());
  Count& counted = count(rank, op.comm, op.peer, op.tag);
  ++counted.sent;
  requests.push_back({.kind = SimRequest::kSend,
                      .rank = rank,
                      .comm = op.comm,
                      .peer = op.peer,
                      .tag = op.tag,
                      .ordinal = kept_tag(rank, op.tag) == op.tag ? counted.sent : 0,
                      .small = op.small});
  // A small message may leave at once; a large one, never.
  requests.back().done = op.small && (messages.size() * 7 + static_cast<size_t>(op.tag)) % 3 != 0;
  messages.push_back({rank, op.peer, op.tag, op.comm, index});
  return index;
}

int32_t Sim::post_receive(int32_t rank, uint64_t comm, int32_t source, int32_t tag) {
  const int32_t index = static_cast<int32_t>(requests.size());
  const bool wild = source == ring::kAnySource || tag == ring::kAnyTag;
  uint64_t ordinal = 0;
  if (!wild) {
    Count& counted = count(rank, comm, source, tag);
    ++counted.posted;
    ++counted.pending;
    ordinal = kept_tag(rank, tag) == tag ? counted.posted : 0;
  }
  requests.push_back(
      {.kind = SimRequest::kReceive, .rank = rank, .comm = comm, .peer = source, .tag = tag, .ordinal = ordinal});
  auto& queue = unexpected[static_cast<size_t>(rank)];
  for (auto at = queue.begin(); at != queue.end(); ++at) {
    const SimMessage& message = messages[static_cast<size_t>(*at)];
    if (message.comm != comm || !fits(source, ring::kAnySource, message.from) || !fits(tag, ring::kAnyTag, message.tag))
      continue;
    const int32_t taken = *at;
    queue.erase(at);
    match(index, taken);
    return index;
  }
  posted[static_cast<size_t>(rank)].push_back(index);
  return index;
}

int32_t Sim::post_collective(int32_t rank, uint64_t comm) {
  const uint64_t sequence = ++entered[{comm, rank}];
  requests.push_back(
      {.kind = SimRequest::kCollective, .rank = rank, .comm = comm, .peer = -1, .tag = 0, .ordinal = sequence});
  return static_cast<int32_t>(requests.size()) - 1;
}

void Sim::start(SimThread& thread) {
  const Op& op = thread.program[thread.at];
  thread.inside = true;
  thread.waiting.clear();
  auto leave_open = [&](int32_t request) {
    thread.open.push_back(request);
    thread.inside = false;
    ++thread.at;
  };
  switch (op.what) {
    case Do::kSend: thread.waiting = {post_send(thread.rank, op)}; break;
    case Do::kIsend: leave_open(post_send(thread.rank, op)); break;
    case Do::kRecv: thread.waiting = {post_receive(thread.rank, op.comm, op.peer, op.tag)}; break;
    case Do::kIrecv: leave_open(post_receive(thread.rank, op.comm, op.peer, op.tag)); break;
    case Do::kSendrecv: {
      const int32_t sent = post_send(thread.rank, op);
      thread.waiting = {sent, post_receive(thread.rank, op.comm, op.source, op.receive_tag)};
      break;
    }
    case Do::kWaitall:
    case Do::kWaitany: thread.waiting = thread.open; break;
    case Do::kCollective: thread.waiting = {post_collective(thread.rank, op.comm)}; break;
    case Do::kIcollective: leave_open(post_collective(thread.rank, op.comm)); break;
    case Do::kCancel:  // the last pending receive, if nothing has come for it
      thread.inside = false;
      ++thread.at;
      irregular[static_cast<size_t>(thread.rank)] |= kCancelled;
      for (size_t i = thread.open.size(); i-- > 0;) {
        SimRequest& request = requests[static_cast<size_t>(thread.open[i])];
        if (request.kind != SimRequest::kReceive || request.done) continue;
        std::erase(posted[static_cast<size_t>(thread.rank)], thread.open[i]);
        if (request.peer != ring::kAnySource && request.tag != ring::kAnyTag)
          --count(thread.rank, request.comm, request.peer, request.tag).pending;
        request.told = true;
        thread.open.erase(thread.open.begin() + static_cast<long>(i));
        break;
      }
      break;
    case Do::kCompute: thread.compute = 5; break;
    case Do::kPost:
    case Do::kStart:
    case Do::kComplete:
    case Do::kOperate: start_window(thread, op); break;
    case Do::kDie: gone[static_cast<size_t>(thread.rank)] = true; break;
    case Do::kFinish:
      thread.inside = false;
      thread.at = thread.program.size();
      break;
    default: break;
  }
}

/// The program is told: now the counters know.
void Sim::told(SimRequest& request) {
  request.told = true;
  if (request.kind != SimRequest::kReceive) return;
  if (request.peer != ring::kAnySource && request.tag != ring::kAnyTag)
    --count(request.rank, request.comm, request.peer, request.tag).pending;
  else if (blind[static_cast<size_t>(request.rank)]) irregular[static_cast<size_t>(request.rank)] |= kUnknownSource;
  else ++count(request.rank, request.comm, request.matched_source, request.matched_tag).taken;
}

void Sim::finish_call(SimThread& thread) {
  const Op& op = thread.program[thread.at];
  for (int32_t r : thread.waiting) {
    SimRequest& request = requests[static_cast<size_t>(r)];
    if (!satisfied(request)) continue;
    told(request);
    std::erase(thread.open, r);
    if (op.what == Do::kWaitany) break;
  }
  finish_window(thread, op);
  thread.inside = false;
  ++thread.at;
}

Part Sim::part_of(const SimRequest& request) const {
  if (request.kind == SimRequest::kCollective) {
    const auto& members = comms.at(request.comm);
    const int32_t root = members[request.ordinal % members.size()];
    const bool is_root = request.rank == root;
    switch (waves.at(request.comm)[request.ordinal % 40]) {
      case Wave::kBarrier: return collective(kBarrierCall, request.ordinal, request.comm);
      case Wave::kBcast:
        return collective(kBcastCall, request.ordinal, request.comm, is_root ? kMayBuffer : kRootOnly, root);
      case Wave::kScan: return collective(kScanCall, request.ordinal, request.comm, kLowerOnly);
      default: return collective(kReduceCall, request.ordinal, request.comm, is_root ? 0 : kMayBuffer, root);
    }
  }
  if (request.kind == SimRequest::kSend)
    return send(request.peer, request.tag, static_cast<uint32_t>(request.ordinal), request.small ? kMayBuffer : 0,
                request.comm);
  Part part = receive(request.peer, request.tag, 0, request.comm);
  part.ordinal = static_cast<uint32_t>(request.ordinal);
  if (request.ordinal != 0)
    if (const auto found = counts.find({request.rank, request.comm, request.peer, request.tag}); found != counts.end())
      part.needed = request.ordinal + found->second.taken;
  return part;
}

World Sim::world() const {
  World world(ranks);
  world.comm(kWindow, comms.at(kWorld));
  for (const auto& [id, members] : comms)
    if (id == kInter) world.intercomm(id, one, other);
    else if (id != kWorld) world.comm(id, members);
  std::vector<Part> parts;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const size_t r = static_cast<size_t>(rank);
    for (const auto& [id, members] : comms)
      if (const auto found = entered.find({id, rank}); found != entered.end())
        world.membership(rank, id).sequence = found->second;
    if (gone[r]) {
      world.die(rank);
    } else if (finished[r]) {
      world.finish(rank);
    } else if (finalizing(rank)) {
      world.finalize(rank);
    } else {
      bool outside = false;
      for (const SimThread& thread : threads) {
        if (thread.rank != rank) continue;
        const bool waits = thread.inside && thread.program[thread.at].what != Do::kCompute;
        outside |= !waits;
        if (!waits) continue;
        parts.clear();
        const Op& op = thread.program[thread.at];
        if (op.what == Do::kProbe) {
          parts.push_back(probe(op.peer, op.tag, 0, op.comm));
          const auto found = counts.find({rank, op.comm, op.peer, op.tag});
          const Count counted = found != counts.end() ? found->second : Count{};
          if (op.peer >= 0 && op.tag >= 0 && kept_tag(rank, op.tag) == op.tag)
            parts.back().needed = counted.posted + counted.taken + 1;
        }
        if (op.what >= Do::kPost) {
          show_window(thread, world);
          continue;
        }
        for (int32_t index : thread.waiting)
          if (const SimRequest& request = requests[static_cast<size_t>(index)];
              request.kind == SimRequest::kCollective && request.comm == kInter)
            for (int32_t peer : awaited(kInter, rank))
              parts.push_back(collective(kBarrierCall, request.ordinal, kInter, kRootOnly, peer));
          else parts.push_back(part_of(request));
        world.block(rank, kWaitallCall, parts, op.what == Do::kWaitany ? WaitKind::kAny : WaitKind::kAll);
      }
      if (outside) world.ranks[r].activity = RankActivity::kComputing;
    }
    for (const auto& [target, lock] : epochs[r].locks)
      if (lock.certain) world.holds(rank, target, lock.exclusive);
    world.ranks[r].irregular = irregular[r];
  }
  world.counts = counts;
  world.wilds.clear();
  for (const SimRequest& request : requests)
    if (request.kind == SimRequest::kReceive && !request.told &&
        (request.peer == ring::kAnySource || request.tag == ring::kAnyTag))
      world.wilds.push_back({request.comm, request.rank, request.peer, request.tag});
  return world;
}

}  // namespace hang_test
