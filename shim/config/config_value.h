// SPDX-License-Identifier: Apache-2.0
//
// One configuration value against its entry in the table: what it means, or what is wrong with it and what was
// probably meant. Pure functions of their arguments.
#pragma once

#include <cstdint>

#include "shim/call/module.h"
#include "shim/config/config_parse.h"

namespace resil {

struct ParsedValue {
  int64_t integer;  ///< see config_integer
  double real;  ///< kReal, kInteger
  uint64_t choices;  ///< bit i: the i-th allowed word
};

/// What is wrong with a value.
struct ValueProblem {
  const char* what = nullptr;  ///< "not a mode"
  Slice part{nullptr, 0};  ///< the element of a list that is wrong, when it is not the whole value
  char hint[72] = "";  ///< nearest allowed value, "" when none is near
};

/// ValueProblem::what for a word that is none of the alternatives.
extern const char kNotAllowed[];

/// Parses `text` (no blanks at its ends). `allowed` follows the grammar in config.h and may be longer than the entry's
/// own, see "RESIL_MODE+". False: `problem` is filled.
bool parse_value(ConfigType type, const char* allowed, Slice text, ParsedValue* value, ValueProblem* problem);

/// Position of `word` among the alternatives of `allowed`, ranges counted too; -1 when it is none.
int word_index(const char* allowed, Slice word);

/// Appends the alternatives of `allowed` whose bit is set in `mask`.
void add_words(Text& line, const char* allowed, const char* separator, uint64_t mask = ~uint64_t{0});

}  // namespace resil
