// SPDX-License-Identifier: Apache-2.0
//
// The flight recorder: a thread makes calls while another copies its records (dumps, the helper of the node), and the
// state slots of hang detection beside it.
#include "detectors/dump/record_copy.h"
#include "detectors/hang/reader/reader.h"
#include "detectors/hang/slots/writer_internal.h"
#include "shim/call/flight.h"
#include "shim/ring/device_work.h"
#include "tests/litmus/programs.h"

namespace litmus {
namespace {

using namespace resil;

ring::TraceBuffer* trace;
Thread* thread;
SiteEntry* site;
Event* event;
uint64_t traffic[4];

/// As after `head` calls of this thread, each with its number in the words that tests look at.
void ring_at(uint64_t head) {
  trace = zeroed<ring::TraceBuffer>();
  thread = zeroed<Thread>();
  site = zeroed<SiteEntry>();
  event = zeroed<Event>();
  thread->trace = trace;
  event->thread = thread;
  site->traffic = traffic;
  trace->last_place = ring::kRecordsPerTrace - 1;
  trace->head = trace->calls = trace->current = head;
  for (uint64_t n = head >= ring::kRecordsPerTrace ? head - ring::kRecordsPerTrace : 0; n < head; ++n) {
    ring::Record& record = trace->records[n % ring::kRecordsPerTrace];
    record.sequence = n + 1;
    record.aux = record.bytes = n;
    record.state = static_cast<uint8_t>(ring::RecordState::kDone);
  }
  // What the writer leaves alone between two calls need not be followed.
  racy(&trace->head, sizeof trace->head);
  racy(&trace->current, sizeof trace->current);
  for (uint64_t n = head; n < head + 2; ++n) racy(&trace->records[n % ring::kRecordsPerTrace], sizeof(ring::Record));
}

void one_call() {
  const uint64_t number = thread->trace->head;
  site->record.aux = site->record.bytes = number;
  event->time = number;
  event->untimed = 0;
  flight::enter(*event, *site);
}

/// The words that this number was written into are all of that record, or the copy is refused.
void copy_of_number(uint64_t number) {
  ring::Record record;
  if (!dump::copy_record(*trace, number, &record)) return;
  LITMUS_EXPECT(record.sequence == number + 1);
  LITMUS_EXPECT(record.aux == number);
  LITMUS_EXPECT(record.bytes == number);
}

hang::Wait wait_slot;

void begin_wait() {
  wait_slot = {};
  wait_slot.instance = 1;
  wait_slot.peer = wait_slot.receive_peer = 1;
  wait_slot.sequence = 1;
  racy(&wait_slot.instance, sizeof wait_slot.instance);
  racy(&wait_slot.peer, sizeof wait_slot.peer);
  racy(&wait_slot.sequence, sizeof wait_slot.sequence);
}

void write_wait(uint64_t instance) {
  hang::wait_begin(wait_slot);
  wait_slot.peer = static_cast<int32_t>(instance);
  wait_slot.sequence = instance;
  hang::wait_publish(wait_slot, instance);
}

struct alignas(8) Words {
  uint64_t instance, rest[(sizeof(hang::Wait) - 8) / 8];
};

void read_wait() {
  const uint64_t instance = hang::load(wait_slot.instance);
  const hang::Wait copy = hang::copy_of(wait_slot);
  if (instance == 0 || hang::load(wait_slot.instance) != instance) return;
  LITMUS_EXPECT(copy.peer == static_cast<int32_t>(instance));
  LITMUS_EXPECT(copy.sequence == instance);
}

DeviceWork works[kDeviceWaits + kDeviceCopies];
DeviceWork& work = works[kDeviceWaits];  // the first copy's

void begin_work() {
  work = {};
  racy(&work.version, 8);
  racy(&work.since_ns, 8);
  racy(&work.bytes, 8);
  racy(&work.kind, 1);
  device_work = works;
}

}  // namespace

std::vector<Program> ring_programs() {
  return {
      {"ring: a record that is about to be written over",
       "flight recorder",
       [] { ring_at(ring::kRecordsPerTrace + 5); },
       {[] {
          one_call();
          one_call();
        },
        [] { copy_of_number(5 + choose(2)); }},
       {},
       2},
      {"ring: the newest record",
       "flight recorder",
       [] { ring_at(7); },
       {[] {
          one_call();
          one_call();
        },
        [] {
          const uint64_t head = __atomic_load_n(&trace->head, __ATOMIC_ACQUIRE);
          ring::Record record;
          if (head > 7) {
            LITMUS_EXPECT(dump::copy_record(*trace, head - 1, &record));
            LITMUS_EXPECT(record.sequence == head && record.aux == head - 1 && record.bytes == head - 1);
          }
        }},
       {},
       2},
      {"ring: the open call",
       "flight recorder",
       [] { ring_at(7); },
       {[] { one_call(); },
        [] {
          const uint64_t current = __atomic_load_n(&trace->current, __ATOMIC_ACQUIRE);
          ring::Record record;
          if (current > 7 && dump::copy_record(*trace, current - 1, &record))
            LITMUS_EXPECT(record.sequence == current && record.aux == current - 1);
        }},
       {},
       2},
      {"state slot of a call",
       "state slots",
       begin_wait,
       {[] {
          write_wait(2);
          write_wait(3);
        },
        read_wait},
       {},
       6},
      {"device work",
       "device work",
       begin_work,
       {[] {
          const int32_t entry = device_copy_late(true, 7, 0, 0, 7);
          device_copy_ends(entry);
          device_copy_ends(device_copy_late(true, 8, 0, 0, 8));
        },
        [] {
          DeviceWork copy;
          if (device_work_read(work, &copy)) LITMUS_EXPECT(copy.bytes == copy.since_ns && copy.bytes >= 7);
        }},
       {},
       6},
  };
}

}  // namespace litmus
