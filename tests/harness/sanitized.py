# SPDX-License-Identifier: Apache-2.0
"""scripts/campaign sanitized: the whole library under the sanitizers, inside real jobs. Compiled by clang with the arguments that it has
in build/compile_commands.json, it is preloaded into programs of tests/mpi that bring the run-time library. The MPI is not
instrumented, so that the thread sanitizer sees none of its locks: of its reports those count whose two accesses are both the
library's own code. Writes build/sanitized, scratch directories and the jobs that it starts."""
import collections
import concurrent.futures
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

from harness import mpi as jobs

BUILD = os.path.join(jobs.ROOT, "build")
CHECKS = {"thread": ["-fsanitize=thread", "-D__SANITIZE_THREAD__", "-O1"],
          "address": ["-fsanitize=address,undefined", "-fno-sanitize=function,vptr,object-size", "-D__SANITIZE_ADDRESS__", "-O1",
                      "-fno-omit-frame-pointer"]}
LEFT_OUT = ("-fno-store-merging", "-fdiagnostics", "-O", "-fno-gnu-unique", "-Werror", "-Winvalid", "-MD", "-c")  # arguments of g++
OPTIONS = {"thread": "TSAN_OPTIONS=symbolize=0 exitcode=0 report_signal_unsafe=0 history_size=4 detect_deadlocks=0 log_path=",
           "address": "ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:log_path="}
STRICT = {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "strict", "RESIL_BLAME": "full"}
LAZY, ORDER = {"RESIL_MODE": "checksum"}, {"RESIL_REDUCE": "order"}
# Program, its arguments, ranks, and the environments of its runs; "record" also verifies.
RUNS = {
    "thread": [("stress_threads", [], 2, [{}, LAZY, STRICT]), ("reductions_threads", [], 2, [ORDER, LAZY]), ("rma_threads", [], 2, [{}, LAZY]),
               ("threads", [], 2, [{}, "record"]), ("parts_stuck", ["block"], 6, [{"RESIL_REPLICAS": "3", "RESIL_REPLICAS_SECONDS": "8"}]), *[("hangs", [kind, "4"], 3, [{"RESIL_HANG": "abort"}]) for kind in ("cycle", "collective", "poll")]],
    "address": [(program, [], 2, [{}, LAZY, STRICT, ORDER, "record"])
                for program in ("p2p", "collectives", "datatypes", "orders", "communicators", "intercomm", "nested", "stress_threads")],
}


def compiler():
    found = shutil.which("clang++") or shutil.which("clang++-14")
    if not found:
        sys.exit("campaign: no clang++ (Debian: clang, libclang-rt-14-dev)")
    return found


def library(checks, parallel):
    """Compiles and links it; the path."""
    out = os.path.join(BUILD, "sanitized", checks)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        known = {entry["output"]: entry for entry in json.load(file)
                 if entry["output"].startswith(("libresil.so.p/", "libbackend", "pipeline/", "shim/"))}
    objects, waiting = [], []
    for name, entry in known.items():
        words, kept = shlex.split(entry["command"]), []
        words = words[words[0].endswith("ccache"):]
        clang = compiler() if words[0].endswith("++") else compiler().replace("++", "")
        skip = False
        for word in words[1:]:
            if not skip and word not in ("-MQ", "-MF", "-o") and not word.startswith(LEFT_OUT):
                kept.append(word)
            skip = not skip and word in ("-MQ", "-MF", "-o")
        objects.append(os.path.join(out, name.replace("/", "_")))
        flags = [] if entry["file"].endswith(".S") else [*CHECKS[checks], "-g1"]
        waiting.append(([clang, *kept, "-w", *flags, "-c", "-o", objects[-1]], entry["directory"]))
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        for done in pool.map(lambda job: subprocess.run(job[0], cwd=job[1], capture_output=True, text=True, check=False), waiting):
            if done.returncode != 0:
                sys.exit(f"campaign: the library does not compile\n{done.stderr[-3000:]}")
    made = os.path.join(out, "libresil.so")
    subprocess.run([compiler(), "-shared", CHECKS[checks][0], "-o", made, *objects, f"-Wl,--version-script,{BUILD}/libresil.map",
                    "-Wl,-z,nodelete,-z,noexecstack,-z,now", "-lpthread", "-ldl"], check=True)
    return made


def program(checks, mpi, name):
    out = os.path.join(BUILD, "sanitized", checks, f"{name}.{mpi}")
    subprocess.run([f"mpicc.{mpi}", "-O1", "-g1", "-w", CHECKS[checks][0].split(",")[0], "-o", out,
                    os.path.join(jobs.ROOT, "tests", "mpi", name + ".c"), "-lpthread", "-lm"],
                   env={**os.environ, "OMPI_CC": compiler().replace("++", ""), "MPICH_CC": compiler().replace("++", "")}, check=True)
    return out


# The flight recorder stores aligned words plainly, one writer a trace buffer. Its readers are mostly other processes, take the words
# by relaxed loads and look afterwards whether they still hold: one side of such a pair is the recorder's.
RECORDER, READER = re.compile(r"flight\.(cpp|h):|fast_path\.h:"), re.compile(r"\b(records|collect|snapshot|place|kernel_state|reader)\b")


def by_design(one, other):
    return any(RECORDER.search(writer) and READER.search(reader) for writer, reader in ((one, other), (other, one)))


def places(made, addresses):
    """{address in the library: "function at file:line"}"""
    if not addresses:
        return {}
    told = subprocess.run(["addr2line", "-Cfpse", made, *addresses], capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(zip(addresses, told))


def races(made, logs):
    """Counter of (where, where) of the thread sanitizer's reports whose two accesses are the library's."""
    found = []
    for path in logs:
        with open(path, encoding="utf-8", errors="replace") as file:
            reports = re.split(r"={18,}\n", file.read())
        for report in reports:
            stacks = [part for part in report.split("\n\n") if re.search(r"(?i)^.*\b(write|read) of size", part, re.M)][:2]
            tops = [re.search(r"#0 .*?\((\S+)\+(0x[0-9a-f]+)\)", part) for part in stacks]
            if "data race" in report and len(tops) == 2 and all(top and os.path.basename(top[1]) == os.path.basename(made) for top in tops):
                found.append(tuple(sorted(top[2] for top in tops)))
    named = places(made, sorted({address for pair in found for address in pair}))
    pairs = [tuple(named[address] for address in pair) for pair in found]
    return collections.Counter(" and ".join(pair) for pair in pairs if not by_design(*pair))


def errors(text, logs):
    """Counter of what the address and undefined-behaviour sanitizers say."""
    for path in logs:
        with open(path, encoding="utf-8", errors="replace") as file:
            text += file.read()
    return collections.Counter(re.findall(r"SUMMARY: \w+Sanitizer: .*|\S+: runtime error: .*", text))


def one(checks, made, mpi, name, arguments, ranks, environment):
    """Counter of findings of one job; it ends the campaign when the job does not end as it should."""
    place = jobs.scratch()
    settings = {**environment, "RESIL_LOG": "quiet"}
    option, _, value = OPTIONS[checks].partition("=")
    settings[option] = value + os.path.join(place, "log")
    os.environ["RESIL_TEST_LIBRARY"] = made
    result = jobs.run(mpi, ranks, [program(checks, mpi, name), *arguments], env=settings, timeout=240, cwd=place)
    expected = (92,) if name == "hangs" else (0,)
    logs, text = glob.glob(os.path.join(place, "log.*")), result.text()
    found = races(made, logs) if checks == "thread" else errors(text, logs)
    if not found and result.returncode not in expected:
        found[f"ended with {result.returncode}, not {expected[0]}: {text[-300:]}"] += 1
    return found


def campaign(options):
    """`scripts/campaign sanitized`: exit status 1 where something was found."""
    lines, bad = ["| checks | MPI | program | runs | found |", "|---|---|---|---:|---:|"], 0
    for checks in options.names or list(CHECKS):
        made = library(checks, os.cpu_count() or 1)
        for name, arguments, ranks, environments in RUNS[checks]:
            found, runs = collections.Counter(), 0
            for environment in environments:
                recording = {"RESIL_RECORD": os.path.join(jobs.scratch(), "recording")}
                for each in [{"RESIL_MODE": mode, **recording} for mode in ("record", "verify")] if environment == "record" else [environment]:
                    found += one(checks, made, options.mpi, name, arguments, ranks, each)
                    runs += 1
            bad += sum(found.values())
            lines.append(f"| {checks} | {options.mpi} | {' '.join([name, *arguments[:1]])} | {runs} | {sum(found.values())} |")
            print(lines[-1], *[f"  {count} times: {what}" for what, count in found.most_common()], sep="\n", flush=True)
    if options.markdown:
        with open(options.markdown, "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n\n")
    return 1 if bad else 0
