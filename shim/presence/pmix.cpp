// SPDX-License-Identifier: Apache-2.0
//
// See pmix.h.
//
// Of PMIx nothing is touched before the MPI library has initialised it: this rank's value is put in the library's own
// PMIx_Commit inside MPI_Init, and travels with the library's own fence. PMIx_Init counts references, but a reference
// of ours may not come first: Open MPI 5 and 6 ask PMIx_Initialized, then take the answer for their own doing, and the
// name of this process, which they would have had from PMIx_Init, stays empty (ompi_rte_init; "local rank --> Returned
// Not found"). Later MPIs may mind other things; a commit that they make themselves, none.
//
// Measured with Open MPI 4.1.4 (PMIx 4.2.2), 5.0.7 (PMIx 5.0.7) and 6.0.0rc2 (PMIx 7.0.0rc1): what was put before that
// commit is in the local store of every rank after MPI_Init, because Open MPI's fence collects all data; PMIX_OPTIONAL
// looks there and only there. Without PMIX_OPTIONAL the question about a rank that has put nothing is never answered.
#include "shim/presence/pmix.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "shim/call/next.h"
#include "shim/config/config_parse.h"

extern "C" int PMIx_Commit();

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
constexpr int kNotInitialised = -31;  ///< what PMIx_Commit answers in a process that has not called PMIx_Init
constexpr char kKey[] = "resil.presence";
constexpr char kLibrary[] = "libpmix.so.2";

using Commit = int();
using Put = int(uint8_t scope, const char* key, PmixValue* value);
using Get = int(const PmixProc* proc, const char* key, const PmixInfo* info, size_t count, PmixValue** value);

std::atomic<const char*> waiting;  ///< to be put in the MPI library's PMIx_Commit
bool committed;  ///< it was, and PMIx took it
Get* get_function;
PmixProc self;

/// The function that the caller would have had without this library; null: there is none.
template <class Function>
Function* pmix_function(const char* name, const void* caller) {
  void* next = next_in_order(name);
  return reinterpret_cast<Function*>(next ? next : next_function(name, caller));
}

/// In the MPI library's PMIx_Commit. What fails here costs this rank's being known, nothing else.
int commit(const void* caller) {
  Commit* const real = pmix_function<Commit>("PMIx_Commit", caller);
  if (!real) return kNotInitialised;
  const char* value = waiting.exchange(nullptr);
  if (!value) return real();
  Put* const put = pmix_function<Put>("PMIx_Put", caller);
  get_function = pmix_function<Get>("PMIx_Get", caller);
  PmixValue text{};
  text.type = kPmixString;
  text.string = value;
  const bool taken = put && get_function && put(kPmixGlobal, kKey, &text) == 0;
  const int result = real();
  committed = taken && result == 0;
  return result;
}

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

/// Value of a bool variable in a loaded object; `otherwise` when either is not there.
bool flag_in(const char* object_name, const char* symbol, bool otherwise) {
  Object object{object_name, {}};
  find_object(&object);
  void* handle = object.path[0] ? dlopen(object.path, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
  if (!handle) return otherwise;
  const bool* flag = static_cast<const bool*>(dlsym(handle, symbol));
  bool set = flag ? *flag : otherwise;
  dlclose(handle);
  return set;
}

enum class Plugin { kNone, kBuiltIn, kExternal };

/// How Open MPI 4 reaches PMIx, by the plug-in files beside its library; nothing is loaded. kNone: by linking, if at
/// all.
Plugin openmpi_plugin() {
  Object pal{"/libopen-pal.so", {}};
  find_object(&pal);
  if (!pal.path[0]) return Plugin::kNone;
  *strrchr(pal.path, '/') = 0;
  for (const char* folder : {"/openmpi/", "/openmpi/lib/openmpi3/", "/openmpi/lib/openmpi/"}) {
    char path[640];
    // With its own PMIx inside, Open MPI prefers that one; its functions have other names.
    for (const char* inside : {"mca_pmix_pmix2x.so", "mca_pmix_pmix3x.so", "mca_pmix_pmix4x.so"}) {
      Text(path, sizeof path).add(pal.path).add(folder).add(inside);
      if (access(path, F_OK) == 0) return Plugin::kBuiltIn;
    }
    for (const char* outside : {"mca_pmix_ext4x.so", "mca_pmix_ext3x.so", "mca_pmix_ext2x.so"}) {
      Text(path, sizeof path).add(pal.path).add(folder).add(outside);
      if (access(path, F_OK) == 0) return Plugin::kExternal;
    }
  }
  return Plugin::kNone;
}

/// Is that name ours for whoever calls it? Not where this library comes behind PMIx in the global order.
bool commit_is_ours() {
  void* first = dlsym(RTLD_DEFAULT, "PMIx_Commit");
  Dl_info of_first, own;
  return first && dladdr(first, &of_first) && dladdr(&committed, &own) && of_first.dli_fbase == own.dli_fbase;
}

/// Will the MPI library call PMIx_Commit by that name in MPI_Init?
bool commit_will_come() {
  if (!commit_is_ours()) return false;
  const Plugin plugin = openmpi_plugin();
  if (plugin != Plugin::kNone) return plugin == Plugin::kExternal;
  void* linked = dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD);
  if (linked) dlclose(linked);
  return linked;
}

/// Does the fence bring what each rank has put to every rank? On one node with every store; across nodes, as measured,
/// those of shared memory in PMIx 3, 4 (ds12, ds21) and 7 (shmem3) do. PMIx 5's (shmem2) and "hash" in any version keep
/// of another node its first rank's alone, so that some ranks would see all others and some would not: there the files
/// are surer. The MPI library itself does not mind, it asks the other node for what is not here.
bool store_is_whole(const LaunchIdentity& identity) {
  if (identity.size > 0 && identity.size == identity.local_size) return true;
  const char* own = getenv("PMIX_MCA_gds");
  const char* stores = own ? own : getenv("PMIX_GDS_MODULE");  // the server's, so the same on all ranks
  Slice rest = slice_of(stores ? stores : ""), first;
  return next_part(&rest, ',', &first) && (first == "ds12" || first == "ds21" || first == "shmem3");
}

bool publish(const LaunchIdentity& identity, const char*, const char* value) {
  // Open MPI under hydra, and MPICH under Open MPI's mpirun, would not use the server that the variables name.
  const char *space = getenv("PMIX_NAMESPACE"), *rank = getenv("PMIX_RANK");
  if (!space || !rank || identity.singleton || strlen(space) >= sizeof self.space) return false;
  if (!store_is_whole(identity) || !commit_will_come()) return false;
  strcpy(self.space, space);
  waiting.store(value);
  return true;
}

bool published() { return committed; }

/// Only in this process's own store: a server could be asked too, but would forward the question to other nodes.
bool get(int rank, char* value, size_t size) {
  if (!get_function) return false;
  PmixProc proc = self;
  proc.rank = static_cast<uint32_t>(rank);
  PmixInfo optional{};
  strcpy(optional.key, "pmix.optional");
  optional.value.type = kPmixBool;
  optional.value.flag = true;
  PmixValue* found = nullptr;
  if (get_function(&proc, kKey, &optional, 1, &found) != 0 || !found) return false;
  bool good = found->type == kPmixString && found->string && strlen(found->string) < size;
  if (good) strcpy(value, found->string);
  if (found->type == kPmixString) free(const_cast<char*>(found->string));
  free(found);
  return good;
}

void release() {
  waiting.store(nullptr);
  get_function = nullptr;
}

}  // namespace

bool openmpi_init_is_asynchronous() {
  return flag_in("/libopen_mpi.so", "ompi_async_mpi_init", false) ||
         flag_in("/libmpi.so", "ompi_async_mpi_init", false);
}

bool openmpi_fence_collects() { return flag_in("/libopen-pal.so", "opal_pmix_collect_all_data", true); }

bool pmix_takes_status() {
  const char* space = getenv("PMIX_NAMESPACE");
  return space && (strncmp(space, "slurm.pmix.", 11) == 0 || strncmp(space, "prte", 4) == 0);
}

bool pmix_is_orte() {
  const char* space = getenv("PMIX_NAMESPACE");
  char* end = nullptr;
  return space && *space && (strtoull(space, &end, 10), *end == 0);
}

void pmix_abort(int status) {
  using Abort = int(int status, const char* text, PmixProc* procs, size_t count);
  void* library = dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return;
  auto* initialised = reinterpret_cast<int (*)()>(dlsym(library, "PMIx_Initialized"));
  auto* abort = reinterpret_cast<Abort*>(dlsym(library, "PMIx_Abort"));
  if (initialised && abort && initialised()) abort(status, "", nullptr, 0);
  dlclose(library);
}

const Carrier kPmixCarrier = {"PMIx", publish, published, get, release, nullptr};

}  // namespace resil

/// The MPI library calls this one. In a process without PMIx somebody may still find the name; see kNotInitialised.
extern "C" __attribute__((visibility("default"))) int PMIx_Commit() {
  return resil::commit(__builtin_return_address(0));
}
