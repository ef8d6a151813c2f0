// SPDX-License-Identifier: Apache-2.0
//
// Digests of device memory, and their comparison with the pinned copies'.
#include "pipeline/staging/device_check.h"

namespace resil::staging {

constinit bool checking = false;

void check_down_begins(Packet*) {}
void check_up_begins(Packet*, uint64_t) {}
void check_down_done(Packet*, const Event*) {}
void check_up_done(Packet*, uint64_t, const Event*) {}
HostCopy host_copy(const Event&, bool) { return {nullptr, false}; }

}  // namespace resil::staging
