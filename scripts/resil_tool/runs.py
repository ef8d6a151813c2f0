# SPDX-License-Identifier: Apache-2.0
"""Which launches a directory holds: its own reports, and those of later launches in resil-* below it. Reads names and
launch.json; changes nothing."""

from __future__ import annotations

import dataclasses
import os
import re
import time

from .text import clean
from .values import Invalid, moment, parse_object, read_bytes, text

MOST = 10000  # directories below one

_OURS = re.compile(r"(rank-\d{1,9}\.(json|ring)|node-.+\.jsonl|hang-\d{1,9}\.json|job\.json|world-\d{1,9})$")
_NAME = re.compile(r"resil-(?:.*-\d{8}T\d{4}Z-)?(.+)$")
_KEY = re.compile(r"[0-9a-f]{16}$")


@dataclasses.dataclass
class Launch:
    """launch.json of one directory; empty members where there is none."""
    key: str = ""       # the launch key; "" until the ranks have agreed
    time: float = 0.0   # seconds since 1970
    program: str = ""


@dataclasses.dataclass
class Run:
    path: str
    time: float
    program: str
    known: bool = True  # from launch.json


def read_launch(directory: str) -> Launch:
    try:
        value = parse_object(read_bytes(os.path.join(directory, "launch.json"), 1 << 16))
    except Invalid:
        return Launch()
    key = text(value.get("launch"), 32)
    return Launch(key if _KEY.match(key) else "", moment(value.get("time")), text(value.get("program"), 48))


def ids_of(name: str) -> list[str]:
    """What a directory's name says about the job: "4711.0" of resil-lmp-20261122T1315Z-4711.0, also of …-4711.0-2."""
    found = _NAME.match(name)
    if not found:
        return []
    return [found.group(1), re.sub(r"-\d{1,4}$", "", found.group(1))]


def is_default(name: str) -> bool:
    return bool(_NAME.match(name)) and name != "resil-record"


def means(name: str, word: str) -> bool:
    """Whether the job of a directory of that name goes by `word`: its id, or the scheduler's part of it."""
    words = {re.sub(r"[^A-Za-z0-9.-]", "_", one) for one in (word, re.sub(r"\[(\d+)\]$", r"_\1", word))}  # as the library writes it
    return any(one == word or one.startswith(word + ".") for one in ids_of(name) for word in words)


def directories(path: str) -> list[str]:
    """Names of default report directories in `path`; no links."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.name.startswith("resil-")
                          and entry.name != "resil-record" and entry.is_dir(follow_symlinks=False))[:MOST]
    except OSError:
        return []


def holds_reports(path: str) -> bool:
    try:
        return any(_OURS.match(name) for name in os.listdir(path))
    except OSError:
        return False


def within(path: str) -> list[str]:
    """Directories in `path` that hold reports, whatever they are called: RESIL_DIR was a name of the user's."""
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))[:MOST]
    except OSError:
        return []
    return [name for name in names if holds_reports(os.path.join(path, name))]


def _run(path: str) -> Run | None:
    """None: no reports there."""
    try:
        names = os.listdir(path)
    except OSError:
        return None
    if not any(_OURS.match(name) for name in names):
        return None
    launch = read_launch(path)
    known = bool(launch.time)
    if not known:  # an older version's
        times = [os.lstat(os.path.join(path, name)).st_mtime for name in names[:64] if _OURS.match(name)
                 and os.path.lexists(os.path.join(path, name))]
        launch.time = max(times, default=0.0)
    return Run(path, launch.time, launch.program, known)


def find(path: str) -> list[Run]:
    """All launches whose reports are in `path`, the newest first."""
    path = os.path.abspath(path)
    found = [_run(path)] + [_run(os.path.join(path, name)) for name in directories(path)]
    return sorted((run for run in found if run), key=lambda run: (run.known, run.time, len(run.path), run.path), reverse=True)


def newest(path: str) -> str:
    """The directory of the newest launch; `path` itself when there is none."""
    found = find(path)
    return found[0].path if found else os.path.abspath(path)


def others(path: str) -> list[Run]:
    """The other launches beside that in `path`, in it and in the directory that it was made in, the newest first."""
    above, name = os.path.split(os.path.abspath(path))
    beside = find(above) if name.startswith("resil-") and os.path.exists(os.path.join(above, "launch.json")) else []
    seen = {run.path: run for run in find(path) + beside if run.path != os.path.abspath(path)}
    return sorted(seen.values(), key=lambda run: (run.time, run.path), reverse=True)


def line(run: Run, base: str) -> str:
    """How a run is listed."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.time)) if run.time else "?"
    return "%s (%s%s)" % (clean(os.path.relpath(run.path, base), 80), when, ", " + run.program if run.program else "")


def launch_number(value) -> str:
    """A launch key as reports tell it; "" for anything else."""
    key = text(value, 32)
    return key if _KEY.match(key) else ""

