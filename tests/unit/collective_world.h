// SPDX-License-Identifier: Apache-2.0
//
// A world of simulated ranks (collective_rank.h) and collectives on it: described as transfers of blocks between the
// ranks' buffers, carried out here in place of an MPI, rightly or with what a test changes.
#pragma once

#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "collective_rank.h"

namespace unit {

using Random = std::mt19937;

/// Arguments of one rank; buffers are bytes.
struct Args {
  std::vector<char> send, receive;
  std::vector<int> counts, places, other_counts, other_places;
  std::vector<int64_t> wide_places, other_wide_places;
  std::vector<uint64_t> types, other_types;
  resil::DataArgument sending, receiving;  ///< `buffer` null: the vectors
  int root = resil::ring::kNoPeer;
  uint64_t op = 0;
  bool in_place = false;
};

struct Transfer {
  int from;
  size_t at;
  int to;
  size_t into;
  int64_t count;
};

struct Group {
  std::vector<resil::CommInfo*> infos;  ///< by index in `members`
  std::vector<int> members;  ///< world ranks of all, local groups one after the other
  uint64_t sequence = 0;
};

/// A collective on a group; indices of ranks are places in Group::members.
struct Call {
  std::string name;  ///< "Alltoallv"
  Group* group;
  uint64_t type;  ///< of the transferred elements
  std::vector<Args> args;
  std::vector<Transfer> transfers;
  std::function<void(Call&)> compute;  ///< reductions, in place of transfers
  std::function<void(Call&)> tamper;  ///< after the data has moved
};

enum class How { kBlocking, kNonblocking, kPersistent };

class World {
 public:
  explicit World(int size, unsigned seed = 1, bool abort_wanted = false);
  ~World();
  World(const World&) = delete;
  Group group(std::vector<int> members);
  Group between(std::vector<int> first, std::vector<int> second);
  /// `edges`: pairs (from, to) of member indices, in the order of both sides' buffers.
  Group topology(std::vector<int> members, const std::vector<std::pair<int, int>>& edges);
  void run(Call& call, How how, int starts = 1);
  /// The call on one rank only, with that result.
  void fails(Call& call, int member);
  /// Carries what is on its way, in any order, until nothing happens.
  void settle(bool finalize = false);
  RankState state(int rank);
  /// Over all ranks.
  RankState total();
  Random random;

 private:
  struct Message {
    int kind;
    std::vector<char> bytes;
  };
  resil::Event event(Call& call, int member, How how);
  void read(Call& call);
  void move(Call& call);
  void carry_some();
  bool carry_one();
  int size_;
  std::vector<void*> libraries_;
  std::vector<const RankApi*> ranks_;
  std::vector<std::deque<Message>> ways_;
  uint64_t next_id_ = 1000;
};

size_t extent_of(uint64_t type);
size_t size_of(uint64_t type);

}  // namespace unit
