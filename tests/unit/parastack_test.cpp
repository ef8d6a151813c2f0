// SPDX-License-Identifier: Apache-2.0
//
// ParaStack's model of S_out: the published tables, the runs test against counting all arrangements, and how the model
// learns, doubles its interval, and judges. The judge over it: parastack_watch_test.cpp.
#include <algorithm>
#include <cmath>
#include <vector>

#include "check.h"
#include "detectors/hang/stats/levels.h"
#include "detectors/hang/stats/model.h"
#include "detectors/hang/stats/numbers.h"
#include "detectors/hang/stats/runs_test.h"

using namespace resil::hang::stats;

namespace {

constexpr double kAlpha = .001, kInterval = .4;

Model model_of(uint32_t ranks, uint64_t seed = 1) {
  Model model;
  model.start(ranks, kInterval, kAlpha, seed);
  return model;
}

uint32_t runs_of(const std::vector<bool>& signs) {
  uint32_t runs = 1;
  for (size_t i = 1; i < signs.size(); ++i) runs += signs[i] != signs[i - 1];
  return runs;
}

/// Feeds `count` samples, each `out(i)` of `total`; the last observation.
template <typename Out>
Observation feed(Model& model, uint32_t total, uint32_t count, Out out) {
  Observation last{};
  for (uint32_t i = 0; i < count; ++i) last = model.observe(out(i), total);
  return last;
}

}  // namespace

TEST_CASE(
    "suspicions in a row that are significant: the slides' four levels, and 66 where nearly all samples are low") {
  CHECK(consecutive(.77, kAlpha, 150) == 27);
  CHECK(consecutive(.47, kAlpha, 150) == 10);
  CHECK(consecutive(.22, kAlpha, 150) == 5);
  CHECK(consecutive(.11, kAlpha, 150) == 4);
  CHECK(consecutive(.9, kAlpha, 150) == 66);
  CHECK(consecutive(.999, kAlpha, 150) == 151);  // more than allowed
  CHECK(consecutive(0, kAlpha, 150) == 1);
  for (double q : {.05, .11, .22, .3, .47, .6, .77, .9}) {
    const uint32_t k = consecutive(q, kAlpha, 1000);
    CHECK(std::pow(q, k) <= kAlpha * (1 + 1e-9));
    CHECK(std::pow(q, k - 1) > kAlpha);
  }
}

TEST_CASE("levels: published sample sizes and what the test reckons with") {
  const uint32_t published[kLevels] = {11, 19, 42, 86};
  const double q[kLevels] = {.77, .47, .22, .11};
  for (uint32_t i = 0; i < kLevels; ++i) {
    const double p = kLevel[i].p;
    CHECK(with_tolerance(kLevel[i], p) == Approx(q[i]));
    const double needed = std::max(samples_needed(kLevel[i], p), samples_needed_below(p));
    CHECK(std::abs(std::ceil(needed) - published[i]) <= 1);  // 86.7 was rounded down
  }
  CHECK(with_tolerance(kLevel[3], .9) == .9);
  CHECK(samples_needed(kLevel[3], .95) == Approx(100));
  CHECK(samples_needed(kLevel[0], 1) == kNever);
  CHECK(samples_needed_below(0) == kNever);
}

TEST_CASE("runs test: critical values against counting all arrangements, and ParaStack's table") {
  for (uint32_t n0 = 2; n0 <= 8; ++n0) {
    for (uint32_t n1 = n0; n1 <= 8 || n1 == 16 - n0; n1 = n1 < 8 ? n1 + 1 : n1 < 16 - n0 ? 16 - n0 : 17) {
      std::vector<bool> signs(n0 + n1);
      std::fill(signs.begin() + n0, signs.end(), true);
      std::vector<uint64_t> with(n0 + n1 + 1);
      uint64_t all = 0;
      do {
        ++with[runs_of(signs)];
        ++all;
      } while (std::next_permutation(signs.begin(), signs.end()));
      uint32_t lower = 0, upper = 0;
      uint64_t tail = 0;
      for (uint32_t runs = 0; runs < with.size(); ++runs) {
        if (n0 != n1 || runs > 1) CHECK(with[runs] == (runs < 2 ? 0 : arrangements(n0, n1, runs)));
        tail += with[runs];
        if (tail * 40 <= all && tail != 0) lower = runs;
      }
      tail = 0;
      for (uint32_t runs = static_cast<uint32_t>(with.size()) - 1; runs > 0; --runs) {
        tail += with[runs];
        if (tail * 40 <= all && tail != 0) upper = runs;
      }
      INFO(n0 << " and " << n1);
      CHECK(kCritical.of[n0][n1].lower == lower);
      CHECK(kCritical.of[n0][n1].upper == upper);
      CHECK(kCritical.of[n1][n0].lower == lower);
      CHECK(kCritical.of[n1][n0].upper == upper);
    }
  }
  const uint32_t lower[] = {2, 2, 3, 4, 4, 4, 4}, upper[] = {0, 0, 0, 0, 13, 14, 14};
  for (uint32_t fewer = 2; fewer <= 8; ++fewer) {
    CHECK(kCritical.of[fewer][16 - fewer].lower == lower[fewer - 2]);
    CHECK(kCritical.of[fewer][16 - fewer].upper == upper[fewer - 2]);
  }
}

TEST_CASE("runs test: the slides' example is not random") {
  const double samples[] = {.2, .1, .1, .2, .1, .1, 0, 0, .8, .9, 1, .8, .9, .1, .9, .9};
  double mean = 0;
  for (double value : samples) mean += value / 16;
  CHECK(mean == Approx(.44375));
  std::vector<bool> signs;
  for (double value : samples) signs.push_back(value > mean);
  const auto above = static_cast<uint32_t>(std::count(signs.begin(), signs.end(), true));
  CHECK(above == 7);
  CHECK(runs_of(signs) == 4);
  CHECK(!may_be_random(above, 16 - above, 4));
  CHECK(may_be_random(above, 16 - above, 5));
  CHECK(may_be_random(above, 16 - above, 13));
  CHECK(!may_be_random(above, 16 - above, 14));
  // and so the model doubles its interval and halves what it learned
  Model model = model_of(10);
  feed(model, 10, 16, [&](uint32_t i) { return static_cast<uint32_t>(std::lround(samples[i] * 10)); });
  CHECK(model.interval() == Approx(2 * kInterval));
  CHECK(model.samples() == 8);
  CHECK(!model.random());
}

TEST_CASE("random samples leave the interval alone; periodic and drifting ones double it to the most that is allowed") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random;
    random.start(seed);
    Model steady = model_of(10, seed);
    feed(steady, 10, 4000, [&](uint32_t) { return static_cast<uint32_t>(random.next() % 11); });
    CHECK(steady.interval() <= 8 * kInterval);  // a batch in twenty fails by chance: before the first that passes, each
    CHECK(steady.random());
    Model periodic = model_of(10, seed);
    feed(periodic, 10, 1600, [](uint32_t i) { return i % 2 == 0 ? 1 : 9; });
    CHECK(periodic.interval() == Approx(Model::kMostDoubling * kInterval));
    CHECK(!periodic.random());
    CHECK(!periodic.usable());
    Model phases = model_of(10, seed);
    feed(phases, 10, 1600, [](uint32_t i) { return i % 40 < 20 ? 1 : 9; });
    CHECK(phases.interval() > kInterval);
  }
}

TEST_CASE("an interval doubled by a strange beginning comes back") {
  Model model = model_of(10);
  feed(model, 10, 64, [](uint32_t i) { return i % 2 == 0 ? 1 : 9; });
  REQUIRE(model.interval() > 4 * kInterval);
  Random random;
  random.start(3);
  feed(model, 10, 4000, [&](uint32_t) { return static_cast<uint32_t>(random.next() % 11); });
  CHECK(model.interval() <= 2 * kInterval);
}

TEST_CASE("steps are random, I on average, between I/2 and 3I/2, the same for the same seed") {
  Model one = model_of(4, 7), same = model_of(4, 7), other = model_of(4, 8);
  double sum = 0, least = 1, most = 0;
  std::vector<bool> signs;
  bool differs = false;
  for (int i = 0; i < 100000; ++i) {
    const double step = one.next_step();
    REQUIRE(step == same.next_step());
    differs = differs || step != other.next_step();
    sum += step;
    least = std::min(least, step);
    most = std::max(most, step);
    signs.push_back(step > kInterval);
  }
  CHECK(differs);
  CHECK(sum / 100000 == Approx(kInterval).epsilon(.005));
  CHECK(least >= kInterval / 2);
  CHECK(least < .51 * kInterval);
  CHECK(most < 1.5 * kInterval);
  CHECK(most > 1.49 * kInterval);
  CHECK(std::abs(runs_of(signs) - 50000.) < 5 * std::sqrt(25000.));
}

TEST_CASE("levels are taken as the samples grow: 27, then 10, then 5, then 4 in a row") {
  Random random;
  random.start(11);
  Model model = model_of(1000);
  std::vector<uint32_t> needed;
  for (int i = 0; i < 400; ++i) {
    model.observe(100 + static_cast<uint32_t>(random.next() % 801), 1000);
    if (model.usable() && (needed.empty() || needed.back() != model.needed())) needed.push_back(model.needed());
  }
  REQUIRE(!needed.empty());
  CHECK(needed.front() >= 5);
  CHECK(needed.back() == 4);
  CHECK(model.q() <= .13);
  CHECK(model.threshold() < 200);
  CHECK(model.threshold() >= 100);
  // A hang now: the fourth low sample in a row, and no sooner.
  Observation seen = model.observe(900, 1000);
  CHECK(seen.judgement == Judgement::kHealthy);
  for (uint32_t k = 1; k <= 4; ++k) {
    seen = model.observe(1, 1000);
    CHECK(seen.judgement == (k < 4 ? Judgement::kSuspicious : Judgement::kCandidate));
    CHECK(seen.suspicions == k);
    CHECK(seen.probability == Approx(std::pow(model.q(), k)));
  }
  const double learned = model.samples();
  CHECK(feed(model, 1000, 10000, [](uint32_t) { return 1; }).judgement == Judgement::kCandidate);
  CHECK(model.samples() == learned);  // a hang does not become usual by lasting
  model.rejected();
  CHECK(model.observe(1, 1000).suspicions == 1);
  CHECK(model.observe(900, 1000).judgement == Judgement::kHealthy);
}

TEST_CASE("a healthy program of independent samples is a candidate as seldom as alpha says") {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    Random random;
    random.start(seed);
    Model model = model_of(64, seed);
    uint32_t candidates = 0;
    constexpr uint32_t kSamples = 200000;
    for (uint32_t i = 0; i < kSamples; ++i)
      if (model.observe(static_cast<uint32_t>(random.next() % 65), 64).judgement == Judgement::kCandidate) {
        ++candidates;
        model.rejected();
      }
    CHECK(candidates <= kSamples * kAlpha);
  }
}

TEST_CASE(
    "nearly always in MPI: 66 in a row where p_hat is 0.9, and no judgement where it is more than a test can bear") {
  Random random;
  random.start(5);
  Model often = model_of(256);
  feed(often, 256, 3000,
       [&](uint32_t) { return random.uniform() < .9 ? static_cast<uint32_t>(random.next() % 2) : 200u; });
  REQUIRE(often.usable());
  CHECK(often.threshold() == 1);  // never 0: in a hang one rank at least is out
  CHECK(often.p_hat() == Approx(.9).margin(.03));
  CHECK(often.needed() == consecutive(often.q(), kAlpha, 150));
  CHECK(often.needed() > 45);
  Model always = model_of(256);
  const Observation last = feed(always, 256, 3000, [](uint32_t) { return 0; });
  CHECK(!always.usable());
  CHECK(last.judgement == Judgement::kCannotJudge);
}

TEST_CASE("nearly always out: less than was hardly ever seen is suspicious") {
  Model model = model_of(64);
  feed(model, 64, 200, [](uint32_t) { return 64; });
  REQUIRE(model.usable());
  CHECK(model.threshold() == 63);
  CHECK(model.interval() == kInterval);  // constant batches say nothing about randomness
  CHECK(feed(model, 64, 4, [](uint32_t) { return 1; }).judgement == Judgement::kCandidate);
}

TEST_CASE("sizes from 1 to 100,000 ranks, and ranks that end") {
  for (uint32_t ranks : {1u, 2u, 4u, 511u, 512u, 513u, 1023u, 1024u, 1025u, 100000u, 4000000000u}) {
    Random random;
    random.start(ranks);
    Model model = model_of(ranks);
    uint32_t total = ranks;
    for (int i = 0; i < 3000; ++i) {
      model.observe(static_cast<uint32_t>(random.next() % (static_cast<uint64_t>(total) + 1)), total);
      if (i > 2000 && total > 1 && i % 10 == 0) total -= total / 10 + (total < 10);
    }
    INFO(ranks);
    CHECK(model.samples() > 0);
    if (model.usable()) CHECK(model.threshold() < ranks);
    CHECK(model.observe(0, 0).judgement == Judgement::kLearning);  // all have ended: no sample
    model.observe(7, 3);  // more out than there are: a torn look
  }
  Model none;
  none.start(0, kInterval, kAlpha, 1);
  none.observe(0, 1);
}

TEST_CASE("the threshold names the number of ranks whose samples are suspicious") {
  for (uint32_t ranks : {100u, 1023u, 1024u, 5000u, 100000u}) {
    Random random;
    random.start(ranks);
    Model model = model_of(ranks);
    feed(model, ranks, 2000, [&](uint32_t) { return ranks / 2 + static_cast<uint32_t>(random.next() % (ranks / 2)); });
    REQUIRE(model.usable());
    const uint32_t threshold = model.threshold();
    INFO(ranks << " " << threshold);
    model.rejected();
    CHECK(model.observe(threshold, ranks).judgement == Judgement::kSuspicious);
    CHECK(model.observe(threshold + 1, ranks).judgement == Judgement::kHealthy);
  }
}

TEST_CASE("what was learned is bounded, so that a program that changed is learned anew") {
  Random random;
  random.start(1);
  Model model = model_of(100);
  feed(model, 100, 20000, [&](uint32_t) { return 80 + static_cast<uint32_t>(random.next() % 21); });
  CHECK(model.samples() <= Model::kMemory);
  REQUIRE(model.threshold() >= 80);
  uint32_t candidates = 0;
  for (int i = 0; i < 20000; ++i)
    if (model.observe(20 + static_cast<uint32_t>(random.next() % 21), 100).judgement == Judgement::kCandidate) {
      ++candidates;
      model.rejected();
    }
  CHECK(candidates > 0);
  CHECK(model.threshold() < 40);
}

TEST_CASE("logarithm, exponential and quantile, which the library has no libm for") {
  for (double x = 1e-12; x < 1e12; x *= 1.37) {
    CHECK(ln(x) == Approx(std::log(x)).epsilon(1e-7).margin(1e-7));
    CHECK(square_root(x) == Approx(std::sqrt(x)).epsilon(1e-6));
  }
  for (double x = -600; x < 600; x += 3.7) CHECK(exponential(x) == Approx(std::exp(x)).epsilon(1e-7));
  CHECK(exponential(-1000) == 0);
  CHECK(std::isfinite(exponential(1e9)));
  for (double p : {.5, .3, .1, .01, 1e-4, 1e-9}) {
    const double z = normal_quantile_above(p);
    CHECK(.5 * std::erfc(z / std::sqrt(2.)) == Approx(p).epsilon(.005));
  }
}
