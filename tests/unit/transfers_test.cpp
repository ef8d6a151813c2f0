// SPDX-License-Identifier: Apache-2.0
//
// shim/model/transfers.h against a plain statement of the standard, the table below: random calls of every collective,
// variant, root, group and place, in which every argument that is not significant is garbage; then messages, one-sided
// operations and files by name.
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "shim/model/transfers.h"

namespace resil {
uint64_t request_handle(const void* array, int64_t index) { return static_cast<const uint64_t*>(array)[index]; }
}  // namespace resil

namespace {

using resil::CallId;
using resil::Collective;
using resil::Counts;
using resil::DataArgument;
using resil::Event;
using resil::Members;
using resil::Partner;
using resil::Transfer;
namespace ring = resil::ring;

const char in_place = 0;
bool is_in_place(const void* buffer) { return buffer == &in_place; }

/// How an argument is divided. One: it is not. Sum: the blocks of all ranks of this group as one, by the counts of the
/// result. Own: this rank's of these alone.
enum class Parts { kOne, kEach, kNeighbors, kSum, kOwn };

/// MPI 4.1, chapters 6 and 8. Who takes part, by role: R the root, L another rank; on an intercommunicator r the root,
/// l a rank of the other group, b the rest of the root's group; calls without a root: x, but y on rank 0.
struct Row {
  Collective operation;
  const char* sends;
  Parts given;
  const char* receives;
  Parts got;
  const char* in_place;  ///< roles that may say so, in front of the argument that is then MPI_IN_PLACE: s or r
};

constexpr Row kStandard[] = {
    {Collective::kBarrier, "", Parts::kOne, "", Parts::kOne, ""},
    {Collective::kBcast, "Rr", Parts::kOne, "Ll", Parts::kOne, ""},
    {Collective::kGather, "RLl", Parts::kOne, "Rr", Parts::kEach, "Rs"},
    {Collective::kScatter, "Rr", Parts::kEach, "RLl", Parts::kOne, "Rr"},
    {Collective::kAllgather, "xy", Parts::kOne, "xy", Parts::kEach, "xys"},
    {Collective::kAlltoall, "xy", Parts::kEach, "xy", Parts::kEach, "xys"},
    {Collective::kReduce, "RLl", Parts::kOne, "Rr", Parts::kOne, "Rs"},
    {Collective::kAllreduce, "xy", Parts::kOne, "xy", Parts::kOne, "xys"},
    {Collective::kReduceScatter, "xy", Parts::kSum, "xy", Parts::kOwn, "xys"},
    {Collective::kReduceScatterBlock, "xy", Parts::kSum, "xy", Parts::kOwn, "xys"},
    {Collective::kScan, "xy", Parts::kOne, "xy", Parts::kOne, "xys"},
    {Collective::kExscan, "xy", Parts::kOne, "x", Parts::kOne, "xys"},
    {Collective::kNeighborAllgather, "xy", Parts::kOne, "xy", Parts::kNeighbors, ""},
    {Collective::kNeighborAlltoall, "xy", Parts::kNeighbors, "xy", Parts::kNeighbors, ""},
};

const Row& row_of(Collective operation) {
  for (const Row& row : kStandard)
    if (row.operation == operation) return row;
  FAIL("no row for a collective");
  return kStandard[0];
}

bool is_reduction(const Row& row) {
  return row.operation >= Collective::kReduce && row.operation <= Collective::kExscan;
}

/// A type is a number; its extent follows from it.
int64_t extent_of(uint64_t type) { return static_cast<int64_t>(type % 64); }

struct Block {
  int32_t rank;
  uintptr_t address;
  int64_t count;
  uint64_t type;
  bool operator==(const Block&) const = default;
};

std::vector<Block> blocks_of(const Transfer& t) {
  std::vector<Block> blocks;
  for (int64_t i = t.first; i < t.end; ++i) {
    const int64_t count = t.count_of(i);
    if (count == 0) continue;
    const uint64_t type = t.type_of(i);
    blocks.push_back({t.rank_of(i),
                      reinterpret_cast<uintptr_t>(t.buffer) + static_cast<uintptr_t>(t.offset_of(i, extent_of(type))),
                      count, type});
  }
  return blocks;
}

/// An argument with its arrays.
struct Argument {
  uintptr_t buffer = 0;
  std::vector<int64_t> counts, steps, places;
  std::vector<uint64_t> types;
  std::vector<int> narrow_counts, narrow_steps;
  bool arrays = false, typed = false;

  Block block(size_t i, int32_t rank) const {
    return {rank, buffer + static_cast<uintptr_t>(places[i]), counts[i], types[i]};
  }
};

std::mt19937_64 generator(1);
int64_t below(int64_t limit) { return static_cast<int64_t>(generator() % static_cast<uint64_t>(limit)); }
uint64_t any_type() { return 0x7000 + static_cast<uint64_t>(1 + below(40)); }
uintptr_t any_buffer() { return 0x10000000 + static_cast<uintptr_t>(below(1000)) * 0x100000; }

/// `n` blocks: of one count, or by arrays. Some are empty.
Argument argument(int64_t n, Counts counts, bool large) {
  Argument a;
  a.buffer = any_buffer();
  a.arrays = counts != Counts::kUniform;
  a.typed = counts == Counts::kTyped;
  const uint64_t type = any_type();
  const int64_t count = below(4);
  for (int64_t i = 0; i < n; ++i) {
    a.types.push_back(a.typed ? any_type() : type);
    a.counts.push_back(!a.arrays ? count : large ? below(3) << 33 : below(3));
    a.steps.push_back(a.arrays ? below(1000) : i * count);
    a.places.push_back(a.steps.back() * (a.typed ? 1 : extent_of(type)));
    a.narrow_counts.push_back(static_cast<int>(a.counts.back()));
    a.narrow_steps.push_back(static_cast<int>(a.steps.back()));
  }
  return a;
}

void* garbage() { return reinterpret_cast<void*>(0xa7a7a7a7a7a7a7a7); }

/// The argument as the wrapper files it (shim/api/gen.py).
void describe(DataArgument& side, const Argument& a, bool large, bool wide_places) {
  side.buffer = reinterpret_cast<const void*>(a.buffer);
  if (a.arrays) {
    side.counts = large ? static_cast<const void*>(a.counts.data()) : a.narrow_counts.data();
    side.displacements = wide_places ? static_cast<const void*>(a.steps.data()) : a.narrow_steps.data();
  } else if (!a.counts.empty()) {
    side.count = a.counts[0];
  }
  if (a.typed) side.types = a.types.data();
  else if (!a.types.empty()) side.type = a.types[0];
}

Event empty_event(CallId id) {
  Event e;
  memset(static_cast<void*>(&e), 0xa7, sizeof(e));
  e.id = id;
  e.attributes = resil::call_info(id).attributes;
  e.large = (e.attributes & resil::kCallLargeCount) != 0;
  e.peer = ring::kNoPeer;
  return e;
}

std::string_view base_name(CallId id) {
  std::string_view name = resil::call_info(id).name + 4;
  if (name.size() > 2 && name.substr(name.size() - 2) == "_c") name.remove_suffix(2);
  return name;
}

bool is_one_of(char role, const char* roles) { return strchr(roles, role) != nullptr; }

struct Made {
  Event e;
  Members m;
  Argument send, receive;
  std::vector<Block> sent, received;
  int64_t own_sent = -1, own_received = -1;
};

std::vector<Block> expected(const Argument& a, Parts parts, int32_t peer, const Members& m) {
  std::vector<Block> blocks;
  int64_t sum = 0;
  for (size_t i = 0; i < a.counts.size(); ++i) {
    sum += a.counts[i];
    const auto index = static_cast<int32_t>(i);
    if (parts == Parts::kOwn ? index == m.rank : parts != Parts::kSum)
      blocks.push_back(a.block(i, parts == Parts::kEach ? index : parts == Parts::kOne ? peer : -1));
  }
  if (parts == Parts::kOwn) blocks[0].address = a.buffer;  // a result of its own
  if (parts == Parts::kSum) blocks.push_back({-1, a.buffer, sum, a.types[0]});
  std::erase_if(blocks, [](const Block& block) { return block.count == 0; });
  return blocks;
}

/// A random call, every argument of it garbage that the standard does not call significant for its role.
void make(Made& made, CallId id) {
  const resil::CallInfo& info = resil::call_info(id);
  const Row& row = row_of(info.collective);
  const bool neighborhood = row.operation >= Collective::kNeighborAllgather, reduces = is_reduction(row);
  const bool prefix = row.operation == Collective::kScan || row.operation == Collective::kExscan;
  const bool rooted = is_one_of('R', row.sends) || is_one_of('R', row.receives);
  Members& m = made.m;
  m.size = static_cast<int32_t>(1 + below(5));
  m.rank = static_cast<int32_t>(below(m.size));
  m.remote_size = neighborhood || prefix || below(3) != 0 ? -1 : static_cast<int32_t>(1 + below(4));
  m.indegree = static_cast<int32_t>(below(4));
  m.outdegree = static_cast<int32_t>(below(4));
  Event& e = made.e;
  e = empty_event(id);
  e.send.counts = e.receive.counts = e.send.types = e.receive.types = nullptr;
  char role = m.rank == 0 ? 'y' : 'x';
  if (rooted && m.remote_size < 0) {
    e.peer = static_cast<int32_t>(below(m.size));
    role = e.peer == m.rank ? 'R' : 'L';
  } else if (rooted) {
    role = "rlb"[below(3)];
    e.peer = role == 'r' ? ring::kRootSelf : role == 'b' ? ring::kProcNull : static_cast<int32_t>(below(m.remote_size));
  }
  const size_t marks = strlen(row.in_place);
  const char marked = marks == 0 ? 0 : row.in_place[marks - 1];
  const bool here = marks != 0 && m.remote_size < 0 && below(2) == 0 &&
                    std::string_view(row.in_place, marks - 1).find(role) != std::string_view::npos;
  const bool sends = is_one_of(role, row.sends), receives = is_one_of(role, row.receives);
  // The arguments.
  const Counts variant = row.operation == Collective::kReduceScatter ? Counts::kVector : info.counts;
  auto divided = [](Parts parts) { return parts != Parts::kOne; };
  auto length = [&](Parts parts, int32_t degree) -> int64_t {
    if (parts == Parts::kEach) return m.remote_size >= 0 ? m.remote_size : m.size;
    return parts == Parts::kNeighbors ? degree : parts == Parts::kOne ? 1 : m.size;
  };
  made.send = argument(length(row.given, m.outdegree), divided(row.given) ? variant : Counts::kUniform, e.large);
  made.receive = argument(length(row.got, m.indegree), divided(row.got) ? variant : Counts::kUniform, e.large);
  if (reduces) {  // one count and type for both buffers
    const uintptr_t buffer = made.receive.buffer;
    made.receive = made.send;
    made.receive.buffer = buffer;
  }
  for (auto [side, parts] : {std::pair{&e.send, row.given}, {&e.receive, row.got}}) {
    if (divided(parts) && variant != Counts::kUniform) side->counts = garbage();
    if (divided(parts) && variant == Counts::kTyped) side->types = garbage();
  }
  const bool wide_places = e.large || (variant == Counts::kTyped && neighborhood);
  const bool by_bcast = row.operation == Collective::kBcast;
  const bool from_receive = here && marked == 's' && row.operation != Collective::kGather;
  if ((sends && !(here && marked == 's')) || (by_bcast && receives)) describe(e.send, made.send, e.large, wide_places);
  if ((receives && !by_bcast && !(here && marked == 'r')) || from_receive)
    describe(e.receive, made.receive, e.large, wide_places);
  if (reduces && (sends || receives)) {
    const void *send = e.send.buffer, *receive = e.receive.buffer;
    describe(e.send, made.send, e.large, wide_places);
    describe(e.receive, made.receive, e.large, wide_places);
    e.send.buffer = sends ? send : garbage();
    e.receive.buffer = receives || from_receive ? receive : garbage();
    e.send.displacements = e.receive.displacements = garbage();
  }
  if (here) (marked == 's' ? e.send : e.receive).buffer = &in_place;
  // What moves.
  const int32_t root = row.operation == Collective::kGather ? e.peer : -1;
  const int32_t from = by_bcast || row.operation == Collective::kScatter ? e.peer : -1;
  if (sends) made.sent = expected(made.send, row.given, root, m);
  if (receives) made.received = expected(by_bcast ? made.send : made.receive, row.got, from, m);
  if (row.operation == Collective::kNeighborAllgather && m.outdegree == 0) made.sent.clear();  // to nobody
  if (!here) return;
  switch (row.operation) {
    case Collective::kGather:
      made.sent.clear();
      made.own_received = m.rank;
      break;
    case Collective::kScatter:
      made.received.clear();
      made.own_sent = m.rank;
      break;
    case Collective::kAllgather:
      made.sent.clear();
      if (const Block own = made.receive.block(static_cast<size_t>(m.rank), -1); own.count != 0)
        made.sent.push_back(own);
      made.own_received = m.rank;
      break;
    case Collective::kAlltoall:
      made.sent = made.received;
      made.own_sent = made.own_received = m.rank;
      break;
    default:
      for (Block& block : made.sent) block.address = made.receive.buffer;
  }
}

bool any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  for (std::string_view other : names)
    if (name == other) return true;
  return false;
}

}  // namespace

TEST_CASE("transfers: collectives, each operation, variant, root, group and place") {
  unsigned calls = 0, moved = 0, in_their_place = 0;
  for (unsigned id = 0; id < resil::kCallCount; ++id) {
    if (resil::class_of(static_cast<CallId>(id)) != resil::CallClass::kCollective) continue;
    for (int round = 0; round < 400; ++round) {
      Made made;
      make(made, static_cast<CallId>(id));
      INFO(resil::call_info(static_cast<CallId>(id)).name << " rank " << made.m.rank << " of " << made.m.size
                                                          << ", remote " << made.m.remote_size << ", root "
                                                          << made.e.peer);
      const Transfer sent = resil::sent(made.e, made.m, is_in_place);
      const Transfer received = resil::received(made.e, made.m, is_in_place);
      REQUIRE(blocks_of(sent) == made.sent);
      REQUIRE(blocks_of(received) == made.received);
      REQUIRE(sent.own == made.own_sent);
      REQUIRE(received.own == made.own_received);
      const bool overwritten = made.e.send.buffer == &in_place && sent.any();
      REQUIRE(sent.in_place == overwritten);
      REQUIRE_FALSE(received.in_place);
      ++calls;
      moved += !made.sent.empty() || !made.received.empty();
      in_their_place += overwritten;
    }
  }
  CHECK(calls > 20000);
  CHECK(moved > calls / 2);
  CHECK(in_their_place > calls / 20);
}

TEST_CASE("transfers: MPI_IN_PLACE where MPI refuses it moves nothing") {
  Made made;
  Members inter = {1, 2, 3, 0, 0};
  for (CallId id : {CallId::kMPI_Allgather, CallId::kMPI_Alltoall, CallId::kMPI_Alltoallw}) {
    Event e = empty_event(id);
    e.send.counts = e.receive.counts = e.send.types = e.receive.types = nullptr;
    e.send.buffer = &in_place;
    CHECK_FALSE(resil::sent(e, inter, is_in_place).any());
  }
  Event e = empty_event(CallId::kMPI_Reduce);
  e.peer = 0;
  e.send.buffer = &in_place;
  CHECK_FALSE(resil::sent(e, {1, 2, -1, 0, 0}, is_in_place).any());
}

TEST_CASE("transfers: messages, one-sided operations and files, each function by its name") {
  unsigned sending = 0, receiving = 0;
  for (unsigned number = 0; number < resil::kCallCount; ++number) {
    const auto id = static_cast<CallId>(number);
    if (resil::class_of(id) == resil::CallClass::kCollective) continue;
    const std::string_view name = base_name(id);
    const bool both = any_of(name, {"Sendrecv", "Isendrecv", "Sendrecv_replace", "Isendrecv_replace", "Get_accumulate",
                                    "Rget_accumulate", "Fetch_and_op", "Compare_and_swap"});
    const bool replaces = name.ends_with("endrecv_replace"), exchanges = name.find("endrecv") != name.npos;
    const bool is_file = name.starts_with("File_") && !name.ends_with("_end");
    const bool writes = is_file && (name.starts_with("File_write") || name.starts_with("File_iwrite"));
    const bool reads = is_file && (name.starts_with("File_read") || name.starts_with("File_iread"));
    const bool sends = both || writes ||
                       any_of(name, {"Send", "Bsend", "Ssend", "Rsend", "Isend", "Ibsend", "Issend", "Irsend",
                                     "Send_init", "Bsend_init", "Ssend_init", "Rsend_init", "Psend_init", "Put", "Rput",
                                     "Accumulate", "Raccumulate"});
    const bool receives =
        both || reads || any_of(name, {"Recv", "Irecv", "Recv_init", "Mrecv", "Imrecv", "Precv_init", "Get", "Rget"});
    for (bool to_nobody : {false, true}) {
      Event e = empty_event(id);
      e.send = {reinterpret_cast<void*>(0x10000), 3, 0x7008, nullptr, nullptr, nullptr};
      e.receive = {reinterpret_cast<void*>(0x20000), 5, 0x7010, nullptr, nullptr, nullptr};
      e.peer = to_nobody ? ring::kProcNull : 1;
      e.receive_peer = 2;
      e.partitions = 4;
      const int64_t times = name.starts_with("Ps") || name.starts_with("Pr") ? 4 : 1;
      std::vector<Block> given, got;
      const int32_t peer = is_file ? -1 : 1;
      if (sends && (is_file || !to_nobody)) given = {{peer, 0x10000, 3 * times, 0x7008}};
      if (receives && (is_file || exchanges || !to_nobody)) got = {{exchanges ? 2 : peer, 0x20000, 5 * times, 0x7010}};
      if (replaces) got = {{2, 0x10000, 3, 0x7008}};
      INFO(name);
      const Members m = {0, 4, -1, 0, 0};
      CHECK(blocks_of(resil::sent(e, m, is_in_place)) == given);
      CHECK(blocks_of(resil::received(e, m, is_in_place)) == got);
      sending += !given.empty();
      receiving += !got.empty();
    }
  }
  CHECK(sending > 40);
  CHECK(receiving > 40);
}
