#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The standard ABI of MPI 5.0, on a stand-in library: the right backend is chosen, and the program behaves alike.

Usage: fakempi_test.py BUILD      (BUILD holds fakempi_program and libmpi_abi.so.1)
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports, transparent  # noqa: E402
from harness.main import run_checks  # noqa: E402

EXPECTED = {"MPI_Init": 1, "MPI_Irecv": 9, "MPI_Recv": 2, "MPI_Waitall": 1, "MPI_Comm_dup": 100, "MPI_Comm_free": 100,
            "MPI_Allreduce": 100, "MPI_Iprobe": 1, "MPI_Get_count": 8, "MPI_Finalize": 1, "MPI_Barrier": 1}


def run(build, preload, *arguments, **env):
    directory = os.path.join(jobs.scratch(), "report")
    env["LD_LIBRARY_PATH"] = build
    if preload:
        env.update(LD_PRELOAD=jobs.library(), RESIL_DIR=directory)
    return jobs.start([os.path.join(build, "fakempi_program"), *arguments], directory, env=env, timeout=30)


def check(build, mode):
    plain, preloaded = run(build, False), run(build, True, RESIL_MODE=mode)
    transparent.same_end(plain, preloaded)
    assert plain.returncode == 0, plain.text()
    if mode == "off":
        return
    report = transparent.clean_report(preloaded, 1)[0]
    assert report["mpi"]["abi"] == "standard", report["mpi"]
    assert "fakempi" in report["mpi"]["library"], report["mpi"]
    counts = reports.counts(report)
    wrong = {name: counts.get(name) for name, number in EXPECTED.items() if counts.get(name) != number}
    assert not wrong, f"{wrong}, made {EXPECTED}"
    peer = {entry["rank"]: entry for entry in report["peers"]}[0]
    # 8 of 4 bytes, 1 of 36, and 2 integers through a name that the library lacks; not the one that was refused
    assert peer["sent_bytes"] >= 8 * 4 + 36, peer


def newer(build):
    """An MPI newer than any known: its functions go to it unseen, that is said once, and all else is as ever."""
    env = {"FAKEMPI_VERSION": "6.1", "RESIL_DRAIN_SECONDS": "1"}  # what a newer function sends nobody can verify
    plain = run(build, False, "future", **env)
    for mode in ("watch", "checksum"):
        preloaded = run(build, True, "future", RESIL_MODE=mode, **env)
        transparent.same_end(plain, preloaded)
        report = preloaded.ranks()[0]
        assert report["findings"] == [] and report["outcome"] == "finished", report
        words = "this is MPI 6.1; resil knows MPI up to 5.0: calls of newer functions are not seen"
        assert [line for line in transparent.own_lines(preloaded.stderr) if "MPI 6.1" in line] == ["resil: " + words], preloaded.text()
        assert words in report["notes"], report["notes"]


def unknown(build, abi):
    """An MPI whose binary interface cannot be told: off, said once, and the program runs as it does without."""
    env = {"FAKEMPI_ABI": abi}
    plain = run(build, False, "future", **env)
    assert plain.returncode == 0, plain.text()
    for mode, lines in (({}, 1), ({"RESIL_MODE": "checksum"}, 1), ({"RESIL_LOG": "quiet"}, 0), ({"RESIL_MODE": "off"}, 0)):
        preloaded = run(build, True, "future", **mode, **env)
        transparent.same_end(plain, preloaded)
        said = transparent.own_lines(preloaded.stderr)
        assert len(said) == lines and not os.path.exists(preloaded.directory), preloaded.text()
        assert all("binary interface" in line and "libmpi_abi.so.1" in line and "resil is off" in line for line in said), said


if __name__ == "__main__":
    sys.exit(run_checks([(f"standard ABI, {mode}", lambda mode=mode: check(sys.argv[1], mode))
                         for mode in ("watch", "off")] +
                        [("an MPI newer than any known", lambda: newer(sys.argv[1])),
                         ("neither Open MPI nor MPICH nor the standard ABI", lambda: unknown(sys.argv[1], "0")),
                         ("a standard ABI of another version", lambda: unknown(sys.argv[1], "2.0"))]))
