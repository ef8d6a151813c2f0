// SPDX-License-Identifier: Apache-2.0
//
// From evidence to verdict. No state, no MPI: everything is in the Case. The order of the questions matters, and a
// question whose evidence is missing is never answered by the next one: then the verdict is `undetermined`.
//
//   1. Was the send buffer the same when the send was complete?   no: modified while pending
//   2. Did the received data change after completion?             yes: completed before the data landed
//   3. Is the receive buffer what it was before?                  yes: nothing delivered
//   4. Is it another packet of that sender?                       yes: packet of another slot
//   5. else                                                       transit or staging
//
// `cheap` has read each buffer once and can only ask 4. What arrived may then be a stale buffer (which may hold an
// earlier packet) or a modified send buffer (which may hold the content of the next one). See certain_slot().

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "checksum/ledger/blame_internal.h"
#include "checksum/messages.h"
#include "shim/call/runtime.h"
#include "shim/model/calls.h"
#include "shim/runtime/memory.h"

namespace resil::blame {

namespace {

constexpr uint64_t kZeroBytes = 64u << 20;  // longest message that is compared with zeros
constexpr uint64_t kEnoughBytes = 256;  // shorter packets may equal another one by a flipped bit alone
constexpr uint64_t kEnoughHistory = 1024;  // earlier packets that must be known, unless all are
constexpr uint32_t kFewBits = 2;  // as many bits may have flipped by themselves
constexpr uint32_t kFewEqual = 4;  // contents that more packets share say nothing about the slot

constexpr const char* kTexts[] = {"send buffer modified while pending",
                                  "completed before the data landed",
                                  "packet of another slot",
                                  "nothing delivered",
                                  "transit or staging",
                                  "undetermined",
                                  "receive buffer modified while pending"};
constexpr const char* kKeys[] = {"send_buffer_modified_while_pending",
                                 "completed_before_the_data_landed",
                                 "packet_of_another_slot",
                                 "nothing_delivered",
                                 "transit_or_staging",
                                 "undetermined",
                                 "receive_buffer_modified_while_pending"};

[[gnu::format(printf, 4, 5)]] void decide(Judgement* judgement, Verdict verdict, bool proved, const char* format, ...) {
  judgement->verdict = verdict;
  judgement->proved = proved;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(judgement->how, sizeof(judgement->how), format, arguments);
  va_end(arguments);
}

bool all_zero(const char* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    if (data[i] != 0) return false;
  return true;
}

/// Is it the digest of zeros? Untouched pages are zero, and none is made by reading.
bool zeros(uint64_t received, uint64_t bytes) {
  if (bytes == 0 || bytes > kZeroBytes) return false;
  void* pages = memory::map(bytes);
  if (pages == nullptr) return false;
  const bool equal = digest(pages, bytes) == received;
  memory::unmap(pages, bytes);
  return equal;
}

/// Is the sender's copy what it announced? It is taken after the digest, and a buffer may have changed in between. Of
/// packets longer than the leaves that are kept only the first one can be held against something.
bool copy_is_good(const Case& one) {
  if (one.sent.bytes <= kKeptBytes)
    return one.expected_bytes != one.sent.bytes || digest(one.expected.data, one.expected_bytes) == one.sent.digest;
  if (one.answer.read_again && one.answer.at_end != one.sent.digest) return false;
  if (one.expected_leaves != 0 && one.expected_bytes == kLeafBytes && piece_bytes(one.sent.bytes) == kLeafBytes &&
      digest_leaf(one.expected.data, kLeafBytes, 0) != one.expected.leaf[0])
    return false;
  const uint64_t piece = piece_bytes(one.sent.bytes);
  if (one.expected_leaves != (one.sent.bytes + piece - 1) / piece) return true;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < one.expected_leaves; ++i) sum += one.expected.leaf[i];
  return sum == one.sent.digest;
}

void compare(const Case& one, Comparison* c) {
  *c = {};
  if (one.expected_bytes + one.expected_leaves != 0 && !copy_is_good(one)) {
    c->copy_bad = true;
    return;
  }
  c->zero = true;
  c->add(one.expected.data, one.found.data, 0,
         one.expected_bytes < one.found.bytes ? one.expected_bytes : one.found.bytes);
  if (c->bytes_differ == 0 && one.piece.bytes_differ != 0) *c = one.piece;
  if (one.sent.bytes != one.received.bytes) return;  // leaves of different lengths
  c->leaves_compared = one.expected_leaves < one.found.leaves ? one.expected_leaves : one.found.leaves;
  for (uint32_t i = 0; i < c->leaves_compared; ++i)
    if (one.expected.leaf[i] != one.found.leaf[i] && c->leaves_differ++ == 0) c->first_leaf = i;
}

/// Everything that is kept of both sides was compared, and it is the whole packet.
bool compared_whole(const Case& one, const Comparison& c) {
  return c.compared == one.sent.bytes && one.sent.bytes == one.received.bytes;
}

/// Everything outside the leaf that was compared is the same, by the digests.
bool compared_piece(const Case& one, const Comparison& c) {
  return c.leaves_differ == 1 && c.bytes_differ != 0 && piece_bytes(one.sent.bytes) == kLeafBytes;
}

bool few_bits(const Case& one, const Comparison& c) {
  return (compared_whole(one, c) || compared_piece(one, c)) && c.bits_differ <= kFewBits;
}

/// "packet number 129 to the same rank"
void name_other(const Case& one, char* text, size_t bytes) {
  const Answer& answer = one.answer;
  const bool same_rank = answer.other_peer == runtime.rank;
  if (one.other_slot) snprintf(text, bytes, messages::checksum::other_block, ledger::world_rank_of(*one.second));
  else if (same_rank)
    snprintf(text, bytes, messages::checksum::other_message_here, static_cast<unsigned long long>(answer.other_ordinal),
             static_cast<int>(answer.other.tag));
  else
    snprintf(text, bytes, messages::checksum::other_message, static_cast<unsigned long long>(answer.other_ordinal),
             answer.other_peer, static_cast<int>(answer.other.tag));
}

/// Is the only packet with that content one that was announced later, to this rank, and can neither a stale buffer, nor
/// a send buffer that was written too early, nor a flipped bit explain it? A stale buffer cannot hold what has not been
/// sent yet, unless this rank had it from elsewhere: then it is no packet of its own either. `stable`: the send buffer
/// is known not to have changed. Without that only blocking calls of single-threaded senders will do: a program that
/// writes the next message into the buffer of a pending MPI_Isend makes the later packet's content arrive here.
bool certain_slot(const Case& one, const Judgement& judgement, bool stable) {
  const Answer& answer = one.answer;
  if (answer.same_total != 1 || answer.same_later != 1 || answer.other_peer != runtime.rank ||
      one.received.bytes < kEnoughBytes || one.own_too || judgement.received_zero ||
      (one.sent.flags & ledger::kUnordered) != 0)
    return false;
  if (!answer.history_whole && answer.known_before < kEnoughHistory) return false;
  if (stable) return true;
  const bool blocking = one.sent.call < kCallCount && (call_info(static_cast<CallId>(one.sent.call)).attributes &
                                                       (kCallStarts | kCallActivates)) == 0;
  return blocking && !answer.concurrent;
}

void missing(const Case& one, Judgement* judgement, const char* what) {
  char other[96] = "";
  if (one.answered && one.answer.same_total != 0 && one.received.bytes != 0 && !judgement->received_zero)
    name_other(one, other, sizeof(other));
  decide(judgement, Verdict::kUndetermined, false, "%s%s%s%s", what, other[0] != 0 ? messages::checksum::also_like : "",
         other, other[0] != 0 && one.answer.same_total > 1 ? " and of others" : "");
}

void later_slot(const Case& one, Judgement* judgement) {
  char other[96];
  name_other(one, other, sizeof(other));
  decide(judgement, Verdict::kOtherSlot, false, messages::checksum::later_message, other);
}

void judge_cheap(const Case& one, Judgement* judgement) {
  if (!one.answered) return missing(one, judgement, messages::checksum::sender_timeout);
  if (one.answer.state == SenderState::kUnknown) return missing(one, judgement, messages::checksum::sender_forgot);
  if (certain_slot(one, *judgement, false)) return later_slot(one, judgement);
  missing(one, judgement, judgement->received_zero ? messages::checksum::cheap_zeros : messages::checksum::cheap);
}

/// 4 and 5, when sender and receiver are known to have been stable and the receive has written something.
void judge_content(const Case& one, Judgement* judgement) {
  const Answer& answer = one.answer;
  char other[96];
  // Nobody has seen the receive buffer between posting and completion. Only while the program's one thread was in MPI
  // all the time is it known that the program did not write into it.
  const bool posted = one.received.call < kCallCount && (call_info(static_cast<CallId>(one.received.call)).attributes &
                                                         (kCallStarts | kCallPersistent)) != 0;
  judgement->may_have_stored = posted || mode.concurrent;
  if (one.received.bytes != 0 && answer.same_total != 0) {
    name_other(one, other, sizeof(other));
    if (judgement->received_zero)
      return decide(judgement, Verdict::kUndetermined, false, messages::checksum::zeros_ambiguous, answer.same_total);
    if (answer.same_total > kFewEqual)
      return decide(judgement, Verdict::kUndetermined, false, messages::checksum::too_many_alike, answer.same_total);
    if (few_bits(one, judgement->comparison))
      return decide(judgement, Verdict::kUndetermined, false, messages::checksum::few_bits, other,
                    judgement->comparison.bits_differ, judgement->comparison.bits_differ == 1 ? "" : "s",
                    judgement->comparison.bits_differ == 1 ? "s" : "");
    return decide(judgement, Verdict::kOtherSlot, one.received.bytes >= 16 && answer.same_total == 1,
                  messages::checksum::other_slot, other, answer.same_total > 1 ? " (or another one like it)" : "");
  }
  const char* other_messages = answer.history_whole ? "no other message" : "none of the last messages";
  const char* sizes = one.sent.bytes != one.received.bytes ? "; the sizes differ" : "";
  if (judgement->may_have_stored)
    decide(judgement, Verdict::kTransit, false, messages::checksum::transit_or_store, other_messages, sizes);
  else decide(judgement, Verdict::kTransit, false, messages::checksum::transit, other_messages, sizes);
}

void judge_full(const Case& one, Judgement* judgement) {
  const Answer& answer = one.answer;
  const Evidence& evidence = one.evidence;
  const bool known = one.answered && answer.state == SenderState::kKnown;
  const bool stable = known && (answer.read_again || (answer.overwritten && !answer.concurrent));
  if (one.answered && answer.read_again && answer.at_end != one.sent.digest)
    return decide(judgement, Verdict::kModified, true, messages::checksum::send_modified,
                  answer.at_end == one.received.digest ? ", and what it held then is what arrived" : "");
  if (one.has_evidence && evidence.touched && evidence.touch.stayed && evidence.touch.landed == one.sent.digest &&
      one.sent.bytes == one.received.bytes && !mode.concurrent)
    return decide(judgement, Verdict::kReceiveModified, true, "%s", messages::checksum::receive_modified);
  if (one.has_evidence && evidence.changed && evidence.last == one.sent.digest)
    return decide(judgement, Verdict::kEarly, true, messages::checksum::came_late,
                  evidence.looked * 1e6 < 1 ? 1.0 : evidence.looked * 1e6);
  if (!one.answered) return missing(one, judgement, messages::checksum::sender_timeout);
  if (answer.state == SenderState::kUnknown) return missing(one, judgement, messages::checksum::sender_forgot);
  if (answer.state == SenderState::kPending) return missing(one, judgement, messages::checksum::send_pending);
  const bool written = !one.has_evidence || (!evidence.changed && !evidence.untouched);
  if (!stable && written && certain_slot(one, *judgement, false)) return later_slot(one, judgement);
  if (!stable) return missing(one, judgement, messages::checksum::send_not_reread);
  if (!one.has_evidence || !evidence.has_before) {
    if (written && certain_slot(one, *judgement, true)) return later_slot(one, judgement);
    return missing(one, judgement,
                   one.has_evidence ? messages::checksum::before_unknown : messages::checksum::nothing_kept);
  }
  if (evidence.changed) return decide(judgement, Verdict::kEarly, false, messages::checksum::still_written);
  if (evidence.untouched && one.received.bytes != 0) {
    char other[96];
    name_other(one, other, sizeof(other));
    return decide(
        judgement, Verdict::kNothing, !judgement->received_zero && answer.same_total == 0,
        messages::checksum::not_delivered,
        judgement->received_zero ? " (all zero: zeros that arrived would look the same)" : "",
        !judgement->received_zero && answer.same_total != 0 ? " (it held " : "",
        !judgement->received_zero && answer.same_total != 0 ? other : "",
        !judgement->received_zero && answer.same_total != 0 ? ": that one arriving again would look the same)" : "");
  }
  judge_content(one, judgement);
}

}  // namespace

void Comparison::add(const char* wanted, const char* got, uint32_t at, uint32_t bytes) {
  zero = zero || compared == 0;
  compared += bytes;
  for (uint32_t i = 0; i < bytes; ++i) {
    const auto a = static_cast<uint8_t>(wanted[i]), b = static_cast<uint8_t>(got[i]);
    if (a == b) continue;
    if (bytes_differ++ == 0) {
      first = at + i;
      word_at = first / 8 * 8;
      word_bytes = at + bytes - word_at < 8 ? at + bytes - word_at : 8;
      memcpy(expected, wanted + (word_at - at), word_bytes);
      memcpy(found, got + (word_at - at), word_bytes);
    }
    last = at + i;
    bits_differ += static_cast<uint32_t>(__builtin_popcount(a ^ b));
    zero = zero && b == 0;
  }
}

const char* verdict_text(Verdict verdict) { return kTexts[static_cast<int>(verdict)]; }
const char* verdict_key(Verdict verdict) { return kKeys[static_cast<int>(verdict)]; }

void judge(const Case& one, Judgement* judgement) {
  *judgement = {};
  compare(one, &judgement->comparison);
  judgement->received_zero = one.found.bytes == one.received.bytes && one.found.bytes != 0
                                 ? all_zero(one.found.data, one.found.bytes)
                                 : zeros(one.received.digest, one.received.bytes);
  if (one.overflow) return missing(one, judgement, messages::checksum::too_many_cases);
  if (mode.full) judge_full(one, judgement);
  else judge_cheap(one, judgement);
}

}  // namespace resil::blame
