// SPDX-License-Identifier: Apache-2.0
//
// The wait-for graph against an oracle: random programs in a tiny MPI, stopped at random instants. What is proved must
// be doomed whatever happens next; and where nothing blurs the counters, whatever is doomed must be proved.
// HANG_SEEDS=first-last in the environment runs other seeds than CI's.

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "check.h"
#include "hang_sim.h"

using namespace hang_test;

namespace {

struct Totals {
  uint64_t worlds = 0, doomed = 0, proved = 0, missed = 0, exact = 0, windows = 0, verified = 0, inside = 0,
           skipped = 0;
};

/// Makes some ranks doubtful; those may then do anything. Returns who can act.
std::vector<bool> blur(const Sim& sim, World& world, std::mt19937_64& random) {
  std::vector<bool> free(static_cast<size_t>(sim.ranks));
  for (int32_t r = 0; r < sim.ranks; ++r) {
    const size_t i = static_cast<size_t>(r);
    Rank& rank = world.ranks[i];
    if (sim.noisy && random() % 12 == 0) switch (random() % 5) {
        case 0: rank.stable = false; break;
        case 1: rank.unknown = true; break;
        case 2: rank.provable = false; break;
        case 3: rank.irregular |= 1u << random() % 11; break;
        default: rank.activity = RankActivity::kStopped;
      }
    const bool sure =
        rank.stable && !rank.unknown && (rank.provable || rank.in_finalize) && rank.activity == RankActivity::kBlocked;
    free[i] = !sim.ended(r) && !sure;
  }
  if (sim.noisy && random() % 8 == 0)
    world.silent.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(sim.ranks)));
  if (sim.noisy && random() % 8 == 0) world.question_room = static_cast<uint32_t>(random() % 6);
  world.node_ranks = 1 + static_cast<int32_t>(random() % 3);
  return free;
}

/// Ranks that are said to be in it for ever. Whoever sent a message that nearly matches is a culprit, and may go on.
std::vector<bool> accused(const Sim& sim, const Verdict& verdict, const std::vector<bool>& truth) {
  std::vector<bool> flags(static_cast<size_t>(sim.ranks));
  const bool near_miss = message_of(verdict).find("Near miss: ") != std::string::npos;
  for (int32_t rank : victims(verdict)) flags[static_cast<size_t>(rank)] = !sim.ended(rank) && !sim.finalizing(rank);
  for (int32_t rank : culprits(verdict))
    if (!sim.ended(rank) && !sim.finalizing(rank) && (!near_miss || truth[static_cast<size_t>(rank)]))
      flags[static_cast<size_t>(rank)] = true;
  return flags;
}

bool any(const std::vector<bool>& flags) {
  for (bool flag : flags)
    if (flag) return true;
  return false;
}

bool within(const std::vector<bool>& inner, const std::vector<bool>& outer) {
  for (size_t i = 0; i < inner.size(); ++i)
    if (inner[i] && !outer[i]) return false;
  return true;
}

/// False: wrong, with a line that says why.
bool try_seed(uint64_t seed, Totals& totals, const char** wrong) {
  Sim sim(seed);
  std::mt19937_64 random(seed ^ 0x5eed);
  const int cut_at = random() % 10 == 0 ? static_cast<int>(random() % 20) : -1;
  const bool midway = random() % 3 == 0 || (sim.passive && random() % 2 == 0);  // a lock is tried for an instant only
  for (int steps = midway ? static_cast<int>(random() % 25) : 1000; steps > 0 && sim.step(random); --steps)
    sim.cut = sim.cut || steps == 1000 - cut_at;
  World world = sim.world();
  const auto free = blur(sim, world, random);
  const auto truth = doomed(sim, free, false);
  if (!truth) {
    ++totals.skipped;
    return true;
  }
  ++totals.worlds;
  totals.doomed += any(*truth);
  const auto verdict = world.judge();
  if (verdict) {
    ++totals.proved;
    *wrong = "proved, but it can go on";
    const auto named = accused(sim, *verdict, *truth);
    if (!within(named, *truth) || verdict->confidence != resil::Confidence::kProved || !any(named)) return false;
  }
  // Whether a lock is had may not be known, nor whether a call that has a good reason to wait has others.
  const bool exact_windows = !sim.active || (!sim.library.late_tokens && sim.library.early_complete);
  if (any(*truth) && !sim.noisy && !sim.wildcards && !sim.passive && exact_windows) {
    totals.windows += sim.active;
    ++totals.exact;
    *wrong = "doomed, but not proved";
    if (!verdict || accused(sim, *verdict, *truth) != *truth) return false;
  }
  totals.missed += any(*truth) && !verdict;
  if (!sim.stuck())  // patience is for those who do not move
    return true;
  const auto patient = world.judge(true);
  const auto lenient_truth = doomed(sim, free, true);
  if (patient && lenient_truth && !verdict) {
    const auto named = accused(sim, *patient, *lenient_truth);
    if (patient->type == HangClass::kInsideMpi) {
      ++totals.inside;
      *wrong = "inside MPI, but it waits for somebody";
      for (size_t i = 0; i < named.size(); ++i)
        if (named[i] && (*lenient_truth)[i]) return false;
    } else {
      ++totals.verified;
      *wrong = "verified, but it can go on";
      if (!within(named, *lenient_truth) || patient->confidence != resil::Confidence::kVerified) return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("what is proved is doomed, and what is doomed is proved") {
#ifdef __SANITIZE_ADDRESS__
  uint64_t first = 1, last = 600;
#else
  uint64_t first = 1, last = 3000;
#endif
  if (const char* range = getenv("HANG_SEEDS"); range != nullptr) REQUIRE(sscanf(range, "%lu-%lu", &first, &last) == 2);
  Totals totals;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const char* wrong = "";
    if (!try_seed(seed, totals, &wrong)) {
      INFO("HANG_SEEDS=" << seed << "-" << seed << ": " << wrong);
      FAIL_CHECK();
    }
  }
  if (getenv("HANG_SEEDS") != nullptr)
    std::cout << totals.worlds << " worlds, " << totals.doomed << " with a deadlock, " << totals.proved << " proved, "
              << totals.missed << " missed; " << totals.exact << " of exact counters (" << totals.windows
              << " with windows); by patience " << totals.verified << " more and " << totals.inside << " inside MPI; "
              << totals.skipped << " too large to tell\n";
  CHECK(totals.exact > 0);
  CHECK(totals.proved > 0);
  if (last - first > 2000) CHECK(totals.inside > 0);
}
