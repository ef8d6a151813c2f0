# SPDX-License-Identifier: Apache-2.0
"""What the program left at MPI_Finalize: what one rank's report says of it, the sum over the job, and the lines. No finding: the
verdict does not know of it. Touches no file; trusts no number."""

from __future__ import annotations

from . import symbols
from .text import clean, integer, rank_set, ranks_word
from .values import integer as number_of
from .values import items, members, text

# Members of "leftovers", in the order of the sentence.
KINDS = {
    "active_requests": ("request never completed", "requests never completed"),
    "persistent_requests": ("persistent request", "persistent requests"),
    "communicators": ("communicator", "communicators"), "groups": ("group", "groups"), "datatypes": ("datatype", "datatypes"),
    "operators": ("operator", "operators"), "windows": ("window", "windows"), "files": ("file", "files"),
    "infos": ("info object", "info objects"), "error_handlers": ("error handler", "error handlers"),
    "sessions": ("session", "sessions"), "keyvals": ("keyval", "keyvals"), "buffers": ("attached buffer", "attached buffers"),
    "unreceived_messages": ("unreceived message", "unreceived messages"),
}
MOST_SITES = 64   # kept of a job
MOST_SHOWN = 3    # in the text


def parse(value, unreceived=None) -> dict:
    """Members "leftovers" and "unreceived_messages_total" of one rank's report: {kind: (count, [(call, site, count)])}; {} where
    nothing is left."""
    found = {}
    for kind, one in members(value):
        if kind in KINDS and isinstance(one, dict) and number_of(one.get("count"), 1):
            sites = [(text(site.get("call"), 48), text(site.get("site"), 200), number_of(site.get("count"), 1))
                     for site in items(one.get("sites")) if isinstance(site, dict) and number_of(site.get("count"), 1)]
            found[kind] = (number_of(one.get("count")), sites)
    if number_of(unreceived, 1):
        found["unreceived_messages"] = (number_of(unreceived), [])
    return found


def merge(ranks) -> dict | None:
    """Sums over the ranks, sites with the most first; None: nothing is left, or nobody counted."""
    kinds: dict[str, list] = {}
    sites: dict[tuple, list] = {}
    for rank in ranks:
        for kind, (count, places) in rank.leftovers.items():
            total = kinds.setdefault(kind, [0, []])
            total[0] += count
            total[1].append(rank.key)
            for call, site, number in places:
                place = sites.setdefault((kind, call, site), [0, []])
                place[0] += number
                place[1].append(rank.key)
    if not kinds:
        return None
    listed = sorted(sites.items(), key=lambda item: (-item[1][0], item[0]))
    return {"kinds": {kind: {"count": kinds[kind][0], "ranks": rank_set(kinds[kind][1], 10**6)} for kind in KINDS if kind in kinds},
            "sites": [{"kind": kind, "call": call, "site": site, "count": count, "ranks": rank_set(keys, 10**6)}
                      for (kind, call, site), (count, keys) in listed[:MOST_SITES]],
            "sites_not_listed": max(0, len(listed) - MOST_SITES)}


def name_sites(left: dict | None, objects, started: float) -> None:
    """Call sites as function and line where they are known. `objects()`: paths of the job's object files by short name."""
    if not left or not left["sites"]:
        return
    paths = objects()
    known = symbols.lookup([site for one in left["sites"] for site in symbols.sites_in(one["site"], paths)], started)
    for one in left["sites"]:
        one["site"] = symbols.resolve_sentence(one["site"], paths, known)


def lines(left: dict) -> list[str]:
    """The sentence, then the call sites that left the most."""
    kinds = ", ".join("%s %s" % (integer(one["count"]), KINDS[kind][one["count"] != 1]) for kind, one in left["kinds"].items())
    said = ["at MPI_Finalize: %s" % kinds]
    for one in left["sites"][:MOST_SHOWN]:
        said.append("%s from %s at %s (%s)" % (integer(one["count"]), one["call"] or "?", clean(one["site"], 200) or "?",
                                                    ranks_word(one["ranks"] if len(one["ranks"]) <= 24 else one["ranks"][:24] + "…")))
    rest = len(left["sites"]) - MOST_SHOWN + left["sites_not_listed"]
    return said + (["and from %d more place%s (--json lists them)" % (rest, "" if rest == 1 else "s")] if rest > 0 else [])
