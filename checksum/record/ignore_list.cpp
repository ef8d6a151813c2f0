// SPDX-License-Identifier: Apache-2.0
//
// RESIL_VERIFY_IGNORE, looked through once: an entry that names a place in an MPI library or in a language binding
// would leave every call unverified that goes through it, whosever it is. Such entries have no effect, and are told.
// Program's thread, in MPI_Init.

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "checksum/record/divergence.h"
#include "checksum/record/messages.h"
#include "shim/call/objects.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/report/log.h"

namespace resil::record {

namespace {

/// For objects that are not loaded yet: with the library of a plug-in its language binding comes, too.
bool is_mpis_name(const char* object) {
  for (const char* begin : {"libmpi", "libpmpi", "mca_"})
    if (strncmp(object, begin, strlen(begin)) == 0) return true;
  return false;
}

}  // namespace

void refuse_foreign_entries() {
  for (const char* at = config_text("RESIL_VERIFY_IGNORE"); *at != 0;) {
    const size_t length = strcspn(at, ",");
    char entry[256];
    snprintf(entry, sizeof(entry), "%.*s", static_cast<int>(length), at);
    at += length + (at[length] == ',');
    const char* offset = strstr(entry, "+0x");
    SiteClass kind = SiteClass::kUnknown;
    if (offset != nullptr) kind = class_of_object_named(entry, static_cast<size_t>(offset - entry));
    if (offset != nullptr && kind == SiteClass::kUnknown && is_mpis_name(entry)) kind = SiteClass::kBinding;
    if (void* function = offset == nullptr && entry[0] != 0 ? dlsym(RTLD_DEFAULT, entry) : nullptr; function != nullptr)
      kind = object_at(reinterpret_cast<uint64_t>(function)).kind;
    if (kind != SiteClass::kBinding && kind != SiteClass::kInternal) continue;
    add_note_format(messages::record::not_ignored, entry);
    if (runtime.rank == 0) log_format(messages::record::not_ignored, entry);
  }
}

}  // namespace resil::record
