// SPDX-License-Identifier: Apache-2.0
//
// The programs that the simulator of hang detection knows.
#include "tests/bench/hang_trace.h"

namespace sim {

namespace {

constexpr Rare kNone{0, 1, 1, 1};

}  // namespace

const Shape kShapes[] = {
    // name, compute, communicate, calls, noise, spread, io, serial, inline_serial, changes/h, in_total
    {"fine iterations", .005, .002, 4, Noise::kUniform, .1, kNone, kNone, kNone, 0, true},
    {"balanced", .2, .1, 10, Noise::kUniform, .2, kNone, kNone, kNone, 0, true},
    {"coarse, imbalanced", 3, .3, 10, Noise::kUniform, .4, kNone, kNone, kNone, 0, true},
    {"long pure computation", 60, 2, 50, Noise::kUniform, .1, kNone, kNone, kNone, 0, true},
    {"nearly always in MPI", .002, .2, 40, Noise::kUniform, .5, kNone, kNone, kNone, 0, true},
    {"nearly always out", 1, .005, 2, Noise::kUniform, .02, kNone, kNone, kNone, 0, true},
    {"rare I/O", .2, .1, 10, Noise::kUniform, .2, {6, 5, 1, 3600}, kNone, kNone, 0, true},
    {"rare serial phases", .2, .1, 10, Noise::kUniform, .2, kNone, {2, 10, .8, 3600}, kNone, 0, true},
    {"serial work inside iterations, up to 10 s",
     .2,
     .1,
     10,
     Noise::kUniform,
     .2,
     kNone,
     kNone,
     {4, 2, 1, 10},
     0,
     true},
    {"hiccups of a loaded machine", .05, .02, 10, Noise::kUniform, .3, kNone, kNone, {600, .6, .5, 10}, 0, true},
    {"phase changes", .1, .05, 10, Noise::kUniform, .3, {1, 5, 1, 3600}, {.5, 10, .8, 3600}, kNone, 4, true},
    {"log-normal imbalance", .3, .1, 10, Noise::kLogNormal, .5, kNone, kNone, kNone, 0, true},
    {"heavy-tailed imbalance", .1, .05, 10, Noise::kPareto, 3, kNone, kNone, kNone, 0, true},
    {"serial work inside iterations, unbounded",
     .2,
     .1,
     10,
     Noise::kUniform,
     .2,
     kNone,
     kNone,
     {4, 2, 1, 3600},
     0,
     false},
};
const uint32_t kShapeCount = sizeof(kShapes) / sizeof(kShapes[0]);

}  // namespace sim
