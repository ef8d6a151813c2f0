# SPDX-License-Identifier: Apache-2.0
"""scripts/bench gpu: all that can be tested and measured on a machine with a CUDA device, by one command; with
--stand-in the same on tests/fakegpu, to try the script. What a missing tool (MPI, nvcc, Catch2) makes impossible is named
and left out. Runs without MPI link the one-process stand-in of tests/preload/fakempi."""
import concurrent.futures
import json
import os
import re
import shutil
import statistics
import subprocess
import sys

from bench import gpu_mpi, turns
from harness import gpu as stand_in
from harness import mpi as jobs

# Unit tests that speak to a driver, and the stand-in's settings for them as in tests/unit/meson.build.
UNITS = {"gpu": "devices=2,memory=64,latency=50", "packet": "memory=128", "pinned": "memory=64"}
SELECTION = "~[fake]~[.]~[arena]"
PARTS = ("units", "digests", "waits", "cudart", "many", "tests", "sets", "kinds", "mps")
MANY = 1_000_000  # waits of a program that is right
NEEDED = ("libresil.so", "tests/device_digest_bench")
FAKE_LIBRARIES = ("tests/fakegpu/libcuda.so.1", "tests/fakegpu/libcupti.so.12")
DIGEST_AIM = 70  # per cent of a copy's memory throughput
ASK = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
error = cuda.cuInit(0)
if error:
    raise SystemExit("cuInit: error %d" % error)
count, version, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
cuda.cuDeviceGetCount(ctypes.byref(count))
cuda.cuDriverGetVersion(ctypes.byref(version))
for device in range(count.value):
    name = ctypes.create_string_buffer(100)
    cuda.cuDeviceGetName(name, 100, device)
    print(name.value.decode())
print("CUDA %d.%d" % (version.value // 1000, version.value % 1000 // 10))
"""


class Report:
    """Lines of Markdown, and what failed or was left out."""

    def __init__(self):
        self.lines, self.failed, self.left_out = [], [], []

    def add(self, *lines):
        self.lines += lines
        for line in lines:
            print(line, flush=True)

    def check(self, what, good, story=""):
        """One line a test; the story of one that failed goes to standard error."""
        self.add(f"- {'ok' if good else 'FAILED'}: {what}")
        if not good:
            self.failed.append(what)
            print(story[-4000:], file=sys.stderr)

    def without(self, what, why):
        self.left_out.append(what)
        self.add(f"- left out: {what}: {why}")


class Bench:
    """What all parts share."""

    def __init__(self, options):
        self.options, self.report = options, Report()
        self.build = os.path.abspath(options.build)
        os.environ["RESIL_TEST_LIBRARY"] = os.path.join(self.build, "libresil.so")

    def wants(self, part):
        return part in (self.options.only or PARTS)

    def environment(self, settings="", extra=None):
        """What a program gets that shall find the device: the stand-in, or nothing."""
        return stand_in.environment(settings, extra) if self.options.stand_in else dict(extra or {})

    def start(self, line, settings="", preload=False, extra=None, timeout=600):
        """One process; the Result, and the report of its only rank."""
        env = self.environment(settings, extra)
        directory = os.path.join(jobs.scratch(), "report")
        if preload:
            env |= {"LD_PRELOAD": jobs.library(), "RESIL_DIR": directory, "RESIL_LOG": "quiet"}
        result = jobs.start(line, directory, env=env, timeout=timeout)
        return result, (result.ranks().get(0) if preload and os.path.isdir(directory) else None)


def stop(words):
    print(f"bench: {words}", file=sys.stderr)
    sys.exit(2)


def said(line):
    """Its output in one line, or None."""
    try:
        return " ".join(subprocess.run(line, capture_output=True, check=True, timeout=60).stdout.decode().split())
    except (OSError, subprocess.SubprocessError):
        return None


def built(bench, targets):
    """None, or what the build says."""
    done = subprocess.run(["ninja", "-C", bench.build, *targets], capture_output=True, check=False)
    return None if done.returncode == 0 else (done.stdout + done.stderr).decode()[-3000:]


def build(bench):
    """The library and what needs nothing but a compiler must be built; unit tests are left out where they cannot."""
    if not bench.options.no_build:
        if not shutil.which("meson") or not shutil.which("ninja"):
            stop("meson and ninja are needed for the build (or --no-build, with --build naming one that is there)")
        if not os.path.exists(os.path.join(bench.build, "build.ninja")):
            done = subprocess.run(["meson", "setup", bench.build, jobs.ROOT], capture_output=True, check=False)
            if done.returncode != 0:
                stop(f"meson setup failed\n{done.stdout.decode()[-3000:]}")
        story = built(bench, [*NEEDED, *(FAKE_LIBRARIES if bench.options.stand_in else ())])
        if story:
            stop(f"the build failed\n{story}")
        bench.unbuilt = {}
        for name in UNITS:
            story = built(bench, [f"tests/unit/{name}_test"])
            if story:
                bench.unbuilt[name] = "Catch2 (catch2/catch.hpp) is not installed" if "catch.hpp" in story else story
    else:
        bench.unbuilt = {name: "not built" for name in UNITS
                         if not os.path.exists(os.path.join(bench.build, "tests", "unit", f"{name}_test"))}
    for name in NEEDED:
        if not os.path.exists(os.path.join(bench.build, name)):
            stop(f"{os.path.join(bench.build, name)} is missing")


def head(bench):
    """Device, driver, machine, version, command: what a figure is worth nothing without."""
    asked, _ = bench.start([sys.executable, "-c", ASK], "devices=2" if bench.options.stand_in else "")
    if asked.returncode != 0:
        why = asked.stderr.decode().strip().splitlines()
        stop(f"no CUDA device: {why[-1] if why else 'status %s' % asked.returncode} (--stand-in tries the script without)")
    devices = asked.stdout.decode().splitlines()
    version = said(["git", "-C", jobs.ROOT, "describe", "--always", "--dirty"]) or "unknown"
    driver = None if bench.options.stand_in else said(
        ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,pcie.link.gen.current,pcie.link.width.current",
         "--format=csv,noheader", "-i", "0"])
    bench.report.add(
        f"### {'The stand-in, not a device: figures mean nothing' if bench.options.stand_in else devices[0]}", "",
        "```", "scripts/bench " + " ".join(sys.argv[1:]), "```", "",
        f"{len(devices) - 1} device(s), {devices[-1]} of the driver{'; ' + driver if driver else ''}; {turns.machine()}; "
        f"resil {version}.")


def unit_cases(bench):
    """Each case in a process of its own: what a driver does to one does not hide the others."""
    bench.report.add("", "Interface, packets and pinned memory on the driver:", "")
    cuda = os.path.join(stand_in.folder(), "libcuda.so.1") if bench.options.stand_in else "libcuda.so.1"
    for name, settings in UNITS.items():
        if name in bench.unbuilt:
            bench.report.without(f"{name}_test", bench.unbuilt[name])
            continue
        program = os.path.join(bench.build, "tests", "unit", f"{name}_test")
        env = {"RESIL_TEST_CUDA": cuda, "ASAN_OPTIONS": "detect_leaks=0"}
        listed = subprocess.run([program, "--list-test-names-only", SELECTION], capture_output=True, check=False)
        cases = [line.strip() for line in listed.stdout.decode().splitlines() if line.strip()]
        cases = cases if name != "pinned" else ["all"]  # its cases go on from each other
        wrong = []

        def one(case, name=name, program=program, settings=settings, env=env):
            words = SELECTION if name == "pinned" else case.replace(",", "\\,").replace("[", "\\[")
            return bench.start([program, words], settings, extra=env, timeout=120)[0]

        with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2)) as pool:
            jobs_made = list(pool.map(one, cases))
        for case, job in zip(cases, jobs_made):
            if job.returncode != 0 or "assertion" not in job.stdout.decode():
                wrong.append(case)
                bench.report.check(f"{name}_test \"{case}\"", False, job.text())
        bench.report.check(f"{name}_test: {len(cases) - len(wrong)} of {len(cases)} cases", cases and not wrong)


def digests(bench):
    """tests/device_digest_bench: values and throughput."""
    program = os.path.join(bench.build, "tests", "device_digest_bench")
    line = [program] + ([os.path.join(stand_in.folder(), "libcuda.so.1")] if bench.options.stand_in else [])
    job, _ = bench.start(line, "memory=512" if bench.options.stand_in else "")
    text = job.stdout.decode()
    if job.returncode == 77:
        bench.report.without("digests on the device", text.strip().splitlines()[-1])
        return
    shares = [int(share) for share in re.findall(r"(?m)^\| \d+ \| \d+ \| \d+ \| (\d+) % \|", text)]
    bench.report.add("", f"Digests on the device (`tests/device_digest_bench`; aim: {DIGEST_AIM} % of a copy's throughput; "
                     f"largest size: {shares[-1] if shares else '?'} %):", "", *text.strip().splitlines(), "")
    bench.report.check("digests equal the CPU's", job.returncode == 0 and bool(shares), job.text())


def without_mpi(bench):
    """gpu_waits linked with the one-process MPI: the folder and the program."""
    folder = jobs.scratch()
    fake = os.path.join(jobs.ROOT, "tests", "preload", "fakempi")
    library = os.path.join(folder, "libmpi_abi.so.1")
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if not compiler:
        stop("no C compiler (cc)")
    subprocess.run([compiler, "-w", "-O1", "-fPIC", "-shared", "-Wl,-soname,libmpi_abi.so.1", "-I" + fake,
                    "-o", library, os.path.join(fake, "fakempi.c")], check=True)
    program = os.path.join(folder, "gpu_waits")
    subprocess.run([compiler, "-w", "-std=gnu11", "-O2", "-pthread", "-I" + fake, "-o", program,
                    os.path.join(jobs.ROOT, "tests", "mpi", "gpu_waits.c"), library, "-ldl", "-Wl,-rpath," + folder],
                   check=True)
    return fake, folder, program


def seconds_of(job):
    found = re.search(rb"turns (\d+) wrong (\d+) seconds ([\d.]+)", job.stdout)
    return (int(found[1]), int(found[2]), float(found[3])) if found else (0, 0, 0.0)


def clean(bench, what, line, members, turns_wanted):
    """A program whose waits are right: nothing is found, all are looked at; the sentence for the report."""
    job, report = bench.start(line, "down=64,up=64,digest=400,latency=1,overdue=50", preload=True,
                              extra={"RESIL_GPU": "check"})
    made, wrong, _ = seconds_of(job)
    runtime = (report or {}).get("gpu_runtime", {})
    checked = {member: runtime.get(member, {}).get("checked", 0) for member in members}
    premature = sum(runtime.get(member, {}).get("premature", 0) for member in members)
    good = job.returncode == 0 and made == turns_wanted and not wrong and not premature and not report["findings"] \
        and all(checked.values())
    bench.report.check(f"{what}: {made} waits, checked {checked}, premature {premature}, "
                       f"CUPTI: {runtime.get('injection')}", good, job.text() + json.dumps(runtime))
    return runtime


def waits(bench):
    """Fence words under a correct program, and what they cost."""
    fake, folder, program = without_mpi(bench)
    number = 200 if bench.options.quick else 20000
    if bench.wants("waits"):
        what_waits_cost(bench, program, number)
    if bench.wants("many"):
        many(bench, program)
    if bench.wants("cudart"):
        cudart(bench, fake, folder, number)


KINDS = {"stream": "stream_waits", "device": "device_waits", "event": "event_waits"}


def many(bench, program):
    """A long run of a program that is right: may nothing be found."""
    turns_each = (3000 if bench.options.quick else MANY) // len(KINDS) // 2 + 1
    bench.report.add("", "False alarms:", "")
    for way in ("names", "handle"):
        clean(bench, f"many waits, {way}", [program, way, ",".join(KINDS), str(turns_each)], KINDS.values(), 3 * turns_each)


def what_waits_cost(bench, program, number):
    """Correct waits by both ways, and a turn's time in each mode."""
    bench.report.add("", "Checked waits (`RESIL_GPU=check`) of a program that is right:", "")
    for way, words in (("names", "the driver's functions by name"), ("handle", "past all names, by CUPTI")):
        runtime = clean(bench, words, [program, way, ",".join(KINDS), str(number // 20), "3", "3"], KINDS.values(),
                        3 * 3 * (number // 20))
    if not str(runtime.get("injection", "")).startswith("subscribed"):
        bench.report.add("", "CUPTI is not there (it comes with the CUDA toolkit; CUDA_HOME names another place): waits "
                         "of statically linked runtimes are not seen on this machine.")
    samples = {}
    variants = (None, "off", "watch", "check")
    for _ in range(bench.options.runs):
        for way in ("names", "handle"):
            for mode in variants:
                job, _ = bench.start([program, way, "stream", str(number)], "latency=1", preload=mode is not None,
                                     extra={"RESIL_GPU": mode} if mode else {})
                made, _, seconds = seconds_of(job)
                if job.returncode != 0 or made != number:
                    bench.report.check(f"gpu_waits {way}, RESIL_GPU={mode}", False, job.text())
                    return
                samples.setdefault((way, mode), []).append(1e6 * seconds / number)
    bench.report.add("", "A fill, a copy of 64 KiB, an event record and `cuStreamSynchronize`, us a turn, medians of "
                     f"{bench.options.runs} runs of {number} turns:", "", "| | native | `off` | `watch` | `check` |", "|---|---:|---:|---:|---:|")
    for way in ("names", "handle"):
        bench.report.add(f"| {way} | " + " | ".join(f"{statistics.median(samples[way, mode]):.2f}" for mode in variants) + " |")


def cudart(bench, fake, folder, number):
    """Programs of the CUDA runtime, linked statically (nvcc's default) and shared."""
    bench.report.add("", "Programs of the CUDA runtime:", "")
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc):
        bench.report.without("cudart", "no nvcc")
        return
    for kind in ("static", "shared"):
        program = os.path.join(folder, f"cudart_{kind}")
        done = subprocess.run([nvcc, "-cudart", kind, "-O2", "-I" + fake, "-o", program,
                               os.path.join(jobs.ROOT, "tests", "bench", "cudart_waits.cu"),
                               "-Xlinker", os.path.join(folder, "libmpi_abi.so.1"), "-Xlinker", "-rpath=" + folder, "-Xlinker",
                               "-rpath=" + os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(nvcc))), "lib64")],
                              capture_output=True, check=False)
        if done.returncode != 0:
            bench.report.check(f"nvcc -cudart {kind}", False, (done.stdout + done.stderr).decode())
        elif bench.options.stand_in:
            bench.report.without(f"cudart {kind}", "built; it needs a real driver")
        else:
            clean(bench, f"cudart {kind}", [program, str(number)], ["stream_waits", "event_waits", "device_waits"], 3 * number)


def gpu(options):
    """The lines of the report; options.failed for the exit status."""
    bench = Bench(options)
    build(bench)
    head(bench)
    if bench.wants("units"):
        unit_cases(bench)
    if bench.wants("digests"):
        digests(bench)
    if any(map(bench.wants, ("waits", "many", "cudart"))):
        waits(bench)
    gpu_mpi.all_of(bench)
    report = bench.report
    report.add("", f"{len(report.failed)} failed" + (": " + "; ".join(report.failed) if report.failed else "")
               + (f"; left out: {'; '.join(report.left_out)}" if report.left_out else "") + ".")
    options.failed = bool(report.failed)
    return report.lines


def add(commands):
    """The command's options."""
    command = commands.add_parser("gpu")
    command.set_defaults(function=gpu, mpi=None)
    command.add_argument("--stand-in", action="store_true", help="on tests/fakegpu: tries the script, measures nothing")
    command.add_argument("--mpi", choices=(*jobs.MPIS, "none"), default=None, help="only this one (default: each that is "
                         "found; an mpicc and mpirun without a suffix are asked what they are)")
    command.add_argument("--markdown", metavar="FILE", help="append the block to FILE")
    command.add_argument("--only", choices=PARTS, action="append", help="only this part (may be repeated)")
    command.add_argument("--runs", type=int, default=5, help="at least 1 (default 5)")
    command.add_argument("--quick", action="store_true", help="few turns: to try the script")
    command.add_argument("--build", default=os.path.join(jobs.ROOT, "build"), help="build directory, made if missing (build)")
    command.add_argument("--no-build", action="store_true", help="everything has been built")
