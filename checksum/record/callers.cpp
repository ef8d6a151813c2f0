// SPDX-License-Identifier: Apache-2.0
//
// See callers.h.

#include "checksum/record/callers.h"

#include <dlfcn.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "checksum/record/sites.h"
#include "shim/base/own_stack.h"
#include "shim/base/spinlock.h"
#include "shim/call/objects.h"
#include "shim/call/site_text.h"
#include "shim/config/config.h"
#include "shim/model/event.h"

namespace resil::record {

namespace {

constexpr unsigned kWays = 256, kSamples = 2000;

/// A way that has led to differences at a call site.
struct Way {
  uint64_t site;  ///< 0: free
  Frames callers;
  uint32_t differed;
  uint32_t sampled;  ///< in the site's first way: values that agreed and whose callers were looked at
  uint64_t before;  ///< the same: values compared at the site before the first one that differed
  uint32_t agreed[kFrames];  ///< values that agree and that this caller has led to, of those sampled
};
Way ways[kWays];
unsigned way_count;
SpinLock lock;

struct Walk {
  uint64_t first;
  Frames* frames;
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* data) {
  auto* walk = static_cast<Walk*>(data);
  const uint64_t pc = _Unwind_GetIP(context);
  if (walk->first != 0 && pc != walk->first) return _URC_NO_REASON;  // still inside the library
  walk->first = 0;
  if (pc == 0) return _URC_END_OF_STACK;
  walk->frames->at[walk->frames->count++] = pc;
  return walk->frames->count == kFrames ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/// What calls main, and threads' functions.
bool in_libc(uint64_t address) {
  static Extent libc;
  static std::atomic<int> known;  // 1: found, -1: there is none
  if (known.load(std::memory_order_acquire) == 0) {
    Extent found = {};
    const bool any = extent_of(reinterpret_cast<uint64_t>(dlsym(RTLD_DEFAULT, "gnu_get_libc_version")), &found);
    SpinGuard guard(lock);
    if (any && known.load(std::memory_order_relaxed) == 0) libc = found;  // once: others read it
    known.store(any ? 1 : -1, std::memory_order_release);
  }
  return known.load(std::memory_order_relaxed) == 1 && libc.holds(address);
}

/// The callers of the event's call site: none where that is not in its stack.
Frames callers_of(const Event& e) {
  Frames callers = {};
  on_own_stack([&] {
    const Frames frames = frames_from(e.return_address);
    unsigned i = 0;
    while (i < frames.count && frames.at[i] != e.site) ++i;
    for (++i; i < frames.count && !in_libc(frames.at[i]); ++i)
      if (site_is_programs(frames.at[i])) callers.at[callers.count++] = frames.at[i];
  });
  return callers;
}

bool is_in(const Frames& frames, uint64_t address) {
  return std::find(frames.at, frames.at + frames.count, address) != frames.at + frames.count;
}

}  // namespace

Frames frames_from(uint64_t first) {
  Frames frames = {};
  Walk walk = {first, &frames};
  _Unwind_Backtrace(visit, &walk);
  return frames;
}

bool caller_ignored(const Event& e) {
  if (strstr(config_text("RESIL_VERIFY_IGNORE"), "+0x") == nullptr) return false;
  const Frames callers = callers_of(e);
  return std::any_of(callers.at, callers.at + callers.count, [](uint64_t at) { return place_ignored(at); });
}

void callers_differ(const Event& e, uint64_t compared) {
  const Frames callers = callers_of(e);
  SpinGuard guard(lock);
  for (unsigned i = 0; i < way_count; ++i) {
    Way& way = ways[i];
    if (way.site != e.site || way.callers.count != callers.count ||
        !std::equal(callers.at, callers.at + callers.count, way.callers.at))
      continue;
    way.differed += 1;
    return;
  }
  if (way_count < kWays) ways[way_count++] = {e.site, callers, 1, 0, compared - 1, {}};
}

void callers_agree(const Event& e) {
  Way* first = nullptr;
  {
    SpinGuard guard(lock);
    for (unsigned i = 0; i < way_count && first == nullptr; ++i)
      if (ways[i].site == e.site) first = &ways[i];
    if (first == nullptr || first->sampled == kSamples) return;
    first->sampled += 1;
  }
  const Frames callers = callers_of(e);
  SpinGuard guard(lock);
  for (unsigned i = 0; i < way_count; ++i)
    for (unsigned k = 0; ways[i].site == e.site && k < ways[i].callers.count; ++k)
      ways[i].agreed[k] += is_in(callers, ways[i].callers.at[k]);
}

/// Differences at the way's site that this caller has led to.
static uint32_t differed_by(uint64_t site, uint64_t caller) {
  uint32_t differed = 0;
  for (unsigned i = 0; i < way_count; ++i)
    if (ways[i].site == site && is_in(ways[i].callers, caller)) differed += ways[i].differed;
  return differed;
}

/// The outermost caller that has led to no value that agrees, if enough have been looked at to say so: what it calls
/// has one entry then. Else the innermost most of whose values differ. 0: there is none.
static uint64_t advised_caller(const Way& way, const Way& first) {
  if (first.sampled >= 100 && first.sampled >= first.before)
    for (unsigned k = way.callers.count; k-- > 0;)
      if (way.agreed[k] == 0) return way.callers.at[k];
  for (unsigned k = 0; k < way.callers.count; ++k)
    if (differed_by(way.site, way.callers.at[k]) >= way.agreed[k]) return way.callers.at[k];
  return 0;
}

bool callers_to_ignore(uint64_t site, char* text, size_t bytes) {
  SpinGuard guard(lock);
  text[0] = 0;
  const Way* first = nullptr;
  for (unsigned i = 0; i < way_count; ++i) {
    const Way& way = ways[i];
    if (way.site != site) continue;
    if (first == nullptr) first = &way;
    const uint64_t advised = advised_caller(way, *first);
    char where[112];
    site_text(advised, where, sizeof(where));
    const size_t used = strlen(text);
    if (advised == 0 || strchr(where, '+') == nullptr || used + strlen(where) + 2 > bytes) return false;
    if (strstr(text, where) == nullptr) snprintf(text + used, bytes - used, "%s%s", used != 0 ? "," : "", where);
  }
  return first != nullptr && way_count < kWays;  // else others may have found no room
}

}  // namespace resil::record
