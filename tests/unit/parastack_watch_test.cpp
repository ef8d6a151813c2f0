// SPDX-License-Identifier: Apache-2.0
//
// What stands over ParaStack's model: quiet intervals, the judge, snapshots of all ranks, adaptive timeouts.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "check.h"
#include "detectors/hang/stats/adaptive_timeout.h"
#include "detectors/hang/stats/snapshot.h"
#include "detectors/hang/stats/watch.h"

using namespace resil::hang::stats;

namespace {

/// A program under a judge: looks at random steps; while healthy, ranks out vary and everything moves.
struct Program {
  explicit Program(uint32_t total, uint64_t seed = 1) : ranks(total) {
    watch.start(total, .4, .001, seed);
    random.start(seed);
  }
  Verdict look(uint32_t out, bool moved, double excused = 0, uint64_t familiar = 1000, double starved = 0) {
    now += watch.next_step();
    moves += moved;
    return watch.look({now, out, ranks, moves, familiar, excused, starved});
  }
  Verdict healthy(double seconds) {
    Verdict last{};
    for (const double until = now + seconds; now < until;)
      last = look(static_cast<uint32_t>(random.next() % (ranks + 1)), true);
    return last;
  }
  /// Stands still until the finding, at most `most` seconds; how long that took.
  double until(Finding finding, uint32_t out, double most, double excused_share = 0, uint64_t familiar = 1000) {
    const double begin = now;
    while (now < begin + most)
      if (look(out, false, excused_share * .4, familiar).finding >= finding) return now - begin;
    return INFINITY;
  }

  Watch watch{};
  Random random{};
  uint32_t ranks;
  double now = 1000;
  uint64_t moves = 0;
};

RankState rank(uint64_t moves, Where where, uint64_t polls = 0) { return {moves, polls, where}; }

}  // namespace

TEST_CASE("a computation hang after a minute is suspected in 5 s and verified in 15 s, at any size") {
  for (uint32_t ranks : {2u, 3u, 4u, 16u, 1024u, 100000u}) {
    std::vector<double> suspected, verified;
    for (uint64_t seed = 1; seed <= 21; ++seed) {
      Program program(ranks, seed);
      CHECK(program.healthy(60).finding <= Finding::kHealthy);
      const double first = program.until(Finding::kSuspected, 1, 100);
      suspected.push_back(first);
      verified.push_back(first + program.until(Finding::kVerified, 1, 100));
    }
    std::sort(suspected.begin(), suspected.end());
    std::sort(verified.begin(), verified.end());
    INFO(ranks);
    CHECK(suspected[10] <= 5);
    CHECK(verified[10] <= 15);
    CHECK(verified[20] <= 15);
  }
}

TEST_CASE("no finding while anything moves, however few ranks are out") {
  Program program(64);
  program.healthy(60);
  for (int i = 0; i < 5000; ++i) CHECK(program.look(1, true).finding == Finding::kHealthy);
}

TEST_CASE("three times the longest quiet interval, where that is longer") {
  Program program(64);
  program.healthy(60);
  for (int i = 0; i < 20; ++i) {  // pauses of nearly equal length
    program.until(Finding::kVerified, 1, 9 + .05 * i);
    program.healthy(20);
  }
  const double longest = program.watch.record().longest();
  CHECK(longest > 9);
  CHECK(longest < 12);
  const double found = program.until(Finding::kVerified, 1, 200);
  CHECK(found > 3 * longest);
  CHECK(found < 4.5 * longest);
}

TEST_CASE("pauses of very unequal length ask for a longer limit than equal ones of the same longest") {
  Quiet equal{}, unequal{};
  uint64_t moves = 0;
  const auto pause = [&](Quiet& quiet, double& now, double seconds) {
    quiet.look(now += .1, 0, 0, ++moves, true);
    quiet.look(now += seconds / 2, 0, 0, moves, true);
    quiet.look(now += seconds / 2, 0, 0, ++moves, true);
  };
  double one = 0, other = 0;
  for (int i = 0; i < 60; ++i) {
    pause(equal, one, 7.9 + .1 * (i % 2));
    pause(unequal, other, 8 * std::pow(i + 1, -1.));
  }
  CHECK(equal.longest() == Approx(8));
  CHECK(unequal.longest() == Approx(8));
  CHECK(equal.limit() == Approx(24));
  CHECK(unequal.limit() > 100);
  CHECK(unequal.limit() <= Quiet::kMost);
}

TEST_CASE("a network that stalls while all ranks are in says nothing about computations") {
  Program program(64);
  program.healthy(60);
  program.until(Finding::kVerified, 0, 100);
  program.healthy(10);
  CHECK(program.watch.record().longest() > 90);
  CHECK(program.watch.record().longest_out() == 0);
  CHECK(program.until(Finding::kVerified, 1, 100) < 15);
}

TEST_CASE("time in which a rank could not run does not count") {
  Program program(64);
  program.healthy(60);
  CHECK(program.until(Finding::kVerified, 1, 600, 10) == INFINITY);  // all of it
  program.healthy(10);
  const double half = program.until(Finding::kVerified, 1, 600, .5);
  CHECK(half > 20);
  CHECK(half < 60);
}

/// Quiet of `ranks_own` seconds of each second, the rest of which a rank waits for a CPU; until verified, by the clock.
static double crowded_until(Program& program, double own, double most) {
  const double begin = program.now;
  while (program.now < begin + most) {
    const double step = program.watch.next_step(), waited = step * (1 - own);
    program.now += step;
    const Look look{program.now, 1, program.ranks, program.moves, 1000, waited, waited};
    if (program.watch.look(look).finding == Finding::kVerified) return program.now - begin;
  }
  return INFINITY;
}

TEST_CASE(
    "a rank that spins on a crowded core is found after a quarter of the time of its own, if the clock shows much "
    "more") {
  for (const auto& [own, least, most] : {std::array{.9, 12., 15.}, {.5, 14., 18.}, {.3, 14., 18.}, {.1, 28., 35.}}) {
    Program program(64);
    program.healthy(60);
    INFO(own);
    const double found = crowded_until(program, own, 200);
    CHECK(found > least);
    CHECK(found < most);
  }
}

TEST_CASE("a healthy rank that gets little of a crowded core is not accused, however long it takes") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Program program(64, seed);
    program.healthy(60);
    Random random;
    random.start(seed);
    for (int i = 0; i < 100; ++i) {
      const double own = .02 + .3 * random.uniform(), work = .05 + 1.1 * random.uniform();
      INFO(seed << ' ' << i);
      CHECK(crowded_until(program, own, work / own) == INFINITY);
      program.healthy(3);
    }
  }
}

TEST_CASE("the longest pauses, by the clock too, make a crowded program more patient") {
  Program program(64);
  program.healthy(60);
  for (int i = 0; i < 5; ++i) {
    crowded_until(program, .05, 20);  // a second of its own
    program.healthy(10);
  }
  const double found = crowded_until(program, .15, 300);  // 3 s of its own after 20, 14 after 93
  CHECK(found > 57);
  CHECK(found < 97);
}

TEST_CASE("a look that comes late is the machine's fault; a clock that goes back is nobody's") {
  Program program(64);
  program.healthy(60);
  program.look(1, false);
  program.now += 300;  // the machine was suspended
  CHECK(program.look(1, false).finding < Finding::kVerified);
  CHECK(program.watch.quiet() < 5);
  program.now -= 5000;
  CHECK(program.look(1, false).finding < Finding::kVerified);
  CHECK(program.watch.quiet() < 5);
  CHECK(program.until(Finding::kVerified, 1, 100) < 15);
}

TEST_CASE("what cannot be judged: first iterations, calls never seen, all in, most out") {
  Program first(64);
  CHECK(first.until(Finding::kVerified, 1, 1800) == INFINITY);
  CHECK(first.healthy(1).finding == Finding::kHealthy);

  Program rare(64);
  rare.healthy(120);
  CHECK(rare.until(Finding::kVerified, 1, 1800, 0, 0) == INFINITY);
  rare.healthy(1);

  Program seldom(64), often(64);
  seldom.healthy(120);
  often.healthy(120);
  const double four = seldom.until(Finding::kVerified, 1, 4000, 0, 4),
               sixteen = often.until(Finding::kVerified, 1, 4000);
  CHECK(four > 3 * sixteen);
  CHECK(four < 300);

  Program in(64);
  in.healthy(120);
  CHECK(in.until(Finding::kVerified, 0, 590) == INFINITY);
  CHECK(in.look(0, false).phase == Phase::kCommunication);
  CHECK(in.until(Finding::kVerified, 0, 30) < 30);

  Program out(64);
  out.healthy(120);
  CHECK(out.until(Finding::kSuspected, 40, 20000) == INFINITY);
  CHECK(out.look(40, false).phase == Phase::kMostCompute);

  Program alone(1);
  alone.healthy(120);
  CHECK(alone.until(Finding::kSuspected, 1, 20000) == INFINITY);
}

TEST_CASE("ranks that end, and looks at nobody") {
  Program program(100);
  program.healthy(60);
  for (uint32_t total = 100; total > 0; --total) {
    program.ranks = total;
    CHECK(program.look(total / 2, true).finding <= Finding::kHealthy);
  }
  program.ranks = 0;
  for (int i = 0; i < 100; ++i) CHECK(program.look(0, true).finding <= Finding::kHealthy);
}

TEST_CASE("property: a program that never stands still longer than it did while learning is never accused") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random;
    random.start(seed);
    const auto ranks = static_cast<uint32_t>(1 + random.next() % 2000);
    const double most = 8 * random.uniform();
    Program program(ranks, seed);
    uint32_t verified = 0;
    while (program.now < 3000) {
      program.healthy(1 + 10 * random.uniform());
      const double length = most * random.uniform();
      for (const double until = program.now + length; program.now < until;)
        verified += program.look(static_cast<uint32_t>(random.next() % 2), false).finding == Finding::kVerified;
    }
    INFO(seed);
    CHECK(verified == 0);
  }
}

TEST_CASE("faulty ranks: out in five snapshots of five") {
  constexpr uint32_t kRanks = 100;
  std::vector<RankState> marks(kRanks), now(kRanks, rank(9, Where::kIn));
  uint32_t accused[4];
  const auto search = [&](auto change) {
    FaultySearch faulty{};
    faulty.start(marks.data(), kRanks);
    std::vector<RankState> snapshot = now;
    for (uint32_t i = 0; i < FaultySearch::kSnapshots; ++i) {
      CHECK(faulty.answer(accused, 4).result == FaultySearch::Result::kUnfinished);
      change(snapshot, i);
      faulty.add(snapshot.data());
    }
    return faulty.answer(accused, 4);
  };
  using Result = FaultySearch::Result;
  CHECK(search([](auto&, uint32_t) {}).result == Result::kCommunicationPhase);
  auto answer = search([](auto& ranks, uint32_t) { ranks[17].where = ranks[3].where = Where::kOut; });
  CHECK((answer.result == Result::kFaulty && answer.count == 2 && accused[0] == 3 && accused[1] == 17));
  // In once, or on its way through calls: not stuck.
  answer = search([](auto& ranks, uint32_t i) {
    ranks[3].where = Where::kOut;
    ranks[17].where = i == 2 ? Where::kIn : Where::kOut;
    ranks[18].where = Where::kOut;
    ranks[18].moves += 2;
  });
  CHECK((answer.result == Result::kFaulty && answer.count == 1 && accused[0] == 3));
  // A loop of polls that is caught between two of them now and then.
  answer = search([](auto& ranks, uint32_t i) { ranks[5] = rank(9, i % 2 == 0 ? Where::kPolling : Where::kOut, i); });
  CHECK(answer.result == Result::kCommunicationPhase);
  answer = search([](auto& ranks, uint32_t) {
    for (uint32_t i = 0; i < 51; ++i) ranks[i].where = Where::kOut;
  });
  CHECK(answer.result == Result::kMostCompute);
  answer = search([](auto& ranks, uint32_t) {  // more than fit
    for (uint32_t i = 0; i < 50; ++i) ranks[2 * i].where = Where::kOut;
  });
  CHECK((answer.result == Result::kFaulty && answer.count == 50 && accused[3] == 6));
}

TEST_CASE("timeouts are learned for each kind, and nothing is suspected that was never seen to end, for a minute") {
  static AdaptiveTimeout timeouts{};
  CHECK(timeouts.limit(1) == AdaptiveTimeout::kUnfamiliar);
  for (uint32_t i = 0; i < AdaptiveTimeout::kFewest; ++i) {
    timeouts.ended(1, .01 * i);
    timeouts.ended(0, 10 + i);
  }
  CHECK(timeouts.limit(1) == AdaptiveTimeout::kFloor);
  CHECK(timeouts.longest(1) == Approx(.15));
  CHECK(timeouts.seen(1) == AdaptiveTimeout::kFewest);
  CHECK(timeouts.limit(0) == Approx(125));
  CHECK(!timeouts.suspected(1, 5));
  CHECK(timeouts.suspected(1, 5.1));
  for (uint64_t kind = 2; kind < 2000; ++kind)  // more kinds than places
    timeouts.ended(kind, 1);
  CHECK(timeouts.limit(1) == AdaptiveTimeout::kFloor);
  CHECK(timeouts.limit(1999) == AdaptiveTimeout::kFloor);
  CHECK(timeouts.longest(123456789) == 1);  // the rest's record
}
