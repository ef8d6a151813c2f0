# SPDX-License-Identifier: Apache-2.0
"""Command lines of README and of the pages for users, and a directory in which they run as printed: build/libresil.so, ./app,
mpirun, mpicc, resil, scripts/.

README's table of launch lines is one source. The other are blocks of pages, marked `sh`: a command a line, run in the order of
the page. A comment in front of a block says what else it needs (see Block), or why it is not run (see NotRun)."""
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

from harness import mpi as jobs, patience, report as reports, shown

APP = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == 0) printf("%d ranks\\n", size);
  return MPI_Finalize();
}
"""


# What the pages call ./app, by the name that `app=` gives it.
APPS = {
    "ring": APP,
    # Rank 1 leaves the loop for a message that nobody sends.
    "deadlock": """
#include <mpi.h>
int main(int argc, char** argv) {
  int rank, x = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = 0; i < 10; i++) MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 1) MPI_Recv(&x, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Finalize();
}
""",
    # Messages and sums, the same in each run; sums of its own where the environment names a rank.
    "solver": """
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  int rank, size;
  double x[64] = {1}, y[64], sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const char* odd = getenv("ODD_RANK");
  for (int i = 0; i < 200; i++) {
    MPI_Sendrecv(x, 64, MPI_DOUBLE, (rank + 1) % size, 7, y, 64, MPI_DOUBLE, (rank + size - 1) % size, 7, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (i == 100 && odd && atoi(odd) == rank) y[3] += 1e-9;
    MPI_Allreduce(y, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int j = 0; j < 64; j++) x[j] = y[j] + 1e-3 * sum + rank;
  }
  return MPI_Finalize();
}
""",
    # The steps of docs/DOUBLE-RUN.md.
    "twice": """
#include <mpi.h>
#include <resil.h>
static double u[64];
static int rank, size;
static void step(void* argument) {
  double sum;
  (void)argument;
  MPI_Allreduce(&u[rank], &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < 64; i++) u[i] = 0.5 * u[i] + sum / (size + i);
}
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 0; i < 64; i++) u[i] = i + rank;
  resil_protect("u", u, sizeof u);
  for (int i = 0; i < 10; i++) resil_run_twice("solve", step, NULL, RESIL_POLICY_DEFAULT);
  return MPI_Finalize();
}
""",
    # Goes on until there is a file `stop`.
    "long": """
#include <mpi.h>
#include <unistd.h>
int main(int argc, char** argv) {
  int rank, x = 0, more = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  while (more) {
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) more = access("stop", F_OK) != 0, usleep(1000);
    MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  return MPI_Finalize();
}
""",
}


class NotRun:
    """Commands of a page that its test does not run. The comment says `not run: test NAME`, of the test that runs them, or
    `not run: needs WHAT`."""

    def __init__(self, page, reason, lines):
        self.page, self.reason, self.lines = page, reason, lines.splitlines()
        self.tests = re.findall(r"\btest ([\w-]+)", reason)
        assert bool(self.tests) != reason.startswith("needs "), (page, reason)


class Block:
    """Commands of a page. Words of the comment: `app=NAME` what ./app is (APPS); `status=N,N` what the commands give, 0 if not
    said; `mpi=mpich`; `beside` a job of it runs meanwhile, which the page calls 4711; `slurm` run by slurm_test.py; `ci` run by
    .ci/run itself."""

    def __init__(self, page, words, lines):
        self.page, self.lines = page, [line for line in lines.splitlines() if line.strip() and not line.startswith("#")]
        assert not words or words.startswith("run: "), (page, words)
        words = (words or "").removeprefix("run: ").split()
        named = dict(word.split("=", 1) for word in words if "=" in word)
        self.flags = {word for word in words if "=" not in word}
        self.app, self.mpi = named.pop("app", "ring"), named.pop("mpi", "openmpi")
        statuses = [int(word) for word in named.pop("status", "").split(",") if word]
        assert not named and self.flags <= {"beside", "slurm", "ci"} and self.app in APPS, (page, words)
        assert len(statuses) <= len(self.lines), (page, words, self.lines)
        self.commands = list(zip(self.lines, statuses + [0] * (len(self.lines) - len(statuses))))


def pages():
    """README and the pages for users, whose every command is run."""
    return [os.path.join(jobs.ROOT, "README.md")] + sorted(glob.glob(os.path.join(jobs.ROOT, "docs", "using", "*.md")))


def reference_pages():
    """The other pages, but for those that tell what was: the list of changes, and the measurements with the hours that they took."""
    return [page for page in sorted(glob.glob(os.path.join(jobs.ROOT, "docs", "*.md")))
            if os.path.basename(page) not in ("CHANGELOG.md", "MEASUREMENTS.md")]


# A line that somebody may type. `$ ` before one begins an example of a session.
COMMAND = re.compile(r"(?:[A-Z]\w*=\S* )*(?:(?:scripts|tests)/[\w./-]+ |\.ci/run|resil |mpi(?:run|exec|cc|fort)\b|srun |sbatch |salloc |scancel |kill |meson |ninja |"
                     r"apt(?:-get)? |rpmbuild |spack |eb |apptainer |git |python3? |module )")


def part(page, words, language, lines):
    """A block of a page: Block, NotRun, shown.Shown; None: of a page that is not for users, what is shown and not compared."""
    name = os.path.basename(page)
    if language == "sh":
        reason = re.match(r"not run: (.+)", words)
        return NotRun(name, reason[1], lines) if reason else Block(name, words, lines)
    if page in pages() or words:
        return shown.Shown(name, words, lines)
    typed = [line for line in lines.splitlines() if COMMAND.match(line)]
    assert not typed, f"{name}: a command in a block that is not marked `sh`: {typed[0]}"
    return None


def parts(page):
    """What part() makes of the blocks, in the order of the page."""
    with open(page, encoding="utf-8") as file:
        found = shown.BLOCK.findall(file.read())
    return [one for one in (part(page, *block) for block in found) if one]


def blocks(page):
    return [one for one in parts(page) if isinstance(one, Block)]


def add_command(path):
    """scripts/resil in the place, and resil in its PATH, with the library that is tested. A variable of the environment would be
    told by the library in jobs that resil does not start."""
    os.mkdir(os.path.join(path, "scripts"))
    for folder in ("scripts", "bin"):
        script = os.path.join(path, folder, "resil")
        with open(script, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nRESIL_TOOL_LIBRARY={shlex.quote(jobs.library())} exec {shlex.quote(sys.executable)} '
                       f'{shlex.quote(os.path.join(jobs.ROOT, "scripts", "resil"))} "$@"\n')
        os.chmod(script, 0o755)


def compile_app(path, name):
    """One of APPS, or a file of tests/mpi."""
    source, folder = os.path.join(path, "app.c"), os.path.join(jobs.ROOT, "tests", "mpi")
    if name in APPS:
        with open(source, "w", encoding="ascii") as file:
            file.write(APPS[name])
    else:
        shutil.copy(os.path.join(folder, name), source)
    header = os.path.join(jobs.ROOT, "shim", "include")
    subprocess.run([os.path.join(path, "bin", "mpicc"), "-g", "-I" + folder, "-I" + header, "-o", "app", "app.c", "-ldl"], cwd=path, check=True)


def readme():
    with open(os.path.join(jobs.ROOT, "README.md"), encoding="utf-8") as file:
        return file.read()


def lines():
    """{launcher, as the table names it: line}"""
    table = readme().split("| launcher | line |", 1)[1].split("\n\n", 1)[0]
    return {name.strip(): line for name, line in re.findall(r"^\| ([^|]+) \| `([^`]+)` \|$", table, re.M)}


def line_for(word):
    """The one line of the launcher whose name begins so."""
    found = [line for name, line in lines().items() if name.startswith(word)]
    assert len(found) == 1 and "$PWD/build/libresil.so" in found[0], (word, lines())
    return found[0]


def place(mpi):
    path = jobs.scratch()
    for name in ("build", "bin"):
        os.mkdir(os.path.join(path, name))
    os.symlink(jobs.library(), os.path.join(path, "build", "libresil.so"))
    for name in ("mpirun", "mpicc"):
        script = os.path.join(path, "bin", name)
        with open(script, "w", encoding="ascii") as file:
            file.write(f'#!/bin/sh\nexec {name}.{mpi} "$@"\n')
        os.chmod(script, 0o755)
    compile_app(path, "ring")
    return path


def environment(path):
    """A launcher that is called mpirun, and as many ranks as the line says on however many cores."""
    return {"PATH": os.path.join(path, "bin") + os.pathsep + os.environ["PATH"], "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1"}


def wait_until_moving(job, ask, ranks=2):
    """Until the app `long` of that job is in its loop with all ranks; ask() -> Result of `resil status --json`. Before, some ranks may
    not be there yet, and those that are may be in MPI_Init."""
    def moves():
        done = ask()
        found = json.loads(done.stdout) if done.returncode == 0 else {}
        return found and found["ranks_here"] == ranks and any(call["name"] == "MPI_Bcast" for call in found["calls"])
    patience.wait_for(lambda: job.poll() is not None or moves(), "a job that moves", 60)
    assert job.poll() is None, job.end().text()


def check(path, ranks, stdout):
    """Every rank was watched, and by one job; in the directory that it gets when none is named."""
    assert stdout.decode().splitlines() == [f"{ranks} ranks"], stdout
    found = [name for name in os.listdir(path) if name.startswith("resil-app-")]
    assert len(found) == 1, os.listdir(path)
    report = reports.load(os.path.join(path, found[0]))
    assert sorted(report) == list(range(ranks)), sorted(report)
    assert {(one["outcome"], one["world_size"], one["launch"]) for one in report.values()} == {
        ("finished", ranks, report[0]["launch"])}, report
