# SPDX-License-Identifier: Apache-2.0
"""Which way reductions went: what one rank's report says of it, the sum over the job, and the sentence. Touches no file;
trusts no number."""

from __future__ import annotations

from .checksum import counts
from .text import integer
from .values import integer as number_of

# In the order of the sentence; names of the report's members.
WAYS = {"order": "in one order", "exact": "exactly summed", "p2p": "by messages along one tree",
        "native_safe": "the same in any order"}
REASONS = {
    "arguments": "refused by the library, or not defined",
    "ranks_without_resil": "some rank runs without resil",
    "other_world": "members in another world (spawn, connect)",
    "size": "too large to be gathered while nonblocking or persistent",
    "persistent": "the library has no persistent collectives",
}


def parse(value) -> dict:
    """Member "reductions" of one rank's report; {} where it is none."""
    if not isinstance(value, dict):
        return {}
    one = {name: number_of(value[name].get("calls")) for name in WAYS if isinstance(value.get(name), dict)}
    native = value.get("native") if isinstance(value.get("native"), dict) else {}
    return {"calls": number_of(value.get("calls")), "ways": one, "native": number_of(native.get("calls")),
            "reasons": counts(native.get("reasons"))}


def merge(ranks) -> dict | None:
    """Sum over the ranks that carried reductions out; None: none did."""
    found = [rank.reductions for rank in ranks if rank.reductions]
    if not found:
        return None
    total = {"calls": 0, "ways": {}, "native": 0, "reasons": {}}
    for one in found:
        total["calls"] += one["calls"]
        total["native"] += one["native"]
        for part in ("ways", "reasons"):
            for name, count in one[part].items():
                total[part][name] = total[part].get(name, 0) + count
    return total


def sentence(total: dict) -> str:
    """One sentence over all ranks' calls."""
    parts = [f"{integer(total['ways'][name])} {words}" for name, words in WAYS.items() if total["ways"].get(name)]
    if total["native"]:
        why = ", ".join(f"{REASONS.get(name, name)}: {integer(count)}"
                        for name, count in sorted(total["reasons"].items(), key=lambda item: -item[1]))
        parts.append(f"{integer(total['native'])} LEFT TO THE LIBRARY ({why})")
    return f"{integer(total['calls'])} calls: " + ", ".join(parts) if parts else "none"
