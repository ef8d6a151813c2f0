// SPDX-License-Identifier: Apache-2.0
//
// Requests whose data has words: what is to be read when they are started, or complete. One thread at a time.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"
#include "shim/model/event.h"
#include "shim/model/view.h"
#include "shim/tables/flat_transfer.h"

namespace resil::replicas {

/// What a collective gives and takes.
struct Layouts {
  FlatTransfer gives, takes;
  bool gives_any, takes_any;
  Layouts* next_free;
};

struct Request {
  uint64_t handle;  ///< bits; 0: a free place of the table
  View view;  ///< the buffer; of a collective nothing
  Layouts* layouts;  ///< of a collective; else null
  uint64_t site, shape;
  int32_t peer, tag;
  CallId id;
  bool gives;  ///< the buffer is what the program gives: a persistent or partitioned send
  bool whole;  ///< all of the buffer is filled, whatever the status says: MPI_Rget, partitions
  bool persistent, active;
  int64_t partitions;  ///< of a partitioned message
};

/// Split collective access has no request: it is known by its file, of which one may be under way. Not a handle's bits.
inline uint64_t split_handle(const Event& e) { return ~e.object; }

/// From now on it is known by its handle, until request_forget(): datatype and layouts are held. False: no room.
bool request_remember(const Request& request);
/// Until the next request_remember() or request_forget(). Null: it has no words.
Request* request_find(uint64_t handle);
void request_forget(Request* request);
bool requests_any();
/// Zeroed. Null: no memory.
Layouts* layouts_make();
void layouts_drop(Layouts* layouts);

}  // namespace resil::replicas
