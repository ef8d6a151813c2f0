// SPDX-License-Identifier: Apache-2.0
//
// See collective_rank.h.

#include "collective_rank.h"

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "checksum/collective/collective.h"
#include "checksum/collective/linear.h"
#include "checksum/ledger/blame.h"
#include "checksum/ledger/blame_internal.h"
#include "checksum/ledger/parts_internal.h"  // for struct Peer only
#include "shim/abi/backend.h"
#include "shim/base/digest/digest.h"
#include "shim/base/digest/variant.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/model/view.h"
#include "shim/report/finding.h"
#include "shim/report/json.h"
#include "shim/tables/tables.h"
#include "shim/tables/type_maps.h"

namespace resil {

Runtime runtime;

namespace {

using ledger::Peer;
using ledger::Record;

struct Comm {
  std::vector<int> local, remote, sources, destinations;
  bool inter = false;
  CommInfo info;
  ring::Comm ring = {};
};

RankState state;
std::map<uint64_t, std::unique_ptr<Comm>> comms;
std::vector<Peer> peers;
Thread thread_state;
ring::Header header;
bool abort_on;
bool full;  // RESIL_BLAME=full, but nothing is kept of buffers
void* bus;
void (*send)(void*, int, int, int, const void*, size_t);
void (*by_space[8])(Thread&, Peer&, const Record&);
void (*on_mismatch[8])(Thread&, Peer&, const Record&, const Record&);
void (*by_kind[16])(Thread&, Peer&, const void*, size_t);

using MatchQueueKey = std::tuple<int, uint8_t, uint64_t, uint32_t>;
struct MatchQueue {
  std::deque<Record> sent, received;
  bool unordered = false;
};
std::map<MatchQueueKey, MatchQueue> match_queues;

void settle(Peer& from, const Record& sent, const Record& received) {
  if ((sent.flags | received.flags) & ledger::kUnchecked) {
    const Record& why = received.flags & ledger::kUnchecked ? received : sent;
    ++state.uncovered[why.digest & 31];
  } else if (sent.digest == received.digest && sent.bytes == received.bytes) {
    ++state.checked;
  } else if (auto* handler = on_mismatch[sent.space]; handler != nullptr) {
    handler(thread_state, from, sent, received);
  } else {
    ++state.cases;
  }
}

void match(Peer& from, const Record& record, bool own) {
  MatchQueue& match_queue = match_queues[{from.world_rank, record.space, record.comm, record.tag}];
  match_queue.unordered = match_queue.unordered || (record.flags & ledger::kUnordered);
  (own ? match_queue.received : match_queue.sent).push_back(record);
  if (!match_queue.unordered) {
    while (!match_queue.sent.empty() && !match_queue.received.empty()) {
      const Record sent = match_queue.sent.front(), received = match_queue.received.front();
      match_queue.sent.pop_front();
      match_queue.received.pop_front();
      settle(from, sent, received);
    }
    return;
  }
  for (auto s = match_queue.sent.begin(); s != match_queue.sent.end();) {
    auto r = match_queue.received.begin();
    while (r != match_queue.received.end() && (r->digest != s->digest || r->bytes != s->bytes)) ++r;
    if (r == match_queue.received.end()) {
      ++s;
      continue;
    }
    settle(from, *s, *r);
    match_queue.received.erase(r);
    s = match_queue.sent.erase(s);
  }
}

bool is_in_place(const void* buffer) { return buffer == in_place(); }
bool comm_world_ranks(uint64_t handle, bool remote, int count, const int* ranks, int* world) {
  for (int i = 0; i < count; ++i)
    world[i] = (remote ? comms.at(handle)->remote : comms.at(handle)->local).at(static_cast<size_t>(ranks[i]));
  return true;
}
bool comm_degree(uint64_t handle, int* in, int* out) {
  *in = static_cast<int>(comms.at(handle)->sources.size());
  *out = static_cast<int>(comms.at(handle)->destinations.size());
  return true;
}
bool neighbors(uint64_t handle, int, int, int* sources, int* destinations) {
  const Comm& comm = *comms.at(handle);
  std::copy(comm.sources.begin(), comm.sources.end(), sources);
  std::copy(comm.destinations.begin(), comm.destinations.end(), destinations);
  return true;
}
OpKind op_kind(uint64_t op) { return static_cast<OpKind>(op); }
ErrorKind error_kind(int code) { return code == 0 ? ErrorKind::kNone : ErrorKind::kOther; }
bool status_ignored(const void*) { return true; }

TypeFunctions type_functions = [] {
  TypeFunctions f = {};
  f.op_kind = op_kind;
  return f;
}();
MessageFunctions message_functions = [] {
  MessageFunctions f = {};
  f.neighbors = neighbors, f.error_kind = error_kind, f.status_ignored = status_ignored;
  return f;
}();
Backend table = [] {
  Backend b = {};
  b.handle_bytes = 8, b.is_in_place = is_in_place, b.comm_world_ranks = comm_world_ranks, b.comm_degree = comm_degree;
  b.messages = &message_functions, b.types = &type_functions;
  return b;
}();

constexpr Run kOne[] = {{0, 4, 1, 0}};
TypeMap simple(uint64_t size, BasicKind kind) {
  return {size,
          static_cast<int64_t>(size),
          0,
          static_cast<int64_t>(size),
          true,
          false,
          true,
          1,
          kOne,
          {kind, {}, static_cast<uint16_t>(size), 0, 0, 0},
          basic_class(kind, static_cast<unsigned>(size)),
          nullptr,
          0};
}
TypeMap maps[] = {
    {},
    simple(4, BasicKind::kSigned),
    simple(4, BasicKind::kUnsigned),
    simple(8, BasicKind::kSigned),
    simple(1, BasicKind::kUnsigned),
    simple(4, BasicKind::kFloating),
    simple(8, BasicKind::kFloating),
    {16, 16, 0, 16, false, true, true, 1, kOne, {BasicKind::kLongDouble, {}, 16, 0, 0, 0}, 0, nullptr, 0},
    simple(16, BasicKind::kComplex),
    {12, 16, 0, 12, false, false, true, 1, kOne, {BasicKind::kPair, BasicKind::kFloating, 12, 8, 4, 0}, 0, nullptr, 0},
    {4, 12, 0, 4, false, false, false, 1, kOne, {BasicKind::kSigned, {}, 4, 0, 0, 0}, 0, nullptr, 0}};
int64_t held;

}  // namespace

const Backend* backend = &table;

const TypeMap* type_map_slow(Thread&, uint64_t type) { return type != kOpaque ? &maps[type] : nullptr; }
void type_map_hold(const TypeMap* map) { held += !map->permanent; }
void type_map_release(const TypeMap* map) { held -= !map->permanent; }
int64_t type_size_slow(Thread&, uint64_t type) { return type != kOpaque ? static_cast<int64_t>(maps[type].size) : 4; }
void type_span(const TypeMap& map, int64_t count, int64_t* low, int64_t* high) {
  *low = 0;
  *high = (count - 1) * map.extent + map.high;
}
uint64_t type_digest(const TypeMap& map, const void* buffer, int64_t count, uint64_t) {
  DigestStream stream;
  for (int64_t i = 0; i < count; ++i) stream.add(static_cast<const char*>(buffer) + i * map.extent, map.size);
  return stream.finish();
}
bool beyond(const char* data, size_t bytes, unsigned width) {
  for (size_t i = 0; i < bytes; i += width) {
    double number;
    float narrow;
    memcpy(width == 8 ? static_cast<void*>(&number) : &narrow, data + i, width);
    if (!std::isfinite(width == 8 ? number : static_cast<double>(narrow))) return true;
  }
  return false;
}
const DigestVariant& digest_variant() {
  static const DigestVariant variant = {"", nullptr, nullptr, beyond};
  return variant;
}
uint64_t digest(const void* data, size_t bytes) {
  DigestStream stream;
  stream.add(data, bytes);
  return stream.finish();
}
void DigestStream::add(const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    sum_ = hash_combine(sum_ + 1, static_cast<const unsigned char*>(data)[i] + ++index_ * 256);
}
uint64_t DigestStream::finish() { return sum_; }

uint64_t request_handle(const void* array, int64_t index) { return static_cast<const uint64_t*>(array)[index]; }
/// Seconds on the wall: a machine that is busy elsewhere for a moment must not end a vote.
double config_real(const char*) { return 0.3; }

void Finding::start(const char* of_kind, Confidence how_sure) {
  kind = of_kind;
  confidence = how_sure;
  culprit_count = victim_count = evidence_count = 0;
  to_do_text[0] = 0;
}
void Finding::culprit(int rank) { culprit_ranks[culprit_count++] = rank; }
void Finding::victim(int rank) { victim_ranks[victim_count++] = rank; }
void Finding::say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof(message), format, arguments);
  va_end(arguments);
}
void Finding::to_do(const char* format, ...) { to_do_text[0] = *format; }
void Finding::add(const char*, const char*, ...) {}
unsigned finding_publish(const Finding& finding) {
  if (finding.to_do_text[0] == 0) abort();
  for (uint32_t i = 0; i < finding.culprit_count; ++i) ++state.culprits[finding.culprit_ranks[i]];
  memcpy(state.last, finding.message, sizeof(state.last));
  return ++state.findings;
}
void stop_job(int) {
  state.stopped = true;
  abort_on = false;
  throw 90;
}

namespace blame {
uint64_t sent(int, uint64_t, const Record&, const View&) { return 0; }
void sent_complete(uint64_t, const View&) {}
void sent_complete(uint64_t, const View&, uint64_t) {}
void block_received(Peer&, const Record&) {}
uint64_t receive_posted(const View&) { return 0; }
uint64_t receive_complete(uint64_t, const View&, uint64_t, uint64_t, LookWhen, const Right*) { return 0; }
void drop_posted(uint64_t) {}
void drop(uint64_t) {}
void right(uint64_t) {}
bool receive_evidence(uint64_t, Evidence*, Content*) { return false; }
const char* verdict_text(Verdict) { return "verdict"; }
void site_text(uint64_t site, char* text, size_t bytes) {
  snprintf(text, bytes, "site %llu", static_cast<unsigned long long>(site));
}
}  // namespace blame

namespace ledger {
bool connected() { return true; }
bool strict() { return false; }
bool full_blame() { return full; }
bool abort_wanted() { return abort_on; }
void take_come(Thread&, bool) {}
void flush(Thread&) {}
bool concurrent() { return false; }
Peer* peer_of(int rank) { return &peers.at(static_cast<size_t>(rank)); }
Peer* peer_of(CommInfo& comm, int rank, Reason*) {
  const Comm& c = *comms.at(comm.handle);
  return peer_of((c.inter ? c.remote : c.local).at(static_cast<size_t>(rank)));
}
int world_rank_of(const Peer& peer) { return peer.world_rank; }
bool peer_is_self(const Peer& peer) { return peer.world_rank == runtime.rank; }
const char* host_of(const Peer&) { return "node"; }
bool records_dropped(const Peer&) { return false; }
uint64_t announce(Thread&, Peer& to, const Record& record) {
  send(bus, runtime.rank, to.world_rank, 0, &record, sizeof(record));
  return 0;
}
void expect(Thread&, Peer& from, const Record& record, uint64_t) { match(from, record, true); }
void await(Thread&, Peer&) {}
void count_checked(uint64_t messages, uint64_t) { state.checked += messages; }
void note_shared_memory() {}
void count_uncovered(Reason reason, uint64_t messages, uint64_t) {
  state.uncovered[static_cast<int>(reason)] += messages;
}
void count_mismatch() { ++state.mismatches; }
void handle_space(Space space, void (*handler)(Thread&, Peer&, const Record&)) {
  by_space[static_cast<int>(space)] = handler;
}
void handle_mismatch(Space space, void (*handler)(Thread&, Peer&, const Record&, const Record&)) {
  on_mismatch[static_cast<int>(space)] = handler;
}
void handle_kind(Kind kind, void (*handler)(Thread&, Peer&, const void*, size_t)) {
  by_kind[static_cast<int>(kind)] = handler;
}
bool post(Thread&, Peer& to, Kind kind, const void* payload, size_t bytes) {
  send(bus, runtime.rank, to.world_rank, static_cast<int>(kind), payload, bytes);
  return true;
}
}  // namespace ledger

namespace {

void start(int rank, int size, bool abort_wanted, void* of_bus,
           void (*how)(void*, int, int, int, const void*, size_t)) {
  runtime.rank = rank;
  runtime.size = size;
  runtime.header = &header;
  header.ticks_per_second = 1e9;
  strcpy(runtime.host, "node");
  abort_on = abort_wanted;
  full = getenv("COLLECTIVE_RANK_FULL") != nullptr;
  bus = of_bus;
  send = how;
  peers.resize(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) peers[static_cast<size_t>(i)].world_rank = i;
  thread_state.type_generation = handle_generation.load();
  collective::prepare();
  collective::connect();
}

CommInfo* comm(uint64_t id, const int* local, int local_size, const int* remote, int remote_size, const int* sources,
               int in, const int* destinations, int out) {
  auto made = std::make_unique<Comm>();
  made->local.assign(local, local + local_size);
  made->remote.assign(remote, remote + remote_size);
  made->inter = remote != nullptr;
  made->sources.assign(sources, sources + in);
  made->destinations.assign(destinations, destinations + out);
  made->ring.id = id;
  strcpy(made->ring.name, "comm");
  CommInfo& info = made->info;
  info.handle = id;
  info.ring = &made->ring;
  info.index = 2;
  info.size = local_size;
  info.remote_size = made->inter ? remote_size : -1;
  for (int i = 0; i < local_size; ++i)
    if (local[i] == runtime.rank) info.rank = i;
  comms[id] = std::move(made);
  return &info;
}

void arrive(int from, int kind, const void* data, size_t bytes) {
  Peer& peer = peers.at(static_cast<size_t>(from));
  if (kind != 0) return by_kind[kind](thread_state, peer, data, bytes);
  Record record;
  memcpy(&record, data, sizeof(record));
  if (auto* handler = by_space[record.space]; handler != nullptr) handler(thread_state, peer, record);
  else match(peer, record, false);
}

void read_state(RankState* to) {
  state.pending = 0;
  for (const auto& [key, match_queue] : match_queues)
    state.pending += match_queue.sent.size() + match_queue.received.size();
  state.unverified = collective::unverified();
  state.held = held;
  *to = state;
}

const RankApi kApi = {start,
                      comm,
                      collective::enter,
                      collective::leave,
                      collective::activating,
                      collective::activated,
                      [](Event& e, uint64_t* cookie, bool freed) { collective::completed(e, 0, cookie, freed); },
                      arrive,
                      [] { collective::progress(thread_state); },
                      [] { header.phase = static_cast<uint32_t>(ring::Phase::kFinalizing); },
                      read_state,
                      [] { return &thread_state; }};

}  // namespace
}  // namespace resil

extern "C" [[gnu::visibility("default")]] const RankApi* rank_api() { return &resil::kApi; }
