// SPDX-License-Identifier: Apache-2.0
//
// Constants of one-sided communication in the three ABIs. Held against the installed mpi.h by tests/abi/abi_check.cpp.
// Included inside the backend's namespace, after the ABI's own header.

struct WindowConstants {
  int base, size, displacement_unit, flavor;  // attribute keys
  int create, allocate, dynamic, shared;  // flavours
  int no_precede, no_succeed, no_check, lock_exclusive;
};
constexpr WindowConstants kWindowConstants =
    kAbiName[0] == 'o' ? WindowConstants{7, 8, 9, 10, 1, 2, 3, 4, 2, 16, 1, 1}
    : kAbiName[0] == 'm'
        ? WindowConstants{0x66000001, 0x66000003, 0x66000005, 0x66000007, 1, 2, 3, 4, 8192, 16384, 1024, 234}
        : WindowConstants{601, 603, 602, 604, 311, 312, 313, 314, 2048, 16384, 1024, 301};
