// SPDX-License-Identifier: Apache-2.0
//
// Turns the bytes of one stream back into items; the reverse of encoder.h. Trusts nothing: bytes that no writer makes
// end in `false`, never outside the buffer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "checksum/record/layout.h"

namespace resil::record {

/// First item of a stream.
struct Opening {
  char object[kMaxPath];  ///< "": no object file
  uint64_t offset, nth;
};

class Decoder {
 public:
  /// Begins a segment: calls and requests of the stream before it. Zeroed memory is a decoder before its first segment.
  void reset(uint64_t number, uint64_t started);
  /// The bytes to read from now on; they must stay.
  void feed(const unsigned char* begin, const unsigned char* end);
  /// Is everything that was fed decoded?
  bool empty() const { return at_ == end_; }
  /// The next item; definitions and the opening are taken on the way, so that there may be none: `*some` false. False:
  /// not what a writer makes.
  bool next(Item* item, const Names& names, bool* some);

  SiteName site() const { return site_; }  ///< of the last call
  const char* call_name() const { return call_names_[call_name_]; }
  uint64_t number() const { return number_; }  ///< of the last call
  uint64_t next_ordinal() const { return started_ + 1; }

  /// Reads a stream's opening, which must come first. False: there is none.
  static bool opening(const unsigned char* begin, const unsigned char* end, Opening* opening);

 private:
  struct Site {
    uint64_t address, offset;
    uint16_t object;  // + 1; 0: none
    Shape last;
    uint16_t call_name;
  };
  struct Known {
    Shape shape;
    uint64_t offset;  // the site's by value: its number may be given to another one
    uint16_t object, call_name;
  };

  bool call(uint32_t shape, Item* item);
  bool new_shape(uint32_t* number);
  bool define_site(const Names& names);
  bool completion(uint8_t token, Item* item);
  bool outcome(Item* item);
  bool indices(Item* item);
  bool logged(Item* item);
  bool time(uint8_t token, Item* item);
  void place(Item* item, ItemKind kind) const;

  const unsigned char *at_, *end_;
  uint64_t number_, started_, last_completed_;
  uint64_t last_times_[kClocks];
  uint32_t step_;
  uint32_t shape_count_, site_count_, comm_count_, call_count_, object_count_, name_count_;
  SiteName site_;
  uint32_t call_name_;
  Known shapes_[kShapes];
  Site sites_[kSites];
  uint64_t comms_[kComms];
  uint16_t calls_[kCallNames];  // this process's ids
  int32_t index_list_[kMaxIndices];
  char call_names_[kCallNames][kMaxName];
  char logged_names_[kLoggedNames][kMaxName];
  char objects_[kObjects][kMaxPath];
  char text_[kMaxText];
};

/// One match from `*at`, which moves on. `last` as in encode_match.
bool decode_match(const unsigned char** at, const unsigned char* end, uint32_t* stream, uint64_t* ordinal,
                  uint64_t* last, Match* match);

}  // namespace resil::record
