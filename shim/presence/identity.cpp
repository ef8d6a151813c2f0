// SPDX-License-Identifier: Apache-2.0
//
// See identity.h. May touch the environment it is given; no file, no MPI call.
#include "shim/presence/identity.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "shim/config/config_parse.h"
#include "shim/presence/pmi1.h"

extern char** environ;

namespace resil {
namespace {

class Environment {
 public:
  explicit Environment(char* const* variables) : variables_(variables) {}

  /// Value of the variable, null when unset or empty.
  const char* text(const char* name) const {
    if (!name) return nullptr;
    size_t length = strlen(name);
    for (char* const* entry = variables_; entry && *entry; ++entry)
      if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
        return (*entry)[length + 1] ? *entry + length + 1 : nullptr;
    return nullptr;
  }

  /// Non-negative number, -1 when unset or anything else.
  int number(const char* name) const {
    const char* value = text(name);
    int64_t result;
    return value && parse_integer(slice_of(value), &result) && result >= 0 && result <= INT32_MAX
               ? static_cast<int>(result)
               : -1;
  }

 private:
  char* const* variables_;
};

/// A launcher and its variables. The first row whose `rank` and `also` are set wins: those that a tool sets for the
/// processes it starts itself stand before those of a scheduler, which are inherited by everything in the job.
struct Launcher {
  const char* name;
  MpiFamily family;  ///< whose processes it starts; kUnknown: anybody's
  const char* rank;
  const char* also;  ///< must be set too; null: nothing
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* launch;  ///< variable with an id that all ranks share; null: see find_launch
};

constexpr MpiFamily kAny = MpiFamily::kUnknown;
constexpr char kPmixName[] = "PMIX_NAMESPACE";
constexpr char kExported[] = "RESIL_INTERNAL_LAUNCH";

constexpr Launcher kLaunchers[] = {
    {"mpirun of Open MPI", MpiFamily::kOpenMpi, "OMPI_COMM_WORLD_RANK", nullptr, "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", kPmixName},
    {"hydra", MpiFamily::kMpich, "PMI_RANK", "MPI_LOCALNRANKS", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     nullptr},
    {"mpirun_rsh", MpiFamily::kMpich, "MV2_COMM_WORLD_RANK", nullptr, "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", nullptr},
    {"jsrun", kAny, "JSM_NAMESPACE_RANK", nullptr, "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
     "JSM_NAMESPACE_LOCAL_SIZE", "JSM_NAMESPACE_ID"},
    {"PALS", kAny, "PALS_RANKID", nullptr, "PMI_SIZE", "PALS_LOCAL_RANKID", "PMI_LOCAL_SIZE", "PALS_APID"},
    {"flux", kAny, "FLUX_TASK_RANK", nullptr, "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", nullptr, "FLUX_JOB_ID"},
    // A batch script itself has SLURM_PROCID too, but no step with tasks.
    {"srun", kAny, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr,
     "SLURM_STEP_ID"},
    {"PMIx", kAny, "PMIX_RANK", kPmixName, nullptr, nullptr, nullptr, kPmixName},
    {"PMI", MpiFamily::kMpich, "PMI_RANK", nullptr, "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", "PMI_JOBID"},
};

/// Copies with every byte outside [A-Za-z0-9_.-] as '_'. What does not fit is replaced by a hash of the whole text.
void set_name(char* name, size_t size, Slice text) {
  size_t kept = text.size;
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  if (kept >= size) {
    for (size_t i = 0; i < text.size; ++i) hash = (hash ^ static_cast<unsigned char>(text.data[i])) * 0x100000001b3;
    kept = size - 18;
  }
  for (size_t i = 0; i < kept; ++i) {
    char c = text.data[i];
    bool good = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
    name[i] = good ? c : '_';
  }
  if (kept < text.size) {
    name[kept++] = '_';
    for (int shift = 60; shift >= 0; shift -= 4) name[kept++] = "0123456789abcdef"[hash >> shift & 15];
  }
  name[kept] = 0;
}

void set_number(char* name, size_t size, int64_t number) { Text(name, size).add(number); }

/// A number for a spawned world whose launcher does not count them: equal where the name is equal, rarely else.
int world_from_name(const char* name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (; *name; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 0x100000001b3;
  return static_cast<int>(1 + hash % 999983);
}

/// PMIx namespaces that say which world of which launch they are. Measured on Open MPI 4.1: a decimal number, family in
/// the upper bits and job in the lower 16, the first job 1, spawned ones counted on by mpirun for the whole job. PRRTE
/// (Open MPI 5) writes "prterun-HOST-PID@1". A persistent daemon (orte-dvm, prte) gives each launch a number without
/// spawning; OMPI_PARENT_PORT tells the two apart.
void launch_from_pmix(LaunchIdentity* identity, const Environment& environment, const char* name) {
  bool spawned = environment.text("OMPI_PARENT_PORT");
  int64_t number;
  char root[64];
  if (const char* parent = spawned ? environment.text(kExported) : nullptr) {
    bool counted = parse_integer(slice_of(name), &number) && number > 0xffff && (number & 0xffff) > 1;
    identity->world = counted ? static_cast<int>(number & 0xffff) - 1 : world_from_name(name);
    return set_name(identity->launch, sizeof identity->launch, slice_of(parent));
  }
  if (parse_integer(slice_of(name), &number) && number > 0xffff) {
    int job = static_cast<int>(number & 0xffff);
    if (!spawned || job < 1) return set_name(identity->launch, sizeof identity->launch, slice_of(name));
    identity->world = job > 1 ? job - 1 : world_from_name(name);
    return set_number(identity->launch, sizeof identity->launch, (number & ~int64_t{0xffff}) | 1);
  }
  const char* at = strrchr(name, '@');
  if (at && parse_integer(slice_of(at + 1), &number) && number >= 1 && number < INT32_MAX) {
    spawned = spawned || (number > 1 && strncmp(name, "prterun", 7) == 0);
    Slice family{name, static_cast<size_t>(at - name)};
    if (!spawned || number == 1 || family.size + 3 > sizeof root) {
      // The first job of a daemon that a singleton started, to spawn; the parents' name is not known here.
      if (spawned) identity->world = world_from_name(name);
      return set_name(identity->launch, sizeof identity->launch, slice_of(name));
    }
    identity->world = static_cast<int>(number - 1);
    Text(root, sizeof root).add(family).add("@1");
    return set_name(identity->launch, sizeof identity->launch, slice_of(root));
  }
  if (spawned) identity->world = world_from_name(name);
  set_name(identity->launch, sizeof identity->launch, slice_of(name));
}

/// Hydra's name is kvs_PID_GROUP_RANDOM_HOST (4.x) or kvs_PID_GROUP_HOST; PID and HOST are mpiexec's, GROUP counts
/// spawned worlds, RANDOM differs between the worlds of a job and is therefore left out.
void launch_from_kvs(LaunchIdentity* identity, const Environment& environment, const char* name) {
  Slice rest = slice_of(name), kvs, pid, group;
  int64_t pid_number, group_number;
  bool spawned = environment.text("PMI_SPAWNED");
  bool regular = next_part(&rest, '_', &kvs) && kvs == "kvs" && next_part(&rest, '_', &pid) &&
                 parse_integer(pid, &pid_number) && next_part(&rest, '_', &group) &&
                 parse_integer(group, &group_number) && group_number >= 0 && group_number < INT32_MAX && rest.size;
  if (!regular) {
    if (spawned) identity->world = world_from_name(name);
    return set_name(identity->launch, sizeof identity->launch, slice_of(name));
  }
  identity->world = static_cast<int>(group_number);
  Slice after = rest, random;
  int64_t ignored;
  if (next_part(&after, '_', &random) && parse_integer(random, &ignored) && after.size) rest = after;
  char root[320];
  Text(root, sizeof root).add("kvs_").add(pid).add("_").add(rest);
  set_name(identity->launch, sizeof identity->launch, slice_of(root));
}

/// Tasks of the step on this node, of a list like "4(x2),3" with a number for each node; -1: not known.
int slurm_local_size(const Environment& environment) {
  const int64_t node = environment.number("SLURM_NODEID");
  Slice rest = slice_of(environment.text("SLURM_STEP_TASKS_PER_NODE")), part;
  for (int64_t nodes = 0; node >= 0 && next_part(&rest, ',', &part);) {
    Slice tasks;
    int64_t count, times = 1;
    next_part(&part, '(', &tasks);
    const bool repeated = part.data != nullptr;  // "x2)"
    if (repeated && (part.size < 3 || part.data[0] != 'x' || part.data[part.size - 1] != ')' ||
                     !parse_integer({part.data + 1, part.size - 2}, &times)))
      return -1;
    if (!parse_integer(tasks, &count) || count < 1 || count > INT32_MAX || times < 1 || times > INT32_MAX) return -1;
    nodes += times;
    if (node < nodes) return static_cast<int>(count);
  }
  return -1;
}

void find_launch(LaunchIdentity* identity, const IdentitySource& source, const Launcher* launcher) {
  Environment environment(source.environment);
  const char* pmix = environment.text(kPmixName);
  const char* name = launcher ? environment.text(launcher->launch) : nullptr;
  char kvs[256];
  identity->agreed = true;
  if (launcher && pmix && name == pmix) {
    // Slurm's own namespaces repeat job id and step, which the contract wants as they are.
    const char* step = strncmp(pmix, "slurm.pmix.", 11) == 0 ? strrchr(pmix, '.') : nullptr;
    if (step && step[1] && !environment.text("OMPI_PARENT_PORT"))
      set_name(identity->launch, sizeof identity->launch, slice_of(step + 1));
    else launch_from_pmix(identity, environment, pmix);
  } else if (name) {
    set_name(identity->launch, sizeof identity->launch, slice_of(name));
    if (environment.text("PMI_SPAWNED")) identity->world = world_from_name(name);
  } else if (launcher && launcher->family == MpiFamily::kMpich && source.kvs_name && source.kvs_name(kvs, sizeof kvs) &&
             kvs[0]) {
    launch_from_kvs(identity, environment, kvs);
  } else {
    // Ranks of one node agree where the launcher started them all itself; more cannot be known without a message.
    set_number(identity->launch, sizeof identity->launch, launcher ? source.parent_pid : source.pid);
    identity->agreed = !launcher;
  }
}

void find_job(LaunchIdentity* identity, const Environment& environment) {
  // The tasks of an array have ids of their own (Slurm) or share the array's (LSF, Grid Engine), but everybody calls
  // them ARRAY_TASK. JOB_ID alone is anybody's name; with a task it is Grid Engine's.
  struct Array {
    const char *job, *task, *also, *none;
  };
  constexpr Array kArrays[] = {{"SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID", ""},
                               {"LSB_JOBID", "LSB_JOBINDEX", "LSB_JOBID", "0"},
                               {"JOB_ID", "SGE_TASK_ID", "JOB_ID", "undefined"}};
  for (const Array& row : kArrays) {
    const char *array = environment.text(row.job), *task = environment.text(row.task);
    if (!array || !task || !environment.text(row.also)) continue;
    char both[160];
    Text text(both, sizeof both);
    text.add(array);
    if (strcmp(task, row.none) != 0) text.add("_").add(task);
    return set_name(identity->job, sizeof identity->job, slice_of(both));
  }
  for (const char* name : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"})
    if (const char* value = environment.text(name))
      return set_name(identity->job, sizeof identity->job, slice_of(value));
}

}  // namespace

LaunchIdentity launch_identity(const IdentitySource& source) {
  LaunchIdentity identity{};
  Environment environment(source.environment);
  identity.family = source.family;
  const Launcher* found = nullptr;
  for (const Launcher& row : kLaunchers) {
    bool family_fits = row.family == kAny || source.family == kAny || row.family == source.family;
    bool pmix = row.launch == static_cast<const char*>(kPmixName);
    if (pmix && source.family == MpiFamily::kMpich && !source.pmix_linked) continue;
    if (!family_fits || environment.number(row.rank) < 0 || (row.also && !environment.text(row.also))) continue;
    found = &row;
    break;
  }
  identity.launcher = found ? found->name : "none";
  identity.singleton = !found;
  identity.rank = found ? environment.number(found->rank) : 0;
  identity.size = found ? environment.number(found->size) : 1;
  identity.local_rank = found ? environment.number(found->local_rank) : 0;
  identity.local_size = found ? environment.number(found->local_size) : 1;
  if (found && strcmp(found->name, "srun") == 0 && environment.text("SLURM_STEP_TASKS_PER_NODE"))
    identity.local_size = slurm_local_size(environment);
  find_job(&identity, environment);
  find_launch(&identity, source, found);
  Text key(identity.key, sizeof identity.key);
  key.add(identity.launch);
  if (identity.world) key.add("-w").add(static_cast<int64_t>(identity.world));
  return identity;
}

LaunchIdentity launch_identity(MpiFamily family) {
  void* pmix = dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD);
  if (pmix) dlclose(pmix);
  return launch_identity({environ, family, getpid(), getppid(), pmix != nullptr, pmi1_kvs_name});
}

void launch_export(const LaunchIdentity& identity) {
  if (identity.singleton && identity.family == MpiFamily::kOpenMpi) setenv(kExported, identity.launch, 1);
}

void launch_unexport(const LaunchIdentity& identity) {
  if (identity.singleton && identity.family == MpiFamily::kOpenMpi) unsetenv(kExported);
}

void directory_name(const LaunchIdentity& identity, char* name, size_t size) {
  Text text(name, size);
  bool both = identity.job[0] && strcmp(identity.job, identity.launch) != 0;  // flux: one id for both
  text.add("resil-").add(both ? identity.job : "").add(both ? "." : "").add(identity.launch);
}

}  // namespace resil
