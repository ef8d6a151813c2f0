# SPDX-License-Identifier: Apache-2.0
"""How long a job has lasted, for how long nobody has moved, and who ended it. Works on records; reads hang.log, looks a second time
at rings of ranks that run, and asks Slurm for a job that it has ended."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time

from . import attach, runs
from .ring import Ring, RingError
from .text import clean, integer, plural, ranks_phrase, seconds_text
from .values import Invalid, read_bytes

STILL_SECONDS = 30.0  # as RESIL_HANG_NOTICE: shorter pauses are a program's own
MOST_LOG = 1 << 20
MOST_KERNEL_LINES = 100000

_LONG_WAIT = re.compile(r"rank \d{1,9} has been in ")
_POLL = re.compile(r"MPI_(Test|Iprobe|Improbe|Request_get_status|Win_test|Parrived)", re.IGNORECASE)
_LINE = re.compile(r"(\d{15,20}) (launch|notice|suspected|withdrawn|verified|proved) (.*)")
_LAUNCHER = re.compile(r"(mpirun|mpiexec|orterun|prterun|prte|orted|hydra)")
_SHELL = re.compile(r"(ba|da|z|k|tc|c)?sh$|kill$|pkill$|killall$|python|htop$|top$|sudo$")
_KILLED = re.compile(r"\d+,\d+,(\d{1,18}),[^;]*;(?:Memory cgroup out|Out) of memory:? Killed process (\d{1,10}) ")
_MEMORY = re.compile(r"rank (\d{1,9}) has ended without MPI_Finalize; the out-of-memory killer")
_SLURM_JOB = re.compile(r"(\d{1,10}(?:_\d{1,10})?)(?:\.\d{1,10})?$")
_SLURM_STATES = {"TIMEOUT": "its time limit", "CANCELLED": "scancel", "OUT_OF_MEMORY": "the out-of-memory killer", "NODE_FAIL": "a failed node",
                 "PREEMPTED": "preemption", "DEADLINE": "its deadline", "BOOT_FAIL": "a failed node"}


def read_log(directory) -> list[tuple[float, str, str]]:
    """hang.log of this launch: (seconds since 1970, event, sentence)."""
    try:
        data = read_bytes(os.path.join(directory.path, "hang.log"), MOST_LOG, directory.owner)
    except Invalid:
        return []
    known, launch, events = set(filter(None, directory.keys.values())), "", []
    for line in data.decode("utf-8", "replace").split("\n"):
        found = _LINE.match(line)
        if found and found.group(2) == "launch":
            launch = found.group(3).strip()
        elif found and (not known or not launch or launch in known):
            events.append((int(found.group(1)) / 1e9, found.group(2), clean(found.group(3), 600)))
    return events


def one_sender(ranks) -> None:
    """Slurm's daemon has another pid on each node: ranks that the same program ended by the same signal are told together."""
    pids: dict[tuple, set] = {}
    for rank in ranks:
        if rank.ended_by:
            pids.setdefault((rank.end_sender, rank.end_signal), set()).add((rank.host, rank.end_pid))
    for rank in ranks:
        many = len(pids.get((rank.end_sender, rank.end_signal), ()))
        if rank.ended_by and many > 1:
            rank.ended_by = "%s (%d processes, signal %d)" % (rank.end_sender or "processes", many, rank.end_signal)


def reason(sender: str) -> str:
    """What the name of a sender says."""
    if sender.startswith("slurmstepd") or sender == "srun":
        return "Slurm: a time limit, scancel, or a task that failed"
    if _LAUNCHER.match(sender):
        return "the launcher, which was told to end, or saw a rank end"
    if sender == "timeout":
        return "the command timeout, at its limit"
    if _SHELL.match(sender):
        return "an operator or a script"
    if sender.startswith("process "):
        return "gone before its name was read: kill, pkill, or a script"
    return ""


def slurm_reason(directory, ranks, senders) -> str:
    """Slurm's own word, where the job was ended by it and it still knows the job; "" otherwise."""
    if not any(sender.startswith("slurmstepd") for sender in senders):
        return ""
    names = runs.ids_of(os.path.basename(directory.path)) + [rank.job for rank in ranks[:1]]
    ids = [found.group(1) for found in map(_SLURM_JOB.match, names) if found]
    tool = shutil.which("scontrol")
    if not ids or not tool:
        return ""
    try:
        done = subprocess.run([tool, "-o", "show", "job", ids[0]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=3, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    found = re.search(r"\bJobState=([A-Z_]+)", done.stdout.decode("utf-8", "replace"))
    return _SLURM_STATES.get(found.group(1), "") if found else ""


def _end(ranks, log, directory) -> tuple[float, bool]:
    """(last sign of life, whether that is the end)."""
    signs = [event[0] for event in log]
    signs += [finding["time"] for finding in directory.findings if finding.get("time")]
    exact = True
    for rank in ranks:
        if rank.state in ("finished", "aborted", "stopped") and rank.start_time and rank.seconds is not None:
            signs.append(rank.start_time + rank.seconds)
        elif rank.end_time:
            signs.append(rank.end_time)
        else:
            exact = False
            signs.append(rank.last_seen)
    for path in list(directory.dumps)[:4096]:
        try:
            signs.append(os.stat(path).st_mtime)
        except OSError:
            pass
    return max(signs, default=0.0), exact


def _calls(ranks) -> dict:
    """MPI calls so far, by rank, of the rings that can be read."""
    counted = {}
    for rank in ranks:
        try:
            with Ring(rank.ring_path, follow_links=False) as ring:
                counted[rank.key] = sum(lane.head.calls for lane in ring.lanes())
        except (RingError, OSError):
            pass
    return counted


def tell(directory, ranks, now: float | None = None) -> dict:
    """Duration, standstill and end of the job. `still_seconds`: nobody has entered or left a call for so long, None where that is
    not known or too short to speak of; `stands`: it runs, and is at a standstill."""
    now = time.time() if now is None else now
    log = read_log(directory)
    alive = [rank for rank in ranks if rank.state == "running"]
    gone = [rank for rank in ranks if rank.state == "killed"]
    start = min((rank.start_time for rank in ranks if rank.start_time), default=None)
    end, exact = (now, True) if alive else _end(ranks, log, directory)
    told = {"seconds": max(0.0, end - start) if start and end else None, "end_known": exact, "still_seconds": None, "stands": False,
            "inside": [], "outside": [], "polling": [], "senders": {}, "accused": "", "slurm": "",
            "memory": [], "memory_some": []}
    for rank in gone:
        _until(rank, end)
    told["memory"], told["memory_some"] = _by_memory(gone, log, start)
    those = alive or gone
    seen = len(ranks) >= sum(directory.expected.values()) and not any(rank.state == "unknown" for rank in ranks) \
        and not directory.rankless  # who cannot be seen may move
    if those and start and seen and all(rank.from_ring and rank.moved for rank in those):
        moved = max(rank.moved for rank in those)
        still = end - moved
        inside = [rank.key for rank in those if rank.inside]
        outside = [rank.key for rank in those if not rank.inside]
        if still >= STILL_SECONDS:
            told.update(still_seconds=still, inside=inside, outside=outside)
            if alive:
                told["stands"], told["polling"] = _stands(alive, inside, outside)
    for rank in gone:
        if rank.end_sender or rank.end_signal:
            sender = rank.end_sender or ("process %d" % rank.end_pid if rank.end_pid else "")  # 0: of another pid namespace
            told["senders"].setdefault((sender, rank.end_signal), []).append(rank.key)
    accusations = [sentence for _, what, sentence in log if what in ("notice", "suspected")]
    if accusations and not (log and log[-1][1] == "withdrawn"):  # who waits longest is a victim: who is waited for says more
        telling = [sentence for sentence in accusations if not _LONG_WAIT.match(sentence)] or accusations
        told["accused"] = telling[-1].partition(" If this is expected, ")[0]
    told["slurm"] = slurm_reason(directory, ranks, [sender for sender, _ in told["senders"]])
    return told


def kernel_kills(since: float, path: str = "/dev/kmsg") -> dict[int, float]:
    """{pid: when, seconds since 1970} of processes that the kernel's log says were killed for lack of memory since then; {} where it may
    not be read."""
    boot, found = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC), {}
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        for _ in range(MOST_KERNEL_LINES):
            try:
                records = os.read(descriptor, 8192).decode("utf-8", "replace")  # one a read, of the device
            except BrokenPipeError:
                continue  # it was overwritten meanwhile
            if not records:
                break
            for match in filter(None, map(_KILLED.match, records.split("\n"))):
                if boot + int(match.group(1)) / 1e6 >= since - 1:
                    found[int(match.group(2))] = boot + int(match.group(1)) / 1e6
    except OSError:  # EAGAIN: its end
        pass
    finally:
        os.close(descriptor)
    return found


def _by_memory(gone, log, start: float | None) -> tuple[list, list]:
    """(ranks that the out-of-memory killer has ended, [(how many, of which ranks)] where that is not known of each). Ranks left without
    a trace; the killer's are those that the kernel's log of this machine or hang.log names. On a node of which neither names one, what a
    rank noted that was ended after them counts: kills in the job's control group. Fewer kills than ranks that left so are some of
    them: a launcher may send SIGKILL so soon after SIGTERM that a rank has no time to note it (prterun 5.0.7, on a busy node)."""
    silent = [rank for rank in gone if not rank.ended_by]
    here = [rank for rank in silent if rank.pid and attach.is_here(rank)]
    kills = kernel_kills(start) if here and start else {}
    named = {int(found.group(1)) for _, what, sentence in log if what == "notice" and (found := _MEMORY.match(sentence))}
    some = []
    for host in dict.fromkeys(rank.host for rank in silent):
        those = [rank for rank in silent if rank.host == host]
        killed = [rank for rank in those if rank.rank in named or rank in here and rank.pid in kills]
        counted = max((rank.oom_kills for rank in gone if rank.host == host), default=0)
        if not killed and counted >= len(those):
            killed = those
        elif not killed and counted:
            some.append((counted, [rank.key for rank in those]))
        for rank in killed:
            rank.by_memory = True
    return [rank.key for rank in silent if rank.by_memory], some


def memory(told: dict) -> str:
    """Which ranks the out-of-memory killer has ended, as part of a sentence; "" none."""
    those = [ranks_phrase(told["memory"])] if told["memory"] else []
    those += ["%d of %s" % (count, ranks_phrase(keys)) for count, keys in told["memory_some"]]
    return "%s ran out of memory: the kernel's out-of-memory killer has ended processes of this job there" % " and ".join(those) if those else ""


def _until(rank, end: float) -> None:
    """A rank that was ended lasted as long as the job, as far as anybody knows, and its open calls with it."""
    if not rank.from_ring or rank.outcome != "running" or not rank.start_time or end < rank.start_time:
        return
    rank.seconds = end - rank.start_time
    for name, start in rank.open_calls:
        if start < end:
            rank.calls.setdefault(name, [0, 0.0, 0])[1] += end - start


def _stands(alive, inside, outside) -> tuple[bool, list]:
    """A second look tells a rank that makes calls all the time, whose record lags, from one that makes none."""
    if not inside or len(outside) > len(inside):
        return False, []  # where most compute, that is their work
    rings = [rank for rank in alive if rank.ring_path and not rank.inside]
    before = _calls(rings)
    if before:
        time.sleep(0.05)
    after = _calls(rings)
    busy = [rank for rank in rings if after.get(rank.key, 0) != before.get(rank.key, 0)]
    if any(not _POLL.match(rank.call) for rank in busy):
        return False, []
    return True, [rank.key for rank in busy]


def standstill(told: dict) -> str:
    """Who is where, of a job at a standstill."""
    was = "is" if told["stands"] else "was"
    were = "are" if told["stands"] else "were"
    words = []
    if told["outside"]:
        words.append("%s %s outside MPI" % (ranks_phrase(told["outside"]), was if len(told["outside"]) == 1 else were))
    if told["polling"]:
        words.append("%s in vain" % (ranks_phrase(told["polling"]) + (" polls" if len(told["polling"]) == 1 else " poll")))
    if told["inside"]:
        count = len(told["inside"])
        verb = "waited" if not told["stands"] else "waits" if count == 1 else "wait"
        words.append("%s %s in it" % (plural(count, "rank"), verb) if told["outside"] else "all %s %s inside MPI" % (integer(count), were))
    return ", ".join(words)


def how(told: dict, first: list) -> list[str]:
    """The end of a job whose ranks were ended, as parts of a sentence. `first`: ranks that nobody is known to have ended."""
    parts = []
    for (sender, signal), keys in sorted(told["senders"].items()):
        if not first:
            why = "; ".join(filter(None, (reason(sender), "Slurm says: %s" % told["slurm"] if told["slurm"] and
                                          sender.startswith("slurmstepd") else "")))
            parts.append("%s %s ended by %s with signal %d%s" % (ranks_phrase(keys), "was" if len(keys) == 1 else "were",
                                                                 sender or "a process outside this container", signal,
                                                                 " (%s)" % why if why else ""))
    if told["still_seconds"] is not None:
        parts.append("nobody had moved for %s: %s" % (seconds_text(told["still_seconds"]), standstill(told)))
    return parts
