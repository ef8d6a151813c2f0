// SPDX-License-Identifier: Apache-2.0
//
// See patterns.h.

#include "checksum/p2p/patterns.h"

namespace resil::p2p {

namespace {

constexpr uint32_t kChains = 4096;
Pattern* chains[kChains];
memory::Pool<Pattern, &Pattern::next, 64, 1u << 20> pattern_pool;

Pattern*& chain_of(uint64_t comm, int32_t source, int32_t tag) {
  return chains[bucket_index(comm, source, tag) % kChains];
}

/// Null: no memory.
Pattern* find_or_make(CommReceives& comm, int32_t source, int32_t tag) {
  if (Pattern* found = pattern_find(comm, source, tag); found != nullptr) return found;
  Pattern* pattern = pattern_pool.allocate();
  if (pattern == nullptr) return nullptr;
  Pattern*& chain = chain_of(comm.id, source, tag);
  *pattern = {{nullptr, nullptr}, nullptr, chain, &comm, source, tag, 0};
  chain = pattern;
  ++comm.patterns;
  return pattern;
}

void forget_if_empty(Pattern* pattern) {
  if (pattern->pending.first != nullptr || pattern->waiting != nullptr) return;
  Pattern** place = &chain_of(pattern->comm->id, pattern->source, pattern->tag);
  while (*place != pattern) place = &(*place)->next;
  *place = pattern->next;
  --pattern->comm->patterns;
  pattern_pool.release(pattern);
}

// A pairing heap through `child` and `sibling`.
Receive* meld(Receive* a, Receive* b) {
  if (a == nullptr || b == nullptr) return a != nullptr ? a : b;
  if (b->order < a->order) {
    Receive* other = a;
    a = b;
    b = other;
  }
  b->sibling = a->child;
  a->child = b;
  return a;
}

Receive* without_top(Receive* top) {
  Receive* pairs = nullptr;
  for (Receive* next = top->child; next != nullptr;) {
    Receive *first = next, *second = next->sibling;
    next = second != nullptr ? second->sibling : nullptr;
    first->sibling = nullptr;
    if (second != nullptr) second->sibling = nullptr;
    Receive* pair = meld(first, second);
    pair->sibling = pairs;
    pairs = pair;
  }
  Receive* rest = nullptr;
  while (pairs != nullptr) {
    Receive* next = pairs->sibling;
    pairs->sibling = nullptr;
    rest = meld(rest, pairs);
    pairs = next;
  }
  return rest;
}

/// Is a receive of the very matching queue, with no wildcard, older?
bool match_queue_is_shut(const Receive& receive) {
  const uint32_t bucket =
      receive.wild ? bucket_index(receive.comm->id, receive.actual_source, receive.actual_tag) : receive.bucket;
  for (const Receive* other = buckets[bucket].first; other != nullptr && other->order < receive.order;
       other = other->next)
    if (other->comm == receive.comm && other->source == receive.actual_source && other->tag == receive.actual_tag)
      return true;
  return false;
}

}  // namespace

Pattern* pattern_find(const CommReceives& comm, int32_t source, int32_t tag) {
  Pattern* pattern = chain_of(comm.id, source, tag);
  while (pattern != nullptr && (pattern->comm != &comm || pattern->source != source || pattern->tag != tag))
    pattern = pattern->next;
  return pattern;
}

bool pattern_enter(Receive& receive) {
  Pattern* pattern = find_or_make(*receive.comm, receive.source, receive.tag);
  if (pattern == nullptr) return false;
  receive.pattern = pattern;
  // It counts itself among the entries. One that is not of this pattern may take what this one could, or the reverse.
  if (receive.comm->entries != pattern->pending_count + 1) receive.posted_as = 0;
  ++pattern->pending_count;
  link(pattern->pending, &receive);
  return true;
}

void pattern_leave(Receive& receive) {
  if (!receive.listed || !receive.wild) return;
  receive.listed = false;
  --receive.pattern->pending_count;
  unlink(receive.pattern->pending, &receive);
  forget_if_empty(receive.pattern);
}

bool is_shut(const Receive& receive, int32_t* source, int32_t* tag) {
  const CommReceives& comm = *receive.comm;
  if (comm.patterns != 0) {
    const int32_t sources[] = {ring::kAnySource, receive.actual_source}, tags[] = {ring::kAnyTag, receive.actual_tag};
    for (int gate = 0; gate < 4; ++gate) {
      const Pattern* pattern = pattern_find(comm, sources[gate & 1], tags[gate >> 1]);
      if (pattern == nullptr) continue;
      // What waits there and is older goes first, even if the gate has just been opened (by another thread).
      if ((pattern->pending.first != nullptr && pattern->pending.first->order < receive.order) ||
          (pattern->waiting != nullptr && pattern->waiting->order < receive.order)) {
        *source = pattern->source;
        *tag = pattern->tag;
        return true;
      }
    }
  }
  *source = receive.actual_source;
  *tag = receive.actual_tag;
  return match_queue_is_shut(receive);
}

bool park(Receive& receive, int32_t source, int32_t tag) {
  Pattern* pattern = find_or_make(*receive.comm, source, tag);
  if (pattern == nullptr) return false;
  receive.child = receive.sibling = nullptr;
  pattern->waiting = meld(pattern->waiting, &receive);
  return true;
}

Receive* unpark(CommReceives& comm, int32_t source, int32_t tag) {
  Pattern* pattern = pattern_find(comm, source, tag);
  Receive* receive = pattern != nullptr ? pattern->waiting : nullptr;
  if (receive == nullptr || (pattern->pending.first != nullptr && pattern->pending.first->order < receive->order))
    return nullptr;
  if (source != ring::kAnySource && tag != ring::kAnyTag && match_queue_is_shut(*receive)) return nullptr;
  pattern->waiting = without_top(receive);
  forget_if_empty(pattern);
  return receive;
}

}  // namespace resil::p2p
