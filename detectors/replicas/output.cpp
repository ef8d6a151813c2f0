// SPDX-License-Identifier: Apache-2.0
//
// See output.h. The pipe's thread of a rank of the leading part writes down how far standard output is before and after
// each piece that it passes on: `replicas-out-RANK` in the report directory holds how many bytes, a digest of them, and
// how many are being written. A follower keeps what its own rank writes in `rank-RANK.stdout`. When its part comes to
// lead it compares the digest with as many of its own bytes, and goes on behind them: nothing is lost, and nothing
// written twice. Who leads passes nothing on once the mark of its dropping is there, which it looks for between saying
// that it writes and writing.

#include "detectors/replicas/output.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "detectors/replicas/times.h"
#include "detectors/replicas/words.h"
#include "shim/base/helper_thread.h"
#include "shim/call/parts.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/part_stream.h"

namespace resil::replicas {

namespace {

constexpr size_t kPiece = 64 << 10;
constexpr uint64_t kEmpty = 0xcbf29ce484222325;
constexpr uint64_t kMostUnread = 1 << 20;  ///< of a follower's: then it looks what the leading part has passed on
constexpr double kHold = 0.3, kWriting = 5;

/// As it lies in the file.
struct State {
  uint64_t offset, digest, writing, leads;
};

char state_path[1200], store_path[1200], at_path[1200];
int real_out = -1, real_error = -1, source = -1, state_file = -1, store = -1, at_file = -1;
bool begun, was_terminal;
char* piece;
State state = {0, kEmpty, 0, 0};  // who leads: passed on; a follower: agrees with what the leading part has passed on
uint64_t kept;  // bytes of a follower's
uint64_t beats;
double tick;
double writing_since;
std::atomic<bool> passes_on, busy, settled, ends;
std::atomic<const char*> failure;
std::atomic<double> longest;

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void nap(long nanoseconds) {
  const timespec pause = {0, nanoseconds};
  nanosleep(&pause, nullptr);
}

uint64_t digest_of(uint64_t digest, const char* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) digest = (digest ^ static_cast<unsigned char>(data[i])) * 0x100000001b3;
  return digest;
}

void path_of(char (&path)[1200], const char* format, int rank) {
  const int length = snprintf(path, sizeof(path), "%s/", runtime.directory);
  snprintf(path + length, sizeof(path) - static_cast<size_t>(length), format, rank);
}

bool write_all(int file, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = write(file, data, bytes);
    if (written < 0 && (errno == EINTR || errno == EAGAIN)) {
      if (errno == EAGAIN) nap(1000000);
      continue;
    }
    if (written <= 0) return false;
    data += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

void put_state() {
  if (pwrite(state_file, &state, sizeof(state), 0) < 0) {}
}

bool read_state(int rank, State* of) {
  char path[1200];
  path_of(path, "replicas-out-%d", rank);
  const int file = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool whole = pread(file, of, sizeof(*of), 0) == sizeof(*of);
  close(file);
  return whole;
}

void look_at_marks() {
  for (int part = 0; part < place.parts; ++part) {
    if (parts_dropped.load() & 1u << part) continue;
    char path[1200];
    path_of(path, "replicas-dropped-%d", part);
    if (access(path, F_OK) == 0) parts_dropped |= 1u << part;
  }
}

/// What was decided and told before these bytes were written is with the others, who would decide otherwise. Not
/// waited for long, nor often.
void wait_for_choices() {
  static double next;
  const double begin = now();
  if (part_streams_are_safe() || begin < next) return;
  part_streams_are_awaited.store(true);
  double passed = 0;
  while (!part_streams_are_safe() && passed < kHold) nap(200000), passed = now() - begin;
  part_streams_are_awaited.store(false);
  if (passed >= kHold) next = now() + 20 * passed;
}

}  // namespace

bool output_is_void() {
  struct stat status;
  return state_file >= 0 && fstat(state_file, &status) == 0 && status.st_nlink == 0;
}

namespace {

void pass_on(const char* data, size_t bytes) {
  if (state_file >= 0) {
    wait_for_choices();
    state.writing = bytes;
    put_state();
    look_at_marks();
    if ((parts_dropped.load() & 1u << place.part) || output_is_void()) {  // another part leads
      state.writing = 0;
      put_state();
      return;
    }
  }
  write_all(real_out, data, bytes);  // nobody reads it: as for the program
  state.offset += bytes;
  state.digest = digest_of(state.digest, data, bytes);
  state.writing = 0;
  if (state_file >= 0) put_state();
}

/// A follower: how far does its output agree with what was passed on? False: it does not; or it is not that long yet.
bool agree(const State& with) {
  if (kept < with.offset) return false;
  State own = state;
  while (own.offset < with.offset) {
    const uint64_t left = with.offset - own.offset;
    const ssize_t bytes = pread(store, piece, left < kPiece ? left : kPiece, static_cast<off_t>(own.offset));
    if (bytes <= 0) {
      failure.store("its own output cannot be read back");
      return false;
    }
    own.digest = digest_of(own.digest, piece, static_cast<size_t>(bytes));
    own.offset += static_cast<uint64_t>(bytes);
  }
  if (own.digest != with.digest) {
    failure.store("it has written other bytes to standard output");
    return false;
  }
#ifdef SYS_fallocate
  constexpr int kPunch = 3;  // FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
  syscall(SYS_fallocate, store, kPunch, 0L, static_cast<long>(own.offset & ~uint64_t{4095}));
#endif
  state.offset = own.offset;
  state.digest = own.digest;
  return true;
}

/// This part leads: goes on behind what the one before has passed on. Tried again until passes_on or failure.
void take_over(bool last) {
  State before = {};
  if (failure.load() != nullptr) return;
  for (int part = place.part - 1; part >= 0 && before.leads == 0; --part)
    if (!read_state(place.partner(part), &before)) before.leads = 0;
  if (before.leads == 0) {
    failure.store("how far its standard output was is not known");
    return;
  }
  if (before.writing != 0) {  // it may be about to see that it is dropped
    if (writing_since == 0) writing_since = now();
    else if (now() - writing_since > kWriting) failure.store("it was stopped while it wrote to standard output");
    return;
  }
  writing_since = 0;
  if (!agree(before)) {
    if (last && failure.load() == nullptr) failure.store("it has written more to standard output");
    return;
  }
  state.leads = 1;
  put_state();
  while (state.offset < kept) {
    const uint64_t left = kept - state.offset;
    const ssize_t bytes = pread(store, piece, left < kPiece ? left : kPiece, static_cast<off_t>(state.offset));
    if (bytes <= 0) break;
    pass_on(piece, static_cast<size_t>(bytes));
  }
  if (real_error >= 0) syscall(SYS_dup3, real_error, STDERR_FILENO, 0);
  passes_on.store(true);
}

void take(const char* data, size_t bytes) {
  if (passes_on.load()) return pass_on(data, bytes);
  if (store >= 0 && write_all(store, data, bytes)) kept += bytes;
  else if (store >= 0) failure.store("its own output could not be kept");
}

/// Says where the rank is, if somebody asks.
void say_where() {
  if (at_file < 0) {
    char path[1200];
    path_of(path, "replicas-ask-%d", 0);
    if (access(path, F_OK) != 0) return;
    at_file = openat(AT_FDCWD, at_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (at_file < 0) return;
  }
  const At at = {times_place(), ++beats, longest.load(std::memory_order_relaxed)};
  if (pwrite(at_file, &at, sizeof(at), 0) < 0) {}
}

void run() {
  double next = 0;
  for (;;) {
    pollfd from = {source, POLLIN, 0};
    poll(&from, 1, static_cast<int>(tick * 1000) + 1);
    if ((from.revents & POLLIN) == 0 && from.revents != 0)
      nap(static_cast<long>(tick * 1e9));  // the program has closed it
    busy.store(true);
    for (;;) {
      const ssize_t bytes = read(source, piece, kPiece);
      if (bytes <= 0) break;
      take(piece, static_cast<size_t>(bytes));
    }
    const bool over = ends.load();
    if (const double time = now(); time >= next || over) {
      next = time + tick;
      look_at_marks();
      say_where();
      part_streams_hand_over(at_file >= 0);
      if (!passes_on.load()) {
        State leader;
        if (part_that_leads() == place.part) take_over(over);
        else if (kept - state.offset > kMostUnread && read_state(place.partner(part_that_leads()), &leader) &&
                 leader.leads != 0)
          agree(leader);
      }
    }
    busy.store(false);
    if (over && (part_that_leads() != place.part || passes_on.load() || failure.load() != nullptr)) settled.store(true);
  }
}

bool is_mine() { return begun && runtime.pid == getpid(); }

/// All that lies in the pipe has been taken. Data leaves it only while the thread is busy.
bool is_taken() {
  int bytes = 0;
  return ioctl(source, FIONREAD, &bytes) == 0 && bytes == 0 && !busy.load();
}

}  // namespace

void flush_output() {
  const auto flush_all = reinterpret_cast<int (*)(void*)>(dlsym(RTLD_DEFAULT, "fflush"));
  if (auto* flush = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "_gfortran_flush_i4"))) flush(nullptr);
  auto* flush = reinterpret_cast<void (*)(void*)>(dlsym(RTLD_DEFAULT, "_ZNSo5flushEv"));
  // A program that never included <iostream> has a stream that nobody constructed: its first word is still zero.
  void** cout = static_cast<void**>(dlsym(RTLD_DEFAULT, "_ZSt4cout"));
  if (flush != nullptr && cout != nullptr && *cout != nullptr) flush(cout);
  if (flush_all != nullptr) flush_all(nullptr);
}

bool output_begin() {
  path_of(state_path, "replicas-out-%d", runtime.rank);
  path_of(store_path, "rank-%05d.stdout", runtime.rank);
  path_of(at_path, "replicas-at-%d", runtime.rank);
  const double most = config_real("RESIL_REPLICAS_SECONDS") / 16;
  tick = most < 0.5 ? most : 0.5;
  piece = static_cast<char*>(memory::map(kPiece));
  int ends_of_pipe[2];
  if (piece == nullptr || fcntl(STDOUT_FILENO, F_GETFD) < 0) return false;  // standard output is closed
  was_terminal = isatty(STDOUT_FILENO) != 0;
  real_out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 200);
  real_error = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 200);
  state_file = openat(AT_FDCWD, state_path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (place.part != 0) store = openat(AT_FDCWD, store_path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (real_out < 0 || state_file < 0 || (place.part != 0 && store < 0) ||
      syscall(SYS_pipe2, ends_of_pipe, O_CLOEXEC) != 0)
    return false;
  source = fcntl(ends_of_pipe[0], F_DUPFD_CLOEXEC, 200);
  close(ends_of_pipe[0]);
  state.leads = place.part == 0;
  put_state();
  passes_on.store(place.part == 0);
  begun = source >= 0 && fcntl(source, F_SETFL, O_NONBLOCK) == 0 && helper_thread_start("resil-output", run);
  if (begun) {
    syscall(SYS_dup3, ends_of_pipe[1], STDOUT_FILENO, 0);
    // What stdio holds back it would hold back, or not, as before.
    auto** out = static_cast<FILE**>(dlsym(RTLD_DEFAULT, "stdout"));
    const auto set = reinterpret_cast<int (*)(FILE*, char*, int, size_t)>(dlsym(RTLD_DEFAULT, "setvbuf"));
    if (was_terminal && out != nullptr && *out != nullptr && set != nullptr) set(*out, nullptr, _IOLBF, 0);
  }
  close(ends_of_pipe[1]);
  return begun;
}

bool output_was_terminal(bool* terminal) {
  *terminal = was_terminal;
  return begun && !settled.load(std::memory_order_relaxed);
}

void output_drain() {
  if (!is_mine() || settled.load() || !passes_on.load()) return;
  const double limit = now() + kWriting;  // who reads it may have stopped: a process that ends is not held up by that
  while (!is_taken() && now() < limit) nap(200000);
}

void output_end() {
  if (!is_mine() || settled.load()) return;
  flush_output();
  while (!is_taken()) nap(200000);
  ends.store(true);
  while (!settled.load()) nap(1000000);
  while (!is_taken()) nap(200000);
  if (passes_on.load()) {
    syscall(SYS_dup3, real_out, STDOUT_FILENO, 0);
    return;
  }
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null >= 0) syscall(SYS_dup3, null, STDOUT_FILENO, 0);
  if (null >= 0) close(null);
}

const char* output_fails() { return failure.load(); }

bool output_at(int world_rank, At* at) {
  char path[1200];
  path_of(path, "replicas-at-%d", world_rank);
  const int file = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool whole = pread(file, at, sizeof(*at), 0) == sizeof(*at);
  close(file);
  return whole;
}

void output_longest(double seconds) { longest.store(seconds, std::memory_order_relaxed); }

void output_forget(int world_rank) {
  char path[1200];
  for (const char* format : {"replicas-out-%d", "replicas-at-%d", "rank-%05d.stdout"}) {
    path_of(path, format, world_rank);
    unlink(path);
  }
  part_streams_forget(world_rank);
}

}  // namespace resil::replicas
