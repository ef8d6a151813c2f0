# SPDX-License-Identifier: Apache-2.0
"""scripts/resil recording: what a recording holds, rank by rank or item by item."""

from __future__ import annotations

import itertools
import json

from . import record_text, symbols
from . import recording as r
from .record_files import missing_ranks, opened, rank_files, world_size
from .text import bytes_text, clean, integer, plural, rank_name, ranges

_BATCH = 4000  # lines whose call sites are looked up together


def run(directory: str, rank, call, comm, first, count, as_json: bool) -> int:
    """0; 3 when a rank is missing, damaged or has no clean end."""
    files = rank_files(directory)
    if rank is not None:
        files = {key: path for key, path in files.items() if key == (0, rank)}
        if not files:
            print("%s: there is no recording of rank %d" % (directory, rank))
            return 3
    if rank is None and call is None and comm is None and first is None and count is None:
        return _summary(directory, files, as_json)
    status, budget = 0, [count]
    for key, path in files.items():
        recording, problem = opened(path)
        if recording is None:
            print(clean(problem, 1500) if not as_json else json.dumps({"rank": key[1], "problem": problem}))
            status = 3
            continue
        with recording:
            for stream in recording.streams.values():
                if budget[0] != 0:
                    _print_stream(key, recording, stream, _limited(_chosen(stream, call, comm, first), budget), as_json)
            if recording.problem:
                status = 3
                if not as_json:
                    print("%s %s" % (clean(path), clean(recording.problem)))
    return status


def _summary(directory: str, files, as_json: bool) -> int:
    told = summary(directory, files)
    status = told.pop("status")
    print(json.dumps(told, indent=1) if as_json else "\n".join(summary_lines(directory, told)))
    return status


def summary(directory: str, files=None) -> dict:
    """What `resil recording --json` prints, and `status`."""
    files = rank_files(directory) if files is None else files
    objects, status, head = [], 0, None
    for key, path in files.items():
        recording, problem = opened(path)
        if recording is None:
            objects.append({"world": key[0], "rank": key[1], "end": None, "problem": problem})
            status = 3
            continue
        with recording:
            head = head or recording.identity
            if recording.end != "finished" or recording.damaged:
                status = 3
            calls = calls_of(recording)
            objects.append({"world": key[0], "rank": key[1], "end": recording.end, "problem": recording.problem,
                            "damaged": recording.damaged, "streams": len(recording.streams), "bytes": recording.size,
                            "calls": _known(recording) or None, "calls_at_least": calls,
                            "host": recording.identity.host})
    size = world_size(directory) or (head.world_size if head else 0)
    missing = missing_ranks(size, files)
    return {"directory": directory, "identity": head._asdict() if head else None, "ranks": objects, "missing": missing,
            "status": 3 if missing else status}


def summary_lines(directory: str, told: dict) -> list[str]:
    head, lines = told["identity"], []
    if head:
        lines.append("%s: recording of %s, %s, %s%s" % (
            clean(directory), clean(head["program"]), plural(world_size(directory) or head["world_size"], "rank"), clean(head["mpi"]) or "unknown MPI",
            ", RESIL_REDUCE=" + clean(head["reduce"]) if head["reduce"] else ""))
    for found in told["ranks"]:
        name = rank_name((found["world"], found["rank"]))
        if found["end"] is None:
            lines.append("%s: %s" % (name, clean(found["problem"], 1500)))
            continue
        lines.append("%s on %s: %s%s calls in %s, %s%s" % (
            name, clean(found["host"]), "" if found["calls"] else "at least ", integer(found["calls_at_least"]),
            plural(found["streams"], "thread"), bytes_text(found["bytes"]),
            "; " + clean(found["problem"]) if found["problem"] else ""))
    if told["missing"]:
        lines.append("missing: ranks %s" % ranges(told["missing"]))
    return lines


def _known(recording) -> int:
    return recording.calls if recording.end in ("finished", "aborted") and not recording.damaged else 0


def calls_of(recording) -> int:
    """Of all threads; of a recording without an end as far as they can be read."""
    return _known(recording) or sum(_calls(stream) for stream in recording.streams.values())


def newest(recording, stream, count: int) -> tuple[str, list[str], list[dict]]:
    """The last `count` calls of a thread: a title, a line an item, the same for JSON."""
    items = []
    try:
        items = list(_chosen(stream, None, None, max(0, _calls(stream) - count + 1))) if count else []
    except r.RecordingError as error:
        recording.damaged, recording.problem = True, str(error)[len(recording.path) + 1:]
    sites = {item.shape.site for item in items if item.kind == r.CALL and item.shape.site[0]} | ({stream.site} if stream.site[0] else set())
    known = symbols.lookup(sorted(sites), recording.identity.created + 1)
    title = "thread %d%s" % (stream.id, ", first call from %s" % record_text.site(stream.site, known) if stream.site[0] else "")
    return title, [record_text.line(item, known) for item in items], [record_text.as_object(item) for item in items]


def _calls(stream) -> int:
    """Of a thread, as far as they can be read; looks at its last segment only."""
    if not stream.segments:
        return 0
    number = stream.segments[-1].number
    try:
        for item in stream.items(len(stream.segments) - 1):
            number = item.number
    except r.RecordingError:
        pass
    return number


def _chosen(stream, call, comm, first):
    wanted = False
    begin = first if first is not None else 0
    for item in stream.items(stream.at(begin)):
        if item.number < begin:
            continue
        if item.kind == r.CALL:
            wanted = (call is None or item.shape.call == call) and (comm is None or item.shape.comm == comm)
        elif item.kind in (r.VALUE, r.TEXT) and (call is not None or comm is not None):
            continue
        if wanted or item.kind in (r.VALUE, r.TEXT):
            yield item


def _limited(items, budget):
    """The items up to the call that is one too many; `budget`: [calls that may still come, or None]."""
    for item in items:
        if item.kind == r.CALL and budget[0] is not None:
            if budget[0] == 0:
                return
            budget[0] -= 1
        yield item


def _print_stream(key, recording, stream, items, as_json):
    titled, known = False, {}
    try:
        while True:
            batch = list(itertools.islice(items, _BATCH))
            if not batch:
                return
            if as_json:
                for item in batch:
                    print(json.dumps(dict({"world": key[0], "rank": key[1], "stream": stream.id},
                                          **record_text.as_object(item))))
                continue
            sites = {item.shape.site for item in batch if item.kind == r.CALL} | {stream.site}
            sites = {site for site in sites if site[0] and site not in known}
            if sites:
                found = symbols.lookup(sorted(sites), recording.identity.created + 1)
                known.update({site: found.get(site, "") for site in sites})
            if not titled:
                titled = True
                print("%s, thread %d%s" % (rank_name(key), stream.id, ", first call from %s" % record_text.site(
                    stream.site, known) if stream.site[0] else ""))
            for item in batch:
                print(record_text.line(item, known))
    except r.RecordingError as error:
        recording.damaged, recording.problem = True, str(error)[len(recording.path) + 1:]
