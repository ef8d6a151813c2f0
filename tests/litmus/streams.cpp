// SPDX-License-Identifier: Apache-2.0
//
// One writer, one reader: the records of checksums between two processes, the buffers of a recording.
#include <cstring>
#include <memory>

#include "checksum/ledger/stream.h"
#include "checksum/record/channel.h"
#include "tests/litmus/programs.h"

namespace litmus {
namespace {

using resil::ledger::Record;
using resil::ledger::StreamControl;
using resil::ledger::StreamIn;
using resil::ledger::StreamOut;
using resil::ledger::StreamSlot;

constexpr uint32_t kSlots = 8;
StreamControl control;
StreamSlot slots[kSlots];
StreamOut out;
StreamIn in;
uint64_t taken;

void begin_stream(unsigned filled) {
  memset(static_cast<void*>(&control), 0, sizeof control);
  memset(static_cast<void*>(slots), 0, sizeof slots);
  memset(static_cast<void*>(&out), 0, sizeof out);
  memset(static_cast<void*>(&in), 0, sizeof in);
  out.open(&control, slots, kSlots);
  in.open(&control, slots, kSlots);
  taken = 0;
  Record record{};
  for (uint64_t i = 0; i < filled; ++i) {
    memset(static_cast<void*>(&record), static_cast<int>(i), sizeof record);
    out.put(record, i, i, i);
  }
}

void put(uint64_t number) {
  Record record;
  memset(static_cast<void*>(&record), static_cast<int>(number), sizeof record);
  LITMUS_EXPECT(out.put(record, number, number, number) || number >= kSlots);
}

void take() {
  const StreamSlot* slot = in.next();
  if (slot == nullptr) return;
  Record record;
  memset(static_cast<void*>(&record), static_cast<int>(taken), sizeof record);
  LITMUS_EXPECT(memcmp(&record, &slot->record, sizeof record) == 0);
  LITMUS_EXPECT(slot->sum == taken && slot->total == taken && slot->ordinal == taken);
  ++taken;
  in.advance();
}

resil::record::Channel* channel;

void begin_channel() {
  channel = zeroed<resil::record::Channel>();
  channel->begin();
}

/// A number that fills a segment so far that the next needs a new one.
void fill(uint64_t number) {
  unsigned char* at = channel->room();
  if (at == nullptr) {
    if (!channel->begin_segment(number, number)) return;
    at = channel->room();
  }
  memcpy(at, &number, sizeof number);
  channel->commit(at + sizeof number);
}

/// Ends the segment, as its size would.
bool next_segment(uint64_t number) { return channel->begin_segment(number, number); }

unsigned drained;

void drain(bool partial) {
  uint32_t end = 0;
  bool full = false;
  resil::record::Buffer* buffer = channel->oldest(partial, &end, &full);
  if (buffer == nullptr) return;
  LITMUS_EXPECT(buffer->number == buffer->ordinal);
  LITMUS_EXPECT(buffer->segment == buffer->number);
  for (; buffer->written + 8 <= end; buffer->written += 8) {
    uint64_t number;
    memcpy(&number, buffer->data + buffer->written, sizeof number);
    LITMUS_EXPECT(number == buffer->number);
  }
  if (full) channel->release(buffer);
  ++drained;
}

}  // namespace

std::vector<Program> stream_programs() {
  return {
      {"stream: put and take",
       "streams",
       [] { begin_stream(0); },
       {[] {
          put(0);
          put(1);
        },
        [] {
          take();
          take();
          take();
        }},
       [] { LITMUS_EXPECT(taken <= 2); },
       2},
      {"stream: a full one goes round",
       "streams",
       [] { begin_stream(kSlots); },
       {[] {
          put(kSlots);
          put(kSlots + (out.count() > kSlots));
        },
        [] {
          take();
          take();
        }},
       [] {
         while (in.next() != nullptr) take();
         LITMUS_EXPECT(taken == out.count());
       },
       2},
      {"recording: segments",
       "buffers of a recording",
       begin_channel,
       {[] {
          for (uint64_t n = 0; n < 2; ++n) {
            if (n != 0) next_segment(n);
            fill(n);
          }
        },
        [] {
          drain(true);
          drain(true);
          drain(false);
        }},
       {},
       6},
      {"recording: buffers go round",
       "buffers of a recording",
       [] {
         begin_channel();
         for (uint64_t n = 0; n < 4; ++n) {
           if (n != 0) next_segment(n);
           fill(n);
         }
       },
       {[] {
          if (next_segment(4)) fill(4);
        },
        [] {
          drain(false);
          drain(true);
        }},
       {},
       2},
  };
}

}  // namespace litmus
