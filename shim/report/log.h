// SPDX-License-Identifier: Apache-2.0
//
// What resil says. Standard error only, one write(2) a message; notes go to the rank's report instead.
#pragma once

#include <cstddef>

namespace resil {

/// From now on messages go only to what is standard error now, or to what is standard output. Once, at first.
void log_begin();

/// From now on messages go to what is standard error now, whatever becomes of it. Once, before that.
void log_apart();

/// "resil: TEXT\n" on standard error. Async-signal-safe.
void log_line(const char* text);
/// Before the job is ended: waits until the launcher has read what was written, where standard error is a pipe; at most
/// 220 ms. MPICH's launcher drops what it has not read when a rank calls MPI_Abort. Not for signal handlers.
void log_taken();

/// TEXT and a newline, as it is. Async-signal-safe.
void log_raw(const char* text);

/// TEXT as it is, whole lines.
void log_text(const char* text);

/// Several lines: TEXT, which must not end with a newline, whole and in one write. An empty line comes first: what the
/// program has written there may have left its line open, and nobody can tell. Async-signal-safe.
void log_block(const char* text);

/// Bytes of the first sentence of TEXT, its full stop included, for blocks that give each one a line.
/// Async-signal-safe.
size_t sentence_bytes(const char* text);

/// Formats like printf into one line; not async-signal-safe.
[[gnu::format(printf, 1, 2)]] void log_format(const char* format, ...);

/// Adds a sentence to "notes" of this rank's report; kept in fixed memory, later ones are dropped and counted.
/// Equal sentences are kept once. Any thread, no signal handler.
void add_note(const char* text);
[[gnu::format(printf, 1, 2)]] void add_note_format(const char* format, ...);

unsigned note_count();
const char* note_text(unsigned index);
unsigned notes_dropped();

}  // namespace resil
