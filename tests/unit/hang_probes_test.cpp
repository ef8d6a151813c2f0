// SPDX-License-Identifier: Apache-2.0
//
// Pings and votes between simulated leaders: which ways are probed, when again, and what the votes say. Who reaches
// whom is a function; a node's part of a round is played here.
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "check.h"
#include "detectors/hang/root/probes.h"

using namespace resil::hang;

namespace {

struct Leaders {
  explicit Leaders(uint32_t count) : probes(std::make_unique<Probes>()) {
    memset(static_cast<void*>(probes.get()), 0, sizeof(Probes));
    probes->nodes = count;
  }

  /// One round; a probe to which nothing comes back is over after `kProbeTimeout`.
  uint32_t round() {
    std::vector<ProbeAnswer> answers;
    const uint32_t count = probes_questions(*probes, now);
    for (uint32_t i = 0; i < count; ++i) {
      const ProbeQuestion& asked = probes->questions[i];
      if (silent.count(asked.from) != 0) continue;
      auto& one = begun[{asked.from, asked.to}];
      if (one == 0 || now - one > static_cast<double>(asked.seconds)) {
        one = now;
        all.insert({asked.from, asked.to});
      }
      const Reach reach = reaches(asked.from, asked.to);
      const bool over = reach != Reach::kNothing || now - one >= kProbeTimeout;
      answers.push_back({asked.from, asked.to, over ? reach : Reach::kAsking, {}, 0});
    }
    probes_came(*probes, answers.data(), static_cast<uint32_t>(answers.size()), now);
    probes_want_votes(
        *probes, [](const void* of, uint32_t node) { return static_cast<const Leaders*>(of)->silent.count(node) == 0; },
        this, now);
    return count;
  }
  /// Rank on `from` waits for one on `to`, for so long.
  void wait(uint32_t from, uint32_t to, double seconds) {
    for (const double end = now + seconds; now < end; now += 0.5) {
      probes_want(*probes, from, to, now);
      round();
    }
  }
  Vote vote(uint32_t from, uint32_t to) { return probes_vote(*probes, *probes_way(*probes, from, to)); }
  bool broken(uint32_t from, uint32_t to) {
    const Way* way = probes_way(*probes, from, to);
    return way != nullptr && is_broken(*way);
  }

  std::unique_ptr<Probes> probes;
  double now = 1000;
  std::set<uint32_t> silent;
  std::set<std::pair<uint32_t, uint32_t>> all;
  std::map<std::pair<uint32_t, uint32_t>, double> begun;
  std::function<Reach(uint32_t, uint32_t)> reaches = [](uint32_t, uint32_t) { return Reach::kReplied; };
};

}  // namespace

TEST_CASE("a ping that is answered asks nobody else, and is not repeated for ten seconds") {
  Leaders job(1000);
  job.wait(7, 600, 9);
  CHECK(job.probes->pings == 1);
  CHECK(job.probes->votes == 0);
  CHECK(job.all.size() == 1);
  CHECK(probes_way(*job.probes, 7, 600)->reach == Reach::kReplied);
  job.wait(7, 600, 3);
  CHECK(job.probes->pings == 2);
  CHECK_FALSE(job.broken(7, 600));
}

TEST_CASE("a way that is broken between two nodes only is told by those who reach both") {
  for (const uint32_t nodes : {4u, 9u, 1000u}) {
    Leaders job(nodes);
    job.reaches = [](uint32_t from, uint32_t to) {
      return (from == 1 && to == 3) || (from == 3 && to == 1) ? Reach::kNothing : Reach::kReplied;
    };
    job.wait(1, 3, 7);
    REQUIRE(job.broken(1, 3));
    const uint32_t others = nodes - 2 < kMostVoters ? nodes - 2 : kMostVoters;
    CHECK(job.vote(1, 3).asked >= others - 1);  // an even spread may meet the other end
    CHECK(job.vote(1, 3).reach_both == job.vote(1, 3).asked);
    CHECK(job.all.size() <= 2 + 2 * kMostVoters);
    job.reaches = [](uint32_t, uint32_t) { return Reach::kReplied; };
    job.wait(1, 3, 21);
    CHECK_FALSE(job.broken(1, 3));
  }
}

TEST_CASE("a node that nobody reaches, and one whose host is there, are no broken ways") {
  Leaders job(8);
  job.silent = {5};
  job.reaches = [](uint32_t, uint32_t to) { return to == 5 ? Reach::kNothing : Reach::kReplied; };
  job.wait(2, 5, 7);
  REQUIRE(job.broken(2, 5));
  CHECK(job.vote(2, 5).asked >= 5);
  CHECK(job.vote(2, 5).reach_to == 0);
  CHECK(job.vote(2, 5).reach_from == job.vote(2, 5).asked);
  CHECK(job.vote(2, 5).reach_both == 0);
  job.reaches = [](uint32_t, uint32_t to) { return to == 5 ? Reach::kHost : Reach::kReplied; };
  job.wait(2, 5, 21);
  CHECK_FALSE(job.broken(2, 5));
  CHECK(probes_way(*job.probes, 2, 5)->reach == Reach::kHost);
}

TEST_CASE("one probe without a reply is no broken way") {
  Leaders job(6);
  int lost = 1;
  job.reaches = [&](uint32_t from, uint32_t to) {
    if (from != 0 || to != 4 || lost == 0) return Reach::kReplied;
    if (job.begun[{0, 4}] != 0 && job.now - job.begun[{0, 4}] >= kProbeTimeout) --lost;
    return Reach::kNothing;
  };
  job.wait(0, 4, 20);
  CHECK(lost == 0);
  CHECK(job.probes->votes != 0);
  CHECK_FALSE(job.broken(0, 4));
  CHECK(probes_way(*job.probes, 0, 4)->failures == 0);
}

TEST_CASE("of more ways than are kept those that are broken stay") {
  Leaders job(1000);
  job.reaches = [](uint32_t from, uint32_t to) { return from + to == 3 ? Reach::kNothing : Reach::kReplied; };
  job.wait(1, 2, 7);
  REQUIRE(job.broken(1, 2));
  for (uint32_t i = 0; i < 500; ++i) {
    probes_want(*job.probes, 100 + i, 5, job.now);
    job.round();
    job.now += 0.5;
  }
  CHECK(job.broken(1, 2));
  CHECK(job.probes->count <= kMostWays);
}

TEST_CASE("a node that does not tell is not awaited for ever") {
  Leaders job(5);
  job.silent = {1};
  probes_want(*job.probes, 1, 3, job.now);
  CHECK(job.round() == 1);
  job.now += 9;
  CHECK(job.round() == 0);
  const ProbeAnswer odd[] = {{9, 9, Reach::kNothing, {}, 0}, {1, 3, static_cast<Reach>(200), {}, 0}};
  probes_came(*job.probes, odd, 2, job.now);  // answers that were not asked for, or are none
  CHECK(probes_way(*job.probes, 1, 3)->reach == Reach::kUnknown);
}
