#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The hang injector of scripts/campaign: each injection happens, in the rank that was named and in no other, to C and
Fortran programs. Without resil.

Usage: hang_inject_test.py BUILD openmpi|mpich      (BUILD holds hang_inject, call_witness, rounds, stencil)
"""
import json
import os
import platform
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness import patience  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

BUILD = MPI = ""
LIMIT = 60  # seconds of a free machine for anything to happen; the injector counts those of the wall
PROGRAMS = {"C": ["rounds", "100000000", "0.2"], "Fortran": ["stencil", "100000000"]}
# The calls that call_witness notes: before the rounds, in each round; and the messages that rank 1 of 2 sends to a rank.
CALLS_OF = {"C": ([], ["MPI_Send 5", "MPI_Allreduce"]),
            "Fortran": (["MPI_Barrier"], ["MPI_Isend 1", "MPI_Isend 2", "MPI_Allreduce"])}
MESSAGES_OF = {"C": ("MPI_Send 5",), "Fortran": ("MPI_Isend 2",)}
# Number of the system call that a rank hangs in.
CALLS = {"x86_64": {"sleep": ("35", "230"), "lock": ("202",), "io": ("0",)},
         "aarch64": {"sleep": ("101", "115"), "lock": ("98",), "io": ("63",)}}[platform.machine()]
# Both launchers kill a job of which a rank is gone, unless they are told not to.
LEAVE_ALONE = {"openmpi": ["--mca", "orte_allowed_exit_without_sync", "1"], "mpich": ["-disable-auto-cleanup"]}


def wait_for(what, condition):
    return patience.wait_for(condition, what, LIMIT, pause=0.01)


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # a process that is gone
        return ""


class Job:
    """A program with an injection, under way."""

    def __init__(self, language, injection, options=()):
        self.folder = jobs.scratch()
        self.log, self.witness = os.path.join(self.folder, "log"), os.path.join(self.folder, "calls")
        program, *arguments = PROGRAMS[language]
        libraries = [os.path.join(BUILD, f"{name}.{MPI}.so") for name in ("hang_inject", "call_witness")]
        environment = {"LD_PRELOAD": ":".join(libraries), "HANG_INJECT": injection, "HANG_INJECT_LOG": self.log,
                       "CALL_WITNESS": self.witness}
        line = jobs.launcher(MPI, 2, environment, options)
        self.job = jobs.Running(line + [os.path.join(BUILD, f"{program}.{MPI}"), *arguments], cwd=self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.job.end()

    def injected(self, rank):
        """The injector's line, once it is there; the process is the rank's."""
        text = wait_for("the injection", lambda: read(self.log) or self.job.poll() is not None)
        assert text is not True, self.job.end().text()
        row = json.loads(text)
        assert row["rank"] == rank, row
        return row

    def calls(self, rank):
        return read(f"{self.witness}.{rank}").splitlines()


def status(pid):
    """(state, processor time in ticks) of the main thread; None: it is gone."""
    words = read(f"/proc/{pid}/task/{pid}/stat").rsplit(")", 1)[-1].split()
    return (words[0], int(words[11])) if words and words[0] not in "ZX" else None


def check_state(language, kind, when, rank):
    """Ways to stop that the kernel can be asked about."""
    with Job(language, f"{kind},rank={rank},{when}") as job:
        row = job.injected(rank)
        pid = row["pid"]
        assert job.job.ranks()[rank] == pid, row
        if kind == "stop":
            wait_for("the stop", lambda: status(pid)[0] == "T")
        elif kind == "spin":
            ticks = status(pid)[1]
            calls = len(job.calls(rank))
            wait_for("time that the loop takes", lambda: status(pid)[1] > ticks + 10)
            assert len(job.calls(rank)) == calls, "the rank went on"
        else:
            wait_for("the system call", lambda: read(f"/proc/{pid}/task/{pid}/syscall").split(" ")[0] in CALLS[kind])
        where = "before " if "call" in when else "in MPI" if "mpi" in when else "in user code"
        assert row["where"].startswith(where), row
        return row["where"]


def check_gone(language, kind, rank):
    """The rank is gone, and the other is there as long as the launcher allows."""
    if kind == "exit" and jobs.before_mpi4(MPI):
        raise LeftOut("MPICH 3.4.1 ends the rank that sends to one which is gone")
    with Job(language, f"{kind},rank={rank},call=40", LEAVE_ALONE[MPI] if kind == "exit" else ()) as job:
        pid = job.injected(rank)["pid"]
        wait_for("its end", lambda: status(pid) is None)
        if kind == "exit":
            assert job.job.poll() is None and 1 - rank in job.job.ranks(), job.job.end().text()
        else:
            wait_for("the launcher's end", lambda: job.job.poll() is not None)
            assert job.job.poll() != 0


def check_calls(language, kind):
    """A collective that is not called, one that comes too early, a message with another tag: rank 1's calls part from
    the program's just there, rank 0's do not."""
    number = 9
    first, turn = CALLS_OF[language]
    program = first + turn * 20
    counted = [at for at, call in enumerate(program) if call in MESSAGES_OF[language]] if kind == "tag" else \
              [at for at, call in enumerate(program) if call in ("MPI_Barrier", "MPI_Allreduce")]
    at = counted[number - 1]
    other_tag = {"MPI_Send 5": "MPI_Send 4", "MPI_Isend 2": "MPI_Isend 1"}
    instead = {"skip": program[at + 1], "reorder": "MPI_Barrier", "tag": other_tag.get(program[at])}[kind]
    with Job(language, f"{kind},rank=1,call={number}") as job:
        assert job.injected(1)["where"].startswith("at "), read(job.log)
        calls = wait_for("the call", lambda: len(job.calls(1)) > at and job.calls(1))
        assert calls[:at + 1] == program[:at] + [instead], calls
        others = job.calls(0)
        assert others == program[:len(others)], others
        return " ".join(calls[at - 1:at + 1])


def main():
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = os.path.abspath(sys.argv[1]), sys.argv[2]
    jobs.require(f"mpirun.{MPI}")
    checks = []

    def add(what, check, *arguments):
        checks.append((f"{what}, {arguments[0]} ({MPI})", lambda: check(*arguments)))
    for language in PROGRAMS:
        for number, kind in enumerate(("sleep", "spin", "stop", "lock", "io")):
            when = (f"after=0.05,patience={10 * LIMIT}", "call=30")[number % 2 == (language == "C")]
            add(f"{kind}, {when.split(',')[0]}", check_state, language, kind, when, number % 2)
        add("sleep in MPI", check_state, language, "sleep", "after=0.05,where=mpi", 1)
        for kind in ("exit", "kill") if language == "C" else ("exit",):
            add(kind, check_gone, language, kind, 1)
        for kind in ("skip", "reorder", "tag"):
            add(kind, check_calls, language, kind)
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main())
