#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""resil status on jobs that move, stand still and poll: told apart, without a signal, and the job ends as it would have.

Usage: status_test.py MPI
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import launch_lines, mpi as jobs, patience  # noqa: E402
from harness.main import run_checks  # noqa: E402

TOOL = os.path.join(jobs.ROOT, "scripts", "resil")
APP = """
#include <mpi.h>
#include <string.h>
#include <unistd.h>
static int go_on(const char* file) { return access(file, F_OK) != 0; }
int main(int argc, char** argv) {
  int rank, more = 1, all = 1, flag = 0;
  MPI_Request request;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  while (strcmp(argv[1], "move") == 0 && all) {
    more = go_on(argv[2]);
    MPI_Allreduce(&more, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    usleep(1000);
  }
  if (rank == 0 && strcmp(argv[1], "move") != 0) {
    while (go_on(argv[2])) usleep(1000);
    MPI_Send(&more, 1, MPI_INT, 1, 5, MPI_COMM_WORLD);
  } else if (strcmp(argv[1], "stand") == 0) {
    MPI_Recv(&more, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else if (strcmp(argv[1], "poll") == 0) {
    MPI_Irecv(&more, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, &request);
    while (!flag) {
      MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
      if (argc < 4) usleep(100);
    }
  }
  return MPI_Finalize();
}
"""


class Job:
    """A job that goes on until `end`."""

    def __init__(self, mpi, place, what, *more):
        self.file, self.directory = os.path.join(jobs.scratch(), "end"), os.path.join(jobs.scratch(), "report")
        environment = jobs.rank_environment(True, self.directory, {"RESIL_LOG": "quiet", "RESIL_HANG_NOTICE": "0"})
        self.job = jobs.Running(jobs.launcher(mpi, 2, environment) + [os.path.join(place, "app"), what, self.file, *more], self.directory)

    def status(self, *words):
        return patience.run([sys.executable, TOOL, "status", "--interval", "0.3", *words, self.directory], capture_output=True,
                            timeout=60, env=jobs.clean_environment())

    def until(self, wanted):
        """The first answer that `wanted` takes."""
        limit = patience.Patience(60)
        while True:
            done = self.status("--json")
            found = json.loads(done.stdout) if done.returncode in (0, 1) else {}
            if found and found["ranks_here"] == 2 and wanted(found):
                return done.returncode, found
            assert self.job.poll() is None and not limit.over(), (done.stdout, done.stderr)

    def end(self):
        with open(self.file, "w", encoding="ascii"):
            pass
        patience.wait_for(lambda: self.job.poll() is not None, "the end of the job", 60)
        result = self.job.end()
        assert result.returncode == 0, result.text()
        assert not [name for name in os.listdir(self.directory) if name.startswith("dump-")], "a rank was signalled"


def moves(mpi, place):
    job = Job(mpi, place, "move")
    # The first looks may be at MPI_Init, or at ranks that a busy machine does not let run.
    status, found = job.until(lambda found: {call["name"] for call in found["calls"]} == {"MPI_Allreduce"} and found["calls_per_second"] > 1)
    assert status == 0 and found["verdict"] == "MOVING" and found["world_size"] == 2, found
    assert all(0 <= rank["mpi_share"] <= 1 for rank in found["ranks"]), found
    text = patience.wait_for(lambda: (told := job.status().stdout.decode()).startswith("MOVING: ") and told, "MOVING on the screen", 60)
    assert "MPI_Allreduce" in text and "\033" not in text, text
    job.end()
    assert job.status().returncode == 2


def stands(mpi, place):
    job = Job(mpi, place, "stand")
    # Before, ranks that a busy machine does not let run stand still elsewhere.
    status, found = job.until(lambda found: found["verdict"] == "STANDING" and any(
        "MPI_Recv" in one["place"] and one["name"] == "rank 1" for one in found["places"]))
    assert status == 1 and found["still_seconds"] >= 5 and not found["calls"], found
    assert found["ranks"][1]["inside_mpi"] and not found["ranks"][0]["inside_mpi"], found
    job.end()


def polls(mpi, place):
    job = Job(mpi, place, "poll")
    status, found = job.until(lambda found: found["verdict"] == "POLLING" and found["calls"])
    assert status == 1 and {call["name"] for call in found["calls"]} == {"MPI_Test"}, found
    job.end()


def polls_without_a_pause(mpi, place):
    """A rank that tests a million times a second is in MPI_Test, never "outside MPI for 3.63 s", as it is between two tests."""
    job = Job(mpi, place, "poll", "fast")
    job.until(lambda found: found["verdict"] == "POLLING")
    seen = []
    for _ in range(12):
        done = patience.run([sys.executable, TOOL, "report", "--json", job.directory], capture_output=True, timeout=60,
                            env=jobs.clean_environment())
        rank = json.loads(done.stdout)["ranks"][1]
        seen.append((rank["inside_mpi"], rank["since"]))
        assert rank["call"].startswith("MPI_Test") and "times in a row" in rank["call"], rank
        assert rank["inside_mpi"] or rank["since"] is None, rank  # a second look may meet it where no processor is its own
    assert any(inside for inside, _ in seen), seen
    job.end()


def watched(mpi, place):
    """--watch, one object a line, until the job ends."""
    job = Job(mpi, place, "move")
    job.until(lambda found: found["calls"])
    with subprocess.Popen([sys.executable, TOOL, "status", "--watch", "--json", "--interval", "0.1", job.directory],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=jobs.clean_environment()) as watching:
        lines = [watching.stdout.readline() for _ in range(3)]
        job.end()
        rest, said = watching.communicate(timeout=60)
    assert watching.returncode == 0 and b"has ended" in said, said
    assert all(json.loads(line)["verdict"] for line in lines + rest.splitlines()), lines


def main(mpi):
    place = launch_lines.place(mpi)
    with open(os.path.join(place, "app.c"), "w", encoding="ascii") as file:
        file.write(APP)
    subprocess.run([os.path.join(place, "bin", "mpicc"), "-o", "app", "app.c"], cwd=place, check=True)
    return run_checks([(name, lambda check=check: check(mpi, place)) for name, check in (
        ("moves", moves), ("stands still", stands), ("polls", polls),
        ("polls without a pause", polls_without_a_pause), ("watched until it ends", watched))], side_by_side=2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
