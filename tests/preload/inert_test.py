#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Preloaded into what is not an MPI program, nothing at all happens; and what the file needs and exports.

Usage: inert_test.py
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks  # noqa: E402

COMMANDS = {
    "true": ["/bin/true"],
    "bash": ["/bin/bash", "-c", "echo $((6*7)); (exit 3); /bin/true | /bin/cat; exit 4"],
    "python": ["/usr/bin/python3", "-c", "import subprocess; print(subprocess.run(['/bin/echo', 'child']).returncode)"],
    "sort": ["/usr/bin/sort", "/etc/passwd"],
}


def output(command, env, cwd):
    """Status, stdout, stderr of a command with exactly this much added to the environment."""
    result = subprocess.run(command, env=jobs.clean_environment(env), cwd=cwd, capture_output=True, timeout=600,
                            check=False)
    return result.returncode, result.stdout, result.stderr


def inert(command):
    """Same status and output with lazy and with immediate binding, and no file in the current directory."""
    directory = jobs.scratch()
    plain = output(command, {}, directory)
    for more in ({}, {"LD_BIND_NOW": "1"}, {"RESIL_MODE": "nonsense", "RESIL_TYPO": "1"}):
        preloaded = output(command, {"LD_PRELOAD": jobs.library(), **more}, directory)
        assert preloaded == plain, f"{more}: {preloaded}, plain {plain}"
    assert os.listdir(directory) == [], os.listdir(directory)


def no_thread():
    status = output(["/bin/cat", "/proc/self/status"], {"LD_PRELOAD": jobs.library()}, "/")[1].decode()
    assert re.search(r"Threads:\s+1\n", status), status
    assert re.search(r"SigCgt:\s+0+\n", status), "a signal handler is installed"
    maps = output(["/bin/cat", "/proc/self/maps"], {"LD_PRELOAD": jobs.library()}, "/")[1].decode()
    assert jobs.library() in maps, "the library was not loaded at all"
    assert "resil-" not in maps.replace(jobs.library(), ""), "a ring is mapped"


def no_system_call():
    """Between the loader's last act and the program's first, no system call is made, and none at the end."""
    if not jobs.installed("strace"):
        return "(strace is not installed)"
    directory, lists = jobs.scratch(), []
    for env in ({}, {"LD_PRELOAD": jobs.library()}):
        log = os.path.join(directory, "log")
        subprocess.run(["strace", "-f", "-o", log, *(f"-E{k}={v}" for k, v in env.items()), "/bin/true"], check=True,
                       env=jobs.clean_environment(), timeout=600)
        with open(log, encoding="utf-8", errors="replace") as file:
            lists.append([re.sub(r"^\d+ +", "", line).split("(")[0] for line in file])
    names = set(lists[1]) - set(lists[0])
    assert not names - {"getpid"}, f"new system calls: {names}"
    # What maps one more library: openat, read, fstat, a few mmap, mprotect, close, and nothing else.
    mapping = {"openat", "read", "fstat", "newfstatat", "mmap", "mprotect", "close", "pread64"}
    more = {name: lists[1].count(name) - lists[0].count(name) for name in set(lists[1])}
    assert not [name for name, count in more.items() if count and name not in mapping], more
    assert more.get("openat", 0) <= 1, more
    return ""


def needed():
    dynamic = subprocess.run(["readelf", "-d", jobs.library()], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    assert found == ["libc.so.6"], f"needs {found}"
    assert "INIT_ARRAY" not in dynamic or re.search(r"\(INIT_ARRAYSZ\)\s+8 ", dynamic), "a static constructor"


def no_pmix():
    """The one name of PMIx answers where there is no PMIx as PMIx does before its initialisation, and goes on elsewhere."""
    ask = "import ctypes; print(ctypes.CDLL(None).PMIx_Commit())"
    assert output(["/usr/bin/python3", "-c", ask], {"LD_PRELOAD": jobs.library()}, "/")[1] == b"-31\n"
    beside = "import ctypes; ctypes.CDLL('libpmix.so.2', ctypes.RTLD_GLOBAL); " \
             "print(ctypes.CDLL(None).PMIx_Commit())"
    plain = output(["/usr/bin/python3", "-c", beside], {}, "/")
    assert output(["/usr/bin/python3", "-c", beside], {"LD_PRELOAD": jobs.library()}, "/") == plain
    return "" if plain[1] else "(libpmix is not installed)"


if __name__ == "__main__":
    checks = [(f"inert in {name}", lambda c=command: inert(c)) for name, command in COMMANDS.items()]
    checks += [("no thread, no handler, no ring", no_thread), ("no system call", no_system_call),
               ("PMIx_Commit without PMIx", no_pmix), ("needs libc only, no static constructor", needed)]
    sys.exit(run_checks(checks))
