// SPDX-License-Identifier: Apache-2.0
//
// Names from the ring of a rank: call sites as object file and offset, communicators as the program or resil named
// them.

#include <stdio.h>
#include <string.h>

#include "detectors/hang/reader/snapshot.h"
#include "shim/model/calls.h"

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

/// "app+0x2a5f"
bool module_place(const Watched& watched, uint64_t address, char* text, uint32_t bytes) {
  uint32_t count = 0;
  auto* modules = section_of<ring::Module>(watched, "modules", &count);
  for (uint32_t i = 0; modules != nullptr && i < count; ++i) {
    if (modules[i].start == 0 || address < modules[i].start || address >= modules[i].end) continue;
    char path[sizeof(modules[i].path) + 1] = {};
    memcpy(path, modules[i].path, sizeof(modules[i].path));
    const char* slash = strrchr(path, '/');
    snprintf(text, bytes, "%s+0x%llx", slash != nullptr ? slash + 1 : path,
             static_cast<unsigned long long>(address - modules[i].base));
    return true;
  }
  return false;
}

struct Comms {
  const ring::Comm* entries;  ///< null: the ring has none
  uint32_t count;
};

/// Of a rank's grid, the communicators of its row and its column are made by calls of one name, and may be of one size.
bool has_namesake(const Comms& comms, const ring::Comm& comm) {
  for (uint32_t i = 0; i < comms.count; ++i) {
    const ring::Comm& other = comms.entries[i];
    if (&other != &comm && __atomic_load_n(&other.id, __ATOMIC_ACQUIRE) != 0 && other.unnamed != 0 &&
        other.size == comm.size && strncmp(other.name, comm.name, sizeof(comm.name)) == 0)
      return true;
  }
  return false;
}

/// Without a name of its own, how it was made and how large it is: "MPI_Comm_split of MPI_COMM_WORLD (4 ranks)"; and
/// where it was made, when another one would have the same words.
bool describe_comm(const Watched& watched, const Comms& comms, const ring::Comm& comm, bool freed, char* text,
                   uint32_t bytes) {
  const int width = static_cast<int>(strnlen(comm.name, sizeof(comm.name)));
  if (comm.unnamed == 0 || comm.remote_size >= 0) {
    snprintf(text, bytes, "%.*s%s", width, comm.name, freed ? " (freed)" : "");
    return width != 0;
  }
  char made_at[64] = ", made in ";
  const auto start = static_cast<uint32_t>(strlen(made_at));
  if (comm.site == 0 || !has_namesake(comms, comm) ||
      !module_place(watched, comm.site, made_at + start, static_cast<uint32_t>(sizeof(made_at)) - start))
    made_at[0] = 0;
  const char* gone = freed ? ", freed" : "";
  const int length = snprintf(text, bytes, "%.*s (%d rank%s%s%s)", width, comm.name, comm.size,
                              comm.size == 1 ? "" : "s", made_at, gone);
  if (made_at[0] != 0 && length >= static_cast<int>(bytes))  // no half of a place
    snprintf(text, bytes, "%.*s (%d rank%s%s)", width, comm.name, comm.size, comm.size == 1 ? "" : "s", gone);
  return width != 0;
}

/// A window or a file: "a window of MPI_COMM_WORLD"; and where it was made, when there is another one of that
/// communicator.
template <uint32_t count>
bool made_from(const Watched& watched, const Comms& comms, const WindowSlot (&slots)[count], const char* what,
               uint64_t id, char* text, uint32_t bytes) {
  const auto id_of = [](const WindowSlot& slot) { return __atomic_load_n(&slot.id, __ATOMIC_ACQUIRE); };
  const WindowSlot* found = nullptr;
  for (const WindowSlot& slot : slots)
    if (id_of(slot) == id) found = &slot;
  if (found == nullptr) return false;
  bool has_namesake = false;
  for (const WindowSlot& slot : slots)
    has_namesake = has_namesake || (&slot != found && id_of(slot) != 0 && slot.comm == found->comm);
  const auto width = static_cast<int>(sizeof(ring::Comm::name));
  const char* comm = found->comm < comms.count ? comms.entries[found->comm].name : "a communicator";
  char place[64];
  const int length = has_namesake && module_place(watched, found->site, place, sizeof(place))
                         ? snprintf(text, bytes, "%s of %.*s (made in %s)", what, width, comm, place)
                         : -1;
  if (length < 0 || length >= static_cast<int>(bytes)) snprintf(text, bytes, "%s of %.*s", what, width, comm);
  return true;
}

/// A persistent collective: "MPI_COMM_WORLD (made by call 3 there)".
bool persistent_name(const Watched& watched, const ring::Comm* comms, uint32_t comm_count, uint64_t id, char* text,
                     uint32_t bytes) {
  if (watched.section == nullptr || __atomic_load_n(&watched.section->persistent_collectives, __ATOMIC_RELAXED) == 0)
    return false;
  for (uint32_t i = 0; i < watched.request_count; ++i) {
    const ring::Request& request = watched.requests[i];
    const int32_t made = watched.pending[i].receive_tag;
    if (__atomic_load_n(&request.key, __ATOMIC_ACQUIRE) == 0 || (request.flags & ring::kPersistent) == 0 || made <= 0 ||
        request.comm >= comm_count || persistent_comm(comms[request.comm].id, static_cast<uint64_t>(made)) != id)
      continue;
    snprintf(text, bytes, "%.*s (made by call %d there)", static_cast<int>(sizeof(comms[0].name)),
             comms[request.comm].name, made);
    return true;
  }
  return false;
}

}  // namespace

const ring::TraceBuffer* first_trace(const Watched& watched) {
  uint32_t count = 0;
  return section_of<ring::TraceBuffer>(watched, "lanes", &count);
}

/// Of the call from that address that a thread is in just now: its line in the Python program.
static bool python_site(const Watched& watched, uint64_t address, char* text, uint32_t bytes) {
  if (watched.section == nullptr || watched.section->python.runtime == 0) return false;
  for (uint32_t i = 0; i < watched.trace_count; ++i) {
    const ring::TraceBuffer& trace = watched.traces[i];
    const uint64_t open = __atomic_load_n(&trace.current, __ATOMIC_ACQUIRE);
    if (open == 0) continue;
    const ring::Record& record = ring::record_at(trace, open - 1);
    if (__atomic_load_n(&record.site, __ATOMIC_RELAXED) != address) continue;
    return python_at(watched, __atomic_load_n(&trace.tid, __ATOMIC_RELAXED), text, bytes) &&
           __atomic_load_n(&trace.current, __ATOMIC_ACQUIRE) == open;
  }
  return false;
}

bool site_name(const Watched& watched, uint64_t address, char* text, uint32_t bytes) {
  return python_site(watched, address, text, bytes) || module_place(watched, address, text, bytes);
}

bool comm_name(const Watched& watched, uint64_t id, char* text, uint32_t bytes) {
  uint32_t count = 0;
  auto* comms = section_of<ring::Comm>(watched, "comms", &count);
  const Comms all = {comms, comms != nullptr ? count : 0};
  for (uint32_t i = 0; i < all.count && id != 0; ++i)
    if (__atomic_load_n(&comms[i].id, __ATOMIC_ACQUIRE) == id)
      return describe_comm(watched, all, comms[i], false, text, bytes);
  if (watched.section != nullptr && id != 0 &&
      (made_from(watched, all, watched.section->windows, "a window", id, text, bytes) ||
       made_from(watched, all, watched.section->files, "a file", id, text, bytes)))
    return true;
  if (comms != nullptr && id != 0 && persistent_name(watched, comms, count, id, text, bytes)) return true;
  if (watched.section != nullptr && id != 0 && __atomic_load_n(&watched.section->final_comm, __ATOMIC_ACQUIRE) == id) {
    snprintf(text, bytes, "MPI_COMM_WORLD");  // MPI_Finalize may delete its entry
    return true;
  }
  for (uint32_t i = 0; i < all.count && id != 0; ++i)
    if (__atomic_load_n(&comms[i].id, __ATOMIC_ACQUIRE) == 0 && comms[i].was == id)
      return describe_comm(watched, all, comms[i], true, text, bytes);
  return false;
}

bool host_name(const Watched& watched, char* text, uint32_t bytes) {
  snprintf(text, bytes, "%.*s, pid %d", static_cast<int>(sizeof(watched.header->host)), watched.header->host,
           watched.pid);
  return true;
}

bool last_call(const Watched& watched, char* text, uint32_t bytes) {
  const ring::TraceBuffer* trace = first_trace(watched);
  const uint64_t head = trace != nullptr ? __atomic_load_n(&trace->head, __ATOMIC_ACQUIRE) : 0;
  if (head == 0) return false;
  const ring::Record record = ring::record_at(*trace, head - 1);
  char site[64] = "", where[80] = "";
  if (site_name(watched, record.site, site, sizeof(site))) snprintf(where, sizeof(where), " at %s", site);
  uint32_t count = 0;
  auto* comms = section_of<ring::Comm>(watched, "comms", &count);
  const char* call = record.call < kCallCount ? call_info(static_cast<CallId>(record.call)).name : "a call";
  if (comms == nullptr || record.comm == 0 || record.comm >= count) snprintf(text, bytes, "%s%s", call, where);
  else if (record.call < kCallCount && (call_info(static_cast<CallId>(record.call)).attributes & kCallCollective))
    snprintf(text, bytes, "%s on %.40s, collective %llu%s", call, comms[record.comm].name,
             static_cast<unsigned long long>(record.sequence), where);
  else snprintf(text, bytes, "%s on %.40s%s", call, comms[record.comm].name, where);
  return true;
}

}  // namespace resil::hang
