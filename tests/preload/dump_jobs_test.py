#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGHUP to live jobs in every state that a rank can be wedged in: the dump says where it is, and the job then goes on
to the same end.

Usage: dump_jobs_test.py BUILD openmpi|mpich      (BUILD holds states.MPI)
"""
import glob
import json
import os
import re
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness import patience  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

sys.path.insert(0, os.path.join(jobs.ROOT, "scripts"))
from resil_tool import ring  # noqa: E402

BUILD = MPI = ""
TOOL = os.path.join(jobs.ROOT, "scripts", "resil")
LIMIT = 30  # seconds for anything to happen

# state: what the first lines of rank 0's dump must say
EXPECTED = {
    "mpi": r"in MPI_Recv from rank 1, tag 7, MPI_COMM_WORLD",
    "pending": r"in MPI_Waitall",
    "spin": r"in user code",
    "sleep": r"in user code",
    "lock": r"in user code",
    "malloc": r"in user code",
    "init": r"in MPI_Init",
    "finalize": r"in MPI_Finalize",
    "after": r"in user code|finished|after MPI_Finalize",
    "handler": r"in user code",
}
# state: rank 0 makes the file `ready` just before the state; it is in it when the recorder names the open call, or when
# the kernel says that its main thread sleeps (it does nothing else after `ready` that could)
IN_CALL = {"mpi": "MPI_Recv", "pending": "MPI_Waitall", "init": "MPI_Init", "finalize": "MPI_Finalize"}
ASLEEP = ("sleep", "lock")
# state: a function that must be on a stack of the dump
ON_STACK = {"mpi": r"MPI_Recv", "sleep": r"nanosleep", "lock": r"pthread_mutex_lock|lll_lock|futex", "malloc": r"libc\.so"}


def wait_for(what, condition):
    return patience.wait_for(condition, what, LIMIT, pause=0.01)


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


class Job:
    """A job in its state; `finish` lets it go and returns its Result."""

    def __init__(self, state, env=None, ranks=2):
        self.folder = jobs.scratch()
        self.directory = os.path.join(self.folder, "report")
        self.result = None
        command = [os.path.join(BUILD, f"states.{MPI}"), state, self.folder]
        self.thread = threading.Thread(target=self._run, args=(command, env, ranks))
        self.thread.start()
        try:
            wait_for("the state", lambda: os.path.exists(os.path.join(self.folder, "ready")))
            wait_for("the report", lambda: os.path.exists(os.path.join(self.directory, "rank-00000.json")))
            if state in IN_CALL:
                wait_for(IN_CALL[state], lambda: self.open_call() == IN_CALL[state])
            if state in ASLEEP:
                wait_for("sleep", lambda: read(f"/proc/{self.pid()}/stat").rsplit(")", 1)[1].split()[0] == "S")
        except AssertionError:
            self.finish()
            raise

    def _run(self, command, env, ranks):
        self.result = jobs.run(MPI, ranks, command, env=env, directory=self.directory, timeout=2 * LIMIT)

    def pid(self, rank=0):
        return json.loads(read(os.path.join(self.directory, f"rank-{rank:05d}.json")))["pid"]

    def open_call(self):
        """Name of the call that rank 0 is in; None: in none, or there is no ring yet."""
        path = json.loads(read(os.path.join(self.directory, "rank-00000.json"))).get("ring")
        try:
            with ring.Ring(path) as file:
                calls = file.current_calls()
        except (TypeError, ring.RingError):
            return None
        return calls[0].name if calls else None

    def signal(self, number=signal.SIGHUP, rank=0):
        os.kill(self.pid(rank), number)

    def dump(self, rank=0, number=0):
        """Text of a dump file once it is complete (it ends with the list of objects)."""
        path = os.path.join(self.directory, f"dump-{rank:05d}-{number}.txt")
        wait_for("the dump", lambda: os.path.exists(path) and "Objects named above" in read(path))
        return read(path)

    def finish(self):
        with open(os.path.join(self.folder, "go"), "w", encoding="utf-8"):
            pass
        self.thread.join()
        return self.result


def ends_well(job, state):
    result = job.finish()
    assert result.returncode == 0, result.text()
    assert re.fullmatch(rf"state {state}, sum 1\n", result.stdout.decode()), result.text()
    assert not jobs.live_rings(job.directory)


def check_state(state):
    job = Job(state)
    try:
        job.signal()
        text = job.dump()
        first = "\n".join(text.splitlines()[:3])
        assert re.search(EXPECTED[state], first), text[:3000]
        assert re.search(ON_STACK.get(state, "#0"), text), text[:6000]
        if state == "pending":
            assert re.search(r"receive by MPI_Irecv from rank 1, tag 11", text), text
            assert re.search(r"send by MPI_Isend to rank 1, tag 12, MPI_COMM_WORLD, 4194304 bytes|4 MiB|4\.19", text), text
            assert re.search(r"MPI_Recv_init from rank 1, tag 13", text), text
        if state == "mpi":
            assert re.search(r"MPI_COMM_WORLD \(id 0x[0-9a-f]+\): rank 0 of 2, 20 collectives", text), text
    finally:
        ends_well(job, state)


def check_all_at_once():
    """The tool signals every rank, prints one sentence each; five times over; the job does not notice."""
    job = Job("mpi")
    try:
        for turn in range(5):
            tool = subprocess.run([sys.executable, TOOL, "dump", job.directory], capture_output=True, text=True,
                                  timeout=600, check=False)
            assert tool.returncode == 0, tool.stdout + tool.stderr
            assert "2 of 2 answered" in tool.stdout, tool.stdout
            assert "in MPI_Recv from rank 1, tag 7" in tool.stdout, tool.stdout
            assert len(glob.glob(os.path.join(job.directory, f"dump-*-{turn}.txt"))) == 2
        job.signal()
        job.dump(number=5)
    finally:
        ends_well(job, "mpi")
    said = job.result.stderr.decode()
    assert "state dump in" in said and f"{job.directory}/dump-00000-5.txt" in said, said
    assert said.count("state dump in") == 1, f"what the tool asked for went to the job's standard error, too: {said}"


def check_other_signal():
    job = Job("spin", env={"RESIL_SIGNAL": "USR2"})
    try:
        job.signal(signal.SIGUSR2)
        assert "in user code" in job.dump()
    finally:
        ends_well(job, "spin")


def check_storm():
    """Two hundred signals while rank 0 allocates: every one is answered or merged, nothing locks up."""
    job = Job("malloc")
    try:
        for _ in range(200):
            job.signal()
        job.dump()
    finally:
        ends_well(job, "malloc")
    reports = json.loads(read(os.path.join(job.directory, "rank-00000.json")))
    assert 1 <= reports["dumps"] <= 200, reports["dumps"]


def check_switched_off():
    """RESIL_SIGNAL=off leaves the signal alone: the program's own handler gets it, no dump."""
    if MPI == "openmpi" and jobs.emulated(os.path.join(BUILD, "states.openmpi")):
        raise LeftOut("under the emulator the handler does not get it natively, either")
    job = Job("handler", env={"RESIL_SIGNAL": "off"})
    try:
        job.signal()
    finally:
        ends_well(job, "handler")
    assert not glob.glob(os.path.join(job.directory, "dump-*"))


def main():
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = sys.argv[1:3]
    jobs.require(f"mpirun.{MPI}")
    checks = [(f"{state} ({MPI})", lambda s=state: check_state(s)) for state in EXPECTED]
    checks += [(f"all at once ({MPI})", check_all_at_once), (f"other signal ({MPI})", check_other_signal),
               (f"storm ({MPI})", check_storm), (f"switched off ({MPI})", check_switched_off)]
    return run_checks(checks)


sys.exit(main())
