// SPDX-License-Identifier: Apache-2.0
//
// Functions that glibc 2.34 moved from libdl and libpthread into libc. An older process that has no MPI may have
// neither library, and a preloaded library that needs one of them would keep every command on the node from starting.
// So they are asked for weakly, in their old versions, by these functions of the same names, which the whole library
// calls. libdl is loaded when it is missing: an MPI may do without it (MPICH 3.4). libpthread is not, since that cannot
// be done to a process that runs; every MPI has it, and one that a plug-in brings is looked up by find_threads(). Any
// thread; what is async-signal-safe in libc is so here.

#include "shim/libc/moved.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#if defined(__x86_64__)
#define RESIL_FIRST "2.2.5"
#define RESIL_LATER(version) version
#elif defined(__aarch64__)
#define RESIL_FIRST "2.17"
#define RESIL_LATER(version) "2.17"
#endif

#ifdef RESIL_FIRST

/// libc's function in this version, as libc_NAME; null where the process has none.
#define RESIL_WEAK(name, version)                              \
  extern "C" __typeof(name) libc_##name __attribute__((weak)); \
  asm(".symver libc_" #name ", " #name "@GLIBC_" version)
#define RESIL_HIDDEN __attribute__((visibility("hidden"), used))

RESIL_WEAK(dladdr, RESIL_FIRST);
RESIL_WEAK(dladdr1, RESIL_LATER("2.3.3"));
RESIL_WEAK(dlopen, RESIL_FIRST);
RESIL_WEAK(dlsym, RESIL_FIRST);
RESIL_WEAK(dlvsym, RESIL_FIRST);
RESIL_WEAK(pthread_attr_getstack, RESIL_FIRST);
RESIL_WEAK(pthread_attr_setstacksize, RESIL_FIRST);
RESIL_WEAK(pthread_create, RESIL_FIRST);
RESIL_WEAK(pthread_getattr_np, RESIL_FIRST);
RESIL_WEAK(pthread_getname_np, RESIL_LATER("2.12"));
RESIL_WEAK(pthread_getspecific, RESIL_FIRST);
RESIL_WEAK(pthread_join, RESIL_FIRST);
RESIL_WEAK(pthread_key_create, RESIL_FIRST);
RESIL_WEAK(pthread_setname_np, RESIL_LATER("2.12"));
RESIL_WEAK(pthread_setspecific, RESIL_FIRST);
RESIL_WEAK(pthread_sigmask, RESIL_FIRST);

/// Functions of libpthread: as the loader bound them, else as find_threads() found them.
#define RESIL_THREADS(each)                                                                                 \
  each(pthread_attr_getstack) each(pthread_attr_setstacksize) each(pthread_create) each(pthread_getattr_np) \
      each(pthread_getname_np) each(pthread_getspecific) each(pthread_join) each(pthread_key_create)        \
          each(pthread_setname_np) each(pthread_setspecific) each(pthread_sigmask)

#define RESIL_NOW(name) __typeof(name)* now_##name = libc_##name;

extern "C" void* __libc_dlopen_mode(const char* name, int mode) __attribute__((weak));
extern "C" void* __libc_dlsym(void* object, const char* name) __attribute__((weak));

namespace {

RESIL_THREADS(RESIL_NOW)

/// A function of libdl, of which this process has no copy yet; null when there is none.
template <class Function>
Function* of_libdl(const char* name) {
  constexpr int kDlopen = static_cast<int>(0x80000000u);  // what dlopen itself adds to the mode
  void* libdl = __libc_dlopen_mode != nullptr && __libc_dlsym != nullptr
                    ? __libc_dlopen_mode("libdl.so.2", RTLD_NOW | kDlopen)
                    : nullptr;
  return libdl != nullptr ? reinterpret_cast<Function*>(__libc_dlsym(libdl, name)) : nullptr;
}

}  // namespace

extern "C" {

RESIL_HIDDEN int resil_dladdr(const void* address, Dl_info* info) __asm__("dladdr");
int resil_dladdr(const void* address, Dl_info* info) {
  auto* call = libc_dladdr != nullptr ? libc_dladdr : of_libdl<decltype(dladdr)>("dladdr");
  return call != nullptr ? call(address, info) : 0;
}

RESIL_HIDDEN int resil_dladdr1(const void* address, Dl_info* info, void** extra, int flags) __asm__("dladdr1");
int resil_dladdr1(const void* address, Dl_info* info, void** extra, int flags) {
  auto* call = libc_dladdr1 != nullptr ? libc_dladdr1 : of_libdl<decltype(dladdr1)>("dladdr1");
  return call != nullptr ? call(address, info, extra, flags) : 0;
}

RESIL_HIDDEN void* resil_dlopen(const char* name, int mode) __asm__("dlopen");
void* resil_dlopen(const char* name, int mode) {
  auto* call = libc_dlopen != nullptr ? libc_dlopen : of_libdl<decltype(dlopen)>("dlopen");
  return call != nullptr ? call(name, mode) : nullptr;
}

// RTLD_NEXT means behind the object of the caller, which is this library here as there.
RESIL_HIDDEN void* resil_dlsym(void* object, const char* name) __asm__("dlsym");
void* resil_dlsym(void* object, const char* name) {
  auto* call = libc_dlsym != nullptr ? libc_dlsym : of_libdl<decltype(dlsym)>("dlsym");
  return call != nullptr ? call(object, name) : nullptr;
}

RESIL_HIDDEN void* resil_dlvsym(void* object, const char* name, const char* version) __asm__("dlvsym");
void* resil_dlvsym(void* object, const char* name, const char* version) {
  auto* call = libc_dlvsym != nullptr ? libc_dlvsym : of_libdl<decltype(dlvsym)>("dlvsym");
  return call != nullptr ? call(object, name, version) : nullptr;
}

RESIL_HIDDEN int resil_attr_getstack(const pthread_attr_t* attr, void** stack,
                                     size_t* bytes) __asm__("pthread_attr_getstack");
int resil_attr_getstack(const pthread_attr_t* attr, void** stack, size_t* bytes) {
  return now_pthread_attr_getstack != nullptr ? now_pthread_attr_getstack(attr, stack, bytes) : ENOSYS;
}

RESIL_HIDDEN int resil_attr_setstacksize(pthread_attr_t* attr, size_t bytes) __asm__("pthread_attr_setstacksize");
int resil_attr_setstacksize(pthread_attr_t* attr, size_t bytes) {
  return now_pthread_attr_setstacksize != nullptr ? now_pthread_attr_setstacksize(attr, bytes) : ENOSYS;
}

RESIL_HIDDEN int resil_create(pthread_t* thread, const pthread_attr_t* attr, void* (*start)(void*),
                              void* argument) __asm__("pthread_create");
int resil_create(pthread_t* thread, const pthread_attr_t* attr, void* (*start)(void*), void* argument) {
  return now_pthread_create != nullptr ? now_pthread_create(thread, attr, start, argument) : ENOSYS;
}

RESIL_HIDDEN int resil_getattr(pthread_t thread, pthread_attr_t* attr) __asm__("pthread_getattr_np");
int resil_getattr(pthread_t thread, pthread_attr_t* attr) {
  return now_pthread_getattr_np != nullptr ? now_pthread_getattr_np(thread, attr) : ENOSYS;
}

RESIL_HIDDEN int resil_getname(pthread_t thread, char* name, size_t bytes) __asm__("pthread_getname_np");
int resil_getname(pthread_t thread, char* name, size_t bytes) {
  return now_pthread_getname_np != nullptr ? now_pthread_getname_np(thread, name, bytes) : ENOSYS;
}

RESIL_HIDDEN void* resil_getspecific(pthread_key_t key) __asm__("pthread_getspecific");
void* resil_getspecific(pthread_key_t key) {
  return now_pthread_getspecific != nullptr ? now_pthread_getspecific(key) : nullptr;
}

RESIL_HIDDEN int resil_join(pthread_t thread, void** result) __asm__("pthread_join");
int resil_join(pthread_t thread, void** result) {
  return now_pthread_join != nullptr ? now_pthread_join(thread, result) : ENOSYS;
}

RESIL_HIDDEN int resil_key_create(pthread_key_t* key, void (*destroy)(void*)) __asm__("pthread_key_create");
int resil_key_create(pthread_key_t* key, void (*destroy)(void*)) {
  return now_pthread_key_create != nullptr ? now_pthread_key_create(key, destroy) : ENOSYS;
}

RESIL_HIDDEN int resil_setname(pthread_t thread, const char* name) __asm__("pthread_setname_np");
int resil_setname(pthread_t thread, const char* name) {
  return now_pthread_setname_np != nullptr ? now_pthread_setname_np(thread, name) : ENOSYS;
}

RESIL_HIDDEN int resil_setspecific(pthread_key_t key, const void* value) __asm__("pthread_setspecific");
int resil_setspecific(pthread_key_t key, const void* value) {
  return now_pthread_setspecific != nullptr ? now_pthread_setspecific(key, value) : ENOSYS;
}

RESIL_HIDDEN int resil_sigmask(int how, const sigset_t* set, sigset_t* old) __asm__("pthread_sigmask");
int resil_sigmask(int how, const sigset_t* set, sigset_t* old) {
  if (now_pthread_sigmask != nullptr) return now_pthread_sigmask(how, set, old);
  return sigprocmask(how, set, old) == 0 ? 0 : errno;  // one thread
}

}  // extern "C"

namespace resil {

void* find_in_libdl(const char* name) { return of_libdl<void>(name); }

void find_threads() {
  if (libc_pthread_key_create != nullptr) return;
  void* libpthread = dlopen("libpthread.so.0", RTLD_LAZY | RTLD_NOLOAD);
  if (libpthread == nullptr) return;  // a process without threads, whatever it calls MPI
#define RESIL_FIND(name) \
  if (now_##name == nullptr) now_##name = reinterpret_cast<__typeof(name)*>(dlsym(libpthread, #name));
  RESIL_THREADS(RESIL_FIND)
}

}  // namespace resil

#else

namespace resil {

void* find_in_libdl(const char*) { return nullptr; }

void find_threads() {}

}  // namespace resil

#endif
