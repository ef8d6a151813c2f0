// SPDX-License-Identifier: Apache-2.0
//
// The configuration table with fake modules: types, lists, added modes, messages, warnings.
#include "shim/config/config.h"

#include <csignal>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "shim/call/module_list.h"
#include "shim/config/config_value.h"

namespace {

using resil::ConfigEntry;
using resil::ConfigType;

const ConfigEntry kDumpConfig[] = {{"RESIL_SIGNAL", ConfigType::kSignal, "signal or off", "HUP", "Dumps state."}};
bool starts_with_f(resil::Slice text, resil::ValueProblem* problem) {
  if (text.data[0] == 'f') return true;
  problem->what = "not a fault";
  problem->part = {text.data, 1};
  return false;
}

const ConfigEntry kCheckConfig[] = {
    {"RESIL_MODE+", ConfigType::kChoices, "checksum", "", "Checks data."},
    {"RESIL_CHECKSUM", ConfigType::kChoice, "lazy|strict", "lazy", "How."},
    {"RESIL_HANG_ALPHA", ConfigType::kReal, "0.000001..0.5", "0.001", "Significance."},
    {"RESIL_DRAIN_SECONDS", ConfigType::kReal, "0..3600", "5", "Longest wait."},
    {"RESIL_REDUCE_P2P", ConfigType::kSwitch, "", "0", "No native collective."},
    {"RESIL_FAULT", ConfigType::kText, "kind[,rank=R]", "none of these", "Injects.", starts_with_f},
};
const ConfigEntry kRecordConfig[] = {{"RESIL_MODE+", ConfigType::kChoices, "record", "", "Records."}};

constexpr resil::Module module_with(std::span<const ConfigEntry> config) {
  resil::Module module{};
  module.name = "fake";
  module.config = config;
  return module;
}
const resil::Module kDump = module_with(kDumpConfig), kCheck = module_with(kCheckConfig),
                    kRecord = module_with(kRecordConfig);
std::vector<const resil::Module*> fake_modules;

struct Loaded {
  bool good;
  resil::ConfigError error;
};

Loaded load(std::vector<std::string> variables, bool with_modules = true) {
  fake_modules.clear();
  if (with_modules) fake_modules = {&kDump, &kCheck, &kRecord};
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  Loaded result;
  result.good = resil::config_load(environment.data(), &result.error);
  return result;
}

std::string message(std::vector<std::string> variables, bool with_modules = true) {
  Loaded loaded = load(variables, with_modules);
  CHECK_FALSE(loaded.good);
  return loaded.error.line;
}

std::string text(const char* name) { return resil::config_text(name); }

}  // namespace

namespace resil {
std::span<const Module* const> modules() { return {fake_modules.data(), fake_modules.size()}; }
}  // namespace resil

TEST_CASE("defaults, types and lookups") {
  REQUIRE(load({"PATH=/bin", "RESILIENT=1"}).good);
  CHECK(text("RESIL_MODE") == "watch");
  CHECK(resil::config_has("RESIL_MODE", "watch"));
  CHECK_FALSE(resil::config_has("RESIL_MODE", "checksum"));
  CHECK(resil::config_is_default("RESIL_MODE"));
  CHECK(resil::config_integer("RESIL_SIGNAL") == SIGHUP);
  CHECK(resil::config_real("RESIL_HANG_ALPHA") == 0.001);
  CHECK(resil::config_has("RESIL_CHECKSUM", "lazy"));
  CHECK(resil::config_integer("RESIL_NODE_RANKS") == 0);
  CHECK(text("RESIL_NOTHING").empty());
  CHECK(resil::config_warning_count() == 0);

  REQUIRE(load({"RESIL_CHECKSUM=strict", "RESIL_NODE_RANKS= 4 ", "RESIL_SIGNAL=sigusr1", "RESIL_REDUCE_P2P=1",
                "RESIL_DIR=/a b/c", "RESIL_HANG_ALPHA=1e-3", "RESIL_LOG="})
              .good);
  CHECK(resil::config_integer("RESIL_CHECKSUM") == 1);
  CHECK(resil::config_has("RESIL_CHECKSUM", "strict"));
  CHECK_FALSE(resil::config_has("RESIL_CHECKSUM", "lazy"));
  CHECK(resil::config_integer("RESIL_NODE_RANKS") == 4);
  CHECK(resil::config_real("RESIL_NODE_RANKS") == 4.0);
  CHECK(resil::config_integer("RESIL_SIGNAL") == SIGUSR1);
  CHECK(resil::config_integer("RESIL_REDUCE_P2P") == 1);
  CHECK(text("RESIL_DIR") == "/a b/c");
  CHECK_FALSE(resil::config_is_default("RESIL_DIR"));
  CHECK(text("RESIL_LOG") == "info");
  CHECK(resil::config_is_default("RESIL_LOG"));
}

namespace {

/// As load(), with a site's file of these lines.
Loaded load_with(const char* lines, std::vector<std::string> variables) {
  fake_modules = {&kDump, &kCheck, &kRecord};
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  resil::SiteFile site;
  site.path = "/etc/resil.conf";
  site.text = resil::slice_of(lines);
  Loaded result;
  result.good = resil::config_load(environment.data(), &result.error, site);
  return result;
}

std::string warning(size_t index) { return resil::config_warning(index); }

}  // namespace

TEST_CASE("a site's file is below the environment") {
  REQUIRE(load_with("# defaults\n\n RESIL_CHECKSUM = strict \nRESIL_DIR=/scratch/a b\nRESIL_MODE=checksum",
                    {"RESIL_MODE=record"})
              .good);
  CHECK(text("RESIL_CHECKSUM") == "strict");
  CHECK(resil::config_has("RESIL_CHECKSUM", "strict"));
  CHECK(text("RESIL_DIR") == "/scratch/a b");
  CHECK(text("RESIL_MODE") == "watch,record");
  CHECK_FALSE(resil::config_is_default("RESIL_CHECKSUM"));
  CHECK(resil::config_warning_count() == 0);
  for (size_t i = 0; i < resil::config_count(); ++i) {
    const resil::ConfigValue value = resil::config_at(i);
    const std::string name = value.entry->name;
    const auto wanted = name == "RESIL_MODE"                              ? resil::ConfigOrigin::kEnvironment
                        : name == "RESIL_CHECKSUM" || name == "RESIL_DIR" ? resil::ConfigOrigin::kSite
                                                                          : resil::ConfigOrigin::kDefault;
    CHECK(value.origin == wanted);
  }
  const uint64_t with = resil::config_hash();
  REQUIRE(load_with("", {"RESIL_MODE=record", "RESIL_CHECKSUM=strict"}).good);
  CHECK(resil::config_hash() == with);  // ranks that mean the same agree, wherever it is written
}

TEST_CASE("lines of a site's file that cannot be meant are named and end no job") {
  REQUIRE(
      load_with("RESIL_MODE=chekcsum\nnonsense\nRESIL_TYPO=1\nRESIL_CONF=/x\nlimit RESIL_DIR=/x\nlimit RESIL_MODE=all\n"
                "RESIL_LOG=quiet\nRESIL_LOG=info\nlimit RESIL_DRAIN_SECONDS=\nRESIL_HANG_ALPHA=2",
                {})
          .good);
  CHECK(text("RESIL_MODE") == "watch");
  CHECK(text("RESIL_LOG") == "quiet");
  CHECK(text("RESIL_HANG_ALPHA") == "0.001");
  CHECK(resil::config_real("RESIL_HANG_ALPHA") == 0.001);
  REQUIRE(resil::config_warning_count() == 9);
  CHECK(warning(0) ==
        "resil: /etc/resil.conf, line 1: 'chekcsum': not a mode (did you mean checksum?); the line is ignored.");
  CHECK(warning(1).find("line 2: 'nonsense': not NAME=VALUE") != std::string::npos);
  CHECK(warning(2).find("line 3: 'RESIL_TYPO': not a variable") != std::string::npos);
  CHECK(warning(3).find("line 4: 'RESIL_CONF': cannot be set in the file") != std::string::npos);
  CHECK(warning(4).find("line 5: '/x': not a limit") != std::string::npos);
  CHECK(warning(5).find("line 6: 'all': not a limit") != std::string::npos);
  CHECK(warning(6).find("line 8: 'RESIL_LOG': set twice") != std::string::npos);
  CHECK(warning(7).find("line 9:") != std::string::npos);
  CHECK(warning(8).find("line 10: '2': out of range (did you mean 0.5?)") != std::string::npos);

  std::string many;
  for (int i = 0; i < 40; ++i) many += "x\n";
  REQUIRE(load_with(many.c_str(), {}).good);
  CHECK(resil::config_warning_count() == 16);
}

TEST_CASE("a site's limits hold for what users ask for") {
  const char* limits =
      "limit RESIL_MODE=off|watch|checksum\nlimit RESIL_DRAIN_SECONDS=0..10\nlimit RESIL_LOG=quiet|info\n";
  REQUIRE(load_with(limits, {"RESIL_MODE=checksum", "RESIL_DRAIN_SECONDS=10"}).good);
  CHECK(text("RESIL_MODE") == "watch,checksum");
  CHECK(load_with(limits, {}).good);  // the library's own defaults are nobody's wish
  const Loaded mode = load_with(limits, {"RESIL_MODE=checksum,record"});
  CHECK_FALSE(mode.good);
  CHECK(std::string(mode.error.line) ==
        "resil: RESIL_MODE='checksum,record': beyond what this site allows; allowed: off, watch, checksum. Stopping "
        "with exit status 93.");
  CHECK(text("RESIL_MODE") == "watch");
  CHECK_FALSE(load_with(limits, {"RESIL_DRAIN_SECONDS=11"}).good);
  CHECK_FALSE(load_with(limits, {"RESIL_LOG=debug"}).good);
  CHECK(load_with("limit RESIL_SIGNAL=USR1|off", {"RESIL_SIGNAL=sigusr1"}).good);
  CHECK_FALSE(load_with("limit RESIL_SIGNAL=USR1|off", {"RESIL_SIGNAL=HUP"}).good);
  CHECK(load_with("limit RESIL_REDUCE_P2P=0", {"RESIL_REDUCE_P2P=0"}).good);
  CHECK_FALSE(load_with("limit RESIL_REDUCE_P2P=0", {"RESIL_REDUCE_P2P=1"}).good);
  CHECK(load_with("limit RESIL_MODE=checksum", {"RESIL_MODE=checksum"}).good);  // watch is part of it, asked for or not
}

TEST_CASE("variables that module files of package managers set are no mistakes") {
  REQUIRE(load({"RESIL_ROOT=/opt/resil", "RESIL_VERSION=0.1.0"}).good);
  CHECK(resil::config_warning_count() == 0);
}

TEST_CASE("the environment may change after loading, and the first of equal names counts") {
  std::vector<char> variable{'R', 'E', 'S', 'I', 'L', '_', 'D', 'I', 'R', '=', 'x', 0};
  char second[] = "RESIL_DIR=y";
  char* environment[] = {variable.data(), second, nullptr};
  resil::ConfigError error;
  REQUIRE(resil::config_load(environment, &error));
  variable[10] = 'z';
  CHECK(text("RESIL_DIR") == "x");
}

TEST_CASE("modes: added by modules, watch is implied, off stands alone, table order") {
  REQUIRE(load({"RESIL_MODE=record, checksum"}).good);
  CHECK(text("RESIL_MODE") == "watch,checksum,record");
  CHECK(resil::config_has("RESIL_MODE", "watch"));
  CHECK(resil::config_has("RESIL_MODE", "record"));
  REQUIRE(load({"RESIL_MODE=off"}).good);
  CHECK_FALSE(resil::config_has("RESIL_MODE", "watch"));
  CHECK(resil::config_has("RESIL_MODE", "off"));
  REQUIRE(load({"RESIL_MODE="}).good);
  CHECK(resil::config_has("RESIL_MODE", "watch"));
  CHECK(message({"RESIL_MODE=off,watch"}) ==
        "resil: RESIL_MODE='off,watch': 'off' together with something else; allowed: off, watch, checksum, record. "
        "Stopping with exit status 93.");
  CHECK(message({"RESIL_MODE=,"}).find("an empty list") != std::string::npos);
}

TEST_CASE("a bad value is one line with variable, value, what is allowed and the nearest allowed value") {
  CHECK(message({"RESIL_MODE=chekcsum"}) ==
        "resil: RESIL_MODE='chekcsum': not a mode; allowed: off, watch, checksum, record (did you mean checksum?). "
        "Stopping with exit status 93.");
  CHECK(message({"RESIL_MODE=chekcsum"}, false) ==
        "resil: RESIL_MODE='chekcsum': not a mode; allowed: off, watch. Stopping with exit status 93.");
  CHECK(message({"RESIL_MODE=watch,recrd"}) ==
        "resil: RESIL_MODE='watch,recrd': 'recrd' is not a mode; allowed: off, watch, checksum, record (did you mean "
        "record?). Stopping with exit status 93.");
  CHECK(message({"RESIL_CHECKSUM=Strict"}) ==
        "resil: RESIL_CHECKSUM='Strict': not one of the allowed values; allowed: lazy, strict (did you mean strict?). "
        "Stopping with exit status 93.");
  CHECK(message({"RESIL_NODE_RANKS=0"}) ==
        "resil: RESIL_NODE_RANKS='0': out of range; allowed: 1..1048576, off (did you mean 1?). Stopping with exit "
        "status 93.");
  CHECK(message({"RESIL_NODE_RANKS=2.5"}).find("not a whole number; allowed: 1..1048576, off.") != std::string::npos);
  CHECK(message({"RESIL_NODE_RANKS=99999999999999999999"}).find("not a whole number") != std::string::npos);
  CHECK(message({"RESIL_NODE_RANKS=1..1048576"}).find("not a whole number") != std::string::npos);
  CHECK(message({"RESIL_HANG_ALPHA=0,5"}).find("not a number") != std::string::npos);
  CHECK(message({"RESIL_HANG_ALPHA=0.9"}).find("(did you mean 0.5?)") != std::string::npos);
  CHECK(message({"RESIL_REDUCE_P2P=yes"}).find("neither 0 nor 1; allowed: 0, 1 (did you mean 1?)") !=
        std::string::npos);
  CHECK(message({"RESIL_SIGNAL=SIGURS1"}).find("(did you mean USR1?)") != std::string::npos);
  CHECK(message({"RESIL_SIGNAL=KILL"}).find("not a signal that can be used") != std::string::npos);
}

TEST_CASE("a bad value with control characters or of great length stays one line") {
  std::string line = message({"RESIL_LOG=a\nb\x1b[31m" + std::string(5000, 'x')});
  CHECK(line.find('\n') == std::string::npos);
  CHECK(line.find('\x1b') == std::string::npos);
  CHECK(line.find("Stopping with exit status 93.") != std::string::npos);
  CHECK(message({"RESIL_DIR=" + std::string(9000, 'x')}).find("too long") != std::string::npos);
}

TEST_CASE("an unknown name is a warning with the nearest known name, never an error") {
  REQUIRE(load({"RESIL_MODEE=watch", "RESIL_ZZZZZZ=1", "RESIL_INTERNAL_X=1", "RESIL_X"}).good);
  REQUIRE(resil::config_warning_count() == 2);
  CHECK(std::string(resil::config_warning(0)) ==
        "resil: RESIL_MODEE is not a variable of resil and has no effect (did you mean RESIL_MODE?).");
  REQUIRE(load({"RESIL_LGO=quiet", "RESIL_TYPO=1"}).good);  // the prefix is no likeness: it was near RESIL_GPU
  CHECK(std::string(resil::config_warning(0)).find("(did you mean RESIL_LOG?)") != std::string::npos);
  CHECK(std::string(resil::config_warning(1)) == "resil: RESIL_TYPO is not a variable of resil and has no effect.");
  std::vector<std::string> many;
  for (int i = 0; i < 40; ++i) many.push_back("RESIL_UNKNOWN" + std::to_string(i) + "=1");
  REQUIRE(load(many).good);
  REQUIRE(resil::config_warning_count() == 16);
  CHECK(std::string(resil::config_warning(15)) ==
        "resil: 25 more RESIL_ variables are not known; they have no effect.");
}

TEST_CASE("signal names") {
  CHECK(resil::signal_number("HUP") == SIGHUP);
  CHECK(resil::signal_number("SIGHUP") == SIGHUP);
  CHECK(resil::signal_number("usr2") == SIGUSR2);
  CHECK(resil::signal_number("RTMIN") == SIGRTMIN);
  CHECK(resil::signal_number("SIGRTMIN+3") == SIGRTMIN + 3);
  CHECK(resil::signal_number("RTMAX-1") == SIGRTMAX - 1);
  CHECK(resil::signal_number("off") == 0);
  for (const char* bad :
       {"", "SIG", "KILL", "STOP", "SEGV", "CHLD", "1", "RTMIN+", "RTMIN-1", "RTMIN+-1", "RTMIN+99", "RTMAX+1", "HUPP"})
    CHECK(resil::signal_number(bad) == -1);
}

TEST_CASE("numbers") {
  double real, low, high;
  int64_t whole;
  CHECK((resil::parse_real(resil::slice_of("0.4"), &real) && real == 0.4));
  CHECK((resil::parse_real(resil::slice_of("-1.25e2"), &real) && real == -125));
  CHECK((resil::parse_real(resil::slice_of("5."), &real) && real == 5));
  for (const char* bad : {"", ".", "-", "1e", "e5", "1 2", "inf", "nan", "0x10", "1e999", "1.2.3"})
    CHECK_FALSE(resil::parse_real(resil::slice_of(bad), &real));
  CHECK((resil::parse_integer(resil::slice_of("-9223372036854775808"), &whole) && whole == INT64_MIN));
  CHECK_FALSE(resil::parse_integer(resil::slice_of("9223372036854775808"), &whole));
  CHECK((resil::parse_range(resil::slice_of("0.."), &low, &high) && low == 0 && high > 1e300));
  CHECK_FALSE(resil::parse_range(resil::slice_of("off"), &low, &high));
}

TEST_CASE("a text with a grammar of its own is refused by its check, its default is not asked") {
  CHECK(load({}).good);
  CHECK(std::string(resil::config_text("RESIL_FAULT")) == "none of these");
  CHECK(load({"RESIL_FAULT=flip"}).good);
  CHECK(std::string(resil::config_text("RESIL_FAULT")) == "flip");
  CHECK(message({"RESIL_FAULT=xlip"}) ==
        "resil: RESIL_FAULT='xlip': 'x' is not a fault; allowed: kind[,rank=R]. "
        "Stopping with exit status 93.");
}

TEST_CASE("edit distance") {
  using resil::slice_of;
  auto distance = [](const char* a, const char* b) { return resil::edit_distance(slice_of(a), slice_of(b)); };
  CHECK(distance("checksum", "checksum") == 0);
  CHECK(distance("chekcsum", "checksum") == 1);
  CHECK(distance("MODE", "mode") == 0);
  CHECK(distance("", "abc") == 3);
  CHECK(distance("kitten", "sitting") == 3);
}

TEST_CASE("the hash follows what ranks must agree on") {
  load({});
  uint64_t plain = resil::config_hash();
  load({"RESIL_LOG=debug", "RESIL_DIR=/elsewhere", "RESIL_MODE=watch"});
  CHECK(resil::config_hash() == plain);
  load({"RESIL_MODE=checksum,record"});
  uint64_t both = resil::config_hash();
  CHECK(both != plain);
  load({"RESIL_MODE=record,watch,checksum"});
  CHECK(resil::config_hash() == both);
  load({"RESIL_CHECKSUM=strict"});
  CHECK(resil::config_hash() != plain);
}
