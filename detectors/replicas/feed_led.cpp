// SPDX-License-Identifier: Apache-2.0
//
// A leader: what each call has brought goes to its copies. See feed.h.

#include "detectors/replicas/feed.h"
#include "detectors/replicas/messages.h"
#include "detectors/replicas/requests.h"
#include "detectors/replicas/words.h"
#include "shim/abi/backend.h"
#include "shim/call/dispatch.h"
#include "shim/call/fed_comms.h"
#include "shim/call/inside_mpi.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"
#include "shim/report/log.h"
#include "shim/tables/call_data.h"
#include "shim/tables/tables.h"

namespace resil::replicas {

namespace text = messages::replicas;

namespace {

Head polls;  // not told yet: item 0, none
uint64_t last_send;
bool given_up;

void put_polls(Thread& thread) {
  if (polls.count == 0) return;
  feed_put(thread, &polls, sizeof(polls));
  polls.count = 0;
}

void put_head(Event& e, uint32_t count = 0) {
  put_polls(*e.thread);
  const Head head = {Item::kCall, static_cast<uint16_t>(e.id), e.result, feed_name_of(e), count};
  feed_put(*e.thread, &head, sizeof(head));
}

void put_number(Event& e, int64_t number) { feed_put(*e.thread, &number, sizeof(number)); }

void give_up(Event& e, const char* why) { led_give_up(*e.thread, call_info(e.id).name, why); }

bool has_statuses(const Event& e) {
  return e.given_statuses != nullptr && !backend->messages->status_ignored(e.given_statuses);
}

void put_status(Event& e, int64_t place) {
  const bool has = has_statuses(e);
  put_number(e, has);
  if (has)
    feed_put(*e.thread, static_cast<const char*>(e.given_statuses) + static_cast<size_t>(place) * backend->status_bytes,
             backend->status_bytes);
}

/// How much of the buffer a receive has filled. Of a file, Open MPI says nothing about cancelling.
bool bytes_received(const Event& e, int64_t place, const View& view, CallId by, uint64_t* bytes) {
  StatusInfo status;
  *bytes = 0;
  if (!has_statuses(e)) return false;
  backend->messages->status_read(e.given_statuses, place, &status);
  if ((status.cancelled && class_of(by) != CallClass::kFile) || status.bytes == 0) return true;
  *bytes = status.bytes < view.bytes ? status.bytes : view.bytes;
  return view.reason == Reason::kNone;
}

constexpr const char* kNotReadable = "its data cannot be read";

/// A blocking call that takes one message, or data of a file.
void put_message(Event& e, bool none) {
  uint64_t bytes = 0;
  const View view = none ? View{} : receive_view(e);
  if (e.result == 0 && !none && !bytes_received(e, 0, view, e.id, &bytes)) return give_up(e, kNotReadable);
  put_head(e);
  put_status(e, 0);
  put_number(e, static_cast<int64_t>(bytes));
  feed_put_view(*e.thread, view, bytes);
}

/// What request number i has brought: bytes of a message, or of blocks.
bool bytes_of_request(Event& e, const Request* one, int64_t status, uint64_t* bytes) {
  *bytes = 0;
  if (one == nullptr || one->gives || (one->persistent && !one->active)) return true;
  if (one->layouts != nullptr) return !one->layouts->takes_any || feed_blocks(e, one->layouts->takes, bytes);
  if (!one->whole) return bytes_received(e, status, one->view, one->id, bytes);
  *bytes = one->view.bytes;
  return one->view.reason == Reason::kNone;
}

const Request* request_at(const Event& e, int64_t i) {
  return request_find(e.request_count == 1 ? e.saved_few[0] : request_handle(e.saved_requests, i));
}

void put_data(Event& e, const Request* one, uint64_t bytes) {
  put_number(e, static_cast<int64_t>(bytes));
  if (bytes == 0) return;
  if (one->layouts != nullptr) feed_put_blocks(e, one->layouts->takes);
  else feed_put_view(*e.thread, one->view, bytes);
}

constexpr const char* kOneTooMany = "its request cannot be followed";
bool is_followed(const Event& e) { return request_find(request_handle(e.requests, 0)) != nullptr; }

void put_completion(Event& e) {
  if (e.result != 0) return give_up(e, "it returned an error");
  if (e.saved_requests == nullptr && e.request_count > 0) return give_up(e, "there was no memory");
  Completed completed;
  uint64_t bytes;
  uint32_t count = 0;
  for (; feed_completed(e, count, &completed); ++count)
    if (!bytes_of_request(e, request_at(e, completed.request), completed.status, &bytes))
      return give_up(e, kNotReadable);
  put_head(e, count);
  if (e.flag != nullptr) put_number(e, *e.flag);
  if (e.index != nullptr) put_number(e, *e.index);
  if (e.outcount != nullptr) put_number(e, *e.outcount);
  // MPI_Waitany and the like without a request that is active give an empty status.
  if (count == 0 && e.index != nullptr) put_status(e, 0);
  for (int64_t i = 0; feed_completed(e, i, &completed); ++i) {
    const Request* one = request_at(e, completed.request);
    bytes_of_request(e, one, completed.status, &bytes);
    put_number(e, completed.request);
    put_status(e, completed.status);
    put_data(e, one, bytes);
  }
}

void put_status_of_request(Event& e) {
  const Request* one = request_find(request_handle(e.requests, 0));
  uint64_t bytes = 0;
  if (e.result != 0) return give_up(e, "it returned an error");
  if (!bytes_of_request(e, one, 0, &bytes)) return give_up(e, kNotReadable);
  put_head(e);
  put_number(e, *e.flag);
  put_status(e, 0);
  put_data(e, one, bytes);
}

void put_collective(Event& e) {
  if (call_info(e.id).counts == Counts::kTyped) return give_up(e, "it has a type for each rank");
  FlatTransfer flat;
  uint64_t bytes = 0;
  const bool blocking = call_info(e.id).initiation == Initiation::kBlocking;
  const bool at_once = !blocking && e.result == 0 && request_is_shared(request_handle(e.requests, 0));
  const bool any = e.result == 0 && moves_data(collective_of(e.id)) && flat_received(e, &flat);
  if (e.result == 0 && moves_data(collective_of(e.id)) && !any && flat.any()) return give_up(e, kNotReadable);
  if (any && (blocking || at_once) && !feed_blocks(e, flat, &bytes)) return give_up(e, kNotReadable);
  if (any && !blocking && !at_once && !is_followed(e)) return give_up(e, kOneTooMany);
  put_head(e);
  put_number(e, static_cast<int64_t>(bytes));
  if (bytes != 0) feed_put_blocks(e, flat);
}

/// A receive, or a read, whose data comes later.
void put_receive(Event& e, bool none) {
  if (e.result == 0 && !none && !is_followed(e)) return give_up(e, kOneTooMany);
  put_head(e);
}

/// Of processes that have been started: one for each of them.
void put_error_codes(Event& e, int processes) {
  const int codes = e.indices != nullptr ? processes : 0;
  put_number(e, codes);
  for (int i = 0; i < codes; ++i) put_number(e, e.indices[i]);
}

/// Size, rank and members of a communicator: what a copy is told of its own.
void put_communicator(Event& e) {
  put_head(e);
  if (e.result != 0) return;
  // A duplicate is as what it is of, and may not be there yet.
  const uint64_t handle = comm_is_duplicated(e.id) ? e.comm_handle : request_handle(e.new_comm, 0);
  int32_t shape[5] = {0, 0, -1, -1, -1};
  if (handle == backend->comm_null() || !backend->comm_shape(handle, &shape[0], &shape[1], &shape[2]))
    return feed_put(*e.thread, shape, sizeof(shape));
  int in = -1, out = -1;
  if (backend->comm_degree(handle, &in, &out)) shape[3] = in, shape[4] = out;
  feed_put(*e.thread, shape, sizeof(shape));
  for (const bool remote : {false, true})
    for (int first = 0, size = shape[remote ? 2 : 0]; first < size; first += 256) {
      int ranks[256], world[256];
      const int count = size - first < 256 ? size - first : 256;
      for (int i = 0; i < count; ++i) ranks[i] = first + i, world[i] = -1;
      backend->comm_world_ranks(handle, remote, count, ranks, world);
      feed_put(*e.thread, world, static_cast<size_t>(count) * sizeof(int));
    }
  if (call_info(e.id).comm == CommCall::kConnect) put_error_codes(e, shape[2]);
}

/// A partition that has come, or, of a request that is not active, nothing.
void put_arrived(Event& e) {
  const Request* one = request_find(request_handle(e.requests, 0));
  if (e.result != 0) return give_up(e, "it returned an error");
  const bool any = one != nullptr && !one->gives && one->active && one->partitions > 0 && e.partition >= 0;
  if (any && one->view.reason != Reason::kNone) return give_up(e, kNotReadable);
  const uint64_t bytes = any ? one->view.bytes / static_cast<uint64_t>(one->partitions) : 0;
  put_head(e);
  put_number(e, *e.flag);
  put_number(e, static_cast<int64_t>(bytes));
  if (bytes != 0) feed_put_view(*e.thread, one->view, bytes, bytes * static_cast<uint64_t>(e.partition));
}

/// The second call of split collective access: what has been read is there.
void put_split_end(Event& e) {
  if (call_info(e.id).file != FileCall::kRead) return put_message(e, true);
  const Request* one = request_find(split_handle(e));
  uint64_t bytes = 0;
  if (e.result == 0 && one == nullptr) return give_up(e, kOneTooMany);
  if (e.result == 0 && !bytes_received(e, 0, one->view, e.id, &bytes)) return give_up(e, kNotReadable);
  put_head(e);
  put_status(e, 0);
  put_number(e, static_cast<int64_t>(bytes));
  if (bytes != 0) feed_put_view(*e.thread, one->view, bytes);
}

void put_file(Event& e) {
  switch (call_info(e.id).initiation) {
    case Initiation::kSplitBegin: return put_head(e);
    case Initiation::kSplitEnd: return put_split_end(e);
    case Initiation::kPersistent:
    case Initiation::kNonblocking: return put_receive(e, call_info(e.id).file != FileCall::kRead);
    case Initiation::kBlocking: break;
  }
  if (call_info(e.id).file == FileCall::kRead || call_info(e.id).file == FileCall::kWrite)
    return put_message(e, call_info(e.id).file == FileCall::kWrite);
  put_head(e);
}

}  // namespace

void led_leave(Event& e) {
  if (e.nested) return give_up(e, "a callback of the program calls it");
  if (feed_found_nothing(e) && class_of(e.id) != CallClass::kWindow) {
    const uint32_t name = feed_name_of(e);
    if (polls.count != 0 && (polls.name != name || polls.call != static_cast<uint16_t>(e.id))) put_polls(*e.thread);
    polls = {Item::kPolls, static_cast<uint16_t>(e.id), 0, name, polls.count + 1};
    return;
  }
  switch (class_of(e.id)) {
    case CallClass::kLocal:
    case CallClass::kLifecycle: return;
    case CallClass::kBuffer:
      if (call_info(e.id).initiation != Initiation::kBlocking) give_up(e, "it is not followed");
      return;
    case CallClass::kSend:
    case CallClass::kPartitionedSend:
    case CallClass::kPartitionReady: put_head(e); return;
    case CallClass::kReceive:
    case CallClass::kMatchedReceive: {
      const bool none = !(data_flow_of(e.id) & kMessage) && e.peer == ring::kProcNull;
      return call_info(e.id).initiation == Initiation::kBlocking ? put_message(e, none) : put_receive(e, none);
    }
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace: {
      const bool none = e.receive_peer == ring::kProcNull;
      return call_info(e.id).initiation == Initiation::kBlocking ? put_message(e, none) : put_receive(e, none);
    }
    case CallClass::kProbe:
    case CallClass::kMatchedProbe:
      put_head(e);
      if (e.attributes & kCallPoll) put_number(e, *e.flag);
      put_status(e, 0);
      if (class_of(e.id) == CallClass::kMatchedProbe)
        put_number(e, e.result == 0 && backend->fed->message_is_none(e.message));
      return;
    case CallClass::kCompletion: return put_completion(e);
    case CallClass::kGetStatus: return put_status_of_request(e);
    case CallClass::kRequestFree:
      if (const Request* one = request_at(e, 0); one != nullptr && !one->gives && (!one->persistent || one->active))
        return give_up(e, "it frees a request whose data has not come");
      return put_head(e);
    case CallClass::kCancel:
    case CallClass::kStart: return put_head(e);
    case CallClass::kCollective: return put_collective(e);
    case CallClass::kComm:
      switch (call_info(e.id).comm) {
        case CommCall::kCreate:
        case CommCall::kCreateFromGroup:
        case CommCall::kIntercommCreate:
        case CommCall::kConnect: return put_communicator(e);
        case CommCall::kFree: return;
        default: return give_up(e, "it is not followed");
      }
    case CallClass::kFile: return put_file(e);
    case CallClass::kPartitionedReceive: return put_receive(e, e.peer == ring::kProcNull);
    case CallClass::kPartitionArrived: return put_arrived(e);
    case CallClass::kGeneralizedRequest:
    case CallClass::kWindow:
    case CallClass::kRma: return give_up(e, "it is not followed");
  }
}

void led_progress(uint64_t now, bool poll) {
  if (!feeding && !feed_has_news()) return;
  const auto second = static_cast<uint64_t>(runtime.header->ticks_per_second);
  if (now - last_send < second / (poll ? 5000 : 50000)) return;
  last_send = now;
  if (current_thread != nullptr) put_polls(*current_thread);
  feed_send();
}

void led_end(Thread& thread) {
  put_polls(thread);
  feed_stream_end(thread);
}

void led_answer(CallId id, int result, const Answer* answers, int count) {
  Thread& thread = *current_thread;
  if (!feeding) return;
  const InsideMpi inside(thread);
  put_polls(thread);
  const Head head = {Item::kAnswer, static_cast<uint16_t>(id), result, 0, static_cast<uint32_t>(count)};
  feed_put(thread, &head, sizeof(head));
  for (int i = 0; result == 0 && i < count; ++i) {
    const uint64_t bytes = answers[i].at != nullptr ? answers[i].bytes : 0;
    feed_put(thread, &bytes, sizeof(bytes));
    feed_put(thread, answers[i].at, bytes);
  }
}

void led_give_up(Thread& thread, const char* call, const char* why) {
  put_polls(thread);
  const Head head = {Item::kGivenUp, 0, 0, 0, 0};
  feed_put(thread, &head, sizeof(head));
  words_give_up();
  log_format(text::given_up, place.rank, call, why);
  add_note_format(text::given_up, place.rank, call, why);
  given_up = true;
  feed_send();
  feeding = false;
}

bool led_has_given_up() { return given_up; }

}  // namespace resil::replicas
