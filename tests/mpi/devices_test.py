#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Test programs that know nothing of GPUs, with all their buffers on devices of the stand-in: staged and checked, they
end as they do with host memory. And a process of Level Zero, which cannot be asked.

Usage: devices_test.py BUILD openmpi|mpich [all]      (BUILD holds PROGRAM.MPI; all: every program with every memory)
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from harness import gpu  # noqa: E402
from harness import mpi as jobs  # noqa: E402
from harness.main import run_checks  # noqa: E402
from programs_test import Program  # noqa: E402

# Program -> kind of memory, FAKEGPU.
QUICK = {"p2p": ("", "devices=3"), "collectives": ("mapped", ""), "datatypes": ("pool", ""), "intercomm": ("hip", "")}
PROGRAMS = (*QUICK, "communicators", "errors", "callbacks", "rma", "files", "cxx", "threads", "stress_threads", "mpi4",
            "fortran_mpif", "fortran_f08", "fortran_use_mpi")
KINDS = ("", "managed", "pool", "mapped", "hip", "2")


def same(program, how, settings):
    """Staged and checked on devices as plainly on the host."""
    plain, _ = program.run(False)
    assert plain.returncode == 0, plain.text()
    command = program.command(os.path.join(jobs.scratch(), "file"))
    job = gpu.run(program.mpi, program.ranks, command, settings=settings, how=how, options=program.options,
                  env={"RESIL_STAGE": "on", "RESIL_MODE": "checksum"}, timeout=120)
    result = job.result
    assert result.returncode == 0 and result.stdout == plain.stdout, result.text()
    staged = 0
    for rank, report in result.ranks().items():
        assert not report["findings"], (rank, report["findings"])
        staging = report["staging"]
        staged += sum(staging[path]["calls"] for path in ("messages", "collectives", "persistent"))
    assert job.buffers > 0 or program.name in ("files", "rma"), result.text()
    assert staged > 0 or job.buffers == 0, "nothing was staged"
    jobs.remove_rings(result.directory)


def untouchable(mpi, build):
    """Without staging the library dies of such a buffer: the tests above are not of host memory by another name."""
    program = Program(build, mpi, "p2p")
    result = gpu.run(mpi, program.ranks, program.command(""), env={"RESIL_STAGE": "off"}).result
    assert b"fakegpu: host touched device memory" in result.stderr, result.text()  # its launcher's status may be 0: MPICH 4.2.1
    jobs.remove_rings(result.directory)


# A /dev with a render node whose vendor nobody can tell, for the commands behind it and nobody else.
WITH_DEVICE = """set -e
mount -t tmpfs tmpfs "$0"
mkdir "$0/dri"
touch "$0/dri/renderD128"
for entry in null zero full random urandom tty ptmx; do
  [ ! -e /dev/$entry ] || { touch "$0/$entry"; mount --bind /dev/$entry "$0/$entry"; }
done
for entry in pts shm; do mkdir "$0/$entry"; mount --rbind /dev/$entry "$0/$entry"; done
ln -s /proc/self/fd "$0/fd"
mount --move "$0" /dev
exec "$@"
"""


def level_zero_libraries(program, build):
    """A folder with the stand-ins of Level Zero alone: UCX loads AMD's runtime where it finds one. Not of what the system has:
    MPICH 5.0 is linked with the loader, UCX loads it, and both need all of it."""
    folder = jobs.scratch()
    system = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    system += subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for name in ("libze_loader.so.1", "libze_intel_gpu.so.1"):
        if name not in system:
            os.symlink(os.path.join(build, "..", "unit", name), os.path.join(folder, name))
    return folder


def level_zero_job(mpi, build, mode, before=()):
    """A process with Level Zero's libraries, its result and the reports of its ranks."""
    directory = os.path.join(jobs.scratch(), "report")
    program = os.path.join(build, f"level_zero.{mpi}")
    env = {"LD_PRELOAD": jobs.library(), "LD_LIBRARY_PATH": level_zero_libraries(program, build), "RESIL_STAGE": "on",
           "RESIL_MODE": mode, "RESIL_DIR": directory}
    if mpi == "mpich" and jobs.mpich_version() >= (5,):
        env["MPIR_CVAR_ENABLE_GPU"] = "0"  # else it starts the stand-in of the driver itself, and fails natively
    result = jobs.start([*before, *jobs.launcher(mpi, 2, env), program], directory)
    assert result.returncode == 0 and result.stdout == b"level_zero 8015\n", result.text()
    assert not any(report["findings"] for report in result.ranks().values()), result.text()
    return result.ranks()


def level_zero(mpi, build, mode):
    """A runtime that cannot be asked: all goes to the library as it is, and every such call is counted."""
    if os.path.exists("/dev/dri") or os.path.exists("/dev/accel"):
        device = ()
    else:
        device = ("unshare", "-m", "sh", "-c", WITH_DEVICE, jobs.scratch())
        if subprocess.run([*device, "true"], capture_output=True, check=False).returncode:
            return "(not permitted to mount: not checked)"
    for rank, report in level_zero_job(mpi, build, mode, device).items():
        staging = report["staging"]
        # in each of 5 rounds a receive, a send and a reduction of 50,000 integers, and a reduction of one
        assert staging["uncovered"] == {"foreign_runtime": {"calls": 20, "bytes": 5 * (3 * 200000 + 4)}}, (rank, staging)
        assert staging["messages"]["calls"] == staging["collectives"]["calls"] == 0, (rank, staging)
        if mode == "checksum":
            assert report["checksum"]["messages_uncovered"].get("device_buffer", 0) >= 10, (rank, report["checksum"])
    return None


def level_zero_without_device(mpi, build):
    """Debian 13's hwloc brings Level Zero into every process: where there is no device, nothing may go unchecked for it."""
    if os.path.exists("/dev/dri") or os.path.exists("/dev/accel"):
        return "(this machine may have a device)"
    for rank, report in level_zero_job(mpi, build, "checksum").items():
        assert not report.get("staging", {}).get("uncovered"), (rank, report["staging"])
        assert not report["checksum"].get("messages_uncovered"), (rank, report["checksum"])
        assert report["checksum"]["bytes_checked"] == report["checksum"]["bytes_total"] > 1000000, (rank, report["checksum"])
    return None


def main(build, mpi, which="quick"):
    jobs.require(f"mpirun.{mpi}")
    wanted = [(name, how, settings) for name, (how, settings) in QUICK.items()]
    if which == "all":
        wanted = [(name, how, "devices=2") for name in PROGRAMS for how in KINDS]
    checks = [("without staging", lambda: untouchable(mpi, build))]
    checks += [(f"Level Zero, {mode}", lambda mode=mode: level_zero(mpi, build, mode)) for mode in ("watch", "checksum")]
    checks += [("Level Zero without a device", lambda: level_zero_without_device(mpi, build))]
    installed = lambda name: os.path.exists(os.path.join(build, f"{name}.{mpi}"))  # noqa: E731
    for name, how, settings in wanted:
        if how == "hip" and not os.path.exists(os.path.join(gpu.folder(), "libamdhip64.so.5")):
            continue
        program = Program(build, mpi, name)
        if installed(name) and program.rules.get("needs", mpi) == mpi:
            checks.append((f"{name} ({mpi}) {how} {settings}",
                           lambda program=program, how=how, settings=settings: same(program, how, settings)))
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
