# SPDX-License-Identifier: Apache-2.0
"""`resil why`: why a running job does not go on, and who did it. The question is a number that is written into the rings of the job's ranks on
this node; the helper thread of the node's leader sees it and the root of the leaders answers for all nodes, while every main thread is
wedged, in why-N.json. No signal. What this node can see from outside is added: the system call in which a rank sleeps, and
stacks by ptrace."""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
import struct
import time

from . import blocked, findings, gathered, halted, place, process, remote_stacks, status, symbols, waits
from . import job as jobs
from .dump import _SYSTEM, _directory, _nobody
from .job import Usage
from .progress import Progress
from .ring import Ring, RingError
from .text import WIDTH, clean, colour, plural, ranges, ranks_phrase, seconds_text, wrap
from .values import Invalid, integer, items, number, parse_object, rank_list, read_bytes, text

LABEL = 11
OFFSET = 32       # of ControlBlock::why in section "hang" (detectors/hang/slots/layout.h)
GATHER = 3.0      # seconds: for the stacks of all nodes, after the answer
WAIT = 8.0        # seconds: rounds over all nodes, one of which may not answer
SOONER = 2.0      # seconds until this node's ranks are shown, where the answer of all takes longer: rank 0's node is being replaced
POLL = 0.03
MOST_STACKS = 64  # processes of this node
MOST_LINES = 10
_NAME = re.compile(r"why-\d{1,6}\.json$")
_LONG_LINE = 3000
_POLL = re.compile(r"MPI_(Test(all|any|some)?|Im?probe|Request_get_status\w*|Win_test)$")

EPILOG = """\
examples:
  %(prog)s                 your only job on this node
  %(prog)s 4711            a scheduler's job id, a launcher's pid, or a report directory
  %(prog)s --no-stacks     without ptrace: no process is stopped for its stacks
  srun --overlap --jobid=4711 -n1 %(prog)s 4711      from elsewhere, on a node of a Slurm job

exit status: 0 it moves, 1 it hangs, or seems to, 2 usage (or no such job runs here), 3 no answer: only this node was looked at
"""

# What a class means, in the user's words.
CAUSES = {"deadlock": "deadlock", "collective_mismatch": "collective mismatch", "unmatched_message": "unmatched message",
          "missing_rank": "a rank never arrived", "rank_gone": "a rank never arrived", "rank_stopped": "a rank never arrived",
          "computation": "a rank never arrived", "node_silent": "a rank never arrived", "inside_mpi": "inside MPI with everyone arrived",
          "no_progress": "no progress", "moving": "moving", "unreceived_messages": "unmatched message"}
DETAILS = {"missing_rank": "finished, or in another communicator", "rank_gone": "gone", "rank_stopped": "stopped", "node_silent": "unreachable",
           "computation": "computing"}


def add_command(commands, job_help: str) -> None:
    parser = commands.add_parser("why", help="why a running job does not go on, and who did it", epilog=EPILOG,
                                 description="Gathers the state of all ranks while they are wedged and says what they wait for, who is at "
                                 "fault and how sure that is.", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", nargs="?", metavar="JOB", help=job_help)
    parser.add_argument("--json", action="store_true", help="all of it, for programs")
    parser.add_argument("--no-stacks", action="store_true", help="take no stacks: no process is stopped for some milliseconds")
    parser.add_argument("--wait", type=float, default=WAIT, metavar="SECONDS", help="for the answer of all nodes; default %g" % WAIT)
    parser.set_defaults(run=run)


def run(options) -> int:
    if not 0 <= options.wait <= 600:
        raise Usage("--wait: 0 to 600 seconds")
    job = jobs.resolve(options.job, live_only=True)
    rings = [ring for ring in job.rings if ring.alive]
    if not rings:
        directory = _directory(job)
        raise Usage(_nobody(job, directory.ranks if directory else {}))
    begun = time.monotonic()
    first = status.take(job)
    answers = {} if halted.all_stopped(rings) else ask(rings, options.wait, None if options.json else lambda: _show_meanwhile(job, rings, first, options.wait - SOONER))
    waited = time.monotonic() - begun
    if waited < 0.5:
        time.sleep(0.5 - waited)
    second = status.take(job)
    both = {key: (first[key], second[key]) for key in second if key in first}
    if not both:
        raise Usage("the job has ended: %s report %s" % (place.command(), clean(job.directory)))
    told = judge(job, rings, answers, both)
    told["seconds"] = waited
    if not options.no_stacks and told["verdict"] != "moving":
        _add_stacks(told, rings, gathered.of(job.directory, told["source"], GATHER) if told["source"] else {})
    _name_all(told, both, job)
    told.pop("lines", None)
    if options.json:
        told.pop("shown_stacks", None)
    print(json.dumps(told, indent=1) if options.json else "\n".join(render(told)))
    return 3 if told["verdict"] == "not known" else 0 if told["verdict"] == "moving" else 1


def _show_meanwhile(job, rings: list, first: dict, more: float) -> None:
    """This node's ranks, for who waits longer than usual, and up to `more` seconds longer."""
    second = status.take(job)
    both = {key: (first[key], second[key]) for key in second if key in first}
    if not both:
        return  # it has ended, which is said when the time is over
    told = judge(job, rings, {}, both)
    _name_all(told, both, job)
    told.update(verdict="not known yet", message="after %s: rank 0's node answers for all, and may be stopped or out of reach. Another "
                "node takes its place, which takes up to %s more. What follows is this node's ranks only."
                % (seconds_text(SOONER), seconds_text(more)))
    print("\n".join(render(told)[:-1]) + "\n", flush=True)  # without what to do next: to wait


# -- the question -----------------------------------------------------------------------------------------------------

def ask(rings: list, seconds: float, meanwhile=None) -> dict[int, dict]:
    """{world: the root's answer}; a world that gave none in time is left out. `meanwhile` is called once, where no world has answered
    SOONER seconds after the question."""
    worlds: dict[int, list] = {}
    for ring in rings:
        worlds.setdefault(ring.world, []).append(ring)
    places = {world: members[0].directory for world, members in worlds.items() if members[0].directory}
    before = {world: set(_names(path)) for world, path in places.items()}
    ticket = time.time_ns()
    asked = {world for world, members in worlds.items() if sum(_write(ring, ticket) for ring in members)}
    answers: dict[int, dict] = {}
    begun = time.monotonic()
    deadline = begun + seconds
    with Progress("waiting for the nodes' answer") as progress:
        while True:
            for world in (asked & set(places)) - set(answers):
                for name in _names(places[world]):
                    if name not in before[world]:
                        found = _read(os.path.join(places[world], name))
                        if found and integer(found.get("ticket")) >= ticket:
                            answers[world] = dict(found, source=name)
            if len(answers) == len(asked & set(places)) or time.monotonic() >= deadline:
                return answers
            if meanwhile is not None and not answers and time.monotonic() >= begun + SOONER:
                progress.clear()
                meanwhile()
                meanwhile = None
            progress.at(0)
            time.sleep(POLL)


def _write(ring, ticket: int) -> bool:
    """The number into that rank's own slots, of which the leader of the node reads all; eight bytes, by one system call."""
    try:
        with Ring(ring.path, follow_links=False) as known:
            section = known.section("hang", 1)
            if section.entries * section.stride < OFFSET + 8 or section.offset % 64:
                return False
        descriptor = os.open(ring.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (RingError, OSError):
        return False
    try:
        now = os.fstat(descriptor)
        if not stat.S_ISREG(now.st_mode) or (process.device_text(now.st_dev), now.st_ino) != ring.inode or now.st_uid != ring.uid:
            return False
        return os.pwrite(descriptor, struct.pack("<Q", ticket), section.offset + OFFSET) == 8
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _names(path: str) -> list[str]:
    try:
        return sorted(filter(_NAME.match, os.listdir(path)))
    except OSError:
        return []


def _read(path: str) -> dict | None:
    try:
        return parse_object(read_bytes(path))
    except Invalid:
        return None  # not complete yet, or no answer


# -- the verdict ------------------------------------------------------------------------------------------------------

def judge(job, rings: list, answers: dict, both: dict) -> dict:
    """The root's verdict, and where the accused ranks of this node are."""
    here = status.compare(job, both)
    sites = here.pop("sites")
    told = {"schema_version": 1, "time": here["time"], "directory": job.directory, "program": here["program"], "mpi": here["mpi"],
            "host": here["host"], "world_size": here["world_size"], "ranks_here": here["ranks_here"], "sites": sites,
            "still_seconds": here["still_seconds"], "calls_per_second": here["calls_per_second"], "started": here["started"]}
    world = min(answers, key=lambda one: (text(answers[one].get("class")) == "moving", one), default=None)
    if world is None:
        halt = halted.judge(job, rings, here["world_size"])
        moving = here["verdict"] == "MOVING" and not halt
        told = dict(told, verdict="moving" if moving else "not known", world=0, kind="", confidence="suspected", detail="", culprits=[], peers=[], victims=[],
                    unanswered=[], message="" if moving else
                    " ".join(filter(None, ["the helper threads gave no answer (RESIL_HANG=off, or the report directory is not shared with rank 0's "
                                           "node); what follows is this node's ranks only.", halted.sentence(rings)])),
                    evidence=[], blocked={}, edges=[], states={}, source="", culprit_count=0, victim_count=0)
        return dict(told, **halt, quiet=here["still_seconds"] or 0.0) if halt else told
    answer = answers[world]
    kind = text(answer.get("class"), 40)
    told.update(world=world, kind=kind, confidence=text(answer.get("confidence"), 20), detail=DETAILS.get(kind, ""),
                verdict=CAUSES.get(kind, kind), message=text(answer.get("message"), _LONG_LINE), source=text(answer.get("source"), 40),
                evidence=[text(line, 1000) for line in items(answer.get("evidence"))[:64]], quiet=number(answer.get("quiet")),
                culprits=rank_list(answer.get("culprit_ranks")), peers=rank_list(answer.get("peer_ranks")), victims=rank_list(answer.get("victim_ranks")),
                unanswered=rank_list(answer.get("unanswered")), edges=items(answer.get("edges"))[:1024],
                errors=[one for one in items(answer.get("errors"))[:64] if isinstance(one, dict)],
                culprit_count=integer(answer.get("culprit_count")), victim_count=integer(answer.get("victim_count")),
                nodes=integer(answer.get("nodes")), new_finding=bool(answer.get("new_finding")))
    states = {integer(one.get("rank")): one for one in items(answer.get("ranks")) if isinstance(one, dict)}
    told["states"] = _states(states)
    told["pids"] = {ring.rank: ring.pid for ring in rings if ring.world == world and ring.rank in told["culprits"] and ring.pid_is_ours}
    told["blocked"] = _blocked(rings, world, told["culprits"] or [rank for rank, one in states.items() if one.get("state") == "computing"])
    _refine(told, states)
    return told


def _states(states: dict) -> dict[str, str]:
    found: dict[str, list[int]] = {}
    for rank, one in states.items():
        found.setdefault(text(one.get("state"), 20) or "unknown", []).append(rank)
    return {state: ranges(ranks) for state, ranks in sorted(found.items(), key=lambda item: len(item[1]))}


def _blocked(rings: list, world: int, ranks: list[int]) -> dict[int, dict]:
    """System calls in which these ranks sleep, as far as they run here."""
    found = {}
    for ring in rings:
        if ring.world == world and ring.rank in ranks[:MOST_STACKS] and ring.pid_is_ours:
            one = blocked.system_call(ring.pid)
            if one:
                found[ring.rank] = one
    return found


def _refine(told: dict, states: dict) -> None:
    """Of the classes that name a rank outside MPI: what it does there. Of waits: what for."""
    kind, kernel = told["kind"], {text(states.get(rank, {}).get("kernel"), 1) for rank in told["culprits"]}
    calls = list(told["blocked"].values())
    devices = [rank for rank, one in states.items() if text(one.get("device"))]
    if kind == "computation" and calls:
        driver = [one for one in calls if one["name"] == "ioctl" and one["state"] == "D"]
        if driver:
            told.update(verdict="device driver", detail="in %s, uninterruptible" % driver[0]["text"])
        elif any(one["io"] for one in calls):
            told.update(verdict="file I/O", detail="in " + next(one["text"] for one in calls if one["io"]))
        else:
            told["detail"] = "asleep in %s" % calls[0]["text"] if calls[0]["state"] != "D" else "in the kernel: %s" % calls[0]["text"]
    elif kind == "computation" and "D" in kernel:
        told["detail"] = "in the kernel (uninterruptible sleep)"
    if kind in ("inside_mpi", "computation", "no_progress") and devices and (kind != "computation" or set(devices) & set(told["culprits"])):
        told.update(verdict="device wait", detail=text(states[devices[0]].get("device"), 200))
    polling = {rank for rank, one in states.items() if text(one.get("state")) == "polling" or _POLL.match(text(one.get("call")))}
    if kind in ("no_progress", "inside_mpi") and polling and not told["culprits"] or kind in ("deadlock", "unmatched_message") and told["confidence"] != "proved" and \
            set(told["culprits"]) & polling:
        told.update(verdict="busy-wait livelock", detail="polls that find nothing")


# -- stacks and names -------------------------------------------------------------------------------------------------

def _add_stacks(told: dict, rings: list, others: dict) -> None:
    """The accused and their victims of this node, the accused first; of other nodes what the root has gathered."""
    order = {rank: i for i, rank in enumerate(told["culprits"])}
    mine = sorted((ring for ring in rings if ring.pid_is_ours and process.alive(ring.pid, ring.start_ticks)),
                  key=lambda ring: (order.get(ring.rank, len(order)) if ring.world == told["world"] else len(order), ring.key))[:MOST_STACKS]
    objects = _objects(rings)
    elsewhere = gathered.stacks(others, told["world"], objects, told["started"] or 0.0)
    # Nobody is stopped for what the helper threads have read already.
    enough = {key for key, threads in elsewhere.items() if any(frame["source"] for frames in threads.values() for frame in frames)}
    found, problems = remote_stacks.take([ring.pid for ring in mine if ring.key not in enough])
    stacks = {ring.key: found[ring.pid] for ring in mine if ring.pid in found}
    elsewhere = {key: threads for key, threads in elsewhere.items() if key not in stacks}
    told["stacks"] = remote_stacks.tree({**elsewhere, **stacks})
    told["of_libraries"] = 0
    if told["kind"] != "inside_mpi":  # else they may say why MPI does not go on
        main = {ring.key: ring.pid for ring in mine}
        libraries = gathered.of_libraries(others)
        kept = {key: {number: frames for number, frames in threads.items()
                      if not (number in libraries if key in elsewhere else number != main.get(key) and remote_stacks.own_frame(frames, _SYSTEM) is None)}
                for key, threads in {**elsewhere, **stacks}.items()}
        told["of_libraries"] = sum(len(threads) for threads in [*elsewhere.values(), *stacks.values()]) - sum(map(len, kept.values()))
        told["shown_stacks"] = remote_stacks.tree(kept)
    told["abnormal"] = gathered.abnormal(others, objects, told["started"] or 0.0)
    told["lines"] = {key: remote_stacks.words(frame) for key, threads in elsewhere.items()
                     for frame in [next((one for frames in threads.values() for one in frames if one.get("python")), None)] if frame}
    for (_, rank), threads in elsewhere.items():
        frame = rank in order and remote_stacks.own_frame(next(iter(threads.values())), _SYSTEM)
        if frame and frame["function"] != "?":
            told.setdefault("at", {})[rank] = remote_stacks.words(frame)
    told["stack_problems"] = problems[:4] + (["and %d more" % (len(problems) - 4)] if len(problems) > 4 else [])
    told.setdefault("at", {})
    for ring in mine:
        main = found.get(ring.pid, {}).get(ring.pid)
        frame = main and remote_stacks.own_frame(main, _SYSTEM)
        if frame and frame["function"] != "?" and ring.world == told["world"] and ring.rank in order:
            told["at"][ring.rank] = remote_stacks.words(frame)


def _objects(rings: list) -> dict[str, str]:
    """Short name: path, of the object files that ranks of this node have called from."""
    objects: dict[str, str] = {}
    for ring in rings[:16]:
        try:
            with Ring(ring.path, follow_links=False) as one:
                for path in one.object_files():
                    name = os.path.basename(path)
                    objects[name] = path if objects.get(name, path) == path else ""
        except RingError:
            continue
    return {name: path for name, path in objects.items() if path}


def _name_all(told: dict, both: dict, job) -> None:
    """object+0xoffset becomes function at file:line."""
    objects = _objects(job.rings)
    sites = [site for line in [told["message"], *told["evidence"]] for site in symbols.sites_in(line, objects)][:findings.MOST_SITES]
    known = symbols.lookup(sites + told.pop("sites")[:16], told["started"] or 0.0)
    told["message"] = symbols.resolve_sentence(told["message"], objects, known)
    told["message"] = re.sub(r"( at \S+:\d+) to 0x[0-9a-f]+", r"\1", told["message"])
    told["evidence"] = [symbols.resolve_sentence(line, objects, known) for line in told["evidence"]]
    status._name_places(told, both, known)


# -- words ------------------------------------------------------------------------------------------------------------

def headline(told: dict) -> str:
    if told["verdict"] == "moving":
        return "MOVING"
    plain = {"not known": "NO ANSWER", "not known yet": "NO ANSWER YET", "stopped": "STOPPED"}
    return plain[told["verdict"]] if told["verdict"] in plain else "%s %s" % (told["confidence"].upper(), told["verdict"])


def render(told: dict) -> list[str]:
    head = headline(told)
    said = told["message"] or "%d MPI calls a second" % round(told["calls_per_second"])
    out = wrap(said, head + ": ", "  ", lines=9)
    out[0] = out[0].replace(head, colour(head, "32" if told["verdict"] == "moving" else "31"), 1)

    def row(label, words, most=3):
        out.extend(wrap(words, label.ljust(LABEL), " " * LABEL, lines=most))
    row("job", "%s, %s, %s%s" % (clean(told["program"]) or "?", clean(told["mpi"]), plural(told["world_size"], "rank"),
                                 " on %s" % plural(told["nodes"], "node") if told.get("nodes") else ""))
    if told.get("quiet") and told["verdict"] != "moving":
        row("quiet", "no rank has entered or left an MPI call for %s" % seconds_text(told["quiet"]))
    if told["culprits"]:
        row("culprit", _culprits(told), 4)
    if told.get("peers"):
        row("peer", _many(told["peers"], len(told["peers"])) + ", which nobody accuses", 1)
    if told["victims"]:
        row("victims", _many(told["victims"], told["victim_count"]), 1)
    if told["unanswered"]:
        row("no answer", "%s: their node did not answer, or they run without resil" % ranks_phrase([(0, rank) for rank in told["unanswered"]]), 2)
    shown = [line for line in told["evidence"] if not line.startswith(("core:", "peer:", "waiting:"))]
    for i, line in enumerate(shown[:8] if told["verdict"] != "moving" else []):
        row("evidence" if i == 0 else "", line, 2)
    for i, one in enumerate(told["places"][:MOST_LINES]):
        row("where" if i == 0 else "", "%s: %s" % (one["name"], one["place"]), 2)
    if len(told["places"]) > MOST_LINES:
        row("", "and %s in other places (--json lists them)" % plural(sum(one["count"] for one in told["places"][MOST_LINES:]), "rank"))
    for i, line in enumerate(edge_lines(told["edges"])[:6] if told["verdict"] != "moving" else []):
        row("waits" if i == 0 else "", line, 2)
    for i, line in enumerate(error_lines(told.get("errors", []), told["confidence"] == "proved")[:4] if told["verdict"] != "moving" else []):
        row("timers" if i == 0 else "", line, 2)
    tree = told.get("shown_stacks", told.get("stacks"))
    if tree:
        out.append("stacks of all threads (ranks, outermost first)" if not told.get("of_libraries") else
                   "stacks (ranks, outermost first; %s of MPI and other libraries left out, --json has %s)" % (
                       plural(told["of_libraries"], "thread"), "it" if told["of_libraries"] == 1 else "them"))
        out += ["  " + clean(line, WIDTH + 20) for line in remote_stacks.lines(tree)]
    for i, line in enumerate(told.get("abnormal", [])[:4]):
        row("steady" if i == 0 else "", line, 2)
    for problem in told.get("stack_problems", []):
        row("stacks", problem, 2)
    if told["source"]:
        row("files", "%s, .txt" % clean(os.path.join(told["directory"], told["source"])), 2)
    row("next", "%s report %s" % (place.command(), clean(told["directory"])), 2)
    return out


def _many(ranks: list[int], count: int) -> str:
    return "ranks %s%s" % (ranges(ranks), ", %d in all" % count if count > len(ranks) else "") if len(ranks) != 1 else "rank %d" % ranks[0]


def _culprits(told: dict) -> str:
    words = _many(told["culprits"], told["culprit_count"])
    pids = told.get("pids", {})
    if len(told["culprits"]) == 1 and pids:
        words += " (pid %d on %s)" % (pids[told["culprits"][0]], clean(told["host"]))
    if told["detail"]:
        words += ": " + told["detail"]
    at = fold_places(told.get("at", {}))
    return words + "".join("; %s at %s" % (ranks, there) if len(told["culprits"]) > 1 else ", at " + there for ranks, there in at)


def fold_places(at: dict[int, str]) -> list[tuple[str, str]]:
    found: dict[str, list[int]] = {}
    for rank, there in at.items():
        found.setdefault(there, []).append(rank)
    return [(ranks_phrase([(0, rank) for rank in ranks]), there) for there, ranks in found.items()][:8]


def edge_lines(edges: list) -> list[str]:
    """A line a wait: "ranks 0,2-3 wait for rank 1: MPI_Allreduce, collective 11 on MPI_COMM_WORLD"."""
    out = []
    for edge in edges:
        if not isinstance(edge, dict):
            continue
        begin, to = rank_list(edge.get("from")), rank_list(edge.get("to"))
        if begin:
            out.append("%s %s for %s: %s" % (ranks_phrase([(0, rank) for rank in begin]), "waits" if len(begin) == 1 else "wait",
                                            ranks_phrase([(0, rank) for rank in to]) if to else "nobody that is known",
                                            waits.edge_words(edge)))
    return out


def error_lines(errors: list, proved: bool = False) -> list[str]:
    """Waits that last longer than their kind usually does, by whom they wait for: "ranks 0,2-3 for rank 1: receive, other node, 12 s (limit 5 s);
    rank 1 is computing". Of what is proved, those alone that say more than that somebody waits."""
    words = {"not delivered": "has sent it, or posted its receive", "open": "may end it", "path broken": "is on a node that this one does not reach, and others reach both"}
    out = []
    for one in errors:
        if proved and (isinstance(one.get("follows"), int) or text(one.get("status")) in ("waiting", "open")):
            continue
        number_of = one.get("destination")
        whom = "rank %d" % number_of if isinstance(number_of, int) else "any rank"
        follows = one.get("follows")
        out.append("%s for %s: %s, %s, %s (limit %s); %s" % (
            text(one.get("sources"), 100), whom, text(one.get("type"), 20), text(one.get("distance"), 20), seconds_text(number(one.get("seconds"))),
            seconds_text(number(one.get("threshold"))), "follows from rank %d" % follows if isinstance(follows, int) else
            "%s %s" % (whom, words.get(text(one.get("status")), "is " + text(one.get("status"), 20)))))
    return out
