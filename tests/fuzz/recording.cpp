// SPDX-License-Identifier: Apache-2.0
//
// The reader of recordings. Inputs are changes to a recording that this program's own writer made. In one half of them
// the checksums are made right again: what no writer makes must end in an error. In the other half they are not: then
// what is read before an error must be what was written, and an end without error all of it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checksum/record/directory_lock.h"
#include "checksum/record/layout.h"
#include "checksum/record/reader.h"
#include "checksum/record/writer.h"
#include "fuzz.h"
#include "shim/base/hash.h"
#include "tests/unit/record_identity.h"

namespace fuzz {

namespace {

using namespace resil::record;

bool site_of(uint64_t address, SiteName* name) {
  *name = {"/opt/app", address};
  return address != 0;
}
uint64_t address_of(const SiteName& name) { return strcmp(name.object, "/opt/app") == 0 ? name.offset : 0; }
const char* name_of(uint16_t call) { return call % 2 == 0 ? "MPI_Send" : "MPI_Recv"; }
uint16_t id_of(const char* name) { return strcmp(name, "MPI_Send") == 0 ? 0 : 1; }
constexpr Names kNames = {site_of, address_of, name_of, id_of};
constexpr uint64_t kFirst = 0x1080;

Identity identity() {
  Identity made = invented_identity(0, 2, "launch-1");
  made.created = 1700000000;
  return made;
}

void write_calls(Stream* stream, int calls) {
  for (int i = 0; i < calls; ++i) {
    CallRecord call = {};
    call.site = kFirst + static_cast<uint64_t>(i % 5);
    call.call = static_cast<uint16_t>(i % 2);
    call.comm = 0x1234567890 + static_cast<uint64_t>(i % 3);
    call.peer = i % 4 - 1;
    call.tag = i % 7;
    call.bytes = static_cast<uint64_t>(i) * 8;
    call.step = static_cast<uint32_t>(i / 10);
    call.count = 1;
    call.in_type = static_cast<ValueType>(i % 7);
    call.out_type = static_cast<ValueType>(i % 3);
    call.in = static_cast<uint64_t>(i) * 1000003;
    if (i % 3 == 0) call.flags = kCallStarted;
    stream->call(call);
    if (i % 3 == 0) {
      Completion completion = {};
      completion.ordinal = static_cast<uint64_t>(i / 3 + 1);
      completion.type = ValueType::kDigest;
      completion.digest = 77u * static_cast<uint64_t>(i);
      completion.flags = i % 2 == 0 ? kCompletionMatch | kCompletionBytes : 0;
      completion.source = i % 2;
      completion.tag = i;
      completion.bytes = 5;
      stream->completion(completion);
    }
    if (i % 5 == 0) stream->outcome({8, i, 1, 2, true, kOutcomeFlag | kOutcomeIndex | kOutcomeMatch | kOutcomeBytes});
    if (i % 11 == 0) {
      const int32_t list[4] = {1, 2, i, 0};
      stream->indices(list, 4);
      stream->logged(LoggedKind::kNorm, "norm", ValueType::kDouble, 0x3ff0000000000000);
      stream->time(kClockWtime, 0x4059000000000000);
      stream->time(kClockGettime, 1000000007);
      stream->text("a remark");
    }
  }
}

struct Sample {
  std::string directory, path;
  std::vector<char> bytes;
  std::vector<uint64_t> items;  ///< a hash of each
};

uint64_t hash_of(const Item& item) {
  using resil::hash_combine;
  uint64_t hash = hash_combine(static_cast<uint64_t>(item.kind), item.number);
  const auto text = [&](const void* from, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) hash = hash_combine(hash, static_cast<const unsigned char*>(from)[i]);
  };
  switch (item.kind) {
    case ItemKind::kCall: text(&item.call, sizeof(item.call)); return hash_combine(hash, item.ordinal);
    case ItemKind::kCompletion:
      return hash_combine(hash_combine(hash, item.completion.ordinal), item.completion.digest);
    case ItemKind::kOutcome: return hash_combine(hash, static_cast<uint64_t>(item.outcome.index));
    case ItemKind::kIndices: text(item.index_list, item.indices * sizeof(int32_t)); return hash;
    case ItemKind::kTime: return hash_combine(hash_combine(hash, item.clock), item.bits);
    default: text(item.text, strlen(item.text)); return hash_combine(hash, item.bits);
  }
}

void check_problem(const Problem& problem) {
  must_end(problem.text, sizeof(problem.text), "a problem ends");
  must(problem.kind != ProblemKind::kNone && problem.text[0] != 0, "what cannot be read is said");
}

/// Reads all there is; true: to an end without error. `wanted`: what was written.
bool read_all(const std::string& directory, const std::vector<uint64_t>* wanted, std::vector<uint64_t>* read) {
  Recording recording;
  Problem problem;
  memset(&problem, 'x', sizeof(problem));
  if (!recording.open(directory.c_str(), identity(), kNames, &problem)) {
    check_problem(problem);
    return false;
  }
  must_end(recording.end_text(), 400, "how it ended is a text");
  must_end(recording.differences(), 600, "differences are a text");
  must((recording.end() == FileEnd::kFinished) == (recording.end_text()[0] == 0), "an end that is not clean is said");
  memset(&problem, 'x', sizeof(problem));
  Cursor* cursor = recording.next_stream(kFirst, &problem);
  if (cursor == nullptr) {
    check_problem(problem);
    recording.close();
    return false;
  }
  Item item;
  size_t count = 0;
  Reading reading;
  for (; (reading = cursor->next(&item)) == Reading::kItem; ++count) {
    must(count < 10000000, "a stream ends");
    const uint64_t hash = hash_of(item);
    if (wanted != nullptr)
      must(count < wanted->size() && (*wanted)[count] == hash, "what is read without an error was written");
    if (read != nullptr) read->push_back(hash);
    if (item.kind == ItemKind::kCall) {
      must_end(cursor->site().object, kMaxPath, "an object file's path ends");
      must_end(cursor->call_name(), kMaxName, "a call's name ends");
    }
  }
  must(cursor->next(&item) == reading, "an end stays");
  must_end(cursor->problem(), 1400, "a problem ends");
  must(reading == Reading::kEnd || cursor->problem()[0] != 0, "what cannot be read is said");
  if (wanted != nullptr)
    must(reading != Reading::kEnd || count == wanted->size(), "nothing is missing without an error");
  const uint32_t id = cursor->id();
  recording.release(cursor);
  for (const uint64_t ordinal : {uint64_t{1}, uint64_t{3}, uint64_t{1} << 40}) {
    Match match;
    if (recording.match(id, ordinal, &match) == Reading::kDamaged) must(recording.problem()[0] != 0, "damage is said");
  }
  must_end(recording.problem(), 1400, "a problem ends");
  recording.close();
  return reading == Reading::kEnd;
}

Sample make_sample() {
  Sample made;
  char name[] = "/tmp/resil-fuzz-XXXXXX";
  must(mkdtemp(name) != nullptr, "a directory can be made");
  made.directory = name;
  made.path = made.directory + "/rank-00000.rec";
  Problem problem;
  const Identity mine = identity();
  must(directory_lock(name, mine, &problem) && writer_open(name, mine, kNames, &problem), "a recording can be begun");
  Stream* stream = stream_open(kFirst);
  must(stream != nullptr, "a stream can be opened");
  write_calls(stream, 200);
  Stream* second = stream_open(0x2000);
  must(second != nullptr, "a stream can be opened");
  write_calls(second, 20);
  writer_close(Ending::kFinished);
  const int fd = open(made.path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status;
  must(fd >= 0 && fstat(fd, &status) == 0, "a recording can be read");
  made.bytes.resize(static_cast<size_t>(status.st_size));
  must(read(fd, made.bytes.data(), made.bytes.size()) == status.st_size, "a recording can be read");
  close(fd);
  // Times differ from run to run; inputs must not depend on them.
  must(read_all(made.directory, nullptr, &made.items) && !made.items.empty(), "a good recording reads well");
  return made;
}

Sample& sample() {
  static Sample made = make_sample();
  static const struct Remover {
    std::string directory;
    ~Remover() { std::filesystem::remove_all(directory); }
  } remover = {made.directory};
  return made;
}

/// Checksums of head, state and of every block that can be reached.
void seal(std::vector<char>& bytes) {
  if (bytes.size() < kHeadBytes) return;
  const auto put = [&](size_t at, uint32_t value) { memcpy(bytes.data() + at, &value, sizeof(value)); };
  put(offsetof(FileHead, crc), head_crc(bytes.data()));
  FileState state;
  memcpy(&state, bytes.data() + kStateAt, sizeof(state));
  put(kStateAt + offsetof(FileState, crc), state_crc(state));
  for (size_t at = kHeadBytes; at + sizeof(BlockHead) <= bytes.size();) {
    BlockHead block;
    memcpy(&block, bytes.data() + at, sizeof(block));
    const size_t left = bytes.size() - at - sizeof(block);
    if (block.payload_bytes <= left)
      block.payload_crc = resil::compat_crc32(bytes.data() + at + sizeof(block), block.payload_bytes);
    put(at + offsetof(BlockHead, payload_crc), block.payload_crc);
    put(at + offsetof(BlockHead, crc), block_crc(block));
    if (block.payload_bytes > left) return;
    at += sizeof(block) + block.payload_bytes;
  }
}

}  // namespace

void recording(const uint8_t* data, size_t size) {
  Sample& good = sample();
  Input in(data, size);
  const auto flags = in.get<uint8_t>();
  const bool sealed = (flags & 1) != 0;
  std::vector<char> bytes = good.bytes;
  // First payload byte on: what decoders read most.
  for (int changes = in.get<uint8_t>() % 32; changes > 0 && in.left() != 0; --changes) {
    const auto kind = in.get<uint8_t>();
    const size_t where = in.get<uint16_t>();
    const size_t from = (kind & 1) != 0 ? size_t{kHeadBytes} : 0;
    if (bytes.size() <= from) break;
    const size_t at = from + where % (bytes.size() - from);
    const size_t count = in.get<uint8_t>() % 32 + 1u;
    char piece[32] = {};
    if ((kind & 14) == 2) {
      bytes.resize(at);
    } else if ((kind & 14) == 4) {
      in.take(piece, count);
      bytes.insert(bytes.begin() + static_cast<long>(at), piece, piece + count);
    } else {
      const size_t some = count < bytes.size() - at ? count : bytes.size() - at;
      in.take(piece, some);
      memcpy(bytes.data() + at, piece, some);
    }
  }
  if (sealed) seal(bytes);
  const int fd = open(good.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  must(fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "a file can be written");
  close(fd);
  read_all(good.directory, sealed ? nullptr : &good.items, nullptr);
}

}  // namespace fuzz
