// SPDX-License-Identifier: Apache-2.0
//
// The kernels that the stand-in can run, by the names under which programs get them from a module.

#include <cstring>

#include "tests/fakegpu/digest_kernels.h"
#include "tests/fakegpu/fakegpu.h"

namespace {

template <class T>
T argument(void** arguments, unsigned index) {
  T value;
  memcpy(&value, arguments[index], sizeof(value));
  return value;
}

/// fakegpu_fill(uint32_t* to, uint64_t count, uint32_t first): to[i] = first + i.
void fill(unsigned, unsigned, void** arguments) {
  auto* to = static_cast<uint32_t*>(fakegpu_host_view(argument<uint32_t*>(arguments, 0)));
  const auto count = argument<uint64_t>(arguments, 1);
  const auto first = argument<uint32_t>(arguments, 2);
  for (uint64_t i = 0; to != nullptr && i < count; ++i) to[i] = first + static_cast<uint32_t>(i);
}

uint64_t fill_bytes(unsigned, unsigned, void** arguments) { return argument<uint64_t>(arguments, 1) * 4; }

// resil's own (pipeline/gpu/kernels/kernels.h), with addresses as the host sees them. Streams are moved as a whole:
// their addresses may lie outside of any memory, only their data is inside.

using resil::gpu::DigestBatch, resil::gpu::FillJob, resil::gpu::PackJob;
using resil::gpu::KernelRun, resil::gpu::KernelStream;

/// False: not memory of the device, or not any more.
bool see(uint64_t* address) {
  const void* seen = fakegpu_host_view(reinterpret_cast<const void*>(*address));
  *address = reinterpret_cast<uint64_t>(seen);
  return seen != nullptr;
}

bool see(KernelStream* stream) {
  if (stream->bytes == 0) return true;
  uint64_t first = stream->address;
  if (stream->element != 0 && stream->run_count > 1) {
    if (!see(&stream->runs)) return false;
    first += static_cast<uint64_t>(reinterpret_cast<const KernelRun*>(stream->runs)->offset);
  }
  uint64_t seen = first;
  if (!see(&seen)) return false;
  stream->address += seen - first;
  return true;
}

template <void run(const DigestBatch&, unsigned)>
void digest(unsigned blocks, unsigned, void** arguments) {
  auto batch = argument<DigestBatch>(arguments, 0);
  bool good = see(&batch.results) && see(&batch.sums);
  for (uint32_t i = 0; good && i < batch.jobs; ++i) good = see(&batch.stream[i]);
  if (good) run(batch, blocks);
}

uint64_t digest_bytes(unsigned, unsigned, void** arguments) {
  const auto batch = argument<DigestBatch>(arguments, 0);
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < batch.jobs; ++i) bytes += batch.stream[i].bytes;
  return bytes;
}

template <bool to_runs>
void pack(unsigned blocks, unsigned, void** arguments) {
  auto job = argument<PackJob>(arguments, 0);
  if (see(&job.stream) && see(&job.contiguous)) fakegpu::run_pack(job, blocks, to_runs);
}

uint64_t pack_bytes(unsigned, unsigned, void** arguments) { return argument<PackJob>(arguments, 0).bytes * 2; }

void fill_words(unsigned, unsigned, void** arguments) {
  auto job = argument<FillJob>(arguments, 0);
  if (see(&job.address)) fakegpu::run_fill(job);
}

uint64_t fill_words_bytes(unsigned, unsigned, void** arguments) { return argument<FillJob>(arguments, 0).words * 8; }

struct Entry {
  const char* name;
  fakegpu_kernel* run;
  uint64_t (*bytes)(unsigned blocks, unsigned threads, void** arguments);
  uint16_t arguments[17];
};
constexpr Entry kKernels[] = {
    {"fakegpu_fill", fill, fill_bytes, {8, 8, 4}},
    {"resil_digest", digest<fakegpu::run_digest>, digest_bytes, {sizeof(DigestBatch)}},
    {"resil_digest_runs", digest<fakegpu::run_digest_runs>, digest_bytes, {sizeof(DigestBatch)}},
    {"resil_pack", pack<false>, pack_bytes, {sizeof(PackJob)}},
    {"resil_unpack", pack<true>, pack_bytes, {sizeof(PackJob)}},
    {"resil_fill", fill_words, fill_words_bytes, {sizeof(FillJob)}},
};

const Entry* find(const char* name) {
  for (const Entry& entry : kKernels)
    if (strcmp(entry.name, name) == 0) return &entry;
  return nullptr;
}

}  // namespace

fakegpu_kernel* fakegpu_find_kernel(const char* name) {
  const Entry* entry = find(name);
  return entry != nullptr ? entry->run : nullptr;
}

const uint16_t* fakegpu_kernel_arguments(const char* name) { return find(name)->arguments; }

uint64_t fakegpu_kernel_bytes(const char* name, unsigned blocks, unsigned threads, void** arguments) {
  return find(name)->bytes(blocks, threads, arguments);
}
