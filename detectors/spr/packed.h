// SPDX-License-Identifier: Apache-2.0
//
// The replicas of a rank with all particles that their kernels read, and all others of that rank, numbered anew:
// replicas first. What one rank packs is what the next one computes with. No MPI, no state.
#pragma once

#include <cstdint>

#include "detectors/spr/buffer.h"
#include "detectors/spr/lists.h"

namespace resil::spr {

struct Packed {
  int replicas, particles;
  int64_t entries;  ///< of all lists
  Buffer<int> index;  ///< the program's, of each particle; at the next rank: not known
  Buffer<int> offset;  ///< replicas + 1
  Buffer<int> neighbour;
  Buffer<int64_t> id;
  Buffer<int> number;  ///< by the program's index: in this, or -1

  size_t bytes() const { return index.bytes() + offset.bytes() + neighbour.bytes() + id.bytes() + number.bytes(); }
  void release();
};

/// `ids`: of all particles, null: the index. False: no memory, or lists of more than 2^31 entries.
bool pack_lists(const Lists& lists, const int* selected, int64_t selected_count, const int64_t* ids, Packed& packed);

/// Are the lists of another rank such that a kernel may run on them?
bool packed_is_sound(const Packed& packed);

/// Field of `bytes` a particle, `stride` apart in the program's array, one after another in `to`.
void pack_field(const Packed& packed, const char* data, size_t bytes, size_t stride, char* to);

/// Where two values of a field differ.
struct Difference {
  int64_t count;  ///< particles that differ
  int first;  ///< of the first one, its number in `Packed`
  int element;  ///< of it, the first one that differs
};

/// How values are compared: in elements of `element_bytes` (8 or 4: as numbers, of which `low_bits` low ones may
/// differ; else byte by byte).
struct Comparison {
  size_t element_bytes;
  int low_bits;
};

/// The first element of a field of `bytes` that differs; -1: none.
int first_element(const char* own, const char* other, size_t bytes, const Comparison& how);

/// Compares the first `particles` of the program's array with what lies packed in `with`.
Difference compare_field(const Packed& packed, int particles, const char* data, size_t bytes, size_t stride,
                         const char* with, const Comparison& how);

}  // namespace resil::spr
