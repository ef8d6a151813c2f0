// SPDX-License-Identifier: Apache-2.0
//
// Windows, the operations that a rank issued on them, and what its files share. See docs/CHECKSUM.md, "One-sided".
//
// A Window is changed by the thread whose call concerns it; what handlers of arriving messages touch, and what two
// threads may touch at once, is under its lock. No lock is held across a call of MPI or of the ledger.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "checksum/ledger/ledger.h"
#include "shim/abi/backend_windows.h"
#include "shim/base/spinlock.h"
#include "shim/model/datatype/type_map.h"

namespace resil {
struct CommInfo;
struct Event;
struct Thread;
}

namespace resil::rma {

using ledger::Reason;

constexpr uint32_t kMaxOperations = 65536;  ///< noted per window and epoch
constexpr uint32_t kMaxWindows = 4096;

enum class What : uint8_t {
  kPut,  ///< the target's memory must hold the origin's bytes
  kGet,  ///< the origin's buffer must hold the target's bytes
  kTouch,  ///< writes something that is not checked, but counts when it overlaps
};

enum class Epoch : uint8_t { kNone, kFence, kAccess, kExclusive };

/// One operation as its origin noted it.
struct Operation {
  const void* buffer;  ///< kGet: where the data comes in
  const TypeMap* type;  ///< kGet: held
  const TypeMap* target_type;  ///< held; null: one piece of `bytes` at the displacement, or nothing known (`anywhere`)
  int64_t count, target_count, displacement;
  uint64_t digest, bytes, site;
  uint64_t before, at_end;  ///< full blame: kGet, the origin's buffer before; its data when the epoch was over
  int32_t target;  ///< rank in the window's group
  uint16_t call;
  What what;
  Epoch epoch;
  Reason reason;  ///< kTouch: why it is not checked
  bool anywhere;  ///< its region is not known
  bool digested;  ///< kGet: complete (MPI_Rget)
  bool early;  ///< kGet: what was digested when its request was complete may have been there before the data
  bool done;  ///< of an epoch that has been closed
  bool has_before, ended;  ///< `before` and `at_end` hold
};

/// What a window keeps of each rank of its group; made when first needed.
struct Target {
  uint32_t access, exposure;  ///< epochs of MPI_Win_start to it, of MPI_Win_post to it
  bool shared, exclusive;  ///< lock held
  bool started;  ///< in the group of the open MPI_Win_start
  bool misplaced;
  bool unit_asked;
  int64_t unit;  ///< its displacement unit, 0: not known
  int64_t shift;  ///< misplaced: bytes from the promised address to where operations land
};

/// One message of another rank's list, kept until its epoch is over (wire.h).
struct Packet;

struct Window {
  uint64_t handle;  ///< 0: free
  uint64_t id;  ///< job-wide
  uint64_t comm;  ///< job-wide id of the communicator that it was made on
  int32_t size, rank;  ///< of the group, in the group
  const int32_t* world_ranks;  ///< null: the same as in the group
  const char* base;  ///< as the program knows it
  int64_t bytes, unit;
  WindowFlavor flavor;
  bool lock_all;
  bool fence_open;
  std::atomic<bool> off;  ///< not checked any more
  bool off_told;
  Reason why;  ///< not kNone: operations cannot be checked
  Target* targets;
  uint32_t targets_room;

  SpinLock lock;  ///< of what follows
  Operation* operations;
  uint32_t operation_count, operations_open;
  bool overflow;  ///< the list was full
  Packet *first, *last;  ///< arrived, not yet looked at or waiting for the epoch's end

  // The fence that is being closed.
  uint32_t epoch;
  uint32_t lists_unanswered;
  uint32_t round, round_sent, rounds;
  bool acknowledged;  ///< all own lists are
  struct Slot {
    uint32_t epoch;
    uint64_t received;  ///< bit per round
    bool incomplete;
  } barrier[2];
  uint32_t confirm, confirm_missing;  ///< number of the open question, answers that have not come
  bool confirm_again;
  uint64_t confirm_site;  ///< of the first difference; its text comes with the answer of
  int32_t confirm_origin;
  char confirm_text[96];

  // Full blame: the window's memory as it was when the epoch began, and room for the next one's.
  char* snapshots[3];  ///< the last one: when this rank entered the call that closes the epoch
  uint64_t snapshot_bytes;  ///< mapped each
  uint32_t snapshot;  ///< the one that holds
  bool snapshot_good, snapshot_next, snapshot_entered;

  // The exposure that MPI_Win_wait closes, the access that MPI_Win_complete closes: ranks in the group.
  int32_t *exposed, *accessed;
  uint32_t exposed_count, exposed_room, accessed_count, accessed_room, exposure_missing;
};

/// A window's lock, free of charge below MPI_THREAD_MULTIPLE.
struct Guard : OptionalGuard {
  explicit Guard(SpinLock& lock) : OptionalGuard(lock, ledger::concurrent()) {}
};

/// Counters of the report's `one_sided`.
struct Counters {
  uint64_t windows, misplaced, operations, bytes, checked, mismatches, off,
      uncovered[static_cast<unsigned>(Reason::kCount)];
};
extern Counters counters;
void add_to(uint64_t& counter, uint64_t value);
/// Waits for the others of a window until done(argument). False: in vain; the next wait is shorter (trust.h).
bool wait_for_others(Thread& thread, bool (*done)(void*), void* argument);

void operation_checked(uint64_t bytes);
void operation_uncovered(Reason reason, uint64_t operations, uint64_t bytes);

// --- windows.cpp -------------------------------------------------------------------------------------------------
bool windows_create();
Window* window_find(uint64_t handle);  ///< any thread
Window* window_by_id(uint64_t id);
void creating(Event& event);  ///< MPI_Win_create and the like, on entry
void created(Event& event);  ///< and on return
void freeing(Event& event);  ///< MPI_Win_free, on entry
/// Whether another window has some of its memory, or may have.
bool shares_memory(const Window& window);
int world_rank(const Window& window, int rank);
int group_rank(const Window& window, int world_rank, int hint);  ///< -1: not a member
Target* target_of(Window& window, int rank);  ///< null: no memory
/// Room for `count` ranks; null: no memory.
int32_t* ranks_room(int32_t** array, uint32_t* room, uint32_t count);

// --- snapshot.cpp ------------------------------------------------------------------------------------------------
/// Full blame: copies the window's memory. `next`: into the room beside the copy that holds, until snapshot_turn().
void snapshot_take(Window& window, bool next);
void snapshot_turn(Window& window);
void snapshot_drop(Window& window);
const char* snapshot_of(const Window& window);  ///< null: none
void snapshot_enter(Window& window);  ///< the epoch's last moment before this rank calls what closes it

// --- operations.cpp ----------------------------------------------------------------------------------------------
void before(Event& event);  ///< full blame: one operation, before the real call
void note(Event& event);  ///< one operation, after the real call
void request_done(uint64_t cookie, bool freed);
/// Digests what the Gets of an epoch brought (target -1: all). Those that came into the same memory are not checked.
void digest_gets(Window& window, Epoch epoch, int target = -1);
/// Takes the operations of an epoch off the list (target -1: all).
void close_operations(Window& window, Epoch epoch, int target);
/// Counts them as uncovered and takes them off.
void give_up_operations(Window& window, Epoch epoch, int target, Reason reason);

// --- active.cpp --------------------------------------------------------------------------------------------------
void fence(Event& event, Window& window);
void posted(Event& event, Window& window);
void started(Event& event, Window& window);
void completed_access(Event& event, Window& window);
void waited(Event& event, Window& window);
/// Stops checking the window, here and everywhere.
void abandon(Thread& thread, Window& window, const char* why);

// --- passive.cpp -------------------------------------------------------------------------------------------------
/// The lock is held: asks for the target's displacement unit, without waiting for it.
void ask_unit(Thread& thread, Window& window, int target);
/// Before an operation that completes what was issued to `target` under an exclusive lock.
void verify_exclusive(Event& event, Window& window, int target);

// --- placement.cpp -----------------------------------------------------------------------------------------------
/// Is the window's memory where the program was told that it is?
void check_placement(Event& event, Window& window, const WindowInfo& info);
void placement_told(uint64_t window, int rank, int64_t shift);
void placement_take_pending(Window& window);
/// An operation went to a rank whose memory is misplaced.
void operation_misplaced(Event& event, Window& window, const Target& target);

}  // namespace resil::rma
