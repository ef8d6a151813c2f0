#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that do not call the same collectives are found and named, whether the program hangs or not.

Usage: mismatch_test.py BUILD openmpi|mpich      (BUILD holds mismatch.MPI)
"""
import json
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness import patience  # noqa: E402
from harness.main import run_checks, shared  # noqa: E402

LIMIT = 40
NATIVE_RUNS = 10
# kind: what rank 1 calls, what the others call, which numbers of the call may be named. The program's fault is call 7 of
# its second communicator.
PROVED = {
    "operator": ("another operator: MPI_Reduce, MPI_MAX, root 0, 8 bytes", "MPI_Reduce, MPI_SUM, root 0, 8 bytes"),
    "operation": ("another operation: MPI_Allgather, 8 bytes", "MPI_Allreduce, MPI_SUM, 8 bytes"),
    "root": ("another root: MPI_Bcast, root 1, 8 bytes", "MPI_Bcast, root 0, 8 bytes"),
    "nonblocking": ("another operation: MPI_Ibarrier", "MPI_Barrier"),
    "started": ("another operator: MPI_Iallreduce, MPI_MAX, 8 bytes", "MPI_Iallreduce, MPI_SUM, 8 bytes"),
    "order": ("another operation: MPI_Comm_split", "MPI_Comm_dup"),
    "passed": ("another operation: MPI_Gather, root 0, 8 bytes", "MPI_Bcast, root 0, 8 bytes"),
    "behind": ("another operation: MPI_Allreduce, MPI_SUM, 8 bytes", "MPI_Bcast, root 0, 8 bytes"),
}
SUSPECTED = {
    "size": ("collective_mismatch", "In call 7 rank 3 has another amount: MPI_Bcast, root 0, 128 bytes"),
    "vector_types": ("collective_mismatch", "different basic types. In call 7, MPI_Allgatherv"),
    "message_types": ("message_mismatch", "Rank 0 sends 4-byte signed integers to rank 1 on the other one, tag 7"),
    "vector_amounts": ("collective_mismatch", "In call 7 rank 1 has another amount: MPI_Allgatherv"),
    "skipped": ("collective_mismatch", "In call 7 rank 1 has another operation: MPI_Finalize"),
    "unreceived": ("unreceived_messages", "3 messages were sent and never received (unmatched at MPI_Finalize). The first is from rank 1 to rank 0"),
    "uneven": ("collective_mismatch", "In call 7 rank 0 has another operation: MPI_Bcast, root 0, 8 bytes"),
}


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    ranks = 4 if mpi == "openmpi" else 2

    def watch(kind, done, nodes=False, mode="watch"):
        """Runs until done(directory), or the program's end."""
        directory = os.path.join(jobs.scratch(), "report")
        settings = {"RESIL_MODE": mode, **({"RESIL_NODE_RANKS": "1"} if nodes else {})}
        if nodes:  # goes on with right calls if it does not hang
            settings["MISMATCH_UNTIL"] = os.path.join(directory, "hang-0.json")
        environment = jobs.rank_environment(True, directory, settings)
        job = jobs.Running(jobs.launcher(mpi, ranks, environment) + [os.path.join(build, f"mismatch.{mpi}"), kind], directory)
        limit = patience.Patience(LIMIT)
        while job.poll() is None and not done(directory) and not limit.over():
            time.sleep(0.05)
        return directory, job.end()

    def proved(kind, nodes=False, mode="watch"):
        directory, result = watch(kind, lambda at: read(os.path.join(at, "hang-0.json")).endswith("}\n"), nodes, mode)
        text = read(os.path.join(directory, "hang-0.json"))
        assert text, result.text()
        report = json.loads(text)
        assert report["class"] == "collective_mismatch" and report["confidence"] == "proved", report
        odd, usual = PROVED[kind]
        message = report["message"]
        assert any("RESIL_CHECKSUM=strict" in line for line in report["evidence"]) == (mode == "checksum"), report
        if nodes and "In call 7 " not in message:  # found late: the others have gone on
            assert "somewhere from call" in message or "lies between call" in message, message
        elif ranks > 2:
            assert f"In call 7 rank 1 has {odd};" in message and f"ranks 0,2-3 have {usual}." in message, message
        else:
            assert "In call 7 " in message and usual in message and odd.split(": ")[1] in message, message
        if ranks > 2:
            assert report["culprit_ranks"] == [1] and report["victim_ranks"] == [0, 2, 3], report
        else:
            assert report["culprit_ranks"] == [] and "undecided" in message, report
        return f"after {result.seconds:.1f} s"

    def suspected(kind):
        name, wanted = SUSPECTED[kind]
        directory, result = watch(kind, lambda at: wanted in read(os.path.join(at, "hang.log")))
        log = read(os.path.join(directory, "hang.log"))
        lines = [line for line in log.splitlines() if f" suspected {name}: " in line]
        assert lines and wanted in lines[0], log + result.text()
        assert name != "collective_mismatch" or re.search(r"\(call site of the others: mismatch\.\w+\+0x[0-9a-f]+ \(rank \d\)"
                                                         r"|\(call site on the odd side: mismatch\.\w+\+0x", lines[0]), lines[0]
        proofs = [line for line in log.splitlines() if " proved collective_mismatch" in line]
        assert not proofs and not (result.returncode == 0 and b"hang [" in result.stderr), log

    def clean(kind):
        directory, result = watch(kind, lambda at: False)
        assert result.returncode == 0, result.text()
        log = read(os.path.join(directory, "hang.log"))
        assert not any(name in log for name in ("mismatch:", "unreceived")), log

    def ended(kind, wanted, settings=None):
        """MPI ends the job. The exit status is that of the plain program; what differed is said before, or nothing."""
        program = [os.path.join(build, f"mismatch.{mpi}"), kind]

        def run(preload):
            # Two ranks: where several fail at once, Open MPI 4.1.4's launcher itself crashes in one of five runs, with the
            # library or without, and leaves ranks behind; that of 5.0.7 crashes rarely.
            for _ in range(5):
                directory = os.path.join(jobs.scratch(), "report")
                result = jobs.run(mpi, 2, program, env=settings if preload else None, preload=preload, directory=directory)
                crashed = result.returncode in (-signal.SIGSEGV, -signal.SIGABRT)
                if not crashed and "PMIx_server_finalize" not in result.stderr.decode(errors="replace") + result.standing:
                    break
            return directory, result

        directory, result = run(True)
        for _ in range(NATIVE_RUNS):  # what the launcher makes of it is not the same in each run
            plain = run(False)[1]
            if plain.returncode == result.returncode:
                break
        assert not plain.timed_out and result.returncode == plain.returncode, plain.text() + result.text()
        said = result.stderr.decode(errors="replace")
        if wanted is None:
            assert "hang [" not in said and not os.path.exists(os.path.join(directory, "hang-0.json")), result.text()
            return f"{result.seconds:.1f} s, plain {plain.seconds:.1f} s"
        confidence, words = wanted
        assert said.count("resil: hang [") == 1 and f"resil: hang [collective_mismatch, {confidence}] " in said, result.text()
        for word in words:
            assert word in said, (word, result.text())
        report = json.loads(read(os.path.join(directory, "hang-0.json")))
        assert report["class"] == "collective_mismatch" and report["confidence"] == confidence and report["action"] == "report", report
        return f"{result.seconds:.1f} s, plain {plain.seconds:.1f} s"

    differ = ("verified", ["In call 7 ", "another amount: MPI_Bcast, root 0, ", " 2048 bytes", " 128 bytes", "MPI ends the job on an error in that call of rank"])
    operators = ("proved", ["In call 7 ", "another operator: MPI_Reduce, ", "MPI_MAX", "MPI_SUM"])
    checks = [("right programs raise nothing", lambda: clean("none"))]
    checks += shared([
              ("right: types differ where nothing moves", lambda: clean("types_of_their_own")),
              ("proved, checksums are lazy", lambda: proved("operation", mode="checksum")),
              ("MPI fails in a call with another amount", lambda: ended("truncate", differ)),
              ("the same, where a finding would end the job", lambda: ended("truncate", differ, {"RESIL_HANG": "abort"})),
              ("MPI fails on a message", lambda: ended("message", None)),
              ("MPI_Abort after a mismatch", lambda: ended("operator_abort", operators)),
              ("MPI_Abort", lambda: ended("abort", None)),
              ("MPI_Abort while the watching rank is stopped", lambda: ended("stopped_abort", None))], mpi)
    if mpi == "openmpi":
        checks += [(f"proved: {kind}", lambda kind=kind: proved(kind)) for kind in PROVED]
        checks += [(f"suspected: {kind}", lambda kind=kind: suspected(kind)) for kind in SUSPECTED]
        checks += [("over nodes: MPI fails", lambda: ended("truncate", differ, {"RESIL_NODE_RANKS": "1"})),
                   ("over nodes: operator", lambda: proved("operator", True)), ("over nodes: order", lambda: proved("order", True))]
    else:
        checks += [(f"proved: {kind}", lambda kind=kind: proved(kind)) for kind in ("operator", "operation", "started", "order", "behind", "passed")]
        checks += [(f"suspected: {kind}", lambda kind=kind: suspected(kind)) for kind in ("unreceived", "vector_types", "message_types")]
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
