// SPDX-License-Identifier: Apache-2.0
//
// What RESIL_FAULT asks for: which packets are damaged, and how. Touches nothing but its own values.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/model/calls.h"

namespace resil {
struct Slice;
struct ValueProblem;
}

namespace resil::fault {

enum class Kind : uint8_t { kFlip, kSwap, kZero, kStale, kDuplicate, kTruncate, kTranspose, kModify, kEarly, kCount };
constexpr unsigned kKinds = static_cast<unsigned>(Kind::kCount);
const char* kind_name(Kind kind);  ///< "flip"

/// Numbers that depend on nothing but where they were begun: the same run gives the same faults.
class Draw {
 public:
  Draw() : state_(0) {}
  Draw(uint64_t seed, uint64_t rank, uint64_t spec, uint64_t ordinal);
  uint64_t next();
  uint64_t below(uint64_t end) { return end > 1 ? next() % end : 0; }

 private:
  uint64_t state_;
};

/// One `kind,key=value,...`.
struct Spec {
  Kind kind;
  bool has_call;
  CallId call;  ///< this call or its large-count twin
  int32_t rank, peer;  ///< world ranks; -1: any
  uint64_t min, max;  ///< bytes of the packet
  uint64_t nth;  ///< inject once, at the first possibility from the Nth eligible packet on; 0: by chance
  uint64_t chance;  ///< of 2^64
  uint64_t seed;
  uint64_t delay;  ///< early: microseconds; 0: lands when the data has been looked at
  std::atomic<uint64_t> eligible;  ///< packets so far
  std::atomic<bool> done;  ///< nth has been used up

  /// Is a packet of this call, with that partner and size, one that this spec means?
  bool matches(CallId id, int32_t peer_world, uint64_t bytes) const;
  /// Counts an eligible packet of this rank; true: inject now, with the choices that `draw` makes. `index`: place of
  /// the spec in its list. `ordinal`: number of the packet, from 1.
  bool fires(int32_t my_rank, unsigned index, Draw* draw, uint64_t* ordinal);
  /// What fires() allowed had no effect on this packet (equal words, an equal old packet): the next one may be taken.
  void spare();
};

constexpr unsigned kMaxSpecs = 16;
struct Specs {
  Spec list[kMaxSpecs];
  unsigned count;
};

extern const char kAllowed[];  ///< for messages and documentation

/// "none" and "" are no specs. False: `problem` says which part is wrong.
bool parse(Slice text, Specs* specs, ValueProblem* problem);

}  // namespace resil::fault
