# SPDX-License-Identifier: Apache-2.0
"""What record wrote: what one rank's report says of it, the sum over the job, and the sentence. Touches no file; trusts no number."""

from __future__ import annotations

from .text import bytes_text, clean, integer, plural, seconds_text
from .values import integer as number_of
from .values import number

COUNTERS = ("calls", "bytes", "streams", "streams_refused", "times_left_out", "stalls")


def parse(value) -> dict:
    """Member "record" of one rank's report; {} where it is none."""
    if not isinstance(value, dict):
        return {}
    return {**{name: number_of(value.get(name)) for name in COUNTERS}, "stalled_seconds": number(value.get("stalled_seconds")),
            "directory": _text(value.get("directory")), "failure": _text(value.get("failure"))}


def _text(value) -> str:
    return clean(value, 400) if isinstance(value, str) else ""


def merge(ranks) -> dict | None:
    """Sum over the ranks that recorded; None: none did."""
    found = [(rank.rank, rank.recorded) for rank in ranks if rank.recorded]
    if not found:
        return None
    failed = [(rank, one["failure"]) for rank, one in found if one["failure"]]
    return {"ranks": len(found), **{name: sum(one[name] for _, one in found) for name in COUNTERS},
            "stalled_seconds": sum(one["stalled_seconds"] for _, one in found),
            "directories": list(dict.fromkeys(one["directory"] for _, one in found if one["directory"])),
            "failed": len(failed), "failure": "rank %d: %s" % failed[0] if failed else ""}


def sentence(r: dict) -> str:
    """Where the recording is, how large, and what is missing in it."""
    places = r["directories"]
    parts = ["%s of %s in %s%s" % (plural(r["calls"], "call"), plural(r["ranks"], "rank"), places[0] if places else "?",
                                   " and %s more" % integer(len(places) - 1) if len(places) > 1 else ""), bytes_text(r["bytes"])]
    if r["failed"]:
        parts.append("ENDS EARLY in %s (%s)" % (plural(r["failed"], "rank"), r["failure"]))
    left = [(r["streams_refused"], "threads"), (r["times_left_out"], "clock readings")]
    left = ["%s %s" % (integer(count), words) for count, words in left if count]
    if left:
        parts.append("not recorded: " + ", ".join(left))
    if r["stalls"]:
        parts.append("the file system was too slow %s times, %s" % (integer(r["stalls"]), seconds_text(r["stalled_seconds"])))
    return ", ".join(parts[:2]) + "".join("; " + part for part in parts[2:])
