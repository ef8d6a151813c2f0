// SPDX-License-Identifier: Apache-2.0
//
// RESIL_REPLICAS: one job as two or three identical ones. See docs/REPLICAS.md. Here: the split in MPI_Init, what is
// refused, and what followers keep to themselves.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "detectors/replicas/feed.h"
#include "detectors/replicas/files.h"
#include "detectors/replicas/input.h"
#include "detectors/replicas/messages.h"
#include "detectors/replicas/output.h"
#include "detectors/replicas/paths.h"
#include "detectors/replicas/ranks.h"
#include "detectors/replicas/times.h"
#include "detectors/replicas/words.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/call/attach.h"
#include "shim/call/dispatch.h"
#include "shim/call/module.h"
#include "shim/call/parts.h"
#include "shim/call/registry.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/report/finding.h"
#include "shim/report/json.h"
#include "shim/report/log.h"
#include "shim/report/report.h"
#include "shim/runtime/mailbox.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/part_stream.h"
#include "shim/tables/call_data.h"

namespace resil::replicas {

namespace {

namespace text = messages::replicas;

bool check_list(Slice text, ValueProblem* problem) {
  RankList ranks;
  return text == "all" || ranks.parse(text, problem);
}

constexpr ConfigEntry kConfig[] = {
    {"RESIL_REPLICAS", ConfigType::kInteger, "1..3", "1",
     "runs the program in that many parts of the job at once, each on its share of the ranks (docs/REPLICAS.md)"},
    {"RESIL_REPLICAS_FOLLOW", ConfigType::kChoice, "none|clocks|all", "all",
     "what is in each part what it was in the leading one: nothing, clocks, or also random numbers, names of hosts and "
     "what MPI chooses (messages from any source, polls)"},
    {"RESIL_REPLICAS_RANKS", ConfigType::kText, "all, or ranks and ranges of ranks, as in 0,3-5", "all",
     "with RESIL_REPLICAS: the ranks of the program that have copies; the job has so many ranks more "
     "(docs/REPLICAS.md)",
     check_list},
    {"RESIL_REPLICAS_SECONDS", ConfigType::kReal, "0.1..1000000", "60",
     "how long a part waits for what the leading one was told or chose, and for messages that came there; and how long "
     "the "
     "leading one waits, at least twice that, for a part that says nothing"},
};

int parts;  // RESIL_REPLICAS
PartPlace own;  // as `place`, from the start on
RankList list;
bool has_threads;  // MPI_THREAD_MULTIPLE
bool begun, comparing;

/// What each rank tells the others.
struct About {
  uint64_t program, arguments, host, list;
  char name[64];
  char node[65], processor[191];  ///< as the program is told: by the system, by MPI
};

About* hosts;  // of all ranks
bool share_node;  // some partners do
bool unlike;  // parts lie on their nodes in different ways

[[gnu::format(printf, 1, 2)]] [[noreturn]] void stop(const char* format, ...) {
  char line[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  stop_unusable(line);
}

uint64_t hash_of_file(const char* path) {
  char text[4096];
  uint64_t hash = 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  for (ssize_t bytes; (bytes = read(file, text, sizeof(text) - 1)) > 0;)
    for (ssize_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<unsigned char>(text[i])) * 0x100000001b3;
  close(file);
  return hash;
}

About about_this_rank() {
  About place = {};
  char path[1024];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
  path[length > 0 ? length : 0] = 0;
  place.program = hash_text(path);
  place.list = hash_text(config_text("RESIL_REPLICAS_RANKS"));
  place.arguments = hash_of_file("/proc/self/cmdline");
  place.host = hash_text(runtime.host);
  if (const int64_t node = config_integer("RESIL_NODE_RANKS"); node > 0)  // tests: several nodes on one machine
    place.host = hash_combine(place.host, static_cast<uint64_t>(runtime.rank / node));
  snprintf(place.name, sizeof(place.name), "%s", runtime.host);
  if (gethostname(place.node, sizeof(place.node) - 1) != 0) place.node[0] = 0;
  if (!backend->parts->processor_name(place.processor, sizeof(place.processor))) place.processor[0] = 0;
  return place;
}

/// The rank of the program that a world rank is a copy of.
int leader_of(int world_rank) {
  if (world_rank < own.members) return world_rank;
  const int copy = (world_rank - own.members) % own.copies;
  return own.fed ? list.rank_at(copy) : copy;
}

/// Stops the job where partners run different programs, and says where they share a node without need.
void compare_places() {
  const About here = about_this_rank();
  About* all = memory::map_array<About>(static_cast<size_t>(runtime.size));
  if (all == nullptr || !mailbox::allgather(&here, sizeof(here), all)) stop(text::no_split);
  int nodes = 0, sharing = -1, partner = -1;
  for (int rank = 0; rank < runtime.size; ++rank) {
    bool seen = false;
    for (int other = 0; other < rank && !seen; ++other) seen = all[other].host == all[rank].host;
    nodes += !seen;
    if (all[rank].list != all[0].list) stop(text::other_list, rank);
    const int leading = leader_of(rank);
    const About& leader = all[leading];
    if (all[rank].program != leader.program || all[rank].arguments != leader.arguments)
      stop(text::other_program, parts, rank, leading);
    for (int other = 0; other < rank && sharing < 0; ++other)
      if (leader_of(other) == leading && all[other].host == all[rank].host) sharing = other, partner = rank;
  }
  share_node = sharing >= 0;
  if (nodes == 1) {
    add_note(text::one_node);
  } else if (sharing >= 0) {
    if (runtime.rank == 0) log_format(text::share_node, sharing, partner, all[sharing].name, nodes);
    add_note_format(text::share_node, sharing, partner, all[sharing].name, nodes);
  }
  hosts = all;
  // Is each part spread over its nodes as the others are? Node-local ranks are data that programs use.
  for (int rank = own.members; rank < runtime.size && !own.fed; ++rank) {
    int first = own.first_of(own.part_of(rank)), leaders = 0;
    while (all[first].host != all[rank].host) ++first;
    while (all[leaders].host != all[leader_of(rank)].host) ++leaders;
    if (leader_of(first) != leaders) unlike = true;
  }
}

/// Variables in which launchers tell a rank its place, as they would be without the other parts.
void tell_environment() {
  struct Variable {
    const char* name;
    enum { kRank, kSize, kLocalRank, kLocalSize } what;
  };
  constexpr Variable kVariables[] = {{"OMPI_COMM_WORLD_RANK", Variable::kRank},
                                     {"OMPI_COMM_WORLD_SIZE", Variable::kSize},
                                     {"OMPI_COMM_WORLD_LOCAL_RANK", Variable::kLocalRank},
                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", Variable::kLocalSize},
                                     {"OMPI_COMM_WORLD_NODE_RANK", Variable::kLocalRank},
                                     {"MPI_LOCALRANKID", Variable::kLocalRank},
                                     {"MPI_LOCALNRANKS", Variable::kLocalSize},
                                     {"MV2_COMM_WORLD_RANK", Variable::kRank},
                                     {"MV2_COMM_WORLD_SIZE", Variable::kSize},
                                     {"MV2_COMM_WORLD_LOCAL_RANK", Variable::kLocalRank},
                                     {"MV2_COMM_WORLD_LOCAL_SIZE", Variable::kLocalSize},
                                     {"SLURM_PROCID", Variable::kRank},
                                     {"SLURM_LOCALID", Variable::kLocalRank},
                                     {"SLURM_NTASKS", Variable::kSize},
                                     {"SLURM_NPROCS", Variable::kSize}};
  // Of a copy that is fed: as its leader, whose communicators its own are.
  const int first = own.fed ? 0 : own.first_of(own.part);
  const uint64_t here = hosts[first + own.rank].host;
  int local_rank = 0, local_size = 0;
  for (int i = 0; i < own.members; ++i) {
    if (hosts[first + i].host != here) continue;
    ++local_size;
    local_rank += i < own.rank;
  }
  const int values[] = {own.rank, own.members, local_rank, local_size};
  for (const Variable& variable : kVariables) {
    if (getenv(variable.name) == nullptr) continue;
    char value[16];
    snprintf(value, sizeof(value), "%d", values[variable.what]);
    setenv(variable.name, value, 1);
  }
}

/// Programs send names of hosts, and group ranks by them: each part is told those of the leading one. Not where parts
/// lie on nodes in other ways: equal names must mean one node.
bool names_follow() {
  return own.part != 0 && !unlike && config_integer("RESIL_REPLICAS_FOLLOW") > 1 && hosts[runtime.rank].node[0] != 0 &&
         hosts[own.rank].node[0] != 0;
}

/// The same in variables that hold the node's name.
void tell_host(const About& here, const About& leader) {
  files_host(leader.node);
  constexpr const char* kVariables[] = {"HOSTNAME", "SLURMD_NODENAME"};
  for (const char* name : kVariables)
    if (const char* value = getenv(name); value != nullptr && strcmp(value, here.node) == 0)
      setenv(name, leader.node, 1);
}

char last_words[1300];  // of a follower: where its standard error goes

/// Followers print nothing. What one says on standard error stays in a file until its end, for the case that it alone
/// fails. `output`: what it prints is kept.
void silence(bool output) {
  log_apart();
  snprintf(last_words, sizeof(last_words), "%s/rank-%05d.stderr", runtime.directory, runtime.rank);
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  const int file = open(last_words, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0600);
  if (null >= 0 && !output) syscall(SYS_dup3, null, STDOUT_FILENO, 0);
  if (null >= 0) syscall(SYS_dup3, file >= 0 ? file : null, STDERR_FILENO, 0);
  if (null >= 0) close(null);
  if (file >= 0) close(file);
}

void refuse(const char* call) {
  // All ranks of all parts come here: one says it, unless it does not come.
  const timespec pause = {0, 300000000};
  if (runtime.rank != 0) nanosleep(&pause, nullptr);
  log_format(text::refused_call, call);
  add_note_format(text::refused_call, call);
  stop_job(93);
}

/// A process that ends without MPI_Finalize.
void end_output(int, void*) {
  if (runtime.pid != getpid()) return;
  output_end();
  output_forget(runtime.rank);
}

/// A follower leaves the last word to part 0, which comes to the same end unless this one alone has failed.
void before_abort(int, bool) {
  output_drain();
  const timespec pause = {0, 900000000};
  if (begun && own.is_fed() && comparing && current_thread != nullptr)
    copy_aborts(*current_thread, "a call that ends the job");
  if (begun && own.part != 0) nanosleep(&pause, nullptr);
}

bool some_ranks_only() { return strcmp(config_text("RESIL_REPLICAS_RANKS"), "all") != 0; }

bool enabled() {
  parts = static_cast<int>(config_integer("RESIL_REPLICAS"));
  return parts > 1 || some_ranks_only();
}

/// Where this rank stands. Stops where the job has not the ranks for it.
PartPlace find_place() {
  if (!some_ranks_only()) {
    if (runtime.size % parts != 0) {
      const int fewer = runtime.size / parts * parts;
      stop(text::does_not_divide, parts, runtime.size, fewer > 0 ? fewer : parts, fewer + parts);
    }
    const int members = runtime.size / parts, rank = runtime.rank % members;
    return {parts, runtime.rank / members, members, rank, members, rank, false};
  }
  ValueProblem problem;
  if (parts < 2) stop(text::list_alone);
  if (!list.parse(slice_of(config_text("RESIL_REPLICAS_RANKS")), &problem)) stop(text::list_alone);
  const int64_t copies = list.ranks() * (parts - 1), members = runtime.size - copies;
  if (members <= list.highest())
    stop(text::list_does_not_fit, config_text("RESIL_REPLICAS_RANKS"), list.highest(), parts, runtime.size,
         static_cast<long long>(members > 0 ? members : 0), static_cast<long long>(copies),
         static_cast<long long>(copies + list.highest() + 1));
  if (config_has("RESIL_MODE", "record") || config_has("RESIL_MODE", "verify"))
    stop(text::list_and_mode, config_text("RESIL_MODE"));
  if (backend->thread_multiple()) stop(text::list_and_threads);
  PartPlace found = {parts, 0, static_cast<int>(members), runtime.rank, static_cast<int>(list.ranks()), 0, true};
  if (runtime.rank >= found.members) {
    found.part = 1 + (runtime.rank - found.members) / found.copies;
    found.rank = list.rank_at((runtime.rank - found.members) % found.copies);
  }
  found.copy = list.number_of(found.rank);
  return found;
}

/// Where the files of this rank's part are kept. Copies of some ranks only: by the rank that they are of.
const char* trees_of(int rank) {
  static char directory[1100];
  if (!own.fed) return runtime.directory;
  snprintf(directory, sizeof(directory), "%s/of-%d", runtime.directory, rank);
  mkdir(directory, 0700);
  return directory;
}

/// A copy's program ends without MPI_Finalize, by itself or as its leader's does.
void copy_exits(int, void*) {
  if (runtime.pid == getpid() && begun && comparing && current_thread != nullptr) copy_aborts(*current_thread, "exit");
}

void before_init() { files_scan(true, false); }

void after_init() {
  if (begun || runtime.world > 0) return;  // worlds that are spawned belong to the part that spawned them
  if (!runtime_has_world()) stop(text::sessions_only);
  if (!mailbox::is_open()) stop(text::not_everywhere, parts, runtime.size);
  own = find_place();
  compare_places();
  const int part = own.part;
  if (!mailbox::agree(runtime.directory[0] != 0 && (!own.has_partner() || paths_begin(trees_of(own.rank), part))))
    stop(text::no_directory);
  tell_environment();
  const About& leader = hosts[own.rank];
  const bool names = names_follow();
  if (names) tell_host(hosts[runtime.rank], leader);
  if (!parts_begin(own, {.file = own.has_partner() ? file_of_mpi : nullptr,
                         .refuse = refuse,
                         .may_differ = may_differ,
                         .waiting = dropped_look,
                         .hopeful = dropped_hopeful,
                         .processor = names && leader.processor[0] != 0 ? leader.processor : nullptr,
                         .tell = led_answer,
                         .told = copy_answer}))
    stop(text::no_split);
  has_threads = backend->thread_multiple();
  comparing = !has_threads;
  const bool output = comparing && !own.fed && config_integer("RESIL_REPLICAS_FOLLOW") > 1 && output_begin();
  const bool followed = mailbox::agree(output);
  files_scan(part == 0, true);
  if (own.part != 0) silence(output);
  if (output) on_exit(end_output, nullptr);
  if (own.rank == 0 && own.has_partner()) {
    char file[1200];
    snprintf(file, sizeof(file), "%s/part-0.input", runtime.directory);
    input_begin(part == 0, file);
  }
  begun = true;
  if (unlike) may_differ("parts lie on nodes in different ways");
  if (!comparing) {
    add_note(text::threads_not_compared);
    return;
  }
  dropped_begin(followed);
  if (!own.has_partner()) return;
  words_begin();
  if (own.fed) {
    feed_begin();
    choices_follow = true;  // a copy is told
    if (own.is_fed()) {
      runtime.header->fed = 1;
      on_exit(copy_exits, nullptr);
    }
    if (own.is_fed()) registry_mute([](Stage stage) { return stage == Stage::kReplicas || stage == Stage::kWatch; });
  }
  if (config_integer("RESIL_REPLICAS_FOLLOW") > 0) times_begin();
}

/// A rank that feeds copies.
bool leads_copies() { return own.fed && own.part == 0 && own.has_partner(); }

void enter(Event& e) {
  if (!begun) return;
  files_look_again();
  if (share_node && class_of(e.id) == CallClass::kWindow && call_info(e.id).window == WindowCall::kCreate) {
    share_node = false;
    if (runtime.rank == 0) log_format(text::windows, call_info(e.id).name);
    add_note_format(text::windows, call_info(e.id).name);
  }
  if (!comparing || e.nested || !own.has_partner()) return;
  static bool prepared;
  if (!prepared) {
    prepared = true;
    prepare_addresses(*e.thread);
  }
  const uint64_t now = ticks();
  dropped_call(now);
  times_call(*e.thread, (e.attributes & kCallPoll) != 0, now);
  words_progress(now);
  if (own.fed && class_of(e.id) == CallClass::kGetStatus) give_statuses(e);
  if (leads_copies()) led_progress(now, (e.attributes & kCallPoll) != 0);
  capture_enter(e);
}

void leave(Event& e) {
  if (!begun || !comparing || !own.has_partner()) return;
  // What a call completes is told before it is forgotten, what it starts once it is known.
  const bool starts = (e.attributes & kCallStarts) != 0;
  if (starts && !e.nested) capture_leave(e);
  if (leads_copies() && feeding) {
    led_leave(e);
    led_progress(ticks(), (e.attributes & kCallPoll) != 0);
  }
  if (!starts && !e.nested) capture_leave(e);
  if (own.is_fed()) copy_leave(e);
  if (!e.nested) dropped_left(ticks());
}

bool execute_instead(Event& e) { return begun && own.is_fed() && feeding && copy_execute(e); }
bool intercepts(CallId) { return some_ranks_only(); }

void progress(Thread&) {
  if (!begun || !comparing || !own.has_partner()) return;
  words_progress(ticks());
  if (leads_copies()) led_progress(ticks(), true);
  if (part_that_leads() != 0 || part_streams_are_awaited.load(std::memory_order_relaxed)) times_look();
}

double time(Thread& thread, CallId id, double value) {
  return begun && comparing && own.has_partner() ? times_told(thread, id, value) : value;
}
bool times() { return true; }

/// MPI_Finalize is the program's last call: before the real one.
void before_finalize() {
  if (!begun || !comparing || current_thread == nullptr) return;
  dropped_call(ticks());
  if (own.has_partner()) {
    if (own.is_fed()) copy_end(*current_thread);
    times_end(*current_thread);
    if (leads_copies()) led_end(*current_thread);
    words_end(*current_thread);
  } else {
    goodbye();
  }
  dropped_end(*current_thread);
  words_close();
  comparing = false;
}

/// At the end of a process that has finalised MPI; of a part's first one, when nobody writes any more.
void remove_files(int status, void*) {
  if (runtime.pid != getpid()) return;
  if (last_words[0] != 0) unlink(last_words);
  goodbye_forget(runtime.rank);
  dropped_at_exit(status);
  if (parts_without_finalize) return;
  if (own.fed ? own.has_partner() : own.rank == 0) paths_end(trees_of(own.rank), own.part);
  if (own.fed && own.has_partner()) rmdir(trees_of(own.rank));  // the last one can
  if (own.rank == 0 && own.part == 0) input_end();
}

void after_finalize() {
  if (!begun) return;
  output_end();
  if (!parts_without_finalize) output_forget(runtime.rank);
  if (const uint64_t files = paths_not_kept(); files != 0)
    add_note_format(text::not_kept, static_cast<unsigned long long>(files));
  on_exit(remove_files, nullptr);
}

void report(JsonWriter& json) {
  if (!begun) return;
  json.begin_object("replicas");
  json.integer("parts", parts);
  json.integer("part", own.part);
  json.integer("rank", own.rank);
  json.integer("ranks", own.members);
  if (own.fed) {
    json.integer("copies", own.has_partner() ? parts - 1 : 0);
    feed_report(json);
    json.boolean("given_up", led_has_given_up());
  }
  words_report(json);
  times_report(json);
  json.end_object();
  if (own.part != 0 || !own.has_partner()) return;
  if (has_threads) return report_last_words("copies are not compared with MPI_THREAD_MULTIPLE", false);
  char words[120];
  const bool all = words_in_words(words, sizeof(words));
  report_last_words(words, all);
}

constexpr Module kReplicas = {
    .name = "replicas",
    .description = "runs the program two or three times at once, on parts of the job",
    .stage = Stage::kReplicas,
    .config = kConfig,
    .enabled = enabled,
    .before_init = before_init,
    .after_init = after_init,
    .before_finalize = before_finalize,
    .after_finalize = after_finalize,
    .before_abort = before_abort,
    .enter = enter,
    .leave = leave,
    .intercepts = intercepts,
    .execute_instead = execute_instead,
    .reads_statuses = true,
    .progress = progress,
    .time = time,
    .times = times,
    .report = report,
};
RESIL_MODULE(kReplicas);

}  // namespace

const char* host_of(int world_rank) { return hosts[world_rank].name; }

void trees_end(int of_part) {
  if (!own.fed) return paths_end(runtime.directory, of_part);
  for (int copy = 0; copy < own.copies; ++copy) {
    paths_end(trees_of(list.rank_at(copy)), of_part);
    rmdir(trees_of(list.rank_at(copy)));
  }
}

void leave_program(Thread& thread, bool diverged) {
  if (diverged) last_words[0] = 0;  // they stay
  thread.depth = 1;
  finish_begin();
  if (!parts_without_finalize) backend->parts->finalize();
  finish_apart();
  remove_files(0, nullptr);
  if (parts_without_finalize) leave_together();
  _exit(0);
}

}  // namespace resil::replicas
