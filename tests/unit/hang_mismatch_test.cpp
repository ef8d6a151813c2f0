// SPDX-License-Identifier: Apache-2.0
//
// Mismatched collectives: no alarm ever in clean jobs, every injected fault found and the odd ranks named; readings
// while a writer runs at full speed; frames of any kind. Environment MISMATCH_RUNS=N, MISMATCH_SEED=S: a longer
// campaign.

#include <atomic>
#include <thread>

#include "check.h"
#include "detectors/hang/mismatch/frame.h"
#include "detectors/hang/mismatch/read.h"
#include "hang_mismatch_world.h"

namespace mismatch_test {

namespace {

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = getenv(name);
  return text != nullptr ? strtoull(text, nullptr, 10) : otherwise;
}

Plan random_plan(std::mt19937_64& random) {
  Plan plan = {};
  plan.ranks = 2 + static_cast<int>(random() % (random() % 8 == 0 ? 127 : 15));
  plan.nodes = 1 + static_cast<int>(random() % static_cast<unsigned>(std::min(plan.ranks, 64)));
  plan.comms = 1 + static_cast<int>(random() % 6);
  plan.calls = 30 * plan.comms + static_cast<int>(random() % (random() % 4 == 0 ? 20000 : 600));
  plan.lag = static_cast<int>(random() % (random() % 2 == 0 ? 4 : random() % 2 == 0 ? 60 : 5000));
  plan.looks = 1 + static_cast<int>(random() % 12);
  plan.room = random() % 4 == 0 ? 8192 : kMismatchFrame;
  plan.ends = random() % 4 != 0;
  return plan;
}

std::string lines_of(const Outcome& outcome) {
  std::string text;
  for (const Verdict& verdict : outcome.verdicts)
    text += std::string(words_of(verdict).message) + "\n" + words_of(verdict).evidence;
  return text;
}

/// The number behind `key` in the evidence.
uint64_t evidence(const Verdict& verdict, const char* key) {
  const Explanation words = words_of(verdict);
  const char* at = strstr(words.evidence, key);
  return at != nullptr ? strtoull(at + strlen(key), nullptr, 10) : 0;
}

constexpr bool kSlow =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

}  // namespace

TEST_CASE("clean jobs raise nothing") {
  const uint64_t runs = number("MISMATCH_RUNS", kSlow ? 10 : 150), seed = number("MISMATCH_SEED", 1);
  for (uint64_t run = 0; run < runs; ++run) {
    std::mt19937_64 random(seed * 1000003 + run);
    const Plan plan = random_plan(random);
    const Outcome outcome = play(plan, seed * 7919 + run);
    CAPTURE(run, plan.ranks, plan.nodes, plan.comms, plan.calls, plan.lag, plan.looks);
    INFO(lines_of(outcome));
    REQUIRE(outcome.verdicts.empty());
    REQUIRE(outcome.broken == 0);
  }
}

TEST_CASE("every injected fault is found and named") {
  const uint64_t runs = number("MISMATCH_RUNS", kSlow ? 10 : 150), seed = number("MISMATCH_SEED", 1);
  uint64_t exact = 0, decided = 0;
  for (uint64_t run = 0; run < runs; ++run) {
    std::mt19937_64 random(seed * 2000003 + run);
    Plan plan = random_plan(random);
    plan.fault = static_cast<Fault>(1 + run % 7);
    plan.stops = random() % 2 == 0 && plan.fault != Fault::kSkip && plan.fault != Fault::kExtra;
    plan.odd = random() % 3 == 0 ? 1 + static_cast<int>(random() % 4) : 1;
    const Outcome outcome = play(plan, seed * 104729 + run);
    CAPTURE(run, static_cast<int>(plan.fault), plan.ranks, plan.nodes, plan.comms, plan.calls, plan.lag, plan.looks,
            plan.stops, outcome.call, outcome.odd, outcome.members, plan.room);
    INFO(lines_of(outcome));
    REQUIRE(outcome.broken == 0);
    REQUIRE(!outcome.verdicts.empty());
    const bool majority = 2 * outcome.odd.size() < outcome.members.size();
    for (const Verdict& verdict : outcome.verdicts) {
      CHECK(verdict.comm == outcome.comm_id);
      CHECK(verdict.type == HangClass::kCollectiveMismatch);
      if (plan.fault == Fault::kBytes) CHECK(verdict.confidence == Confidence::kSuspected);
      CHECK(evidence(verdict, "agreement: calls 1-") < outcome.call);
      CHECK(evidence(verdict, "difference: in call ") >= outcome.call);
      if (majority) {
        // A rank that never came to the call cannot have shown that it errs, but who is named has erred.
        for (uint32_t i = 0; i < verdict.culprit_count; ++i)
          CHECK(std::find(outcome.odd.begin(), outcome.odd.end(), verdict.culprits[i]) != outcome.odd.end());
      }
      exact += evidence(verdict, "difference: in call ") == outcome.call &&
               evidence(verdict, "agreement: calls 1-") + 1 == outcome.call;
    }
    const Verdict& last = outcome.verdicts.back();
    if (plan.fault != Fault::kBytes) CHECK(last.confidence == Confidence::kProved);
    if (majority && !plan.stops) {
      CHECK(last.culprit_count == outcome.odd.size());
      ++decided;
    } else if (2 * outcome.odd.size() == outcome.members.size() && !plan.stops) {
      CHECK(last.culprit_count == 0);
    }
  }
  WARN(runs << " faults found, " << decided << " with all odd ranks named, " << exact << " to the very call");
}

TEST_CASE("a rank that has come to its end has left out what the others call after it") {
  std::vector<std::unique_ptr<Section, FreeSection>> sections;
  std::vector<ring::Header> headers(4);
  std::vector<Watched> watched(4);
  std::mt19937_64 random(5);
  std::vector<uint64_t> calls;
  for (int i = 0; i < 40; ++i) calls.push_back(random_signature(random, 4));
  for (int rank = 0; rank < 4; ++rank) {
    sections.emplace_back(static_cast<Section*>(calloc(1, sizeof(Section))));
    headers[rank].world_size = 4;
    watched[rank] = {};
    watched[rank].header = &headers[rank];
    watched[rank].section = sections[rank].get();
    watched[rank].rank = rank;
    history_begin(sections[rank]->histories[2], 99, 4, 0);
    for (uint64_t n = 1; n <= (rank == 2 ? 38u : 39u); ++n) history_add(sections[rank]->histories[2], n, calls[n]);
  }
  Owned mismatch(mismatch_create(4));
  std::vector<char> frame(kMismatchFrame);
  Verdict verdict;
  auto round = [&] {
    const uint32_t bytes = mismatch_collect(*mismatch, watched.data(), 4, frame.data(), kMismatchFrame);
    return mismatch_judge(*mismatch, frame.data(), bytes, &verdict);
  };
  CHECK(!round());  // it may still come
  headers[2].phase = static_cast<uint32_t>(ring::Phase::kFinalizing);
  sections[2]->irregular = kSelfAttribute;
  CHECK(!round());  // and may even then
  headers[2].phase = static_cast<uint32_t>(ring::Phase::kFinished);
  REQUIRE(round());
  INFO(words_of(verdict).message);
  CHECK(verdict.confidence == Confidence::kSuspected);
  CHECK(verdict.culprit_count == 1);
  CHECK(verdict.culprits[0] == 2);
  CHECK(verdict.sequence == 39);
  CHECK(strstr(words_of(verdict).message, "MPI_Finalize") != nullptr);
  CHECK(!round());  // said once
}

TEST_CASE("when the job is about to be ended, what differs is said though ranks have not come: who, where it is sure") {
  struct Case {
    uint64_t calls[5];  // second call of each rank; 0: not yet
    uint32_t culprits;
    const char* words;
  };
  for (const Case& c :
       {Case{{6, 5, 0, 0, 0}, 0, "have no majority"}, Case{{6, 5, 6, 0, 0}, 0, "2 ranks have not made that call"},
        Case{{6, 5, 6, 6, 0}, 1, "rank 1 has another"}}) {
    std::vector<std::unique_ptr<Section, FreeSection>> sections;
    std::vector<ring::Header> headers(5);
    std::vector<Watched> watched(5);
    for (int rank = 0; rank < 5; ++rank) {
      sections.emplace_back(static_cast<Section*>(calloc(1, sizeof(Section))));
      headers[rank].world_size = 5;
      watched[rank] = {};
      watched[rank].header = &headers[rank];
      watched[rank].section = sections[rank].get();
      watched[rank].rank = rank;
      history_begin(sections[rank]->histories[2], 99, 5, 0);
      history_add(sections[rank]->histories[2], 1, 7);
      if (c.calls[rank] != 0) history_add(sections[rank]->histories[2], 2, c.calls[rank]);
    }
    Owned mismatch(mismatch_create(5));
    std::vector<char> frame(kMismatchFrame);
    Verdict verdict;
    auto round = [&] {
      const uint32_t bytes = mismatch_collect(*mismatch, watched.data(), 5, frame.data(), kMismatchFrame);
      return mismatch_judge(*mismatch, frame.data(), bytes, &verdict);
    };
    CHECK(!round());  // they may still come
    mismatch_close(*mismatch);
    REQUIRE(round());
    INFO(words_of(verdict).message);
    CHECK(verdict.confidence == Confidence::kProved);
    CHECK(verdict.sequence == 2);
    CHECK(verdict.culprit_count == c.culprits);
    CHECK(strstr(words_of(verdict).message, c.words) != nullptr);
    CHECK(!round());  // said once
  }
}

TEST_CASE("basic types: different ones are told once, whichever nodes the ranks are on") {
  constexpr uint32_t kInts = 0x104, kFloats = 0x304, kAny = 0;
  struct Case {
    uint32_t types[3];
    int32_t one, other;  ///< -1: they go together
  };
  for (const Case& c :
       {Case{{kInts, kFloats, kInts}, 0, 1}, Case{{kInts, kAny, kFloats}, 0, 2}, Case{{kAny, kFloats, kInts}, 1, 2},
        Case{{kInts, kAny, kInts}, -1, -1}, Case{{kAny, kAny, kFloats}, -1, -1}, Case{{kInts, kInts, kInts}, -1, -1}})
    for (const bool apart : {false, true}) {
      std::vector<std::unique_ptr<Section, FreeSection>> sections;
      std::vector<ring::Header> headers(3);
      std::vector<Watched> watched(3);
      const uint64_t bcast = signature_pack({static_cast<uint16_t>(CallId::kMPI_Bcast), OpKind::kNone, 1, 16});
      for (int rank = 0; rank < 3; ++rank) {
        sections.emplace_back(static_cast<Section*>(calloc(1, sizeof(Section))));
        headers[rank].world_size = 3;
        watched[rank] = {};
        watched[rank].header = &headers[rank];
        watched[rank].section = sections[rank].get();
        watched[rank].rank = rank;
        CollectiveHistory& history = sections[rank]->histories[2];
        history_begin(history, 99, 3, 0);
        for (uint64_t n = 1; n <= 12; ++n) history_add(history, n, bcast, n == 5 ? c.types[rank] : kInts);
      }
      std::vector<Owned> helpers;
      for (int i = 0; i < 3; ++i) helpers.emplace_back(mismatch_create(3));
      std::vector<char> frame(kMismatchFrame), other(kMismatchFrame);
      Verdict verdict;
      int told = 0;
      for (int round = 0; round < 10; ++round) {
        uint32_t bytes = mismatch_collect(*helpers[0], watched.data(), apart ? 1 : 3, frame.data(), kMismatchFrame);
        for (int node = 1; apart && node < 3; ++node) {
          const uint32_t more = mismatch_collect(*helpers[node], &watched[node], 1, other.data(), kMismatchFrame);
          if (more != 0) REQUIRE(mismatch_merge(*helpers[0], frame.data(), &bytes, kMismatchFrame, other.data(), more));
        }
        for (; mismatch_judge(*helpers[0], frame.data(), bytes, &verdict); bytes = 0) {
          ++told;
          const Explanation words = words_of(verdict);
          INFO(words.message);
          CHECK(verdict.confidence == Confidence::kSuspected);
          CHECK(verdict.sequence == 5);
          REQUIRE(verdict.victim_count == 2);
          CHECK(verdict.culprit_count == 0);
          CHECK(verdict.victims[0] == c.one);
          CHECK(verdict.victims[1] == c.other);
          CHECK(strstr(words.message, "4-byte signed integers") != nullptr);
          CHECK(strstr(words.message, "4-byte floating-point numbers") != nullptr);
        }
      }
      CHECK(told == (c.one >= 0 ? 1 : 0));
    }
}

TEST_CASE("what is marked is left out") {
  for (const uint32_t mark : {kHistoryFailed, kHistoryGap, kHistoryOneSided, kHistoryLate}) {
    std::vector<std::unique_ptr<Section, FreeSection>> sections;
    std::vector<ring::Header> headers(3);
    std::vector<Watched> watched(3);
    for (int rank = 0; rank < 3; ++rank) {
      sections.emplace_back(static_cast<Section*>(calloc(1, sizeof(Section))));
      headers[rank].world_size = 3;
      watched[rank] = {};
      watched[rank].header = &headers[rank];
      watched[rank].section = sections[rank].get();
      watched[rank].rank = rank;
      history_begin(sections[rank]->histories[2], 99, 3, 0);
      history_add(sections[rank]->histories[2], 1, rank == 1 ? 5 : 6);
      history_mark(sections[rank]->histories[2], rank == 1 ? mark : 0);
    }
    Owned mismatch(mismatch_create(3));
    std::vector<char> frame(kMismatchFrame);
    Verdict verdict;
    for (int round = 0; round < 40; ++round) {
      const uint32_t bytes = mismatch_collect(*mismatch, watched.data(), 3, frame.data(), kMismatchFrame);
      CHECK(!mismatch_judge(*mismatch, frame.data(), bytes, &verdict));
      CHECK(mismatch_coverage(*mismatch).marked == 1);
    }
  }
}

TEST_CASE("a writer at full speed never shows a wrong point", "[threads]") {
  constexpr uint64_t kCalls = 1 << 18;
  std::vector<uint64_t> rolling[2], signatures[2];
  std::mt19937_64 random(3);
  for (int life = 0; life < 2; ++life) {
    rolling[life].push_back(0);
    signatures[life].push_back(0);
    for (uint64_t n = 1; n <= kCalls; ++n) {
      signatures[life].push_back(random() | 1);
      rolling[life].push_back(roll(rolling[life].back(), signatures[life].back()));
    }
  }
  std::unique_ptr<CollectiveHistory> history(new CollectiveHistory());
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t life = 0; !stop.load(std::memory_order_relaxed); ++life) {
      history_begin(*history, 100 + life % 2, 4, 0);
      for (uint64_t n = 1; n <= kCalls >> (life % 3 * 4) && !stop.load(std::memory_order_relaxed); ++n)
        history_add(*history, n, signatures[life % 2][n]);
    }
  });
  uint64_t read = 0, moved = 0, bad = 0, broken = 0;
  // Until the writer has often gone on in the middle of a reading; two threads on one core rarely show that.
  constexpr uint64_t kWanted = kSlow ? 200 : 2000;
  while ((read < kWanted || moved < kWanted) && read < 250 * kWanted) {
    HistoryRead out;
    const ReadResult result = read_history(*history, &out);
    broken += result == ReadResult::kBroken;
    if (result != ReadResult::kRead) {
      std::this_thread::yield();  // the writer has not begun, or was stopped between two lives
      continue;
    }
    ++read;
    moved += __atomic_load_n(&history->sequence, __ATOMIC_RELAXED) > out.sequence + 1;
    uint64_t before = 0;
    for (uint32_t i = 0; i < out.count; ++i) {
      const PathPoint& point = out.points[i];
      const int life = static_cast<int>(out.comm - 100);
      bad += life < 0 || life > 1 || point.n <= before || point.n > kCalls || rolling[life][point.n] != point.rolling ||
             (point.signature != 0 && signatures[life][point.n] != point.signature);
      before = point.n;
    }
  }
  stop = true;
  writer.join();
  CHECK(bad == 0);
  CHECK(broken == 0);
  CHECK(read >= kWanted);
  if (moved < kWanted) WARN("the writer went on during " << moved << " readings only");
}

TEST_CASE("coverage, for a thread that asks while another one collects, is that of a whole round", "[threads]") {
  std::unique_ptr<Section, FreeSection> section(static_cast<Section*>(calloc(1, sizeof(Section))));
  ring::Header header = {};
  header.world_size = 4;
  Watched watched = {};
  watched.header = &header;
  watched.section = section.get();
  for (uint32_t i = 2; i < 12; ++i) {
    history_begin(section->histories[i], 70 + i, 4, i % 2 == 0 ? uint32_t{kHistoryGap} : 0);
    history_add(section->histories[i], 1, 5);
  }
  Owned mismatch(mismatch_create(4));
  std::vector<char> frame(kMismatchFrame);
  mismatch_collect(*mismatch, &watched, 1, frame.data(), kMismatchFrame);
  std::atomic<bool> done = false;
  std::thread helper([&] {
    for (int round = 0; round < (kSlow ? 2000 : 20000); ++round)
      mismatch_collect(*mismatch, &watched, 1, frame.data(), kMismatchFrame);
    done = true;
  });
  uint64_t asked = 0, bad = 0;
  for (; !done.load(); ++asked) {
    const MismatchCoverage told = mismatch_coverage(*mismatch);
    bad += told.marked != 5 || told.communicators != 5;
  }
  helper.join();
  CHECK(bad == 0);
  CHECK(asked > 0);
}

TEST_CASE("a resting history is read back to the last sixteen calls, and all check points") {
  for (uint64_t calls : {1u, 2u, 15u, 16u, 17u, 31u, 100u, 4096u, 70001u}) {
    std::unique_ptr<CollectiveHistory> history(new CollectiveHistory());
    std::vector<uint64_t> rolling = {0};
    std::mt19937_64 random(calls);
    history_begin(*history, 7, 4, 0);
    for (uint64_t n = 1; n <= calls; ++n) {
      const uint64_t signature = random() | 1;
      rolling.push_back(roll(rolling.back(), signature));
      history_add(*history, n, signature);
    }
    HistoryRead out;
    REQUIRE(read_history(*history, &out) == ReadResult::kRead);
    REQUIRE(out.points[out.count - 1].n == calls);
    std::vector<uint64_t> seen;
    for (uint32_t i = 0; i < out.count; ++i) {
      REQUIRE(out.points[i].rolling == rolling[out.points[i].n]);
      seen.push_back(out.points[i].n);
    }
    for (uint64_t n = calls > 15 ? calls - 15 : 1; n <= calls; ++n)
      CHECK(std::find(seen.begin(), seen.end(), n) != seen.end());
    for (uint32_t level = kLowestLevel; level < kLevels && (uint64_t{1} << level) <= calls; ++level)
      CHECK(std::find(seen.begin(), seen.end(), calls >> level << level) != seen.end());
    // A memory fault in it is noticed, not compared.
    if (calls >> kLowestLevel != 0) ring::point_of(*history, kLowestLevel, calls).rolling ^= 4;
    else history->early[0] ^= 4;
    CHECK(read_history(*history, &out) == ReadResult::kBroken);
  }
}

TEST_CASE("frames of any kind are refused or harmless") {
  std::mt19937_64 random(11);
  Owned mismatch(mismatch_create(16));
  World world;
  std::unique_ptr<Section, FreeSection> section(static_cast<Section*>(calloc(1, sizeof(Section))));
  ring::Header header = {};
  header.world_size = 16;
  Watched watched = {};
  watched.header = &header;
  watched.section = section.get();
  for (int c = 0; c < 5; ++c) {
    history_begin(section->histories[c + 2], 77 + static_cast<uint64_t>(c), 16, 0);
    for (uint64_t n = 1; n < 300; ++n) history_add(section->histories[c + 2], n, random() | 1);
  }
  std::vector<char> good(kMismatchFrame);
  good.resize(mismatch_collect(*mismatch, &watched, 1, good.data(), kMismatchFrame));
  REQUIRE(good.size() > 1000);
  std::vector<char> into(kMismatchFrame);
  Verdict verdict;
  for (int i = 0; i < (kSlow ? 3000 : 20000); ++i) {
    std::vector<char> frame = good;
    for (uint64_t k = random() % 4 + 1; k > 0; --k) frame[random() % frame.size()] = static_cast<char>(random());
    if (random() % 4 == 0) frame.resize(random() % frame.size());
    if (random() % 8 == 0) frame.insert(frame.begin(), 'x');
    uint32_t bytes = 0;
    mismatch_merge(*mismatch, into.data(), &bytes, kMismatchFrame, good.data(), static_cast<uint32_t>(good.size()));
    mismatch_merge(*mismatch, into.data(), &bytes, kMismatchFrame, frame.data(), static_cast<uint32_t>(frame.size()));
    REQUIRE(bytes <= kMismatchFrame);
    mismatch_judge(*mismatch, into.data(), bytes, &verdict);
  }
}

}  // namespace mismatch_test
