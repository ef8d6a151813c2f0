// SPDX-License-Identifier: Apache-2.0
//
// The finding of a closed case: one sentence that a person can act on at 3 a.m., and the evidence line by line.
//
// Who is named: a send buffer that changed while its send was pending is the sender's doing, and the sender is the
// culprit. Every other verdict points at what lies between two ranks (library, driver, adapter, network, memory on
// either side): then there is no culprit rank, the receiver is the victim, and the sentence names the path with both
// hosts.

#include <cinttypes>
#include <cstdio>

#include "checksum/ledger/blame_internal.h"
#include "checksum/to_do.h"
#include "shim/call/runtime.h"
#include "shim/call/site_text.h"
#include "shim/model/calls.h"

namespace resil::blame {

namespace {

const char* call_name(uint16_t call) { return call < kCallCount ? call_info(static_cast<CallId>(call)).name : "?"; }

/// "tag 7 on MPI_COMM_WORLD", "collective 12 on MPI_Comm_split of MPI_COMM_WORLD".
void place_text(const Record& record, char* text, size_t bytes) {
  const char* name = nullptr;
  for (uint32_t i = 0; i < runtime.comm_count && name == nullptr; ++i)
    if (runtime.comms[i].id == record.comm && record.comm != 0) name = runtime.comms[i].name;
  char number[32];
  if (name == nullptr || name[0] == 0) snprintf(number, sizeof(number), "communicator %" PRIx64, record.comm);
  const char* what = record.space <= static_cast<uint8_t>(ledger::Space::kPartitioned) ? "tag" : "collective number";
  snprintf(text, bytes, "%s %" PRIu32 " on %.56s", what, record.tag, name != nullptr && name[0] != 0 ? name : number);
}

const char* plural(uint64_t count) { return count == 1 ? "" : "s"; }

void hex(const uint8_t* data, uint32_t count, char* text) {
  for (uint32_t i = 0; i < count; ++i) snprintf(text + 3 * i, 4, i + 1 < count ? "%02x " : "%02x", data[i]);
}

void add_difference(Finding& finding, const Case& one, const Comparison& c) {
  if (c.copy_bad)
    finding.add("first_difference", "not known: the sender's copy does not have the digest that it announced");
  if (c.bytes_differ != 0) {
    char where[64] = "";
    if (one.evidence.address != 0) {
      const uint64_t address = one.evidence.address + c.first;
      snprintf(where, sizeof(where), ", byte %u of a 64-byte line and %u of a 4 KiB page",
               static_cast<unsigned>(address % 64), static_cast<unsigned>(address % 4096));
    }
    finding.add("first_difference", "byte %u of %" PRIu64 "%s", c.first, one.sent.bytes, where);
    char expected[32] = "", found[32] = "", change[32] = "";
    uint8_t flipped[8];
    for (uint32_t i = 0; i < 8; ++i) flipped[i] = c.expected[i] ^ c.found[i];
    hex(c.expected, c.word_bytes, expected);
    hex(c.found, c.word_bytes, found);
    hex(flipped, c.word_bytes, change);
    finding.add("expected", "%s (bytes %u to %u)", expected, c.word_at, c.word_at + c.word_bytes - 1);
    finding.add("found", "%s", found);
    finding.add("xor", "%s", change);
    char among[64];
    if (c.from == 0) snprintf(among, sizeof(among), "the %u bytes that both sides kept", c.compared);
    else snprintf(among, sizeof(among), "the first 4 KiB that differ, from byte %u on", c.from);
    finding.add("differing", "%u byte%s, %u bit%s, from byte %u to %u, in %s%s", c.bytes_differ, plural(c.bytes_differ),
                c.bits_differ, plural(c.bits_differ), c.first, c.last, among,
                c.zero ? "; all of them found as zero" : "");
  } else if (c.compared != 0) {
    finding.add("differing", "none of the first %u bytes, which both sides kept%s", c.compared,
                c.leaves_differ == 0 ? "" : "; no copy is left of others (4 MiB a message, 64 MiB in all are kept)");
  }
  const uint64_t piece = piece_bytes(one.sent.bytes), kib = piece >> 10;
  if (c.leaves_differ != 0)
    finding.add("differing_pieces",
                "%u of the %u pieces of %" PRIu64 " KiB; the first is number %u, from byte %" PRIu64 " on",
                c.leaves_differ, c.leaves_compared, kib, c.first_leaf, c.first_leaf * piece);
  else if (c.leaves_compared != 0)
    finding.add("differing_pieces", "none of the %u of %" PRIu64 " KiB, by the digests of both sides",
                c.leaves_compared, kib);
}

void add_receive(Finding& finding, const Case& one) {
  finding.add("digest_received", "%016" PRIx64, one.received.digest);
  if (!one.has_evidence) return;
  const Evidence& e = one.evidence;
  finding.add("digest_received_later", "%016" PRIx64 " (%s in %u looks, %.1f us)", e.last,
              e.changed ? "changed" : "the same", e.looks, e.looked * 1e6);
  if (e.has_before)
    finding.add("receive_buffer", "%s", e.untouched ? "as it was before the receive" : "changed by the receive");
}

void add_sender(Finding& finding, const Case& one) {
  const Answer& a = one.answer;
  finding.add("digest_sent", "%016" PRIx64, one.sent.digest);
  if (!one.answered) return;
  if (a.read_again)
    finding.add("digest_sent_at_end", "%016" PRIx64 "%s", a.at_end, a.at_end != one.sent.digest ? " (CHANGED)" : "");
  else if (a.state == SenderState::kPending) finding.add("digest_sent_at_end", "the send is still pending");
  if (a.same_total == 0) {
    finding.add("other_packet", "none has that digest, of %s",
                a.history_whole ? "all that the sender announced" : "those that the sender still knows");
    return;
  }
  char place[110];
  place_text(a.other, place, sizeof(place));
  char giver[24] = "";
  if (one.other_slot) snprintf(giver, sizeof(giver), " of rank %d", ledger::world_rank_of(*one.second));
  finding.add("other_packet", "number %" PRIu64 "%s to rank %d, %s", a.other_ordinal, giver, a.other_peer, place);
  finding.add("other_packet_call", "%s, %" PRIu64 " bytes, at %.80s", call_name(a.other.call), a.other.bytes,
              a.other_site);
  finding.add("packets_with_digest", "%u others: %u announced earlier, %u later", a.same_total, a.same_earlier,
              a.same_later);
}

void say_what_to_do(Finding& finding, const Judgement& judgement, int sender, const char* host, const char* sender_site,
                    const char* receiver_site) {
  switch (judgement.verdict) {
    case Verdict::kModified: return finding.to_do(messages::checksum::to_do_send_buffer, sender_site, sender);
    case Verdict::kReceiveModified: return finding.to_do(messages::checksum::receive_touched_to_do, receiver_site);
    case Verdict::kEarly:
    case Verdict::kOtherSlot:
    case Verdict::kNothing: return finding.to_do(messages::checksum::to_do_report_mpi, runtime.header->mpi);
    default: break;
  }
  if (judgement.verdict == Verdict::kUndetermined && !mode.full)
    return finding.to_do(messages::checksum::to_do_full_blame);
  exclude_nodes(finding, host, runtime.host);
}

}  // namespace

void publish(const Case& one, const Judgement& judgement) {
  const int sender = ledger::world_rank_of(*one.from), receiver = runtime.rank;
  const char* host = one.answered && one.answer.host[0] != 0 ? one.answer.host : ledger::host_of(*one.from);
  if (host[0] == 0) host = "unknown";
  char place[110], sender_site[112], receiver_site[112];
  place_text(one.sent, place, sizeof(place));
  site_text(one.received.site, receiver_site, sizeof(receiver_site));
  if (one.answered) snprintf(sender_site, sizeof(sender_site), "%s", one.answer.site);
  else snprintf(sender_site, sizeof(sender_site), "0x%" PRIx64 " in the sender", one.sent.site);

  Finding finding;
  const bool modified = judgement.verdict == Verdict::kModified;
  const bool stored = judgement.verdict == Verdict::kReceiveModified;
  finding.start(modified ? "send_buffer_modified"
                : stored ? "receive_buffer_modified"
                         : "message_corrupted",
                Confidence::kProved);
  if (modified) finding.culprit(sender);
  if (stored) finding.culprit(receiver);
  finding.victim(receiver);
  char sizes[48];
  if (one.sent.bytes == one.received.bytes) snprintf(sizes, sizeof(sizes), "%" PRIu64 " bytes", one.sent.bytes);
  else
    snprintf(sizes, sizeof(sizes), "%" PRIu64 " bytes received, %" PRIu64 " sent", one.received.bytes, one.sent.bytes);
  char cause[48];
  snprintf(cause, sizeof(cause), "%s",
           judgement.verdict == Verdict::kUndetermined ? "Cause undetermined"
           : judgement.verdict == Verdict::kTransit && judgement.may_have_stored
               ? "Transit, staging, or a store of the program"
               : verdict_text(judgement.verdict));
  if (cause[0] >= 'a' && cause[0] <= 'z') cause[0] = static_cast<char>(cause[0] - 'a' + 'A');
  finding.say(messages::checksum::message_differs, receiver, runtime.host, call_name(one.received.call), sender, host,
              call_name(one.sent.call), sizes, place, one.ordinal, sender, receiver, cause, judgement.how);
  say_what_to_do(finding, judgement, sender, host, sender_site, receiver_site);
  finding.add("verdict", "%s", verdict_text(judgement.verdict));
  finding.add("verdict_certainty", "%s",
              judgement.verdict == Verdict::kUndetermined ? "none"
              : judgement.proved                          ? "proved"
                                                          : "by elimination");
  finding.add("reached_by", "%s", judgement.how);
  finding.add("packet", "number %" PRIu64 " of rank %d to rank %d, %s", one.ordinal, sender, receiver, place);
  finding.add("communicator", "id %016" PRIx64, one.sent.comm);
  finding.add("bytes", "%" PRIu64 " sent, %" PRIu64 " received", one.sent.bytes, one.received.bytes);
  finding.add("sender_host", "%s", host);
  finding.add("sender_site", "%s", sender_site);
  finding.add("receiver_host", "%s", runtime.host);
  finding.add("receiver_site", "%s", receiver_site);
  add_sender(finding, one);
  add_receive(finding, one);
  if (judgement.received_zero) finding.add("received_zero", "nothing but zeros arrived");
  add_difference(finding, one, judgement.comparison);
  if ((one.sent.flags | one.received.flags) & ledger::kUnordered)
    finding.add("pairing",
                "by elimination: more than one thread uses this matching queue, so its packets have no order");
  finding_publish(finding);
}

}  // namespace resil::blame
