#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages with device buffers, on the stand-in GPU: every part of staging_p2p.c, and what the reports say of it.

Usage: staging_test.py BUILD openmpi|mpich [ROUNDS]      (BUILD holds staging_p2p.MPI and staging_threads.MPI; ROUNDS of the
latter, default 15)
"""
import glob
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import gpu  # noqa: E402
from harness import mpi as jobs  # noqa: E402
from harness import patience, transparent  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

# Without errors and freed requests, after which not all can be checked.
SAFE = ("modes", "derived", "exchanges", "probes", "sets", "order", "head_on", "completions", "itself")


def catches(pid, number):
    """Has the process a handler for the signal? Without, it would end."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return int(re.search(r"^SigCgt:\s*(\w+)", file.read(), re.M).group(1), 16) >> (number - 1) & 1 == 1
    except (OSError, AttributeError):
        return False


def main(build, mpi, rounds="15"):
    jobs.require(f"mpirun.{mpi}")

    def run(*parts, program="staging_p2p", settings="", **environment):
        env = gpu.environment(settings, {"RESIL_STAGE": "on", **environment})
        return jobs.run(mpi, 2, [os.path.join(build, f"{program}.{mpi}"), *parts], env=env, timeout=150)

    def everything():
        result = run()
        assert result.returncode == 0 and b"ok" in result.stdout, result.text()
        for rank, report in result.ranks().items():
            staging = report["staging"]
            assert staging["messages"]["calls"] > 500, (rank, staging)
            assert not staging["uncovered"], (rank, staging)
            assert not report["findings"], (rank, report["findings"])

    def checked():
        result = run(*SAFE, RESIL_MODE="checksum")
        assert result.returncode == 0, result.text()
        for rank, report in result.ranks().items():
            checksum = report["checksum"]
            assert not report["findings"], (rank, report["findings"])
            assert checksum["messages_checked"] == checksum["messages_total"] > 400, (rank, checksum)
            assert not checksum["messages_uncovered"], (rank, checksum)

    def strict():
        result = run("exchanges", RESIL_MODE="checksum", RESIL_CHECKSUM="strict", RESIL_DRAIN_SECONDS="10")
        assert result.returncode == 0, result.text()
        assert not any(report["checksum"]["deferred"] for report in result.ranks().values()), result.text()

    def slow():
        """Copies take so long that the next calls are made while they are under way."""
        result = run("sets", "order", "completions", settings="down=0.05,up=0.05,latency=200")
        assert result.returncode == 0, result.text()

    def kinds(**environment):
        """Every kind of device memory that the driver gives, also while a stream is being captured; nothing is left out."""
        result = run(program="staging_kinds", settings="up=0.5,down=2,digest=2", **environment)
        assert result.returncode == 0 and b"ok" in result.stdout, result.text()
        for kind in ("plain", "pool", "managed", "mapped", "capture"):
            assert f"{kind}_4194304".encode() in result.stdout, result.text()
        for rank, report in result.ranks().items():
            assert not report["staging"]["uncovered"] and not report["findings"], (rank, report["staging"], report["findings"])

    def crowded():
        result = run("memory", RESIL_STAGE_MEMORY="16")
        assert result.returncode == 0, result.text()
        for rank, report in result.ranks().items():
            staging = report["staging"]
            assert staging["not_pinned"]["calls"] > 0 and not staging["uncovered"], (rank, staging)

    def gone():
        result = run("gone", settings="down=0.01")
        assert result.returncode == 0, result.text()
        reports = result.ranks()
        kinds = [finding["kind"] for finding in reports[0]["findings"]]
        assert kinds == ["device_copy_failed"] * 2, reports[0]["findings"]
        assert not reports[1]["findings"], reports[1]["findings"]

    def threads(number, strict, **environment):
        """MPI_THREAD_MULTIPLE, with copies so slow that they are under way while other threads call."""
        env = {"RESIL_STAGE": "on", "RESIL_MODE": "checksum", **environment} if strict is not None else {"RESIL_STAGE": "on"}
        env |= {"RESIL_CHECKSUM": "strict"} if strict else {}
        result = jobs.run(mpi, 2, [os.path.join(build, f"staging_threads.{mpi}"), rounds, number], timeout=240,
                          env=gpu.environment("down=0.1,up=0.1,latency=100", env))
        assert result.returncode == 0 and b"ok" in result.stdout, result.text()
        for rank, report in result.ranks().items():
            assert report["staging"]["messages"]["calls"] > 30, (rank, report["staging"])
            assert not report["findings"] and not report["staging"]["uncovered"], (rank, report)
            if strict is not None:
                checksum = report["checksum"]
                assert checksum["messages_checked"] == checksum["messages_total"] > 100, (rank, checksum)
                assert not checksum["messages_uncovered"] and checksum["unverified"] == 0, (rank, checksum)

    def cut(way, *parts, chunk="16", settings="down=2,up=2", least=100, **environment):
        """All messages that are cut go that one way: as chunks, or from device to device."""
        if "alike" not in parts and jobs.before_mpi4(mpi):
            raise LeftOut("MPICH 3.4.1 tells a message that is too long in MPI_Irecv already")
        result = run(*parts, program="staging_chunks", settings=settings, RESIL_STAGE_CHUNK=chunk, **environment)
        own = "\n".join(transparent.own_lines(result.stderr)).lower()  # Open MPI 6 warns of MPI_Cancel, MPICH 4.2 of handles
        assert result.returncode == 0 and "warn" not in own, result.text()
        other = "peer_copies" if way == "chunked" else "chunked"
        for rank, report in result.ranks().items():
            staging = report["staging"]
            assert staging[way]["sent"] + staging[way]["received"] > least, (rank, staging)
            assert staging[other]["sent"] == staging[other]["received"] == 0, (rank, staging)
            assert not staging["uncovered"] and not report["findings"], (rank, staging, report["findings"])

    def at_random():
        cut("peer_copies", "random", "10", "5", chunk="2", least=2)
        cut("chunked", "random", "30", "43000", chunk="2", least=2, RESIL_STAGE_PEER="0")

    def no_peers():
        """Another node, device memory that cannot be exported, that cannot be opened, none left."""
        for settings, environment in (("", {"RESIL_NODE_RANKS": "1"}), ("ipc=0", {}), ("ipc=2", {}), ("memory=2", {})):
            cut("chunked", "exchanged", settings=settings, least=20, **environment)

    def deferred():
        # devices: the program asks the stand-in what has been done.
        result = run("deferred", program="staging_chunks", settings="devices=1,down=0.01", RESIL_STAGE_CHUNK="16",
                     RESIL_NODE_RANKS="1")
        assert result.returncode == 0, result.text()
        for rank, report in result.ranks().items():
            assert report["staging"]["peer_copies"]["sent"] > 2 < report["staging"]["chunked"]["sent"], (rank, report)

    def lost():
        result = run("lost", program="staging_chunks", RESIL_STAGE_CHUNK="16")
        assert result.returncode == 0, result.text()
        findings = [report["findings"] for report in result.ranks().values()]  # the program numbers ranks the other way
        assert [finding["kind"] for finding in findings[0]] in ([], ["device_copy_failed"]) and not findings[1], findings

    def not_cut():
        """Where a copy is compared with the device before the library gets it, and where calls are recorded."""
        for mode in "checksum", "record":
            result = run("plain", program="staging_chunks", RESIL_STAGE_CHUNK="16", RESIL_MODE=mode,
                         RESIL_RECORD=os.path.join(jobs.scratch(), "recording"))
            assert result.returncode == 0, result.text()
            for report in result.ranks().values():
                assert report["staging"]["chunked"]["sent"] == report["staging"]["peer_copies"]["sent"] == 0, report

    def mixed(part, settings="down=0.1,up=0.1,latency=100", **environment):
        """As the plain program with host memory: completed beside requests of other kinds, and errors of other threads."""
        if part == "errors" and jobs.before_mpi4(mpi):
            raise LeftOut("MPICH 3.4.1 tells an error that waited for some hundred others under another class: docs/PLATFORMS.md")
        plain = jobs.run(mpi, 2, [os.path.join(build, f"staging_mixed.{mpi}"), part, "host", os.path.join(jobs.scratch(), "file")],
                         preload=False, timeout=150)
        assert plain.returncode == 0 and b"ok" in plain.stdout, plain.text()
        result = run(part, "device", os.path.join(jobs.scratch(), "file"), program="staging_mixed", settings=settings,
                     RESIL_HANG="off", **environment)
        assert result.returncode == 0 and result.stdout == plain.stdout, result.text()
        for rank, report in result.ranks().items():
            assert report["staging"]["messages"]["calls"] > 50, (rank, report["staging"])
            assert not report["findings"] and not report["staging"]["uncovered"], (rank, report)

    def late(hang):
        """A copy whose completion the runtime has lost, until the file is there: dumps name it; then all goes on."""
        folder = jobs.scratch()
        release, directory = os.path.join(folder, "release"), os.path.join(folder, "report")
        environment = jobs.rank_environment(True, directory, gpu.environment(
            "fault=lost-event:30", {"RESIL_STAGE": "on", "RESIL_STAGE_PEER": "0", "RESIL_HANG": hang, "FAKEGPU_RELEASE": release}))
        job = jobs.Running(jobs.launcher(mpi, 2, environment) + [os.path.join(build, f"staging_p2p.{mpi}"), "sets"], directory)
        told, told_of = "", r"staging: the copy (up|down) of a message of \d+ bytes( (from|to) rank [01])?.* under way for"
        limit = patience.Patience(40)
        while job.poll() is None and not re.search(told_of, told) and not limit.over():
            time.sleep(0.3)
            for pid in job.ranks().values():
                if catches(pid, signal.SIGHUP):
                    os.kill(pid, signal.SIGHUP)
            told = "".join(open(path, encoding="utf-8").read() for path in glob.glob(os.path.join(directory, "dump-*.txt")))
        with open(release, "w", encoding="utf-8"):
            pass
        limit = patience.Patience(30)
        while job.poll() is None and not limit.over():
            time.sleep(0.05)
        end = job.end()
        jobs.remove_rings(directory)
        assert re.search(told_of, told) and end.returncode == 0, told[-3000:] + end.text()
        return re.search(told_of, told).group()

    return run_checks([
                       ("a copy that does not end", lambda: late("report")),
                       ("a copy that does not end, RESIL_HANG=off", lambda: late("off")),
                       ("messages in chunks", lambda: cut("chunked", RESIL_STAGE_PEER="0")),
                       ("from device to device", lambda: cut("peer_copies")),
                       ("sizes as heads have them", lambda: cut("peer_copies", "alike", chunk="2")),
                       ("messages at random", at_random),
                       ("no way between devices", no_peers), ("copies between devices come last", deferred),
                       ("context destroyed with what it has granted", lost),
                       ("no chunks", not_cut), ("a thread and its helper", lambda: threads("1", None)),
                       ("threads, checked", lambda: threads("4", False, RESIL_BLAME="full")),
                       ("threads, strict", lambda: threads("4", True)),
                       ("beside other requests", lambda: mixed("kinds", RESIL_STAGE_CHUNK="16")),
                       ("beside other requests, checked", lambda: mixed("kinds", RESIL_MODE="checksum")),
                       ("beside errors of another thread", lambda: mixed("errors")),
                       ("beside errors of another thread, checked", lambda: mixed("errors", RESIL_MODE="checksum")),
                       ("every kind of device memory", kinds),
                       ("every kind of device memory, through the host, checked",
                        lambda: kinds(RESIL_STAGE_PEER="0", RESIL_MODE="checksum")),
                       ("every part", everything), ("every message checked", checked), ("exchanges, strict", strict), ("slow copies", slow),
                       ("no pinned memory left", crowded), ("context destroyed under way", gone)])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
