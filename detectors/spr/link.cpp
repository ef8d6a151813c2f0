// SPDX-License-Identifier: Apache-2.0
//
// See link.h.

#include "detectors/spr/link.h"

#include <cstring>

#include "shim/abi/backend.h"
#include "shim/base/clock.h"
#include "shim/call/thread.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/progress.h"

namespace resil::spr {

bool Messages::post(bool receive, void* data, size_t bytes, int peer, PrivateTag tag) {
  if (failed_) return false;
  if (none()) first_ = count_ = 0;
  char* at = static_cast<char*>(data);
  do {
    const size_t piece = bytes < kPiece ? bytes : kPiece;
    uint64_t request;
    if (!memory::grow_array(&list_, &room_, count_ + 1, 64u) ||
        !(receive ? mailbox::receive(at, piece, peer, tag, &request) : mailbox::send(at, piece, peer, tag, &request))) {
      failed_ = true;
      return false;
    }
    list_[count_++] = {request, receive};
    at += piece;
    bytes -= piece;
  } while (bytes > 0);
  return true;
}

bool Messages::is_over(One& one) {
  bool failed = false;
  const bool over =
      backend->failures != nullptr ? backend->failures->is_over(&one.request, &failed) : backend->test(&one.request);
  if (failed) failed_ = true;
  return over || failed;
}

bool Messages::over() {
  while (first_ < count_ && is_over(list_[first_])) ++first_;
  return none();
}

bool Messages::over_but(uint32_t few) {
  uint32_t left = 0;
  for (uint32_t i = first_; i < count_; ++i)
    if (!is_over(list_[i])) list_[first_ + left++] = list_[i];
  count_ = first_ + left;
  return left <= few;
}

void Messages::cancel() {
  for (; first_ < count_; ++first_)
    if (list_[first_].receive) backend->messages->cancel(&list_[first_].request);
}

namespace {

constexpr int kMostDead = 256;

int position_of(const int* members, int size, int rank) {
  if (rank >= 0 && rank < size && members[rank] == rank) return rank;  // all of them
  for (int i = 0; i < size; ++i)
    if (members[i] == rank) return i;
  return -1;
}

bool somebody_died(const Timeout& timeout) {
  if (timeout.members == nullptr || backend->failures == nullptr || !backend->failures->survives()) return false;
  int dead[kMostDead];
  const int count = mailbox::acknowledge_dead(kMostDead, dead);
  for (int i = 0; i < count; ++i)
    if (position_of(timeout.members, timeout.size, dead[i]) >= 0) return true;
  return false;
}

}  // namespace

Waited wait(Thread& thread, Messages& messages, const Timeout& timeout, uint32_t but) {
  const uint64_t begin = monotonic_ns();
  const auto limit = static_cast<uint64_t>(timeout.seconds * 1e9);
  for (Wait wait(thread, kForOthers); !(but == 0 ? messages.over() : messages.over_but(but)); wait.pause()) {
    if (wait.rounds() % 256 != 255) continue;
    if (monotonic_ns() - begin > limit) return Waited::kTimeout;
    if (somebody_died(timeout)) return Waited::kFailed;
  }
  return messages.failed() ? Waited::kFailed : Waited::kDone;
}

Waited swap_parcels(Thread& thread, const void* data, size_t bytes, int to, int from, Parcel& into, PrivateTag tag,
                    const Timeout& timeout) {
  uint64_t size = bytes, coming = 0;
  Messages heads, bodies;
  into.bytes = 0;
  if (from >= 0) heads.receive(&coming, sizeof(coming), from, tag);
  if (to >= 0) heads.send(&size, sizeof(size), to, tag);
  Waited waited = wait(thread, heads, timeout);
  if (waited != Waited::kDone) {
    heads.cancel();
    return waited;
  }
  if (coming != 0 && !into.data.reserve(coming)) return Waited::kFailed;
  if (coming != 0) bodies.receive(into.data.data(), coming, from, tag);
  if (to >= 0 && size != 0) bodies.send(data, bytes, to, tag);
  into.bytes = coming;
  waited = wait(thread, bodies, timeout);
  if (waited != Waited::kDone) into.data.abandon();
  return waited;
}

namespace {

/// A name under way: who is named, and by whom; positions among the members.
struct Named {
  int32_t to, by;
};

struct Bag {
  Buffer<Named> items;
  size_t count;

  bool add(const Named* more, size_t of_them) {
    if ((count + of_them) * sizeof(Named) > items.bytes()) {
      Buffer<Named> larger;
      if (!larger.reserve((count + of_them) * 2)) return false;
      if (count != 0) memcpy(static_cast<void*>(larger.data()), items.data(), count * sizeof(Named));
      items.swap(larger);
    }
    if (of_them != 0) memcpy(static_cast<void*>(items.data() + count), more, of_them * sizeof(Named));
    count += of_them;
    return true;
  }
  /// Those for [low, high) go to the end; how many stay.
  size_t split(int low, int high) {
    size_t stay = 0;
    for (size_t i = 0; i < count; ++i) {
      const Named item = items[i];
      if (item.to >= low && item.to < high) continue;
      items[i] = items[stay];
      items[stay++] = item;
    }
    return stay;
  }
};

Waited route(Thread& thread, const int* members, int size, int position, const int* named, int count, Bag& bag,
             PrivateTag tag, const Timeout& timeout) {
  Parcel parcel = {};
  for (int i = 0; i < count; ++i) {
    const Named one = {position_of(members, size, named[i]), position};
    if (one.to >= 0 && !bag.add(&one, 1)) return Waited::kFailed;
  }
  // Each round halves the group that this rank belongs to: what is for the other half goes to its mirror image there.
  for (int low = 0, many = size; many > 1;) {
    const int half = (many + 1) / 2, middle = low + half;
    const bool upper = position >= middle;
    int partner = low + many - 1 - (position - low), more = -1;
    bool receives = true;
    if (partner == position) {  // the middle of an odd group has no image: it goes to the first of the upper half
      partner = middle;
      receives = false;
    } else if (many % 2 == 1 && position == middle) {
      more = middle - 1;
    }
    const size_t stay = upper ? bag.split(low, middle) : bag.split(middle, low + many);
    Waited waited = swap_parcels(thread, bag.items.data() + stay, (bag.count - stay) * sizeof(Named), members[partner],
                                 receives ? members[partner] : -1, parcel, tag, timeout);
    if (waited != Waited::kDone) return waited;
    bag.count = stay;
    if (!bag.add(reinterpret_cast<const Named*>(parcel.data.data()), parcel.bytes / sizeof(Named)))
      return Waited::kFailed;
    if (more >= 0) {
      waited = swap_parcels(thread, nullptr, 0, -1, members[more], parcel, tag, timeout);
      if (waited != Waited::kDone) return waited;
      if (!bag.add(reinterpret_cast<const Named*>(parcel.data.data()), parcel.bytes / sizeof(Named)))
        return Waited::kFailed;
    }
    low = upper ? middle : low;
    many = upper ? many - half : half;
  }
  return Waited::kDone;
}

}  // namespace

Waited who_named_me(Thread& thread, const int* members, int size, int position, const int* named, int count,
                    Buffer<int>& from, int* from_count, PrivateTag tag, const Timeout& timeout) {
  Bag bag = {};
  const Waited waited = route(thread, members, size, position, named, count, bag, tag, timeout);
  if (waited != Waited::kDone) {
    bag.items.abandon();
    return waited;
  }
  if (!from.reserve(bag.count)) return Waited::kFailed;
  *from_count = 0;
  for (size_t i = 0; i < bag.count; ++i)
    if (bag.items[i].by != position) from[static_cast<size_t>((*from_count)++)] = members[bag.items[i].by];
  return Waited::kDone;
}
namespace {

Waited wait_or_cancel(Thread& thread, Messages& messages, const Timeout& timeout) {
  const Waited waited = wait(thread, messages, timeout);
  if (waited != Waited::kDone) messages.cancel();
  return waited;
}

}  // namespace

Waited sum_over(Thread& thread, const int* members, int size, int position, int64_t* value, PrivateTag tag,
                const Timeout& timeout) {
  int mask = 1;
  Messages messages;
  int64_t other = 0;
  for (; mask < size && (position & mask) == 0; mask <<= 1) {
    if (position + mask >= size) continue;
    messages.receive(&other, sizeof(other), members[position + mask], tag);
    if (const Waited waited = wait_or_cancel(thread, messages, timeout); waited != Waited::kDone) return waited;
    *value += other;
  }
  if (position != 0) {
    messages.send(value, sizeof(*value), members[position - mask], tag);
    if (const Waited waited = wait_or_cancel(thread, messages, timeout); waited != Waited::kDone) return waited;
    messages.receive(value, sizeof(*value), members[position - mask], tag);
    if (const Waited waited = wait_or_cancel(thread, messages, timeout); waited != Waited::kDone) return waited;
  }
  for (mask >>= 1; mask > 0; mask >>= 1)
    if (position + mask < size) messages.send(value, sizeof(*value), members[position + mask], tag);
  return wait(thread, messages, timeout);
}

}  // namespace resil::spr
