// SPDX-License-Identifier: Apache-2.0
//
// See node_memory.h. The name is made of the job and the rank in MPI_COMM_WORLD. A file of that name may also be what a
// killed job left here, whose rank of that number now runs elsewhere: so the process must live, too.

#include "shim/node_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "shim/launch.h"
#include "shim/runtime.h"
#include "shim/segment.h"

namespace resil {

namespace {

constexpr uint64_t kMagic = 0x3165646f4e736552;  // "ResNode1"
constexpr long kTmpfs = 0x01021994;

char own_path[256];

void name_of(int world_rank, char* path, size_t size) {
  char nonce[kNonceText];
  launch_text(launch_nonce_of(world_rank), nonce);
  snprintf(path, size, "/dev/shm/resil-%u-%s-%d-%d-%s%s", getuid(), runtime.header->job, runtime.world, world_rank, nonce, kNodeMemorySuffix);
}

bool lives(const NodeMemory& memory) {
  return memory.pid_start != 0 && memory.pid_namespace == pid_namespace() && process_start_time(memory.pid) == memory.pid_start;
}

}  // namespace

NodeMemory* node_memory_create(size_t bytes) {
  struct statfs system;
  if (runtime.rank < 0 || own_path[0] != 0 || statfs("/dev/shm", &system) != 0 || system.f_type != kTmpfs)
    return nullptr;  // on a disk the pages would be written back all the time
  name_of(runtime.rank, own_path, sizeof(own_path));
  auto* memory = static_cast<NodeMemory*>(map_new_file(own_path, bytes));
  if (memory == nullptr) {
    own_path[0] = 0;
    return nullptr;
  }
  const ring::Header& header = *runtime.header;
  memory->bytes = bytes;
  memory->pid_start = uint64_t{header.pid_start_hi} << 32 | header.pid_start_lo;
  memory->pid_namespace = header.pid_namespace;
  memory->pid = runtime.pid;
  memory->rank = runtime.rank;
  memory->world_size = runtime.size;
  memory->world = runtime.world;
  memcpy(memory->host, runtime.host, sizeof(memory->host));
  memcpy(memory->job, header.job, sizeof(memory->job));
  __atomic_store_n(&memory->magic, kMagic, __ATOMIC_RELEASE);
  return memory;
}

NodeMemory* node_memory_open(int world_rank) {
  char path[256];
  name_of(world_rank, path, sizeof(path));
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return nullptr;
  struct stat status;
  void* mapped = MAP_FAILED;
  if (fstat(fd, &status) == 0 && status.st_uid == getuid() && status.st_size > static_cast<off_t>(kNodeMemoryBegin))
    mapped = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (mapped == MAP_FAILED)
    return nullptr;
  auto* memory = static_cast<NodeMemory*>(mapped);
  if (__atomic_load_n(&memory->magic, __ATOMIC_ACQUIRE) == kMagic && memory->bytes == static_cast<uint64_t>(status.st_size) &&
      memory->rank == world_rank && memory->world_size == runtime.size && memory->world == runtime.world &&
      memcmp(memory->host, runtime.host, sizeof(memory->host)) == 0 &&
      memcmp(memory->job, runtime.header->job, sizeof(memory->job)) == 0 && lives(*memory))
    return memory;
  munmap(mapped, static_cast<size_t>(status.st_size));
  return nullptr;
}

void node_memory_discard() {
  if (own_path[0] != 0)
    unlink(own_path);
  own_path[0] = 0;
}

void node_memory_sweep(int folder, const char* name) {
  const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return;
  NodeMemory memory;
  struct stat status;
  if (fstat(fd, &status) == 0 && status.st_uid == getuid() && pread(fd, &memory, sizeof(memory), 0) == sizeof(memory) &&
      memory.magic == kMagic && memory.pid_namespace == pid_namespace() && !lives(memory))
    unlinkat(folder, name, 0);
  close(fd);
}

}  // namespace resil
