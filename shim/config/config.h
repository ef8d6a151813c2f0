// SPDX-License-Identifier: Apache-2.0
//
// The configuration table: every RESIL_ variable of the core and of the modules, parsed once, with types.
//
// Grammar of ConfigEntry::allowed. kChoice, kChoices: words, "lazy|strict". kInteger, kReal: a range "1..64", "0.."
// and words, "1..1048576|off"; a word reads as 0. kText, kSignal: a phrase for messages. kSwitch: ignored (0, 1).
// ConfigEntry::check may refuse more, e.g. a text that has a grammar of its own; it is not asked about defaults.
// A default must itself be allowed, but for kText, where it may describe a value that is made later.
//
// Modes. A module adds a mode with an entry named "RESIL_MODE+", type kChoices, whose `allowed` is the mode's name and
// whose `description` says what the mode does. `watch` is part of every mode but `off`; `off` stands alone.
//
// Context: config_load runs on one thread, before any other function here; afterwards everything is constant and may
// be read from any thread and from signal handlers. No allocation; values are copied, so that the application may
// change its environment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/call/module.h"
#include "shim/config/config_parse.h"
#include "shim/config/site_file.h"

namespace resil {

/// Why the configuration cannot be used: one line for the user, without a newline.
struct ConfigError {
  char line[512];
};

/// Reads the RESIL_ variables of `environment` (null-terminated array of NAME=VALUE; the first of equal names counts;
/// an empty value counts as unset). False: `error` is filled and nothing must be looked up but defaults. Calling it
/// again starts over. `site` is below the environment: its defaults count where the environment has none, its lines
/// that cannot be meant become warnings, and what is beyond its limits is not allowed.
bool config_load(char* const* environment, ConfigError* error, const SiteFile& site = {});

/// Value as text: what the user wrote, else the default. kChoices: the choices in the table's order, joined by commas,
/// with `watch` added for RESIL_MODE. Unknown names: "".
const char* config_text(const char* name);

/// kInteger; kSwitch (0, 1); kSignal (signal number, 0 for off); kChoice (index among the allowed words). Else 0.
int64_t config_integer(const char* name);

/// kReal, kInteger; else 0.
double config_real(const char* name);

/// Whether `choice` is set in a kChoices list or is the value of a kChoice.
bool config_has(const char* name, const char* choice);

/// Whether the value is the default because neither the user nor the site gave one. Unknown names: true.
bool config_is_default(const char* name);

/// Whether the site's file gave the value, and the user none. Unknown names: false.
bool config_is_site(const char* name);

enum class ConfigOrigin : uint8_t { kDefault, kSite, kEnvironment };

/// Values for the report and for documentation, in the order core, modules. `allowed` has the added modes in it.
struct ConfigValue {
  const ConfigEntry* entry;
  const char* allowed;
  const char* text;
  bool is_default;
  ConfigOrigin origin;
  const char* limit;  ///< what the site leaves to users of `allowed`; null: all
};
size_t config_count();
ConfigValue config_at(size_t index);

/// Unknown RESIL_ variables and lines of the site's file that cannot be meant, each as one line for standard error
/// ("resil: ... is not a variable ..."); at most 16, the last one says how many more there were.
size_t config_warning_count();
const char* config_warning(size_t index);

/// Hash over names and values of all choices, numbers and switches but RESIL_LOG and RESIL_HELP: what steers how ranks
/// work together. Texts (paths) and signals may differ between ranks and are left out. Equal on ranks that agree; never
/// 0.
uint64_t config_hash();

}  // namespace resil
