// SPDX-License-Identifier: Apache-2.0
//
// Those who knock without the key, or with it and speak nonsense: refused, counted, and the work in progress goes on.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>

#include "check.h"
#include "detectors/hang/overlay/wire.h"
#include "tests/unit/overlay_fixture.h"

using namespace resil::hang;
using namespace resil::hang::overlay;

namespace {

OverlayOptions narrow() {
  OverlayOptions options = {};
  options.fan_out = 3;
  return options;
}

template <class T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string answer_frame(uint64_t round, uint32_t first, uint32_t bits, const std::string& rest) {
  return bytes_of(AnswerFrame{round, first, bits}) + rest;
}

/// A world of five whose last node never came; somebody else with the key takes its place below node 1.
struct Impostor {
  explicit Impostor(uint32_t attach = 1, const OverlayOptions& options = narrow()) : world(5, options) {
    world.node(4).stopped = true;
    REQUIRE(world.until([&] { return world.state(3).parent == 0 && world.state(1).parent == 0; }));
    join(attach);
  }
  void join(uint32_t attach) {
    client.reset(new RawClient(world.table()[1].leader));
    client->hello(world.key(), 4, 1, attach);
    world.run(0.05);
    client->prove(world.key());
    REQUIRE(world.until([&] { return world.state(1).children == 1; }));
    client->frames();
  }
  /// Node 0 asks; the number of the round, once the question is here.
  uint64_t asked() {
    const uint64_t round = overlay_ask(world.at(0), 1, "q", 1, world.now + 30);
    REQUIRE(round != 0);
    REQUIRE(world.until([&] {
      for (const std::string& frame : client->frames())
        if (frame[4] == static_cast<char>(FrameType::kAsk)) return true;
      return false;
    }));
    return round;
  }
  bool finished(uint64_t round) {
    return world.until([&] { return world.node(0).finished_round == round; });
  }
  /// Sends this and is thrown out; everybody else goes on.
  void refused(const std::string& bytes) {
    const uint64_t before = world.counters(1).bad_frames;
    client->send(bytes);
    CHECK(world.until([&] { return world.counters(1).bad_frames == before + 1; }, 3));
    CHECK(client->closed());
    CHECK(world.state(1).children == 0);
    CHECK(world.state(1).parent == 0);
  }

  OverlayWorld world;
  std::unique_ptr<RawClient> client;
};

const char kAnswer = static_cast<char>(FrameType::kAnswer);

}  // namespace

TEST_CASE("somebody with the key is heard") {  // or the other cases would prove nothing
  Impostor impostor;
  const uint64_t round = impostor.asked();
  impostor.client->send(impostor.client->frame(kAnswer, 0, answer_frame(round, 0, 5, "\x10 raw ")));
  REQUIRE(impostor.finished(round));
  CHECK(impostor.world.node(0).unanswered.empty());
  CHECK(impostor.world.answers(impostor.world.node(0)).count("raw") == 1);
}

TEST_CASE("without the key nobody gets past the greeting") {
  OverlayWorld world(5, narrow());
  REQUIRE(world.assemble());
  uint8_t wrong[16];
  memcpy(wrong, world.key(), 16);
  wrong[15] ^= 1;
  const Address& target = world.table()[1].leader;
  uint64_t refused = world.counters(1).refused_key;
  const auto thrown_out = [&](RawClient& client) {
    CHECK(world.until([&] { return world.counters(1).refused_key == refused + 1; }, 1));
    ++refused;
    CHECK(client.receive().empty());  // not even an answer
    CHECK(client.closed());
  };
  {
    INFO("another key");
    RawClient client(target);
    client.hello(wrong, 4, 1);
    thrown_out(client);
  }
  {
    INFO("the right key, at the wrong door");
    RawClient client(target);
    client.hello(world.key(), 4, 0);
    thrown_out(client);
  }
  {
    INFO("a node that would make a cycle");
    RawClient client(target);
    client.hello(world.key(), 0, 1);
    thrown_out(client);
  }
  {
    INFO("a node that does not exist");
    RawClient client(target);
    client.hello(world.key(), 5, 1);
    thrown_out(client);
  }
  {
    INFO("another protocol, recognised by its first word");
    RawClient client(target);
    client.send("GET / HTTP/1.1\r\n");
    thrown_out(client);
  }
  std::string overheard;
  {
    INFO("an answer to the challenge that does not fit");
    RawClient client(target);
    client.hello(world.key(), 4, 1, 9);
    overheard = client.sent;
    REQUIRE(world.until([&] { return client.receive().size() == sizeof(Challenge); }, 1));
    client.send(std::string(sizeof(Proof), 'x'));
    CHECK(world.until([&] { return world.counters(1).refused_key == refused + 1; }, 1));
    ++refused;
    CHECK(client.closed());
  }
  {
    INFO("a greeting and a proof that were overheard");
    RawClient genuine(target);
    genuine.hello(world.key(), 4, 1, 9);
    REQUIRE(world.until([&] { return genuine.receive().size() >= sizeof(Challenge); }, 1));
    genuine.prove(world.key());
    overheard = genuine.sent;
    REQUIRE(world.until([&] { return !genuine.frames().empty(); }, 1));
    genuine.send(genuine.frame(static_cast<uint8_t>(FrameType::kAlive), 0, bytes_of(AliveFrame{0, 1})));
    overheard = genuine.sent;
    RawClient replay(target);
    replay.send(overheard);
    CHECK(world.until([&] { return world.counters(1).refused_key == refused + 1; }, 1));
    ++refused;
    CHECK(replay.closed());
    CHECK_FALSE(genuine.closed());
  }
  REQUIRE(world.assemble());
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered.empty());
}

TEST_CASE("a probe gets the challenge and nothing more: it is no way into the tree") {
  OverlayWorld world(5, narrow());
  REQUIRE(world.assemble());
  const Address& target = world.table()[1].leader;
  const auto answered = [&](RawClient& client) {
    return world.until([&] { return client.receive().size() >= sizeof(Challenge); }, 1);
  };
  const uint64_t refused = world.counters(1).refused_key;
  {
    RawClient from_above(target);  // a parent may probe its child; as a child it would be refused
    from_above.hello(world.key(), 0, 1, 1, 1);
    REQUIRE(answered(from_above));
    from_above.prove(world.key());
    CHECK(world.until([&] { return world.counters(1).refused_key == refused + 1; }, 1));
    CHECK(from_above.closed());
  }
  uint32_t knocks = 1;
  for (const auto& [from, purpose] : {std::pair{0, 0}, {1, 1}, {9, 1}, {1, 2}, {9, 2}, {4, 3}, {4, 255}}) {
    RawClient client(target);
    client.hello(world.key(), static_cast<uint32_t>(from), 1, 1, static_cast<uint8_t>(purpose));
    ++knocks;
    CHECK(world.until([&] { return world.counters(1).refused_key == refused + knocks; }, 1));
    CHECK(client.receive().empty());
  }
  CHECK(world.state(1).children == 1);  // node 4, by its own connection
}

TEST_CASE("who says too little is sent away in time") {
  OverlayWorld world(5, narrow());
  REQUIRE(world.assemble());
  const Address& target = world.table()[1].leader;
  RawClient silent(target), half(target), stuck(target);
  half.send(bytes_of(kMagic) + "abc");
  stuck.hello(world.key(), 4, 1, 9);
  world.run(1.9);
  CHECK(world.state(1).strangers == 3);
  world.run(0.2);
  CHECK(world.state(1).strangers == 0);
  CHECK(world.counters(1).refused_silent == 3);
  CHECK(silent.closed());
  CHECK(half.closed());
  CHECK(stuck.closed());
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered.empty());
}

TEST_CASE("a flood of strangers neither keeps the nodes out nor disturbs a question") {
  OverlayOptions options = narrow();
  options.most_strangers = 8;
  OverlayWorld world(14, options);
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 200; ++i)  // before anybody else
    crowd.emplace_back(new RawClient(world.table()[i % 2].leader));
  REQUIRE(world.assemble());
  CHECK(world.counters(0).refused_full >= 92);
  const uint64_t round = overlay_ask(world.at(0), 1, "q", 1, world.now + 30);
  for (int i = 0; i < 200; ++i) {
    crowd[static_cast<size_t>(i)].reset(new RawClient(world.table()[i % 2].leader));
    if (i % 3 == 0) crowd[static_cast<size_t>(i)]->send(std::string(100000, 'g'));
    if (i % 3 == 1) crowd[static_cast<size_t>(i)]->reset();
  }
  REQUIRE(world.until([&] { return world.node(0).finished_round == round; }));
  CHECK(world.node(0).unanswered.empty());
  world.run(3);
  CHECK(world.state(0).strangers <= 8);
  CHECK(world.counters(0).children_lost == 0);
  CHECK(world.counters(1).children_lost == 0);
}

TEST_CASE("frames that are not what they should be end the connection, and nothing else") {
  Impostor impostor;
  RawClient* client = impostor.client.get();
  const auto type = [](FrameType one) { return static_cast<uint8_t>(one); };
  uint32_t attach = 1;
  const auto next = [&]() -> RawClient& {
    if (client->closed()) impostor.join(++attach);
    client = impostor.client.get();
    return *client;
  };
  const std::string alive = bytes_of(AliveFrame{0, 1});

  std::string frame = next().frame(type(FrameType::kAlive), 0, alive);
  for (const size_t place : {size_t{8}, sizeof(FrameHeader), frame.size() - 1}) {  // sequence, payload, MAC
    INFO(place);
    frame = next().frame(type(FrameType::kAlive), 0, alive);
    frame[place] = static_cast<char>(frame[place] ^ 4);
    impostor.refused(frame);
  }
  {
    INFO("replayed");
    frame = next().frame(type(FrameType::kAlive), 0, alive);
    client->send(frame);
    impostor.world.run(0.1);
    CHECK(impostor.world.state(1).children == 1);
    impostor.refused(frame);
  }
  {
    INFO("one left out");
    next().frame(type(FrameType::kAlive), 0, alive);
    impostor.refused(client->frame(type(FrameType::kAlive), 0, alive));
  }
  {
    INFO("longer than any: refused by its header, nothing is kept for it");
    const uint64_t memory = impostor.world.counters(1).most_memory_used;
    const FrameHeader header = {0xffffffff, FrameType::kAnswer, 0, 0, 1};
    next();
    impostor.refused(bytes_of(header));
    CHECK(impostor.world.counters(1).most_memory_used <= memory + 8192);
  }
  const struct {
    FrameType type;
    std::string payload;
    const char* what;
  } kCases[] = {
      {FrameType::kAsk, bytes_of(AskFrame{1, 100, 0}), "a question from below"},
      {FrameType::kOrder, bytes_of(OrderFrame{1}) + "leave", "an order from below"},
      {static_cast<FrameType>(0), "", "no such type"},
      {static_cast<FrameType>(77), "", "no such type either"},
      {FrameType::kAlive, "", "empty"},
      {FrameType::kAlive, bytes_of(AliveFrame{0, 0}), "nobody"},
      {FrameType::kAlive, bytes_of(AliveFrame{0, 6}), "more than there are"},
      {FrameType::kNotice, bytes_of(NoticeFrame{5, 1, 1}), "news of nobody"},
      {FrameType::kNotice, bytes_of(NoticeFrame{0, 1, 1}), "news of the root"},
      {FrameType::kNotice, bytes_of(NoticeFrame{4, 1, 9}), "strange news"},
      {FrameType::kRaise, bytes_of(RaiseFrame{7, 0}), "a call from nobody"},
      {FrameType::kRaise, "", "a call without a caller"},
      {FrameType::kAnswer, "", "an empty answer"},
      {FrameType::kAnswer, answer_frame(1, 4, 1, "\x01"), "a set that begins between bytes"},
      {FrameType::kAnswer, answer_frame(1, 0, 6, "x"), "a set of more nodes than there are"},
      {FrameType::kAnswer, answer_frame(1, 0xfffffff8, 16, "xx"), "a set that wraps"},
      {FrameType::kAnswer, answer_frame(1, 0, 5, "\xff"), "bits beyond the set"},
  };
  for (const auto& one : kCases) {
    INFO(one.what);
    frame = next().frame(type(one.type), 0, one.payload);
    impostor.refused(frame);
  }
  {
    INFO("a set without its bytes, where what follows would do for them");
    uint16_t kind = 0;
    do {
      frame = next().frame(type(FrameType::kAnswer), ++kind, answer_frame(1, 0, 5, ""));
      --client->sequence;
    } while (static_cast<uint8_t>(frame[frame.size() - kMacBytes]) >= 1 << 5);
    impostor.refused(frame);
  }
  impostor.world.node(4).stopped = false;
  REQUIRE(impostor.world.assemble());
  REQUIRE(impostor.world.ask(impostor.world.node(0)));
  CHECK(impostor.world.node(0).unanswered.empty());
}

TEST_CASE("old news do not replace newer ones") {
  Impostor impostor(5);
  OverlayNode& root = impostor.world.node(0);
  const auto tell = [&](uint32_t attach, NodeState state) {
    const NoticeFrame frame = {4, attach, static_cast<uint32_t>(state)};
    impostor.client->send(impostor.client->frame(static_cast<uint8_t>(FrameType::kNotice), 0, bytes_of(frame)));
    impostor.world.run(0.1);
    return root.news.back();
  };
  REQUIRE(impostor.world.until([&] { return root.news.back() == std::pair{uint32_t{4}, NodeState::kUp}; }, 1));
  CHECK(tell(4, NodeState::kLost) == std::pair{uint32_t{4}, NodeState::kUp});
  CHECK(tell(5, NodeState::kLost) == std::pair{uint32_t{4}, NodeState::kLost});
  CHECK(tell(4, NodeState::kUp) == std::pair{uint32_t{4}, NodeState::kLost});
  CHECK(tell(6, NodeState::kUp) == std::pair{uint32_t{4}, NodeState::kUp});
}

TEST_CASE("a frame that there is no memory for is read past") {
  OverlayOptions options = narrow();
  options.most_request = 1 << 10;
  options.most_answer = 400 << 10;
  options.most_memory = 600 << 10;  // one round, pages, and not another 300 KiB
  Impostor impostor(1, options);
  for (int i = 0; i < 3; ++i) {
    const uint64_t round = impostor.asked(), before = impostor.world.counters(1).overflows;
    impostor.client->send(
        impostor.client->frame(kAnswer, 0, answer_frame(round, 0, 5, "\x10" + std::string(300 << 10, 'x') + " ")));
    REQUIRE(impostor.finished(round));
    CHECK(impostor.world.node(0).unanswered == std::vector<uint32_t>{4});
    CHECK(impostor.world.counters(1).overflows == before + 1);
    impostor.client->send(
        impostor.client->frame(static_cast<uint8_t>(FrameType::kAlive), 0, bytes_of(AliveFrame{0, 1})));
    impostor.world.run(0.1);
    CHECK(impostor.world.state(1).children == 1);
  }
  const uint64_t round = impostor.asked();
  impostor.client->send(impostor.client->frame(kAnswer, 0, answer_frame(round, 0, 5, "\x10 raw ")));
  REQUIRE(impostor.finished(round));
  CHECK(impostor.world.node(0).unanswered.empty());
  CHECK(impostor.world.counters(1).most_memory_used <= options.most_memory);
}

TEST_CASE("who has greeted is not evicted by those who have not") {
  OverlayOptions options = narrow();
  options.most_strangers = 4;
  OverlayWorld world(5, options);
  world.node(4).stopped = true;
  REQUIRE(world.until([&] { return world.state(3).parent == 0 && world.state(1).parent == 0; }));
  RawClient genuine(world.table()[1].leader);
  genuine.hello(world.key(), 4, 1);
  REQUIRE(world.until([&] { return genuine.receive().size() >= sizeof(Challenge); }, 1));
  std::vector<std::unique_ptr<RawClient>> crowd;
  for (int i = 0; i < 20; ++i) crowd.emplace_back(new RawClient(world.table()[1].leader));
  world.run(0.1);
  CHECK(world.counters(1).refused_full >= 17);
  genuine.prove(world.key());
  CHECK(world.until([&] { return world.state(1).children == 1; }, 1));
}

TEST_CASE("half an answer is nobody's answer") {
  Impostor impostor;
  const uint64_t round = impostor.asked();
  const std::string frame =
      impostor.client->frame(kAnswer, 0, answer_frame(round, 0, 5, "\x10" + std::string(100000, 'x') + " "));
  impostor.client->send(frame.substr(0, frame.size() / 2));
  REQUIRE(impostor.finished(round));
  CHECK(impostor.world.node(0).unanswered == std::vector<uint32_t>{4});
  impostor.client->send(frame.substr(frame.size() / 2));  // too late, and no harm done
  impostor.world.run(0.5);
  CHECK(impostor.world.state(1).children == 1);
}

TEST_CASE("nobody answers for others, nor twice, nor a question that was not asked") {
  Impostor impostor;
  uint64_t round = impostor.asked();
  impostor.client->send(impostor.client->frame(kAnswer, 0, answer_frame(round + 1, 0, 5, "\x10 raw ")));
  impostor.client->send(impostor.client->frame(kAnswer, 0, answer_frame(round, 0, 5, "\x12 raw ")));  // and node 1
  impostor.client->send(impostor.client->frame(kAnswer, 0, answer_frame(round, 0, 5, "\x10 raw ")));
  REQUIRE(impostor.finished(round));
  CHECK(impostor.world.node(0).unanswered == std::vector<uint32_t>{4});
  CHECK(impostor.world.answers(impostor.world.node(0)) == std::set<std::string>{"q0", "q1", "q2", "q3"});
  CHECK(impostor.world.counters(1).overflows == 1);
}

TEST_CASE("a child that never reads is given up without filling memory") {
  const OverlayOptions options = narrow();
  OverlayWorld world(4, options);
  REQUIRE(world.assemble());
  world.node(3).stopped = true;
  const std::string order(60 << 10, 'o');
  for (int i = 0; i < 400; ++i) overlay_order(world.at(0), 1, order.data(), static_cast<uint32_t>(order.size()));
  REQUIRE(world.until([&] { return world.node(1).orders.size() > 100; }));
  CHECK(world.counters(0).most_memory_used < 16 << 20);  // three queues, of 72 MB in all
  world.run(6);
  CHECK(world.state(0).children == 2);
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered == std::vector<uint32_t>{3});
}

TEST_CASE("random bytes at any moment of a conversation") {
  std::mt19937 random(5);
  Impostor impostor;
  for (uint32_t i = 0; i < 300; ++i) {
    RawClient client(impostor.world.table()[1].leader);
    const uint32_t stage = random() % 4;
    if (stage > 0) client.hello(impostor.world.key(), 4, 1, i + 2);
    impostor.world.run(0.01);
    if (stage > 1) client.prove(impostor.world.key());
    impostor.world.run(0.01);
    std::string noise(random() % 300, '\0');
    for (char& byte : noise) byte = static_cast<char>(random());
    if (stage > 2) {  // signed noise, behind a header that holds
      noise = client.frame(static_cast<uint8_t>(random() % 9), static_cast<uint16_t>(random()), noise);
    } else if (random() % 2 == 0) {
      noise = bytes_of(kMagic) + noise;
    }
    client.send(noise.substr(0, random() % 4 == 0 ? noise.size() / 2 : noise.size()));
    impostor.world.run(0.01);
  }
  impostor.world.node(4).stopped = false;
  REQUIRE(impostor.world.assemble());
  REQUIRE(impostor.world.ask(impostor.world.node(0)));
  CHECK(impostor.world.node(0).unanswered.empty());
  for (uint32_t node : {0, 2, 3}) CHECK(impostor.world.counters(node).bad_frames == 0);
}

TEST_CASE("out of descriptors, it is counted and goes on") {
  OverlayWorld world(5, narrow());
  world.node(4).stopped = true;
  REQUIRE(world.until([&] { return world.state(3).parent == 0 && world.state(1).parent == 0; }));
  rlimit old, less;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &old) == 0);
  RawClient late(world.table()[1].leader);  // waits in the backlog
  const int probe = dup(0);
  REQUIRE(probe >= 0);
  close(probe);
  less = old;
  less.rlim_cur = static_cast<rlim_t>(probe);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &less) == 0);
  std::vector<int> taken;
  for (int fd; (fd = dup(0)) >= 0;)  // the gaps below
    taken.push_back(fd);
  world.node(4).stopped = false;  // has no descriptor to look for its parent with
  world.run(3);
  const bool asked = world.ask(world.node(0));
  const bool refused = world.counters(1).accept_errors > 0 && world.counters(1).accept_errors < 100;
  const bool alone = world.state(4).parent == kNoNode && !world.state(4).is_root;
  setrlimit(RLIMIT_NOFILE, &old);
  for (const int fd : taken) close(fd);
  CHECK(asked);
  CHECK(refused);
  CHECK(alone);
  CHECK(world.node(0).unanswered == std::vector<uint32_t>{4});
  REQUIRE(world.assemble());
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered.empty());
}

TEST_CASE("only addresses of the table may knock") {
  OverlayOptions options = narrow();
  OverlayWorld world(2, options);
  std::vector<NodeEntry> elsewhere = world.table();
  for (NodeEntry& entry : elsewhere) entry.leader.ip[3] = 77;  // 127.0.0.77
  Address own;
  const int listener = overlay_listen(&own, true);
  REQUIRE(listener >= 0);
  Overlay* guarded = overlay_open(listener, elsewhere.data(), 2, 0, false, world.key(), {}, options);
  REQUIRE(guarded != nullptr);
  overlay_step(guarded, 1, 0);
  RawClient client(own);
  client.hello(world.key(), 1, 0);
  for (int i = 0; i < 100 && overlay_counters(guarded).refused_address == 0; ++i)
    overlay_step(guarded, 1 + i * 0.01, 1);
  CHECK(overlay_counters(guarded).refused_address == 1);
  CHECK(client.closed());
  CHECK(overlay_state(guarded).strangers == 0);
  overlay_close(guarded);
}
