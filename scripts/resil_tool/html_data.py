# SPDX-License-Identifier: Apache-2.0
"""The numbers behind the pictures of `scripts/resil html`: per rank, per pair of ranks, over time. A picture whose data no file holds is
None. Works on records; reads rings of some ranks, hang-trace.txt and one rank's report as it is."""

from __future__ import annotations

import math
import os
import re

from . import layout
from .ring import Ring, RingError
from .trace import category
from .values import Invalid, members, parse_object, read_bytes, text

CELLS = 128       # of the traffic matrix, a side
BINS = 240        # of the timeline
MOST_RINGS = 128  # ranks whose flight recorders are read for it
MOST_POINTS = 2000
SIZES = 40        # powers of two of the message sizes

_COLLECTIVE = re.compile(r"MPI_I?(barrier|bcast|gather|scatter|all|reduce|scan|exscan)", re.I)


def per_rank(ranks) -> dict:
    """Columns, one entry a rank: small even for many ranks."""
    hosts = list(dict.fromkeys(rank.host or "?" for rank in ranks))
    number = {host: i for i, host in enumerate(hosts)}
    states = list(dict.fromkeys(rank.state for rank in ranks))
    inside = [sum(call[1] for call in rank.calls.values()) for rank in ranks]
    return {"world": [rank.world for rank in ranks], "rank": [rank.rank for rank in ranks], "hosts": hosts, "states": states,
            "host": [number[rank.host or "?"] for rank in ranks], "state": [states.index(rank.state) for rank in ranks],
            "seconds": [None if rank.seconds is None else round(rank.seconds, 3) for rank in ranks],
            "mpi": [round(value, 3) for value in inside],
            "share": [round(min(100.0, 100 * value / rank.seconds), 2) if rank.seconds and rank.calls else None
                      for rank, value in zip(ranks, inside)],
            "calls": [sum(call[0] for call in rank.calls.values()) for rank in ranks],
            "sent": [sum(peer[1] for peer in rank.peers.values()) for rank in ranks]}


def traffic(ranks) -> dict | None:
    """Bytes sent between groups of ranks of the first world: at most CELLS a side. The busiest pairs of ranks by name."""
    first = [rank for rank in ranks if rank.world == 0]
    size = max([rank.rank for rank in first] + [rank.world_size - 1 for rank in first], default=-1) + 1
    size = min(size, 1 << 22)
    if not size or not any(rank.peers for rank in first):
        return None
    group = -(-size // CELLS)
    cells: dict[tuple[int, int], int] = {}
    pairs: list[tuple[int, int, int, int]] = []
    elsewhere = 0
    for rank in first:
        for other, (messages, sent, _, _) in rank.peers.items():
            if other < 0 or other >= size:
                elsewhere += sent
            elif messages:
                key = rank.rank // group, other // group
                cells[key] = cells.get(key, 0) + sent
                pairs.append((sent, messages, rank.rank, other))
        if len(pairs) > 1 << 16:
            pairs = sorted(pairs, reverse=True)[:16]
    if not cells:
        return None
    return {"size": size, "group": group, "side": -(-size // group), "cells": [[a, b, sent] for (a, b), sent in sorted(cells.items())],
            "pairs": [{"from": a, "to": b, "messages": messages, "bytes": sent}
                      for sent, messages, a, b in sorted(pairs, reverse=True)[:10]], "elsewhere": elsewhere}


def chosen(ranks, wanted: set[int]) -> list:
    """Ranks whose flight recorders are read: those that findings name, and others evenly."""
    named = [rank for rank in ranks if rank.rank in wanted][:MOST_RINGS // 4]
    step = max(1, -(-len(ranks) // max(1, MOST_RINGS - len(named))))
    return sorted({rank.key: rank for rank in named + ranks[::step]}.values(), key=lambda rank: rank.key)


def over_time(directory, ranks, wanted: set[int]) -> dict | None:
    """From the last records of the flight recorders: how many ranks are outside MPI, and how far they have come."""
    those = chosen(ranks, wanted)
    spans, marks, sizes, known = [], [], [0] * SIZES, 0
    for rank in those:
        path = directory.rings.get(rank.key) or rank.ring_path or rank.ring
        try:
            with Ring(path, follow_links=False) as ring:
                calls = [call for lane in ring.lanes()[:1] for call in ring.history(lane) if call.start]
        except (RingError, ValueError):
            continue
        if not calls:
            continue
        known += 1
        for call in calls:
            if call.bytes and category(call.name) in ("message", "collective"):
                sizes[min(SIZES - 1, int(math.log2(call.bytes)))] += 1
            if call.state == layout.RECORD_STEP:
                marks.append((call.start, rank.rank, call.sequence, True))
            elif call.comm == "MPI_COMM_WORLD" and call.sequence and _COLLECTIVE.match(call.name):
                marks.append((call.start, rank.rank, call.sequence, False))
        spans.append([(call.start, call.start + (call.seconds or 0.0), call.state == layout.RECORD_OPEN) for call in calls
                      if call.state != layout.RECORD_STEP])
    spans = [span for span in spans if span]
    if not spans:
        return None
    begin = min(span[0][0] for span in spans)
    end = max([one[1] for span in spans for one in span] + [rank.end_time for rank in those] + [
        rank.last_seen for rank in those if rank.state in ("running", "killed")])
    if end - begin < 1e-6 or end - begin > 1e8:
        return None
    width = (end - begin) / BINS
    told = {"begin": begin, "width": width, "of": known, "ranks": len(ranks), "outside": _outside(spans, begin, end, width)}
    told["progress"], told["steps"] = _progress(marks, begin, width)
    told["sizes"] = sizes if any(sizes) else None
    return told


def _outside(spans, begin: float, end: float, width: float) -> list:
    """Percent of the ranks' time outside MPI in each bin; None before the first record of any rank."""
    covered, inside = [0.0] * BINS, [0.0] * BINS

    def fill(into, low, high):
        first, last = int((low - begin) / width), min(BINS - 1, int((high - begin) / width))
        for b in range(max(0, first), last + 1):
            into[b] += max(0.0, min(high, begin + (b + 1) * width) - max(low, begin + b * width))

    for span in spans:
        done = span[-1]
        fill(covered, span[0][0], end if done[2] else max(done[1], done[0]))
        if not done[2]:
            fill(covered, done[1], end)  # outside since then
        reached = 0.0
        for low, high, is_open in span:
            high = end if is_open else high
            if high > reached:
                fill(inside, max(low, reached), high)
                reached = high
    return [round(100 * max(0.0, 1 - i / c), 2) if c > 0 else None for i, c in zip(inside, covered)]


def _progress(marks, begin: float, width: float):
    """(smallest and largest number reached at the end of each bin, whether these are the program's steps)."""
    steps = any(mark[3] for mark in marks)
    marks = sorted(mark for mark in marks if mark[3] == steps)
    if not marks:
        return None, False
    reached: dict[int, int] = {}
    low, high, at = [], [], 0
    for b in range(BINS):
        while at < len(marks) and marks[at][0] <= begin + (b + 1) * width:
            reached[marks[at][1]] = max(reached.get(marks[at][1], 0), marks[at][2])
            at += 1
        low.append(min(reached.values()) if reached else None)
        high.append(max(reached.values()) if reached else None)
    return {"low": low, "high": high}, steps


def statistics(directory) -> dict | None:
    """hang-trace.txt (RESIL_LOG=debug): the share of ranks outside MPI at each look of hang detection, S_out."""
    try:
        data = read_bytes(os.path.join(directory.path, "hang-trace.txt"), 16 << 20, directory.owner)
    except Invalid:
        return None
    looks = []
    for line in data.decode("ascii", "replace").split("\n"):
        words = line.split()
        if line.startswith("#") or len(words) < 4:
            continue
        try:
            seconds, outside, ranks = float(words[0]), int(words[1]), int(words[2])
        except ValueError:
            continue
        if math.isfinite(seconds) and 0 < ranks and 0 <= outside <= ranks:
            looks.append((seconds, round(100 * outside / ranks, 2)))
    if len(looks) < 2:
        return None
    step = max(1, len(looks) // MOST_POINTS)
    looks = sorted(looks)[::step]
    return {"seconds": [round(one[0] - looks[0][0], 3) for one in looks], "outside": [one[1] for one in looks]}


def settings(ranks) -> list[tuple[str, str]]:
    """Variables and values of the first rank's report; all ranks have the same."""
    for rank in ranks[:4]:
        try:
            data = read_bytes(rank.source, 1 << 29)
            if rank.source.endswith(".jsonl"):
                lines = [line for line in data.split(b"\n") if b'"rank": %d,' % rank.rank in line or b'"rank":%d,' % rank.rank in line]
                data = lines[-1] if lines else b""
            value = parse_object(data).get("config")
        except Invalid:
            continue
        if isinstance(value, dict):
            return [(text(name, 60), text(one.get("value"), 200) if isinstance(one, dict) else text(one, 200))
                    for name, one in members(value)[:400]]
    return []
