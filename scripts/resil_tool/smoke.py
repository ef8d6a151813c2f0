# SPDX-License-Identifier: Apache-2.0
"""scripts/resil smoke: does a new system move data right, and how fast? Compiles smoke.c with the user's mpicc, runs it
with more and more processes, and judges. Touches one folder of its own and the jobs that it starts."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import place, smoke_verdict
from .job import Usage
from .progress import Progress
from .text import clean

COUNTS = (2, 8, 64, 512)
SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
MARK = "RESIL-SMOKE "
HERE = os.path.dirname(os.path.abspath(__file__))


def size(text: str) -> int:
    """"64K", "1M", "4096": bytes, a multiple of 8."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    word = text.strip().upper().removesuffix("IB").removesuffix("B")
    digits, factor = (word[:-1], units[word[-1]]) if word[-1:] in units else (word, 1)
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 12) or \
            not 8 <= int(digits) * factor <= 1 << 30 or int(digits) * factor % 8:
        raise ValueError("'%s' is not a size: 8 bytes to 1G, a multiple of 8, e.g. 64K" % clean(text, 40))
    return int(digits) * factor


def numbers(text: str, read, what: str) -> list:
    try:
        return [read(word) for word in text.split(",")]
    except ValueError as error:
        raise Usage("%s: %s" % (what, error)) from None


def process_count(text: str) -> int:
    if not (text.isascii() and text.strip().isdecimal()) or not 2 <= int(text) <= 1 << 20:
        raise ValueError("'%s' is not a number of processes (2 or more)" % clean(text, 40))
    return int(text)


def allowed(environment=os.environ) -> int:
    """How many processes this allocation takes, as the scheduler says; without one, the cores of this machine."""
    for name in ("SLURM_NTASKS", "LSB_DJOB_NUMPROC", "FLUX_JOB_NTASKS"):
        if environment.get(name, "").isdecimal():
            return int(environment[name])
    try:
        with open(environment["PBS_NODEFILE"], encoding="utf-8", errors="replace") as file:
            return max(2, sum(1 for line in file if line.strip()))
    except (KeyError, OSError):
        return max(2, len(os.sched_getaffinity(0)))


def default_launcher(environment=os.environ) -> str:
    if environment.get("SLURM_JOB_ID") and shutil.which("srun"):
        return "srun -n {ranks}"
    for name in ("mpirun", "mpiexec"):
        if shutil.which(name):
            return name + " -n {ranks}"
    raise Usage("no srun, mpirun or mpiexec: give the launcher with --launcher 'COMMAND -n {ranks}'")


def compile_program(mpicc: str, folder: str) -> str:
    program = os.path.join(folder, "smoke")
    command = shlex.split(mpicc) + ["-O2", "-std=gnu11", "-o", program, os.path.join(HERE, "smoke.c"), "-ldl"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=300, check=False)
    except FileNotFoundError:
        raise Usage("%s is not there: give the MPI's compiler with --mpicc" % clean(command[0])) from None
    except subprocess.TimeoutExpired:
        raise Usage("%s does not end" % clean(command[0])) from None
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace")[-2000:].strip()
        raise Usage("%s cannot compile the program:\n%s" % (clean(mpicc), said))
    return program


class Job:
    """One run. After run(): rows, status (None: ended at the limit), output (the last lines that are not rows)."""

    def __init__(self, launcher: str, ranks: int, command: list[str], limit: float):
        self.ranks = ranks
        self.line = [word.replace("{ranks}", str(ranks)) for word in shlex.split(launcher)] + command
        self.limit = limit
        self.rows: list[dict] = []
        self.status: int | None = None
        self.output = ""
        self.seconds = 0.0

    def run(self) -> "Job":
        began = time.monotonic()
        try:
            process = subprocess.Popen(self.line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as error:
            raise Usage("cannot start %s: %s" % (clean(self.line[0]), clean(error.strerror))) from None
        try:
            said, _ = process.communicate(timeout=self.limit)
            self.status = process.returncode
        except subprocess.TimeoutExpired:
            said = self._end(process)
        except BaseException:  # also an interrupt: nothing of the job stays behind
            self._end(process)
            raise
        self.seconds = time.monotonic() - began
        rest = []
        for line in said.decode(errors="replace").splitlines():
            try:
                self.rows.append(json.loads(line[line.index(MARK) + len(MARK):]))
            except ValueError:
                rest.append(line)
        self.output = "\n".join(rest[-20:])
        return self

    def _end(self, process) -> bytes:
        """The launcher is asked first, so that it ends its ranks on other nodes, then the whole session is killed."""
        for how, patience in ((signal.SIGTERM, min(10.0, max(1.0, self.limit))), (signal.SIGKILL, 10)):
            try:
                os.killpg(process.pid, how)
            except ProcessLookupError:
                pass
            try:
                said = process.communicate(timeout=patience)[0]
            except subprocess.TimeoutExpired:
                continue
            try:
                os.killpg(process.pid, signal.SIGKILL)  # what ignored it
            except ProcessLookupError:
                pass
            return said
        return b""


def plan(options) -> tuple[list[int], list[int], list[str]]:
    """Process counts, sizes, kinds of memory."""
    sizes = numbers(options.sizes, size, "--sizes") if options.sizes else list(SIZES)
    if options.ranks:
        counts = numbers(options.ranks, process_count, "--ranks")
    else:
        most = allowed()
        counts = [n for n in COUNTS if n <= most]
    kinds = ["host", "device"] if options.memory == "both" else [options.memory]
    return counts, sizes, kinds


def environment_words(kind: str, options, library: str | None, folder: str) -> list[str] | None:
    """`env` and what it sets for the ranks; None: this memory is left out."""
    if kind == "host" and not options.with_resil:
        return []
    if library is None:
        return None if not options.gpu_aware else []
    words = ["env", "LD_PRELOAD=" + library, "RESIL_DIR=" + os.path.join(folder, "reports-%s" % kind)]
    return words + ([] if options.gpu_aware or kind == "host" else ["RESIL_STAGE=on"])


def run(options) -> int:
    counts, sizes, kinds = plan(options)
    if options.peak is not None and not options.peak > 0:
        raise Usage("--peak: GB/s, more than 0")
    launcher = options.launcher or default_launcher()
    if "{ranks}" not in launcher:
        raise Usage("--launcher: {ranks} must stand where the number of processes goes")
    library = options.library or place.library()
    if options.library and not os.path.exists(options.library):
        raise Usage("%s is not there" % clean(options.library))
    if options.with_resil and library is None:
        raise Usage("libresil.so is not found: give it with --library")
    # In the working directory, which the nodes of a job mostly share; /tmp they do not.
    folder = tempfile.mkdtemp(prefix="resil-smoke-", dir=options.directory or ".")
    folder = os.path.abspath(folder)
    result = smoke_verdict.Result(options.peak, launcher)
    progress = Progress("compiling", len(kinds) * len(counts), 0)
    try:
        progress.__enter__()
        progress.at(0)
        program = compile_program(options.mpicc, folder)
        for kind in kinds:
            before = environment_words(kind, options, library, folder)
            if before is None:
                result.skip(kind, "libresil.so is not found: device buffers go through it (--library), or --gpu-aware")
                continue
            for ranks in counts:
                progress.step("%s memory, %d processes" % (kind, ranks))
                command = before + [program, kind, str(options.volume << 20), *map(str, sizes)]
                job = Job(launcher, ranks, command, options.timeout).run()
                skipped = [row["skipped"] for row in job.rows if row.get("skipped")]
                if skipped and job.status == 0:
                    if options.memory == "device":
                        result.fail(kind, ranks, "no device memory: %s" % skipped[0], job.output)
                    else:
                        result.skip(kind, skipped[0])
                    break
                result.add(kind, ranks, sizes, job)
    finally:
        progress.__exit__()
        if options.keep:
            sys.stderr.write("resil: kept %s\n" % folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        print(json.dumps(result.summary(), indent=2))
    else:
        print("\n".join(result.lines(sizes)))
    return result.status()
