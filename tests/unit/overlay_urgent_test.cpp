// SPDX-License-Identifier: Apache-2.0
//
// A question waits, and a node on its way to the root does not reply.
#include <algorithm>

#include "check.h"
#include "detectors/hang/overlay/wire.h"
#include "tests/unit/overlay_fixture.h"

using namespace resil::hang;
using namespace resil::hang::overlay;

namespace {

using Numbers = std::vector<uint32_t>;

/// Fan-out 3: nodes 1 to 3 below the root, 4 to 12 below these.
struct Job : OverlayWorld {
  explicit Job(uint32_t count) : OverlayWorld(count, options()) {
    REQUIRE(assemble());
    REQUIRE(until([&] { return state(count - 1).root == 0; }));
    run(3);
  }
  static OverlayOptions options() {
    OverlayOptions options = {};
    options.fan_out = 3;
    return options;
  }
  bool why(uint32_t node) { return overlay_raise(at(node), 1, "why", 3); }
  bool follow(uint32_t root, uint32_t but) {
    for (uint32_t i = 0; i < table().size(); ++i)
      if (i != but && state(i).root != root) return false;
    return true;
  }
};

}  // namespace

TEST_CASE("asked while the root is stopped, all others have another root in a second and a half") {
  for (const uint32_t asked : {1u, 3u, 13u}) {
    Job job(14);
    job.node(0).stopped = true;  // its kernel goes on taking connections
    const double since = job.now;
    REQUIRE(job.why(asked));
    REQUIRE(job.until([&] { return job.state(1).is_root && job.follow(1, 0); }, 4));
    CHECK(job.now - since < 1.6);
    CHECK(job.now - since > 1.0);
    CHECK(job.state(1).lost == 0);
    CHECK(job.state(1).lost_heard <= since);
    CHECK(job.state(1).lost_heard > since - 1.1);
    REQUIRE(job.ask(job.node(1)));
    CHECK(job.node(1).unanswered == Numbers{0});
    CHECK(job.answers(job.node(1)).size() == 13);
    job.node(0).stopped = false;
    REQUIRE(job.assemble());
    REQUIRE(job.ask(job.node(0)));
    CHECK(job.node(0).unanswered.empty());
    CHECK(job.state(1).lost == kNoNode);
  }
}

TEST_CASE("without a question a stopped root has its five seconds") {
  Job job(5);
  job.node(0).stopped = true;
  job.run(3.5);
  CHECK(!job.state(1).is_root);
  CHECK(job.state(1).parent == 0);
}

TEST_CASE("asked, a root that is slow but replies in time is not given up, nor is one that only asks nothing") {
  Job job(5);
  for (const double slow : {0.3, 0.6, 0.7}) {
    job.node(0).stopped = true;
    REQUIRE(job.why(3));
    job.run(slow);
    job.node(0).stopped = false;
    job.run(3);
    for (uint32_t node = 1; node < 5; ++node) {
      CHECK(job.counters(node).parents == 1);
      CHECK(job.counters(node).silences == 0);
    }
  }
  CHECK(job.node(0).raised.size() == 3);
}

TEST_CASE("asked, who did not run itself does not blame its parent") {
  Job job(2);
  REQUIRE(job.why(1));
  job.node(0).stopped = job.node(1).stopped = true;  // a machine that was stopped as a whole
  job.run(3);
  job.node(1).stopped = false;
  job.run(0.5);
  job.node(0).stopped = false;
  job.run(3);
  CHECK(job.counters(1).silences == 0);
  CHECK(job.counters(1).parents == 1);
}

TEST_CASE("asked below a node that is stopped, the way to the root goes past it") {
  Job job(14);
  job.node(1).stopped = true;
  const double since = job.now;
  REQUIRE(job.why(4));
  REQUIRE(job.until([&] { return job.state(4).root == 0 && job.state(4).parent != 1; }, 4));
  CHECK(job.now - since < 1.6);
  REQUIRE(job.until([&] { return job.state(5).parent != 1 && job.state(6).parent != 1; }, 1));
  REQUIRE(job.why(4));
  REQUIRE(job.until([&] { return job.node(0).raised.size() == 1; }, 1));
  job.node(1).stopped = false;
  REQUIRE(job.assemble());
}

TEST_CASE("a call makes nobody give up a parent that replies, and needs the key and the proof") {
  Job job(5);
  const auto call = [&](const uint8_t* key, bool proof) {
    RawClient caller(job.table()[2].leader);
    caller.hello(key, 3, 2, 0, static_cast<uint8_t>(Purpose::kCall));
    job.run(0.1);
    if (proof) caller.prove(job.key());
    job.run(0.1);
    return caller.closed();
  };
  const uint64_t before = job.counters(2).frames_out;
  CHECK(call(job.key(), true));
  job.run(0.1);
  CHECK(job.counters(2).refused_key == 0);
  CHECK(job.counters(2).frames_out >= before + 1);
  job.run(3);
  CHECK(job.counters(2).parents == 1);

  job.node(0).stopped = true;
  uint8_t wrong[16] = {};
  CHECK(call(wrong, false));
  CHECK(job.counters(2).refused_key == 1);
  call(job.key(), false);
  job.run(2);
  CHECK(job.state(2).parent == 0);  // has heard of nothing
  call(job.key(), true);
  job.run(1.2);
  CHECK(job.state(2).parent != 0);
}

TEST_CASE("a call about somebody who is not the parent is no news") {
  Job job(14);
  RawClient caller(job.table()[5].leader);
  caller.hello(job.key(), 6, 5, 0, static_cast<uint8_t>(Purpose::kCall));
  job.run(0.1);
  job.node(1).stopped = true;
  caller.prove(job.key());
  job.run(2);
  CHECK(job.state(5).parent == 1);
}
