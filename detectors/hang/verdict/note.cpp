// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/verdict/note.h"

#include "detectors/hang/verdict/format.h"
#include "shim/report/log.h"

namespace resil::hang {

void note(Message id, uint64_t first, uint64_t second) {
  Statement statement = statement_of(id);
  statement.n[0] = first;
  statement.n[1] = second;
  char text[256];
  explain(statement, {}, text, sizeof(text));
  add_note_format("hang: %s", text);
}

void print(Message id) {
  char text[256];
  explain(statement_of(id), {}, text, sizeof(text));
  log_format("%s", text);
}

}  // namespace resil::hang
