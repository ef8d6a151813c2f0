# SPDX-License-Identifier: Apache-2.0
"""Finds live rings on this node and the job that a word on the command line means. Reads /dev/shm, /proc and names of
directories; changes nothing.

JOB is a report directory, a scheduler's job id or the pid of a launcher (or of one rank); none means the only job of
this user on this node.
"""

from __future__ import annotations

import dataclasses
import os
import pwd
import re
import stat

from . import process, runs
from .ring import Ring, RingError
from .text import clean, plural

_LIVE_NAME = re.compile(r"resil-(\d{1,10})-(.+)-(\d{1,9})-(-?\d{1,9})(?:-[0-9a-f]{16})?\.ring$")


class Usage(Exception):
    """What was asked for cannot be done; exit status 2."""


@dataclasses.dataclass
class LiveRing:
    path: str
    uid: int          # owner of the file
    inode: tuple      # (device as /proc/PID/maps writes it, inode)
    rank: int
    world: int
    pid: int
    start_ticks: int
    host: str
    launch: str
    directory: str    # of this rank, as the rank knows it; "" for none
    dumps: int
    alive: bool       # the process that made it still runs
    key_of_launch: str = ""
    agreed: bool = False
    pid_is_ours: bool = True  # the pid means the rank's process here; else it is another container's

    @property
    def key(self) -> tuple[int, int]:
        return self.world, self.rank


@dataclasses.dataclass
class Job:
    """Rings on this node that belong together. `directory`: report directory of the first world, "" for none."""
    directory: str
    rings: list

    def title(self) -> str:
        pids = sorted(ring.pid for ring in self.rings)
        first = next((ring for ring in self.rings if ring.alive and ring.pid_is_ours), None)
        name = clean(process.status(first.pid).get("Name", ""), 20) if first else ""
        return "%-40s %s%s, pid %d%s%s" % (
            clean(self.directory or "(no directory) " + self.rings[0].launch), name + ", " if name else "", plural(len(pids), "rank"), pids[0],
            "…" if len(pids) > 1 else "", "" if any(r.alive for r in self.rings) else "  (all processes are gone)")


def shm_directory() -> str:
    """Where ranks keep their rings. RESIL_TOOL_SHM_DIR is for tests."""
    return os.environ.get("RESIL_TOOL_SHM_DIR") or "/dev/shm"


def root_of(directory: str) -> str:
    """Report directory of the whole job, from that of a rank in world-N."""
    head, tail = os.path.split(directory.rstrip("/"))
    return head if re.fullmatch(r"world-\d+", tail) else directory.rstrip("/")


def owner_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid


def scan(uid: int | None = None) -> list[LiveRing]:
    """Readable rings of this node. uid: of that user only (default: the caller); -1: of everyone who lets us read."""
    uid = os.geteuid() if uid is None else uid
    rings, directory = [], shm_directory()
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    for name in names:
        if not _LIVE_NAME.match(name):
            continue
        path = os.path.join(directory, name)
        try:
            with Ring(path, follow_links=False) as ring:
                header = ring.header
                # A container of this machine may have another host name; what is in its memory is here.
                if (uid >= 0 and ring.status.st_uid != uid) or (header.host != os.uname().nodename and not header.held):
                    continue
                lives = ring.process_lives()
                rings.append(LiveRing(
                    path, ring.status.st_uid, (process.device_text(ring.status.st_dev), ring.status.st_ino),
                    header.rank, header.world, header.pid, ring.start_ticks, header.host, header.job,
                    header.directory, header.dumps, lives is not False, header.launch, bool(header.launch_agreed),
                    ring.pid_is_ours))
        except RingError:
            continue  # half-made, foreign or another version's: nobody to ask
    return rings


def strangers(word: str) -> list[str]:
    """Users other than the caller whose rings on this node go by this scheduler id or launch name."""
    found = set()
    try:
        names = os.listdir(shm_directory())
    except OSError:
        names = []
    for name in names:
        parts = _LIVE_NAME.match(name)
        if parts and int(parts.group(1)) != os.geteuid() and word and (
                parts.group(2) == word or parts.group(2).startswith(word + ".")):
            try:
                status = os.lstat(os.path.join(shm_directory(), name))
            except OSError:
                continue
            if status.st_uid == int(parts.group(1)) and stat.S_ISREG(status.st_mode):  # whoever makes a file names it
                found.add(owner_name(status.st_uid))
    return sorted(found)


def group(rings: list[LiveRing]) -> list[Job]:
    jobs: dict[str, Job] = {}
    for ring in rings:
        directory = root_of(ring.directory) if ring.directory else ""
        nowhere = "\0" + (ring.key_of_launch if ring.agreed else ring.launch)
        jobs.setdefault(directory or nowhere, Job(directory, [])).rings.append(ring)
    return [jobs[name] for name in sorted(jobs)]


def _has_id(ring: LiveRing, word: str) -> bool:
    base = os.path.basename(root_of(ring.directory)) if ring.directory else ""
    if ring.launch and (ring.launch == word or ring.launch.startswith(word + ".")) or runs.means(base, word):
        return True
    return ring.alive and ring.pid_is_ours and word in process.scheduler_ids(process.environment(ring.pid))


def listing(jobs: list[Job]) -> str:
    return "\n".join("  " + job.title() for job in jobs)


def same_directory(one: str, other: str) -> bool:
    return bool(one and other) and os.path.realpath(one) == os.path.realpath(other)


def in_directory(path: str, rings: list[LiveRing]) -> list[LiveRing]:
    """Rings whose ranks report to `path` or to a world-N in it."""
    return [r for r in rings if r.directory and (same_directory(root_of(r.directory), path)
                                                 or same_directory(r.directory, path))]


def below(path: str, rings: list[LiveRing]) -> list[LiveRing]:
    """Those of launches, too, that found `path` in use and report to a directory of their own in it."""
    return [r for r in rings if r.directory and (
        same_directory(root_of(r.directory), path) or same_directory(r.directory, path) or (
            runs.is_default(os.path.basename(root_of(r.directory)))
            and same_directory(os.path.dirname(root_of(r.directory)), path)))]


def _of_directory(word: str, live_only: bool) -> Job:
    """The newest launch whose reports are there; live_only: the one that runs. Where several run, the user must say."""
    rings = scan(-1 if os.geteuid() == 0 else None)
    found = group(below(word, rings))
    living = [job for job in found if any(ring.alive for ring in job.rings)]
    if live_only and len(living) > 1:
        raise Usage("several jobs that run report to %s; name one by its directory:\n%s" % (clean(word), listing(living)))
    if live_only and living:
        return living[0]
    newest = runs.newest(word)
    return Job(newest, in_directory(newest, rings))


def resolve(word: str | None, live_only: bool = False) -> Job:
    """The job that `word` means. live_only: without a word, jobs whose processes are all gone do not count.
    Raises Usage with a list when there is none or more than one."""
    if word is not None and (os.path.isdir(word) or "/" in word):
        if not os.path.isdir(word):
            raise Usage("%s is not a directory" % clean(word))
        return _of_directory(word, live_only)
    if word is None:
        return _the_only_job(live_only)
    if not word:
        raise Usage("an empty name is no job")
    rings = scan(-1 if os.geteuid() == 0 else None)
    by_id = [ring for ring in rings if _has_id(ring, word)]
    pid = int(word) if word.isascii() and word.isdigit() and len(word) < 10 else 0
    by_pid = [ring for ring in rings if ring.alive and ring.pid_is_ours and pid > 1 and pid in process.ancestors(ring.pid)]
    jobs = group(by_id)
    if by_pid and not set(r.path for r in by_pid) <= set(r.path for r in by_id):
        jobs += group(by_pid)
    if len(jobs) == 1:
        return jobs[0]
    if jobs:
        raise Usage("%s means more than one job; name one by its directory:\n%s" % (clean(word), listing(jobs)))
    directories = [name for name in runs.directories(".") if runs.means(name, word)]
    if len(directories) == 1 and not live_only:
        return Job(os.path.abspath(directories[0]), [])
    if directories:
        raise Usage("no rank of job %s runs on this node; reports of such a name are here:\n  %s"
                    % (clean(word), "\n  ".join(map(clean, directories))))
    raise Usage(_why_not(word, pid))


def _why_not(word: str, pid: int) -> str:
    owners = strangers(word)
    if owners:
        return "job %s belongs to %s: refused" % (clean(word), ", ".join(owners))
    now = process.stat(pid) if pid else None
    if now:
        fields = process.status(pid)
        if process.real_uid(fields) != os.geteuid() and os.geteuid() != 0:
            return "process %d belongs to %s: refused" % (pid, owner_name(process.real_uid(fields)))
        name = clean(fields.get("Name", ""), 20)
        hint = "; tasks of srun are not its children: give the Slurm job id" if name == "srun" else ""
        return "process %d (%s) started no rank that carries resil%s" % (pid, name, hint)
    return "no job %s on this node: neither a report directory, nor a scheduler's id, nor a launcher's pid" % (
        clean(word))


def reporting_here(found: list[Job]) -> list[Job]:
    """Those whose reports are in the current directory, or a level or more below it."""
    here = os.path.realpath(".").rstrip("/") + "/"
    return [job for job in found if job.directory and (os.path.realpath(job.directory) + "/").startswith(here)]


def _the_only_job(live_only: bool) -> Job:
    jobs = group(scan())
    living = [job for job in jobs if any(ring.alive for ring in job.rings)]
    candidates = living or ([] if live_only else jobs)
    here = reporting_here(candidates)
    if len(here) == 1 and len(candidates) > 1:
        return here[0]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise Usage("several jobs of yours are on this node; name one by its directory:\n%s" % listing(candidates))
    raise Usage("no rank of yours that carries resil runs on this node")
