// SPDX-License-Identifier: Apache-2.0
//
// A set of particles with replicas: what the program has declared, what was selected, what lies where. One thread at a
// time (`busy`); the table of sets under a lock. docs/SPR.md walks one phase through it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "detectors/spr/hashed.h"
#include "detectors/spr/link.h"
#include "detectors/spr/packed.h"
#include "detectors/spr/select.h"
#include "shim/base/spinlock.h"

/// As in resil.h: what a kernel for replicas is given.
struct resil_spr_replicas {
  int rank, count, particles, fields;
  const int* offset;
  const int* neighbour;
  const int64_t* id;
  void* const* field;
};

namespace resil::spr {

using Kernel = int (*)(void* argument, const resil_spr_replicas* replicas);
using Rollback = int (*)(void* argument, int64_t step);

constexpr uint32_t kMostSets = 4, kMostFields = 43, kNameBytes = 64;

/// Flags of resil_spr_field().
constexpr int kDouble = 1, kFloat = 2, kId = 4, kMayChange = 8;

struct Field {
  char name[kNameBytes];
  char* data;  ///< the program's
  size_t bytes, stride;  ///< of one particle, and from one to the next
  int flags;
  bool sent;  ///< the next rank has it as it is, and the program must not change it
  Buffer<char> copy;  ///< what was sent
  Buffer<char> theirs;  ///< of the rank before, packed; outputs of our kernel
  Buffer<char> results;  ///< what the next rank has computed
  // resil_spr_computed(): this rank's results as they were when they had been computed, not packed.
  Buffer<char> computed;
  Buffer<uint8_t> computed_marks;  ///< of which particles
  std::atomic<uint64_t> computed_phase;  ///< of which of all phases; 0: none
};

/// Particles of a rank as they were when the program called resil_spr_keep(): ids, then fields, each without gaps.
struct Kept {
  int64_t step, particles;
  uint64_t fields;
  Buffer<char> data;
};

struct KeptPair {
  bool valid;  ///< complete, of both ranks
  Kept own, before;
};

/// Why something was not compared. Named in the report; the first of each is told in a note.
enum class Why : uint8_t {
  kNone,
  kNoSelection,  ///< none since the start, a rollback, or particles that have moved
  kLists,  ///< neighbour lists that cannot be used
  kMemory,
  kDevice,  ///< a field in device memory
  kCounts,  ///< begin names other numbers of particles than select
  kMoved,  ///< the ids of the replicas are others than when they were selected
  kOrder,  ///< begin within a phase, or end without one
  kFields,  ///< ranks declared or named different fields
  kStep,  ///< ranks are in different steps
  kKernel,  ///< the program's callback failed
  kPartner,  ///< the other rank said that it cannot
  kSilent,  ///< the other rank did not come within RESIL_SPR_TIMEOUT
  kDead,  ///< MPI failed: the other rank has died, or a message was not what it should be
  kThreads,  ///< another thread was using the set
  kCount
};

/// What goes before the data of each kind of message, equal on all ranks but for what it says.
struct Head {
  uint64_t magic, set;  ///< and name, fields
  uint64_t epoch, phase, fields;  ///< selections and phases so far; the fields named, by bits
  int64_t step, local, entries;
  int32_t replicas, particles;
  Why why;  ///< kNone: data follows
  uint8_t unused[7];
};

struct Counters {
  uint64_t selections, phases, compared, particles, replicas;  ///< replicas that were compared; particles at the last
  uint64_t differing, changed, rollbacks, kernel_failures, one_sided, bytes;
  uint64_t uncovered[static_cast<size_t>(Why::kCount)];
  uint64_t select_ns, begin_ns, kernel_ns, wait_ns, compare_ns, keep_ns;
};

struct Set {
  char name[kNameBytes];
  bool used;
  std::atomic<bool> busy;
  uint32_t number;  ///< among the sets; its tags
  Buffer<int> members;  ///< world ranks
  int size, position, next, previous;  ///< the last two are world ranks
  Field fields[kMostFields];
  uint32_t field_count;
  int id_field;  ///< -1: none
  Rollback rollback;
  void* rollback_argument;
  uint32_t rollbacks_in_a_row;

  // Selection.
  uint64_t epoch;
  int64_t local, total;
  Scratch scratch;
  Hashed* hashed;  ///< mapped when it is wanted
  Buffer<int> selected;
  Buffer<int64_t> ids;
  Packed own, theirs;
  bool out, in;  ///< our particles are with the next rank, those of the rank before are here
  Why broken;  ///< for good: ranks that do not agree, or do not answer

  // Phase.
  bool open, guarded;
  SpinLock computed_lock;
  int64_t computed_room;  ///< local particles of this phase, whatever was selected
  uint64_t phase, named;
  int64_t step;
  bool data_in;  ///< of this phase: the rank before sends
  Head head_out, head_in, result_out, result_in;
  bool phase_in, phase_out;  ///< with whom this phase exchanges
  Messages sends, receives, head_receive, result_sends, results;
  void* pointers[kMostFields];

  // The last two that were kept, in turn.
  uint64_t keeps;
  KeptPair kept[2];
  void* kept_pointers[2][kMostFields];

  Counters counters;
};

/// RESIL_SPR and what belongs to it, as read.
struct Settings {
  Method method;
  int low_bits, distance;
  bool inputs;  ///< compare what was sent with what is there after the kernel
  double timeout;
};
extern Settings settings;

/// -1: there is none to be had, and why is noted. `members` null: all of MPI_COMM_WORLD.
int set_create(const char* name, const int* members, int count);
void set_destroy(Set& set);
/// Null: no such set.
Set* set_find(int handle);
uint32_t set_count();  ///< of the table
Set& set_at(uint32_t number);

/// Number of the field; -1: device memory, or too many.
int set_field(Set& set, const char* name, void* data, size_t bytes, size_t stride, int flags);
/// Replicas of this rank, 0 where there can be none.
int set_select(Thread& thread, Set& set, const Lists& lists, const int* owner);
void phase_begin(Thread& thread, Set& set, int64_t step, int64_t local, int64_t total, uint64_t fields);
/// Replicas that differ and particles that have changed on this rank; -1: rolled back.
int64_t phase_end(Thread& thread, Set& set, uint64_t results, Kernel kernel, void* argument, int policy);
/// Results of some particles are finished: any thread, between begin and end, each particle once.
void computed(Set& set, uint64_t results, int64_t first, int64_t count);
/// How many of them are no longer what they were.
int64_t compare_computed(Set& set, uint64_t results);
/// Of all members, here and on the next rank; false: the older one remains.
bool keep(Thread& thread, Set& set, int64_t step, int64_t local, uint64_t fields);
/// The newest that was kept, not after `step`: of this rank or of the one before; -1: none.
int64_t kept(Set& set, int64_t step, bool before, resil_spr_replicas* copy);
/// The particles of the rank before, as they were last sent; false: they are not here.
bool set_copy(Set& set, resil_spr_replicas* copy);

// Within the module.
/// What the program's kernel reads of the particles of the rank before.
resil_spr_replicas replicas_of(Set& set);
Head make_head(const Set& set, Why why);
Timeout timeout_of(const Set& set);
/// Of a particle, as the program has it.
int64_t id_of(const Field& field, int64_t particle);
const char* reason_name(Why why);
void uncovered(Set& set, Why why);
void break_set(Set& set, Why why);
/// Do the replicas still lie where they lay when they were selected?
bool ids_hold(const Set& set);
/// And all their neighbours?
bool all_ids_hold(const Set& set);
constexpr uint32_t kTagsOfSet = 48;  ///< the first ones are those of the fields
static_assert(kMostSets * kTagsOfSet == tags::kSpr.count);
enum class TagOf : uint32_t { kHead = kMostFields, kResultHead, kSelect, kWords, kAgree };
PrivateTag tag_of(const Set& set, TagOf what);
/// Sends a head both ways round, or one way: what the rank before has to say, or the next one.
Waited swap_heads(Thread& thread, const Set& set, const Head& out, int to, Head* in, int from);
/// What a wait says of the rank that was waited for.
Why of_waited(Waited waited);
PrivateTag tag_of(const Set& set, const Field& field);
Comparison comparison_of(const Field& field);
/// What differs, with the values; `changed`: of the program's own data since it was sent.
void say_difference(const Set& set, const Field& field, const Difference& seen, const char* with, bool changed,
                    int64_t of_particles);
/// A result of `particle` is other than it was when it had been computed; so are `count` in all.
void say_result_changed(const Set& set, const Field& field, int64_t particle, int element, int64_t count);

}  // namespace resil::spr
