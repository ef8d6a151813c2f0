// SPDX-License-Identifier: Apache-2.0
//
// The module: RESIL_SIGNAL makes a rank say what it is doing, whatever it is doing. Here is only what happens in normal
// context: memory, installation, and telling the report when the signal belongs to somebody else. May touch: the
// disposition of one signal, the notes of the report.
#include "detectors/dump/dump.h"

#include "detectors/dump/handler.h"
#include "detectors/dump/messages.h"
#include "detectors/dump/python.h"
#include "detectors/dump/writer.h"
#include "shim/call/module.h"
#include "shim/call/runtime.h"
#include "shim/config/config.h"
#include "shim/report/log.h"
#include "shim/runtime/memory.h"
#include "shim/runtime/request_dump.h"
#include "shim/runtime/stacks/memory.h"
#include "shim/runtime/stacks/objects.h"

namespace resil {
namespace {

using dump::Disposition;

bool prepared = false;
bool takeover_noted = false;
int signal_number_used = 0;

/// "SIGHUP" as a text of the message, or a path without what a terminal would obey.
struct Shown {
  char text[520];
  explicit Shown(int signal_number) {
    SafeText out(text, sizeof text - 1, -1);
    dump::put_signal(out, signal_number);
    text[out.size()] = 0;
  }
  explicit Shown(const char* path) {
    SafeText out(text, sizeof text - 1, -1);
    out.safe(path, 512);
    text[out.size()] = 0;
  }
};

/// Looks whether somebody took the signal after MPI_Init; says so once.
void note_takeover() {
  if (signal_number_used == 0 || takeover_noted) return;
  char path[512];
  const Disposition now = dump::current_disposition(path, sizeof path);
  if (now == Disposition::kOurs) return;
  takeover_noted = true;
  if (now == Disposition::kDefault) add_note_format(messages::dump::reset, Shown(signal_number_used).text);
  else if (now == Disposition::kIgnored) add_note_format(messages::dump::ignored, Shown(signal_number_used).text);
  else add_note_format(messages::dump::taken, Shown(signal_number_used).text, Shown(path).text);
}

void before_init() {
  if (prepared) return;
  prepared = true;
  auto* workspace = memory::map_array<dump::Workspace>();  // zero is a valid start of everything in it
  if (workspace == nullptr) {
    add_note(messages::dump::no_memory);
    return;
  }
  dump::prepare_objects();
  dump::prepare_python();
  if (!dump::prepare_memory()) add_note(messages::dump::no_stacks);
  dump::rehearse(workspace);
  signal_number_used = static_cast<int>(config_integer("RESIL_SIGNAL"));
  if (!dump::install_handler(signal_number_used, workspace)) {
    add_note_format(messages::dump::not_caught, Shown(signal_number_used).text);
    signal_number_used = 0;
  }
  request_dump = dump_now;
}

void after_init() {
  dump::prepare_objects();  // MPI has loaded its plug-ins
  if (signal_number_used == 0) return;
  char path[512];
  const Disposition now = dump::current_disposition(path, sizeof path);
  if (now == Disposition::kUcx) {
    if (!dump::install_handler_again())
      add_note_format(messages::dump::not_taken_back, Shown(signal_number_used).text, Shown(path).text);
  } else if (now == Disposition::kOther) {
    takeover_noted = true;
    add_note_format(messages::dump::taken_by_mpi, Shown(signal_number_used).text, Shown(path).text);
  } else {
    note_takeover();
  }
}

void report(JsonWriter&) { note_takeover(); }

constexpr ConfigEntry kConfig[] = {
    {"RESIL_SIGNAL", ConfigType::kSignal, "a signal such as HUP, USR1, USR2 or RTMIN+n, or off", "HUP",
     "Signal that makes a rank write a state dump (dump-*.txt) and go on."},
};

constexpr Module make_module() {
  Module module{};
  module.name = "dump";
  module.description = "State dump on a signal: current call, pending requests, stacks of all threads";
  module.stage = Stage::kWatch;
  module.config = kConfig;
  module.before_init = before_init;
  module.after_init = after_init;
  module.before_finalize = note_takeover;
  module.report = report;
  return module;
}

constexpr Module kModule = make_module();
RESIL_MODULE(kModule);

}  // namespace
}  // namespace resil
