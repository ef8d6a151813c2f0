// SPDX-License-Identifier: Apache-2.0
//
// See level_zero.h.

#include "shim/runtime/accelerators/level_zero.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>

#include "shim/base/text_file.h"

namespace resil::gpu {

namespace {

bool begins(const char* text, const char* with) { return strncmp(text, with, strlen(with)) == 0; }

/// The vendors whose runtimes are asked themselves. Whoever else has a render node may be driven by Level Zero, a
/// virtual machine's device among them.
bool of_other_runtime(const char* root, const char* node) {
  char path[512], text[16];
  if (snprintf(path, sizeof(path), "%s/sys/class/drm/%s/device/vendor", root, node) >= static_cast<int>(sizeof(path)))
    return false;
  if (read_text_file(path, text, sizeof(text)) <= 0) return false;
  text[strcspn(text, "\n")] = 0;
  return strcmp(text, "0x10de") == 0 || strcmp(text, "0x1002") == 0;
}

/// Is there an entry in the folder that `counts`? True when it cannot be read.
template <class Counts>
bool any_in(const char* root, const char* folder, Counts counts) {
  char path[256];
  if (snprintf(path, sizeof(path), "%s%s", root, folder) >= static_cast<int>(sizeof(path))) return true;
  DIR* directory = opendir(path);
  if (directory == nullptr) return errno != ENOENT;
  bool found = false;
  while (!found) {
    errno = 0;
    const dirent* entry = readdir(directory);
    if (entry == nullptr) {
      found = errno != 0;
      break;
    }
    found = entry->d_name[0] != '.' && counts(entry->d_name);
  }
  closedir(directory);
  return found;
}

}  // namespace

LevelZero level_zero_library(const char* name) {
  if (begins(name, "libze_loader.so")) return LevelZero::kLoader;
  if (begins(name, "libze_tracing_layer") || begins(name, "libze_validation_layer")) return LevelZero::kHarmless;
  return begins(name, "libze_") ? LevelZero::kDriver : LevelZero::kNone;
}

bool level_zero_any_driver() {
  const char* names = getenv("ZE_ENABLE_ALT_DRIVERS");
  return names != nullptr && names[0] != 0;
}

bool level_zero_device(const char* root) {
  // A display adapter without a render node (card0 alone, as servers have it) computes nothing.
  const bool render = any_in(
      root, "/dev/dri", [root](const char* name) { return begins(name, "renderD") && !of_other_runtime(root, name); });
  char windows[256];
  const bool long_root = snprintf(windows, sizeof(windows), "%s/dev/dxg", root) >= static_cast<int>(sizeof(windows));
  return render || any_in(root, "/dev/accel", [](const char*) { return true; }) || long_root ||
         access(windows, F_OK) == 0 || errno != ENOENT;
}

}  // namespace resil::gpu
