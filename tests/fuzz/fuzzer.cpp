// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer's side: one program for all parsers; RESIL_FUZZ_TARGET names one.
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Target* const target = fuzz::find_target(getenv("RESIL_FUZZ_TARGET"));
  fuzz::must(target != nullptr, "RESIL_FUZZ_TARGET names a target");
  target->run(data, size);
  return 0;
}
