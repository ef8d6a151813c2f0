// SPDX-License-Identifier: Apache-2.0
//
// One stream of a recording, item by item.
#include <stdio.h>
#include <string.h>

#include "checksum/record/reader_internal.h"

namespace resil::record {

Reading Cursor::stop(Reading reading, const char* why) {
  stopped_ = reading;
  if (why != problem_) snprintf(problem_, sizeof(problem_), "%s", why);
  return reading;
}

Reading Cursor::load() {
  const BlockChain& chain = file_->chain;
  if (closed_) return stop(Reading::kEnd, "");
  for (;;) {
    BlockHead block;
    const Reading reading = chain.look(place_, &block);
    if (reading == Reading::kDamaged) {
      chain.describe(place_, "its head is not that of the next block", problem_, sizeof(problem_));
      return stop(reading, problem_);
    }
    if (reading != Reading::kItem) return stop(reading, reading == Reading::kCut ? chain.end_text() : "");
    const Place place = place_;
    place_ = BlockChain::after(place, block);
    if (block.stream != id_) continue;
    const bool first = (block.flags & kBlockFirst) != 0;
    closed_ = (block.flags & kBlockCloses) != 0;
    if (closed_ && block.payload_bytes == 0) return stop(Reading::kEnd, "");
    if (first ? block.offset != 0 || block.segment != segment_
              : block.offset != offset_ || block.segment + 1 != segment_) {
      chain.describe(place, "it does not go on where the stream stopped", problem_, sizeof(problem_));
      return stop(Reading::kDamaged, problem_);
    }
    if (const Reading bytes = chain.payload(place, block, payload_, problem_, sizeof(problem_));
        bytes != Reading::kItem)
      return stop(bytes, bytes == Reading::kCut ? chain.end_text() : problem_);
    if (first) {
      decoder_.reset(block.number, block.ordinal);
      segment_ = block.segment + 1;
      offset_ = 0;
    }
    offset_ += block.payload_bytes;
    decoder_.feed(payload_, payload_ + block.payload_bytes);
    block_ = place;
    return Reading::kItem;
  }
}

Reading Cursor::peek(const Item** item) {
  *item = &item_;
  if (peeked_) return Reading::kItem;
  if (stopped_ != Reading::kItem) return stopped_;
  for (;;) {
    if (decoder_.empty()) {
      if (const Reading reading = load(); reading != Reading::kItem) return reading;
    }
    bool some;
    if (!decoder_.next(&item_, *file_->names, &some)) {
      file_->chain.describe(block_, "it holds what this version cannot read", problem_, sizeof(problem_));
      return stop(Reading::kDamaged, problem_);
    }
    if (some && item_.kind != ItemKind::kText) {
      peeked_ = true;
      return Reading::kItem;
    }
  }
}

Reading Cursor::next(Item* item) {
  const Item* next;
  const Reading reading = peek(&next);
  if (reading != Reading::kItem) return reading;
  *item = *next;
  skip();
  return reading;
}

void Cursor::skip() {
  peeked_ = false;
  number_ = item_.number;
  if (item_.kind == ItemKind::kCall && (item_.call.flags & kCallStarted) != 0)
    next_ordinal_ = item_.ordinal + item_.call.count;
}

}  // namespace resil::record
