# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks of this node are stopped (SIGSTOP, a debugger, a suspended job), so that nobody of them can answer `resil why`: in
words, and what helps. Reads /proc only."""

from __future__ import annotations

import os

from . import fold, nodes, process
from .text import clean, plural, ranges, ranks_phrase

MOST_PIDS = 8
_STOPPED = "Tt"  # state letters: by a signal, by a debugger


def stopped(rings: list) -> dict[tuple[int, int], tuple[int, str, int]]:
    """{(world, rank): (pid, state letter, pid of a debugger or 0)} of those that do not run because somebody has stopped them."""
    found = {}
    for ring in rings:
        now = process.stat(ring.pid) if ring.pid_is_ours else None
        if now and now[0] in _STOPPED and (not ring.start_ticks or now[2] == ring.start_ticks):
            tracer = process.status(ring.pid).get("TracerPid", "0")
            found[ring.key] = (ring.pid, now[0], int(tracer) if tracer.isdigit() else 0)
    return found


def all_stopped(rings: list) -> dict[tuple[int, int], tuple[int, str, int]]:
    """As stopped(), but {} as long as one of these ranks runs, or cannot be seen from here."""
    found = stopped(rings)
    return found if found and all(ring.key in found for ring in rings if not ring.pid_is_ours or process.alive(ring.pid, ring.start_ticks)) else {}


def pids_text(found: dict) -> str:
    pids = sorted({pid for pid, _, _ in found.values()})
    return " ".join(map(str, pids[:MOST_PIDS])) + (" and %d more" % (len(pids) - MOST_PIDS) if len(pids) > MOST_PIDS else "")


def message(found: dict, host: str, others: int, elsewhere: dict) -> str:
    """`others`: ranks of the job that are not in `found`. `elsewhere`: {host: ranks that run there}, of the report directory."""
    letters = " or ".join(sorted({state for _, state, _ in found.values()}))
    debuggers = sorted({tracer for _, _, tracer in found.values() if tracer})
    out = ["All %s of this job on %s are stopped: %s (pids %s, state %s in /proc)." % (
        plural(len(found), "rank"), clean(host), ranks_phrase(sorted(found)), pids_text(found), letters) if len(found) > 1 else
           "The only rank of this job on %s is stopped: %s (pid %s, state %s in /proc)." % (clean(host), ranks_phrase(found), pids_text(found), letters)]
    out.append("Its helper thread is stopped with it, so nobody here can answer." if len(found) == 1 else
               "Their helper threads are stopped with them, so nobody here can answer.")
    if debuggers:
        out.append("A debugger (pid %s) holds %s: let it continue, or detach it." % (", ".join(map(str, debuggers[:MOST_PIDS])), ranks_phrase(
            sorted(key for key, one in found.items() if one[2]))))
    if any(not tracer for _, _, tracer in found.values()):
        out.append("SIGSTOP or a suspended job does that. To go on: kill -CONT %s, or the scheduler's command (Slurm: scontrol resume JOB)." % pids_text(
            {key: one for key, one in found.items() if not one[2]}))
    if elsewhere:
        out.append("Other ranks run on %s: ask there." % fold.hosts({name: len(keys) for name, keys in elsewhere.items()}))
    elif others > 0:
        out.append("Of the other %s no host is known." % plural(others, "rank"))
    return " ".join(out)


def judge(job, rings: list, world_size: int) -> dict:
    """What `resil why` says where all ranks of this node are stopped; {} where they are not."""
    found = all_stopped(rings)
    if not found:
        return {}
    world = min(key[0] for key in found)
    ranks = sorted(rank for of, rank in found if of == world)
    return {"verdict": "stopped", "kind": "rank_stopped", "confidence": "verified", "detail": "stopped", "world": world, "culprits": ranks,
            "culprit_count": len(ranks), "pids": {rank: pid for (of, rank), (pid, _, _) in found.items() if of == world}, "states": {"stopped": ranges(ranks)},
            "message": message(found, os.uname().nodename, world_size - len(ranks), nodes.elsewhere(nodes.running_ranks(job), set(found)))}


def sentence(rings: list) -> str:
    """Of those that are stopped beside others that run; "" without."""
    found = stopped(rings)
    return "%s %s stopped (%s %s, in /proc)." % (ranks_phrase(sorted(found)).capitalize(), "is" if len(found) == 1 else "are",
                                                 "pid" if len(found) == 1 else "pids", pids_text(found)) if found else ""
