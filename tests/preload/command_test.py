#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the command asks the library itself: resil env, and settings that resil run refuses.

Usage: command_test.py
"""
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, patience  # noqa: E402
from harness.main import run_checks  # noqa: E402

TOOL = os.path.join(jobs.ROOT, "scripts", "resil")


def resil(*arguments, **environment):
    return patience.run([sys.executable, TOOL, *arguments], timeout=60, capture_output=True,
                        env=jobs.clean_environment({"RESIL_TOOL_LIBRARY": jobs.library(), "RESIL_FILES": "", **environment}))


def table(**environment):
    done = resil("env", "--json", **environment)
    found = json.loads(done.stdout)
    return done.returncode, found, {one["name"]: one for one in found["variables"]}


def every_variable():
    """The same names and defaults as the page, which is made from the same table."""
    with open(os.path.join(jobs.ROOT, "docs", "CONFIGURATION.md"), encoding="utf-8") as file:
        rows = re.findall(r"(?m)^\| `(RESIL_\w+)` \| .*? \| (`[^`]*`|none) \| ", file.read())
    status, found, variables = table()
    assert status == 0 and not found["error"] and not found["warnings"], found
    assert len(rows) > 20 and [name for name, _ in rows] == list(variables), (rows, list(variables))
    for name, default in rows:
        one = variables[name]
        assert one["default"] == default.strip("`").replace("none", "", default == "none"), one
        assert one["value"] == one["default"] and one["origin"] == "default" and one["description"], one


def in_effect():
    """As the library reads it, not as it was written."""
    status, _, variables = table(RESIL_MODE=" verify,checksum ", RESIL_HANG="abort", RESIL_LOG="")
    assert status == 0
    assert variables["RESIL_MODE"]["value"] == "watch,checksum,verify" and variables["RESIL_MODE"]["origin"] == "environment"
    assert variables["RESIL_HANG"]["value"] == "abort" and variables["RESIL_HANG"]["default"] == "report"
    assert variables["RESIL_LOG"]["origin"] == "default", variables["RESIL_LOG"]
    text = resil("env", "--set", RESIL_HANG="abort").stdout.decode()
    assert text == "RESIL_HANG  abort  (environment; default report)\n", text
    assert resil("env", "--set").stdout.decode() == "all variables have their defaults\n"


def explained():
    """`resil help`: every variable of the page, with its meaning; one of them by name."""
    told = resil("help").stdout.decode()
    _, _, variables = table()
    assert re.findall(r"(?m)^(RESIL_\w+)$", told) == list(variables), told
    words = " ".join(told.split())
    for one in variables.values():
        assert " ".join(one["description"].split()) in words, one
    assert max(map(len, told.splitlines())) <= 100, told
    done = resil("help", "hang", RESIL_HANG="abort")
    assert done.stdout.decode().startswith("RESIL_HANG\n    Values: report, abort, off. Default: report.\n    "), done.stdout
    assert resil("help", "NO_SUCH").returncode == 2


def what_is_wrong():
    status, found, _ = table(RESIL_MODE="chekcsum", RESIL_TYPO="1")
    assert status == 1 and "did you mean checksum?" in found["error"] and "RESIL_TYPO" in found["warnings"][0], found
    assert resil("env", "NO_SUCH").returncode == 2
    done = resil("env", "hang", RESIL_FAULT="\033[31mred")
    assert done.returncode == 1 and b"\033" not in done.stdout and b"abort" in done.stdout, done.stdout


def run_refuses():
    """Before anything is started."""
    for arguments, environment, words in ((["--set", "mode=chekcsum"], {}, b"did you mean checksum?"),
                                          ([], {"RESIL_HANG": "stop"}, b"RESIL_HANG='stop'")):
        done = resil("run", *arguments, "echo", "started", **environment)
        assert done.returncode == 2 and words in done.stderr and b"started" not in done.stdout, (done.stdout, done.stderr)
    done = resil("run", "echo", "started", RESIL_TYPO="1")
    assert done.returncode == 0 and done.stdout == b"started\n" and b"RESIL_TYPO" in done.stderr, done.stderr


def site_file(text, mode=0o644):
    path = os.path.join(jobs.scratch(), "resil.conf")
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def site():
    """Below the environment, with its origin; limits hold; what is not to be believed is not."""
    path = site_file("RESIL_HANG=abort\nRESIL_LOG=quiet\nlimit RESIL_MODE=watch|checksum\n")
    status, found, variables = table(RESIL_CONF=path, RESIL_LOG="info")
    assert status == 0 and not found["warnings"], found
    assert (variables["RESIL_HANG"]["value"], variables["RESIL_HANG"]["origin"]) == ("abort", path), variables["RESIL_HANG"]
    assert (variables["RESIL_LOG"]["value"], variables["RESIL_LOG"]["origin"]) == ("info", "environment"), variables["RESIL_LOG"]
    assert variables["RESIL_MODE"]["limit"] == "watch|checksum", variables["RESIL_MODE"]
    status, found, _ = table(RESIL_CONF=path, RESIL_MODE="record")
    assert status == 1 and "beyond what this site allows; allowed: watch, checksum." in found["error"], found
    assert resil("run", "--record", "echo", RESIL_CONF=path).returncode == 2
    _, _, variables = table(RESIL_CONF="off")
    assert variables["RESIL_HANG"]["origin"] == "default", variables["RESIL_HANG"]
    pipe = os.path.join(jobs.scratch(), "pipe")
    os.mkfifo(pipe)  # a plain open would wait for a writer
    for path, words in ((site_file("RESIL_HANG=abort", 0o666), "others may write"), (os.path.dirname(path), "no regular file"),
                        (path + "-", "no such file"), (site_file("#" * 9000), "8192"), (pipe, "no regular file"), ("/dev/zero", "")):
        status, found, variables = table(RESIL_CONF=path)
        assert status == 1 and words in found["warnings"][0] and variables["RESIL_HANG"]["origin"] == "default", (path, found)
    if os.geteuid() == 0:
        path = site_file("RESIL_HANG=abort")
        os.chown(path, 1, 1)
        assert "another user" in table(RESIL_CONF=path)[1]["warnings"][0]


def main():
    return run_checks([("env: every variable", every_variable), ("env: values in effect", in_effect),
                       ("env: what is wrong", what_is_wrong), ("help", explained), ("a site's file", site), ("run: settings that are not allowed", run_refuses)])


if __name__ == "__main__":
    sys.exit(main())
