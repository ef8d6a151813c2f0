// SPDX-License-Identifier: Apache-2.0
//
// A wrong call behind which all ranks, or all but the one that made it, have gone on by more calls than their histories
// know one by one: what they called is in their flight records.

#include "check.h"
#include "hang_mismatch_world.h"

namespace mismatch_test {

namespace {

constexpr int kRanks = 4, kOdd = 2;
constexpr uint32_t kComm = 2;  ///< index

/// One node of ranks that call collectives on one communicator, with flight records.
struct Job {
  std::vector<std::unique_ptr<Section, FreeSection>> sections;
  std::vector<std::unique_ptr<ring::TraceBuffer>> traces;
  std::vector<ring::Header> headers = std::vector<ring::Header>(kRanks);
  std::vector<Watched> watched = std::vector<Watched>(kRanks);
  Owned mismatch{mismatch_create(kRanks)};
  uint64_t time = 0;

  Job() {
    for (int rank = 0; rank < kRanks; ++rank) {
      sections.emplace_back(static_cast<Section*>(calloc(1, sizeof(Section))));
      traces.emplace_back(new ring::TraceBuffer());
      headers[rank].world_size = kRanks;
      watched[rank] = {};
      watched[rank].header = &headers[rank];
      watched[rank].section = sections[rank].get();
      watched[rank].rank = rank;
      watched[rank].traces = traces[rank].get();
      watched[rank].trace_count = 1;
      history_begin(sections[rank]->histories[kComm], 99, kRanks, 0);
    }
  }

  void record(int rank, uint64_t signature, CallId id, uint32_t comm) {
    ring::TraceBuffer& trace = *traces[rank];
    ring::Record& made = trace.records[trace.head % ring::kRecordsPerTrace];
    made = {};
    made.time = ++time;
    made.call = static_cast<uint16_t>(id);
    made.comm = comm;
    made.aux = signature;
    made.site = 0x1000 + signature % 64;
    ++trace.head;
  }

  void call(int rank, uint64_t signature, bool recorded = true) {
    const auto id = static_cast<CallId>(signature & 0x3ff);
    if (recorded) record(rank, signature, id, kComm);
    record(rank, 7, CallId::kMPI_Send, kComm);  // between the collectives, and of another communicator
    record(rank, 8, CallId::kMPI_Barrier, kComm + 1);
    CollectiveHistory& history = sections[rank]->histories[kComm];
    history_add(history, history.sequence + 1, signature);
  }

  std::vector<Verdict> look(int rounds = 4) {
    std::vector<Verdict> found;
    std::vector<char> frame(kMismatchFrame);
    for (int round = 0; round < rounds; ++round) {
      uint32_t bytes = mismatch_collect(*mismatch, watched.data(), kRanks, frame.data(), kMismatchFrame);
      for (Verdict verdict; mismatch_judge(*mismatch, frame.data(), bytes, &verdict); bytes = 0)
        found.push_back(verdict);
    }
    return found;
  }
};

bool is_blocking(uint64_t signature) {
  return !call_info(static_cast<CallId>(signature_unpack(signature).call)).has(kCallStarts);
}

/// Another blocking call in its place.
uint64_t wrong_one(uint64_t signature, std::mt19937_64& random) {
  uint64_t made;
  do made = random_signature(random, kRanks);
  while (!is_blocking(made) || signature_unpack(made).call == signature_unpack(signature).call);
  return made;
}

/// Blocking ones only.
std::vector<uint64_t> program(size_t calls) {
  std::mt19937_64 random(17);
  std::vector<uint64_t> made;
  while (made.size() < calls)
    if (const uint64_t next = random_signature(random, kRanks); is_blocking(next)) made.push_back(next);
  return made;
}

}  // namespace

TEST_CASE("ranks have gone on from a wrong call: it is found in their flight records") {
  const std::vector<uint64_t> right = program(1000);
  std::mt19937_64 random(5);
  for (const size_t wrong_call : {1u, 2u, 31u, 64u, 99u, 130u})
    for (const size_t ahead : {3u, 15u, 16u, 17u, 40u, 100u, 250u, 400u})
      for (const size_t after : {0u, 3u, 9u, 17u, 39u, 250u, 398u}) {  // calls that the odd one makes behind it
        if (after > ahead) continue;
        CAPTURE(wrong_call, ahead, after);
        Job job;
        for (int rank = 0; rank < kRanks; ++rank)
          for (size_t n = 1; n <= wrong_call + (rank == kOdd ? after : ahead); ++n)
            job.call(rank, rank == kOdd && n == wrong_call ? wrong_one(right[n], random) : right[n]);
        const std::vector<Verdict> found = job.look();
        REQUIRE(!found.empty());
        const Verdict& verdict = found.back();
        INFO(words_of(verdict).message);
        CHECK(verdict.confidence == Confidence::kProved);
        CHECK(verdict.sequence == wrong_call);
        CHECK(verdict.culprit_count == 1);
        CHECK(verdict.culprits[0] == kOdd);
        const std::string usual = kCallInfo[right[wrong_call] & 0x3ff].name;
        CHECK(std::string(words_of(verdict).message).find("ranks 0-1,3 have " + usual) != std::string::npos);
      }
}

TEST_CASE("flight records that are not whole prove nothing, and right programs stay right") {
  const std::vector<uint64_t> right = program(3000);
  std::mt19937_64 random(6);
  SECTION("nobody errs, one is behind") {
    for (const size_t behind : {20u, 100u, 600u, 2500u}) {
      Job job;
      for (int rank = 0; rank < kRanks; ++rank)
        for (size_t n = 1; n <= (rank == kOdd ? 2600 - behind : 2600); ++n) job.call(rank, right[n]);
      CHECK(job.look().empty());
    }
  }
  SECTION("a call that is in no record, one that starts a request, damaged ones") {
    for (int kind = 0; kind < 3; ++kind)
      for (const int variant : {0, 1, 2, 3}) {
        const bool errs = variant & 1;
        const size_t odd_calls = variant & 2 ? 149 : 99;
        CAPTURE(kind, errs, odd_calls);
        Job job;
        for (int rank = 0; rank < kRanks; ++rank)
          for (size_t n = 1; n <= (rank == kOdd ? odd_calls : 150u); ++n) {
            const uint64_t made = errs && rank == kOdd && n == 99 ? spoil(right[n], Fault::kCall, random) : right[n];
            job.call(rank, made, kind != 0 || n != 120);
            if (kind == 1 && n == 120) {
              const uint64_t started =
                  signature_pack({static_cast<uint16_t>(CallId::kMPI_Ibarrier), OpKind::kNone, 0, 0});
              job.call(rank, started, false);
              job.record(rank, 0x12340, CallId::kMPI_Ibarrier, kComm);
            }
          }
        if (kind == 2)
          for (int rank = 0; rank < kRanks; ++rank)
            for (auto& record : job.traces[rank]->records)
              if (record.comm == kComm && random() % 8 == 0) record.aux ^= uint64_t{1} << random() % 64;
        for (const Verdict& verdict : job.look()) {
          INFO(words_of(verdict).message);
          CHECK(errs);
          CHECK(verdict.culprit_count == 1);
          CHECK(verdict.culprits[0] == kOdd);
        }
      }
  }
}

}  // namespace mismatch_test
