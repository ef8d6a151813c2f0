// SPDX-License-Identifier: Apache-2.0
//
// The judge of computation hangs: what the monitor calls once a step. It joins ParaStack's model of S_out with a record
// of the longest quiet interval (no rank makes progress), and says suspected or verified, and by which limit.
//
//   stats::Watch watch;                                    // zero-initialised; about 10 KiB
//   watch.start(ranks, config_interval, config_alpha, seed);
//   for (;;) {
//     sleep(watch.next_step());
//     Verdict verdict = watch.look({now, out, total, moves, familiar, excused, starved});
//     if (verdict.finding >= Finding::kSuspected) ...  // snapshots of all ranks: who? (snapshot.h)
//   }
//
// Recorded traces (tests/bench/hang_simulator.cpp reads them; lines that begin with # are comments): one look a line,
//
//   time out total moves familiar excused starved
//
// the members of Look in this order, separated by blanks: "%.3f %u %u %llu %llu %.3f %.3f". The last three may be
// missing.
#pragma once

#include <cstdint>

#include "detectors/hang/stats/levels.h"
#include "detectors/hang/stats/model.h"
#include "detectors/hang/stats/quiet.h"

namespace resil::hang::stats {

/// One look at all ranks of the job.
struct Look {
  double now;  // seconds, monotonic; a step back is taken as no time at all
  uint32_t out;  // ranks in the program's own code; those in a loop of fruitless polls are in
  uint32_t total;  // ranks that have not ended
  uint64_t moves;  // sum over all ranks of RankState::moves (snapshot.h); any change is progress, also a smaller one
  /// How often the calls in which the waiting ranks stand (most of them), and the calls that the ranks outside left
  /// last, have returned before: the least of these. A call seen a thousand times that now does not return is another
  /// thing than one never seen. kFamiliarUnknown where nobody counts.
  uint64_t familiar;
  /// Seconds since the last look in which being quiet says nothing, because a rank that is out could not run or was at
  /// work in the kernel: stopped, waiting for a CPU (run delay of schedstat), in uninterruptible sleep, in an MPI-IO
  /// call, or its bytes read and written changed (then the whole step). The most of any such rank. 0 where nobody
  /// looks; what is not waiting for a CPU is needed only once quiet() passes kAskAfter.
  double excused;
  double starved;  // of these, those in which that rank waited for a CPU; see kVerifyCrowded
};

constexpr uint64_t kFamiliarUnknown = ~0ull;

enum class Finding : uint8_t { kLearning /* and healthy so far */, kHealthy, kSuspected, kVerified };

enum class Phase : uint8_t {
  kComputation,  // some ranks are out, the others wait: can be verified
  kCommunication,  // none is out: the wait-for graph proves these; without a proof only a long time verifies
  kMostCompute,  // more than half are out: they compute, nobody is accused
  kUnfamiliar,  // some are out, at calls seen too rarely to know what is usual
};

struct Verdict {
  Finding finding;
  Phase phase;
  Observation observation;  // the model's
  double quiet;  // seconds without progress, less those excused
  double starved;  // seconds without progress in which a rank that is out waited for a CPU
  double suspected_at, verified_at;  // limits of `quiet`, seconds, that hold now; kNever: never
};

class Watch {
 public:
  static constexpr double kAskAfter = 2;  // seconds of quiet, after which all of `excused` is worth finding out
  // All in seconds of quiet. Chosen by the simulator (docs/RESULTS.md).
  static constexpr double kSuspect = 4;  // without the model's help
  static constexpr double kSuspectCandidate = 2.5;  // with it
  static constexpr double kSuspectFactor = 5;  // times the longest quiet interval, without the model's help,
  static constexpr double kSuspectShare = 2. / 3;  // or this share of what verifies, if that is less
  static constexpr double kSuspectCrowded = 5;  // of quiet and of waiting for a CPU together, and 3 x the longest such,
  static constexpr double kSuspectOwn = 1;  // of which quiet, at least, and kCrowdedFactor x the longest
  static constexpr double kVerify = 12;  // a hang in the computation, at familiar calls
  // Where ranks share their cores, one that spins gets to kVerify seconds of its own late. So less suffices, and more
  // of the longest before, when the clock shows a multiple of kVerify in which it ran or waited for a CPU.
  static constexpr double kVerifyCrowded = 15;  // seconds of quiet and of waiting for a CPU together
  static constexpr double kVerifyOwn = 3;  // of these, at least, seconds of quiet
  static constexpr double kCrowdedFactor = 10;  // and times the longest quiet interval
  static constexpr double kVerifyCommunication = 600;  // all are in: only an unproved fault of network or library
  static constexpr double kVerifyUnfamiliar =
      3600;  // first iterations, calls never seen; less at calls seen a few times
  static constexpr double kSuspectUnfamiliar = 60;
  static constexpr double kLongFactor = 10;  // times the longest quiet interval, for the last three
  static constexpr double kLearned = 50;  // seconds to be watched before anything is usual
  static constexpr uint64_t kFamiliar = 8;  // returns of a call that make it familiar

  /// As Model::start.
  void start(uint32_t total_ranks, double interval, double alpha, uint64_t seed);
  /// Seconds until the next look; also how a look that comes much too late is noticed (then the machine stood still).
  double next_step();
  Verdict look(const Look& look);

  double quiet() const { return quiet_.current(); }
  const Quiet& record() const { return quiet_; }
  const Model& model() const { return model_; }

 private:
  bool learned() const { return quiet_.watched() - quiet_.current() - quiet_.starved() >= kLearned; }
  Phase phase(const Look& look) const;
  double suspect_at(Phase phase) const;
  double verify_at(Phase phase, uint64_t familiar) const;
  double verify_computation() const;

  Model model_;
  Quiet quiet_;
  double step_, last_;
  bool candidate_;  // the model's, since the last progress
  bool looked_;
};

}  // namespace resil::hang::stats
