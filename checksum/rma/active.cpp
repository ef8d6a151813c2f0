// SPDX-License-Identifier: Apache-2.0
//
// Active-target synchronisation: fences, and post, start, complete, wait.
//
// Fence: when the real one has returned, each origin sends its lists; each target reads the memory and answers; an
// origin with all answers enters a barrier (dissemination, point-to-point), and leaves it when nobody reads any more.
// Everybody is in this wrapper then, so that what is read is what the epoch left. A rank that has waited too long
// tells all others that it gives up, before it leaves; a target that finds a difference therefore asks all others
// whether they are still there, and believes the difference only if all of them are.
//
// MPI_Win_complete sends the lists, MPI_Win_wait awaits them and reads. An origin may go on at once: before it can
// touch that memory again the target must expose it again, which it does after its MPI_Win_wait.

#include "checksum/messages.h"
#include "checksum/rma/wire.h"
#include "checksum/rma/workspace.h"
#include "shim/abi/backend.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"
#include "shim/report/log.h"

namespace resil::rma {

namespace {

struct Waiting {
  Thread* thread;
  Window* window;
};

bool of_this_fence(const Window& w, const Packet& packet) { return packet.header.epoch == w.epoch; }

bool answer(Thread& thread, Window& w, Packet& packet) {
  packet.answered = true;
  if (!packet.header.last || packet.header.origin == w.rank) return true;
  return send(thread, w, packet.header.origin, ledger::Kind::kRmaReply,
              {w.id, w.epoch, w.rank, Message::kDigested, false, false, 0, 0, 0});
}

/// Asks everybody whether they are still in this fence.
bool ask(Thread& thread, Window& w) {
  {
    Guard guard(w.lock);
    w.confirm += 1;
    w.confirm_missing = static_cast<uint32_t>(w.size - 1);
  }
  for (int i = 0; i < w.size; ++i)
    if (i != w.rank && !send(thread, w, i, ledger::Kind::kRma,
                             {w.id, w.epoch, w.rank, Message::kAsk, i == w.confirm_origin, false, 0, w.confirm,
                              static_cast<int64_t>(w.confirm_site)}))
      return false;
  return true;
}

/// Reads what lists have come since, answers those that may be answered. False: cannot go on.
bool read_lists(Thread& thread, Window& w) {
  bool question = false;
  // Only this thread takes packets out; others append.
  for (Packet* packet = packet_after(w, nullptr); packet != nullptr; packet = packet_after(w, packet)) {
    if (packet->header.message != Message::kFenceList || packet->header.epoch != w.epoch || packet->answered) continue;
    if (!packet->read && read_packet(w, *packet)) {
      packet->question = w.confirm + 1;
      question = true;
      each_item(*packet, [&w, origin = packet->header.origin](Item& item) {
        if (item.outcome == Outcome::kDifferent && w.confirm_site == 0) {
          w.confirm_site = item.site;
          w.confirm_origin = origin;
        }
      });
    }
    const bool open = packet->question != 0 && (packet->question > w.confirm || w.confirm_missing != 0) && w.size > 1;
    if (!open && !answer(thread, w, *packet)) return false;
  }
  if (question && w.size > 1) {
    if (w.confirm_missing != 0) w.confirm_again = true;
    else if (!ask(thread, w)) return false;
  } else if (w.confirm_again && w.confirm_missing == 0) {
    w.confirm_again = false;
    if (!ask(thread, w)) return false;
  }
  return true;
}

bool barrier_goes_on(Thread& thread, Window& w) {
  Window::Slot& slot = w.barrier[w.epoch & 1];
  while (w.round < w.rounds) {
    if (w.round_sent == w.round) {
      const int to = static_cast<int>((w.rank + (int64_t{1} << w.round)) % w.size);
      bool incomplete;
      {
        Guard guard(w.lock);
        incomplete = slot.incomplete;
      }
      if (!send(thread, w, to, ledger::Kind::kRmaBarrier,
                {w.id, w.epoch, w.rank, Message::kBarrier, false, incomplete, 0, w.round, 0})) {
        w.off.store(true, std::memory_order_release);
        return true;
      }
      w.round_sent += 1;
    }
    Guard guard(w.lock);
    if (slot.epoch != w.epoch || !(slot.received >> w.round & 1)) return false;
    w.round += 1;
  }
  return true;
}

bool fence_goes_on(void* argument) {
  auto& [thread, window] = *static_cast<Waiting*>(argument);
  Window& w = *window;
  if (w.off.load(std::memory_order_acquire)) return true;
  if (!read_lists(*thread, w)) {
    w.off.store(true, std::memory_order_release);
    return true;
  }
  bool all;
  {
    Guard guard(w.lock);
    all = w.lists_unanswered == 0;
  }
  if (!all || w.confirm_missing != 0 || w.confirm_again) return false;
  if (!w.snapshot_next && ledger::full_blame()) snapshot_take(w, true);
  return barrier_goes_on(*thread, w);
}

void send_fence_lists(Thread& thread, Window& w) {
  const uint32_t room = w.operations_open != 0 ? w.operation_count : 0;
  Workspace workspace(room * sizeof(uint32_t));
  auto* order = reinterpret_cast<uint32_t*>(workspace.data());
  if (order == nullptr) {
    w.off.store(true, std::memory_order_release);
    return;
  }
  const uint32_t count = sorted_operations(w, Epoch::kFence, order, room);
  for (uint32_t i = 0; i < count;) {
    const int target = w.operations[order[i]].target;
    uint32_t n = 1;
    while (i + n < count && w.operations[order[i + n]].target == target) ++n;
    if (target != w.rank) {
      Guard guard(w.lock);
      w.lists_unanswered += 1;
    }
    if (!send_list(thread, w, Epoch::kFence, target, w.epoch, order + i, n)) {
      w.off.store(true, std::memory_order_release);
      return;
    }
    i += n;
  }
}

bool access_list_chosen(const Window& w, const Packet& packet) {
  return packet.header.epoch <= w.targets[packet.header.origin].exposure;
}

bool exposure_over(void* argument) {
  Window& w = *static_cast<Waiting*>(argument)->window;
  if (w.off.load(std::memory_order_acquire)) return true;
  for (Packet* packet = packet_after(w, nullptr); packet != nullptr; packet = packet_after(w, packet)) {
    if (packet->header.message != Message::kAccessList || packet->read ||
        packet->header.epoch != w.targets[packet->header.origin].exposure)
      continue;
    read_packet(w, *packet);
    if (packet->header.last && w.exposure_missing != 0) w.exposure_missing -= 1;
  }
  return w.exposure_missing == 0;
}

/// The group's ranks within the window's group. False: not known.
bool group_members(Window& w, uint64_t group, int32_t** array, uint32_t* room, uint32_t* count) {
  *count = 0;
  int size = 0;
  if (ranks_room(array, room, static_cast<uint32_t>(w.size)) == nullptr ||
      !backend->group_world_ranks(group, w.size, *array, &size))
    return false;
  for (int i = 0; i < size; ++i) {
    const int rank = group_rank(w, (*array)[i], i == 0 ? 0 : (*array)[i - 1] + 1);
    if (rank < 0) return false;
    (*array)[i] = rank;
  }
  *count = static_cast<uint32_t>(size);
  return true;
}

void drop_packets(Thread& thread, Window& w) {
  judge(thread, w, Message::kFenceList, Reason::kOneSided, [](const Window&, const Packet&) { return true; });
  judge(thread, w, Message::kAccessList, Reason::kOneSided, [](const Window&, const Packet&) { return true; });
}

}  // namespace

void abandon(Thread& thread, Window& w, const char* why) {
  w.off.store(true, std::memory_order_release);
  if (w.off_told) return;
  w.off_told = true;
  add_to(counters.off, 1);
  add_note_format(messages::checksum::window_given_up, static_cast<unsigned long long>(w.id), why);
  for (int i = 0; i < w.size; ++i)
    if (i != w.rank)
      send(thread, w, i, ledger::Kind::kRma, {w.id, w.epoch, w.rank, Message::kAbandon, false, false, 0, 0, 0});
}

void fence(Event& e, Window& w) {
  Thread& thread = *e.thread;
  const bool ends_nothing = backend->windows->no_precede(e.assertion);
  w.fence_open = e.result == 0 && !backend->windows->no_succeed(e.assertion);
  if (w.why != Reason::kNone || w.off.load(std::memory_order_acquire)) {
    give_up_operations(w, Epoch::kFence, -1, w.why != Reason::kNone ? w.why : Reason::kOneSided);
    if (w.off.load(std::memory_order_acquire)) {
      abandon(thread, w, messages::checksum::fence_abandoned);  // memory ran out between two calls, and nobody knows
      drop_packets(thread, w);
    }
    return;
  }
  if (ends_nothing) return;  // MPI requires this assertion of all ranks or of none
  if (e.result != 0) {
    give_up_operations(w, Epoch::kFence, -1, Reason::kError);
    abandon(thread, w, messages::checksum::fence_failed);
    return;
  }
  digest_gets(w, Epoch::kFence);
  {
    Guard guard(w.lock);
    w.epoch += 1;
    w.lists_unanswered = 0;
    w.round = w.round_sent = 0;
    w.confirm_missing = 0;
    w.confirm_again = false;
    w.confirm_site = 0;
    w.confirm_text[0] = 0;
    w.snapshot_next = false;
    Window::Slot& slot = w.barrier[w.epoch & 1];
    if (slot.epoch != w.epoch) slot = {w.epoch, 0, false};
    slot.incomplete |= w.overflow;
  }
  send_fence_lists(thread, w);
  Waiting waiting = {&thread, &w};
  const bool over = wait_for_others(thread, fence_goes_on, &waiting);
  const bool given_up = w.off.load(std::memory_order_acquire);
  if (!over || given_up) {
    abandon(thread, w, over ? messages::checksum::fence_abandoned : messages::checksum::fence_unanswered);
    give_up_operations(w, Epoch::kFence, -1, Reason::kOneSided);
    drop_packets(thread, w);
    return;
  }
  close_operations(w, Epoch::kFence, -1);  // their targets have counted them
  judge(thread, w, Message::kFenceList, w.barrier[w.epoch & 1].incomplete ? Reason::kMemory : Reason::kNone,
        of_this_fence);
  if (ledger::full_blame()) snapshot_turn(w);
}

void posted(Event& e, Window& w) {
  w.exposed_count = 0;
  if (e.result != 0 || w.why != Reason::kNone || w.off.load(std::memory_order_acquire)) return;
  if (target_of(w, 0) == nullptr || !group_members(w, e.group, &w.exposed, &w.exposed_room, &w.exposed_count)) {
    abandon(*e.thread, w, messages::checksum::post_group_unread);
    w.exposed_count = 0;
    return;
  }
  for (uint32_t i = 0; i < w.exposed_count; ++i) w.targets[w.exposed[i]].exposure += 1;
}

void started(Event& e, Window& w) {
  w.accessed_count = 0;
  if (e.result != 0 || w.why != Reason::kNone || w.off.load(std::memory_order_acquire)) return;
  if (target_of(w, 0) == nullptr || !group_members(w, e.group, &w.accessed, &w.accessed_room, &w.accessed_count)) {
    abandon(*e.thread, w, messages::checksum::start_group_unread);
    w.accessed_count = 0;
    return;
  }
  for (uint32_t i = 0; i < w.accessed_count; ++i) {
    Target& target = w.targets[w.accessed[i]];
    target.access += 1;
    target.started = true;
  }
}

void completed_access(Event& e, Window& w) {
  Thread& thread = *e.thread;
  const uint32_t targets = w.accessed_count;
  w.accessed_count = 0;
  for (uint32_t i = 0; i < targets; ++i) w.targets[w.accessed[i]].started = false;
  if (targets == 0 || e.result != 0 || w.off.load(std::memory_order_acquire)) {
    give_up_operations(w, Epoch::kAccess, -1, e.result != 0 ? Reason::kError : Reason::kOneSided);
    if (e.result != 0 && targets != 0) abandon(thread, w, messages::checksum::complete_failed);
    return;
  }
  digest_gets(w, Epoch::kAccess);
  const uint32_t room = w.operations_open != 0 ? w.operation_count : 0;
  Workspace workspace(room * sizeof(uint32_t));
  auto* order = reinterpret_cast<uint32_t*>(workspace.data());
  const uint32_t count = order != nullptr ? sorted_operations(w, Epoch::kAccess, order, room) : 0;
  for (uint32_t i = 0; i < targets; ++i) {
    const int target = w.accessed[i];
    uint32_t from = 0;
    while (from < count && w.operations[order[from]].target != target) ++from;
    uint32_t n = 0;
    while (from + n < count && w.operations[order[from + n]].target == target) ++n;
    if (order == nullptr || !send_list(thread, w, Epoch::kAccess, target, w.targets[target].access, order + from, n)) {
      give_up_operations(w, Epoch::kAccess, -1, Reason::kMemory);
      abandon(thread, w, messages::checksum::complete_unsent);
      return;
    }
  }
  close_operations(w, Epoch::kAccess, -1);
}

void waited(Event& e, Window& w) {
  Thread& thread = *e.thread;
  const uint32_t origins = w.exposed_count;
  w.exposed_count = 0;
  if (origins == 0) return;
  if (e.result != 0) abandon(thread, w, messages::checksum::wait_failed);
  w.exposure_missing = origins;
  Waiting waiting = {&thread, &w};
  const bool over = wait_for_others(thread, exposure_over, &waiting);
  if (!over || w.off.load(std::memory_order_acquire)) {
    abandon(thread, w, messages::checksum::wait_unanswered);
    drop_packets(thread, w);
    return;
  }
  judge(thread, w, Message::kAccessList, Reason::kNone, access_list_chosen);
}

}  // namespace resil::rma
