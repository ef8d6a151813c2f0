// SPDX-License-Identifier: Apache-2.0
//
// See plan.h: which arguments mean what on this rank.

#include "checksum/collective/plan.h"

#include "checksum/collective/memory.h"
#include "checksum/ledger/blame.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/model/event.h"
#include "shim/tables/buffer_view.h"
#include "shim/tables/tables.h"

namespace resil::collective {

namespace {

using ledger::Peer;
using ledger::Reason;

constexpr int kSpelledOut = 256;  // ranks

/// RESIL_BLAME=full: broadcast and allgathered data is also told from giver to getter, as packets, so that what is
/// known of packets on both sides can explain what went wrong. Not among very many ranks: each then notes one for each
/// other.
bool as_point_to_point(const CommInfo& comm) {
  return ledger::full_blame() && comm.size <= kSpelledOut && comm.remote_size <= kSpelledOut;
}

/// One block, or what it would be if its datatype were known.
View view_at(const Event& e, const Transfer& t, int64_t i) {
  const int64_t count = t.count_of(i);
  if (count <= 0) return {nullptr, 0, nullptr, 0, Reason::kNone};
  const uint64_t type = t.type_of(i);
  const TypeMap* map = type_map(*e.thread, type);
  const int64_t extent = map != nullptr ? map->extent : 0;
  View view = make_view(map, static_cast<const char*>(t.buffer) + t.offset_of(i, extent), count);
  if (view.reason == Reason::kDatatype)
    view.bytes = static_cast<uint64_t>(count) * static_cast<uint64_t>(type_size(*e.thread, type));
  return view;
}

/// Field by field: what was just made in registers would be stored narrow and loaded wide, which waits for the cache.
void put(View& to, const View& from) {
  to.buffer = from.buffer;
  to.count = from.count;
  to.type = from.type;
  to.bytes = from.bytes;
  to.reason = from.reason;
}

/// A single-count argument as a whole, or `times` as much.
View whole(const Event& e, const DataArgument& side, int64_t times = 1) {
  if (side.count <= 0 || times <= 0) return {nullptr, 0, nullptr, 0, Reason::kNone};
  View view = make_view(*e.thread, side.buffer, side.count * times, side.type);
  if (view.reason == Reason::kDatatype)
    view.bytes = static_cast<uint64_t>(side.count * times) * static_cast<uint64_t>(type_size(*e.thread, side.type));
  return view;
}

bool reserve(Plan& plan, Blocks& blocks, int64_t capacity) {
  if (capacity <= 1) return true;
  const size_t bytes = static_cast<size_t>(capacity) * sizeof(Block);
  auto* items = static_cast<Block*>(pool.allocate(bytes));
  if (items == nullptr) {
    plan.reason = Reason::kMemory;
    return false;
  }
  blocks.items = items;
  blocks.capacity = static_cast<uint32_t>(capacity);
  blocks.memory = bytes;
  return true;
}

void append(Plan& plan, Blocks& blocks, Peer* peer, Reason why, const View& view, bool repeated = false) {
  if (view.bytes == 0) return;  // no packet
  if (peer == nullptr) {
    plan.unreachable_why = why;
    if (&blocks == &plan.receives) {  // counted where it is received
      plan.unreachable += 1;
      plan.unreachable_bytes += view.bytes;
    }
    return;
  }
  if (blocks.count < blocks.capacity) blocks.items[blocks.count++] = {peer, view, 0, repeated, 0, 0, 0};
}

void append(Plan& plan, const Event& e, Blocks& blocks, int rank, const View& view) {
  Reason why = Reason::kNone;
  Peer* peer = view.bytes != 0 ? ledger::peer_of(*e.comm, rank, &why) : nullptr;
  append(plan, blocks, peer, why, view);
}

void agree_on(Plan& plan, const Event& e, int root) {
  plan.agrees = true;
  if (e.comm->size > 1) plan.tree = &tree_of(*e.comm, root, plan.tree_room);
}

// --- One function for each form ---------------------------------------------------------------------------------

void bcast_as_point_to_point(Plan& plan, const Event& e, bool root, int receivers) {
  const View data = whole(e, e.send);
  if (!root) return append(plan, e, plan.receives, e.peer, data);
  if (!reserve(plan, plan.sends, receivers)) return;
  for (int i = 0; i < receivers; ++i)
    if (plan.intercomm || i != e.comm->rank) append(plan, e, plan.sends, i, data);
}

void make_bcast(Plan& plan, const Event& e) {
  const CommInfo& comm = *e.comm;
  if (!plan.intercomm) {
    plan.name.root = e.peer;
    if (comm.size > 1 && as_point_to_point(comm))
      return bcast_as_point_to_point(plan, e, comm.rank == e.peer, comm.size);
    put(plan.result, whole(e, e.send));
    if (plan.result.bytes != 0) agree_on(plan, e, e.peer);
    return;
  }
  if (e.peer == ring::kProcNull) return;
  if (as_point_to_point(comm)) return bcast_as_point_to_point(plan, e, e.peer == ring::kRootSelf, comm.remote_size);
  const View data = whole(e, e.send);
  if (e.peer == ring::kRootSelf) return append(plan, e, plan.sends, 0, data);
  if (comm.rank == 0) append(plan, e, plan.receives, e.peer, data);
  plan.result = data;
  if (data.bytes != 0) agree_on(plan, e, 0);
}

/// Blocks as packets.
void append_all(Plan& plan, const Event& e, const Transfer& t, Blocks& blocks, int64_t but) {
  if (!reserve(plan, blocks, t.end - t.first)) return;
  for (int64_t i = t.first; i < t.end; ++i)
    if (i != but) append(plan, e, blocks, t.rank_of(i), view_at(e, t, i));
}

/// Of alltoall in place the own block, too: it has to stay what it was.
[[gnu::flatten]] void make_blocks(Plan& plan, const Event& e) {
  const Members members = members_of(*e.comm);
  const Transfer given = sent(e, members, backend->is_in_place), got = received(e, members, backend->is_in_place);
  plan.in_place = given.in_place;
  append_all(plan, e, given, plan.sends, plan.in_place ? -1 : given.own);
  append_all(plan, e, got, plan.receives, plan.in_place ? -1 : got.own);
}

void allgather_as_point_to_point(Plan& plan, const Event& e, const Transfer& given, const Transfer& got) {
  const int64_t here = plan.intercomm ? -1 : e.comm->rank, partners = got.end;
  const View mine = view_at(e, given, given.first);
  if (!reserve(plan, plan.sends, partners) || !reserve(plan, plan.receives, partners)) return;
  for (int64_t i = 0; i < partners; ++i)
    if (i != here || !plan.in_place) {
      append(plan, e, plan.sends, static_cast<int>(i), mine);
      append(plan, e, plan.receives, static_cast<int>(i), view_at(e, got, i));
    }
  if (!plan.in_place) return;
  plan.own = mine.bytes != 0;  // it has to stay what it was
  put(plan.own_got, mine);
  put(plan.own_given, mine);
}

[[gnu::flatten]] void make_allgather(Plan& plan, const Event& e) {
  const CommInfo& comm = *e.comm;
  const Members members = members_of(comm);
  const Transfer given = sent(e, members, backend->is_in_place), got = received(e, members, backend->is_in_place);
  if (!given.any()) return;
  const auto partners = static_cast<int>(members.partners());
  plan.in_place = given.in_place;
  if (as_point_to_point(comm)) return allgather_as_point_to_point(plan, e, given, got);
  if (got.counts == nullptr) {
    put(plan.result, whole(e, e.receive, partners));
  } else {
    plan.result_parts = true;
    plan.result = {nullptr, 0, nullptr, 0, Reason::kNone};
    if (!reserve(plan, plan.parts, partners)) return;
    for (int i = 0; i < partners; ++i) {
      const View part = view_at(e, got, i);
      plan.result.bytes += part.bytes;
      if (part.reason != Reason::kNone) plan.result.reason = part.reason;
      plan.parts.items[plan.parts.count++] = {nullptr, part, 0, false, 0, 0, 0};
    }
  }
  if (plan.result.bytes != 0) agree_on(plan, e, 0);
  if (!plan.intercomm) {
    put(plan.own_got, view_at(e, got, comm.rank));
    put(plan.own_given, plan.in_place ? plan.own_got : view_at(e, given, 0));
    plan.own = plan.own_got.bytes != 0;
    return;
  }
  append(plan, e, plan.sends, comm.rank % comm.remote_size, view_at(e, given, 0));
  if (!reserve(plan, plan.receives, partners / comm.size + 1)) return;
  for (int i = comm.rank; i < partners; i += comm.size) append(plan, e, plan.receives, i, view_at(e, got, i));
}

void make_neighbour(Plan& plan, const Event& e) {
  Reason why = Reason::kNone;
  Neighbours* neighbours = neighbours_take(*e.comm, &why);
  if (neighbours == nullptr) {
    plan.unreachable = 1;
    plan.unreachable_why = why;
    return;
  }
  const Members members = {e.comm->rank, e.comm->size, -1, neighbours->in, neighbours->out};
  const Transfer given = sent(e, members, backend->is_in_place), got = received(e, members, backend->is_in_place);
  const bool all = given.partner == Partner::kSeveral;
  if (reserve(plan, plan.sends, neighbours->out) && reserve(plan, plan.receives, neighbours->in)) {
    for (int i = 0; i < neighbours->out; ++i)
      if (const Edge& to = neighbours->destinations()[i]; to.peer != nullptr || to.why != Reason::kNone)
        append(plan, plan.sends, to.peer, to.why, view_at(e, given, all ? 0 : i), to.repeated);
    for (int i = 0; i < neighbours->in; ++i)
      if (const Edge& from = neighbours->sources()[i]; from.peer != nullptr || from.why != Reason::kNone)
        append(plan, plan.receives, from.peer, from.why, view_at(e, got, i), from.repeated);
  }
  neighbours_give(neighbours);
}

void make_reduction(Plan& plan, const Event& e) {
  CommInfo& comm = *e.comm;
  Reduction& r = plan.reduction;
  const bool scattered = is_reduce_scatter(plan.form);
  const bool prefix = plan.form == Collective::kScan || plan.form == Collective::kExscan;
  const Members members = members_of(comm);
  if (plan.form == Collective::kReduce && is_bystander(e, members)) return;
  plan.reduces = true;
  plan.gets_result = plan.form != Collective::kReduce || is_root(e, members);
  const bool gives = plan.form != Collective::kReduce || !plan.intercomm || e.peer >= 0;
  plan.in_place = gives && is_overwritten(e, backend->is_in_place);
  if (plan.form == Collective::kReduce && !plan.intercomm) plan.name.root = e.peer;
  r.first = 0;
  r.total = e.send.count;
  int64_t mine = e.send.count;
  if (scattered) {
    auto count_of = [&](int i) { return e.receive.counts != nullptr ? count_at(e, e.receive, i) : e.receive.count; };
    r.total = 0;
    for (int i = 0; i < comm.size; ++i) {
      if (i == comm.rank) r.first = r.total;
      r.total += count_of(i);
    }
    mine = count_of(comm.rank);
  }
  const uint64_t type = plan.gets_result ? e.receive.type : e.send.type;
  if (r.total <= 0) {
    plan.reduces = false;
    return;
  }
  const TypeMap* map = type_map(*e.thread, type);
  reduction_classify(r, e.op, map);
  put(r.input, gives ? make_view(map, plan.in_place ? e.receive.buffer : e.send.buffer, r.total) : View{});
  put(r.output, plan.gets_result && mine > 0 ? make_view(map, e.receive.buffer, mine) : View{});
  if (plan.form == Collective::kExscan && comm.rank == 0)
    plan.gets_result = false;  // its receive buffer is not significant
  if (plan.intercomm) {
    r.linear = LinearMode::kNone;  // each group gets what the other one gave
    r.input = {};
    if (r.why == Reason::kNone) r.why = Reason::kReduction;
  } else if (!prefix) {
    plan.sums = r.linear != LinearMode::kNone && comm.size > 1;
  }
  if (prefix && r.linear != LinearMode::kNone) {
    Reason why = Reason::kNone;
    if (comm.rank + 1 < comm.size && (plan.chain_next = ledger::peer_of(comm, comm.rank + 1, &why)) == nullptr)
      plan.unreachable_why = why;
    if (comm.rank > 0 && (plan.chain_before = ledger::peer_of(comm, comm.rank - 1, &why)) == nullptr) {
      plan.unreachable = 1;
      plan.unreachable_why = why;
    }
  }
  if (plan.form == Collective::kAllreduce && r.comparable) {
    put(plan.result, r.output);
    agree_on(plan, e, 0);
  } else if (plan.sums) {
    plan.tree = &tree_of(comm, 0, plan.tree_room);
  }
}

void clear(Blocks& blocks) {
  blocks.items = &blocks.room;
  blocks.count = 0;
  blocks.capacity = 1;
  blocks.memory = 0;
}

void hold(const View& view, bool keep) {
  if (view.type != nullptr) keep ? type_map_hold(view.type) : type_map_release(view.type);
}

void hold(Blocks& blocks, bool keep) {
  for (uint32_t i = 0; i < blocks.count; ++i) hold(blocks.items[i].view, keep);
}

void hold_all(Plan& plan, bool keep) {
  hold(plan.sends, keep);
  hold(plan.receives, keep);
  hold(plan.parts, keep);
  if (plan.agrees) hold(plan.result, keep);
  if (plan.own) {
    hold(plan.own_given, keep);
    hold(plan.own_got, keep);
  }
  if (plan.reduces) {
    hold(plan.reduction.input, keep);
    hold(plan.reduction.output, keep);
  }
}

}  // namespace

bool plan_make(Plan& plan, Event& e) {
  const CommInfo& comm = *e.comm;
  plan.form = collective_of(e.id);
  const uint64_t id = comm.ring->id;
  const auto number = static_cast<uint32_t>(e.sequence);
  plan.persistent = (e.attributes & kCallPersistent) != 0;
  plan.blocking = !(e.attributes & kCallStarts);
  plan.name = {id, id, e.comm, number, 0, e.id, 0, e.site, e.bytes, 0, 0};
  if (plan.persistent) {  // one series of numbers for each request
    plan.name.comm = hash_combine(hash_combine(id, e.sequence), 0x7065727369737400);
    plan.name.tag = 0;
    plan.name.init = number;
  }
  plan.life = 0;
  plan.active = plan.inputs_read = plan.in_place = plan.agrees = plan.result_parts = false;
  plan.own = plan.own_compared = false;
  plan.reduces = plan.sums = plan.gets_result = false;
  plan.intercomm = comm.remote_size >= 0;
  plan.reason = plan.outcome = plan.unreachable_why = Reason::kNone;
  plan.unreachable = 0;
  plan.unreachable_bytes = plan.result_posted = 0;
  plan.how = {};
  plan.tree = nullptr;
  plan.chain_next = plan.chain_before = nullptr;
  clear(plan.sends);
  clear(plan.receives);
  clear(plan.parts);
  switch (plan.form) {
    case Collective::kBcast: make_bcast(plan, e); break;
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAlltoall: make_blocks(plan, e); break;
    case Collective::kAllgather: make_allgather(plan, e); break;
    case Collective::kNeighborAllgather:
    case Collective::kNeighborAlltoall: make_neighbour(plan, e); break;
    case Collective::kReduce:
    case Collective::kAllreduce:
    case Collective::kReduceScatter:
    case Collective::kReduceScatterBlock:
    case Collective::kScan:
    case Collective::kExscan: make_reduction(plan, e); break;
    case Collective::kNone:
    case Collective::kBarrier: break;
  }
  const bool chain = plan.reduces && (plan.form == Collective::kScan || plan.form == Collective::kExscan);
  plan.moves = plan.sends.count != 0 || plan.receives.count != 0 || plan.tree != nullptr || plan.own ||
               plan.unreachable != 0 || plan.reason != Reason::kNone ||
               (plan.reduces && (plan.intercomm || comm.size > 1)) || chain;
  return plan.moves;
}

void plan_keep_tree(Plan& plan) {
  if (plan.tree == nullptr || plan.tree == &plan.tree_room) return;
  __builtin_memcpy(&plan.tree_room, plan.tree, sizeof(plan.tree_room));
  plan.tree = &plan.tree_room;
}

void plan_hold(Plan& plan) {
  plan_keep_tree(plan);
  hold_all(plan, true);
}

void plan_release(Plan& plan) { hold_all(plan, false); }

void plan_free(Plan& plan) {
  for (uint32_t i = 0; i < plan.receives.count; ++i)
    if (plan.receives.items[i].posted != 0) [[unlikely]]  // the call failed
      blame::drop_posted(plan.receives.items[i].posted);
  if (plan.result_posted != 0) [[unlikely]]
    blame::drop_posted(plan.result_posted);
  auto give = [](Blocks& blocks) {
    if (blocks.memory != 0) [[unlikely]]
      pool.release(blocks.items, blocks.memory);
  };
  give(plan.sends);
  give(plan.receives);
  give(plan.parts);
}

}  // namespace resil::collective
