// SPDX-License-Identifier: Apache-2.0
//
// Objects that the program has made and not freed yet, with the call and the call site that made them. Written by the
// wrappers of calls that make or free something (shim/call/wrap_objects.h) and by nobody else: no other call comes
// here. Any thread, not signal handlers; a lock for a few instructions, never across an MPI call. Maps memory when the
// table doubles.
#pragma once

#include <cstdint>

#include "shim/model/calls.h"
#include "shim/model/mpi_objects.h"

namespace resil {

struct LiveObject {
  uint64_t handle, site;
  uint32_t count;  ///< references that the program has: MPI may hand out a group or datatype more than once
  uint16_t call;  ///< CallId that made it, the last one
  MpiObject kind;  ///< kNone: no object
};

/// At most that many; what is made beyond is counted only.
constexpr uint32_t kMostObjects = 1u << 16;

/// One call that makes or frees objects. A call of the same function inside it, not made by the program, is another
/// tool's on the way to MPI: `nested`.
class ObjectCall {
 public:
  [[gnu::always_inline]] ObjectCall(CallId id, uint64_t frame) : before_(open), nested(false) {
    nested = open.frame > frame && open.id == id;
    if (!nested) open = {frame, id};
  }
  [[gnu::always_inline]] ~ObjectCall() { open = before_; }
  ObjectCall(const ObjectCall&) = delete;

 private:
  struct Open {
    uint64_t frame;
    CallId id;
  };
  static constinit thread_local Open open __attribute__((tls_model("initial-exec")));
  Open before_;

 public:
  bool nested;
};

/// The program was given a handle. `return_address`, `frame`: of the wrapper, for the call site.
void object_made(const ObjectCall& call, MpiObject kind, uint64_t handle, CallId id, uint64_t return_address,
                 uint64_t frame);
/// It is about to give one up: before MPI can hand out the same handle again. What was known of it.
LiveObject object_freed(const ObjectCall& call, MpiObject kind, uint64_t handle, uint64_t return_address,
                        uint64_t frame);
/// MPI refused to.
void object_kept(const LiveObject& was);
/// Made by a call whose handle is known later (MPI_Comm_idup).
void object_made_at(MpiObject kind, uint64_t handle, CallId id, uint64_t site);

/// Open MPI's predefined objects, and null handles, lie in the library or are copied into the executable.
void objects_learn_library();
bool is_static_object(uint64_t handle);
/// A datatype that MPI has handed out just now: one that programs make, not a predefined one? Asks MPI.
bool is_made_type(uint64_t type);

/// All that are there, one after the other; `context` is the caller's. Returns how many found no place in the table.
uint64_t objects_visit(void (*visit)(const LiveObject&, void* context), void* context);
/// Forgets all: MPI has ended.
void objects_forget();

}  // namespace resil
