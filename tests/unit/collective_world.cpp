// SPDX-License-Identifier: Apache-2.0
//
// See collective_world.h.

#include "collective_world.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <stdexcept>

#include "shim/tables/tables.h"

namespace unit {

namespace ring = resil::ring;
using resil::CallId;
using resil::Event;

namespace {

/// A copy of the shared object under another name is another library to the loader.
const RankApi* load(void** library) {
  char path[] = "/tmp/collective-rank-XXXXXX";
  const int fd = mkstemp(path);
  if (fd < 0) throw std::runtime_error("no scratch file");
  close(fd);
  std::ofstream(path, std::ios::binary) << std::ifstream(COLLECTIVE_RANK, std::ios::binary).rdbuf();
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  *library = handle;
  return reinterpret_cast<const RankApi* (*)()>(dlsym(handle, "rank_api"))();
}

CallId id_of(const std::string& name, How how) {
  std::string wanted = "MPI_" + name;
  if (how == How::kNonblocking) wanted = "MPI_I" + std::string(1, static_cast<char>(tolower(name[0]))) + name.substr(1);
  if (how == How::kPersistent) wanted += "_init";
  for (unsigned i = 0; i < resil::kCallCount; ++i)
    if (wanted == resil::kCallInfo[i].name) return static_cast<CallId>(i);
  throw std::runtime_error(wanted);
}

std::vector<int> shuffled(Random& random, size_t count) {
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

}  // namespace

size_t size_of(uint64_t type) { return (const size_t[]){0, 4, 4, 8, 1, 4, 8, 16, 16, 12, 4, 4}[type]; }
size_t extent_of(uint64_t type) { return type == kDoubleInt ? 16 : type == kStride ? 12 : size_of(type); }

World::World(int size, unsigned seed, bool abort_wanted)
    : random(seed), size_(size), ways_(static_cast<size_t>(size * size)) {
  for (int rank = 0; rank < size; ++rank) {
    libraries_.push_back(nullptr);
    ranks_.push_back(load(&libraries_.back()));
    ranks_.back()->start(
        rank, size, abort_wanted, this, [](void* bus, int from, int to, int kind, const void* data, size_t bytes) {
          auto& world = *static_cast<World*>(bus);
          const char* first = static_cast<const char*>(data);
          world.ways_[static_cast<size_t>(from * world.size_ + to)].push_back({kind, {first, first + bytes}});
        });
  }
}

/// The newest first: only so the loader gets back their static thread-local storage, which is scarce.
World::~World() {
  while (!libraries_.empty()) {
    dlclose(libraries_.back());
    libraries_.pop_back();
  }
}

Group World::group(std::vector<int> members) {
  Group group;
  const int count = static_cast<int>(members.size());
  for (int rank : members)
    group.infos.push_back(
        ranks_[static_cast<size_t>(rank)]->comm(next_id_, members.data(), count, nullptr, 0, nullptr, 0, nullptr, 0));
  group.members = std::move(members);
  ++next_id_;
  return group;
}

Group World::between(std::vector<int> first, std::vector<int> second) {
  Group group;
  const int one = static_cast<int>(first.size()), two = static_cast<int>(second.size());
  for (int rank : first)
    group.infos.push_back(ranks_[static_cast<size_t>(rank)]->comm(next_id_, first.data(), one, second.data(), two,
                                                                  nullptr, 0, nullptr, 0));
  for (int rank : second)
    group.infos.push_back(ranks_[static_cast<size_t>(rank)]->comm(next_id_, second.data(), two, first.data(), one,
                                                                  nullptr, 0, nullptr, 0));
  group.members = first;
  group.members.insert(group.members.end(), second.begin(), second.end());
  ++next_id_;
  return group;
}

Group World::topology(std::vector<int> members, const std::vector<std::pair<int, int>>& edges) {
  Group group;
  const int count = static_cast<int>(members.size());
  for (int i = 0; i < count; ++i) {
    std::vector<int> in, out;
    for (auto [from, to] : edges) {
      if (to == i) in.push_back(from);
      if (from == i) out.push_back(to);
    }
    group.infos.push_back(ranks_[static_cast<size_t>(members[static_cast<size_t>(i)])]->comm(
        next_id_, members.data(), count, nullptr, 0, in.data(), static_cast<int>(in.size()), out.data(),
        static_cast<int>(out.size())));
  }
  group.members = std::move(members);
  ++next_id_;
  return group;
}

Event World::event(Call& call, int member, How how) {
  Args& args = call.args[static_cast<size_t>(member)];
  Event e;
  memset(static_cast<void*>(&e), 0xa7, sizeof(e));
  e.id = id_of(call.name, how);
  e.attributes = resil::call_info(e.id).attributes;
  e.large = false;
  e.thread = ranks_[static_cast<size_t>(call.group->members[static_cast<size_t>(member)])]->thread();
  e.comm = call.group->infos[static_cast<size_t>(member)];
  e.sequence = call.group->sequence;
  e.site = 100 + static_cast<uint64_t>(member);
  e.bytes = 1;
  e.peer = args.root;
  e.op = args.op;
  e.result = 0;
  e.send = args.sending;
  e.receive = args.receiving;
  if (e.send.buffer == nullptr) e.send.buffer = args.send.data();
  if (e.receive.buffer == nullptr) e.receive.buffer = args.receive.data();
  e.cookies = nullptr;
  e.request_key = how == How::kBlocking ? 0 : 77;
  e.given_statuses = nullptr;
  return e;
}

/// Element by element, so that gaps of derived types stay as they are.
void World::move(Call& call) {
  if (call.compute) {
    call.compute(call);
  } else {
    std::vector<std::vector<char>> given;
    for (const Args& args : call.args) given.push_back(args.in_place ? args.receive : args.send);
    const size_t extent = extent_of(call.type), bytes = size_of(call.type);
    for (const Transfer& t : call.transfers) {
      auto& to = call.args[static_cast<size_t>(t.to)].receive;
      for (size_t i = 0; i < static_cast<size_t>(t.count); ++i)
        memcpy(&to.at(t.into + i * extent), &given[static_cast<size_t>(t.from)].at(t.at + i * extent), bytes);
    }
  }
  if (call.tamper) call.tamper(call);
}

void World::run(Call& call, How how, int starts) {
  const size_t count = call.group->members.size();
  ++call.group->sequence;
  auto api = [&](int member) { return ranks_[static_cast<size_t>(call.group->members[static_cast<size_t>(member)])]; };
  std::vector<Event> events;
  std::vector<uint64_t> cookies(count);
  for (size_t i = 0; i < count; ++i) events.push_back(event(call, static_cast<int>(i), how));
  for (int i : shuffled(random, count)) api(i)->enter(events[static_cast<size_t>(i)]);
  if (how == How::kBlocking) {
    move(call);
    for (int i : shuffled(random, count)) {
      api(i)->leave(events[static_cast<size_t>(i)]);
      carry_some();
    }
    return;
  }
  for (int i : shuffled(random, count)) {
    events[static_cast<size_t>(i)].cookies = &cookies[static_cast<size_t>(i)];
    api(i)->leave(events[static_cast<size_t>(i)]);
    // The argument arrays were the binding's: they are gone.
    Args& args = call.args[static_cast<size_t>(i)];
    for (auto* array : {&args.counts, &args.places, &args.other_counts, &args.other_places})
      std::fill(array->begin(), array->end(), -77);
  }
  for (int start = 0; start < (how == How::kPersistent ? starts : 1); ++start) {
    Event other;
    memset(static_cast<void*>(&other), 0, sizeof(other));
    if (how == How::kPersistent) {
      other.id = CallId::kMPI_Start;
      for (Args& args : call.args)
        for (char& byte : args.in_place ? args.receive : args.send) byte = static_cast<char>(random());
      for (int i : shuffled(random, count)) {
        other.thread = api(i)->thread();
        if (cookies[static_cast<size_t>(i)] != 0) {
          api(i)->activating(other, &cookies[static_cast<size_t>(i)]);
          api(i)->activated(other, &cookies[static_cast<size_t>(i)]);
        }
      }
    }
    move(call);
    other.id = CallId::kMPI_Wait;
    for (int i : shuffled(random, count)) {
      other.thread = api(i)->thread();
      if (cookies[static_cast<size_t>(i)] != 0) api(i)->completed(other, &cookies[static_cast<size_t>(i)], false);
      carry_some();
    }
  }
  if (how == How::kPersistent) {
    Event other;
    memset(static_cast<void*>(&other), 0, sizeof(other));
    other.id = CallId::kMPI_Request_free;
    for (size_t i = 0; i < count; ++i) {
      other.thread = api(static_cast<int>(i))->thread();
      if (cookies[i] != 0) api(static_cast<int>(i))->completed(other, &cookies[i], true);
    }
  }
}

void World::fails(Call& call, int member) {
  Event e = event(call, member, How::kBlocking);
  const RankApi* api = ranks_[static_cast<size_t>(call.group->members[static_cast<size_t>(member)])];
  api->enter(e);
  e.result = 1;
  api->leave(e);
}

bool World::carry_one() {
  for (int i : shuffled(random, ways_.size())) {
    auto& way = ways_[static_cast<size_t>(i)];
    if (way.empty()) continue;
    const Message message = std::move(way.front());
    way.pop_front();
    const RankApi* to = ranks_[static_cast<size_t>(i % size_)];
    to->arrive(i / size_, message.kind, message.bytes.data(), message.bytes.size());
    if (random() % 2) to->progress();
    return true;
  }
  return false;
}

void World::carry_some() {
  for (unsigned i = random() % 4; i > 0; --i) carry_one();
}

void World::settle(bool finalize) {
  if (finalize)
    for (const RankApi* rank : ranks_) rank->finalize();
  int rounds = 0;
  for (int quiet = 0; quiet < 3 && rounds < 10'000'000; ++rounds) {
    quiet = carry_one() ? 0 : quiet + 1;
    for (const RankApi* rank : ranks_) rank->progress();
    for (int rank = 0; rank < size_; ++rank)
      if (state(rank).unverified != 0) quiet = 0;  // a case, which ends by itself, or a sum that waits for records
  }
}

RankState World::state(int rank) {
  RankState state;
  ranks_[static_cast<size_t>(rank)]->state(&state);
  return state;
}

RankState World::total() {
  RankState sum = {};
  for (int rank = 0; rank < size_; ++rank) {
    const RankState one = state(rank);
    sum.checked += one.checked, sum.mismatches += one.mismatches, sum.cases += one.cases;
    sum.pending += one.pending, sum.unverified += one.unverified, sum.findings += one.findings, sum.held += one.held;
    for (int i = 0; i < 32; ++i) sum.uncovered[i] += one.uncovered[i];
    for (int i = 0; i < 16; ++i) sum.culprits[i] += one.culprits[i];
    if (one.findings != 0) memcpy(sum.last, one.last, sizeof(sum.last));
    sum.stopped = sum.stopped || one.stopped;
  }
  return sum;
}

}  // namespace unit
