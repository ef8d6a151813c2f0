// SPDX-License-Identifier: Apache-2.0
//
// Attachment to a process: from the first MPI_Init (by any route) to the end. Runs on the application's thread inside
// MPI_Init and MPI_Finalize; the only place where files and memory are made.

#include "shim/call/attach.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

#include "shim/abi/backend.h"
#include "shim/base/version.h"
#include "shim/call/flight.h"
#include "shim/call/registry.h"
#include "shim/call/resolver.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/config/config_text.h"
#include "shim/libc/moved.h"
#include "shim/messages.h"
#include "shim/presence/carrier.h"
#include "shim/presence/compare.h"
#include "shim/presence/init_watch.h"
#include "shim/presence/launch.h"
#include "shim/presence/presence.h"
#include "shim/presence/stop.h"
#include "shim/report/directory.h"
#include "shim/report/found.h"
#include "shim/report/log.h"
#include "shim/report/own_files.h"
#include "shim/report/report.h"
#include "shim/ring/segment.h"
#include "shim/tables/live_objects.h"
#include "shim/tables/tables.h"

extern char** environ;

namespace resil {

namespace {

constexpr double kSweepTimeout =
    0.25;  // seconds that the end of a short job waits for the file that is being collected

LaunchIdentity identity;
std::atomic<bool> attached;
std::atomic<bool> has_world;
std::atomic<int> sessions_open;
bool world_used;  // MPI_Init succeeded and MPI_Finalize has not been called
bool late;
bool present_everywhere;
uint64_t private_handle;
uint64_t own_ticks;  // spent by resil itself in MPI_Init and MPI_Finalize
double call_ticks;  // of one recorded call
constexpr size_t kSettingsBytes = 16384;  // twice what all values may take, and their names
char site_path[512];
std::atomic<bool> switched_off;

/// First line of the library's own description; may be asked before MPI_Init.
void library_version(char* line, size_t bytes) {
  char text[8192] = "";
  int length = 0;
  line[0] = 0;
  auto* version = reinterpret_cast<int (*)(char*, int*)>(mpi_function("PMPI_Get_library_version"));
  if (version == nullptr || version(text, &length) != 0) return;
  text[strcspn(text, "\r\n,")] = 0;
  for (char* tab = strchr(text, '\t'); tab != nullptr; tab = strchr(tab, '\t')) *tab = ' ';
  snprintf(line, bytes, "%s", text);
}

/// Whose launcher started this process? The standard ABI does not tell, the library's description does.
MpiFamily family() {
  if (backend == openmpi_backend()) return MpiFamily::kOpenMpi;
  if (backend == mpich_backend()) return MpiFamily::kMpich;
  char line[128];
  library_version(line, sizeof(line));
  return strstr(line, "Open MPI") != nullptr ? MpiFamily::kOpenMpi
         : strstr(line, "MPICH") != nullptr  ? MpiFamily::kMpich
                                             : MpiFamily::kUnknown;
}

/// An MPI library that cannot start ends the process in MPI_Init. That is no kill, and the report says so.
void exit_in_init(int status, void*) {
  if (runtime.header == nullptr || runtime.pid != getpid() || !attached.load() ||
      runtime.header->phase != static_cast<uint32_t>(ring::Phase::kStarting))
    return;
  report_exit_in_init(status & 0xff);
}

/// srun starts tasks with a PMI only when it is told to, or set up so. Without it Open MPI ends in MPI_Init, by _exit.
void note_launcher_without_pmi() {
  if (strcmp(identity.launcher, "srun") != 0) return;
  for (const char* name : {"PMIX_NAMESPACE", "PMIX_RANK", "PMI_FD", "PMI_RANK", "PMI_PORT", "PMI2_JOBID"})
    if (getenv(name) != nullptr) return;
  add_note(messages::core::srun_without_pmi);
}

/// In a forked child: MPI is not the child's to use, and the ring is the parent's story.
void after_fork_in_child() {
  attached.store(false);
  thread_disable();
}

void read_configuration() {
  ConfigError error;
  const SiteFile site = site_file_read(environ);
  snprintf(site_path, sizeof(site_path), "%s", site.path != nullptr ? site.path : "");
  if (!config_load(environ, &error, site)) stop_configuration(identity, error.line, -1);
  if (identity.rank > 0) return;
  for (size_t i = 0; i < config_warning_count(); ++i) log_raw(config_warning(i));
  if (identity.world != 0 || config_integer("RESIL_HELP") == 0) return;
  char text[2048];
  for (size_t i = 0; i < config_count(); ++i) {
    config_help(i, text, sizeof(text));
    log_text(text);
  }
}

/// run.conf: what this job was set to, and by whom. Its directory is known by now.
void write_settings() {
  if (runtime.rank != 0 || runtime.directory[0] == 0) return;
  static char text[kSettingsBytes];
  const size_t length = config_run_file(site_path, text, sizeof(text));
  char path[1200];
  snprintf(path, sizeof(path), "%s/run.conf", runtime.directory);
  OwnFile file;
  if (!own_file_begin(&file, path, 0666)) return;  // a report that cannot be written either is told
  if (write(file.fd, text, length) == static_cast<ssize_t>(length)) own_file_commit(&file);
  else own_file_drop(&file);
}

/// What the other ranks must know before any message of resil's own; see presence.h.
void publish() {
  PresenceValue value = {};
  snprintf(value.version, sizeof(value.version), "%s", kVersionText);
  snprintf(value.modes, sizeof(value.modes), "%s", config_text("RESIL_MODE"));
  snprintf(value.host, sizeof(value.host), "%s", runtime.host);
  value.settings = config_hash();
  value.flags = runtime.directory[0] == 0 ? static_cast<uint32_t>(kNoFiles) : 0;
  value.pid = runtime.pid;
  value.nonce = launch_nonce();
  value.claim = directory_lock_id();
  snprintf(value.place, sizeof(value.place), "%s", directory_place());
  char text[kPresenceBytes];
  presence_format(value, text, sizeof(text));
  presence_publish(identity, runtime.directory, text);
}

/// Every rank reads all ranks' values and so comes to the same verdict without a message.
void learn_presence() {
  PresenceComparison comparison;  // about 2 KiB
  launch_expect(runtime.size);
  PresenceVerdict verdict = presence_collect(
      runtime.rank, runtime.size,
      [](int rank, const char* text, void* context) {
        static_cast<PresenceComparison*>(context)->add(rank, text);
        if (PresenceValue value; text != nullptr && presence_parse(text, &value)) {
          launch_learn(rank, value.nonce);
          directory_offer(value.claim, value.place);
        }
      },
      &comparison);
  launch_agree(verdict.synchronised);
  char line[768];
  if (!comparison.equal()) {
    comparison.describe_difference(line, sizeof(line));
    segment_discard();
    stop_configuration(identity, line, comparison.first_present());
  }
  present_everywhere = comparison.all_present() && verdict.synchronised;
  if (!verdict.published) {  // where it was not this rank's alone, every rank says so; one line is enough
    add_note_format(messages::core::not_published, runtime.rank, verdict.carrier);
    if (runtime.rank == 0) log_format(messages::core::not_published, runtime.rank, verdict.carrier);
  } else if (!comparison.all_present()) {
    comparison.describe_missing(identity, runtime.size, strcmp(verdict.carrier, "files") == 0, line, sizeof(line));
    add_note(line);
    if (runtime.rank == comparison.first_present() || comparison.first_present() < 0) log_raw(line);
  }
  if (directory_problem()[0] != 0 && strtol(comparison.without_files().text(), nullptr, 10) == runtime.rank)
    log_format(messages::core::no_directory, comparison.without_files().count() == 1 ? "" : "s",
               comparison.without_files().text(), directory_problem());
}

void warn_about_libraries() {
  if (count_mpi_libraries() > 1) {
    static std::atomic<bool> said;
    if (!said.exchange(true) && runtime.rank <= 0)  // the other ranks say it in their reports
      log_line(messages::core::two_libraries);
    add_note(messages::core::two_libraries_note);
  }
}

/// The library knows the functions of MPI 5.0; those of a newer MPI are not exported here, so that calls go straight to
/// it.
void note_newer_mpi() {
  auto* get = reinterpret_cast<int (*)(int*, int*)>(mpi_function("PMPI_Get_version"));
  int major = 0, minor = 0;
  if (get == nullptr || get(&major, &minor) != 0 || major < 5 || (major == 5 && minor == 0)) return;
  static std::atomic<bool> said;
  if (said.exchange(true)) return;
  add_note_format(messages::core::newer_mpi, major, minor);
  if (runtime.rank <= 0) log_format(messages::core::newer_mpi, major, minor);
}

/// One rank a node, after the modules, which want to know of threads of resil's own.
void sweep() {
  if (identity.local_rank <= 0) segment_sweep_start();
}

bool prepare() {
  find_threads();
  runtime.pid = getpid();
  const uint64_t began = ticks();
  launch_draw();
  identity = launch_identity(family());
  runtime.rank = identity.rank;
  runtime.size = identity.size;
  runtime.world = identity.world;
  gethostname(runtime.host, sizeof(runtime.host) - 1);
  log_begin();
  read_configuration();
  if (int64_t node = config_integer("RESIL_NODE_RANKS"); node > 0) {  // tests: a job of several nodes on one machine
    identity.local_rank = identity.rank >= 0 ? identity.rank % static_cast<int>(node) : -1;
    identity.local_size = static_cast<int>(node);
  }
  runtime.local_size = identity.local_size > 0 ? identity.local_size : 0;
  directory_prepare(identity);
  registry_enable();
  if (!segment_create(identity.key) || !tables_create() || !request_table_create()) {
    log_line(messages::core::no_recorder);
    segment_discard();
    return false;
  }
  if (segment_is_anonymous()) add_note(messages::core::recorder_anonymous);
  objects_learn_library();
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  attached.store(true);
  own_ticks += ticks() - began;
  return true;
}

}  // namespace

bool runtime_attached() { return attached.load(std::memory_order_acquire); }
bool runtime_has_world() { return has_world.load(std::memory_order_acquire); }
uint64_t private_comm() { return private_handle; }
bool all_ranks_present() { return present_everywhere; }

bool mode_is_on() {
  const char* mode = getenv("RESIL_MODE");
  return !switched_off.load(std::memory_order_relaxed) && (mode == nullptr || strcmp(mode, "off") != 0);
}

void mode_switch_off(const char* mpi_library) {
  const char* log = getenv("RESIL_LOG");
  const bool wanted = mode_is_on() && (log == nullptr || strcmp(log, "quiet") != 0);
  switched_off.store(true, std::memory_order_relaxed);
  if (wanted && launch_identity({environ, MpiFamily::kUnknown, getpid(), getppid(), true, nullptr}).rank <= 0)
    log_format(messages::core::unknown_abi, mpi_library);
}

bool attach_begin(bool sessions) {
  if (runtime.pid != 0 && runtime.pid != getpid()) return false;
  if (runtime.header == nullptr) {
    if (!prepare()) return false;
    note_launcher_without_pmi();
    report_first();
    on_exit(exit_in_init, nullptr);
    run_hooks(&Module::before_init);
    sweep();
    if (!sessions) {
      publish();
      launch_export(identity);
      init_watch_begin(identity);
    }
  } else if (!attached.exchange(true)) {  // MPI again after an end: only sessions may do that
    if (current_thread != nullptr && current_thread->disabled) current_thread = nullptr;
    segment_set_phase(ring::Phase::kRunning);
  }
  return true;
}

void attach_end(int result, bool sessions) {
  if (!sessions && !late) launch_unexport(identity);
  if (result != 0) {
    init_watch_end();
    presence_close();
    return;
  }
  const uint64_t began = ticks();
  if (sessions) {
    sessions_open.fetch_add(1);
    if (!world_used) add_note(messages::core::sessions_only);
  } else {
    int remote = -1;
    backend->comm_shape(backend->comm_world(), &runtime.size, &runtime.rank, &remote);
    runtime.header->rank = runtime.rank;
    runtime.header->world_size = runtime.size;
    world_used = true;
    has_world.store(true);
    comm_register_predefined();
    backend->make_own_comm();
    if (!late) {
      learn_presence();
      if (present_everywhere) backend->dup_world(&private_handle);
    }
  }
  directory_settle();
  write_settings();
  library_version(runtime.header->mpi, sizeof(runtime.header->mpi));
  run_hooks(&Module::after_init);
  request_table_threads(!world_used || backend->thread_multiple());
  note_newer_mpi();
  warn_about_libraries();
  segment_sync_clock();
  if (runtime.header->phase == static_cast<uint32_t>(ring::Phase::kStarting)) segment_set_phase(ring::Phase::kRunning);
  call_ticks = flight::measure_cost();
  own_ticks += ticks() - began;
  report_write("running");
  init_watch_end();
}

bool attach_late() {
  static std::atomic<bool> begun;
  if (begun.exchange(true)) return runtime_attached();
  if (runtime.pid != 0 || !prepare()) return false;
  late = true;
  add_note(messages::core::initialised_unseen);
  report_first();
  run_hooks(&Module::before_init);
  sweep();
  attach_end(0, false);
  return true;
}

void stop_unusable(const char* line) {
  char text[1600];
  snprintf(text, sizeof(text), "resil: %s. Stopping with exit status 93.", line);
  segment_discard();
  stop_configuration(identity, text, -1);
}

uint64_t calls_made() {
  uint64_t calls = 0;
  for (uint32_t i = 0; i < trace_total(); ++i) calls += trace_at(i).calls;
  return calls;
}

double overhead_seconds() {
  return (static_cast<double>(own_ticks) + static_cast<double>(calls_made()) * call_ticks) /
         runtime.header->ticks_per_second;
}

bool session_closed() { return sessions_open.fetch_sub(1) == 1 && !world_used; }

void finish_begin() {
  segment_set_phase(ring::Phase::kFinalizing);
  run_hooks_reverse(&Module::before_finalize);
  found_mark();
}

void finish_end() {
  const uint64_t began = ticks();
  has_world.store(false);
  world_used = false;
  run_hooks_reverse(&Module::after_finalize);
  presence_close();
  segment_sweep_end(kSweepTimeout);
  warn_about_libraries();
  segment_sync_clock();
  segment_set_phase(ring::Phase::kFinished);
  own_ticks += ticks() - began;
  report_final("finished");
  attached.store(false);
  thread_disable();
}

void finish_apart() {
  has_world.store(false);
  presence_close();
  segment_sweep_end(kSweepTimeout);
  segment_sync_clock();
  segment_set_phase(ring::Phase::kFinished);
  report_final("finished");
}

void finish_stopped(int exit_status) {
  segment_set_phase(ring::Phase::kStopped);
  runtime.header->exit_status = static_cast<uint32_t>(exit_status);
  segment_sync_clock();
  report_final("stopped");
}

void finish_abort(int errorcode) {
  run_hooks_reverse(&Module::before_abort, errorcode, false);
  segment_set_phase(ring::Phase::kAborted);
  runtime.header->exit_status = static_cast<uint32_t>(errorcode);
  run_hooks_reverse(&Module::on_abort, errorcode);
  segment_sync_clock();
  report_final("aborted");
}

}  // namespace resil
