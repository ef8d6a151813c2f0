#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collectives and persistent requests with device buffers, on the stand-in GPU: right to the last byte in every mode, and
what happens when the runtime fails.

Usage: staging_collectives_test.py BUILD openmpi|mpich      (BUILD holds the programs)
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import gpu  # noqa: E402
from harness import mpi as jobs  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    program = os.path.join(build, f"staging_collectives.{mpi}")

    newer = os.path.exists(os.path.join(build, f"mpi4.{mpi}"))  # partitioned requests, too

    def run(ranks, *arguments, settings="", **env):
        return jobs.run(mpi, ranks, [program, *arguments], env=gpu.environment(settings, env), timeout=60)

    def every_byte(ranks, **env):
        result = run(ranks, "all", settings="latency=1", **env)
        assert result.returncode == 0, result.text()
        calls, buffers = map(int, re.search(rb"staging_collectives (\d+) (\d+)", result.stdout).groups())
        assert calls > 130 and buffers > 150, result.text()
        for rank, report in result.ranks().items():
            staged, where = report["staging"], f"rank {rank}\n{result.text()}"
            assert staged["active"] and not staged["uncovered"] and not report["findings"], where
            assert staged["collectives"]["calls"] > 80 and staged["persistent"]["calls"] > 20, staged
            assert staged["local"]["calls"] >= 18 and staged["not_pinned"]["calls"] == 0, staged
        return result.ranks()[0]

    def checked():
        found = every_byte(2, RESIL_MODE="checksum", RESIL_BLAME="full", RESIL_REDUCE="order")
        seen = found["checksum"]
        # Nothing was left out because of where it lies.
        assert set(seen["messages_uncovered"]) <= {"reduction", "user_operator", "overlapped"}, seen
        assert seen["messages_checked"] > 150 and seen["collectives"]["calls_checked"] > 130, seen
        assert found["reductions"]["order"]["calls"] >= 12 and found["reductions"]["native"]["calls"] == 0, found

    def recorded():
        recording = os.path.join(jobs.scratch(), "recording")
        every_byte(2, RESIL_MODE="record", RESIL_RECORD=recording)
        every_byte(2, RESIL_MODE="verify", RESIL_RECORD=recording)

    def stand_in_only(why):
        if gpu.real():
            raise LeftOut(f"needs the stand-in: {why}")

    def off():
        stand_in_only("its word for a host that touches device memory")
        result = run(1, "large", "65536", RESIL_STAGE="off")
        assert result.returncode != 0 and b"host touched device memory" in result.stderr, result.text()

    def aware():
        """A library that says that it takes device buffers is believed, unless RESIL_STAGE=on."""
        stand_in_only("its word for a host that touches device memory")
        result = run(1, "large", "65536", MPICH_GPU_SUPPORT_ENABLED="1")
        assert b"host touched device memory" in result.stderr, result.text()
        assert result.ranks()[0]["staging"]["mpi_takes_device_buffers"], result.text()
        result = run(1, "large", "65536", MPICH_GPU_SUPPORT_ENABLED="1", RESIL_STAGE="on")
        assert result.returncode == 0, result.text()

    def no_device():
        """Without a device buffer nothing is done, whatever is installed."""
        for driver in ((), ("libcuda.so.1",)):
            result = run(1, "host", *driver, settings="devices=0")
            assert result.returncode == 0 and not result.ranks()[0]["staging"]["active"], result.text()

    def little_pinned():
        result = run(2, "large", str(24 << 20), settings="down=20,up=20", RESIL_STAGE_MEMORY="16")
        assert result.returncode == 0 and result.stdout.count(b"large") == 2, result.text()
        assert b"RESIL_STAGE_MEMORY" in result.stderr, result.text()
        for report in result.ranks().values():
            staged = report["staging"]
            assert staged["not_pinned"]["calls"] == 3 and not staged["uncovered"], staged
            assert staged["pinned_memory"]["bytes"] == staged["pinned_memory"]["limit"] == 16 << 20, staged

    def gone(way, n):
        result = run(1, "gone", settings=f"fault=gone:{n}")
        assert result.returncode == 3 and b"refused MPI_ERR_OTHER" in result.stdout, result.text()
        assert b"MPI_Allreduce: data could not be copied " + way in result.stderr, result.text()

    def left_to_the_library():
        result = run(2, "left", os.path.join(jobs.scratch(), "file"), RESIL_MODE="checksum")
        assert result.returncode == 0 and result.stdout.count(b"left") == 2, result.text()
        for report in result.ranks().values():
            uncovered = report["staging"]["uncovered"]
            assert uncovered["one_sided"]["calls"] == 2 and set(uncovered) == {"one_sided", "other"}, uncovered
            assert uncovered["other"]["calls"] == (2 if newer else 1), uncovered
            assert not report["findings"], report["findings"]

    def together():
        result = run(2, "together", RESIL_MODE="checksum")
        assert result.returncode == 0 and result.stdout.count(b"together") == 2, result.text()
        for report in result.ranks().values():
            staged = report["staging"]
            assert [staged[way]["calls"] for way in ("messages", "collectives", "persistent")] == [18, 9, 18], staged
            assert not report["findings"] and not report["checksum"]["messages_uncovered"], report["checksum"]

    def forgotten():
        """More than the pinned memory that there is, had it not been given back."""
        result = run(2, "forgotten", RESIL_MODE="checksum", RESIL_STAGE_MEMORY="16")
        assert result.returncode == 0 and result.stdout.count(b"forgotten") == 2, result.text()
        for report in result.ranks().values():
            staged = report["staging"]
            assert staged["persistent"]["calls"] == 198 and not staged["uncovered"] and not report["findings"], report
            assert staged["not_pinned"]["calls"] == 0, staged

    def any_program(name):
        """Unmodified, with its buffers moved to a device: the same output as on the host."""
        if name.startswith("fortran") and os.environ.get("RESIL_TEST_MPI_LIBRARY"):
            raise LeftOut("Fortran here is of the MPI's own ABI, and the tool that moves buffers of the standard one")
        stand_in_only("its view of device memory")
        command = [os.path.join(build, f"{name}.{mpi}")]
        plain = jobs.run(mpi, 2, command, timeout=60)
        staged = gpu.run(mpi, 2, command, settings="latency=1", env={"RESIL_REDUCE": "order"}, timeout=60)
        assert staged.buffers > 0 and staged.result.returncode == plain.returncode == 0, staged.result.text()
        assert staged.result.stdout == plain.stdout, staged.result.text() + plain.text()
        local = 3 if name == "fortran_f08" else 0
        assert all(one["staging"]["local"]["calls"] >= local for one in staged.result.ranks().values()), staged.result.text()
        assert all(not one["staging"]["uncovered"] for one in staged.result.ranks().values()), staged.result.text()

    def freed():
        stand_in_only("copies as slow as it wants")
        result = run(2, "freed-messages", settings="down=0.01")
        assert result.returncode == 0 and b"freed messages" in result.stdout, result.text()
        kinds = [finding["kind"] for finding in result.ranks()[0]["findings"]]
        assert kinds == ["device_copy_failed"] and not result.ranks()[1]["findings"], result.text()
        assert b"MPI_Send_init: data could not be copied from the device" in result.stderr, result.text()
        result = run(2, "freed")
        assert b"refused MPI_ERR_OTHER" in result.stdout, result.text()
        assert b"MPI_Iallreduce: data could not be copied to the device" in result.stderr, result.text()

    return run_checks([
        ("every call, every mixture of memory", lambda: None if every_byte(4 if mpi == "openmpi" else 2) else "no report"),
        ("with checksums, full blame and reductions in order", checked),
        ("recorded and verified", recorded),
        ("exact reductions by messages", lambda: None if every_byte(2, RESIL_REDUCE="exact", RESIL_REDUCE_P2P="1") else "no report"),
        ("off", off),
        ("a library that takes device buffers", aware),
        ("no device buffer, a driver without a device", no_device),
        ("less pinned memory than data", little_pinned),
        ("the context is gone before the copy down", lambda: gone(b"from", GONE_DOWN)),
        ("the context is gone before the copy up", lambda: gone(b"to", GONE_UP)),
        ("one-sided, files, partitioned: left to the library, and counted", left_to_the_library),
        ("messages, persistent messages and collectives completed together", together),
        ("an unmodified program of intercommunicators", lambda: any_program("intercomm")),
        ("an unmodified Fortran program", lambda: any_program("fortran_f08")),
        ("persistent messages freed while they are active", forgotten),
        ("device memory freed while a request is pending", freed),
    ])


# Operations of the runtime's before the fault: each turn of "gone" has one copy and one event down, one of each up.
GONE_DOWN, GONE_UP = 61, 59


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
