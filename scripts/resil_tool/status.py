# SPDX-License-Identifier: Apache-2.0
"""`resil status`: what a running job does right now, from the rings of its ranks on this node, read twice, and with --all from the other nodes by
this command there (nodes.py). No signal is sent and nothing is written: the job does not notice."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
import time

from . import fold, layout, nodes, place, report, runs, symbols
from . import job as jobs
from .attach import fill_from_ring
from .dump import _nobody
from .job import Usage
from .records import Rank
from .ring import Ring, RingError
from .text import WIDTH, bytes_text, clean, clip, colour, integer, plural, rank_set, ranks_phrase, seconds_text, wrap
from .wording import polls

LABEL = 11
MOST_LINES = 12   # groups of ranks
MOST_CALLS = 6
STANDING = 5.0    # seconds without any rank entering or leaving a call
COLOURS = {"MOVING": "32", "POLLING": "33", "STANDING": "33"}

EPILOG = """\
examples:
  %(prog)s                 your only job on this node
  %(prog)s --watch         again and again until it ends, like top
  %(prog)s --json 4711     one sample, for programs
  %(prog)s --all 4711      ranks on the job's other nodes, too

exit status: 0 it moves, 1 it stands still or only polls, 2 usage (or no such job runs here), 3 rings cannot be read
"""


@dataclasses.dataclass
class Sample:
    """One look at one rank."""
    rank: Rank
    time: float
    calls: dict       # name: [count, seconds, bytes]
    inside: float     # seconds since it entered the open call; 0: it is outside MPI
    step: str


def add_command(commands):
    parser = commands.add_parser("status", help="what a running job does right now: rates, places, no signal", epilog=EPILOG,
                                 description="Reads the rings of the ranks on this node twice and shows calls a second, share of "
                                 "time in MPI, and where the ranks are.", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", nargs="?", metavar="JOB", help="report directory, scheduler's job id or launcher's pid; none: your only "
                        "job on this node")
    parser.add_argument("--watch", action="store_true", help="until the job ends, or Ctrl-C")
    parser.add_argument("--all", action="store_true", help="ranks on the job's other nodes, too: this command there, by srun --overlap in a Slurm "
                        "job, else by ssh without a password")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between the two readings; default 1")
    parser.add_argument("--json", action="store_true", help="as JSON; with --watch one object a line")
    parser.set_defaults(run=run)


def run(options) -> int:
    if not 0.05 <= options.interval <= 3600:
        raise Usage("--interval: 0.05 to 3600 seconds")
    job = _resolve(options)
    # On a terminal the screen is drawn over; elsewhere one look follows the other.
    redraw = options.watch and not options.json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    first, known = take(job), {}
    if not first and not options.all:
        raise Usage(_none_here(job))
    while True:
        asked = _ask(job, first, options.interval) if options.all else None
        time.sleep(options.interval)
        second = take(job)
        both = {key: (first[key], second[key]) for key in second if key in first}
        parts = asked.answers() if asked else []
        if not both and not parts:
            if asked and asked.unanswered and not options.watch:
                raise OSError(5, "no node answered: %s" % "; ".join("%s: %s" % (one["host"], one["why"]) for one in asked.unanswered[:4]))
            if not options.watch:
                raise Usage("the job has ended: %s report %s" % (place.command(), clean(job.directory)))
            print("resil: the job has ended: %s report %s" % (place.command(), clean(job.directory)), file=sys.stderr)
            return 0
        if both:
            told = compare(job, both)
            known.update(symbols.lookup([site for site in told.pop("sites") if site not in known][:16], told["started"] or 0.0))
            _name_places(told, both, known)
            parts.insert(0, told)
        told = dict(nodes.join(parts), unanswered=asked.unanswered) if asked else told
        if options.json:
            print(json.dumps(told, indent=None if options.watch else 1), flush=True)
        else:
            size = shutil.get_terminal_size((WIDTH, 40))
            lines = render(told)
            if redraw:
                sys.stdout.write("\033[H\033[J" + "\n".join(clip(line, size.columns) if "\033" not in line else line
                                                            for line in lines[:size.lines - 1]) + "\n")
                sys.stdout.flush()
            else:
                print("\n".join(lines + ([""] if options.watch else [])), flush=True)
        if not options.watch:
            return 0 if told["verdict"] == "MOVING" else 1
        first = second


def _resolve(options) -> jobs.Job:
    """With --all a report directory will do from any node that sees it."""
    try:
        return jobs.resolve(options.job, live_only=True)
    except Usage:
        if not options.all or not options.job or not os.path.isdir(options.job):
            raise
        return jobs.Job(os.path.abspath(options.job), [])


def _none_here(job: jobs.Job) -> str:
    ranks = nodes.running_ranks(job)
    said, others = _nobody(job, ranks), nodes.elsewhere(ranks, set())
    return said if not others or said.endswith("refused") else "no rank of %s runs on this node, but on %s: --all" % (
        clean(job.directory), fold.hosts({host: len(keys) for host, keys in others.items()}))


def _ask(job: jobs.Job, here: dict, seconds: float) -> nodes.Asked:
    hosts = nodes.elsewhere(nodes.running_ranks(job), set(here))
    return nodes.Asked(list(hosts), nodes.slurm_job(job.rings), ["status", "--json", "--interval", "%g" % seconds, job.directory], seconds)


def take(job: jobs.Job) -> dict[tuple[int, int], Sample]:
    found, unreadable = {}, 0
    for live in job.rings:
        try:
            with Ring(live.path, follow_links=False) as ring:
                if ring.process_lives() is False:
                    continue
                rank = Rank(world=ring.header.world, rank=ring.header.rank, source=live.path, outcome="running")
                fill_from_ring(rank, ring)
                rank.state = "running"
                now = time.time()
                inside = max(0.0, now - rank.since) if rank.inside and rank.since else 0.0
                found[rank.key] = Sample(rank, now, {name: list(value) for name, value in rank.calls.items()}, inside, _step(ring))
        except (RingError, OSError) as error:
            unreadable += not (isinstance(error, RingError) and error.kind == "missing")
    if unreadable and not found:
        raise OSError(5, "the rings of this job cannot be read")
    return found


def _step(ring: Ring) -> str:
    """"1204 pressure solve": what the program calls the step it is in, of the thread that is farthest."""
    best = max((lane.head for lane in ring.lanes()), key=lambda head: head.step, default=None)
    if best is None or not best.step:
        return ""
    name = ring.entry("names", layout.NAME, best.step_name) if best.step_name else None
    return integer(best.step) + (' "%s"' % clean(name.name, 60) if name and name.name else "")


def compare(job: jobs.Job, both: dict) -> dict:
    """What happened between the two looks."""
    now = max(second.time for _, second in both.values())
    ranks, calls, moved, started, sites = [], {}, 0.0, 0.0, []
    for key in sorted(both):
        first, second = both[key]
        seconds = max(1e-6, second.time - first.time)
        deltas = {name: [new - old for new, old in zip(value, first.calls.get(name, [0, 0.0, 0]))]
                  for name, value in second.calls.items()}
        for name, (count, spent, bytes_) in deltas.items():
            if count > 0:
                total = calls.setdefault(name, [0.0, 0.0, 0.0])
                total[0] += count / seconds
                total[1] += spent / seconds
                total[2] += bytes_ / seconds
        # An open call's time is counted when it returns: add what it took so far, take off what the one before had taken.
        spent = sum(delta[1] for delta in deltas.values()) + second.inside - first.inside
        ranks.append({"world": key[0], "rank": key[1], "calls_per_second": sum(max(0, delta[0]) for delta in deltas.values()) / seconds,
                      "mpi_share": min(1.0, max(0.0, spent / seconds)), "call": second.rank.call, "inside_mpi": second.rank.inside,
                      "seconds_there": max(0.0, second.time - second.rank.since) if second.rank.since else None, "step": second.step,
                      "pending_requests": second.rank.pending_requests})
        moved = max(moved, second.rank.moved or 0.0)
        started = min(started or second.rank.start_time, second.rank.start_time)
        if second.rank.site and second.rank.site not in sites:
            sites.append(second.rank.site)
    still = max(0.0, now - moved) if moved else None
    real = [name for name in calls if not polls(name)]
    verdict = "MOVING" if real or (not calls and still is not None and still < STANDING) else "POLLING" if calls else "STANDING"
    sample = both[min(both)][1].rank
    return {"schema_version": 1, "verdict": verdict, "time": now, "directory": job.directory,
            "program": job.directory and runs.read_launch(job.directory).program or os.path.basename(sample.executable),
            "mpi": sample.mpi, "host": os.uname().nodename, "started": started, "world_size": sample.world_size,
            "ranks_here": len(ranks), "still_seconds": still, "calls_per_second": sum(value[0] for value in calls.values()),
            "mpi_share": sum(rank["mpi_share"] for rank in ranks) / len(ranks),
            "calls": [dict(zip(("name", "per_second", "seconds_per_second", "bytes_per_second"), (name, *value)))
                      for name, value in sorted(calls.items(), key=lambda item: (-item[1][1], -item[1][0]))],
            "ranks": ranks, "sites": sites}


def _name_places(told: dict, both: dict, known: dict):
    """`lines` of what is told: {(world, rank): line of its Python program}, which says more than where mpi4py calls MPI."""
    said = []
    for key in sorted(both):
        rank = both[key][1].rank
        words = {"name": "", "count": 1, "state": "running", "from_ring": True, "inside_mpi": rank.inside, "call": rank.call,
                 "site": rank.inside and told.get("lines", {}).get(key) or symbols.site_text(rank.site, known), "since": rank.since, "phase": rank.phase}
        said.append((key, report.place_sentence(words, told["time"]).strip().removeprefix("is ")))
    words = dict(said)
    for rank in told.get("ranks", []):  # `resil why` keeps no list of them
        rank["place"] = words[rank["world"], rank["rank"]]
    told["places"] = [{"ranks": rank_set(keys, 10**6), "count": len(keys), "name": ranks_phrase(keys), "place": sentence}
                      for keys, sentence in fold.groups(said)]


def render(told: dict) -> list[str]:
    verdict = told["verdict"]
    if verdict == "MOVING":
        text = "%s calls a second" % integer(round(told["calls_per_second"])) if told["calls"] else "all ranks compute"
    elif verdict == "POLLING":
        text = "only polling, %s calls a second; no other MPI call returns" % integer(round(told["calls_per_second"]))
    else:
        text = "no rank has entered or left an MPI call for %s" % seconds_text(told["still_seconds"])
    lines = wrap("%s, %.0f %% of the time in MPI" % (text, 100 * told["mpi_share"]), verdict + ": ", "  ")
    lines[0] = lines[0].replace(verdict, colour(verdict, COLOURS[verdict]), 1)

    def row(label, words, most=2):
        lines.extend(wrap(words, label.ljust(LABEL), " " * LABEL, lines=most))
    row("job", "%s, %s, running for %s" % (clean(told["program"]) or "?", clean(told["mpi"]),
                                            seconds_text(told["time"] - told["started"] if told["started"] else None)))
    row("reports", clean(told["directory"]) or "none are written")
    elsewhere = told["world_size"] - told["ranks_here"]
    hosts = told.get("hosts", {told["host"]: told["ranks_here"]})
    more = "" if elsewhere <= 0 or told.get("unanswered") else "; the other %s: --all" % plural(elsewhere, "rank") if "hosts" not in told \
        else "; of the other %s no host is known" % plural(elsewhere, "rank")
    row("ranks", "%s of %d on %s%s" % (integer(told["ranks_here"]), told["world_size"], told["host"] if len(hosts) == 1 else fold.hosts(hosts), more))
    for i, one in enumerate(told.get("unanswered", [])[:4]):
        row("no answer" if i == 0 else "", "%s: %s" % (one["host"], one["why"]))
    if len(told.get("unanswered", [])) > 4:
        row("", "and %s (--json lists them)" % plural(len(told["unanswered"]) - 4, "more host"))
    steps = sorted({rank["step"] for rank in told["ranks"] if rank["step"]})
    if steps:
        row("steps", "%s … %s" % (steps[0], steps[-1]) if len(steps) > 1 else steps[0])
    if len(told["ranks"]) > 1:
        shares = sorted((rank["mpi_share"], rank["rank"]) for rank in told["ranks"])
        row("in MPI", "least rank %d, %.0f %%; most rank %d, %.0f %%" % (shares[0][1], 100 * shares[0][0], shares[-1][1],
                                                                      100 * shares[-1][0]))
    for i, one in enumerate(told["places"][:MOST_LINES]):
        row("where" if i == 0 else "", "%s: %s" % (one["name"], one["place"]))
    if len(told["places"]) > MOST_LINES:
        row("", "and %s in other places (--json lists them)" % plural(sum(one["count"] for one in told["places"][MOST_LINES:]), "rank"))
    for i, call in enumerate(told["calls"][:MOST_CALLS]):
        row("calls" if i == 0 else "", "%-24s %9s/s %10s/s %5.1f %% of the time" % (
            clip(call["name"], 24), integer(round(call["per_second"])), bytes_text(call["bytes_per_second"]),
            100 * call["seconds_per_second"] / told["ranks_here"]))
    return lines
