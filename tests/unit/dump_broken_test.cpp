// SPDX-License-Identifier: Apache-2.0
//
// The dump signal against stacks that are none: a stack pointer into nowhere, a stack that was overwritten.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

#include "check.h"
#include "dump_fixture.h"

using namespace fixture;

namespace {

/// Spins with the stack pointer and frame pointer set to the given values, until told to stop.
[[gnu::noinline]] void spin_with(uint64_t sp, uint64_t frame) {
  const volatile int* flag = reinterpret_cast<const volatile int*>(&shared->stop);
  asm volatile(
      "movq %%rsp, %%r12\n movq %%rbp, %%r13\n movq %0, %%rsp\n movq %1, %%rbp\n"
      "1: pause\n cmpl $0, (%2)\n je 1b\n"
      "movq %%r12, %%rsp\n movq %%r13, %%rbp\n" ::"r"(sp),
      "r"(frame), "r"(flag)
      : "r12", "r13", "cc", "memory");
}

/// The smallest alternate stack that programs use: the handler must fit.
void use_small_alternate_stack() {
  static char memory[8192];
  stack_t alternate{};
  alternate.ss_sp = memory;
  alternate.ss_size = sizeof memory;
  sigaltstack(&alternate, nullptr);
}

std::string broken_stack_dump(uint64_t sp, uint64_t frame, int* status) {
  Directory directory;
  return dump_of(directory, status, nullptr, [=] {
    use_small_alternate_stack();
    ready();
    spin_with(sp, frame);
    return 0;
  });
}

uint64_t expected_sp;

/// Whether a process with this stack pointer survives a signal whose handler does nothing. Some processors and
/// hypervisors do not return to a stack pointer that is not canonical: there the program dies of its own.
bool returns_to(uint64_t sp, uint64_t frame) {
  return finish(start([=] {
           use_small_alternate_stack();
           expected_sp = sp;
           struct sigaction action {};
           action.sa_flags = SA_SIGINFO | SA_ONSTACK;
           action.sa_sigaction = [](int, siginfo_t*, void* context) {
             const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
             if (static_cast<uint64_t>(registers[REG_RSP]) == expected_sp) shared->stop.store(1);
           };
           sigaction(SIGALRM, &action, nullptr);
           const itimerval millisecond{{0, 1000}, {0, 1000}};
           setitimer(ITIMER_REAL, &millisecond, nullptr);
           spin_with(sp, frame);
           return 0;
         })) == 0;
}

}  // namespace

TEST_CASE("a stack pointer into nowhere does not kill", "[dump]") {
  int survived = 0;
  for (const uint64_t sp : {uint64_t{0}, uint64_t{8}, uint64_t{0x1000}, uint64_t{0x7ffffffff000}, ~uint64_t{7},
                            uint64_t{0x8000000000000000}, uint64_t{0x123456789abcdef8}}) {
    int status;
    const std::string text = broken_stack_dump(sp, sp ^ 0x10, &status);
    CAPTURE(sp);
    CHECK_THAT(text, Catch::Contains("ends here"));
    if (!returns_to(sp, sp ^ 0x10)) continue;
    CHECK(status == 0);
    ++survived;
  }
  CHECK(survived >= 5);  // the canonical ones, on every machine
}

TEST_CASE("an overwritten stack does not kill", "[dump]") {
  Directory directory;
  auto* junk = static_cast<uint64_t*>(mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (unsigned seed = 0; seed < 8; ++seed) {
    // Return addresses into code, data, the stack itself and nowhere.
    for (unsigned i = 0; i < 8192; ++i) {
      const uint64_t kinds[] = {reinterpret_cast<uint64_t>(&malloc) + i % 512, reinterpret_cast<uint64_t>(junk) + 8 * i,
                                uint64_t{i} * 0x9e3779b97f4a7c15, reinterpret_cast<uint64_t>(&seed), 0};
      junk[i] = kinds[(i * (seed + 1) + seed) % 5];
    }
    int status;
    const auto middle = reinterpret_cast<uint64_t>(junk) + 8192;
    const std::string text = broken_stack_dump(middle, middle + 64, &status);
    CAPTURE(seed);
    CHECK(status == 0);
    CHECK_THAT(text, Catch::Contains("#0 "));
  }
  munmap(junk, 65536);
}
#endif
