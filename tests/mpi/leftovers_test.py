#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program leaves at MPI_Finalize is in the report, by kind and call site; what it frees is not; and nothing else changes.

Usage: leftovers_test.py BUILD openmpi|mpich      (BUILD holds leftovers.MPI and leftovers_fortran.MPI)
"""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks, shared  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
# Of one rank, with the calls that made them: all but one of each kind are freed.
LEFT = {
    "active_requests": ["MPI_Irecv"], "persistent_requests": ["MPI_Recv_init"], "communicators": ["MPI_Comm_idup"],
    "groups": ["MPI_Comm_group"], "datatypes": ["MPI_Type_contiguous"], "operators": ["MPI_Op_create"],
    "windows": ["MPI_Win_allocate"], "files": ["MPI_File_open"], "infos": ["MPI_Comm_get_info"],
    # Asked for and freed again: a reference more to the same object, which is then left.
    "error_handlers": ["MPI_Comm_get_errhandler"], "keyvals": ["MPI_Type_create_keyval", "MPI_Win_create_keyval"],
    "buffers": ["MPI_Buffer_attach"],
}
FORTRAN = dict({kind: LEFT[kind] for kind in LEFT if kind not in ("windows", "files", "error_handlers")},
               infos=["MPI_Info_create"], keyvals=["MPI_Comm_create_keyval"])
MODES = {"watch": {}, "checksum": {"RESIL_MODE": "checksum"}, "record": {"RESIL_MODE": "record"}}


TOOL = os.path.join(os.path.dirname(os.path.dirname(HERE)), "scripts", "resil")


def tool(*arguments):
    """What `scripts/resil report` prints of a job without findings."""
    done = subprocess.run([sys.executable, TOOL, "report", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")

    def run(program, *arguments, settings=None):
        """The report of each rank, once all else has been looked at: status and lines are those of the plain program."""
        command = [os.path.join(build, f"{program}.{mpi}"), *arguments]
        if program == "leftovers":
            command += [jobs.scratch()] + (["no-window"] if mpi == "mpich" else [])
        environment = {"RESIL_LOG": "quiet", "RESIL_RECORD": os.path.join(jobs.scratch(), "recording"), **(settings or {})}
        result = jobs.run(mpi, 2, command, env=environment)
        assert result.returncode == 0 and b"resil" not in result.stderr + result.stdout, result.text()
        ranks = result.ranks()
        assert sorted(ranks) == [0, 1], result.text()
        for rank in ranks.values():
            assert rank["outcome"] == "finished" and rank["findings"] == [], rank
            assert "leftovers_not_known" not in rank, rank["leftovers_not_known"]
        return result, ranks

    def nothing(*arguments, settings=None):
        result, ranks = run(*arguments, settings=settings)
        for rank in ranks.values():
            assert rank["leftovers"] == {}, rank["leftovers"]
        text = tool(result.directory)
        assert "left over" not in text and "CLEAN" in text, text

    def left(wanted, *arguments, settings=None):
        result, ranks = run(*arguments, settings=settings)
        for rank in ranks.values():
            found = {kind: sorted(site["call"] for site in one["sites"]) for kind, one in rank["leftovers"].items()}
            assert found == wanted, found
            for kind, one in rank["leftovers"].items():
                assert one["count"] == len(wanted[kind]) == sum(site["count"] for site in one["sites"]), (kind, one)
        merged = json.loads(tool("--json", result.directory))
        assert merged["verdict"] == "CLEAN" and merged["exit_code"] == 0, merged["reason"]
        kinds = {kind: one["count"] for kind, one in merged["leftovers"]["kinds"].items()}
        assert kinds == {kind: 2 * len(calls) for kind, calls in wanted.items()}, kinds
        for site in merged["leftovers"]["sites"]:  # the line is one with that call
            function, name, line = re.search(r"^(\w+) at (\S+):(\d+)$", site["site"]).groups()
            if name.endswith(".f90") and function.startswith(f"by_{arguments[1]}"):
                continue  # GCC's lines of what is included are not always those of the calls
            with open(os.path.join(HERE, name), encoding="utf-8") as source:
                assert site["call"] + "(" in source.read().splitlines()[int(line) - 1], site
        assert "left over  at MPI_Finalize: 2 requests never completed" in tool(result.directory)

    in_c = {kind: calls for kind, calls in LEFT.items() if kind != "windows" or mpi == "openmpi"}
    # Open MPI's bindings make keyvals by functions of the library that are not MPI's: these are not seen.
    in_fortran = {kind: calls for kind, calls in FORTRAN.items() if kind != "keyvals" or mpi == "mpich"}
    checks = []
    for name, settings in MODES.items():
        checks += [(f"C, all freed, {name}", lambda settings=settings: nothing("leftovers", "free", settings=settings)),
                   (f"C, left, {name}", lambda settings=settings: left(in_c, "leftovers", "leave", settings=settings))]
    checks += [("freed by a callback of MPI_COMM_SELF", lambda: nothing("leftovers", "callback")),
               ("made and freed 200,000 times", lambda: nothing("leftovers", "many"))]
    for binding in ("f08", "use", "mpif"):
        checks += [(f"Fortran {binding}, all freed", lambda b=binding: nothing("leftovers_fortran", b, "free")),
                   (f"Fortran {binding}, left", lambda b=binding: left(in_fortran, "leftovers_fortran", b, "leave"))]
    return run_checks(shared(checks, mpi))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
