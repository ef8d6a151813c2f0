// SPDX-License-Identifier: Apache-2.0
//
// Greetings and frames between nodes. Node 3 of 12 with a parent, a child, somebody who knocks and somebody whom it
// knocked at, all by socket pairs. Frames are signed here, so that what lies behind the MAC is reached; greetings are
// raw, or signed. Inputs: steps of connection, what to do, payload.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>

#include "detectors/hang/overlay/internal.h"
#include "fuzz.h"

namespace fuzz {

namespace {

using namespace resil::hang;
using namespace resil::hang::overlay;

constexpr uint32_t kNodes = 12, kOwn = 3, kSides = 4, kMostAnswer = 4096, kMostRequest = 1024;

struct World {
  Overlay* o;
  uint32_t slots[kSides], generations[kSides];
  int ours[kSides];  ///< the other side's ends
  MacKey keys[kSides];
  uint64_t sequences[kSides];
  uint32_t orders;
};

uint32_t answer(void*, uint16_t kind, const void* request, uint32_t bytes, void* room, uint32_t room_bytes) {
  uint32_t sum = kind;
  for (uint32_t i = 0; i < bytes; ++i) sum += static_cast<const uint8_t*>(request)[i];
  if (kind == 9) return room_bytes + 1;  // no room
  memcpy(room, &sum, sizeof(sum));
  return sizeof(sum);
}

void finished(void*, uint64_t, uint16_t, const void* merged, uint32_t bytes, const uint32_t* unanswered,
              uint32_t count) {
  must(bytes <= kMostAnswer && count <= kNodes, "an answer fits");
  volatile uint32_t sum = 0;
  for (uint32_t i = 0; i < bytes; ++i) sum = sum + static_cast<const uint8_t*>(merged)[i];
  for (uint32_t i = 0; i < count; ++i)
    must(unanswered[i] < kNodes && (i == 0 || unanswered[i] > unanswered[i - 1]), "who is missing is a node");
}

void order(void* self, uint16_t, const void* payload, uint32_t bytes) {
  must(bytes <= kMostRequest, "an order fits");
  volatile uint32_t sum = 0;
  for (uint32_t i = 0; i < bytes; ++i) sum = sum + static_cast<const uint8_t*>(payload)[i];
  ++static_cast<World*>(self)->orders;
}

void raised(void*, uint32_t from, uint16_t, const void*, uint32_t bytes) {
  must(from > kOwn && from < kNodes && bytes <= kMostRequest, "who calls is a node below");
}

void node(void*, uint32_t number, NodeState state) {
  must(number < kNodes && state <= NodeState::kLeft, "who comes and goes is a node");
}

/// Sends what it has got to the connection, reads what came back (nobody waits for it).
void deliver(World& w, uint32_t side, const void* data, size_t bytes) {
  Overlay& o = *w.o;
  const Connection& c = o.connections[w.slots[side]];
  if (c.stage == Stage::kFree || c.generation != w.generations[side]) return;
  [[maybe_unused]] const ssize_t sent = send(w.ours[side], data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  read_connection(o, w.slots[side]);
  char back[8192];
  for (uint32_t i = 0; i < kSides; ++i)
    while (recv(w.ours[i], back, sizeof(back), MSG_DONTWAIT) > 0)
      ;
}

void connect(World& w, uint32_t side, Stage stage, uint32_t number) {
  int pair[2];
  must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0, "sockets can be made");
  w.ours[side] = pair[1];
  w.keys[side] = MacKey("secret", 6);
  Overlay& o = *w.o;
  const uint32_t slot = w.slots[side] = add_connection(o, pair[0], stage);
  must(slot != kNoNode, "a connection has a place");
  Connection& c = o.connections[slot];
  w.generations[side] = c.generation;
  c.node = number;
  c.below = 1;
  c.in_key = c.out_key = w.keys[side];
  if (stage == Stage::kChild) ++o.children;
  if (stage == Stage::kParent) o.parent = slot;
}

void frame(World& w, uint32_t side, Input& in) {
  struct {
    FrameHeader header;
    uint8_t rest[2048];
  } out;
  const auto type = in.get<uint8_t>();
  const uint32_t bytes = in.get<uint16_t>() % 1500;
  out.header = {bytes, static_cast<FrameType>(type % 9), 0, in.get<uint8_t>(), ++w.sequences[side]};
  const auto damage = in.get<uint8_t>();
  memset(out.rest, 0, sizeof(out.rest));
  in.take(out.rest, bytes);
  if (damage == 1) out.header.bytes = in.get<uint32_t>();
  if (damage == 2) out.header.sequence = in.get<uint64_t>();
  const size_t whole = sizeof(out.header) + bytes;
  auto* raw = reinterpret_cast<uint8_t*>(&out);
  w.keys[side].sign(raw, whole, nullptr, 0, raw + whole);
  if (damage == 3) raw[whole] ^= 1;
  const size_t cut = damage == 4 ? in.get<uint16_t>() % (whole + kMacBytes) : 0;
  deliver(w, side, raw, whole + kMacBytes - cut);
}

void greeting(World& w, uint32_t side, Input& in) {
  uint8_t raw[80] = {};
  const auto how = in.get<uint8_t>();
  const Connection& c = w.o->connections[w.slots[side]];
  const MacKey& key = w.o->key;
  size_t bytes = in.take(raw, how % sizeof(raw));
  if ((how & 0x80) != 0 && c.stage == Stage::kAwaitHello) {
    Hello hello = {kMagic, kWireVersion, 0, static_cast<Purpose>(raw[20] % 3), raw[0], raw[1], raw[2], {}, {}};
    memcpy(hello.nonce, raw + 3, sizeof(hello.nonce));
    key.sign(&hello, offsetof(Hello, mac), nullptr, 0, hello.mac);
    memcpy(raw, &hello, bytes = sizeof(hello));
  } else if ((how & 0x80) != 0 && c.stage == Stage::kAwaitProof) {
    Transcript transcript = c.transcript;
    transcript.label = Label::kProof;
    key.sign(&transcript, sizeof(transcript), nullptr, 0, raw);
    bytes = sizeof(Proof);
  } else if ((how & 0x80) != 0 && (c.stage == Stage::kAwaitChallenge || c.stage == Stage::kProbeAwaitChallenge)) {
    Transcript transcript = c.transcript;
    memcpy(transcript.nonce, raw, sizeof(transcript.nonce));
    transcript.label = Label::kChallenge;
    Challenge challenge = {kMagic, kWireVersion, 0, {}, {}};
    memcpy(challenge.nonce, transcript.nonce, sizeof(challenge.nonce));
    key.sign(&transcript, sizeof(transcript), nullptr, 0, challenge.mac);
    memcpy(raw, &challenge, bytes = sizeof(challenge));
  }
  deliver(w, side, raw, bytes);
}

}  // namespace

void overlay(const uint8_t* data, size_t size) {
  Input in(data, size);
  static NodeEntry nodes[kNodes];
  for (uint32_t i = 0; i < kNodes; ++i)
    nodes[i] = {{.ip = {127, 0, 0, 1}, .port = 9, .family = 4, .reserved = {}}, {}, i, 1, {}};
  World w = {};
  OverlayOptions options = {};
  options.fan_out = 2;
  options.most_children = options.most_strangers = 4;
  options.most_request = kMostRequest;
  options.most_answer = kMostAnswer;
  options.most_memory = 1 << 20;
  const auto shape = in.get<uint8_t>();
  const bool root = shape % 2 != 0, probes = (shape & 2) != 0;
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  must(listener >= 0, "a socket can be made");
  const uint8_t key[16] = {1, 2, 3};
  w.o = overlay_open(listener, nodes, kNodes, kOwn, false, key, {&w, answer, nullptr, finished, order, raised, node},
                     options);
  must(w.o != nullptr, "an overlay can be opened");
  Overlay& o = *w.o;
  o.now = o.opened = o.last_turn = 100;
  o.next_attempt = kNever;
  o.leading = root;
  o.root = root ? kOwn : 0;
  connect(w, 0, root ? Stage::kAwaitHello : Stage::kParent, 1);
  connect(w, 1, Stage::kChild, 7);
  connect(w, 2, Stage::kAwaitHello, kNoNode);
  connect(w, 3, probes ? Stage::kProbeAwaitChallenge : Stage::kAwaitChallenge, 1);
  if (probes) o.probes[0] = {1, w.slots[3], o.now + 1, {Reach::kAsking, o.now, 0}};
  o.connections[w.slots[3]].transcript.hello = {
      kMagic, kWireVersion, 0, probes ? Purpose::kProbe : Purpose::kAttach, kOwn, 1, 1, {}, {}};
  for (int step = 0; step < 24 && in.left() != 0; ++step) {
    const auto what = in.get<uint8_t>();
    const uint32_t side = what % kSides;
    Connection& c = o.connections[w.slots[side]];
    if ((what & 0x80) != 0) {
      o.now += (what >> 2) % 16 * 0.05;
      round_timers(o);
    } else if ((what & 0x40) != 0) {
      const uint32_t number = what;
      overlay_ask(&o, static_cast<uint16_t>(in.get<uint8_t>()), &number, sizeof(number), o.now + 3);
    } else if (c.stage != Stage::kFree && c.generation == w.generations[side] && !proved(c)) {
      greeting(w, side, in);
      if (c.stage != Stage::kFree && c.generation == w.generations[side] && proved(c)) {
        // Both sides derive their keys from the greeting; here one that is known.
        c.in_key = c.out_key = w.keys[side];
        w.sequences[side] = c.in_sequence;
      }
    } else {
      frame(w, side, in);
    }
    const OverlayState state = overlay_state(&o);
    must(state.reachable <= kNodes && state.children <= o.options.most_children, "counts are within bounds");
    must(o.buffers.most_used() <= options.most_memory + (1 << 16), "memory is bounded");
  }
  must(w.orders <= 24, "an order is obeyed once");
  o.now += 100;
  round_timers(o);
  overlay_drop(w.o);
  for (const int fd : w.ours) close(fd);
}

}  // namespace fuzz
