// SPDX-License-Identifier: Apache-2.0
//
// Parsers of single configuration values, and the "did you mean" search. Pure functions of their arguments: no
// allocation, no locale (strtod would read the decimal point of the application's setlocale), no global state.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

/// A piece of text that need not end with a zero byte.
struct Slice {
  const char* data;
  size_t size;

  bool operator==(const char* text) const;
};

/// Without blanks at either end.
Slice trimmed(Slice text);
Slice slice_of(const char* text);

/// Takes the part before the first `separator` off `rest`; false when `rest` is used up (rest.data becomes null).
bool next_part(Slice* rest, char separator, Slice* part);

/// Whole number with optional sign; false for anything else, overflow included.
bool parse_integer(Slice text, int64_t* value);

/// Decimal number "12", "-0.5", "1e-3"; false for anything else ("inf", "nan" and hexadecimal included).
bool parse_real(Slice text, double* value);

/// "1..64", "0.1..10", "0.." (no upper end) into its two ends; false if it is not a range.
bool parse_range(Slice text, double* low, double* high);

/// Number of a signal that may carry the dump: "HUP", "SIGHUP" (any case), "RTMIN+3", "RTMAX-1"; 0 for "off"; -1 for
/// anything else. Signals that cannot be caught, that report a fault of the program (SEGV, ABRT, ...) or that the
/// program must see (CHLD, PIPE, ...) are refused. Numbers are refused: they differ between architectures.
int signal_number(const char* name);

/// The list of names that signal_number takes, for messages and documentation.
extern const char kSignalNames[];

/// Calls `visit(name, context)` for every signal name without "SIG"; `visit` returns false to stop.
void for_each_signal_name(bool (*visit)(const char* name, void* context), void* context);

/// Edits (insert, delete, replace, swap of neighbours) between two names, ignoring case; names above 63 bytes count
/// as infinitely far.
unsigned edit_distance(Slice left, Slice right);

/// Best candidate so far for a mistyped name.
class Nearest {
 public:
  explicit Nearest(Slice wanted) : wanted_(wanted) {}
  void offer(Slice candidate);
  /// The nearest candidate, or {nullptr, 0} when none is near enough to be worth proposing.
  Slice found() const;

 private:
  Slice wanted_;
  Slice best_{nullptr, 0};
  unsigned distance_ = ~0u;
};

/// Appends to a fixed buffer, cuts at its end, always zero-terminated; bytes below blank become '?'.
class Text {
 public:
  Text(char* buffer, size_t size) : buffer_(buffer), size_(size) { buffer_[0] = 0; }
  Text& add(Slice text);
  Text& add(const char* text) { return add(slice_of(text)); }
  Text& add(int64_t number);
  size_t length() const { return length_; }

 private:
  char* buffer_;
  size_t size_;
  size_t length_ = 0;
};

}  // namespace resil
