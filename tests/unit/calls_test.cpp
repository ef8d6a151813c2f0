// SPDX-License-Identifier: Apache-2.0
//
// shim/model/calls.h against the names that the standard gives: a function's name says its operation, how it starts
// and its variant, so that a row of shim/api/mpi.txt with another class than its name has is found.

#include <cstring>
#include <map>
#include <set>
#include <string>

#include "check.h"
#include "shim/model/calls.h"

using namespace resil;

namespace {

struct Named {
  std::string base;  // without MPI_, _c, _init and the I of a nonblocking call, in small letters
  bool nonblocking, persistent;
};

bool ends(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string small(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return text;
}

Named named(const CallInfo& info) {
  std::string name = info.name;
  name = name.substr(name.find('_') + 1);
  if (info.has(kCallLargeCount)) name.resize(name.size() - 2);
  Named made = {"", false, false};
  if (ends(name, "_init") && name != "Session_init") {
    made.persistent = true;
    name.resize(name.size() - 5);
  }
  made.base = small(name);
  return made;
}

/// The names of a class, as they begin when they start an operation: Isend, MPI_File_iread, MPI_Comm_idup, Rput.
const std::map<std::string, std::pair<Collective, Counts>> kCollectiveNames = {
    {"barrier", {Collective::kBarrier, Counts::kUniform}},
    {"bcast", {Collective::kBcast, Counts::kUniform}},
    {"gather", {Collective::kGather, Counts::kUniform}},
    {"gatherv", {Collective::kGather, Counts::kVector}},
    {"scatter", {Collective::kScatter, Counts::kUniform}},
    {"scatterv", {Collective::kScatter, Counts::kVector}},
    {"allgather", {Collective::kAllgather, Counts::kUniform}},
    {"allgatherv", {Collective::kAllgather, Counts::kVector}},
    {"alltoall", {Collective::kAlltoall, Counts::kUniform}},
    {"alltoallv", {Collective::kAlltoall, Counts::kVector}},
    {"alltoallw", {Collective::kAlltoall, Counts::kTyped}},
    {"reduce", {Collective::kReduce, Counts::kUniform}},
    {"allreduce", {Collective::kAllreduce, Counts::kUniform}},
    {"reduce_scatter", {Collective::kReduceScatter, Counts::kUniform}},
    {"reduce_scatter_block", {Collective::kReduceScatterBlock, Counts::kUniform}},
    {"scan", {Collective::kScan, Counts::kUniform}},
    {"exscan", {Collective::kExscan, Counts::kUniform}},
    {"neighbor_allgather", {Collective::kNeighborAllgather, Counts::kUniform}},
    {"neighbor_allgatherv", {Collective::kNeighborAllgather, Counts::kVector}},
    {"neighbor_alltoall", {Collective::kNeighborAlltoall, Counts::kUniform}},
    {"neighbor_alltoallv", {Collective::kNeighborAlltoall, Counts::kVector}},
    {"neighbor_alltoallw", {Collective::kNeighborAlltoall, Counts::kTyped}},
};

const std::map<std::string, CallClass> kMessageNames = {
    {"send", CallClass::kSend},
    {"bsend", CallClass::kSend},
    {"ssend", CallClass::kSend},
    {"rsend", CallClass::kSend},
    {"recv", CallClass::kReceive},
    {"mrecv", CallClass::kMatchedReceive},
    {"sendrecv", CallClass::kSendReceive},
    {"sendrecv_replace", CallClass::kSendReceiveReplace},
    {"probe", CallClass::kProbe},
    {"mprobe", CallClass::kMatchedProbe},
    {"psend", CallClass::kPartitionedSend},
    {"precv", CallClass::kPartitionedReceive},
};

const std::map<std::string, WindowCall> kWindowNames = {
    {"create", WindowCall::kCreate},
    {"allocate", WindowCall::kCreate},
    {"allocate_shared", WindowCall::kCreate},
    {"create_dynamic", WindowCall::kCreate},
    {"free", WindowCall::kFree},
    {"fence", WindowCall::kFence},
    {"post", WindowCall::kPost},
    {"start", WindowCall::kStart},
    {"complete", WindowCall::kComplete},
    {"wait", WindowCall::kWait},
    {"test", WindowCall::kTest},
    {"lock", WindowCall::kLock},
    {"lock_all", WindowCall::kLockAll},
    {"unlock", WindowCall::kUnlock},
    {"unlock_all", WindowCall::kUnlockAll},
    {"flush", WindowCall::kFlush},
    {"flush_all", WindowCall::kFlushAll},
    {"flush_local", WindowCall::kFlushLocal},
    {"flush_local_all", WindowCall::kFlushLocalAll},
    {"sync", WindowCall::kSync},
};

const std::map<std::string, RmaOperation> kRmaNames = {
    {"put", RmaOperation::kPut},
    {"get", RmaOperation::kGet},
    {"accumulate", RmaOperation::kAccumulate},
    {"get_accumulate", RmaOperation::kGetAccumulate},
    {"fetch_and_op", RmaOperation::kFetchAndOp},
    {"compare_and_swap", RmaOperation::kCompareAndSwap},
};

const std::map<std::string, CommCall> kCommNames = {
    {"comm_create", CommCall::kCreate},
    {"comm_create_group", CommCall::kCreateFromGroup},
    {"comm_create_from_group", CommCall::kCreateFromGroup},
    {"comm_dup", CommCall::kCreate},
    {"comm_dup_with_info", CommCall::kCreate},
    {"comm_split", CommCall::kCreate},
    {"comm_split_type", CommCall::kCreate},
    {"cart_create", CommCall::kCreate},
    {"cart_sub", CommCall::kCreate},
    {"graph_create", CommCall::kCreate},
    {"dist_graph_create", CommCall::kCreate},
    {"dist_graph_create_adjacent", CommCall::kCreate},
    {"intercomm_create", CommCall::kIntercommCreate},
    {"intercomm_create_from_groups", CommCall::kCreateFromGroup},
    {"intercomm_merge", CommCall::kCreate},
    {"comm_accept", CommCall::kConnect},
    {"comm_connect", CommCall::kConnect},
    {"comm_spawn", CommCall::kConnect},
    {"comm_spawn_multiple", CommCall::kConnect},
    {"comm_join", CommCall::kJoin},
    {"comm_free", CommCall::kFree},
    {"comm_disconnect", CommCall::kFree},
    {"comm_revoke", CommCall::kRevoke},
    {"comm_shrink", CommCall::kShrink},
    {"comm_agree", CommCall::kAgree},
};

const std::map<std::string, FileCall> kFileNames = {
    {"file_open", FileCall::kOpen},
    {"file_close", FileCall::kClose},
    {"file_delete", FileCall::kDelete},
    {"file_set_size", FileCall::kSetSize},
    {"file_preallocate", FileCall::kPreallocate},
    {"file_set_view", FileCall::kSetView},
    {"file_set_atomicity", FileCall::kSetAtomicity},
    {"file_seek_shared", FileCall::kSeekShared},
    {"file_sync", FileCall::kSync},
};

const std::map<std::string, LifecycleCall> kLifecycleNames = {
    {"init", LifecycleCall::kInit},
    {"init_thread", LifecycleCall::kInit},
    {"session_init", LifecycleCall::kSessionInit},
    {"finalize", LifecycleCall::kFinalize},
    {"session_finalize", LifecycleCall::kSessionFinalize},
    {"abort", LifecycleCall::kAbort},
};

const std::map<std::string, CallClass> kOtherNames = {
    {"wait", CallClass::kCompletion},
    {"waitall", CallClass::kCompletion},
    {"waitany", CallClass::kCompletion},
    {"waitsome", CallClass::kCompletion},
    {"test", CallClass::kCompletion},
    {"testall", CallClass::kCompletion},
    {"testany", CallClass::kCompletion},
    {"testsome", CallClass::kCompletion},
    {"request_get_status", CallClass::kGetStatus},
    {"request_get_status_all", CallClass::kGetStatus},
    {"request_get_status_any", CallClass::kGetStatus},
    {"request_get_status_some", CallClass::kGetStatus},
    {"request_free", CallClass::kRequestFree},
    {"cancel", CallClass::kCancel},
    {"start", CallClass::kStart},
    {"startall", CallClass::kStart},
    {"grequest_start", CallClass::kGeneralizedRequest},
    {"grequest_complete", CallClass::kGeneralizedRequest},
    {"pready", CallClass::kPartitionReady},
    {"pready_list", CallClass::kPartitionReady},
    {"pready_range", CallClass::kPartitionReady},
    {"parrived", CallClass::kPartitionArrived},
    {"buffer_detach", CallClass::kBuffer},
    {"buffer_flush", CallClass::kBuffer},
    {"buffer_iflush", CallClass::kBuffer},
    {"comm_detach_buffer", CallClass::kBuffer},
    {"comm_flush_buffer", CallClass::kBuffer},
    {"comm_iflush_buffer", CallClass::kBuffer},
    {"session_detach_buffer", CallClass::kBuffer},
    {"session_flush_buffer", CallClass::kBuffer},
    {"session_iflush_buffer", CallClass::kBuffer},
};

// Neither wait for anybody nor answer with a flag nor make a request.
const std::set<std::string> kImmediate = {
    "put",      "get",          "accumulate",        "get_accumulate", "fetch_and_op", "compare_and_swap",
    "win_sync", "pready",       "pready_list",       "pready_range",   "start",        "startall",
    "cancel",   "request_free", "grequest_complete", "comm_revoke"};

std::string without_prefix(const std::string& base, const char* prefix) {
  return base.rfind(prefix, 0) == 0 ? base.substr(strlen(prefix)) : "";
}

template <class Map>
typename Map::const_iterator found(const Map& map, std::string base, char start, bool* nonblocking) {
  *nonblocking = false;
  if (auto at = map.find(base); at != map.end()) return at;
  *nonblocking = true;
  return base[0] == start ? map.find(base.substr(1)) : map.end();
}

/// "comm_dup" of "comm_idup" too.
typename std::map<std::string, CommCall>::const_iterator found_comm(const std::string& base, bool* nonblocking) {
  *nonblocking = false;
  if (auto at = kCommNames.find(base); at != kCommNames.end()) return at;
  *nonblocking = true;
  return base.rfind("comm_i", 0) == 0 ? kCommNames.find("comm_" + base.substr(6)) : kCommNames.end();
}

/// Of a kFile: "file_iread_at" starts with what is behind file_.
bool reads_or_writes(const std::string& base, bool* nonblocking) {
  std::string call = without_prefix(base, "file_");
  *nonblocking = call[0] == 'i';
  call = call.substr(*nonblocking ? 1 : 0);
  return call.rfind("read", 0) == 0 || call.rfind("write", 0) == 0;
}

struct Meant {
  CallClass call_class = CallClass::kLocal;
  bool makes_request = false;
};

/// What the name says, whatever the row does.
Meant meant(const CallInfo& info) {
  const Named name = named(info);
  bool nonblocking = false;
  const auto made = [&](CallClass call_class) { return Meant{call_class, nonblocking || name.persistent}; };
  if (found(kCollectiveNames, name.base, 'i', &nonblocking) != kCollectiveNames.end())
    return made(CallClass::kCollective);
  if (const auto at = found(kMessageNames, name.base, 'i', &nonblocking); at != kMessageNames.end()) {
    nonblocking = nonblocking && at->second != CallClass::kProbe && at->second != CallClass::kMatchedProbe;
    return made(at->second);
  }
  if (found(kRmaNames, name.base, 'r', &nonblocking) != kRmaNames.end()) return made(CallClass::kRma);
  if (found_comm(name.base, &nonblocking) != kCommNames.end()) return made(CallClass::kComm);
  if (reads_or_writes(name.base, &nonblocking)) return made(CallClass::kFile);
  nonblocking = false;
  if (kFileNames.count(name.base)) return made(CallClass::kFile);
  if (kWindowNames.count(without_prefix(name.base, "win_"))) return made(CallClass::kWindow);
  if (kLifecycleNames.count(name.base)) return made(CallClass::kLifecycle);
  if (const auto at = kOtherNames.find(name.base); at != kOtherNames.end()) {
    nonblocking = name.base == "grequest_start" || name.base.find("iflush") != std::string::npos;
    return made(at->second);
  }
  return {};
}

}  // namespace

TEST_CASE("the class of every row is what its name says, and so is how it returns") {
  for (const CallInfo& info : kCallInfo) {
    const std::string base = named(info).base;
    const Meant row = meant(info);
    INFO(info.name);
    CHECK(info.call_class == row.call_class);
    CHECK(info.has(kCallLocal) == (row.call_class == CallClass::kLocal));
    CHECK(info.has(kCallStarts) == row.makes_request);
    CHECK(info.has(kCallPersistent) == named(info).persistent);
    const bool asks = base.rfind("test", 0) == 0 || base == "iprobe" || base == "improbe" || base == "win_test" ||
                      base == "parrived" || base.rfind("request_get_status", 0) == 0;
    const bool local = row.call_class == CallClass::kLocal;
    CHECK(info.has(kCallPoll) == (asks && !local));
    CHECK(info.has(kCallBlocking) ==
          (!local && !asks && !row.makes_request && !kImmediate.count(base) && !ends(base, "_begin")));
  }
}

TEST_CASE("communicators, files and the lifecycle: the detail is what the name says") {
  for (const CallInfo& info : kCallInfo) {
    const std::string base = named(info).base;
    INFO(info.name);
    bool nonblocking = false;
    const auto comm = found_comm(base, &nonblocking);
    CHECK(info.comm == (comm == kCommNames.end() ? CommCall::kNone : comm->second));
    const auto lifecycle = kLifecycleNames.find(base);
    CHECK(info.lifecycle == (lifecycle == kLifecycleNames.end() ? LifecycleCall::kNone : lifecycle->second));
    const auto file = kFileNames.find(base);
    CHECK((info.file == FileCall::kRead || info.file == FileCall::kWrite) == reads_or_writes(base, &nonblocking));
    if (!reads_or_writes(base, &nonblocking)) {
      CHECK(info.file == (file == kFileNames.end() ? FileCall::kNone : file->second));
      // Each of them but one is over the file's ranks.
      CHECK(info.all == (file != kFileNames.end() && file->second != FileCall::kDelete));
      CHECK(info.pointer == FilePointer::kNone);
    }
  }
}

TEST_CASE("what a call ends for the program is what its name says") {
  for (const CallInfo& info : kCallInfo) {
    const std::string base = named(info).base;
    INFO(info.name);
    const bool frees =
        (base.find("_free") != std::string::npos && base != "request_free" && base.rfind("t_", 0) != 0) ||
        base == "comm_disconnect" || base == "file_close" || base == "session_finalize" || base == "buffer_detach" ||
        base == "comm_detach_buffer" || base == "session_detach_buffer";
    CHECK((info.frees != MpiObject::kNone) == frees);
  }
}

TEST_CASE("collectives: operation, variant and initiation are what the name says") {
  unsigned checked = 0;
  for (const CallInfo& info : kCallInfo) {
    const Named name = named(info);
    bool nonblocking = false;
    const auto wanted = found(kCollectiveNames, name.base, 'i', &nonblocking);
    INFO(info.name);
    CHECK((info.call_class == CallClass::kCollective) == (wanted != kCollectiveNames.end()));
    if (wanted == kCollectiveNames.end()) {
      CHECK(info.collective == Collective::kNone);
      continue;
    }
    ++checked;
    CHECK(info.collective == wanted->second.first);
    CHECK(info.counts == wanted->second.second);
    CHECK(info.initiation == (name.persistent ? Initiation::kPersistent
                              : nonblocking   ? Initiation::kNonblocking
                                              : Initiation::kBlocking));
    CHECK(info.has(kCallCollective));
  }
  CHECK(checked >= 3 * kCollectiveNames.size());
}

TEST_CASE("messages: class, mode and initiation are what the name says") {
  for (const CallInfo& info : kCallInfo) {
    const Named name = named(info);
    bool nonblocking = false;
    const auto wanted = found(kMessageNames, name.base, 'i', &nonblocking);
    INFO(info.name);
    CHECK(info.has(kCallP2P) == (wanted != kMessageNames.end()));
    if (wanted == kMessageNames.end()) continue;
    CHECK(info.call_class == wanted->second);
    CHECK((info.initiation == Initiation::kPersistent) == name.persistent);
    const bool probe = info.call_class == CallClass::kProbe || info.call_class == CallClass::kMatchedProbe;
    CHECK(info.has(kCallStarts) == ((nonblocking && !probe) || name.persistent));
    CHECK(info.has(kCallPoll) == (nonblocking && probe));
    const char letter = wanted->first[0];
    CHECK(info.mode == (letter == 'b'                              ? SendMode::kBuffered
                        : letter == 'r' && wanted->first != "recv" ? SendMode::kReady
                        : wanted->first == "ssend"                 ? SendMode::kSynchronous
                                                                   : SendMode::kStandard));
  }
}

TEST_CASE("completions: how many, and whether they wait") {
  const std::map<std::string, Completion> ends_of = {
      {"", Completion::kOne}, {"all", Completion::kAll}, {"any", Completion::kAny}, {"some", Completion::kSome}};
  unsigned checked = 0;
  for (const auto& [end, completion] : ends_of)
    for (const std::string start : {"MPI_Wait", "MPI_Test", "MPI_Request_get_status"})
      for (const CallInfo& info : kCallInfo) {
        const bool status = start == "MPI_Request_get_status";
        if (info.name != start + (status && !end.empty() ? "_" : "") + end) continue;
        INFO(info.name);
        ++checked;
        CHECK(info.call_class == (status ? CallClass::kGetStatus : CallClass::kCompletion));
        CHECK(info.completion == completion);
        CHECK(info.has(kCallBlocking) == (start == "MPI_Wait"));
        CHECK(info.has(kCallPoll) == (start != "MPI_Wait"));
      }
  CHECK(checked == 12);
}

TEST_CASE("windows, one-sided operations and files") {
  for (const CallInfo& info : kCallInfo) {
    const std::string base = named(info).base;
    INFO(info.name);
    bool requests = false;
    const auto operation = found(kRmaNames, base, 'r', &requests);
    CHECK(info.rma == (operation == kRmaNames.end() ? RmaOperation::kNone : operation->second));
    const auto window = kWindowNames.find(without_prefix(base, "win_"));
    CHECK(info.window == (window == kWindowNames.end() ? WindowCall::kNone : window->second));
    const bool reads = base.rfind("file_read", 0) == 0 || base.rfind("file_iread", 0) == 0;
    const bool writes = base.rfind("file_write", 0) == 0 || base.rfind("file_iwrite", 0) == 0;
    CHECK((info.file == FileCall::kRead) == reads);
    CHECK((info.file == FileCall::kWrite) == writes);
    if (!reads && !writes) continue;
    const auto has = [&base](const char* part) { return base.find(part) != std::string::npos; };
    CHECK(info.pointer == (has("_at")                          ? FilePointer::kExplicit
                           : has("_shared") || has("_ordered") ? FilePointer::kShared
                                                               : FilePointer::kIndividual));
    CHECK(info.all == (has("_all") || has("_ordered")));
    CHECK((info.initiation == Initiation::kSplitBegin) == has("_begin"));
    CHECK((info.initiation == Initiation::kSplitEnd) == has("_end"));
    CHECK((info.initiation == Initiation::kNonblocking) == has("_i"));
  }
}

TEST_CASE("every call has one class, and a large-count twin the meaning of its plain call") {
  std::set<CallClass> classes;
  for (unsigned i = 0; i < kCallCount; ++i) {
    const CallInfo& info = kCallInfo[i];
    const CallInfo& plain = call_info(info.plain);
    INFO(info.name);
    classes.insert(info.call_class);
    CHECK((info.call_class == CallClass::kLocal) == info.has(kCallLocal));
    CHECK(std::string(info.name) == plain.name + std::string(info.has(kCallLargeCount) ? "_c" : ""));
    CHECK((info.call_class == plain.call_class && info.initiation == plain.initiation &&
           info.collective == plain.collective && info.counts == plain.counts && info.mode == plain.mode &&
           info.window == plain.window && info.rma == plain.rma && info.file == plain.file &&
           info.pointer == plain.pointer && info.all == plain.all));
    CHECK(class_of(static_cast<CallId>(i)) == info.call_class);
    // A detail where its class asks for one, and nowhere else.
    CHECK((info.completion != Completion::kNone) ==
          (info.call_class == CallClass::kCompletion || info.call_class == CallClass::kGetStatus));
    CHECK((info.comm != CommCall::kNone) == (info.call_class == CallClass::kComm));
    CHECK((info.lifecycle != LifecycleCall::kNone) == (info.call_class == CallClass::kLifecycle));
    CHECK((info.file != FileCall::kNone) == (info.call_class == CallClass::kFile));
  }
  CHECK(classes.size() == static_cast<unsigned>(CallClass::kFile) + 1);
}
