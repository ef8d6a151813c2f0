// SPDX-License-Identifier: Apache-2.0
//
// See engine.h. Streams are queues; the head of each may begin when all that it waits for is over, and gets its due
// time then. Beginnings and ends are carried out in the order of their times, whenever somebody comes by: what happens
// is the same as if hardware had done it, but for the moment at which memory changes.

#include "tests/fakegpu/engine.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <set>
#include <thread>
#include <vector>

namespace fakegpu {

namespace {

struct World {
  std::recursive_mutex lock;
  std::condition_variable_any work;  ///< for the driver's thread: streams are busy
  std::vector<Device*> devices;
  std::set<const void*> contexts, streams, events;
  std::vector<Stream*> busy;
  struct Capture {
    Stream* stream;
    int mode;
    std::thread::id thread;
    bool broken;
  };
  std::vector<Capture> captures;
  uint64_t sequence = 0, next_context = 1;
  bool thread_runs = false;
};
World& world() {
  static World* const it = new World;
  return *it;
}
std::atomic<bool> running;

thread_local unsigned in_callback;

// --- Order ---

bool related(const Stream& one, const Stream& other) {
  return one.context == other.context && &one != &other &&
         ((&one == &one.context->legacy && other.blocking) || (&other == &one.context->legacy && one.blocking));
}

constexpr Time kNever = ~Time{0};

/// When the head may begin, all that is known now; kNever: it waits for something that has no time yet.
Time begins(const Stream& stream) {
  const Operation& head = stream.operations.front();
  Time time = std::max(head.enqueued, stream.free_at);
  if (&stream == &stream.context->legacy || stream.blocking) {
    for (const Stream* other : world().busy)
      if (related(stream, *other) && !other->operations.empty() && other->operations.front().sequence < head.sequence)
        return kNever;
    if (&stream != &stream.context->legacy) time = std::max(time, stream.context->legacy.free_at);
  }
  if (head.after != nullptr) {
    if (!head.after->done) return kNever;
    time = std::max(time, head.after->time);
  }
  if (head.engine != nullptr) time = std::max(time, head.engine->free_at);
  return time;
}

struct Next {
  Stream* stream;
  Time time;
  bool begin;
};

/// The next beginning or end of all streams.
Next next() {
  Next best = {nullptr, kNever, false};
  for (Stream* stream : world().busy) {
    const Operation& head = stream->operations.front();
    const bool begin = head.due == 0;
    const Time time = begin ? begins(*stream) : head.due;
    if (time < best.time ||
        (time == best.time && best.stream != nullptr && head.sequence < best.stream->operations.front().sequence))
      best = {stream, time, begin};
  }
  return best;
}

void finish(Stream& stream, Time time) {
  Operation operation = std::move(stream.operations.front());
  stream.free_at = std::max(stream.free_at, time);
  // Still the head while it is carried out: a callback of the program's is not overtaken.
  if (operation.perform) {
    ++in_callback;
    operation.perform(time);
    --in_callback;
  }
  if (stream.operations.empty())  // its context was destroyed by it
    return;
  stream.operations.pop_front();
  if (stream.operations.empty()) std::erase(world().busy, &stream);
}

/// Does all that is due; the time of what comes next.
Time advance(Time until) {
  if (in_callback != 0) return kNever;
  for (;;) {
    Next step = next();
    if (step.stream == nullptr || step.time > until) {
      if (step.stream == nullptr) return kNever;
      return step.time;
    }
    Operation& head = step.stream->operations.front();
    if (!step.begin) {
      finish(*step.stream, head.due);
      continue;
    }
    if (head.ready && !head.ready()) {
      // Polls memory: passed over until somebody comes by again.
      step.stream->operations.front().enqueued = until + 1;
      continue;
    }
    head.due = step.time + head.duration;
    if (head.engine != nullptr) head.engine->free_at = head.due;
  }
}

// --- The driver's own thread ---

void serve() {
  World& w = world();
  std::unique_lock hold(w.lock);
  for (;;) {
    if (w.busy.empty()) {
      w.work.wait(hold);
      continue;
    }
    const Time time = now(), overdue = settings().overdue;
    const Time step = advance(time > overdue ? time - overdue : 0);
    const Time wake =
        std::min(step == kNever ? time + 1000000 : std::max(step + overdue, time + 50000), time + 1000000);
    hold.unlock();
    const timespec pause = {0, static_cast<long>(wake - time)};
    nanosleep(&pause, nullptr);
    hold.lock();
  }
}

void start_thread() {
  World& w = world();
  if (w.thread_runs || settings().overdue == 0) return;
  w.thread_runs = true;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &old);
  std::thread(serve).detach();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void put(Stream& stream, Operation operation) {
  if (stream.capturing) return;
  World& w = world();
  Context& context = *stream.context;
  operation.sequence = ++w.sequence;
  operation.enqueued = now();
  operation.due = 0;
  stream.last = context.last = operation.sequence;
  if (stream.operations.empty()) {
    w.busy.push_back(&stream);
    w.work.notify_one();
  }
  stream.operations.push_back(std::move(operation));
  start_thread();
  if (due_fault(Fault::kGone)) {
    static bool once;
    if (!once) {
      once = true;
      made_fault(Fault::kGone, 0);
      context_destroy(context);
    }
  }
}

/// Once for each amount of work: is its completion seen early, or never?
Decision& decide(Decision& decision, uint64_t last, Fault early, Fault lost) {
  if (decision.sequence == last) return decision;
  decision = {last, due_fault(early), decision.lost};
  if (due_fault(lost) && !released()) {
    decision.lost = true;
    made_fault(lost, 0);
  }
  return decision;
}

bool answer(Decision& decision, bool idle_now, Fault early) {
  if (decision.lost && !released()) return false;
  if (!idle_now && decision.early) {
    decision.early = false;
    decision.lost = false;
    made_fault(early, 0);
    return true;
  }
  return idle_now;
}

void clear(Stream& stream) {
  stream.operations.clear();
  std::erase(world().busy, &stream);
}

}  // namespace

Locked::Locked() {
  world().lock.lock();
  advance(now());
}

Locked::~Locked() { world().lock.unlock(); }

bool inside_callback() { return in_callback != 0; }

bool started() { return running.load(std::memory_order_acquire); }

bool start() {
  World& w = world();
  const std::lock_guard hold(w.lock);
  if (started()) return !w.devices.empty();
  for (unsigned i = 0; i < settings().devices; ++i)
    w.devices.push_back(new Device{static_cast<int>(i), -1, 0, 0, {}, {}, {}, {}, nullptr, 0});
  if (!memory_start()) return false;
  running.store(true, std::memory_order_release);
  return !w.devices.empty();
}

Device* device(int ordinal) {
  World& w = world();
  return ordinal >= 0 && static_cast<size_t>(ordinal) < w.devices.size() ? w.devices[static_cast<size_t>(ordinal)]
                                                                         : nullptr;
}

// --- Contexts, streams, events ---

Context* context_create(Device& device, bool primary, unsigned flags) {
  World& w = world();
  auto* context = new Context{&device, primary, false, false, flags, w.next_context++, 0, 0, {}, {}};
  context->legacy.context = context;
  context->legacy.blocking = true;
  w.contexts.insert(context);
  w.streams.insert(&context->legacy);
  return context;
}

void context_destroy(Context& context) {
  World& w = world();
  context.destroyed = true;
  for (const void* each : w.streams) {
    auto* stream = static_cast<Stream*>(const_cast<void*>(each));
    if (stream->context == &context) clear(*stream);
  }
  release_all(context);
}

bool is_context(const Context* context) { return world().contexts.count(context) != 0; }

Stream* stream_create(Context& context, bool blocking, unsigned flags, int priority) {
  auto* stream = new Stream{&context, blocking, priority, flags, false, {}, 0, 0, {}};
  world().streams.insert(stream);
  return stream;
}

/// Its work goes on, as the drivers promise.
void stream_destroy(Stream* stream) {
  world().streams.erase(stream);
  if (stream->operations.empty()) delete stream;
}

bool is_stream(const Stream* stream) { return world().streams.count(stream) != 0; }

Event* event_create(Context& context, bool timing) {
  auto* event = new Event{&context, timing, false, nullptr};
  world().events.insert(event);
  return event;
}

void event_destroy(Event* event) {
  world().events.erase(event);
  delete event;
}

bool is_event(const Event* event) { return world().events.count(event) != 0; }

// --- Work ---

void enqueue(Stream& stream, Engine* engine, size_t bytes, double speed, std::function<void(Time)> perform) {
  const auto time = settings().latency + static_cast<Time>(static_cast<double>(bytes) / speed);
  put(stream, {0, 0, time, 0, engine, nullptr, nullptr, std::move(perform)});
}

void enqueue_now(Stream& stream, std::function<void(Time)> perform) {
  put(stream, {0, 0, 0, 0, nullptr, nullptr, nullptr, std::move(perform)});
}

void enqueue_wait(Stream& stream, std::function<bool()> ready) {
  put(stream, {0, 0, 0, 0, nullptr, nullptr, std::move(ready), nullptr});
}

void record(Event& event, Stream& stream) {
  if (stream.capturing) {
    event.record = nullptr;
    return;
  }
  auto point = std::make_shared<Record>();
  point->early = due_fault(Fault::kEarlyEvent);
  point->lost = due_fault(Fault::kLostEvent);
  if (point->lost) made_fault(Fault::kLostEvent, 0);
  event.record = point;
  enqueue_now(stream, [point](Time time) {
    point->done = true;
    point->time = time;
  });
  advance(now());
}

void wait_event(Stream& stream, const Event& event) {
  if (event.record != nullptr && !event.record->done)
    put(stream, {0, 0, 0, 0, nullptr, event.record, nullptr, nullptr});
}

float elapsed(const Event& from, const Event& to) {
  return static_cast<float>(static_cast<int64_t>(to.record->time - from.record->time)) * 1e-6f;
}

int& capture_mode() {
  static thread_local int mode = 0;
  return mode;
}

bool capture_begin(Stream& stream, int mode) {
  const Locked hold;
  if (&stream == &stream.context->legacy || stream.capturing) return false;
  stream.capturing = true;
  world().captures.push_back({&stream, mode, std::this_thread::get_id(), false});
  return true;
}

bool capture_end(Stream& stream) {
  const Locked hold;
  stream.capturing = false;
  bool broken = true;
  std::erase_if(world().captures, [&](const World::Capture& each) {
    if (each.stream == &stream) broken = each.broken;
    return each.stream == &stream;
  });
  return !broken;
}

bool capture_forbids() {
  if (capture_mode() == 2) return false;
  bool forbidden = false;
  const Locked hold;
  for (World::Capture& each : world().captures)
    if ((each.mode == 0 && capture_mode() == 0) || (each.mode != 2 && each.thread == std::this_thread::get_id()))
      forbidden = each.broken = true;
  return forbidden;
}

bool capturing_in(const Context& context) {
  const Locked hold;
  for (const World::Capture& each : world().captures)
    if (each.stream->context == &context && each.stream->blocking) return true;
  return false;
}

bool captured_in(const Context& context) {
  const Locked hold;
  for (World::Capture& each : world().captures)
    if (each.stream->context == &context && each.stream->blocking) return each.broken = true;
  return false;
}

bool idle(const Stream& stream) {
  if (!stream.operations.empty()) return false;
  if (&stream != &stream.context->legacy) return true;
  for (const Stream* other : world().busy)  // the default stream is done when those are that it waits for
    if (related(stream, *other)) return false;
  return true;
}

bool idle(const Context& context) {
  for (const Stream* stream : world().busy)
    if (stream->context == &context) return false;
  return true;
}

bool done(Stream& stream) {
  const uint64_t last = &stream == &stream.context->legacy ? stream.context->last : stream.last;
  return answer(decide(stream.decision, last, Fault::kEarlyStream, Fault::kLostStream), idle(stream),
                Fault::kEarlyStream);
}

bool done(Context& context) {
  return answer(decide(context.decision, context.last, Fault::kEarlyDevice, Fault::kLostDevice), idle(context),
                Fault::kEarlyDevice);
}

bool done(const Event& event) {
  Record* point = event.record.get();
  if (point == nullptr) return true;
  if (point->lost && !released()) return false;
  if (!point->done && point->early) {
    point->early = false;
    made_fault(Fault::kEarlyEvent, 0);
    // What is early once stays so: the next query does not take it back.
    const_cast<Event&>(event).record = nullptr;
    return true;
  }
  return point->done;
}

bool wait(const Context& context, const std::function<bool()>& finished) {
  for (;;) {
    Time step;
    {
      const Locked hold;
      if (context.destroyed || context.poisoned) return false;
      if (finished()) return true;
      const Next coming = next();
      step = coming.stream != nullptr ? coming.time : kNever;
    }
    const Time time = now();
    if (step != kNever && step < time + 100000) {
      sched_yield();
      continue;
    }
    const timespec pause = {0, static_cast<long>(std::min<Time>(step - time - 60000, 500000))};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace fakegpu
