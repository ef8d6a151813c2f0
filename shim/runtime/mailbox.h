// SPDX-License-Identifier: Apache-2.0
//
// Resil's own messages, on the private communicator: a duplicate of MPI_COMM_WORLD that is there if all ranks are known
// to be preloaded. Nothing else sends or receives there (tests/golden/include_rule_test.py). Whose message one is says
// its tag (private_tags.h); waiting for one is a wait like others (progress.h). Application's threads, inside a call of
// the application or in MPI_Init and MPI_Finalize; errors are returned, never raised.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/abi/backend.h"
#include "shim/call/attach.h"
#include "shim/ring/ring_format.h"
#include "shim/runtime/private_tags.h"

namespace resil::mailbox {

inline bool is_open() { return private_comm() != 0; }

/// Ranks are world ranks. The data is MPI's until the request is complete. False: MPI would not.
inline bool send(const void* data, size_t bytes, int rank, PrivateTag tag, uint64_t* request) {
  return backend->send(private_comm(), data, bytes, rank, tag, request);
}
/// The same, but the request is complete only when the receiver has taken the message. While parts are there.
inline bool send_until_taken(const void* data, size_t bytes, int rank, PrivateTag tag, uint64_t* request) {
  return backend->parts->send(private_comm(), data, bytes, rank, tag, request);
}
inline bool receive(void* data, size_t bytes, int rank, PrivateTag tag, uint64_t* request) {
  return backend->receive(private_comm(), data, bytes, rank, tag, request);
}
/// Has a message of any size come from there? It is this thread's alone then: take() gets it.
inline bool probe(int rank, PrivateTag tag, uint64_t* message, uint64_t* bytes) {
  return backend->collectives->probe(private_comm(), rank, tag, message, bytes);
}
inline bool take(uint64_t message, void* data, uint64_t bytes) {
  return backend->collectives->take(message, data, bytes);
}

/// Is the operation over? In a job that goes on after the death of a rank, one that failed is over, too: what it was to
/// write is not known then. Only once an inbox has been opened.
bool is_over(uint64_t* request, bool* failed);
void look_whether_job_survives();
/// World ranks that are known to be dead; receives from any rank go on from then on. -1: not known.
inline int acknowledge_dead(int capacity, int* ranks) {
  return backend->failures->acknowledge_dead(private_comm(), capacity, ranks);
}

/// A receive that nothing will ever match, in place of the application's; the code that MPI returns.
int post_nobody(void* buffer, uint64_t type, uint64_t* request);
bool receive_from_nobody(const Event& event, int* result);

/// Data whose layout only the library knows, copied by a message to this rank itself; without a private communicator on
/// MPI_COMM_SELF. Each has a tag of its own, so that no other thread's can be taken for it. False: MPI would not.
bool copy(const void* from, int64_t from_count, uint64_t from_type, void* to, int64_t to_count, uint64_t to_type);

/// Lets the library make progress, whatever it has pending.
inline void let_mpi_progress() { backend->collectives->progress(private_comm()); }

// Collective, in MPI_Init only.
inline bool agree(bool mine) { return backend->collectives->agree(private_comm(), mine); }
inline bool allgather(const void* own, int bytes, void* all) {
  return backend->collectives->allgather(private_comm(), own, bytes, all) == 0;
}

/// Receives for messages of one kind, from any rank, posted all the time. They are taken in turn, which is the order of
/// each sender. One thread at a time.
template <class Message>
class Inbox {
 public:
  /// `messages` and `requests` have room for `count`. False: MPI would not post them all.
  bool open(PrivateTag tag, Message* messages, uint64_t* requests, uint32_t count) {
    tag_ = tag;
    messages_ = messages;
    requests_ = requests;
    count_ = next_ = 0;
    look_whether_job_survives();
    while (count_ < count && post(count_)) ++count_;
    return is_open_ = count_ == count;
  }
  /// Has the next message come? `failed`: as is_over().
  bool has_come(bool* failed) { return is_over(&requests_[next_], failed); }
  /// That message, until again().
  Message& message() { return messages_[next_]; }
  /// It has been read: the next one's turn. False: MPI would not post its receive again; the inbox is closed.
  bool again() {
    is_open_ = post(next_);
    next_ = (next_ + 1) % count_;
    return is_open_;
  }
  /// Takes the receives back.
  void close() {
    is_open_ = false;
    for (uint32_t i = 0; i < count_; ++i) backend->messages->cancel(&requests_[i]);
    count_ = 0;
  }
  bool is_open() const { return is_open_; }

 private:
  bool post(uint32_t i) { return receive(&messages_[i], sizeof(Message), ring::kAnySource, tag_, &requests_[i]); }

  PrivateTag tag_ = tags::kNobody[0];
  Message* messages_ = nullptr;
  uint64_t* requests_ = nullptr;
  uint32_t count_ = 0, next_ = 0;
  bool is_open_ = false;
};

}  // namespace resil::mailbox
