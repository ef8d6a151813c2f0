// SPDX-License-Identifier: Apache-2.0
//
// See pending.h. Persistent: MPI_Alltoallv_init in which every rank sends its contribution to all who want it. (MPICH
// 4.0.2 delivers old data from MPI_Allgather_init and MPI_Gather_init when they are started again.)

#include "pipeline/reduction/pending.h"

#include <climits>
#include <cstring>

#include "pipeline/reduction/by_deposits.h"
#include "pipeline/reduction/counts.h"
#include "pipeline/reduction/kernel.h"
#include "pipeline/reduction/notes.h"
#include "pipeline/reduction/repeated.h"
#include "shim/abi/backend.h"
#include "shim/call/fast_path.h"
#include "shim/model/event.h"
#include "shim/report/log.h"
#include "shim/runtime/progress.h"
#include "shim/tables/deferred_free.h"
#include "shim/tables/tables.h"
#include "shim/tables/type_maps.h"

namespace resil::reduction {

/// One reduction under way. In memory from allocate().
struct Pending {
  Call call;
  Algorithm algorithm;
  bool folded;  ///< the result is in the program's buffer (since the last start)
  bool active;  ///< persistent: started and not complete
  int64_t ranks;  ///< contributions that this rank folds; 0: it receives no result
  int64_t elements;  ///< of each contribution, from its place on
  char* cells;  ///< contributions, `stride` apart
  size_t stride, offset;
  char* own;  ///< place of this rank's contribution among them, where it lies before the library's collective; or null
  char* packed;  ///< copy of this rank's contribution that the library reads; null: the program's buffer itself
  int* blocks;  ///< counts and places of MPI_Alltoallv, four arrays
  Deposited* deposited;  ///< null: contributions travel
  DepositPlace place;  ///< of this rank's
  bool counted;  ///< in fast::statuses_wanted
  // Of those that are used again with other buffers.
  SpareKind kind;
  Pending* next;
  char** rows;  ///< into `cells`, by rank
  Kernel kernel;
  size_t units;
};

namespace {

size_t bytes_of(const Call& c, int64_t elements) { return static_cast<size_t>(elements) * c.operand.cell; }

/// Does every rank want all of everybody's contribution, the root alone, or each its own block?
bool scatters(const Call& c) { return !c.inter() && is_reduce_scatter(c.operation); }

int64_t start_of(const Call& c, int64_t rank) {
  int64_t start = 0;
  for (int64_t r = 0; r < rank; ++r) start += c.block_of(r);
  return start;
}

int64_t longest_block(const Call& c) {
  int64_t longest = 0;
  for (int64_t r = 0; r < c.size; ++r) longest = c.block_of(r) > longest ? c.block_of(r) : longest;
  return longest;
}

/// The same answer on all ranks.
bool fits(const Call& c) {
  const int64_t ranks = c.remote > c.size ? c.remote : c.size;
  const int64_t each = scatters(c) ? longest_block(c) : c.count;
  const int64_t cells = kPendingBytes / static_cast<int64_t>(c.operand.cell);
  return c.count <= cells && each <= cells / ranks;
}

/// What this rank folds, and where its result begins.
void plan(Pending& p) {
  const Call& c = p.call;
  p.elements = c.count;
  p.stride = bytes_of(c, c.count);
  p.ranks = c.contributors();
  switch (c.operation) {
    case Collective::kAllreduce: break;
    case Collective::kReduce: p.ranks = c.is_root() ? p.ranks : 0; break;
    case Collective::kScan: p.ranks = c.rank + 1; break;
    case Collective::kExscan: p.ranks = c.rank; break;
    default:
      p.elements = c.block_of(c.rank);
      if (c.inter()) p.offset = bytes_of(c, start_of(c, c.rank));
      else p.stride = bytes_of(c, p.elements);
  }
}

/// Cells that this rank receives: also those that it does not fold (Scan).
size_t received(const Pending& p) {
  const Call& c = p.call;
  if (c.operation == Collective::kReduce && !c.is_root()) return 0;
  return p.stride * static_cast<size_t>(c.contributors());
}

/// Does this rank contribute? (Between groups only one side does to a Reduce.)
bool sends(const Call& c) { return !(c.operation == Collective::kReduce && c.inter() && c.root < 0); }

/// Bytes of all contributions together from which on they lie in deposits, where these can be reached: with less, one
/// message for each pair of ranks costs no more.
constexpr int64_t kDeposited = int64_t{4} << 10;

Deposited* make_deposited(const Call& c) {
  if (c.inter() || c.size > kNodeRanks || bytes_of(c, c.count) <= static_cast<size_t>(kDeposited / c.size))
    return nullptr;
  int ranks[kNodeRanks];
  if (!deposits_reach(c, ranks)) return nullptr;
  auto* d = reinterpret_cast<Deposited*>(allocate(sizeof(Deposited)));
  d->want = wanted(c);
  memcpy(d->ranks, ranks, sizeof(ranks));
  return d;
}

/// Counts and places for MPI_Alltoallv; ranks of the other group on intercommunicators.
void lay_out(Pending& p) {
  const Call& c = p.call;
  const int64_t peers = c.contributors();
  p.blocks = reinterpret_cast<int*>(allocate(static_cast<size_t>(4 * peers) * sizeof(int)));
  int *send = p.blocks, *send_place = send + peers, *receive = send_place + peers, *place = receive + peers;
  if (p.deposited != nullptr) {
    constexpr int kEach = sizeof(DepositPlace);
    for (int r = 0; r < c.size; ++r) {
      send[r] = receive[r] = kEach;
      send_place[r] = 0;
      place[r] = r * kEach;
    }
    return;
  }
  int64_t start = 0;
  for (int64_t r = 0; r < peers; ++r) {
    const bool wants = c.operation != Collective::kReduce || r == c.root;
    const int64_t elements = scatters(c) ? c.block_of(r) : c.count;
    send[r] = sends(c) && wants ? static_cast<int>(bytes_of(c, elements)) : 0;
    send_place[r] = scatters(c) ? static_cast<int>(bytes_of(c, start)) : 0;
    start += elements;
    const bool receives = c.operation != Collective::kReduce || c.is_root();
    receive[r] = receives ? static_cast<int>(p.stride) : 0;
    place[r] = static_cast<int>(static_cast<size_t>(r) * (receives ? p.stride : 0));
  }
}

/// Does the collective take this rank's contribution from its place among the others? The library's own copy costs more
/// than one here.
bool gathers_in_place(const Call& c) {
  return c.initiation == Initiation::kNonblocking && !c.inter() && !scatters(c) &&
         (c.operation != Collective::kReduce || c.is_root());
}

}  // namespace

void discard(Pending* p) {
  const Operand& o = p->call.operand;
  if (o.user) {
    release_handle(FreedKind::kOp, o.op_handle);
    release_handle(FreedKind::kType, o.type_handle);
    if (o.map != nullptr) type_map_release(o.map);
  }
  release(p->cells);
  release(p->packed);
  release(p->blocks);
  release(p->deposited);
  release(p->rows);
  release(p);
}

namespace {

/// Complete: the next one like it may have it.
void put_away(PerThread& mine, Pending* p) {
  Pending** spares = repeated_spares(mine, p->kind);
  if (spares == nullptr) return discard(p);
  p->next = *spares;
  *spares = p;
}

/// Whether the next call like it may go the short way.
void keep_for_next(const Event& e, Pending& p, PerThread& mine) {
  const Call& c = p.call;
  const Operand& o = c.operand;
  if (c.initiation != Initiation::kNonblocking || c.large || c.inter() || scatters(c) || p.deposited != nullptr) return;
  if (o.user || p.packed != nullptr || (o.mode == Mode::kExact && c.size > 2)) return;
  if (p.ranks != 0 && !direct(o, c.output, p.elements)) return;
  p.kind = repeated_learn_started(e, c, mine, p.algorithm);
  p.kernel = find_kernel(o.op, o.basic);
  p.units = static_cast<size_t>(p.elements) * p.kernel.units;
  p.rows = reinterpret_cast<char**>(allocate(static_cast<size_t>(p.ranks + 1) * sizeof(char*)));
  for (int64_t r = 0; r < p.ranks; ++r) p.rows[r] = p.cells + static_cast<size_t>(r) * p.stride;
}

Pending* prepare(const Call& call, Algorithm algorithm, Deposited* deposited) {
  auto* p = reinterpret_cast<Pending*>(allocate(sizeof(Pending)));
  *p = {};
  p->call = call;
  p->algorithm = algorithm;
  p->deposited = deposited;
  plan(*p);
  if (const size_t bytes = received(*p); bytes != 0 && deposited == nullptr) p->cells = allocate(bytes);
  if (p->cells != nullptr && gathers_in_place(call)) {
    p->own = p->cells + static_cast<size_t>(call.rank) * p->stride;
  } else if (deposited == nullptr && sends(call) && !direct(call.operand, call.input, call.count)) {
    p->packed = allocate(bytes_of(call, call.count));
  }
  const Operand& o = call.operand;
  if (o.user) {
    if (!keep_handle(FreedKind::kOp, o.op_handle) || !keep_handle(FreedKind::kType, o.type_handle)) {
      log_line(messages::reduction::too_many_pending);
      backend->messages->abort(93);
    }
    if (o.map != nullptr) type_map_hold(o.map);
  }
  return p;
}

void pack(Pending& p) {
  if (p.deposited != nullptr) {
    for (int r = 0; r < p.call.size; ++r) p.deposited->places[r].bytes = 0;
    return deposit(p.call, &p.place);
  }
  char* to = p.own != nullptr ? p.own : p.packed;
  if (to != nullptr) load(p.call.operand, p.call.input, 0, p.call.count, to);
}

int start(Event& e, Pending& p) {
  const Call& c = p.call;
  const CollectiveFunctions& mpi = *backend->collectives;
  if (p.deposited != nullptr) {
    p.deposited->places[c.rank] = p.place;
    return mpi.iallgather(c.comm, nullptr, sizeof(p.place), p.deposited->places, e.requests);
  }
  const void* own = p.own != nullptr ? nullptr : p.packed != nullptr ? p.packed : sends(c) ? c.input : &p;
  const int bytes = sends(c) ? static_cast<int>(bytes_of(c, c.count)) : 0;
  if (scatters(c)) {
    lay_out(p);
    const int64_t n = c.size;
    return mpi.ialltoallv(c.comm, own, p.blocks, p.blocks + n, p.cells, p.blocks + 2 * n, p.blocks + 3 * n, e.requests);
  }
  if (c.operation == Collective::kReduce)
    return mpi.igather(c.comm, own, c.inter() && c.is_root() ? static_cast<int>(p.stride) : bytes, p.cells, c.root,
                       e.requests);
  return mpi.iallgather(c.comm, own, bytes, p.cells, e.requests);
}

/// Puts the result into the program's buffer. Returns MPI's code.
int finish(Thread& thread, Pending& p) {
  if (p.folded) return 0;
  p.folded = true;
  Scratch& scratch = per_thread(thread).scratch;
  if (p.kind.number != 0 && scratch.bytes - scratch.top >= kFoldScratch) [[likely]] {
    if (p.ranks != 0)
      fold_prepared(p.kernel, p.rows, static_cast<size_t>(p.ranks), static_cast<char*>(p.call.output), p.units,
                    scratch.base + scratch.top);
    return 0;
  }
  Arena arena(scratch);
  if (p.deposited != nullptr) return finish_deposits(p.call, *p.deposited, arena);
  if (p.ranks == 0 || p.elements == 0) return 0;
  const Operand& o = p.call.operand;
  char** cells = arena.array<char*>(p.ranks);
  for (int64_t r = 0; r < p.ranks; ++r) cells[r] = p.cells + static_cast<size_t>(r) * p.stride + p.offset;
  const bool out_direct = direct(o, p.call.output, p.elements);
  char* result = out_direct ? static_cast<char*>(p.call.output) : cells[p.ranks - 1];
  const int error = fold_cells(o, cells, p.ranks, result, p.elements, arena);
  if (error == 0 && !out_direct) store(o, p.call.output, 0, p.elements, result);
  return error;
}

void finish_for(Event& e, Pending& p) {
  if (const int error = finish(*e.thread, p); error != 0 && e.result == 0) e.result = error;
}

/// It has been started, or not: what has to be done before the program has its request.
void is_started(Event& e, Pending* p) {
  if (e.result == 0 && !request_is_shared(request_handle(e.requests, 0))) [[likely]] {
    p->call.counts = nullptr;  // the program's array
    e.thread->started = reinterpret_cast<uint64_t>(p);
    return;
  }
  if (e.result == 0) finish_for(e, *p);  // it was complete at once
  put_away(per_thread(*e.thread), p);
}

}  // namespace

Pending* take_spare(Pending*& spares) {
  Pending* p = spares;
  if (p != nullptr) spares = p->next;
  return p;
}

void start_again(Event& e, Pending* p, const void* input, void* output) {
  Call& c = p->call;
  c.input = input;
  c.output = output;
  p->folded = false;
  if (const size_t bytes = bytes_of(c, c.count); p->own != nullptr) {
    if (bytes == 8) memcpy(p->own, input, 8);
    else memcpy(p->own, input, bytes);
  }
  e.result = start(e, *p);
  is_started(e, p);
}

bool start_pending(Event& e, const Call& call, PerThread& mine, Algorithm* algorithm) {
  Deposited* deposited = make_deposited(call);
  if (deposited == nullptr && !fits(call)) {
    *algorithm = Algorithm::kNativeSize;
    return false;
  }
  Pending* p = prepare(call, *algorithm, deposited);
  keep_for_next(e, *p, mine);
  if (call.initiation == Initiation::kPersistent) {
    lay_out(*p);
    const int64_t n = call.contributors();
    const void* own = p->packed != nullptr ? p->packed : call.input;
    void* all = p->cells;
    if (deposited != nullptr) {
      own = &p->place;
      all = deposited->places;
    }
    if (!backend->collectives->alltoallv_init(call.comm, own, p->blocks, p->blocks + n, all, p->blocks + 2 * n,
                                              p->blocks + 3 * n, e.requests, &e.result)) {
      discard(p);
      *algorithm = Algorithm::kNativePersistent;
      return false;
    }
  } else {
    pack(*p);
    if (deposited != nullptr) count_more(mine.counts.by_node, 1);
    e.result = start(e, *p);
  }
  is_started(e, p);
  return true;
}

void leave_pending(Event& e) {
  if (!(e.attributes & kCallStarts) || !is_reduction(collective_of(e.id))) return;
  auto* p = reinterpret_cast<Pending*>(e.thread->started);
  e.thread->started = 0;
  if (p == nullptr) return;
  if (e.cookies != nullptr) [[likely]] {
    e.cookies[kWord] = reinterpret_cast<uint64_t>(p);
    p->counted =
        fast::messages != nullptr;  // calls by tests are for messages: who completes this one goes the general way
    if (p->counted) __atomic_fetch_add(&fast::statuses_wanted, 1, __ATOMIC_RELAXED);
    return;
  }
  // More requests are pending than the tables can follow (a million): this one must be complete before the program has
  // it.
  wait_until(*e.thread, [&] { return backend->collectives->is_complete(e.requests); });
  finish_for(e, *p);
  put_away(per_thread(*e.thread), p);
}

void look_at_status(Event& e) {
  if (class_of(e.id) != CallClass::kGetStatus || e.result != 0 || e.flag == nullptr || *e.flag == 0) return;
  uint64_t* words = request_cookies(*e.thread, request_handle(e.requests, 0));
  auto* p = words != nullptr ? reinterpret_cast<Pending*>(words[kWord]) : nullptr;
  if (p == nullptr) return;
  if (p->call.initiation != Initiation::kPersistent || p->active) finish_for(e, *p);
}

void activating(Event& e, uint64_t* cookie) {
  if (class_of(e.id) != CallClass::kStart) return;
  auto* p = reinterpret_cast<Pending*>(*cookie);
  if (p == nullptr) return;
  p->active = true;
  p->folded = false;
  pack(*p);
  if (p->deposited != nullptr) count_more(per_thread(*e.thread).counts.by_node, 1);
  count_algorithm(per_thread(*e.thread), p->algorithm, bytes_of(p->call, p->call.count));
}

void completed(Event& e, int64_t, uint64_t* cookie, bool freed) {
  auto* p = reinterpret_cast<Pending*>(*cookie);
  if (p == nullptr) return;
  if (!freed) finish_for(e, *p);
  if (p->call.initiation == Initiation::kPersistent && !freed) {
    p->active = false;
    return;
  }
  *cookie = 0;
  if (p->counted) __atomic_fetch_sub(&fast::statuses_wanted, 1, __ATOMIC_RELAXED);
  p->counted = false;
  // Freed while it is under way (which MPI does not allow): the library may still write there.
  if (!freed || p->folded || p->call.initiation == Initiation::kPersistent) put_away(per_thread(*e.thread), p);
}

int reduction_over(Thread& thread, uint64_t word) {
  auto* p = reinterpret_cast<Pending*>(word);
  const int error = finish(thread, *p);
  put_away(per_thread(thread), p);
  return error;
}

}  // namespace resil::reduction
