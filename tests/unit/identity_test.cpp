// SPDX-License-Identifier: Apache-2.0
//
// Identity from invented environments, rank lists, the presence value and what a set of values allows.
#include "shim/presence/identity.h"

#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "shim/presence/compare.h"

namespace {

using resil::LaunchIdentity;
using resil::MpiFamily;

bool pmix_linked = false;
std::string kvs_answer;  // what hydra would say; "" when it is not there

LaunchIdentity identity(std::vector<std::string> variables, MpiFamily family = MpiFamily::kUnknown) {
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  return resil::launch_identity({environment.data(), family, 1234, 99, pmix_linked, [](char* name, size_t size) {
                                   if (kvs_answer.empty() || kvs_answer.size() >= size) return false;
                                   strcpy(name, kvs_answer.c_str());
                                   return true;
                                 }});
}

std::string directory(const LaunchIdentity& identity) {
  char name[160];
  resil::directory_name(identity, name, sizeof name);
  return name;
}

std::vector<std::string> openmpi(const char* rank, const char* space, const char* parent = nullptr) {
  std::vector<std::string> variables = {std::string("OMPI_COMM_WORLD_RANK=") + rank,
                                        "OMPI_COMM_WORLD_SIZE=4",
                                        "OMPI_COMM_WORLD_LOCAL_RANK=1",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                                        std::string("PMIX_RANK=") + rank,
                                        std::string("PMIX_NAMESPACE=") + space};
  if (parent) variables.push_back(std::string("OMPI_PARENT_PORT=") + parent);
  return variables;
}

const std::vector<std::string> kHydra = {"PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=8", "MPI_LOCALRANKID=1",
                                         "MPI_LOCALNRANKS=2"};

}  // namespace

TEST_CASE("no launcher: a singleton, named after its own process") {
  LaunchIdentity found = identity({"PATH=/bin"});
  CHECK(found.singleton);
  CHECK(found.agreed);
  CHECK(found.rank == 0);
  CHECK(found.size == 1);
  CHECK(directory(found) == "resil-1234");
}

TEST_CASE("Open MPI 4: rank, size and namespace") {
  LaunchIdentity found = identity(openmpi("3", "1958346753"), MpiFamily::kOpenMpi);
  CHECK_FALSE(found.singleton);
  CHECK(found.rank == 3);
  CHECK(found.size == 4);
  CHECK(found.local_rank == 1);
  CHECK(found.local_size == 2);
  CHECK(found.world == 0);
  CHECK(found.agreed);
  CHECK(directory(found) == "resil-1958346753");
}

TEST_CASE("Open MPI 4: spawned worlds count on and share the launch") {
  LaunchIdentity child = identity(openmpi("0", "1958346754", "1958346753.0:130"), MpiFamily::kOpenMpi);
  LaunchIdentity grandchild = identity(openmpi("0", "1958346756", "1958346754.0:130"), MpiFamily::kOpenMpi);
  CHECK(child.world == 1);
  CHECK(grandchild.world == 3);
  CHECK(std::string(child.launch) == "1958346753");
  CHECK(std::string(grandchild.launch) == "1958346753");
  CHECK(std::string(child.key) == "1958346753-w1");
  // The parent was a singleton, named after its process.
  std::vector<std::string> orphan = openmpi("0", "1958346755", "1958346753.0:130");
  orphan.push_back("RESIL_INTERNAL_LAUNCH=777");
  CHECK(std::string(identity(orphan, MpiFamily::kOpenMpi).launch) == "777");
  CHECK(identity(orphan, MpiFamily::kOpenMpi).world == 2);
  // A persistent daemon numbers its launches; they are no spawned worlds.
  LaunchIdentity second = identity(openmpi("0", "1958346754"), MpiFamily::kOpenMpi);
  CHECK(second.world == 0);
  CHECK(std::string(second.launch) == "1958346754");
}

TEST_CASE("Open MPI 5: PRRTE's namespaces") {
  LaunchIdentity first = identity(openmpi("0", "prterun-node7-4711@1"), MpiFamily::kOpenMpi);
  LaunchIdentity child = identity(openmpi("0", "prterun-node7-4711@3"), MpiFamily::kOpenMpi);
  CHECK(std::string(first.launch) == "prterun-node7-4711_1");
  CHECK(first.world == 0);
  CHECK(std::string(child.launch) == "prterun-node7-4711_1");
  CHECK(child.world == 2);
  LaunchIdentity persistent = identity(openmpi("0", "prte-node7-4711@3"), MpiFamily::kOpenMpi);
  CHECK(persistent.world == 0);
  CHECK(std::string(persistent.launch) == "prte-node7-4711_3");
}

TEST_CASE("Open MPI 5: worlds that a singleton spawned are not taken for the first world") {
  // The singleton starts a daemon when it spawns, whose first job the children are.
  LaunchIdentity child = identity(openmpi("0", "prte-node7-4711@1", "7.0:99"), MpiFamily::kOpenMpi);
  LaunchIdentity other = identity(openmpi("1", "prte-node7-4711@1", "7.0:99"), MpiFamily::kOpenMpi);
  CHECK(child.world > 0);
  CHECK(child.world == other.world);
  CHECK(std::string(child.key) == other.key);
}

TEST_CASE("hydra: the name of the key-value space without what differs between worlds") {
  kvs_answer = "kvs_6345_0_972310129_vm";
  LaunchIdentity found = identity(kHydra, MpiFamily::kMpich);
  CHECK(found.rank == 1);
  CHECK(found.local_size == 2);
  CHECK(found.world == 0);
  CHECK(found.agreed);
  CHECK(directory(found) == "resil-kvs_6345_vm");
  std::vector<std::string> spawned = kHydra;
  spawned.push_back("PMI_SPAWNED=1");
  kvs_answer = "kvs_6345_2_11_vm";
  LaunchIdentity child = identity(spawned, MpiFamily::kMpich);
  CHECK(child.world == 2);
  CHECK(std::string(child.launch) == "kvs_6345_vm");
  kvs_answer = "kvs_6345_0_node-1.site";  // the older form
  CHECK(directory(identity(kHydra, MpiFamily::kMpich)) == "resil-kvs_6345_node-1.site");
  kvs_answer = "kvs_2_-52_-511_vm";  // not hydra's: no world before the first
  CHECK(identity(kHydra, MpiFamily::kMpich).world == 0);
  kvs_answer = "something/else";
  CHECK(directory(identity(kHydra, MpiFamily::kMpich)) == "resil-something_else");
  kvs_answer = "";
  found = identity(kHydra, MpiFamily::kMpich);
  CHECK(std::string(found.launch) == "99");
  CHECK_FALSE(found.agreed);
}

TEST_CASE("the wrong launcher makes singletons") {
  CHECK(identity(kHydra, MpiFamily::kOpenMpi).singleton);
  // MPICH under Open MPI's mpirun starts as so many singletons, unless it speaks PMIx.
  CHECK(identity(openmpi("3", "1958346753"), MpiFamily::kMpich).singleton);
  pmix_linked = true;
  CHECK(identity(openmpi("3", "1958346753"), MpiFamily::kMpich).rank == 3);
  pmix_linked = false;
}

TEST_CASE("Slurm: a step, not the batch script; job and step in the directory's name") {
  std::vector<std::string> step = {"SLURM_JOB_ID=48213", "SLURM_PROCID=5",  "SLURM_STEP_NUM_TASKS=8",
                                   "SLURM_STEP_ID=2",    "SLURM_LOCALID=1", "SLURM_NTASKS=64"};
  LaunchIdentity found = identity(step, MpiFamily::kMpich);
  CHECK(found.rank == 5);
  CHECK(found.size == 8);
  CHECK(found.local_size == -1);
  CHECK(directory(found) == "resil-48213.2");
  CHECK(identity(step).local_size == -1);
  const std::pair<const char*, int> layouts[] = {{"3,5(x2)", 5}, {"2(x4)", 2},    {"8", -1},  {"5(x", -1},
                                                 {"(x2)", -1},   {"1,0(x9)", -1}, {"7,", -1}, {"1,2,3,4", 3}};
  for (const auto& [layout, tasks] : layouts) {
    std::vector<std::string> third = step;
    third.insert(third.end(), {"SLURM_NODEID=2", std::string("SLURM_STEP_TASKS_PER_NODE=") + layout});
    CHECK(identity(third).local_size == tasks);
  }
  LaunchIdentity script = identity({"SLURM_JOB_ID=48213", "SLURM_PROCID=0", "SLURM_NTASKS=64"}, MpiFamily::kMpich);
  CHECK(script.singleton);
  CHECK(directory(script) == "resil-48213.1234");
  std::vector<std::string> array = step;
  array.insert(array.end(), {"SLURM_ARRAY_JOB_ID=48200", "SLURM_ARRAY_TASK_ID=13"});
  CHECK(directory(identity(array, MpiFamily::kMpich)) == "resil-48200_13.2");
  // srun --mpi=pmix
  LaunchIdentity pmix = identity({"SLURM_JOB_ID=48213", "PMIX_RANK=5", "PMIX_NAMESPACE=slurm.pmix.48213.2"});
  CHECK(directory(pmix) == "resil-48213.2");
  CHECK(pmix.size == -1);
  // mpirun inside a job: remote daemons run in a step of their own, local ones do not; both must say the same.
  std::vector<std::string> local = openmpi("0", "1958346753"), remote = openmpi("3", "1958346753");
  local.push_back("SLURM_JOB_ID=48213");
  remote.insert(remote.end(), step.begin(), step.end());
  CHECK(directory(identity(local, MpiFamily::kOpenMpi)) == "resil-48213.1958346753");
  CHECK(directory(identity(remote, MpiFamily::kOpenMpi)) == "resil-48213.1958346753");
}

TEST_CASE("other launchers and schedulers") {
  LaunchIdentity pals = identity(
      {"PBS_JOBID=12.host/x", "PALS_RANKID=7", "PALS_LOCAL_RANKID=3", "PMI_RANK=7", "PMI_SIZE=16", "PALS_APID=ab-cd"});
  CHECK(pals.rank == 7);
  CHECK(pals.size == 16);
  CHECK(directory(pals) == "resil-12.host_x.ab-cd");
  LaunchIdentity flux = identity({"FLUX_TASK_RANK=2", "FLUX_JOB_SIZE=4", "FLUX_TASK_LOCAL_ID=0", "FLUX_JOB_ID=f2xyz"});
  CHECK(flux.rank == 2);
  CHECK(directory(flux) == "resil-f2xyz");
  LaunchIdentity rsh = identity({"MV2_COMM_WORLD_RANK=1", "MV2_COMM_WORLD_SIZE=2"});
  CHECK(std::string(rsh.launch) == "99");
  CHECK_FALSE(rsh.agreed);
  CHECK(identity({"LSB_JOBID=5", "PMI_RANK=-1"}).singleton);
  CHECK(std::string(identity({"LSB_JOBID=5", "LSB_JOBINDEX=0"}).job) == "5");
  CHECK(std::string(identity({"LSB_JOBID=5", "LSB_JOBINDEX=3"}).job) == "5_3");
  CHECK(std::string(identity({"PBS_JOBID=12[3].host"}).job) == "12_3_.host");
  CHECK(std::string(identity({"JOB_ID=8", "SGE_TASK_ID=undefined"}).job) == "8");
  CHECK(std::string(identity({"JOB_ID=8", "SGE_TASK_ID=2"}).job) == "8_2");
  CHECK(std::string(identity({"JOB_ID=8"}).job).empty());
}

TEST_CASE("a long name is cut to one that still differs from others") {
  LaunchIdentity one = identity(openmpi("0", (std::string(200, 'a') + "1").c_str()));
  LaunchIdentity two = identity(openmpi("0", (std::string(200, 'a') + "2").c_str()));
  CHECK(strlen(one.launch) == 63);
  CHECK(std::string(one.launch) != two.launch);
}

TEST_CASE("rank lists") {
  auto text = [](std::vector<int> ranks) {
    resil::RankList list;
    for (int rank : ranks) list.add(rank);
    CHECK(list.count() == static_cast<int>(ranks.size()));
    return std::string(list.text());
  };
  CHECK(text({}).empty());
  CHECK(text({0}) == "0");
  CHECK(text({2, 3, 4, 5, 7}) == "2-5,7");
  CHECK(text({1, 2, 4}) == "1,2,4");
  std::vector<int> odd;
  for (int rank = 1; rank < 200; rank += 2) odd.push_back(rank);
  std::string cut = text(odd);
  CHECK(cut.substr(0, 8) == "1,3,5,7,");
  CHECK(cut.size() < 120);
  CHECK(cut.substr(cut.size() - 4) == ",...");
  std::vector<int> all;
  for (int rank = 0; rank < 100000; ++rank) all.push_back(rank);
  CHECK(text(all) == "0-99999");
}

TEST_CASE("the presence value survives the journey") {
  resil::PresenceValue value{"0.1.0",
                             "watch,checksum",
                             0xfedcba9876543210,
                             resil::kNoFiles,
                             321,
                             "node|7",
                             0xabcdef0123456789,
                             0xfedcba9876543211,
                             "resil-a-20261122T1315Z-4700_3.0"};
  char text[352];
  resil::presence_format(value, text, sizeof text);
  resil::PresenceValue back{};
  REQUIRE(resil::presence_parse(text, &back));
  CHECK(std::string(back.version) == "0.1.0");
  CHECK(std::string(back.modes) == "watch,checksum");
  CHECK(back.settings == 0xfedcba9876543210);
  CHECK(back.flags == resil::kNoFiles);
  CHECK(back.pid == 321);
  CHECK(back.nonce == 0xabcdef0123456789);
  CHECK(back.claim == 0xfedcba9876543211);
  CHECK(std::string(back.place) == "resil-a-20261122T1315Z-4700_3.0");
  for (const char* bad :
       {"", "2|0.1.0|watch|1|0|1|1|h", "3|0.1.0|watch|x|0|1|1|1||h", "3|0.1.0|watch|1|0|1|1|h", "3|0.1.0"})
    CHECK_FALSE(resil::presence_parse(bad, &back));
  resil::PresenceValue longest{};
  memset(longest.version, 'v', sizeof longest.version - 1);
  memset(longest.modes, 'm', sizeof longest.modes - 1);
  memset(longest.host, 'h', sizeof longest.host - 1);
  longest.settings = 1ull << 63;
  longest.flags = ~0u;
  longest.pid = INT32_MAX;
  longest.nonce = longest.claim = 1ull << 63;
  memset(longest.place, 'p', sizeof longest.place - 1);
  resil::presence_format(longest, text, sizeof text);
  CHECK(strlen(text) < 350);
  CHECK(resil::presence_parse(text, &back));
}

TEST_CASE("the comparison names the minority") {
  auto text = [](const char* version, const char* modes, uint64_t settings = 1) {
    resil::PresenceValue value{};
    strcpy(value.version, version);
    strcpy(value.modes, modes);
    value.settings = settings;
    char buffer[208];
    resil::presence_format(value, buffer, sizeof buffer);
    return std::string(buffer);
  };
  std::string usual = text("0.1.0", "watch"), other_mode = text("0.1.0", "off"), newer = text("0.2.0", "watch");
  char line[512];
  {
    resil::PresenceComparison all;
    for (int rank = 0; rank < 4; ++rank) all.add(rank, usual.c_str());
    CHECK(all.all_present());
    CHECK(all.equal());
    all.describe_difference(line, sizeof line);
    CHECK(std::string(line).empty());
  }
  {
    resil::PresenceComparison some;
    for (int rank = 0; rank < 8; ++rank) some.add(rank, rank >= 2 && rank <= 5 ? nullptr : usual.c_str());
    CHECK_FALSE(some.all_present());
    CHECK(some.equal());
    CHECK(std::string(some.missing().text()) == "2-5");
    some.describe_missing(identity(openmpi("0", "1958346753")), 8, false, line, sizeof line);
    CHECK(std::string(line).find("resil: ranks 2-5 of 8 run without resil.") == 0);
    CHECK(std::string(line).find("mpirun -x LD_PRELOAD") != std::string::npos);
    CHECK(std::string(line).find("do not share this report directory") == std::string::npos);
    // Files that another node may not see are no proof that its ranks lack the library; of this node's they are.
    resil::LaunchIdentity of_node = identity(openmpi("0", "1958346753"));
    of_node.local_size = 2;
    some.describe_missing(of_node, 8, true, line, sizeof line);
    CHECK(std::string(line).find(
              "resil: ranks 2-5 of 8 run without resil, or on nodes that do not share this report directory.") == 0);
    CHECK(std::string(line).find("set RESIL_DIR to a directory that all nodes share. Preload every rank: mpirun -x") !=
          std::string::npos);
    of_node.local_size = 8;
    some.describe_missing(of_node, 8, true, line, sizeof line);
    CHECK(std::string(line).find("do not share this report directory") == std::string::npos);
  }
  {
    resil::PresenceComparison mixed;
    mixed.add(0, other_mode.c_str());
    for (int rank = 1; rank < 6; ++rank) mixed.add(rank, usual.c_str());
    mixed.add(6, newer.c_str());
    mixed.add(7, "9|something new");
    CHECK_FALSE(mixed.equal());
    CHECK(mixed.first_present() == 0);
    mixed.describe_difference(line, sizeof line);
    CHECK(std::string(line) ==
          "resil: the ranks of this job disagree: rank 0 has resil 0.1.0, RESIL_MODE=off; rank 6 has resil 0.2.0, "
          "RESIL_MODE=watch; rank 7 has another version of resil; ranks 1-5 have resil 0.1.0, RESIL_MODE=watch. Give "
          "all ranks the same library and the same variables. Stopping with exit status 93.");
  }
  {
    resil::PresenceComparison settings;
    settings.add(0, usual.c_str());
    settings.add(1, usual.c_str());
    settings.add(2, text("0.1.0", "watch", 2).c_str());
    settings.describe_difference(line, sizeof line);
    CHECK(std::string(line).find("rank 2 has other values of RESIL_ variables;") != std::string::npos);
  }
  {
    resil::PresenceComparison many;
    for (int rank = 0; rank < 20; ++rank) many.add(rank, text("0.1.0", "watch", static_cast<uint64_t>(rank)).c_str());
    CHECK_FALSE(many.equal());
  }
}
