// SPDX-License-Identifier: Apache-2.0
//
// Names from the ring of a rank: call sites as object file and offset, communicators as the program or resil named them.

#include <stdio.h>
#include <string.h>

#include "detectors/hang/snapshot.h"

namespace resil::hang {

namespace {

/// The section of that name, null when its bounds make no sense.
template <class T>
const T* section_of(const Watched& watched, const char* name, uint32_t* count) {
  const ring::Header& header = *watched.header;
  const uint32_t sections = header.section_count < 16 ? header.section_count : 16;
  for (uint32_t i = 0; i < sections; ++i) {
    const ring::Section& section = header.sections[i];
    if (strncmp(section.name, name, sizeof(section.name)) != 0 || section.offset > header.file_bytes ||
        section.bytes > header.file_bytes - section.offset || section.entry_bytes != sizeof(T))
      continue;
    *count = static_cast<uint32_t>(section.bytes / sizeof(T));
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(watched.header) + section.offset);
  }
  return nullptr;
}

}  // namespace

bool site_name(const Watched& watched, uint64_t address, char* text, uint32_t bytes) {
  uint32_t count = 0;
  auto* modules = section_of<ring::Module>(watched, "modules", &count);
  for (uint32_t i = 0; modules != nullptr && i < count; ++i) {
    if (modules[i].start == 0 || address < modules[i].start || address >= modules[i].end)
      continue;
    char path[sizeof(modules[i].path) + 1] = {};
    memcpy(path, modules[i].path, sizeof(modules[i].path));
    const char* slash = strrchr(path, '/');
    snprintf(text, bytes, "%s+0x%llx", slash != nullptr ? slash + 1 : path,
             static_cast<unsigned long long>(address - modules[i].base));
    return true;
  }
  return false;
}

bool comm_name(const Watched& watched, uint64_t id, char* text, uint32_t bytes) {
  uint32_t count = 0;
  auto* comms = section_of<ring::Comm>(watched, "comms", &count);
  for (uint32_t i = 0; comms != nullptr && i < count; ++i)
    if (comms[i].id == id) {
      snprintf(text, bytes, "%.*s", static_cast<int>(sizeof(comms[i].name)), comms[i].name);
      return text[0] != 0;
    }
  return false;
}

}  // namespace resil::hang
