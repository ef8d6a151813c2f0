# SPDX-License-Identifier: Apache-2.0
"""The stacks of many ranks as one tree: equal beginnings once, with the ranks that have them. From the main thread's stack in the
newest dump file of each rank, call sites as function and line where addr2line knows them."""

from __future__ import annotations

import re

from . import records, symbols
from .text import clean, rank_set

MOST_DUMPS = 4096
MOST_BYTES = 64 << 10  # the first thread stands in front
MOST_SITES = 512
MOST_DEPTH = 64
MOST_CHILDREN = 40

_FRAME = re.compile(r"    #(\d{1,3}) (.+)$")
_START = re.compile(r"(__libc_start|_start\b|\(below main\)|libc\.so\.6\+0x)")
_MPI = re.compile(r"(P?MPI_[A-Z]\w*|p?mpi_[a-z0-9_]+_+)(\+0x[0-9a-f]+)? \(")  # of a dynamic symbol table, with its object
_MAIN = re.compile(r"main( at | in |$)")


def newest(dumps: dict) -> dict:
    """(world, rank): path of the dump with the highest number."""
    best: dict[tuple, tuple] = {}
    for path, key in dumps.items():
        number = re.search(r"-(\d{1,9})\.txt$", path)
        if key[1] >= 0 and number:
            best[key] = max(best.get(key, (-1, "")), (int(number.group(1)), path))
    return {key: best[key][1] for key in sorted(best)[:MOST_DUMPS]}


def main_thread(text: str) -> list[str]:
    """Frames of the main thread, the outermost first."""
    frames: list[str] = []
    inside = False
    for line in text.split("\n"):
        if line.startswith("  Thread "):
            if inside:
                break
            inside = ", the main thread" in line
        elif inside:
            found = _FRAME.match(line)
            if found:
                frames.append(clean(found.group(2), 160))
            elif line.strip():
                break
    return frames[:MOST_DEPTH][::-1]


def _from_main(frames: list[str]) -> list[str]:
    """Without what starts a program, which stands above main."""
    for depth, frame in enumerate(frames[:6]):
        if _MAIN.match(frame):
            return frames[depth:]
    first = 0
    while first < len(frames) - 1 and _START.match(frames[first]):
        first += 1
    return frames[first:]


def _expanded(frame: str, objects: dict[str, str], known: dict) -> list[str]:
    """What was inlined there, the outermost first; a frame that is not known as it is."""
    sites = symbols.sites_in(frame, objects)
    chain = known.get(sites[0]) if len(sites) == 1 else None
    return [" at ".join(filter(None, pair)) for pair in reversed(chain)] if chain else [frame]


def _to_mpi(frames: list[str]) -> list[str]:
    """Down to the MPI call: what is below it is the library's own."""
    for depth, frame in enumerate(frames):
        if _MPI.match(frame):
            frames = frames[:depth + 1]
            break
    return [frame for frame in frames if not frame.startswith("libresil.so+")]


def tree(directory) -> dict | None:
    """{"frame", "ranks", "count", "children"} of all ranks with a dump, the smallest group first; None without dumps."""
    stacks, objects, problems = {}, {}, 0
    for key, path in newest(directory.dumps).items():
        try:
            text = records.read_bytes(path, 4 << 20, directory.owner).decode("utf-8", "replace")
        except records.Invalid:
            problems += 1
            continue
        frames = main_thread(text)
        if frames:
            stacks[key] = frames
            if len(objects) < 64:
                objects.update(symbols.objects_of_dump(text))
    if not stacks:
        return None
    distinct = dict.fromkeys(frame for frames in stacks.values() for frame in frames)
    started = min((rank.start_time for rank in directory.ranks.values() if rank.start_time), default=0.0)
    known = symbols.chains([site for frame in list(distinct)[:MOST_SITES] for site in symbols.sites_in(frame, objects)], started)
    words = {frame: _expanded(frame, objects, known) for frame in distinct}
    whole = any("inside_mpi" in finding["kind"] for finding in directory.findings)
    named = {key: _from_main([word for frame in frames for word in words[frame]]) for key, frames in stacks.items()}
    root = _node("all", [(key, frames if whole else _to_mpi(frames)) for key, frames in named.items()], 0)
    root["dumps"], root["unusable"] = len(stacks), problems
    return root


def _node(frame: str, members: list, depth: int) -> dict:
    below: dict[str, list] = {}
    for key, frames in members:
        if depth < len(frames):
            below.setdefault(frames[depth], []).append((key, frames))
    ordered = sorted(below.items(), key=lambda item: (len(item[1]), item[1][0][0]))
    return {"frame": frame, "ranks": rank_set([key for key, _ in members], 40), "count": len(members),
            "children": [_node(name, inner, depth + 1) for name, inner in ordered[:MOST_CHILDREN]]}
