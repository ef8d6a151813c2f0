# SPDX-License-Identifier: Apache-2.0
"""stacks-N.json: stacks of all ranks' threads, taken by the helper threads of their nodes without a stop, merged by the root. Reads files
that another process wrote; what makes no sense is left out."""

from __future__ import annotations

import itertools
import os
import re
import time

from . import symbols
from .text import clean, plural, ranges
from .values import Invalid, integer, items, parse_object, read_bytes, text

MOST_RANKS = 4096  # of one entry
MOST_SITES = 400
_FILE = re.compile(r"stacks-\d{1,6}\.json$")
_FRAME = re.compile(r"([^\n]{1,100})\+0x([0-9a-f]{1,16})$")
_PYTHON = re.compile(r"(.{1,100}) at ([^/\n]{1,60}?)(?::(\d{1,9}))?$")
_RANKS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?$")
_PAUSE = 0.03


def files(directory: str) -> list[str]:
    try:
        return sorted(filter(_FILE.match, os.listdir(directory)), key=lambda name: int(name[7:-5]))
    except OSError:
        return []


def read(path: str) -> dict | None:
    try:
        return parse_object(read_bytes(path))
    except Invalid:
        return None  # not complete yet, or no such file


def of(directory: str, owner: str, seconds: float = 0.0) -> dict:
    """What was gathered with hang-N.json or why-N.json; {} when nothing comes within that time."""
    deadline = time.monotonic() + seconds
    while True:
        for name in reversed(files(directory)):
            found = read(os.path.join(directory, name))
            if found and text(found.get("of"), 64) == owner:
                return found
        if time.monotonic() >= deadline:
            return {}
        time.sleep(_PAUSE)


def members(words: str) -> list[int]:
    """Ranks of "0-3,7"; what is no such list has none."""
    found: list[int] = []
    for word in words.split(","):
        match = _RANKS.match(word)
        if not match:
            return []
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if last < first or last - first >= MOST_RANKS or len(found) >= MOST_RANKS:
            return found
        found += range(first, last + 1)
    return found


def _entries(told: dict) -> list[dict]:
    return [one for one in items(told.get("stacks"))[:1024] if isinstance(one, dict)]


def _frames(entry: dict) -> list[str]:
    return [text(frame, 120) for frame in items(entry.get("frames"))[:64]]


def _known(frames: list[str], objects: dict[str, str], not_after: float) -> dict[str, list[dict]]:
    """{frame: [function, source, object], what was inlined there first} of object+0xoffset."""
    sites, places = [], {}
    for frame in frames:
        match = _FRAME.match(frame)
        if match and match.group(1) in objects and len(sites) < MOST_SITES:
            places[frame] = (objects[match.group(1)], int(match.group(2), 16))
            sites.append(places[frame])
    named = symbols.chains(sites, not_after) if sites else {}
    found = {}
    for frame in frames:
        match = _FRAME.match(frame)
        name = match.group(1) if match else ""
        python = None if match else _PYTHON.match(frame)
        if python:
            function, file, line = (clean(part or "", 100) for part in python.groups())
            found[frame] = [{"function": function, "source": "%s:%s" % (file, line) if line else "", "object": file, "python": True}]
            continue
        found[frame] = [{"function": function or "?", "source": source, "object": name} for function, source in named.get(places.get(frame, ("", 0)), [])] \
            or [{"function": clean(frame, 100), "source": "", "object": ""}]
    return found


def stacks(told: dict, world: int, objects: dict[str, str], not_after: float) -> dict:
    """{(world, rank): {thread number: frames, the innermost first}} as remote_stacks.tree takes them."""
    entries = _entries(told)
    known = _known(sorted({frame for entry in entries for frame in _frames(entry)}), objects, not_after)
    found: dict = {}
    for number, entry in enumerate(entries):
        outer = list(itertools.takewhile(lambda frame: not frame.startswith("libresil.so+"), _frames(entry)))  # below it lies MPI
        frames = [one for frame in reversed(outer) for one in known[frame]]
        for rank in members(text(entry.get("ranks"), 400)):
            if frames and len(found) < MOST_RANKS:
                found.setdefault((world, rank), {})[number] = frames
    for threads in found.values():  # who is in the program's own code comes first
        for number in sorted(threads, key=lambda one: not any(frame["source"] for frame in threads[one])):
            threads[number] = threads.pop(number)
    return found


def of_libraries(told: dict) -> set[int]:
    """Numbers, as in stacks(), of threads that have begun inside MPI_Init."""
    return {number for number, entry in enumerate(_entries(told)) if entry.get("library") is True}


def abnormal(told: dict, objects: dict[str, str], not_after: float) -> list[str]:
    """Sunway's filter: threads whose program counter was the same in all samples, by place, the smallest group first."""
    groups: dict[str, list] = {}
    for entry in _entries(told):
        frames = _frames(entry)
        if entry.get("steady") is True and frames:
            group = groups.setdefault(frames[-1], [set(), 0, entry.get("sleeps") is True])
            group[0].update(members(text(entry.get("ranks"), 400)))
            group[1] += integer(entry.get("threads"))
    known = _known(sorted(groups), objects, not_after)
    samples = integer(told.get("samples"))
    out = []
    for frame, (ranks, threads, sleeps) in sorted(groups.items(), key=lambda item: item[1][1]):
        if len(ranks) == integer(told.get("ranks")) != 1:
            continue  # all ranks have such a thread: it is the library's
        one = known[frame][0]
        where = "%s at %s" % (one["function"], one["source"]) if one["source"] else one["function"]
        out.append("%s of rank%s %s at the same place in all of %d samples: %s%s" % (
            plural(threads, "thread"), "" if len(ranks) == 1 else "s", ranges(sorted(ranks)), samples, where, ", in a system call" if sleeps else ""))
    return out


__all__ = ["abnormal", "files", "members", "of", "of_libraries", "read", "stacks"]
