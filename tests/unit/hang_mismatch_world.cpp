// SPDX-License-Identifier: Apache-2.0
//
// One simulated job from its first call to its last, watched all the while.

#include "hang_mismatch_world.h"

#include <algorithm>

namespace mismatch_test {

namespace {

void make_comms(World& world, const Plan& plan, std::mt19937_64& random) {
  for (int c = 0; c < plan.comms; ++c) {
    std::vector<int> members;
    for (int rank = 0; rank < plan.ranks; ++rank)
      if (c == 0 || random() % 3 != 0) members.push_back(rank);
    if (members.size() < 3)
      for (members.clear(); static_cast<int>(members.size()) < std::min(3, plan.ranks);)
        members.push_back(static_cast<int>(members.size()));
    world.members.push_back(members);
    world.ids.push_back(random() | 2);
  }
}

/// One look by all nodes, each at an instant of its own; what they say goes up in any order and grouping.
void look(World& world, const Plan& plan, std::mt19937_64& random, const std::function<void()>& meanwhile,
          Outcome& outcome) {
  std::vector<std::vector<char>> frames;
  for (size_t node = 0; node < world.nodes.size(); ++node) {
    std::vector<char> frame(plan.room);
    frame.resize(mismatch_collect(*world.helpers[node], world.nodes[node].data(),
                                  static_cast<uint32_t>(world.nodes[node].size()), frame.data(), plan.room));
    if (!frame.empty() && random() % 16 != 0)  // now and then one is lost
      frames.push_back(frame);
    if (!frame.empty() && random() % 16 == 0)  // or comes twice
      frames.push_back(frame);
    meanwhile();
  }
  while (frames.size() > 1) {
    const size_t into = random() % frames.size();
    std::swap(frames[into], frames.back());
    std::vector<char> last = std::move(frames.back());
    frames.pop_back();
    std::vector<char>& other = frames[random() % frames.size()];
    auto bytes = static_cast<uint32_t>(other.size());
    other.resize(plan.room);
    if (!mismatch_merge(*world.helpers[random() % world.helpers.size()], other.data(), &bytes, plan.room, last.data(),
                        static_cast<uint32_t>(last.size())))
      abort();
    other.resize(bytes);
  }
  Verdict verdict;
  const void* merged = frames.empty() ? nullptr : frames[0].data();
  for (uint32_t bytes = frames.empty() ? 0 : static_cast<uint32_t>(frames[0].size());
       mismatch_judge(*world.root, merged, bytes, &verdict); bytes = 0)
    outcome.verdicts.push_back(verdict);
}

/// Puts the fault into the programs of some ranks.
void inject(World& world, const Plan& plan, std::mt19937_64& random, Outcome& outcome) {
  outcome.comm = static_cast<int>(random() % world.ids.size());
  outcome.comm_id = world.ids[outcome.comm];
  outcome.members = world.members[outcome.comm];
  std::vector<int> order = outcome.members;
  std::shuffle(order.begin(), order.end(), random);
  outcome.odd.assign(order.begin(), order.begin() + std::min<size_t>(plan.odd, order.size() - 1));
  std::sort(outcome.odd.begin(), outcome.odd.end());
  std::vector<size_t> places;  // of that communicator's calls in an odd rank's program: equal in number for all members
  const auto& example = world.programs[outcome.odd[0]];
  for (size_t i = 0; i < example.size(); ++i)
    if (example[i].comm == outcome.comm) places.push_back(i);
  // Not among the last calls, or MPI_Finalize may be what does not match, which is only suspected. With no equal
  // neighbour: a call left out of a row of equal ones is one too few at the row's end.
  size_t nth = 0;
  for (int tries = 0; tries < 1000; ++tries) {
    nth = random() % (places.size() - 3);
    const uint64_t here = example[places[nth]].signature, next = example[places[nth + 1]].signature;
    const bool has_bytes = signature_unpack(here).bytes != kBytesNotCompared;
    if ((here >> 36 != next >> 36 || (here & 0xfffffffff) != (next & 0xfffffffff)) &&
        (here & 0xfffffffff) != (next & 0xfffffffff) && (plan.fault != Fault::kBytes || has_bytes))
      break;
  }
  outcome.call = nth + 1;
  const uint64_t extra = random_signature(random, static_cast<int>(outcome.members.size()));
  const uint64_t other = spoil(example[places[nth]].signature, plan.fault, random);
  for (const int rank : outcome.odd) {
    auto& program = world.programs[rank];
    size_t at = 0, next = 0, seen = 0;
    for (size_t i = 0; i < program.size(); ++i)
      if (program[i].comm == outcome.comm) {
        if (seen == nth) at = i;
        if (seen++ == nth + 1) next = i;
      }
    if (plan.fault == Fault::kSkip) program.erase(program.begin() + static_cast<long>(at));
    else if (plan.fault == Fault::kExtra)
      program.insert(program.begin() + static_cast<long>(at),
                     {outcome.comm, (extra & 0xfffffffff) == (program[at].signature & 0xfffffffff)
                                        ? spoil(extra, Fault::kCall, random)
                                        : extra});
    else if (plan.fault == Fault::kSwap) std::swap(program[at].signature, program[next].signature);
    else program[at].signature = other;
  }
  if (plan.stops)  // the calls after it are never made by anybody, or one or two
    for (auto& program : world.programs) {
      const size_t allowed = nth + 1 + random() % 3;
      size_t seen = 0;
      for (size_t i = 0; i < program.size(); ++i)
        if (program[i].comm == outcome.comm && seen++ >= allowed) {
          program.resize(i);  // and stays there
          break;
        }
    }
}

}  // namespace

Outcome play(const Plan& plan, uint64_t seed) {
  std::mt19937_64 random(seed);
  World world;
  Outcome outcome = {};
  outcome.comm = -1;
  make_comms(world, plan, random);
  world.nodes.resize(static_cast<size_t>(plan.nodes));
  world.headers.resize(static_cast<size_t>(plan.ranks));
  for (int rank = 0; rank < plan.ranks; ++rank) {
    world.sections.emplace_back(static_cast<Section*>(calloc(1, sizeof(Section))));
    world.headers[rank].world_size = plan.ranks;
    world.headers[rank].rank = rank;
    Watched watched = {};
    watched.header = &world.headers[rank];
    watched.section = world.sections[rank].get();
    watched.rank = rank;
    world.nodes[random() % world.nodes.size()].push_back(watched);
  }
  world.programs.resize(plan.ranks);
  world.done.resize(plan.ranks);
  world.sequences.assign(plan.ranks, std::vector<uint64_t>(plan.comms));
  for (int i = 0; i < plan.calls; ++i) {
    const int comm = static_cast<int>(random() % plan.comms);
    const uint64_t signature = random_signature(random, static_cast<int>(world.members[comm].size()));
    for (const int rank : world.members[comm]) world.programs[rank].push_back({comm, signature});
  }
  for (int node = 0; node < plan.nodes; ++node)
    world.helpers.emplace_back(mismatch_create(static_cast<uint32_t>(plan.ranks)));
  world.root.reset(mismatch_create(static_cast<uint32_t>(plan.ranks)));
  if (plan.fault != Fault::kNone) inject(world, plan, random, outcome);

  // Ranks run on in bursts; none gets further ahead of the slowest than `lag`.
  size_t longest = 0;
  for (const auto& program : world.programs) longest = std::max(longest, program.size());
  const int pauses = plan.looks * plan.nodes;
  size_t floor = 0;
  int pause = 0;
  auto run_on = [&] {
    ++pause;
    floor = std::max(floor, longest * static_cast<size_t>(pause) / static_cast<size_t>(pauses));
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const size_t goal = std::min(world.programs[rank].size(), floor + random() % static_cast<size_t>(plan.lag + 1));
      while (world.done[rank] < goal) world.step(rank);
    }
  };
  for (int round = 0; round < plan.looks; ++round) look(world, plan, random, run_on, outcome);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    while (world.done[rank] < world.programs[rank].size()) world.step(rank);
    if (plan.ends && !plan.stops && random() % 3 != 0) world.step(rank);
  }
  look(
      world, plan, random, [] {}, outcome);
  for (int rank = 0; rank < plan.ranks && plan.ends && !plan.stops; ++rank) world.step(rank);
  for (int round = 0; round < 40; ++round)  // stuck or in MPI_Finalize: seen again and again
    look(
        world, plan, random, [] {}, outcome);
  outcome.broken = mismatch_coverage(*world.root).broken;
  return outcome;
}

}  // namespace mismatch_test
