// SPDX-License-Identifier: Apache-2.0
//
// What the files of agreement share: results, and cases of results that differ. Nothing here is called from elsewhere.
#pragma once

#include "checksum/collective/agreement.h"
#include "checksum/ledger/calls.h"
#include "shim/model/calls.h"

namespace resil::collective {

using ledger::Peer;
using ledger::Reason;
using ledger::Record;

constexpr uint32_t kVoters = 16;

struct Result {
  Name name;
  uint64_t digest;
  bool orders, nan;
  Outcome outcome;
};

/// At rank 0 of a communicator: contributions less result.
enum class RestState : uint8_t { kPending, kKnown, kNever };
enum class Known : uint8_t { kNotAsked, kAsked, kNo, kYes };

struct Voter {
  Peer* peer;
  Known known;
  bool nan, earlier;
  RestState rest_state;
  uint64_t digest;
  Linear rest;
  Outcome outcome;
  ledger::Called called;  ///< its call, where it has made it and not forgotten
  char site[112];
};

struct Case {
  enum State : uint8_t { kFree, kNew, kOpen } state;
  bool found;  ///< `own` is this rank's result, else it had been forgotten
  bool sum;  ///< found by a sum at rank 0, `rest`
  bool clash;  ///< of a sum: the records say that the calls differ
  bool local;  ///< the own result contradicts the own contribution: `text`, `element`
  bool everybody;  ///< all ranks of the communicator are among the voters
  uint64_t serial;
  Peer* child;
  Record sent, received;
  Result own;
  Linear rest;
  uint64_t deadline, next_ask;
  uint32_t voter_count, child_place, root_place;  ///< places among the voters, ~0: not there
  Voter voters[kVoters];
  char child_site[112];
  const char* text;
  int64_t element;
};

/// --- agreement.cpp ---

/// Is it what an earlier collective on that communicator left here? Of results of which an outcome was kept.
bool like_earlier(const Result& result);
/// At rank 0 of the communicator.
RestState rest_of(const Name& name, Linear* words);

/// --- agreement_verdict.cpp ---

/// The linear digest of the right result, of full blame and operators that have one. kPending: rank 0 has not said it.
RestState right_sum(const Case& one, Linear* sum, RestState (*rest_at)(const Name& name, Linear* words) = rest_of);
/// All is known that can be: publishes.
void decide(const Case& one);
void decide_local(const Name& name, const Outcome& outcome, const char* text, int64_t element);

}  // namespace resil::collective
