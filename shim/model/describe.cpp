// SPDX-License-Identifier: Apache-2.0
//
// See describe.h.

#include "shim/model/describe.h"

#include <cstring>

#include "shim/base/safe_text.h"
#include "shim/model/calls.h"

namespace resil {

namespace {

/// The word before the peer says what the peer is to this call.
const char* preposition(uint16_t call) {
  if (call >= kCallCount) return " with ";
  switch (kCallInfo[call].call_class) {
    case CallClass::kCollective: return " with root ";
    case CallClass::kWindow:
    case CallClass::kRma: return " at target ";
    case CallClass::kSend:
    case CallClass::kSendReceive:
    case CallClass::kSendReceiveReplace:
    case CallClass::kPartitionedSend: return " to ";
    case CallClass::kReceive:
    case CallClass::kMatchedReceive:
    case CallClass::kProbe:
    case CallClass::kMatchedProbe:
    case CallClass::kPartitionedReceive: return " from ";
    case CallClass::kLocal:
    case CallClass::kLifecycle:
    case CallClass::kPartitionReady:
    case CallClass::kPartitionArrived:
    case CallClass::kBuffer:
    case CallClass::kCompletion:
    case CallClass::kGetStatus:
    case CallClass::kRequestFree:
    case CallClass::kCancel:
    case CallClass::kStart:
    case CallClass::kGeneralizedRequest:
    case CallClass::kComm:
    case CallClass::kFile: return " with ";
  }
  return " with ";
}

}  // namespace

void put_call_name(SafeText& text, uint16_t call) {
  if (call < kCallCount) {
    text.str(kCallInfo[call].name);
  } else {
    text.str("call ").u64(call);
  }
}

bool put_comm(SafeText& text, const Communicators& in, uint32_t index, bool with_id) {
  if (index == 0 || in.list == nullptr) return false;
  if (index >= in.count) {
    text.str("communicator ").u64(index);
    return true;
  }
  const ring::Comm& comm = in.list[index];
  if (comm.id == 0) {
    text.str("a communicator freed meanwhile");
    return true;
  }
  if (comm.name[0] != 0) {
    text.safe(comm.name, sizeof comm.name);
  } else {
    text.str("communicator");
    with_id = true;
  }
  // The predefined ones are told apart by their names.
  if (with_id && strncmp(comm.name, "MPI_COMM_", 9) != 0) text.str(" (id ").hex(comm.id).chr(')');
  return true;
}

void put_peer(SafeText& text, int32_t peer) {
  switch (peer) {
    case ring::kAnySource: text.str("any source"); break;
    case ring::kProcNull: text.str("MPI_PROC_NULL"); break;
    case ring::kRootSelf: text.str("MPI_ROOT"); break;
    default: text.str("rank ").i64(peer);
  }
}

void put_tag(SafeText& text, int32_t tag) {
  if (tag == ring::kAnyTag) text.str(", any tag");
  else if (tag != ring::kNoTag) text.str(", tag ").i64(tag);
}

void put_call(SafeText& text, const ring::Record& record, const Communicators& in, bool with_id) {
  put_call_name(text, record.call);
  const uint32_t attributes = record.call < kCallCount ? kCallInfo[record.call].attributes : 0;
  if (record.peer != ring::kNoPeer) put_peer(text.str(preposition(record.call)), record.peer);
  put_tag(text, record.tag);
  if ((attributes & kCallCompletes) != 0 && record.aux != 0) {
    text.str(" for ").u64(record.aux).str(record.aux == 1 ? " request" : " requests");
  }
  if (record.comm != 0) {
    text.str(record.peer == ring::kNoPeer && record.tag == ring::kNoTag ? " on " : ", ");
    put_comm(text, in, record.comm, with_id);
  }
  if ((attributes & kCallCollective) != 0 && record.sequence != 0) {
    text.str(", collective ").u64(record.sequence).str(" on it");
  }
  if (record.bytes != 0) text.str(", ").bytes(record.bytes);
}

}  // namespace resil
