// SPDX-License-Identifier: Apache-2.0
//
// See fast_path.h.

// No vector code: a wide load of two fields that were just stored apart waits for both stores to reach the cache.
#pragma GCC optimize("no-tree-slp-vectorize")

#include "checksum/collective/fast_path.h"

#include <cstring>

#include "checksum/collective/agreement.h"
#include "checksum/collective/collective.h"
#include "checksum/collective/collective_internal.h"
#include "checksum/collective/memory.h"
#include "checksum/collective/reduction.h"
#include "checksum/collective/tree.h"
#include "checksum/ledger/blame_history.h"
#include "checksum/ledger/calls.h"
#include "checksum/ledger/lives.h"
#include "checksum/ledger/peer.h"
#include "checksum/p2p/intercept.h"
#include "shim/abi/backend.h"
#include "shim/base/bit_cast.h"
#include "shim/base/hash.h"
#include "shim/call/fast_path.h"
#include "shim/model/event.h"
#include "shim/model/transfers.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/memory.h"
#include "shim/tables/type_maps.h"

namespace resil::collective {

namespace {

using ledger::Peer;
using ledger::PlainRecord;
using ledger::Record;
using ledger::Space;

constexpr uint32_t kPrepared = 256, kReach = 8, kNone = ~0u;

enum class Way : uint8_t {
  kNothing,  ///< moves nothing between ranks
  kResult,  ///< the result is the same everywhere: its digest goes up the tree
  kReduction,  ///< likewise, by its canonical digest
  kUncovered,  ///< a reduction of which nothing can be compared
  kBlocks,  ///< data of one rank for another one
  kGeneral,  ///< whatever plan.cpp makes of it
};

/// Blocks of one direction, all of the same amount.
struct Side {
  uint64_t bytes;  ///< of a block; they lie one behind the other
  uint32_t count;
  uint32_t own;  ///< which one this rank gives itself; kNone
  uint16_t type;  ///< Record::lower
  bool listed;  ///< `peers` is a list of its own, from the pool; else a part of the ledger's table of all ranks
  Peer* const* peers;
};

/// What calls with the same arguments from one place have in common.
struct alignas(64) Prepared {
  // What they are, beside the name's call and site.
  uint64_t comm_handle, op;
  DataArgument send, receive;  ///< without buffers
  int32_t peer;

  Way way;
  bool own;  ///< its part of an allgathered result is compared with what it gave
  OpKind kind;
  int32_t root;  ///< that all ranks name; -1: none
  CommInfo* comm;
  Name name;  ///< but for its place among the calls
  uint64_t bytes;  ///< of the result
  uint64_t own_bytes, own_at;
  Reduction reduction;
  Side given, got;
  Peer* parent;
  uint32_t child_count;
  Peer* children[kMostChildren];
};

Prepared* prepared;
uint32_t generation;  ///< that all of them are of
uint64_t* digests;  ///< of a call's blocks: room for `digest_room` of those given, then as many of those got
uint32_t digest_room;

void free_list(Side& side) {
  if (side.listed) pool.release(const_cast<Peer**>(side.peers), side.count * sizeof(Peer*));
  side.listed = false;
}

bool is_same(const DataArgument& a, const DataArgument& b) { return a.count == b.count && a.type == b.type; }

/// What of an Event such a call has: fields of others are undefined.
struct Arguments {
  DataArgument send, receive;
  uint64_t op;
};
Arguments arguments_of(const Event& e) {
  const bool reduces = is_reduction(collective_of(e.id));
  Arguments a = {{nullptr, e.send.count, e.send.type, nullptr, nullptr, nullptr}, {}, reduces ? e.op : 0};
  if (reduces || (e.attributes & kCallHasBlocks)) a.receive.count = e.receive.count, a.receive.type = e.receive.type;
  return a;
}

/// A place for what the call is, or its own; null: there is none.
Prepared* place_of(const Event& e, const Arguments& a) {
  const uint32_t now = call_generation.load(std::memory_order_relaxed);
  if (generation != now) {  // no call site that has one of them is open any more
    for (uint32_t i = 0; i < kPrepared; ++i) {
      prepared[i].comm = nullptr;
      free_list(prepared[i].given);
      free_list(prepared[i].got);
    }
    generation = now;
  }
  const uint64_t bits =
      hash_combine(hash_combine(e.site ^ e.comm_handle, a.send.type ^ a.receive.type << 16 ^ a.op),
                   static_cast<uint64_t>(a.send.count) ^ static_cast<uint64_t>(a.receive.count) << 24 ^
                       static_cast<uint64_t>(e.peer) << 48);
  Prepared* free = nullptr;
  for (uint32_t i = 0; i < kReach; ++i) {
    Prepared& one = prepared[(bits + i) % kPrepared];
    if (one.comm == nullptr) {
      if (free == nullptr) free = &one;
      continue;
    }
    if (one.name.id == e.id && one.name.site == e.site && one.comm_handle == e.comm_handle && one.peer == e.peer &&
        one.op == a.op && is_same(one.send, a.send) && is_same(one.receive, a.receive))
      return &one;
  }
  return free;
}

// --- What a call will compare, as plan.cpp makes it ------------------------------------------------------------------

/// A predefined type in one piece; null: another one.
const TypeMap* simple(const Event& e, uint64_t type) {
  const TypeMap* map = type_map(*e.thread, type);
  return map != nullptr && map->permanent && map->contiguous && map->size != 0 &&
                 map->extent == static_cast<int64_t>(map->size)
             ? map
             : nullptr;
}

bool climb(Prepared& s, const Event& e, int root) {
  Tree room;
  const Tree& tree = tree_of(*e.comm, root, room);
  if (tree.reason != Reason::kNone || tree.missing != 0) return false;
  s.parent = tree.parent;
  s.child_count = tree.child_count;
  for (uint32_t i = 0; i < tree.child_count; ++i) s.children[i] = tree.children[i];
  return true;
}

/// Room for the digests of so many blocks given and got.
bool reserve_digests(uint32_t blocks) {
  if (blocks <= digest_room) return true;
  void* memory = pool.allocate(2 * sizeof(uint64_t) * blocks);
  if (memory == nullptr) return false;
  if (digests != nullptr) pool.release(digests, 2 * sizeof(uint64_t) * digest_room);
  digests = static_cast<uint64_t*>(memory);
  digest_room = blocks;
  return true;
}

/// False: nothing is listed.
bool find_peers(Side& side, CommInfo& comm, const Transfer& t) {
  side.count = static_cast<uint32_t>(t.end - t.first);
  const size_t bytes = side.count * sizeof(Peer*);
  auto** list = static_cast<Peer**>(pool.allocate(bytes));
  if (list == nullptr) return false;
  bool in_order = true;
  for (uint32_t i = 0; i < side.count; ++i) {
    Reason why;
    list[i] = ledger::peer_of(comm, t.rank_of(t.first + i), &why);
    if (list[i] == nullptr) {
      pool.release(list, bytes);
      return false;
    }
    if (peer_is_self(*list[i])) side.own = i;
    in_order = in_order && list[i]->world_rank == list[0]->world_rank + static_cast<int32_t>(i);
  }
  side.listed = !in_order;
  side.peers = in_order ? ledger::peer_table + list[0]->world_rank : list;
  if (in_order) pool.release(list, bytes);
  return true;
}

bool make_side(Side& side, const Event& e, const Transfer& t) {
  side = {};
  side.own = kNone;
  if (!t.any() || t.count <= 0) return true;
  const TypeMap* map = simple(e, t.type);
  if (map == nullptr || t.counts != nullptr || t.types != nullptr || t.own >= 0 || t.in_place ||
      !reserve_digests(static_cast<uint32_t>(t.end - t.first)))
    return false;
  side.bytes = static_cast<uint64_t>(t.count) * map->size;
  side.type = signature_fold(type_signature(*map, side.bytes));
  return find_peers(side, *e.comm, t);
}

bool make_blocks(Prepared& s, const Event& e) {
  const Members members = members_of(*e.comm);
  if (!make_side(s.given, e, sent(e, members, backend->is_in_place)) ||
      !make_side(s.got, e, received(e, members, backend->is_in_place)))
    return false;
  const bool gives = s.given.own != kNone, gets = s.got.own != kNone;
  s.way = s.given.count == 0 && s.got.count == 0 ? Way::kNothing : Way::kBlocks;
  return gives == gets && (!gives || (s.given.bytes == s.got.bytes && s.given.type == s.got.type));
}

bool make_result(Prepared& s, const Event& e, const DataArgument& result, int64_t times, int root) {
  if (result.count <= 0) return true;
  const TypeMap* map = simple(e, result.type);
  if (map == nullptr) return false;
  s.bytes = static_cast<uint64_t>(result.count * times) * map->size;
  s.name.type = signature_fold(type_signature(*map, s.bytes));
  if (e.comm->size == 1 && !s.own) return true;
  s.way = Way::kResult;
  return climb(s, e, root);
}

bool make_allgather(Prepared& s, const Event& e) {
  const Members members = members_of(*e.comm);
  const Transfer given = sent(e, members, backend->is_in_place), got = received(e, members, backend->is_in_place);
  if (got.counts != nullptr || given.in_place || e.receive.count <= 0 || e.send.count <= 0) return false;
  const TypeMap *in = simple(e, e.send.type), *out = simple(e, e.receive.type);
  if (in == nullptr || out == nullptr) return false;
  s.own = true;
  s.own_bytes = static_cast<uint64_t>(e.receive.count) * out->size;
  s.own_at = static_cast<uint64_t>(e.comm->rank) * s.own_bytes;
  return static_cast<uint64_t>(e.send.count) * in->size == s.own_bytes &&
         make_result(s, e, e.receive, members.partners(), 0);
}

/// Sums and products, whose results no contribution contradicts by itself.
bool make_reduction(Prepared& s, const Event& e, bool everywhere) {
  const TypeMap* map = simple(e, e.send.type);
  if (map == nullptr || e.send.type != e.receive.type) return false;
  Reduction& r = s.reduction;
  reduction_classify(r, e.op, map);
  const bool floats = r.basic.kind == BasicKind::kFloating || r.basic.kind == BasicKind::kComplex;
  if (!floats || !r.comparable || r.orders || r.linear != LinearMode::kNone) return false;
  if (e.send.count <= 0) return true;  // as none, as plan.cpp has it
  s.kind = r.op;
  s.bytes = static_cast<uint64_t>(e.send.count) * map->size;
  s.name.type = signature_fold(type_signature(*map, s.bytes));
  r.output = {nullptr, e.send.count, map, s.bytes, Reason::kNone};
  if (e.comm->size == 1) return true;
  s.way = everywhere ? Way::kReduction : Way::kUncovered;
  return !everywhere || climb(s, e, 0);
}

bool make(Prepared& s, const Event& e) {
  switch (collective_of(e.id)) {
    case Collective::kBcast: s.name.root = e.peer; return make_result(s, e, e.send, 1, e.peer);
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAlltoall: return make_blocks(s, e);
    case Collective::kAllgather: return make_allgather(s, e);
    case Collective::kReduce: s.name.root = e.peer; return make_reduction(s, e, false);
    case Collective::kAllreduce: return make_reduction(s, e, true);
    default: return false;
  }
}

// --- A call ----------------------------------------------------------------------------------------------------------

struct Place {
  uint32_t tag;
  uint16_t calls;
};

/// Its place among the communicator's calls, which the other ranks' must agree with.
[[gnu::always_inline]] inline Place roll(const Prepared& s, uint64_t sequence) {
  return {static_cast<uint32_t>(sequence),
          ledger::calls_roll(s.comm->index, s.name.base, sequence, static_cast<uint16_t>(call_info(s.name.id).plain),
                             s.kind, s.root)};
}

[[gnu::always_inline]] inline void note(const Prepared& s, Place place) {
  ledger::calls_note({s.name.comm, s.name.bytes, place.tag, s.root, static_cast<uint16_t>(s.name.id), place.calls,
                      s.name.type, s.kind, true});
}

[[gnu::always_inline]] inline PlainRecord record_of(const Prepared& s, Place place, Space space, uint64_t bytes,
                                                    uint64_t digest, uint16_t type) {
  return {s.name.comm, digest, bytes | uint64_t{place.calls} << ledger::kLowBits,
          (s.name.site & ledger::kLowMask) | uint64_t{type} << ledger::kLowBits,
          ledger::plain_tail(place.tag, static_cast<uint16_t>(s.name.id), space)};
}

[[gnu::noinline]] void announce_slowly(Thread& thread, Peer& peer, const PlainRecord record) {
  ledger::announce(thread, peer, bit_cast<Record>(record));
}
template <Space space>
[[gnu::always_inline]] inline void announce(Thread& thread, Peer& peer, const PlainRecord& record) {
  if (!ledger::announce_plain<space>(peer, record)) [[unlikely]]
    return announce_slowly(thread, peer, record);
  ledger::expected_plainly(thread);
}

[[gnu::noinline]] void expect_slowly(Thread& thread, Peer& peer, const PlainRecord record) {
  ledger::expect(thread, peer, bit_cast<Record>(record));
}
template <Space space>
[[gnu::always_inline]] inline void expect(Thread& thread, Peer& peer, const PlainRecord& record) {
  if (!ledger::expect_plain<space>(peer, record)) [[unlikely]]
    return expect_slowly(thread, peer, record);
  if (ledger::is_strict) ledger::owe(peer);
  ledger::expected_plainly(thread);
}

void agree(Thread& thread, const Prepared& s, uint64_t digest, Place place) {
  agreement_note_plainly(s.name, place.tag, place.calls, digest);
  const PlainRecord record = record_of(s, place, Space::kAgreement, s.bytes, digest, s.name.type);
  if (s.parent != nullptr) announce<Space::kAgreement>(thread, *s.parent, record);
  for (uint32_t i = 0; i < s.child_count; ++i) expect<Space::kAgreement>(thread, *s.children[i], record);
}

/// False: it is not as it should be, or must not be read. Nothing was noted then.
bool check_result(Thread& thread, const Prepared& s, const char* given, const char* result, uint64_t sequence) {
  if (!host_memory(result, s.bytes) || (s.own && !host_memory(given, s.own_bytes))) return false;
  if (s.own && memcmp(given, result + s.own_at, s.own_bytes) != 0) return false;
  uint64_t sum;
  if (s.way == Way::kReduction) {
    View view = s.reduction.output;
    view.buffer = result;
    sum = canonical_digest(s.reduction, view);
    counts.agreement_only += 1;
  } else {
    sum = digest(result, s.bytes);
    counts.checked += 1;
  }
  const Place place = roll(s, sequence);
  note(s, place);
  if (s.own) {
    ledger::coverage.checked_messages += 1;
    ledger::coverage.checked_bytes += s.own_bytes;
  }
  if (s.parent != nullptr || s.child_count != 0) agree(thread, s, sum, place);
  return true;
}

/// Likewise.
bool check_blocks(Thread& thread, const Prepared& s, const char* given, const char* got, uint64_t sequence) {
  const Side &out = s.given, &in = s.got;
  if ((out.count != 0 && !host_memory(given, out.count * out.bytes)) ||
      (in.count != 0 && !host_memory(got, in.count * in.bytes)))
    return false;
  uint64_t *given_digests = digests, *got_digests = digests + digest_room;
  if (out.own != kNone && memcmp(given + out.own * out.bytes, got + in.own * in.bytes, in.bytes) != 0) return false;
  for (uint32_t i = 0; i < out.count; ++i)
    if (i != out.own) given_digests[i] = digest(given + i * out.bytes, out.bytes);
  for (uint32_t i = 0; i < in.count; ++i)
    if (i != in.own) got_digests[i] = digest(got + i * in.bytes, in.bytes);
  if (out.own != kNone) {
    ledger::coverage.checked_messages += 1;
    ledger::coverage.checked_bytes += in.bytes;
  }
  counts.checked += 1;
  const Place place = roll(s, sequence);
  note(s, place);
  for (uint32_t i = 0; i < out.count; ++i) {
    if (i == out.own) continue;
    Peer& to = *out.peers[i];
    const PlainRecord record = record_of(s, place, Space::kBlock, out.bytes, given_digests[i], out.type);
    blame::sent_plainly(to.world_rank, to.announced, record);
    announce<Space::kBlock>(thread, to, record);
  }
  for (uint32_t i = 0; i < in.count; ++i)
    if (i != in.own)
      expect<Space::kBlock>(thread, *in.peers[i],
                            record_of(s, place, Space::kBlock, in.bytes, got_digests[i], in.type));
  return true;
}

void note_uncovered(const Prepared& s, uint64_t sequence) {
  note(s, roll(s, sequence));
  counts.uncovered[static_cast<unsigned>(s.reduction.why)] += 1;
  if (s.comm->rank == s.peer) ledger::count_uncovered(s.reduction.why, 1, s.bytes);
}

/// As after a call that went the general way.
[[gnu::noinline]] void check_slowly(Thread& thread, const Prepared& s, const void* given, const void* got,
                                    uint64_t sequence) {
  Event e;
  e.id = s.name.id;
  e.thread = &thread;
  e.comm_handle = s.comm_handle;
  e.comm = s.comm;
  e.op = s.op;
  e.send = s.send;
  e.receive = s.receive;
  e.send.buffer = e.given_send = given;
  e.receive.buffer = e.given_receive = got;
  fast::complete_event(e);
  e.peer = s.peer;
  e.site = s.name.site;
  e.bytes = s.name.bytes;
  e.sequence = sequence;
  leave(e);
}

void check_one(Thread& thread) {
  const auto& s = *reinterpret_cast<const Prepared*>(thread.checked.check & ~fast::kNotInPlace);
  const auto *given = static_cast<const char*>(thread.checked.sent),
             *got = static_cast<const char*>(thread.checked.received);
  const uint64_t sequence = s.comm->ring->collectives;
  if (!ledger::is_straight || lost_count.load(std::memory_order_relaxed) != 0 || ledger::others_pend()) [[unlikely]]
    return check_slowly(thread, s, given, got, sequence);
  bool done = true;
  switch (s.way) {
    case Way::kNothing:
      roll(s, sequence);
      counts.nothing += 1;
      return;
    case Way::kGeneral: return check_slowly(thread, s, given, got, sequence);
    case Way::kUncovered: note_uncovered(s, sequence); break;
    case Way::kBlocks: done = check_blocks(thread, s, given, got, sequence); break;
    case Way::kResult:
    case Way::kReduction: done = check_result(thread, s, given, got, sequence); break;
  }
  if (!done) [[unlikely]]
    return check_slowly(thread, s, given, got, sequence);
  progress(thread);
}

void check(Thread& thread) {
  check_one(thread);
  if (ledger::is_strict) ledger::await_all(thread);
}

}  // namespace

void fast_path_connect() {
  if (!ledger::is_straight || prepared != nullptr) return;
  prepared = memory::map_array<Prepared>(kPrepared);
  if (prepared == nullptr) return;
  fast::check_waits = ledger::transport_dirty_word();
  fast::check_from = &p2p::next_flush;
  fast::checked = check;
}

bool fast_path_prepare(Event& e, SiteEntry& site) {
  if (prepared == nullptr || !ledger::is_straight) return false;
  if (!moves_data(collective_of(e.id))) return true;
  if (comm_reason(*e.comm) != Reason::kNone || e.comm->remote_size >= 0) return false;
  const bool reduces = is_reduction(collective_of(e.id));
  const Arguments a = arguments_of(e);
  Prepared* s = place_of(e, a);
  if (s == nullptr) return false;
  site.check = reinterpret_cast<uintptr_t>(s);
  if (s->comm != nullptr) {
    if (s->way == Way::kGeneral && reduces) site.check |= fast::kNotInPlace;
    return true;
  }
  *s = {};
  s->comm_handle = e.comm_handle;
  s->op = a.op;
  s->send = a.send;
  s->receive = a.receive;
  s->peer = e.peer;
  s->root = has_root(collective_of(e.id)) ? e.peer : -1;
  const uint64_t id = e.comm->ring->id;
  s->name = {id, id, e.comm, 0, 0, e.id, 0, e.site, e.bytes, 0, 0};
  if (!make(*s, e)) {
    free_list(s->given);
    free_list(s->got);
    s->way = Way::kGeneral;
    if (reduces) site.check |= fast::kNotInPlace;
  }
  s->comm = e.comm;
  return true;
}

}  // namespace resil::collective
