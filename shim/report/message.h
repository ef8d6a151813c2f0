// SPDX-License-Identifier: Apache-2.0
//
// The form of the message catalogue. What users read is written down once, as rows of these macros in the messages.h
// of its part (checksum/messages.h): the text with its printf format, what it means, what to do. docs/MESSAGES.md is
// made from the rows by shim/report/messages.py; the id of a message there is its part and name, checksum.no_memory.
//
// A row is a constant array of characters and nothing else: what it means is not compiled, and the compiler checks the
// format where the row is used, as it checks a literal.
//
// A text is a sentence for a user of HPC systems: noun first, number second, cause third, action last; one condition
// a sentence; active voice.
#pragma once

/// A line on standard error (`where`: log), a sentence in the report's `notes` (note), or both (log_note).
#define RESIL_MESSAGE(name, where, text, means, action) inline constexpr char name[] = text

/// The sentence of a finding and its "To do:" line, `name_to_do`; where that depends on evidence, the row says on which
/// and the lines are phrases.
#define RESIL_FINDING(name, text, means, to_do) \
  inline constexpr char name[] = text;          \
  inline constexpr char name##_to_do[] = to_do

/// A part of other rows' sentences; no entry of its own.
#define RESIL_PHRASE(name, text) inline constexpr char name[] = text

/// Why something was not checked or not done: a name in the report's counters, not a sentence.
#define RESIL_REASON(name, means, action) inline constexpr char name[] = #name
