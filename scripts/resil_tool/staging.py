# SPDX-License-Identifier: Apache-2.0
"""Device buffers that went through host memory, or to another device: what one rank's report says of it, the sum over the job, and the
sentence. Touches no file; trusts no number."""

from __future__ import annotations

from .text import bytes_text, integer
from .values import integer as number_of
from .values import members

# In the order of the sentence; names of the report's members.
WAYS = {"messages": "messages", "collectives": "collectives", "persistent": "starts of persistent requests",
        "local": "calls that pack or reduce locally"}
# Large messages among those, by their senders; of the second kind the heads alone go through host memory.
LARGE = {"chunked": "in chunks", "peer_copies": "from device to device"}
REASONS = {
    "foreign_runtime": "memory of a runtime that resil does not know",
    "datatype": "datatype that cannot be flattened",
    "pinned_memory": "no host memory",
    "device": "device that resil could not use",
    "one_sided": "one-sided",
    "other": "files, partitioned messages, or memory of several allocations in one buffer",
}


def _pair(value) -> list[int]:
    return [number_of(value.get("calls")), number_of(value.get("bytes"))] if isinstance(value, dict) else [0, 0]


def _sent(value) -> list[int]:
    return [number_of(value.get("sent")), number_of(value.get("sent_bytes"))] if isinstance(value, dict) else [0, 0]


def parse(value) -> dict:
    """Member "staging" of one rank's report; {} where it met no device buffer, or left all to the library."""
    if not isinstance(value, dict) or value.get("active") is not True:
        return {}
    return {"ways": {name: _pair(value.get(name)) for name in WAYS},
            "large": {name: _sent(value.get(name)) for name in LARGE},
            "uncovered": {name: _pair(one) for name, one in members(value.get("uncovered"))},
            "not_pinned": {"": _pair(value.get("not_pinned"))}}


def merge(ranks) -> dict | None:
    """Sum over the ranks that had device buffers; None: none had."""
    found = [rank.staging for rank in ranks if rank.staging]
    if not found:
        return None
    total = {"ranks": len(found), "ways": {}, "large": {}, "uncovered": {}, "not_pinned": {}}
    for one in found:
        for part in ("ways", "large", "uncovered", "not_pinned"):
            for name, pair in one[part].items():
                have = total[part].setdefault(name, [0, 0])
                have[0] += pair[0]
                have[1] += pair[1]
    total["not_pinned"] = total["not_pinned"].get("", [0, 0])
    return total


def sentence(total: dict) -> str:
    """One sentence over all ranks' calls."""
    ways = [f"{integer(total['ways'][name][0])} {words}" for name, words in WAYS.items() if total["ways"].get(name, [0])[0]]
    moved = sum(pair[1] for pair in total["ways"].values())
    parts = [f"through host memory: {', '.join(ways)}, {bytes_text(moved)}"] if ways else ["none through host memory"]
    large = [f"{integer(total['large'][name][0])} {words} ({bytes_text(total['large'][name][1])})"
             for name, words in LARGE.items() if total["large"].get(name, [0, 0])[0]]
    if large:
        parts.append(f"large messages sent {', '.join(large)}")
    if total["not_pinned"][0]:
        parts.append(f"{bytes_text(total['not_pinned'][1])} of it not pinned, slower: RESIL_STAGE_MEMORY is too small")
    passed = sorted(total["uncovered"].items(), key=lambda item: -item[1][0])
    if passed:
        why = ", ".join(f"{REASONS.get(name, name.replace('_', ' '))}: {integer(pair[0])}" for name, pair in passed)
        parts.append(f"{integer(sum(pair[0] for _, pair in passed))} calls LEFT TO THE LIBRARY ({why})")
    return "; ".join(parts)
