// SPDX-License-Identifier: Apache-2.0

#include "shim/runtime/stacks/remote.h"

#include <elf.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "shim/base/text_file.h"

namespace resil::stacks {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint32_t kBatch = 16, kDataPages = 4, kMostHeaders = 32;
constexpr long kSampleNs = 500000, kLookNs = 2000000;

#if defined(__x86_64__)
/// perf's numbers of rax rdx rcx rbx rsi rdi rbp rsp r8..r15; the order of ours.
constexpr int kPerfOrder[] = {0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23};
constexpr int kPerfCounter = 8;
#elif defined(__aarch64__)
constexpr int kPerfOrder[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                              16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};
constexpr int kPerfCounter = 32;
#endif

constexpr uint64_t perf_mask() {
  uint64_t mask = uint64_t{1} << kPerfCounter;
  for (const int number : kPerfOrder) mask |= uint64_t{1} << number;
  return mask;
}

bool read_live(int32_t pid, uint64_t address, void* to, size_t size) {
  iovec mine{to, size}, theirs{reinterpret_cast<void*>(address), size};
  return process_vm_readv(pid, &mine, 1, &theirs, 1, 0) == static_cast<ssize_t>(size);
}

/// A copy of the page; null: it cannot be read.
const char* page_of(RemoteProcess& process, uint64_t page) {
  const uint32_t slot = static_cast<uint32_t>(page / kPage) % kRemotePages;
  if (process.page_at[slot] != page + 1) {
    process.page_at[slot] = 0;
    if (!read_live(process.pid, page, process.pages[slot], kPage)) return nullptr;
    process.page_at[slot] = page + 1;
  }
  return process.pages[slot];
}

bool read_other(OtherProcess& of, uint64_t address, void* to, size_t size) {
  auto& process = static_cast<RemoteProcess&>(of);
  auto* out = static_cast<char*>(to);
  if (process.copy != nullptr && address >= process.copy_at && size <= process.copy_bytes &&
      address - process.copy_at <= process.copy_bytes - size) {
    memcpy(out, process.copy + (address - process.copy_at), size);
    return true;
  }
  while (size > 0) {
    const char* page = page_of(process, address & ~(kPage - 1));
    if (page == nullptr) return false;
    const uint64_t offset = address % kPage, part = size < kPage - offset ? size : kPage - offset;
    memcpy(out, page + offset, part);
    address += part;
    out += part;
    size -= part;
  }
  return true;
}

bool find_other(OtherProcess& of, uint64_t address, Object* object) {
  auto& process = static_cast<RemoteProcess&>(of);
  for (uint32_t i = 0; i < process.object_count; ++i)
    if (const Object& one = process.objects[i].object; address >= one.start && address < one.end) {
      *object = one;
      return true;
    }
  return false;
}

/// Where its unwind index is, by the program headers at its first page.
void read_headers(RemoteProcess& process, Object* object) {
  Elf64_Ehdr head;
  if (!read_other(process, object->start, &head, sizeof(head)) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return;
  const bool moved = head.e_type == ET_DYN;
  object->base = moved ? object->start : 0;
  for (uint32_t i = 0; i < head.e_phnum && i < kMostHeaders; ++i) {
    Elf64_Phdr part;
    if (!read_other(process, object->start + head.e_phoff + i * sizeof(part), &part, sizeof(part))) return;
    if (part.p_type == PT_GNU_EH_FRAME) object->eh_frame_hdr = object->base + part.p_vaddr;
    else if (part.p_type == PT_DYNAMIC) object->dynamic = object->base + part.p_vaddr;
  }
}

/// A mapping of a file: a new object, or more of the last one.
void take_mapping(RemoteProcess* process, const Mapping& mapping) {
  if (mapping.path[0] != '/' && strncmp(mapping.path, "[vdso]", 6) != 0) return;
  const char* slash = strrchr(mapping.path, '/');
  const char* name = slash != nullptr ? slash + 1 : mapping.path;
  RemoteObject* last = process->object_count != 0 ? &process->objects[process->object_count - 1] : nullptr;
  if (mapping.offset != 0 && last != nullptr && strncmp(last->name, name, kObjectName - 1) == 0) {
    last->object.end = mapping.high;
  } else if (mapping.offset == 0 && process->object_count < kRemoteObjects) {
    RemoteObject& made = process->objects[process->object_count++];
    made = {};
    made.object.start = made.object.base = mapping.low;
    made.object.end = mapping.high;
    snprintf(made.name, sizeof(made.name), "%s", name);
  }
}

bool read_maps(RemoteProcess* process) {
  char path[32];
  snprintf(path, sizeof(path), "/proc/%d/maps", process->pid);
  TextFileLines lines(path);
  while (const char* line = lines.next())
    if (Mapping mapping; read_mapping(line, &mapping)) take_mapping(process, mapping);
  return process->object_count != 0;
}

/// Whether it sleeps in a system call; then with program counter and stack pointer.
bool asleep(RemoteThread* thread) {
  char text[256];
  read_thread_file(thread->pid, thread->tid, "syscall", text, sizeof(text));
  if ((text[0] < '0' || text[0] > '9') && text[0] != '-') return false;
  uint64_t values[8] = {};  // arguments, stack pointer, program counter; of none (-1): the last two
  uint32_t count = 0;
  char* at = strchr(text, ' ');
  for (; at != nullptr && *at != 0 && *at != '\n' && count < 8; ++count) values[count] = strtoull(at, &at, 16);
  if (count < 2) return false;
  thread->registers.r[kStackRegister] = values[count - 2];
  thread->registers.pc = values[count - 1];
  thread->sleeps = thread->known = thread->registers.pc != 0;
  return thread->known;
}

int begin_sample(int32_t tid) {
  perf_event_attr attributes = {};
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.size = sizeof(attributes);
  attributes.config = PERF_COUNT_SW_TASK_CLOCK;
  attributes.sample_period = kSampleNs;
  attributes.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
  attributes.sample_regs_user = perf_mask();
  attributes.sample_stack_user = kStackCopy;
  attributes.exclude_kernel = attributes.exclude_hv = 1;
  return static_cast<int>(syscall(SYS_perf_event_open, &attributes, tid, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

/// The first whole sample: counter, abi, registers in the order of their numbers, size of the copy, copy, how much of
/// it counts.
void take_sample(const void* mapped, RemoteThread* thread) {
  const auto* head = static_cast<const perf_event_mmap_page*>(mapped);
  const char* data = static_cast<const char*>(mapped) + kPage;
  const uint64_t end = __atomic_load_n(&head->data_head, __ATOMIC_ACQUIRE), room = kDataPages * kPage;
  for (uint64_t at = 0; at + sizeof(perf_event_header) <= end && end <= room;) {
    perf_event_header record;
    memcpy(&record, data + at, sizeof(record));
    if (record.size < sizeof(record) || at + record.size > end) return;
    const uint64_t last = at + record.size;
    uint64_t next = at + sizeof(record);
    at = last;
    auto get = [&](uint64_t* value) {
      if (last - next < sizeof(*value)) return false;
      memcpy(value, data + next, sizeof(*value));
      next += sizeof(*value);
      return true;
    };
    uint64_t counter, abi, values[64] = {}, bytes = 0, counts = 0;
    if (record.type != PERF_RECORD_SAMPLE || !get(&counter) || !get(&abi) || abi != PERF_SAMPLE_REGS_ABI_64) continue;
    bool whole = true;
    for (int number = 0; number < 64 && whole; ++number)
      if ((perf_mask() >> number & 1) != 0) whole = get(&values[number]);
    if (!whole || !get(&bytes) || bytes > last - next) continue;
    const uint64_t copy = next;
    next += bytes;
    if (bytes != 0 && !get(&counts)) continue;
    for (size_t i = 0; i < sizeof(kPerfOrder) / sizeof(kPerfOrder[0]); ++i)
      thread->registers.r[i] = values[kPerfOrder[i]];
    thread->registers.pc = values[kPerfCounter];
    thread->copy_bytes = static_cast<uint32_t>(counts < bytes ? counts : bytes);
    if (thread->copy_bytes > kStackCopy) thread->copy_bytes = kStackCopy;
    memcpy(thread->copy, data + copy, thread->copy_bytes);
    thread->known = thread->registers.pc != 0;
    return;
  }
}

}  // namespace

bool remote_open(RemoteProcess* process, int32_t pid) {
  process->read = read_other;
  process->find_object = find_other;
  process->pid = pid;
  process->object_count = 0;
  process->copy = nullptr;
  remote_forget(process);
  if (!read_maps(process)) return false;
  for (uint32_t i = 0; i < process->object_count; ++i) read_headers(*process, &process->objects[i].object);
  return true;
}

void remote_sample(RemoteThread* threads, uint32_t count, long milliseconds) {
  for (uint32_t first = 0; first < count; first += kBatch) {  // the kernel limits the memory of samples
    int fds[kBatch];
    void* mapped[kBatch];
    bool any = false;
    const uint32_t some = count - first < kBatch ? count - first : kBatch;
    for (uint32_t i = 0; i < some; ++i) {
      RemoteThread& thread = threads[first + i];
      thread.known = thread.sleeps = false;
      thread.registers = {};
      thread.copy_bytes = 0;
      mapped[i] = MAP_FAILED;
      fds[i] = asleep(&thread) ? -1 : begin_sample(thread.tid);
      if (fds[i] < 0) continue;
      mapped[i] = mmap(nullptr, (1 + kDataPages) * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
      any = any || mapped[i] != MAP_FAILED;
    }
    for (long passed = 0; any && passed < milliseconds * 1000000;
         passed += kLookNs) {  // not all get a processor at once
      const timespec time = {0, kLookNs};
      nanosleep(&time, nullptr);
      any = false;
      for (uint32_t i = 0; i < some; ++i)
        any =
            any || (mapped[i] != MAP_FAILED &&
                    __atomic_load_n(&static_cast<perf_event_mmap_page*>(mapped[i])->data_head, __ATOMIC_ACQUIRE) == 0);
    }
    for (uint32_t i = 0; i < some; ++i) {
      if (mapped[i] != MAP_FAILED) {
        take_sample(mapped[i], &threads[first + i]);
        munmap(mapped[i], (1 + kDataPages) * kPage);
      }
      if (fds[i] >= 0) close(fds[i]);
      if (fds[i] >= 0 && !threads[first + i].known) asleep(&threads[first + i]);  // it has gone to sleep
    }
  }
}

void remote_forget(RemoteProcess* process) { memset(process->page_at, 0, sizeof(process->page_at)); }

void remote_unwind(RemoteProcess* process, const RemoteThread& thread, UnwindWork* work, Stack* stack) {
  process->copy = thread.copy_bytes != 0 ? thread.copy : nullptr;
  process->copy_at = thread.registers.r[kStackRegister];
  process->copy_bytes = thread.copy_bytes;
  remote_forget(process);  // stacks change; objects are read again
  work->registers = thread.registers;
  unwind(work, stack, process);
  process->copy = nullptr;
}

void remote_name(RemoteProcess* process, uint64_t address, char* text, uint32_t bytes) {
  text[0] = 0;
  for (uint32_t i = 0; i < process->object_count; ++i)
    if (const RemoteObject& one = process->objects[i]; address >= one.object.start && address < one.object.end)
      snprintf(text, bytes, "%s+0x%llx", one.name, static_cast<unsigned long long>(address - one.object.base));
}

}  // namespace resil::stacks
