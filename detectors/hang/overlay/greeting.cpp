// SPDX-License-Identifier: Apache-2.0
//
// Who may speak: both sides prove the job key before anything else is read, and neither gets further by replaying what
// it has overheard, because each side's nonce is in every proof. The cheapest proof comes first, so that somebody
// without the key costs one MAC and no answer.
#include <errno.h>
#include <sys/random.h>

#include <cstddef>
#include <cstring>

#include "detectors/hang/overlay/internal.h"

namespace resil::hang::overlay {

namespace {

bool draw_nonce(uint8_t nonce[16]) {
  ssize_t got;
  do got = getrandom(nonce, 16, GRND_NONBLOCK);
  while (got < 0 && errno == EINTR);
  return got == 16;
}

void sign(const Overlay& o, Transcript transcript, Label label, uint8_t mac[kMacBytes]) {
  transcript.label = label;
  o.key.sign(&transcript, sizeof(transcript), nullptr, 0, mac);
}

bool verify(const Overlay& o, Transcript transcript, Label label, const uint8_t mac[kMacBytes]) {
  transcript.label = label;
  return o.key.verify(&transcript, sizeof(transcript), nullptr, 0, mac);
}

MacKey derive(const Overlay& o, Transcript transcript, Label label) {
  uint8_t key[32];
  transcript.label = label;
  o.key.full(&transcript, sizeof(transcript), nullptr, 0, key);
  const MacKey ready(key, sizeof(key));
  explicit_bzero(key, sizeof(key));
  return ready;
}

void refuse(Overlay& o, uint32_t slot) {
  ++o.counters.refused_key;
  end_connection(o, slot, End::kQuiet);
}

void take_hello(Overlay& o, uint32_t slot, const uint8_t* data) {
  Connection& c = o.connections[slot];
  Hello hello;
  memcpy(&hello, data, sizeof(hello));
  Challenge challenge = {kMagic, kWireVersion, 0, {}, {}};
  // Parents have lower numbers than their children: so the tree has no cycle, whoever moves when.
  const bool may = hello.purpose == Purpose::kAttach ? hello.from > o.own
                   : hello.purpose <= Purpose::kCall ? hello.from != o.own
                                                     : false;
  if (hello.magic != kMagic || hello.version != kWireVersion || hello.to != o.own || !may || hello.from >= o.count ||
      !o.key.verify(&hello, offsetof(Hello, mac), nullptr, 0, hello.mac) || !draw_nonce(challenge.nonce))
    return refuse(o, slot);
  c.transcript = {hello, {}, Label::kChallenge};
  memcpy(c.transcript.nonce, challenge.nonce, sizeof(challenge.nonce));
  c.node = hello.from, c.attach = hello.attach, c.below = 1;
  c.stage = Stage::kAwaitProof;
  sign(o, c.transcript, Label::kChallenge, challenge.mac);
  send_plain(o, slot, &challenge, sizeof(challenge));
}

void take_proof(Overlay& o, uint32_t slot, const uint8_t* data) {
  Connection& c = o.connections[slot];
  const Hello& hello = c.transcript.hello;
  if (hello.purpose == Purpose::kProbe || !verify(o, c.transcript, Label::kProof, data)) return refuse(o, slot);
  if (hello.purpose == Purpose::kCall) {
    const uint32_t parent = hello.attach;
    end_connection(o, slot, End::kQuiet);
    return called(o, parent);
  }
  c.in_key = derive(o, c.transcript, Label::kKeyUp);
  c.out_key = derive(o, c.transcript, Label::kKeyDown);
  child_proved(o, slot);
}

void send_proof(Overlay& o, uint32_t slot) {
  Proof proof;
  sign(o, o.connections[slot].transcript, Label::kProof, proof.mac);
  send_plain(o, slot, &proof, sizeof(proof));
}

void take_challenge(Overlay& o, uint32_t slot, const uint8_t* data) {
  Connection& c = o.connections[slot];
  Challenge challenge;
  memcpy(&challenge, data, sizeof(challenge));
  memcpy(c.transcript.nonce, challenge.nonce, sizeof(challenge.nonce));
  if (challenge.magic != kMagic || challenge.version != kWireVersion ||
      !verify(o, c.transcript, Label::kChallenge, challenge.mac)) {
    ++o.counters.refused_key;
    return end_connection(o, slot, End::kLost);
  }
  if (c.purpose == Purpose::kProbe) {
    probe_ended(o, slot, Reach::kReplied);
    return end_connection(o, slot, End::kQuiet);
  }
  if (c.purpose == Purpose::kCall) {
    const uint32_t generation = c.generation;
    send_proof(o, slot);
    if (c.generation == generation) end_connection(o, slot, End::kQuiet);
    return;
  }
  c.in_key = derive(o, c.transcript, Label::kKeyDown);
  c.out_key = derive(o, c.transcript, Label::kKeyUp);
  c.stage = Stage::kAwaitWelcome;
  send_proof(o, slot);
}

}  // namespace

void send_hello(Overlay& o, uint32_t slot) {
  Connection& c = o.connections[slot];
  const bool attaches = c.purpose == Purpose::kAttach;
  const uint32_t attach = attaches ? ++o.attach : c.purpose == Purpose::kCall ? c.candidate : o.attach;
  Hello hello = {kMagic, kWireVersion, o.standby, c.purpose, o.own, c.node, attach, {}, {}};
  if (!draw_nonce(hello.nonce)) return end_connection(o, slot, End::kLost);
  o.key.sign(&hello, offsetof(Hello, mac), nullptr, 0, hello.mac);
  c.transcript = {hello, {}, Label::kChallenge};
  c.stage = attaches ? Stage::kAwaitChallenge : Stage::kProbeAwaitChallenge;
  send_plain(o, slot, &hello, sizeof(hello));
}

uint32_t take_greeting(Overlay& o, uint32_t slot, const uint8_t* data, uint32_t bytes) {
  switch (o.connections[slot].stage) {
    case Stage::kAwaitHello:
      // Garbage is known by its first word.
      if (bytes >= sizeof(uint32_t) && memcmp(data, &kMagic, sizeof(kMagic)) != 0) return refuse(o, slot), 0;
      if (bytes < sizeof(Hello)) return 0;
      take_hello(o, slot, data);
      return sizeof(Hello);
    case Stage::kAwaitProof:
      if (bytes < sizeof(Proof)) return 0;
      take_proof(o, slot, data);
      return sizeof(Proof);
    case Stage::kAwaitChallenge:
    case Stage::kProbeAwaitChallenge:
      if (bytes < sizeof(Challenge)) return 0;
      take_challenge(o, slot, data);
      return sizeof(Challenge);
    default: return 0;
  }
}

}  // namespace resil::hang::overlay
