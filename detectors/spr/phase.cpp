// SPDX-License-Identifier: Apache-2.0
//
// resil_spr_begin() and resil_spr_end(): what kernels read goes to the next rank while this rank computes; then that
// rank's replicas are computed here, and what came out is compared where the particles are. Each begin sends one head
// and each end another, whatever has happened, so that the other rank never waits for what will not come.

#include <cstring>

#include "detectors/spr/messages.h"
#include "detectors/spr/set.h"
#include "shim/base/clock.h"
#include "shim/base/own_stack.h"
#include "shim/call/inside_mpi.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/report/finding.h"
#include "shim/report/log.h"

namespace resil::spr {

namespace text = messages::spr;

namespace {

constexpr uint32_t kMostRollbacks = 6;
enum Policy { kDefault, kAbort, kRetry, kContinue };

Policy policy_of(int policy) {
  const auto wanted = static_cast<Policy>(policy & 15);
  if (wanted == kAbort || wanted == kRetry || wanted == kContinue) return wanted;
  return config_has("RESIL_ON_MISMATCH", "retry") ? kRetry
         : config_has("RESIL_ON_MISMATCH", "log") ? kContinue
                                                  : kAbort;
}

bool named(uint64_t fields, uint32_t number) { return (fields >> number & 1) != 0; }

/// Calls `each(field)` for those named, but for the ids: these go with the selection.
template <class Each>
void each_field(Set& set, uint64_t fields, Each each) {
  for (uint32_t i = 0; i < set.field_count; ++i)
    if (named(fields, i) && static_cast<int>(i) != set.id_field) each(set.fields[i]);
}

/// Waits, and takes the set out of use where the other rank does not come.
bool came(Thread& thread, Set& set, Messages& messages, int rank) {
  const uint64_t begin = monotonic_ns();
  const Waited waited = wait(thread, messages, timeout_of(set));
  set.counters.wait_ns += monotonic_ns() - begin;
  if (waited == Waited::kDone) return true;
  const Why why = waited == Waited::kTimeout ? Why::kSilent : Why::kDead;
  break_set(set, why);
  uncovered(set, why);
  if (why == Why::kSilent) add_note_format(text::gave_up, set.name, rank, settings.timeout);
  if (why == Why::kSilent) log_format(text::gave_up, set.name, rank, settings.timeout);
  return false;
}

void forget_selection(Set& set) {
  set.out = set.in = false;
  for (uint32_t i = 0; i < set.field_count; ++i) set.fields[i].sent = false;
}

/// Why our particles cannot be sent as they are now.
Why look_at_own(Set& set, int64_t local, int64_t total) {
  if (local != set.local || total != set.total) return Why::kCounts;
  if (!ids_hold(set)) return Why::kMoved;
  Why why = Why::kNone;
  each_field(set, set.named, [&](Field& field) {
    if (field.data == nullptr || !field.copy.reserve(field.bytes * static_cast<size_t>(set.own.particles)))
      why = Why::kMemory;
  });
  return why;
}

void send_own(Thread& thread, Set& set, int64_t local, int64_t total) {
  if (!came(thread, set, set.sends, set.next)) return;
  const Why why = look_at_own(set, local, total);
  set.head_out = make_head(set, why);
  set.sends.send(&set.head_out, sizeof(Head), set.next, tag_of(set, TagOf::kHead));
  if (why != Why::kNone) {
    set.out = false;  // until the next selection; the next rank learns it from the head
    uncovered(set, why);
    return;
  }
  each_field(set, set.named, [&](Field& field) {
    pack_field(set.own, field.data, field.bytes, field.stride, field.copy.data());
    field.sent = true;
    const size_t bytes = field.bytes * static_cast<size_t>(set.own.particles);
    set.sends.send(field.copy.data(), bytes, set.next, tag_of(set, field));
    set.counters.bytes += bytes;
  });
}

void expect_theirs(Thread& thread, Set& set) {
  if (!came(thread, set, set.result_sends, set.previous)) return;
  const auto particles = static_cast<size_t>(set.theirs.particles);
  bool room = true;
  for (uint32_t i = 0; i < set.field_count; ++i)  // a kernel may look at fields that were not sent
    room = set.fields[i].theirs.reserve(set.fields[i].bytes * particles) && room;
  set.head_receive.receive(&set.head_in, sizeof(Head), set.previous, tag_of(set, TagOf::kHead));
  set.data_in = room;
  if (!room) return;
  each_field(set, set.named, [&](Field& field) {
    set.receives.receive(field.theirs.data(), field.bytes * particles, set.previous, tag_of(set, field));
  });
}

/// Ranks named different fields: what was sent is received all the same, so that nothing stays under way, and what was
/// not is not waited for.
void drain(Thread& thread, Set& set, uint64_t sent) {
  const auto particles = static_cast<size_t>(set.theirs.particles);
  const uint64_t expected = set.data_in ? set.named : 0;
  Messages more;
  bool room = true;
  each_field(set, sent & ~expected, [&](Field& field) {
    room = room && field.theirs.reserve(field.bytes * particles);
    if (room) more.receive(field.theirs.data(), field.bytes * particles, set.previous, tag_of(set, field));
  });
  uint32_t never = 0;
  each_field(set, expected & ~sent, [&](Field& field) { never += Messages::pieces(field.bytes * particles); });
  wait(thread, more, timeout_of(set));
  wait(thread, set.receives, timeout_of(set), never);
  set.receives.cancel();
}

/// What the rank before has sent; why its replicas cannot be computed.
Why take_theirs(Thread& thread, Set& set) {
  if (!came(thread, set, set.head_receive, set.previous)) return set.broken;
  const Head& head = set.head_in;
  if (head.why != Why::kNone) {
    set.receives.cancel();  // nothing was sent
    set.in = false;
    return Why::kPartner;
  }
  const Head like = make_head(set, Why::kNone);
  const bool same_fields = head.magic == like.magic && head.set == like.set && head.fields == like.fields;
  const bool same_step = head.epoch == like.epoch && head.phase == like.phase && head.step == like.step;
  if (!same_fields || !same_step || !set.data_in) {
    drain(thread, set, head.fields);
    set.in = false;
    return !same_step ? Why::kStep : !same_fields ? Why::kFields : Why::kMemory;
  }
  if (!came(thread, set, set.receives, set.previous)) return set.broken;
  return Why::kNone;
}

/// The program's kernel on the replicas of the rank before. Outside MPI.
Why compute(Set& set, Kernel kernel, void* argument) {
  const resil_spr_replicas replicas = replicas_of(set);
  const uint64_t begin = monotonic_ns();
  const int failed = kernel(argument, &replicas);
  set.counters.kernel_ns += monotonic_ns() - begin;
  if (failed == 0) return Why::kNone;
  if (set.counters.kernel_failures++ == 0)
    add_note_format(text::kernel_failed, set.name, set.previous, failed, runtime.rank);
  return Why::kKernel;
}

void send_results(Set& set, uint64_t results, Why why) {
  set.result_out = make_head(set, why);
  set.result_out.fields = results;
  set.result_out.replicas = set.theirs.replicas;
  set.result_sends.send(&set.result_out, sizeof(Head), set.previous, tag_of(set, TagOf::kResultHead));
  if (why != Why::kNone) return;
  each_field(set, results, [&](Field& field) {
    set.result_sends.send(field.theirs.data(), field.bytes * static_cast<size_t>(set.theirs.replicas), set.previous,
                          tag_of(set, field));
  });
}

/// What the next rank has computed; why there is nothing to compare with.
Why take_results(Thread& thread, Set& set, uint64_t results) {
  Messages& messages = set.results;
  messages.receive(&set.result_in, sizeof(Head), set.next, tag_of(set, TagOf::kResultHead));
  if (!came(thread, set, messages, set.next)) return Why::kNone;  // said
  const Head& head = set.result_in;
  if (head.why != Why::kNone) {
    // What both ends must know of: the pair is out until the next selection. A kernel may succeed the next time.
    if (head.why != Why::kKernel) set.out = false;
    return head.why == Why::kSilent || head.why == Why::kDead ? Why::kPartner : head.why;
  }
  bool room = true;
  each_field(set, head.fields, [&](Field& field) {
    const size_t bytes = field.bytes * static_cast<size_t>(set.own.replicas);
    room = room && field.results.reserve(bytes);
    if (room) messages.receive(field.results.data(), bytes, set.next, tag_of(set, field));
  });
  if (!came(thread, set, messages, set.next)) return Why::kNone;
  if (!room) break_set(set, Why::kMemory);
  return !room ? Why::kMemory : head.fields != results ? Why::kFields : Why::kNone;
}

/// The first field that differs, where, and in how many particles some field does.
struct Differing {
  Field* first;
  Difference where;
  int64_t count;

  void add(Field& field, const Difference& seen) {
    if (seen.count > count) count = seen.count;
    if (seen.count == 0 || first != nullptr) return;
    first = &field;
    where = seen;
  }
};

/// Replicas first, then what kernels have read.
int64_t compare(Set& set, uint64_t results, bool have_results) {
  const uint64_t begin = monotonic_ns();
  Differing replicas = {}, inputs = {};
  if (have_results && results != 0) {
    each_field(set, results, [&](Field& field) {
      replicas.add(field, compare_field(set.own, set.own.replicas, field.data, field.bytes, field.stride,
                                        field.results.data(), comparison_of(field)));
    });
    set.counters.compared += static_cast<uint64_t>(set.own.replicas);
  }
  if (settings.inputs) {
    each_field(set, ~results, [&](Field& field) {
      if (!field.sent || (field.flags & kMayChange) != 0) return;
      const Comparison exact = {comparison_of(field).element_bytes, 0};
      inputs.add(field, compare_field(set.own, set.own.particles, field.data, field.bytes, field.stride,
                                      field.copy.data(), exact));
    });
  }
  int64_t found = replicas.count + inputs.count;
  if (found != 0 && !all_ids_hold(set)) {  // other particles lie there now: this is no comparison
    uncovered(set, Why::kMoved);
    found = 0;
  } else if (found != 0) {
    on_own_stack([&] {
      if (replicas.first != nullptr)
        say_difference(set, *replicas.first, replicas.where, replicas.first->results.data(), false, set.own.replicas);
      if (inputs.first != nullptr)
        say_difference(set, *inputs.first, inputs.where, inputs.first->copy.data(), true, set.own.particles);
    });
    set.counters.differing += static_cast<uint64_t>(replicas.count);
    set.counters.changed += static_cast<uint64_t>(inputs.count);
  }
  set.counters.compare_ns += monotonic_ns() - begin;
  return found;
}

[[noreturn]] void stop(Thread& thread) {
  InsideMpi inside(thread);
  stop_job(90);
}

/// All ranks, or none.
int64_t go_back(Thread& thread, Set& set, int64_t found) {
  int64_t anywhere = found;
  {
    InsideMpi inside(thread);
    const Waited waited = sum_over(thread, set.members.data(), set.size, set.position, &anywhere,
                                   tag_of(set, TagOf::kAgree), timeout_of(set));
    if (waited != Waited::kDone) {
      break_set(set, waited == Waited::kTimeout ? Why::kSilent : Why::kDead);
      uncovered(set, set.broken);
      anywhere = found;
    }
  }
  if (anywhere == 0) {
    set.rollbacks_in_a_row = 0;
    return 0;
  }
  ++set.counters.rollbacks;
  ++set.rollbacks_in_a_row;
  if (set.position == 0) log_format(text::rolled_back, set.name, set.rollbacks_in_a_row, set.step);
  add_note_format(text::rolled_back, set.name, set.rollbacks_in_a_row, set.step);
  if (set.rollbacks_in_a_row > kMostRollbacks || set.broken != Why::kNone ||
      set.rollback(set.rollback_argument, set.step) != 0) {
    add_note(text::rollback_in_vain);
    add_note_format(text::rollback_in_vain, set.name);
    stop(thread);
  }
  forget_selection(set);  // what was sent is of a state that is gone
  return -1;
}

int64_t act(Thread& thread, Set& set, int64_t found, int policy) {
  const Policy wanted = policy_of(policy);
  if (wanted == kRetry && set.rollback != nullptr && set.broken == Why::kNone) return go_back(thread, set, found);
  if (found == 0 || wanted == kContinue) return found;
  if (wanted == kRetry) add_note(text::no_rollback);
  stop(thread);
}

/// Nothing is sent: the fields named are kept here as they are, of this rank's own particles, and compared in `end`.
void guard(Set& set, int64_t local, uint64_t fields) {
  set.local = set.total = local;
  const auto particles = static_cast<size_t>(local);
  Packed& own = set.own;
  own.replicas = own.particles = 0;
  own.entries = 0;
  bool room = local >= 0 && local < INT32_MAX && own.index.reserve(particles) && own.id.reserve(particles);
  each_field(set, fields, [&](Field& field) {
    room = room && field.data != nullptr && field.copy.reserve(field.bytes * particles);
  });
  if (!room) {
    uncovered(set, Why::kMemory);
    return;
  }
  own.particles = static_cast<int>(local);
  for (size_t i = 0; i < particles; ++i) {
    own.index[i] = static_cast<int>(i);
    own.id[i] = set.id_field >= 0 ? id_of(set.fields[set.id_field], static_cast<int64_t>(i)) : static_cast<int64_t>(i);
  }
  each_field(set, fields, [&](Field& field) {
    pack_field(own, field.data, field.bytes, field.stride, field.copy.data());
    field.sent = true;
  });
}

}  // namespace

void phase_begin(Thread& thread, Set& set, int64_t step, int64_t local, int64_t total, uint64_t fields) {
  if (set.open) {
    uncovered(set, Why::kOrder);
    return;
  }
  set.open = true;
  set.step = step;
  set.named = fields & (set.field_count < 64 ? (uint64_t{1} << set.field_count) - 1 : ~uint64_t{0});
  ++set.phase;
  ++set.counters.phases;
  set.computed_room = local > 0 ? local : 0;
  set.guarded = total < 0;
  if (set.guarded) {
    const uint64_t begin = monotonic_ns();
    forget_selection(set);
    bool free_copies;  // MPI may read them still
    {
      InsideMpi inside(thread);
      free_copies = came(thread, set, set.sends, set.next);
    }
    if (free_copies && settings.inputs) guard(set, local, set.named);
    set.counters.begin_ns += monotonic_ns() - begin;
    return;
  }
  set.phase_in = set.in;
  set.phase_out = set.out;
  if (!set.in && !set.out) {
    uncovered(set, set.broken != Why::kNone ? set.broken : Why::kNoSelection);
    return;
  }
  const uint64_t begin = monotonic_ns();
  InsideMpi inside(thread);
  if (set.in) expect_theirs(thread, set);  // first: what comes has a place
  if (set.out) send_own(thread, set, local, total);
  if (set.broken != Why::kNone) set.phase_in = set.phase_out = false;
  set.counters.begin_ns += monotonic_ns() - begin;
}

int64_t phase_end(Thread& thread, Set& set, uint64_t results, Kernel kernel, void* argument, int policy) {
  if (!set.open) {
    uncovered(set, Why::kOrder);
    return 0;
  }
  set.open = false;
  if (set.guarded) {
    const int64_t found = compare(set, results, false);
    for (uint32_t i = 0; i < set.field_count; ++i) set.fields[i].sent = false;
    return act(thread, set, found, policy);
  }
  if (kernel == nullptr) results = 0;
  if (set.phase_in) {
    Why there;
    {
      InsideMpi inside(thread);
      there = take_theirs(thread, set);
    }
    if (there == Why::kNone && kernel != nullptr) there = compute(set, kernel, argument);
    if (there != Why::kNone && set.broken == Why::kNone) uncovered(set, there);
    InsideMpi inside(thread);
    if (set.broken == Why::kNone && set.head_in.why == Why::kNone) send_results(set, results, there);
  }
  bool have_results = false;
  // A head that said why has told the next rank not to answer.
  if (set.phase_out && set.out && set.broken == Why::kNone) {
    InsideMpi inside(thread);
    const Why there = take_results(thread, set, results);
    have_results = there == Why::kNone && set.broken == Why::kNone;
    if (there != Why::kNone) uncovered(set, there);
  }
  int64_t found = set.phase_out && set.head_out.why == Why::kNone ? compare(set, results, have_results) : 0;
  if (settings.inputs) {
    const int64_t changed = compare_computed(set, results);
    set.counters.changed += static_cast<uint64_t>(changed);
    found += changed;
  }
  each_field(set, results, [](Field& field) { field.sent = false; });
  return act(thread, set, found, policy);
}

}  // namespace resil::spr
