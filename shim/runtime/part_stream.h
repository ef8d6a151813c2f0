// SPDX-License-Identifier: Apache-2.0
//
// What a rank of the leading part hands to its partners in the others (docs/REPLICAS.md): one row of bytes, cut into
// messages wherever one is full; whole items are taken out of it. The leader waits for nobody unless it asks for room,
// and never for a part that has been dropped. Bytes stay on machines of one kind. One thread at a time, inside a call
// unless it says otherwise.
//
// To each partner few messages are under way at once, and one is until the partner has taken it: libraries keep what is
// not taken in room that all messages of a rank share, so that a partner which takes nothing would stop the leader.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/runtime/mailbox.h"

namespace resil {

struct Thread;

template <uint32_t kPayload, uint32_t kMessages>
class PartStreamOf {
 public:
  /// In MPI_Init, once there are parts. False: no memory, or MPI would not.
  bool begin(PrivateTag tag);

  // The leader's.
  /// For an item of that size. Outside of MPI, too.
  bool has_room(size_t bytes) const;
  /// Waits for it, `patience` ticks at most. False: partners are that far behind.
  bool make_room(Thread& thread, size_t bytes, uint64_t patience);
  /// There must be room. Outside of MPI, too.
  void put(const void* from, size_t bytes);
  /// Nothing is to be sent.
  bool is_empty() const;
  /// Something has been put since send().
  bool has_news() const { return messages_[filling_ % kMessages].bytes != 0; }
  /// Sends what there is, as far as partners take it.
  void send();

  // A follower's.
  /// Takes what has come. `item(at, left)` returns the size of the item there, once it has kept it; 0: it is not whole.
  template <class Item>
  void take(Item item) {
    while (receive()) {
      uint32_t at = 0;
      while (const size_t size = item(bytes_ + at, static_cast<size_t>(byte_count_ - at)))
        at += static_cast<uint32_t>(size);
      keep_from(at);
    }
  }
  /// In place of take(): as many bytes as have come. All of them have been read once has_ended().
  size_t read(void* to, size_t bytes);
  /// Nothing more comes, or could be taken.
  bool has_ended() const { return ended_ || !inbox_.is_open(); }
  void stop() { ended_ = true; }

  // In MPI_Finalize.
  /// The leader's: all is sent, and that nothing follows; waits for it.
  void end(Thread& thread);
  /// A follower's, when has_ended().
  void close();

 private:
  static constexpr uint32_t kPosted = 16;
  static constexpr uint32_t kUnderWay = 12;
  static constexpr int kMostParts = 3;
  struct Message {
    uint32_t bytes, last;  ///< last: nothing follows
    unsigned char payload[kPayload];
  };

  bool is_live(int part) const { return (dropped_ & 1u << part) == 0; }
  void look_for_dropped();
  void push();
  bool receive();
  void keep_from(uint32_t at);

  PrivateTag tag_ = tags::kNobody[0];
  Message* messages_ = nullptr;
  uint64_t requests_[kMostParts][kUnderWay] = {};  ///< by number of the message
  /// Messages by number, modulo kMessages: the oldest that is kept, the one that is being filled.
  uint32_t first_ = 0, filling_ = 0;
  uint32_t taken_[kMostParts] = {}, sent_[kMostParts] = {};  ///< how many, by part
  uint32_t dropped_ = 0;  ///< parts that it sends nothing any more
  mailbox::Inbox<Message> inbox_ = {};
  Message* posted_ = nullptr;
  uint64_t posted_requests_[kPosted] = {};
  bool ended_ = false;
  unsigned char* bytes_ = nullptr;
  uint32_t byte_count_ = 0, byte_room_ = 0, read_ = 0;
};

using PartStream = PartStreamOf<2000, 8192>;  ///< of small items
using FeedStream = PartStreamOf<16000, 1024>;  ///< of data

}  // namespace resil
