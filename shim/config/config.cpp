// SPDX-License-Identifier: Apache-2.0
//
// The configuration table. May touch only its own fixed arrays; reads the environment and the site's text that it is
// given and nothing else.
#include "shim/config/config.h"

#include <cstdio>
#include <cstring>

#include "shim/call/module_list.h"
#include "shim/config/config_value.h"
#include "shim/config/site_file.h"
#include "shim/messages.h"

namespace resil {
namespace {

constexpr char kModeName[] = "RESIL_MODE";
constexpr char kAddedMode[] = "RESIL_MODE+";
constexpr char kConfName[] = "RESIL_CONF", kHelpName[] = "RESIL_HELP";
/// Variables that resil's own programs set for each other; never reported as unknown.
constexpr char kInternalPrefix[] = "RESIL_INTERNAL_";
/// What module files of package managers (Spack, EasyBuild) set for any package; likewise.
constexpr const char* kOfModuleFiles[] = {"RESIL_ROOT", "RESIL_VERSION"};

constexpr ConfigEntry kCore[] = {
    {kModeName, ConfigType::kChoices, "off|watch", "watch",
     "What resil does. `off` does nothing; `watch` keeps the flight recorder, dumps and reports, and is part of every "
     "mode but `off`."},
    {"RESIL_DIR", ConfigType::kText, "a directory; made when it does not exist", "./resil-PROGRAM-TIME-JOB.LAUNCH",
     "Directory of the reports of one launch; where it has those of another one, or belongs to another user, a "
     "directory "
     "with the default name is made in it. TIME is when the launcher started, in UTC, to the minute. JOB is the "
     "scheduler's job id (of an array ARRAY_TASK) and is left out without one; LAUNCH is the step, the PMIx namespace "
     "or "
     "the PMI name, else a process id. A spawned world writes to `world-N/`."},
    {"RESIL_FILES", ConfigType::kChoice, "node|rings|all", "node",
     "What a job leaves in its directory. `node`: the reports of a node's ranks in one file; flight recorders only "
     "where "
     "something was found, or a rank did not come to the end of MPI_Finalize. `rings`: the recorders of all ranks, "
     "too. "
     "`all`: a report file and a recorder a rank (reports up to 64 ranks a node and 1,024 a job)."},
    {"RESIL_LOG", ConfigType::kChoice, "quiet|info|debug", "info",
     "What is printed on standard error: `quiet` only findings and errors, `info` one closing line more, `debug` notes "
     "for the developers of resil."},
    {kHelpName, ConfigType::kSwitch, "", "0",
     "Rank 0 prints this table on standard error in MPI_Init, and the job goes on. `resil help` prints it without a "
     "job."},
    {kConfName, ConfigType::kText, "a file, or off", kSiteFile,
     "Settings of the site, below those of the environment, and limits to these: docs/INSTALL.md. Read once in "
     "MPI_Init. "
     "Believed if it belongs to root or to the user, and nobody else may write to it."},
    {"RESIL_NODE_RANKS", ConfigType::kInteger, "1..1048576|off", "off",
     "Pretend that every N ranks share a node (for tests)."},
};

constexpr size_t kMaxValues = 96;
constexpr size_t kMaxWarnings = 16;
constexpr size_t kWarningBytes = 256;
constexpr char kBeyondLimit[] = "beyond what this site allows";
constexpr char kTooLong[] = "too long (all values together may take 8000 bytes)";

struct Value {
  const ConfigEntry* entry;
  const char* allowed;  ///< entry->allowed, with the added modes for RESIL_MODE
  const char* limit;  ///< alternatives that the site leaves to users; null: all
  const char* text;
  ParsedValue parsed;
  ConfigOrigin origin;
};

struct Table {
  Value values[kMaxValues];
  size_t count;
  char warnings[kMaxWarnings][kWarningBytes];
  size_t warning_count;
  size_t unknown;
  char arena[8192];
  size_t arena_used;
};

Table table;

/// A copy in the arena; null when it is full.
const char* keep(Slice text) {
  if (text.size >= sizeof table.arena - table.arena_used) return nullptr;
  char* copy = table.arena + table.arena_used;
  memcpy(copy, text.data, text.size);
  copy[text.size] = 0;
  table.arena_used += text.size + 1;
  return copy;
}

Value* find(Slice name) {
  for (size_t i = 0; i < table.count; ++i)
    if (name == table.values[i].entry->name) return &table.values[i];
  return nullptr;
}

Value* find(const char* name) { return find(slice_of(name)); }

bool is_mode(const Value& value) { return value.entry->name == static_cast<const char*>(kModeName); }

/// Parses, and puts lists into the table's order, so that ranks that mean the same also say the same.
bool parse(Value* value, Slice text, ValueProblem* problem) {
  if (!parse_value(value->entry->type, value->allowed, text, &value->parsed, problem)) {
    if (is_mode(*value) && problem->what == kNotAllowed) problem->what = "not a mode";
    return false;
  }
  if (value->origin != ConfigOrigin::kDefault && value->entry->check && !value->entry->check(text, problem))
    return false;
  if (value->entry->type != ConfigType::kChoices) return true;
  uint64_t& set = value->parsed.choices;
  if (is_mode(*value) && !(set >> word_index(value->allowed, slice_of("off")) & 1))
    set |= uint64_t{1} << word_index(value->allowed, slice_of("watch"));
  char words[512];
  Text list(words, sizeof words);
  add_words(list, value->allowed, ",", set);
  value->text = keep({words, list.length()});
  if (!value->text) problem->what = kTooLong;
  return value->text;
}

void describe(const Value& value, Slice given, const ValueProblem& problem, ConfigError* error) {
  const bool cut = given.size > 80;
  const Slice& part = problem.part;
  char words[sizeof error->line];
  Text list(words, sizeof words);
  if (problem.what == kBeyondLimit) add_words(list, value.limit, ", ");
  else if (value.entry->type == ConfigType::kSignal) list.add(kSignalNames);
  else if (value.entry->type == ConfigType::kSwitch) list.add("0, 1");
  else add_words(list, value.allowed, ", ");
  const bool hint = problem.hint[0] != 0;
  char shown[96], shown_part[64];  // without control characters
  Text(shown, sizeof shown).add(cut ? Slice{given.data, 80} : given);
  Text(shown_part, sizeof shown_part).add(part.size > 40 ? Slice{part.data, 40} : part);
  if (snprintf(error->line, sizeof error->line, messages::core::value_not_allowed, value.entry->name, shown,
               cut ? "..." : "", part.data ? "'" : "", shown_part, part.data ? "' is " : "", problem.what, words,
               hint ? " (did you mean " : "", problem.hint, hint ? "?)" : "") < 0)
    error->line[0] = 0;
}

void add_entry(const ConfigEntry& entry) {
  if (find(entry.name) || table.count == kMaxValues) return;
  Value& value = table.values[table.count++];
  value = {};
  value.entry = &entry;
  value.allowed = entry.allowed;
  value.text = entry.default_value;
  value.origin = ConfigOrigin::kDefault;
}

/// "off|watch" and every "RESIL_MODE+".
void add_modes() {
  char words[512];
  Text list(words, sizeof words);
  list.add(kCore[0].allowed);
  for (const Module* module : modules())
    for (const ConfigEntry& entry : module->config)
      if (strcmp(entry.name, kAddedMode) == 0 && word_index(words, slice_of(entry.allowed)) < 0)
        list.add("|").add(entry.allowed);
  if (const char* kept = keep({words, list.length()})) find(kModeName)->allowed = kept;
}

void warn_unknown(Slice name) {
  for (const char* other : kOfModuleFiles)
    if (name == other) return;
  if (table.warning_count == kMaxWarnings) {
    ++table.unknown;
    snprintf(table.warnings[kMaxWarnings - 1], kWarningBytes, messages::core::more_unknown_variables,
             table.unknown - kMaxWarnings + 1);
    return;
  }
  ++table.unknown;
  // The prefix that all have says nothing: RESIL_TYPO is not near RESIL_GPU.
  constexpr size_t kPrefix = sizeof("RESIL_") - 1;
  const auto rest = [](Slice all) { return all.size > kPrefix ? Slice{all.data + kPrefix, all.size - kPrefix} : all; };
  Nearest nearest(rest(name));
  for (size_t i = 0; i < table.count; ++i) nearest.offer(rest(slice_of(table.values[i].entry->name)));
  Slice near = nearest.found();
  if (near.data) near = {near.data - kPrefix, near.size + kPrefix};
  char shown[80];  // without control characters
  Text(shown, sizeof shown).add(name.size > 64 ? Slice{name.data, 64} : name);
  if (snprintf(table.warnings[table.warning_count++], kWarningBytes, messages::core::unknown_variable, shown,
               near.data ? " (did you mean " : "", static_cast<int>(near.size), near.data ? near.data : "",
               near.data ? "?)" : "") < 0)
    table.warnings[table.warning_count - 1][0] = 0;
}

/// Whether every word that the user chose, or the number, is among what the site leaves to users.
bool within_limit(const Value& value) {
  if (!value.limit) return true;
  switch (value.entry->type) {
    case ConfigType::kInteger:
    case ConfigType::kReal: {
      if (word_index(value.limit, slice_of(value.text)) >= 0) return true;
      Slice rest = slice_of(value.limit), part;
      double low, high;
      while (next_part(&rest, '|', &part))
        if (parse_range(part, &low, &high) && value.parsed.real >= low && value.parsed.real <= high) return true;
      return false;
    }
    case ConfigType::kChoices: {
      Slice rest = slice_of(value.text), part;
      while (next_part(&rest, ',', &part))  // watch is part of every mode but off, asked for or not
        if (word_index(value.limit, part) < 0 && !(is_mode(value) && part == "watch")) return false;
      return true;
    }
    case ConfigType::kSignal: {  // SIGUSR1 is USR1
      Slice rest = slice_of(value.limit), part;
      char name[16];
      while (next_part(&rest, '|', &part)) {
        Text(name, sizeof name).add(part);
        if (signal_number(name) == value.parsed.integer) return true;
      }
      return false;
    }
    default: return word_index(value.limit, slice_of(value.text)) >= 0;
  }
}

/// A limit must itself be made of what the table allows.
bool good_limit(const Value& value, Slice limit) {
  Slice rest = limit, part;
  while (next_part(&rest, '|', &part)) {
    double low, high;
    ParsedValue parsed;
    ValueProblem ignored;
    const ConfigType type = value.entry->type;
    const bool number = type == ConfigType::kInteger || type == ConfigType::kReal;
    if (type == ConfigType::kText || !part.size) return false;
    if (number && parse_range(part, &low, &high)) continue;
    if (!parse_value(type, value.allowed, part, &parsed, &ignored)) return false;
  }
  return limit.size != 0;
}

void warn_line(const SiteFile& file, size_t number, const char* what, Slice about, const char* hint = "") {
  if (table.warning_count == kMaxWarnings) return;
  char shown[80], path[80];  // without control characters
  Text(shown, sizeof shown).add(about.size > 64 ? Slice{about.data, 64} : about);
  Text(path, sizeof path).add(file.path);
  if (snprintf(table.warnings[table.warning_count++], kWarningBytes, messages::core::site_line, path, number, shown,
               what, *hint ? " (did you mean " : "", hint, *hint ? "?)" : "") < 0)
    table.warnings[table.warning_count - 1][0] = 0;
}

/// A line of the site's file: what cannot be meant is named, and ignored.
void take_line(const SiteFile& file, size_t number, const SiteLine& line) {
  if (line.kind == SiteLine::kNothing) return;
  if (line.kind == SiteLine::kMalformed) return warn_line(file, number, "not NAME=VALUE", line.name);
  Value* value = find(line.name);
  if (!value || value->entry->name == static_cast<const char*>(kConfName))
    return warn_line(file, number, value ? "cannot be set in the file" : "not a variable of resil", line.name);
  if (line.kind == SiteLine::kLimit) {
    const char* kept = good_limit(*value, line.value) ? keep(line.value) : nullptr;
    if (!kept) return warn_line(file, number, "not a limit of that variable", line.value);
    value->limit = kept;
    return;
  }
  if (value->origin != ConfigOrigin::kDefault) return warn_line(file, number, "set twice", line.name);
  const Value before = *value;
  ValueProblem problem;
  value->origin = ConfigOrigin::kSite;
  value->text = keep(line.value);
  if (!value->text) problem.what = kTooLong;
  else if (parse(value, line.value, &problem)) return;
  *value = before;
  warn_line(file, number, problem.what, line.value, problem.hint);
}

void take_file(const SiteFile& file) {
  if (file.problem != nullptr && table.warning_count < kMaxWarnings) {
    char shown[96];
    Text(shown, sizeof shown).add(file.path);
    if (snprintf(table.warnings[table.warning_count++], kWarningBytes, messages::core::site_file, shown, file.problem) <
        0)
      table.warnings[table.warning_count - 1][0] = 0;
  }
  Slice rest = file.text, line;
  for (size_t number = 1; rest.data != nullptr && next_part(&rest, '\n', &line); ++number)
    take_line(file, number, site_line(line));
}

bool set_value(Value* value, Slice given, ConfigError* error) {
  ValueProblem problem;
  value->origin = ConfigOrigin::kEnvironment;
  // Paths may begin with a blank; everything else is read without blanks at the ends.
  Slice text = value->entry->type == ConfigType::kText ? given : trimmed(given);
  value->text = keep(text);
  if (!value->text) problem.what = kTooLong;
  if (value->text && parse(value, text, &problem)) {
    if (within_limit(*value)) return true;
    problem.what = kBeyondLimit;
  }
  describe(*value, given, problem, error);
  value->text = value->entry->default_value;
  return false;
}

}  // namespace

bool config_load(char* const* environment, ConfigError* error, const SiteFile& site) {
  memset(&table, 0, sizeof table);
  error->line[0] = 0;
  for (const ConfigEntry& entry : kCore) add_entry(entry);
  add_modes();
  for (const Module* module : modules())
    for (const ConfigEntry& entry : module->config)
      if (strcmp(entry.name, kAddedMode) != 0) add_entry(entry);
  for (size_t i = 0; i < table.count; ++i) {
    ValueProblem ignored;  // a text default may not parse; others are proved to parse by the unit test
    parse(&table.values[i], slice_of(table.values[i].text), &ignored);
  }
  take_file(site);
  bool good = true;
  for (; environment && *environment; ++environment) {
    if (strncmp(*environment, "RESIL_", 6) != 0) continue;
    const char* equals = strchr(*environment, '=');
    if (!equals) continue;
    Slice name{*environment, static_cast<size_t>(equals - *environment)};
    Slice text = slice_of(equals + 1);
    if (strncmp(*environment, kInternalPrefix, sizeof kInternalPrefix - 1) == 0) continue;
    Value* value = find(name);
    if (!value) warn_unknown(name);
    else if (trimmed(text).size && value->origin != ConfigOrigin::kEnvironment && good)
      good = set_value(value, text, error);
  }
  return good;
}

const char* config_text(const char* name) {
  const Value* value = find(name);
  return value ? value->text : "";
}

int64_t config_integer(const char* name) {
  const Value* value = find(name);
  return value ? value->parsed.integer : 0;
}

double config_real(const char* name) {
  const Value* value = find(name);
  return value ? value->parsed.real : 0;
}

bool config_has(const char* name, const char* choice) {
  const Value* value = find(name);
  if (!value) return false;
  int index = word_index(value->allowed, slice_of(choice));
  return index >= 0 && (value->parsed.choices >> index & 1);
}

bool config_is_default(const char* name) {
  const Value* value = find(name);
  return !value || value->origin == ConfigOrigin::kDefault;
}

bool config_is_site(const char* name) {
  const Value* value = find(name);
  return value && value->origin == ConfigOrigin::kSite;
}

size_t config_count() { return table.count; }

ConfigValue config_at(size_t index) {
  const Value& value = table.values[index];
  return {value.entry, value.allowed, value.text, value.origin == ConfigOrigin::kDefault, value.origin, value.limit};
}

size_t config_warning_count() { return table.warning_count; }

const char* config_warning(size_t index) { return table.warnings[index]; }

uint64_t config_hash() {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  auto mix = [&hash](const char* text) {
    do hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3;
    while (*text++);
  };
  for (size_t i = 0; i < table.count; ++i) {
    const Value& value = table.values[i];
    if (value.entry->type == ConfigType::kText || value.entry->type == ConfigType::kSignal) continue;
    if (strcmp(value.entry->name, "RESIL_LOG") == 0 || strcmp(value.entry->name, kHelpName) == 0) continue;
    mix(value.entry->name);
    mix(value.text);
  }
  return hash ? hash : 1;
}

}  // namespace resil
