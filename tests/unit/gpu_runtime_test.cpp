// SPDX-License-Identifier: Apache-2.0
//
// The judgement of waits and queries, with a driver whose device does what the test says, when it says so: nothing is
// claimed that is not so, a query that is asked again and again gets its answer, no word is taken for another.

#include <atomic>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "check.h"
#include "detectors/gpu_runtime/call.h"

namespace resil::gpu_runtime {

namespace {

struct Write {
  uint64_t* to;
  uint64_t value;
  bool low;
};

/// One in-order stream a handle; words are written when the test lets the device run.
struct Device {
  std::mutex lock;
  std::deque<Write> queue[16];
  std::atomic<int> answer{kSuccess};  // to queries
  std::atomic<bool> capturing{false}, has_words{true}, has_fill{true}, registers{true}, registered{false};
  std::atomic<int> registrations{0}, fills{0}, asked{0};
  std::atomic<bool> honest{false};  // queries tell the truth about the queue

  void run(unsigned stream) {
    const std::lock_guard keep_handle(lock);
    for (; !queue[stream].empty(); queue[stream].pop_front()) {
      const Write& write = queue[stream].front();
      if (write.low)
        __atomic_store_n(reinterpret_cast<uint32_t*>(write.to), static_cast<uint32_t>(write.value), __ATOMIC_RELEASE);
      else __atomic_store_n(write.to, write.value, __ATOMIC_RELEASE);
    }
  }
  size_t waiting(unsigned stream) {
    const std::lock_guard keep_handle(lock);
    return queue[stream].size();
  }
} device;

unsigned number(void* stream) { return static_cast<unsigned>(reinterpret_cast<uintptr_t>(stream) >> 8); }
void* stream_handle(unsigned i) { return reinterpret_cast<void*>(uintptr_t{i} << 8); }
void* const kContext = reinterpret_cast<void*>(0x77);

int put(void* stream, void* to, uint64_t value, bool low) {
  const std::lock_guard keep_handle(device.lock);
  device.queue[number(stream)].push_back({static_cast<uint64_t*>(to), value, low});
  return kSuccess;
}

Driver fake() {
  Driver d = {};
  d.api = Api::kCuda;
  d.stream_query = [](void* stream) {
    ++device.asked;
    return device.honest ? (device.waiting(number(stream)) != 0 ? kNotReady : kSuccess) : device.answer.load();
  };
  d.stream_synchronize = [](void*) { return kSuccess; };
  d.event_query = [](void*) { return device.answer.load(); };
  d.event_synchronize = [](void*) { return kSuccess; };
  d.is_capturing = [](void*, int* status) { return *status = device.capturing ? 1 : 0, kSuccess; };
  d.write_value = [](void* stream, void* to, uint64_t value, unsigned) {
    return device.has_words ? put(stream, to, value, false) : kNotSupported;
  };
  d.fill = [](void* to, unsigned value, uint64_t, void* stream) {
    ++device.fills;
    return device.has_fill ? put(stream, to, value, true) : kNotSupported;
  };
  d.host_register = [](void*, size_t, unsigned) {
    ++device.registrations;
    device.registered = device.registers.load();
    return device.registers ? kSuccess : 1;
  };
  d.device_pointer = [](void** to, void* host, unsigned) { return *to = host, device.registered ? kSuccess : 1; };
  return d;
}

Driver the_driver = fake();
std::atomic<int> claims, still_missing_claims;

/// A context of its own, so that nothing is left from the case before.
uintptr_t context_number = 0x1000;
void* context_now = kContext;

void fresh() {
  settings = {true, true, false, Sync::kNative, 10};
  context_now = reinterpret_cast<void*>(context_number += 0x10);
  for (auto& queue : device.queue) queue.clear();
  device.answer = kSuccess;
  device.capturing = device.honest = false;
  device.has_words = device.has_fill = device.registers = true;
  device.registered = false;
  device.registrations = device.fills = 0;
  claims = still_missing_claims = 0;
}

Call start(Kind kind, void* handle) {
  Call call = {};
  call.kind = kind, call.api = Api::kCuda, call.name = "f", call.handle = handle, call.alters = true;
  return call;
}

/// A wait whose real function returns at once; the device runs before (`finished`) or a moment after it.
int wait_on(unsigned stream, bool finished) {
  Call call = start(Kind::kStreamWait, stream_handle(stream));
  call_begin(call);
  REQUIRE(call.count == 1);
  std::thread late;
  if (finished) device.run(stream);
  else
    late = std::thread([stream] {
      while (device.asked.load() < 3)  // the wait is polling by then
        std::this_thread::yield();
      device.run(stream);
    });
  device.asked = 0;
  const int result = call_end(call, kSuccess);
  if (late.joinable()) late.join();
  return result;
}

int query(unsigned stream) {
  Call call = start(Kind::kStreamQuery, stream_handle(stream));
  query_begin(call);
  return query_end(call, the_driver.stream_query(stream_handle(stream)), the_driver.stream_query);
}

int query_event(void* event) {
  Call call = start(Kind::kEventQuery, event);
  query_begin(call);
  return query_end(call, the_driver.event_query(event), nullptr);
}

void record(void* event, unsigned stream) {
  event_recording(the_driver, event, stream_handle(stream));
  event_recorded(the_driver, event, stream_handle(stream), true);
}

}  // namespace

// What driver.cpp and findings.cpp give in the library.
const Driver* driver(Api, const void*) { return &the_driver; }
void* current_context(const Driver&) { return context_now; }
Current::Current(const Driver& d, void*) : driver_(d) { context_ = context_now; }
Current::~Current() {}
void premature(const Call&, const Slot&, const Word&, void*, double, bool still_missing) {
  ++claims;
  still_missing_claims += still_missing ? 1 : 0;
}
void watcher_start() {}

TEST_CASE("a wait that is right raises nothing, one that is too early is claimed and made right") {
  fresh();
  for (int i = 0; i < 3000; ++i) REQUIRE(wait_on(1, true) == kSuccess);
  REQUIRE(claims == 0);
  REQUIRE(wait_on(1, false) == kSuccess);
  REQUIRE(claims == 1);
  REQUIRE(device.waiting(1) == 0);
}

TEST_CASE("without stream memory operations the word is filled in") {
  fresh();
  device.has_words = false;
  REQUIRE(wait_on(1, true) == kSuccess);
  REQUIRE(wait_on(1, false) == kSuccess);
  REQUIRE(claims == 1);
  REQUIRE(device.fills == 2);
  REQUIRE(arenas_filling() >= 1);
  // Neither: it goes unchecked.
  device.has_fill = false;
  Call call = start(Kind::kStreamWait, stream_handle(1));
  call_begin(call);
  REQUIRE(call.count == 0);
  REQUIRE(call.why == Uncovered::kRefused);
  REQUIRE(call_end(call, kSuccess) == kSuccess);
}

TEST_CASE("a stream in capture is left alone") {
  fresh();
  device.capturing = true;
  Call call = start(Kind::kStreamWait, stream_handle(2));
  call_begin(call);
  REQUIRE((call.count == 0 && call.why == Uncovered::kCapture && device.waiting(2) == 0));
  REQUIRE(call_end(call, 900) == 900);
  record(reinterpret_cast<void*>(0x5000), 2);
  REQUIRE(device.waiting(2) == 0);
  REQUIRE_FALSE(event_words(Api::kCuda, reinterpret_cast<void*>(0x5000)).before.armed());
}

TEST_CASE("memory that cannot be page-locked is not tried for ever") {
  fresh();
  device.registers = false;
  for (int i = 0; i < 10; ++i) {
    Slot slot;
    Uncovered why = Uncovered::kNone;
    REQUIRE_FALSE(slot_acquire(the_driver, context_now, &slot, &why));
    REQUIRE(why == Uncovered::kRefused);
  }
  REQUIRE(device.registrations == 3);
}

TEST_CASE("a context that was reset is registered again") {
  fresh();
  REQUIRE(wait_on(1, true) == kSuccess);
  device.registered = false;
  REQUIRE(wait_on(1, true) == kSuccess);
  REQUIRE(device.registrations == 2);
}

TEST_CASE("a word with a write outstanding is not given out again") {
  fresh();
  Uncovered why = Uncovered::kNone;
  std::vector<Word> words;
  for (;;) {
    Slot slot;
    Word word;
    if (!slot_acquire(the_driver, context_now, &slot, &why)) break;
    REQUIRE(word_append(the_driver, slot, 0, stream_handle(3), &word, &why));
    for (const Word& other : words) REQUIRE(other.at != word.at);
    words.push_back(word);
    slot_release(slot);
  }
  REQUIRE((words.size() == 1024 && why == Uncovered::kMany));
  device.run(3);
  Slot slot;
  REQUIRE(slot_acquire(the_driver, context_now, &slot, &why));
  slot_release(slot);
}

TEST_CASE("a program that asks again and again gets its answer, however slow words are") {
  fresh();
  device.honest = true;  // the word itself keeps the stream busy
  for (int round = 0; round < 50; ++round) {
    int polls = 0;
    while (query(4) == kNotReady) {
      REQUIRE(++polls < 3);
      device.run(4);  // only between two questions: far later than a query would wait
    }
  }
  REQUIRE(claims == 0);
}

TEST_CASE("a query that says done before the word is there is claimed, and taken back") {
  fresh();
  REQUIRE(wait_on(5, true) == kSuccess);  // words have been seen in this context
  device.answer = kSuccess;
  REQUIRE(query(5) == kNotReady);
  REQUIRE((claims == 1 && still_missing_claims == 1));
  device.run(5);
  REQUIRE(query(5) == kSuccess);
  REQUIRE(claims == 1);
}

TEST_CASE("a word that never came in a context proves nothing") {
  fresh();
  REQUIRE(query(5 + 1) == kNotReady);
  REQUIRE(claims == 0);
}

TEST_CASE("a stream that is destroyed takes its word with it") {
  fresh();
  REQUIRE(wait_on(7, true) == kSuccess);
  device.answer = kNotReady;
  REQUIRE(query(7) == kNotReady);
  REQUIRE(device.waiting(7) == 1);
  stream_gone(Api::kCuda, stream_handle(7));
  device.answer = kSuccess;
  device.queue[7].clear();  // the old stream's work is not the new one's
  Call call = start(Kind::kStreamQuery, stream_handle(7));
  query_begin(call);
  device.run(7);
  REQUIRE(query_end(call, kSuccess, nullptr) == kSuccess);
  REQUIRE(claims == 0);
}

TEST_CASE("events: the word before the record must be there") {
  fresh();
  auto* event = reinterpret_cast<void*>(0x6000);
  REQUIRE(query_event(event) == kSuccess);  // never recorded
  record(event, 1);
  REQUIRE(device.waiting(1) == 2);
  REQUIRE(query_event(event) == kNotReady);
  REQUIRE(claims == 1);
  device.run(1);
  REQUIRE(query_event(event) == kSuccess);
  // Recorded anew while the last record is pending elsewhere: the old word may come later than the new one.
  record(event, 1);
  record(event, 2);
  device.run(2);
  REQUIRE(query_event(event) == kSuccess);
  device.run(1);
  REQUIRE(query_event(event) == kSuccess);
  // Destroyed while pending, and the handle comes again.
  record(event, 1);
  event_forget(Api::kCuda, event, false);
  REQUIRE(query_event(event) == kSuccess);
  REQUIRE(claims == 1);
}

TEST_CASE("an event that another process may record is not judged") {
  fresh();
  auto* event = reinterpret_cast<void*>(0x7000);
  event_forget(Api::kCuda, event, true);
  record(event, 1);
  REQUIRE(device.waiting(1) == 0);
  REQUIRE(query_event(event) == kSuccess);
  REQUIRE(claims == 0);
}

TEST_CASE("an event that is recorded while somebody waits for it is not judged") {
  fresh();
  auto* event = reinterpret_cast<void*>(0x8000);
  record(event, 1);
  Call call = start(Kind::kEventWait, event);
  call_begin(call);
  record(event, 2);
  device.run(2);  // the wait is for the new record; the old one is still pending
  REQUIRE(call_end(call, kSuccess) == kSuccess);
  REQUIRE(claims == 0);
  event_forget(Api::kCuda, event, false);
}

TEST_CASE("a failed stream ends the wait for its word with the error") {
  fresh();
  Call call = start(Kind::kStreamWait, stream_handle(8));
  call_begin(call);
  device.answer = 700;
  REQUIRE(call_end(call, kSuccess) == 700);
  REQUIRE(claims == 0);
}

TEST_CASE("polling returns as soon as the word is there, whatever the runtime says") {
  fresh();
  Call call = start(Kind::kStreamWait, stream_handle(9));
  call_begin(call);
  int result = -1;
  device.run(9);
  device.answer = kNotReady;
  REQUIRE(call_poll(call, &result));
  REQUIRE(result == kSuccess);
  REQUIRE(call_end(call, result) == kSuccess);
}

TEST_CASE("threads, with a reader of their open waits") {
  fresh();
  constexpr int kWorkers = 4, kTurns = 400;
  std::atomic<int> left{kWorkers};
  std::thread runs([&] {
    while (left.load() > 0)
      for (unsigned i = 0; i < 16; ++i) device.run(i);
  });
  std::thread reads([&] {
    uint64_t seen = 0;
    while (left.load() > 0)
      for (unsigned i = 0; i < kThreads; ++i) {
        OpenWait wait;
        if (open_wait_read(i, &wait)) seen += wait.words;
      }
    (void)seen;
  });
  std::vector<std::thread> workers;
  std::atomic<int> wrong{0};
  for (int w = 0; w < kWorkers; ++w)
    workers.emplace_back([&, w] {
      const unsigned stream = 10 + static_cast<unsigned>(w);
      auto* event = reinterpret_cast<void*>(uintptr_t{0x9000} + 0x100 * static_cast<unsigned>(w));
      for (int turn = 0; turn < kTurns; ++turn) {
        record(event, stream);
        Call call =
            start(turn % 2 != 0 ? Kind::kStreamWait : Kind::kEventWait, turn % 2 != 0 ? stream_handle(stream) : event);
        call_begin(call);
        while (device.waiting(stream) != 0)  // the runtime's own wait
          std::this_thread::yield();
        wrong += call_end(call, kSuccess) != kSuccess ? 1 : 0;
        if (turn % 50 == 0) {
          event_forget(Api::kCuda, event, false);
          stream_gone(Api::kCuda, stream_handle(stream));
        }
      }
      --left;
    });
  for (std::thread& worker : workers) worker.join();
  runs.join();
  reads.join();
  REQUIRE(wrong == 0);
}

}  // namespace resil::gpu_runtime
