// SPDX-License-Identifier: Apache-2.0
//
// Who records: the running program as the shim knows it, and its tables of calls and object files. Application's thread
// after PMPI_Init, but for kLibraryNames (any thread, no system call).
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "checksum/record/format.h"
#include "shim/abi/backend.h"
#include "shim/base/version.h"
#include "shim/call/runtime.h"
#include "shim/model/calls.h"

namespace resil::record {

namespace {

/// Build id of the executable, which is the first object in the list of the loader.
int visit_object(dl_phdr_info* info, size_t, void* to) {
  auto* build = static_cast<char*>(to);
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    auto* at = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    const char* end = at + segment.p_memsz;
    const size_t alignment = segment.p_align == 8 ? 8 : 4;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      memcpy(&note, at, sizeof(note));
      const char* name = at + sizeof(note);
      const char* text = name + (note.n_namesz + alignment - 1) / alignment * alignment;
      if (text + note.n_descsz > end) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
        const size_t bytes = note.n_descsz < 31 ? note.n_descsz : 31;
        for (size_t k = 0; k < bytes; ++k) snprintf(build + 2 * k, 3, "%02x", static_cast<unsigned char>(text[k]));
        return 1;
      }
      at = text + (note.n_descsz + alignment - 1) / alignment * alignment;
    }
  }
  return 1;
}

bool library_site(uint64_t address, SiteName* name) {
  for (uint32_t i = 0; i < runtime.module_count; ++i) {
    const ring::Module& module = runtime.modules[i];
    const uint64_t start = __atomic_load_n(&module.start, __ATOMIC_ACQUIRE);
    if (start == 0) break;
    if (address >= start && address < module.end) {
      *name = {module.path, address - module.base};
      return true;
    }
  }
  return false;
}

/// By path; else by file name, if only one has it: the same program may have moved.
uint64_t library_address(const SiteName& name) {
  const char* slash = strrchr(name.object, '/');
  const char* base = slash != nullptr ? slash + 1 : name.object;
  uint64_t found = 0;
  for (uint32_t i = 0; i < runtime.module_count; ++i) {
    const ring::Module& module = runtime.modules[i];
    if (__atomic_load_n(&module.start, __ATOMIC_ACQUIRE) == 0) break;
    if (strcmp(module.path, name.object) == 0) return module.base + name.offset;
    const char* own = strrchr(module.path, '/');
    if (strcmp(own != nullptr ? own + 1 : module.path, base) == 0)
      found = found == 0 ? module.base + name.offset : UINT64_MAX;
  }
  return found == UINT64_MAX ? 0 : found;
}

const char* library_call_name(uint16_t call) { return call < kCallCount ? kCallInfo[call].name : ""; }

uint16_t library_call_id(const char* name) {
  for (uint16_t i = 0; i < kCallCount; ++i)
    if (strcmp(kCallInfo[i].name, name) == 0) return i;
  return kUnknownCall;
}

}  // namespace

constinit const Names kLibraryNames = {library_site, library_address, library_call_name, library_call_id};

void identity_of_this_rank(Identity* identity) {
  *identity = {};
  const ring::Header& header = *runtime.header;
  identity->rank = runtime.rank;
  identity->world_size = runtime.size;
  identity->world = runtime.world;
  identity->thread_level = backend != nullptr && backend->initialized() && backend->thread_multiple() ? 3 : -1;
  identity->created = static_cast<uint64_t>(time(nullptr));
  snprintf(identity->launch, sizeof(identity->launch), "%s", header.job);
  snprintf(identity->host, sizeof(identity->host), "%s", runtime.host);
  snprintf(identity->program, sizeof(identity->program), "%s", header.executable);
  snprintf(identity->mpi, sizeof(identity->mpi), "%s", header.mpi);
  snprintf(identity->abi, sizeof(identity->abi), "%s", backend != nullptr ? backend->abi : "");
  snprintf(identity->resil_version, sizeof(identity->resil_version), "%s", kVersionText);
  dl_iterate_phdr(visit_object, identity->build);
  struct stat status;
  if (identity->build[0] == 0 && stat("/proc/self/exe", &status) == 0)
    snprintf(identity->build, sizeof(identity->build), "size-%lld-mtime-%lld%09ld",
             static_cast<long long>(status.st_size), static_cast<long long>(status.st_mtim.tv_sec),
             status.st_mtim.tv_nsec);
}

}  // namespace resil::record
