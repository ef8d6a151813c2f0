// SPDX-License-Identifier: Apache-2.0
//
// Sentences about calls, records and requests. May touch: the ring, read only.
#include "detectors/dump/describe.h"

#include <time.h>

#include <cmath>
#include <cstring>

#include "shim/base/clock.h"
#include "shim/call/runtime.h"

namespace resil::dump {
namespace {

// No processor's counter runs slower or faster; anything else in the header is damage.
constexpr double kSlowest = 1e6;
constexpr double kFastest = 1e11;

void put_name(SafeText& text, uint32_t index) {
  if (index == 0 || index >= runtime.name_count || runtime.names == nullptr) return;
  text.str(" \"").safe(runtime.names[index].name, sizeof(ring::Name::name)).chr('"');
}

double duration_seconds(const Moment& moment, const ring::Record& record) {
  return moment.ticks_per_second > 0 ? static_cast<double>(record.duration) / moment.ticks_per_second : -1;
}

void put_user_record(SafeText& text, const ring::Record& record) {
  switch (static_cast<ring::RecordState>(record.state)) {
    case ring::RecordState::kStep:
      // A hop of a reduction by messages has a partner; the program's own steps have none.
      text.str(record.peer != ring::kNoPeer ? "hop" : "resil_step");
      put_name(text, record.aux < runtime.name_count ? static_cast<uint32_t>(record.aux) : 0);
      if (record.peer != ring::kNoPeer) text.str(" with rank ").u64(static_cast<uint64_t>(record.peer));
      break;
    case ring::RecordState::kNorm:
      // The exact bits: printing a double correctly needs more than a handler should carry.
      text.str("resil_norm");
      put_name(text, record.comm);
      text.str(" bits ").hex(record.aux);
      break;
    case ring::RecordState::kChecksum:
      text.str("resil_checksum");
      put_name(text, record.comm);
      text.chr(' ').hex(record.aux);
      break;
    case ring::RecordState::kCount:
      text.str("resil_count");
      put_name(text, record.comm);
      text.chr(' ').u64(record.aux);
      break;
    default: text.str("unknown record");
  }
}

}  // namespace

Moment moment_now() {
  Moment moment{};
  moment.ticks = ticks();
  moment.realtime_ns = realtime_ns();
  const ring::Header& header = *runtime.header;
  double rate = header.ticks_per_second;
  if (!(rate >= kSlowest && rate <= kFastest) && moment.realtime_ns > header.realtime_start_ns) {
    // Not measured yet (during MPI_Init): from the pair taken when the ring was made.
    rate = static_cast<double>(moment.ticks - header.ticks_start) /
           (static_cast<double>(moment.realtime_ns - header.realtime_start_ns) * 1e-9);
  }
  moment.ticks_per_second = rate >= kSlowest && rate <= kFastest ? rate : 0;
  return moment;
}

double age(const Moment& moment, uint64_t then) {
  if (moment.ticks_per_second <= 0 || then == 0) return NAN;
  return static_cast<double>(static_cast<int64_t>(moment.ticks - then)) / moment.ticks_per_second;
}

bool is_call(const ring::Record& record) { return record.state <= static_cast<uint8_t>(ring::RecordState::kDone); }

Communicators own_communicators() { return {runtime.comms, runtime.comm_count}; }

void put_record(SafeText& text, Symbols& symbols, const Moment& moment, const ring::Record& record) {
  text.seconds(age(moment, record.time)).str(" ago: ");
  if (!is_call(record)) {
    put_user_record(text, record);
  } else {
    put_call(text, record, own_communicators(), false);
    if (record.repeat > 1) text.str(", ").u64(record.repeat).str(" times in a row");
    if (record.state == static_cast<uint8_t>(ring::RecordState::kOpen)) {
      text.str(", not returned");
    } else if (record.duration > 0) {
      text.str(", took ").seconds(duration_seconds(moment, record));
    }
    if ((record.flags & ring::kFailed) != 0) text.str(", FAILED");
    if ((record.flags & ring::kCallback) != 0) text.str(", from a callback");
  }
  if (record.site != 0) {
    text.str(", at ");
    symbols.put_site(text, record.site);
  }
}

void put_request(SafeText& text, Symbols& symbols, const Moment& moment, const ring::Request& request) {
  static constexpr char kKinds[][18] = {"request",   "send", "receive",      "collective",
                                        "one-sided", "file", "communicator", "generalized"};
  text.str(request.kind < 8 ? kKinds[request.kind] : "request");
  if ((request.flags & ring::kPersistent) != 0) text.str(" (persistent)");
  if ((request.flags & ring::kPartitioned) != 0) text.str(" (partitioned)");
  text.str(" by ");
  ring::Record record{};
  record.call = request.call;
  record.peer = request.peer;
  record.tag = request.tag;
  record.comm = request.comm;
  record.bytes = request.bytes;
  put_call(text, record, own_communicators(), false);
  text.str(", posted ")
      .str(request.flags & ring::kPostedLater ? "at most " : "")
      .seconds(age(moment, request.time))
      .str(" ago");
  if (request.site != 0) {
    text.str(" at ");
    symbols.put_site(text, request.site);
  }
}

}  // namespace resil::dump
