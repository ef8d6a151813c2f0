#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reductions and its Fortran sister under native, order, exact and by messages: each checks its results against an
oracle, bit for bit, so that both MPIs and any placement and order of arrival agree; every call is accounted for.

Usage: reductions_test.py BUILD openmpi|mpich [RANKS]   (RANKS: by hand; MPICH with 3 or more only beside a plain run)
"""
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness.main import LeftOut, Long, run_checks  # noqa: E402

sys.path.insert(0, os.path.join(jobs.ROOT, "scripts"))
from resil_tool import ring  # noqa: E402

RANKS = {"openmpi": (2, 5), "mpich": (2, 3)}
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reductions_digests.txt")
EM_X86_64 = 62
COLUMNS = [(ranks, mode) for ranks in (2, 3, 5) for mode in ("order", "exact")]


def table(program):
    """{(ranks, mode): {what: digest}}, less what is another type on the program's machine."""
    found = {column: {} for column in COLUMNS}
    with open(program, "rb") as file:
        same_type = file.read(20)[18] == EM_X86_64  # this Python may be another machine's than the program (scripts/matrix, arm64)
    with open(TABLE, encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                what, *told = re.split(r"  +| (?=[0-9a-f]{16}\b)", line.rstrip())
                if len(told) != len(COLUMNS):
                    raise ValueError(line)
                for column, digest in zip(COLUMNS, told):
                    if "long double" not in what or same_type:
                        found[column][what] = digest
    return found


def digests(result):
    return dict(re.findall(r"(?m)^(.+) ([0-9a-f]{16})$", result.stdout.decode()))


def run(mpi, program, ranks, mode, env=None, arguments=(), tools_before=()):
    result = jobs.run(mpi, ranks, [program, mode, *arguments], timeout=240, tools_before=tools_before,
                      env={"RESIL_REDUCE": mode, "RESIL_LOG": "quiet", **(env or {})})
    assert result.returncode == 0, result.text()
    return result


def by_node(reports):
    return sum(report["reductions"]["through_node_memory"] for report in reports.values())


def within_a_node(mpi, program, ranks, shared, env=None, arguments=()):
    """Ranks that share a node reduce through its memory, and no others do."""
    result = run(mpi, program, ranks, "order", env, arguments)
    reports = result.ranks()
    assert all(report.get("findings", []) == [] for report in reports.values()), result.text()
    assert (by_node(reports) > 0) == shared, reports
    with ring.Ring(reports[0]["ring"]) as file:
        own = f"resil-{os.getuid()}-{file.header.job}-{file.header.world}-"  # the names of this job's memory begin so
    left = [name for name in os.listdir("/dev/shm") if name.startswith(own)]
    assert file.header.job and not left, (own, left)
    jobs.remove_rings(result.directory)


def by_groups(mpi, program, ranks, processors):
    """Ranks with a processor each fold by groups."""
    result = run(mpi, program, ranks, "order", None, ("groups",), [processors])
    reports = result.ranks()
    assert all(report["reductions"]["by_groups"] > 40 for report in reports.values()), reports[0]["reductions"]
    assert all(report.get("findings", []) == [] for report in reports.values()), result.text()
    jobs.remove_rings(result.directory)


def missing(mpi, program, ranks, rank, processors):
    """One rank of a group does not come: all others wait for it, whatever their group, and are told so."""
    result = jobs.run(mpi, ranks, [program, "order", "missing", str(rank)], timeout=240, tools_before=[processors],
                      env={"RESIL_REDUCE": "order", "RESIL_HANG": "abort"})
    assert result.returncode == 92, result.text()
    with open(os.path.join(result.directory, "hang-0.json"), encoding="utf-8") as file:
        found = json.load(file)
    others = [other for other in range(ranks) if other != rank]
    assert (found["class"], found["culprit_ranks"], found["victim_ranks"]) == ("deadlock", [rank], others), found
    jobs.remove_rings(result.directory)


def accounted(result, ranks, mode, p2p):
    """Every reduction went some way, and none that resil has arithmetic for went the library's."""
    reports = result.ranks()
    assert sorted(reports) == list(range(ranks)), result.text()
    for report in reports.values():
        assert report.get("findings", []) == [], report
        if mode == "native":
            assert "reductions" not in report, report
            continue
        seen = report["reductions"]
        parts = sum(seen[name]["calls"] for name in ("order", "exact", "p2p", "native_safe"))
        assert parts + seen["native"]["calls"] == seen["calls"] > 0, seen
        assert sum(seen["native"]["reasons"].values()) == seen["native"]["calls"], seen
        assert set(seen["native"]["reasons"]) <= {"arguments"}, seen
        assert (seen["exact"]["calls"] > 0) == (mode == "exact"), seen
        assert (seen["p2p"]["calls"] > 0) == p2p, seen
    jobs.remove_rings(result.directory)


def same_bits(mpi, program, ranks, mode, first, env=None, arguments=()):
    result = run(mpi, program, ranks, mode, env, arguments)
    accounted(result, ranks, mode, "RESIL_REDUCE_P2P" in (env or {}))
    found = digests(result)
    assert found, result.text()
    # The oracle has compared already; this compares what it compared. MPI 4 has more than the table.
    assert first.setdefault((ranks, mode), found) == found, f"{first}\n{found}"
    wanted = table(program).get((ranks, mode), {})
    differing = {what: found.get(what) for what, digest in wanted.items() if found.get(what) != digest}
    assert not differing, f"not as in {TABLE}: {differing}"


def from_fortran(mpi, program, ranks):
    if jobs.before_mpi4(mpi) and "f08" in program:
        raise LeftOut("the result of a user's operator in mpi_f08 is wrong natively on MPICH 3.4.1")
    for mode in ("native", "order", "exact"):
        result = run(mpi, program, ranks, mode)
        assert b"failed" not in result.stdout, result.text()
        accounted(result, ranks, mode, False)


def main(build, mpi, only=None):
    jobs.require(f"mpirun.{mpi}")
    program = os.path.join(build, f"reductions.{mpi}")
    first, checks = {}, []
    # Each mode, medium and order of arrival runs on one of the MPIs; the rest of the product is long.
    openmpi = mpi == "openmpi"
    for ranks in (int(only),) if only else (2,) if jobs.loses_messages(mpi) else RANKS[mpi]:
        def add(usual, name, mode, env=None, arguments=(), ranks=ranks):
            def check():
                return same_bits(mpi, program, ranks, mode, first, env, arguments)
            checks.append((f"{name}, {ranks} ranks ({mpi})", check if usual or only else Long(check)))
        few = ranks != 5
        if ranks == 2:
            checks.append((f"native, 2 ranks ({mpi})", Long(lambda: run(mpi, program, 2, "native") and None)))
        if few:  # these bits come again below
            add(not openmpi, "order", "order")
        add(openmpi, "order, ranks reversed, late arrivals", "order", arguments=("reversed", "17"))
        add(openmpi == few, "order, by messages", "order", {"RESIL_REDUCE_P2P": "1"}, ("shuffled", "5"))
        add(openmpi != few, "exact", "exact")
        if few:
            add(openmpi, "exact, by messages", "exact", {"RESIL_REDUCE_P2P": "1"})
            add(not openmpi, "order under checksums", "order", {"RESIL_MODE": "checksum"})
    for name in ("reductions_mpif", "reductions_f08"):
        fortran = os.path.join(build, f"{name}.{mpi}")
        checks.append((f"{name} ({mpi})", lambda fortran=fortran: from_fortran(mpi, fortran, 2)))
    node = os.path.join(build, f"reductions_node.{mpi}")
    most = 2 if jobs.loses_messages(mpi) else 5
    checks.append((f"within a node, {most} ranks ({mpi})", lambda: within_a_node(mpi, node, most, True, None, ("lengths",))))
    checks.append((f"over nodes, 2 ranks ({mpi})", lambda: within_a_node(mpi, node, 2, False, {"RESIL_NODE_RANKS": "1"})))
    checks.append((f"node memory switched off, 2 ranks ({mpi})",
                   Long(lambda: within_a_node(mpi, node, 2, False, {"RESIL_REDUCE_SHARED": "0"}))))
    if mpi == "openmpi" and most == 5:  # MPICH's ranks do not give their processors away in MPI_Init
        processors = os.path.join(build, "many_processors.so")
        checks.append((f"groups of ranks, 20 ranks ({mpi})", lambda: by_groups(mpi, node, 20, processors)))
        checks.append((f"a rank of a group is missing, 18 ranks ({mpi})", lambda: missing(mpi, node, 18, 11, processors)))
    started = os.path.join(build, f"reductions_started.{mpi}")
    three = 2 if jobs.loses_messages(mpi) else 3
    checks.append((f"started from the same sites, 2 ranks ({mpi})",
                   lambda: within_a_node(mpi, started, 2, True, None, ("lengths",))))
    checks.append((f"started from the same sites, over nodes, {three} ranks ({mpi})",
                   lambda: within_a_node(mpi, started, three, False, {"RESIL_NODE_RANKS": "1"})))
    threads = os.path.join(build, f"reductions_threads.{mpi}")
    for mode, p2p in (("order", "0"), ("order", "1"), ("exact", "0")):
        checks.append((f"threads, {mode}, P2P={p2p} ({mpi})",
                       lambda mode=mode, p2p=p2p: accounted(run(mpi, threads, 2, mode, {"RESIL_REDUCE_P2P": p2p}), 2, mode,
                                                            p2p == "1")))
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
