// SPDX-License-Identifier: Apache-2.0
//
// State of the injector and the list of its deeds. See engine.h.

#include "checksum/fault/engine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "checksum/fault/messages.h"
#include "shim/call/runtime.h"
#include "shim/call/thread.h"
#include "shim/model/event.h"
#include "shim/report/log.h"
#include "shim/report/own_files.h"
#include "shim/runtime/memory.h"

namespace resil::fault {

constinit Engine engine = {};

namespace {

int list = -1;  // faults-RRRRR.jsonl

void open_list() {
  char path[1100];
  if (runtime.directory[0] == 0) return;
  snprintf(path, sizeof(path), "%s/faults-%05d.jsonl", runtime.directory, runtime.rank);
  list = own_file_append(path, 0666);
  if (list < 0) add_note(messages::fault::list_unwritable);
}

}  // namespace

unsigned& per_thread_slot() {
  static unsigned slot;
  return slot;
}

bool on_send_side(Kind kind) {
  return kind == Kind::kFlip || kind == Kind::kSwap || kind == Kind::kZero || kind == Kind::kTruncate ||
         kind == Kind::kModify;
}

bool on_receive_side(Kind kind) { return kind != Kind::kModify; }

void engine_start() {
  engine.rank = runtime.rank;
  engine.sends = engine.receives = engine.keeps = engine.remembers = false;
  for (unsigned i = 0; i < engine.specs.count; ++i) {
    Spec& spec = engine.specs.list[i];
    if (spec.rank >= 0 && spec.rank != engine.rank) {
      spec.max = 0;  // matches nothing
      continue;
    }
    const Kind kind = spec.kind;
    engine.sends = engine.sends || on_send_side(kind) || kind == Kind::kDuplicate;  // of one-sided operations
    engine.receives = engine.receives || on_receive_side(kind);
    engine.keeps = engine.keeps || kind == Kind::kStale || kind == Kind::kEarly || kind == Kind::kTruncate;
    engine.remembers = engine.remembers || kind == Kind::kDuplicate;
  }
  add_note(messages::fault::injecting);
  open_list();
}

PerThread* per_thread(Thread& thread) {
  void*& place = thread.module_data[per_thread_slot()];
  if (place == nullptr) place = memory::map_array<PerThread>();
  return static_cast<PerThread*>(place);
}

void note(const Injection& injection) {
  engine.injected[static_cast<unsigned>(injection.kind)].fetch_add(1, std::memory_order_relaxed);
  if (list < 0) return;
  char line[640];
  int length =
      snprintf(line, sizeof(line),
               "{\"launch\":\"%s\",\"rank\":%d,\"kind\":\"%s\",\"side\":\"%s\",\"call\":\"%s\",\"peer\":%d,\"tag\":%d,"
               "\"bytes\":%llu,\"position\":%llu,\"ordinal\":%llu,\"spec\":%llu,\"comm\":\"%016llx\",\"sequence\":%llu",
               runtime.launch_key, engine.rank, kind_name(injection.kind), injection.receiving ? "receive" : "send",
               call_info(injection.id).name, injection.peer, injection.tag,
               static_cast<unsigned long long>(injection.bytes), static_cast<unsigned long long>(injection.position),
               static_cast<unsigned long long>(injection.ordinal), static_cast<unsigned long long>(injection.spec),
               static_cast<unsigned long long>(injection.comm), static_cast<unsigned long long>(injection.sequence));
  auto room = [&] { return sizeof(line) - static_cast<size_t>(length); };
  if (injection.kind == Kind::kTranspose)
    length += snprintf(line + length, room(), ",\"other_peer\":%d,\"other_tag\":%d", injection.other_peer,
                       injection.other_tag);
  if (injection.remark != nullptr) length += snprintf(line + length, room(), ",\"remark\":\"%s\"", injection.remark);
  length += snprintf(line + length, room(), "}\n");
  if (write(list, line, static_cast<size_t>(length)) != length) add_note(messages::fault::list_incomplete);
}

}  // namespace resil::fault
