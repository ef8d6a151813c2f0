// SPDX-License-Identifier: Apache-2.0
//
// See spec.h.

#include "checksum/fault/spec.h"

#include <cstring>

#include "shim/config/config_parse.h"
#include "shim/config/config_value.h"

namespace resil::fault {

namespace {

constexpr const char* kNames[kKinds] = {"flip",     "swap",      "zero",   "stale", "duplicate",
                                        "truncate", "transpose", "modify", "early"};
constexpr const char* kKeys[] = {"rank", "peer", "call", "min", "max", "nth", "p", "seed", "delay"};

uint64_t mix(uint64_t x) {  // the finaliser of MurmurHash3
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

bool refuse(ValueProblem* problem, const char* what, Slice part) {
  problem->what = what;
  problem->part = part;
  return false;
}

template <size_t n>
void hint(ValueProblem* problem, const char* const (&words)[n], Slice wanted) {
  Nearest nearest(wanted);
  for (const char* word : words) nearest.offer(slice_of(word));
  Text(problem->hint, sizeof(problem->hint)).add(nearest.found());
}

bool find_kind(Slice text, Kind* kind) {
  for (unsigned i = 0; i < kKinds; ++i)
    if (text == kNames[i]) {
      *kind = static_cast<Kind>(i);
      return true;
    }
  return false;
}

bool find_call(Slice text, CallId* call) {
  for (unsigned i = 0; i < kCallCount; ++i)
    if (text == kCallInfo[i].name) {
      *call = static_cast<CallId>(i);
      return true;
    }
  return false;
}

bool number(Slice value, int64_t least, int64_t most, int64_t* result) {
  return parse_integer(value, result) && *result >= least && *result <= most;
}

bool parse_key(Slice part, Spec* spec, ValueProblem* problem) {
  const auto* equals = static_cast<const char*>(memchr(part.data, '=', part.size));
  if (equals == nullptr) return refuse(problem, "not of the form key=value", part);
  const Slice key = trimmed({part.data, static_cast<size_t>(equals - part.data)});
  const Slice value = trimmed({equals + 1, static_cast<size_t>(part.data + part.size - equals - 1)});
  constexpr int64_t kRanks = 0x7fffffff, kHuge = INT64_MAX;
  int64_t n = 0;
  if (key == "rank" || key == "peer") {
    if (!number(value, 0, kRanks, &n)) return refuse(problem, "not a rank", part);
    (key == "rank" ? spec->rank : spec->peer) = static_cast<int32_t>(n);
  } else if (key == "call") {
    if (!find_call(value, &spec->call)) return refuse(problem, "not the name of an MPI call", part);
    spec->has_call = true;
  } else if (key == "min" || key == "max") {
    if (!number(value, 0, kHuge, &n)) return refuse(problem, "not a number of bytes", part);
    (key == "min" ? spec->min : spec->max) = static_cast<uint64_t>(n);
  } else if (key == "nth") {
    if (!number(value, 1, kHuge, &n)) return refuse(problem, "not a number from 1 on", part);
    if (spec->chance != 0) return refuse(problem, "given beside p", part);
    spec->nth = static_cast<uint64_t>(n);
  } else if (key == "p") {
    double p = 0;
    if (!parse_real(value, &p) || p <= 0 || p > 1)
      return refuse(problem, "not a probability above 0 and up to 1", part);
    if (spec->nth != 0) return refuse(problem, "given beside nth", part);
    spec->chance = p >= 1 ? UINT64_MAX : static_cast<uint64_t>(p * 0x1p64);
  } else if (key == "seed") {
    if (!number(value, 0, kHuge, &n)) return refuse(problem, "not a whole number", part);
    spec->seed = static_cast<uint64_t>(n);
  } else if (key == "delay") {
    if (!number(value, 1, 1000000, &n)) return refuse(problem, "not a number of microseconds from 1 to 1000000", part);
    spec->delay = static_cast<uint64_t>(n);
  } else {
    hint(problem, kKeys, key);
    return refuse(problem, "not a known key", key);
  }
  return true;
}

bool parse_spec(Slice text, Spec* spec, ValueProblem* problem) {
  spec->rank = spec->peer = -1;
  spec->has_call = false;
  spec->min = 1;
  spec->max = UINT64_MAX;
  spec->nth = spec->chance = 0;
  spec->seed = 1;
  spec->delay = 0;
  spec->eligible.store(0, std::memory_order_relaxed);
  spec->done.store(false, std::memory_order_relaxed);
  Slice rest = text, part;
  next_part(&rest, ',', &part);
  part = trimmed(part);
  if (!find_kind(part, &spec->kind)) {
    hint(problem, kNames, part);
    return refuse(problem, part.size != 0 ? "not a kind of fault" : "a fault without a kind",
                  part.size != 0 ? part : Slice{nullptr, 0});
  }
  while (next_part(&rest, ',', &part))
    if (!parse_key(trimmed(part), spec, problem)) return false;
  if (spec->min > spec->max) return refuse(problem, "asking for packets that do not exist (min above max)", text);
  if (spec->nth == 0 && spec->chance == 0) spec->nth = 1;
  return true;
}

bool same_call(CallId wanted, CallId id) {
  const char *left = call_info(wanted).name, *right = call_info(id).name;
  const size_t length = strlen(left);
  return strncmp(left, right, length) == 0 && (right[length] == 0 || strcmp(right + length, "_c") == 0);
}

}  // namespace

const char kAllowed[] =
    "kind[,rank=R][,peer=P][,call=NAME][,min=B][,max=B][,nth=N or p=X][,seed=S][,delay=US][;...], kinds flip swap zero "
    "stale duplicate truncate transpose modify early; none";

const char* kind_name(Kind kind) { return kNames[static_cast<unsigned>(kind)]; }

Draw::Draw(uint64_t seed, uint64_t rank, uint64_t spec, uint64_t ordinal)
    : state_(mix(mix(mix(seed + 0x9e3779b97f4a7c15) + rank + 1) + (spec << 48) + ordinal)) {}

uint64_t Draw::next() { return mix(state_ += 0x9e3779b97f4a7c15); }

bool Spec::matches(CallId id, int32_t peer_world, uint64_t bytes) const {
  return bytes >= min && bytes <= max && bytes != 0 && (peer < 0 || peer == peer_world) &&
         (!has_call || same_call(call, id));
}

bool Spec::fires(int32_t my_rank, unsigned index, Draw* draw, uint64_t* ordinal) {
  *ordinal = eligible.fetch_add(1, std::memory_order_relaxed) + 1;
  *draw = Draw(seed, static_cast<uint64_t>(my_rank), index, *ordinal);
  if (nth != 0)
    return *ordinal >= nth && !done.load(std::memory_order_relaxed) && !done.exchange(true, std::memory_order_relaxed);
  return draw->next() < chance;
}

void Spec::spare() { done.store(false, std::memory_order_relaxed); }

bool parse(Slice text, Specs* specs, ValueProblem* problem) {
  specs->count = 0;
  text = trimmed(text);
  if (text.size == 0 || text == "none") return true;
  Slice rest = text, part;
  while (next_part(&rest, ';', &part)) {
    part = trimmed(part);
    if (part.size == 0) continue;
    if (specs->count == kMaxSpecs) return refuse(problem, "one fault too many (16 at most)", part);
    if (!parse_spec(part, &specs->list[specs->count], problem)) return false;
    ++specs->count;
  }
  return specs->count != 0 || refuse(problem, "an empty list", {nullptr, 0});
}

}  // namespace resil::fault
