// SPDX-License-Identifier: Apache-2.0
#include "record_fixture.h"

#include <stdlib.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "check.h"
#include "record_identity.h"

namespace record_test {

namespace {

std::string object_path(uint64_t n) { return n == 1 ? "/opt/app" : "/opt/lib" + std::to_string(n) + ".so"; }
std::vector<std::string>& paths() {
  static std::vector<std::string> all = [] {
    std::vector<std::string> made;
    for (uint64_t n = 0; n < 100; ++n) made.push_back(object_path(n));
    return made;
  }();
  return all;
}

bool site_of(uint64_t address, SiteName* name) {
  const uint64_t n = address / 0x1000;
  if (n == 0 || n >= 100 || n % 50 == 0) return false;
  *name = {paths()[n].c_str(), address % 0x1000 + 0x40};
  return true;
}

uint64_t address_of(const SiteName& name) {
  for (uint64_t n = 1; n < 100; ++n)
    if (paths()[n] == name.object) return n * 0x1000 + name.offset - 0x40;
  return 0;
}

const char* name_of(uint16_t call) {
  static thread_local char text[32];
  snprintf(text, sizeof(text), "MPI_Call_%u", call);
  return text;
}

uint16_t id_of(const char* name) { return static_cast<uint16_t>(atoi(name + 9)); }

Kept blank(ItemKind kind, uint64_t number) {
  Kept kept;
  kept.item.kind = kind;
  kept.item.number = number;
  return kept;
}

uint64_t value_of(ValueType type, std::mt19937_64& random) {
  switch (type) {
    case ValueType::kNone: return 0;
    case ValueType::kFloat: return random() & 0xffffffff;
    case ValueType::kSigned:
    case ValueType::kUnsigned: return random() >> (random() % 64);
    default: return random();
  }
}

}  // namespace

const Names names = {site_of, address_of, name_of, id_of};

bool operator==(const Kept& a, const Kept& b) {
  const Item &x = a.item, &y = b.item;
  if (x.kind != y.kind || x.number != y.number) return false;
  switch (x.kind) {
    case ItemKind::kCall:
      return memcmp(&x.call, &y.call, sizeof(CallRecord)) == 0 && x.ordinal == y.ordinal && a.object == b.object &&
             a.offset == b.offset;
    case ItemKind::kCompletion:
      return x.completion.ordinal == y.completion.ordinal && x.completion.digest == y.completion.digest &&
             x.completion.bytes == y.completion.bytes && x.completion.stream == y.completion.stream &&
             x.completion.source == y.completion.source && x.completion.tag == y.completion.tag &&
             x.completion.type == y.completion.type && x.completion.flags == y.completion.flags;
    case ItemKind::kOutcome:
      return x.outcome.bytes == y.outcome.bytes && x.outcome.index == y.outcome.index &&
             x.outcome.source == y.outcome.source && x.outcome.tag == y.outcome.tag &&
             x.outcome.flag == y.outcome.flag && x.outcome.what == y.outcome.what;
    case ItemKind::kIndices: return a.list == b.list;
    case ItemKind::kTime: return x.clock == y.clock && x.bits == y.bits;
    default: return x.logged == y.logged && x.type == y.type && x.bits == y.bits && a.text == b.text;
  }
}

std::string describe(const Kept& kept) {
  std::ostringstream out;
  const CallRecord& c = kept.item.call;
  out << "kind " << int(kept.item.kind) << " number " << kept.item.number << " ordinal " << kept.item.ordinal
      << " call " << c.call << " site " << kept.object << "+" << kept.offset << " address " << c.site << " peer "
      << c.peer << " tag " << c.tag << " step " << c.step << " count " << c.count << " flags " << c.flags << " bytes "
      << c.bytes << " comm " << c.comm << " in " << c.in << " out " << c.out << " completion "
      << kept.item.completion.ordinal << " flags " << int(kept.item.completion.flags) << " text " << kept.text
      << " list " << kept.list.size();
  return out.str();
}

Directory::Directory() {
  char name[] = "/tmp/resil-record-XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  path = std::string(name) + "/recording";
}

Directory::~Directory() { std::filesystem::remove_all(std::filesystem::path(path).parent_path()); }

Identity identity(int rank, int size) {
  static int launches;
  char launch[32];
  snprintf(launch, sizeof(launch), "launch-%d", ++launches);
  return invented_identity(rank, size, launch);
}

void start(const Directory& directory, Identity* used) {
  Problem problem;
  const Identity mine = identity();
  if (used != nullptr) *used = mine;
  bool ok = directory_lock(directory.path.c_str(), mine, &problem);
  INFO(problem.text);
  REQUIRE(ok);
  ok = writer_open(directory.path.c_str(), mine, names, &problem);
  INFO(problem.text);
  REQUIRE(ok);
}

std::vector<Kept> write_items(Stream* stream, std::mt19937_64& random, int calls, unsigned variety) {
  std::vector<Kept> items;
  auto pick = [&](uint64_t n) { return random() % n; };
  auto type = [&] { return static_cast<ValueType>(pick(3) == 0 ? pick(7) : pick(2)); };
  uint64_t number = stream->calls(), last_completed = 0;
  for (int i = 0; i < calls; ++i) {
    Kept kept = blank(ItemKind::kCall, ++number);
    CallRecord& call = kept.item.call;
    call.site = 0x1000 + pick(variety) * 97 % 0x3c000;  // object files in a segment: no more than kObjects
    call.call = static_cast<uint16_t>(pick(variety < 600 ? variety : 600));
    call.comm = pick(3) == 0 ? 0 : 0x1234567890 + pick(variety);
    call.peer = static_cast<int32_t>(pick(variety)) - 3;
    call.tag = static_cast<int32_t>(pick(4) == 0 ? random() : 7);
    call.bytes = pick(8) == 0 ? random() : 8 * pick(variety);
    call.step = pick(16) == 0 ? static_cast<uint32_t>(random()) : static_cast<uint32_t>(i / 10);
    call.count = 1;
    call.flags = static_cast<uint16_t>(pick(5) == 0 ? (pick(256) << 8 | kCallFailed) : 0);
    SiteName name;
    const bool named = site_of(call.site, &name);
    if (named) {
      kept.object = name.object;
      kept.offset = name.offset;
    }
    if (pick(20) == 0) {
      const auto polls = static_cast<uint32_t>(1 + pick(5));
      call.flags |= kCallPolls;
      call.count = polls;
      for (uint32_t k = 0; k < polls; ++k) stream->poll(call);
    } else {
      call.in_type = type();
      call.out_type = type();
      call.in = value_of(call.in_type, random);
      call.out = value_of(call.out_type, random);
      if (pick(2) == 0) {
        call.flags |= kCallStarted;
        call.count = pick(3) == 0 ? static_cast<uint32_t>(pick(100)) : 1;
        kept.item.ordinal = stream->next_ordinal();
      }
      const uint64_t ordinal = stream->call(call);
      CHECK(ordinal == kept.item.ordinal);
    }
    if (!named) call.site = 0;
    items.push_back(kept);
    for (uint64_t n = pick(4); n > 1; --n) {
      Kept more = blank(ItemKind::kCompletion, number);
      Completion& completion = more.item.completion;
      completion.ordinal = pick(2) == 0 ? last_completed + 1 : random() >> (random() % 60);
      completion.type = type();
      completion.digest = value_of(completion.type, random);
      completion.flags = static_cast<uint8_t>(pick(3) == 0 ? pick(64) : 0);
      completion.stream = pick(10) == 0 ? stream->id() + 1 + static_cast<uint32_t>(pick(1000)) : 0;
      if ((completion.flags & kCompletionMatch) != 0) {
        completion.source = static_cast<int32_t>(random());
        completion.tag = static_cast<int32_t>(random());
      }
      if ((completion.flags & kCompletionBytes) != 0) completion.bytes = random();
      last_completed = completion.ordinal;
      stream->completion(completion);
      items.push_back(more);
    }
    if (pick(6) == 0) {
      Kept more = blank(ItemKind::kOutcome, number);
      Outcome& outcome = more.item.outcome;
      outcome.what = static_cast<uint8_t>(pick(16));
      outcome.flag = (outcome.what & kOutcomeFlag) != 0 && pick(2) == 0;
      outcome.index = (outcome.what & kOutcomeIndex) != 0 ? static_cast<int32_t>(pick(5)) - 1 : 0;
      outcome.source = (outcome.what & kOutcomeMatch) != 0 ? static_cast<int32_t>(random()) : 0;
      outcome.tag = (outcome.what & kOutcomeMatch) != 0 ? static_cast<int32_t>(random()) : 0;
      outcome.bytes = (outcome.what & kOutcomeBytes) != 0 ? random() : 0;
      stream->outcome(outcome);
      items.push_back(more);
    }
    if (pick(12) == 0) {
      std::vector<int32_t> list(pick(10) == 0 ? kMaxIndices * pick(3) : pick(600));
      for (int32_t& index : list) index = static_cast<int32_t>(random() >> (33 + pick(31)));
      stream->indices(list.data(), static_cast<uint32_t>(list.size()));
      for (size_t at = 0;; at += kMaxIndices) {
        Kept more = blank(ItemKind::kIndices, number);
        const size_t piece = std::min<size_t>(kMaxIndices, list.size() - at);
        more.list.assign(list.begin() + static_cast<long>(at), list.begin() + static_cast<long>(at + piece));
        items.push_back(more);
        if (piece < kMaxIndices) break;
      }
    }
    if (pick(8) == 0) {
      Kept more = blank(ItemKind::kLogged, number);
      more.text = "norm " + std::to_string(pick(variety)) + std::string(pick(20) == 0 ? 100 : 0, 'x');
      more.item.logged = static_cast<LoggedKind>(1 + pick(7));
      more.item.type = type();
      more.item.bits = value_of(more.item.type, random);
      stream->logged(more.item.logged, more.text.c_str(), more.item.type, more.item.bits);
      more.text.resize(std::min<size_t>(more.text.size(), kMaxName - 1));
      items.push_back(more);
    }
    for (unsigned times = pick(6) == 0 ? pick(5) : 0; times > 0; --times) {
      Kept more = blank(ItemKind::kTime, number);
      more.item.clock = static_cast<uint8_t>(pick(3) == 0 ? pick(kClocks) : 0u);
      more.item.bits = pick(4) == 0 ? random() : 0x41d5000000000000 + pick(1000);
      stream->time(more.item.clock, more.item.bits);
      items.push_back(more);
    }
    if (pick(50) == 0) stream->text("a remark that readers skip");
  }
  return items;
}

Read read_all(Recording& recording, uint64_t first_site) {
  Read result;
  Problem problem;
  Cursor* cursor = recording.next_stream(first_site, &problem);
  if (cursor == nullptr) {
    result.end = problem.kind == ProblemKind::kDamaged ? Reading::kDamaged : Reading::kCut;
    result.problem = problem.text;
    return result;
  }
  Kept kept;
  const Item* ahead;
  while ((result.end = cursor->peek(&ahead)) == Reading::kItem) {
    if (result.items.size() % 2 != 0) {
      kept.item = *ahead;
      cursor->skip();
    } else {
      REQUIRE(cursor->next(&kept.item) == Reading::kItem);
    }
    kept.text = kept.item.kind == ItemKind::kLogged ? kept.item.text : "";
    kept.list.clear();
    if (kept.item.kind == ItemKind::kIndices)
      kept.list.assign(kept.item.index_list, kept.item.index_list + kept.item.indices);
    if (kept.item.kind == ItemKind::kCall) {
      kept.object = cursor->site().object;
      kept.offset = cursor->site().offset;
      if (std::string(cursor->call_name()) != name_of(kept.item.call.call)) kept.item.call.call = kUnknownCall;
    }
    result.items.push_back(kept);
  }
  result.problem = cursor->problem();
  CHECK(cursor->next(&kept.item) == result.end);
  recording.release(cursor);
  return result;
}

std::string file_of(const Directory& directory) { return directory.path + "/rank-00000.rec"; }

bool open(Recording* recording, const Directory& directory, const Identity& mine, Problem* problem) {
  return recording->open(directory.path.c_str(), mine, names, problem);
}

std::vector<Kept> make(const Directory& directory, Identity* used, int calls, unsigned variety, uint64_t seed) {
  std::mt19937_64 random(seed);
  start(directory, used);
  Stream* stream = stream_open(kFirst);
  REQUIRE(stream != nullptr);
  std::vector<Kept> written = write_items(stream, random, calls, variety);
  writer_close(Ending::kFinished);
  return written;
}

size_t common(const std::vector<Kept>& a, const std::vector<Kept>& b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

void check_equal(const std::vector<Kept>& read, const std::vector<Kept>& written) {
  const size_t same = common(read, written);
  if (same < written.size()) {
    INFO("written: " << describe(written[same]));
    INFO("read:    " << (same < read.size() ? describe(read[same]) : "nothing"));
    CHECK(same == written.size());
  }
  CHECK(read.size() == written.size());
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void set_contents(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(file.good());
}

}  // namespace record_test
