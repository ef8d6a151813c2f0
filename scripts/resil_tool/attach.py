# SPDX-License-Identifier: Apache-2.0
"""Joins a report directory with the rings of its ranks: who lives, who was killed and in which call; collects the
rings of dead ranks. Writes rank-NNNNN.ring into the report directory and removes the dead rank's live ring."""

from __future__ import annotations

import os
import secrets
import struct
import time

from . import layout, process
from .job import LiveRing, same_directory
from .progress import over
from .records import Directory, Problem, Rank, of_launch
from .ring import Ring, RingError
from .text import clean
from .wording import describe, polls

SECOND_LOOK = 0.002  # seconds
OOM_OFFSET = 40  # of ControlBlock::oom_kills in section "hang" (detectors/hang/slots/layout.h)
ABORTED_RINGS = 16  # their reports are final; the ring is opened only to tell where MPI_Abort was called


def _is_run_of_polls(call) -> bool:
    return bool(call.flags & layout.FLAG_FOLDED) and call.repeat > 1 and not call.seconds and polls(call.name)


def fill_from_ring(rank: Rank, ring: Ring) -> None:
    """Counters and the current or last call, from the ring into the rank. A final report's counters stay."""
    header = ring.header
    if rank.outcome == "running" or not rank.calls:
        rank.calls, rank.peers, rank.from_ring = ring.calls(), ring.peers(), True
    rank.phase = ring.phase
    rank.pid = rank.pid or header.pid
    for name in ("host", "mpi", "executable", "resil_version", "directory", "job"):
        setattr(rank, name, getattr(rank, name) or clean(getattr(header, name)))
    rank.world_size = rank.world_size or max(0, header.world_size)
    rank.start_time = rank.start_time or header.realtime_start_ns / 1e9
    rank.pending_requests = ring.pending_requests()
    current, last = ring.current_calls(), ring.last_call()
    own = [call for call in current if call.lane.head.tid == header.pid]
    call = (own or current or [last])[0]  # the main thread's, else the longest, else the last one
    rank.inside = bool(current)
    rank.open_calls = [(one.name, one.start) for one in current if one.start]
    if call:
        rank.call = describe(call)
        rank.site = ring.locate(call.site) if call.site else None
        rank.since = call.start if current or call.start is None else call.start + (call.seconds or 0)
        if not current and _is_run_of_polls(call) and ring.process_lives():
            # A run of polls has no end before another call ends it: whether it still goes on, a second look tells.
            time.sleep(SECOND_LOOK)
            again = ring.last_call()
            rank.inside = bool(again and again.start == call.start and again.repeat != call.repeat)
            rank.since = call.start if rank.inside else None
    elif rank.phase == "starting":
        rank.call, rank.inside, rank.since = "MPI_Init", True, rank.start_time
    seen = [t for t in (header.realtime_sync_ns / 1e9, rank.since, last.start if last else None) if t]
    rank.last_seen = max(seen) if seen else 0.0
    left = last.start + (last.seconds or 0) if last and last.start else 0.0
    rank.moved = max([left] + [call.start for call in current if call.start])
    rank.ring_path = ring.path
    if rank.phase == "stopped" and rank.exit_status is None:
        rank.exit_status = header.exit_status
    if header.term_ticks:
        rank.end_sender, rank.end_pid, rank.end_signal = clean(header.term_sender), header.term_pid, header.term_signal
        rank.end_time = ring.realtime(header.term_ticks) or 0.0
        rank.ended_by = "%s (pid %d, signal %d)" % (rank.end_sender or "a process", rank.end_pid, rank.end_signal)
        rank.oom_kills = _oom_kills(ring)
    if header.untracked_requests:  # a final report says the same under the same names
        rank.uncovered["untracked_requests"] = header.untracked_requests
    if header.unrecorded_calls:
        rank.uncovered["unrecorded_calls"] = header.unrecorded_calls


def _oom_kills(ring: Ring) -> int:
    """Processes of its control group that the out-of-memory killer had ended when this rank was ended, as it noted itself."""
    try:
        section = ring.section("hang", 1, always=False)
        if section.entries * section.stride < OOM_OFFSET + 8:
            return 0
        return min(struct.unpack("<Q", ring.read(section.offset + OOM_OFFSET, 8))[0], 1 << 20)
    except (RingError, struct.error):
        return 0


def _fill(directory: Directory, rank: Rank, path: str, collected: bool, alone: bool = False) -> bool:
    """`alone`: no report stands for the ring, so that it must itself say that it belongs here."""
    try:
        with Ring(path, follow_links=False) as ring:
            if rank.pid and ring.header.pid != rank.pid:
                if collected:
                    directory.strangers.append(Problem(path, "of another run: pid %d, not %d" % (ring.header.pid,
                                                                                                 rank.pid)))
                return False
            if ring.header.rank < 0:
                return False  # it never learned its rank
            if not of_launch(directory, ring.header.world, ring.header.launch, alone or bool(ring.header.launch_agreed)):
                directory.strangers.append(Problem(path, "of another run: launch %s" % clean(ring.header.launch, 20) or "not known"))
                return False
            if ring.key != rank.key:
                directory.problems.append(Problem(path, "holds the ring of rank %d of world %d" % ring.key[::-1]))
                return False
            fill_from_ring(rank, ring)
            for note in ring.notes:
                rank.notes.append("flight recorder: %s" % note)
            return True
    except RingError as error:
        directory.problems.append(Problem(path, "%s: %s" % (error.kind, error)))
        return False


def _count_open_calls(rank: Rank, now: float) -> None:
    """A call is added to the counters when it returns: in a hung job the time would be missing that matters."""
    for name, start in rank.open_calls:
        if name in rank.calls:
            rank.calls[name][1] += max(0.0, now - start)


def _rank_of_ring(path: str, key: tuple[int, int]) -> Rank:
    return Rank(world=key[0], rank=key[1], source=path, outcome="running")


def is_here(rank: Rank) -> bool:
    """Whether the rank's pid means its process here: the same host, not one of the same name, and no other container."""
    return rank.host == os.uname().nodename and rank.boot_id in ("", process.boot_id()) \
        and process.namespace_is_ours(rank.pid_namespace)


def _lives_without_ring(rank: Rank) -> bool:
    """A rank of this host whose ring cannot be seen: the process must be there and older than its report."""
    now = process.stat(rank.pid)
    if not now or now[0] in "ZX":
        return False
    try:
        with open("/proc/uptime", encoding="ascii") as file:
            boot = time.time() - float(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return False
    started = boot + now[2] / os.sysconf("SC_CLK_TCK")
    reported = rank.start_time or rank.modified
    return bool(reported) and started <= reported + 2


def _foreign_owner(rank: Rank) -> int:
    """The other user whose process, or whose ring in this node's memory, it is: nobody else may read that. -1: nobody's,
    or the caller's own."""
    fields = process.status(rank.pid) if rank.state == "running" else {}
    uid = process.real_uid(fields)
    if uid < 0 and rank.ring:
        try:
            uid = os.lstat(rank.ring).st_uid
        except (OSError, ValueError):
            uid = -1
    return uid if uid != os.geteuid() else -1


def _copy(source: Ring, target: str) -> None:
    """Copy with holes for zeroes, in place by rename. OSError as it comes."""
    temporary = "%s.%s.tmp" % (target, secrets.token_hex(4))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for offset in range(0, source.size, 1 << 16):
                piece = source.read(offset, min(1 << 16, source.size - offset))
                if piece.strip(b"\0"):
                    file.seek(offset)
                    file.write(piece)
            file.truncate(source.size)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _lives(live: LiveRing) -> bool:
    try:
        with Ring(live.path, follow_links=False) as ring:
            return ring.process_lives() is not False
    except RingError:
        return True  # gone, or another file: nothing to remove


def collect(directory: Directory, rings: list[LiveRing]) -> None:
    """Copies the rings of dead ranks into the report directory and removes those that no process holds any more."""
    copied = []
    for live in over(rings, "collecting flight recorders"):
        if live.alive or live.rank < 0 or live.uid != os.geteuid():
            continue
        place = directory.path if not live.world else os.path.join(directory.path, "world-%d" % live.world)
        if not same_directory(live.directory, place) and not same_directory(live.directory, directory.path):
            continue  # the directory at hand is a copy: what belongs to the original stays for the original
        known = directory.ranks.get(live.key)
        if (known and known.pid and known.pid != live.pid) or not of_launch(directory, live.world, live.key_of_launch, live.agreed):
            continue  # left by another run
        target = os.path.join(place if os.path.isdir(place) else directory.path, "rank-%05d.ring" % live.rank)
        try:
            with Ring(live.path, follow_links=False) as ring:
                _copy(ring, target)
        except (OSError, RingError) as error:
            if os.path.exists(target):  # a job that starts on this node has collected it meanwhile
                directory.rings[live.key] = target
                continue
            directory.notes.append("ring of rank %d stays in %s: %s" % (
                live.rank, os.path.dirname(live.path), clean(getattr(error, "strerror", None) or error)))
            continue
        directory.rings[live.key] = target
        copied.append(live)
    held = process.maps_any_of({live.inode for live in copied})
    for live in copied:
        if live.inode not in held and not _lives(live):
            try:
                os.unlink(live.path)
            except OSError:
                pass  # gone already, or not ours to remove: it is a copy's original, nothing is lost


def attach(directory: Directory, rings: list[LiveRing], may_collect: bool = True) -> None:
    """Fills in `state` of every rank and what the rings know. `rings`: the live ones of this job on this node."""
    rings = [ring for ring in rings if of_launch(directory, ring.world, ring.key_of_launch, ring.agreed)]
    if may_collect:
        collect(directory, rings)
    live = {ring.key: ring for ring in rings}
    for key, path in list(directory.rings.items()) + [(r.key, r.path) for r in rings]:
        if key not in directory.ranks and key[1] >= 0:
            rank = _rank_of_ring(path, key)
            if _fill(directory, rank, path, False, path == directory.rings.get(key)):
                directory.ranks[key] = rank
                size = directory.expected.get(key[0]) or 0
                directory.expected[key[0]] = max(size, rank.world_size)
    aborted = 0
    for key, rank in over(directory.ranks.items(), "reading flight recorders"):
        if rank.outcome != "running":
            rank.state = rank.outcome
            aborted += rank.state == "aborted"
            if key in directory.rings and not rank.from_ring and (
                    not rank.calls or (rank.state == "aborted" and aborted <= ABORTED_RINGS)):
                _fill(directory, rank, directory.rings[key], True)
            continue
        mine = live.get(key)
        if mine and rank.pid and mine.pid != rank.pid:
            mine = None
        if mine and mine.alive:
            rank.state = "running"
        elif mine or key in directory.rings:
            rank.state = "killed"
        elif not is_here(rank):
            rank.state = "unknown"
        else:
            rank.state = "running" if _lives_without_ring(rank) else "killed"
        if not rank.from_ring:
            path = mine.path if mine and (mine.alive or key not in directory.rings) else directory.rings.get(key)
            if path:
                _fill(directory, rank, path, path == directory.rings.get(key))
        # A ring that says so itself knows better than a report that was not written any more.
        if rank.from_ring and rank.state == "killed" and rank.phase in ("finished", "aborted", "stopped"):
            rank.state = rank.phase
        if rank.state == "running" and rank.from_ring:
            _count_open_calls(rank, time.time())
        if not rank.from_ring and is_here(rank):
            rank.owner = _foreign_owner(rank)
        if rank.seconds is None and rank.start_time:
            end = time.time() if rank.state == "running" else max(rank.end_time, rank.last_seen)
            rank.seconds = max(0.0, end - rank.start_time) if end else None
    for rank in directory.rankless:
        rank.state = "unknown" if not is_here(rank) else "running" if _lives_without_ring(rank) else "killed"
    for rank in directory.ranks.values():
        if rank.seconds is None and rank.state in ("finished", "aborted", "stopped") and rank.start_time:
            rank.seconds = max(0.0, rank.modified - rank.start_time) if rank.modified else None
