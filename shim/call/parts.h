// SPDX-License-Identifier: Apache-2.0
//
// A part of the job that runs as the program's world (docs/REPLICAS.md): from parts_begin() on, every call that is
// given MPI_COMM_WORLD is given the part's communicator in its place. The slots of the functions with a communicator
// then hold stubs (parts.S) that jump to what they held before; until then, and in every job without parts, no slot
// differs. resil's own calls have no slot: for resil the world is the whole job.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shim/model/calls.h"

namespace resil {

/// Something that a local call says: where, and how long it is.
struct Answer {
  void* at;
  size_t bytes;
};

/// What the module that makes parts does about calls that name things outside of the job. All may be null.
struct PartHooks {
  /// The file that MPI_File_open or MPI_File_delete is about: the name that MPI is given instead; null: the program's.
  const char* (*file)(const char* name, bool removes, int mode);
  /// A call that cannot be carried out in parts. It need not return.
  void (*refuse)(const char* call);
  /// From now on something may differ from part to part without a fault.
  void (*may_differ)(const char* why);
  /// This rank waits for another part, which may be dropped. Between the tests of the wait.
  void (*waiting)();
  /// The leading part seems to have stopped, so that another one may come to lead: who waits for it waits on.
  bool (*hopeful)();
  /// What MPI_Get_processor_name says; null: the truth.
  const char* processor;
  /// Of a leader that feeds copies: the program was told this by a local call. Of a copy: that is what it is told.
  void (*tell)(CallId id, int result, const Answer* answers, int count);
  int (*told)(CallId id, const Answer* answers, int count);
};

/// This rank's place. No parts: all zero. World ranks are those of the leading part, then the copies, part by part.
struct PartPlace {
  int parts, part, members;  ///< members: ranks of the program
  int rank;  ///< of the program
  int copies;  ///< ranks of each part but the leading one: all, or some
  int copy;  ///< this one's number among them; -1: it has no partner
  bool fed;  ///< copies of some ranks only: they get what their leaders got (fed_comms.h)

  int partner(int of_part) const { return of_part == 0 ? rank : members + (of_part - 1) * copies + copy; }
  int part_of(int world_rank) const { return world_rank < members ? 0 : 1 + (world_rank - members) / copies; }
  int first_of(int of_part) const { return of_part == 0 ? 0 : members + (of_part - 1) * copies; }
  int count_of(int of_part) const { return of_part == 0 ? members : copies; }
  bool has_partner() const { return copy >= 0; }
  bool is_fed() const { return fed && part != 0; }
};
extern PartPlace part_place;

/// What MPI chooses is what it has chosen in the leading part: in calls of the program's own, not of callbacks. Set by
/// who carries it (checksum/record/live.cpp).
inline constinit bool choices_follow = false;
void parts_may_differ(const char* why);
/// Parts that nobody waits for any more, a bit for each. Set by who makes parts.
inline constinit std::atomic<uint32_t> parts_dropped = 0;
/// The part that leads: the first one that has not been dropped.
inline int part_that_leads() { return __builtin_ctz(~parts_dropped.load(std::memory_order_relaxed)); }
/// To be called between the tests of any wait for another part.
void parts_waiting();
/// Whoever waits for the leading part longer than it should: is it worth while?
bool parts_hopeful();
/// A rank will never come to MPI_Finalize: the real one is not called, and MPI is told to be finalised all the same.
inline constinit bool parts_without_finalize = false;
void parts_tell_finalized();
/// From here on MPI chooses in this rank: the program has asked for what makes its messages others in each part, so
/// that a choice of the leading one's might never come. Called at the same place in each part; async-signal-safe. Null:
/// choices do not follow.
using ChoicesStop = void (*)(const char* why);
inline constinit ChoicesStop choices_stop = nullptr;

/// Collective over the world, inside MPI_Init: makes the communicator of the part, in the order of world ranks, and
/// puts it in the world's place. A copy that is fed has one of its own. False: MPI would not.
bool parts_begin(const PartPlace& where, const PartHooks& hooks);
/// For the functions that take the place of local calls (backend_fed.inc).
const PartHooks& parts_hooks();

}  // namespace resil
