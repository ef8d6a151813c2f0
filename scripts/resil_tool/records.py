# SPDX-License-Identifier: Apache-2.0
"""Reads one report directory: rank-*.json, node-*.jsonl, hang-*.json, job.json, names of rings and dumps.

Trusts nothing: every value is checked for its type and range, every file that cannot be used becomes a Problem and
the rest is read on. Reads files below the given directory only.
"""

from __future__ import annotations

import dataclasses
import os
import re

from . import candidates, checksum, leftovers, recorded, reductions, staging, verification
from .progress import over
from .text import clean
from .runs import launch_number, read_launch
from .values import (MAX_FILE, Invalid, duration, integer, items, members, moment, number, parse_object, rank_list, read_bytes,
                     text)

_RANK_FILE = re.compile(r"rank-(\d{1,9})\.json$")
_RING_FILE = re.compile(r"rank-(\d{1,9})\.ring$")
_NODE_FILE = re.compile(r"node-.+\.jsonl$")
_HANG_FILE = re.compile(r"hang-\d{1,9}\.json$")
_DUMP_FILE = re.compile(r"dump-(\d{1,9}|pid\d{1,9})-(\d{1,9})\.txt$")
_WORLD_DIRECTORY = re.compile(r"world-(\d{1,9})$")

OUTCOMES = ("running", "finished", "aborted", "stopped")


@dataclasses.dataclass
class Problem:
    path: str
    message: str


@dataclasses.dataclass
class Rank:
    """One rank as its report tells it, all members checked. `state` is filled in later: finished, aborted, stopped,
    running (alive), killed (gone without a final report) or unknown (on another host)."""
    world: int
    rank: int
    source: str
    outcome: str
    host: str = ""
    pid: int = 0
    exit_status: int | None = None  # stopped: of resil; aborted: the error code of MPI_Abort
    mpi: str = ""
    modes: str = ""
    world_size: int = 0
    executable: str = ""
    resil_version: str = ""
    directory: str = ""
    job: str = ""
    boot_id: str = ""        # of its machine; "" for an older version's
    pid_namespace: int = 0   # where `pid` means the process; 0: not known
    launch: str = ""         # key of its launch; "" for an older version's, or one that nobody has told
    agreed: bool = False     # the ranks of the launch have agreed on that key
    exit_in_init: int | None = None  # the process exited within MPI_Init, with that status
    owner: int = -1          # user id of the process, where it lives on this host and is another user's
    start_time: float = 0.0
    seconds: float | None = None
    overhead_seconds: float = 0.0
    ring: str = ""
    ring_anonymous: bool = False
    signal: str = ""
    calls: dict = dataclasses.field(default_factory=dict)   # name: [count, seconds, bytes]
    peers: dict = dataclasses.field(default_factory=dict)   # world rank: [sent messages, bytes, received, bytes]
    findings: list = dataclasses.field(default_factory=list)
    notes: list = dataclasses.field(default_factory=list)
    findings_dropped: int = 0
    ended_by: str = ""         # who sent the signal that ended it, as the ring has it
    fault_setting: str = ""                                    # RESIL_FAULT, "" for none
    faults: dict = dataclasses.field(default_factory=dict)     # injected on purpose, kind: count
    checksum: dict = dataclasses.field(default_factory=dict)   # section "checksum", see checksum.py
    verify: dict = dataclasses.field(default_factory=dict)     # section "verify", see verification.py
    recorded: dict = dataclasses.field(default_factory=dict)   # section "record", see recorded.py
    reductions: dict = dataclasses.field(default_factory=dict)  # section "reductions", see reductions.py
    staging: dict = dataclasses.field(default_factory=dict)    # section "staging", see staging.py
    candidates: dict = dataclasses.field(default_factory=dict)  # "any_source" of "checksum", see candidates.py
    all_preloaded: bool = False  # every rank of its world carries the library
    leftovers: dict = dataclasses.field(default_factory=dict)  # section "leftovers", see leftovers.py
    uncovered: dict = dataclasses.field(default_factory=dict)  # reason: count
    modified: float = 0.0
    state: str = ""
    # Filled in from the ring (attach.py):
    inside: bool = False     # in an MPI call
    call: str = ""           # the current or last call in words
    since: float | None = None  # seconds since the epoch: begin of the current call, end of the last one
    site: tuple | None = None   # (object file, address) of that call
    open_calls: list = dataclasses.field(default_factory=list)  # (function, begin) of every thread inside MPI
    pending_requests: int = 0
    phase: str = ""
    last_seen: float = 0.0
    moved: float = 0.0       # when a thread of it last entered or left a call
    from_ring: bool = False
    ring_path: str = ""      # the ring that was read
    end_sender: str = ""     # who sent SIGTERM, as the ring has it: name, pid, signal, when
    end_pid: int = 0
    by_memory: bool = False  # ended, most likely by the out-of-memory killer
    oom_kills: int = 0       # of the out-of-memory killer in its control group, when this rank was ended
    end_signal: int = 0
    end_time: float = 0.0

    @property
    def key(self) -> tuple[int, int]:
        return self.world, self.rank


@dataclasses.dataclass
class Directory:
    """What one report directory holds, spawned worlds included."""
    path: str
    ranks: dict = dataclasses.field(default_factory=dict)     # (world, rank): Rank
    rankless: list = dataclasses.field(default_factory=list)  # reports from before the rank was known
    rings: dict = dataclasses.field(default_factory=dict)     # (world, rank): path
    dumps: dict = dataclasses.field(default_factory=dict)     # path: (world, rank)
    findings: list = dataclasses.field(default_factory=list)  # of the whole job
    notes: list = dataclasses.field(default_factory=list)
    problems: list = dataclasses.field(default_factory=list)  # files that could not be used
    strangers: list = dataclasses.field(default_factory=list)  # files of another run
    expected: dict = dataclasses.field(default_factory=dict)  # world: number of ranks
    keys: dict = dataclasses.field(default_factory=dict)      # world: launch key, "" where it is not known
    candidates: list = dataclasses.field(default_factory=list)  # reports as they are read, before they are told apart
    hangs: list = dataclasses.field(default_factory=list)     # (launch key, findings, path) of hang files
    owner: int | None = None
    program: str = ""  # what launch.json calls it: of an interpreter the script
    launches: list = dataclasses.field(default_factory=list)  # runs.Run: the other ones in the same place

    def empty(self) -> bool:
        return not (self.ranks or self.rankless or self.rings or self.dumps or self.problems or self.findings)


def config_value(config, name: str) -> str:
    """A variable of member "config", given as NAME: VALUE, NAME: {"value": …} or a list of {"name", "value"}."""
    value = config.get(name) if isinstance(config, dict) else None
    for item in items(config):
        if isinstance(item, dict) and item.get("name") == name:
            value = item
    if isinstance(value, dict):
        value = value.get("value")
    return text(value)


def _uncovered(value, prefix: str, into: dict) -> None:
    """Sums every member whose name holds "uncovered": a count, or counts by reason."""
    for name, member in members(value):
        if "uncovered" in name:
            reasons = members(member) or [("", member)]
            for reason, count in reasons:
                if integer(count, 1):
                    label = clean(reason or (prefix + name), 60)
                    into[label] = into.get(label, 0) + integer(count, 1)
        elif isinstance(member, dict) and not prefix and name not in ("calls", "config", "checksum"):
            _uncovered(member, clean(name, 30) + ": ", into)


def _evidence(value) -> dict[str, str]:
    """Texts by name. A hang file has lines "name: value", of which the last one of a name counts on."""
    if isinstance(value, list):
        lines = [clean(line, 600).partition(": ") for line in value[:64] if isinstance(line, str)]
        return {name[:120]: text_ for name, _, text_ in lines if name and text_}
    return {clean(name, 40): clean(one, 300) for name, one in members(value)[:40] if isinstance(one, (str, int, float))}


def parse_findings(value, source: str) -> list[dict]:
    found = []
    for item in items(value):
        if isinstance(item, dict):
            found.append({"kind": text(item.get("kind") or item.get("class"), 60),
                          "confidence": text(item.get("confidence"), 20),
                          "culprit_ranks": rank_list(item.get("culprit_ranks")),
                          "victim_ranks": rank_list(item.get("victim_ranks")),
                          "message": text(item.get("message"), 1000),
                          "to_do": text(item.get("to_do"), 600), "source": source,
                          "evidence": _evidence(item.get("evidence"))})
        elif isinstance(item, str):
            found.append({"kind": "", "confidence": "", "culprit_ranks": [], "victim_ranks": [],
                          "message": text(item, 1000), "to_do": "", "source": source, "evidence": {}})
    return found


def parse_rank(value: dict, world: int, source: str, modified: float) -> Rank:
    """Checked members of one rank's report. Raises Invalid when it names no rank or outcome."""
    rank = integer(value.get("rank"), -1, 2**31, None)
    outcome = value.get("outcome")
    if rank is None or outcome not in OUTCOMES:
        raise Invalid("not a rank's report: no rank or no outcome")
    mpi = value.get("mpi")
    mpi = " / ".join(filter(None, (text(mpi.get("library"), 120), text(mpi.get("abi"), 40)))) \
        if isinstance(mpi, dict) else text(mpi, 120)
    modes = value.get("modes")
    modes = ",".join(text(m, 20) for m in items(modes)[:16]) if isinstance(modes, list) else text(modes, 80)
    record = Rank(
        world=integer(value.get("world"), 0, 2**31, world) or world, rank=rank, source=source, outcome=outcome,
        host=text(value.get("host"), 64), pid=integer(value.get("pid"), 1, 2**31),
        exit_status=integer(value.get("exit_status"), -2**31, 2**32, None),
        mpi=mpi, modes=modes, world_size=integer(value.get("world_size"), 0, 2**31),
        executable=text(value.get("executable"), 256), resil_version=text(value.get("resil_version"), 32),
        directory=text(value.get("directory"), 1024), job=text(value.get("job"), 64),
        boot_id=text(value.get("boot_id"), 64), pid_namespace=integer(value.get("pid_namespace"), 0, 2**63),
        launch=launch_number(value.get("launch")), agreed=value.get("launch_agreed") is True,
        start_time=moment(value.get("start_time")), overhead_seconds=duration(value.get("overhead_seconds")),
        ring=text(value.get("ring"), 1024), ring_anonymous=value.get("ring_anonymous") is True,
        signal=config_value(value.get("config"), "RESIL_SIGNAL"),
        findings=parse_findings(value.get("findings"), source),
        notes=[text(note) for note in items(value.get("notes")) if isinstance(note, str)], modified=modified)
    record.exit_in_init = integer(value.get("exit_in_init"), 0, 255, None)
    if outcome != "running":  # until then it is the age at MPI_Init
        record.seconds = duration(value.get("elapsed_seconds"), None)
    dropped = integer(value.get("notes_dropped"), 1)
    if dropped:
        record.notes.append("%d more notes found no place" % dropped)
    if value.get("all_ranks_preloaded") is False and outcome != "running":
        record.notes.append("not every rank of the job carries resil: local work only")
    for name, call in members(value.get("calls")):
        if isinstance(call, dict):
            record.calls[clean(name, 48)] = [integer(call.get("count")), duration(call.get("seconds")),
                                             integer(call.get("bytes"))]
    for peer in items(value.get("peers")):
        if isinstance(peer, dict):
            other = integer(peer.get("rank"), -2, 2**31, None)
            if other is not None:
                record.peers[other] = [integer(peer.get(name)) for name in (
                    "sent_messages", "sent_bytes", "received_messages", "received_bytes")]
    record.findings_dropped = integer(value.get("findings_dropped"))
    record.checksum = checksum.parse(value.get("checksum"))
    record.verify = verification.parse(value.get("verify"))
    record.recorded = recorded.parse(value.get("record"))
    record.reductions = reductions.parse(value.get("reductions"))
    record.staging = staging.parse(value.get("staging"))
    record.candidates = candidates.parse(value.get("checksum"))
    record.all_preloaded = value.get("all_ranks_preloaded") is True
    record.leftovers = leftovers.parse(value.get("leftovers"), value.get("unreceived_messages_total"))
    inside = value.get("checksum").get("faults_injected") if record.checksum else None
    record.faults = checksum.counts(value.get("faults_injected") or inside)
    setting = config_value(value.get("config"), "RESIL_FAULT")
    record.fault_setting = "" if setting == "none" else setting
    _uncovered(value, "", record.uncovered)
    return record


# -- the directory ----------------------------------------------------------------------------------------------------

def _add(directory: Directory, record: Rank) -> None:
    """Keeps the better of two reports of one rank: one whose launch is known, then the final one, then the newer one."""
    old = directory.ranks.get(record.key)
    if old is None or (old.agreed, old.outcome != "running") <= (record.agreed, record.outcome != "running"):
        directory.ranks[record.key] = record


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _salvage(directory: Directory, path: str, world: int, line: bytes) -> None:
    """A rank that found no room has left the begin of a line, and another rank's whole line stands behind it."""
    at = line.rfind(b'{"schema_version"')
    try:
        if 0 < at <= len(line) <= at + MAX_FILE:
            directory.candidates.append(parse_rank(parse_object(line[at:]), world, path, 0.0))
    except Invalid:
        pass


def _read_node_file(directory: Directory, path: str, world: int) -> None:
    data = read_bytes(path, 1 << 29, directory.owner)
    bad = []
    lines = data.split(b"\n")
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            if len(line) > MAX_FILE:
                raise Invalid("line too long")
            record = parse_rank(parse_object(line), world, path, 0.0)
            directory.candidates.append(record)
        except Invalid as error:
            bad.append((index + 1, str(error)))
            _salvage(directory, path, world, line)
    if bad:
        directory.problems.append(Problem(path, "line %d: %s%s" % (
            bad[0] + (" (and %d more lines)" % (len(bad) - 1) if len(bad) > 1 else "",))))


def hang_findings(value: dict, path: str) -> list[dict]:
    """The finding of a hang-N.json, with what the wait-for graph needs, and when."""
    found = parse_findings([dict(value, kind="hang: %s" % (text(value.get("class"), 40) or "?"))], path)
    for finding in found:
        finding["time"] = moment(number(value.get("time_ns")) / 1e9)
        finding["hang"] = value
        finding["peer_ranks"] = rank_list(value.get("peer_ranks"))
        finding["message"], _, to_do = finding["message"].partition(" To do: ")  # the last sentences of a hang's message
        finding["to_do"] = finding["to_do"] or to_do.replace(" To do: ", " ")
    return found


def _read_job_file(directory: Directory, path: str, name: str) -> None:
    value = parse_object(read_bytes(path, owner=directory.owner))
    if _HANG_FILE.match(name):
        directory.hangs.append((launch_number(value.get("launch")), hang_findings(value, path), path))
    else:
        directory.findings += parse_findings(value.get("findings"), path)
        directory.notes += [text(note) for note in items(value.get("notes")) if isinstance(note, str)]


def _read_one(directory: Directory, path: str, name: str, world: int) -> None:
    rank_file = _RANK_FILE.match(name)
    if rank_file:
        record = parse_rank(parse_object(read_bytes(path, owner=directory.owner)), world, path, _modified(path))
        if record.rank not in (-1, int(rank_file.group(1))):
            raise Invalid("holds the report of rank %d" % record.rank)
        record.world = world
        directory.candidates.append(record)
    elif _RING_FILE.match(name):
        directory.rings[world, int(_RING_FILE.match(name).group(1))] = path
    elif _NODE_FILE.match(name):
        _read_node_file(directory, path, world)
    elif _DUMP_FILE.match(name):
        rank = _DUMP_FILE.match(name).group(1)
        directory.dumps[path] = (world, int(rank)) if rank.isdigit() else (world, -1)
    elif _HANG_FILE.match(name) or name == "job.json":
        _read_job_file(directory, path, name)


def read_file(directory: Directory, path: str) -> None:
    """One report of a rank or of a node, into a directory that has none yet. Raises Invalid."""
    if path.endswith(".jsonl"):
        _read_node_file(directory, path, 0)
    else:
        directory.candidates.append(parse_rank(parse_object(read_bytes(path)), 0, path, _modified(path)))
    _choose_launch(directory)


def read_directory(path: str) -> Directory:
    """Everything in a report directory and its world-N. OSError when the directory itself cannot be listed."""
    directory = Directory(path, owner=os.stat(path).st_uid)
    places = [(path, 0)]
    for name in sorted(os.listdir(path)):
        world = _WORLD_DIRECTORY.match(name)
        if world and os.path.isdir(os.path.join(path, name)) and not os.path.islink(os.path.join(path, name)):
            places.append((os.path.join(path, name), int(world.group(1))))
    for place, world in places:
        try:
            names = sorted(os.listdir(place))
        except OSError as error:
            directory.problems.append(Problem(place, "cannot be listed: %s" % error.strerror))
            continue
        for name in over(names, "reading reports"):
            file = os.path.join(place, name)
            try:
                _read_one(directory, file, name, world)
            except Invalid as error:
                directory.problems.append(Problem(file, str(error)))
        launch = read_launch(place)
        directory.keys[world] = launch.key
        directory.program = directory.program or launch.program
    _choose_launch(directory)
    _set_strangers_apart(directory)
    known = {(r.host, r.pid) for r in directory.ranks.values()}
    directory.rankless = [r for r in directory.rankless if (r.host, r.pid) not in known]
    return directory


def _choose_launch(directory: Directory) -> None:
    """Keeps the reports of one launch in each world: that of launch.json, else the newest that its ranks agreed on.
    A rank that never got out of MPI_Init does not know the key; it counts where there is no better report of it."""
    for world in {record.world for record in directory.candidates}:
        here = [record for record in directory.candidates if record.world == world]
        agreed = [record for record in here if record.launch and record.agreed]
        key = directory.keys.get(world)
        if agreed and key not in {record.launch for record in agreed}:
            key = directory.keys[world] = max(agreed, key=lambda r: (r.start_time, r.modified)).launch
        for record in here:
            if key and record.agreed and record.launch != key:
                directory.strangers.append(Problem(record.source, "of another run: launch %s" % record.launch))
            elif record.rank < 0:
                directory.rankless.append(record)
            else:
                _add(directory, record)
    launches = {record.launch for record in directory.ranks.values()} | set(filter(None, directory.keys.values()))
    for launch, findings, path in directory.hangs:
        if launch in launches or (not launch and not any(launches)):
            directory.findings += findings
        else:
            directory.strangers.append(Problem(path, "of another run: %s" % ("launch " + launch if launch else "no launch key")))


def of_launch(directory: Directory, world: int, launch: str, agreed: bool) -> bool:
    """Whether a ring of that world belongs to the launch whose reports are here."""
    known = directory.keys.get(world)
    return not known or not agreed or launch == known


def _set_strangers_apart(directory: Directory) -> None:
    """Files of an earlier run in the same directory: another size or job, or started long before the newest. A launch key
    says it better, where there is one."""
    for world in sorted({key[0] for key in directory.ranks}):
        ranks = [r for r in directory.ranks.values() if r.world == world]
        newest = max(ranks, key=lambda r: (r.agreed, r.start_time, r.world_size))
        for r in ranks:
            why = ("a job of %d ranks" % r.world_size if r.world_size and newest.world_size
                   and r.world_size != newest.world_size else
                   "job %s" % r.job if r.job and newest.job and r.job != newest.job else
                   "rank %d of %d" % (r.rank, newest.world_size) if 0 < newest.world_size <= r.rank else
                   "a run that started %d s before" % (newest.start_time - r.start_time)
                   if r.start_time and newest.start_time - r.start_time > 1800 else "")
            if r.agreed and newest.agreed:
                why = ""
            if why:
                directory.strangers.append(Problem(r.source, "of another run: " + why))
                del directory.ranks[r.key]
        directory.expected[world] = newest.world_size
