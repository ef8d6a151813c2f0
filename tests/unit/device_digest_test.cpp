// SPDX-License-Identifier: Apache-2.0
//
// The kernels' one source, run on the CPU: the digest of every length at any alignment, batches over several blocks,
// and all kinds of runs, held against the CPU's digest of the packed stream; pack and unpack against type_pack.

#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "pipeline/staging/device_stream.h"
#include "shim/base/digest/digest.h"
#include "shim/model/datatype/run_list.h"
#include "tests/fakegpu/digest_kernels.h"

using namespace resil;
using namespace resil::gpu;

namespace {

std::vector<char> noise(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<char> data((bytes + 8) / 8 * 8);
  for (size_t i = 0; i < data.size(); i += 8) {
    const uint64_t word = random();
    memcpy(&data[i], &word, 8);
  }
  return data;
}

uint64_t address_of(const void* data) { return reinterpret_cast<uint64_t>(data); }

struct Batch {
  DigestBatch batch = {};
  DigestSum sums[kDigestJobs] = {};
  uint64_t results[kDigestJobs] = {};

  void add(KernelStream stream) {
    stream.first_leaf = batch.leaves;
    batch.stream[batch.jobs++] = stream;
    batch.leaves += static_cast<uint32_t>(kernel_leaves(stream.bytes));
  }
  void run(unsigned blocks, bool with_runs) {
    batch.results = address_of(results);
    batch.sums = address_of(sums);
    (with_runs ? fakegpu::run_digest_runs : fakegpu::run_digest)(batch, blocks);
    for (const DigestSum& sum : sums) {  // ready for the next launch
      REQUIRE(sum.sum == 0);
      REQUIRE(sum.leaves == 0);
    }
  }
};

/// A datatype of the test's own; it must outlive its runs.
struct Type {
  std::vector<Run> runs;
  TypeMap map = {};

  Type(std::vector<Run> of, int64_t extent) : runs(std::move(of)) {
    map.extent = extent;
    map.runs = runs.data();
    map.run_count = static_cast<uint32_t>(runs.size());
    map.low = INT64_MAX;
    map.high = INT64_MIN;
    for (const Run& run : runs) {
      map.size += static_cast<uint64_t>(run.bytes * run.count);
      const int64_t last = run.offset + (run.count - 1) * run.stride;
      map.low = std::min({map.low, run.offset, last});
      map.high = std::max({map.high, run.offset, last + run.bytes});
    }
    map.contiguous = runs.size() == 1 && runs[0].offset == 0 && runs[0].count == 1 && runs[0].bytes == extent;
  }
};

std::vector<Type> layouts() {
  std::vector<Type> all;
  all.push_back(Type({{0, 8, 1, 8}}, 8));  // contiguous
  all.push_back(Type({{0, 24, 1, 24}}, 32));  // a gap behind each
  all.push_back(Type({{8, 16, 4, 40}}, 160));  // a vector whose elements go on
  all.push_back(Type({{0, 16, 4, 40}}, 200));  // and one whose do not
  all.push_back(Type({{0, 3, 7, 5}}, 41));  // odd everything
  all.push_back(Type({{4, 5000, 3, 6000}}, 20000));  // pieces longer than a leaf
  all.push_back(Type({{0, 8, 1, 8}, {16, 4, 1, 4}}, 24));  // a structure
  all.push_back(Type({{64, 8, 1, 8}, {0, 1, 1, 1}, {16, 12, 2, 20}}, 80));  // not in the order of addresses
  all.push_back(Type({{0, 200, 1, 200}, {208, 4, 9, 8}, {300, 100, 2, 104}}, 512));
  std::vector<Run> many;
  for (int i = 0; i < 100; ++i) many.push_back({i * 48, 8 + i % 3 * 4, 1 + i % 2, 20});
  all.push_back(Type(many, 4864));
  std::vector<Run> backwards;
  for (int i = 0; i < 40; ++i) backwards.push_back({(39 - i) * 120, 100, 1, 100});
  all.push_back(Type(backwards, 4800));
  all.push_back(Type({{0, 8, 5, -16}}, 8 * 64));  // downwards
  return all;
}

}  // namespace

TEST_CASE("every length at any alignment") {
  const std::vector<char> data = noise(20100, 1);
  for (size_t bytes = 0; bytes <= 20000; ++bytes) {
    const char* from = &data[64 + bytes * 7 % 33];
    const bool with_runs = bytes % 2 != 0;
    Batch batch;
    batch.add({address_of(from), bytes, 0, 0, 0, 0, 0, 0});
    batch.run(1 + bytes % 3, with_runs);
    INFO(bytes);
    REQUIRE(batch.results[0] == digest(from, bytes));
  }
}

TEST_CASE("a batch of packets in one launch, whatever the blocks") {
  const std::vector<char> data = noise(1 << 20, 2);
  for (unsigned blocks : {1u, 2u, 7u, 64u}) {
    std::mt19937 random(blocks);
    Batch batch;
    std::vector<uint64_t> wanted;
    for (unsigned i = 0; i < kDigestJobs; ++i) {
      const size_t bytes = i % 5 == 0 ? random() % 100000 : i % 5 == 1 ? 0 : random() % 9000, from = random() % 5000;
      batch.add({address_of(&data[from]), bytes, 0, 0, 0, 0, 0, 0});
      wanted.push_back(digest(&data[from], bytes));
    }
    for (int again = 0; again < 2; ++again) {
      memset(batch.results, 0, sizeof(batch.results));
      batch.run(blocks, false);
      CHECK(std::vector<uint64_t>(batch.results, batch.results + kDigestJobs) == wanted);
    }
  }
}

TEST_CASE("streams of derived datatypes") {
  for (const Type& type : layouts()) {
    for (int64_t count : {1, 2, 3, 33, 200}) {
      int64_t low, high;
      type_span(type.map, count, &low, &high);
      std::vector<char> memory = noise(static_cast<size_t>(high - low) + 32, 3);
      char* buffer = &memory[16] - low;
      const uint64_t all = type_bytes(type.map, count);
      std::vector<KernelRun> table(staging::stream_entries(type.map, count));
      for (uint64_t bytes : {all, all - 1, all / 2 + 1, all / 3}) {
        INFO("runs " << type.map.run_count << " extent " << type.map.extent);
        INFO("count " << count << " bytes " << bytes);
        const KernelStream stream =
            staging::make_stream(type.map, buffer, count, bytes, table.data(), address_of(table.data()));
        Batch batch;
        batch.add(stream);
        batch.add(stream);
        batch.run(3, true);
        const uint64_t wanted = type_digest(type.map, buffer, count, bytes);
        REQUIRE(batch.results[0] == wanted);
        REQUIRE(batch.results[1] == wanted);

        std::vector<char> packed(bytes + 16), given(bytes + 16);
        const uint64_t first = bytes / 5, part = bytes - first;
        fakegpu::run_pack({stream, first, part, address_of(packed.data())}, 2, false);
        type_pack(type.map, buffer, count, first, part, given.data());
        REQUIRE(memcmp(packed.data(), given.data(), part) == 0);

        std::vector<char> other = noise(memory.size(), 4), third = other;
        char* into = &other[16] - low;
        const KernelStream back =
            staging::make_stream(type.map, into, count, bytes, table.data(), address_of(table.data()));
        fakegpu::run_pack({back, first, part, address_of(packed.data())}, 2, true);
        type_unpack(type.map, &third[16] - low, count, first, part, packed.data());
        REQUIRE(memcmp(other.data(), third.data(), other.size()) == 0);  // gaps are as they were
      }
    }
  }
}

TEST_CASE("streams of blocks") {
  const std::vector<Type> types = layouts();
  const std::vector<char> memory = noise(1 << 20, 5);
  for (unsigned blocks = 1; blocks < 9; ++blocks) {
    std::vector<staging::Block> list;
    int64_t offset = 1 << 19;
    std::vector<char> packed;
    for (unsigned i = 0; i < blocks; ++i) {
      const TypeMap& type = types[(i * 5 + blocks) % types.size()].map;
      const int64_t count = i % 3 == 2 ? 0 : 1 + i;
      list.push_back({offset, count, &type});
      const uint64_t bytes = type_bytes(type, count);
      packed.resize(packed.size() + bytes);
      type_pack(type, &memory[static_cast<size_t>(offset)], count, 0, bytes, packed.data() + packed.size() - bytes);
      offset -= 20000;
    }
    std::vector<KernelRun> table(staging::stream_entries(list.data(), blocks));
    for (uint64_t bytes : {packed.size(), packed.size() / 2}) {
      Batch batch;
      const uint64_t seen_at = address_of(table.data());
      batch.add(staging::make_stream(list.data(), blocks, memory.data(), bytes, table.data(), seen_at));
      batch.run(1, true);
      REQUIRE(batch.results[0] == digest(packed.data(), bytes));
    }
  }
}
