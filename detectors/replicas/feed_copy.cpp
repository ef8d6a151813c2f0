// SPDX-License-Identifier: Apache-2.0
//
// A copy: its calls of MPI are not carried out; each says what its leader's has said. See feed.h.

#include <unistd.h>

#include <cstdio>

#include "detectors/replicas/feed.h"
#include "detectors/replicas/messages.h"
#include "detectors/replicas/requests.h"
#include "detectors/replicas/words.h"
#include "shim/abi/backend.h"
#include "shim/call/fed_comms.h"
#include "shim/call/inside_mpi.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"
#include "shim/report/log.h"
#include "shim/runtime/memory.h"
#include "shim/tables/call_data.h"
#include "shim/tables/tables.h"

namespace resil::replicas {

namespace text = messages::replicas;

namespace {

Head next;  // a run of polls that is not used up: count > 0
bool over, left;  // nothing is fed any more; the program has been left

/// The copy makes another call than its leader, or with other arguments: from here on what it would be fed is not its
/// own.
[[noreturn]] void diverge(Thread& thread, const char* call, const char* why) {
  add_note_format(text::copy_left, call, why);
  words_diverge(thread);
  left = true;
  leave_program(thread, true);
}

[[noreturn]] void diverge(Event& e, const char* why) { diverge(*e.thread, call_info(e.id).name, why); }

constexpr const char* kOtherAmount = "its leader got another amount of data";
constexpr const char* kWentOn = "its leader went on";
constexpr const char* kOtherPoll = "its leader found nothing by another call";

/// It is fed no more.
[[noreturn]] void lost(Thread& thread) {
  words_leave();
  left = true;
  leave_program(thread, false);
}

void get(Event& e, void* to, size_t bytes) {
  if (!feed_get(*e.thread, to, bytes)) lost(*e.thread);
}
int64_t get_number(Event& e) {
  int64_t number = 0;
  get(e, &number, sizeof(number));
  return number;
}

/// The next item; it is about this call, or the copy has diverged.
void take_head(Thread& thread, Item item, CallId id, uint32_t name, Head* head) {
  if (!feed_get(thread, head, sizeof(*head)) || head->item == Item::kGivenUp) lost(thread);
  const bool is = head->item == item || (item == Item::kCall && head->item == Item::kPolls);
  const bool same = is && head->call == static_cast<uint16_t>(id);
  if (same && head->name == name) return;
  char why[96];
  snprintf(why, sizeof(why), "its leader called %s%s",
           head->call < kCallCount ? call_info(static_cast<CallId>(head->call)).name : "nothing",
           same ? " with other arguments" : "");
  diverge(thread, call_info(id).name, why);
}

void find_nothing(Event& e) {
  if (e.flag != nullptr) *e.flag = 0;
  if (e.index != nullptr) *e.index = backend->replay->undefined;
  if (e.outcount != nullptr) *e.outcount = 0;
  e.result = 0;
}

/// True: the call finds nothing.
bool take(Event& e, Head* head) {
  const uint32_t name = feed_name_of(e);
  if (next.count == 0) {
    take_head(*e.thread, Item::kCall, e.id, name, head);
    if (head->item == Item::kCall) {
      e.result = head->result;
      return false;
    }
    next = *head;
  }
  if (next.call != static_cast<uint16_t>(e.id) || next.name != name) diverge(e, kOtherPoll);
  --next.count;
  find_nothing(e);
  return true;
}

void get_status(Event& e, int64_t place) {
  unsigned char status[sizeof(e.own_status)];
  if (get_number(e) == 0) return;
  get(e, status, backend->status_bytes);
  if (e.given_statuses == nullptr || backend->messages->status_ignored(e.given_statuses)) return;
  memcpy(static_cast<char*>(e.given_statuses) + static_cast<size_t>(place) * backend->status_bytes, status,
         backend->status_bytes);
}

void get_view(Event& e, const View& view, uint64_t bytes, uint64_t first = 0) {
  if (bytes > view.bytes || first > view.bytes - bytes || (bytes != 0 && view.reason != Reason::kNone))
    diverge(e, kOtherAmount);
  if (!feed_get_view(*e.thread, view, bytes, first)) lost(*e.thread);
}

void get_blocks(Event& e, const FlatTransfer& flat, uint64_t bytes) {
  uint64_t own = 0;
  if (!feed_blocks(e, flat, &own) || own != bytes) diverge(e, kOtherAmount);
  if (!feed_get_blocks(e, flat)) lost(*e.thread);
}

void get_message(Event& e) {
  get_status(e, 0);
  const auto bytes = static_cast<uint64_t>(get_number(e));
  if (bytes != 0) get_view(e, receive_view(e), bytes);
}

/// A handle that stands for the leader's request.
void stand_in(Event& e) {
  if (e.result == 0 && e.requests != nullptr && !backend->fed->request(e.requests)) lost(*e.thread);
}

void get_data(Event& e, const Request* one) {
  const auto bytes = static_cast<uint64_t>(get_number(e));
  if (bytes == 0) return;
  if (one == nullptr || one->gives) diverge(e, kOtherAmount);
  if (one->layouts != nullptr) get_blocks(e, one->layouts->takes, bytes);
  else get_view(e, one->view, bytes);
}

void get_completion(Event& e, uint32_t count) {
  if (e.flag != nullptr) *e.flag = static_cast<int>(get_number(e));
  if (e.index != nullptr) *e.index = static_cast<int>(get_number(e));
  if (e.outcount != nullptr) *e.outcount = static_cast<int>(get_number(e));
  if (count == 0 && e.index != nullptr) get_status(e, 0);
  for (uint32_t i = 0; i < count; ++i) {
    const int64_t number = get_number(e);
    if (number < 0 || number >= e.request_count) diverge(e, kOtherAmount);
    if (e.outcount != nullptr) e.indices[i] = static_cast<int>(number);
    get_status(e, e.index != nullptr ? 0 : e.outcount != nullptr ? i : number);
    const uint64_t handle = request_handle(e.requests, number);
    get_data(e, request_find(handle));
    if (handle != backend->request_null() && !request_is_persistent(*e.thread, handle))
      backend->fed->request_free(e.requests, number);
  }
}

/// An operator of the program's own is called here as well, once, on copies: it may note that it has been called.
void call_operator(Event& e) {
  FlatTransfer flat;
  if (!is_reduction(collective_of(e.id)) || backend->types->op_kind(e.op) != OpKind::kUser || !flat_sent(e, &flat))
    return;
  const View view = block_view(*e.thread, flat, flat.first);
  int64_t low = 0, high = 0;
  if (view.reason != Reason::kNone || view.bytes == 0) return;
  type_span(*view.type, view.count, &low, &high);
  const auto bytes = static_cast<size_t>(high - low);
  auto* copies = static_cast<char*>(memory::map(2 * bytes));
  if (copies == nullptr) return;
  for (const size_t at : {size_t{0}, bytes}) memcpy(copies + at, static_cast<const char*>(view.buffer) + low, bytes);
  backend->collectives->reduce_local(copies - low, copies + bytes - low, view.count, flat.type, e.op);
  memory::unmap(copies, 2 * bytes);
}

void get_collective(Event& e) {
  call_operator(e);
  if (call_info(e.id).initiation != Initiation::kBlocking) stand_in(e);
  const auto bytes = static_cast<uint64_t>(get_number(e));
  if (bytes == 0) return;
  FlatTransfer flat;
  if (!flat_received(e, &flat)) diverge(e, kOtherAmount);
  get_blocks(e, flat, bytes);
}

/// Made of the copy's own before it is known what the leader's is: callbacks of attributes come first there, too.
void get_communicator(Event& e) {
  const uint64_t parent = e.comm_handle != 0 ? e.comm_handle : backend->comm_self();
  Head head;
  const bool duplicate = comm_is_duplicated(e.id);
  if (duplicate && !backend->fed->communicator(parent, true, e.new_comm)) lost(*e.thread);
  take(e, &head);
  if (e.result != 0) return;
  int32_t shape[5];
  get(e, shape, sizeof(shape));
  if (shape[0] == 0) return backend->fed->no_communicator(e.new_comm);
  FedComm comm = {0, shape[0], shape[1], shape[2], shape[3], shape[4], nullptr};
  const size_t all = static_cast<size_t>(comm.size) + static_cast<size_t>(comm.remote_size > 0 ? comm.remote_size : 0);
  comm.members = memory::map_array<int32_t>(all);
  if (comm.members == nullptr) lost(*e.thread);
  get(e, comm.members, all * sizeof(int32_t));
  if (!duplicate && !backend->fed->communicator(parent, false, e.new_comm)) lost(*e.thread);
  comm.handle = request_handle(e.new_comm, 0);
  if (!fed_add(comm)) lost(*e.thread);
  memory::unmap_array(comm.members, all);
  if (call_info(e.id).comm == CommCall::kConnect)
    for (int64_t i = 0, codes = get_number(e); i < codes; ++i) {
      const auto code = static_cast<int>(get_number(e));
      if (e.indices != nullptr) e.indices[i] = code;
    }
  if (e.attributes & kCallStarts) stand_in(e);
}

/// A new file of its own, with nothing in it, gone from its directory at once.
void open_stand_in(Event& e) {
  static unsigned serial;
  char name[1300];
  if (e.result != 0) return;
  snprintf(name, sizeof(name), "%s/rank-%05d.file-%u", runtime.directory, runtime.rank, serial++);
  if (!backend->fed->file(name, e.new_file)) lost(*e.thread);
  unlink(name);
}

void get_arrived(Event& e) {
  *e.flag = static_cast<int>(get_number(e));
  const auto bytes = static_cast<uint64_t>(get_number(e));
  const Request* one = request_find(request_handle(e.requests, 0));
  if (bytes == 0) return;
  if (one == nullptr || one->gives || e.partition < 0 || e.partition >= one->partitions) diverge(e, kOtherAmount);
  get_view(e, one->view, bytes, bytes * static_cast<uint64_t>(e.partition));
}

void get_split_end(Event& e) {
  get_status(e, 0);
  const auto bytes = static_cast<uint64_t>(get_number(e));
  const Request* one = request_find(split_handle(e));
  if (bytes == 0) return;
  if (one == nullptr) diverge(e, kOtherAmount);
  get_view(e, one->view, bytes);
}

/// True: MPI is to carry the call out on the stand-in, too.
bool get_file(Event& e) {
  const FileCall file = call_info(e.id).file;
  if (call_info(e.id).initiation == Initiation::kSplitBegin) return false;
  if (call_info(e.id).initiation == Initiation::kSplitEnd) return get_split_end(e), false;
  if (call_info(e.id).initiation != Initiation::kBlocking) return stand_in(e), false;
  if (file == FileCall::kRead || file == FileCall::kWrite) return get_message(e), false;
  if (file == FileCall::kOpen) open_stand_in(e);
  return e.result == 0 && (file == FileCall::kClose || file == FileCall::kSetView);
}

}  // namespace

bool copy_execute(Event& e) {
  const CallInfo& info = call_info(e.id);
  if (info.call_class == CallClass::kBuffer || info.call_class == CallClass::kLifecycle ||
      info.call_class == CallClass::kLocal)
    return false;
  if (info.comm == CommCall::kFree) return false;  // copy_leave()
  e.result = 0;
  if (over) return true;  // callbacks inside MPI_Finalize
  if (e.nested) lost(*e.thread);
  if (info.call_class == CallClass::kComm) {
    get_communicator(e);
  } else {
    Head head;
    if (take(e, &head)) return true;
    switch (info.call_class) {
      case CallClass::kReceive:
      case CallClass::kSend:
      case CallClass::kSendReceive:
      case CallClass::kSendReceiveReplace:
      case CallClass::kMatchedReceive:
        if (info.call_class == CallClass::kMatchedReceive && !backend->fed->message_take(e.message)) lost(*e.thread);
        if (info.initiation != Initiation::kBlocking) stand_in(e);
        else if (info.call_class != CallClass::kSend) get_message(e);
        break;
      case CallClass::kProbe:
      case CallClass::kMatchedProbe:
        if (e.attributes & kCallPoll) *e.flag = static_cast<int>(get_number(e));
        get_status(e, 0);
        if (info.call_class == CallClass::kMatchedProbe) {
          const bool none = get_number(e) != 0;
          if (e.result == 0 && !backend->fed->message(e.message, none)) lost(*e.thread);
        }
        break;
      case CallClass::kCompletion: get_completion(e, head.count); break;
      case CallClass::kGetStatus:
        *e.flag = static_cast<int>(get_number(e));
        get_status(e, 0);
        get_data(e, request_find(request_handle(e.requests, 0)));
        break;
      case CallClass::kRequestFree:
        if (e.result == 0) backend->fed->request_free(e.requests, 0);
        break;
      case CallClass::kPartitionedSend:
      case CallClass::kPartitionedReceive: stand_in(e); break;
      case CallClass::kPartitionArrived: get_arrived(e); break;
      case CallClass::kPartitionReady:
      case CallClass::kCancel:
      case CallClass::kStart: break;
      case CallClass::kCollective: get_collective(e); break;
      case CallClass::kFile:
        if (get_file(e)) return false;
        break;
      default: diverge(e, "it cannot be handed over");
    }
  }
  if (e.result != 0 && info.call_class != CallClass::kFile)
    backend->fed->raise(e.comm_handle != 0 ? e.comm_handle : backend->comm_self(), e.result);
  return true;
}

void copy_leave(const Event& e) {
  if (call_info(e.id).comm == CommCall::kFree && e.result == 0) fed_remove(e.comm_handle);
}

int copy_answer(CallId id, const Answer* answers, int count) {
  Thread& thread = *current_thread;
  if (over) return 0;
  const InsideMpi inside(thread);
  Head head;
  if (count < 0) lost(thread);  // nobody can say
  if (next.count != 0) diverge(thread, call_info(id).name, kOtherPoll);
  take_head(thread, Item::kAnswer, id, 0, &head);
  if (static_cast<int>(head.count) != count) diverge(thread, call_info(id).name, kOtherAmount);
  for (int i = 0; head.result == 0 && i < count; ++i) {
    uint64_t bytes = 0;
    if (!feed_get(thread, &bytes, sizeof(bytes))) lost(thread);
    if (bytes != 0 && (answers[i].at == nullptr || bytes > answers[i].bytes))
      diverge(thread, call_info(id).name, kOtherAmount);
    if (!feed_get(thread, answers[i].at, bytes)) lost(thread);
  }
  return head.result;
}

void copy_end(Thread& thread) {
  if (over) return;
  over = true;
  Head head;
  // More than its leader's program has done to its end? Then it has ended too early.
  if (!left && (next.count != 0 || (feed_get(thread, &head, sizeof(head)) && head.item != Item::kGivenUp)))
    words_diverge(thread);
  feed_pass_over(thread);
}

void copy_aborts(Thread& thread, const char* how) {
  if (!feeding || over) return;
  Head head;
  // The leader's program ends here as well, and the job with it: nothing comes. Or it goes on.
  if (next.count != 0 || feed_get(thread, &head, sizeof(head))) diverge(thread, how, kWentOn);
}

}  // namespace resil::replicas
