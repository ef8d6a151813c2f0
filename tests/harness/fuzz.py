# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the fuzzers of tests/fuzz: parsers in C++ with clang's libFuzzer, those of scripts/resil with
tests/fuzz/tool_fuzzer.py. Writes into build/fuzz; new inputs that reach more code go to build/fuzz/found."""
import glob
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FUZZ = os.path.join(ROOT, "tests", "fuzz")
CORPUS = os.path.join(FUZZ, "corpus")
BUILD = os.path.join(ROOT, "build")
OUT = os.path.join(BUILD, "fuzz")
COMPILERS = ("clang++-14", "clang++")
ARGUMENTS = ["-std=c++20", "-O1", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", "-UNDEBUG", "-w",
             "-DRESIL_VERSION=\"fuzz\"", "-I" + ROOT, "-I" + BUILD, "-I" + OUT, "-I" + os.path.join(ROOT, "tests", "unit")]
CHECKS = "address,undefined"
TOOL_TARGETS = ("tool-report", "tool-ring", "tool-recording")


class Unavailable(Exception):
    """No clang, no runtime of libFuzzer, or no configured build."""


def compiler():
    for name in COMPILERS:
        if shutil.which(name):
            return name
    raise Unavailable("clang++ is not installed (Debian: clang-14 and libclang-rt-14-dev)")


def targets():
    """Names of the C++ targets, from the one list of them."""
    with open(os.path.join(FUZZ, "fuzz.h"), encoding="utf-8") as file:
        return re.findall(r'\{"(\w+)", \w+\}', file.read())


def sources():
    """What the program of the test `fuzz_corpora` is made of, but for its main function; the library's files, of which it takes
    what it needs, among them."""
    done = subprocess.run(["ninja", "-C", BUILD, "-t", "inputs", "tests/fuzz/fuzz_replay"], stdout=subprocess.PIPE, text=True, check=False)
    names = [line for line in done.stdout.splitlines() if line.endswith(".cpp") and not line.endswith(("/replay.cpp", "/variant.cpp"))]
    if not names:
        raise Unavailable("no configured build: meson setup build && ninja -C build libresil.so")
    return [os.path.realpath(os.path.join(BUILD, name)) for name in names] + [os.path.join(FUZZ, "fuzzer.cpp")]


def newest_header():
    paths = [path for folder in ("shim", "checksum", "detectors", "tests/fuzz", "tests/unit")
             for path in glob.glob(os.path.join(ROOT, folder, "**", "*.h"), recursive=True)]
    return max(map(os.path.getmtime, paths + [os.path.join(BUILD, "call_ids.h")]))


def build(jobs=1):
    """The program with all targets; compiles what is older than its source or any header. Raises Unavailable."""
    if not os.path.exists(os.path.join(BUILD, "call_ids.h")):
        raise Unavailable("build/call_ids.h is missing: meson setup build && ninja -C build libresil.so")
    clang, headers = compiler(), newest_header()
    objects, waiting, running = [], [], []
    os.makedirs(OUT, exist_ok=True)
    rows = os.path.join(OUT, "config_rows.inc")
    subprocess.run([sys.executable, os.path.join(FUZZ, "config_rows.py"), ROOT, rows], check=True)
    headers = max(headers, os.path.getmtime(rows))
    for path in sources():
        target = os.path.join(OUT, os.path.relpath(path, ROOT).replace(os.sep, "_") + ".o")
        objects.append(target)
        if not os.path.exists(target) or os.path.getmtime(target) < max(os.path.getmtime(path), headers):
            waiting.append([clang, *ARGUMENTS, "-fsanitize=fuzzer-no-link," + CHECKS, "-fno-sanitize=vptr", "-c", path, "-o", target])
    changed = bool(waiting)
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(subprocess.Popen(waiting.pop(0)))
        if running.pop(0).wait() != 0:
            for process in running:
                process.wait()
            raise Unavailable("the fuzzers do not compile")
    program = os.path.join(OUT, "fuzzer")
    if changed or not os.path.exists(program):
        archive, tests = os.path.join(OUT, "library.a"), [path for path in objects if os.path.basename(path).startswith("tests_")]
        if os.path.exists(archive):
            os.remove(archive)
        subprocess.run(["ar", "rcs", archive, *(path for path in objects if path not in tests)], check=True)
        done = subprocess.run([clang, "-fsanitize=fuzzer," + CHECKS, *tests, archive, "-o", program, "-ldl", "-lpthread"], check=False)
        if done.returncode != 0:
            raise Unavailable("the fuzzers do not link (Debian: libclang-rt-14-dev)")
    return program


class Result:
    """One line of the table."""

    def __init__(self, name, executions=0, coverage="–", inputs=0, crashes=(), seconds=0.0, text=""):
        self.name, self.executions, self.coverage, self.inputs = name, executions, coverage, inputs
        self.crashes, self.seconds, self.text = list(crashes), seconds, text

    def cells(self):
        return (self.name, "%.0f" % self.seconds, self.executions, self.coverage, self.inputs, len(self.crashes))


HEADER = ("parser", "seconds", "executions", "edges and values covered", "inputs kept", "crashes")


def number(pattern, text, default=0):
    found = re.findall(pattern, text)
    return int(found[-1]) if found else default


def run(program, name, seconds):
    """Runs one target; its corpus is read, and what is new lies in build/fuzz/found/NAME."""
    found, crashes = os.path.join(OUT, "found", name), os.path.join(OUT, "crashes", name)
    for directory in (found, crashes, os.path.join(CORPUS, name)):
        os.makedirs(directory, exist_ok=True)
    before = set(os.listdir(crashes))
    command = [program, "-max_total_time=%d" % seconds, "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1",
               "-max_len=8192", "-use_value_profile=1", "-artifact_prefix=" + crashes + os.sep, found, os.path.join(CORPUS, name)]
    began = time.monotonic()
    environment = {**os.environ, "RESIL_FUZZ_TARGET": name, "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=0",
                   "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True,
                          errors="replace")
    new = sorted(set(os.listdir(crashes)) - before)
    if done.returncode != 0 and not new:
        new = ["exit status %d" % done.returncode]
    return Result(name, number(r"number_of_executed_units: (\d+)", done.stdout) or number(r"#(\d+)", done.stdout),
                  number(r"cov: (\d+)", done.stdout), number(r"corp: (\d+)", done.stdout), new, time.monotonic() - began, done.stdout)


def minimise(program, name):
    """The corpus in the repository becomes the least set of inputs that reaches as much."""
    smaller = os.path.join(OUT, "smaller", name)
    shutil.rmtree(smaller, ignore_errors=True)
    os.makedirs(smaller)
    own = os.path.join(CORPUS, name)
    subprocess.run([program, "-merge=1", "-use_counters=0", "-max_len=8192", smaller, own, os.path.join(OUT, "found", name)],
                   env={**os.environ, "RESIL_FUZZ_TARGET": name}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if not os.listdir(smaller):
        return
    for old in os.listdir(own):
        if not old.startswith("crash-"):  # what was found stays
            os.unlink(os.path.join(own, old))
    for new in os.listdir(smaller):
        shutil.copy(os.path.join(smaller, new), os.path.join(own, new))


def run_tool(name, seconds, seed):
    began = time.monotonic()
    done = subprocess.run([sys.executable, os.path.join(FUZZ, "tool_fuzzer.py"), "--seconds", str(seconds), "--seed", str(seed), name],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, errors="replace")
    crashes = re.findall(r"^FOUND (.*)$", done.stdout, re.M)
    if done.returncode != 0 and not crashes:
        crashes = ["exit status %d" % done.returncode]
    return Result(name, number(r"(\d+) executions", done.stdout), number(r"(\d+) lines", done.stdout, "–"), 0, crashes,
                  time.monotonic() - began, done.stdout)
