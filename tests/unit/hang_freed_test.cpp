// SPDX-License-Identifier: Apache-2.0
//
// State slots: what was freed while requests on it are pending.
#include <vector>

#include "check.h"
#include "detectors/hang/reader/snapshot.h"
#include "detectors/hang/slots/writer.h"
#include "hang_slots.h"
#include "shim/call/dispatch.h"

using namespace slots_test;

TEST_CASE("what was freed is told with the calls made on it, and pending requests stay what they were") {
  slots_test::Slots slots;
  State state;
  constexpr uint64_t kCopy = 0x700;
  auto make_copy = [&](uint64_t derived) {
    fake::Comm copy;
    copy.local = {0, 1, 2, 3};
    fake::add_comm(kCopy, copy);
    comm_register_new(slots.thread(), kCopy, derived, comm_lookup(slots.thread(), fake::kCommWorld),
                      CallId::kMPI_Comm_dup, 0);
    return comm_lookup(slots.thread(), kCopy)->ring->id;
  };
  auto free_copy = [&] {
    Event e = slots.make(CallId::kMPI_Comm_free, ring::kNoPeer, ring::kNoTag, 0, kCopy);
    REQUIRE(enter(e));
    fake::free_comm(kCopy);
    e.result = 0;
    leave(e);
  };
  const uint64_t first = make_copy(1);
  Event posted = slots.make(CallId::kMPI_Irecv, 2, 5, 1, kCopy);
  uint64_t key = 0x9001;
  posted.requests = &key;
  posted.request_count = 1;
  REQUIRE(fake::call(posted));
  free_copy();
  const uint64_t second = make_copy(2);
  REQUIRE(first != second);
  CHECK(slots.ask(2, 0, 5, first).pending == 1);
  CHECK(slots.ask(2, 0, 5, second).pending == 0);
  std::vector<uint64_t> keys = {key};
  Event wait = slots.wait(CallId::kMPI_Wait, keys);
  slots.during(wait, state);
  REQUIRE(state.head().part_count == 2);
  CHECK(state.part(0).comm == first);  // not the next one in its place
  CHECK(state.part(1).kind == PartKind::kFreed);
  CHECK(state.part(1).sequence == 1);
  CHECK(state.part(1).flags == 0);
  CHECK(state.part(1).tag == 4);
}
