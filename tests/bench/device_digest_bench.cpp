// SPDX-License-Identifier: Apache-2.0
//
// The digest kernels on a CUDA device: are the values right, and how fast is memory read beside a copy inside the
// device? Prints a table; exit status 1 when a value is wrong, 77 when there is no device. By hand, where a device is:
//
//   ninja -C build tests/device_digest_bench && build/tests/device_digest_bench [LIBCUDA]
//
// A copy of N bytes reads and writes: its memory throughput is 2N/t, that of a digest N/t. Times are of many orders in
// a row, from the first to the end of the last. On the stand-in (LIBCUDA its path) only the values mean anything.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "pipeline/gpu/gpu.h"
#include "pipeline/gpu/kernels/kernels.h"
#include "pipeline/gpu/pinned.h"
#include "shim/base/digest/digest.h"
#include "tests/bench/timing.h"
#include "tests/fakegpu/cuda_functions.h"

using namespace resil;

namespace {

void* library;
unsigned wrong;

template <class Function>
Function* function(const char* name) {
  auto* found = reinterpret_cast<Function*>(dlsym(library, name));
  if (found == nullptr) {
    printf("%s is missing\n", name);
    exit(77);
  }
  return found;
}
#define CUDA(name) function<decltype(name)>(#name)

uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }

/// One batch after the other, with the memory they need.
struct Digester {
  gpu::Device& device;
  void *plain, *runs;
  gpu::EventHandle event;
  uint64_t* results;
  gpu::DigestBatch batch;

  explicit Digester(gpu::Device& of) : device(of) {
    plain = gpu::kernel(device, "resil_digest");
    runs = gpu::kernel(device, "resil_digest_runs");
    void* fill = gpu::kernel(device, "resil_fill");
    event = gpu::event_acquire(device);
    if (plain == nullptr || runs == nullptr || fill == nullptr || !gpu::pinned_prepare(device, 64 << 20)) {
      printf("no kernels for this device: %s\n", gpu::last_error());
      exit(77);
    }
    results = static_cast<uint64_t*>(gpu::pinned_acquire(device, gpu::kDigestJobs * 8));
    batch = {};
    batch.results = number(gpu::device_address(device, results));
    batch.sums = number(gpu::device_allocate(device, gpu::kDigestJobs * sizeof(gpu::DigestSum)));
    gpu::FillJob zero = {batch.sums, gpu::kDigestJobs * 2, 0};
    void* arguments[] = {&zero};
    gpu::launch(device, gpu::StreamRole::kKernel, fill, 1, gpu::kKernelThreads, 0, arguments);
  }

  void clear() { batch.jobs = batch.leaves = 0; }
  void add(const gpu::KernelStream& stream) {
    batch.stream[batch.jobs] = stream;
    batch.stream[batch.jobs++].first_leaf = batch.leaves;
    batch.leaves += static_cast<uint32_t>(gpu::kernel_leaves(stream.bytes));
  }
  void launch(bool with_runs) {
    void* arguments[] = {&batch};
    if (!gpu::launch(device, gpu::StreamRole::kKernel, with_runs ? runs : plain, gpu::kernel_blocks(batch.leaves),
                     gpu::kKernelThreads, with_runs ? gpu::kGatherShared : 0, arguments)) {
      printf("launch refused: %s\n", gpu::last_error());
      exit(1);
    }
  }
  void wait() {
    gpu::event_record(device, gpu::StreamRole::kKernel, event);
    while (gpu::event_query(device, event) == gpu::State::kPending) {}
  }
  double seconds(unsigned times, bool with_runs) {
    launch(with_runs);
    wait();
    const double start = (now_ns() * 1e-9);
    for (unsigned i = 0; i < times; ++i) launch(with_runs);
    wait();
    return ((now_ns() * 1e-9) - start) / times;
  }
  void check(unsigned job, uint64_t wanted, const char* what, uint64_t bytes) {
    if (results[job] == wanted) return;
    if (++wrong < 20) printf("WRONG: %s, %llu bytes\n", what, static_cast<unsigned long long>(bytes));
  }
};

double copy_seconds(CUdeviceptr to, CUdeviceptr from, size_t bytes, unsigned times) {
  auto* copy = CUDA(cuMemcpyDtoDAsync_v2);
  auto* wait = CUDA(cuCtxSynchronize);
  copy(to, from, bytes, nullptr);
  wait();
  const double start = (now_ns() * 1e-9);
  for (unsigned i = 0; i < times; ++i) copy(to, from, bytes, nullptr);
  wait();
  return ((now_ns() * 1e-9) - start) / times;
}

gpu::KernelStream contiguous(const char* device, uint64_t bytes) { return {number(device), bytes, 0, 0, 0, 0, 0, 0}; }

/// Every length up to 20,000 at all alignments, 64 in a launch.
void all_lengths(Digester& d, const char* device, const std::vector<char>& data) {
  for (uint64_t first = 0; first <= 20000; first += gpu::kDigestJobs)
    for (bool with_runs : {false, true}) {
      d.clear();
      for (uint64_t bytes = first; bytes < first + gpu::kDigestJobs; ++bytes)
        d.add(contiguous(device + bytes * 7 % 33, bytes));
      d.launch(with_runs);
      d.wait();
      for (unsigned i = 0; i < gpu::kDigestJobs; ++i)
        d.check(i, digest(&data[(first + i) * 7 % 33], first + i), with_runs ? "with runs" : "contiguous", first + i);
    }
}

/// Equally spaced pieces.
void vectors(Digester& d, const char* device, const std::vector<char>& data) {
  for (uint64_t piece : {1, 3, 4, 8, 12, 24, 64, 100, 1000, 4096, 5000})
    for (uint64_t gap : {1, 4, 8, 40}) {
      const uint64_t stride = piece + gap, pieces = (1 << 20) / stride;
      d.clear();
      d.add({number(device), piece * pieces, piece * pieces, 0, piece, static_cast<int64_t>(stride), 1, 0});
      d.launch(true);
      d.wait();
      DigestStream stream;
      for (uint64_t i = 0; i < pieces; ++i) stream.add(&data[i * stride], piece);
      d.check(0, stream.finish(), "vector of pieces of", piece);
    }
}

}  // namespace

int main(int argc, char** argv) {
  library = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  CUcontext context;
  if (library == nullptr || CUDA(cuInit)(0) != CUDA_SUCCESS ||
      CUDA(cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS) {
    puts("no CUDA device");
    return 77;
  }
  CUDA(cuCtxSetCurrent)(context);
  digest_prepare();
  const size_t most = argc > 1 ? 64 << 20 : 1 << 30;
  CUdeviceptr from, to;
  if (CUDA(cuMemAlloc_v2)(&from, most) != CUDA_SUCCESS || CUDA(cuMemAlloc_v2)(&to, most) != CUDA_SUCCESS)
    return puts("no memory"), 77;
  std::vector<char> data(most);
  std::mt19937_64 random(1);
  for (size_t i = 0; i < most; i += 8) {
    const uint64_t word = random();
    memcpy(&data[i], &word, 8);
  }
  CUDA(cuMemcpyHtoD_v2)(from, data.data(), most);
  CUDA(cuCtxSynchronize)();  // the call returns before the data is there
  const char* device = reinterpret_cast<const char*>(from);
  const gpu::Pointer pointer = gpu::classify(device, 1);
  if (pointer.device == nullptr) return puts("not seen as device memory"), 1;
  Digester d(*pointer.device);
  all_lengths(d, device, data);
  vectors(d, device, data);

  printf(
      "| bytes | copy, GB/s (2N/t) | digest, GB/s (N/t) | of the copy | digest of an odd address "
      "|\n|---|---|---|---|---|\n");
  for (size_t bytes = 4096; bytes <= most; bytes *= 4) {
    const size_t moved = argc > 1 ? size_t{64} << 20 : size_t{16} << 30;
    const auto times = static_cast<unsigned>(std::min(moved / bytes, argc > 1 ? size_t{3} : size_t{5000}));
    const double copied = copy_seconds(to, from, bytes, times);
    d.clear();
    d.add(contiguous(device, bytes));
    const double read = d.seconds(times, false);
    d.check(0, digest(data.data(), bytes), "contiguous", bytes);
    d.clear();
    d.add(contiguous(device + 3, bytes - 3));
    const double odd = d.seconds(times, false);
    d.check(0, digest(&data[3], bytes - 3), "odd address", bytes - 3);
    const auto n = static_cast<double>(bytes);
    printf("| %zu | %.0f | %.0f | %.0f %% | %.0f |\n", bytes, 2e-9 * n / copied, 1e-9 * n / read,
           100 * (n / read) / (2 * n / copied), 1e-9 * n / odd);
  }
  for (uint64_t bytes : {8, 1024, 4096, 65536}) {
    d.clear();
    for (unsigned i = 0; i < gpu::kDigestJobs; ++i) d.add(contiguous(device + i * 65536, bytes));
    const double all = d.seconds(argc > 1 ? 3 : 1000, false);
    for (unsigned i = 0; i < gpu::kDigestJobs; ++i) d.check(i, digest(&data[i * size_t{65536}], bytes), "of 64", bytes);
    printf("64 packets of %llu bytes, one launch: %.1f us\n", static_cast<unsigned long long>(bytes), all * 1e6);
  }
  printf("%s, driver %d: %u wrong values\n", gpu::api_name(gpu::api_of(d.device)), gpu::driver_version(gpu::Api::kCuda),
         wrong);
  return wrong != 0;
}
