# SPDX-License-Identifier: Apache-2.0
"""How evenly the work of a job is spread: time outside MPI, by rank and host. Works on records."""

from __future__ import annotations

from .text import clip, rank_label, seconds_text

ENDS = ("MPI_Init", "MPI_Init_thread", "MPI_Finalize")  # not the program's work, nor its waits
SHORT = 1.0       # seconds outside MPI of the busiest rank: below, it is start and end of the program
MOST_HOSTS = 8    # in --json, the busiest ones


def merge(ranks) -> dict | None:
    """Seconds outside MPI. `load_balance` is mean over most, as POP's metric of that name: the rest of the busiest rank's time, the others wait
    for it on average. None where there are fewer than two ranks to compare, or next to nothing was computed."""
    own = {}
    for rank in ranks:
        if rank.seconds and rank.calls and rank.state == "finished":  # of others the call that they ended in has not been counted
            starting = sum(rank.calls[name][1] for name in ENDS if name in rank.calls)
            inside = sum(call[1] for call in rank.calls.values()) - starting
            own[rank.key] = (max(0.0, rank.seconds - starting - inside), rank.host)
    if len(own) < 2:
        return None
    most, least = max(own, key=lambda key: own[key][0]), min(own, key=lambda key: own[key][0])
    if own[most][0] < SHORT:
        return None
    mean = sum(seconds for seconds, _ in own.values()) / len(own)
    hosts: dict[str, list[float]] = {}
    for seconds, host in own.values():
        hosts.setdefault(host, []).append(seconds)
    means = sorted(((sum(values) / len(values), host) for host, values in hosts.items() if host), reverse=True)

    def one(key):
        return {"rank": rank_label(key), "host": own[key][1], "seconds": own[key][0]}
    return {"ranks": len(own), "mean_seconds": mean, "load_balance": mean / own[most][0], "most": one(most), "least": one(least),
            "hosts": [{"host": host, "mean_seconds": seconds} for seconds, host in means[:MOST_HOSTS]] if len(hosts) > 1 else []}


def sentence(s: dict | None) -> str:
    if not s:
        return ""
    several = bool(s["hosts"])

    def one(which):
        return "rank %s%s %s" % (s[which]["rank"], " on %s" % clip(s[which]["host"], 30) if several else "", seconds_text(s[which]["seconds"]))
    host = "; busiest host %s, %s a rank" % (clip(s["hosts"][0]["host"], 30), seconds_text(s["hosts"][0]["mean_seconds"])) if several else ""
    return "outside MPI %s a rank; most %s, least %s; load balance %.0f %% (mean of most)%s" % (
        seconds_text(s["mean_seconds"]), one("most"), one("least"), 100 * s["load_balance"], host)
