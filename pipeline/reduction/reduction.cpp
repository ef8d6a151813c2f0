// SPDX-License-Identifier: Apache-2.0
//
// The module that makes reductions give the same bits every time: it moves the contributions by collectives that only
// move data, and does the arithmetic itself in one association. See docs/REDUCTIONS.md.

#include "pipeline/reduction/blocking.h"
#include "pipeline/reduction/by_node.h"
#include "pipeline/reduction/counts.h"
#include "pipeline/reduction/messages.h"
#include "pipeline/reduction/pending.h"
#include "pipeline/reduction/repeated.h"
#include "shim/call/fast_path.h"
#include "shim/call/module.h"
#include "shim/call/thread.h"
#include "shim/config/config.h"
#include "shim/model/event.h"
#include "shim/runtime/memory.h"
#include "shim/tables/tables.h"

namespace resil::reduction {

namespace {

constexpr ConfigEntry kConfig[] = {
    {"RESIL_REDUCE", ConfigType::kChoice, "native|order|exact", "native",
     "how reductions compute: as the MPI library likes; in one order of operations whatever the placement, arrival or "
     "library; or with correctly rounded floating-point sums. Under record and verify the default is `order`"},
    {"RESIL_REDUCE_P2P", ConfigType::kSwitch, "", "0",
     "carries blocking reductions out by a fixed tree of messages on a communicator of resil's own, without any "
     "collective of the MPI library"},
    {"RESIL_REDUCE_SHARED", ConfigType::kSwitch, "", "1",
     "carries reductions of ranks that share a node out through memory of resil's own, blocking ones in /dev/shm"},
};

enum class Setting : uint8_t { kNative, kOrder, kExact };
Setting setting;
bool p2p;
unsigned slot;

const char* setting_name() {
  return setting == Setting::kExact ? "exact" : setting == Setting::kOrder ? "order" : "native";
}

bool enabled() {
  setting = config_has("RESIL_REDUCE", "exact")   ? Setting::kExact
            : config_has("RESIL_REDUCE", "order") ? Setting::kOrder
                                                  : Setting::kNative;
  // Two runs can be compared bit for bit only when their reductions do not depend on who came first.
  if (config_is_default("RESIL_REDUCE") && (config_has("RESIL_MODE", "record") || config_has("RESIL_MODE", "verify")))
    setting = Setting::kOrder;
  p2p = config_integer("RESIL_REDUCE_P2P") != 0;
  return setting != Setting::kNative;
}

/// From the fast path (fast_path.h).
fast::Instead execute_repeated(Event& e) {
  PerThread& mine = per_thread(*e.thread);
  mine.scratch.top = 0;
  return repeated_execute(e, mine);
}

/// What it does to other calls hangs on requests (fast::reduction_over).
bool may_be_fast(Event&, SiteEntry&) { return true; }

void before_init() {
  slot = thread_slot();
  fast::execute_instead = execute_repeated;
  fast::reduction_over = reduction_over;
  messages_prepare();
  by_node_prepare();
  node_prepare();
}

void thread_start(Thread& thread) {
  static_assert(kScratchBytes >= 4 * static_cast<size_t>(kSegment));
  auto* mine = reinterpret_cast<PerThread*>(map_or_end(sizeof(PerThread)));
  mine->scratch = {map_or_end(kScratchBytes), kScratchBytes, 0};
  mine->repeated = repeated_make();
  counts_enter(*mine);
  thread.module_data[slot] = mine;
}

void thread_end(Thread& thread) {
  auto* mine = static_cast<PerThread*>(thread.module_data[slot]);
  if (mine == nullptr) return;
  counts_leave(*mine);
  repeated_drop(mine->repeated);
  memory::unmap(mine->scratch.base, mine->scratch.bytes);
  memory::unmap_array(mine);
  thread.module_data[slot] = nullptr;
}

bool intercepts(CallId id) { return is_reduction(collective_of(id)) || class_of(id) == CallClass::kGetStatus; }

bool execute_instead(Event& e) {
  if (!is_reduction(collective_of(e.id))) return false;
  PerThread& mine = per_thread(*e.thread);
  if (!e.nested) mine.scratch.top = 0;  // an exception or longjmp out of an operator leaves it as it was
  e.thread->started = 0;
  if (const fast::Instead instead = repeated_execute(e, mine); instead != fast::Instead::kUnknown)
    return instead == fast::Instead::kDone;
  Call call;
  Algorithm algorithm = decide(e, mine, setting == Setting::kExact, &call);
  bool executed = algorithm <= Algorithm::kP2p && algorithm != Algorithm::kNativeSafe;
  if (executed && call.initiation == Initiation::kBlocking) {
    Arena arena(mine.scratch);
    NodeGroup* group = p2p ? nullptr : served_by_node(call);
    if (group == nullptr && (p2p || messages_better(call)) && messages_serve(call)) {
      algorithm = Algorithm::kP2p;
      e.result = intercept_by_messages(call, e.sequence, *e.thread, arena);
    } else if (group != nullptr) {
      e.result = intercept_by_node(call, *group, *e.thread, arena);
      count_more(mine.counts.by_node, 1);
      repeated_learn(e, call, *group, mine, algorithm);
    } else {
      e.result = intercept_blocking(call, arena);
    }
  } else if (executed) {
    executed = start_pending(e, call, mine, &algorithm);
  } else if (algorithm == Algorithm::kNativeSafe) {
    repeated_learn_safe(e, mine);
  }
  if (!executed || call.initiation != Initiation::kPersistent)  // which counts when it is started
    count_algorithm(mine, algorithm, e.bytes);
  return executed;
}

void report(JsonWriter& json) { report_ways(json, setting_name(), p2p); }

constexpr Module kReduction = {
    .name = "reduction",
    .description = "the same bits from reductions every time",
    .stage = Stage::kReduction,
    .config = kConfig,
    .enabled = enabled,
    .before_init = before_init,
    .after_init = node_connect,
    .thread_start = thread_start,
    .thread_end = thread_end,
    .leave = leave_pending,
    .fast = may_be_fast,
    .intercepts = intercepts,
    .execute_instead = execute_instead,
    .asks_status = true,
    .after_call = look_at_status,
    .activating = activating,
    .completed = completed,
    .report = report,
};
RESIL_MODULE(kReduction);

}  // namespace

PerThread& per_thread(Thread& thread) {
  if (thread.module_data[slot] == nullptr) [[unlikely]]
    thread_start(thread);
  return *static_cast<PerThread*>(thread.module_data[slot]);
}

}  // namespace resil::reduction
