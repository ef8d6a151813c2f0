# SPDX-License-Identifier: Apache-2.0
"""`scripts/resil dump`: asks every rank of a job on this node what it is doing. Signals ranks (signalling.py), waits
for their dump files, and says from outside what can be said of those that do not answer."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import sys
import time

from . import job as jobs
from . import blocked, fold, nodes, process, records, symbols
from .attach import _lives_without_ring, fill_from_ring, is_here
from .job import LiveRing, Usage
from .progress import Progress
from .records import Rank
from .report import place_sentence, tool_command
from .ring import Ring, RingError
from .signalling import signal_rank
from .text import clean, plural, rank_name, rank_set, ranks_phrase

_SYSTEM = re.compile(r"(lib(c|m|pthread|mpi|open-|pmi|ucp|ucs|uct|event|resil|stdc|gfortran)|ld-|mca_|linux-vdso|\[)")
_WHO = re.compile(r"rank \d+ of (\d+) \(([^,()]*), pid \d+\): ")
MOST_LINES = 24  # groups of ranks that say the same

WAIT_SECONDS = 5.0
POLL_SECONDS = 0.02


@dataclasses.dataclass
class Target:
    """One rank on this node. `action`: signalled, refused; `answer`: dumped, late, none."""
    ring: LiveRing
    rank: Rank | None
    action: str = ""
    signal: int | None = None
    reason: str = ""
    answer: str = "none"
    file: str = ""
    sentence: str = ""
    stack: str = ""  # "now at …": where the main thread is, of a rank outside MPI
    waits: str = ""  # 'open("/scratch/fifo")': the system call for a file in which the main thread slept
    before: dict = dataclasses.field(default_factory=dict)
    objects: dict = dataclasses.field(default_factory=dict)


def run(word: str | None, as_json: bool = False, signal_only: bool = False,
        wait_seconds: float = WAIT_SECONDS) -> int:
    job = jobs.resolve(word, live_only=True)
    directory = _directory(job)
    ranks = directory.ranks if directory else {}
    targets = [Target(ring, _report_of(ring, ranks)) for ring in job.rings if ring.alive]
    seen = {t.ring.key for t in targets}
    remote = nodes.elsewhere(ranks, seen)
    unseen = _without_ring(ranks, seen)
    if not targets and not remote and not unseen:
        raise Usage(_nobody(job, ranks))
    targets.sort(key=lambda target: target.ring.key)
    for target in targets:
        target.before = dump_files(target.ring)
    for target in targets:
        asleep = blocked.system_call(target.ring.pid) if target.ring.pid_is_ours else None
        target.waits = asleep["text"] if asleep and asleep["io"] else ""
        target.signal, reason = signal_rank(target.ring, target.rank)
        target.action, target.reason = ("refused", reason) if reason else ("signalled", "")
    if not signal_only:
        wait(targets, wait_seconds)
        for target in targets:
            if target.answer != "dumped":
                target.sentence = from_outside(target)
        _name_call_sites(targets)
    commands = remote_commands(job, targets, remote)
    if as_json:
        print(json.dumps(_object(job, targets, remote, unseen, commands), indent=1))
    else:
        print("\n".join(_text(job, targets, remote, unseen, commands, signal_only)))
    done = all(t.action == "signalled" and (signal_only or t.answer == "dumped") for t in targets)
    return 0 if targets and done and not remote and not unseen else 3


# -- who --------------------------------------------------------------------------------------------------------------

def _directory(job: jobs.Job) -> records.Directory | None:
    try:
        return records.read_directory(job.directory) if job.directory else None
    except OSError:
        return None


def _report_of(ring: LiveRing, ranks: dict) -> Rank | None:
    """The rank's own report; one that an earlier run left says nothing about this process."""
    rank = ranks.get(ring.key)
    return rank if rank and rank.pid == ring.pid else None


def _without_ring(ranks: dict, seen: set) -> list[Rank]:
    """Living ranks of this host that have no readable ring here: nothing proves what they are, so no signal."""
    return [rank for key, rank in sorted(ranks.items()) if key not in seen and rank.outcome == "running"
            and is_here(rank) and _lives_without_ring(rank)]


def _why_unseen(rank: Rank) -> str:
    uid = process.real_uid(process.status(rank.pid))
    if uid >= 0 and os.geteuid() not in (uid, 0):
        return "it belongs to %s" % jobs.owner_name(uid)
    return "it has no ring in %s%s" % (jobs.shm_directory(), " (kept in private memory)" if rank.ring_anonymous else "")


def _nobody(job: jobs.Job, ranks: dict) -> str:
    name = clean(job.directory or "this job")
    try:
        owner = os.stat(job.directory).st_uid if job.directory else os.geteuid()
    except OSError:
        owner = os.geteuid()
    if owner != os.geteuid() and os.geteuid() != 0:
        return "%s belongs to %s: refused" % (name, jobs.owner_name(owner))
    if not ranks and not job.rings:
        return "%s holds no reports of resil, and no rank of it runs on this node" % name
    return "no rank of %s runs any more; what it left: %s report %s" % (name, tool_command(),
                                                                        shlex.quote(job.directory))


# -- answers ----------------------------------------------------------------------------------------------------------

def dump_files(ring: LiveRing) -> dict[str, tuple]:
    """This rank's dump files and what tells an old one from a new one."""
    pattern = re.compile(r"dump-(%05d|pid%d)-\d+\.txt$" % (max(ring.rank, 0), ring.pid))
    found = {}
    try:
        names = os.listdir(ring.directory) if ring.directory else []
    except OSError:
        return found
    for name in filter(pattern.match, names):
        path = os.path.join(ring.directory, name)
        try:
            status = os.stat(path)
            found[path] = (status.st_mtime_ns, status.st_ino, status.st_size)
        except OSError:
            pass
    return found


def _dumps_written(ring: LiveRing) -> int | None:
    """The ring's count of dumps; None when the ring is gone (MPI_Finalize has removed it)."""
    try:
        with Ring(ring.path, follow_links=False) as now:
            return now.header.dumps if now.header.pid == ring.pid else None
    except RingError:
        return None


def wait(targets: list[Target], seconds: float) -> None:
    """Waits until every signalled rank has counted one more dump, has ended, or the time is over."""
    deadline = time.monotonic() + seconds
    pending = [target for target in targets if target.action == "signalled"]
    with Progress("waiting for dumps", len(pending)) as progress:
        while pending:
            late = time.monotonic() >= deadline
            for target in list(pending):
                count = _dumps_written(target.ring)
                ended = target.ring.pid_is_ours and not process.alive(target.ring.pid, target.ring.start_ticks)
                if (count is not None and count != target.ring.dumps) or ended or late:
                    pending.remove(target)
                    _take_answer(target, count is not None and count != target.ring.dumps)
                elif count is None and _new_file(target):
                    pending.remove(target)
                    _take_answer(target, True)
            progress.at(progress.total - len(pending))
            if pending:
                time.sleep(POLL_SECONDS)


def _new_file(target: Target) -> str:
    now = dump_files(target.ring)
    fresh = [path for path, stamp in now.items() if target.before.get(path) != stamp]
    return max(fresh, key=lambda path: now[path]) if fresh else ""


def _take_answer(target: Target, complete: bool) -> None:
    target.file = _new_file(target)
    if not target.file:
        if complete:
            target.answer = "dumped"  # no report directory: the dump went to the rank's standard error
            target.sentence = "%s: dumped to its standard error" % _who(target.ring)
        return
    try:
        data = records.read_bytes(target.file, 4 << 20).decode("utf-8", "replace")
    except records.Invalid:
        data = ""
    first = clean(data.split("\n", 1)[0], 600)
    if first.startswith("rank "):
        target.sentence = first
        target.objects = symbols.objects_of_dump(data)
        if "not in MPI" in first:
            target.stack = _python_frame(data) or _own_frame(data, target.objects)
        target.answer = "dumped" if complete else "late"
    else:
        target.answer = "late"


def _python_frame(data: str) -> str:
    """"converge at solver.py:7": the innermost frame of a Python program."""
    found = re.search(r"^Python, of the thread that writes this dump\..*\n  File \"([^\"\n]{1,400})\", line (\d{1,9}) in (.{1,100})$", data, re.MULTILINE)
    return "%s at %s:%s" % (clean(found.group(3), 80), os.path.basename(clean(found.group(1))), found.group(2)) if found else ""


def _own_frame(data: str, objects: dict[str, str]) -> str:
    """The innermost frame of the main thread that is in no system library, as a return address, which call sites are."""
    found = re.search(r"^main thread: (.*)$", data, re.MULTILINE)
    frames = found.group(1).split(" < ") if found else []
    for depth, frame in enumerate(frames[:64]):
        site = symbols.SITE.match(frame)
        path = site and objects.get(site.group("object"))
        if path and not _SYSTEM.match(os.path.basename(path)):
            return "%s+%#x" % (site.group("object"), int(site.group("offset"), 16) + (depth == 0))
    return ""


def _who(ring: LiveRing) -> str:
    return "%s (%s, pid %d)" % (rank_name(ring.key), clean(ring.host, 64), ring.pid)


def from_outside(target: Target) -> str:
    """What the ring and /proc tell of a rank that did not answer."""
    ring = target.ring
    parts = [target.reason and "not signalled: " + target.reason or
             ("its dump is not complete yet: %s" % clean(target.file) if target.file else "no answer")]
    if not ring.pid_is_ours:
        return "%s: %s" % (_who(ring), parts[0])
    now = process.stat(ring.pid)
    if not now or (ring.start_ticks and now[2] != ring.start_ticks):
        return "%s: %s; the process has ended" % (_who(ring), parts[0])
    if now[0] not in "RS":
        parts.append(process.STATES.get(now[0], "state " + now[0]))
    channel = process.wchan(ring.pid)
    if channel and now[0] == "D":
        parts.append("in kernel function " + clean(channel, 60))
    fields = process.status(ring.pid)
    if target.signal and target.action == "signalled" and process.has_signal(fields, "ShdPnd", target.signal):
        parts.append("the signal is still pending")
    try:
        with Ring(ring.path, follow_links=False) as live:
            rank = Rank(ring.world, ring.rank, ring.path, "running")
            fill_from_ring(rank, live)
        known = symbols.lookup([rank.site] if rank.site else [], rank.start_time)
        place = {"count": 1, "name": "it", "site": symbols.site_text(rank.site, known), "call": rank.call,
                 "state": "running", "from_ring": True, "inside_mpi": rank.inside, "since": rank.since}
        parts.append(place_sentence(place))
    except RingError as error:
        parts.append("its ring cannot be read (%s)" % error)
    return "%s: %s" % (_who(ring), "; ".join(parts))


def _name_call_sites(targets: list[Target]) -> None:
    """object+0xoffset becomes function at file:line in the sentences; the dump files stay as they are."""
    started = min((t.rank.start_time for t in targets if t.rank and t.rank.start_time), default=0.0)
    sites = [site for t in targets for site in symbols.sites_in(t.sentence + " " + t.stack, t.objects)]
    known = symbols.lookup(sites, started)
    for target in targets:
        target.sentence = symbols.resolve_sentence(target.sentence, target.objects, known)
        target.stack = symbols.resolve_sentence(target.stack, target.objects, known)


# -- other hosts ------------------------------------------------------------------------------------------------------

def remote_commands(job: jobs.Job, targets: list[Target], remote: dict[str, list]) -> list[str]:
    """The exact commands that ask the ranks of other hosts. One srun when a Slurm job is known, else ssh."""
    if not remote:
        return []
    there = "%s dump %s" % (shlex.quote(nodes.TOOL), shlex.quote(clean(job.directory, 4096)))
    hosts = [host for host in remote if nodes.HOST.match(host)]  # a report must not smuggle options or commands in
    if not hosts:
        return ["(their host names make no sense: no command)"]
    slurm = nodes.slurm_job([target.ring for target in targets])
    if slurm:
        return ["srun --overlap --jobid=%s --nodelist=%s --nodes=%d --ntasks-per-node=1 %s"
                % (slurm, ",".join(hosts), len(hosts), there)]
    return ["ssh %s %s" % (host, shlex.quote(there) if there != clean(there) or "'" in there else there)
            for host in hosts]


# -- words ------------------------------------------------------------------------------------------------------------

def _text(job, targets, remote, unseen, commands, signal_only) -> list[str]:
    lines = []
    sent = [t for t in targets if t.action == "signalled"]
    answered = [t for t in sent if t.answer == "dumped"]
    if sent:
        words = sorted({process.signal_word(t.signal) for t in sent})
        lines.append("SIG%s sent to %s on this node%s" % (
            ", SIG".join(words), ranks_phrase([t.ring.key for t in sent]),
            "" if signal_only else "; %d of %d answered" % (len(answered), len(sent))))
    elif targets:
        lines.append("no rank of the %d on this node could be signalled" % len(targets))
    files = [t.file for t in answered if t.file]
    for place in sorted({os.path.dirname(path) for path in files}):
        names = [os.path.basename(path) for path in files if os.path.dirname(path) == place]
        lines.append("dumps in %s: %s%s" % (clean(place, 4096), ", ".join(names[:4]),
                                            ", … %s" % names[-1] if len(names) > 4 else ""))
    if signal_only:
        lines += ["  %s: not signalled: %s" % (_who(t.ring), t.reason) for t in targets if t.action == "refused"]
    else:
        lines += folded(targets)
    for rank in unseen:
        lines.append("  %s (%s, pid %d): not signalled: %s" % (rank_name(rank.key), rank.host, rank.pid, _why_unseen(rank)))
    if remote:
        lines.append("%s on other hosts (%s); run there:" % (
            plural(sum(map(len, remote.values())), "rank"),
            "; ".join("%s: %s" % (host, rank_set(keys, 8)) for host, keys in list(remote.items())[:8])
            + ("; …" if len(remote) > 8 else "")))
        lines += ["  " + command for command in commands[:32]]
        if len(commands) > 32:
            lines.append("  … and %d more hosts" % (len(commands) - 32))
    return lines


def folded(targets: list[Target]) -> list[str]:
    """Ranks that say the same on one line, the odd ones out first."""
    said, hosts = [], {}
    for target in targets:
        match = _WHO.match(target.sentence)
        rest = target.sentence[match.end():] if match else target.sentence
        now = "; now at %s" % target.stack if target.stack else ""
        if target.waits and "not in MPI" in rest:
            rest = rest.replace("in user code, not in MPI", "%s%s, not in MPI" % (
                "in " + target.waits, ", called from " + target.stack if target.stack else ""), 1)
            now = ""
        said.append((target.ring.key, rest + now))
        hosts[target.ring.key] = (match.group(1), match.group(2)) if match else None
    by_sentence = dict(said)
    lines = []
    groups = fold.groups(said)
    for keys, sentence in groups[:MOST_LINES]:
        if len(keys) == 1:
            lines.append("  " + (next(t.sentence for t in targets if t.ring.key == keys[0]).split(": ", 1)[0] + ": " + by_sentence[keys[0]]
                                 if hosts[keys[0]] else sentence))
            continue
        where = next((hosts[key] for key in keys if hosts[key]), None)
        lines.append("  %s%s: %s" % (ranks_phrase(keys), " of %s (%s)" % where if where else "", sentence))
    if len(groups) > MOST_LINES:
        lines.append("  and %s in %s (--json lists them)" % (
            plural(sum(len(keys) for keys, _ in groups[MOST_LINES:]), "rank"), plural(len(groups) - MOST_LINES, "other place")))
    return lines


def _object(job, targets, remote, unseen, commands) -> dict:
    return {
        "schema_version": 1, "directory": job.directory, "host": os.uname().nodename,
        "ranks": [{"world": t.ring.world, "rank": t.ring.rank, "pid": t.ring.pid, "action": t.action,
                   "reason": t.reason, "signal": process.signal_word(t.signal) if t.signal else None,
                   "answer": t.answer, "file": t.file, "sentence": t.sentence, "now_at": t.stack} for t in targets],
        "without_ring": [{"world": r.world, "rank": r.rank, "pid": r.pid} for r in unseen],
        "other_hosts": {host: rank_set(keys, 10**6) for host, keys in remote.items()}, "commands": commands,
    }


if __name__ == "__main__":
    sys.exit("use scripts/resil dump")
