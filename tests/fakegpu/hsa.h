// SPDX-License-Identifier: Apache-2.0
//
// How the stand-in's libamdhip64 tells its libhsa-runtime64 about memory: ROCr lies beneath HIP, and its functions say
// that nothing is initialised until HIP has been used.
#pragma once

#include <cstddef>
#include <cstdint>

struct FakeHsaAnswer {
  bool known, registered, device;  ///< is it anybody's; the host's own, locked; of a device
  int ordinal;
  uintptr_t base;
  size_t bytes;
};
using FakeHsaAsk = FakeHsaAnswer(uintptr_t address);

extern "C" void fakehsa_connect(FakeHsaAsk* ask);
