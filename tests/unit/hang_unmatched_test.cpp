// SPDX-License-Identifier: Apache-2.0
//
// Unmatched messages at the end of a job: what was sent and never received is found over any grouping of nodes, what
// balances is not mentioned, and what cannot be known is left out.

#include <map>

#include "check.h"
#include "detectors/hang/mismatch/unmatched.h"
#include "detectors/hang/mismatch/unmatched_frame.h"
#include "hang_mismatch_world.h"
#include "shim/base/hash.h"

namespace mismatch_test {

namespace {

const uint64_t kWorldId = hash_combine(hash_text("MPI_COMM_WORLD"), 0);

struct Job {
  std::vector<std::unique_ptr<Section, FreeSection>> sections;
  std::vector<ring::Header> headers;
  std::vector<Watched> watched;

  explicit Job(int ranks) : headers(static_cast<size_t>(ranks)), watched(static_cast<size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      sections.emplace_back(static_cast<Section*>(calloc(1, sizeof(Section))));
      headers[rank].world_size = ranks;
      headers[rank].phase = static_cast<uint32_t>(ring::Phase::kFinished);
      watched[rank] = {};
      watched[rank].header = &headers[rank];
      watched[rank].section = sections[rank].get();
      watched[rank].rank = rank;
    }
  }

  Envelope& envelope(int rank, uint64_t comm, int32_t peer, int32_t tag) {
    Envelope* place = sections[rank]->envelopes;
    while (place->comm != 0 && !(place->comm == comm && place->peer == peer && place->tag == tag)) ++place;
    place->comm = comm;
    place->peer = peer;
    place->tag = tag;
    return *place;
  }
  void send(int from, int to, int32_t tag, uint64_t comm = kWorldId, bool received = true, bool wild = false) {
    ++envelope(from, comm, to, tag).sent;
    if (received && !wild) ++envelope(to, comm, from, tag).posted;
    if (received && wild) {
      ++envelope(to, comm, from, tag).taken;
      Envelope& any = envelope(to, comm, ring::kAnySource, tag);
      ++any.posted;
      ++any.told;
    }
  }

  /// By nodes of random size, merged in random order.
  std::vector<char> merged(std::mt19937_64& random, uint32_t room) {
    std::vector<std::vector<char>> frames;
    for (size_t first = 0; first < watched.size();) {
      const size_t count = std::min<size_t>(1 + random() % 4, watched.size() - first);
      std::vector<char> frame(room);
      frame.resize(unmatched_collect(&watched[first], static_cast<uint32_t>(count), frame.data(), room));
      REQUIRE(!frame.empty());
      frames.push_back(frame);
      first += count;
    }
    while (frames.size() > 1) {
      std::swap(frames[random() % frames.size()], frames.back());
      const std::vector<char> last = frames.back();
      frames.pop_back();
      std::vector<char>& into = frames[random() % frames.size()];
      auto bytes = static_cast<uint32_t>(into.size());
      into.resize(room);
      REQUIRE(unmatched_merge(into.data(), &bytes, room, last.data(), static_cast<uint32_t>(last.size())));
      into.resize(bytes);
    }
    return frames[0];
  }
};

UnmatchedList found;

bool judge(const std::vector<char>& frame, Verdict* verdict) {
  return unmatched_judge(frame.data(), static_cast<uint32_t>(frame.size()), verdict, &found);
}

}  // namespace

TEST_CASE("balanced balances say nothing; one message too many is found") {
  std::mt19937_64 random(1);
  for (int run = 0; run < 60; ++run) {
    const int ranks = 2 + static_cast<int>(random() % 20);
    Job job(ranks);
    const uint64_t other = 1234;
    for (int i = 0; i < 300; ++i)
      job.send(static_cast<int>(random() % ranks), static_cast<int>(random() % ranks),
               static_cast<int32_t>(random() % 5), random() % 2 == 0 ? kWorldId : other, true, random() % 3 == 0);
    Verdict verdict;
    CHECK(!judge(job.merged(random, 65536), &verdict));
    // Little room: pairs are folded, and still balance.
    const std::vector<char> small = job.merged(random, 600);
    CHECK(!judge(small, &verdict));
    const int from = static_cast<int>(random() % ranks), to = static_cast<int>(random() % ranks);
    job.send(from, to, 3, other, false);
    REQUIRE(judge(job.merged(random, 65536), &verdict));
    INFO(words_of(verdict).message);
    CHECK(verdict.type == HangClass::kUnreceived);
    CHECK(verdict.confidence == Confidence::kSuspected);
    CHECK(verdict.culprits[0] == from);
    CHECK(verdict.victims[0] == to);
    CHECK(strstr(words_of(verdict).message, "1 message was sent and never received") != nullptr);
    CHECK(strstr(words_of(verdict).message, "tag 3") != nullptr);
    CHECK(judge(job.merged(random, 600), &verdict));
  }
}

TEST_CASE("messages sent as one basic type and received as another, by nodes in any grouping") {
  constexpr uint32_t kInt = 0x104, kFloat = 0x304;
  std::mt19937_64 random(5);
  Verdict verdict;
  const auto judged = [&](Job& job) {
    const std::vector<char> frame = job.merged(random, 65536);
    CHECK(!judge(frame, &verdict));  // no message is missing
    return message_types_judge(frame.data(), static_cast<uint32_t>(frame.size()), &verdict);
  };
  for (int run = 0; run < 20; ++run) {
    Job job(6);
    for (int i = 0; i < 50; ++i) {
      const int from = static_cast<int>(random() % 6), to = static_cast<int>(random() % 6);
      const auto tag = static_cast<int32_t>(random() % 4);
      job.send(from, to, tag);
      job.envelope(from, kWorldId, to, tag).types.sent = job.envelope(to, kWorldId, from, tag).types.posted =
          tag == 3 ? kFloat : kInt;
    }
    CHECK(!judged(job));
    job.send(4, 2, 3);
    Envelope& sent = job.envelope(4, kWorldId, 2, 3);
    Envelope& received = job.envelope(2, kWorldId, 4, 3);
    sent.types.sent = kInt;
    for (const uint32_t type : {kAnyType, kNoType, kInt}) {
      received.types.posted = type;
      CHECK(!judged(job));
    }
    received.types.posted = kFloat;
    REQUIRE(judged(job));
    CHECK(verdict.type == HangClass::kMessageMismatch);
    CHECK(verdict.confidence == Confidence::kSuspected);
    CHECK(std::string(words_of(verdict).message) ==
          "Rank 4 sends 4-byte signed integers to rank 2 on MPI_COMM_TEST, tag 3; rank 2 receives them as 4-byte "
          "floating-point numbers. To do: compare the datatypes of the send and the receive.");
    sent.types.sent = kAnyType;
    CHECK(!judged(job));
    sent.types.sent = kInt;
    ++sent.sent;  // one is missing: the others may be of any
    const std::vector<char> frame = job.merged(random, 65536);
    CHECK(!message_types_judge(frame.data(), static_cast<uint32_t>(frame.size()), &verdict));
  }
}

TEST_CASE("a message with another tag than its receive") {
  std::mt19937_64 random(2);
  Job job(4);
  job.send(1, 2, 7, kWorldId, false);
  ++job.envelope(2, kWorldId, 1, 8).posted;
  Verdict verdict;
  REQUIRE(judge(job.merged(random, 65536), &verdict));
  CHECK(
      std::string(words_of(verdict).message)
          .find("1 message was sent and never received (unmatched at MPI_Finalize). 1 receive was posted for which no "
                "message was sent. The first is from rank 1 to rank 2 on MPI_COMM_TEST, tag 7.") == 0);
  REQUIRE(found.listed == 1);
  CHECK((found.entries[0].sender == 1 && found.entries[0].receiver == 2 && found.entries[0].tag == 7));
  CHECK((found.entries[0].count == 1 && found.entries[0].comm == kWorldId && found.total == 1));
}

TEST_CASE("tags that one side could not tell apart are added up") {
  std::mt19937_64 random(3);
  Job job(3);
  job.envelope(0, kWorldId, 1, 4).sent = 3;
  job.envelope(0, kWorldId, 1, kOtherTags).sent = 5;
  job.envelope(1, kWorldId, 0, 9).posted = 3;
  job.envelope(1, kWorldId, 0, kOtherTags).posted = 5;
  Verdict verdict;
  CHECK(!judge(job.merged(random, 65536), &verdict));
  ++job.envelope(0, kWorldId, 1, kOtherTags).sent;
  CHECK(judge(job.merged(random, 65536), &verdict));
}

TEST_CASE("what cannot be known is left out") {
  std::mt19937_64 random(4);
  Verdict verdict;
  for (const uint32_t flag : {kCancelled, kFailedCall, kLostEnvelope, kOtherWorld, kPartitionedUse, kUnknownSource}) {
    Job job(6);
    job.send(0, 3, 1, kWorldId, false);
    job.sections[random() % 2 == 0 ? 0 : 3]->irregular = flag;
    const std::vector<char> frame = job.merged(random, 65536);
    CHECK(!judge(frame, &verdict));
  }
  {
    Job job(6);  // a wildcard that was never told what it got
    job.send(0, 3, 1, kWorldId, false);
    ++job.envelope(3, kWorldId, ring::kAnySource, 1).posted;
    CHECK(!judge(job.merged(random, 65536), &verdict));
  }
  {
    Job job(6);  // envelopes of other communicators than MPI_COMM_WORLD may have been forgotten
    job.send(0, 3, 1, 55, false);
    job.sections[3]->irregular = kForgotten;
    CHECK(!judge(job.merged(random, 65536), &verdict));
    job.send(0, 3, 1, kWorldId, false);
    CHECK(judge(job.merged(random, 65536), &verdict));
  }
  {
    Job job(6);  // somebody still runs
    job.send(0, 3, 1, kWorldId, false);
    job.headers[5].phase = static_cast<uint32_t>(ring::Phase::kRunning);
    CHECK(!judge(job.merged(random, 65536), &verdict));
    job.headers[5].phase = static_cast<uint32_t>(ring::Phase::kFinalizing);
    job.sections[5]->irregular = kSelfAttribute;
    CHECK(!judge(job.merged(random, 65536), &verdict));
    job.headers[5].phase = static_cast<uint32_t>(ring::Phase::kFinished);
    CHECK(judge(job.merged(random, 65536), &verdict));
  }
  {
    Job job(4);  // a node that answers twice
    job.send(0, 3, 1, kWorldId, false);
    std::vector<char> frame = job.merged(random, 65536), once = frame;
    auto bytes = static_cast<uint32_t>(frame.size());
    frame.resize(65536);
    REQUIRE(unmatched_merge(frame.data(), &bytes, 65536, once.data(), static_cast<uint32_t>(once.size())));
    frame.resize(bytes);
    CHECK(!judge(frame, &verdict));
  }
}

TEST_CASE("answers of any kind are refused or harmless") {
  std::mt19937_64 random(6);
  Job job(4);
  for (int i = 0; i < 50; ++i)
    job.send(static_cast<int>(random() % 4), static_cast<int>(random() % 4), i, kWorldId, i % 2 == 0);
  const std::vector<char> good = job.merged(random, 65536);
  Verdict verdict;
  for (int i = 0; i < 1000; ++i) {
    std::vector<char> frame = good, into(65536);
    for (uint64_t k = random() % 4; k > 0; --k) frame[random() % frame.size()] = static_cast<char>(random());
    if (random() % 3 == 0) frame.resize(random() % frame.size());
    if (random() % 8 == 0) frame.insert(frame.begin(), 'x');
    uint32_t bytes = 0;
    unmatched_merge(into.data(), &bytes, 65536, frame.data(), static_cast<uint32_t>(frame.size()));
    REQUIRE(bytes <= 65536);
    unmatched_judge(into.data(), bytes, &verdict, &found);
    unmatched_judge(frame.data(), static_cast<uint32_t>(frame.size()), &verdict, &found);
  }
}

}  // namespace mismatch_test
