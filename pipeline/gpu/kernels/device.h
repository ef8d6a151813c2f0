// SPDX-License-Identifier: Apache-2.0
//
// What the kernels need of CUDA, HIP and, for tests, the CPU, so that there is one source of them. Neither toolkit's
// headers are needed: compilers alone will do.
//
// The unit of work is a group of 32 threads, which take every step together. A step is written as LANES { ... lane ...
// }; what a thread keeps from one step to the next is a PerLane. On a device each thread carries out the steps as its
// own lane; on the CPU one thread carries out each step for all lanes, one after the other. What crosses lanes stands
// between the steps.
#pragma once

#include <stdint.h>

#include "pipeline/gpu/kernels/kernels.h"

#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define RESIL_ON_DEVICE 1
#endif

#if defined(__NVCC__) || defined(__CUDA__) || defined(__HIP__)
#if !defined(__NVCC__)  // clang without a toolkit's headers
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __grid_constant__
#endif
#define RESIL_DEVICE __device__ __forceinline__
#define RESIL_CONSTANT __constant__
#define RESIL_UNROLL _Pragma("unroll")
#define RESIL_NO_UNROLL _Pragma("unroll 1")
#else
#define RESIL_DEVICE inline
#define RESIL_CONSTANT
#define RESIL_UNROLL
#define RESIL_NO_UNROLL
#endif

namespace resil::gpu::device {

/// 16 bytes of data as two numbers.
struct alignas(16) Pair {
  uint64_t low, high;
};

#ifdef RESIL_ON_DEVICE

#if defined(__HIP__)
RESIL_DEVICE unsigned thread_index() { return __builtin_amdgcn_workitem_id_x(); }
RESIL_DEVICE unsigned block_index() { return __builtin_amdgcn_workgroup_id_x(); }
/// The launch's, from the packet that started the kernel: 32-bit sizes at 4 (block, 16 bits) and 12 (grid, in threads).
RESIL_DEVICE unsigned block_count() {
  auto* packet = (const __attribute__((address_space(4))) uint32_t*)__builtin_amdgcn_dispatch_ptr();
  return packet[3] / kKernelThreads;
}
RESIL_DEVICE uint32_t shuffle(uint32_t value, unsigned from) {
  const unsigned first = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)) & ~31u;
  const auto place = static_cast<int>((first + from) * 4);
  return static_cast<uint32_t>(__builtin_amdgcn_ds_bpermute(place, static_cast<int>(value)));
}
RESIL_DEVICE void block_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
/// Lanes of a group share a wavefront: what one has stored in shared memory is there for the others after this.
RESIL_DEVICE void group_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");
  __builtin_amdgcn_wave_barrier();
}
RESIL_DEVICE void fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
RESIL_DEVICE uint64_t add(uint64_t* to, uint64_t value) {
  return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
RESIL_DEVICE uint64_t exchange(uint64_t* to, uint64_t value) {
  return __hip_atomic_exchange(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
RESIL_DEVICE uint64_t high_product(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}
RESIL_DEVICE Pair load_once(const Pair* from) {
  auto* words = reinterpret_cast<const uint64_t*>(from);
  return {__builtin_nontemporal_load(words), __builtin_nontemporal_load(words + 1)};
}
#elif defined(__NVCC__)
RESIL_DEVICE unsigned thread_index() { return threadIdx.x; }
RESIL_DEVICE unsigned block_index() { return blockIdx.x; }
RESIL_DEVICE unsigned block_count() { return gridDim.x; }
RESIL_DEVICE uint32_t shuffle(uint32_t value, unsigned from) { return __shfl_sync(~0u, value, static_cast<int>(from)); }
RESIL_DEVICE void block_barrier() { __syncthreads(); }
RESIL_DEVICE void group_barrier() { __syncwarp(); }
RESIL_DEVICE void fence() { __threadfence(); }
RESIL_DEVICE uint64_t add(uint64_t* to, uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}
RESIL_DEVICE uint64_t exchange(uint64_t* to, uint64_t value) {
  return atomicExch(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}
RESIL_DEVICE uint64_t high_product(uint64_t a, uint64_t b) { return __umul64hi(a, b); }
RESIL_DEVICE Pair load_once(const Pair* from) {
  const ulonglong2 value = __ldcs(reinterpret_cast<const ulonglong2*>(from));
  return {value.x, value.y};
}
#else  // clang for CUDA
RESIL_DEVICE unsigned thread_index() { return __nvvm_read_ptx_sreg_tid_x(); }
RESIL_DEVICE unsigned block_index() { return __nvvm_read_ptx_sreg_ctaid_x(); }
RESIL_DEVICE unsigned block_count() { return __nvvm_read_ptx_sreg_nctaid_x(); }
RESIL_DEVICE uint32_t shuffle(uint32_t value, unsigned from) {
  return static_cast<uint32_t>(__nvvm_shfl_sync_idx_i32(~0u, static_cast<int>(value), static_cast<int>(from), 31));
}
RESIL_DEVICE void block_barrier() { __nvvm_bar_sync(0); }
RESIL_DEVICE void group_barrier() { __nvvm_bar_warp_sync(~0u); }
RESIL_DEVICE void fence() { __nvvm_membar_gl(); }
RESIL_DEVICE uint64_t add(uint64_t* to, uint64_t value) {
  return __nvvm_atom_add_gen_ll(reinterpret_cast<long long*>(to), static_cast<long long>(value));
}
RESIL_DEVICE uint64_t exchange(uint64_t* to, uint64_t value) {
  return __nvvm_atom_xchg_gen_ll(reinterpret_cast<long long*>(to), static_cast<long long>(value));
}
RESIL_DEVICE uint64_t high_product(uint64_t a, uint64_t b) { return __nvvm_mulhi_ull(a, b); }
RESIL_DEVICE Pair load_once(const Pair* from) { return *from; }
#endif

RESIL_DEVICE unsigned own_lane() { return thread_index() % kGroup; }

#define LANES for (unsigned lane = ::resil::gpu::device::own_lane(), once = 1; once != 0; once = 0)

template <class T>
struct PerLane {
  T value;
  RESIL_DEVICE T& operator[](unsigned) { return value; }
  RESIL_DEVICE const T& operator[](unsigned) const { return value; }
};

RESIL_DEVICE uint64_t shuffle(uint64_t value, unsigned from) {
  const uint64_t high = shuffle(static_cast<uint32_t>(value >> 32), from);
  return high << 32 | shuffle(static_cast<uint32_t>(value), from);
}
/// Every lane gets the value of the lane `lane ^ mask`.
RESIL_DEVICE void exchange_lanes(PerLane<uint64_t>* values, unsigned mask) {
  values->value = shuffle(values->value, own_lane() ^ mask);
}
/// Every lane gets the value of the lane `(lane & keep) | from`.
RESIL_DEVICE PerLane<uint64_t> from_lanes(const PerLane<uint64_t>& values, unsigned keep, unsigned from) {
  return {shuffle(values.value, (own_lane() & keep) | from)};
}
/// The value of one lane, for all.
RESIL_DEVICE uint64_t of_lane(const PerLane<uint64_t>& values, unsigned lane) { return shuffle(values.value, lane); }

#else  // the CPU: host passes of the device compilers, and tests

#define LANES for (unsigned lane = 0; lane < ::resil::gpu::kGroup; ++lane)

template <class T>
struct PerLane {
  T value[kGroup];
  RESIL_DEVICE T& operator[](unsigned lane) { return value[lane]; }
  RESIL_DEVICE const T& operator[](unsigned lane) const { return value[lane]; }
};

RESIL_DEVICE void group_barrier() {}
RESIL_DEVICE void fence() {}
RESIL_DEVICE uint64_t add(uint64_t* to, uint64_t value) {
  const uint64_t old = *to;
  *to += value;
  return old;
}
RESIL_DEVICE uint64_t exchange(uint64_t* to, uint64_t value) {
  const uint64_t old = *to;
  *to = value;
  return old;
}
RESIL_DEVICE uint64_t high_product(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}
RESIL_DEVICE Pair load_once(const Pair* from) { return *from; }

RESIL_DEVICE void exchange_lanes(PerLane<uint64_t>* values, unsigned mask) {
  const PerLane<uint64_t> old = *values;
  for (unsigned lane = 0; lane < kGroup; ++lane) values->value[lane] = old.value[lane ^ mask];
}
RESIL_DEVICE PerLane<uint64_t> from_lanes(const PerLane<uint64_t>& values, unsigned keep, unsigned from) {
  PerLane<uint64_t> result;
  for (unsigned lane = 0; lane < kGroup; ++lane) result.value[lane] = values.value[(lane & keep) | from];
  return result;
}
RESIL_DEVICE uint64_t of_lane(const PerLane<uint64_t>& values, unsigned lane) { return values.value[lane]; }

#endif

template <class T>
RESIL_DEVICE T* at(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

}  // namespace resil::gpu::device
