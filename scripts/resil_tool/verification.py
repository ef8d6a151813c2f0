# SPDX-License-Identifier: Apache-2.0
"""What verify compared: what one rank's report says of it, the sum over the job, and the sentences. Touches no file; trusts
no number."""

from __future__ import annotations

from .text import bytes_text, integer, plural
from .values import integer as number_of

COUNTERS = ("calls", "messages", "values", "bytes", "completions", "logged", "forced", "unread", "addresses", "ignored", "unforced", "unmatched",
            "threads_lost")


def parse(value) -> dict:
    """Member "verify" of one rank's report; {} where it is none."""
    if not isinstance(value, dict):
        return {}
    one = {name: number_of(value.get(name)) for name in COUNTERS}
    one["incomplete"] = 1 if value.get("complete") is False else 0
    return one


def merge(ranks) -> dict | None:
    """Sum over the ranks that verified; None: none did."""
    found = [rank.verify for rank in ranks if rank.verify]
    if not found:
        return None
    return {"ranks": len(found), **{name: sum(one[name] for one in found) for name in found[0]}}


def scope(v: dict) -> str:
    """What "no findings" holds for, contents or only calls; goes into the line of the verdict."""
    if not v["calls"]:
        text = "; NO call was compared with the recording"
    elif v["values"]:
        text = "; %s and the contents of %s (%s, %s) agree with the recording" % (
            plural(v["calls"], "call"), plural(v["values"], "value"), plural(v["messages"], "message"), bytes_text(v["bytes"]))
    else:
        text = "; %s agree with the recording, NO contents were compared" % plural(v["calls"], "call")
    if v["incomplete"]:
        text += ", which ENDS EARLY (%s of %s): the rest was not compared" % (
            integer(v["incomplete"]), plural(v["ranks"], "rank"))
    return text


def sentence(v: dict) -> str:
    """One sentence over all ranks."""
    parts = ["%s, %s, %s of %s compared, %s among them" % (
        plural(v["calls"], "call"), plural(v["completions"], "completion"), plural(v["values"], "value"),
        bytes_text(v["bytes"]), plural(v["messages"], "received message"))]
    if v["logged"]:
        parts.append("%s logged by the program" % integer(v["logged"]))
    left = [(v["addresses"], "addresses (MPI_AINT)"), (v["ignored"], "ignored (RESIL_VERIFY_IGNORE)"),
            (v["unread"], "not read"), (v["unforced"], "with outcomes that are not recorded"),
            (v["unmatched"], "without a partner in the recording"), (v["threads_lost"], "threads given up")]
    left = ["%s %s" % (integer(count), words) for count, words in left if count]
    if left:
        parts.append("not compared: " + ", ".join(left))
    return "; ".join(parts)
