#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""resil run with this machine's launchers: the ranks get the library and the settings, keep what the site preloads, and the
status is the job's. (Command lines alone: tests/tools/test_run.py; srun: slurm_test.py.)

Usage: run_test.py MPI OTHER_MPI...
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import launch_lines, mpi as jobs, report as reports  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

TOOL = os.path.join(jobs.ROOT, "scripts", "resil")
APP = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  int rank;
  double x, sum;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  x = rank + 0.5;
  MPI_Allreduce(&x, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  char line[4096];
  int length = snprintf(line, sizeof line, "%d %s %s\\n", rank, getenv("LD_PRELOAD"), getenv("RESIL_LOG"));
  if (fwrite(line, 1, length, stdout) != (size_t)length) return 1;
  MPI_Finalize();
  return argc > 1 ? atoi(argv[1]) : 0;
}
"""


class Place:
    def __init__(self, mpi):
        self.mpi, self.path = mpi, launch_lines.place(mpi)
        with open(os.path.join(self.path, "app.c"), "w", encoding="ascii") as file:
            file.write(APP)
        subprocess.run([os.path.join(self.path, "bin", "mpicc"), "-o", "app", "app.c"], cwd=self.path, check=True)
        self.count = 0

    def run(self, *words, **more):
        """(result, lines of the ranks, reports)"""
        self.count += 1
        directory = os.path.join(self.path, "report-%d" % self.count)
        environment = {**launch_lines.environment(self.path), "RESIL_TOOL_LIBRARY": jobs.library(), "RESIL_LOG": "quiet", **more}
        result = jobs.start([sys.executable, TOOL, "run", "--dir", directory, *words], env=environment, cwd=self.path,
                            directory=directory, timeout=60)
        return result, sorted(result.stdout.decode().splitlines()), reports.load(directory) if os.path.isdir(directory) else {}


def watched(place, *words):
    """Ranks, status, settings; whichever launcher is named, or none."""
    result, lines, found = place.run("--checksum", *words, "./app", "7")
    assert result.returncode == 7, result.text()
    assert lines == ["%d %s quiet" % (rank, jobs.library()) for rank in (0, 1)], result.text()
    assert [found[rank]["modes"] for rank in (0, 1)] == [found[0]["modes"]] * 2 and "checksum" in str(found[0]["modes"]), found


def status_is_the_job_s(place):
    for status in (0, 3):
        plain = jobs.start(["mpirun", "-n", "2", "./app", str(status)], env=launch_lines.environment(place.path), cwd=place.path)
        result, _, _ = place.run("mpirun", "-n", "2", "./app", str(status))
        assert result.returncode == plain.returncode, (result.text(), plain.text())


def two_programs(place):
    result, lines, found = place.run("mpirun", "-n", "1", "./app", ":", "-n", "1", "./app")
    assert result.returncode == 0 and len(found) == 2, result.text()
    assert lines == ["%d %s quiet" % (rank, jobs.library()) for rank in (0, 1)], result.text()


def site_s_preload(place):
    other = os.path.join(place.path, "site.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "/dev/null", "-o", other], check=True)
    result, lines, found = place.run("mpirun", "-n", "2", "./app", LD_PRELOAD=other)
    assert result.returncode == 0 and len(found) == 2, result.text()
    assert lines == ["%d %s:%s quiet" % (rank, jobs.library(), other) for rank in (0, 1)], result.text()


def why_do_runs_differ(place):
    modes = []
    for _ in range(2):
        result, _, found = place.run("--why-do-runs-differ", "mpirun", "-n", "2", "./app")
        assert result.returncode == 0 and len(found) == 2, result.text()
        modes.append(str(found[0]["modes"]))
    assert "record" in modes[0] and "verify" in modes[1], modes


def site_file(place):
    """A site's defaults hold in the ranks, below the user's environment; a wrong line is named once, and ends nothing."""
    path = os.path.join(place.path, "resil.conf")
    with open(path, "w", encoding="ascii") as file:
        file.write("RESIL_MODE=checksum\nRESIL_HANG=abort\nRESIL_BLAME=ful\n")
    result, lines, found = place.run("--set", "hang=report", "mpirun", "-n", "2", "./app", RESIL_CONF=path)
    assert result.returncode == 0 and len(lines) == 2 and len(found) == 2, result.text()
    for rank in (0, 1):
        config = found[rank]["config"]
        assert config["RESIL_MODE"] == "watch,checksum" and config["RESIL_HANG"] == "report", config
        assert config["RESIL_BLAME"] == "cheap", config
    named = [line for line in result.stderr.decode().splitlines() if "line 3: 'ful'" in line]
    assert len(named) == 2 and "(did you mean full?)" in named[0], result.text()  # by the command, and by rank 0


def settings_kept(place):
    """run.conf: what sh makes of it are the settings that were given, whatever is in them; origins stand above them."""
    path, hook = os.path.join(place.path, "kept.conf"), "echo 'two  words' $HOME `id` \"%s\" # ä"
    with open(path, "w", encoding="ascii") as file:
        file.write("RESIL_HANG=abort\nRESIL_LOG=quiet\n")
    result, _, _ = place.run("mpirun", "-n", "2", "./app", RESIL_CONF=path, RESIL_HANG_HOOK=hook, RESIL_LOG="info")
    assert result.returncode == 0, result.text()
    kept = os.path.join(result.directory, "run.conf")
    with open(kept, encoding="utf-8") as file:
        text = file.read()
    parts = dict(part.split("\n", 1) for part in text.split("\n\n# ")[1:])
    assert parts[path] == "RESIL_HANG=abort" and "RESIL_HANG_HOOK=" in parts["environment"], parts
    assert "RESIL_LOG=info\n" in parts["environment"] and "RESIL_LOG" not in parts[path], parts
    shell = subprocess.run(["sh", "-c", 'set -eu; set -a; . "$1"; exec env -0', "sh", kept], env={"PATH": os.environ["PATH"]},
                           capture_output=True, check=True)
    given = dict(line.split("=", 1) for line in shell.stdout.decode().split("\0") if line.startswith("RESIL_"))
    assert given["RESIL_HANG_HOOK"] == hook and given["RESIL_HANG"] == "abort" and given["RESIL_CONF"] == path, given
    assert "RESIL_GPU" not in given and "# RESIL_GPU=watch\n" in parts["default"], (given, parts)


def help_once(place):
    """RESIL_HELP=1: the table of `resil help`, by one rank, and nothing else is different."""
    result, lines, _ = place.run("mpirun", "-n", "2", "./app", RESIL_HELP="1")
    told = subprocess.run([sys.executable, TOOL, "help"], env={**os.environ, "RESIL_TOOL_LIBRARY": jobs.library()}, capture_output=True,
                          check=True).stdout
    assert len(told) > 4000 and result.stderr.count(told) == 1, result.text()
    assert result.returncode == 0 and lines == ["%d %s quiet" % (rank, jobs.library()) for rank in (0, 1)], result.text()


def site_directory(place):
    """Reports of all jobs in one directory of the site: one each, and nothing is said of it but the closing line."""
    reports_of_all, path = os.path.join(place.path, "all"), os.path.join(place.path, "dir.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write("RESIL_DIR=%s\n" % reports_of_all)
    environment = {**launch_lines.environment(place.path), "RESIL_TOOL_LIBRARY": jobs.library(), "RESIL_CONF": path}
    for _ in range(2):
        result = jobs.start([sys.executable, TOOL, "run", "mpirun", "-n", "2", "./app"], env=environment, cwd=place.path, timeout=60)
        said = [line for line in result.stderr.decode().splitlines() if line.startswith("resil: ")]
        assert result.returncode == 0 and len(said) == 1 and "; finished; next: resil report " + reports_of_all in said[0], result.text()
    found = [name for name in os.listdir(reports_of_all) if name.startswith("resil-app-")]
    assert found and "rank-00000.json" in os.listdir(os.path.join(reports_of_all, found[0])), os.listdir(reports_of_all)


def launcher_of_another_mpi(place, other):
    if not other:
        raise LeftOut("one MPI only")
    result, lines, _ = place.run("mpirun." + other[0], "-n", "2", "./app")
    assert result.returncode == 2 and lines == [] and b"its own MPI" in result.stderr, result.text()


def main(mpi, *others):
    place = Place(mpi)
    return run_checks([
        ("mpirun", lambda: watched(place, "mpirun", "-n", "2")),
        ("run.conf", lambda: settings_kept(place)),
        ("RESIL_HELP", lambda: help_once(place)),
        ("-n chooses the launcher", lambda: watched(place, "-n", "2")),
        ("the status is the job's", lambda: status_is_the_job_s(place)),
        ("two programs", lambda: two_programs(place)),
        ("what the site preloads", lambda: site_s_preload(place)),
        ("why do runs differ", lambda: why_do_runs_differ(place)),
        ("a site's file", lambda: site_file(place)),
        ("a site's directory", lambda: site_directory(place)),
        ("a launcher of another MPI", lambda: launcher_of_another_mpi(place, others))])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
