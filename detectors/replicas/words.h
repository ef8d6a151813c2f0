// SPDX-License-Identifier: Apache-2.0
//
// What a rank gives to MPI and gets from it, as a sequence of words that partners compare (docs/REPLICAS.md). Followers
// send theirs to the leading part, which compares and votes. One thread at a time: with MPI_THREAD_MULTIPLE there are
// no words.
#pragma once

#include <cstdint>

#include "shim/call/parts.h"

namespace resil {
struct Event;
struct Thread;
class JsonWriter;
}  // namespace resil

namespace resil::replicas {

/// As it travels.
struct Word {
  uint64_t data;  ///< of the value, 0: there is none that can be read
  uint64_t shape;  ///< of the call: function, peer, tag, bytes
};

/// Beside it, in the leading part.
struct Origin {
  uint64_t site, bytes;
  int32_t peer, tag;
  uint16_t call;
  bool gave;  ///< the program's own data; else what MPI gave it
  bool sums;  ///< one number of a reduction: whatever it was, the result depends on it
  uint16_t element;  ///< Value::element
};

/// This rank's place.
inline const PartPlace& place = part_place;

/// Where a world rank runs.
const char* host_of(int world_rank);
/// Removes the files of a part.
void trees_end(int part);

/// In MPI_Init, after the split. Allocates.
void words_begin();
/// The next word of this rank.
void words_add(Thread& thread, const Word& word, const Origin& origin);
/// Sends what is due, takes what has come. In any call.
void words_progress(uint64_t now);
/// A copy that has left the program: what it would have given next is something else than what its leader gave.
void words_diverge(Thread& thread);
/// A copy that has left the program without having differed.
void words_leave();
/// The leader: its copies are fed no more, and have no more words than they have.
void words_give_up();
/// In MPI_Finalize: the rest, and who was wrong.
void words_end(Thread& thread);
/// The last of it: nothing is taken any more.
void words_close();
void words_report(JsonWriter& json);

/// Of a rank of the leading part, for the closing line. False: some were not compared.
bool words_in_words(char* text, size_t room);

// --- capture.cpp: calls as words
void capture_enter(Event& event);
void capture_leave(Event& event);

// --- ends.cpp
/// In MPI_Init, after the split. `followed`: another part may come to lead.
void dropped_begin(bool followed);
/// The leading part: something has come from its partner of that part.
void dropped_heard(int part);
/// The rank makes a call; it has returned from one.
void dropped_call(uint64_t now);
void dropped_left(uint64_t now);
/// How often a follower says something, in ticks: a second, or less where it is waited for less than ten.
uint64_t dropped_pulse();
/// Whoever waits for the leading part waits on, for that part may be about to be dropped.
bool dropped_hopeful();
/// Another part leads in this one's place, and nothing may be written here: does not return then. Before a file is
/// changed; any thread.
void dropped_look_for_own();
/// The rank waits for another part. The leading one drops those whose partner has said nothing for too long.
void dropped_look();
bool is_dropped(int part);
/// This rank's own part, as the others have written it.
bool is_dropped_by_now();
/// The last wait in MPI_Finalize, for all ranks. False: a part has been dropped, and MPI is not finalised.
bool dropped_end(Thread& thread);
/// At the end of the process: files; its exit status.
void dropped_at_exit(int status);
/// When MPI_Finalize has been left out: the last that a process does.
void leave_together();

// --- found.cpp
/// Something in this rank chose among what may differ from part to part without anybody's fault. All ranks of the job
/// see that somebody did, before they can get data that depends on it. Async-signal-safe; a system call once.
void may_differ(const char* why);
bool may_anything_differ();
/// Where partners differ first. They are told by who gave that word; others have it from there.
struct Difference {
  uint64_t number;
  Word words[3];
  bool compared[3];
  Origin origin;
  int odd;  ///< the part that is wrong by vote; -1: nobody knows
  bool after_others;  ///< this rank has got data before that differed as well
};
/// Something differs: it is not known yet whether that has consequences.
void found_something(const Difference& difference);
/// That it had none; or it had. `sure`: something depends on it; else there was too little after it.
void found_no_consequence(const Difference& difference, uint64_t agreeing, uint64_t differing);
void found_difference(const Difference& difference, bool sure);
/// At the end: nobody has told of a difference that somebody has.
void found_end(Thread& thread);
/// All that this rank sends has been given to MPI. Seen by partners outside of MPI.
void goodbye();
/// In MPI_Finalize: waits until `over()`, for what rank `from` sends: as long as that rank is on its way there, and
/// once it has said goodbye for RESIL_DRAIN_SECONDS more. False: it has not come.
bool wait_for_partner(Thread& thread, int from, bool (*over)());
void goodbye_forget(int world_rank);
bool has_said_goodbye(int world_rank);

}  // namespace resil::replicas
