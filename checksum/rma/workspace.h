// SPDX-License-Identifier: Apache-2.0
//
// Memory for the time of one call: blocks are kept and used again, so that closing epochs makes no system call in
// steady state. Any thread; the contents are what the last user left.
#pragma once

#include "shim/runtime/block_pool.h"

namespace resil::rma {

inline constinit memory::BlockPool<memory::BlockRules{.header = 64, .least = 16, .most = 47}> workspaces;

class Workspace {
 public:
  explicit Workspace(size_t bytes) : data_(static_cast<char*>(workspaces.allocate(bytes))) {}
  ~Workspace() { workspaces.release(data_); }
  Workspace(const Workspace&) = delete;
  char* data() const { return data_; }  ///< aligned to 64; null: no memory

 private:
  char* data_;
};

}  // namespace resil::rma
