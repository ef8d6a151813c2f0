// SPDX-License-Identifier: Apache-2.0
//
// See config_parse.h. May touch nothing but its arguments.
#include "shim/config/config_parse.h"

#include <csignal>
#include <cstring>

namespace resil {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

bool digit(char c) { return c >= '0' && c <= '9'; }

bool same_name(Slice left, const char* right) {
  if (left.size != strlen(right)) return false;
  for (size_t i = 0; i < left.size; ++i)
    if (lower(left.data[i]) != lower(right[i])) return false;
  return true;
}

struct SignalName {
  const char* name;
  int number;
};

// Signals whose default is to end or to be ignored and that no runtime system needs for itself.
constexpr SignalName kSignals[] = {{"HUP", SIGHUP},   {"INT", SIGINT},     {"QUIT", SIGQUIT}, {"USR1", SIGUSR1},
                                   {"USR2", SIGUSR2}, {"TERM", SIGTERM},   {"ALRM", SIGALRM}, {"VTALRM", SIGVTALRM},
                                   {"URG", SIGURG},   {"WINCH", SIGWINCH}, {"IO", SIGIO},     {"PWR", SIGPWR},
                                   {"XCPU", SIGXCPU}, {"XFSZ", SIGXFSZ}};

}  // namespace

const char kSignalNames[] =
    "HUP, INT, QUIT, USR1, USR2, TERM, ALRM, VTALRM, URG, WINCH, IO, PWR, XCPU, XFSZ, RTMIN+n, RTMAX-n, off";

bool Slice::operator==(const char* text) const { return size == strlen(text) && memcmp(data, text, size) == 0; }

Slice slice_of(const char* text) { return {text, text ? strlen(text) : 0}; }

Slice trimmed(Slice text) {
  while (text.size && (*text.data == ' ' || *text.data == '\t')) ++text.data, --text.size;
  while (text.size && (text.data[text.size - 1] == ' ' || text.data[text.size - 1] == '\t')) --text.size;
  return text;
}

bool next_part(Slice* rest, char separator, Slice* part) {
  if (!rest->data) return false;
  const void* end = memchr(rest->data, separator, rest->size);
  *part = {rest->data, end ? static_cast<size_t>(static_cast<const char*>(end) - rest->data) : rest->size};
  if (end) *rest = {rest->data + part->size + 1, rest->size - part->size - 1};
  else *rest = {nullptr, 0};
  return true;
}

bool parse_integer(Slice text, int64_t* value) {
  bool negative = text.size && *text.data == '-';
  if (text.size && (*text.data == '-' || *text.data == '+')) ++text.data, --text.size;
  if (!text.size) return false;
  int64_t result = 0;  // counted downwards: the smallest number has no positive twin
  for (size_t i = 0; i < text.size; ++i) {
    if (!digit(text.data[i])) return false;
    if (__builtin_mul_overflow(result, 10, &result) || __builtin_sub_overflow(result, text.data[i] - '0', &result))
      return false;
  }
  if (!negative && result == INT64_MIN) return false;
  *value = negative ? result : -result;
  return true;
}

bool parse_real(Slice text, double* value) {
  bool negative = text.size && *text.data == '-';
  if (text.size && (*text.data == '-' || *text.data == '+')) ++text.data, --text.size;
  // Digits as one integer and one power of ten: exactly rounded up to 15 digits and 22 places, which is what people
  // type; beyond that the last bit may be off.
  double mantissa = 0;
  int64_t exponent = 0;
  size_t digits = 0, i = 0;
  bool fraction = false;
  for (; i < text.size; ++i) {
    char c = text.data[i];
    if (c == '.' && !fraction) {
      fraction = true;
    } else if (digit(c)) {
      mantissa = mantissa * 10 + (c - '0');
      exponent -= fraction;
      ++digits;
    } else {
      break;
    }
  }
  if (!digits) return false;
  if (i < text.size) {
    int64_t power;
    if (lower(text.data[i]) != 'e' || !parse_integer({text.data + i + 1, text.size - i - 1}, &power)) return false;
    if (power > 400 || power < -400) return false;
    exponent += power;
  }
  if (exponent > 400 || exponent < -400) return false;
  double scale = 1;
  for (int64_t n = exponent < 0 ? -exponent : exponent; n; --n) scale *= 10;
  double result = exponent < 0 ? mantissa / scale : mantissa * scale;
  if (!__builtin_isfinite(result)) return false;
  *value = negative ? -result : result;
  return true;
}

bool parse_range(Slice text, double* low, double* high) {
  for (size_t i = 0; i + 1 < text.size; ++i) {
    if (text.data[i] != '.' || text.data[i + 1] != '.') continue;
    Slice upper{text.data + i + 2, text.size - i - 2};
    if (!parse_real({text.data, i}, low)) return false;
    if (upper.size) return parse_real(upper, high);
    *high = __builtin_inf();
    return true;
  }
  return false;
}

int signal_number(const char* name) {
  Slice text = trimmed(slice_of(name));
  if (same_name(text, "off")) return 0;
  if (text.size > 3 && same_name({text.data, 3}, "SIG")) text = {text.data + 3, text.size - 3};
  for (const SignalName& entry : kSignals)
    if (same_name(text, entry.name)) return entry.number;
  // SIGRTMIN is a function call in glibc: it keeps the first real-time signals for itself.
  bool from_min = text.size >= 5 && same_name({text.data, 5}, "RTMIN");
  bool from_max = text.size >= 5 && same_name({text.data, 5}, "RTMAX");
  if (!from_min && !from_max) return -1;
  int64_t offset = 0;
  if (text.size > 5) {
    if (text.data[5] != (from_min ? '+' : '-') || text.size < 7 || !digit(text.data[6])) return -1;
    if (!parse_integer({text.data + 6, text.size - 6}, &offset) || offset > 64) return -1;
  }
  int number = from_min ? SIGRTMIN + static_cast<int>(offset) : SIGRTMAX - static_cast<int>(offset);
  return number >= SIGRTMIN && number <= SIGRTMAX ? number : -1;
}

void for_each_signal_name(bool (*visit)(const char* name, void* context), void* context) {
  for (const SignalName& entry : kSignals)
    if (!visit(entry.name, context)) return;
}

unsigned edit_distance(Slice left, Slice right) {
  constexpr size_t kMost = 63;
  if (left.size > kMost || right.size > kMost) return ~0u;
  // Three rows of the optimal string alignment table: the swap of neighbours looks two rows back.
  unsigned rows[3][kMost + 1];
  unsigned *before = rows[0], *above = rows[1], *row = rows[2];
  for (size_t j = 0; j <= right.size; ++j) above[j] = static_cast<unsigned>(j);
  for (size_t i = 1; i <= left.size; ++i) {
    row[0] = static_cast<unsigned>(i);
    char a = lower(left.data[i - 1]);
    for (size_t j = 1; j <= right.size; ++j) {
      char b = lower(right.data[j - 1]);
      unsigned best = above[j - 1] + (a != b);
      if (above[j] + 1 < best) best = above[j] + 1;
      if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
      if (i > 1 && j > 1 && a == lower(right.data[j - 2]) && b == lower(left.data[i - 2]) && before[j - 2] + 1 < best)
        best = before[j - 2] + 1;
      row[j] = best;
    }
    unsigned* oldest = before;
    before = above;
    above = row;
    row = oldest;
  }
  return above[right.size];
}

void Nearest::offer(Slice candidate) {
  unsigned distance = edit_distance(wanted_, candidate);
  if (distance < distance_) {
    distance_ = distance;
    best_ = candidate;
  }
}

Slice Nearest::found() const {
  // A third of the letters may be wrong, but never all of them: "x" is not near "on".
  unsigned limit = static_cast<unsigned>(wanted_.size > best_.size ? wanted_.size : best_.size) / 3;
  if (limit < 1 && wanted_.size > 1) limit = 1;
  return best_.data && distance_ <= limit ? best_ : Slice{nullptr, 0};
}

Text& Text::add(Slice text) {
  for (size_t i = 0; i < text.size && length_ + 1 < size_; ++i) {
    char c = text.data[i];
    buffer_[length_++] = static_cast<unsigned char>(c) < ' ' || c == 127 ? '?' : c;
  }
  buffer_[length_] = 0;
  return *this;
}

Text& Text::add(int64_t number) {
  char digits[24];
  size_t at = sizeof digits;
  uint64_t rest = number < 0 ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  do digits[--at] = static_cast<char>('0' + rest % 10);
  while (rest /= 10);
  if (number < 0) digits[--at] = '-';
  return add(Slice{digits + at, sizeof digits - at});
}

}  // namespace resil
