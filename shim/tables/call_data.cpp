// SPDX-License-Identifier: Apache-2.0
//
// See call_data.h.

#include "shim/tables/call_data.h"

#include <cstring>

#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/model/event.h"
#include "shim/tables/buffer_view.h"

namespace resil {

namespace {

const TypeMap* addresses;  // of MPI_AINT

constexpr uint16_t one_sided(RmaOperation operation) {
  switch (operation) {
    case RmaOperation::kPut:
    case RmaOperation::kAccumulate: return kGives;
    case RmaOperation::kGet: return kTakes | kWindow;
    case RmaOperation::kGetAccumulate:
    case RmaOperation::kFetchAndOp:
    case RmaOperation::kCompareAndSwap: return kGives | kTakes | kWindow | kUnforced;
    case RmaOperation::kNone: break;
  }
  return 0;
}

constexpr uint16_t of_window(WindowCall call) {
  switch (call) {
    case WindowCall::kFree:
    case WindowCall::kFence:
    case WindowCall::kComplete:
    case WindowCall::kUnlock:
    case WindowCall::kUnlockAll:
    case WindowCall::kFlush:
    case WindowCall::kFlushAll:
    case WindowCall::kFlushLocal:
    case WindowCall::kFlushLocalAll: return kSync;
    case WindowCall::kNone:
    case WindowCall::kCreate:
    case WindowCall::kPost:
    case WindowCall::kStart:
    case WindowCall::kWait:
    case WindowCall::kTest:
    case WindowCall::kLock:
    case WindowCall::kLockAll:
    case WindowCall::kSync: break;
  }
  return 0;
}

constexpr uint16_t of_file(const CallInfo& info) {
  const bool reads = info.file == FileCall::kRead;
  if (!reads && info.file != FileCall::kWrite) return 0;
  if (info.initiation == Initiation::kSplitBegin || info.initiation == Initiation::kSplitEnd) return kFile | kBlind;
  const bool unordered = info.pointer == FilePointer::kShared && !info.all;  // who comes first is not recorded
  return static_cast<uint16_t>(kFile | (unordered ? kUnforced : 0) | (reads ? kTakes : kGives));
}

constexpr uint16_t flow(const CallInfo& info) {
  switch (info.call_class) {
    case CallClass::kSend:
    case CallClass::kPartitionedSend: return kGives;
    case CallClass::kReceive: return kTakes | kMatches;
    case CallClass::kPartitionedReceive: return kTakes;
    case CallClass::kSendReceive: return kGives | kTakes | kMatches;
    case CallClass::kSendReceiveReplace: return kGives | kTakes | kSwaps | kMatches;
    case CallClass::kProbe:
    case CallClass::kMatchedProbe: return kProbes | kMatches;
    case CallClass::kMatchedReceive: return kTakes | kMessage;
    case CallClass::kCollective: return moves_data(info.collective) ? kCollects : 0;
    case CallClass::kComm: return info.comm == CommCall::kConnect ? kUnforced : 0;  // a join: the program's socket says
    case CallClass::kWindow: return of_window(info.window);
    case CallClass::kRma: return one_sided(info.rma);
    case CallClass::kFile: return of_file(info);
    case CallClass::kPartitionReady:  // by their requests
    case CallClass::kPartitionArrived:
    case CallClass::kCompletion:
    case CallClass::kGetStatus:
    case CallClass::kRequestFree:
    case CallClass::kCancel:
    case CallClass::kStart:
    case CallClass::kBuffer:  // no data
    case CallClass::kGeneralizedRequest:
    case CallClass::kLifecycle:
    case CallClass::kLocal: break;
  }
  return 0;
}

constexpr auto kTraits = by_call(flow);

constexpr Value kNothing = {0, ValueType::kNone, false};
constexpr Value kUnreadable = {0, ValueType::kNone, true};

uint16_t element_of(const TypeMap& map) {
  return static_cast<uint16_t>(static_cast<unsigned>(map.basic.kind) << 8 | (map.basic.width & 0xff));
}

/// Up to eight bytes in one piece: the number that they are.
Value small_value(const TypeMap& map, const void* data, uint64_t bytes) {
  Value value = {0, ValueType::kBytes, false, element_of(map)};
  memcpy(&value.bits, data, bytes);
  if (map.basic.width != bytes) return value;
  const unsigned unused = 64 - 8 * static_cast<unsigned>(bytes);
  switch (map.basic.kind) {
    case BasicKind::kFloating:
      if (bytes == 8 || bytes == 4) value.type = bytes == 8 ? ValueType::kDouble : ValueType::kFloat;
      break;
    case BasicKind::kSigned:
      value.type = ValueType::kSigned;
      value.bits = static_cast<uint64_t>(static_cast<int64_t>(value.bits << unused) >> unused);
      break;
    case BasicKind::kUnsigned: value.type = ValueType::kUnsigned; break;
    default: break;
  }
  return value;
}

Value collective_input(Event& e) {
  FlatTransfer flat;
  if (!flat_sent(e, &flat)) return kNothing;
  if (flat.in_place) flat.own = -1;  // it is given like the others
  return read_blocks(e, flat);
}

}  // namespace

uint16_t data_flow_of(CallId id) { return kTraits[id]; }

Tally data_bytes_read;
Tally address_values;

void prepare_addresses(Thread& thread) {
  const uint64_t type = backend->types->address != nullptr ? backend->types->address() : 0;
  if (type != 0) __atomic_store_n(&addresses, type_map(thread, type), __ATOMIC_RELAXED);
}

Value read_view(const View& view, uint64_t bytes) {
  if (view.reason != Reason::kNone) return kUnreadable;
  if (view.type == __atomic_load_n(&addresses, __ATOMIC_RELAXED)) {
    address_values += 1;
    return kUnreadable;
  }
  if (bytes > view.bytes) bytes = view.bytes;
  data_bytes_read += bytes;
  if (bytes <= 8) {
    if (bytes == 0) return kNothing;
    if (view.type->contiguous) return small_value(*view.type, view.buffer, bytes);
  }
  return {view_digest(view, bytes), ValueType::kDigest, false, element_of(*view.type)};
}

Value read_blocks(Event& e, const FlatTransfer& flat) {
  Value all = kNothing;
  uint64_t blocks = 0;
  for (int64_t i = flat.first; i < flat.end; ++i) {
    if (i == flat.own) continue;
    const View view = block_view(*e.thread, flat, i);
    if (view.reason != Reason::kNone) return kUnreadable;
    if (view.bytes == 0) continue;
    const Value one = read_view(view, view.bytes);
    // One block is kept as it is, several by a digest of their digests in the order of the ranks.
    all =
        ++blocks == 1 ? one : Value{mix64(all.bits ^ mix64(one.bits + blocks)), ValueType::kDigest, false, one.element};
  }
  return all;
}

bool overwrites_input(const Event& e) {
  return (data_flow_of(e.id) & (kSwaps | kCollects)) != 0 && is_overwritten(e, backend->is_in_place);
}

Value input_of(Event& e) {
  const uint16_t is = data_flow_of(e.id);
  if (is & kCollects) return collective_input(e);
  if (is & kBlind) return kUnreadable;
  if (!(is & kGives)) return kNothing;
  if ((e.attributes & kCallRma) && (is & kTakes) && call_info(e.id).rma != RmaOperation::kCompareAndSwap &&
      backend->types->op_kind(e.op) == OpKind::kNoOp)
    return kNothing;  // its origin buffer is not significant
  const Transfer transfer = single_sent(e, call_info(e.id));
  if (!transfer.any()) return kNothing;
  const View view = make_view(*e.thread, transfer.buffer, transfer.count, transfer.type);
  return read_view(view, view.bytes);
}

View receive_view(Event& e) {
  const DataArgument& side = data_flow_of(e.id) & kSwaps ? e.send : e.receive;
  View view = make_view(*e.thread, side.buffer, side.count, side.type);
  if ((e.attributes & kCallPartitioned) && view.reason != Reason::kDatatype)
    view.count *= e.partitions, view.bytes *= static_cast<uint64_t>(e.partitions);
  return view;
}

Value collective_output(Event& e) {
  FlatTransfer flat;
  return flat_received(e, &flat) ? read_blocks(e, flat) : kNothing;
}

}  // namespace resil
