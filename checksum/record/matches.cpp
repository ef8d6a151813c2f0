// SPDX-License-Identifier: Apache-2.0
//
// What receives with wildcards got, found by the ordinal of the receive although it was written when the receive was
// complete. Reads ahead in the stream of matches. What is read before it is asked for is kept, up to a limit; beyond it
// (a receive that stays pending while tens of thousands of others complete) the matches are read through for the one
// that is wanted, and it is marked, so that it is passed over when it is reached in its turn.
#include "checksum/record/reader_internal.h"
#include "shim/base/hash.h"

namespace resil::record {

uint32_t MatchTable::home(uint32_t stream, uint64_t ordinal) {
  return static_cast<uint32_t>(hash_combine(stream, ordinal) % kSlots);
}

void MatchTable::add(uint32_t stream, uint64_t ordinal, const Match& match, Kind kind) {
  uint32_t at = home(stream, ordinal);
  while (entries_[at].kind != kEmpty) at = (at + 1) % kSlots;
  entries_[at] = {ordinal, stream, match, kind};
  ++(kind == kTaken ? taken_ : count_);
}

bool MatchTable::take(uint32_t stream, uint64_t ordinal, Kind kind, Match* match) {
  uint32_t at = home(stream, ordinal);
  while (entries_[at].kind != kEmpty &&
         (entries_[at].ordinal != ordinal || entries_[at].stream != stream || entries_[at].kind != kind))
    at = (at + 1) % kSlots;
  if (entries_[at].kind == kEmpty) return false;
  *match = entries_[at].match;
  --(kind == kTaken ? taken_ : count_);
  // What would not be found across the gap moves into it.
  uint32_t gap = at;
  for (uint32_t next = (gap + 1) % kSlots; entries_[next].kind != kEmpty; next = (next + 1) % kSlots)
    if ((next - home(entries_[next].stream, entries_[next].ordinal)) % kSlots >= (next - gap) % kSlots) {
      entries_[gap] = entries_[next];
      gap = next;
    }
  entries_[gap].kind = kEmpty;
  return true;
}

namespace {

/// The next block of matches: kItem, after `visit(stream, ordinal, match)` for each; else how it ended.
template <class Visit>
Reading next_block(RecordingBody& body, MatchScan* scan, Visit visit) {
  for (;;) {
    BlockHead block;
    const Place place = scan->place;
    Reading reading = body.chain.look(place, &block);
    if (reading == Reading::kDamaged)
      body.chain.describe(place, "its head is not that of the next block", body.problem, sizeof(body.problem));
    if (reading != Reading::kItem) return reading;
    scan->place = BlockChain::after(place, block);
    if (block.stream != kMatchStream) continue;
    reading = body.chain.payload(place, block, body.payload, body.problem, sizeof(body.problem));
    if (reading != Reading::kItem) return reading;
    if ((block.flags & kBlockFirst) != 0) scan->last = 0;
    const unsigned char *at = body.payload, *end = at + block.payload_bytes;
    while (at != end) {
      uint32_t stream;
      uint64_t ordinal;
      Match match;
      if (!decode_match(&at, end, &stream, &ordinal, &scan->last, &match)) {
        body.chain.describe(place, "it holds what this version cannot read", body.problem, sizeof(body.problem));
        return Reading::kDamaged;
      }
      visit(stream, ordinal, match);
    }
    return Reading::kItem;
  }
}

Reading find(RecordingBody& body, uint32_t stream, uint64_t ordinal, Match* match) {
  Match unused;
  while (!body.table.take(stream, ordinal, MatchTable::kMatch, match)) {
    if (body.table.has_room()) {
      MatchScan scan = body.matches;
      const Reading reading = next_block(body, &scan, [&](uint32_t of, uint64_t number, const Match& found) {
        if (!body.table.take(of, number, MatchTable::kTaken, &unused))
          body.table.add(of, number, found, MatchTable::kMatch);
      });
      if (reading != Reading::kItem) return reading;
      body.matches = scan;
      continue;
    }
    MatchScan scan = body.matches;
    bool seen = false;
    while (!seen) {
      const Reading reading = next_block(body, &scan, [&](uint32_t of, uint64_t number, const Match& found) {
        if (of == stream && number == ordinal) {
          *match = found;
          seen = true;
        }
      });
      if (reading != Reading::kItem) return reading;
    }
    if (body.table.may_mark()) body.table.add(stream, ordinal, *match, MatchTable::kTaken);
    return Reading::kItem;
  }
  return Reading::kItem;
}

}  // namespace

Reading Recording::match(uint32_t stream, uint64_t ordinal, Match* match) {
  while (!body_->lock.lock(3600)) {}
  const Reading reading = find(*body_, stream, ordinal, match);
  body_->lock.unlock();
  return reading;
}

}  // namespace resil::record
