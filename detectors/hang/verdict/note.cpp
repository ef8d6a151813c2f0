// SPDX-License-Identifier: Apache-2.0

#include "detectors/hang/verdict/note.h"

#include "detectors/hang/verdict/format.h"
#include "shim/report/log.h"

namespace resil::hang {

void note(const char* text) {
  char line[320];
  Text(line, sizeof(line)).add("hang: %s", text);
  add_note(line);
}

void note(Message id, uint64_t first, uint64_t second) {
  Statement statement = statement_of(id);
  statement.n[0] = first;
  statement.n[1] = second;
  char text[256];
  explain(statement, {}, text, sizeof(text));
  note(text);
}

void print(Message id) {
  char text[256];
  explain(statement_of(id), {}, text, sizeof(text));
  log_line(text);
}

}  // namespace resil::hang
