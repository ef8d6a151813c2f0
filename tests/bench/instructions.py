# SPDX-License-Identifier: Apache-2.0
"""Instructions of one round of each kind of calls (instructions.c), counted by callgrind on one rank's main thread, so that
a crowded machine changes nothing: the least of some turns. With another libresil.so beside it, what has been added."""
import collections
import glob
import os
import re
import sys

from bench.turns import compiled
from harness import mpi as jobs

MODES = {"watch": {}, "lazy": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "lazy"},
         "strict": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "strict"}, "record": {"RESIL_MODE": "record"},
         "order": {"RESIL_REDUCE": "order"}}
ROUNDS, TURNS = 100, 3


def counted(path):
    """(name of the kind, instructions) of one dump; None: not one that the program asked for."""
    name, total, inclusive = None, 0, False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("desc: Trigger: Client Request: "):
                name = line.rsplit(" ", 1)[1].strip()
            elif line.startswith("calls="):
                inclusive = True  # the next line is what the callee took, which has lines of its own
            elif re.match(r"[+\-*\d]\S* \d+$", line):
                total += 0 if inclusive else int(line.split()[1])
                inclusive = False
    return None if name is None else (name, total / ROUNDS)


def of_library(mpi, program, library, mode):
    """{kind: instructions a round}."""
    folder = jobs.scratch()
    env = {**MODES[mode], "RESIL_LOG": "quiet", "RESIL_DIR": os.path.join(folder, "report"), "LD_PRELOAD": library}
    options = ["--mca", "osc", "^ucx"] if mpi == "openmpi" else []  # under valgrind that one makes no window
    given = [f"{name}={value}" for name, value in env.items()]
    command = ["env", *given, "valgrind", "--tool=callgrind", "--separate-threads=yes", "-q",
               f"--callgrind-out-file={folder}/counts.%p", program, str(ROUNDS), str(TURNS)]
    result = jobs.run(mpi, 1, command, preload=False, timeout=600, options=options, cwd=folder)
    if result.returncode != 0:
        sys.exit(f"bench: failed\n{result.text()}")
    least = collections.OrderedDict()
    for path in sorted(glob.glob(f"{folder}/counts.*-01"), key=lambda path: int(path.split(".")[-1].split("-")[0])):
        found = counted(path)
        if found is not None:
            least[found[0]] = min(found[1], least.get(*found))
    return least


def instructions(options):
    program = compiled(options.mpi, "instructions")
    modes = options.only or list(MODES)
    libraries = [os.path.abspath(library) for library in (options.base, jobs.library()) if library]
    counts = {mode: [of_library(options.mpi, program, library, mode) for library in libraries] for mode in modes}
    lines = [f"{options.mpi}, instructions a round" + (", [added to the base]" if options.base else ""), "",
             "| | " + " | ".join(modes) + " |", "|---|" + "---:|" * len(modes)]
    for kind in counts[modes[0]][-1]:
        cells = [f"{counts[mode][-1][kind]:,.0f}" + (f" [{counts[mode][-1][kind] - counts[mode][0][kind]:+,.0f}]"
                                                     if options.base else "") for mode in modes]
        lines.append(f"| {kind.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return lines
