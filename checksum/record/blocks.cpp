// SPDX-License-Identifier: Apache-2.0
//
// Head, end and blocks of a rank's file. Tells what a kill leaves behind (a file that stops, perhaps within a block)
// from damage (bytes that are there and wrong).
#include "checksum/record/blocks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace resil::record {

namespace {

/// Up to `bytes`; less at the end of the file, -1 on error.
ssize_t read_at(int descriptor, void* to, size_t bytes, uint64_t offset) {
  size_t got = 0;
  while (got < bytes) {
    const ssize_t more = pread(descriptor, static_cast<char*>(to) + got, bytes - got, static_cast<off_t>(offset + got));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return -1;
    if (more == 0) break;
    got += static_cast<size_t>(more);
  }
  return static_cast<ssize_t>(got);
}

bool fail(Problem* problem, ProblemKind kind, const char* path, const char* what) {
  problem->kind = kind;
  snprintf(problem->text, sizeof(problem->text), "%.1050s %s", path, what);
  return false;
}

}  // namespace

bool BlockChain::open(const char* path, Problem* problem) {
  snprintf(path_, sizeof(path_), "%s", path);
  descriptor_ = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // never waits for a pipe's writer
  struct stat status;
  if (descriptor_ < 0 || fstat(descriptor_, &status) != 0) {
    const int error = errno;
    close();
    const ProblemKind kind = error == ENOENT || error == ENOTDIR ? ProblemKind::kMissing
                             : error == EACCES || error == EPERM ? ProblemKind::kPermission
                                                                 : ProblemKind::kSystem;
    char what[200];
    snprintf(what, sizeof(what), "cannot be read: %s", strerror(error));
    return fail(problem, kind, path, what);
  }
  alignas(8) unsigned char page[kHeadBytes];
  const ssize_t got = S_ISREG(status.st_mode) ? read_at(descriptor_, page, sizeof(page), 0) : 0;
  if (got >= static_cast<ssize_t>(sizeof(FileHead))) memcpy(&head_, page, sizeof(head_));
  uint64_t magic = 0;
  if (got >= static_cast<ssize_t>(sizeof(magic))) memcpy(&magic, page, sizeof(magic));
  if (magic != kFileMagic || got < static_cast<ssize_t>(sizeof(FileHead))) {
    close();
    return fail(problem, ProblemKind::kNotRecording, path,
                magic == kFileMagic ? "is cut off within its head: nothing was recorded" : "is not a recording");
  }
  if (head_.version < kOldestFormat || head_.version > kFormatVersion || head_.head_bytes != kHeadBytes ||
      head_.identity_bytes != sizeof(Identity)) {
    close();
    char what[200];
    snprintf(what, sizeof(what), "is a recording of format %u, this version of resil reads formats %u to %u",
             head_.version, kOldestFormat, kFormatVersion);
    return fail(problem, ProblemKind::kVersion, path, what);
  }
  memcpy(&state_, page + kStateAt, sizeof(state_));
  if (got < static_cast<ssize_t>(sizeof(page)) || head_.crc != head_crc(page) || state_.magic != kStateMagic ||
      state_.crc != state_crc(state_) || state_.phase < 1 || state_.phase > 4) {
    close();
    return got < static_cast<ssize_t>(sizeof(page))
               ? fail(problem, ProblemKind::kNotRecording, path, "is cut off within its head: nothing was recorded")
               : fail(problem, ProblemKind::kDamaged, path, "is damaged: the checksum of its head does not match");
  }
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
  bytes_ = static_cast<uint64_t>(status.st_size);
  end_text_[0] = 0;
  const auto phase = static_cast<FilePhase>(state_.phase);
  if (phase == FilePhase::kRunning) {
    end_ = FileEnd::kKilled;
    snprintf(end_text_, sizeof(end_text_), "the recording has no end mark: the program was killed, or still runs");
  } else if (bytes_ < state_.file_bytes) {
    end_ = FileEnd::kCutOff;
    snprintf(end_text_, sizeof(end_text_), "the file is cut off: it has %llu of %llu bytes",
             static_cast<unsigned long long>(bytes_), static_cast<unsigned long long>(state_.file_bytes));
  } else {
    bytes_ = state_.file_bytes;
    end_ = phase == FilePhase::kFinished  ? FileEnd::kFinished
           : phase == FilePhase::kAborted ? FileEnd::kAborted
                                          : FileEnd::kFailed;
    if (end_ == FileEnd::kAborted)
      snprintf(end_text_, sizeof(end_text_), "the recording ends with an abort of the program");
    else if (end_ == FileEnd::kFailed)
      snprintf(end_text_, sizeof(end_text_), "recording ended early: %s", strerror(state_.error));
  }
  return true;
}

void BlockChain::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

bool BlockChain::zeros_from(uint64_t offset) const {
  unsigned char piece[4096];
  ssize_t got;
  while ((got = read_at(descriptor_, piece, sizeof(piece), offset)) > 0) {
    for (ssize_t i = 0; i < got; ++i)
      if (piece[i] != 0) return false;
    offset += static_cast<uint64_t>(got);
  }
  return got == 0;
}

Reading BlockChain::look(const Place& place, BlockHead* block) const {
  if (place.offset >= bytes_) return end_ == FileEnd::kFinished ? Reading::kEnd : Reading::kCut;
  if (bytes_ - place.offset < sizeof(BlockHead)) return end_ == FileEnd::kFinished ? Reading::kDamaged : Reading::kCut;
  if (read_at(descriptor_, block, sizeof(*block), place.offset) != static_cast<ssize_t>(sizeof(*block)))
    return Reading::kDamaged;
  // A node that went down may leave the length of a file without its last bytes: then they are zeros.
  if (block->magic == 0 && end_ == FileEnd::kKilled && zeros_from(place.offset)) return Reading::kCut;
  if (block->magic != kBlockMagic || block->crc != block_crc(*block) || block->payload_bytes > kMaxPayload ||
      block->sequence != place.sequence)
    return Reading::kDamaged;
  if (bytes_ - place.offset - sizeof(BlockHead) < block->payload_bytes)
    return end_ == FileEnd::kFinished ? Reading::kDamaged : Reading::kCut;
  return Reading::kItem;
}

Reading BlockChain::payload(const Place& place, const BlockHead& block, unsigned char* to, char* problem,
                            size_t bytes) const {
  const uint64_t at = place.offset + sizeof(BlockHead);
  if (read_at(descriptor_, to, block.payload_bytes, at) == static_cast<ssize_t>(block.payload_bytes) &&
      compat_crc32(to, block.payload_bytes) == block.payload_crc)
    return Reading::kItem;
  if (end_ == FileEnd::kKilled && zeros_from(at)) return Reading::kCut;
  describe(place, "its checksum does not match", problem, bytes);
  return Reading::kDamaged;
}

void BlockChain::describe(const Place& place, const char* what, char* line, size_t bytes) const {
  snprintf(line, bytes, "%s is damaged: block %llu at byte %llu: %s", path_,
           static_cast<unsigned long long>(place.sequence), static_cast<unsigned long long>(place.offset), what);
}

}  // namespace resil::record
