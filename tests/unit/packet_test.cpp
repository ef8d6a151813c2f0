// SPDX-License-Identifier: Apache-2.0
//
// Packets on the stand-in, against the host's own packing of the same bytes: for random layouts the copy down gives the
// stream, and the copy up changes the data that came and nothing else on the device.

#include <cstddef>

#include "pipeline/gpu/kernels/image.h"
#include "pipeline/gpu/pinned.h"
#include "pipeline/staging/packet.h"
#include "pipeline/staging/staging.h"
#include "shim/call/thread.h"
#include "shim/tables/tables.h"
#include "tests/unit/gpu_fixture.h"

using namespace resil;
using staging::Layout;
using staging::Packet;
using staging::PacketState;
using staging::Refusal;

namespace {
/// The tests run without kernels, and with those that the stand-in carries out.
bool with_kernels() { return getenv("PACKET_KERNELS") != nullptr; }
}  // namespace

namespace resil::gpu {
KernelImage kernel_image(Api) { return with_kernels() ? KernelImage{"image", 6} : KernelImage{nullptr, 0}; }
}  // namespace resil::gpu

namespace resil::staging {
constinit Mode mode = {Setting::kOn, false, size_t{64} << 20};
// Nothing is checked here.
constinit bool checking = false;
void check_before(Packet*) {}
void check_copy(Packet*) {}
void count_pageable(uint64_t) {}
CheckResult check_poll(Packet*, bool copied) { return copied ? CheckResult::kSettled : CheckResult::kPending; }
void check_forget(Packet*) {}
}  // namespace resil::staging

namespace {

constexpr size_t kBytes = 1 << 20;

/// A copy goes on, or, on a real device, may be complete already.
bool started(PacketState state) {
  return state == PacketState::kCopying || (state == PacketState::kReady && !on_stand_in());
}

/// A flattened datatype.
struct Type {
  std::vector<Run> runs;
  TypeMap map;

  Type(std::vector<Run> of_runs, int64_t extent) : runs(std::move(of_runs)), map{} {
    map.extent = extent;
    map.permanent = true;
    map.runs = runs.data();
    map.run_count = static_cast<uint32_t>(runs.size());
    map.low = INT64_MAX;
    map.high = INT64_MIN;
    for (const Run& run : runs) {
      const int64_t last = run.offset + (run.count - 1) * run.stride;
      map.low = std::min({map.low, run.offset, last});
      map.high = std::max({map.high, run.offset + run.bytes, last + run.bytes});
      map.size += static_cast<uint64_t>(run.bytes * run.count);
    }
    map.contiguous = runs.size() == 1 && runs[0].count == 1 && runs[0].offset == 0 && runs[0].bytes == extent;
  }
  Type(const Type&) = delete;
};

Refusal open(Packet& packet, const Type& type, const void* buffer, int64_t count, Layout layout) {
  memset(&packet, 0xee, sizeof(packet));  // what a caller has there does not matter
  return staging::packet_open(&packet, buffer, count, &type.map, layout);
}

struct Memory {
  char* device;
  std::vector<char> bytes;  ///< what it holds

  explicit Memory(uint32_t seed) : device(device_memory(kBytes)), bytes(random_bytes(kBytes, seed)) {
    device_write(device, bytes);
  }
  ~Memory() { free_device_memory(device); }
  bool unchanged() const { return device_read(device, kBytes) == bytes; }
};

/// What the driver was told to do: copies down, up, kernels.
struct Orders {
  uint64_t down, up, launched_down, launched_up;
};
/// Both ways; `at`: where in the memory the buffer's address is.
Orders check_both_ways(Memory& memory, const Type& type, int64_t count, size_t at, Layout layout, uint32_t seed) {
  const uint64_t total = type_bytes(type.map, count);
  char* buffer = memory.device + at;
  Packet packet;
  REQUIRE(open(packet, type, buffer, count, layout) == Refusal::kNone);
  REQUIRE(packet.bytes == total);
  Orders orders = {calls_of("down"), 0, calls_of("launch"), 0};
  REQUIRE(staging::packet_down(&packet) != PacketState::kFailed);
  orders.down = calls_of("down") - orders.down;
  orders.launched_down = calls_of("launch") - orders.launched_down;
  REQUIRE(staging::packet_wait(&packet) == PacketState::kReady);
  std::vector<char> expected(total), got(total);
  type_pack(type.map, memory.bytes.data() + at, count, 0, total, expected.data());
  char* given = staging::packet_given(packet);
  if (layout == Layout::kPacked) memcpy(got.data(), given, total);
  else type_pack(type.map, given, count, 0, total, got.data());
  REQUIRE(got == expected);
  REQUIRE(memory.unchanged());

  std::mt19937 random(seed);
  for (const uint64_t bytes : {total, total - std::min<uint64_t>(total, random() % 9), random() % (total + 1)}) {
    const std::vector<char> news = random_bytes(total, random());
    if (layout == Layout::kPacked) memcpy(given, news.data(), total);
    else type_unpack(type.map, given, count, 0, total, news.data());
    const uint64_t before = calls_of("up"), launched = calls_of("launch");
    REQUIRE(staging::packet_up(&packet, bytes) != PacketState::kFailed);
    if (bytes == total) {
      orders.up = calls_of("up") - before;
      orders.launched_up = calls_of("launch") - launched;
    }
    REQUIRE(staging::packet_wait(&packet) == PacketState::kReady);
    type_unpack(type.map, memory.bytes.data() + at, count, 0, bytes, news.data());
    REQUIRE(memory.unchanged());
  }
  staging::packet_close(&packet);
  CHECK(packet.host == nullptr);
  return orders;
}

/// On a real driver copies are not counted.
bool single(uint64_t copies) { return copies == 1 || !on_stand_in(); }

}  // namespace

TEST_CASE("contiguous data is one copy") {
  fakegpu_begin();
  Memory memory(1);
  const Type bytes({{0, 1, 1, 0}}, 1), doubles({{0, 8, 1, 0}}, 8), shifted({{-16, 24, 1, 0}}, 24);
  for (const Layout layout : {Layout::kPacked, Layout::kShadow})
    for (const Type* type : {&bytes, &doubles, &shifted})
      for (const int64_t count : {1, 7, 1000, 30000}) {
        const Orders orders = check_both_ways(memory, *type, count, 4096 + 8, layout, 3);
        CHECK_CALLS((orders.down == 1 && orders.up == 1));
      }
}

TEST_CASE("regular strides are one copy of two dimensions") {
  fakegpu_begin();
  Memory memory(2);
  const Type column({{0, 8, 100, 512}}, 99 * 512 + 8), spaced({{0, 24, 1, 0}}, 40), grid({{0, 16, 10, 64}}, 640);
  for (const Layout layout : {Layout::kPacked, Layout::kShadow}) {
    CHECK(single(check_both_ways(memory, column, 1, 16, layout, 1).up));
    CHECK(single(check_both_ways(memory, spaced, 1000, 0, layout, 1).up));
    CHECK(single(check_both_ways(memory, grid, 50, 8, layout, 1).up));
  }
  CHECK(single(check_both_ways(memory, column, 1, 16, Layout::kPacked, 1).down));
}

TEST_CASE("structures in an array are a copy for each member, not for each element") {
  fakegpu_begin();
  Memory memory(3);
  const Type structure({{0, 8, 1, 0}, {16, 4, 1, 0}, {24, 1, 3, 2}}, 32);
  for (const Layout layout : {Layout::kPacked, Layout::kShadow}) {
    const Orders orders = check_both_ways(memory, structure, 1000, 64, layout, 4);
    CHECK_CALLS(orders.up == 5);
    CHECK_CALLS(orders.down <= 5);
  }
}

TEST_CASE("many pieces: a kernel, or all down at once and up without what lies between") {
  fakegpu_begin();
  Memory memory(4);
  std::vector<Run> irregular, sparse;
  for (int64_t i = 0; i < 500; ++i) {
    irregular.push_back({i * 40 + i % 7, 16 + i % 5, 1, 0});
    sparse.push_back({i * 1000 + i * i % 97, 8, 1, 0});
  }
  const Type dense(irregular, 20200), thin(sparse, 510000);
  for (const Layout layout : {Layout::kPacked, Layout::kShadow}) {
    const Orders near = check_both_ways(memory, dense, 3, 128, layout, 5);
    const Orders far = check_both_ways(memory, thin, 1, 0, layout, 6);
    const bool kernel_down = with_kernels() && layout == Layout::kPacked;
    CHECK_CALLS(near.down == (kernel_down ? 0 : 1));
    CHECK_CALLS(far.down == (kernel_down ? 0 : 500));
    CHECK_CALLS((near.launched_down == kernel_down && far.launched_down == kernel_down));
    CHECK_CALLS((near.up == (with_kernels() ? 0 : 500) && far.up == near.up));
    CHECK_CALLS((near.launched_up == with_kernels() && far.launched_up == near.launched_up));
  }
}

TEST_CASE("random layouts, both ways, short receives included") {
  fakegpu_begin();
  Memory memory(5);
  std::mt19937 random(7);
  for (unsigned round = 0; round < 120; ++round) {
    std::vector<Run> runs;
    int64_t at = static_cast<int64_t>(random() % 300) - 100;
    for (unsigned n = 1 + random() % 12; n > 0; --n) {
      Run run = {at, 1 + static_cast<int64_t>(random() % 40), 1 + static_cast<int64_t>(random() % 20), 0};
      run.stride = run.bytes + static_cast<int64_t>(random() % 30);
      if (random() % 4 == 0 && run.count > 1) {  // backwards
        run.offset += (run.count - 1) * run.stride;
        run.stride = -run.stride;
      }
      at += run.count * std::abs(run.stride) + static_cast<int64_t>(random() % 50);
      runs.push_back(run);
    }
    if (random() % 3 == 0) std::reverse(runs.begin(), runs.end());
    const Type type(runs, (random() % 2 == 0 ? 1 : -1) * (at + 200 + static_cast<int64_t>(random() % 64)));
    const auto count = 1 + static_cast<int64_t>(random() % 30);
    INFO("round " << round);
    check_both_ways(memory, type, count, kBytes / 2, random() % 2 == 0 ? Layout::kPacked : Layout::kShadow, random());
  }
}

TEST_CASE("x86 long doubles are sixteen bytes each") {
  fakegpu_begin();
  Memory memory(6);
  Type padded({{0, 16, 1, 0}}, 16);
  padded.map.padded = true;
  padded.map.contiguous = false;
  const Orders orders = check_both_ways(memory, padded, 100, 32, Layout::kPacked, 1);
  CHECK_CALLS((orders.down == 1 && orders.up == 1));
}

TEST_CASE("pieces of a vector collective") {
  fakegpu_begin();
  for (const int64_t gap : {0, 100, 20000}) {
    Memory memory(8);
    const Type spaced({{0, 8, 3, 16}}, 48);
    const Type other({{0, 4, 1, 0}}, 4);
    std::vector<staging::Block> blocks;
    int64_t at = 0;
    for (int64_t i = 0; i < 20; ++i) {
      const Type& type = i % 2 == 0 ? spaced : other;
      blocks.push_back({at, i % 5, &type.map});
      at += i % 5 * type.map.extent + gap;
    }
    std::swap(blocks[3], blocks[12]);
    char* buffer = memory.device + 1024;
    Packet packet;
    REQUIRE(staging::packet_open_blocks(&packet, buffer, blocks.data(), 20) == Refusal::kNone);
    const std::vector<staging::Block> copied = blocks;
    std::fill(blocks.begin(), blocks.end(), staging::Block{});  // they are the packet's own by now
    REQUIRE(started(staging::packet_down(&packet)));
    REQUIRE(staging::packet_wait(&packet) == PacketState::kReady);
    char* given = staging::packet_given(packet);
    const char* held = memory.bytes.data() + 1024;
    for (const auto& block : copied) {
      const uint64_t bytes = type_bytes(*block.type, block.count);
      std::vector<char> expected(bytes), got(bytes), news = random_bytes(bytes, 9);
      type_pack(*block.type, held + block.offset, block.count, 0, bytes, expected.data());
      type_pack(*block.type, given + block.offset, block.count, 0, bytes, got.data());
      CHECK(got == expected);
      type_unpack(*block.type, given + block.offset, block.count, 0, bytes, news.data());
    }
    // Blocks 5 to 15 up, then all of them.
    for (const auto& [first, last] : {std::pair<uint32_t, uint32_t>{5, 16}, {0, 20}}) {
      REQUIRE(started(staging::packet_up_blocks(&packet, first, last)));
      REQUIRE(staging::packet_wait(&packet) == PacketState::kReady);
      for (uint32_t i = first; i < last; ++i) {
        const auto& block = copied[i];
        const uint64_t bytes = type_bytes(*block.type, block.count);
        std::vector<char> stream(bytes);
        type_pack(*block.type, given + block.offset, block.count, 0, bytes, stream.data());
        type_unpack(*block.type, memory.bytes.data() + 1024 + block.offset, block.count, 0, bytes, stream.data());
      }
      CHECK(memory.unchanged());
    }
    // Some of them down: only these are written.
    std::vector<char> was(given + packet.low, given + packet.high);
    memset(given + packet.low, 0x5a, was.size());
    REQUIRE(started(staging::packet_down_blocks(&packet, 7, 9)));
    REQUIRE(staging::packet_wait(&packet) == PacketState::kReady);
    for (uint32_t i = 0; i < 20; ++i) {
      const auto& block = copied[i];
      const uint64_t bytes = type_bytes(*block.type, block.count);
      std::vector<char> expected(bytes, 0x5a), got(bytes);
      if (i == 7 || i == 8)
        type_pack(*block.type, was.data() - packet.low + block.offset, block.count, 0, bytes, expected.data());
      type_pack(*block.type, given + block.offset, block.count, 0, bytes, got.data());
      CHECK(got == expected);
    }
    CHECK(staging::packet_up_blocks(&packet, 0, 1) == PacketState::kReady);  // of no elements
    CHECK(staging::packet_down_blocks(&packet, 0, 1) == PacketState::kReady);
    staging::packet_close(&packet);
  }
}

TEST_CASE("blocks that follow each other are one copy; many that do not, one kernel") {
  fakegpu_begin();
  Memory memory(11);
  const Type doubles({{0, 8, 1, 0}}, 8);
  for (const int64_t gap : {0, 8}) {
    std::vector<staging::Block> blocks;
    for (int64_t i = 0; i < 200; ++i) blocks.push_back({i * (80 + gap), 10, &doubles.map});
    Packet packet;
    REQUIRE(staging::packet_open_blocks(&packet, memory.device, blocks.data(), 200) == Refusal::kNone);
    const std::vector<char> news = random_bytes(packet.host_bytes, 1);
    memcpy(packet.host, news.data(), news.size());
    const uint64_t up = calls_of("up"), launched = calls_of("launch");
    REQUIRE(started(staging::packet_up(&packet, 199 * 80 + 4)));
    const bool kernel = with_kernels() && gap != 0;
    CHECK_CALLS(calls_of("up") - up == (gap == 0 ? 1 : kernel ? 0 : 200));
    CHECK_CALLS(calls_of("launch") - launched == kernel);
    REQUIRE(staging::packet_wait(&packet) == PacketState::kReady);
    for (int64_t i = 0; i < 200; ++i)
      memcpy(memory.bytes.data() + i * (80 + gap), news.data() + i * (80 + gap), i == 199 ? 4 : 80);
    CHECK(memory.unchanged());
    staging::packet_close(&packet);
    CHECK(gpu::pinned_use().used == 0);
  }
}

TEST_CASE("refusals hold nothing") {
  fakegpu_begin();
  Memory memory(10);
  const Type doubles({{0, 8, 1, 0}}, 8);
  const uint64_t used = gpu::pinned_use().used;
  Packet packet;
  char host[64];
  CHECK(open(packet, doubles, host, 8, Layout::kPacked) == Refusal::kHostBuffer);
  CHECK(open(packet, doubles, memory.device, 0, Layout::kPacked) == Refusal::kHostBuffer);
  std::vector<char> heap(kBytes);
  CHECK(open(packet, doubles, heap.data(), kBytes / 8, Layout::kPacked) == Refusal::kHostBuffer);
  CHECK(open(packet, doubles, memory.device + kBytes - 8, 2, Layout::kPacked) == Refusal::kBeyond);
  CHECK(open(packet, doubles, memory.device, kBytes / 8 + 1, Layout::kShadow) == Refusal::kBeyond);
  CHECK(gpu::pinned_use().used == used);

  char* large = device_memory(size_t{65} << 20);
  CHECK(open(packet, doubles, large, (65 << 20) / 8, Layout::kPacked) == Refusal::kNone);
  CHECK(packet.pageable);  // in memory that is not pinned
  CHECK(staging::packet_down(&packet) != PacketState::kFailed);
  CHECK(staging::packet_wait(&packet) == PacketState::kReady);
  staging::packet_close(&packet);
  CHECK(gpu::pinned_use().used == used);
  const Type one({{0, 8, 2, 40 << 20}}, 64);  // 16 bytes of data: packed they fit
  CHECK(open(packet, one, large, 1, Layout::kPacked) == Refusal::kNone);
  staging::packet_close(&packet);
  free_device_memory(large);
  CHECK(gpu::pinned_use().used == used);
}

TEST_CASE("memory freed, or a context gone, while a packet is under way") {
  fakegpu_begin();
  const uint64_t used = gpu::pinned_use().used;
  const Type doubles({{0, 8, 1, 0}}, 8);
  Packet packet;
  char* freed = device_memory(kBytes);
  REQUIRE(open(packet, doubles, freed, kBytes / 8, Layout::kPacked) == Refusal::kNone);
  free_device_memory(freed);
  CHECK(staging::packet_down(&packet) == PacketState::kFailed);
  CHECK(staging::packet_poll(&packet) == PacketState::kFailed);
  CHECK(staging::packet_wait(&packet) == PacketState::kFailed);
  staging::packet_close(&packet);
  staging::packet_close(&packet);

  CUcontext context = nullptr;
  REQUIRE(FAKE(cuCtxCreate_v2)(&context, 0, 0) == CUDA_SUCCESS);
  char* memory = device_memory(kBytes);
  REQUIRE(open(packet, doubles, memory, kBytes / 8, Layout::kShadow) == Refusal::kNone);
  CHECK(started(staging::packet_down(&packet)));
  REQUIRE(FAKE(cuCtxDestroy_v2)(context) == CUDA_SUCCESS);
  CHECK(staging::packet_wait(&packet) == PacketState::kFailed);
  CHECK(staging::packet_up(&packet, 100) == PacketState::kFailed);
  staging::packet_close(&packet);
  CHECK(gpu::pinned_use().used == used);
}

TEST_CASE("the context goes at any point of a packet's life", "[.gone]") {
  fakegpu_begin();
  std::vector<Run> irregular;
  for (int64_t i = 0; i < 100; ++i) irregular.push_back({i * 40 + i % 7, 16 + i % 5, 1, 0});
  const Type dense(irregular, 4020), doubles({{0, 8, 1, 0}}, 8);
  bool failed = false;
  // Open packets meanwhile: they must not be mistaken for others when the context has been replaced.
  for (unsigned round = 0; round < 60; ++round) {
    CUdeviceptr memory = 0;
    if (FAKE(cuMemAlloc_v2)(&memory, kBytes) != CUDA_SUCCESS) {
      CUcontext context = nullptr;
      REQUIRE(FAKE(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS);
      REQUIRE(FAKE(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
      REQUIRE(FAKE(cuMemAlloc_v2)(&memory, kBytes) == CUDA_SUCCESS);
    }
    auto* buffer = reinterpret_cast<char*>(memory);
    device_write(buffer, std::vector<char>(kBytes, static_cast<char>(round)));
    Packet packets[2];
    for (Packet& packet : packets)
      if (open(packet, round % 2 == 0 ? dense : doubles, buffer, 20, Layout::kPacked) == Refusal::kNone)
        staging::packet_down(&packet);
    for (Packet& packet : packets) {
      if (packet.host == nullptr) {
        failed = true;
        continue;
      }
      PacketState state = staging::packet_wait(&packet);
      if (state == PacketState::kReady) {
        for (uint64_t i = 0; i < packet.bytes; ++i) REQUIRE(packet.host[i] == static_cast<char>(round));
        staging::packet_up(&packet, packet.bytes);
        state = staging::packet_wait(&packet);
      }
      REQUIRE((state == PacketState::kReady || state == PacketState::kFailed));
      failed = failed || state == PacketState::kFailed;
      staging::packet_close(&packet);
    }
    FAKE(cuMemFree_v2)(memory);
  }
  CHECK(failed);
  CHECK(gpu::pinned_use().used == 0);
}
