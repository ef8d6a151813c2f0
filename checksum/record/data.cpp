// SPDX-License-Identifier: Apache-2.0
//
// See data.h.

#include "checksum/record/data.h"

#include <cstring>

#include "checksum/collective/form.h"
#include "checksum/fault/layout.h"
#include "shim/abi/backend.h"
#include "shim/base/hash.h"
#include "shim/call/event.h"

namespace resil::record {

namespace {

using collective::Form;
using fault::Layout;
using fault::Packet;

uint16_t traits[kCallCount];
const TypeMap* addresses;  // of MPI_AINT

bool begins(const char* name, const char* with) { return strncmp(name, with, strlen(with)) == 0; }

template <class... Text>
bool is_one_of(const char* name, Text... names) {
  size_t length = strlen(name);
  if (length > 2 && strcmp(name + length - 2, "_c") == 0) length -= 2;
  return ((strlen(names) == length && strncmp(name, names, length) == 0) || ...);
}

uint16_t one_sided(const char* name) {
  if (is_one_of(name, "Put", "Rput", "Accumulate", "Raccumulate")) return kGives;
  if (is_one_of(name, "Get", "Rget")) return kTakes | kWindow;
  if (is_one_of(name, "Get_accumulate", "Rget_accumulate", "Fetch_and_op", "Compare_and_swap"))
    return kGives | kTakes | kWindow | kUnforced;
  if (is_one_of(name, "Win_fence", "Win_unlock", "Win_unlock_all", "Win_flush", "Win_flush_all", "Win_flush_local",
                "Win_flush_local_all", "Win_complete", "Win_free"))
    return kSync;
  return 0;
}

uint16_t of_file(const char* name) {
  const bool reads = begins(name, "File_read") || begins(name, "File_iread");
  if (!reads && !begins(name, "File_write") && !begins(name, "File_iwrite")) return 0;
  if (strstr(name, "_begin") != nullptr || strstr(name, "_end") != nullptr) return kFile | kBlind;
  const uint16_t order = strstr(name, "_shared") != nullptr ? kUnforced : 0;  // who comes first is not recorded
  return static_cast<uint16_t>(kFile | order | (reads ? kTakes : kGives));
}

uint16_t find_traits(CallId id) {
  const CallInfo& info = call_info(id);
  const char* name = info.name + 4;
  const uint32_t is = info.attributes;
  if (is & (kCallLocal | kCallTool)) return 0;
  if (is_one_of(name, "Comm_spawn", "Comm_spawn_multiple", "Comm_accept", "Comm_connect", "Lookup_name"))
    return kUnforced;
  if (is & kCallRma) return one_sided(name);
  if (is & kCallIo) return of_file(name);
  if (is & kCallCollective) return collective::form_of(id) != Form::kNone ? kCollects : 0;
  if (!(is & kCallP2P)) return 0;
  if (is_one_of(name, "Probe", "Iprobe", "Mprobe", "Improbe")) return kProbes | kMatches;
  if (is_one_of(name, "Mrecv", "Imrecv")) return kTakes | kMessage;
  if (is & kCallPartitioned) return is & kCallReceives ? kTakes : kGives;
  if (is & kCallBothWays)
    return begins(name, "Sendrecv_replace") || begins(name, "Isendrecv_replace") ? kGives | kTakes | kSwaps | kMatches
                                                                                 : kGives | kTakes | kMatches;
  if (is & kCallReceives) return kTakes | kMatches;
  return info.shape == Shape::kPlain ? kGives : 0;
}

constexpr Value kNothing = {0, ValueType::kNone, false};
constexpr Value kUnreadable = {0, ValueType::kNone, true};

/// Up to eight bytes in one piece: the number that they are.
Value small_value(const TypeMap& map, const void* data, uint64_t bytes) {
  Value value = {0, ValueType::kBytes, false};
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

bool in_place(const void* buffer) { return backend->is_in_place(buffer); }

Value collective_input(Event& e) {
  Layout layout;
  const Form form = collective::form_of(e.id);
  if (e.comm == nullptr) return kNothing;
  if (collective::is_reduction(form)) return fault::contribution_layout(e, &layout) ? read_blocks(e, layout) : kNothing;
  if ((form == Form::kAllgather || form == Form::kAlltoall) && in_place(e.send.buffer)) {
    if (!fault::receive_layout(e, &layout)) return kNothing;
    layout.own = -1;
    return read_blocks(e, layout, form == Form::kAllgather ? e.comm->rank : -1);
  }
  return fault::send_layout(e, &layout) ? read_blocks(e, layout) : kNothing;
}

}  // namespace

void prepare_traits() {
  for (unsigned id = 0; id < kCallCount; ++id) traits[id] = find_traits(static_cast<CallId>(id));
}

uint16_t traits_of(CallId id) { return traits[static_cast<unsigned>(id)]; }

uint64_t bytes_read;
uint64_t address_values;

void prepare_addresses(Thread& thread) {
  const uint64_t type = backend->types->address != nullptr ? backend->types->address() : 0;
  if (type != 0) __atomic_store_n(&addresses, type_map(thread, type), __ATOMIC_RELAXED);
}

Value read_view(const View& view, uint64_t bytes) {
  if (view.reason != Reason::kNone) return kUnreadable;
  if (view.type == addresses) {
    address_values += 1;
    return kUnreadable;
  }
  if (bytes > view.bytes) bytes = view.bytes;
  bytes_read += bytes;
  if (bytes <= 8) {
    if (bytes == 0) return kNothing;
    if (view.type->contiguous) return small_value(*view.type, view.buffer, bytes);
  }
  return {view_digest(view, bytes), ValueType::kDigest, false};
}

Value read_blocks(Event& e, const Layout& layout, int64_t wanted) {
  const int64_t first = wanted >= 0 ? wanted : 0, end = wanted >= 0 ? wanted + 1 : layout.blocks;
  Value all = kNothing;
  uint64_t blocks = 0;
  for (int64_t i = first; i < end; ++i) {
    Packet packet = {};
    if (!fault::block_at(*e.thread, layout, i, &packet)) {
      if (i != layout.own && (packet.bytes != 0 || (packet.count > 0 && packet.type == nullptr))) return kUnreadable;
      continue;
    }
    const View view = {packet.buffer, packet.count, packet.type, packet.bytes, Reason::kNone};
    const Value one = read_view(view, packet.bytes);
    // One block is kept as it is, several by a digest of their digests in the order of the ranks.
    all = ++blocks == 1 ? one : Value{mix64(all.bits ^ mix64(one.bits + blocks)), ValueType::kDigest, false};
  }
  return all;
}

bool overwrites_input(const Event& e) {
  const uint16_t is = traits_of(e.id);
  if (is & kSwaps) return true;
  if (!(is & kCollects)) return false;
  const Form form = collective::form_of(e.id);
  if (collective::is_reduction(form))  // the same buffer twice: libraries that do not look take it for MPI_IN_PLACE
    return in_place(e.send.buffer) || e.send.buffer == e.receive.buffer;
  return (form == Form::kAllgather || form == Form::kAlltoall) && in_place(e.send.buffer);
}

Value input_of(Event& e) {
  const uint16_t is = traits_of(e.id);
  if (is & kCollects) return collective_input(e);
  if (is & kBlind) return kUnreadable;
  if (!(is & kGives)) return kNothing;
  if ((e.attributes & (kCallP2P | kCallRma)) && e.peer < 0) return kNothing;  // MPI_PROC_NULL
  if ((e.attributes & kCallRma) && (is & kTakes) && e.id != CallId::kMPI_Compare_and_swap &&
      backend->types->op_kind(e.op) == OpKind::kNoOp)
    return kNothing;  // its origin buffer is not significant
  View view = make_view(*e.thread, e.send.buffer, e.send.count, e.send.type);
  if (e.attributes & kCallPartitioned) view.count *= e.partitions, view.bytes *= static_cast<uint64_t>(e.partitions);
  return read_view(view, view.bytes);
}

View receive_view(Event& e) {
  const Side& side = traits_of(e.id) & kSwaps ? e.send : e.receive;
  View view = make_view(*e.thread, side.buffer, side.count, side.type);
  if ((e.attributes & kCallPartitioned) && view.reason != Reason::kDatatype)
    view.count *= e.partitions, view.bytes *= static_cast<uint64_t>(e.partitions);
  return view;
}

Value collective_output(Event& e) {
  Layout layout;
  return e.comm != nullptr && fault::receive_layout(e, &layout) ? read_blocks(e, layout) : kNothing;
}

}  // namespace resil::record
