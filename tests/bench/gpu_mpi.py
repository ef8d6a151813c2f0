# SPDX-License-Identifier: Apache-2.0
"""The part of scripts/bench gpu that needs an MPI: staged messages on the driver that is there, tested and measured. Open
MPI, MPICH or both; where they have no suffix (mpicc, mpirun) they are asked what they are."""
import os
import shutil
import statistics
import subprocess
import sys

from bench import staging, turns
from harness import mpi as jobs

BANDWIDTH_AIM = 0.8   # of the slower of link and wire
SET_AIM = 1.15        # of the longest of the three ways, and two packets
PROGRAMS = ("staging_p2p", "gpu_waits", "staging_threads", "staging_chunks")
SOURCES = os.path.join(jobs.ROOT, "tests", "mpi")


def found(bench):
    """The MPIs of this machine, each with mpicc.NAME and mpirun.NAME in PATH from now on."""
    wanted = [bench.options.mpi] if bench.options.mpi else list(jobs.MPIS)
    there = [mpi for mpi in wanted if shutil.which(f"mpicc.{mpi}") and shutil.which(f"mpirun.{mpi}")]
    plain = shutil.which("mpicc"), shutil.which("mpirun") or shutil.which("mpiexec")
    if not there and all(plain):
        text = subprocess.run([plain[1], "--version"], capture_output=True, check=False)
        version = (text.stdout + text.stderr).decode()
        mpi = "openmpi" if "Open MPI" in version or "OpenRTE" in version else \
            "mpich" if any(word in version for word in ("HYDRA", "MPICH", "Intel")) else None
        if mpi in wanted:
            folder = jobs.scratch()
            for name, path in zip((f"mpicc.{mpi}", f"mpirun.{mpi}"), plain):
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(f'#!/bin/sh\nexec "{path}" "$@"\n')
                os.chmod(file.name, 0o755)
            os.environ["PATH"] = folder + os.pathsep + os.environ["PATH"]
            there = [mpi]
    return there


def programs(mpi):
    """The folder with NAME.MPI, as the tests want it."""
    folder = jobs.scratch()
    for name in PROGRAMS:
        source = os.path.join(SOURCES, name + ".c")
        if os.path.exists(source):
            subprocess.run([f"mpicc.{mpi}", "-w", "-std=gnu11", "-O1", "-g", "-pthread", "-o",
                            os.path.join(folder, f"{name}.{mpi}"), source, "-ldl"], check=True)
    return folder


def tests(bench, mpi):
    """The tests of staging and of waits; in them, what needs the stand-in's faults and speeds is left out on a device."""
    folder = programs(mpi)
    env = {"RESIL_TEST_LIBRARY": jobs.library(), "RESIL_TEST_GPU": "stand-in" if bench.options.stand_in else "real"}
    scripts = [os.path.join(SOURCES, "staging_test.py"), os.path.join(jobs.ROOT, "tests", "preload", "gpu_runtime_test.py")]
    for script in scripts if not bench.options.quick else scripts[:1]:
        job = jobs.start([sys.executable, script, folder, mpi], env=env, timeout=600)
        lines = job.stdout.decode().splitlines()
        bench.report.check(f"{mpi}: {os.path.basename(script)}: {lines[-1] if lines else 'no output'}", job.returncode == 0,
                           job.text())
    ranks = ["--launcher", " ".join(jobs.launcher(mpi, 4, {})[:-1] + ["{ranks}"]), "--mpicc", f"mpicc.{mpi}", "--ranks", "2"]
    sizes = ["--sizes", "4K,64K"] if bench.options.quick else []
    job = jobs.start([sys.executable, os.path.join(jobs.ROOT, "scripts", "resil"), "smoke", *ranks, *sizes, "--library",
                      jobs.library(), "--memory", "device"], env=bench.environment("down=4,up=4"), timeout=600)
    bench.report.check(f"{mpi}: `scripts/resil smoke --memory device`", job.returncode == 0, job.text())
    if job.returncode == 0:
        bench.report.add("", "```", *job.stdout.decode().strip().splitlines(), "```", "")


def sets(bench, mpi):
    """A set of packets against its three ways, and its bandwidth against the slower of link and wire."""
    program = turns.compiled(mpi, "staging")
    # Both ranks are on this node: copies from device to device would take the place of what is to be measured.
    env = bench.environment("down=0.3,up=0.3,latency=10", {"RESIL_STAGE": "on", "RESIL_LOG": "quiet", "RESIL_STAGE_PEER": "0"})
    bench.report.add("", f"{mpi}, 2 ranks, {staging.PACKETS} packets each way at the same time, best of each run, medians of "
                     f"{bench.options.runs} runs, `RESIL_STAGE_PEER=0`:", "",
                     "| packet | down | wire | up | staged set | set / (longest + two packets) | GB/s one way | of the slower of link "
                     "and wire |", "|---:|---:|---:|---:|---:|---:|---:|---:|")
    best = {}
    for packet in (4096,) if bench.options.quick else (65536, 1 << 20):
        samples = []
        for _ in range(bench.options.runs):
            job = jobs.run(mpi, 2, [program, str(packet)], env=env, timeout=300, cwd=jobs.scratch())
            if job.returncode != 0:
                bench.report.check(f"{mpi}: staging, packets of {packet} bytes", False, job.text())
                return
            samples.append({name: value for name, (value, _) in turns.measured(job.stdout.decode()).items()})
        median = {name: statistics.median(sample[name] for sample in samples) for name in samples[0]}
        ratio = statistics.median(staging.overlap(sample) for sample in samples)
        best["set"] = ratio
        best["bandwidth"] = max(median["down"], median["wire"], median["up"]) / median["set"]
        bench.report.add(f"| {packet} | " + " | ".join(f"{median[name]:.3f} ms" for name in ("down", "wire", "up", "set"))
                         + f" | {ratio:.2f} | {staging.PACKETS * packet / median['set'] / 1e6:.2f} | {best['bandwidth']:.0%} |")
    bench.report.add("", f"Aims, at the largest packet: set {SET_AIM}, here {best['set']:.2f}; bandwidth {BANDWIDTH_AIM:.0%}, here "
                     f"{best['bandwidth']:.0%}.", "")
    bench.report.add("| one way, bytes | host | device |", "|---|---:|---:|")
    for name in median:
        if name.startswith("host_"):
            size = name[len("host_"):]
            bench.report.add(f"| {size} | {median[name] / 1e3:.1f} us | {median['device_' + size] / 1e3:.1f} us |")
    bench.report.add("")


def all_of(bench):
    """Every MPI that is found."""
    bench.report.add("", "Staged messages:", "")
    mpis = [] if bench.options.mpi == "none" else found(bench)
    if not mpis:
        bench.report.without("staged messages", "not wanted" if bench.options.mpi == "none" else
                             "no mpicc and mpirun of Open MPI or MPICH in PATH")
    for mpi in mpis:
        tests(bench, mpi)
        sets(bench, mpi)
