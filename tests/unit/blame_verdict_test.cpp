// SPDX-License-Identifier: Apache-2.0
//
// Blame: every verdict with full and with cheap evidence, and what happens when a piece of evidence is missing.
#include "blame_fixture.h"

using namespace fake;

TEST_CASE("blame: full: send buffer modified while pending names the sender") {
  Job job(true);
  std::string buffer = data(1);
  const Job::Sent s = job.send(view(buffer.data(), buffer.size()), CallId::kMPI_Isend, 1, 7, false);
  buffer[100] = static_cast<char>(buffer[100] ^ 1);
  Job::complete(s, view(buffer.data(), buffer.size()));
  Job::open(s, Job::receive(data(2), buffer));
  Job::run();
  const Finding& f = Job::only();
  CHECK(verdict(f) == "send buffer modified while pending");
  CHECK(std::string(f.kind) == "send_buffer_modified");
  REQUIRE(f.culprit_count == 1);
  CHECK(f.culprit_ranks[0] == 0);
  REQUIRE(f.victim_count == 1);
  CHECK(f.victim_ranks[0] == 1);
  CHECK(contains(f.message, "what it held then is what arrived"));
  CHECK(contains(f.message, "rank 0 on node0"));
  CHECK(contains(f.message, "MPI_Isend"));
  CHECK(contains(evidence(f, "digest_sent_at_end"), "CHANGED"));
  CHECK(ledger::coverage.mismatches == 1);
}

TEST_CASE("blame: full: completed before the data landed, proved by the data that came later") {
  Job job(true);
  const Job::Sent s = job.send(data(1));
  std::string buffer = data(2);
  const View v = view(buffer.data(), buffer.size());
  const uint64_t posted = blame::receive_posted(v), first = view_digest(v, v.bytes);
  const std::string right = data(1);
  memcpy(buffer.data(), right.data(), right.size());  // between the first look and the next
  Job::open(s, Job::received(v, posted, buffer.size(), first));
  Job::run();
  const Finding& f = Job::only();
  CHECK(verdict(f) == "completed before the data landed");
  CHECK(evidence(f, "verdict_certainty") == "proved");
  CHECK(f.culprit_count == 0);
  CHECK(std::string(f.kind) == "message_corrupted");
}

TEST_CASE("blame: types that differ are the program's mistake; a record that was damaged on its way is corruption") {
  constexpr uint32_t kInts = 0x104, kFloats = 0x304;
  for (const bool damaged : {false, true}) {
    Job job(false);
    const std::string text = data(1);
    const View v = view(text.data(), text.size());
    Record sent = {99, view_digest(v, v.bytes), v.bytes, 0x1000, 7, static_cast<uint16_t>(CallId::kMPI_Send), 0, 0};
    sent.set_type(kInts);
    be_rank(0);
    blame::sent(1, 0, sent, v);
    be_rank(1);
    Record own = {99, sent.digest, v.bytes, 0x2000, 7, static_cast<uint16_t>(CallId::kMPI_Recv), 0, 0};
    own.set_type(damaged ? kInts : kFloats);
    Record arrived = sent;
    arrived.set_type(damaged ? kInts ^ 0x200 : kInts);
    blame::open_case(thread_state, peers[0], arrived, 0, own, 0);
    Job::run();
    const Finding& f = Job::only();
    CHECK(std::string(f.kind) == (damaged ? "message_corrupted" : "call_mismatch"));
    CHECK(f.confidence == Confidence::kProved);
    CHECK(ledger::coverage.mismatches == (damaged ? 1 : 0));
    if (damaged) CHECK(contains(f.message, "the record of this message was damaged"));
    else CHECK(contains(f.message, "4-byte floating-point numbers; rank 0 calls MPI_Send, 4-byte signed integers"));
  }
}

TEST_CASE("blame: other bytes are corruption, whatever the types") {
  Job job(false);
  const Job::Sent s = job.send(data(1));
  Job::Received r = Job::receive(data(2), data(3));
  Record sent = s.record;
  sent.set_type(0x104);
  r.record.set_type(0x304);
  blame::open_case(thread_state, peers[0], sent, s.ordinal, r.record, r.evidence);
  Job::run();
  CHECK(std::string(Job::only().kind) == "message_corrupted");
}

TEST_CASE("blame: full: early completion is proved without the sender") {
  Job job(true);
  answers = false;
  drain_seconds = 0;
  const Job::Sent s = job.send(data(1));
  std::string buffer = data(1);
  const View v = view(buffer.data(), buffer.size());
  Job::open(s, Job::received(v, 0, buffer.size(), 12345));
  Job::run();
  CHECK(verdict(Job::only()) == "completed before the data landed");
}

TEST_CASE("blame: full: a buffer that is still written with something else is not proved to be late") {
  Job job(true);
  const Job::Sent s = job.send(data(1));
  std::string buffer = data(2);
  const View v = view(buffer.data(), buffer.size());
  const uint64_t posted = blame::receive_posted(v);
  Job::open(s, Job::received(v, posted, buffer.size(), 12345));
  Job::run();
  CHECK(verdict(Job::only()) == "completed before the data landed");
  CHECK(evidence(findings[0], "verdict_certainty") == "by elimination");
}

TEST_CASE("blame: full: nothing delivered, also into a buffer that is larger than the message") {
  Job job(true);
  Job::open(job.send(data(1)), Job::receive(data(2), data(2)));
  Job::run();
  CHECK(verdict(Job::only()) == "nothing delivered");
  CHECK(evidence(findings[0], "receive_buffer") == "as it was before the receive");

  const std::string old = data(3, 4000);
  Job::open(job.send(data(1, 100)), Job::receive(old, old.substr(0, 100)));
  Job::run();
  CHECK(verdict(findings[1]) == "nothing delivered");
}

TEST_CASE("blame: full: a buffer that held an earlier packet says so") {
  Job job(true);
  job.send(data(5));
  Job::open(job.send(data(6)), Job::receive(data(5), data(5)));
  Job::run();
  CHECK(verdict(Job::only()) == "nothing delivered");
  CHECK(contains(findings[0].message, "message number 0 to the same rank"));
  CHECK(evidence(findings[0], "verdict_certainty") == "by elimination");
}

TEST_CASE("blame: full: packet of another slot, named, earlier or later") {
  Job job(true);
  const Job::Sent first = job.send(data(1)), second = job.send(data(2), CallId::kMPI_Ssend, 1, 8);
  Job::open(first, Job::receive(data(9), data(2)));
  Job::open(second, Job::receive(data(9), data(1)));
  Job::run();
  REQUIRE(findings.size() == 2);
  CHECK(verdict(findings[0]) == "packet of another slot");
  CHECK(contains(evidence(findings[0], "other_packet"), "number 1 to rank 1, tag 8"));
  CHECK(contains(evidence(findings[0], "other_packet_call"), "MPI_Ssend, 512 bytes"));
  CHECK(contains(evidence(findings[0], "packets_with_digest"), "0 announced earlier, 1 later"));
  CHECK(verdict(findings[1]) == "packet of another slot");
  CHECK(contains(evidence(findings[1], "packets_with_digest"), "1 announced earlier, 0 later"));
  CHECK(findings[0].culprit_count == 0);
}

namespace {

/// A block of collective 5 that `from` gave to rank 1.
Job::Sent give_block(Job& job, int from, const std::string& what) {
  Job::Sent sent = {};
  sent.record = {99,
                 view_digest(view(what.data(), what.size()), what.size()),
                 what.size(),
                 0x1000,
                 5,
                 static_cast<uint16_t>(CallId::kMPI_Alltoall),
                 static_cast<uint8_t>(ledger::Space::kBlock),
                 0};
  sent.ordinal = job.ordinals[1];  // the same number in both streams
  be_rank(from);
  sent.handle = blame::sent(1, sent.ordinal, sent.record, view(what.data(), what.size()));
  blame::sent_complete(sent.handle, view(what.data(), what.size()));
  be_rank(1);
  return sent;
}

Job::Received get_block(int from, const std::string& what) {
  Job::Received received = Job::receive(data(9), what);
  received.record.tag = 5;
  received.record.space = static_cast<uint8_t>(ledger::Space::kBlock);
  received.record.call = static_cast<uint16_t>(CallId::kMPI_Alltoall);
  blame::block_received(peers[from], received.record);
  return received;
}

}  // namespace

TEST_CASE("blame: full: of two blocks of a collective that changed places each is known to the other's giver") {
  Job job(true);
  be_rank(2);
  REQUIRE(blame::history_create());
  be_rank(1);
  const std::string one = data(1), two = data(2);
  const Job::Sent first = give_block(job, 0, one), second = give_block(job, 2, two);
  const Job::Received from_first = get_block(0, two), from_second = get_block(2, one);
  Job::open(first, from_first, 0);
  Job::open(second, from_second, 2);
  Job::run();
  REQUIRE(findings.size() == 2);
  for (const Finding& finding : findings) CHECK(verdict(finding) == "packet of another slot");
  CHECK(contains(evidence(findings[0], "other_packet"), "of rank 2 to rank 1"));
  CHECK(contains(evidence(findings[1], "other_packet"), "of rank 0 to rank 1"));
}

TEST_CASE("blame: full: a block that is equal to another rank's by right is not taken for exchanged") {
  Job job(true);
  be_rank(2);
  REQUIRE(blame::history_create());
  be_rank(1);
  const std::string same = data(1);
  const Job::Sent first = give_block(job, 0, same);
  give_block(job, 2, same);
  get_block(2, same);
  Job::open(first, get_block(0, data(3)), 0);  // something else arrived
  Job::run();
  CHECK(verdict(Job::only()) == "transit or staging");
}

TEST_CASE(
    "blame: full: a buffer that its own blocking call has overwritten counts as stable below MPI_THREAD_MULTIPLE") {
  for (bool concurrent : {false, true}) {
    Job job(true, concurrent);
    Job::open(job.send(data(1), CallId::kMPI_Sendrecv_replace, 1, 7, false), Job::receive(data(9), data(3)));
    Job::run();
    CHECK(verdict(Job::only()) == (concurrent ? "undetermined" : "transit or staging"));
  }
}

TEST_CASE("blame: full: a packet for another rank is named as such") {
  Job job(true);
  job.send(data(1), CallId::kMPI_Send, 3);
  Job::open(job.send(data(2)), Job::receive(data(9), data(1)));
  Job::run();
  CHECK(verdict(Job::only()) == "packet of another slot");
  CHECK(contains(findings[0].message, "message number 0 to rank 3"));
}

TEST_CASE("blame: full: transit, with the first difference") {
  Job job(true);
  std::string arrives = data(1);
  arrives[17] = static_cast<char>(arrives[17] ^ 0x40);
  CHECK(full_verdict(job, data(1), arrives) == "transit or staging");
  const Finding& f = Job::only();
  CHECK(contains(evidence(f, "first_difference"), "byte 17 of 512, byte"));
  CHECK(contains(evidence(f, "differing"), "1 byte, 1 bit, from byte 17 to 17, in the 512 bytes"));
  CHECK(contains(evidence(f, "expected"), "(bytes 16 to 23)"));
  CHECK(evidence(f, "xor") == "00 40 00 00 00 00 00 00");
  CHECK(f.culprit_count == 0);
  CHECK(f.victim_ranks[0] == 1);
  CHECK(evidence(f, "sender_host") == "node0");
  CHECK(evidence(f, "receiver_host") == "node1");
}

TEST_CASE("blame: full: both buffers were stable only where the program could not store into the one received into") {
  for (CallId call : {CallId::kMPI_Recv, CallId::kMPI_Irecv, CallId::kMPI_Recv_init})
    for (bool concurrent : {false, true}) {
      Job job(true, concurrent);
      Job::Received received = Job::receive(data(9), data(3));
      received.record.call = static_cast<uint16_t>(call);
      Job::open(job.send(data(1)), received);
      Job::run();
      const Finding& f = Job::only();
      const bool may_have_stored = concurrent || call != CallId::kMPI_Recv;
      CHECK(verdict(f) == "transit or staging");
      CHECK(contains(f.message, "neither buffer changed during the transfer") != may_have_stored);
      CHECK(contains(f.message, "what the program itself stored there while the receive was pending") ==
            may_have_stored);
      CHECK(contains(f.message, "Transit, staging, or a store of the program: ") == may_have_stored);
    }
}

TEST_CASE("blame: full: a difference behind the first answer's window, and one behind the kept copy") {
  Job job(true);
  std::string arrives = data(1, 4096);
  arrives[4000] = static_cast<char>(~arrives[4000]);
  CHECK(full_verdict(job, data(1, 4096), arrives) == "transit or staging");
  CHECK(contains(evidence(findings[0], "first_difference"), "byte 4000 of 4096"));

  const size_t large = 5 * 4096 + 100;
  arrives = data(2, large);
  arrives[3 * 4096 + 5] = static_cast<char>(~arrives[3 * 4096 + 5]);
  CHECK(full_verdict(job, data(2, large), arrives) == "transit or staging");
  CHECK(contains(evidence(findings[1], "differing_pieces"),
                 "1 of the 6 pieces of 4 KiB; the first is number 3, from byte 12288"));
  CHECK(contains(evidence(findings[1], "first_difference"), "byte 12293 of 20580"));
  CHECK(evidence(findings[1], "expected").substr(15, 2) != evidence(findings[1], "found").substr(15, 2));
  CHECK(evidence(findings[1], "xor") == "00 00 00 00 00 ff 00 00");
}

TEST_CASE("blame: full: bytes of the first piece that differs, where both sides still have it") {
  const size_t most = 4u << 20;
  struct Row {
    size_t bytes, at, length;
    const char *first, *pieces;  // null: no bytes are told
  };
  const Row rows[] = {
      {4097, 4096, 1, "byte 4096 of 4097", "1 of the 2 pieces of 4 KiB"},
      {9000, 8997, 3, "byte 8997 of 9000", "1 of the 3 pieces of 4 KiB"},
      {64 * 4096, 63 * 4096 + 2816, 1, "byte 260864 of 262144", "1 of the 64 pieces of 4 KiB"},
      {64 * 4096 + 1, 64 * 4096, 1, "byte 262144 of 262145", "1 of the 33 pieces of 8 KiB"},
      {3u << 20, (1u << 20) + 5 * 4096 + 4095, 2, "byte 1073151 of 3145728", "1 of the 64 pieces of 48 KiB"},
      {3u << 20, 5000, 1, "byte 5000 of 3145728", "1 of the 64 pieces of 48 KiB"},
      {most, most - 1, 1, "byte 4194303 of 4194304", "1 of the 64 pieces of 64 KiB"},
      {most + 8192, most - 1, 1, "byte 4194303 of 4202496", "1 of the 61 pieces of 68 KiB"},
      {most + 8192, most, 1, nullptr, "1 of the 61 pieces of 68 KiB"},  // behind what is kept
  };
  for (const Row& row : rows) {
    INFO(row.bytes << " " << row.at);
    Job job(true);
    const std::string sends = data(3, row.bytes);
    std::string arrives = sends;
    for (size_t i = 0; i < row.length; ++i) arrives[row.at + i] = static_cast<char>(arrives[row.at + i] ^ 0x40);
    CHECK(full_verdict(job, sends, arrives) == "transit or staging");
    const Finding& f = Job::only();
    CHECK(contains(evidence(f, "differing_pieces"), row.pieces));
    if (row.first == nullptr) {
      CHECK(evidence(f, "first_difference") == "(none)");
      CHECK(contains(evidence(f, "differing"),
                     "none of the first 4096 bytes, which both sides kept; no copy is left of others"));
      CHECK(contains(evidence(f, "differing"), "(4 MiB a message, 64 MiB in all are kept)"));
      continue;
    }
    CHECK(contains(evidence(f, "first_difference"), row.first));
    const size_t told = row.at / 4096 == (row.at + row.length - 1) / 4096 ? row.length : 1;  // of the first leaf
    CHECK(evidence(f, "differing").find(std::to_string(told) + " byte") == 0);
  }
}

TEST_CASE("blame: full: a piece that other packets have overwritten is not told") {
  Job job(true);
  std::string sends = data(3, 3u << 20), arrives = sends;
  arrives[2u << 20] = static_cast<char>(arrives[2u << 20] ^ 1);
  const Job::Sent first = job.send(sends);
  const Job::Received got = Job::receive(data(4, sends.size()), arrives);
  const std::string others = data(5, 4u << 20);
  for (int i = 0; i < 16; ++i) job.send(others);  // 64 MiB and more
  Job::open(first, got);
  Job::run();
  CHECK(evidence(Job::only(), "first_difference") == "(none)");
  CHECK(contains(evidence(findings[0], "differing_pieces"), "1 of the 64 pieces of 48 KiB"));
}

TEST_CASE("blame: full: different lengths are in the finding") {
  Job job(true);
  CHECK(full_verdict(job, data(1, 400), data(1, 300)) == "transit or staging");
  CHECK(evidence(Job::only(), "bytes") == "400 sent, 300 received");
  CHECK(contains(findings[0].message, "the sizes differ"));
  std::string shorter = data(2, 20000);
  shorter.resize(18000);
  full_verdict(job, data(2, 20000), shorter);
  CHECK(evidence(findings[1], "bytes") == "20000 sent, 18000 received");
  CHECK(evidence(findings[1], "differing_pieces") == "(none)");  // the last ones differ in length
}

TEST_CASE("blame: full: zeros are not taken for one of many zero packets") {
  Job job(true);
  CHECK(full_verdict(job, data(1), std::string(512, 0)) == "transit or staging");
  CHECK(evidence(findings[0], "received_zero") == "nothing but zeros arrived");
  CHECK(contains(evidence(findings[0], "differing"), "all of them found as zero"));
  job.send(std::string(512, 0));
  CHECK(full_verdict(job, data(2), std::string(512, 0)) == "undetermined");
}

TEST_CASE("blame: full: contents that many packets share, and packets that differ by a bit, decide nothing") {
  Job job(true);
  for (int i = 0; i < 5; ++i) job.send(data(1));
  CHECK(full_verdict(job, data(2), data(1)) == "undetermined");
  CHECK(contains(findings[0].message, "5 other messages"));

  std::string neighbour = data(3, 8);
  neighbour[0] = static_cast<char>(neighbour[0] ^ 2);
  job.send(neighbour);
  CHECK(full_verdict(job, data(3, 8), neighbour) == "undetermined");
  CHECK(contains(findings[1].message, "1 flipped bit explains it as well"));
}

TEST_CASE("blame: full: missing evidence is named and not replaced") {
  Job job(true);
  SECTION("no evidence of the receive") {
    Job::open(job.send(data(1)), {{99, 5, 512, 0x2000, 7, 0, 0, 0}, 0});
    Job::run();
    CHECK(contains(Job::only().message, "nothing was kept of the receive"));
  }
  SECTION("the buffer before is not known") {
    std::string buffer = data(2);
    const View v = view(buffer.data(), buffer.size());
    Job::open(job.send(data(1)), Job::received(v, 0, 512, view_digest(v, 512)));
    Job::run();
    CHECK(contains(Job::only().message, "held before is not known"));
  }
  SECTION("history overwritten") {
    const Job::Sent s = job.send(data(1));
    for (uint32_t i = 0; i < blame::kHistory; ++i) job.send(data(2, 8));
    Job::open(s, Job::receive(data(9), data(3)));
    Job::run();
    CHECK(contains(Job::only().message, "no longer knows the message"));
  }
  SECTION("a packet under that ordinal that is another one") {
    Job::Sent s = job.send(data(1));
    s.record.digest ^= 1;
    Job::open(s, Job::receive(data(9), data(3)));
    Job::run();
    CHECK(contains(Job::only().message, "no longer knows the message"));
  }
  SECTION("no answer") {
    answers = false;
    drain_seconds = 0;
    Job::open(job.send(data(1)), Job::receive(data(9), data(3)));
    Job::run();
    CHECK(contains(Job::only().message, "did not answer in time"));
    CHECK(evidence(findings[0], "sender_host") == "node0");
  }
  SECTION("the send is still pending at the end") {
    drain_seconds = 0.05;
    Job::open(job.send(data(1), CallId::kMPI_Isend, 1, 7, false), Job::receive(data(9), data(3)));
    Job::run();
    CHECK(contains(Job::only().message, "still pending"));
  }
  SECTION("the send buffer cannot be read at completion") {
    const Job::Sent s = job.send(data(1), CallId::kMPI_Isend, 1, 7, false);
    Job::complete(s, {nullptr, 0, nullptr, 0, ledger::Reason::kDeviceBuffer});
    Job::open(s, Job::receive(data(9), data(3)));
    Job::run();
    CHECK(contains(Job::only().message, "not read again"));
  }
  CHECK(verdict(findings[0]) == "undetermined");
  CHECK(findings[0].culprit_count == 0);
}

TEST_CASE("blame: full: a pending send is asked about again until it is complete") {
  Job job(true);
  const Job::Sent s = job.send(data(1), CallId::kMPI_Isend, 1, 7, false);
  Job::open(s, Job::receive(data(9), data(3)));
  blame::progress(thread_state);
  deliver();
  CHECK(blame::open_cases() == 1);
  const std::string buffer = data(1);
  Job::complete(s, view(buffer.data(), buffer.size()));
  Job::run();
  CHECK(verdict(Job::only()) == "transit or staging");
}

TEST_CASE("blame: cheap: a later packet that nothing else explains is blamed on its slot") {
  Job job(false);
  const Job::Sent first = job.send(data(1));
  job.send(data(2), CallId::kMPI_Send, 1, 8);
  Job::open(first, {{99, digest(data(2).data(), 512), 512, 0x2000, 7, 0, 0, 0}, 0});
  Job::run();
  CHECK(verdict(Job::only()) == "packet of another slot");
}

TEST_CASE("blame: cheap: whatever else can explain what arrived makes it undetermined") {
  Job job(false);
  const Job::Sent first = job.send(data(1));
  Job::Sent asked = first;
  std::string arrived = data(2);
  SECTION("earlier: a stale buffer can hold it") {
    job.send(arrived);
    asked = job.send(data(3));
  }
  SECTION("later, but an equal one came earlier") {
    job.send(arrived);
    asked = job.send(data(3));
    job.send(arrived);
  }
  SECTION("nonblocking: the program may have written the next message into a pending buffer") {
    asked = job.send(data(3), CallId::kMPI_Isend);
    job.send(arrived, CallId::kMPI_Isend);
  }
  SECTION("small: a flipped bit can make it") {
    arrived = data(2, 8);
    asked = job.send(data(3, 8));
    job.send(arrived);
  }
  SECTION("the receiver has sent the same itself: a stale buffer can hold it") {
    job.send(arrived);
    blame::sent(0, 0, {99, digest(arrived.data(), 512), 512, 0, 7, 0, 0, 0}, view(arrived.data(), 512));
  }
  SECTION("to another rank") { job.send(arrived, CallId::kMPI_Send, 2); }
  SECTION("zeros") {
    arrived.assign(512, 0);
    job.send(arrived);
  }
  SECTION("one that was withdrawn never was") { Job::withdraw(job.send(arrived)); }
  SECTION("nothing like it") {}
  Job::open(asked, {{99, digest(arrived.data(), arrived.size()), arrived.size(), 0x2000, 7, 0, 0, 0}, 0});
  Job::run();
  CHECK(verdict(Job::only()) == "undetermined");
  CHECK(contains(findings[0].to_do_text, "run again with RESIL_BLAME=full"));
}

TEST_CASE("blame: cheap: several threads at the sender, or a short history, and nothing is certain") {
  const bool threads = GENERATE(true, false);
  Job job(false, threads);
  if (!threads)
    for (uint32_t i = 0; i < blame::kHistory; ++i) job.send(data(1000, 8));
  const Job::Sent first = job.send(data(1));
  job.send(data(2));
  if (!threads)
    for (uint32_t i = 0; i < blame::kHistory - 100; ++i) job.send(data(1000, 8));
  Job::open(first, {{99, digest(data(2).data(), 512), 512, 0x2000, 7, 0, 0, 0}, 0});
  Job::run();
  CHECK(verdict(Job::only()) == "undetermined");
  CHECK(contains(findings[0].message, "digest of its message number"));
}

TEST_CASE("blame: full: a send that is not followed is not called pending, and is judged like cheap") {
  Job job(true);
  Job::Sent block = job.send(data(1), CallId::kMPI_Alltoall, 1, 7, false);
  SECTION("its content says nothing") {
    Job::open(block, Job::receive(data(9), data(3)));
    Job::run();
    CHECK(verdict(Job::only()) == "undetermined");
    CHECK(contains(findings[0].message, "not read again"));
  }
  SECTION("a later packet") {
    job.send(data(2), CallId::kMPI_Alltoall, 1, 8, false);
    Job::open(block, Job::receive(data(9), data(2)));
    Job::run();
    CHECK(verdict(Job::only()) == "packet of another slot");
  }
  SECTION("the sending half of MPI_Isendrecv") {
    block = job.send(data(6), CallId::kMPI_Isendrecv, 1, 7, false);
    Job::open(block, Job::receive(data(9), data(3)));
    Job::run();
    CHECK(contains(Job::only().message, "not read again"));
  }
  SECTION("a partitioned send, which is announced when it is complete") {
    const std::string text = data(6);
    const View v = view(text.data(), text.size());
    const Record record = {99,
                           view_digest(v, 512),
                           512,
                           0x1000,
                           7,
                           static_cast<uint16_t>(CallId::kMPI_Psend_init),
                           static_cast<uint8_t>(ledger::Space::kPartitioned),
                           0};
    be_rank(0);
    const Job::Sent s = {record, 50, blame::sent(1, 50, record, v)};
    be_rank(1);
    Job::open(s, Job::receive(data(9), data(3)));
    Job::run();
    CHECK(contains(Job::only().message, "not read again"));
  }
  SECTION("a later packet, but the buffer was not written") {
    job.send(data(2), CallId::kMPI_Alltoall, 1, 8, false);
    Job::open(block, Job::receive(data(2), data(2)));
    Job::run();
    CHECK(verdict(Job::only()) == "undetermined");
  }
}

TEST_CASE("blame: full: without evidence of the receive a later packet of a stable sender still names its slot") {
  Job job(true);
  const Job::Sent s = job.send(data(1), CallId::kMPI_Isend);
  job.send(data(2), CallId::kMPI_Isend);
  Job::open(s, {{99, digest(data(2).data(), 512), 512, 0x2000, 7, 0, 0, 0}, 0});
  Job::run();
  CHECK(verdict(Job::only()) == "packet of another slot");
}

TEST_CASE("blame: full: a sender's copy that is not what was announced is not compared") {
  Job job(true);
  std::string buffer = data(1, GENERATE(512, 20000));
  const View v = view(buffer.data(), buffer.size());
  Record record = {99, view_digest(v, v.bytes), v.bytes, 0x1000, 7, static_cast<uint16_t>(CallId::kMPI_Send), 0, 0};
  const std::string original = buffer;
  buffer[buffer.size() - 1] = static_cast<char>(buffer[buffer.size() - 1] ^ 1);  // between digest and copy
  be_rank(0);
  const Job::Sent s = {record, 0, blame::sent(1, 0, record, v)};
  be_rank(1);
  Job::complete(s, view(original.data(), original.size()));
  Job::open(s, Job::receive(data(9, buffer.size()), data(3, buffer.size())));
  Job::run();
  CHECK(contains(evidence(Job::only(), "first_difference"), "not known"));
  CHECK(evidence(findings[0], "differing") == "(none)");
}
