// SPDX-License-Identifier: Apache-2.0
//
// Digests of device memory through packets, on the stand-in: values, batches and when they are launched, layouts, what
// happens to packets that go too early, and that damaged copies differ. What a difference leads to is tested with MPI.

#include "gpu_fixture.h"

#include <algorithm>

#include "pipeline/gpu/kernels/image.h"
#include "pipeline/gpu/pinned.h"
#include "pipeline/staging/device_check.h"
#include "pipeline/staging/packet.h"
#include "pipeline/staging/staging.h"
#include "shim/base/digest/digest.h"
#include "shim/report/log.h"
#include "shim/tables/type_maps.h"

using namespace resil;
using namespace resil::staging;

namespace {
unsigned mismatches;
int copies_again;  ///< how often the answer to a mismatch is: once more
}  // namespace

namespace resil::gpu {
KernelImage kernel_image(Api) { return {"image", 6}; }
const char* kernel_compiler(Api) { return "test"; }
}  // namespace resil::gpu

namespace resil::staging {
constinit Mode mode = {Setting::kOn, false, 64 << 20};
bool check_mismatch(Packet*) {
  ++mismatches;
  return copies_again-- > 0;
}
void count_pageable(uint64_t) {}
}  // namespace resil::staging

void resil::type_map_hold(const TypeMap*) {}
void resil::type_map_release(const TypeMap*) {}

namespace {

/// Elements of `bytes` bytes in pieces of `piece`, `stride` apart.
struct Type {
  Run runs[2];
  TypeMap map;

  explicit Type(int64_t bytes) : Type(bytes, 1, bytes, bytes) {}
  Type(int64_t piece, int64_t count, int64_t stride, int64_t extent) {
    runs[0] = {0, piece, count, stride};
    map = {static_cast<uint64_t>(piece * count),
           extent,
           0,
           stride * (count - 1) + piece,
           count == 1 && piece == extent,
           false,
           true,
           1,
           runs,
           {},
           0};
  }
  /// Two runs.
  Type(Run first, Run second, int64_t extent) {
    runs[0] = first;
    runs[1] = second;
    map = {static_cast<uint64_t>(first.bytes * first.count + second.bytes * second.count),
           extent,
           first.offset,
           second.offset + second.stride * (second.count - 1) + second.bytes,
           false,
           false,
           true,
           2,
           runs,
           {},
           0};
  }
};

struct Buffer {
  char* device;
  std::vector<char> data;

  Buffer(size_t bytes, uint32_t seed) : device(device_memory(bytes)), data(random_bytes(bytes, seed)) {
    device_write(device, data);
  }
  ~Buffer() { free_device_memory(device); }
  Buffer(const Buffer&) = delete;
};

Packet open(const Buffer& buffer, int64_t count, const Type& type, Layout layout = Layout::kPacked) {
  Packet packet;
  REQUIRE(packet_open(&packet, buffer.device, count, &type.map, layout) == Refusal::kNone);
  return packet;
}

void begin() {
  fakegpu_begin();
  checking = true;
  mismatches = 0;
  copies_again = 0;
}

}  // namespace

TEST_CASE("the digest is the CPU's, down and up, packed and as a shadow") {
  begin();
  const Type types[] = {Type(1), Type(8), Type(24, 3, 40, 160), Type(3, 5, 7, 39),
                        Type({0, 8, 1, 8}, {16, 4, 2, 8}, 40)};
  Buffer from(400000, 1), to(400000, 2);
  for (const Type& type : types)
    for (Layout layout : {Layout::kPacked, Layout::kShadow})
      for (int64_t count : {1, 77, 2000}) {
        const uint64_t wanted = type_digest(type.map, from.data.data(), count, type_bytes(type.map, count));
        Packet down = open(from, count, type, layout);
        packet_down(&down);
        REQUIRE(packet_wait(&down) == PacketState::kReady);
        CHECK(down.check.state == CheckState::kCompared);
        CHECK(down.check.device == wanted);
        CHECK(host_digest(down, down.bytes) == wanted);
        Packet up = open(to, count, type, layout);
        memcpy(up.host, down.host, up.host_bytes);
        const uint64_t part = up.bytes - up.bytes / 3;
        packet_up(&up, part);
        REQUIRE(packet_wait(&up) == PacketState::kReady);
        CHECK(up.check.device == type_digest(type.map, from.data.data(), count, part));
        CHECK(type_digest(type.map, device_read(to.device, to.data.size()).data(), count, part) == up.check.device);
        packet_close(&down);
        packet_close(&up);
      }
  CHECK(mismatches == 0);
}

TEST_CASE("blocks, all of them and some") {
  begin();
  const Type bytes(1), vector(16, 4, 32, 128);
  Buffer buffer(100000, 3);
  const Block blocks[] = {{50000, 5000, &bytes.map}, {0, 0, &bytes.map}, {8, 20, &vector.map}, {90000, 77, &bytes.map}};
  Packet packet;
  REQUIRE(packet_open_blocks(&packet, buffer.device, blocks, 4) == Refusal::kNone);
  packet_down(&packet);
  REQUIRE(packet_wait(&packet) == PacketState::kReady);
  CHECK(packet.check.state == CheckState::kCompared);
  DigestStream stream;
  stream.add(&buffer.data[50000], 5000);
  std::vector<char> packed(20 * 64);
  type_pack(vector.map, &buffer.data[8], 20, 0, packed.size(), packed.data());
  stream.add(packed.data(), packed.size());
  const uint64_t three = DigestStream(stream).finish();
  stream.add(&buffer.data[90000], 77);
  CHECK(packet.check.device == stream.finish());
  packet_up_blocks(&packet, 0, 3);
  REQUIRE(packet_wait(&packet) == PacketState::kReady);
  CHECK(packet.check.device == three);
  packet_close(&packet);
  CHECK(mismatches == 0);
}

TEST_CASE("64 packets are one launch, and a round of copies up is one") {
  begin();
  const Type bytes(1);
  Buffer buffer(64 * 1000, 4);
  {
    Packet warm = open(buffer, 1, bytes);  // the first also clears the sums
    packet_down(&warm);
    packet_wait(&warm);
    packet_close(&warm);
  }
  std::vector<Packet> packets(64);
  for (int down = 1; down >= 0; --down) {
    const uint64_t before = calls_of("launch");
    for (Packet& packet : packets) {
      if (down == 1) {
        REQUIRE(packet_open(&packet, buffer.device + (&packet - packets.data()) * 1000, 1000, &bytes.map,
                            Layout::kPacked) == Refusal::kNone);
        packet_down(&packet);
      } else {
        packet_up(&packet, 1000);
      }
    }
    while (gpu::event_query(*packets.back().device, packets.back().event) == gpu::State::kPending) {}
    while (std::any_of(packets.begin(), packets.end(),
                       [](Packet& p) { return packet_poll(&p) != PacketState::kReady; })) {}
    CHECK(calls_of("launch") - before == 1);
    for (Packet& packet : packets)
      CHECK(packet.check.device == digest(&buffer.data[static_cast<size_t>(&packet - packets.data()) * 1000], 1000));
  }
  for (Packet& packet : packets) packet_close(&packet);
  CHECK(mismatches == 0);
}

TEST_CASE("who only waits has its digest launched before the copy is complete") {
  begin();
  const Type bytes(1);
  Buffer buffer(4 << 20, 5);
  Packet packet = open(buffer, 4 << 20, bytes);  // 2 ms at 2 GB/s
  const uint64_t before = calls_of("launch");
  packet_down(&packet);
  unsigned polls = 0;
  while (calls_of("launch") == before && polls < 100000 && packet_poll(&packet) == PacketState::kCopying) ++polls;
  CHECK(polls <= 3);
  CHECK(packet_wait(&packet) == PacketState::kReady);
  packet_close(&packet);
}

TEST_CASE("packets that go before their digest is there") {
  begin();
  const Type bytes(1);
  Buffer buffer(1 << 16, 6);
  for (int polls : {0, 1, 2, 3}) {
    std::vector<Packet> packets;
    for (int i = 0; i < 5; ++i) packets.push_back({});
    for (Packet& packet : packets) {
      packet = open(buffer, 1 << 16, bytes);
      packet_down(&packet);
    }
    for (int i = 0; i < polls; ++i) packet_poll(&packets[2]);
    packet_close(&packets[2]);
    packet_close(&packets[0]);
    for (int i : {1, 3, 4}) {
      CHECK(packet_wait(&packets[static_cast<size_t>(i)]) == PacketState::kReady);
      CHECK(packets[static_cast<size_t>(i)].check.device == digest(buffer.data.data(), buffer.data.size()));
      packet_close(&packets[static_cast<size_t>(i)]);
    }
  }
  CHECK(gpu::pinned_use().used <= 4096);  // the results' own
  CHECK(mismatches == 0);
}

TEST_CASE("after a first mismatch the digest comes before the copy") {
  begin();
  const Type bytes(1), vector(16, 4, 32, 128);
  Buffer buffer(100000, 9);
  Packet first = open(buffer, 1000, bytes);
  packet_down(&first);
  CHECK(!first.check.before);
  digest_first(&first);
  REQUIRE(packet_wait(&first) == PacketState::kReady);
  packet_close(&first);
  for (const Type* type : {&bytes, &vector}) {
    Packet packet = open(buffer, 500, *type);
    const uint64_t launches = calls_of("launch");
    packet_down(&packet);
    CHECK(packet.check.before);
    CHECK_CALLS(calls_of("launch") == launches + 1);  // it does not wait for others
    REQUIRE(packet_wait(&packet) == PacketState::kReady);
    CHECK(packet.check.state == CheckState::kCompared);
    CHECK(packet.check.device == type_digest(type->map, buffer.data.data(), 500, packet.bytes));
    packet_up(&packet, packet.bytes);
    CHECK(!packet.check.before);
    REQUIRE(packet_wait(&packet) == PacketState::kReady);
    packet_close(&packet);
  }
  // One that goes before its digest is there.
  Packet gone = open(buffer, 1000, bytes);
  packet_down(&gone);
  packet_close(&gone);
  const Block blocks[] = {{50000, 5000, &bytes.map}, {8, 20, &vector.map}};
  REQUIRE(packet_open_blocks(&gone, buffer.device, blocks, 2) == Refusal::kNone);
  packet_down_blocks(&gone, 1, 2);
  CHECK(gone.check.before);
  REQUIRE(packet_wait(&gone) == PacketState::kReady);
  CHECK(gone.check.device == type_digest(vector.map, &buffer.data[8], 20, 20 * 64));
  packet_close(&gone);
  CHECK(mismatches == 0);
}

TEST_CASE("no memory on the device for digests, and some later", "[.memory]") {
  begin();
  const Type bytes(1);
  Buffer buffer(4096, 9);
  std::vector<CUdeviceptr> taken;
  for (size_t size : {size_t{1} << 20, size_t{4096}})
    for (CUdeviceptr memory = 0; FAKE(cuMemAlloc_v2)(&memory, size) == CUDA_SUCCESS;) taken.push_back(memory);
  auto state_after = [&] {
    Packet packet = open(buffer, 4096, bytes);
    packet_down(&packet);
    REQUIRE(packet_wait(&packet) == PacketState::kReady);
    CHECK(memcmp(packet.host, buffer.data.data(), 4096) == 0);
    const CheckState state = packet.check.state;
    packet_close(&packet);
    return state;
  };
  for (int i = 0; i < 20; ++i) CHECK(state_after() == CheckState::kUnchecked);
  for (CUdeviceptr memory : taken) CHECK(FAKE(cuMemFree_v2)(memory) == CUDA_SUCCESS);
  int unchecked = 0;
  while (state_after() == CheckState::kUnchecked) REQUIRE(++unchecked < 32);
  CHECK(unchecked > 0);
  CHECK(state_after() == CheckState::kCompared);
  CHECK(mismatches == 0);
}

TEST_CASE("a damaged copy differs", "[.damage]") {
  begin();
  const Type bytes(1);
  Buffer buffer(1 << 16, 7), other(1 << 16, 8);
  const uint64_t before = FAKE(fakegpu_faults)();
  for (int i = 0; i < 21; ++i) {
    Packet packet = open(i % 2 != 0 ? buffer : other, 1 << 16, bytes);
    packet_down(&packet);
    packet_wait(&packet);
    packet_up(&packet, 1 << 16);
    packet_wait(&packet);
    packet_close(&packet);
  }
  CHECK(mismatches >= 1);
  CHECK(mismatches == FAKE(fakegpu_faults)() - before);
  // Copied once more, it is right: no two copies after each other are damaged.
  for (int i = 0; i < 21; ++i) {
    const Buffer& from = i % 2 != 0 ? buffer : other;
    Packet packet = open(from, 1 << 16, bytes);
    device_write(from.device, from.data);  // what was copied up above may be damaged
    copies_again = 1;
    packet_down(&packet);
    REQUIRE(packet_wait(&packet) == PacketState::kReady);
    CHECK(packet.check.state == CheckState::kCompared);
    CHECK(memcmp(packet.host, from.data.data(), 1 << 16) == 0);
    packet_close(&packet);
  }
}
