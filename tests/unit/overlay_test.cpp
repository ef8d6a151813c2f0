// SPDX-License-Identifier: Apache-2.0
//
// The tree between nodes: questions, orders, and what happens when leaders die, stop and come back.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "check.h"
#include "tests/unit/overlay_fixture.h"

using namespace resil::hang;

namespace {

OverlayOptions narrow() {
  OverlayOptions options = {};
  options.fan_out = 3;
  return options;
}

std::vector<uint32_t> numbers(std::initializer_list<uint32_t> list) { return list; }

}  // namespace

TEST_CASE("all nodes find their place and answer once") {
  OverlayWorld world(14, narrow());
  REQUIRE(world.assemble());
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered.empty());
  CHECK(world.answers(world.node(0)).size() == 14);
  CHECK(world.answers(world.node(0)).count("?13") == 1);
  CHECK(world.counters(0).rounds == 1);
  CHECK(world.counters(0).rounds_partial == 0);
  CHECK(world.state(0).is_root);
  CHECK_FALSE(world.state(1).is_root);
  world.run(5);  // told with the keep-alives, level by level
  CHECK(world.state(0).reachable == 14);
  CHECK(world.state(13).root == 0);
  CHECK(overlay_ask(world.at(1), 1, "", 0, world.now + 1) == 0);  // not the root
}

TEST_CASE("a single node is a tree") {
  OverlayWorld world(1);
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered.empty());
  CHECK(overlay_order(world.at(0), 3, "stop", 4));
  CHECK(world.node(0).orders == std::vector<std::string>{"3:stop"});
}

TEST_CASE("several questions may be under way, and the handler may ask the next one") {
  OverlayWorld world(9, narrow());
  REQUIRE(world.assemble());
  uint64_t last = 0;
  for (int i = 0; i < 4; ++i) REQUIRE((last = overlay_ask(world.at(0), 1, "x", 1, world.now + 5)) != 0);
  CHECK(overlay_ask(world.at(0), 1, "x", 1, world.now + 5) == 0);
  REQUIRE(world.until([&] { return world.counters(0).rounds == 4; }));
  CHECK(world.node(0).finished_round == last);
  CHECK(world.counters(0).rounds_partial == 0);
  for (int i = 0; i < 50; ++i) REQUIRE(world.ask(world.node(0), std::to_string(i) + "/"));
  CHECK(world.node(0).unanswered.empty());
}

TEST_CASE("long answers come whole") {
  OverlayOptions options = narrow();
  options.most_answer = 8 << 20;
  options.most_memory = 256 << 20;
  OverlayWorld world(7, options);
  REQUIRE(world.assemble());
  for (uint32_t i = 0; i < 7; ++i) world.node(i).answer = std::string(1 << 18, static_cast<char>('a' + i)) + " ";
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered.empty());
  const auto answers = world.answers(world.node(0));
  REQUIRE(answers.size() == 7);
  for (uint32_t i = 0; i < 7; ++i) CHECK(answers.count(std::string(1 << 18, static_cast<char>('a' + i))) == 1);
}

TEST_CASE("an answer without room costs the node's voice, not its connection") {
  OverlayOptions options = narrow();
  options.most_answer = 1000;
  OverlayWorld world(4, options);
  REQUIRE(world.assemble());
  world.node(2).answer = std::string(998, 'x') + " ";
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered == numbers({2}));
  world.node(2).answer = std::string(1001, 'x');
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered == numbers({2}));
  world.node(2).answer.clear();
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered.empty());
  CHECK(world.counters(0).children_lost == 0);
}

TEST_CASE("without memory for a long frame it is read past, counted, and the connection lives") {
  OverlayOptions options = narrow();
  options.most_memory = 700 << 10;
  options.most_request = 1 << 10;
  options.most_answer = 100 << 10;
  OverlayWorld world(4, options);
  REQUIRE(world.assemble());
  world.node(0).answer = "0 ";
  for (uint32_t i = 1; i < 4; ++i) world.node(i).answer = std::string(30 << 10, static_cast<char>('a' + i)) + " ";
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered.empty());
  CHECK(world.counters(0).most_memory_used <= options.most_memory);

  options.most_memory = 180 << 10;  // the round's own memory, and nothing for frames
  OverlayWorld poor(4, options);
  REQUIRE(poor.assemble());
  for (uint32_t i = 1; i < 4; ++i) poor.node(i).answer = std::string(30 << 10, static_cast<char>('a' + i)) + " ";
  for (int i = 0; i < 5; ++i) REQUIRE(poor.ask(poor.node(0)));
  CHECK(poor.node(0).unanswered == numbers({1, 2, 3}));
  for (uint32_t i = 0; i < 4; ++i) {
    CHECK(poor.counters(i).most_memory_used <= options.most_memory);
    CHECK(poor.counters(i).children_lost == 0);
    poor.node(i).answer.clear();
  }
  poor.run(3);
  REQUIRE(poor.ask(poor.node(0)));
  CHECK(poor.node(0).unanswered.empty());
}

TEST_CASE("the children of a dead leader go to its standby or its parent, at once") {
  for (bool standbys : {false, true}) {
    OverlayWorld world(14, narrow(), standbys);
    REQUIRE(world.assemble());
    world.run(1.5);
    const double died = world.now;
    world.kill(1);
    if (standbys) world.take_over(1);
    REQUIRE(world.until([&] {
      return world.state(4).parent == (standbys ? 1 : 0) && world.state(5).parent == world.state(4).parent &&
             world.state(6).parent == world.state(4).parent;
    }));
    CHECK(world.now - died < 0.5);  // of the test's clock: before anything times out
    if (standbys) REQUIRE(world.until([&] { return overlay_state(world.standby(1).overlay).parent == 0; }));
    REQUIRE(world.ask(world.node(0)));
    CHECK(world.node(0).unanswered == (standbys ? numbers({}) : numbers({1})));
    CHECK(world.answers(world.node(0)).size() == (standbys ? 14 : 13));
    CHECK(world.node(0).news.back() ==
          (standbys ? std::pair{uint32_t{1}, NodeState::kUp} : std::pair{uint32_t{1}, NodeState::kLost}));
  }
}

TEST_CASE("children that were lost in the middle of a question are still heard") {
  OverlayWorld world(14, narrow());
  REQUIRE(world.assemble());
  world.node(1).stopped = true;
  const uint64_t round = overlay_ask(world.at(0), 1, "q", 1, world.now + 30);
  REQUIRE(round != 0);
  world.run(0.1);  // 1 has the question and does nothing about it
  REQUIRE(world.node(0).finished_round == 0);
  world.kill(1);
  REQUIRE(world.until([&] { return world.node(0).finished_round == round; }));
  CHECK(world.node(0).unanswered == numbers({1}));
  CHECK(world.answers(world.node(0)).size() == 13);
}

TEST_CASE("a stopped leader is missed within its leg, is not waited for again, and rejoins") {
  OverlayWorld world(14, narrow());
  REQUIRE(world.assemble());
  world.node(1).stopped = true;
  double asked = world.now;
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).finished_at - asked <= 1 + 2 * 0.25 + 0.02);
  CHECK(world.node(0).finished_at - asked >= 1);
  CHECK(world.node(0).unanswered == numbers({1, 4, 5, 6, 13}));
  asked = world.now;
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).finished_at - asked < 0.1);
  CHECK(world.node(0).unanswered == numbers({1, 4, 5, 6, 13}));
  // Silence: those below it go elsewhere.
  REQUIRE(world.until(
      [&] { return world.state(4).parent == 0 && world.state(5).parent == 0 && world.state(6).parent == 0; }, 9));
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered == numbers({1}));
  CHECK(world.node(0).news.back().first != 0);
  world.node(1).stopped = false;
  // What it still holds for its parent may be a connection that was given up meanwhile.
  REQUIRE(world.until([&] { return world.state(1).parent == 0; }, 9));
  REQUIRE(world.until([&] { return world.ask(world.node(0)) && world.node(0).unanswered.empty(); }, 9));
  // In time everybody is back where the tree wants it.
  REQUIRE(world.assemble());
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered.empty());
  CHECK(world.answers(world.node(0)).size() == 14);
}

TEST_CASE("a stopped leaf costs one leg") {
  OverlayWorld world(14, narrow());
  REQUIRE(world.assemble());
  world.node(13).stopped = true;
  const double asked = world.now;
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered == numbers({13}));
  CHECK(world.node(0).finished_at - asked <= 1.02);
}

TEST_CASE("a question ends at its deadline") {
  OverlayWorld world(4, narrow());
  REQUIRE(world.assemble());
  world.node(3).stopped = true;
  const double asked = world.now;
  REQUIRE(world.ask(world.node(0), "?", 0.3));
  CHECK(world.node(0).finished_at - asked <= 0.32);
  CHECK(world.node(0).unanswered == numbers({3}));
}

TEST_CASE("the standby of node 0 takes the lead over") {
  OverlayWorld world(14, narrow(), true);
  REQUIRE(world.assemble());
  REQUIRE(world.ask(world.node(0)));
  world.kill(0);
  world.run(1);
  world.take_over(0);
  OverlayNode& root = world.standby(0);
  REQUIRE(world.until(
      [&] { return world.state(1).parent == 0 && world.state(2).parent == 0 && world.state(3).parent == 0; }));
  REQUIRE(world.ask(root));
  CHECK(root.unanswered.empty());
  CHECK(root.finished_round != world.node(0).finished_round);
  CHECK(overlay_state(root.overlay).is_root);
}

TEST_CASE("without node 0 the lowest that can be reached leads, until node 0 is back") {
  OverlayWorld world(14, narrow(), true);
  REQUIRE(world.assemble());
  world.run(12);
  world.kill(0);
  ::close(world.standby(0).listener);
  world.standby(0).listener = -1;
  // Nobody listens there, and nobody else gets the port, until this one does.
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address = {};
  address.sin_family = AF_INET, address.sin_port = htons(world.table()[0].standby.port);
  memcpy(&address.sin_addr, world.table()[0].standby.ip, 4);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(world.until([&] {
    return world.state(1).is_root && world.state(2).root == 1 && world.state(3).root == 1 && world.state(13).root == 1;
  }));
  CHECK_FALSE(world.state(2).is_root);
  REQUIRE(world.ask(world.node(1)));
  CHECK(world.node(1).unanswered == numbers({0}));
  CHECK(world.answers(world.node(1)).size() == 13);
  world.kill(1);
  REQUIRE(world.until([&] { return world.state(2).is_root && world.state(13).root == 2 && world.state(4).root == 2; }));
  REQUIRE(world.until([&] { return world.ask(world.node(2)) && world.node(2).unanswered.size() == 2; }));
  CHECK(world.node(2).unanswered == numbers({0, 1}));

  // Back on the port that everybody knows.
  REQUIRE(listen(fd, 100) == 0);
  world.standby(0).listener = fd;
  world.take_over(0);
  REQUIRE(
      world.until([&] { return world.state(2).parent == 0 && !world.state(2).is_root && world.state(13).root == 0; }));
  REQUIRE(world.until([&] { return world.ask(world.standby(0)) && world.standby(0).unanswered.size() == 1; }));
  CHECK(world.standby(0).unanswered == numbers({1}));
}

TEST_CASE("no other node leads while a job is starting") {
  OverlayOptions options = narrow();
  options.settle = 10;
  OverlayWorld world(3, options);
  world.node(0).stopped = true;
  world.run(9.5);
  CHECK_FALSE(world.state(1).is_root);
  CHECK(world.state(1).root == kNoNode);
  world.node(0).stopped = false;
  REQUIRE(world.assemble());
  CHECK(world.node(1).orders.empty());
}

TEST_CASE("a root that is stopped is followed soon after its silence, early in a job too") {
  OverlayOptions options = narrow();
  options.settle = 10;
  OverlayWorld world(5, options);
  REQUIRE(world.assemble());
  REQUIRE(world.until([&] { return world.state(4).root == 0; }));
  const double stopped = world.now;
  world.node(0).stopped = true;  // its kernel goes on taking connections
  REQUIRE(world.until([&] { return world.state(1).is_root && world.state(4).root == 1; }));
  CHECK(world.now - stopped < 6.5);
  REQUIRE(world.ask(world.node(1)));
  CHECK(world.node(1).unanswered == numbers({0}));
  world.node(0).stopped = false;
  REQUIRE(world.assemble());
}

TEST_CASE("orders reach everybody once, newcomers too") {
  OverlayWorld world(14, narrow());
  REQUIRE(world.assemble());
  world.node(2).stopped = true;
  CHECK(overlay_order(world.at(0), 7, "leave", 5));
  CHECK_FALSE(overlay_order(world.at(3), 7, "leave", 5));
  REQUIRE(world.until([&] { return world.node(13).orders.size() == 1 && world.node(4).orders.size() == 1; }));
  REQUIRE(world.until([&] { return world.state(7).parent == 0; }));  // past its stopped parent
  REQUIRE(world.until([&] { return world.node(7).orders.size() == 1; }));
  world.node(2).stopped = false;
  REQUIRE(world.assemble());
  world.run(3);
  for (uint32_t i = 0; i < 14; ++i) CHECK(world.node(i).orders == std::vector<std::string>{"7:leave"});
  CHECK(overlay_flushed(world.at(0)));
}

TEST_CASE("any node can call for the root's attention") {
  OverlayWorld world(14, narrow());
  CHECK_FALSE(overlay_raise(world.at(13), 1, "why", 3));
  REQUIRE(world.assemble());
  REQUIRE(world.until([&] { return world.state(13).root == 0; }));
  CHECK(overlay_raise(world.at(13), 1, "why", 3));
  CHECK(overlay_raise(world.at(0), 1, "me", 2));
  REQUIRE(world.until([&] { return world.node(0).raised.size() == 2; }));
  CHECK(world.node(0).raised[1] == std::pair{uint32_t{13}, std::string("why")});
}

TEST_CASE("who says good-bye is not called lost") {
  OverlayWorld world(5, narrow());
  REQUIRE(world.assemble());
  world.run(1);
  world.close(4);
  REQUIRE(world.until([&] { return world.node(0).news.back() == std::pair{uint32_t{4}, NodeState::kLeft}; }));
  CHECK(world.counters(1).children_lost == 0);
  world.close(1);
  REQUIRE(world.until([&] { return world.node(0).news.back() == std::pair{uint32_t{1}, NodeState::kLeft}; }));
}

TEST_CASE("who leads because the root said good-bye knows it") {
  OverlayWorld world(5, narrow());
  REQUIRE(world.assemble());
  world.run(11);
  world.close(0);
  REQUIRE(world.until([&] { return world.state(1).is_root; }));
  REQUIRE_FALSE(world.node(1).news.empty());
  CHECK(world.node(1).news.front() == std::pair{uint32_t{0}, NodeState::kLeft});
  OverlayWorld other(5, narrow());
  REQUIRE(other.assemble());
  other.run(11);
  other.kill(0);
  REQUIRE(other.until([&] { return other.state(1).is_root; }));
  for (const auto& news : other.node(1).news) CHECK(news.first != 0);
}

TEST_CASE("an order of a root that dies at once still arrives") {
  OverlayWorld world(14, narrow());
  REQUIRE(world.assemble());
  world.run(2);
  REQUIRE(overlay_raise(world.at(1), 1, "unread by the root", 18));
  CHECK(overlay_order(world.at(0), 7, "leave", 5));
  REQUIRE(overlay_flushed(world.at(0)));
  world.kill(0);
  REQUIRE(world.until([&] {
    for (uint32_t i = 1; i < 14; ++i)
      if (world.node(i).orders.size() != 1) return false;
    return true;
  }));
}

TEST_CASE("all leaders but the root die one after the other, and what is left answers each time") {
  OverlayWorld world(14, narrow());
  REQUIRE(world.assemble());
  for (uint32_t dead = 1; dead < 14; ++dead) {
    world.kill(dead);
    REQUIRE(world.until([&] { return world.ask(world.node(0)) && world.node(0).unanswered.size() == dead; }));
  }
}

TEST_CASE("more orphans than a node takes find another place") {
  OverlayOptions options = narrow();
  options.most_children = 4;
  OverlayWorld world(40, options);
  REQUIRE(world.assemble());
  for (uint32_t dead : {1, 2, 3}) world.kill(dead);
  REQUIRE(world.until([&] { return world.ask(world.node(0)) && world.node(0).unanswered == numbers({1, 2, 3}); }));
  CHECK(world.counters(0).refused_full > 0);
  CHECK(world.state(0).children <= 4);
}

TEST_CASE("the clock may stand still or jump ahead") {
  OverlayWorld world(14, narrow());
  REQUIRE(world.assemble());
  world.run(1);
  const uint64_t parents = world.counters(13).parents;
  world.now += 1e6;  // everybody was suspended for eleven days
  world.run(1);
  CHECK(world.counters(13).parents == parents);
  CHECK(world.counters(0).silences == 0);
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered.empty());
}

TEST_CASE("the listener is on one address of this host, never on all") {
  Address address;
  const int loopback = overlay_listen(&address, true);
  REQUIRE(loopback >= 0);
  CHECK(address.family == 4);
  CHECK(address.ip[0] == 127);
  CHECK(address.port != 0);
  close(loopback);
  for (const char* interface : {static_cast<const char*>(nullptr), "lo", "127.0.0.1", "no such interface"}) {
    const int fd = overlay_listen(&address, false, interface);
    REQUIRE(fd >= 0);
    bool any = true;
    for (const uint8_t byte : address.ip) any = any && byte == 0;
    CHECK_FALSE(any);
    if (interface != nullptr && interface[0] != 'n') CHECK(address.ip[0] == 127);
    close(fd);
  }
}

TEST_CASE("ports that are taken are passed over") {
  Address first, second, third;
  const int one = overlay_listen(&first, true);
  REQUIRE(one >= 0);
  const PortRange only = {first.port, first.port};
  CHECK(overlay_listen(&second, true, nullptr, only) == -1);
  CHECK(errno == EADDRINUSE);
  CHECK(second.family == 0);
  const PortRange more = {first.port, static_cast<uint16_t>(first.port < 65000 ? first.port + 500 : 65535)};
  const int other = overlay_listen(&third, true, nullptr, more);
  REQUIRE(other >= 0);
  CHECK(third.port > first.port);
  CHECK(third.port <= more.last);
  close(other);
  close(one);
}

TEST_CASE("two nodes meet over IPv6") {
  NodeEntry table[2] = {};
  int listeners[2];
  for (int i = 0; i < 2; ++i) REQUIRE((listeners[i] = overlay_listen(&table[i].leader, false, "::1")) >= 0);
  if (table[0].leader.family != 6) {
    WARN("no IPv6 here");
    close(listeners[0]);
    close(listeners[1]);
    return;
  }
  const uint8_t key[16] = {};
  Overlay* nodes[2];
  for (uint32_t i = 0; i < 2; ++i)
    REQUIRE((nodes[i] = overlay_open(listeners[i], table, 2, i, false, key, {}, {})) != nullptr);
  double now = 1;
  for (; now < 5 && overlay_state(nodes[1]).root != 0; now += 0.01)
    for (Overlay* node : nodes) overlay_step(node, now, 1);
  CHECK(overlay_state(nodes[1]).parent == 0);
  CHECK(overlay_state(nodes[0]).children == 1);
  for (Overlay* node : nodes) overlay_close(node);
}

TEST_CASE("descriptors that the program closed and uses itself are left alone") {
  OverlayWorld world(5, narrow());
  REQUIRE(world.assemble());
  const int first = overlay_descriptor(world.at(0));
  // The program closes everything, and opens files; they get our numbers.
  REQUIRE(close(first) == 0);
  const int file = open("/dev/null", O_RDONLY);
  REQUIRE(file == first);
  REQUIRE(world.ask(world.node(0)));
  CHECK(world.node(0).unanswered == numbers({1, 2, 3, 4}));
  CHECK(overlay_state(world.at(0)).children == 0);
  overlay_wake(world.at(0));
  world.close(0);
  CHECK(fcntl(file, F_GETFD) >= 0);
  close(file);
  // The others' sockets of this node were not closed by us, so that they notice by its silence.
  REQUIRE(world.until([&] { return world.state(1).parent == kNoNode; }, 10));
}

TEST_CASE("a connection that the program closed and uses itself is left alone") {
  OverlayWorld world(2, narrow());
  REQUIRE(world.assemble());
  // The youngest descriptor but none is the accepted connection or its other end.
  int youngest = -1;
  for (int fd = 3; fd < 200; ++fd) {
    sockaddr_in address;
    socklen_t bytes = sizeof(address);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0) youngest = fd;
  }
  REQUIRE(youngest > 0);
  const int file = open("/dev/null", O_RDONLY);
  REQUIRE(dup2(file, youngest) == youngest);
  world.run(8);
  CHECK(fcntl(youngest, F_GETFD) >= 0);
  close(youngest);
  CHECK(world.state(1).parent == 0);
  close(file);
}

TEST_CASE("overlay_wake ends a wait") {
  OverlayWorld world(1);
  overlay_step(world.at(0), world.now, 0);
  overlay_wake(world.at(0));
  overlay_step(world.at(0), world.now, 600000);  // the test's time limit says whether it waits
  SUCCEED();
}

TEST_CASE("a probe of any node, also of one above, and of one that is no neighbour in the tree") {
  OverlayWorld world(8, narrow());
  REQUIRE(world.assemble());
  const auto found = [&](uint32_t from, uint32_t to) { return overlay_probed(world.at(from), to).reach; };
  CHECK(found(7, 2) == Reach::kUnknown);
  for (const auto& [from, to] : {std::pair{7u, 2u}, {0u, 7u}, {3u, 4u}}) {
    const uint64_t refused = world.counters(to).refused_key, parents = world.counters(from).parents;
    REQUIRE(overlay_probe(world.at(from), to, 2.5));
    REQUIRE(world.until([&, from = from, to = to] { return found(from, to) != Reach::kAsking; }, 5));
    CHECK(found(from, to) == Reach::kReplied);
    world.run(3);
    CHECK(world.counters(to).refused_key == refused);
    CHECK(world.counters(to).refused_silent == 0);
    CHECK(world.counters(from).parents == parents);
    CHECK(world.state(to).strangers == 0);
  }
  CHECK(world.counters(7).probes == 1);
  CHECK(world.counters(7).probes_answered == 1);
  CHECK(overlay_probe(world.at(3), 3, 1));
  CHECK(found(3, 3) == Reach::kReplied);
  CHECK_FALSE(overlay_probe(world.at(3), 8, 1));
}

TEST_CASE("a probe tells a helper that does not reply from a host where nobody listens") {
  OverlayWorld world(5, narrow());
  REQUIRE(world.assemble());
  world.node(4).stopped = true;  // its host takes the connection
  world.kill(3);  // its host refuses it
  REQUIRE(overlay_probe(world.at(2), 4, 2.5));
  REQUIRE(overlay_probe(world.at(2), 3, 2.5));
  world.run(2);
  CHECK(overlay_probed(world.at(2), 4).reach == Reach::kAsking);
  CHECK(overlay_probed(world.at(2), 3).reach == Reach::kHost);
  world.run(1);
  CHECK(overlay_probed(world.at(2), 4).reach == Reach::kHost);
  CHECK(world.counters(2).probes_answered == 0);
}

TEST_CASE("probes are bounded, and the oldest result makes room") {
  OverlayWorld world(20);
  REQUIRE(world.assemble());
  for (uint32_t node = 1; node < 20; ++node) world.node(node).stopped = true;
  uint32_t begun = 0;
  for (uint32_t node = 1; node < 20; ++node) begun += overlay_probe(world.at(0), node, 2.5);
  CHECK(begun == 16);
  CHECK(overlay_probed(world.at(0), 17).reach == Reach::kUnknown);
  world.run(3);
  REQUIRE(overlay_probe(world.at(0), 17, 2.5));
  CHECK(overlay_probed(world.at(0), 17).reach == Reach::kAsking);
  CHECK(overlay_probed(world.at(0), 1).reach == Reach::kUnknown);
  CHECK(overlay_probed(world.at(0), 2).reach == Reach::kHost);
}
