// SPDX-License-Identifier: Apache-2.0
//
// Protected state: the arrays that a program wants back as they were (resil_protect), a checkpoint of them in memory,
// and fingerprints of what a run made of them, leaf by leaf, so that a difference can be located.
//
// One thread at a time; the caller sees to it (double_run.cpp). Allocates by mmap; no MPI.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil::double_run {

constexpr uint32_t kMaxArrays = 4096;
constexpr size_t kNameBytes = 64;

struct Array {
  char name[kNameBytes];
  char* data;
  size_t bytes;
  char* checkpoint;  ///< as large; null: not saved yet
  char* first_result;  ///< what run 1 made of it, kept on request
  uint64_t* first_leaves;  ///< of run 1, one term for each 4 KiB
};

/// Adds an array, or changes address and size of the one with that name. `bytes` may be 0.
enum class Added : uint8_t { kDone, kDeviceMemory, kFull };
Added state_protect(const char* name, void* data, size_t bytes);
/// False: no array of that name.
bool state_unprotect(const char* name);

uint32_t state_count();
uint64_t state_bytes();

/// Copies all arrays. False: no memory for the copies; nothing can be restored.
bool state_save();
void state_restore();

/// Fingerprint over all arrays as they are now: digests, mixed with number and length of the array.
uint64_t state_fingerprint();
/// The same, and keeps the terms of all leaves as those of run 1; with `keep` the content, too. False: no memory to
/// keep either, only the fingerprint is known.
bool state_fingerprint_first(bool keep, uint64_t* fingerprint);

/// Where the arrays differ from what run 1 made of them.
struct Place {
  const Array* array;  ///< null: no difference is known (leaves were not kept)
  uint64_t arrays, leaves_different, leaves;  ///< how many differ; leaves of the first array that does
  uint64_t first_byte;  ///< of the first differing leaf; of the first differing byte when contents were kept
  uint64_t leaf_end;  ///< the difference lies before this byte; first_byte + 1 when contents were kept
  bool exact;  ///< contents were kept
  uint64_t first_word, second_word;  ///< exact, and the array is not shorter: the aligned 8 bytes in run 1 and now
  bool has_words;
};
Place state_compare_with_first();

}  // namespace resil::double_run
