// SPDX-License-Identifier: Apache-2.0
//
// The overlay joins the helper threads of all nodes, one leader a node, by a tree of TCP connections that works while
// every main thread is wedged inside MPI. The root asks, every node answers, answers are merged on the way up; what did
// not answer in time is named. Nodes re-attach by themselves when a leader dies. docs/HANGS.md, section "Overlay", says
// what goes over the wire.
//
// Context: every function but overlay_wake is called by one thread at a time, the node's helper thread; overlay_listen
// by the application's thread inside MPI_Init. No thread, no MPI call, no signal, nothing that blocks longer than asked
// for; memory comes from mmap and is bounded by OverlayOptions. Handler functions are called inside overlay_step (and
// `answer` inside overlay_ask); they may call overlay_ask, overlay_order and overlay_raise, never overlay_close.
#pragma once

#include <cstdint>

namespace resil::hang {

/// Where a helper thread listens. Equal bytes mean equal addresses; may be sent from rank to rank as it is.
struct Address {
  uint8_t ip[16];  ///< network order; IPv4 in the first four bytes, the others 0
  uint16_t port;  ///< host order
  uint8_t family;  ///< 0: none, 4 or 6
  uint8_t reserved[5];  ///< 0
};

constexpr uint32_t kHostText = 32;

/// One for each node, equal on all nodes; the index in the table is the node's number in the tree.
struct NodeEntry {
  Address leader, standby;  ///< standby: family 0 where the node has a single rank
  uint32_t first_rank, ranks;
  char host[kHostText];  ///< its name, cut at the end; "" not known
  uint64_t network;  ///< equal on nodes below one switch; 0: not known
};

constexpr uint32_t kNoNode = 0xffffffff;
constexpr uint32_t kFanOut = 32;  ///< children of a node in the tree, unless OverlayOptions says otherwise

enum class NodeState : uint8_t { kUnknown, kUp, kLost, kLeft };  ///< left: said good-bye (MPI_Finalize)

/// What the owner of an overlay does. Null functions are skipped.
struct OverlayHandler {
  void* self;
  /// This node's own part of a round: writes at most `room_bytes`, returns how many; more than that: none, and the node
  /// counts as unanswered. What it writes has the form that `merge` takes on both sides.
  uint32_t (*answer)(void* self, uint16_t kind, const void* request, uint32_t bytes, void* room, uint32_t room_bytes);
  /// Merges `incoming` (the answer of another node or subtree) into `accumulated`, whose length it updates; false: no
  /// room, and those nodes count as unanswered. Null: appended.
  bool (*merge)(void* self, uint16_t kind, void* accumulated, uint32_t* bytes, uint32_t room, const void* incoming,
                uint32_t incoming_bytes);
  /// At the root: the round is over. The lists are valid during the call only; `unanswered` ascending.
  void (*finished)(void* self, uint64_t round, uint16_t kind, const void* merged, uint32_t bytes,
                   const uint32_t* unanswered, uint32_t count);
  /// On every node, the root's own included: a one-way order of the root (for example abort). Once for each order.
  void (*order)(void* self, uint16_t kind, const void* payload, uint32_t bytes);
  /// At the root: some node called overlay_raise.
  void (*raised)(void* self, uint32_t from_node, uint16_t kind, const void* payload, uint32_t bytes);
  /// At the root: a node came or went, told as soon as its parent notices, also between rounds. Who begins to lead
  /// because its parent said good-bye hears of that first.
  void (*node)(void* self, uint32_t node, NodeState state);
};

/// Zero means the default in brackets. Seconds and bytes.
struct OverlayOptions {
  uint32_t fan_out;  ///< children of a node in the tree [kFanOut]
  uint32_t most_children;  ///< with orphans of dead leaders; more are refused and go elsewhere [fan_out + 128]
  uint32_t most_strangers;  ///< connections that have not proved the key yet [32]
  uint32_t most_request;  ///< payload of a question, an order, a raise [64 KiB]
  uint32_t most_answer;  ///< merged answer of a whole job [4 MiB]
  uint64_t most_memory;  ///< all buffers together [64 MiB]; address space only until it is used
  double keep_alive;  ///< a frame at least this often on every connection [1]
  double silence;  ///< a connection that said nothing this long is given up [5]
  double leg;  ///< how long a leaf may take to answer [1]
  double leg_margin;  ///< more for each level above [0.25]
  double handshake;  ///< deadline of a connection that has not proved the key [2]
  double settle;  ///< no node but 0 leads before it has been open this long [10]
  double stagger;  ///< a candidate for parent has this long before the next is tried beside it [0.5]
  double probe;  ///< a node that is not where it belongs looks for it so often [10; a root above 0: 1]
};

/// For the report. Nothing wraps in a job's life.
struct OverlayCounters {
  uint64_t refused_address;  ///< connections from addresses that are not in the table
  uint64_t refused_full;  ///< evicted or refused: too many had not proved the key, or children were too many
  uint64_t refused_key;  ///< wrong key, wrong node, malformed greeting
  uint64_t refused_silent;  ///< said nothing, or too little, until the deadline
  uint64_t bad_frames;  ///< on a proved connection: wrong MAC or sequence, too long, malformed; closed
  uint64_t probes, probes_answered;  ///< of other nodes, from here; with a reply
  uint64_t accept_errors;  ///< out of descriptors or memory; goes on
  uint64_t connect_errors;  ///< attempts to reach a parent that failed
  uint64_t parents;  ///< times a parent was found; the first is no reconnection
  uint64_t children_lost;  ///< connections of children that ended without good-bye
  uint64_t silences;  ///< connections given up because of `silence`
  uint64_t overflows;  ///< answers or frames dropped for lack of room; doubled answers dropped
  uint64_t rounds, rounds_partial;  ///< finished here as root; of these with nodes that did not answer
  uint64_t bytes_in, bytes_out, frames_in, frames_out;
  uint64_t most_memory_used;
};

/// What a node knows about its place.
struct OverlayState {
  uint32_t parent;  ///< kNoNode: none
  uint32_t root;  ///< whose questions reach this node; kNoNode: not known at the moment
  bool is_root;  ///< node 0, or the lowest node that can be reached when node 0 is gone
  uint32_t reachable;  ///< nodes at or below this one, as last told by the children
  uint32_t children, strangers;
  uint32_t lost;  ///< node that was given up as parent because it said nothing, and no other is found; kNoNode: none
  double lost_heard;  ///< when it was heard last, on the clock of overlay_step
};

/// What a probe found of another node, on a way of its own: not that of the tree.
enum class Reach : uint8_t {
  kUnknown,
  kAsking,
  kReplied,  ///< its helper, with the key
  kHost,  ///< its host took or refused the connection; its helper gave no reply
  kNothing,  ///< nothing came back: the host, or the way there and back
};

struct Probed {
  Reach reach;
  double began;  ///< on the clock of overlay_step
  double seconds;  ///< until the reply
};

struct Overlay;

struct PortRange {
  uint16_t first, last;  ///< 0, 0: the kernel chooses
};

/// A listening socket on the first free port of the range, nonblocking, close-on-exec; -1 and errno on failure
/// (EADDRINUSE: all taken). Never 0.0.0.0. `same_host`: all nodes are this host: loopback. Else `interface` (name of
/// an interface, or an address of this host) if not null and there is such; else the address that the kernel would
/// use to reach the default route; without one, that of the first interface that is up and no loopback, point-to-point
/// or container bridge; else loopback. IPv4 first. No name is looked up (a host's own name often resolves to
/// 127.0.1.1). Allocates inside libc (getifaddrs).
int overlay_listen(Address* own, bool same_host, const char* interface = nullptr, PortRange ports = {0, 0});

/// `nodes` must outlive the overlay. Takes the listener over, whatever the result. `standby`: this process is the
/// standby of node `own` and its leader is gone; who of the two acts is decided on the node: a leader that wakes up to
/// find itself replaced closes its overlay. Null: no memory or descriptors, or `own` is not in the table (errno).
Overlay* overlay_open(int listener, const NodeEntry* nodes, uint32_t count, uint32_t own, bool standby,
                      const uint8_t key[16], const OverlayHandler& handler, const OverlayOptions& options);

/// One step: waits at most `timeout_ms` for traffic, a timer or a wake-up, and deals with it. `now`: seconds of a
/// monotonic clock at the call; time spent waiting is added inside. Nothing else is ever taken as time.
void overlay_step(Overlay* overlay, double now, int timeout_ms);

/// Root only: asks all nodes. `deadline`: on the clock of overlay_step; the round ends then at the latest, usually
/// after leg + leg_margin a level. The number of the round, or 0: not root, too long, no memory, four rounds under way.
uint64_t overlay_ask(Overlay* overlay, uint16_t kind, const void* payload, uint32_t bytes, double deadline);

/// Root only: one way to all nodes that can be reached now, and to those that attach within the next 10 s. The
/// handler's `order` is called here at once. False: not root, too long, or no memory.
bool overlay_order(Overlay* overlay, uint16_t kind, const void* payload, uint32_t bytes);

/// Any node: tells the root (for example that the user asks). Each node on the way awaits a reply of its parent for a
/// second, and goes another way without one. False: there is no way to a root now.
bool overlay_raise(Overlay* overlay, uint16_t kind, const void* payload, uint32_t bytes);

/// Any node: asks another node for a sign of life, directly. What comes of it, overlay_probed tells, after `timeout`
/// seconds at the latest. A probe of that node that is under way goes on. False: no such node, too many, or no
/// descriptors.
bool overlay_probe(Overlay* overlay, uint32_t node, double timeout);
/// The last probe of that node; kUnknown: none, or forgotten.
Probed overlay_probed(const Overlay* overlay, uint32_t node);

OverlayState overlay_state(const Overlay* overlay);
const OverlayCounters& overlay_counters(const Overlay* overlay);

/// What poll(2) may wait for instead of overlay_step: readable when overlay_step has something to do (timers excepted).
int overlay_descriptor(const Overlay* overlay);

/// Makes a waiting overlay_step return. Any thread, async-signal-safe.
void overlay_wake(const Overlay* overlay);

/// Everything that is queued has been handed to the kernel. For an order that must be out before the process ends:
/// step until this holds and the children have left (overlay_state), or for a second, then overlay_close; a process
/// that ends with something unread resets its connections, and what is on its way may be lost.
bool overlay_flushed(const Overlay* overlay);

/// Says good-bye, never waits, closes everything, gives the memory back.
void overlay_close(Overlay* overlay);

/// After fork in the child: closes the descriptors without a word to anybody.
void overlay_drop(Overlay* overlay);

}  // namespace resil::hang
