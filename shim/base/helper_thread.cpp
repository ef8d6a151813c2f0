// SPDX-License-Identifier: Apache-2.0

#include "shim/base/helper_thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace resil {

void (*helper_thread_told)(int32_t tid, bool begins);

namespace {

constexpr size_t kStackBytes = 256 << 10;  // also holds the program's static thread-local storage

void tell(bool begins) {
  if (auto* told = __atomic_load_n(&helper_thread_told, __ATOMIC_ACQUIRE); told != nullptr)
    told(static_cast<int32_t>(syscall(SYS_gettid)), begins);
}

void* enter(void* run) {
  tell(true);
  reinterpret_cast<void (*)()>(run)();
  tell(false);
  return nullptr;
}

}  // namespace

bool helper_thread_start(const char* name, void (*run)()) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_t attributes;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited
  int error = pthread_create(&thread, &attributes, enter, reinterpret_cast<void*>(run));
  if (error == EINVAL && pthread_attr_setstacksize(&attributes, 16 * kStackBytes) == 0)
    error =
        pthread_create(&thread, &attributes, enter, reinterpret_cast<void*>(run));  // much static thread-local storage
  if (error == 0) pthread_setname_np(thread, name);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return error == 0;
}

}  // namespace resil
