// SPDX-License-Identifier: Apache-2.0
//
// A job in one process for the tests of blame. A ledger in memory stands in for the private communicator: what rank 0
// announces is in the history, what rank 1 receives makes the cases, and messages between them are delivered by hand.
#pragma once

#include <cstdio>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "check.h"
#include "checksum/ledger/blame_internal.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/model/calls.h"
#include "shim/report/finding.h"

namespace fake {

using namespace resil;
using ledger::Peer;
using ledger::Record;

struct Letter {
  int from, to;
  ledger::Kind kind;
  std::string payload;
};
struct Returned {
  Record record;
  uint64_t evidence;
};
/// Thrown by stop_job.
struct Stopped {
  int status;
};

extern Peer peers[4];
extern std::deque<Letter> letters;  ///< on the private communicator
extern std::vector<Finding> findings;  ///< published
extern std::vector<Returned> returned;  ///< put back into their matching queues
extern void (*handlers[16])(Thread&, Peer&, const void*, size_t);
extern bool is_full, is_concurrent, wants_abort, has_room;
extern std::vector<void (*)()> coming;  ///< what take_come() finds, one at a time: records of the sender
extern uint32_t takes;  ///< of take_come()
extern bool answers;  ///< false: questions are lost
extern uint64_t checked;
extern double drain_seconds;
extern Thread thread_state;
extern TypeMap bytes_type, strided_type;  ///< 1 byte; 8 bytes of 24

/// Starts over.
void reset(bool full, bool concurrent);
/// Goes on as that rank: its name, host and history.
void be_rank(int rank);
/// Delivers what is under way, and what that gives rise to.
void deliver();

inline View view(const void* buffer, uint64_t bytes) {
  return {buffer, static_cast<int64_t>(bytes), &bytes_type, bytes, ledger::Reason::kNone};
}

/// The job: rank 0 sends, rank 1 receives.
struct Job {
  explicit Job(bool full, bool concurrent = false) {
    reset(full, concurrent);
    REQUIRE(blame::prepare());
    blame::connect();
  }

  struct Sent {
    Record record;
    uint64_t ordinal, handle;
  };
  Sent send(const View& what, CallId call = CallId::kMPI_Send, int to = 1, uint32_t tag = 7, bool complete = true) {
    Sent sent;
    sent.record = {99, view_digest(what, what.bytes), what.bytes, 0x1000, tag, static_cast<uint16_t>(call), 0, 0};
    sent.ordinal = ordinals[to]++;
    be_rank(0);
    sent.handle = blame::sent(to, sent.ordinal, sent.record, what);
    if (complete) blame::sent_complete(sent.handle, what);
    be_rank(1);
    return sent;
  }
  Sent send(const std::string& what, CallId call = CallId::kMPI_Send, int to = 1, uint32_t tag = 7,
            bool complete = true) {
    return send(view(what.data(), what.size()), call, to, tag, complete);
  }

  static void complete(const Sent& sent, const View& what) {
    be_rank(0);
    blame::sent_complete(sent.handle, what);
    be_rank(1);
  }
  static void withdraw(const Sent& sent) {
    be_rank(0);
    Record record;
    CHECK(blame::cancel_begin(sent.handle));
    CHECK(blame::cancel_end(sent.handle, blame::CancelEnd::kWithdrawn, &record) == 1);
    be_rank(1);
  }

  struct Received {
    Record record;
    uint64_t evidence;
  };
  static Received received(const View& what, uint64_t posted, uint64_t bytes, uint64_t digest) {
    Received r;
    r.record = {99, digest, bytes, 0x2000, 7, static_cast<uint16_t>(CallId::kMPI_Recv), 0, 0};
    r.evidence = blame::receive_complete(posted, what, bytes, digest);
    return r;
  }
  /// A receive whose buffer holds `before`, into which `arrives` is written.
  static Received receive(const std::string& before, const std::string& arrives) {
    static std::deque<std::string> buffers;  // each is looked at until its case is open
    std::string& buffer = buffers.emplace_back(before);
    const View v = view(buffer.data(), buffer.size());
    const uint64_t posted = blame::receive_posted(v);
    memcpy(buffer.data(), arrives.data(), arrives.size());
    return received(v, posted, arrives.size(), view_digest(v, arrives.size()));
  }

  static void open(const Sent& sent, const Received& received, int from = 0) {
    blame::open_case(thread_state, peers[from], sent.record, sent.ordinal, received.record, received.evidence);
  }
  /// Until no case is open.
  static void run() { blame::settle(thread_state, 30); }
  static const Finding& only() {
    REQUIRE(findings.size() == 1);
    return findings[0];
  }

  uint64_t ordinals[4] = {};
};

inline std::string evidence(const Finding& finding, const char* name) {
  for (uint32_t i = 0; i < finding.evidence_count; ++i)
    if (std::string(finding.evidence[i].name) == name) return finding.evidence[i].value;
  return "(none)";
}
inline std::string verdict(const Finding& finding) { return evidence(finding, "verdict"); }
inline bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// Different for each seed, no byte zero.
inline std::string data(unsigned seed, size_t bytes = 512) {
  std::string text(bytes, 0);
  uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;
  for (auto& c : text) {
    x = mix64(x + 0x9e3779b97f4a7c15);
    c = static_cast<char>(x % 255 + 1);
  }
  return text;
}

/// What the receiver has with `full` when a packet arrives as `arrives` in a buffer that held something else.
inline std::string full_verdict(Job& job, const std::string& sent, const std::string& arrives) {
  const Job::Sent s = job.send(sent);
  Job::open(s, Job::receive(data(4711, sent.size() > arrives.size() ? sent.size() : arrives.size()), arrives));
  Job::run();
  return verdict(findings.back());
}

}  // namespace fake
