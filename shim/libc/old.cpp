// SPDX-License-Identifier: Apache-2.0
//
// What a compiler on a new system takes from libc by names that an old libc lacks, under the same names and hidden: the
// library's own sources and libgcc's unwinder call these. See symbols.txt. Any thread, signal handlers too, but for
// _dl_find_object. May touch: system calls; the loader's list of objects.

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RESIL_HIDDEN __attribute__((visibility("hidden"), used))

extern "C" {

// glibc 2.30
RESIL_HIDDEN pid_t resil_gettid() __asm__("gettid");
pid_t resil_gettid() { return static_cast<pid_t>(syscall(SYS_gettid)); }

// glibc 2.25
RESIL_HIDDEN ssize_t resil_getrandom(void* to, size_t bytes, unsigned flags) __asm__("getrandom");
ssize_t resil_getrandom(void* to, size_t bytes, unsigned flags) { return syscall(SYS_getrandom, to, bytes, flags); }

RESIL_HIDDEN void resil_explicit_bzero(void* at, size_t bytes) __asm__("explicit_bzero");
void resil_explicit_bzero(void* at, size_t bytes) {
  memset(at, 0, bytes);
  asm volatile("" : : "r"(at) : "memory");  // the compiler may not leave the stores out
}

// glibc 2.33; before, inline functions of the headers. The kernel's structure is the C library's on both machines.
RESIL_HIDDEN int resil_fstat(int fd, struct stat* status) __asm__("fstat64");
int resil_fstat(int fd, struct stat* status) { return static_cast<int>(syscall(SYS_fstat, fd, status)); }

RESIL_HIDDEN int resil_fstatat(int folder, const char* path, struct stat* status, int flags) __asm__("fstatat64");
int resil_fstatat(int folder, const char* path, struct stat* status, int flags) {
  return static_cast<int>(syscall(SYS_newfstatat, folder, path, status, flags));
}

RESIL_HIDDEN int resil_stat(const char* path, struct stat* status) __asm__("stat64");
int resil_stat(const char* path, struct stat* status) { return resil_fstatat(AT_FDCWD, path, status, 0); }

RESIL_HIDDEN int resil_lstat(const char* path, struct stat* status) __asm__("lstat64");
int resil_lstat(const char* path, struct stat* status) {
  return resil_fstatat(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

// glibc 2.28
RESIL_HIDDEN int resil_fcntl(int fd, int command, long argument) __asm__("fcntl64");
int resil_fcntl(int fd, int command, long argument) {
  return static_cast<int>(syscall(SYS_fcntl, fd, command, argument));
}

// glibc 2.38, for C++; they differ from the old ones in binary literals only, which nothing here reads.
long resil_old_strtol(const char*, char**, int) __asm__("strtol");
unsigned long resil_old_strtoul(const char*, char**, int) __asm__("strtoul");
long long resil_old_strtoll(const char*, char**, int) __asm__("strtoll");
unsigned long long resil_old_strtoull(const char*, char**, int) __asm__("strtoull");
RESIL_HIDDEN long resil_strtol(const char*, char**, int) __asm__("__isoc23_strtol");
RESIL_HIDDEN unsigned long resil_strtoul(const char*, char**, int) __asm__("__isoc23_strtoul");
RESIL_HIDDEN long long resil_strtoll(const char*, char**, int) __asm__("__isoc23_strtoll");
RESIL_HIDDEN unsigned long long resil_strtoull(const char*, char**, int) __asm__("__isoc23_strtoull");
long resil_strtol(const char* text, char** end, int base) { return resil_old_strtol(text, end, base); }
unsigned long resil_strtoul(const char* text, char** end, int base) { return resil_old_strtoul(text, end, base); }
long long resil_strtoll(const char* text, char** end, int base) { return resil_old_strtoll(text, end, base); }
unsigned long long resil_strtoull(const char* text, char** end, int base) {
  return resil_old_strtoull(text, end, base);
}

// glibc 2.35: libgcc's unwinder asks it for the table of the object that a code address is in. Where libc has it, that
// one is asked, which takes no lock; else the objects are walked, as libgcc itself does when it was built for an old
// libc.
struct FoundObject {
  unsigned long long flags;
  void *begin, *end;
  struct link_map* map;
  void* eh_frame;  ///< the segment PT_GNU_EH_FRAME
#if !defined(__x86_64__) && !defined(__aarch64__)
#error "struct dl_find_object of this machine is not known"
#endif
  unsigned long long reserved[7];
};

namespace {

struct Search {
  uintptr_t pc;
  FoundObject* found;
};

int visit(dl_phdr_info* info, size_t, void* context) {
  auto* search = static_cast<Search*>(context);
  const ElfW(Phdr)* table = nullptr;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  bool inside = false;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const uintptr_t from = info->dlpi_addr + header.p_vaddr, to = from + header.p_memsz;
    if (header.p_type == PT_GNU_EH_FRAME) table = &header;
    if (header.p_type != PT_LOAD) continue;
    inside = inside || (search->pc >= from && search->pc < to);
    begin = from < begin ? from : begin;
    end = to > end ? to : end;
  }
  if (!inside || table == nullptr) return inside;
  search->found->begin = reinterpret_cast<void*>(begin);
  search->found->end = reinterpret_cast<void*>(end);
  search->found->eh_frame = reinterpret_cast<void*>(info->dlpi_addr + table->p_vaddr);
  return 2;
}

}  // namespace

RESIL_HIDDEN int resil_find_object(void* pc, FoundObject* found) __asm__("_dl_find_object");
int resil_find_object(void* pc, FoundObject* found) {
  using Find = int (*)(void*, FoundObject*);
  static Find of_libc;
  static bool asked;
  if (!__atomic_load_n(&asked, __ATOMIC_ACQUIRE)) {
    __atomic_store_n(&of_libc, reinterpret_cast<Find>(dlsym(RTLD_DEFAULT, "_dl_find_object")), __ATOMIC_RELAXED);
    __atomic_store_n(&asked, true, __ATOMIC_RELEASE);
  }
  if (Find find = __atomic_load_n(&of_libc, __ATOMIC_RELAXED)) return find(pc, found);
  memset(found, 0, sizeof(*found));
  Search search = {reinterpret_cast<uintptr_t>(pc), found};
  return dl_iterate_phdr(visit, &search) == 2 ? 0 : -1;
}

}  // extern "C"
