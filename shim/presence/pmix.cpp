// SPDX-License-Identifier: Apache-2.0
//
// See pmix.h. May load libpmix where the MPI library would do so a moment later, and nothing else.
//
// PMIx_Init counts references: ours comes first, the MPI library's own is the second; each is given back by its owner.
// A second *copy* of libpmix would be a second client with the same rank, which servers take badly: it is used only
// when it is the one the MPI library links (Open MPI 5, MPICH with PMIx) or the one its plug-in links (Open MPI 4 with
// an external PMIx). Open MPI 4 with its built-in PMIx goes to the next carrier.
//
// Measured with Open MPI 4.1.4 and PMIx 4.2.2: keys that were put and committed before MPI_Init are in the local store
// of every rank after it, because Open MPI's fence collects all data; PMIX_OPTIONAL looks there and only there.
#include "shim/presence/pmix.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "shim/config_parse.h"

namespace resil {
namespace {

// The few types of the PMIx standard that are needed, with the layout of libpmix.so.2 (PMIx 2.1 to 5).
struct PmixProc {
  char space[256];
  uint32_t rank;
};
struct PmixValue {
  uint16_t type;
  union {
    bool flag;
    const char* string;
    uint64_t reserved[4];  // at least as large as in any version
  };
};
struct PmixInfo {
  char key[512];
  uint32_t flags;
  PmixValue value;
};
constexpr uint16_t kPmixBool = 1, kPmixString = 3;
constexpr uint8_t kPmixGlobal = 3;
constexpr char kKey[] = "resil.presence";
constexpr char kLibrary[] = "libpmix.so.2";

struct Library {
  int (*init)(PmixProc* self, PmixInfo* info, size_t count);
  int (*put)(uint8_t scope, const char* key, PmixValue* value);
  int (*commit)();
  int (*get)(const PmixProc* proc, const char* key, const PmixInfo* info, size_t count, PmixValue** value);
  int (*finalize)(const PmixInfo* info, size_t count);
};

Library library;
PmixProc self;
bool initialised;

struct Object {
  const char* part;
  char path[512];
};

/// Path of the first loaded object with `part` in its file name, "" when there is none.
void find_object(Object* object) {
  object->path[0] = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* context) {
        Object* wanted = static_cast<Object*>(context);
        const char* slash = strrchr(info->dlpi_name, '/');
        if (!slash || !strstr(slash, wanted->part) || strlen(info->dlpi_name) >= sizeof wanted->path) return 0;
        strcpy(wanted->path, info->dlpi_name);
        return 1;
      },
      object);
}

/// Value of a bool variable in a loaded object; false when either is not there.
bool flag_in(const char* object_name, const char* symbol) {
  Object object{object_name, {}};
  find_object(&object);
  void* handle = object.path[0] ? dlopen(object.path, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  if (!handle) return false;
  const bool* flag = static_cast<const bool*>(dlsym(handle, symbol));
  bool set = flag && *flag;
  dlclose(handle);
  return set;
}

enum class Plugin { kNone, kBuiltIn, kExternal };

/// How Open MPI 4 reaches PMIx, by the plug-in files beside its library. An external plug-in is loaded here, and with
/// it the libpmix that it is linked to. The plug-in's own code does not run; Open MPI opens the same file later and
/// gets this mapping.
Plugin load_openmpi_plugin() {
  Object pal{"/libopen-pal.so", {}};
  find_object(&pal);
  if (!pal.path[0]) return Plugin::kNone;
  *strrchr(pal.path, '/') = 0;
  for (const char* folder : {"/openmpi/", "/openmpi/lib/openmpi3/", "/openmpi/lib/openmpi/"}) {
    char path[640];
    // With its own PMIx inside, Open MPI prefers that one.
    for (const char* inside : {"mca_pmix_pmix2x.so", "mca_pmix_pmix3x.so", "mca_pmix_pmix4x.so"}) {
      Text(path, sizeof path).add(pal.path).add(folder).add(inside);
      if (access(path, F_OK) == 0) return Plugin::kBuiltIn;
    }
    for (const char* outside : {"mca_pmix_ext4x.so", "mca_pmix_ext3x.so", "mca_pmix_ext2x.so"}) {
      Text(path, sizeof path).add(pal.path).add(folder).add(outside);
      if (access(path, F_OK) == 0 && dlopen(path, RTLD_LAZY | RTLD_LOCAL)) return Plugin::kExternal;
    }
  }
  return Plugin::kNone;
}

/// Never closed: the library runs a thread of its own, and an atexit handler.
bool load() {
  if (load_openmpi_plugin() == Plugin::kBuiltIn) return false;
  void* handle = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!handle) return false;
  auto bind = [handle](auto& slot, const char* name) {
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(dlsym(handle, name));
    return slot != nullptr;
  };
  return bind(library.init, "PMIx_Init") && bind(library.put, "PMIx_Put") && bind(library.commit, "PMIx_Commit") &&
         bind(library.get, "PMIx_Get") && bind(library.finalize, "PMIx_Finalize");
}

bool publish(const LaunchIdentity& identity, const char*, const char* value) {
  // Open MPI under hydra, and MPICH under Open MPI's mpirun, would not use the server that the variables name.
  if (!getenv("PMIX_NAMESPACE") || !getenv("PMIX_RANK") || identity.singleton) return false;
  if (!load() || library.init(&self, nullptr, 0) != 0) return false;
  initialised = true;
  PmixValue text{};
  text.type = kPmixString;
  text.string = value;
  return library.put(kPmixGlobal, kKey, &text) == 0 && library.commit() == 0;
}

/// Only in this process's own store: a server could be asked too, but would forward the question to other nodes.
bool get(int rank, char* value, size_t size) {
  if (!initialised) return false;
  PmixProc proc = self;
  proc.rank = static_cast<uint32_t>(rank);
  PmixInfo optional{};
  strcpy(optional.key, "pmix.optional");
  optional.value.type = kPmixBool;
  optional.value.flag = true;
  PmixValue* found = nullptr;
  if (library.get(&proc, kKey, &optional, 1, &found) != 0 || !found) return false;
  bool good = found->type == kPmixString && found->string && strlen(found->string) < size;
  if (good) strcpy(value, found->string);
  if (found->type == kPmixString) free(const_cast<char*>(found->string));
  free(found);
  return good;
}

/// The MPI library holds its own reference by now: this only counts down, and its goodbye to the server stays the last.
void release() {
  if (initialised) library.finalize(nullptr, 0);
  initialised = false;
}

}  // namespace

bool openmpi_init_is_asynchronous() {
  return flag_in("/libmpi.so", "ompi_async_mpi_init") || flag_in("/libopen-pal.so", "opal_pmix_base_async_modex");
}

const Carrier kPmixCarrier = {"PMIx", publish, get, release, nullptr};

}  // namespace resil
