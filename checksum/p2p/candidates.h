// SPDX-License-Identifier: Apache-2.0
//
// Receives from MPI_ANY_SOURCE for which two messages could have come: a property of the run, counted for the report.
// What is counted and why it is so: docs/CHECKSUM.md, "Receives with more than one candidate". Below
// MPI_THREAD_MULTIPLE, on the program's thread; nothing is sent, allocated or asked of MPI.
#pragma once

#include <cstdint>

#include "shim/model/event.h"

namespace resil {
class JsonWriter;
}

namespace resil::p2p {

/// A receive from MPI_ANY_SOURCE as it ended. Times are numbers of the thread's records of calls.
struct WildReceive {
  uint64_t comm;
  int32_t tag_wanted;  ///< or ring::kAnyTag
  int32_t source, tag;  ///< of the message
  uint64_t posted;  ///< 0: while another one was pending on the communicator that does not take the very same messages
};

/// The rule alone.
class Candidates {
 public:
  /// `told`: the last call by which this rank may have told others anything.
  void received(const WildReceive& receive, uint64_t told);
  uint64_t followed() const { return followed_; }
  uint64_t several() const { return several_; }

 private:
  /// Receives posted since this rank last told others anything, that one message only is known for.
  struct Alike {
    uint64_t comm, last_posted, count;
    int32_t tag_wanted, source;
  };
  static constexpr unsigned kMost = 8;
  Alike alike_[kMost] = {};
  unsigned used_ = 0;
  uint64_t told_ = 0, followed_ = 0, several_ = 0;
};

/// A receive from MPI_ANY_SOURCE is complete, as this call tells the program.
void wild_received(const Event& e, const WildReceive& receive);
void wild_report(JsonWriter& json);

}  // namespace resil::p2p
