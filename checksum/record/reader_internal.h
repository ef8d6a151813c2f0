// SPDX-License-Identifier: Apache-2.0
//
// What the reader's files share. Internal to checksum/record/.
#pragma once

#include <cstdint>

#include "checksum/record/blocks.h"
#include "checksum/record/file.h"
#include "checksum/record/reader.h"

namespace resil::record {

/// Where reading of the matches stands.
struct MatchScan {
  Place place;
  uint64_t last;  ///< ordinal of the last match in the segment
};

/// Matches that were read and not asked for yet, and those that were asked for before they were reached.
class MatchTable {
 public:
  enum Kind : uint8_t { kEmpty = 0, kMatch = 1, kTaken = 2 };

  bool has_room() const { return count_ < Recording::kMatches; }
  void add(uint32_t stream, uint64_t ordinal, const Match& match, Kind kind);
  bool take(uint32_t stream, uint64_t ordinal, Kind kind, Match* match);
  bool may_mark() const { return taken_ < kMostTaken; }

 private:
  static constexpr uint32_t kSlots = 65536, kMostTaken = 2048;
  struct Entry {
    uint64_t ordinal;
    uint32_t stream;
    Match match;
    Kind kind;
  };
  static uint32_t home(uint32_t stream, uint64_t ordinal);

  uint32_t count_, taken_;
  Entry entries_[kSlots];
};

/// A stream whose opening was seen and that nobody has asked for.
struct SeenStream {
  uint64_t site, nth;  ///< `site`: hash of the name of the first call site
  Place place;
  uint32_t id;  ///< 0: empty
};

/// How many streams were asked for by next_stream().
struct AskedSite {
  uint64_t site, count;
};

struct RecordingBody {
  static constexpr uint32_t kSeen = 1024, kAsked = 1024;

  BlockChain chain;
  const Names* names;
  TimedLock lock;  ///< of all that follows
  Place openings;  ///< blocks before it have been looked at for openings
  MatchScan matches;
  SeenStream seen[kSeen];
  AskedSite asked[kAsked];
  char differences[600];
  char problem[1400];
  unsigned char payload[kMaxPayload];
  MatchTable table;
};

}  // namespace resil::record
