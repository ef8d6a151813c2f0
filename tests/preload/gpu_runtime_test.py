#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Waits of an accelerator's runtime, on the stand-in GPU (tests/fakegpu): returns that are too early are proved and
repaired, lost completions are noticed, correct runs raise nothing; through names, and as a statically linked runtime.

Usage: gpu_runtime_test.py BUILD openmpi|mpich      (BUILD holds gpu_waits.MPI)
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import gpu, mpi as jobs, patience  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402

BUILD = MPI = ""
WAITS = {"stream": "stream_waits", "device": "device_waits", "event": "event_waits", "stream-query": "stream_queries",
         "event-query": "event_queries"}
FUNCTIONS = {"stream": "StreamSynchronize", "device": "CtxSynchronize|DeviceSynchronize", "event": "EventSynchronize",
             "stream-query": "StreamQuery", "event-query": "EventQuery"}


def run(way, waits, turns, settings, shape=(), **env):
    """The job, rank 0's report, the stand-in's faults {"stream": number, ...}, what the program counted: (turns, wrong)."""
    log = os.path.join(jobs.scratch(), "faults")
    environment = gpu.environment(f"{settings},log={log}", {"RESIL_GPU": "check", "RESIL_HANG": "off", **env})
    job = jobs.run(MPI, 1, [os.path.join(BUILD, f"gpu_waits.{MPI}"), way, waits, str(turns), *map(str, shape)],
                   env=environment, timeout=60)
    said = re.search(rb"turns (\d+) wrong (\d+)", job.stdout)
    made = dict.fromkeys(("stream", "device", "event"), 0)
    if os.path.exists(log):
        with open(log, encoding="utf-8") as file:
            for kind in re.findall(r"(?:early|lost)-(\w+)", file.read()):
                made[kind] += 1
    return job, job.ranks()[0], made, tuple(map(int, said.groups())) if said else None


def need(condition, job, *what):
    assert condition, f"{what}\n{job.text()}"


def check_clean(way):
    """Several threads, streams and devices; nothing is found, and nothing goes unchecked but what must."""
    devices, settings = (1, "") if gpu.real() else (2, ",devices=2")
    job, report, _, said = run(way, ",".join(WAITS), 400, "down=64,up=64,digest=400,latency=1,overdue=50" + settings,
                               (3, 3, devices))
    need(job.returncode == 0 and said == (5 * 1200, 0) and report["findings"] == [], job)
    for wait, member in WAITS.items():
        counts = report["gpu_runtime"][member]
        need(counts["premature"] == 0 and (gpu.real() or counts["late_below_2_us"] == 0), job, wait, counts)
        answered = counts["checked"] + sum(counts["uncovered"].values())
        need(answered >= 1200 and counts["checked"] > 0.9 * answered, job, wait, counts)
    return f"{sum(report['gpu_runtime'][member]['checked'] for member in WAITS.values())} checked"


def check_early(way):
    """Each fault is found, said with the right function, and repaired: the program sees its data."""
    # What nobody asks for is not done (overdue=0), so that a busy machine changes nothing. Not all at once: while resil
    # waits for a word it asks the stream, and that answer would be wrong, too.
    return " and ".join(early(way, kinds) for kinds in (("stream",), ("device",), ("event",)))


def early(way, kinds):
    waits = [wait for wait in WAITS if wait.split("-")[0] in kinds]
    faults = "+".join(f"early-{kind}:4" for kind in kinds)
    job, report, made, said = run(way, ",".join(waits), 20, f"down=0.5,overdue=0,fault={faults}")
    need(job.returncode == 0 and said == (20 * len(waits), 0), job)
    for kind in kinds:
        number = made[kind]
        found = sum(report["gpu_runtime"][WAITS[wait]]["premature"] for wait in waits if wait.startswith(kind))
        # One in four, less those for which a busy machine came only when the work was done.
        need(number >= 2 and found == number, job, kind, made, report["gpu_runtime"])
    names = "|".join(FUNCTIONS.values())
    for finding in report["findings"]:
        need((finding["kind"], finding["confidence"], finding["culprit_ranks"]) == ("premature_sync", "proved", [0]), job,
             finding)
        need(re.match(f"(cu|hip)({names}) on ", finding["message"]), job, finding)
        need(f"gpu_waits.{MPI}+0x" in finding["evidence"]["call_site"], job, finding)
    need(len(report["findings"]) == min(16, sum(made.values())), job, report["findings"])
    return f"{sum(made.values())} of {sum(made.values())}"


def check_watch_only():
    """The control: without the words the same faults give wrong data."""
    job, report, made, said = run("names", "stream", 40, "down=0.5,overdue=0,fault=early-stream:4", RESIL_GPU="watch")
    need(2 <= made["stream"] <= 10 and said[1] > 0 and job.returncode == 1, job)  # see early()
    need(report["findings"] == [] and report["gpu_runtime"]["fence_words"] == 0, job)
    need(report["gpu_runtime"]["stream_waits"]["calls"] == 40, job)


def check_off():
    job, report, _, said = run("names", "stream", 10, "down=5", RESIL_GPU="off")
    need(job.returncode == 0 and said == (10, 0) and "gpu_runtime" not in report, job)


def check_lost(way, wait):
    """The wait hangs until the file is there; the finding is in the report before."""
    folder = jobs.scratch()
    release = os.path.join(folder, "release")
    directory = os.path.join(folder, "report")
    environment = jobs.rank_environment(True, directory, gpu.environment(
        f"down=4,fault=lost-{wait}:3", {"RESIL_GPU": "check", "RESIL_HANG": "off", "RESIL_GPU_LOST": "0.2",
                                        "FAKEGPU_RELEASE": release}))
    command = [os.path.join(BUILD, f"gpu_waits.{MPI}"), way, wait, "8"]
    job = jobs.Running(jobs.launcher(MPI, 1, environment) + command, directory)
    def seen():
        """(dump, report) once both are whole: the dump ends with the list of objects."""
        path = os.path.join(directory, "dump-00000-0.txt")
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            text = file.read()
        report = jobs.reports.load(directory)[0]
        return "Objects named above" in text and report["findings"] and (text, report)
    try:
        found = patience.wait_for(lambda: seen() or job.poll() is not None, "the dump", 60)
    finally:
        with open(release, "w", encoding="utf-8"):
            pass
        patience.wait_for(lambda: job.poll() is not None, "the end", 60)
        end = job.end()
    need(found is not True and end.returncode == 0 and b"turns 8 wrong 0" in end.stdout, end)
    dump, hanging = found
    need(re.search(f"thread [0-9]+ is in (cu|hip)({FUNCTIONS[wait]}) .*the device is done, the wait has not", dump), end, dump)
    lost = [finding for finding in hanging["findings"] if finding["kind"] == "lost_completion"]
    need(hanging["outcome"] == "running" and len(lost) == 1, end, hanging["findings"])
    need(lost[0]["confidence"] == "verified" and re.match(f"(cu|hip)({FUNCTIONS[wait]}) ", lost[0]["message"]), end, lost)
    need(jobs.reports.load(directory)[0]["gpu_runtime"]["lost_completions"] >= 1, end)


def check_poll(way, wait):
    """RESIL_GPU_SYNC=poll never enters the runtime's wait, which would not return."""
    job, report, made, said = run(way, wait, 8, f"down=4,fault=lost-{wait}:3", RESIL_GPU_SYNC="poll",
                                  FAKEGPU_RELEASE="/nonexistent")
    need(job.returncode == 0 and said == (8, 0) and report["findings"] == [], job)
    # Whether a device is done is never asked at all; streams and events are asked once, for errors.
    need((made[wait] > 0) == (wait != "device"), job, made)


def check_workaround(sync):
    """Waiting twice cures a return that is early once; the kernel is harmless."""
    job, report, made, said = run("names", "stream", 20, "down=0.5,overdue=0,fault=early-stream:4", RESIL_GPU_SYNC=sync,
                                  RESIL_GPU="watch")
    if sync == "double":
        need(said == (20, 0) and 2 <= made["stream"] <= 5 and report["findings"] == [], job)
    job, report, made, said = run("names", "stream", 20, "down=4", RESIL_GPU_SYNC=sync)
    need(job.returncode == 0 and said == (20, 0) and report["findings"] == [], job)
    need(report["gpu_runtime"]["waits"] == sync, job)


def check_profiler():
    """Somebody else has CUPTI: resil is passive there, and says so."""
    if gpu.real():
        raise LeftOut("needs the stand-in: a profiler")
    job, report, _, said = run("handle", "stream", 10, "down=5", FAKECUPTI="busy")
    need(job.returncode == 0 and said == (10, 0), job)
    need(report["gpu_runtime"]["injection"].startswith("refused") and "stream_waits" not in report["gpu_runtime"], job)
    need(any("profiler" in note for note in report["notes"]), job, report["notes"])


def check_initialised_before():
    """The driver is initialised before MPI_Init, too early for the injection; no context is there yet."""
    job, report, made, said = run("early", "stream", 20, "down=0.5,overdue=0,fault=early-stream:4")
    need(job.returncode == 0 and said == (20, 0) and 2 <= made["stream"] <= 5, job)
    need(report["gpu_runtime"]["stream_waits"]["premature"] == made["stream"], job)


def check_no_device():
    """Without a device everything is as without resil."""
    job, report, _, said = run("names", "stream", 10, "devices=0")
    plain = jobs.run(MPI, 1, [os.path.join(BUILD, f"gpu_waits.{MPI}"), "names", "stream", "10"], preload=False,
                     env=gpu.environment("devices=0"))
    need(job.returncode == plain.returncode == 3 and said is None, job)


def check_probed_names():
    """Somebody looks for a runtime by its names in a process that has none, and finds resil's: they say that there is
    no device, and do nothing else."""
    program = """
import ctypes
names = ctypes.CDLL(None)
answers = [getattr(names, name)(None, None) for name in
           ("cuStreamSynchronize", "cuCtxSynchronize", "cuEventRecord", "cudaDeviceSynchronize", "cudaStreamQuery",
            "hipDeviceSynchronize", "hipEventSynchronize", "hipStreamCreate")]
print(answers, names.InitializeInjection())
print([line for line in open("/proc/self/maps") if "libcu" in line or "libhip" in line or "libamdhip" in line])
"""
    job = jobs.start([sys.executable, "-c", program], env={"LD_PRELOAD": jobs.library(), "RESIL_GPU": "check"})
    need(job.returncode == 0 and job.stdout == b"[3, 3, 3, 100, 100, 100, 100, 100] 1\n[]\n", job)


def main():
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = sys.argv[1:3]
    jobs.require(f"mpirun.{MPI}")
    hip = os.path.exists(os.path.join(gpu.folder(), "libamdhip64.so.5")) and not gpu.real()
    ways = ["names", "handle"] + (["hip"] if hip else [])
    checks = []
    for way in ways if MPI == "openmpi" else ways[:2]:  # which MPI it is makes no difference to the runtime
        checks.append((f"clean {way}", lambda way=way: check_clean(way)))
        checks.append((f"early {way}", lambda way=way: check_early(way)))
    if MPI == "openmpi":
        lost = [("names", wait) for wait in ("stream", "device", "event")] + [(way, "stream") for way in ways[1:]]
        for way, wait in lost:
            checks.append((f"lost {way} {wait}", lambda way=way, wait=wait: check_lost(way, wait)))
            if way != "handle":
                checks.append((f"poll {way} {wait}", lambda way=way, wait=wait: check_poll(way, wait)))
    if MPI == "openmpi":
        checks += [("without words", check_watch_only), ("off", check_off), ("profiler", check_profiler),
                   ("double", lambda: check_workaround("double")), ("kernel", lambda: check_workaround("kernel")),
                   ("initialised before", check_initialised_before), ("no device", check_no_device),
                   ("probed names", check_probed_names)]
    return run_checks(checks, side_by_side=2)


sys.exit(main())
