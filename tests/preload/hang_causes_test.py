#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One wrong call each, and its corrected twin (tests/mpi/hang_causes.c): the finding names the call that was wrong, in
seconds; of the twins nothing is said.

hang_causes_test.py PROGRAMS_DIR MPI [KIND...]
"""
import glob
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hang_jobs_test as hangs  # noqa: E402
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks, shared  # noqa: E402

SIDE_BY_SIDE = 5  # they mostly wait
FREED = "has freed that communicator (MPI_Comm_free at hang_causes"

# kind: ranks, class, words of the message
WRONG = {
    "left_finalize": (2, "unmatched_message", ["MPI_Recv from rank 0, tag 8", "Rank 0 " + FREED]),
    "left_barrier": (2, "unmatched_message", ["MPI_Recv from rank 0, tag 8", "Rank 0 " + FREED]),
    "left_computes": (2, "unmatched_message", ["MPI_Recv from rank 0, tag 8", "Rank 0 " + FREED]),
    "left_any": (2, "unmatched_message", ["MPI_Recv from any rank, tag 8", "Rank 0 " + FREED]),
    "left_send": (2, "unmatched_message", ["MPI_Ssend of 4 bytes to rank 0", "Rank 0 " + FREED]),
    "left_allreduce": (2, "collective_mismatch", ["MPI_Allreduce", "MPI_Comm_free"]),
    "left_bcast": (2, "collective_mismatch", ["MPI_Bcast", "MPI_Comm_free"]),
    "left_inter": (2, "collective_mismatch", ["MPI_Barrier", "MPI_Comm_free"]),
    "left_pending": (2, "unmatched_message", ["MPI_Wait for MPI_Irecv from rank 0, tag 8", "Rank 0 " + FREED]),
    "left_window": (2, "missing_rank", ["call 3 of MPI_Win_free on a window", "Rank 0 has freed it (MPI_Win_free at"]),
    "left_late": (2, "unmatched_message", ["MPI_Recv from rank 0, tag 8", "Rank 0 " + FREED]),
    "left_split": (3, "unmatched_message", ["MPI_Recv from rank 0, tag 8, on MPI_Comm_split", "Rank 0 " + FREED]),
    **{f"v_{name}": (2, "deadlock", [call, "MPI_Recv from rank 0, tag 9"])
       for name, call in (("gather", "MPI_Gatherv"), ("allgather", "MPI_Allgatherv"), ("scatter", "MPI_Scatterv"),
                          ("alltoall", "MPI_Alltoallv"), ("alltoallw", "MPI_Alltoallw"),
                          ("neighbors", "MPI_Neighbor_alltoallv"), ("request", "MPI_Wait for call"),
                          ("sparse", "MPI_Wait for call"))},
    "amounts": (2, "collective_mismatch", ["In call 2 rank 1 has another amount: MPI_Gather, root 0, 1 bytes",
                                           "have not returned from it"]),
    "group_tag": (2, "deadlock", ["Rank 0 waits in MPI_Comm_create_group for MPI_Comm_create_group with tag 5 of rank 1",
                                  "Rank 0 has not called MPI_Comm_create_group with tag 6.", "compare the group, the tag"]),
    **{f"near_{name}": (3 if name == "rank" else 2, found, words) for name, found, words in (
        ("tag", "unmatched_message", ["1 message from rank 0 to rank 1, tag 9, on MPI_Comm_split", "sent at hang_causes"]),
        ("comm", "unmatched_message", ["1 message from rank 0 to rank 1, tag 8, on MPI_COMM_WORLD, sent at hang_causes"]),
        ("rank", "deadlock", ["from rank 2, tag 8, on MPI_Comm_split",
                              "1 message from rank 0 to rank 1, tag 8, on MPI_COMM_WORLD, sent at hang_causes"]),
        ("asleep", "deadlock", ["a persistent send from rank 0 to rank 1, tag 8, on MPI_Comm_split", "made at hang_causes",
                                "is not started"]),
        ("receive", "deadlock", ["a persistent receive of rank 0 from rank 1, tag 8, on MPI_Comm_split", "made at hang_causes"]),
        ("wait", "unmatched_message", ["MPI_Wait for MPI_Irecv from rank 0, tag 8", "(started at hang_causes"]))},
}
VERIFIED = {"amounts"}  # all others are proved
OPENMPI_ALONE = {"amounts"}  # MPICH returns
RIGHT = {"v_late": 6, "free_isend": 6, "free_irecv": 6, "free_apart": 6, "free_many": 4, "group_late": 6}  # seconds of a pause


def check_wrong(kind):
    ranks, found_class, words = WRONG[kind]
    job = hangs.Job(kind, ranks, program="hang_causes")
    try:
        began = job.ready()
        found = job.hang()
        text = json.dumps(found, indent=1)
        assert (found["class"], found["confidence"]) == (found_class, "verified" if kind in VERIFIED else "proved"), text
        for word in words:
            assert word in found["message"], (word, text)
        return f"{found['class']} after {(found['time_ns'] - began) / 1e9:.1f} s"
    finally:
        job.end()


def check_right(kind, ranks=2):
    job = hangs.Job(kind, ranks, RIGHT[kind], program="hang_causes")
    hangs.wait_for("the end", lambda: job.poll() is not None, hangs.LIMIT + RIGHT[kind])
    result = job.end()
    assert result.returncode == 0 and f"hang_causes {kind} {ranks}" in result.stdout.decode(), result.text()
    assert not glob.glob(os.path.join(job.directory, "hang-*")), job.log()
    assert b"hang [" not in result.stderr, result.text()


def main():
    hangs.BUILD, hangs.MPI = sys.argv[1:3]
    jobs.require(f"mpirun.{hangs.MPI}")
    on_both = [kind for kind in WRONG if WRONG[kind][0] == 2 and kind not in OPENMPI_ALONE]
    checks = shared([(kind, lambda k=kind: check_wrong(k)) for kind in on_both] +
                    [(kind, lambda k=kind: check_right(k)) for kind in RIGHT], hangs.MPI)
    if hangs.MPI == "openmpi":
        checks += [(kind, lambda k=kind: check_wrong(k)) for kind in WRONG if kind not in on_both]
    wanted = sys.argv[3:]
    if wanted:
        os.environ["RESIL_TEST_LONG"] = "all"
    return run_checks([(f"{name} ({hangs.MPI})", check) for name, check in checks if not wanted or name in wanted],
                      SIDE_BY_SIDE)


if __name__ == "__main__":
    sys.exit(main())
