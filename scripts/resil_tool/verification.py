# SPDX-License-Identifier: Apache-2.0
"""What verify compared: what one rank's report says of it, the sum over the job, and the sentences. Touches no file; trusts
no number."""

from __future__ import annotations

from .text import bytes_text, clean, integer, plural
from .values import integer as number_of

COUNTERS = ("calls", "messages", "values", "bytes", "completions", "logged", "forced", "unread", "addresses", "ignored", "unforced", "unmatched",
            "threads_lost", "suspected", "from_recording", "times", "times_not_recorded")


def parse(value) -> dict:
    """Member "verify" of one rank's report; {} where it is none."""
    if not isinstance(value, dict):
        return {}
    one = {name: number_of(value.get(name)) for name in COUNTERS}
    one["incomplete"] = 1 if value.get("complete") is False else 0
    one["to_ignore"] = [word for word in _text(value.get("to_ignore")).split(",") if word]
    one["sources"] = [{"kind": _text(row.get("kind")), "name": _text(row.get("name")), "calls": number_of(row.get("calls")),
                       "first": _text(row.get("first"))} for row in _rows(value.get("sources"))]
    one["not_advised"] = [_text(row.get("site")) for row in _rows(value.get("sites"))
                          if _text(row.get("not_advised")) and row.get("ignored") is False]
    return one


def _text(value) -> str:
    return clean(value, 4000) if isinstance(value, str) else ""


def _rows(value) -> list:
    return [row for row in value[:1000] if isinstance(row, dict)] if isinstance(value, list) else []


def merge(ranks) -> dict | None:
    """Sum over the ranks that verified; None: none did."""
    found = [rank.verify for rank in ranks if rank.verify]
    if not found:
        return None
    merged = {"ranks": len(found), **{name: sum(one[name] for one in found) for name in COUNTERS + ("incomplete",)}}
    merged["to_ignore"] = ",".join(dict.fromkeys(word for one in found for word in one["to_ignore"]))
    merged["not_advised"] = list(dict.fromkeys(site for one in found for site in one["not_advised"] if site not in merged["to_ignore"].split(",")))
    sources: dict[tuple, dict] = {}
    for one in found:
        for row in one["sources"]:
            entry = sources.setdefault((row["kind"], row["name"]), {"kind": row["kind"], "name": row["name"], "ranks": 0, "calls": 0, "first": ""})
            entry["ranks"] += 1
            entry["calls"] += row["calls"]
            entry["first"] = entry["first"] or row["first"]
    merged["sources"] = list(sources.values())
    return merged


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
    if v["suspected"]:
        parts.append("differences whose cause is only suspected: %s, %s values taken from the recording" % (
            integer(v["suspected"]), integer(v["from_recording"])))
    if v["sources"]:
        parts.append("read and not recorded: " + ", ".join("%s (%s)" % (row["kind"], row["name"]) for row in v["sources"][:6]))
    return "; ".join(parts)


def advice(v: dict) -> str:
    """What would have to be ignored, ready to paste; "" when nothing."""
    text = "RESIL_VERIFY_IGNORE=" + v["to_ignore"] if v["to_ignore"] and v["suspected"] else ""
    if v["not_advised"]:
        text += "%snot advised, it would hide more: %s" % ("; " if text else "", ", ".join(v["not_advised"][:8]))
    return text
