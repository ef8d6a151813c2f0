// SPDX-License-Identifier: Apache-2.0
//
// Frames of a Python program in another process, by what it says of itself. Environment RESIL_TEST_PYTHONS:
// interpreters instead of python3, as paths with blanks in between.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "check.h"
#include "shim/runtime/stacks/python.h"
#include "shim/runtime/stacks/remote.h"

using namespace resil;
using namespace resil::stacks;

namespace {

constexpr char kProgram[] = R"(import ctypes, os, sys, threading, time

def address(name):
    return ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, name))

class Solver:
    def größe(self, depth):
        if depth == 0:
            return self.relax()
        return (1 +
                self.größe(depth - 1))

    def relax(self):
        print("spin", flush=True)
        x = 3.0
        while True:
            x = (x * x + 1e-30) ** 0.5

def steps(n):
    for i in range(n):
        yield Solver().größe(2)

def sleeper():
    print(threading.get_native_id(), flush=True)
    time.sleep(1000)

print(address("_PyRuntime"), address("PyCode_Type"), address("PyUnicode_Type"), sys.version_info[1], os.getpid(), flush=True)
threading.Thread(target=sleeper, daemon=True).start()
time.sleep(0.2)
x = [0] * 300; x = sorted(x[:1], key=lambda one: list(steps(1)))
)";

/// 1-based.
int line_of(const char* text) {
  std::istringstream program(kProgram);
  std::string line;
  for (int number = 1; std::getline(program, line); ++number)
    if (line.find(text) != std::string::npos) return number;
  return -1;
}

struct Running {
  explicit Running(const std::string& interpreter) {
    char name[] = "/tmp/resil-python-XXXXXX";
    folder = mkdtemp(name);
    std::ofstream(folder + "/solver.py") << kProgram;
    output = popen(("exec " + interpreter + " -X utf8 " + folder + "/solver.py").c_str(), "r");
  }
  ~Running() {
    if (pid > 0) kill(pid, SIGKILL);
    pclose(output);
    unlink((folder + "/solver.py").c_str());
    rmdir(folder.c_str());
  }
  std::string folder;
  FILE* output;
  int pid = 0;
};

std::vector<std::string> frames_of(RemoteProcess& process, const PythonAddresses& python, int tid) {
  PythonFrame frames[32];
  char text[kPythonPlace];
  remote_forget(&process);
  std::vector<std::string> found;
  const uint32_t count = python_frames(process, python, process.pid, tid, frames, 32);
  for (uint32_t i = 0; i < count; ++i) {
    python_place(frames[i], text, sizeof(text));
    found.push_back(text);
  }
  return found;
}

std::string at(const char* function, const char* text) {
  return std::string(function) + " at solver.py:" + std::to_string(line_of(text));
}

}  // namespace

TEST_CASE("frames of a Python program, its innermost line and those that call") {
  const char* given = getenv("RESIL_TEST_PYTHONS");
  std::istringstream interpreters(given != nullptr ? given : "/usr/bin/python3");
  for (std::string interpreter; interpreters >> interpreter;) {
    CAPTURE(interpreter);
    Running program(interpreter);
    PythonAddresses python = {};
    int sleeper = 0;
    char word[16] = "";
    REQUIRE(fscanf(program.output, "%lu %lu %lu %lu %d %d %15s", &python.runtime, &python.code_type,
                   &python.string_type, &python.version, &program.pid, &sleeper, word) == 7);
    if (python.version > 14) {
      WARN(interpreter << " is newer than the layouts known: its frames are not read");
      continue;
    }
    auto process = std::make_unique<RemoteProcess>();
    REQUIRE(remote_open(process.get(), program.pid));
    const bool qualified = python.version >= 11;
    // What it has printed is read before its print returns.
    const std::string prints = at(qualified ? "Solver.relax" : "relax", "print(\"spin\"");
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (std::vector<std::string> found = {prints}; !found.empty() && found[0] == prints;) {
      REQUIRE(std::chrono::steady_clock::now() < limit);
      found = frames_of(*process, python, program.pid);
    }
    for (int look = 0; look < 20; ++look) {  // it goes on meanwhile
      const std::vector<std::string> found = frames_of(*process, python, program.pid);
      CAPTURE(found);
      REQUIRE(found.size() >= 7);
      const char *method = qualified ? "Solver.größe" : "größe", *relax = qualified ? "Solver.relax" : "relax";
      const int first = line_of("while True");
      const std::string spins = std::string(relax) + " at solver.py:";
      const bool known = found[0] == spins + std::to_string(first) || found[0] == spins + std::to_string(first + 1);
      // From 3.14 on the interpreter does not always say where it is.
      CHECK((known || (python.version >= 14 && found[0] == "Solver.relax at solver.py")));
      CHECK(found[1] == at(method, "return self.relax()"));
      for (int i : {2, 3}) CHECK(found[static_cast<size_t>(i)] == at(method, "self.größe(depth - 1)"));
      CHECK(found[4] == at("steps", "yield"));
      CHECK(found[5] == at("<lambda>", "lambda"));
      CHECK(found[6] == at("<module>", "lambda"));
    }
    const std::vector<std::string> other = frames_of(*process, python, sleeper);
    CAPTURE(other);
    if (qualified) {
      REQUIRE(!other.empty());
      CHECK(other[0] == at("sleeper", "time.sleep(1000)"));
    } else {
      CHECK(other.empty());
    }
    python.code_type += 8;  // a layout that does not fit
    CHECK(frames_of(*process, python, program.pid).empty());
  }
}

TEST_CASE("memory that makes no sense ends the walk") {
  struct Nonsense : OtherProcess {
    std::mt19937_64 random;
    PythonAddresses python;
    uint64_t reads = 0;
  } other;
  // Often a right type, small numbers, addresses in a small space: so that walks get far.
  other.read = [](OtherProcess& of, uint64_t, void* to, size_t size) {
    auto& me = static_cast<Nonsense&>(of);
    if (++me.reads % 997 == 0) return false;
    auto* bytes = static_cast<unsigned char*>(to);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(me.random());
    if (size == 8) {
      const uint64_t choices[] = {me.python.code_type, me.python.string_type, me.random() % 64, me.random() % 100000, 0,
                                  me.random()};
      memcpy(to, &choices[me.random() % 6], 8);
    }
    return true;
  };
  other.find_object = [](OtherProcess&, uint64_t, Object*) { return false; };
  uint64_t some = 0;
  for (uint32_t run = 0; run < 20000; ++run) {
    other.random.seed(run);
    other.reads = 0;
    other.python = {4096, 8192, 12288, 9 + run % 6};
    PythonFrame frames[8];
    const uint32_t count = python_frames(other, other.python, 100, 100, frames, 8);
    REQUIRE(count <= 8);
    for (uint32_t i = 0; i < count; ++i) {
      REQUIRE(strnlen(frames[i].function, sizeof(frames[i].function)) < sizeof(frames[i].function));
      REQUIRE(strnlen(frames[i].file, sizeof(frames[i].file)) < sizeof(frames[i].file));
    }
    some += count;
  }
  CHECK(some > 0);
}
