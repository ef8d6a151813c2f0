// SPDX-License-Identifier: Apache-2.0
//
// Leaders that die, stop, go on and are replaced at random, while questions are under way. Whatever happens: nobody is
// counted twice, and once it is quiet for a while, there is one root and everybody who lives answers it.
#include <random>

#include "check.h"
#include "tests/unit/overlay_fixture.h"

using namespace resil::hang;

namespace {

constexpr uint32_t kNodes = 30;

class Chaos {
 public:
  explicit Chaos(unsigned seed) : random_(seed), world_(kNodes, options(), true) {}

  void event() {
    const uint32_t number = random_() % kNodes;
    OverlayNode& leader = world_.node(number);
    OverlayNode& standby = world_.standby(number);
    switch (random_() % 9) {
      case 0:
        if (leader.overlay != nullptr && dead_ < kNodes / 2) {
          world_.kill(number);
          ++dead_;
        }
        break;
      case 1:
      case 2: leader.stopped = !leader.stopped; break;
      case 3:  // the node sees that its leader is gone or stopped
        if ((leader.overlay == nullptr || leader.stopped) && standby.overlay == nullptr && standby.listener >= 0)
          world_.take_over(number);
        break;
      case 4:
        if (standby.overlay != nullptr) standby.stopped = !standby.stopped;
        break;
      case 5:  // somebody asks
        if (leader.overlay != nullptr && !leader.stopped) overlay_raise(leader.overlay, 1, "why", 3);
        break;
      default:
        for (auto* one : {&leader, &standby})
          if (one->overlay != nullptr && !one->stopped && overlay_state(one->overlay).is_root)
            overlay_ask(one->overlay, 1, "x", 1, world_.now + 5);
    }
    replace();
    world_.run(static_cast<double>(random_() % 100) * 0.01);
    for (uint32_t i = 0; i < kNodes; ++i) check(world_.node(i)), check(world_.standby(i));
  }

  void settle() {
    for (uint32_t i = 0; i < kNodes; ++i) world_.node(i).stopped = world_.standby(i).stopped = false;
    replace();
    // One root, whom all follow and who hears all.
    const bool settled = world_.until([&] { return roots().size() == 1 && lost() == 0; }, 120);
    INFO("roots " << roots().size() << ", not attached " << lost());
    REQUIRE(settled);
    OverlayNode& root = *roots()[0];
    std::vector<uint32_t> gone;
    for (uint32_t i = 0; i < kNodes; ++i)
      if (world_.node(i).overlay == nullptr && world_.standby(i).overlay == nullptr) gone.push_back(i);
    bool whole = false;
    for (int i = 0; i < 30 && !whole; ++i, world_.run(1)) whole = world_.ask(root, "?") && root.unanswered == gone;
    CHECK(whole);
    check(root);
  }

 private:
  static OverlayOptions options() {
    OverlayOptions options = {};
    options.fan_out = 3;
    options.most_children = 8;
    options.settle = 1;
    return options;
  }

  /// What the node's own rule does: a leader that finds itself replaced steps back.
  void replace() {
    for (uint32_t i = 0; i < kNodes; ++i)
      if (world_.standby(i).overlay != nullptr && world_.node(i).overlay != nullptr && !world_.node(i).stopped)
        world_.close(i);
  }

  std::vector<OverlayNode*> roots() {
    std::vector<OverlayNode*> found;
    for (uint32_t i = 0; i < kNodes; ++i)
      for (auto* one : {&world_.node(i), &world_.standby(i)})
        if (one->overlay != nullptr && overlay_state(one->overlay).is_root) found.push_back(one);
    return found;
  }

  uint32_t lost() {
    uint32_t count = 0;
    for (uint32_t i = 0; i < kNodes; ++i)
      for (auto* one : {&world_.node(i), &world_.standby(i)})
        count += one->overlay != nullptr && overlay_state(one->overlay).root != roots()[0]->number ? 1 : 0;
    return count;
  }

  /// What the last round gave is a set and agrees with the list of those who are missing.
  void check(const OverlayNode& node) {
    if (node.finished_round != 0) REQUIRE(world_.answers(node).size() + node.unanswered.size() == kNodes);
  }

  std::mt19937 random_;
  OverlayWorld world_;
  uint32_t dead_ = 0;
};

void run(unsigned first, unsigned last) {
  for (unsigned seed = first; seed <= last; ++seed) {
    INFO("seed " << seed);
    Chaos chaos(seed);
    for (int i = 0; i < 60; ++i) chaos.event();
    chaos.settle();
  }
}

}  // namespace

TEST_CASE("whatever happens, everybody who lives is found again, and nobody counts twice") { run(1, 4); }
TEST_CASE("the same for long", "[.long]") { run(5, 200); }  // by hand: overlay_test '[.long]'
