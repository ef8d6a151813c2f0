// SPDX-License-Identifier: Apache-2.0
//
// The documentation table of the configuration, as Markdown. Not part of the preloaded library.
#include <unistd.h>

#include <cstring>

#include "shim/call/module_list.h"
#include "shim/config/config.h"

namespace resil {
namespace {

class Writer {
 public:
  explicit Writer(int fd) : fd_(fd) {}
  ~Writer() { flush(); }

  Writer& add(Slice text) {
    for (size_t i = 0; i < text.size; ++i) {
      if (length_ == sizeof buffer_) flush();
      buffer_[length_++] = text.data[i];
    }
    return *this;
  }
  Writer& add(const char* text) { return add(slice_of(text)); }

 private:
  void flush() {
    size_t done = 0;
    while (done < length_) {
      ssize_t written = write(fd_, buffer_ + done, length_ - done);
      if (written <= 0) break;
      done += static_cast<size_t>(written);
    }
    length_ = 0;
  }

  int fd_;
  char buffer_[4096];
  size_t length_ = 0;
};

void add_allowed(Writer& out, const ConfigValue& value) {
  switch (value.entry->type) {
    case ConfigType::kText: out.add(value.allowed); return;
    case ConfigType::kSwitch: out.add("`0`, `1`"); return;
    case ConfigType::kSignal: out.add(kSignalNames); return;
    default: break;
  }
  Slice rest = slice_of(value.allowed), part;
  for (bool first = true; next_part(&rest, '|', &part); first = false) {
    double low, high;
    out.add(first ? "" : ", ");
    if (parse_range(part, &low, &high)) out.add(part);
    else out.add("`").add(part).add("`");
  }
  if (value.entry->type == ConfigType::kChoices) out.add("; a comma list");
}

}  // namespace

void config_print_markdown(int fd) {
  Writer out(fd);
  out.add("# Configuration\n\n");
  out.add("<!-- Written by resil-config-doc from the library's table; a test compares. Do not edit. -->\n\n");
  out.add("All settings are environment variables, read once in MPI_Init. A value that is not allowed stops the job\n");
  out.add("with one line on standard error and exit status 93. A variable that begins with `RESIL_` and is not in\n");
  out.add("this table is reported with the nearest name and has no effect. An empty value counts as not set.\n");
  out.add(
      "Below the environment there is a file of the site, `/etc/resil.conf`, if it exists: "
      "[INSTALL.md](INSTALL.md#site).\n\n");
  out.add("| variable | values | default | meaning |\n|---|---|---|---|\n");
  for (size_t i = 0; i < config_count(); ++i) {
    ConfigValue value = config_at(i);
    out.add("| `").add(value.entry->name).add("` | ");
    add_allowed(out, value);
    const char* preset = value.entry->default_value;
    out.add(" | ").add(*preset ? "`" : "none").add(preset).add(*preset ? "` | " : " | ");
    out.add(value.entry->description).add(" |\n");
  }
  out.add("\n## Modes\n\n| mode | meaning |\n|---|---|\n");
  out.add("| `off` | Calls go straight through; no files, no output. |\n");
  out.add("| `watch` | Flight recorder, dump on a signal, report. Part of every mode but `off`. |\n");
  for (const Module* module : modules())
    for (size_t i = 0; i < module->config_count; ++i)
      if (strcmp(module->config[i].name, "RESIL_MODE+") == 0)
        out.add("| `").add(module->config[i].allowed).add("` | ").add(module->config[i].description).add(" |\n");
}

}  // namespace resil
