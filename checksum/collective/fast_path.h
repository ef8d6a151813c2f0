// SPDX-License-Identifier: Apache-2.0
//
// The usual blocking collective, straight: what a call with these arguments from this place compares with whom is
// worked out once and kept with the call site (SiteEntry::check), so that the next ones, which go the fast path of the
// call path, read their data, make their records and no more. Cheap blame, below MPI_THREAD_MULTIPLE; communicators of
// one group, predefined types in one piece. Nothing here is decided otherwise than in plan.cpp and compare.cpp: a call
// is checked as they would check it, with the same tables, or given to them.
#pragma once

namespace resil {
struct Event;
struct SiteEntry;
struct Thread;
}

namespace resil::collective {

/// Memory; after_init, once the ledger is connected.
void fast_path_connect();
/// Module::fast of collectives: leaves what it has worked out with the call site.
bool fast_path_prepare(Event& event, SiteEntry& site);

}  // namespace resil::collective
