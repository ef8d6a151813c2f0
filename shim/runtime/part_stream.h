// SPDX-License-Identifier: Apache-2.0
//
// What a rank of the leading part hands to its partners in the others (docs/REPLICAS.md): one row of bytes, cut into
// messages wherever one is full; whole items are taken out of it. The leader waits for nobody unless it asks for room,
// and never for a part that has been dropped. Bytes stay on machines of one kind. One thread at a time, inside a call
// unless it says otherwise.
//
// To each partner few messages are under way at once, and one is until the partner has taken it: libraries keep what is
// not taken in room that all messages of a rank share, so that a partner which takes nothing would stop the leader.
//
// When another part comes to lead, its row goes on where the last one ended: the other follower first hands it what it
// may lack, and is handed what it lacks itself. Messages have numbers, which are the same for all.
//
// The thread of the program may be inside MPI for long, waiting for ranks that wait, by others, for what it has. So a
// helper thread writes that to a file: a follower's when another part comes to lead, the leader's, what partners have
// not taken yet, where somebody waits for long.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/call/parts.h"
#include "shim/runtime/mailbox.h"

namespace resil {

struct Thread;

template <uint32_t kPayload, uint32_t kMessages>
class PartStreamOf {
 public:
  /// In MPI_Init, once there are parts. `name`: a constant, for its file. False: no memory, or MPI would not.
  bool begin(PrivateTag tag, const char* name);
  /// This part leads, and all that others have put in before has been taken out: what follows is this rank's to say.
  bool leads() const { return leads_; }
  /// Another part may have come to lead. After take(); in any wait for the leading part, and in calls.
  void look();
  /// That would do something.
  bool has_to_look() const { return part_that_leads() != lead_ || (!leads_ && lead_ == part_place.part); }

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
  /// Takes back what has been taken.
  void look_what_is_taken() { push(); }

  // A follower's.
  /// Takes what has come. `item(at, left)` returns the size of the item there, once it has kept it; 0: it is not whole.
  template <class Item>
  void take(Item item) {
    while (has_been_handed() || receive()) {
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

  // A helper thread's.
  /// A follower's: another part leads. What this rank has is written down for it, and nothing more taken from those
  /// before. The leader's, where `awaited`: what it has not got rid of, once no more is added.
  void hand_over(int lead, bool awaited);

 private:
  static constexpr uint32_t kPosted = 16;
  static constexpr uint32_t kUnderWay = 12;
  static constexpr int kMostParts = 3;
  enum Last : uint32_t { kMore, kLast, kOpen };  ///< nothing follows; it is still being filled
  struct Message {
    uint32_t bytes, number, all_have;  ///< all_have: that many are with all parts
    Last last;
    int32_t part;  ///< who sends it
    uint32_t begins;  ///< the first of a part that has come to lead: an item that was not whole before never will be
    unsigned char payload[kPayload];
  };

  bool is_live(int part) const { return (dropped_ & 1u << part) == 0; }
  /// Is that part sent anything?
  bool is_sent(int part) const;
  void look_for_dropped();
  void push();
  bool receive();
  bool take_message(const Message& message);
  void keep_from(uint32_t at);
  void begin_message(uint32_t number);
  void close_message(Last last);
  bool write_down(uint32_t first, uint32_t until, const Message* last);
  bool is_handed(int by);
  bool has_been_handed();
  void come_to_lead();

  PrivateTag tag_ = tags::kNobody[0];
  /// The leader's; a follower's where there is another one, who may lack what this one has.
  Message* messages_ = nullptr;
  uint64_t requests_[kMostParts][kUnderWay] = {};  ///< by number of the message
  /// Messages by number, modulo kMessages: the oldest that is kept, the one that is being filled.
  uint32_t first_ = 0, filling_ = 0;
  uint32_t taken_[kMostParts] = {}, sent_[kMostParts] = {};  ///< how many, by part
  uint32_t dropped_ = 0;  ///< parts that it sends nothing any more
  bool unsafe_ = false;  ///< something has been put that not all have taken
  int lead_ = 0;  ///< as far as this stream knows
  bool leads_ = false, begins_ = false;
  /// Of who comes to lead: how many messages the others have, and one; 0: not known.
  uint32_t handed_[kMostParts] = {};
  // A follower's, of what comes by files.
  uint32_t partial_ = 0;  ///< bytes of a message that was still being filled, the next one
  bool fresh_ = false;  ///< bytes have come so
  uint64_t next_look_ = 0;  ///< ticks
  const char* name_ = nullptr;
  std::atomic<int> refused_below_ = 0;  ///< what parts before this one say is not taken any more
  std::atomic<bool> taking_ = false;
  // The helper thread's: to whom it has handed over; what it has seen last, and written.
  int handed_to_ = 0;
  uint32_t seen_[2] = {}, shown_[2] = {};
  mailbox::Inbox<Message> inbox_ = {};
  Message* posted_ = nullptr;
  uint64_t posted_requests_[kPosted] = {};
  bool ended_ = false;
  unsigned char* bytes_ = nullptr;
  uint32_t byte_count_ = 0, byte_room_ = 0, read_ = 0;
};

using PartStream = PartStreamOf<2000, 8192>;  ///< of small items
using FeedStream = PartStreamOf<16000, 1024>;  ///< of data

/// Of all streams that a part may wait for. A helper thread. `awaited`: somebody does, for long.
void part_streams_hand_over(bool awaited);
/// This rank waits for the leading part, for long: it looks into files.
inline constinit std::atomic<bool> part_streams_are_short = false;
/// Removes what that rank has handed over.
void part_streams_forget(int world_rank);

/// All that this rank has put into its streams has been taken by all, as far as it has looked. Any thread.
bool part_streams_are_safe();
/// Somebody waits for that: streams look at each opportunity.
inline constinit std::atomic<bool> part_streams_are_awaited = false;

}  // namespace resil
