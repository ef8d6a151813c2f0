// SPDX-License-Identifier: Apache-2.0
//
// What the compiler calls for each access to memory, by the sanitizer's names, and the functions that meson.build
// wraps.
#include "tests/litmus/machine.h"

using litmus::plain;
#define CALLER __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define PLAIN(bytes)                                                                                  \
  void __tsan_read##bytes(void* p) { plain(reinterpret_cast<uintptr_t>(p), bytes, false); }           \
  void __tsan_write##bytes(void* p) { plain(reinterpret_cast<uintptr_t>(p), bytes, true); }           \
  void __tsan_unaligned_read##bytes(void* p) { plain(reinterpret_cast<uintptr_t>(p), bytes, false); } \
  void __tsan_unaligned_write##bytes(void* p) { plain(reinterpret_cast<uintptr_t>(p), bytes, true); } \
  void __tsan_volatile_read##bytes(void* p) { plain(reinterpret_cast<uintptr_t>(p), bytes, false); }  \
  void __tsan_volatile_write##bytes(void* p) { plain(reinterpret_cast<uintptr_t>(p), bytes, true); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
void __tsan_read_range(void* p, unsigned long n) { plain(reinterpret_cast<uintptr_t>(p), n, false, true); }
void __tsan_write_range(void* p, unsigned long n) { plain(reinterpret_cast<uintptr_t>(p), n, true, true); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define ATOMIC(bits, T)                                                                                          \
  T __tsan_atomic##bits##_load(const volatile T* p, int order) { return litmus::atomic_load(p, order, CALLER); } \
  void __tsan_atomic##bits##_store(volatile T* p, T v, int order) {                                              \
    litmus::atomic_change(p, order, CALLER, false, [v](T& x) {                                                   \
      x = v;                                                                                                     \
      return true;                                                                                               \
    });                                                                                                          \
  }                                                                                                              \
  T __tsan_atomic##bits##_exchange(volatile T* p, T v, int order) {                                              \
    return litmus::atomic_change(p, order, CALLER, true, [v](T& x) {                                             \
      x = v;                                                                                                     \
      return true;                                                                                               \
    });                                                                                                          \
  }                                                                                                              \
  T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int order) {                                             \
    return litmus::atomic_change(p, order, CALLER, true, [v](T& x) {                                             \
      x = static_cast<T>(x + v);                                                                                 \
      return true;                                                                                               \
    });                                                                                                          \
  }                                                                                                              \
  T __tsan_atomic##bits##_fetch_sub(volatile T* p, T v, int order) {                                             \
    return litmus::atomic_change(p, order, CALLER, true, [v](T& x) {                                             \
      x = static_cast<T>(x - v);                                                                                 \
      return true;                                                                                               \
    });                                                                                                          \
  }                                                                                                              \
  T __tsan_atomic##bits##_fetch_or(volatile T* p, T v, int order) {                                              \
    return litmus::atomic_change(p, order, CALLER, true, [v](T& x) {                                             \
      x = static_cast<T>(x | v);                                                                                 \
      return true;                                                                                               \
    });                                                                                                          \
  }                                                                                                              \
  T __tsan_atomic##bits##_fetch_and(volatile T* p, T v, int order) {                                             \
    return litmus::atomic_change(p, order, CALLER, true, [v](T& x) {                                             \
      x = static_cast<T>(x & v);                                                                                 \
      return true;                                                                                               \
    });                                                                                                          \
  }                                                                                                              \
  bool __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int order, int) {          \
    bool done = false;                                                                                           \
    const T wanted = *expected;                                                                                  \
    const T old = litmus::atomic_change(p, order, CALLER, true, [&](T& x) {                                      \
      done = x == wanted;                                                                                        \
      if (done) x = v;                                                                                           \
      return done;                                                                                               \
    });                                                                                                          \
    *expected = old;                                                                                             \
    return done;                                                                                                 \
  }                                                                                                              \
  bool __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T v, int order, int other) {      \
    return __tsan_atomic##bits##_compare_exchange_strong(p, expected, v, order, other);                          \
  }                                                                                                              \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T v, int order, int other) {           \
    __tsan_atomic##bits##_compare_exchange_strong(p, &expected, v, order, other);                                \
    return expected;                                                                                             \
  }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)
void __tsan_atomic_thread_fence(int order) { litmus::fence(order, CALLER); }
void __tsan_atomic_signal_fence(int) {}

// Copies of memory, and giving way, in the files under test (meson.build links with --wrap).
void* __real_memcpy(void*, const void*, size_t);
void* __real_memset(void*, int, size_t);
void* __wrap_memcpy(void* to, const void* from, size_t bytes) {
  plain(reinterpret_cast<uintptr_t>(from), bytes, false);
  plain(reinterpret_cast<uintptr_t>(to), bytes, true);
  return __real_memcpy(to, from, bytes);
}
void* __wrap_memset(void* to, int value, size_t bytes) {
  plain(reinterpret_cast<uintptr_t>(to), bytes, true);
  return __real_memset(to, value, bytes);
}
/// Small mappings of a program's setup are its memory(): the same in each execution, and no leak.
void* __real_mmap64(void*, size_t, int, int, int, long);
void* __wrap_mmap64(void* at, size_t bytes, int protection, int flags, int file, long offset) {
  if (litmus::machine != nullptr && !litmus::machine->running && bytes < (1u << 16)) return litmus::memory(bytes);
  return __real_mmap64(at, bytes, protection, flags, file, offset);
}
int __wrap_sched_yield() {
  if (litmus::machine != nullptr && litmus::machine->running && !litmus::machine->inside) litmus::schedule(true);
  return 0;
}

}  // extern "C"
