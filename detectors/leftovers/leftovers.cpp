// SPDX-License-Identifier: Apache-2.0
//
// What the program leaves behind in MPI_Finalize: objects never freed, requests never completed or freed, with the call
// and the call site that made them. Counted when MPI_Finalize has returned, so that what the deletion callbacks of
// MPI_COMM_SELF's attributes free (libraries tidy up there) is not left. A member of the report and nothing else: no
// finding, no line, no exit status. No hook of a call: the tables are the shim's.

#include <cstring>

#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/model/calls.h"
#include "shim/report/json.h"
#include "shim/tables/live_objects.h"
#include "shim/tables/tables.h"

namespace resil {

namespace {

/// Members of "leftovers", in the order of the report.
enum Kind : uint8_t {
  kActiveRequests,
  kPersistentRequests,
  kCommunicators,
  kGroups,
  kDatatypes,
  kOperators,
  kWindows,
  kFiles,
  kInfos,
  kErrorHandlers,
  kSessions,
  kKeyvals,
  kBuffers,
  kKinds
};
constexpr const char* kNames[kKinds] = {
    "active_requests", "persistent_requests", "communicators", "groups",  "datatypes", "operators", "windows", "files",
    "infos",           "error_handlers",      "sessions",      "keyvals", "buffers"};

constexpr Kind kind_of(MpiObject object) {
  switch (object) {
    case MpiObject::kCommunicator: return kCommunicators;
    case MpiObject::kGroup: return kGroups;
    case MpiObject::kDatatype: return kDatatypes;
    case MpiObject::kOperator: return kOperators;
    case MpiObject::kWindow: return kWindows;
    case MpiObject::kFile: return kFiles;
    case MpiObject::kInfo: return kInfos;
    case MpiObject::kErrorHandler: return kErrorHandlers;
    case MpiObject::kSession: return kSessions;
    case MpiObject::kCommKeyval:
    case MpiObject::kTypeKeyval:
    case MpiObject::kWindowKeyval: return kKeyvals;
    case MpiObject::kBuffer: return kBuffers;
    case MpiObject::kNone:
    case MpiObject::kCount: break;
  }
  return kKinds;
}

/// What one call at one place made. Of those beyond the first few places of a kind the number alone is kept.
struct Place {
  uint64_t site, count;
  uint16_t call;
};
constexpr unsigned kMostPlaces = 16;
struct Left {
  uint64_t count;
  unsigned places;
  Place place[kMostPlaces];
};
Left left[kKinds];
uint64_t not_known;  // neither listed nor counted above
bool counted;

void add(Kind kind, uint16_t call, uint64_t site, uint64_t count) {
  Left& of = left[kind];
  of.count += count;
  unsigned i = 0;
  while (i < of.places && (of.place[i].site != site || of.place[i].call != call)) ++i;
  if (i == kMostPlaces) return;
  if (i == of.places) of.place[of.places++] = {site, 0, call};
  of.place[i].count += count;
}

void add_object(const LiveObject& object, void*) { add(kind_of(object.kind), object.call, object.site, object.count); }

void add_request(const ring::Request& request, void*) {
  add(request.flags & ring::kActive ? kActiveRequests : kPersistentRequests, request.call, request.site, 1);
}

void after_finalize() {
  memset(left, 0, sizeof(left));
  not_known = objects_visit(add_object, nullptr) + requests_left(add_request, nullptr);
  objects_forget();
  counted = true;
}

void report(JsonWriter& json) {
  if (!counted) return;
  json.begin_object("leftovers");
  for (unsigned kind = 0; kind < kKinds; ++kind) {
    Left& of = left[kind];
    if (of.count == 0) continue;
    json.begin_object(kNames[kind]);
    json.integer("count", of.count);
    json.begin_array("sites");
    for (unsigned i = 0; i < of.places; ++i) {
      char site[160];
      site_text(of.place[i].site, site, sizeof(site));
      json.begin_object();
      json.text("call", of.place[i].call < kCallCount ? kCallInfo[of.place[i].call].name : "");
      json.text("site", site);
      json.integer("count", of.place[i].count);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_object();
  if (not_known != 0) json.integer("leftovers_not_known", not_known);
}

constexpr Module kLeftovers = {
    .name = "leftovers",
    .description = "objects and requests that are left at MPI_Finalize",
    .stage = Stage::kWatch,
    .after_finalize = after_finalize,
    .report = report,
};
RESIL_MODULE(kLeftovers);

}  // namespace

}  // namespace resil
