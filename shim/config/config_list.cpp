// SPDX-License-Identifier: Apache-2.0
//
// The configuration table for the command `resil`, which loads this library into itself and asks: what the library
// would make of an environment, in its own words. Not in a process that the library is attached to, whose table must
// not change.
#include <cstring>

#include "shim/call/attach.h"
#include "shim/call/module_list.h"
#include "shim/config/config.h"

namespace resil {
namespace {

/// Fields end with kField, lines with kLine: characters that no value has.
constexpr char kField = 0x1f, kLine = 0x1e;

class Lines {
 public:
  Lines(char* buffer, size_t size) : buffer_(buffer), size_(size) {}
  Lines& field(const char* text) {
    for (; *text; ++text) put(*text == kField || *text == kLine ? '?' : *text);
    put(kField);
    return *this;
  }
  void end() { put(kLine); }
  size_t length() const { return length_; }

 private:
  void put(char c) {
    if (length_ < size_) buffer_[length_] = c;
    ++length_;
  }
  char* buffer_;
  size_t size_, length_ = 0;
};

const char* type_name(ConfigType type) {
  switch (type) {
    case ConfigType::kChoice: return "choice";
    case ConfigType::kChoices: return "choices";
    case ConfigType::kInteger: return "integer";
    case ConfigType::kReal: return "real";
    case ConfigType::kText: return "text";
    case ConfigType::kSignal: return "signal";
    case ConfigType::kSwitch: return "switch";
  }
  return "";
}

const char* origin_name(ConfigOrigin origin, const SiteFile& site) {
  switch (origin) {
    case ConfigOrigin::kDefault: return "default";
    case ConfigOrigin::kSite: return site.path;
    case ConfigOrigin::kEnvironment: return "environment";
  }
  return "";
}

}  // namespace
}  // namespace resil

#pragma GCC visibility push(default)
/// What `environment` (null-terminated array of NAME=VALUE) means, as lines of fields: "variable", name, type, allowed,
/// default, value in effect, origin, limit of the site, description; "mode", name, description, of those that modules
/// add; "warning", text; "error", text. Bytes needed, of which at most `size` are written; 0 in a process that the
/// library is attached to. One thread at a time.
extern "C" size_t resil_configuration(char* const* environment, char* buffer, size_t size) {
  using namespace resil;
  if (runtime_attached()) return 0;
  ConfigError error;
  Lines lines(buffer, size);
  const SiteFile site = site_file_read(environment);
  if (!config_load(environment, &error, site)) { lines.field("error").field(error.line).end(); }
  for (size_t i = 0; i < config_warning_count(); ++i) { lines.field("warning").field(config_warning(i)).end(); }
  for (size_t i = 0; i < config_count(); ++i) {
    const ConfigValue value = config_at(i);
    const ConfigEntry& entry = *value.entry;
    lines.field("variable").field(entry.name).field(type_name(entry.type));
    lines.field(entry.type == ConfigType::kSignal ? kSignalNames : value.allowed).field(entry.default_value);
    lines.field(value.text)
        .field(origin_name(value.origin, site))
        .field(value.limit != nullptr ? value.limit : "")
        .field(entry.description)
        .end();
  }
  for (const Module* module : modules())
    for (const ConfigEntry& entry : module->config)
      if (strcmp(entry.name, "RESIL_MODE+") == 0)
        lines.field("mode").field(entry.allowed).field(entry.description).end();
  return lines.length();
}
#pragma GCC visibility pop
