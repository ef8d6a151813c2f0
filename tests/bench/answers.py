# SPDX-License-Identifier: Apache-2.0
"""How long the root of a hung job takes to answer `resil why`, on four simulated nodes of one rank: with all nodes there, with one that has just
been stopped, and with one that has been silent for a while; the same with the root's own node, whose place another one has to take first. From
the question's time to the answer's, both in the answer."""
import glob
import json
import os
import signal
import statistics
import subprocess
import sys

from harness import mpi as jobs, patience

sys.path.insert(0, os.path.join(jobs.ROOT, "scripts"))
from resil_tool import job as live_jobs, why  # noqa: E402

STOPPED, LIMIT = {"one": 2, "the root": 0}, 20  # rank; seconds


def seconds(directory):
    """Of the newest answer; None: there is none."""
    newest, found = -1, None
    for path in glob.glob(os.path.join(directory, "why-*.json")):
        number = int(path.rsplit("-", 1)[1][:-5])
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
        if number > newest:
            newest, found = number, (told["time_ns"] - told["ticket"]) * 1e-9
    return newest, found


def ask(directory, pid=0):
    """Asked by this process, so that nothing but the question lies between the stop of `pid` and the answer."""
    before, _ = seconds(directory)
    rings = live_jobs.resolve(directory, live_only=True).rings
    if pid:
        os.kill(pid, signal.SIGSTOP)
    why.ask(rings, LIMIT)
    number, took = seconds(directory)
    return took if number > before else float("nan")


def of_job(mpi, program, asks, who):
    """{what: seconds}; `who` is stopped on the way."""
    folder = jobs.scratch()
    directory = os.path.join(folder, "report")
    env = jobs.rank_environment(True, directory, {"RESIL_LOG": "quiet", "RESIL_NODE_RANKS": "1"})
    job = jobs.Running(jobs.launcher(mpi, 4, env) + [program, "cycle", "1", folder], directory, cwd=folder)
    took = {"all nodes there": [], who + " just stopped": [], who + " silent": []}
    try:
        patience.wait_for(lambda: glob.glob(os.path.join(directory, "hang-*.json")), "the finding", 60)
        took["all nodes there"] += [ask(directory) for _ in range(asks)]
        pid = job.ranks()[STOPPED[who]]
        took[who + " just stopped"].append(ask(directory, pid))
        took[who + " silent"] += [ask(directory) for _ in range(asks)]
        os.kill(pid, signal.SIGCONT)
    finally:
        job.end()
        jobs.remove_rings(directory)
    return took


def answers(options):
    program = os.path.join(jobs.scratch(), "stuck")
    subprocess.run([f"mpicc.{options.mpi}", "-O0", "-g", "-w", "-o", program, os.path.join(jobs.ROOT, "tests", "faults", "stuck.c"), "-ldl"], check=True)
    all_took = {}
    for who in STOPPED:
        for _ in range(options.runs):
            for what, some in of_job(options.mpi, program, options.asks, who).items():
                all_took.setdefault(what, []).extend(some)
    lines = [f"{options.mpi}, {options.runs} jobs", "", "| nodes | answers | none in time | median, s | least .. greatest, s |", "|---|---:|---:|---:|---:|"]
    for what, some in all_took.items():
        given = sorted(one for one in some if one == one)
        lines.append("| %s | %d | %d | %s |" % (what, len(some), len(some) - len(given),
                                              "%.2f | %.2f .. %.2f" % (statistics.median(given), given[0], given[-1]) if given else "– | –"))
    return lines


def add(commands):
    command = commands.add_parser("answers")
    command.set_defaults(function=answers)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--runs", type=int, default=8, help="jobs of each kind")
    command.add_argument("--asks", type=int, default=2, help="questions of each kind in a job")
    command.add_argument("--markdown", metavar="FILE", help="append the table to FILE")
