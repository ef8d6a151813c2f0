// SPDX-License-Identifier: Apache-2.0
//
// The configuration table. May touch only its own fixed arrays; reads the environment it is given and nothing else.
#include "shim/config.h"

#include <cstring>

#include "shim/module_list.h"

namespace resil {
namespace {

constexpr char kModeName[] = "RESIL_MODE";
constexpr char kAddedMode[] = "RESIL_MODE+";
/// Variables that resil's own programs set for each other; never reported as unknown.
constexpr char kInternalPrefix[] = "RESIL_INTERNAL_";

constexpr ConfigEntry kCore[] = {
    {kModeName, ConfigType::kChoices, "off|watch", "watch",
     "What resil does; a comma list. `off` does nothing; `watch` keeps the flight recorder, dumps and reports, and is "
     "part of every mode but `off`."},
    {"RESIL_DIR", ConfigType::kText, "a directory; made when it does not exist", "./resil-JOBID.LAUNCH",
     "Directory of the reports. JOBID is the scheduler's job id and is left out without one; LAUNCH is the step, the "
     "PMIx namespace or the PMI name, else the process id of rank 0's parent. A spawned world writes to `world-N/`."},
    {"RESIL_LOG", ConfigType::kChoice, "quiet|info|debug", "info",
     "What is printed on standard error: `quiet` only findings and errors, `info` one closing line more, `debug` notes "
     "for the developers of resil."},
    {"RESIL_NODE_RANKS", ConfigType::kInteger, "1..1048576|off", "off",
     "Pretend that every N ranks share a node (for tests)."},
};

constexpr size_t kMaxValues = 96;
constexpr size_t kMaxWarnings = 16;
constexpr size_t kWarningBytes = 160;

struct Value {
  const ConfigEntry* entry;
  const char* allowed;  ///< entry->allowed, with the added modes for RESIL_MODE
  const char* text;
  int64_t integer;
  double real;
  uint64_t choices;  ///< bit i: the i-th allowed word
  bool is_default;
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

/// Position of `word` among the words of `allowed`, ranges counted too; -1 when it is none.
int word_index(const char* allowed, Slice word) {
  Slice rest = slice_of(allowed), part;
  for (int index = 0; next_part(&rest, '|', &part); ++index)
    if (part.size == word.size && memcmp(part.data, word.data, word.size) == 0) return index;
  return -1;
}

void add_allowed_list(Text& line, const char* allowed) {
  Slice rest = slice_of(allowed), part;
  for (bool first = true; next_part(&rest, '|', &part); first = false) line.add(first ? "" : ", ").add(part);
}

/// What is wrong with a value, collected by the parsers below.
struct Problem {
  const char* what = nullptr;  ///< "not a mode"
  Slice part{nullptr, 0};      ///< the element of a list that is wrong, when it is not the whole value
  char hint[72] = "";          ///< nearest allowed value
};

void set_hint(Problem* problem, Slice hint) { Text(problem->hint, sizeof problem->hint).add(hint); }

void hint_from_words(Problem* problem, const char* allowed, Slice wanted) {
  Nearest nearest(wanted);
  Slice rest = slice_of(allowed), part;
  double low, high;
  while (next_part(&rest, '|', &part))
    if (!parse_range(part, &low, &high)) nearest.offer(part);
  set_hint(problem, nearest.found());
}

bool parse_choice(Value* value, Slice text, Problem* problem) {
  int index = word_index(value->allowed, text);
  if (index < 0) {
    problem->what = "not one of the allowed values";
    hint_from_words(problem, value->allowed, text);
    return false;
  }
  value->integer = index;
  value->choices = uint64_t{1} << index;
  return true;
}

bool parse_choices(Value* value, Slice text, Problem* problem) {
  bool modes = value->entry->name == static_cast<const char*>(kModeName);
  uint64_t set = 0;
  Slice rest = text, part;
  while (next_part(&rest, ',', &part)) {
    part = trimmed(part);
    if (!part.size) continue;
    int index = word_index(value->allowed, part);
    if (index < 0) {
      problem->what = modes ? "not a mode" : "not one of the allowed values";
      if (part.size != text.size) problem->part = part;
      hint_from_words(problem, value->allowed, part);
      return false;
    }
    set |= uint64_t{1} << index;
  }
  if (!set) {
    problem->what = "an empty list";
    return false;
  }
  int off = word_index(value->allowed, slice_of("off"));
  if (off >= 0 && (set >> off & 1) && set != uint64_t{1} << off) {
    problem->what = "'off' together with something else";
    return false;
  }
  if (modes && !(set >> off & 1)) set |= uint64_t{1} << word_index(value->allowed, slice_of("watch"));
  value->choices = set;
  // In the table's order, so that ranks that mean the same also say the same.
  char text_buffer[512];
  Text list(text_buffer, sizeof text_buffer);
  Slice words = slice_of(value->allowed);
  for (int index = 0; next_part(&words, '|', &part); ++index)
    if (set >> index & 1) list.add(list.length() ? "," : "").add(part);
  value->text = keep({text_buffer, list.length()});
  return true;
}

bool parse_number(Value* value, Slice text, Problem* problem) {
  bool whole = value->entry->type == ConfigType::kInteger;
  double number = 0;
  int64_t integer = 0;
  if (word_index(value->allowed, text) >= 0) {
    double low, high;
    if (!parse_range(text, &low, &high)) return true;  // a word: reads as 0
  }
  if (whole ? !parse_integer(text, &integer) : !parse_real(text, &number)) {
    problem->what = whole ? "not a whole number" : "not a number";
    hint_from_words(problem, value->allowed, text);
    return false;
  }
  if (whole) number = static_cast<double>(integer);
  Slice rest = slice_of(value->allowed), part;
  while (next_part(&rest, '|', &part)) {
    double low, high;
    if (!parse_range(part, &low, &high)) continue;
    if (number >= low && number <= high) {
      value->integer = integer;
      value->real = number;
      return true;
    }
    // The nearer end as it is written in the table.
    Slice ends = part;
    size_t dots = 0;
    while (memcmp(ends.data + dots, "..", 2) != 0) ++dots;
    set_hint(problem, number < low ? Slice{ends.data, dots} : Slice{ends.data + dots + 2, ends.size - dots - 2});
  }
  problem->what = "out of range";
  return false;
}

bool parse_signal(Value* value, Slice text, Problem* problem) {
  value->integer = text.size < 16 ? signal_number(value->text) : -1;
  if (value->integer >= 0) return true;
  problem->what = "not a signal that can be used";
  Slice bare = text.size > 3 && edit_distance({text.data, 3}, slice_of("SIG")) == 0 ? Slice{text.data + 3, text.size - 3} : text;
  Nearest nearest(bare);
  nearest.offer(slice_of("off"));
  for_each_signal_name(
      [](const char* name, void* context) {
        static_cast<Nearest*>(context)->offer(slice_of(name));
        return true;
      },
      &nearest);
  set_hint(problem, nearest.found());
  return false;
}

bool parse_switch(Value* value, Slice text, Problem* problem) {
  if (text == "0" || text == "1") {
    value->integer = *text.data - '0';
    return true;
  }
  problem->what = "neither 0 nor 1";
  for (const char* yes : {"on", "yes", "true"})
    if (edit_distance(text, slice_of(yes)) == 0) set_hint(problem, slice_of("1"));
  for (const char* no : {"off", "no", "false"})
    if (edit_distance(text, slice_of(no)) == 0) set_hint(problem, slice_of("0"));
  return false;
}

bool parse(Value* value, Slice text, Problem* problem) {
  switch (value->entry->type) {
    case ConfigType::kChoice: return parse_choice(value, text, problem);
    case ConfigType::kChoices: return parse_choices(value, text, problem);
    case ConfigType::kInteger:
    case ConfigType::kReal: return parse_number(value, text, problem);
    case ConfigType::kSignal: return parse_signal(value, text, problem);
    case ConfigType::kSwitch: return parse_switch(value, text, problem);
    case ConfigType::kText: return true;
  }
  return true;
}

void describe(const Value& value, Slice given, const Problem& problem, ConfigError* error) {
  Text line(error->line, sizeof error->line);
  bool cut = given.size > 80;
  line.add("resil: ").add(value.entry->name).add("='").add(cut ? Slice{given.data, 80} : given);
  line.add(cut ? "...': " : "': ");
  if (problem.part.data) line.add("'").add(problem.part.size > 40 ? Slice{problem.part.data, 40} : problem.part).add("' is ");
  line.add(problem.what).add("; allowed: ");
  if (value.entry->type == ConfigType::kSignal)
    line.add(kSignalNames);
  else if (value.entry->type == ConfigType::kSwitch)
    line.add("0, 1");
  else
    add_allowed_list(line, value.allowed);
  if (problem.hint[0]) line.add(" (did you mean ").add(problem.hint).add("?)");
  line.add(". Stopping with exit status 93.");
}

void add_entry(const ConfigEntry& entry) {
  if (find(entry.name) || table.count == kMaxValues) return;
  Value& value = table.values[table.count++];
  value = {};
  value.entry = &entry;
  value.allowed = entry.allowed;
  value.text = entry.default_value;
  value.is_default = true;
}

/// "off|watch" and every "RESIL_MODE+".
void add_modes() {
  char words[512];
  Text list(words, sizeof words);
  list.add(kCore[0].allowed);
  for (const Module* module : modules())
    for (size_t i = 0; i < module->config_count; ++i)
      if (strcmp(module->config[i].name, kAddedMode) == 0 && word_index(words, slice_of(module->config[i].allowed)) < 0)
        list.add("|").add(module->config[i].allowed);
  if (const char* kept = keep({words, list.length()})) find(kModeName)->allowed = kept;
}

void warn_unknown(Slice name) {
  if (table.warning_count == kMaxWarnings) {
    Text(table.warnings[kMaxWarnings - 1], kWarningBytes)
        .add("resil: ").add(static_cast<int64_t>(++table.unknown - kMaxWarnings + 1))
        .add(" more RESIL_ variables are not known; they have no effect.");
    return;
  }
  ++table.unknown;
  Nearest nearest(name);
  for (size_t i = 0; i < table.count; ++i) nearest.offer(slice_of(table.values[i].entry->name));
  Text line(table.warnings[table.warning_count++], kWarningBytes);
  line.add("resil: ").add(name.size > 64 ? Slice{name.data, 64} : name).add(" is not a variable of resil and has no effect");
  if (nearest.found().data) line.add(" (did you mean ").add(nearest.found()).add("?)");
  line.add(".");
}

bool set_value(Value* value, Slice given, ConfigError* error) {
  Problem problem;
  value->is_default = false;
  // Paths may begin with a blank; everything else is read without blanks at the ends.
  Slice text = value->entry->type == ConfigType::kText ? given : trimmed(given);
  value->text = keep(text);
  if (!value->text) {
    problem.what = "too long (all values together may take 8000 bytes)";
  } else if (parse(value, text, &problem)) {
    if (value->text) return true;
    problem.what = "too long (all values together may take 8000 bytes)";
  }
  describe(*value, given, problem, error);
  value->text = value->entry->default_value;
  return false;
}

}  // namespace

bool config_load(char* const* environment, ConfigError* error) {
  memset(&table, 0, sizeof table);
  error->line[0] = 0;
  for (const ConfigEntry& entry : kCore) add_entry(entry);
  add_modes();
  for (const Module* module : modules())
    for (size_t i = 0; i < module->config_count; ++i)
      if (strcmp(module->config[i].name, kAddedMode) != 0) add_entry(module->config[i]);
  for (size_t i = 0; i < table.count; ++i) {
    Problem ignored;  // a text default may not parse; others are proved to parse by the unit test
    parse(&table.values[i], slice_of(table.values[i].text), &ignored);
  }
  bool good = true;
  for (; environment && *environment; ++environment) {
    if (strncmp(*environment, "RESIL_", 6) != 0) continue;
    const char* equals = strchr(*environment, '=');
    if (!equals) continue;
    Slice name{*environment, static_cast<size_t>(equals - *environment)};
    Slice text = slice_of(equals + 1);
    if (strncmp(*environment, kInternalPrefix, sizeof kInternalPrefix - 1) == 0) continue;
    Value* value = find(name);
    if (!value)
      warn_unknown(name);
    else if (trimmed(text).size && value->is_default && good)
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
  return value ? value->integer : 0;
}

double config_real(const char* name) {
  const Value* value = find(name);
  return value ? value->real : 0;
}

bool config_has(const char* name, const char* choice) {
  const Value* value = find(name);
  if (!value) return false;
  int index = word_index(value->allowed, slice_of(choice));
  return index >= 0 && (value->choices >> index & 1);
}

bool config_is_default(const char* name) {
  const Value* value = find(name);
  return !value || value->is_default;
}

size_t config_count() { return table.count; }

ConfigValue config_at(size_t index) {
  const Value& value = table.values[index];
  return {value.entry, value.allowed, value.text, value.is_default};
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
    if (strcmp(value.entry->name, "RESIL_LOG") == 0) continue;
    mix(value.entry->name);
    mix(value.text);
  }
  return hash ? hash : 1;
}

}  // namespace resil
