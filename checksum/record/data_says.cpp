// SPDX-License-Identifier: Apache-2.0
//
// See data_says.h. Reads the program's buffer and, guarded, single words of this process.

#include "checksum/record/data_says.h"

#include <linux/personality.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "checksum/record/data.h"
#include "checksum/record/state.h"
#include "shim/base/bit_cast.h"
#include "shim/call/thread.h"
#include "shim/model/calls.h"
#include "shim/runtime/stacks/memory.h"
#include "shim/tables/call_data.h"
#include "shim/tables/flat_transfer.h"

namespace resil::record {

namespace {

constexpr uint64_t kMostBytes = 4096;  // of an array, that are looked at
constexpr uint64_t kName = 256;  // bytes: an array of so many may be a name

/// As user space of x86-64 and aarch64 has them, but for what is not moved from run to run.
bool may_be_address(uint64_t bits) { return bits >> 40 != 0 && bits >> 48 == 0; }

bool is_address(uint64_t bits, ValueType type) {
  return (type == ValueType::kSigned || type == ValueType::kUnsigned || type == ValueType::kBytes) &&
         may_be_address(bits);
}

/// Seconds since 1970, between 2017 and 2049.
bool is_date(uint64_t bits, ValueType type) {
  double value = static_cast<double>(bits);
  if (type == ValueType::kDouble) value = bit_cast<double>(bits);
  else if (type != ValueType::kSigned && type != ValueType::kUnsigned) return false;
  return value > 1.5e9 && value < 2.5e9;
}

bool is_readable(const View& view) { return view.reason == Reason::kNone && view.bytes != 0 && view.type->contiguous; }

/// Addresses are others in each run unless the kernel was asked not to.
bool addresses_vary() {
  const long now = syscall(SYS_personality, 0xffffffff);
  return now == -1 || (now & ADDR_NO_RANDOMIZE) == 0;
}

/// Words of the array that are addresses of this process's memory.
unsigned count_addresses(const View& view) {
  stacks::Reader reader;
  reader.reset();
  unsigned count = 0;
  const auto* at = static_cast<const char*>(view.buffer);
  for (uint64_t i = 0; i + 8 <= std::min(view.bytes, kMostBytes); i += 8) {
    uint64_t word;
    char byte;
    memcpy(&word, at + i, 8);
    count += may_be_address(word) && reader.load(word, &byte);
  }
  return count;
}

/// Whether the array holds this process's id in decimal digits, or the number is it.
bool holds_process_id(const Difference& d, const View& view) {
  if (d.found_type == ValueType::kSigned || d.found_type == ValueType::kUnsigned)
    return d.found == static_cast<uint64_t>(getpid()) && d.found > 999;
  char digits[16];
  const int length = snprintf(digits, sizeof(digits), "%d", getpid());
  if (!is_readable(view) || length < (view.bytes <= kName ? 3 : 4)) return false;  // few digits may stand anywhere
  const auto* begin = static_cast<const char*>(view.buffer);
  const char* end = begin + std::min(view.bytes, kMostBytes);
  auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (const char* at = begin; (at = std::search(at, end, digits, digits + length)) != end; ++at)
    if ((at == begin || !is_digit(at[-1])) && (at + length == end || !is_digit(at[length]))) return true;
  return false;
}

}  // namespace

void Phrases::add(const char* format, ...) {
  const size_t used = strlen(text);
  snprintf(text + used, sizeof(text) - used, "%s", count++ == 0 ? "" : "; ");
  va_list arguments;
  va_start(arguments, format);
  const size_t now = strlen(text);
  vsnprintf(text + now, sizeof(text) - now, format, arguments);
  va_end(arguments);
}

View differing_data(const Event* event, const Difference& d) {
  View none = {nullptr, 0, nullptr, 0, Reason::kDatatype};
  if (event == nullptr || (d.what != What::kOutput && d.what != What::kInput)) return none;
  Event& e = const_cast<Event&>(*event);  // what is looked up of its communicator is kept with it
  const uint16_t is = data_flow_of(e.id);
  if (is & (kWindow | kFile)) return none;
  if (d.what == What::kInput && !(is & kCollects)) return (is & kTakes) ? receive_view(e) : none;
  FlatTransfer flat;
  if (!(d.what == What::kInput ? flat_received(e, &flat) : flat_sent(e, &flat))) return none;
  if (flat.in_place) flat.own = -1;
  return only_block(e, flat);
}

void text_of(const View& view, char* text, size_t room) {
  text[0] = 0;
  if (!is_readable(view) || view.bytes < 4 || view.type->size != 1) return;
  const auto* at = static_cast<const char*>(view.buffer);
  size_t used = 0;
  while (used < view.bytes && used + 1 < room && at[used] >= ' ' && at[used] <= '~') ++used;
  if (used < 4 || (used < view.bytes && used + 1 < room && at[used] != 0)) return;
  memcpy(text, at, used);
  text[used] = 0;
}

void data_says(const Difference& d, const View& view, const char* text, Phrases& phrases) {
  if (is_address(d.expected, d.expected_type) && is_address(d.found, d.found_type))
    phrases.add("both values look like addresses in memory, which differ from run to run");
  else if (d.found_type == ValueType::kDigest && is_readable(view) && addresses_vary()) {
    if (const unsigned count = count_addresses(view); count != 0)
      phrases.add("%u of its first %" PRIu64 " words are addresses in memory, which differ from run to run", count,
                  std::min(view.bytes, kMostBytes) / 8);
  }
  if (is_date(d.expected, d.expected_type) && is_date(d.found, d.found_type))
    phrases.add("both values look like the time of day, in seconds since 1970");
  if (holds_process_id(d, view)) phrases.add("it holds this process's id, %d", getpid());
  if (strstr(text, "tag#") != nullptr || strstr(text, "port#") != nullptr || strstr(text, ".0:") != nullptr)
    phrases.add("it looks like the name of a port (MPI_Open_port), which is another one in each run");
  else if (text[0] == '/' && (strstr(text, "tmp") != nullptr || strstr(text, "/dev/shm") != nullptr))
    phrases.add("it looks like the name of a temporary file, which is another one in each run");
}

}  // namespace resil::record
