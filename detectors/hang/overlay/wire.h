// SPDX-License-Identifier: Apache-2.0
//
// What goes over the wire. Integers as the machine has them: all nodes of a job run one program; the magic number tells
// when they do not.
//
// Greeting, in the clear, each message with a MAC by the job key:
//   who connects  Hello      node numbers of both sides, nonce
//   who accepts   Challenge  nonce; the MAC covers Hello and Challenge, so that who accepts has proved the key
//   who connects  Proof      MAC over both under another label
// A probe ends with the challenge, a call with the proof. Else both sides derive one key for each direction from the
// job key and both nonces. From here on frames only: header, payload, MAC over both; the header's sequence number
// counts from 1 in each direction, so that nothing can be replayed, left out or reordered. Who accepts sends the first
// frame: the welcome.
#pragma once

#include <cstdint>

#include "detectors/hang/overlay/mac.h"

namespace resil::hang::overlay {

constexpr uint32_t kMagic = 0x4f4c5352;  // "RSLO"
constexpr uint16_t kWireVersion = 3;

/// Why somebody knocks: to be a child; for the challenge alone, which proves that this node lives and is reached; to
/// call a node that has the same parent, which does not reply, while a question waits.
enum class Purpose : uint8_t { kAttach, kProbe, kCall };

struct Hello {
  uint32_t magic;
  uint16_t version;
  uint8_t standby;
  Purpose purpose;
  uint32_t from, to;  ///< node numbers
  uint32_t attach;  ///< how often `from` has tried to attach; tells old news from new. A standby counts from 2^31.
                    ///< Of a call: the parent
  uint8_t nonce[16];
  uint8_t mac[kMacBytes];  ///< over what precedes it
};

struct Challenge {
  uint32_t magic;
  uint16_t version, zero;
  uint8_t nonce[16];
  uint8_t mac[kMacBytes];  ///< over a Transcript
};

struct Proof {
  uint8_t mac[kMacBytes];  ///< over a Transcript
};

enum class Label : uint32_t { kChallenge = 1, kProof, kKeyUp, kKeyDown };

/// What a MAC of the greeting is made of, and the session keys.
struct Transcript {
  Hello hello;
  uint8_t nonce[16];
  Label label;
};

enum class FrameType : uint8_t { kAlive = 1, kAsk, kAnswer, kOrder, kRaise, kNotice, kBye, kPing, kPong };

struct FrameHeader {
  uint32_t bytes;  ///< of the payload
  FrameType type;
  uint8_t zero;
  uint16_t kind;  ///< the owner's; ask, answer, order, raise
  uint64_t sequence;
};
static_assert(sizeof(Hello) == 52 && sizeof(Challenge) == 40 && sizeof(FrameHeader) == 16);

struct AliveFrame {
  uint32_t root;  ///< downwards: whom the sender follows
  uint32_t below;  ///< upwards: nodes at or below the sender
};

struct AskFrame {  // downwards; the request follows
  uint64_t round;
  uint32_t milliseconds;  ///< when the answer must be back
  uint32_t zero;
};

struct AnswerFrame {  // upwards; bitmap of ceil(bits / 8) bytes and merged answer follow
  uint64_t round;
  uint32_t first;  ///< node of bit 0; a multiple of 8
  uint32_t bits;  ///< one for each node that has answered
};

struct OrderFrame {  // downwards; the payload follows
  uint64_t number;
};

struct RaiseFrame {  // upwards; the payload follows
  uint32_t from, zero;
};

struct NoticeFrame {  // upwards
  uint32_t node, attach, state;
};

struct PingFrame {  // upwards; comes back as kPong at once
  uint64_t number;
};

struct ByeFrame {
  uint32_t moved;  ///< 1: the sender found a better parent and lives on
};

}  // namespace resil::hang::overlay
