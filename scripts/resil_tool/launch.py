# SPDX-License-Identifier: Apache-2.0
"""`resil run`: starts a job with the library in its ranks, on all nodes. Ends by becoming the launcher, so that signals, pids
and the exit status are the job's."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

from . import configuration, elf, launchers, place, questions
from .job import Usage
from .text import clean

EPILOG = """\
examples:
  %(prog)s -n 4 ./app                         by the launcher of the program's own MPI, srun in a Slurm allocation
  %(prog)s mpirun -np 4 ./app                 only watches: hangs, what each rank did last
  %(prog)s --is-my-data-right mpirun -np 4 ./app
  %(prog)s --checksum --set on_mismatch=log srun --mpi=pmix -n 4 ./app
  %(prog)s --dry-run mpirun -np 4 ./app       prints what would be run, and runs nothing

exit status: that of the job; 2 if it was not started, with the reason on standard error. The library ends jobs itself with 90 (data
differ), 91 (the run differs from its recording), 92 (hang, or calls that do not match) and 93 (settings).
"""

MPI_NAMES = {"openmpi": "Open MPI", "mpich": "MPICH or a relative", "standard": "the MPI standard ABI"}


def add_command(commands):
    parser = commands.add_parser(
        "run", help="start a job with the library in its ranks, on all nodes", epilog=EPILOG, allow_abbrev=False,
        description="Hands LD_PRELOAD and the RESIL_ variables to the ranks by the launcher's own options (Open MPI, hydra, srun), "
        "keeps what the site preloads, and refuses what cannot work. Without an option it only watches.",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", dest="ranks", metavar="N", help="number of ranks; resil chooses the launcher")
    parser.add_argument("--dry-run", action="store_true", help="print the command and what is added to the environment")
    parser.add_argument("--json", action="store_true", help="with --dry-run: as JSON")
    parser.add_argument("--force", action="store_true", help="start even what resil would refuse")
    questions.add_options(parser)
    parser.add_argument("command", nargs="...", metavar="COMMAND", help="launcher with its arguments, or the program")
    parser.set_defaults(run=run)


def run(options) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise Usage("what is to be run? for example: %s run mpirun -np 4 ./app" % place.command())
    library = place.library()
    if library is None:
        raise Usage("libresil.so is not there: meson compile -C build, or reinstall")
    if re.search(r"[:\s]", library):
        raise Usage("%s: LD_PRELOAD cannot name a path with a blank or a colon" % clean(library))
    environment, notes = dict(os.environ), []
    chosen = questions.settings(options, environment, notes)
    settings = {name: value for name, value in environment.items()
                if name.startswith("RESIL_") and not name.startswith("RESIL_TOOL_")}
    settings.update(chosen)
    _check(library, settings, notes, options.force)
    if options.ranks:
        command = _with_launcher(options.ranks, command) + command
    launcher = launchers.identify(command[0])
    for reason in refusals(launcher, command):
        if not options.force:
            raise Usage(reason)
        notes.append(reason)
    variables = launchers.Variables(library, settings, set(chosen), environment)
    if launcher is None:
        words, added = command, dict(settings, LD_PRELOAD=variables.preload())
    else:
        words, added = launchers.forward(launcher, command[1:], variables)
        words = command[:1] + words
    if launcher and launcher.kind == "srun":
        notes += _srun_notes(command)
    if options.dry_run:
        return _show(options.json, words, added, launcher, notes)
    for note in notes:
        sys.stderr.write("resil: %s\n" % clean(note))
    environment = {name: value for name, value in environment.items() if not name.startswith("RESIL_TOOL_")}
    environment.update(added)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(words[0], words, environment)
    except OSError as error:
        raise Usage("%s: %s" % (clean(words[0]), clean(error.strerror))) from None


def _check(library: str, settings: dict[str, str], notes: list[str], force: bool):
    """Settings that would end the job with 93 are told before it starts."""
    try:
        found = configuration.ask(library, settings)
    except Usage:
        return  # of another architecture: the ranks will tell
    notes += [line.removeprefix("resil: ") for line in found.warnings]
    if found.error and not force:
        raise Usage(found.error.removeprefix("resil: ").removesuffix(" Stopping with exit status 93."))


def _with_launcher(ranks: str, command: list[str]) -> list[str]:
    """Of the program's own MPI; srun within an allocation."""
    if not (ranks.isascii() and ranks.isdecimal() and 0 < int(ranks) < 1 << 30):
        raise Usage("-n takes a number of ranks")
    if launchers.STARTERS.match(os.path.basename(command[0])) or os.path.basename(command[0]) == "srun":
        raise Usage("-n belongs behind %s, or without it" % clean(command[0]))
    path = launchers.executable(command[0])
    program = elf.read(path) if path else None
    mpi = program.mpi if program else ""
    if os.environ.get("SLURM_JOB_ID") and shutil.which("srun"):
        return ["srun", *_slurm_plugin(mpi), "-n", ranks]
    names = {"openmpi": ["mpirun.openmpi", "mpirun", "mpiexec", "orterun", "prterun"],
             "mpich": ["mpirun.mpich", "mpiexec.hydra", "mpirun", "mpiexec"]}.get(mpi, ["mpirun", "mpiexec"])
    others = []
    for name in names:
        if not shutil.which(name):
            continue
        launcher = launchers.identify(name)
        if not mpi or mpi == "standard" or not launcher.mpi or launcher.mpi == mpi:
            return [name, "-n", ranks]
        others.append("%s is of %s" % (name, launcher.name))
    raise Usage("no launcher of %s is in the path%s" % (MPI_NAMES.get(mpi, "any MPI"), "".join("; " + one for one in others)))


def _slurm_plugin(mpi: str) -> list[str]:
    """--mpi= for a program of that MPI, where the site has no default of its own."""
    if os.environ.get("SLURM_MPI_TYPE") or _slurm_default() not in ("none", ""):
        return []
    offered = _ask("srun", "--mpi=list")
    for name in {"openmpi": ("pmix",), "mpich": ("pmi2", "pmix")}.get(mpi, ()):
        if re.search(r"\b%s\b" % name, offered):
            return ["--mpi=" + name]
    return []


def _slurm_default() -> str:
    found = re.search(r"(?m)^MpiDefault\s*=\s*(\S+)", _ask("scontrol", "show", "config"))
    return found.group(1) if found else ""


def _ask(*command: str) -> str:
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10,
                              check=False)
        return done.stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _srun_notes(command: list[str]) -> list[str]:
    named = any(word.startswith("--mpi") for word in command) or os.environ.get("SLURM_MPI_TYPE")
    if named or _slurm_default() != "none":
        return []
    return ["this Slurm has no default for --mpi: without it Open MPI ends in MPI_Init, and MPICH starts ranks that do not know "
            "each other; --mpi=pmix or --mpi=pmi2 (srun --mpi=list)"]


def refusals(launcher, command: list[str]) -> list[str]:
    """Why this cannot work, as far as it can be known on this node."""
    paths = launchers.programs(launcher.kind, command[1:]) if launcher else [launchers.executable(command[0])]
    reasons = []
    for path in dict.fromkeys(filter(None, paths)):
        program, name = elf.read(path), clean(path, 200)
        if program is None:
            continue  # a script; what it starts gets the library, too
        if program.bits != 64 or (elf.machine_here() and program.machine != elf.machine_here()):
            reasons.append("%s is built for another machine than libresil.so: the loader would leave the library out" % name)
        elif not program.dynamic:
            reasons.append("%s is linked statically: nothing can be preloaded; link it dynamically (without -static)" % name)
        elif program.setuid:
            reasons.append("%s runs with another user's rights (setuid, setgid): the loader ignores LD_PRELOAD" % name)
        elif launcher and launcher.mpi and program.mpi in ("openmpi", "mpich") and program.mpi != launcher.mpi:
            reasons.append("%s needs %s, %s starts ranks of %s: each would be a job of one rank; use the launcher of its own MPI"
                           % (name, MPI_NAMES[program.mpi], clean(command[0]), MPI_NAMES[launcher.mpi]))
    return reasons


def _show(as_json: bool, words: list[str], added: dict[str, str], launcher, notes: list[str]) -> int:
    if as_json:
        print(json.dumps({"command": words, "environment": added, "launcher": launcher.name if launcher else None,
                          "notes": notes}, indent=1))
        return 0
    for note in notes:
        print("# " + clean(note))
    print(" ".join(["%s=%s" % (name, shlex.quote(value)) for name, value in sorted(added.items())] + [shlex.join(words)]))
    return 0
