// SPDX-License-Identifier: Apache-2.0
//
// See hashed.h.

#include "detectors/spr/hashed.h"

#include "shim/base/hash.h"

namespace resil::spr {

namespace {

/// Ascending by a key, 11 bits at a time: linear, and the same everywhere. `items` ends up sorted.
bool radix_sort(int32_t* items, int64_t count, const uint64_t* key) {
  Buffer<int32_t> other;
  if (!other.reserve(static_cast<size_t>(count))) return false;
  int32_t* from = items;
  int32_t* to = other.data();
  Buffer<uint32_t> starts;
  constexpr int kBits = 11;
  constexpr uint64_t kDigits = 1u << kBits;
  for (int shift = 0; shift < 64; shift += kBits) {
    if (!starts.reserve_zeroed(kDigits + 1)) return false;
    for (int64_t i = 0; i < count; ++i) ++starts[((key[from[i]] >> shift) & (kDigits - 1)) + 1];
    for (size_t digit = 1; digit <= kDigits; ++digit) starts[digit] += starts[digit - 1];
    for (int64_t i = 0; i < count; ++i) to[starts[(key[from[i]] >> shift) & (kDigits - 1)]++] = from[i];
    int32_t* const swapped = from;
    from = to;
    to = swapped;
  }
  return true;  // six passes: back where it began
}

/// Do copies of other ranks' particles stand in the list? One test for all of it; most lists have none.
bool has_copies(const Lists& lists, int64_t particle) {
  const int* const entries = lists.begin(particle);
  const int64_t size = lists.size(particle), last = lists.local - 1 + lists.base;
  int64_t borrowed = 0;
#pragma GCC unroll 8
  for (int64_t i = 0; i < size; ++i) borrowed |= last - entries[i];
  return borrowed < 0;
}

}  // namespace

bool Hashed::build_places(int64_t* twice) {
  uint64_t room = 1024;
  while (room < static_cast<uint64_t>(lists_.total) * 2) room *= 2;
  if (!places_.reserve(room)) return false;
  place_mask_ = room - 1;
  for (uint64_t i = 0; i < room; ++i) places_[i].index = -1;
  for (int64_t i = 0; i < lists_.total; ++i) {
    uint64_t at = priority_[static_cast<size_t>(i)] & place_mask_;
    while (places_[at].index >= 0 && places_[at].id != ids_[i]) at = (at + 1) & place_mask_;
    if (places_[at].index < 0) {
      places_[at] = {ids_[i], static_cast<int32_t>(i), 0};
    } else if (i < local_) {
      *twice = ids_[i];
      return false;
    }
    alias_[static_cast<size_t>(i)] = places_[at].index;
  }
  return true;
}

int32_t Hashed::find(int64_t id) const {
  for (uint64_t at = mix64(static_cast<uint64_t>(id) + 0x9e3779b97f4a7c15) & place_mask_;; at = (at + 1) & place_mask_)
    if (places_[at].index < 0 || places_[at].id == id) return places_[at].index;
}

bool Hashed::before(int32_t a, int32_t b) const {
  const uint64_t first = priority_[static_cast<size_t>(a)], second = priority_[static_cast<size_t>(b)];
  return first != second ? first < second : ids_[a] < ids_[b];
}

Hashed::Partner* Hashed::partner_of(int rank) {
  uint32_t low = 0, high = partner_count_;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (partners_[middle].rank < rank) low = middle + 1;
    else high = middle;
  }
  return low < partner_count_ && partners_[low].rank == rank ? &partners_[low] : nullptr;
}

// Partners are added before anything is put into their arrays: only ranks move.
bool Hashed::add_partner(int rank) {
  if (rank == rank_ || partner_of(rank) != nullptr) return true;
  if (partner_count_ == kMostPartners) return false;
  uint32_t at = partner_count_++;
  for (; at > 0 && partners_[at - 1].rank > rank; --at) partners_[at].rank = partners_[at - 1].rank;
  partners_[at].rank = rank;
  return true;
}

bool Hashed::begin(const Lists& lists, const int64_t* ids, const int* owner, int rank, int64_t* twice) {
  lists_ = lists;
  ids_ = ids;
  owner_ = owner;
  rank_ = rank;
  local_ = lists.local;
  for (uint32_t i = 0; i < partner_count_; ++i) {
    partners_[i].words = 0;
    partners_[i].we_finished = partners_[i].they_finished = partners_[i].closed = false;
  }
  partner_count_ = 0;
  *twice = -1;
  const auto total = static_cast<size_t>(lists.total), own = static_cast<size_t>(local_);
  if (!alias_.reserve(total) || !state_.reserve_zeroed(total) || !priority_.reserve(total) || !order_.reserve(own) ||
      !border_.reserve_zeroed(own))
    return false;
  for (size_t i = 0; i < total; ++i) priority_[i] = mix64(static_cast<uint64_t>(ids[i]) + 0x9e3779b97f4a7c15);
  if (!build_places(twice)) return false;
  for (int64_t i = 0; i < local_; ++i) {
    order_[static_cast<size_t>(i)] = static_cast<int32_t>(i);
    if (!has_copies(lists_, i)) continue;
    lists_.neighbours(i, [&](int64_t index) {
      const int32_t at = alias_[static_cast<size_t>(index)];
      if (at >= local_ && owner_of(at) != rank_) border_[static_cast<size_t>(i)] = 1;
    });
  }
  for (int64_t i = local_; i < lists.total; ++i)
    if (!add_partner(owner_of(static_cast<int32_t>(i)))) return false;
  undecided_ = local_;
  return radix_sort(order_.data(), local_, priority_.data());
}

bool Hashed::blocked(int32_t particle) const {
  bool waits = false;
  lists_.neighbours(particle, [&](int64_t index) {
    const int32_t at = alias_[static_cast<size_t>(index)];
    waits |= state_[static_cast<size_t>(at)] == kUndecided && at != particle && before(at, particle);
  });
  return waits;
}

bool Hashed::put(Partner& partner, int64_t id, Word::Kind kind) {
  if (partner.we_finished) return true;
  const size_t room = partner.out.bytes() / sizeof(Word);
  if (partner.words == room) {
    Buffer<Word> larger;
    if (!larger.reserve(room * 2 + 1)) return false;
    if (room != 0) memcpy(static_cast<void*>(larger.data()), partner.out.data(), room * sizeof(Word));
    partner.out.swap(larger);
  }
  partner.out[partner.words++] = {id, kind, 0};
  return true;
}

/// To every owner of a neighbour, once.
bool Hashed::tell(int32_t particle, Word::Kind kind) {
  if (border_[static_cast<size_t>(particle)] == 0) return true;
  bool kept = true;
  int told[64], count = 0;
  lists_.neighbours(particle, [&](int64_t index) {
    const int32_t at = alias_[static_cast<size_t>(index)];
    if (at < local_) return;
    const int rank = owner_of(at);
    for (int i = 0; i < count; ++i)
      if (told[i] == rank) return;
    if (count < 64) told[count++] = rank;
    Partner* partner = partner_of(rank);
    if (partner != nullptr) kept = put(*partner, ids_[particle], kind) && kept;
  });
  return kept;
}

bool Hashed::cover_neighbours(int32_t particle) {
  bool kept = true;
  lists_.neighbours(particle, [&](int64_t index) {
    const int32_t at = alias_[static_cast<size_t>(index)];
    uint8_t& state = state_[static_cast<size_t>(at)];
    if (at == particle || state == kTaken) return;
    if (at >= local_) {
      Partner* partner = partner_of(owner_of(at));
      if (partner != nullptr && state == kUndecided) kept = put(*partner, ids_[at], Word::kCovered) && kept;
    } else if (state == kUndecided) {
      kept = tell(at, Word::kLeftOut) && kept;
    }
    state = kOut;
  });
  return kept;
}

/// In order of priority one pass decides all that does not wait for another rank, or for one of ours that does.
bool Hashed::pass() {
  bool kept = true;
  int64_t left = 0;
  for (int64_t i = 0; i < undecided_; ++i) {
    const int32_t particle = order_[static_cast<size_t>(i)];
    if (state_[static_cast<size_t>(particle)] != kUndecided) continue;
    if (blocked(particle)) {
      order_[static_cast<size_t>(left++)] = particle;
      continue;
    }
    state_[static_cast<size_t>(particle)] = kTaken;
    kept = tell(particle, Word::kSelected) && cover_neighbours(particle) && kept;
  }
  undecided_ = left;
  return kept;
}

bool Hashed::decide() {
  bool kept = true;
  for (int64_t before_this = undecided_ + 1; kept && undecided_ > 0 && undecided_ < before_this;) {
    before_this = undecided_;
    kept = pass();
  }
  for (uint32_t i = 0; i < partner_count_; ++i) {
    Partner& partner = partners_[i];
    if (partner.we_finished) continue;
    bool waits = false;
    for (int64_t k = 0; k < undecided_ && !waits; ++k) {
      const int32_t particle = order_[static_cast<size_t>(k)];
      if (border_[static_cast<size_t>(particle)] == 0 || state_[static_cast<size_t>(particle)] != kUndecided) continue;
      lists_.neighbours(particle, [&](int64_t index) {
        const int32_t at = alias_[static_cast<size_t>(index)];
        waits |= at >= local_ && owner_of(at) == partner.rank;
      });
    }
    if (waits) continue;
    kept = put(partner, 0, Word::kFinished) && kept;
    partner.we_finished = true;
  }
  return kept;
}

void Hashed::take(Partner& partner, const Word* words, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (words[i].kind == Word::kFinished) {
      partner.they_finished = true;
      // With lists that are not symmetric it may not know that we wait for some of its particles.
      for (int64_t k = local_; k < lists_.total; ++k)
        if (owner_of(static_cast<int32_t>(k)) == partner.rank && state_[static_cast<size_t>(k)] == kUndecided)
          state_[static_cast<size_t>(k)] = kOut;
      continue;
    }
    const int32_t at = find(words[i].id);
    if (at < 0) continue;
    uint8_t& state = state_[static_cast<size_t>(at)];
    if (words[i].kind == Word::kCovered) {
      if (at >= local_ || state != kUndecided) continue;
      state = kOut;
      tell(at, Word::kLeftOut);
    } else if (at >= local_ && state == kUndecided) {
      state = words[i].kind == Word::kSelected ? kTaken : kOut;
    }
  }
}

bool Hashed::collect(Buffer<int>& selected, int64_t* count) {
  *count = 0;
  for (int64_t i = 0; i < local_; ++i) *count += state_[static_cast<size_t>(i)] != kOut;
  if (!selected.reserve(static_cast<size_t>(*count))) return false;
  int64_t at = 0;
  for (int64_t i = 0; i < local_; ++i)
    if (state_[static_cast<size_t>(i)] != kOut) selected[static_cast<size_t>(at++)] = static_cast<int>(i);
  return true;
}

}  // namespace resil::spr
