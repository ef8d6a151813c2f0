// SPDX-License-Identifier: Apache-2.0
//
// Synthetic programs for the simulator of hang detection: what a monitor would see of 4 to 100,000 ranks, at any rising
// sequence of instants. A program alternates between stages (all compute and finish one by one; all communicate; one
// rank works while the others wait). Numbers of ranks are drawn for all ranks at once: the last of N to finish by its
// own distribution, those still out by a binomial one, conditional on the last look; short iterations between two looks
// are skipped together. Times are seconds.
#pragma once

#include <cstdint>

#include "detectors/hang/stats/random.h"
#include "detectors/hang/stats/watch.h"

namespace sim {

enum class Noise : uint8_t { kUniform, kLogNormal, kPareto };

/// Something that happens now and then, at random times.
struct Rare {
  double per_hour, median, sigma, most;  // log-normal length, cut at `most`
};

struct Shape {
  const char* name;
  double compute, communicate;  // of one iteration
  uint32_t calls;  // communicate consists of so many calls
  Noise noise;
  double spread;  // uniform: +- share; log-normal: sigma; Pareto: exponent
  Rare io;  // rank 0 reads or writes, the others wait at a call of its own; the kernel shows it
  Rare serial;  // the same, but rank 0 computes, which shows nowhere
  Rare inline_serial;  // the same, and the others wait at a call of every iteration
  double changes_per_hour;  // of length of iterations and call sites
  bool in_total;  // not: beyond what can be judged, shown apart
};

extern const Shape kShapes[];
extern const uint32_t kShapeCount;

/// Disturbances that all shapes get: one rank stopped, one rank slow, a network that stalls.
struct Weather {
  double stops_per_hour, slow_per_hour, stalls_per_hour;
  bool start;  // a phase of reading input at the start
};

class Trace {
 public:
  Trace(const Shape& shape, uint32_t ranks, const Weather& weather, uint64_t seed);
  /// What is to be seen at `now`, which must not fall.
  resil::hang::stats::Look look(double now);
  /// From the next computation on, `ranks` never return from it. Returns when it begins.
  double hang(uint32_t ranks);

 private:
  enum class Stage : uint8_t { kCompute, kCommunicate, kSerial };
  void next_stage();
  void begin_compute();
  void begin_serial(double length, double hidden, uint32_t site);
  void skip_iterations(double now);
  void schedule();
  double normal();
  double length(const Rare& rare);
  double once(double per_hour) { return per_hour > 0 ? now_ - 3600 / per_hour * ln_uniform() : 1e300; }
  double ln_uniform();
  uint64_t binomial(uint64_t n, double p);
  double survival(double x) const;
  double last_of(uint64_t n, double above);
  void change();

  const Shape& shape_;
  Weather weather_;
  uint64_t ranks_;
  resil::hang::stats::Random random_;
  Stage stage_ = Stage::kCommunicate;
  double now_ = 0, begin_ = 0, end_ = 0;
  double scale_ = 1, compute_, communicate_, mean_length_, length_deviation_;
  // computation: ranks out besides the last one, survival at the last look, the special rank
  uint64_t others_ = 0;
  double survival_ = 1, survival_end_ = 0, others_end_ = 0, straggler_end_ = 0;
  double hidden_share_ = 1;  // of the special rank's time, that the kernel does not excuse
  double stop_begin_ = 0, stop_end_ = 0;  // the special rank is stopped
  double slow_until_ = -1, slow_hidden_ = 1, slow_visible_ = 1;
  double next_io_, next_serial_, next_inline_, next_change_, next_stop_, next_slow_, next_stall_;
  double quiet_since_ = 0, last_look_ = 0;
  uint64_t moves_ = 0, last_out_ = 0, hung_ = 0;
  bool io_visible_, start_pending_;
  uint32_t site_ = 0, loop_site_ = 0;
  uint64_t visits_[64] = {};
};

}  // namespace sim
