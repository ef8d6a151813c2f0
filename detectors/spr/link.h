// SPDX-License-Identifier: Apache-2.0
//
// Messages of a set between its ranks, on the private communicator, and waits for them that have an end: a rank that
// never comes to where its partner waits must not stop the job. On the program's thread, inside MPI (inside_mpi.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "detectors/spr/buffer.h"
#include "shim/runtime/private_tags.h"

namespace resil {
struct Thread;
}

namespace resil::spr {

/// How a wait ended.
enum class Waited : uint8_t { kDone, kFailed, kTimeout };

/// Messages under way, to be waited for together.
class Messages {
 public:
  Messages() = default;
  ~Messages() { release(); }
  Messages(const Messages&) = delete;
  /// Large ones go in pieces. False: MPI refused, or there is no memory; `failed()` from then on.
  bool send(const void* data, size_t bytes, int to, PrivateTag tag) {
    return post(false, const_cast<void*>(data), bytes, to, tag);
  }
  bool receive(void* data, size_t bytes, int from, PrivateTag tag) { return post(true, data, bytes, from, tag); }
  /// Tests what is under way.
  bool over();
  /// The same where `few` of them will never be; pieces() of each.
  bool over_but(uint32_t few);
  static uint32_t pieces(size_t bytes) { return bytes <= kPiece ? 1 : static_cast<uint32_t>((bytes - 1) / kPiece + 1); }
  bool failed() const { return failed_; }
  bool none() const { return first_ == count_; }
  /// Takes receives back that nothing will come for; sends are left to MPI.
  void cancel();
  void release() {
    memory::unmap_array(list_, room_);
    list_ = nullptr;
    room_ = first_ = count_ = 0;
  }

 private:
  static constexpr size_t kPiece = size_t{1} << 30;
  struct One {
    uint64_t request;
    bool receive;
  };
  bool is_over(One& one);
  bool post(bool receive, void* data, size_t bytes, int peer, PrivateTag tag);

  One* list_ = nullptr;
  uint32_t room_ = 0, first_ = 0, count_ = 0;
  bool failed_ = false;
};

/// For how long to wait, and for the sake of whom: a death among them, in a job that goes on after one, ends all waits
/// of the others, too, whose partners may have left already.
struct Timeout {
  double seconds;
  const int* members;  ///< world ranks; null: nobody's death is looked for
  int size;
};

/// Until all are over, `but` for so many, or a timeout is at its end.
Waited wait(Thread& thread, Messages& messages, const Timeout& timeout, uint32_t but = 0);

/// Arrays of words that ranks send each other when neither knows how many will come: each sends to `to` and takes from
/// `from` what that one sends. Both may be the same rank; -1: nobody.
struct Parcel {
  Buffer<char> data;
  size_t bytes;
};
Waited swap_parcels(Thread& thread, const void* data, size_t bytes, int to, int from, Parcel& into, PrivateTag tag,
                    const Timeout& timeout);

/// Which members have named this one among the `count` world ranks they gave, `from` ascending: a crystal router (Fox
/// et al. 1988), log2(members) rounds. `position`: of this rank in `members`.
Waited who_named_me(Thread& thread, const int* members, int size, int position, const int* named, int count,
                    Buffer<int>& from, int* from_count, PrivateTag tag, const Timeout& timeout);

/// Sum over all members, known to all.
Waited sum_over(Thread& thread, const int* members, int size, int position, int64_t* value, PrivateTag tag,
                const Timeout& timeout);

}  // namespace resil::spr
