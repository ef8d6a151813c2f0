// SPDX-License-Identifier: Apache-2.0
//
// See state.h.

#include "checksum/double_run/state.h"

#include <stdio.h>
#include <string.h>

#include "shim/base/digest/digest.h"
#include "shim/runtime/accelerators/host_memory.h"
#include "shim/runtime/memory.h"

namespace resil::double_run {

namespace {

Array* arrays;  // kMaxArrays, mapped with the first one
uint32_t count;

size_t leaves_of(const Array& array) { return array.bytes == 0 ? 1 : (array.bytes + kDigestLeaf - 1) / kDigestLeaf; }

template <class T>
void drop(T*& items, size_t count) {
  memory::unmap_array(items, count);
  items = nullptr;
}

/// What was kept of an array is of its old size.
void release(Array& array) {
  drop(array.checkpoint, array.bytes);
  drop(array.first_result, array.bytes);
  drop(array.first_leaves, leaves_of(array));
}

Array* find(const char* name) {
  for (uint32_t i = 0; i < count; ++i)
    if (strncmp(arrays[i].name, name, kNameBytes - 1) == 0) return &arrays[i];
  return nullptr;
}

uint64_t leaf_term(const Array& array, size_t leaf) {
  const size_t begin = leaf * kDigestLeaf;
  const size_t bytes = array.bytes - begin < kDigestLeaf ? array.bytes - begin : kDigestLeaf;
  return digest_leaf(array.data + begin, bytes, leaf);
}

/// What an array's digest adds: the sum alone would not tell which array has which content.
uint64_t mixed(uint32_t number, const Array& array, uint64_t of) {
  return mix64(of + mix64(number * 0x9e3779b97f4a7c15 ^ array.bytes));
}

}  // namespace

Added state_protect(const char* name, void* data, size_t bytes) {
  if (bytes != 0 && !host_memory(data, bytes)) return Added::kDeviceMemory;
  if (arrays == nullptr && (arrays = memory::map_array<Array>(kMaxArrays)) == nullptr) return Added::kFull;
  Array* array = find(name);
  if (array == nullptr) {
    if (count == kMaxArrays) return Added::kFull;
    array = &arrays[count++];
    *array = {};
    snprintf(array->name, sizeof(array->name), "%s", name);
  } else if (array->bytes != bytes) {
    release(*array);
  }
  array->data = static_cast<char*>(data);
  array->bytes = bytes;
  return Added::kDone;
}

bool state_unprotect(const char* name) {
  Array* array = find(name);
  if (array == nullptr) return false;
  release(*array);
  *array = arrays[--count];
  return true;
}

uint32_t state_count() { return count; }

uint64_t state_bytes() {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; ++i) sum += arrays[i].bytes;
  return sum;
}

bool state_save() {
  for (uint32_t i = 0; i < count; ++i) {
    Array& array = arrays[i];
    if (array.bytes != 0 && array.checkpoint == nullptr &&
        (array.checkpoint = memory::map_array<char>(array.bytes)) == nullptr)
      return false;
  }
  for (uint32_t i = 0; i < count; ++i)
    if (arrays[i].bytes != 0) memcpy(arrays[i].checkpoint, arrays[i].data, arrays[i].bytes);
  return true;
}

void state_restore() {
  for (uint32_t i = 0; i < count; ++i)
    if (arrays[i].bytes != 0) memcpy(arrays[i].data, arrays[i].checkpoint, arrays[i].bytes);
}

uint64_t state_fingerprint() {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; ++i) sum += mixed(i, arrays[i], digest(arrays[i].data, arrays[i].bytes));
  return sum;
}

bool state_fingerprint_first(bool keep, uint64_t* fingerprint) {
  bool kept = true;
  *fingerprint = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Array& array = arrays[i];
    const size_t leaves = leaves_of(array);
    if (array.first_leaves == nullptr) array.first_leaves = memory::map_array<uint64_t>(leaves);
    if (keep && array.bytes != 0 && array.first_result == nullptr)
      array.first_result = memory::map_array<char>(array.bytes);
    uint64_t sum = 0;
    for (size_t leaf = 0; leaf < leaves; ++leaf) {
      const uint64_t term = leaf_term(array, leaf);
      sum += term;
      if (array.first_leaves != nullptr) array.first_leaves[leaf] = term;
    }
    if (keep && array.first_result != nullptr) memcpy(array.first_result, array.data, array.bytes);
    kept = kept && array.first_leaves != nullptr && (!keep || array.bytes == 0 || array.first_result != nullptr);
    *fingerprint += mixed(i, array, sum);
  }
  return kept;
}

namespace {

/// First differing byte of an array whose content was kept; `array.bytes` when there is none.
size_t first_difference(const Array& array, size_t from) {
  while (from < array.bytes && array.data[from] == array.first_result[from]) ++from;
  return from;
}

void locate(const Array& array, Place* place) {
  const size_t leaves = leaves_of(array);
  bool found = false;
  place->array = &array;
  place->leaves = leaves;
  for (size_t leaf = 0; leaf < leaves; ++leaf) {
    if (leaf_term(array, leaf) == array.first_leaves[leaf]) continue;
    ++place->leaves_different;
    if (found) continue;
    found = true;
    place->first_byte = leaf * kDigestLeaf;
    place->leaf_end = place->first_byte + kDigestLeaf < array.bytes ? place->first_byte + kDigestLeaf : array.bytes;
  }
  if (array.first_result == nullptr || !found) return;
  const size_t at = first_difference(array, place->first_byte);
  if (at == array.bytes) return;
  place->exact = true;
  place->first_byte = at;
  place->leaf_end = at + 1;
  const size_t word = at & ~size_t{7};
  if (word + 8 > array.bytes) return;
  place->has_words = true;
  memcpy(&place->first_word, array.first_result + word, 8);
  memcpy(&place->second_word, array.data + word, 8);
}

}  // namespace

Place state_compare_with_first() {
  Place place = {};
  for (uint32_t i = 0; i < count; ++i) {
    const Array& array = arrays[i];
    if (array.first_leaves == nullptr) continue;
    bool different = false;
    for (size_t leaf = 0; leaf < leaves_of(array) && !different; ++leaf)
      different = leaf_term(array, leaf) != array.first_leaves[leaf];
    if (!different) continue;
    ++place.arrays;
    if (place.array == nullptr) locate(array, &place);
  }
  return place;
}

}  // namespace resil::double_run
