# SPDX-License-Identifier: Apache-2.0
"""The part of scripts/bench gpu that needs an MPI: staged messages on the driver that is there, tested and measured. Open
MPI, MPICH or both; where they have no suffix (mpicc, mpirun) they are asked what they are."""
import concurrent.futures
import os
import shutil
import statistics
import subprocess
import sys

from bench import staging, turns
from harness import mpi as jobs

BANDWIDTH_AIM = 0.8   # of the slower of link and wire
SET_AIM = 1.15        # of the longest of the three ways, and two packets
PROGRAMS = ("staging_p2p", "gpu_waits", "staging_threads", "staging_chunks", "staging_mixed", "staging_collectives", "staging_kinds",
            "mpi4")
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
                            os.path.join(folder, f"{name}.{mpi}"), source, "-ldl"], check=name != "mpi4",
                           capture_output=name == "mpi4")  # of an older MPI: the tests look whether it is there
    return folder


def tests(bench, mpis):
    """The tests of staging and of waits, those of the MPIs side by side; in them, what needs the stand-in's faults and speeds
    is left out on a device."""
    env = {"RESIL_TEST_LIBRARY": jobs.library(), "RESIL_TEST_GPU": "stand-in" if bench.options.stand_in else "real"}
    scripts = [os.path.join(SOURCES, "staging_test.py"), os.path.join(SOURCES, "staging_collectives_test.py"),
               os.path.join(jobs.ROOT, "tests", "preload", "gpu_runtime_test.py")]
    scripts = scripts if not bench.options.quick else scripts[:1]
    chosen = [(mpi, script) for mpi in mpis for script in scripts]
    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 4)) as pool:
        folders = dict(zip(mpis, pool.map(programs, mpis)))
        made = list(pool.map(lambda item: jobs.start([sys.executable, item[1], folders[item[0]], item[0]], env=env, timeout=600),
                             chosen))
    for (mpi, script), job in zip(chosen, made):
        lines = job.stdout.decode().splitlines()
        bench.report.check(f"{mpi}: {os.path.basename(script)}: {lines[-1] if lines else 'no output'}", job.returncode == 0,
                           "\n".join(line for line in lines if not line.startswith("ok ")))
    for mpi in mpis:
        smoke(bench, mpi)


def smoke(bench, mpi):
    """`resil smoke` with device memory: what it prints is for the user."""
    ranks = ["--launcher", " ".join(jobs.launcher(mpi, 4, {})[:-1] + ["{ranks}"]), "--mpicc", f"mpicc.{mpi}", "--ranks", "2"]
    sizes = ["--sizes", "4K,64K"] if bench.options.quick else []
    job = jobs.start([sys.executable, os.path.join(jobs.ROOT, "scripts", "resil"), "smoke", *ranks, *sizes, "--library",
                      jobs.library(), "--memory", "device"], env=bench.environment("down=4,up=4"), timeout=600)
    bench.report.check(f"{mpi}: `scripts/resil smoke --memory device`", job.returncode == 0, job.text())
    if job.returncode == 0:
        bench.report.add("", "```", *job.stdout.decode().strip().splitlines(), "```", "")


def sets(bench, mpi, extra=None, what=""):
    """A set of packets against its three ways, and its bandwidth against the slower of link and wire."""
    program = turns.compiled(mpi, "staging")
    # Both ranks are on this node: copies from device to device would take the place of what is to be measured.
    env = bench.environment("down=0.3,up=0.3,latency=10", {"RESIL_STAGE": "on", "RESIL_LOG": "quiet", "RESIL_STAGE_PEER": "0",
                                                                       **(extra or {})})
    bench.report.add("", f"{mpi}{what}, 2 ranks, {staging.PACKETS} packets each way at the same time, best of each run, medians of "
                     f"{bench.options.runs} runs, `RESIL_STAGE_PEER=0`:", "",
                     "| packet | down | wire (cached) | up | staged set | set / (longest + two packets) | GB/s one way | of the slower of link "
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
        bench.report.add(f"| {packet} | " + f"{median['down']:.3f} ms | {median['wire']:.3f} "
                         f"({median['wire_cached']:.3f}) ms | {median['up']:.3f} ms | {median['set']:.3f} ms"
                         + f" | {ratio:.2f} | {staging.PACKETS * packet / median['set'] / 1e6:.2f} | {best['bandwidth']:.0%} |")
        bench.report.add(f"- {packet}: from devices to the hosts {median['set_down']:.3f} ms, from the hosts to devices "
                         f"{median['set_up']:.3f} ms")
    bench.report.add("", f"Aims, at the largest packet: set {SET_AIM}, here {best['set']:.2f}; bandwidth {BANDWIDTH_AIM:.0%}, here "
                     f"{best['bandwidth']:.0%}.", "")
    bench.report.add("| one way, bytes | host | device |", "|---|---:|---:|")
    for name in median:
        if name.startswith("host_"):
            size = name[len("host_"):]
            bench.report.add(f"| {size} | {median[name] / 1e3:.1f} us | {median['device_' + size] / 1e3:.1f} us |")
    bench.report.add("")


def peers(bench, mpi):
    """Two processes on one device: large messages from device to device, beside the same through the host."""
    program = turns.compiled(mpi, "staging")
    rows = {}
    for name, settings in (("device to device", {}), ("through the host", {"RESIL_STAGE_PEER": "0"})):
        env = bench.environment("down=0.3,up=0.3,latency=10", {"RESIL_STAGE": "on", "RESIL_LOG": "quiet", **settings})
        samples, copies = [], 0
        for _ in range(bench.options.runs):
            job = jobs.run(mpi, 2, [program, "65536" if not bench.options.quick else "4096"], env=env, timeout=300,
                           cwd=jobs.scratch())
            if job.returncode != 0:
                bench.report.check(f"{mpi}: staging, {name}", False, job.text())
                return
            samples.append({key: value for key, (value, _) in turns.measured(job.stdout.decode()).items()})
            copies += sum(report["staging"]["peer_copies"]["sent"] for report in job.ranks().values())
        bench.report.check(f"{mpi}: {name}: {copies} messages went from device to device", bool(copies) == (not settings))
        rows[name] = {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}
    bench.report.add("", "| one way, bytes | host | by the program's own copies | device to device | through the host |",
                     "|---|---:|---:|---:|---:|")
    for size in ("8", "4096", "65536", "1048576"):
        row = [*(rows["through the host"][where + size] for where in ("host_", "hand_")), *(rows[name]["device_" + size] for name in rows)]
        bench.report.add(f"| {size} | " + " | ".join(f"{value / 1e3:.1f} us" for value in row) + " |")
    through = rows["through the host"]
    hand = sum(through["lone_" + way] for way in ("down", "wire", "up"))
    row = [through["lone_wire"], hand, *(rows[name]["lone"] for name in rows)]
    bench.report.add("| 16777216, alone | " + " | ".join(f"{1e3 * value:.0f} us" for value in row) + " |", "",
                     f"16 MiB alone, through the host: down {through['lone_down']:.3f}, wire {through['lone_wire']:.3f}, up "
                     f"{through['lone_up']:.3f}, staged {through['lone']:.3f} ms: {staging.alone(through):.2f} of the longest and "
                     "two chunks.", "")


def kinds(bench, mpi, extra=None, what=""):
    """Each kind of device memory: right, and how long one way takes; from device to device and through the host."""
    folder = programs(mpi)
    table = {}
    for name, settings in (("device to device", {}), ("through the host", {"RESIL_STAGE_PEER": "0"})):
        env = bench.environment("down=4,up=4", {"RESIL_STAGE": "on", "RESIL_LOG": "quiet", **settings, **(extra or {})})
        job = jobs.run(mpi, 2, [os.path.join(folder, f"staging_kinds.{mpi}")], env=env, timeout=120, cwd=jobs.scratch())
        text = job.stdout.decode()
        ranks = job.ranks() if job.returncode == 0 else {}
        uncovered = {rank: report["staging"]["uncovered"] for rank, report in ranks.items() if report["staging"]["uncovered"]}
        good = job.returncode == 0 and "ok" in text and not uncovered and not any(report["findings"] for report in ranks.values())
        left_out = [line for line in text.splitlines() if line.startswith("left out")]
        bench.report.check(f"{mpi}{what}: kinds of device memory, {name}{'; ' + ', '.join(left_out) if left_out else ''}; "
                           f"peer copies {[report['staging']['peer_copies']['sent'] for report in ranks.values()]}, chunked "
                           f"{[report['staging']['chunked']['sent'] for report in ranks.values()]}", good,
                           job.text() + str(uncovered))
        for key, (value, _) in turns.measured(text).items():
            table.setdefault(key, {})[name] = value
    if table:
        bench.report.add("", f"One way, us, best of 7 ({mpi}{what}):", "", "| kind, bytes | device to device | through the host |", "|---|---:|---:|")
        for key, row in table.items():
            cells = " | ".join(f"{row[name] / 1e3:.1f}" if name in row else "–" for name in ("device to device", "through the host"))
            bench.report.add(f"| {' '.join(key.rsplit('_', 1))} | {cells} |")
        bench.report.add("")


def mps(bench, mpi):
    """The same under the Multi-Process Service, whose daemon is this run's own."""
    control = shutil.which("nvidia-cuda-mps-control")
    if bench.options.stand_in or not control:
        bench.report.without("MPS", "no nvidia-cuda-mps-control" if not control else "needs a device")
        return
    folder = jobs.scratch()
    service = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    started = subprocess.run([control, "-d"], env={**os.environ, **service}, timeout=30, check=False, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # it stays, so no pipe is given to it
    if started.returncode != 0:
        bench.report.without("MPS", f"nvidia-cuda-mps-control ended with status {started.returncode}")
        return
    try:
        kinds(bench, mpi, service, " under MPS")
        sets(bench, mpi, service, " under MPS")
        asked = subprocess.run([control], input=b"get_server_list\n", env={**os.environ, **service}, timeout=60, check=False,
                               capture_output=True)
        bench.report.check(f"MPS had a server: {asked.stdout.decode().strip() or 'none'}", bool(asked.stdout.strip()))
    finally:
        subprocess.run([control], input=b"quit\n", env={**os.environ, **service}, timeout=60, check=False)


def all_of(bench):
    """Every MPI that is found."""
    if not any(map(bench.wants, ("tests", "sets", "kinds", "mps"))):
        return
    bench.report.add("", "Staged messages:", "")
    mpis = [] if bench.options.mpi == "none" else found(bench)
    if not mpis:
        bench.report.without("staged messages", "not wanted" if bench.options.mpi == "none" else
                             "no mpicc and mpirun of Open MPI or MPICH in PATH")
    if bench.wants("tests") and mpis:
        tests(bench, mpis)
    for mpi in mpis:
        if bench.wants("sets"):
            sets(bench, mpi)
            peers(bench, mpi)
        if bench.wants("kinds"):
            kinds(bench, mpi)
    if bench.wants("mps") and mpis:
        mps(bench, mpis[0])
