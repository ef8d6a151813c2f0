// SPDX-License-Identifier: Apache-2.0
//
// The parts of an overlay, shared by the files of this folder only:
//   overlay.cpp    life
//   step.cpp       a step of the event loop, timers
//   connection.cpp one socket: reading, writing
//   frames.cpp     what was read is proved and handed on
//   greeting.cpp   who may speak
//   parent.cpp     finding a parent, and a better one, and leading when there is none
//   children.cpp   the listener, children that come and go, notices
//   rounds.cpp     questions and answers
//   round_slots.cpp  what they live in
//   orders.cpp     what goes one way
//   probe.cpp      signs of life on a way of their own
//   urgent.cpp     a parent that does not reply while a question waits
// One thread. Whatever may close a connection says so; after it, look at the connection's stage again.
#pragma once

#include "detectors/hang/overlay/buffers.h"
#include "detectors/hang/overlay/overlay.h"
#include "detectors/hang/overlay/wire.h"

namespace resil::hang::overlay {

constexpr uint32_t kRounds = 4;  ///< under way or remembered, at once
constexpr uint32_t kMostAttempts = 16;  ///< to reach a parent, at once
constexpr uint32_t kOrdersRemembered = 16;
constexpr uint32_t kMostProbes = 16;  ///< under way or remembered
constexpr uint32_t kMostCalls = 32;  ///< of other nodes, at once
constexpr double kNever = 1e300;
constexpr uint64_t kListenerEvent = kNoNode, kWakeEvent = kNoNode - 1;  ///< in epoll; generation 0 is no connection's

enum class Stage : uint8_t {
  kFree,
  // accepted
  kAwaitHello,
  kAwaitProof,
  kChild,
  // made by us
  kConnecting,
  kAwaitChallenge,
  kAwaitWelcome,  ///< frames from here on
  kParent,
  kProbing,  ///< made by us, for a sign of life, or to call
  kProbeAwaitChallenge,
};

struct Connection {
  int fd;
  uint32_t generation;  ///< never 0 while in use, never used twice for one slot
  Stage stage;
  bool writes;  ///< epoll waits for room to write
  Purpose purpose;  ///< of a connection made by us
  bool late;  ///< a child that did not answer the last round and said nothing since: not waited for
  uint8_t waiting;  ///< one bit for each round slot that waits for it
  uint32_t node;  ///< the other side's; kNoNode: not known yet
  uint32_t attach;  ///< a child's
  uint32_t candidate;  ///< of an attempt and of the parent: position in the list of candidates. Of a call: the parent
  uint32_t below;  ///< a child's nodes at or below it
  double began, heard, spoke;
  Transcript transcript;
  MacKey in_key, out_key;
  uint64_t in_sequence, out_sequence;
  uint64_t skip;  ///< bytes of a frame that there is no memory for
  Buffer* in;
  Buffer *out, *out_last;
  uint64_t queued;
};

struct Round {
  enum class State : uint8_t { kFree, kOpen, kReporting, kDone };
  State state;
  bool fresh;  ///< asked here since the last step, whose `now` may be old
  uint8_t slot;
  uint16_t kind;
  uint64_t number;
  uint64_t age;  ///< order of beginnings
  double deadline;
  double hold;  ///< not finished before: orphans of a child that just died may come
  uint32_t waiting;  ///< children that have not answered
  uint32_t from, from_generation;  ///< the parent's connection; kNoNode: asked here
  uint32_t request_bytes, answer_bytes;
  uint8_t *request, *answered, *answer;  ///< answered: a bit a node
};

struct Probe {
  uint32_t node, slot;  ///< slot: kNoNode when it is over
  double deadline;
  Probed found;
};

struct NodeNews {
  uint32_t attach;
  NodeState state;
};

}  // namespace resil::hang::overlay

namespace resil::hang {

struct Overlay {
  int epoll, listener, wake;
  const NodeEntry* nodes;
  uint32_t count, own;
  bool standby;
  bool broken;  ///< our descriptors are not ours any more
  Address address;  ///< own
  overlay::MacKey key;
  OverlayHandler handler;
  OverlayOptions options;
  OverlayCounters counters;
  overlay::BufferPool buffers;
  double now, opened, last_turn;

  overlay::Connection* connections;
  uint32_t capacity, high;  ///< slots; slots from `high` on have never been used since
  uint32_t generation, children, strangers;

  // the listener
  double accept_tokens, accept_refilled, accept_paused;  ///< paused until; 0: listening
  // the way up
  uint32_t attach, attempts, position, limit;
  uint32_t parent;  ///< slot; kNoNode: none
  uint32_t silent;  ///< node that was given up as parent because it said nothing, until another is found; kNoNode: none
  uint32_t root;
  bool seeking, leading;  ///< leading: no lower node could be reached, or node 0
  // a question waits (urgent.cpp)
  bool hurried;  ///< the parent was given up for that, and no other is found yet
  bool calls;  ///< those that have the same parent are to be called
  uint64_t ping;  ///< number of the last one
  double pinged, ping_until;  ///< ping_until: the parent is given up then; kNever: no ping is awaited
  uint32_t lost;  ///< node that was given up because it said nothing, until a parent is found; kNoNode: none
  double lost_heard;  ///< when it was heard last
  double parent_since;
  uint32_t short_lived;  ///< parents that did not last a keep-alive, in a row
  double next_attempt;  ///< seeking: next candidate; else: next search for a better one
  // rounds and orders
  overlay::Round rounds[overlay::kRounds];
  uint64_t round_count, round_age, order_count;
  uint64_t orders[overlay::kOrdersRemembered];
  uint32_t order_next;
  uint8_t* last_order;  ///< OrderFrame and payload
  uint32_t last_order_bytes;
  uint16_t last_order_kind;
  double last_order_time;
  overlay::NodeNews* news;  ///< at the root; null until needed
  overlay::Probe probes[overlay::kMostProbes];
  uint32_t probe_next;
};

}  // namespace resil::hang

namespace resil::hang::overlay {

// step.cpp, overlay.cpp
void watch(Overlay& o, uint32_t slot, bool writes);  ///< epoll interest of a connection
uint64_t own_series(const Overlay& o);  ///< high bits of the numbers of rounds and orders

// connection.cpp
/// A free slot for a socket, which it owns from now on; kNoNode: none, and the socket is closed.
uint32_t add_connection(Overlay& o, int fd, Stage stage);
/// Why a connection ends decides what is counted and told.
enum class End : uint8_t { kQuiet, kLost, kSilent, kBadFrame, kLeft, kMoved };
void end_connection(Overlay& o, uint32_t slot, End why);
void read_connection(Overlay& o, uint32_t slot);  ///< may close it, and others
void write_connection(Overlay& o, uint32_t slot);  ///< what is queued; may close it
/// Queues plain bytes of the greeting. May close it.
void send_plain(Overlay& o, uint32_t slot, const void* data, uint32_t bytes);
struct Piece {
  const void* data;
  uint32_t bytes;
};
/// Queues a frame; false: no room, nothing sent (counted). May close the connection.
bool send_frame(Overlay& o, uint32_t slot, FrameType type, uint16_t kind, const Piece* pieces, uint32_t count);
inline bool proved(const Connection& c) {
  return c.stage == Stage::kChild || c.stage == Stage::kAwaitWelcome || c.stage == Stage::kParent;
}
inline bool is_stranger(const Connection& c) { return c.stage == Stage::kAwaitHello || c.stage == Stage::kAwaitProof; }
inline bool is_attempt(const Connection& c) {
  return c.stage == Stage::kConnecting || c.stage == Stage::kAwaitChallenge || c.stage == Stage::kAwaitWelcome;
}

inline bool is_probe(const Connection& c) {
  return c.stage == Stage::kProbing || c.stage == Stage::kProbeAwaitChallenge;
}

// frames.cpp
enum class Taken : uint8_t { kSome, kNeedsMore, kClosed };
/// One message or frame from the front of what was read; kClosed: the connection is gone.
Taken take_next(Overlay& o, uint32_t slot);

// greeting.cpp
void send_hello(Overlay& o, uint32_t slot);  ///< the socket is connected
/// Takes one message of the greeting from `data`; bytes taken, 0: more is needed. May close the connection.
uint32_t take_greeting(Overlay& o, uint32_t slot, const uint8_t* data, uint32_t bytes);

// parent.cpp
void begin_search(Overlay& o, uint32_t limit);
void attempt_ended(Overlay& o);
void attempt_succeeded(Overlay& o, uint32_t slot);
void parent_gone(Overlay& o, uint32_t node, bool left);  ///< left: with a good-bye
void parent_timers(Overlay& o);
double parent_next(const Overlay& o);
void set_root(Overlay& o, uint32_t root);
bool leads(const Overlay& o);
uint32_t depth_of(const Overlay& o, uint32_t node);

// children.cpp
void accept_strangers(Overlay& o);
void accept_timers(Overlay& o);
double accept_next(const Overlay& o);
void child_proved(Overlay& o, uint32_t slot);  ///< may close it
void child_gone(Overlay& o, const Connection& was, End why);
void notice(Overlay& o, uint32_t node, uint32_t attach, NodeState state);
void remember_left(Overlay& o, uint32_t node);  ///< a parent, for when we lead
void tell_left(Overlay& o);  ///< we lead now
bool take_notice(Overlay& o, const uint8_t* data, uint32_t bytes);
void send_alive(Overlay& o, uint32_t slot);
uint32_t nodes_below(const Overlay& o);

// rounds.cpp
bool take_ask(Overlay& o, uint32_t slot, uint16_t kind, const uint8_t* data, uint32_t bytes);
bool take_answer(Overlay& o, uint32_t slot, const uint8_t* data, uint32_t bytes);
void ask_newcomer(Overlay& o, uint32_t slot);
void forget_child(Overlay& o, uint8_t waiting);  ///< it will not answer any more
void round_timers(Overlay& o);
inline uint32_t bitmap_bytes(const Overlay& o) { return (o.count + 7) / 8; }

// round_slots.cpp
/// A slot with memory: a free one, else the longest finished, else (not for our own questions) the oldest. Null: none.
Round* open_round(Overlay& o, bool may_evict);
void rounds_begin_turn(Overlay& o, double now);
double rounds_next(const Overlay& o);
bool round_under_way(const Overlay& o);

// orders.cpp
bool take_order(Overlay& o, uint16_t kind, const uint8_t* data, uint32_t bytes);
bool take_raise(Overlay& o, uint16_t kind, const uint8_t* data, uint32_t bytes);
void order_newcomer(Overlay& o, uint32_t slot);

// urgent.cpp
/// The parent must reply in `timeout` seconds, or is given up. `calls`: others that have this parent are told to look.
void ping_parent(Overlay& o, double timeout, bool calls);
void take_pong(Overlay& o, uint64_t number);
void called(Overlay& o, uint32_t parent);  ///< by a node that has the same parent
void urgent_timers(Overlay& o);
double urgent_next(const Overlay& o);
constexpr double kAskedTimeout = 1, kCalledTimeout = 0.75;  ///< seconds without a reply
constexpr double kHurriedStagger = 0.1;  ///< for who has just given no reply

// probe.cpp
void probe_ended(Overlay& o, uint32_t slot, Reach reach);  ///< before the connection is closed
double probe_deadline(const Overlay& o, uint32_t slot);

}  // namespace resil::hang::overlay
