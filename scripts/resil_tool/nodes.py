# SPDX-License-Identifier: Apache-2.0
"""This command on the other nodes of a job, by srun in a Slurm job and else by ssh, all at once; and what they said put together. Starts
processes and reads the report directory."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time

from . import fold, process, records
from . import job as jobs
from .progress import Progress
from .text import clean, rank_set, ranks_phrase
from .values import Invalid, integer, items, number, parse_object, text

AT_ONCE = 32     # nodes that are asked together
PATIENCE = 20.0  # seconds, beside what the command takes there
MOST_BYTES = 64 << 20
HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*$")  # a report must not smuggle options or commands in
TOOL = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "resil")


def elsewhere(ranks: dict, seen: set) -> dict[str, list]:
    """Host: ranks on it that have written no final report."""
    here, hosts = os.uname().nodename, {}
    for key in sorted(ranks):
        if key not in seen and ranks[key].outcome == "running" and ranks[key].host and ranks[key].host != here:
            hosts.setdefault(ranks[key].host, []).append(key)
    return hosts


def slurm_job(rings: list) -> str:
    """The job's id, from a rank's environment or from the own one; "" without."""
    environments = [os.environ] + [process.environment(ring.pid) for ring in rings[:1] if ring.pid_is_ours]
    return next((e["SLURM_JOB_ID"] for e in reversed(environments) if e.get("SLURM_JOB_ID", "").isdigit()), "")


def line(host: str, slurm: str, words: list[str]) -> list[str]:
    if slurm:
        return ["srun", "--overlap", "--jobid=" + slurm, "--nodelist=" + host, "--nodes=1", "--ntasks=1", "--mpi=none", "--quiet", TOOL, *words]
    return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", host, shlex.join([TOOL, *words])]


class Asked:
    """The command on each of these hosts: started at once, read by answers()."""

    def __init__(self, hosts: list[str], slurm: str, words: list[str], seconds: float):
        self.hosts, self.slurm, self.words, self.seconds = [host for host in hosts if HOST.match(host)], slurm, words, seconds
        self.unanswered = [{"host": clean(host, 64), "why": "no name of a host"} for host in hosts if not HOST.match(host)]
        self.running: list[tuple] = []
        self._fill()

    def _fill(self):
        while self.hosts and len(self.running) < AT_ONCE:
            host = self.hosts.pop(0)
            try:
                self.running.append((host, subprocess.Popen(  # pylint: disable=consider-using-with
                    line(host, self.slurm, self.words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE),
                    time.monotonic() + self.seconds + PATIENCE))
            except OSError as error:
                self.unanswered.append({"host": host, "why": "%s: %s" % ("srun" if self.slurm else "ssh", error.strerror)})

    def answers(self) -> list[dict]:
        """What those said that said something; the others are in `unanswered`."""
        told = []
        with Progress("waiting for hosts", len(self.running) + len(self.hosts)) as progress:
            while self.running:
                self._next(told)
                progress.step()
        return told

    def _next(self, told: list[dict]) -> None:
        host, running, until = self.running.pop(0)
        try:
            out, error = running.communicate(timeout=max(0.01, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()
            self.unanswered.append({"host": host, "why": "no answer for %d s" % (self.seconds + PATIENCE)})
            return
        finally:
            self._fill()
        try:
            if len(out) > MOST_BYTES:
                raise Invalid("it said too much")
            told.append(dict(parse_object(out), host=host))
        except Invalid as odd:
            said = clean(error.decode(errors="replace").strip().split("\n")[-1], 160)
            self.unanswered.append({"host": host, "why": said or "status %d, its answer is %s" % (running.returncode, odd)})


def running_ranks(job: jobs.Job) -> dict:
    try:
        return records.read_directory(job.directory).ranks if job.directory else {}
    except OSError:
        return {}


def join(parts: list[dict]) -> dict:
    """What `resil status` says of several nodes as of one: sums, everybody's places."""
    verdict = next((one for one in ("MOVING", "POLLING", "STANDING") if any(part.get("verdict") == one for part in parts)), "STANDING")
    ranks = sorted((one for part in parts for one in items(part.get("ranks")) if isinstance(one, dict)),
                   key=lambda one: (integer(one.get("world")), integer(one.get("rank"))))
    calls: dict[str, list[float]] = {}
    for part in parts:
        for one in (one for one in items(part.get("calls")) if isinstance(one, dict)):
            total = calls.setdefault(text(one.get("name"), 64), [0.0, 0.0, 0.0])
            for i, name in enumerate(("per_second", "seconds_per_second", "bytes_per_second")):
                total[i] += number(one.get(name))
    still = [number(part.get("still_seconds")) for part in parts if part.get("still_seconds") is not None]
    said = [((integer(one.get("world")), integer(one.get("rank"))), text(one.get("place"), 400)) for one in ranks]
    first = min(parts, key=lambda part: (not text(part.get("program")), number(part.get("started")) or 1e300))
    return {
        "schema_version": 1, "verdict": verdict, "time": max(number(part.get("time")) for part in parts), "directory": text(first.get("directory"), 4096),
        "program": text(first.get("program"), 200), "mpi": text(first.get("mpi"), 200), "host": text(parts[0].get("host"), 64),
        "started": number(first.get("started")), "world_size": integer(first.get("world_size")), "ranks_here": len(ranks),
        "still_seconds": min(still, default=None), "calls_per_second": sum(number(part.get("calls_per_second")) for part in parts),
        "mpi_share": sum(number(one.get("mpi_share")) for one in ranks) / max(1, len(ranks)),
        "calls": [dict(zip(("name", "per_second", "seconds_per_second", "bytes_per_second"), (name, *value)))
                  for name, value in sorted(calls.items(), key=lambda item: (-item[1][1], -item[1][0]))],
        "ranks": ranks, "hosts": {text(part.get("host"), 64): len(items(part.get("ranks"))) for part in parts},
        "places": [{"ranks": rank_set(keys, 10**6), "count": len(keys), "name": ranks_phrase(keys), "place": sentence}
                   for keys, sentence in fold.groups(said)]}


