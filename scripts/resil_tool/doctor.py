# SPDX-License-Identifier: Apache-2.0
"""`resil doctor`: does resil work on this machine, with this launcher and program? Looks first, then runs a self-test that
must find one flipped bit and one hang (selftest.py). Touches one folder of its own and the jobs that it starts."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time

from . import machine, place, selftest
from .progress import Progress
from .text import WIDTH, clean, colour, plural, wrap

STATES = {"ok": "32", "note": "36", "warning": "33", "failed": "1;31", "left out": "2"}
LABEL = 10

EPILOG = """\
examples:
  %(prog)s                         this machine, with its mpicc and its launcher
  %(prog)s mpirun -np 4 ./app      that launcher, and whether resil can see into that program
  %(prog)s --no-self-test ./app    looks only

exit status: 0 it works (perhaps with warnings), 1 something failed, 2 usage
"""


@dataclasses.dataclass
class Check:
    name: str
    state: str       # ok, note, warning, failed, left out
    text: str
    to_do: str = ""


def add_command(commands):
    parser = commands.add_parser("doctor", help="does it work here? finds a flipped bit and a hang that it makes itself", epilog=EPILOG,
                                 description="Checks library, settings, MPI, launchers, limits, other tools and signals; then starts "
                                 "jobs of two ranks, damages a message in one and lets another hang: both must be found.",
                                 formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--no-self-test", action="store_true", help="start no job")
    parser.add_argument("--mpicc", default=os.environ.get("MPICC"), metavar="COMMAND",
                        help="compiles the self-test; default $MPICC, that of the launcher's MPI, or mpicc")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("command", nargs="...", metavar="COMMAND", help="program, or launch line, that resil is meant for")
    parser.set_defaults(run=run)


def run(options) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    began, checks = time.monotonic(), []

    def say(found):
        for name, state, text, to_do in found:
            checks.append(Check(name, state, text, to_do))
            if not options.json:
                progress.clear()
                print("\n".join(_lines(checks[-1])), flush=True)
    progress = Progress("self-test", selftest.STEPS, 0)
    library = place.library()
    say(machine.library(library))
    if library:
        say(machine.settings(library))
    found, launcher = machine.launchers(command)
    say(found)
    say(machine.program(command, launcher))
    say(machine.limits())
    say(machine.other_tools())
    say(machine.accelerators())
    if options.no_self_test or not library:
        say([("self-test", "left out", "no job was started", "")])
    else:
        with progress:
            progress.at(0)
            for found in selftest.run(launcher, command, options.mpicc):
                say([found])
                progress.step()
    failed = [one for one in checks if one.state == "failed"]
    warned = [one for one in checks if one.state == "warning"]
    seconds = time.monotonic() - began
    if options.json:
        print(json.dumps({"verdict": "failed" if failed else "ok", "warnings": len(warned), "seconds": round(seconds, 2),
                          "version": place.version(), "library": library,
                          "checks": [dataclasses.asdict(one) for one in checks]}, indent=1))
    else:
        verdict = colour("FAILED", STATES["failed"]) if failed else colour("OK", STATES["ok"])
        print("%s: %s, %s, %.1f s" % (verdict, plural(len(failed), "failure"), plural(len(warned), "warning"), seconds))
    sys.stdout.flush()
    return 1 if failed else 0


def _lines(check: Check) -> list[str]:
    state = check.state.ljust(9)
    head = state + check.name.ljust(LABEL) + " "
    lines = wrap(clean(check.text, 2000), head, " " * len(head), WIDTH, 8)
    lines[0] = lines[0].replace(state, colour(state, STATES[check.state]), 1)
    if check.to_do:
        lines += wrap(clean(check.to_do, 2000), " " * len(head) + "To do: ", " " * len(head), WIDTH, 8)
    return lines
