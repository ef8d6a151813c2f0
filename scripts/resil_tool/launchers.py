# SPDX-License-Identifier: Apache-2.0
"""Command lines of launchers: which launcher a word is, where its program stands, and how variables are handed to the ranks
on all nodes. Asks launchers for their version; starts and changes nothing."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess

from .job import Usage
from .text import clean

PRELOAD = "LD_PRELOAD"
STARTERS = re.compile(r"(mpirun|mpiexec|orterun|prterun|prun)([._-].*)?$")
SUBMITTERS = ("sbatch", "salloc", "qsub", "bsub", "flux-batch")
CARRIERS = ("aprun", "jsrun", "flux")  # hand their environment to the ranks by themselves

# Options that take a value, to find the program behind them. An option that is missing here costs nothing as long as its
# value is no name of a program.
VALUES = {
    "openmpi": {1: "n np c N H host hostfile machinefile x wdir wd path prefix map-by rank-by bind-to rankfile rf tune am output "
                   "output-filename npernode npersocket timeout report-uri stdin personality dvm-uri pset cpu-set cpu-list app "
                   "launch-agent rtos display max-restarts stream-buffering", 2: "mca gmca prtemca pmixmca omca"},
    "hydra": {1: "n np f ppn host hosts hostfile machinefile wdir path envlist genvlist bind-to map-by membind launcher rmk iface "
                 "launcher-exec outfile-pattern errfile-pattern configfile bootstrap bootstrap-exec ranks-per-proc "
                 "prepend-pattern arch soft file perhost hostlist localhost timeout gpus-per-proc", 2: "env genv"},
    "srun": {1: "n N c p A J t o e i w x D d G m q r C L S T Z B a "
                "ntasks nodes cpus-per-task partition account job-name time output error input nodelist exclude chdir mpi export "
                "jobid gres gpus gpus-per-task gpus-per-node mem mem-per-cpu constraint distribution cpu-bind qos reservation "
                "ntasks-per-node ntasks-per-core ntasks-per-socket dependency signal threads-per-core multi-prog bcast network "
                "kill-on-bad-exit wait nice priority relative het-group comment clusters propagate task-prolog task-epilog"},
}


@dataclasses.dataclass
class Launcher:
    """`kind`: openmpi (-x), hydra (-genv), srun (--export), environment (inherits); `name`: for people."""
    kind: str
    name: str
    mpi: str = ""  # whose ranks it starts: openmpi, mpich; "" any


def identify(word: str) -> Launcher | None:
    """None: no launcher, the program itself. Raises Usage for one that cannot be used."""
    name = os.path.basename(word)
    if name in SUBMITTERS:
        raise Usage("%s only submits a job: put resil run in front of srun or mpirun in its script" % name)
    if name == "srun":
        return Launcher("srun", "srun")
    if name in CARRIERS:
        return Launcher("environment", name)
    if not STARTERS.match(name):
        return None
    try:
        done = subprocess.run([word, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=20, check=False)
    except FileNotFoundError:
        raise Usage("%s: no such command" % clean(word)) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Usage("%s --version: %s" % (clean(word), clean(error))) from None
    said = done.stdout.decode(errors="replace")
    number = re.search(r"\d+\.\d+(\.\d+)?\w*", said)
    version = " " + number.group(0) if number else ""
    if re.search(r"Open MPI|OpenRTE", said):
        return Launcher("openmpi", "Open MPI" + version, "openmpi")
    if re.search(r"PRRTE|prte", said, re.I):
        return Launcher("openmpi", "PRRTE" + version)
    if re.search(r"HYDRA|Intel\(R\) MPI|MVAPICH", said):
        return Launcher("hydra", "hydra" + version, "mpich")
    raise Usage("%s is a launcher that resil does not know; hand LD_PRELOAD and the RESIL_ variables to the ranks by its own "
                "option (resil env lists them)" % clean(word))


def with_library(chain: str, library: str) -> str:
    """`library` in front of what the site preloads; another libresil.so gives way."""
    others = [word for word in re.split(r"[:\s]+", chain) if word and os.path.basename(word) != "libresil.so"]
    return ":".join([library, *others])


def parts(words: list[str]) -> list[list[str]]:
    """The programs of one launch, separated by ":"."""
    found: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            found.append([])
        else:
            found[-1].append(word)
    return found


def program_at(kind: str, words: list[str]) -> int:
    """Where the program stands in one part, len(words) when it is not found: the first word that is no option nor an option's
    value, and that names a program."""
    takes = {name: count for count, names in VALUES.get(kind, {}).items() for name in names.split()}
    i = 0
    while i < len(words):
        word = words[i]
        if word.startswith("-"):
            short = kind == "srun" and not word.startswith("--") and len(word) > 2
            i += 1 + (0 if "=" in word or short else takes.get(word.lstrip("-"), 0))
        elif executable(word):
            return i
        else:
            i += 1
    return len(words)


def executable(word: str) -> str | None:
    """Path of the program that a word names here; None: it names none."""
    found = shutil.which(word)
    return os.path.abspath(found) if found else None


def programs(kind: str, words: list[str]) -> list[str]:
    """Paths of the programs of a launch, as far as they are on this node."""
    found = []
    for part in parts(words):
        at = program_at(kind, part)
        if at < len(part):
            found.append(executable(part[at]))
    return found


class Variables:
    """What the ranks shall get: `library`, and settings of which those in `chosen` were asked for by options of resil run."""

    def __init__(self, library: str, settings: dict[str, str], chosen: set[str], environment: dict[str, str]):
        self.library, self.settings, self.chosen, self.environment = library, settings, chosen, environment

    def preload(self, own: str | None = None) -> str:
        return with_library(self.environment.get(PRELOAD, "") if own is None else own, self.library)

    def given(self, name: str, value: str):
        """The launcher's own option names a setting: it counts, unless resil run was asked for another value."""
        if name in self.chosen and value != self.settings.get(name):
            raise Usage("%s is set twice: %s by the launcher's option, %s by that of resil run"
                        % (clean(name), clean(value, 80), clean(self.settings[name], 80)))


def forward(launcher: Launcher, words: list[str], variables: Variables) -> tuple[list[str], dict[str, str]]:
    """(the launcher's arguments, what is added to its environment)"""
    if launcher.kind == "openmpi":
        return _openmpi(words, variables), {}
    if launcher.kind == "hydra":
        return _hydra(words, variables)
    if launcher.kind == "srun":
        return _srun(words, variables)
    return words, dict(variables.settings, **{PRELOAD: variables.preload()})


def _joined(pieces: list[list[str]]) -> list[str]:
    out: list[str] = []
    for i, piece in enumerate(pieces):
        out += ([":"] if i else []) + piece
    return out


def _openmpi(words: list[str], variables: Variables) -> list[str]:
    """-x NAME=value in front of each program: it holds for that program alone."""
    if variables.environment.get("OMPI_MCA_mca_base_env_list") or "mca_base_env_list" in words:
        raise Usage("Open MPI takes -x or mca_base_env_list, not both: add LD_PRELOAD=%s to the list" % variables.library)
    pieces = []
    for part in parts(words):
        end, own, rest, i = program_at("openmpi", part), {}, [], 0
        if any(re.fullmatch(r"--?app", word) for word in part[:end]):
            raise Usage("options of the command line do not reach the lines of --app's file: put -x LD_PRELOAD=%s into each"
                        % variables.library)
        while i < end:
            if part[i] == "-x" and i + 1 < end:
                name, equals, value = part[i + 1].partition("=")
                if name == PRELOAD or name.startswith("RESIL_"):
                    own[name] = value if equals else variables.environment.get(name, "")
                    i += 2
                    continue
            rest.append(part[i])
            i += 1
        for name, value in own.items():
            variables.given(name, value)
        values = {**variables.settings, **own, PRELOAD: variables.preload(own.get(PRELOAD))}
        front = [word for name, value in sorted(values.items()) for word in ("-x", "%s=%s" % (name, value))]
        pieces.append(front + rest + part[end:])
    return _joined(pieces)


def _hydra(words: list[str], variables: Variables) -> tuple[list[str], dict[str, str]]:
    """-genv NAME value once, for all programs; in -env, which counts more, the library is added."""
    if any(re.fullmatch(r"--?configfile", word) for word in words[:program_at("hydra", words)]):
        return words, dict(variables.settings, **{PRELOAD: variables.preload()})  # stands alone; hydra hands all on
    pieces, own = [], {}
    for part in parts(words):
        end, rest, i = program_at("hydra", part), [], 0
        while i < end:
            option = part[i].lstrip("-") if part[i].startswith("-") else ""
            if option in ("env", "genv") and i + 2 < end and (part[i + 1] == PRELOAD or part[i + 1].startswith("RESIL_")):
                name, value = part[i + 1:i + 3]
                variables.given(name, value)
                if option == "genv":
                    own[name] = value
                else:
                    rest += [part[i], name, variables.preload(value) if name == PRELOAD else value]
                i += 3
                continue
            rest.append(part[i])
            i += 1
        pieces.append(rest + part[end:])
    values = {**variables.settings, **own, PRELOAD: variables.preload(own.get(PRELOAD))}
    return [word for name, value in sorted(values.items()) for word in ("-genv", name, value)] + _joined(pieces), {}


def _srun(words: list[str], variables: Variables) -> tuple[list[str], dict[str, str]]:
    """Settings go into srun's environment, the library into --export, so that srun itself does without it."""
    pieces = []
    for part in parts(words):
        end, rest, i = program_at("srun", part), [], 0
        exported = variables.environment.get("SRUN_EXPORT_ENV") or variables.environment.get("SLURM_EXPORT_ENV") or "ALL"
        while i < end:
            if part[i] == "--export" and i + 1 < end:
                exported, i = part[i + 1], i + 2
            elif part[i].startswith("--export="):
                exported, i = part[i][len("--export="):], i + 1
            else:
                rest.append(part[i])
                i += 1
        pieces.append(["--export=" + _export(exported, variables)] + rest + part[end:])
    return _joined(pieces), dict(variables.settings)


def _export(exported: str, variables: Variables) -> str:
    if exported == "NONE":
        raise Usage("srun --export=NONE keeps every variable from the ranks: name those that they need, or use --export=NIL")
    own, kept, names = None, [], set()
    for word in exported.split(",") if exported != "NIL" else []:
        name, equals, value = word.partition("=")
        if name == PRELOAD:
            own = value if equals else variables.environment.get(PRELOAD, "")
            continue
        if equals and name.startswith("RESIL_"):
            variables.given(name, value)
        names.add(name)
        kept.append(word)
    chain = variables.preload(own)
    if "," in chain:
        raise Usage("%s has a comma, which srun --export cannot carry" % clean(chain))
    if "ALL" not in names:  # of the settings only those that are named would get through
        kept += [name for name in sorted(variables.settings) if name not in names]
    return ",".join([*kept, "%s=%s" % (PRELOAD, chain)])
