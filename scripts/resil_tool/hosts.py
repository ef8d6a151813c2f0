# SPDX-License-Identifier: Apache-2.0
"""`scripts/resil hosts DIR…`: which hosts show up in the findings of many jobs more often than chance explains. Reads report
directories; changes nothing.

A job counts at most once for a host and kind: what happened a thousand times in it has one cause. By chance each host of a job is hit
in proportion to its ranks there, so a job on one host says nothing. The number of hits of a host over its jobs is then a sum of
independent coins (Poisson binomial); its upper tail is multiplied by the number of hosts and of kinds looked at (Bonferroni)."""

from __future__ import annotations

import dataclasses
import json
import os
import sys

from . import findings, nagios, records, runs
from .attach import attach
from .job import Usage
from .progress import over
from .text import clean, clip, plural

KINDS = {"culprit": "accused of a hang or another finding", "corruption": "an end of corrupted data",
         "stop": "ranks ended there first", "slow": "ranks there let all others wait"}
LUCK = 0.01         # corrected chance below which a host keeps showing up
MOST_JOBS = 100000
MOST_DEPTH = 4
MOST_LINES = 24
SLOW_SPREADS = 6.0  # of the hosts' median absolute deviation, and
SLOW_SHARE = 0.05   # of the job's time, by which a host must stand out


@dataclasses.dataclass
class Host:
    name: str
    jobs: int = 0
    chances: dict = dataclasses.field(default_factory=dict)  # kind: chance of a hit in each job that has one
    hits: dict = dataclasses.field(default_factory=dict)     # kind: directories
    programs: set = dataclasses.field(default_factory=set)


def find(places: list[str]) -> list[str]:
    """Report directories in and below these; links are not followed."""
    found: list[str] = []
    for place in places:
        if not os.path.isdir(place):
            raise Usage("%s is not a directory" % clean(place))
        top = os.path.abspath(place)
        for path, names, _ in os.walk(top):
            if runs.holds_reports(path):
                found.append(path)
            depth = path[len(top):].count(os.sep)
            names[:] = sorted(n for n in names if not n.startswith((".", "world-"))) if depth < MOST_DEPTH else []
            if len(found) >= MOST_JOBS:
                return found
    return list(dict.fromkeys(found))


def events(directory, ranks) -> dict[str, set[str]]:
    """Kind: hosts on which it happened in this job."""
    host_of = {rank.key: rank.host for rank in ranks if rank.host}
    told: dict[str, set[str]] = {kind: set() for kind in KINDS}
    collected = findings.collect(directory, ranks)
    findings.name_origin(collected)
    for finding in collected:
        finding["way"] = findings.way(finding)
        if findings.KINDS.get(finding["kind"], ("", "", False))[2]:
            told["corruption"].update(filter(None, findings.ends(finding, host_of)))
        else:
            told["culprit"].update(filter(None, (host_of.get((finding["world"], r), "") for r in finding["culprit_ranks"])))
    gone = [rank for rank in ranks if rank.state == "killed" and rank.host]
    if gone and len(gone) < len(ranks) or any(rank.ended_by for rank in gone):
        told["stop"].update(rank.host for rank in gone if not rank.ended_by)
    told["slow"] = slow(ranks)
    return told


def slow(ranks) -> set[str]:
    """Hosts whose ranks spend clearly less of their time in MPI than those of all other hosts: the others wait for them."""
    shares: dict[str, list[float]] = {}
    for rank in ranks:
        if rank.host and rank.seconds and rank.calls and rank.state == "finished":
            shares.setdefault(rank.host, []).append(min(1.0, sum(call[1] for call in rank.calls.values()) / rank.seconds))
    means = {host: sum(values) / len(values) for host, values in shares.items()}
    if len(means) < 4:
        return set()
    middle = sorted(means.values())[len(means) // 2]
    spread = sorted(abs(value - middle) for value in means.values())[len(means) // 2]
    return {host for host, value in means.items() if middle - value > max(SLOW_SPREADS * spread, SLOW_SHARE)}


def at_least(count: int, chances: list[float]) -> float:
    """Probability of `count` hits or more of independent coins: one minus that of fewer, or for small ones the tail itself."""
    if count <= 0:
        return 1.0
    exactly = [1.0] + [0.0] * count  # the last one: that many or more
    for chance in chances:
        for k in range(count, 0, -1):
            exactly[k] = (exactly[k] + exactly[k - 1] * chance) if k == count else exactly[k] * (1 - chance) + exactly[k - 1] * chance
        exactly[0] *= 1 - chance
    return min(1.0, exactly[count])


def count(paths: list[str]) -> tuple[dict[str, Host], dict]:
    """Hosts by name, and what was read: jobs, unusable (path, why), twice."""
    hosts: dict[str, Host] = {}
    seen: set[str] = set()
    read = {"jobs": 0, "with_events": 0, "unusable": [], "twice": 0}
    for path in over(paths, "reading jobs"):
        try:
            directory = records.read_directory(path)
        except OSError as error:
            read["unusable"].append((path, error.strerror or "cannot be listed"))
            continue
        attach(directory, [], may_collect=False)
        ranks = [directory.ranks[key] for key in sorted(directory.ranks)]
        launch = next((rank.launch for rank in ranks if rank.agreed and rank.launch), "")
        if launch and launch in seen:
            read["twice"] += 1
            continue
        seen.add(launch)
        if not ranks:
            read["unusable"].append((path, directory.problems[0].message if directory.problems else "no rank's report"))
            continue
        read["unusable"] += [(problem.path, problem.message) for problem in directory.problems]
        read["jobs"] += 1
        add(hosts, path, ranks, events(directory, ranks), read)
    return hosts, read


def add(hosts: dict[str, Host], path: str, ranks, told: dict[str, set[str]], read: dict) -> None:
    on: dict[str, int] = {}
    for rank in ranks:
        if rank.host:
            on[rank.host] = on.get(rank.host, 0) + 1
    total = sum(on.values())
    program = next((os.path.basename(rank.executable) for rank in ranks if rank.executable), "")
    read["with_events"] += any(told.values())
    for name, number in on.items():
        host = hosts.setdefault(name, Host(name))
        host.jobs += 1
        for kind, hit in told.items():
            if not hit:
                continue
            # That many of the job's hosts are hit; which ones is drawn by their ranks.
            chance = 1.0 if len(hit) >= len(on) else 1 - (1 - number / total) ** len(hit)
            host.chances.setdefault(kind, []).append(chance)
            if name in hit:
                host.hits.setdefault(kind, []).append(path)
                host.programs.add(program)


def judge(hosts: dict[str, Host]) -> list[dict]:
    """A row for each host and kind with hits, the unlikeliest first."""
    kinds = {kind for host in hosts.values() for kind in host.hits}
    looked_at = max(1, len(hosts) * len(kinds))
    rows = []
    for host in hosts.values():
        for kind, paths in host.hits.items():
            chance = at_least(len(paths), host.chances[kind])
            rows.append({"host": host.name, "kind": kind, "hits": len(paths), "jobs_of_the_host": host.jobs,
                         "jobs_with_such_events": len(host.chances[kind]), "expected": sum(host.chances[kind]), "chance": chance,
                         "chance_corrected": min(1.0, chance * looked_at), "programs": sorted(filter(None, host.programs))[:20],
                         "directories": paths[-20:]})
    for row in rows:
        row["keeps_showing_up"] = row["chance_corrected"] < LUCK and row["hits"] > 1
    return sorted(rows, key=lambda row: (row["chance_corrected"], -row["hits"], row["host"], row["kind"]))


def add_command(commands, job_help: str) -> None:
    del job_help
    parser = commands.add_parser(
        "hosts", help="hosts that keep showing up in the findings of many jobs",
        description="Counts, over all jobs below the directories, the hosts of culprits, corruptions, stops and slow ranks, and says how "
        "unlikely each count is by chance, corrected for the number of hosts and kinds looked at.",
        epilog="exit status: 0 none stands out, 1 a host keeps showing up, 2 usage error, 3 nothing could be read")
    parser.add_argument("directories", nargs="+", metavar="DIR", help="a report directory, or one with many below it")
    parser.add_argument("--json", action="store_true", help="every row as JSON")
    parser.add_argument("--nagios", action="store_true", help="one line with performance data for Nagios and Icinga; exit status 0 none "
                        "stands out, 1 a host keeps showing up, 3 nothing could be read")
    parser.set_defaults(run=run)


def _look(places: list[str]) -> tuple[dict[str, Host], dict, list[dict]]:
    paths = find(places)
    if not paths:
        raise Usage("no reports of resil in %s" % ", ".join(map(clean, places[:4])))
    hosts, read = count(paths)
    return hosts, read, judge(hosts)


def _plugin(places: list[str]) -> tuple[int, str]:
    hosts, read, rows = _look(places)
    return nagios.of_hosts(len(hosts), read, rows)


def run(options) -> int:
    if options.nagios:
        return nagios.guarded(lambda: _plugin(options.directories))
    hosts, read, rows = _look(options.directories)
    if options.json:
        json.dump({"schema_version": 1, "jobs": read["jobs"], "hosts": len(hosts), "jobs_read_twice": read["twice"],
                   "unusable": [{"path": path, "message": why} for path, why in read["unusable"]], "rows": rows}, sys.stdout, indent=1)
        print()
    else:
        print("\n".join(lines(hosts, read, rows)))
    return 1 if any(row["keeps_showing_up"] for row in rows) else 0 if read["jobs"] else 3


def lines(hosts: dict[str, Host], read: dict, rows: list[dict]) -> list[str]:
    named = list(dict.fromkeys(row["host"] for row in rows if row["keeps_showing_up"]))
    head = "%s in %s" % (plural(len(hosts), "host"), plural(read["jobs"], "job"))
    out = ["LOOK AT %s: %s" % (", ".join(clip(name, 40) for name in named[:8]) + (", …" if len(named) > 8 else ""), head) if named else
           "NONE STANDS OUT: %s" % head]
    if rows:
        out.append("  %-20s %-10s %6s %9s %9s %8s  %s" % ("host", "kind", "hits", "expected", "chance", "programs", "what"))
    for row in rows[:MOST_LINES]:
        chance = row["chance_corrected"]
        out.append(clip("%s %-20s %-10s %6d %9.3g %9s %8d  %s" % (
            "*" if row["keeps_showing_up"] else " ", clip(row["host"], 20), row["kind"], row["hits"], row["expected"],
            "%.1g" % chance if chance < 0.995 else "1", len(row["programs"]), KINDS[row["kind"]])))
    if len(rows) > MOST_LINES:
        out.append("  and %d more rows (--json lists them)" % (len(rows) - MOST_LINES))
    if rows:
        out.append("chance: of so many hits or more in that host's jobs, if chance alone drew the hosts by their ranks; times the %d hosts "
                   "and kinds looked at" % (len(hosts) * len({row["kind"] for row in rows})))
    for name in named[:4]:
        paths = [path for row in rows if row["host"] == name for path in row["directories"]]
        out.append("%s: %s" % (clip(name, 40), ", ".join(clean(os.path.relpath(path), 60) for path in dict.fromkeys(paths[-3:]))))
    for path, why in read["unusable"][:3]:
        out.append("unusable   %s: %s" % (clean(os.path.relpath(path), 80), clean(why, 80)))
    if len(read["unusable"]) > 3:
        out.append("           and %s" % plural(len(read["unusable"]) - 3, "more file"))
    return out
