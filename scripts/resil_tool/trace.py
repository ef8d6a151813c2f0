# SPDX-License-Identifier: Apache-2.0
"""Flight recorders and recordings as Chrome/Perfetto trace events: the JSON object form with "traceEvents". A rank is a process, a
thread a thread; each finished call is a complete event ("X"), one that was open at the end too, with args.open. Writes as it reads, so a
large job needs no memory."""

from __future__ import annotations

import json
import re

from . import layout, symbols
from . import recording as r
from .progress import over
from .record_files import missing_ranks, opened, rank_files, world_size
from .ring import Ring, RingError
from .text import clean, rank_name
from .wording import peer_words, tag_words

MOST_SITES = 256  # call sites that are looked up
WORLD_STEP = 1 << 24  # pid of rank R in world W: R + 1 + W * WORLD_STEP

_KINDS = ((re.compile(r"MPI_(I?(neighbor_)?(barrier|bcast|gather|scatter|all|reduce|scan|exscan))", re.I), "collective"),
          (re.compile(r"MPI_(File_)", re.I), "file"), (re.compile(r"MPI_(Win_|R?put|R?get|R?acc|Fetch|Compare)", re.I), "one-sided"),
          (re.compile(r"MPI_(Wait|Test|Request)", re.I), "completion"), (re.compile(r"MPI_(\w*(send|recv|probe))", re.I), "message"))


def category(name: str) -> str:
    for pattern, kind in _KINDS:
        if pattern.match(name):
            return kind
    return "other" if name.startswith("MPI_") else "program"


class Writer:
    """One trace file. `close` tells what limits it."""

    def __init__(self, file):
        self.file, self.count = file, 0
        file.write('{"displayTimeUnit": "ms", "traceEvents": [')

    def event(self, **members) -> None:
        self.file.write((",\n" if self.count else "\n") + json.dumps(members))
        self.count += 1

    def process(self, key, title: str, host: str = "") -> int:
        del host
        pid = key[1] + 1 + key[0] * WORLD_STEP
        self.event(ph="M", name="process_name", pid=pid, tid=0, args={"name": title})
        self.event(ph="M", name="process_sort_index", pid=pid, tid=0, args={"sort_index": pid})
        return pid

    def thread(self, pid: int, tid: int, title: str) -> None:
        self.event(ph="M", name="thread_name", pid=pid, tid=tid, args={"name": title})

    def close(self, other: dict) -> None:
        self.file.write('\n], "otherData": %s}\n' % json.dumps(other))


def _arguments(call) -> dict:
    told = {"communicator": call.comm, "peer": peer_words(call.peer), "tag": tag_words(call.tag), "bytes": call.bytes, "number": call.sequence,
            "times": call.repeat if call.repeat > 1 else 0, "failed": bool(call.flags & layout.FLAG_FAILED)}
    return {name: value for name, value in told.items() if value}


def of_rings(directory, ranks, out, last: float | None) -> dict:
    """`out`: a Writer. The flight recorders of these ranks. `last`: seconds before the newest event. What was written: events, ranks, problems."""
    rings = [(rank, directory.rings.get(rank.key) or rank.ring_path or rank.ring) for rank in ranks]
    begin, end, problems, sites = _span(rings)
    begin, end = begin or 0.0, end or 0.0
    if last is not None:
        begin = max(begin, end - last)
    known = symbols.lookup(sorted(sites)[:MOST_SITES], min((rank.start_time for rank in ranks if rank.start_time), default=0.0))
    shown = 0
    for rank, path in over(rings, "writing events"):
        try:
            with Ring(path, follow_links=False) as ring:
                pid = out.process(rank.key, "%s (%s)" % (rank_name(rank.key), rank.host), rank.host)
                shown += 1
                for lane in ring.lanes():
                    tid = lane.head.tid or lane.index + 1
                    out.thread(pid, tid, clean(lane.head.name) or "thread %d" % tid)
                    _lane(out, ring, lane, pid, tid, begin, end, known)
        except (RingError, ValueError):
            continue  # told by _span
    out.close({"source": "resil flight recorders", "directory": directory.path, "epoch_seconds": begin,
               "clocks": "each host's own; resil does not synchronise them", "problems": problems[:100]})
    return {"events": out.count, "ranks": shown, "problems": problems}


def _span(rings):
    """(first moment, last one, what cannot be used, some call sites)."""
    begin = end = None
    problems, sites = [], set()
    for rank, path in over(rings, "reading flight recorders"):
        if not path:
            problems.append("%s: no flight recorder" % rank_name(rank.key))
            continue
        try:
            with Ring(path, follow_links=False) as ring:
                for lane in ring.lanes():
                    for call in ring.history(lane):
                        if call.start:
                            begin = call.start if begin is None else min(begin, call.start)
                            end = max(end or 0.0, call.start + (call.seconds or 0.0))
                        site = ring.locate(call.site) if call.site and len(sites) < MOST_SITES else None
                        if site:
                            sites.add(site)
                problems += ["%s: %s" % (rank_name(rank.key), clean(note)) for note in ring.notes[:4]]
        except (RingError, ValueError) as error:
            problems.append("%s: %s" % (rank_name(rank.key), clean(error)))
    return begin, end, problems, sites


def _lane(out, ring, lane, pid, tid, begin, end, known) -> None:
    for call in ring.history(lane):
        if not call.start or call.start + (call.seconds or 0.0) < begin:
            continue
        at = max(0.0, (call.start - begin) * 1e6)
        arguments = _arguments(call)
        site = ring.locate(call.site) if call.site else None
        if site:
            arguments["called at"] = symbols.site_text(site, known)
        if call.state == layout.RECORD_STEP:
            out.event(ph="i", s="t", name=call.name, cat="program", ts=round(at, 3), pid=pid, tid=tid, args={"step": call.sequence})
            continue
        seconds = call.seconds or 0.0
        if call.state == layout.RECORD_OPEN:
            seconds, arguments["open"] = max(0.0, end - call.start), True
        out.event(ph="X", name=call.name, cat=category(call.name), ts=round(at, 3), dur=round(seconds * 1e6, 3), pid=pid, tid=tid,
                  args=arguments)


def of_recording(directory: str, out, wanted: set[int] | None) -> dict:
    """A recording holds no times: call N of a thread is N µs from its beginning, so equal calls of all ranks stand below each other."""
    files = rank_files(directory)
    problems, shown = [], 0
    for key, path in files.items():
        if wanted is not None and key[1] not in wanted:
            continue
        recording, problem = opened(path)
        if recording is None:
            problems.append(clean(problem, 300))
            continue
        with recording:
            pid = out.process(key, "%s (%s)" % (rank_name(key), clean(recording.identity.host, 64)),
                              recording.identity.host)
            shown += 1
            for stream in recording.streams.values():
                out.thread(pid, stream.id, "thread %d" % stream.id)
                try:
                    for item in stream.items():
                        if item.kind == r.CALL:
                            shape = item.shape
                            told = {"communicator": "%#x" % shape.comm if shape.comm else "", "peer": peer_words(shape.peer),
                                    "tag": tag_words(shape.tag), "bytes": shape.bytes, "step": item.step,
                                    "called at": "%s+%#x" % (clean(shape.site[0], 200), shape.site[1]) if shape.site[0] else ""}
                            out.event(ph="X", name=clean(shape.call, 60), cat=category(shape.call), ts=item.number, dur=max(1, item.count or 1), pid=pid,
                                      tid=stream.id, args={name: value for name, value in told.items() if value})
                except r.RecordingError as error:
                    problems.append(clean(error, 300))
            if recording.problem:
                problems.append("%s: %s" % (rank_name(key), clean(recording.problem)))
    problems += ["%s: no recording" % rank_name((0, rank)) for rank in missing_ranks(world_size(directory), files)[:100]
                 if wanted is None or rank in wanted]
    out.close({"source": "resil recording", "directory": directory, "clock": "number of the call in its thread, not time",
               "problems": problems[:100]})
    return {"events": out.count, "ranks": shown, "problems": problems}
