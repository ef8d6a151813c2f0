// SPDX-License-Identifier: Apache-2.0
//
// Turns the items of one stream into bytes. Loops call the same things again: what a call has besides its data is a
// shape, kept in a table, and most calls cost one byte for the shape plus the digests, which nothing can shrink.
//
// Context: the stream's own thread, or under the lock of what is shared. No system call, no allocation; names of call
// sites are asked for when a site is new in a segment. Every function writes at most kItemRoom bytes at `at` and
// returns the end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "checksum/record/layout.h"

namespace resil::record {

class Encoder {
 public:
  /// Begins a segment; `started`: requests that the stream has started so far.
  void reset(uint64_t started);

  /// Who the stream is; the first item of a stream.
  unsigned char* opening(unsigned char* at, const SiteName& first_site, uint64_t nth);
  unsigned char* call(unsigned char* at, const CallRecord& record, const Names& names);
  /// `stream`: the one that is written to.
  unsigned char* completion(unsigned char* at, const Completion& completion, uint32_t stream);
  unsigned char* outcome(unsigned char* at, const Outcome& outcome);
  /// `count` <= kMaxIndices.
  unsigned char* indices(unsigned char* at, const int32_t* list, uint32_t count);
  unsigned char* logged(unsigned char* at, LoggedKind kind, const char* name, ValueType type, uint64_t bits);
  unsigned char* text(unsigned char* at, const char* text);
  /// `clock` < kClocks. At most 12 bytes, 2 to 4 where a clock is read again and again.
  unsigned char* time(unsigned char* at, uint8_t clock, uint64_t bits);

 private:
  struct Site {
    uint64_t address;
    Shape last;
  };

  unsigned char* new_shape(unsigned char* at, const Shape& shape, const Names& names);
  unsigned char* site_number(unsigned char* at, uint64_t address, const Names& names, uint32_t* number);
  unsigned char* comm_number(unsigned char* at, uint64_t comm, uint32_t* number);
  unsigned char* call_number(unsigned char* at, uint16_t call, const Names& names, uint32_t* number);
  /// Number + 1; 0 when there are too many.
  unsigned char* object_number(unsigned char* at, const char* object, uint32_t* number);

  uint32_t step_;
  uint32_t shape_count_, site_count_, comm_count_, call_count_, object_count_, name_count_;
  uint64_t last_completed_;
  uint64_t last_times_[kClocks];
  // Slots hold a number + 1 (0: empty). A number may have been given to something else since: contents are compared.
  uint16_t shape_slots_[2 * kShapes], site_slots_[2 * kSites], comm_slots_[2 * kComms];
  uint16_t call_numbers_[kCallNames];
  Shape shapes_[kShapes];
  Site sites_[kSites];
  uint64_t comms_[kComms];
  uint64_t objects_[kObjects], logged_names_[kLoggedNames];  // hashes of the texts
};

/// One match, as it stands in the stream of matches. `last`: ordinal of the one before in the segment, 0 at its begin.
unsigned char* encode_match(unsigned char* at, uint32_t stream, uint64_t ordinal, uint64_t* last, const Match& match);

}  // namespace resil::record
