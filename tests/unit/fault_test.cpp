// SPDX-License-Identifier: Apache-2.0
//
// Fault injection without MPI: the grammar of RESIL_FAULT, what is done to a packet, the data that lands late, and the
// way of a receive and of a send through the hooks.
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "checksum/fault/engine.h"
#include "checksum/fault/operations.h"
#include "checksum/fault/pool.h"
#include "fake_backend.h"
#include "shim/config/config_value.h"

using namespace resil::fault;

namespace {

const resil::Run kVectorRuns[] = {{0, 4, 2, 8}};  // two of three words of an element
resil::TypeMap vector_of(int64_t) {
  resil::TypeMap map = {};
  map.size = 8;
  map.extent = 20;
  map.high = 12;
  map.run_count = 1;
  map.runs = kVectorRuns;
  map.permanent = true;
  return map;
}
const resil::Run kByteRun[] = {{0, 1, 1, 1}};
resil::TypeMap bytes_map() {
  resil::TypeMap map = {};
  map.size = map.extent = map.high = 1;
  map.contiguous = map.permanent = true;
  map.run_count = 1;
  map.runs = kByteRun;
  return map;
}

std::string problem_of(const char* text) {
  Specs specs;
  resil::ValueProblem problem;
  if (parse(resil::slice_of(text), &specs, &problem)) return "";
  std::string part =
      problem.part.data != nullptr ? "'" + std::string(problem.part.data, problem.part.size) + "' is " : "";
  return part + problem.what + (problem.hint[0] != 0 ? std::string(" (") + problem.hint + "?)" : "");
}

std::vector<char> numbered(size_t bytes) {
  std::vector<char> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i * 7 + i / 256 + 1);
  return data;
}

size_t differing(const std::vector<char>& a, const std::vector<char>& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

}  // namespace

TEST_CASE("RESIL_FAULT is read") {
  Specs specs;
  resil::ValueProblem problem;
  REQUIRE(
      parse(resil::slice_of("flip, rank=1,peer=2,call=MPI_Irecv,min=8,max=4096,p=0.5,seed=9 ; early,nth=3,delay=50"),
            &specs, &problem));
  REQUIRE(specs.count == 2);
  const Spec& flip = specs.list[0];
  CHECK(flip.kind == Kind::kFlip);
  CHECK((flip.rank == 1 && flip.peer == 2 && flip.min == 8 && flip.max == 4096 && flip.seed == 9 && flip.nth == 0));
  CHECK(flip.chance == uint64_t{1} << 63);
  CHECK((flip.has_call && flip.call == resil::CallId::kMPI_Irecv));
  CHECK((specs.list[1].kind == Kind::kEarly && specs.list[1].nth == 3 && specs.list[1].delay == 50));
  REQUIRE(parse(resil::slice_of("stale"), &specs, &problem));
  CHECK((specs.count == 1 && specs.list[0].nth == 1));  // once, the first one
  REQUIRE(parse(resil::slice_of("none"), &specs, &problem));
  CHECK(specs.count == 0);
}

TEST_CASE("a fault that cannot be meant is refused, and the message says which part") {
  CHECK(problem_of("flop") == "'flop' is not a kind of fault (flip?)");
  CHECK(problem_of("flip,rnk=1") == "'rnk' is not a known key (rank?)");
  CHECK(problem_of("flip,rank=-1") == "'rank=-1' is not a rank");
  CHECK(problem_of("flip,call=MPI_Nothing") == "'call=MPI_Nothing' is not the name of an MPI call");
  CHECK(problem_of("flip,p=0") == "'p=0' is not a probability above 0 and up to 1");
  CHECK(problem_of("flip,p=1.5") == "'p=1.5' is not a probability above 0 and up to 1");
  CHECK(problem_of("flip,nth=0") == "'nth=0' is not a number from 1 on");
  CHECK(problem_of("flip,nth=1,p=0.1") == "'p=0.1' is given beside nth");
  CHECK(problem_of("flip,twice") == "'twice' is not of the form key=value");
  CHECK(problem_of("flip;swap,min=9,max=8") ==
        "'swap,min=9,max=8' is asking for packets that do not exist (min above max)");
  CHECK(problem_of(";") == "an empty list");
  std::string many = "flip";
  for (int i = 0; i < 16; ++i) many += ";zero";
  CHECK(problem_of(many.c_str()) == "'zero' is one fault too many (16 at most)");
}

TEST_CASE("a spec chooses by call, partner and size, once or by chance") {
  Specs specs;
  resil::ValueProblem problem;
  REQUIRE(parse(resil::slice_of("flip,call=MPI_Isend,peer=3,min=10,max=20,nth=2"), &specs, &problem));
  Spec& spec = specs.list[0];
  CHECK(spec.matches(resil::CallId::kMPI_Isend, 3, 10));
  CHECK(spec.matches(resil::CallId::kMPI_Isend_c, 3, 20));
  CHECK_FALSE(spec.matches(resil::CallId::kMPI_Issend, 3, 10));
  CHECK_FALSE(spec.matches(resil::CallId::kMPI_Isend, 2, 10));
  CHECK_FALSE(spec.matches(resil::CallId::kMPI_Isend, 3, 9));
  CHECK_FALSE(spec.matches(resil::CallId::kMPI_Isend, 3, 21));
  Draw draw;
  uint64_t ordinal = 0;
  CHECK_FALSE(spec.fires(0, 0, &draw, &ordinal));
  CHECK(spec.fires(0, 0, &draw, &ordinal));
  CHECK(ordinal == 2);
  CHECK_FALSE(spec.fires(0, 0, &draw, &ordinal));
  spec.spare();  // had no effect: the next one will do
  CHECK(spec.fires(0, 0, &draw, &ordinal));
  REQUIRE(parse(resil::slice_of("flip,p=0.25,seed=5"), &specs, &problem));
  int fired = 0;
  std::vector<bool> first;
  for (int i = 0; i < 10000; ++i) first.push_back(specs.list[0].fires(0, 0, &draw, &ordinal));
  for (bool one : first) fired += one;
  CHECK(fired > 2300);
  CHECK(fired < 2700);
  REQUIRE(parse(resil::slice_of("flip,p=0.25,seed=5"), &specs, &problem));
  for (int i = 0; i < 100; ++i)
    CHECK(specs.list[0].fires(0, 0, &draw, &ordinal) == first[static_cast<size_t>(i)]);  // the same again
}

TEST_CASE("faults change data, never padding, and always something") {
  const resil::TypeMap holes = vector_of(0), plain = bytes_map();
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Draw draw(seed, 0, 0, 1);
    uint64_t position = 0, length = 0;
    for (int kind = 0; kind < 4; ++kind) {
      for (const resil::TypeMap* map : {&holes, &plain}) {
        const int64_t count = 1 + static_cast<int64_t>(draw.below(40));
        std::vector<char> data = numbered(static_cast<size_t>(count * map->extent)), before = data;
        const Packet packet = {data.data(), count, map, resil::type_bytes(*map, count)};
        bool done = kind == 0   ? flip(packet, seed % 2 == 0, draw, &position)
                    : kind == 1 ? swap(packet, true, draw, &position)
                    : kind == 2 ? zero(packet, draw, &position)
                                : invert(packet, draw, &position, &length);
        CHECK(done == (differing(data, before) != 0));
        CHECK((done || packet.bytes == 1));  // one byte cannot be swapped
        CHECK((!done || position < packet.bytes));
        if (map == &holes)
          for (size_t i = 0; i < data.size(); ++i)
            if (i % 20 / 4 % 2 == 1 || i % 20 >= 12) REQUIRE(data[i] == before[i]);
      }
    }
  }
}

TEST_CASE("what a sender does to a packet, its receiver does not undo with the same numbers") {
  const resil::TypeMap plain = bytes_map();
  for (uint64_t seed = 0; seed < 200; ++seed)
    for (int64_t bytes = 1; bytes < 20; ++bytes)
      for (int kind = 0; kind < 2; ++kind) {
        std::vector<char> data = numbered(static_cast<size_t>(bytes)), before = data;
        const Packet packet = {data.data(), bytes, &plain, static_cast<uint64_t>(bytes)};
        bool done = false;
        for (bool sends : {true, false}) {
          Draw draw(seed, 0, 0, 1);
          uint64_t position = 0;
          done = (kind == 0 ? flip(packet, sends, draw, &position) : swap(packet, sends, draw, &position)) || done;
        }
        CHECK(done == (differing(data, before) != 0));
      }
}

TEST_CASE("no effect, no fault") {
  const resil::TypeMap plain = bytes_map();
  std::vector<char> zeros(300, 0);
  Draw draw(1, 0, 0, 1);
  uint64_t position = 0;
  const Packet packet = {zeros.data(), 300, &plain, 300};
  CHECK_FALSE(swap(packet, true, draw, &position));
  CHECK_FALSE(zero(packet, draw, &position));
  CHECK(zeros == std::vector<char>(300, 0));
}

TEST_CASE("two packets are exchanged, a packet is copied with its holes left alone") {
  const resil::TypeMap holes = vector_of(0);
  std::vector<char> a = numbered(2000), b(2000, 5), a0 = a;
  const Packet left = {a.data(), 100, &holes, 800}, right = {b.data(), 100, &holes, 800};
  CHECK_FALSE(equal(left, right));
  exchange(left, right);
  CHECK((a[0] == 5 && a[4] == a0[4] && b[0] == a0[0] && b[4] == 5));
  exchange(left, right);
  CHECK(a == a0);
  std::vector<char> copied(2000, 9);
  copy(left, copied.data());
  CHECK(equal(left, {copied.data(), 100, &holes, 800}));
  CHECK(copied[4] == 9);
}

TEST_CASE("late data lands by the timer, or when the call ends, and only once") {
  const resil::TypeMap plain = bytes_map();
  static LateWrite late_write;
  std::vector<char> buffer(100, 1), data(100, 2);
  late_write.packet = {buffer.data(), 100, &plain, 100};
  late_write.packed = data.data();
  late_write.delay = 1000000;
  arm(late_write);
  CHECK(buffer[0] == 1);
  CHECK_FALSE(force(late_write));
  CHECK(buffer == data);
  buffer.assign(100, 1);
  late_write.packet.buffer = buffer.data();
  CHECK_FALSE(force(late_write));  // nothing pending
  CHECK(buffer[0] == 1);
  late_write.delay = 1;
  arm(late_write);
  while (late_write.pending.load()) {}
  CHECK(force(late_write));
  CHECK(buffer == data);
  forget_timer(late_write);
}

TEST_CASE("late data lands when it has been looked at so often, whoever looks at other data") {
  const resil::TypeMap plain = bytes_map();
  static LateWrite late_write;
  std::vector<char> buffer(100, 1), other(100, 1), data(100, 2);
  late_write.packet = {buffer.data(), 100, &plain, 100};
  late_write.packed = data.data();
  late_write.delay = 0;
  late_write.looks = 2;
  arm(late_write);
  looked_at(late_write, buffer.data(), 1);
  looked_at(late_write, other.data(), 2);
  CHECK(buffer[0] == 1);
  looked_at(late_write, buffer.data(), 2);
  CHECK(buffer == data);
  CHECK(late_write.by_look);
  buffer[0] = 1;
  CHECK_FALSE(force(late_write));
  CHECK(buffer[0] == 1);
}

TEST_CASE("memory is used again") {
  void* one = pool.allocate(10000);
  REQUIRE(one != nullptr);
  memset(one, 1, 10000);
  pool.release(one);
  CHECK(pool.allocate(9000) == one);
  pool.release(nullptr);
}

TEST_CASE("operations are found oldest first and forgotten") {
  Operation operation = {};
  operation.key = 77;
  operation.tag = 1;
  Operation* first = operation_add(operation);
  operation.tag = 2;
  Operation* second = operation_add(operation);  // the handle was reused by another thread
  CHECK(operation_find(77) == first);
  operation_drop(first, false);
  CHECK(operation_find(77) == second);
  operation_drop(second, false);
  CHECK(operation_find(77) == nullptr);
}

// --- Through the module's hooks ----------------------------------------------------------------------------------

namespace {

struct Job : fake::Core {
  Job(const char* faults, const resil::TypeMap& map) : Core(0, 4) {
    resil::ValueProblem problem;
    REQUIRE(parse(resil::slice_of(faults), &engine.specs, &problem));
    for (auto& count : engine.injected) count = 0;
    engine_start();
    mine = per_thread(thread());
    REQUIRE(mine != nullptr);
    layout = resil::flat_nothing();
    layout.count = 64;
    layout.end = 1;
    layout.partner = resil::Partner::kRank;
    layout.peer = 1;
    layout.map = &map;
  }
  /// A packet arrives in `buffer`, which held `old`.
  void arrive(std::vector<char>& buffer, const std::vector<char>& old, const std::vector<char>& data) {
    buffer = old;
    layout.buffer = buffer.data();
    char* kept = engine.keeps ? keep(thread(), layout) : nullptr;
    buffer = data;
    REQUIRE(buffer.data() == layout.buffer);
    inject_received(*mine, gather_arrivals(thread(), *mine, layout, resil::CallId::kMPI_Recv, 3, 0, kept), false);
    pool.release(kept);
  }
  uint64_t made(Kind kind) { return engine.injected[static_cast<unsigned>(kind)]; }
  PerThread* mine;
  Layout layout;
};

}  // namespace

TEST_CASE("stale: the buffer keeps what it held") {
  const resil::TypeMap plain = bytes_map();
  Job job("stale,nth=2", plain);
  std::vector<char> buffer(64), old(64, 7), data = numbered(64);
  job.arrive(buffer, old, data);
  CHECK(buffer == data);
  job.arrive(buffer, data, data);  // nobody could tell: not counted
  CHECK(job.made(Kind::kStale) == 0);
  job.arrive(buffer, old, data);
  CHECK(buffer == old);
  CHECK(job.made(Kind::kStale) == 1);
  job.arrive(buffer, old, data);
  CHECK(buffer == data);
}

TEST_CASE("duplicate: the packet before comes again") {
  const resil::TypeMap plain = bytes_map();
  Job job("duplicate,p=1", plain);
  std::vector<char> buffer(64), old(64, 7), one = numbered(64), two(64, 9), three(64, 8);
  job.arrive(buffer, old, one);
  CHECK(buffer == one);
  job.arrive(buffer, old, two);
  CHECK(buffer == one);
  job.arrive(buffer, old, three);
  CHECK(buffer == one);  // the last one that arrived undamaged
  CHECK(job.made(Kind::kDuplicate) == 2);
}

TEST_CASE("truncate: the tail is not delivered") {
  const resil::TypeMap plain = bytes_map();
  Job job("truncate,p=1", plain);
  std::vector<char> buffer(64), old(64, 7), data = numbered(64);
  job.arrive(buffer, old, data);
  CHECK(buffer != data);
  CHECK(buffer[63] == 7);
}

TEST_CASE("transpose: two packets that complete together change places") {
  const resil::TypeMap plain = bytes_map();
  Job job("transpose,p=1", plain);
  std::vector<char> buffer = numbered(128), before = buffer;
  job.layout.buffer = buffer.data();
  job.layout.end = 2;
  job.layout.partner = resil::Partner::kEach;
  inject_received(
      *job.mine, gather_arrivals(job.thread(), *job.mine, job.layout, resil::CallId::kMPI_Irecv, 3, 0, nullptr), false);
  CHECK(std::vector<char>(buffer.begin() + 64, buffer.end()) == std::vector<char>(before.begin(), before.begin() + 64));
  CHECK(std::vector<char>(buffer.begin(), buffer.begin() + 64) == std::vector<char>(before.begin() + 64, before.end()));
  CHECK(job.made(Kind::kTranspose) == 1);
}

TEST_CASE("early: the old data is there at completion, the new data a little later") {
  const resil::TypeMap plain = bytes_map();
  Job job("early,p=1,delay=1000000", plain);
  std::vector<char> buffer(64), old(64, 7), data = numbered(64);
  job.arrive(buffer, old, data);
  CHECK(buffer == old);
  REQUIRE(job.mine->late_write.used);
  arm(job.mine->late_write);
  CHECK_FALSE(force(job.mine->late_write));
  CHECK(buffer == data);
  job.mine->late_write.used = false;
}

TEST_CASE("faults of other ranks are left to them") {
  const resil::TypeMap plain = bytes_map();
  Job job("flip,p=1,rank=2", plain);
  std::vector<char> buffer(64), old(64, 7), data = numbered(64);
  CHECK_FALSE(engine.receives);
  CHECK_FALSE(engine.sends);
  job.arrive(buffer, old, data);
  CHECK(buffer == data);
}

// --- Sending side ------------------------------------------------------------------------------------------------

namespace {

struct Sender : Job {
  Sender(const char* faults, const resil::TypeMap& map) : Job(faults, map), data(numbered(64)), original(data) {
    resil::TypeCacheEntry& known = thread().types[(fake::kByte ^ (fake::kByte >> 9)) % resil::kTypeCache];
    known = {fake::kByte, 1, &map};
    thread().type_generation = resil::handle_generation.load();
  }
  resil::Event start(resil::CallId id) {
    resil::Event e = fake::make_event(thread(), id);
    e.comm_handle = fake::kCommWorld;
    e.comm = resil::comm_lookup(thread(), fake::kCommWorld);
    e.peer = 1;
    e.tag = 5;
    e.send = {data.data(), 64, fake::kByte, nullptr, nullptr, nullptr};
    e.given_send = data.data();
    e.given_count = 64;
    e.requests = &request;
    e.result = 0;
    inject_send(e, *mine);
    return e;
  }
  std::vector<char> given(const resil::Event& e) const {
    const char* bytes = static_cast<const char*>(e.given_send);
    return {bytes, bytes + 64};
  }
  std::vector<char> data, original;
  uint64_t request = 0x98000123;
};

}  // namespace

TEST_CASE("a damaged send: the library gets a changed copy, the program keeps its data") {
  const resil::TypeMap plain = bytes_map();
  for (const char* kind : {"flip", "swap", "zero"}) {
    Sender job(kind, plain);
    resil::Event e = job.start(resil::CallId::kMPI_Send);
    CHECK(job.data == job.original);
    CHECK(e.given_send != job.data.data());
    CHECK(differing(job.given(e), job.original) > 0);
    inject_sent(e, *job.mine);
    CHECK(engine.injected[0] + engine.injected[1] + engine.injected[2] == 1);
    e = job.start(resil::CallId::kMPI_Send);  // once
    CHECK(e.given_send == job.data.data());
  }
}

TEST_CASE("a truncated send: fewer elements of the same data") {
  const resil::TypeMap plain = bytes_map();
  Sender job("truncate", plain);
  resil::Event e = job.start(resil::CallId::kMPI_Isend);
  CHECK(e.given_send == job.data.data());
  CHECK(e.given_count < 64);
  inject_sent(e, *job.mine);
  CHECK(job.made(Kind::kTruncate) == 1);
}

TEST_CASE("modify: the program's buffer shows at completion what the library had sent") {
  const resil::TypeMap plain = bytes_map();
  Sender job("modify", plain);
  resil::Event e = job.start(resil::CallId::kMPI_Issend);
  inject_sent(e, *job.mine);
  const std::vector<char> sent = job.given(e);
  CHECK(job.data == job.original);
  CHECK(sent != job.original);
  Operation* operation = operation_find(job.request);
  REQUIRE(operation != nullptr);
  land_change(*operation);
  CHECK(job.data == sent);
  CHECK(job.made(Kind::kModify) == 1);
  operation_drop(operation, false);
}

TEST_CASE("modify: not where the library has the data when the call returns") {
  const resil::TypeMap plain = bytes_map();
  Sender job("modify,p=1", plain);
  for (resil::CallId id : {resil::CallId::kMPI_Send, resil::CallId::kMPI_Isend, resil::CallId::kMPI_Ibsend}) {
    resil::Event e = job.start(id);
    CHECK(e.given_send == job.data.data());
    inject_sent(e, *job.mine);
  }
  job.request = fake::kRequestEmpty;  // complete at once, against expectation
  resil::Event e = job.start(resil::CallId::kMPI_Issend);
  inject_sent(e, *job.mine);
  CHECK(job.made(Kind::kModify) == 0);
  CHECK(job.made(Kind::kFlip) == 1);
  CHECK(operation_find(fake::kRequestEmpty) == nullptr);
}

TEST_CASE("a persistent send is damaged in one start and whole again in the next") {
  const resil::TypeMap plain = bytes_map();
  Sender job("flip,nth=2", plain);
  resil::Event e = job.start(resil::CallId::kMPI_Send_init);
  inject_sent(e, *job.mine);
  Operation* operation = operation_find(job.request);
  REQUIRE(operation != nullptr);
  std::vector<bool> damaged;
  for (int i = 0; i < 3; ++i) {
    job.data[3] = static_cast<char>(i);  // new data for each start
    restart(*operation, *job.mine);
    damaged.push_back(job.given(e) != job.data);
  }
  CHECK(damaged == std::vector<bool>{false, true, false});
  operation_drop(operation, false);
}
