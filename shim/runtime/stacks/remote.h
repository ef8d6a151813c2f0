// SPDX-License-Identifier: Apache-2.0
//
// Stacks and program counters of threads of another process that goes on meanwhile: no signal, no ptrace, no stop. Of a
// thread that sleeps in a system call the kernel tells program counter and stack pointer (/proc/PID/task/TID/syscall);
// of one that runs a sample of its registers and of the top of its stack (perf_event_open, user mode only). The rest is
// read by process_vm_readv. Where the kernel does not permit it, nothing is known. Ordinary context; system calls and
// the caller's memory only. What is read is not trusted.
#pragma once

#include <cstdint>

#include "shim/runtime/stacks/objects.h"
#include "shim/runtime/stacks/unwind.h"

namespace resil::stacks {

constexpr uint32_t kRemoteObjects = 192, kObjectName = 48, kStackCopy = 4096, kRemotePages = 64;

/// One object file that is mapped there.
struct RemoteObject {
  Object object;
  char name[kObjectName];  ///< without its folder
};

/// A process and the pages of it that were read last.
struct RemoteProcess : OtherProcess {
  int32_t pid;
  uint32_t object_count;
  RemoteObject objects[kRemoteObjects];
  const char* copy;  ///< of a stack, as it was when the sample was taken; null: none
  uint64_t copy_at, copy_bytes;
  uint64_t page_at[kRemotePages];
  alignas(8) char pages[kRemotePages][4096];
};

/// What is known of a thread at one instant.
struct RemoteThread {
  int32_t pid, tid;
  bool known, sleeps;  ///< sleeps: in a system call
  Registers registers;  ///< of one that sleeps: program counter and stack pointer only
  uint32_t copy_bytes;
  alignas(8) char copy[kStackCopy];  ///< of the stack from the stack pointer on
};

/// Reads which objects are mapped. False: no such process, or it may not be read.
bool remote_open(RemoteProcess* process, int32_t pid);
/// All these threads at once; takes at most `milliseconds` for each 16, when one of them runs.
void remote_sample(RemoteThread* threads, uint32_t count, long milliseconds);
/// Walks the stack of a thread that is known.
void remote_unwind(RemoteProcess* process, const RemoteThread& thread, UnwindWork* work, Stack* stack);
/// Forgets the memory that has been read: what is read next is of now.
void remote_forget(RemoteProcess* process);
/// "libmpi.so.40+0x1234"; "" not in any object.
void remote_name(RemoteProcess* process, uint64_t address, char* text, uint32_t bytes);

}  // namespace resil::stacks
