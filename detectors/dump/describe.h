// SPDX-License-Identifier: Apache-2.0
//
// Ring entries as sentences. The ring may be half written or damaged: everything is copied, clamped and bounded.
// Async-signal-safe. May touch: the ring, read only.
#pragma once

#include <cstdint>

#include "detectors/dump/record_copy.h"
#include "shim/base/safe_text.h"
#include "shim/model/describe.h"
#include "shim/ring/ring_format.h"
#include "shim/runtime/stacks/symbols.h"

namespace resil::dump {

using namespace stacks;

/// When the dump is made, and how ticks become seconds.
struct Moment {
  uint64_t ticks;
  uint64_t realtime_ns;
  double ticks_per_second;  ///< 0: unknown
};

/// Reads clocks; takes the tick rate from the ring, or from the time since it was made.
Moment moment_now();

/// Seconds from `ticks` until the moment; NaN when the rate is unknown.
double age(const Moment& moment, uint64_t ticks);

/// Is it an MPI call (and not a step, norm, checksum or count of the program)?
bool is_call(const ring::Record& record);

/// The process's own, as shim/model/describe.h wants them.
Communicators own_communicators();

/// One line about a record of any kind, with age and call site, without newline.
void put_record(SafeText& text, Symbols& symbols, const Moment& moment, const ring::Record& record);

/// "receive by MPI_Irecv from rank 2, tag 7, …, posted 3.2 s ago at …"
void put_request(SafeText& text, Symbols& symbols, const Moment& moment, const ring::Request& request);

}  // namespace resil::dump
