// SPDX-License-Identifier: Apache-2.0
//
// A call site as reports show it: "a.out+0x1234", the object and the offset that addr2line takes.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "shim/call/runtime.h"

namespace resil {

/// Writes the site into `text`, of `bytes` bytes; "0x7f..." when no object is known to hold it. For findings: may ask
/// the dynamic loader, so not for signal handlers.
[[gnu::noinline]] inline void site_text(uint64_t site, char* text, size_t bytes) {
  const char* path = nullptr;
  uint64_t bias = 0;
  for (uint32_t i = 0; i < runtime.module_count && path == nullptr; ++i) {
    const ring::Module& module = runtime.modules[i];
    const uint64_t start = __atomic_load_n(&module.start, __ATOMIC_ACQUIRE);
    if (start != 0 && site >= start && site < module.end) path = module.path, bias = module.base;
  }
  Dl_info info;
  link_map* map = nullptr;
  if (path == nullptr && site != 0 &&
      dladdr1(reinterpret_cast<void*>(site), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0 &&
      map != nullptr && info.dli_fname != nullptr)
    path = info.dli_fname, bias = map->l_addr;
  if (path == nullptr) {
    snprintf(text, bytes, "0x%" PRIx64, site);
    return;
  }
  const char* slash = strrchr(path, '/');
  snprintf(text, bytes, "%s+0x%" PRIx64, slash != nullptr ? slash + 1 : path, site - bias);
}

}  // namespace resil
