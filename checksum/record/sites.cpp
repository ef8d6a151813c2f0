// SPDX-License-Identifier: Apache-2.0
//
// See sites.h.

#include "checksum/record/sites.h"

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "checksum/record/callers.h"
#include "checksum/record/divergence.h"
#include "checksum/record/messages.h"
#include "shim/base/hash.h"
#include "shim/call/site_text.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/model/calls.h"
#include "shim/report/json.h"

namespace resil::record {

namespace {

constexpr unsigned kSiteRoom = 2048, kAttempts = 16;
constinit SiteCount sites[kSiteRoom] = {};

/// Is this one of the words of RESIL_VERIFY_IGNORE?
bool in_ignore_list(const char* where) {
  const char* list = config_text("RESIL_VERIFY_IGNORE");
  const size_t length = strlen(where);
  if (length == 0) return false;
  for (const char* at = strstr(list, where); at != nullptr; at = strstr(at + 1, where))
    if ((at == list || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) return true;
  return false;
}

}  // namespace

SiteCount* site_count(uint64_t site) {
  const uint64_t first = mix64(site);
  for (unsigned probe = 0; probe < kAttempts; ++probe) {
    SiteCount& count = sites[(first + probe) % kSiteRoom];
    uint64_t there = __atomic_load_n(&count.site, __ATOMIC_RELAXED);
    if (there == site) return &count;
    if (there != 0) continue;
    if (__atomic_compare_exchange_n(&count.site, &there, site, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
        there == site)
      return &count;
  }
  return nullptr;
}

bool site_ignored(SiteCount* count, uint64_t site) {
  if (config_text("RESIL_VERIFY_IGNORE")[0] == 0 || !site_is_programs(site)) return false;
  if (count != nullptr && count->ignored != SiteCount::kNotAsked) return count->ignored == SiteCount::kYes;
  char text[200];
  site_text(site, text, sizeof(text));
  bool ignored = in_ignore_list(text);
  if (!ignored) {
    function_text(site, text, sizeof(text));
    ignored = in_ignore_list(text);
  }
  if (count != nullptr) count->ignored = ignored ? SiteCount::kYes : SiteCount::kNo;
  return ignored;
}

bool place_ignored(uint64_t place) {
  SiteCount* count = site_count(place);
  if (count != nullptr && count->place_ignored != SiteCount::kNotAsked) return count->place_ignored == SiteCount::kYes;
  char text[112];
  site_text(place, text, sizeof(text));
  const bool ignored = strchr(text, '+') != nullptr && in_ignore_list(text);
  if (count != nullptr) count->place_ignored = ignored ? SiteCount::kYes : SiteCount::kNo;
  return ignored;
}

const char* site_would_blind(uint64_t site) {
  char text[112];
  site_text(site, text, sizeof(text));
  if (strchr(text, '+') == nullptr || !site_is_programs(site)) return messages::record::site_not_own;
  const SiteCount* count = site_count(site);
  if (count != nullptr && count->differed * 2 < count->compared) return messages::record::site_mostly_agrees;
  return nullptr;
}

/// What may be ignored of the site: itself, or callers of it. False: nothing.
static bool advised(uint64_t site, char* text, size_t bytes) {
  const char* why = site_would_blind(site);
  if (why == nullptr) site_text(site, text, bytes);
  return why == nullptr || (why == messages::record::site_mostly_agrees && callers_to_ignore(site, text, bytes));
}

bool sites_are_too_many() {
  uint64_t compared = 0, differed = 0;
  for (const SiteCount& count : sites) compared += count.compared, differed += count.differed;
  return compared >= 100 && differed * 10 > compared;
}

bool sites_to_ignore(char* text, size_t bytes, unsigned* left) {
  snprintf(text, bytes, "%s", config_text("RESIL_VERIFY_IGNORE"));
  bool some = false;
  *left = 0;
  if (sites_are_too_many()) return false;
  for (const SiteCount& count : sites) {
    if (count.site == 0 || !count.told) continue;
    static char where[2000];
    const bool known = advised(count.site, where, sizeof(where));
    const size_t used = strlen(text), more = strlen(where);
    if (!known || used + more + 2 > bytes) {
      ++*left;
      continue;
    }
    snprintf(text + used, bytes - used, "%s%s", used != 0 ? "," : "", where);
    some = true;
  }
  return some;
}

void sites_report(JsonWriter& json) {
  json.begin_array("sites");
  for (const SiteCount& count : sites) {
    if (count.site == 0 || count.differed == 0) continue;
    char where[112];
    static char instead[2000];
    site_text(count.site, where, sizeof(where));
    const char* why = site_would_blind(count.site);
    if (why == nullptr || !advised(count.site, instead, sizeof(instead))) instead[0] = 0;
    else why = nullptr;
    json.begin_object();
    json.text("site", where);
    json.text("call", call_info(static_cast<CallId>(count.call)).name);
    json.integer("compared", static_cast<int64_t>(count.compared));
    json.integer("differed", static_cast<int64_t>(count.differed));
    json.boolean("ignored", count.ignored == SiteCount::kYes);
    json.text("callers", instead);
    json.text("not_advised", why != nullptr ? why : "");
    json.end_object();
  }
  json.end_array();
}

}  // namespace resil::record
