// SPDX-License-Identifier: Apache-2.0
//
// Which entry of a call site is that of a call on the fast path (fast_path.h). Inline; no call is made.
#pragma once

#include "shim/call/fast_calls.h"
#include "shim/call/thread.h"
#include "shim/tables/tables.h"

namespace resil::fast {

/// From the address that a call returns to, maybe a binding's, to the program's call. False: the way is not known.
[[gnu::always_inline]] inline bool to_program(const SiteEntry& site, uint64_t frame, uint64_t* address) {
  if (!site.special) [[likely]]
    return true;
  if (site.offset == kNoPlace) return false;
  if (site.offset != 0) {
    *address = *reinterpret_cast<const uint64_t*>(frame + site.offset);
    if (*address - site.module_start >= site.module_bytes) return false;
  }
  *address += site.shift;
  return true;
}

/// Whether an entry that may go the fast path is of the call there.
[[gnu::always_inline]] inline bool is_from(const SiteEntry& one, uint64_t return_address, uint64_t frame) {
  return to_program(one, frame, &return_address) && (!one.special || return_address == one.site);
}

/// The call site's entry if the last call from it was this function's and may go the fast path; else null.
template <CallId id>
[[gnu::always_inline]] inline SiteEntry* repeated(Thread* thread, uint64_t return_address, uint64_t frame) {
  if (thread == nullptr || thread->depth != 0) [[unlikely]]
    return nullptr;
  SiteEntry* site = &thread->sites[site_place(return_address)];
  asm("" : "+r"(site));  // one register, not an index worked out again at each use
  if (site->id != (static_cast<uint16_t>(id) | kFast) || site->return_address != return_address ||
      site->generation != call_generation.load(std::memory_order_relaxed))
    return nullptr;
  return is_from(*site, return_address, frame) ? site : nullptr;
}

[[gnu::always_inline]] inline SiteEntry* entry_at(Thread& thread, uint64_t place) {
  return reinterpret_cast<SiteEntry*>(reinterpret_cast<char*>(thread.sites) + place);
}

/// The entry of an equal call from there: that of the call that followed the last one before, since programs repeat
/// themselves; else the last one from the call site, or one that another has followed; null: nothing that may go the
/// fast path. `differs`: whether an entry is of a call with other arguments.
template <CallId id, class Differs>
[[gnu::always_inline]] inline SiteEntry* equal_call(Thread* thread, uint64_t return_address, uint64_t frame,
                                                    uint64_t comm, uint64_t type, int64_t count, int peer,
                                                    Differs differs) {
  if (thread == nullptr || thread->depth != 0) [[unlikely]]
    return nullptr;
  const uint32_t generation = call_generation.load(std::memory_order_relaxed);
  const auto holds = [&](const SiteEntry& one) {
    return one.id == (static_cast<uint16_t>(id) | kFast) && one.generation == generation && !differs(one);
  };
  SiteEntry* last = entry_at(*thread, thread->last_entry);
  const uint64_t follower = last->follower();
  SiteEntry* site = entry_at(*thread, follower);
  asm("" : "+r"(site));  // one register, not an index worked out again at each use
  if (site->return_address == return_address && holds(*site) && is_from(*site, return_address, frame)) [[likely]] {
    thread->last_entry = static_cast<uint32_t>(follower);
    return site;
  }
  const auto take = [&](SiteEntry* taken) {
    const auto place = static_cast<uint32_t>(reinterpret_cast<char*>(taken) - reinterpret_cast<char*>(thread->sites));
    last->follower() = thread->last_entry = place;
    return taken;
  };
  site = &thread->sites[site_place(return_address)];
  asm("" : "+r"(site));
  if (site->return_address != return_address) [[unlikely]]
    return nullptr;
  uint64_t program = return_address;
  if (!to_program(*site, frame, &program)) return nullptr;
  const bool there = !site->special || program == site->site;
  if (there && holds(*site)) return take(site);
  const uint64_t bits = former_bits(program, comm, type, count, peer);
  unsigned place = former_place(*thread, bits);
  for (unsigned which = 0;;) {
    SiteEntry* found = &thread->former[place];
    asm("" : "+r"(found));
    if (found->return_address == return_address && found->site == program && holds(*found)) return take(found);
    if (++which == 2) return nullptr;
    place = former_other(place, bits);
  }
}

}  // namespace resil::fast
