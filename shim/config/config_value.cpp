// SPDX-License-Identifier: Apache-2.0
//
// See config_value.h. May touch nothing but its arguments.
#include "shim/config/config_value.h"

#include <cstring>
#include <initializer_list>

namespace resil {
namespace {

void set_hint(ValueProblem* problem, Slice hint) { Text(problem->hint, sizeof problem->hint).add(hint); }

void hint_from_words(ValueProblem* problem, const char* allowed, Slice wanted) {
  Nearest nearest(wanted);
  Slice rest = slice_of(allowed), part;
  double low, high;
  while (next_part(&rest, '|', &part))
    if (!parse_range(part, &low, &high)) nearest.offer(part);
  set_hint(problem, nearest.found());
}

bool parse_choice(const char* allowed, Slice text, ParsedValue* value, ValueProblem* problem) {
  int index = word_index(allowed, text);
  if (index < 0) {
    problem->what = kNotAllowed;
    hint_from_words(problem, allowed, text);
    return false;
  }
  value->integer = index;
  value->choices = uint64_t{1} << index;
  return true;
}

bool parse_choices(const char* allowed, Slice text, ParsedValue* value, ValueProblem* problem) {
  uint64_t set = 0;
  Slice rest = text, part;
  while (next_part(&rest, ',', &part)) {
    part = trimmed(part);
    if (!part.size) continue;
    int index = word_index(allowed, part);
    if (index < 0) {
      problem->what = kNotAllowed;
      if (part.size != text.size) problem->part = part;
      hint_from_words(problem, allowed, part);
      return false;
    }
    set |= uint64_t{1} << index;
  }
  int off = word_index(allowed, slice_of("off"));
  if (!set) {
    problem->what = "an empty list";
  } else if (off >= 0 && (set >> off & 1) && set != uint64_t{1} << off) {
    problem->what = "'off' together with something else";
  } else {
    value->choices = set;
    return true;
  }
  return false;
}

bool parse_number(bool whole, const char* allowed, Slice text, ParsedValue* value, ValueProblem* problem) {
  double low, high, number = 0;
  int64_t integer = 0;
  if (word_index(allowed, text) >= 0 && !parse_range(text, &low, &high)) return true;  // a word: reads as 0
  if (whole ? !parse_integer(text, &integer) : !parse_real(text, &number)) {
    problem->what = whole ? "not a whole number" : "not a number";
    hint_from_words(problem, allowed, text);
    return false;
  }
  if (whole) number = static_cast<double>(integer);
  Slice rest = slice_of(allowed), part;
  while (next_part(&rest, '|', &part)) {
    if (!parse_range(part, &low, &high)) continue;
    if (number >= low && number <= high) {
      value->integer = integer;
      value->real = number;
      return true;
    }
    // The nearer end, as it is written in the table.
    size_t dots = 0;
    while (memcmp(part.data + dots, "..", 2) != 0) ++dots;
    set_hint(problem, number < low ? Slice{part.data, dots} : Slice{part.data + dots + 2, part.size - dots - 2});
  }
  problem->what = "out of range";
  return false;
}

bool parse_signal(Slice text, ParsedValue* value, ValueProblem* problem) {
  char name[16];
  value->integer = text.size < sizeof name ? (Text(name, sizeof name).add(text), signal_number(name)) : -1;
  if (value->integer >= 0) return true;
  problem->what = "not a signal that can be used";
  bool prefixed = text.size > 3 && edit_distance({text.data, 3}, slice_of("SIG")) == 0;
  Nearest nearest(prefixed ? Slice{text.data + 3, text.size - 3} : text);
  nearest.offer(slice_of("off"));
  for_each_signal_name(
      [](const char* candidate, void* context) {
        static_cast<Nearest*>(context)->offer(slice_of(candidate));
        return true;
      },
      &nearest);
  set_hint(problem, nearest.found());
  return false;
}

bool parse_switch(Slice text, ParsedValue* value, ValueProblem* problem) {
  if (text == "0" || text == "1") {
    value->integer = *text.data - '0';
    return true;
  }
  problem->what = "neither 0 nor 1";
  for (const char* yes : {"on", "yes", "true"})
    if (edit_distance(text, slice_of(yes)) == 0) set_hint(problem, slice_of("1"));
  for (const char* no : {"off", "no", "false"})
    if (edit_distance(text, slice_of(no)) == 0) set_hint(problem, slice_of("0"));
  return false;
}

}  // namespace

const char kNotAllowed[] = "not one of the allowed values";

bool parse_value(ConfigType type, const char* allowed, Slice text, ParsedValue* value, ValueProblem* problem) {
  *value = {};
  switch (type) {
    case ConfigType::kChoice: return parse_choice(allowed, text, value, problem);
    case ConfigType::kChoices: return parse_choices(allowed, text, value, problem);
    case ConfigType::kInteger: return parse_number(true, allowed, text, value, problem);
    case ConfigType::kReal: return parse_number(false, allowed, text, value, problem);
    case ConfigType::kSignal: return parse_signal(text, value, problem);
    case ConfigType::kSwitch: return parse_switch(text, value, problem);
    case ConfigType::kText: return true;
  }
  return true;
}

int word_index(const char* allowed, Slice word) {
  Slice rest = slice_of(allowed), part;
  for (int index = 0; next_part(&rest, '|', &part); ++index)
    if (part.size == word.size && memcmp(part.data, word.data, word.size) == 0) return index;
  return -1;
}

void add_words(Text& line, const char* allowed, const char* separator, uint64_t mask) {
  Slice rest = slice_of(allowed), part;
  bool first = true;
  for (int index = 0; next_part(&rest, '|', &part); ++index) {
    if (!(mask >> index & 1)) continue;
    line.add(first ? "" : separator).add(part);
    first = false;
  }
}

}  // namespace resil
