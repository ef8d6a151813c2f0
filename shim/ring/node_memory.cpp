// SPDX-License-Identifier: Apache-2.0
//
// See node_memory.h. The name is made of launch, rank in MPI_COMM_WORLD, and the rank's nonce. The process may be gone
// already: so it must live, too.

#include "shim/ring/node_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "shim/call/runtime.h"
#include "shim/presence/launch.h"
#include "shim/ring/segment.h"

namespace resil {

namespace {

constexpr uint64_t kMagic = 0x3265646f4e736552;  // "ResNode2"
constexpr long kTmpfs = 0x01021994;

constexpr size_t kPath = 256;
struct Own {
  char path[kPath];
  ino_t inode;
};
Own owns[kNodeUses];

Own& own_of(NodeUse use) { return owns[static_cast<unsigned>(use)]; }

void name_of(int world_rank, NodeUse use, char* path) {
  char nonce[kNonceText];
  launch_text(launch_nonce_of(world_rank), nonce);
  snprintf(path, kPath, "/dev/shm/resil-%u-%s-%d-%d-%s%s%s", getuid(), runtime.header->job, runtime.world, world_rank,
           nonce, use == NodeUse::kReductions ? ".reductions" : "", kNodeMemorySuffix);
}

Life life_of(int fd, const NodeMemory& memory) {
  return node_file_life(fd, {memory.pid, memory.held != 0, memory.pid_start, memory.pid_namespace});
}

}  // namespace

NodeMemory* node_memory_create(size_t bytes, NodeUse use, size_t reserved) {
  struct statfs system;
  Own& own = own_of(use);
  if (runtime.rank < 0 || own.path[0] != 0 || statfs("/dev/shm", &system) != 0 || system.f_type != kTmpfs)
    return nullptr;  // on a disk the pages would be written back all the time
  name_of(runtime.rank, use, own.path);
  struct stat status;
  auto* memory = static_cast<NodeMemory*>(node_file_create(own.path, bytes, reserved != 0 ? reserved : bytes));
  if (memory == nullptr || fstatat(AT_FDCWD, own.path, &status, AT_SYMLINK_NOFOLLOW) != 0) {
    own.path[0] = 0;
    return nullptr;
  }
  own.inode = status.st_ino;
  const ring::Header& header = *runtime.header;
  memory->bytes = bytes;
  memory->pid_start = uint64_t{header.pid_start_hi} << 32 | header.pid_start_lo;
  memory->pid_namespace = header.pid_namespace;
  memory->pid = runtime.pid;
  memory->rank = runtime.rank;
  memory->world_size = runtime.size;
  memory->world = runtime.world;
  memory->nonce = launch_nonce();
  memory->held = node_file_hold(own.path);
  __atomic_store_n(&memory->magic, kMagic, __ATOMIC_RELEASE);
  return memory;
}

bool node_memory_reserve(NodeUse use, size_t offset, size_t bytes) {
  const Own& own = own_of(use);
  struct stat status;
  const int fd = own.path[0] != 0 ? node_file_open(AT_FDCWD, own.path, true, kNodeMemoryBegin, &status) : -1;
  if (fd < 0) return false;
  const bool reserved = status.st_ino == own.inode && static_cast<uint64_t>(status.st_size) >= offset + bytes &&
                        posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0;
  close(fd);
  return reserved;
}

NodeMemory* node_memory_open(int world_rank, NodeUse use) {
  const uint64_t nonce = launch_nonce_of(world_rank);
  if (nonce == 0) return nullptr;  // not known to are preloaded
  char path[kPath];
  name_of(world_rank, use, path);
  struct stat status;
  const int fd = node_file_open(AT_FDCWD, path, true, kNodeMemoryBegin + 1, &status);
  if (fd < 0) return nullptr;
  void* mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  auto* memory = static_cast<NodeMemory*>(mapped);
  const bool good = mapped != MAP_FAILED && __atomic_load_n(&memory->magic, __ATOMIC_ACQUIRE) == kMagic &&
                    memory->bytes == static_cast<uint64_t>(status.st_size) && memory->nonce == nonce &&
                    memory->rank == world_rank && memory->world_size == runtime.size &&
                    memory->world == runtime.world && life_of(fd, *memory) == Life::kLives;
  close(fd);
  if (good) return memory;
  if (mapped != MAP_FAILED) munmap(mapped, static_cast<size_t>(status.st_size));
  return nullptr;
}

void node_memory_discard() {
  for (Own& own : owns) {
    if (own.path[0] != 0) unlink(own.path);
    own.path[0] = 0;
  }
}

bool node_memory_sweep(int folder, const char* name) {
  struct stat status;
  const int fd = node_file_open(folder, name, false, sizeof(NodeMemory), &status);
  if (fd < 0) return false;
  NodeMemory memory;
  const bool dead = pread(fd, &memory, sizeof(memory), 0) == sizeof(memory) && memory.magic == kMagic &&
                    life_of(fd, memory) == Life::kGone;
  close(fd);
  return dead && unlinkat(folder, name, 0) == 0;
}

}  // namespace resil
