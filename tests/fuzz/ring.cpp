// SPDX-License-Identifier: Apache-2.0
//
// Rings that are damaged: those of living neighbours, as the helper of a node reads them, up to the verdict; and what
// lies in /dev/shm when a job sweeps it. Inputs are changes to a good ring of a rank in MPI_Recv, so that the checks at
// its head do not end every one of them: region, offset, length, bytes.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "detectors/hang/graph.h"
#include "detectors/hang/mismatch/mismatch.h"
#include "detectors/hang/mismatch/unmatched.h"
#include "detectors/hang/reader/reader.h"
#include "detectors/hang/reader/records.h"
#include "detectors/hang/reader/snapshot.h"
#include "detectors/hang/slots/layout.h"
#include "fuzz.h"
#include "shim/base/process_state.h"
#include "shim/model/calls.h"
#include "shim/ring/node_file.h"
#include "shim/ring/node_memory.h"
#include "shim/ring/segment.h"
#include "verdicts.h"

namespace fuzz {

namespace {

using namespace resil;
using namespace resil::hang;

constexpr uint32_t kTraces = 2, kComms = 8, kRequests = 32, kModules = 4, kNames = 4;
constexpr uint64_t kPage = 4096;

struct Region {
  uint64_t begin, bytes;
};

/// A good ring, and where its parts lie.
struct Sample {
  std::vector<char> bytes;
  std::vector<Region> regions;  ///< header, then a section each; then what readers look at most

  template <class T>
  T* add(const char* name, size_t bytes_wanted, size_t entry_bytes) {
    const uint64_t begin = bytes.size();
    bytes.resize((begin + bytes_wanted + kPage - 1) / kPage * kPage);
    auto* header = reinterpret_cast<ring::Header*>(bytes.data());
    ring::Section& section = header->sections[header->section_count++];
    strncpy(section.name, name, sizeof(section.name) - 1);
    section.offset = begin;
    section.bytes = bytes_wanted;
    section.entry_bytes = static_cast<uint32_t>(entry_bytes);
    section.entries = static_cast<uint32_t>(bytes_wanted / entry_bytes);
    header->file_bytes = bytes.size();
    regions.push_back({begin, bytes_wanted});
    return reinterpret_cast<T*>(bytes.data() + begin);
  }
};

void fill_header(ring::Header* header, int32_t pid, uint64_t started) {
  header->magic = ring::kMagic;
  header->version = ring::kVersion;
  header->header_bytes = kPage;
  header->rank = 1;
  header->world_size = 4;
  header->pid = pid;
  header->pid_start_lo = static_cast<uint32_t>(started);
  header->pid_start_hi = static_cast<uint32_t>(started >> 32);
  header->pid_namespace = pid_namespace();
  strcpy(header->host, "node-1");
  strcpy(header->job, "4711.0");
  strcpy(header->directory, "/dev/shm/reports");
  header->phase = static_cast<uint32_t>(ring::Phase::kRunning);
  header->ticks_per_second = 2e9;
  header->ticks_start = 1000;
  header->ticks_sync = 5000000000;
  header->realtime_start_ns = 1700000000000000000;
  header->realtime_sync_ns = 1700000002500000000;
}

Sample make_sample() {
  constexpr uint64_t kWorldId = 0x1234567890;
  Sample made;
  made.bytes.reserve(4 << 20);  // addresses hold while it grows
  made.bytes.resize(kPage);
  made.regions.push_back({0, sizeof(ring::Header)});
  fill_header(reinterpret_cast<ring::Header*>(made.bytes.data()), getpid(), process_start_time(getpid()));
  auto* traces = made.add<ring::TraceBuffer>("lanes", sizeof(ring::TraceBuffer) * kTraces, sizeof(ring::TraceBuffer));
  auto* comms = made.add<ring::Comm>("comms", sizeof(ring::Comm) * kComms, sizeof(ring::Comm));
  auto* requests = made.add<ring::Request>("requests", sizeof(ring::Request) * kRequests, sizeof(ring::Request));
  auto* modules = made.add<ring::Module>("modules", sizeof(ring::Module) * kModules, sizeof(ring::Module));
  made.add<ring::CallName>("calls", sizeof(ring::CallName) * kCallCount, sizeof(ring::CallName));
  made.add<ring::Name>("names", sizeof(ring::Name) * kNames, sizeof(ring::Name));
  auto* section = made.add<Section>("hang", section_bytes(kRequests), 1);
  traces[0].state = static_cast<uint32_t>(ring::TraceState::kLive);
  traces[0].tid = getpid();
  traces[0].head = traces[0].current = 5;
  ring::Record& record = traces[0].records[4];
  record.time = 4000000000;
  record.call = static_cast<uint16_t>(CallId::kMPI_Waitall);
  record.comm = 2;
  record.peer = 0;
  record.tag = 7;
  record.site = 0x401234;
  comms[2].id = kWorldId;
  comms[2].size = 4;
  comms[2].rank = 1;
  comms[2].remote_size = -1;
  comms[2].ordered = 3;
  strcpy(comms[2].name, "MPI_COMM_WORLD");
  const uint64_t key = 0x77;
  const uint32_t at = ring::request_home(key, kRequests / ring::kRequestBucket) * ring::kRequestBucket;
  requests[at].key = key;
  requests[at].call = static_cast<uint16_t>(CallId::kMPI_Irecv);
  requests[at].kind = static_cast<uint8_t>(ring::RequestKind::kReceive);
  requests[at].comm = 2;
  requests[at].tag = 7;
  modules[0] = {0x400000, 0x500000, 0, "/opt/app"};
  Wait& wait = section->waits[0];
  wait.instance = 5;
  wait.count = wait.kept = 1;
  wait.keys[0] = key;
  auto* pending = reinterpret_cast<Pending*>(section + 1);
  pending[at].peer = 0;
  pending[at].ordinal = 1;
  Envelope& envelope = section->envelopes[envelope_home(kWorldId, 0, 7) % kEnvelopes];
  envelope = {kWorldId, 0, 7, 0, 1, 0, 0};
  section->histories[2].comm = kWorldId;
  section->histories[2].sequence = 3;
  section->histories[2].shape = 4;
  const auto offset = [&](const void* place) {
    return static_cast<uint64_t>(static_cast<const char*>(place) - made.bytes.data());
  };
  for (const Region& hot :
       {Region{offset(&traces[0]), 128}, Region{offset(&record), sizeof(record)},
        Region{offset(&comms[2]), sizeof(ring::Comm)}, Region{offset(&requests[at]), sizeof(ring::Request)},
        Region{offset(&pending[at]), sizeof(Pending)}, Region{offset(&wait), sizeof(Wait)},
        Region{offset(&envelope), sizeof(Envelope)}, Region{offset(&section->histories[2]), sizeof(CollectiveHistory)},
        Region{offset(section), offsetof(Section, waits)},
        Region{offset(section->windows), sizeof(section->windows) + sizeof(section->files) + sizeof(section->holds)}})
    made.regions.push_back(hot);
  return made;
}

const Sample& sample() {
  static const Sample made = make_sample();
  return made;
}

/// A file that holds the sample, and again the sample after each use.
class RingFile {
 public:
  RingFile() {
    char name[] = "/tmp/resil-fuzz-XXXXXX";
    fd_ = mkstemp(name);
    must(fd_ >= 0, "a file can be made");
    path_ = name;
    restore({0, sample().bytes.size()});
  }
  ~RingFile() { unlink(path_.c_str()); }

  const char* path() const { return path_.c_str(); }
  void change(uint64_t offset, const void* bytes, size_t count) {
    changed_.push_back({offset, count});
    must(pwrite(fd_, bytes, count, static_cast<off_t>(offset)) == static_cast<ssize_t>(count), "a file can be written");
  }
  void cut(uint64_t bytes) { must(ftruncate(fd_, static_cast<off_t>(bytes)) == 0, "a file can be cut"); }
  void restore() {
    cut(sample().bytes.size());
    for (const Region& region : changed_) restore(region);
    changed_.clear();
  }
  void restore_all() {
    restore({0, sample().bytes.size()});
    changed_.clear();
  }

 private:
  void restore(const Region& region) {
    must(pwrite(fd_, sample().bytes.data() + region.begin, region.bytes, static_cast<off_t>(region.begin)) ==
             static_cast<ssize_t>(region.bytes),
         "a file can be written");
  }

  int fd_;
  std::string path_;
  std::vector<Region> changed_;
};

void check_text(bool known, const char* text, size_t room, const char* what) {
  if (known) must_end(text, room, what);
}

/// Everything that the helper asks of a ring.
void read_all(Watched& watched, Input& in) {
  must(watched.pid > 1 && watched.pid_start != 0, "a rank that could be signalled is a process");
  must(watched.trace_count <= kSharedTraces && (watched.request_count & (watched.request_count - 1)) == 0,
       "counts are within bounds");
  alignas(8) static char room[kStateRoom];
  if (watched.section != nullptr) {
    look(watched, 1700000003000000000);
    look(watched, 1700000003500000000);
    const uint32_t bytes = snapshot(watched, room, sizeof(room));
    must(bytes <= sizeof(room), "a state fits");
    if (bytes != 0) {
      auto* state = reinterpret_cast<RankState*>(room);
      must(state->bytes == bytes && state_is_whole(*state, sizeof(room)), "a state is whole");
      must(state->rank == 1, "a state is of the rank that was asked");
      state->stable = 1;
      judge_states(room, bytes, 4, in);
    }
  }
  char kernel_state;
  uint64_t cpu_ns;
  liveness(watched, &kernel_state, &cpu_ns);
  char text[124];
  const auto number = in.get<uint64_t>();
  for (const uint64_t address : {uint64_t{0x401234}, number}) {
    memset(text, 'x', sizeof(text));
    check_text(site_name(watched, address, text, sizeof(text)), text, sizeof(text), "the name of a call site ends");
    memset(text, 'x', sizeof(text));
    check_text(comm_name(watched, address == number ? number : 0x1234567890, text, sizeof(text)), text, sizeof(text),
               "the name of a communicator ends");
  }
  memset(text, 'x', sizeof(text));
  check_text(host_name(watched, text, sizeof(text)), text, sizeof(text), "the name of a host ends");
  memset(text, 'x', sizeof(text));
  check_text(last_call(watched, text, sizeof(text)), text, sizeof(text), "the last call's text ends");
  static char frame[1 << 16];
  Watched neighbours[2] = {watched, watched};
  neighbours[1].rank = 2;
  if (watched.section == nullptr) return;
  Question questions[3] = {{0x1234567890, 0, 1, 7, 0}, {0, ring::kAnySource, 1, ring::kAnyTag, 0}, in.get<Question>()};
  Answer answers[8];
  must(answer(neighbours, 2, questions, 3, answers, 8) <= 8, "answers fit");
  Mismatch* node = mismatch_create(4);
  must(node != nullptr, "there is memory");
  judge_frames(frame, mismatch_collect(*node, neighbours, 2, frame, sizeof(frame)), true);
  mismatch_destroy(node);
  judge_frames(frame, unmatched_collect(neighbours, 2, frame, sizeof(frame)), false);
}

}  // namespace

void ring(const uint8_t* data, size_t size) {
  static RingFile file;
  static int runs;
  Input in(data, size);
  const std::vector<Region>& regions = sample().regions;
  for (int changes = in.get<uint8_t>() % 16; changes > 0 && in.left() != 0; --changes) {
    const auto which = in.get<uint8_t>();
    const uint32_t where = in.get<uint16_t>() | uint32_t{in.get<uint8_t>()} << 16;
    if (which == 255) {
      file.cut(where % (sample().bytes.size() + kPage));
      continue;
    }
    const Region& region = regions[which % regions.size()];
    const uint64_t offset = where % region.bytes;
    char bytes[64] = {};
    uint64_t count = in.get<uint8_t>() % sizeof(bytes) + 1;
    count = count < region.bytes - offset ? count : region.bytes - offset;
    in.take(bytes, count);
    file.change(region.begin + offset, bytes, count);
  }
  Watched watched = {};
  if (watched_open_file(watched, file.path(), 1)) {
    struct stat status;
    // The file may have been cut after the sections that a reader needs.
    must(stat(file.path(), &status) == 0 && static_cast<uint64_t>(status.st_size) >= kPage, "what is mapped is there");
    read_all(watched, in);
    munmap(const_cast<ring::Header*>(watched.header), static_cast<size_t>(status.st_size));
  }
  if (++runs % 1000 == 0) file.restore_all();
  else file.restore();
}

namespace {

bool own_shared_memory() {
  static const bool made = [] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("fuzz", "/dev/shm", "tmpfs", 0, "size=64m") != 0) {
      fprintf(stderr, "fuzz: sweep: no /dev/shm of its own could be made here: not run\n");
      return false;
    }
    return true;
  }();
  return made;
}

bool write_file(const std::string& path, const void* bytes, size_t count) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  const bool ok = fd >= 0 && write(fd, bytes, count) == static_cast<ssize_t>(count);
  if (fd >= 0) close(fd);
  return ok;
}

}  // namespace

/// What lies in /dev/shm: for each file a kind, a suffix, a length, changes to a ring that a killed rank left; and
/// changes to the header of a living rank's.
void sweep(const uint8_t* data, size_t size) {
  if (!own_shared_memory()) return;
  Input in(data, size);
  const std::string name = "resil-" + std::to_string(getuid()) + "-", prefix = "/dev/shm/" + name;
  const std::string live = prefix + "live-0-1.ring", victim = "/dev/shm/victim";
  const std::vector<char>& living = sample().bytes;
  static const bool held = [&] {
    mkdir("/dev/shm/reports", 0700);
    must(write_file(victim, "untouched", 9) && write_file(live, living.data(), kPage), "files can be written");
    return node_file_hold(live.c_str());
  }();
  must(held, "a living rank's ring has a mark");
  std::vector<std::string> made;
  const auto change = [&](char* bytes) {
    for (int changes = in.get<uint8_t>() % 8; changes > 0; --changes) {
      const uint32_t offset = in.get<uint16_t>() % (kPage - 64);
      in.take(bytes + offset, in.get<uint8_t>() % 64 + 1);
    }
  };
  for (int files = in.get<uint8_t>() % 8; files > 0; --files) {
    const auto kind = in.get<uint8_t>();
    const bool node = (kind & 0x10) != 0;
    const std::string path = prefix + "4711.0-0-" + std::to_string(files) + (node ? kNodeMemorySuffix : ".ring");
    made.push_back(path);
    if ((kind & 15) == 1) {
      must(mkfifo(path.c_str(), 0666) == 0, "a pipe can be made");
    } else if ((kind & 15) == 2) {
      must(symlink(victim.c_str(), path.c_str()) == 0, "a link can be made");
    } else if ((kind & 15) == 3) {
      must(mkdir(path.c_str(), 0700) == 0, "a directory can be made");
    } else if ((kind & 15) == 4) {
      must(link(victim.c_str(), path.c_str()) == 0, "a second name can be made");
    } else {
      alignas(ring::Header) char bytes[kPage] = {};
      if (!node) fill_header(reinterpret_cast<ring::Header*>(bytes), 0x3ffffffe, 1);
      const uint64_t length = in.get<uint16_t>() % (2 * kPage);
      change(bytes);
      must(write_file(path, bytes, length < kPage ? length : kPage), "a file can be written");
      must(length <= kPage || truncate(path.c_str(), static_cast<off_t>(length)) == 0, "a file can be made longer");
    }
  }
  alignas(ring::Header) char header[kPage];
  memcpy(header, living.data(), kPage);
  change(header);
  const int live_fd = open(live.c_str(), O_WRONLY | O_CLOEXEC);
  must(live_fd >= 0 && pwrite(live_fd, header, kPage, 0) == static_cast<ssize_t>(kPage),
       "a living rank's ring is there");
  close(live_fd);
  must(segment_sweep(name.c_str()) <= static_cast<int>(made.size()), "no more is removed than was left");
  char content[16] = {};
  const int fd = open(victim.c_str(), O_RDONLY | O_CLOEXEC);
  must(fd >= 0 && read(fd, content, sizeof(content)) == 9 && strcmp(content, "untouched") == 0,
       "what a link points to is left alone");
  close(fd);
  must(access(live.c_str(), F_OK) == 0, "a living rank's ring stays, whatever it says");
  for (const std::string& path : made)
    if (unlink(path.c_str()) != 0) rmdir(path.c_str());
  for (const char* rank : {"00001", "00000"}) unlink((std::string("/dev/shm/reports/rank-") + rank + ".ring").c_str());
}

}  // namespace fuzz
