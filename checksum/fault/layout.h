// SPDX-License-Identifier: Apache-2.0
//
// Which packets of a call can be damaged: blocks of what it sends or receives. May ask MPI for datatypes and topologies
// (local calls).
#pragma once

#include <cstdint>

#include "checksum/fault/packet.h"
#include "shim/tables/flat_transfer.h"

namespace resil::fault {

using Layout = FlatTransfer;

/// One-sided calls with a packet of this rank. MPI_Rget is left out: its request says when the data is there.
constexpr bool is_put(const CallInfo& info) { return info.rma == RmaOperation::kPut; }
constexpr bool is_get(const CallInfo& info) { return info.rma == RmaOperation::kGet && !info.has(kCallStarts); }

/// False: nothing that could be damaged (no data, other family of calls, datatype not known).
bool receive_layout(Event& event, Layout* layout);
bool send_layout(Event& event, Layout* layout);

/// The argument, as a packet's buffer.
inline char* buffer_of(const Layout& layout) { return static_cast<char*>(const_cast<void*>(layout.buffer)); }
/// Block `index`; false: empty, in place or not host memory.
bool block_at(Thread& thread, const Layout& layout, int64_t index, Packet* packet);
uint64_t total_bytes(Thread& thread, const Layout& layout);

}  // namespace resil::fault
