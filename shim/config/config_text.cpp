// SPDX-License-Identifier: Apache-2.0
//
// See config_text.h. Touches nothing but the buffers that it is given.
#include "shim/config/config_text.h"

#include <cstring>
#include <initializer_list>

#include "shim/base/version.h"
#include "shim/config/config.h"

namespace resil {
namespace {

constexpr size_t kColumns = 100, kIndent = 4;
constexpr char kOfTheShell[] = "%+,-./:=@_";  // and letters and digits: what sh takes as it stands

class Page {
 public:
  Page(char* text, size_t size) : text_(text), size_(size) { text_[0] = 0; }
  Page& add(const char* part) { return add(part, strlen(part)); }
  Page& add(const char* part, size_t length) {
    for (size_t i = 0; i < length && length_ + 1 < size_; ++i) text_[length_++] = part[i];
    text_[length_] = 0;
    return *this;
  }
  /// Words on lines of at most kColumns, indented.
  void paragraph(const char* words) {
    size_t column = 0;
    while (*words != 0) {
      const size_t length = strcspn(words, " ");
      if (length == 0) {
        ++words;
        continue;
      }
      if (column != 0 && column + 1 + length > kColumns) {
        add("\n");
        column = 0;
      }
      column += column != 0 ? 1 + length : kIndent + length;
      add(column == kIndent + length ? "    " : " ").add(words, length);
      words += length;
    }
    add("\n");
  }
  /// As sh, and the file of a site, read it.
  void value(const char* value) {
    bool plain = *value != 0;
    for (const char* c = value; *c != 0; ++c)
      plain = plain && ((*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                        strchr(kOfTheShell, *c) != nullptr);
    if (plain) {
      add(value);
      return;
    }
    add("'");
    for (; *value != 0; ++value) *value == '\'' ? add("'\\''") : add(value, 1);
    add("'");
  }
  void printable(const char* path) {
    for (; *path != 0; ++path) static_cast<unsigned char>(*path) < ' ' ? add("?") : add(path, 1);
  }
  size_t length() const { return length_; }

 private:
  char* text_;
  size_t size_, length_ = 0;
};

}  // namespace

size_t config_help(size_t index, char* text, size_t size) {
  const ConfigValue value = config_at(index);
  char words[1024];
  Page allowed(words, sizeof words), page(text, size);
  page.add(value.entry->name).add("\n");
  allowed.add("Values: ");
  switch (value.entry->type) {
    case ConfigType::kText: allowed.add(value.allowed); break;
    case ConfigType::kSwitch: allowed.add("0, 1"); break;
    case ConfigType::kSignal: allowed.add(kSignalNames); break;
    default:
      for (const char* c = value.allowed; *c != 0; ++c) *c == '|' ? allowed.add(", ") : allowed.add(c, 1);
      if (value.entry->type == ConfigType::kChoices) allowed.add("; a comma list");
  }
  const char* preset = value.entry->default_value;
  allowed.add(". Default: ").add(*preset != 0 ? preset : "none").add(".");
  page.paragraph(words);
  page.paragraph(value.entry->description);
  return page.length();
}

size_t config_run_file(const char* site, char* text, size_t size) {
  Page page(text, size);
  page.add("# Settings of this job, resil ").add(kVersionText).add(". The same again: set -a; . FILE; set +a\n");
  for (ConfigOrigin origin : {ConfigOrigin::kEnvironment, ConfigOrigin::kSite, ConfigOrigin::kDefault}) {
    bool first = true;
    for (size_t i = 0; i < config_count(); ++i) {
      const ConfigValue value = config_at(i);
      if (value.origin != origin) continue;
      if (first) {
        page.add("\n# ");
        if (origin == ConfigOrigin::kSite) page.printable(site);
        else page.add(origin == ConfigOrigin::kEnvironment ? "environment" : "default");
        page.add("\n");
      }
      first = false;
      // A default may be a description, or follow from another setting: as a comment it stays a default.
      if (origin == ConfigOrigin::kDefault) page.add("# ");
      page.add(value.entry->name).add("=");
      if (origin == ConfigOrigin::kDefault) page.add(value.text);
      else page.value(value.text);
      page.add("\n");
    }
  }
  return page.length();
}

}  // namespace resil
