# SPDX-License-Identifier: Apache-2.0
"""Receives from MPI_ANY_SOURCE for which several messages could have come (docs/CHECKSUM.md): what one rank's report says of them, the
sum over the job, and the sentence. A property of the run and no finding. Touches no file; trusts no number."""

from __future__ import annotations

import re

from .text import integer, rank_set
from .values import integer as number_of

# With these a rank can learn that another one has posted a receive without being told: what the ranks counted proves nothing.
VOID = {
    "synchronous sends": re.compile(r"MPI_I?ssend(_init)?(_c)?$", re.IGNORECASE),
    "MPI_Cancel": re.compile(r"MPI_Cancel$"),
    "windows": re.compile(r"MPI_Win_(create|allocate|allocate_shared|create_dynamic)(_c)?$"),
    "other worlds": re.compile(r"MPI_Comm_(accept|connect|join|spawn|spawn_multiple)$"),
}


def parse(value) -> dict:
    """Member "any_source" of "checksum"; {} where no such receive was followed."""
    one = value.get("any_source") if isinstance(value, dict) else None
    if not isinstance(one, dict) or not number_of(one.get("followed"), 1):
        return {}
    followed = number_of(one.get("followed"))
    return {"followed": followed, "several_candidates": number_of(one.get("several_candidates"), 0, followed)}


def merge(ranks, all_there: bool) -> dict | None:
    """None: no receive from MPI_ANY_SOURCE was followed. `unknown`: why the number is not known, "" where it is. `all_there`: every
    rank of the job has written its last report."""
    counted = [rank for rank in ranks if rank.candidates]
    if not counted:
        return None
    unknown = "" if all_there and all(rank.all_preloaded for rank in ranks) else "calls of some rank"
    for reason, pattern in VOID.items():
        if not unknown and any(pattern.match(name) for rank in ranks for name in rank.calls):
            unknown = reason
    several = [rank for rank in counted if rank.candidates["several_candidates"]]
    return {"followed": sum(rank.candidates["followed"] for rank in counted), "unknown": unknown,
            "several_candidates": None if unknown else sum(rank.candidates["several_candidates"] for rank in several),
            "ranks": "" if unknown else rank_set((rank.key for rank in several), 10**6)}


def sentence(found: dict | None) -> str:
    """"" where there is nothing to say."""
    if not found or not found["several_candidates"]:
        return ""
    count = found["several_candidates"]
    return "%s of %s receive%s from MPI_ANY_SOURCE had more than one candidate (rank %s): which message each takes may differ from run to run" % (
        integer(count), integer(found["followed"]), "" if found["followed"] == 1 else "s",
        found["ranks"] if len(found["ranks"]) <= 48 else found["ranks"][:48] + "…")
