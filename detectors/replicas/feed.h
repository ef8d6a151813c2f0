// SPDX-License-Identifier: Apache-2.0
//
// Copies of some ranks only (docs/REPLICAS.md): what a leader got from its calls, for its copies, in the order of the
// calls. An item for each call: a head, then what the call says by its class (feed_led.cpp writes it, feed_copy.cpp
// reads it in the same order). Program's thread, inside a call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/call/parts.h"
#include "shim/model/calls.h"
#include "shim/tables/flat_transfer.h"

namespace resil {
struct Event;
struct Thread;
class JsonWriter;
}  // namespace resil

namespace resil::replicas {

enum class Item : uint16_t {
  kCall = 1,
  kPolls,  ///< the call has found nothing, `count` times in a row
  kAnswer,  ///< a local call
  kGivenUp,  ///< nothing follows: copies leave the program
};

struct Head {
  Item item;
  uint16_t call;  ///< CallId
  int32_t result;
  uint32_t name;  ///< of the call with its arguments: the same in each copy
  uint32_t count;
};

/// What completed requests, and the statuses of a call, bring.
struct Completed {
  int64_t request;  ///< its number in the call
  int64_t status;  ///< likewise
};

/// In MPI_Init, after the split, in leaders and copies.
void feed_begin();
/// Something is fed here: of a leader that has not given up, of a copy.
extern bool feeding;
uint32_t feed_name_of(const Event& e);
/// Has the call found nothing?
bool feed_found_nothing(const Event& e);
/// The requests that the call has completed, in the order in which it tells of them: the i-th; false: no more.
bool feed_completed(const Event& e, int64_t i, Completed* completed);
/// Room for a copy's data: whether all blocks can be read and written, and how many bytes they are.
bool feed_blocks(Event& e, const FlatTransfer& flat, uint64_t* bytes);

// --- A leader (feed_led.cpp)
void led_leave(Event& e);
void led_progress(uint64_t now, bool poll);
void led_end(Thread& thread);
void led_answer(CallId id, int result, const Answer* answers, int count);
/// Its copies leave the program, which goes on.
void led_give_up(Thread& thread, const char* call, const char* why);
bool led_has_given_up();

// --- A copy (feed_copy.cpp)
/// In place of the call: what it says is what the leader's said.
bool copy_execute(Event& e);
/// A communicator is gone when callbacks of its attributes have been called.
void copy_leave(const Event& e);
int copy_answer(CallId id, const Answer* answers, int count);
void copy_end(Thread& thread);
/// The program ends the job here; the leader has not.
void copy_aborts(Thread& thread, const char* how);

// --- feed.cpp: the stream
void feed_put(Thread& thread, const void* from, size_t bytes);
/// Bytes [first, first + bytes) of its stream.
void feed_put_view(Thread& thread, const View& view, uint64_t bytes, uint64_t first = 0);
void feed_put_blocks(Event& e, const FlatTransfer& flat);
bool feed_has_news();
void feed_send();
void feed_stream_end(Thread& thread);
/// False: nothing more comes.
bool feed_get(Thread& thread, void* to, size_t bytes);
bool feed_get_view(Thread& thread, const View& view, uint64_t bytes, uint64_t first = 0);
bool feed_get_blocks(Event& e, const FlatTransfer& flat);
/// Takes and forgets what comes, to the end.
void feed_pass_over(Thread& thread);

void feed_report(JsonWriter& json);

// --- replicas.cpp
/// A copy leaves the program for good: waits for the job's end, takes part in MPI_Finalize, and ends.
[[noreturn]] void leave_program(Thread& thread, bool diverged);

}  // namespace resil::replicas
