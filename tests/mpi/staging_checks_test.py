#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the copies between device and host, on the stand-in GPU: damage of each kind is found at its stage and on
its rank, before the program sees it; damage on the wire is the wire's; clean runs have no finding, nothing unchecked.

Usage: staging_checks_test.py BUILD openmpi|mpich      (BUILD holds staging_p2p.MPI, staging_collectives.MPI and collectives.MPI)
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import gpu  # noqa: E402
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks  # noqa: E402

MODE = {"RESIL_MODE": "checksum", "RESIL_STAGE": "on"}


def faults_made(log):
    """How many by process id and stage, as the stand-in says."""
    made = {}
    for name in os.listdir(log):
        with open(os.path.join(log, name), encoding="utf-8") as file:
            for stage, pid in re.findall(r"(?:corrupt|alias)-(\w+) .*pid=(\d+)", file.read()):
                made[int(pid), stage] = made.get((int(pid), stage), 0) + 1
    return made


def clean(build, mpi, how=""):
    """Collectives of every kind: none is unchecked."""
    job = gpu.run(mpi, 2, [os.path.join(build, f"collectives.{mpi}")], env=MODE, how=how)
    assert job.result.returncode == 0 and job.buffers > 100, job.result.text()
    for rank, report in job.result.ranks().items():
        digests, checksum = report["device_digests"], report["checksum"]
        assert not report["findings"], (rank, report["findings"])
        assert digests["packets"] > 50 and digests["mismatches"] == 0 and not digests["unchecked"], (rank, digests)
        assert 0 < digests["launches"] <= digests["packets"], (rank, digests)
        assert checksum["messages_checked"] > 50 and checksum["unverified"] == 0, (rank, checksum)
        assert "device_buffer" not in checksum["messages_uncovered"], (rank, checksum)


def kernels(build, mpi, settings, why):
    """Code that the device has no use for: the driver compiles the text. It takes neither: nothing is checked, and said."""
    job = gpu.run(mpi, 2, [os.path.join(build, f"collectives.{mpi}")], settings=settings, env=MODE)
    assert job.result.returncode == 0 and job.buffers > 100, job.result.text()
    assert (why or b"no digests") in job.result.stderr if why else b"no digests" not in job.result.stderr, job.result.text()
    for rank, report in job.result.ranks().items():
        digests = report["device_digests"]
        assert not report["findings"] and report["checksum"]["messages_checked"] > 50, (rank, report)
        assert list(digests["unchecked"]) == (["no_kernel"] if why else []), (rank, digests)
        assert (digests["packets"] > 50) == (not why), (rank, digests)


def no_memory(build, mpi, settings, words):
    """Nowhere to put digests: copies are not checked, and counted; the rest goes on."""
    env = gpu.environment(settings, MODE)
    result = jobs.run(mpi, 2, [os.path.join(build, f"staging_collectives.{mpi}"), "large", str(24 << 20)], env=env, timeout=60)
    assert result.returncode == 0 and result.stdout.count(b"large") == 2, result.text()
    assert words in result.stderr and b"no kernels" not in result.stderr, result.text()
    for rank, report in result.ranks().items():
        assert list(report["device_digests"]["unchecked"]) == ["memory"] and not report["findings"], (rank, report)
        assert not report["staging"]["uncovered"], (rank, report["staging"])
        assert (report["staging"]["not_pinned"]["calls"] > 0) == ("pinned" in settings), (rank, report["staging"])


def damaged(build, mpi, fault, nth=0):
    """RESIL_ON_MISMATCH=abort: the program's own checks of its data never run on the damaged ones."""
    log = jobs.scratch()
    # The program's own copies are not resil's: those up, to fill its buffers, come first, those down last.
    number = nth or (5 if fault.endswith("down") else 30)
    env = gpu.environment(f"fault={fault}:{number}:8,log={log}/%p", MODE)
    result = jobs.run(mpi, 2, [os.path.join(build, f"staging_p2p.{mpi}"), "sets"], env=env, timeout=60)
    made = faults_made(log)
    assert result.returncode == 90, f"faults: {made}\n{result.text()}"
    assert b"failed: " not in result.stderr, result.text()
    stage = fault.split("-")[1]
    found = 0
    for rank, report in result.ranks().items():
        before = found
        for at, finding in enumerate(report["findings"]):
            evidence = finding["evidence"]
            # Of a copy down, the first time, the program may have been writing the buffer; then its digest comes first. Copies
            # that were under way then are like it.
            unclear = stage == "down" and (at == 0 or found == before and finding["confidence"] == "suspected")
            kind = ("send_buffer_modified", "suspected") if unclear else ("device_copy_corrupted", "proved")
            assert (finding["kind"], finding["confidence"]) == kind, finding
            assert finding["culprit_ranks"] == [rank] and evidence["stage"] == stage, (rank, finding)
            assert made.get((report["pid"], stage), 0) > at, (rank, made, finding)
            assert evidence["digest_device"] == evidence["digest_device_later"], finding
            assert evidence["digest_pinned"] == evidence["digest_pinned_later"].split()[0], finding
            if fault.startswith("corrupt"):
                assert evidence["differing"].startswith("1 byte, 1 bit"), finding
            found += not unclear
    assert found > 0, result.text()


def early(build, mpi):
    """Events that are complete before their copies are: seen in every run. Where the data was read before it was there, found, and
    cured, since it is waited for: on a crowded machine the copy may win that race, so several runs."""
    env = gpu.environment("fault=early-event:10", MODE)
    for _ in range(5):
        result = jobs.run(mpi, 2, [os.path.join(build, f"staging_p2p.{mpi}"), "sets", "completions"], env=env, timeout=60)
        assert result.returncode == 0, result.text()
        reports = result.ranks().values()
        assert sum(report["device_digests"]["early_events"] for report in reports) > 0, result.text()
        for report in reports:
            for finding in report["findings"]:
                assert finding["kind"] == "device_copy_early" and finding["culprit_ranks"] == [report["rank"]], finding
        if any(report["findings"] for report in reports):
            return
    raise AssertionError("no early copy was found in five runs\n" + result.text())


def race(build, mpi):
    """A fill of the program's own goes on when the buffer is sent: no device is accused. What is sent is what the buffer holds
    in the end, and from then on the digest comes first."""
    env = gpu.environment("digest=0.001", MODE)  # fills and digests take 60 ms: longer than a rank may be kept from sending by others
    result = jobs.run(mpi, 2, [os.path.join(build, f"staging_race.{mpi}")], env=env, timeout=60)
    assert result.returncode == 0 and result.stdout.split() == [b"1", b"1", b"2", b"2"], result.text()
    findings = [finding for report in result.ranks().values() for finding in report["findings"]]
    assert [(finding["kind"], finding["confidence"]) for finding in findings] == [("send_buffer_modified", "suspected")], findings
    assert "still writing" in findings[0]["message"], findings


def wire(build, mpi):
    """Between the pinned copies: both ends agree with themselves, and not with each other."""
    env = {**MODE, "RESIL_ON_MISMATCH": "log", "RESIL_FAULT": "flip,rank=1,call=MPI_Bcast,nth=1"}
    job = gpu.run(mpi, 2, [os.path.join(build, f"collectives.{mpi}")], env=env)
    findings = [finding for report in job.result.ranks().values() for finding in report.get("findings", [])]
    assert findings and all(finding["kind"] == "collective_mismatch" for finding in findings), job.result.text()
    for report in job.result.ranks().values():
        assert report["device_digests"]["mismatches"] == 0, job.result.text()


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    checks = [(f"clean ({mpi})", lambda: clean(build, mpi)), (f"wire ({mpi})", lambda: wire(build, mpi))]
    checks.append((f"a buffer that is still being written ({mpi})", lambda: race(build, mpi)))
    checks.append((f"early events ({mpi})", lambda: early(build, mpi)))
    checks.append((f"kernels compiled by the driver ({mpi})", lambda: kernels(build, mpi, "code=0", b"")))
    checks.append((f"kernels refused ({mpi})", lambda: kernels(
        build, mpi, "code=0,text=0", b"no kernels, CUDA_ERROR_UNSUPPORTED_PTX_VERSION")))
    checks.append((f"no memory left on the device ({mpi})", lambda: no_memory(
        build, mpi, "memory=48.001,down=20,up=20", b"no memory on the device for their sums, CUDA_ERROR_OUT_OF_MEMORY")))
    checks.append((f"no pinned memory at all ({mpi})", lambda: no_memory(
        build, mpi, "pinned=0,down=20,up=20", b"no pinned memory for them, CUDA_ERROR_OUT_OF_MEMORY")))
    if mpi == "openmpi" and any(name.startswith("libamdhip64") for name in os.listdir(gpu.folder())):
        checks.append((f"HIP ({mpi})", lambda: clean(build, mpi, "hip")))
    for fault in ("corrupt-down", "corrupt-up", "alias-down", "alias-up"):
        checks.append((f"{fault} ({mpi})", lambda fault=fault: damaged(build, mpi, fault)))
    checks.append((f"corrupt-down, derived types ({mpi})", lambda: damaged(build, mpi, "corrupt-down", 3)))
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
