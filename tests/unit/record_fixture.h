// SPDX-License-Identifier: Apache-2.0
//
// What the units of recordings share: names of invented call sites, random items, a directory, writing and reading
// back.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "checksum/record/reader.h"
#include "checksum/record/writer.h"

namespace record_test {

using namespace resil::record;

/// An item with its texts and lists by value.
struct Kept {
  Item item{};
  std::string text;
  std::vector<int32_t> list;
  std::string object;  ///< kCall: of its site
  uint64_t offset = 0;
};
bool operator==(const Kept& a, const Kept& b);
std::string describe(const Kept& kept);

/// Addresses 0x1000 * n .. are in object file n of 1 to 99, if n is no multiple of 50.
extern const Names names;

struct Directory {
  Directory();
  ~Directory();
  std::string path;
};

Identity identity(int rank = 0, int size = 2);
/// Claims and opens; the launch's name differs each time.
void start(const Directory& directory, Identity* used = nullptr);

/// Calls with what belongs to them, written to the stream and returned as they must be read back. `variety`: of how
/// many different values fields are; small: loops.
std::vector<Kept> write_items(Stream* stream, std::mt19937_64& random, int calls, unsigned variety);

struct Read {
  std::vector<Kept> items;
  Reading end;
  std::string problem;
};
Read read_all(Recording& recording, uint64_t first_site);

constexpr uint64_t kFirst = 0x1080;  ///< where streams begin

std::string file_of(const Directory& directory);
bool open(Recording* recording, const Directory& directory, const Identity& mine, Problem* problem);
/// A finished recording of one stream.
std::vector<Kept> make(const Directory& directory, Identity* used, int calls, unsigned variety, uint64_t seed);
/// How many items are equal, from the first one.
size_t common(const std::vector<Kept>& a, const std::vector<Kept>& b);
void check_equal(const std::vector<Kept>& read, const std::vector<Kept>& written);

std::string contents(const std::string& path);
void set_contents(const std::string& path, const std::string& bytes);

}  // namespace record_test
