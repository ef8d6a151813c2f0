// SPDX-License-Identifier: Apache-2.0
//
// Memory for the time of one call: blocks are kept and used again, so that closing epochs makes no system call in
// steady state. Any thread; the contents are what the last user left.
#pragma once

#include <cstddef>

namespace resil::rma {

class Workspace {
 public:
  explicit Workspace(size_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  char* data() const { return data_; }  ///< null: no memory

 private:
  int place_;
  char* data_;
  size_t bytes_;
};

}  // namespace resil::rma
