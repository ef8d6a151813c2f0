// SPDX-License-Identifier: Apache-2.0
//
// The rule by which receives from MPI_ANY_SOURCE have several candidates: against all orders in which messages may
// arrive.
#include "checksum/p2p/candidates.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "check.h"
#include "shim/model/tells_others.h"

namespace {

using namespace resil;

struct Message {
  int source, tag;
};

/// Which message each receive takes when they arrive in this order: MPI's rules of matching, all receives posted
/// before.
std::vector<int> match(const std::vector<int>& wanted, const std::vector<Message>& messages,
                       const std::vector<int>& order) {
  std::vector<int> taken(wanted.size(), -1);
  for (int m : order)
    for (size_t r = 0; r < wanted.size(); ++r)
      if (taken[r] < 0 && (wanted[r] == ring::kAnyTag || wanted[r] == messages[m].tag)) {
        taken[r] = m;
        break;
      }
  return taken;
}

TEST_CASE("candidates: what is counted could have come from another sender") {
  std::mt19937 random(3);
  int counted = 0, could = 0;
  for (int round = 0; round < 4000; ++round) {
    const unsigned n = 2 + random() % 3;
    std::vector<Message> messages(n);
    std::vector<int> wanted(n), order(n), tried(n);
    for (unsigned i = 0; i < n; ++i) {
      messages[i] = {static_cast<int>(random() % 3), static_cast<int>(random() % 2)};
      wanted[i] = random() % 3 == 0 ? ring::kAnyTag : static_cast<int>(random() % 2);
      order[i] = tried[i] = static_cast<int>(i);
    }
    // Of one sender they arrive as they were sent.
    const auto possible = [&](const std::vector<int>& arrival) {
      for (unsigned a = 0; a < n; ++a)
        for (unsigned b = a + 1; b < n; ++b)
          if (messages[arrival[a]].source == messages[arrival[b]].source && arrival[a] > arrival[b]) return false;
      return true;
    };
    do std::shuffle(order.begin(), order.end(), random);
    while (!possible(order));
    const std::vector<int> taken = match(wanted, messages, order);
    if (std::count(taken.begin(), taken.end(), -1) != 0) continue;
    std::vector<std::set<int>> senders(n);
    do {
      if (!possible(tried)) continue;
      const std::vector<int> other = match(wanted, messages, tried);
      for (unsigned r = 0; r < n; ++r)
        if (other[r] >= 0) senders[r].insert(messages[other[r]].source);
    } while (std::next_permutation(tried.begin(), tried.end()));
    // Completed in any order; each one alone says how much it added.
    std::vector<unsigned> completed(n);
    for (unsigned i = 0; i < n; ++i) completed[i] = i;
    std::shuffle(completed.begin(), completed.end(), random);
    p2p::Candidates candidates;
    for (unsigned r : completed) {
      const bool alike = std::all_of(wanted.begin(), wanted.begin() + r, [&](int other) { return other == wanted[r]; });
      candidates.received({7, wanted[r], messages[taken[r]].source, messages[taken[r]].tag, alike ? 10 + r : 0}, 5);
    }
    const auto several = static_cast<uint64_t>(
        std::count_if(senders.begin(), senders.end(), [](const std::set<int>& of) { return of.size() > 1; }));
    CHECK(candidates.several() <= several);
    CHECK(candidates.followed() == n);
    counted += static_cast<int>(candidates.several());
    could += static_cast<int>(several);
  }
  CHECK(could > 1000);
  // Not: the last of its kind, those behind others of another kind, those completed in another order.
  CHECK(counted > 200);
}

TEST_CASE("candidates: what was told in between orders them") {
  p2p::Candidates candidates;
  candidates.received({7, 1, 0, 1, 10}, 5);
  candidates.received({7, 1, 1, 1, 12}, 11);  // a call between them may have made the other one send
  CHECK(candidates.several() == 0);
  candidates.received({7, 1, 2, 1, 13}, 11);
  CHECK(candidates.several() == 1);
  candidates.received({7, 1, 3, 1, 9}, 11);  // posted before that call: whoever sent to the others may know of it
  candidates.received({7, 1, 4, 1, 14}, 11);
  CHECK(candidates.several() == 2);
  candidates.received({8, 1, 0, 1, 15}, 11);  // another communicator
  CHECK(candidates.several() == 2);
}

TEST_CASE("candidates: many receives of one sender wait for another one") {
  p2p::Candidates candidates;
  for (unsigned i = 0; i < 1000; ++i) candidates.received({7, 1, 0, 1, 10 + i}, 5);
  CHECK(candidates.several() == 0);
  candidates.received({7, 1, 1, 1, 2000}, 5);
  CHECK(candidates.several() == 1000);
}

TEST_CASE("candidates: calls that tell others nothing") {
  for (CallId id : {CallId::kMPI_Recv, CallId::kMPI_Irecv, CallId::kMPI_Waitall, CallId::kMPI_Test, CallId::kMPI_Iprobe,
                    CallId::kMPI_Comm_rank, CallId::kMPI_Wtime, CallId::kMPI_Type_free})
    CHECK(!tells_others(id));
  for (CallId id :
       {CallId::kMPI_Send, CallId::kMPI_Isend, CallId::kMPI_Sendrecv, CallId::kMPI_Barrier, CallId::kMPI_Start,
        CallId::kMPI_Put, CallId::kMPI_Comm_dup, CallId::kMPI_File_write, CallId::kMPI_Publish_name})
    CHECK(tells_others(id));
}

}  // namespace
