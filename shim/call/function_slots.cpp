// SPDX-License-Identifier: Apache-2.0
//
// See function_slots.h.
//
// Whose object is it? What the executable needs, directly or through others, is the program's, and so is what nobody
// needs (loaded by dlopen). The search stops at the library that has MPI's functions and at bindings: what
// only these need, their plug-ins, and what MPI_Init loads is MPI's. libc, the loader and what is preloaded are
// nobody's.
//
// The loader's lock is held while objects are read and slots written (dl_iterate_phdr), so that none goes away.

#include "shim/call/function_slots.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/call/next.h"
#include "shim/call/resolver.h"
#include "shim/runtime/memory.h"

#if defined(__x86_64__)
constexpr uint32_t kJump = R_X86_64_JUMP_SLOT, kData = R_X86_64_GLOB_DAT;
#else
constexpr uint32_t kJump = R_AARCH64_JUMP_SLOT, kData = R_AARCH64_GLOB_DAT;
#endif

namespace resil {

using Whose = FunctionSlots::Whose;

namespace {

constexpr unsigned kMostObjects = 1024, kMostNeeded = 96;

struct Object {
  uint64_t base, start, end;
  const char* name;  // as the loader has it; "" is the executable
  uint64_t soname;  // hash
  uint64_t needed[kMostNeeded];
  uint32_t needed_count;
  Whose whose;
  bool reached, needed_by_some, done;
  bool only_mpi;  ///< MPI needs it, directly or through others, and the executable does not
};

using Known = FunctionSlots::Known;

struct Scan {
  Object* objects;
  unsigned count;
  uint64_t mpi[8];  // addresses of functions in MPI's own library and in its bindings
  unsigned mpi_count;
  bool first;
  FunctionSlots* kept;
  bool (*look)(FunctionSlot&, void*);
  void* context;

  Known* known_of(const Object& object) const;
};

const char* base_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

bool begins_with_any(const char* name, std::initializer_list<const char*> list) {
  for (const char* begin : list)
    if (strncmp(name, begin, strlen(begin)) == 0) return true;
  return false;
}

/// An object's dynamic section, as the loader has relocated it.
struct Dynamic {
  const char* strings = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  const ElfW(Rela) * jumps = nullptr;
  const ElfW(Rela) * relocations = nullptr;
  uint64_t jump_bytes = 0, relocation_bytes = 0;
  bool bound_at_load = false;
};

const ElfW(Dyn) * dynamic_of(const dl_phdr_info& info) {
  for (unsigned i = 0; i < info.dlpi_phnum; ++i)
    if (info.dlpi_phdr[i].p_type == PT_DYNAMIC)
      return reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
  return nullptr;
}

bool read_dynamic(const dl_phdr_info& info, const Object& object, Dynamic* out) {
  const ElfW(Dyn)* at = dynamic_of(info);
  if (at == nullptr) return false;
  bool with_addends = true;
  const auto address = [&](uint64_t value) { return value < object.base ? value + object.base : value; };
  for (; at->d_tag != DT_NULL; ++at) {
    switch (at->d_tag) {
      case DT_STRTAB: out->strings = reinterpret_cast<const char*>(address(at->d_un.d_ptr)); break;
      case DT_SYMTAB: out->symbols = reinterpret_cast<const ElfW(Sym)*>(address(at->d_un.d_ptr)); break;
      case DT_JMPREL: out->jumps = reinterpret_cast<const ElfW(Rela)*>(address(at->d_un.d_ptr)); break;
      case DT_PLTRELSZ: out->jump_bytes = at->d_un.d_val; break;
      case DT_RELA: out->relocations = reinterpret_cast<const ElfW(Rela)*>(address(at->d_un.d_ptr)); break;
      case DT_RELASZ: out->relocation_bytes = at->d_un.d_val; break;
      case DT_PLTREL: with_addends = at->d_un.d_val == DT_RELA; break;
      case DT_BIND_NOW: out->bound_at_load = true; break;
      case DT_FLAGS: out->bound_at_load |= (at->d_un.d_val & DF_BIND_NOW) != 0; break;
      case DT_FLAGS_1: out->bound_at_load |= (at->d_un.d_val & DF_1_NOW) != 0; break;
      default: break;
    }
  }
  return out->strings != nullptr && out->symbols != nullptr && with_addends;
}

Known* Scan::known_of(const Object& object) const {
  const uint64_t name = hash_text(object.name);
  for (uint32_t i = 0; i < kept->known_count; ++i)
    if (kept->known[i].base == object.base && kept->known[i].name == name) return &kept->known[i];
  return nullptr;
}

int collect(dl_phdr_info* info, size_t, void* data) {
  auto& scan = *static_cast<Scan*>(data);
  if (scan.count == kMostObjects) return 1;
  Object& object = scan.objects[scan.count];
  object.base = info->dlpi_addr;
  object.name = info->dlpi_name;
  object.start = UINT64_MAX;
  for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const uint64_t start = info->dlpi_addr + segment.p_vaddr, end = start + segment.p_memsz;
    if (start < object.start) object.start = start;
    if (end > object.end) object.end = end;
  }
  object.soname = hash_text(base_name(object.name));
  Dynamic dynamic;
  const ElfW(Dyn)* at = dynamic_of(*info);
  if (at == nullptr || !read_dynamic(*info, object, &dynamic)) {
    object.whose = Whose::kNobody;
    ++scan.count;
    return 0;
  }
  for (; at->d_tag != DT_NULL; ++at) {
    if (at->d_tag == DT_SONAME) object.soname = hash_text(base_name(dynamic.strings + at->d_un.d_val));
    if (at->d_tag == DT_NEEDED && object.needed_count < kMostNeeded)
      object.needed[object.needed_count++] = hash_text(base_name(dynamic.strings + at->d_un.d_val));
  }
  ++scan.count;
  return 0;
}

/// What its name and what is in it say; kUnknown: it depends on who needs it.
Whose fixed(const Scan& scan, const Object& object) {
  const char* name = base_name(object.name);
  const auto holds = [&](const void* address) {
    const auto at = reinterpret_cast<uint64_t>(address);
    return at >= object.start && at < object.end;
  };
  if (holds(&backend) ||
      begins_with_any(name, {"libc.so", "libc-", "ld-linux", "ld64", "ld-", "libpthread", "libdl", "librt", "libm.so",
                             "libm-", "libmvec", "linux-vdso", "linux-gate", "libnss_", "libresolv", "libthread_db"}))
    return Whose::kNobody;
  for (unsigned i = 0; i < scan.mpi_count; ++i)
    if (holds(reinterpret_cast<const void*>(scan.mpi[i]))) return Whose::kMpi;
  if (begins_with_any(name, {"mca_", "pmix_mca_", "prte_mca_"})) return Whose::kMpi;
  return Whose::kUnknown;
}

bool is_runtime(const char* path) {
  return begins_with_any(
      base_name(path),
      {"libgfortran", "libstdc++",  "libgomp",   "libquadmath", "libgcc_s",  "libc++",  "libiomp5", "libomp",
       "libflang",    "libFortran", "libifcore", "libifport",   "libimf",    "libsvml", "libintlc", "libirc",
       "libirng",     "libnvf",     "libnvc",    "libnvomp",    "libpgmath", "libasan", "libtsan",  "libubsan"});
}

void reach(Scan& scan, Object& object) {
  if (object.reached) return;
  object.reached = true;
  for (uint32_t i = 0; i < object.needed_count; ++i)
    for (unsigned k = 0; k < scan.count; ++k)
      if (scan.objects[k].soname == object.needed[i] && scan.objects[k].whose == Whose::kUnknown)
        reach(scan, scan.objects[k]);
}

void mark_only_mpi(Scan& scan, const Object& object) {
  for (uint32_t i = 0; i < object.needed_count; ++i)
    for (unsigned k = 0; k < scan.count; ++k) {
      Object& needed = scan.objects[k];
      if (needed.soname != object.needed[i] || needed.whose != Whose::kUnknown || needed.reached || needed.only_mpi)
        continue;
      needed.only_mpi = true;
      mark_only_mpi(scan, needed);
    }
}

void decide(Scan& scan, bool of_mpi) {
  for (unsigned i = 0; i < scan.count; ++i) {
    Object& object = scan.objects[i];
    if (const Known* before = scan.known_of(object)) {
      object.done = before->done;
      object.whose = before->whose == Whose::kRuntime ? Whose::kProgram : before->whose;
    } else if (object.whose == Whose::kUnknown) {
      object.whose = fixed(scan, object);
      if (object.whose == Whose::kUnknown && of_mpi && i != 0) object.whose = Whose::kMpi;
    }
    for (uint32_t k = 0; k < object.needed_count; ++k)
      for (unsigned n = 0; n < scan.count; ++n)
        if (n != i && scan.objects[n].soname == object.needed[k]) scan.objects[n].needed_by_some = true;
  }
  // Other tools that are preloaded lie between the executable and what it needs; what they read is not in its data.
  for (unsigned i = 1; scan.first && i < scan.count && !scan.objects[i].needed_by_some; ++i)
    if (scan.objects[i].whose == Whose::kUnknown) scan.objects[i].whose = Whose::kNobody;
  // A plug-in of MPI's, or of a library of its transport, needs what only MPI has. UCX loads its own before main().
  reach(scan, scan.objects[0]);
  for (unsigned i = 1; scan.first && i < scan.count; ++i)
    if (scan.objects[i].whose == Whose::kMpi) mark_only_mpi(scan, scan.objects[i]);
  for (unsigned i = 1; i < scan.count; ++i) {
    Object& object = scan.objects[i];
    if (object.whose != Whose::kUnknown || object.needed_by_some) continue;
    for (uint32_t k = 0; k < object.needed_count; ++k)
      for (unsigned n = 0; n < scan.count; ++n)
        if (scan.objects[n].soname == object.needed[k] &&
            (scan.objects[n].only_mpi ||
             (scan.objects[n].whose == Whose::kMpi && fixed(scan, scan.objects[n]) != Whose::kMpi)))
          object.whose = Whose::kMpi;
  }
  for (unsigned i = 0; i < scan.count; ++i) {
    Object& object = scan.objects[i];
    const bool root = i == 0 || (object.whose == Whose::kUnknown && !object.needed_by_some);
    if (root || object.whose == Whose::kProgram) reach(scan, object);
  }
  for (unsigned i = 0; i < scan.count; ++i) {
    Object& object = scan.objects[i];
    if (object.whose == Whose::kUnknown) object.whose = object.reached ? Whose::kProgram : Whose::kMpi;
    if (object.whose == Whose::kProgram && i != 0 && is_runtime(object.name)) object.whose = Whose::kRuntime;
    FunctionSlots& kept = *scan.kept;
    if (scan.known_of(object) == nullptr &&
        memory::grow_array(&kept.known, &kept.known_room, kept.known_count + 1, 256u))
      kept.known[kept.known_count++] = {object.base, hash_text(object.name), object.whose, false};
  }
}

/// Writes a slot, which may lie in pages that are read-only since the object was loaded.
bool write_slot(const dl_phdr_info& info, uint64_t* slot, uint64_t value) {
  const auto at = reinterpret_cast<uint64_t>(slot);
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  for (unsigned i = 0; i < info.dlpi_phnum; ++i) {
    const auto& segment = info.dlpi_phdr[i];
    const uint64_t start = info.dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_GNU_RELRO || at < (start & ~(page - 1)) || at >= ((start + segment.p_memsz) & ~(page - 1)))
      continue;
    void* begin = reinterpret_cast<void*>(at & ~(page - 1));
    if (mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return false;
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
    mprotect(begin, page, PROT_READ);
    return true;
  }
  __atomic_store_n(slot, value, __ATOMIC_RELEASE);
  return true;
}

void look_at_slot(const Scan& scan, const dl_phdr_info& info, const Object& object, const Dynamic& dynamic,
                  const ElfW(Rela) & relocation, bool jump) {
  const ElfW(Sym)& symbol = dynamic.symbols[ELF64_R_SYM(relocation.r_info)];
  if (symbol.st_name == 0 || symbol.st_shndx != SHN_UNDEF) return;
  auto* slot = reinterpret_cast<uint64_t*>(object.base + relocation.r_offset);
  FunctionSlot found = {};
  found.name = dynamic.strings + symbol.st_name;
  found.now = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
  found.bound = found.now != 0 && (found.now < object.start || found.now >= object.end);
  found.jump = jump;
  found.bound_at_load = dynamic.bound_at_load;
  found.language = object.whose == Whose::kRuntime;
  found.executable = &object == scan.objects;
  found.first = scan.first;
  found.scan = &scan;
  if (scan.look(found, scan.context)) write_slot(info, slot, reinterpret_cast<uint64_t>(found.instead));
}

int look_at_object(dl_phdr_info* info, size_t, void* data) {
  auto& scan = *static_cast<Scan*>(data);
  for (unsigned i = 0; i < scan.count; ++i) {
    Object& object = scan.objects[i];
    if (object.base != info->dlpi_addr || object.name != info->dlpi_name) continue;
    if (object.done || (object.whose != Whose::kProgram && object.whose != Whose::kRuntime)) return 0;
    Dynamic dynamic;
    if (!read_dynamic(*info, object, &dynamic)) return 0;
    constexpr size_t kSize = sizeof(ElfW(Rela));
    bool waits = false;  // some slot waits for its first call: bound lazily (not by LD_BIND_NOW or RTLD_NOW)
    for (uint64_t k = 0; dynamic.jumps != nullptr && k < dynamic.jump_bytes / kSize && !waits; ++k) {
      const uint64_t now = *reinterpret_cast<const uint64_t*>(object.base + dynamic.jumps[k].r_offset);
      waits = ELF64_R_TYPE(dynamic.jumps[k].r_info) == kJump && now >= object.start && now < object.end;
    }
    dynamic.bound_at_load |= !waits;
    for (uint64_t k = 0; dynamic.jumps != nullptr && k < dynamic.jump_bytes / kSize; ++k)
      if (ELF64_R_TYPE(dynamic.jumps[k].r_info) == kJump)
        look_at_slot(scan, *info, object, dynamic, dynamic.jumps[k], true);
    for (uint64_t k = 0; dynamic.relocations != nullptr && k < dynamic.relocation_bytes / kSize; ++k)
      if (ELF64_R_TYPE(dynamic.relocations[k].r_info) == kData)
        look_at_slot(scan, *info, object, dynamic, dynamic.relocations[k], false);
    object.done = true;
    if (Known* kept = scan.known_of(object)) kept->done = true;
    return 0;
  }
  return 0;
}

}  // namespace

bool FunctionSlot::is_programs(uint64_t function) const {
  const Scan& all = *static_cast<const Scan*>(scan);
  for (unsigned i = 0; i < all.count; ++i) {
    const Object& at = all.objects[i];
    if (function >= at.start && function < at.end && at.whose == Whose::kProgram) return true;
  }
  return false;
}

void FunctionSlots::scan(bool of_mpi, bool (*look)(FunctionSlot&, void*), void* context) {
  Scan scan = {};
  scan.objects = memory::map_array<Object>(kMostObjects);
  if (scan.objects == nullptr) return;
  scan.kept = this;
  scan.look = look;
  scan.context = context;
  scan.first = !scanned;
  scanned = true;
  for (const char* name : kOfMpi)
    if (void* function = mpi_function(name)) scan.mpi[scan.mpi_count++] = reinterpret_cast<uint64_t>(function);
  for (const char* name : {"mpi_init_", "MPI_INIT", "mpi_init_f08_", "ompi_init_f", "_ZN3MPI4InitEv"})
    if (void* function = dlsym(RTLD_DEFAULT, name)) scan.mpi[scan.mpi_count++] = reinterpret_cast<uint64_t>(function);
  dl_iterate_phdr(collect, &scan);
  decide(scan, of_mpi);
  dl_iterate_phdr(look_at_object, &scan);
  memory::unmap_array(scan.objects, kMostObjects);
}

}  // namespace resil
