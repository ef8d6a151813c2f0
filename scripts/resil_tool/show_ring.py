# SPDX-License-Identifier: Apache-2.0
"""One rank's flight recorder for `resil show`: where the rank is, what it has called, what is pending, its last calls. Reads the ring that
it is given."""

from __future__ import annotations

import os
import time

from . import layout, symbols
from .ring import Ring
from .text import bytes_text, clean, integer, plural, rank_name, seconds_text
from .wording import describe, peer_words, tag_words

INDENT = 29  # of what follows time and duration of a call
TOP_CALLS = 12
TOP_PEERS = 6
MOST_REQUESTS = 64
MOST_COMMUNICATORS = 16
MOST_SITES = 1000


def as_object(ring: Ring, last: int) -> dict:
    """For --json, and what lines() tells. Addresses are object+0xoffset and `at`, function and line where they are known."""
    header = ring.header
    own = [(lane, ring.history(lane)[-last:] if last else []) for lane in ring.lanes()]
    current, pending = ring.current_calls(), list(ring.requests())
    sites = {ring.locate(call.site) for _, calls in own for call in calls} | {ring.locate(call.site) for call in current}
    sites |= {ring.locate(request.site) for request in pending[:MOST_REQUESTS]}
    known = symbols.lookup(sorted(filter(None, sites))[:MOST_SITES], header.realtime_start_ns / 1e9)
    lives = ring.process_lives() if _is_live(ring) else False

    def place(address: int) -> dict:
        site = ring.locate(address) if address else None
        return {"site": "%s+%#x" % site, "at": known.get(site, "")} if site else {"site": "", "at": ""}

    def call_object(call) -> dict:
        return {"call": call.name, "words": describe(call) if call.state != layout.RECORD_STEP else "step %s %d" % (call.name, call.sequence),
                "time": call.start, "seconds": call.seconds, "open": call.state == layout.RECORD_OPEN, "bytes": call.bytes, **place(call.site)}
    return {
        "world": header.world, "rank": header.rank, "world_size": header.world_size, "host": clean(header.host), "pid": header.pid,
        "process": "runs" if lives else "not known" if lives is None else "gone", "phase": ring.phase, "program": clean(header.executable),
        "mpi": clean(header.mpi), "resil_version": clean(header.resil_version), "launch": clean(header.launch), "directory": clean(header.directory),
        "started": header.realtime_start_ns / 1e9, "ended_by": {"name": clean(header.term_sender), "pid": header.term_pid, "signal": header.term_signal,
                                                                "time": ring.realtime(header.term_ticks)} if header.term_ticks else None,
        "current": [call_object(call) for call in current],
        "calls": {name: {"count": count, "seconds": seconds, "bytes": bytes_} for name, (count, seconds, bytes_) in sorted(
            ring.calls().items(), key=lambda item: (-item[1][1], -item[1][0], item[0]))},
        "peers": {str(peer): dict(zip(("sent_messages", "sent_bytes", "received_messages", "received_bytes"), numbers))
                  for peer, numbers in sorted(ring.peers().items(), key=lambda item: -item[1][1] - item[1][3])},
        "pending": len(pending), "requests": [_request(ring, request, place) for request in sorted(pending, key=lambda one: one.time)[:MOST_REQUESTS]],
        "communicators": [{"name": name, "id": "%#x" % comm.id, "rank": comm.rank, "size": comm.size, "collectives": comm.collectives,
                           "last": ring.call_name(comm.last_collective) if comm.collectives else ""} for comm, name in ring.communicators() if comm.size > 0],
        "threads": [{"tid": lane.head.tid, "name": clean(lane.head.name), "calls": lane.head.calls, "ended": lane.head.state == layout.LANE_ENDED,
                     "newest": [call_object(call) for call in reversed(calls)]} for lane, calls in own],
    }


def _is_live(ring: Ring) -> bool:
    """Not a copy in a report directory, whose process is gone whatever now has its pid."""
    return os.path.basename(ring.path).startswith("resil-")


def _request(ring: Ring, request, place) -> dict:
    kind = layout.REQUEST_KINDS[request.kind] if request.kind < len(layout.REQUEST_KINDS) else "unknown"
    return {"kind": kind, "call": ring.call_name(request.call), "peer": peer_words(request.peer), "tag": tag_words(request.tag),
            "communicator": ring.communicator(request.comm)[1], "bytes": request.bytes, "time": ring.realtime(request.time), **place(request.site)}


def _at(one: dict, word: str = "called at") -> str:
    where = one["at"] or (os.path.basename(one["site"]) if one["site"] else "")
    return ", %s %s" % (word, where) if where else ""


def _clock(seconds) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds)) + ".%06d" % (seconds % 1 * 1e6) if seconds else "?"


def lines(ring: Ring, told: dict) -> tuple[str, list]:
    """(title, [(label, words)]); label None: a line of its own."""
    header = ring.header
    rows: list = [("program", "%s, %s, resil %s" % (told["program"] or "?", told["mpi"] or "?", told["resil_version"] or "?")),
                  ("reports", told["directory"] or "none")]
    last = max((one["time"] + (one["seconds"] or 0.0) for thread in told["threads"] for one in thread["newest"] if one["time"]), default=0.0)
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(told["started"])) if 0 < told["started"] < 4e9 else "?"
    rows.append(("time", "started %s%s" % (started, ", last sign of life in a call after %s" % seconds_text(last - told["started"]) if last > told["started"] else "")))
    if told["ended_by"]:
        rows.append(("ended", "by %s (pid %d, signal %d) at %s" % (told["ended_by"]["name"] or "a process", told["ended_by"]["pid"], told["ended_by"]["signal"],
                                                                  _clock(told["ended_by"]["time"]))))
    verb = "is" if told["process"] == "runs" else "was"
    for one in told["current"]:
        since = ", since %s" % _clock(one["time"]) if one["time"] else ""
        rows.append(("where", "%s in %s%s%s" % (verb, one["words"], since, _at(one))))
    if not told["current"]:
        rows.append(("where", "%s outside MPI" % verb))
    rows += _counters(told)
    for i, one in enumerate(told["requests"]):
        words = ", ".join(filter(None, ["%s by %s" % (one["kind"], one["call"]), one["peer"] and ("to " if one["kind"] == "send" else "from ") + one["peer"], one["tag"],
                                        one["communicator"] and "on " + one["communicator"], bytes_text(one["bytes"]) if one["bytes"] else "",
                                        "since %s" % _clock(one["time"]) if one["time"] else ""]))
        rows.append(("pending" if i == 0 else "", words + _at(one, "posted at")))
    if told["pending"] != len(told["requests"]) or not told["pending"]:
        rows.append(("pending" if not told["pending"] else "", "%s%s" % (plural(told["pending"], "request"), " in all" if told["pending"] else "")))
    for i, one in enumerate(told["communicators"][:MOST_COMMUNICATORS]):
        rows.append(("comms" if i == 0 else "", "%s: rank %d of %d, %s%s" % (one["name"], one["rank"], one["size"], plural(one["collectives"], "collective"),
                                                                            ", the last %s" % one["last"] if one["last"] else "")))
    if len(told["communicators"]) > MOST_COMMUNICATORS:
        rows.append(("", "and %d more" % (len(told["communicators"]) - MOST_COMMUNICATORS)))
    for thread in told["threads"]:
        rows.append((None, "thread %d%s: %s%s, the newest first" % (thread["tid"], " (%s)" % thread["name"] if thread["name"] else "",
                                                                     plural(thread["calls"], "call"), ", ended" if thread["ended"] else "")))
        for one in thread["newest"]:
            took = "open" if one["open"] else seconds_text(one["seconds"]) if one["seconds"] else ""
            rows.append((None, "  %s %9s  %s" % (_clock(one["time"]), took, ", ".join(
                filter(None, [one["words"], bytes_text(one["bytes"]) if one["bytes"] else ""])) + _at(one, "at"))))
    title = "flight recorder of %s of %d (%s, pid %d), phase %s, process %s" % (
        rank_name((told["world"], told["rank"])) if told["rank"] >= 0 else "a rank whose number is not known,", header.world_size, told["host"], told["pid"],
        told["phase"], told["process"])
    return title, rows


def _counters(told: dict) -> list:
    rows: list = []
    calls = list(told["calls"].items())
    for i, (name, one) in enumerate(calls[:TOP_CALLS]):
        rows.append(("calls" if i == 0 else "", "%-24s %12s %10s %10s" % (name, integer(one["count"]), bytes_text(one["bytes"]), seconds_text(one["seconds"]) if one["seconds"] else "")))
    if len(calls) > TOP_CALLS:
        rows.append(("", "and %s" % plural(len(calls) - TOP_CALLS, "more function")))
    peers = list(told["peers"].items())
    for i, (peer, one) in enumerate(peers[:TOP_PEERS]):
        rows.append(("messages" if i == 0 else "", "%s: sent %s, %s; received %s, %s" % (
            "rank %s" % peer if int(peer) >= 0 else "others", integer(one["sent_messages"]), bytes_text(one["sent_bytes"]), integer(one["received_messages"]),
            bytes_text(one["received_bytes"]))))
    if len(peers) > TOP_PEERS:
        rows.append(("", "and %s" % plural(len(peers) - TOP_PEERS, "more rank")))
    return rows
