// SPDX-License-Identifier: Apache-2.0
//
// What devicify.cpp needs: buffers that are in the program's memory and on a device at once. Not for several threads at
// a time, but for own() and wanted().
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace devicify {

using Large = long long;

/// A function of MPI's own, below all tools.
void* own(const char* name);
#define OWN(name) (*reinterpret_cast<decltype(&name)>(own("P" #name)))

[[noreturn]] void stop(const char* what);

/// Does FAKEGPU_DEVICIFY want the buffers of this call? The name is without MPI_.
bool wanted(const char* name);

struct Piece {
  Large offset, count;  ///< bytes, elements
  MPI_Datatype type;
};
using Pieces = std::vector<Piece>;

enum Use { kSent = 1, kReceived = 2, kBoth = 3 };

struct Buffer {
  char *program, *view;  ///< the same place in both memories: where its span begins
  size_t bytes;  ///< of the span
  uintptr_t memory, device;  ///< allocation; what MPI is given
  size_t capacity;
  Use use;
  std::vector<bool> mask;  ///< bytes of the span that belong to it; empty: all
  std::vector<char> before;  ///< what the device had when MPI got it

  /// False: it is left alone.
  bool make(const void* place, Use use, const Pieces& pieces);
  void upload();
  /// Only what changed: other receives may be at work between the bytes of this one, or on bytes that this one did not
  /// get.
  void bring_back();
  void give_back();
};

struct Counts {
  unsigned long long moved, bytes, left;
};
extern Counts counts;

}  // namespace devicify
