// SPDX-License-Identifier: Apache-2.0
//
// See presence.h. May touch the carriers.
#include "shim/presence/presence.h"

#include <cstring>

#include "shim/presence/carrier.h"
#include "shim/presence/files.h"
#include "shim/presence/pmi1.h"
#include "shim/presence/pmix.h"

namespace resil {
namespace {

const Carrier* const kCarriers[] = {&kPmixCarrier, &kPmi1Carrier, &kFilesCarrier};

const Carrier* carrier;
char own_value[kPresenceBytes];
bool published;
MpiFamily family;

bool fits(const Carrier* candidate) {
  // Each MPI talks to its own kind of launcher; a put that its library never fences would be a promise to nobody.
  if (candidate == &kPmixCarrier) return true;  // decides by what the MPI library links
  if (candidate == &kPmi1Carrier) return family == MpiFamily::kMpich && pmi1_available();
  return true;
}

}  // namespace

bool presence_publish(const LaunchIdentity& identity, const char* directory, const char* value) {
  if (strlen(value) >= sizeof own_value || own_value[0]) return false;
  family = identity.family;
  strcpy(own_value, value);
  published = identity.singleton;
  for (const Carrier* candidate : kCarriers) {
    if (published) break;
    if (!fits(candidate)) continue;
    published = candidate->publish(identity, directory, own_value);
    if (published) carrier = candidate;
    else candidate->release();
  }
  return published;
}

PresenceVerdict presence_collect(int rank, int size, void (*visit)(int rank, const char* value, void* context),
                                 void* context) {
  if (carrier && carrier->published) published = carrier->published();
  PresenceVerdict verdict{carrier ? carrier->name : "none", 0, published || size == 1, true};
  for (int other = 0; other < size; ++other) {
    char buffer[kPresenceBytes];
    const char* value = nullptr;
    if (other == rank) value = own_value[0] && verdict.published ? own_value : nullptr;
    else if (carrier && carrier->get(other, buffer, sizeof buffer)) value = buffer;
    verdict.missing += !value;
    visit(other, value, context);
  }
  if (size > 1 && family == MpiFamily::kOpenMpi)
    verdict.synchronised = !openmpi_init_is_asynchronous() && (carrier != &kPmixCarrier || openmpi_fence_collects());
  if (carrier) carrier->release();
  return verdict;
}

void presence_close() {
  if (carrier) carrier->release();
  if (carrier && carrier->remove) carrier->remove();
  carrier = nullptr;
}

}  // namespace resil
