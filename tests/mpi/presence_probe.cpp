// SPDX-License-Identifier: Apache-2.0
//
// Speaks the presence exchange without the rest of resil. Writes one JSON object a rank to the file
// PROBE_OUTPUT or to standard output.
// Arguments: --silent publishes nothing; --modes M; --version V; --directory D; --no-files sets the flag; --files hides
// PMIx and PMI-1 from the exchange; --spawn spawns two children (which get the same arguments) and waits for them;
// --late lets rank 1 come half a second after the others; --stop LINE ends like a bad configuration on all ranks;
// --no-messages sends none between the ranks; --end adds an object that is made after MPI_Finalize.
#include <dirent.h>
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "shim/presence/compare.h"
#include "shim/presence/identity.h"
#include "shim/presence/presence.h"
#include "shim/presence/stop.h"

namespace {

int entries(const char* path) {
  DIR* folder = opendir(path);
  int count = -2;
  while (folder && readdir(folder)) ++count;
  if (folder) closedir(folder);
  return count;
}

/// Signals that have a handler or are ignored, as a bit mask.
unsigned long handled() {
  unsigned long mask = 0;
  for (int number = 1; number < 32; ++number) {
    struct sigaction action;
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_DFL) mask |= 1ul << number;
  }
  return mask;
}

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// To the file PROBE_OUTPUT: what a spawned process prints may get lost on the way through a daemon.
void emit(const char* line, int length) {
  const char* path = getenv("PROBE_OUTPUT");
  int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0644) : STDOUT_FILENO;
  if (write(fd, line, static_cast<size_t>(length)) != length) exit(3);
  if (path) close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  resil::PresenceValue value{"0.1.0", "watch", 42, 0, getpid(), "host", 1};
  bool silent = false, spawn = false, late = false, files_only = false, at_end = false, messages = true;
  const char* directory = nullptr;
  const char* stop = nullptr;
  for (int i = 1; i < argc; ++i) {
    const char* next = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--silent")) silent = true;
    if (!strcmp(argv[i], "--spawn")) spawn = true;
    if (!strcmp(argv[i], "--late")) late = true;
    if (!strcmp(argv[i], "--files")) files_only = true;
    if (!strcmp(argv[i], "--end")) at_end = true;
    if (!strcmp(argv[i], "--no-messages")) messages = false;
    if (!strcmp(argv[i], "--modes")) snprintf(value.modes, sizeof value.modes, "%s", next);
    if (!strcmp(argv[i], "--version")) snprintf(value.version, sizeof value.version, "%s", next);
    if (!strcmp(argv[i], "--no-files")) value.flags |= resil::kNoFiles;
    if (!strcmp(argv[i], "--directory")) directory = next;
    if (!strcmp(argv[i], "--stop")) stop = next;
  }
#ifdef OPEN_MPI
  resil::LaunchIdentity identity = resil::launch_identity(resil::MpiFamily::kOpenMpi);
#else
  resil::LaunchIdentity identity = resil::launch_identity(resil::MpiFamily::kMpich);
#endif
  if (late && identity.rank == 1) usleep(500000);
  char text[208];
  resil::presence_format(value, text, sizeof text);
  double before = now();
  const char* hidden[] = {getenv("PMIX_NAMESPACE"), getenv("MPI_LOCALNRANKS")};
  char kept[2][256] = {};
  for (int i = 0; i < 2; ++i)
    if (hidden[i]) snprintf(kept[i], sizeof kept[i], "%s", hidden[i]);
  if (files_only) unsetenv("PMIX_NAMESPACE"), unsetenv("MPI_LOCALNRANKS");
  bool published = !silent && resil::presence_publish(identity, directory, text);
  if (files_only && hidden[0]) setenv("PMIX_NAMESPACE", kept[0], 1);
  if (files_only && hidden[1]) setenv("MPI_LOCALNRANKS", kept[1], 1);
  double publishing = now() - before;
  if (stop) resil::stop_configuration(identity, stop, -1);
  resil::launch_export(identity);
  MPI_Init(&argc, &argv);
  resil::launch_unexport(identity);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  static resil::PresenceComparison comparison;
  before = now();
  resil::PresenceVerdict verdict = resil::presence_collect(rank, size, resil::PresenceComparison::visit, &comparison);
  double collecting = now() - before;
  int threads = entries("/proc/self/task"), files = entries("/proc/self/fd");
  unsigned long signals = handled();
  // The MPI library must still work.
  if (messages) {
    MPI_Comm duplicate;
    MPI_Comm_dup(MPI_COMM_WORLD, &duplicate);
    int sum = 0, one = 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, duplicate);
    if (sum != size) MPI_Abort(MPI_COMM_WORLD, 7);
    MPI_Comm_free(&duplicate);
  }
  char name[160], difference[512], missing[512];
  resil::directory_name(identity, name, sizeof name);
  comparison.describe_difference(difference, sizeof difference);
  comparison.describe_missing(identity, size, strcmp(verdict.carrier, "files") == 0, missing, sizeof missing);
  char line[2048];
  int length = snprintf(
      line, sizeof line,
      "{\"rank\": %d, \"size\": %d, \"identity_rank\": %d, \"identity_size\": %d, \"local_rank\": %d, "
      "\"local_size\": %d, "
      "\"world\": %d, \"launcher\": \"%s\", \"launch\": \"%s\", \"key\": \"%s\", \"directory\": \"%s\", "
      "\"singleton\": %d, "
      "\"agreed\": %d, \"published\": %d, \"carrier\": \"%s\", \"missing\": %d, \"missing_ranks\": \"%s\", "
      "\"synchronised\": %d, \"equal\": %d, \"without_files\": \"%s\", \"difference\": \"%s\", \"advice\": \"%s\", "
      "\"threads\": %d, \"files\": %d, \"signals\": %lu, \"publish_us\": %.0f, "
      "\"collect_us\": %.0f, \"pid\": %d}\n",
      rank, size, identity.rank, identity.size, identity.local_rank, identity.local_size, identity.world,
      identity.launcher, identity.launch, identity.key, name, identity.singleton, identity.agreed, published,
      verdict.carrier, verdict.missing, comparison.missing().text(), verdict.synchronised, comparison.equal(),
      comparison.without_files().text(), difference, missing, threads, files, signals, publishing * 1e6,
      collecting * 1e6, getpid());
  emit(line, length);
  MPI_Comm parent, children;
  MPI_Comm_get_parent(&parent);
  if (parent == MPI_COMM_NULL && spawn) {
    MPI_Comm_spawn(argv[0], argv + 1, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    MPI_Barrier(children);
    MPI_Comm_disconnect(&children);
  } else if (parent != MPI_COMM_NULL) {
    MPI_Barrier(parent);
    MPI_Comm_disconnect(&parent);
  }
  MPI_Finalize();
  resil::presence_close();
  if (at_end) {
    length = snprintf(line, sizeof line, "{\"rank\": %d, \"world\": %d, \"threads\": %d}\n", rank, identity.world,
                      entries("/proc/self/task"));
    emit(line, length);
  }
  return 0;
}
