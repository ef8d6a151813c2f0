# SPDX-License-Identifier: Apache-2.0
"""`resil graph --stacks`: the stacks of a job as one tree with ranks, as text or for Graphviz. From the newest dumps, else from what the
helper threads gathered with the last hang or answer; touches no other file."""

from __future__ import annotations

import os

from . import findings, gathered, remote_stacks, stacks
from .text import clean, clip, plural
from .values import text

MOST_LINES = 400
MOST_NODES = 600


def of_job(directory) -> tuple[dict | None, str]:
    """(tree as stacks.tree gives it, where it is from); None: there are no stacks."""
    tree = stacks.tree(directory)
    if tree:
        return tree, "the newest dumps of %s" % plural(tree["dumps"], "rank")
    ranks = list(directory.ranks.values())
    started = min((rank.start_time for rank in ranks if rank.start_time), default=0.0)
    for name in reversed(gathered.files(directory.path)):
        told = gathered.read(os.path.join(directory.path, name))
        if not told:
            continue
        libraries = gathered.of_libraries(told)
        own = {key: {number: frames for number, frames in threads.items() if number not in libraries}
               for key, threads in gathered.stacks(told, 0, findings.objects(directory, ranks), started).items()}
        tree = remote_stacks.tree({key: threads for key, threads in own.items() if threads})
        if tree:
            return tree, "%s (%s)" % (name, text(told.get("of"), 64))
    return None, ""


def lines(tree: dict, source: str) -> list[str]:
    return ["stacks of main threads and of the program's others, from %s" % source] + ["  " + line for line in remote_stacks.lines(tree, MOST_LINES)]


def dot(tree: dict, name: str) -> list[str]:
    """A node a frame, on each edge the ranks that go there: as STAT draws it. Shape and label tell what colour does."""
    out = ['digraph "%s" {' % _quoted(name, 200), "  node [shape=box];", '  n0 [label="%s"];' % _quoted("ranks " + tree["ranks"], 80)]
    number = 0

    def walk(node: dict, own: int) -> None:
        nonlocal number
        for child in node["children"]:
            if number >= MOST_NODES:
                return
            number += 1
            here = number
            few = child["count"] < tree["count"] and child["count"] <= max(1, tree["count"] // 8)
            out.append('  n%d [label="%s"%s];' % (here, _quoted(child["frame"], 120), ", peripheries=2" if few and not child["children"] else ""))
            out.append('  n%d -> n%d [label="%s"];' % (own, here, _quoted("%d: [%s]" % (child["count"], child["ranks"]), 60)))
            walk(child, here)
    walk(tree, 0)
    return out + ["}"]


def _quoted(words: str, most: int) -> str:
    return clip(clean(words, 400), most).replace("\\", "\\\\").replace('"', '\\"')
