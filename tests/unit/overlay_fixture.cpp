// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/overlay_fixture.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <sstream>

#include "check.h"
#include "detectors/hang/overlay/address.h"
#include "detectors/hang/overlay/wire.h"

using namespace resil::hang;
using namespace resil::hang::overlay;

namespace {

OverlayNode& self_of(void* self) { return *static_cast<OverlayNode*>(self); }

uint32_t answer(void* self, uint16_t, const void* request, uint32_t bytes, void* room, uint32_t room_bytes) {
  const OverlayNode& node = self_of(self);
  const std::string text =
      node.answer.empty() ? std::string(static_cast<const char*>(request), bytes) + std::to_string(node.number) + " "
                          : node.answer;
  if (text.size() > room_bytes) return room_bytes + 1;
  memcpy(room, text.data(), text.size());
  return static_cast<uint32_t>(text.size());
}

void finished(void* self, uint64_t round, uint16_t, const void* merged, uint32_t bytes, const uint32_t* unanswered,
              uint32_t count) {
  OverlayNode& node = self_of(self);
  node.finished_round = round;
  node.merged.assign(static_cast<const char*>(merged), bytes);
  node.unanswered.assign(unanswered, unanswered + count);
  node.finished_at = node.world->now;
}

void order(void* self, uint16_t kind, const void* payload, uint32_t bytes) {
  self_of(self).orders.push_back(std::to_string(kind) + ":" + std::string(static_cast<const char*>(payload), bytes));
}

void raised(void* self, uint32_t from, uint16_t, const void* payload, uint32_t bytes) {
  self_of(self).raised.emplace_back(from, std::string(static_cast<const char*>(payload), bytes));
}

void news(void* self, uint32_t node, NodeState state) { self_of(self).news.emplace_back(node, state); }

}  // namespace

OverlayWorld::OverlayWorld(uint32_t count, OverlayOptions options, bool standbys) : options_(options) {
  for (int i = 0; i < 16; ++i) key_[i] = static_cast<uint8_t>(7 * i + 1);
  table_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    OverlayNode& leader = nodes_.emplace_back();
    leader.number = i, leader.standby = false, leader.world = this;
    leader.listener = overlay_listen(&table_[i].leader, true);
    REQUIRE(leader.listener >= 0);
    OverlayNode& second = standbys_.emplace_back();
    second.number = i, second.standby = true, second.world = this;
    if (standbys) second.listener = overlay_listen(&table_[i].standby, true);
  }
  for (OverlayNode& node : nodes_) open(node);
}

OverlayWorld::~OverlayWorld() {
  for (auto* all : {&nodes_, &standbys_})
    for (OverlayNode& node : *all) {
      if (node.overlay != nullptr) overlay_close(node.overlay);
      else if (node.listener >= 0) ::close(node.listener);
    }
}

void OverlayWorld::open(OverlayNode& node) {
  const OverlayHandler handler = {&node, answer, nullptr, finished, order, raised, news};
  node.overlay = overlay_open(node.listener, table_.data(), static_cast<uint32_t>(table_.size()), node.number,
                              node.standby, key_, handler, options_);
  REQUIRE(node.overlay != nullptr);
  node.listener = -1;
}

void OverlayWorld::kill(uint32_t number) {
  overlay_drop(nodes_[number].overlay);
  nodes_[number].overlay = nullptr;
}

void OverlayWorld::close(uint32_t number) {
  overlay_close(nodes_[number].overlay);
  nodes_[number].overlay = nullptr;
}

void OverlayWorld::take_over(uint32_t number) { open(standbys_[number]); }

uint64_t OverlayWorld::traffic() const {
  uint64_t bytes = 0;
  for (const auto* all : {&nodes_, &standbys_})
    for (const OverlayNode& node : *all)
      if (node.overlay != nullptr) {
        const OverlayCounters& counters = overlay_counters(node.overlay);
        bytes += counters.bytes_in + counters.bytes_out + counters.connect_errors + counters.parents;
      }
  return bytes;
}

void OverlayWorld::turn() {
  for (auto* all : {&nodes_, &standbys_})
    for (OverlayNode& node : *all)
      if (node.overlay != nullptr && !node.stopped) overlay_step(node.overlay, now, 0);
}

bool OverlayWorld::until(const std::function<bool()>& done, double seconds) {
  const double end = now + seconds;
  while (now < end) {
    uint64_t before, after = traffic();
    int quiet = 0, turns = 0;
    do {
      before = after;
      turn();
      if (done()) return true;
      after = traffic();
      quiet = before == after ? quiet + 1 : 0;
    } while (quiet < 3 && ++turns < 2000);
    now += 0.01;
  }
  return done();
}

void OverlayWorld::run(double seconds) {
  until([] { return false; }, seconds);
}

bool OverlayWorld::assemble() {
  const uint32_t fan_out = options_.fan_out == 0 ? 32 : options_.fan_out;
  return until([&] {
    for (OverlayNode& node : nodes_)
      if (node.number > 0 && node.overlay != nullptr && !node.stopped &&
          overlay_state(node.overlay).parent != (node.number - 1) / fan_out)
        return false;
    return true;
  });
}

bool OverlayWorld::ask(OverlayNode& root, const std::string& question, double timeout) {
  const uint64_t round =
      overlay_ask(root.overlay, 1, question.data(), static_cast<uint32_t>(question.size()), now + timeout);
  return round != 0 && until([&] { return root.finished_round == round; });
}

std::set<std::string> OverlayWorld::answers(const OverlayNode& root) const {
  std::istringstream words(root.merged);
  std::set<std::string> all;
  for (std::string word; words >> word;) REQUIRE(all.insert(word).second);  // nobody twice
  return all;
}

struct RawClient::Session {
  Transcript transcript;
  MacKey out, in;
};

RawClient::RawClient(const Address& to) : fd_(connect_from({}, to)), session_(new Session) { REQUIRE(fd_ >= 0); }

bool RawClient::send(const void* data, size_t bytes) {
  sent.append(static_cast<const char*>(data), bytes);
  return ::send(fd_, data, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

std::string RawClient::receive() {
  char room[65536];
  for (ssize_t got; (got = recv(fd_, room, sizeof(room), MSG_DONTWAIT)) > 0;)
    received_.append(room, static_cast<size_t>(got));
  return received_;
}

bool RawClient::closed() {
  receive();
  char byte;
  const ssize_t got = recv(fd_, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return got == 0 || (got < 0 && errno != EAGAIN);
}

void RawClient::shut() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  delete session_;
  session_ = nullptr;
}

void RawClient::reset() {
  const linger now = {1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  shut();
}

void RawClient::hello(const uint8_t key[16], uint32_t from, uint32_t to, uint32_t attach, uint8_t purpose) {
  Hello hello = {kMagic, kWireVersion, 0, static_cast<Purpose>(purpose), from, to, attach, {1, 2, 3}, {}};
  MacKey(key, 16).sign(&hello, offsetof(Hello, mac), nullptr, 0, hello.mac);
  session_->transcript.hello = hello;
  send(&hello, sizeof(hello));
}

void RawClient::prove(const uint8_t key[16]) {
  Challenge challenge;
  REQUIRE(receive().size() >= sizeof(challenge));
  memcpy(&challenge, received_.data(), sizeof(challenge));
  received_.erase(0, sizeof(challenge));
  Transcript& transcript = session_->transcript;
  memcpy(transcript.nonce, challenge.nonce, sizeof(challenge.nonce));
  const MacKey job(key, 16);
  Proof proof;
  uint8_t derived[32];
  transcript.label = Label::kChallenge;
  REQUIRE(job.verify(&transcript, sizeof(transcript), nullptr, 0, challenge.mac));
  transcript.label = Label::kProof;
  job.sign(&transcript, sizeof(transcript), nullptr, 0, proof.mac);
  transcript.label = Label::kKeyUp;
  job.full(&transcript, sizeof(transcript), nullptr, 0, derived);
  session_->out = MacKey(derived, sizeof(derived));
  transcript.label = Label::kKeyDown;
  job.full(&transcript, sizeof(transcript), nullptr, 0, derived);
  session_->in = MacKey(derived, sizeof(derived));
  send(&proof, sizeof(proof));
}

std::string RawClient::frame(uint8_t type, uint16_t kind, const std::string& payload) {
  const FrameHeader header = {static_cast<uint32_t>(payload.size()), static_cast<FrameType>(type), 0, kind, ++sequence};
  std::string whole(reinterpret_cast<const char*>(&header), sizeof(header));
  whole += payload;
  uint8_t mac[kMacBytes];
  session_->out.sign(whole.data(), whole.size(), nullptr, 0, mac);
  return whole.append(reinterpret_cast<const char*>(mac), sizeof(mac));
}

std::vector<std::string> RawClient::frames() {
  receive();
  std::vector<std::string> all;
  FrameHeader header;
  while (received_.size() >= sizeof(header)) {
    memcpy(&header, received_.data(), sizeof(header));
    const size_t whole = sizeof(header) + header.bytes + kMacBytes;
    if (received_.size() < whole) break;
    REQUIRE(session_->in.verify(received_.data(), whole - kMacBytes, nullptr, 0,
                                reinterpret_cast<const uint8_t*>(received_.data()) + whole - kMacBytes));
    all.push_back(received_.substr(0, whole - kMacBytes));
    received_.erase(0, whole);
  }
  return all;
}
