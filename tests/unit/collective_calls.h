// SPDX-License-Identifier: Apache-2.0
//
// Makes the collectives of collective_check_test.cpp: arguments with random shapes, and which bytes go where.
#pragma once

#include "collective_world.h"

namespace unit {

/// What kinds of arguments a data-moving collective gets.
struct Style {
  uint64_t type = kInt;
  bool vector = false, typed = false, in_place = false;  ///< v form, w form, MPI_IN_PLACE where it is allowed
  int most = 40;  ///< elements in a block
};

/// `name`: "Bcast", "Gather", "Scatter", "Allgather", "Alltoall"; the v and w are added. Intracommunicators.
Call moving(World& world, Group& group, const std::string& name, const Style& style, int root = 0);
/// "Neighbor_allgather", "Neighbor_alltoall" on a group made of these edges.
Call neighbouring(World& world, Group& group, const std::string& name, const Style& style,
                  const std::vector<std::pair<int, int>>& edges);
/// Across an intercommunicator whose first `first` members are one side; the root is member 0.
Call across(World& world, Group& group, const std::string& name, int first);

/// "Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Scan", "Exscan" over random values.
Call reducing(World& world, Group& group, const std::string& name, uint64_t type, resil::OpKind op, bool in_place,
              int count, int root = 0);

}  // namespace unit
