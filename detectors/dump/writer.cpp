// SPDX-License-Identifier: Apache-2.0
//
// One dump. The ring's part is on disk before any other thread is asked anything: whatever happens then, the most
// important lines are there. May touch: RESIL_DIR, standard error, Header::dumps.
#include "detectors/dump/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "detectors/dump/python.h"
#include "shim/call/runtime.h"
#include "shim/report/own_files.h"

namespace resil::dump {
namespace {

constexpr uint32_t kMostNumbers = 10000;  // older dumps in the same directory that are stepped over
constexpr size_t kTailBytes = 1300;  // of the short form: where the file is
constexpr int kTimeoutMs = 500;  // for standard error to take the short form

void make_path(char* path, size_t capacity, uint32_t number) {
  SafeText text(path, capacity - 1, -1);
  text.safe(runtime.directory, sizeof runtime.directory).str("/dump-");
  if (runtime.rank >= 0) text.padded(static_cast<uint64_t>(runtime.rank), 5);
  else text.str("pid").i64(runtime.pid);  // not known before MPI_Init has returned, under some launchers
  text.chr('-').u64(number).str(".txt");
  path[text.size()] = 0;
}

/// Creates the next dump file. Returns its descriptor, or -1 with errno. Never overwrites one.
int create_file(char* path, size_t capacity, uint32_t* number) {
  const uint32_t first = *number;
  make_path(path, capacity, first);
  const int at = own_directory_to_write(runtime.directory);
  if (at < 0) return -1;
  const size_t folder = strnlen(runtime.directory, sizeof runtime.directory) + 1;
  int file = -1, error = EEXIST;
  for (; file < 0 && error == EEXIST && *number - first < kMostNumbers; *number += file < 0) {
    make_path(path, capacity, *number);
    file = own_file_create_at(at, path + folder, 0666);
    error = errno;
  }
  syscall(SYS_close, at);
  errno = error;
  return file;
}

void write_rest(const Content& content, Workspace* workspace, int signal, int file) {
  content.brief_stack(workspace->threads, "");
  put_python(content.text, file);
  content.requests();
  content.stacks(workspace->threads, signal);
  content.records();
  content.communicators();
  const uint64_t missed = runtime.header->unrecorded_calls;
  if (missed != 0) content.text.str("\nCalls of threads that found no place in the recorder: ").u64(missed).chr('\n');
  content.objects();
}

/// The short form, with where to read on. One write.
void write_brief(Workspace* workspace, const Moment& moment, int error) {
  SafeText head(workspace->brief, sizeof workspace->brief - kTailBytes, -1);
  const Content content{head, workspace->symbols, moment, workspace->pending};
  head.chr('\n');  // the program may have left its line open
  content.what_it_waits_for("resil: ", 4);
  content.progress("resil:   ");
  content.modules("resil:   ");
  content.brief_stack(workspace->threads, "resil:   ");
  const size_t used = head.size();
  if (used > 0) workspace->brief[used - 1] = '\n';  // already, unless the text was cut
  SafeText tail(workspace->brief + used, kTailBytes, -1);
  tail.str("resil:   state dump in ").str(workspace->path);
  if (error != 0) tail.str(", INCOMPLETE: ").str(error_name(error)).str(" (errno ").i64(error).chr(')');
  tail.chr('\n');
  write_patiently(2, workspace->brief, used + tail.size(), kTimeoutMs);
}

}  // namespace

void write_dump(Workspace* workspace, int signal, const ucontext_t& context, std::atomic<uint32_t>* requests) {
  uint32_t number = __atomic_load_n(&runtime.header->dumps, __ATOMIC_RELAXED);
  int file = -1;
  int open_error = 0;
  if (runtime.directory[0] != 0) {
    file = create_file(workspace->path, sizeof workspace->path, &number);
    if (file < 0) open_error = errno;
  }
  const Moment moment = moment_now();
  workspace->symbols.reset();
  find_pending(&workspace->pending);
  SafeText text(workspace->buffer, sizeof workspace->buffer, file >= 0 ? file : 2);
  const Content content{text, workspace->symbols, moment, workspace->pending};
  if (open_error != 0) {
    text.str("resil: cannot create ").str(workspace->path).str(": ").str(error_name(open_error)).str(" (errno ");
    text.i64(open_error).str("). The whole dump follows:\n");
  }
  content.what_it_waits_for("", 16);
  content.progress("");
  content.modules("");
  content.header(number, workspace->reason);
  text.flush();

  collect(&workspace->threads, signal, context);
  write_rest(content, workspace, signal, file >= 0 ? file : 2);
  if (requests != nullptr) {
    const uint32_t more = requests->exchange(0, std::memory_order_acq_rel);
    if (more != 0) text.str("\nRequests that came while this was written, answered by it: ").u64(more).chr('\n');
  }
  text.flush();
  __atomic_store_n(&runtime.header->dumps, number + 1, __ATOMIC_RELEASE);
  if (file < 0) return;
  const int close_error = syscall(SYS_close, file) != 0 && errno != EINTR ? errno : 0;
  const int error = text.error() != 0 ? text.error() : close_error;
  if (!workspace->quiet || error != 0) write_brief(workspace, moment, error);
}

void rehearse(Workspace* workspace) {
  const Moment moment = moment_now();
  workspace->symbols.reset();
  workspace->symbols.limit_search(16);  // the code is warm after that; all of the C library's take 1 ms
  find_pending(&workspace->pending, 8);  // a look at all of them makes half a megabyte resident, for 0.3 ms
  SafeText text(workspace->buffer, sizeof workspace->buffer, -1);
  const Content content{text, workspace->symbols, moment, workspace->pending, 8};
  ucontext_t context;
  getcontext(&context);
  make_path(workspace->path, sizeof workspace->path, 0);
  content.what_it_waits_for("", 1);
  content.progress("");
  content.modules("");
  content.header(0, "");
  collect(&workspace->threads, 0, context);
  write_rest(content, workspace, 0, -1);
  write_patiently(2, "", 0, 0);
}

}  // namespace resil::dump
