// SPDX-License-Identifier: Apache-2.0
//
// A job whose nodes are overlays of one process on loopback, stepped in turns under a clock of the test's own: it moves
// only while no traffic does, so that no result depends on the speed of the machine.
#pragma once

#include <deque>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "detectors/hang/overlay/overlay.h"

struct OverlayNode {
  uint32_t number;
  bool standby;
  resil::hang::Overlay* overlay = nullptr;
  int listener = -1;
  bool stopped = false;  ///< as after SIGSTOP: not stepped
  std::string answer;  ///< its part of a round
  std::vector<std::string> orders;
  std::vector<std::pair<uint32_t, std::string>> raised;
  std::vector<std::pair<uint32_t, resil::hang::NodeState>> news;
  uint64_t finished_round = 0;
  std::string merged;
  std::vector<uint32_t> unanswered;
  double finished_at = 0;
  class OverlayWorld* world = nullptr;
};

class OverlayWorld {
 public:
  /// Every node has a listening standby process if `standbys`; it is no overlay before take_over().
  OverlayWorld(uint32_t count, resil::hang::OverlayOptions options = {}, bool standbys = false);
  ~OverlayWorld();
  OverlayWorld(const OverlayWorld&) = delete;

  OverlayNode& node(uint32_t number) { return nodes_[number]; }
  OverlayNode& standby(uint32_t number) { return standbys_[number]; }
  resil::hang::Overlay* at(uint32_t number) { return nodes_[number].overlay; }
  resil::hang::OverlayState state(uint32_t number) { return resil::hang::overlay_state(at(number)); }
  const resil::hang::OverlayCounters& counters(uint32_t number) { return resil::hang::overlay_counters(at(number)); }
  const std::vector<resil::hang::NodeEntry>& table() const { return table_; }
  const uint8_t* key() const { return key_; }

  void open(OverlayNode& node);
  void kill(uint32_t number);  ///< as after SIGKILL
  void take_over(uint32_t number);
  void close(uint32_t number);
  /// Steps all until `done`, for at most so many seconds of the test's clock.
  bool until(const std::function<bool()>& done, double seconds = 60);
  void run(double seconds);
  /// Everybody is where the tree says, and the root knows of all.
  bool assemble();
  /// One round from `root`; what it gave is in the node.
  bool ask(OverlayNode& root, const std::string& question = "?", double timeout = 30);
  std::set<std::string> answers(const OverlayNode& root) const;  ///< merged, cut at spaces

  double now = 1000;

 private:
  void turn();
  uint64_t traffic() const;

  uint8_t key_[16];
  resil::hang::OverlayOptions options_;
  std::vector<resil::hang::NodeEntry> table_;
  std::deque<OverlayNode> nodes_, standbys_;
};

/// Somebody with a socket, perhaps with the key, who speaks the protocol as he likes.
class RawClient {
 public:
  explicit RawClient(const resil::hang::Address& to);
  ~RawClient() { shut(); }
  RawClient(const RawClient&) = delete;

  bool send(const void* data, size_t bytes);
  bool send(const std::string& text) { return send(text.data(), text.size()); }
  std::string receive();  ///< what is there
  bool closed();  ///< by the other side
  void shut();
  void reset();  ///< closes with RST

  /// Greets as node `from`; what has been sent is in `sent`.
  void hello(const uint8_t key[16], uint32_t from, uint32_t to, uint32_t attach = 1, uint8_t purpose = 0);
  void prove(const uint8_t key[16]);  ///< after the challenge has come
  std::string frame(uint8_t type, uint16_t kind, const std::string& payload);  ///< the next one, signed
  std::vector<std::string> frames();  ///< payloads of the frames that have come, after prove()

  std::string sent;
  uint64_t sequence = 0;

 private:
  int fd_;
  std::string received_;
  struct Session;
  Session* session_;
};
