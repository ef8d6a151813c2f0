# SPDX-License-Identifier: Apache-2.0
"""The wait-for graph of a hang, from hang-N.json: who waits for whom, in which call; as text and for Graphviz. The edges are those that
the file gives; of a file without them, only those stand where its evidence says whom a call waits for. Touches no
file beyond the report directory."""

from __future__ import annotations

import json
import re
import sys

from . import place
from .text import clean, clip, plural, ranges
from .values import integer, items, rank_list, text

MOST_EDGES = 200
MOST_TOLD = 1024
MOST_RANKS = 1 << 22

_SUBJECT = re.compile(r"ranks? ([\d,\- …]+)$")
_PEER = re.compile(r"\b(?:from|to|for|with) (rank (\d{1,9})|ranks ([\d,\-]+)|any rank|MPI_ANY_SOURCE)")
_COLLECTIVE = re.compile(r"call \d+ of (MPI_\w+) on ([^,;]+?)(?: at \S+)?(?:,|;|$)")
_AGE = re.compile(r", for ([\d.]+ s)")


def numbers(text_: str) -> set[int]:
    """"0,2-3" as numbers; what is no number is left out."""
    found: set[int] = set()
    for piece in re.findall(r"\d{1,9}(?:-\d{1,9})?", text_):
        low, _, high = piece.partition("-")
        first, last = int(low), int(high or low)
        if first <= last < MOST_RANKS:
            found.update(range(first, last + 1))
    return found


def graph(finding: dict) -> dict | None:
    """nodes: groups of ranks in one call, `culprit` among them; edges: (from, to, what it waits for), numbers of nodes. None where
    the file tells nothing of it."""
    hang = finding.get("hang") or {}
    nodes: list[dict] = []
    core: set[int] = set()
    culprits = set(finding["culprit_ranks"])
    for line in items(hang.get("evidence"))[:64]:
        name, _, said = text(line, 1000).partition(": ")
        subject = _SUBJECT.match(name)
        if name in ("core", "peer"):
            core |= numbers(said)
        elif subject and said.strip():
            ranks = numbers(subject.group(1))
            call = _COLLECTIVE.search(said + ",")
            age = _AGE.search(said)
            nodes.append({"ranks": ranks, "call": _AGE.split(said)[0].strip(), "age": age.group(1) if age else "",
                          "note": said.partition("; ")[2], "collective": call.group(0).split(" at ")[0].rstrip(",;") if call else "",
                          "state": "blocked"})
    listed = set().union(*(node["ranks"] for node in nodes)) if nodes else set()
    nodes += _others(hang, listed, culprits)
    nodes = _apart(nodes, culprits)
    if not nodes:
        return None
    told = [edge for edge in items(hang.get("edges"))[:MOST_TOLD] if isinstance(edge, dict)]
    edges = list(dict.fromkeys(_told_edges(told, nodes)))[:MOST_EDGES]
    for number, node in enumerate(nodes):
        for to, label in [] if told else _targets(node, number, nodes, core | culprits):
            if len(edges) < MOST_EDGES and (number, to, label) not in edges:
                edges.append((number, to, label))
    for node in nodes:
        node["culprit"] = bool(node["ranks"] & culprits)
    return {"source": finding["source"], "nodes": nodes, "edges": edges, "cycle": _cycle(len(nodes), edges)}


def _others(hang: dict, listed: set[int], culprits: set[int]) -> list[dict]:
    """Ranks of which the evidence has no line, by the state that the file gives."""
    groups: dict[tuple, set[int]] = {}
    for one in items(hang.get("ranks")):
        rank = integer(one.get("rank"), 0, MOST_RANKS, None) if isinstance(one, dict) else None
        if rank is not None and rank not in listed:
            state, call = text(one.get("state"), 20), text(one.get("call"), 48)
            call = call if state in ("blocked", "polling") else ""
            if call and integer(one.get("sequence")):
                call += " #%d" % integer(one.get("sequence"))
            groups.setdefault((state or "unknown", call, rank in culprits), set()).add(rank)
    for rank in items(hang.get("unanswered"))[:MOST_EDGES]:
        if integer(rank, 0, MOST_RANKS, None) is not None and rank not in listed:
            groups.setdefault(("unknown", "", rank in culprits), set()).add(int(rank))
    return [{"ranks": ranks, "call": call, "age": "", "note": "", "collective": "", "state": state}
            for (state, call, _), ranks in groups.items()]


def _apart(nodes: list[dict], culprits: set[int]) -> list[dict]:
    """No group holds culprits and others."""
    out = []
    for node in nodes:
        for ranks in (node["ranks"] & culprits, node["ranks"] - culprits):
            if ranks:
                out.append(dict(node, ranks=ranks))
    return sorted(out, key=lambda node: (len(node["ranks"]), min(node["ranks"])))[:MOST_EDGES]


def edge_words(edge: dict) -> str:
    """What an edge of hang-N.json waits for: "MPI_Allreduce, collective 11, on MPI_COMM_WORLD"."""
    words = [text(edge.get("call"), 40) or "a call"]
    if integer(edge.get("sequence")):
        words.append("collective %d" % integer(edge.get("sequence")))
    if edge.get("tag") is not None:
        words.append("tag %d" % integer(edge.get("tag"), 0, 2**31))
    if text(edge.get("communicator")):
        words.append("on " + text(edge.get("communicator"), 80))
    return ", ".join(words)


def _told_edges(told: list[dict], nodes: list[dict]):
    """(from, to, label) between nodes, of the edges that the library gives."""
    for edge in told:
        begin, to = set(rank_list(edge.get("from"))), set(rank_list(edge.get("to")))
        for number, node in enumerate(nodes):
            if node["ranks"] & begin:
                yield from ((number, other, clip(edge_words(edge), 90)) for other in range(len(nodes))
                            if other != number and nodes[other]["ranks"] & to)


def _targets(node: dict, own: int, nodes: list[dict], blamed: set[int]):
    """(number of the node, label)."""
    if node["collective"]:
        for number, other in enumerate(nodes):
            if number != own and other["ranks"] & blamed and other["collective"] != node["collective"]:
                yield number, node["collective"]
        return
    for match in _PEER.finditer(node["call"]):
        wanted = {int(match.group(2))} if match.group(2) else numbers(match.group(3) or "")
        for number, other in enumerate(nodes):
            if other["ranks"] & wanted:
                yield number, clip(node["call"].split(" at ")[0], 90)


def _cycle(count: int, edges) -> list[int]:
    """Numbers of the nodes round one cycle, [] without."""
    ahead: dict[int, list[int]] = {}
    for begin, to, _ in edges:
        ahead.setdefault(begin, []).append(to)
    done: set[int] = set()
    for start in range(count):
        path, on, stack = [], set(), [(start, iter(ahead.get(start, ())))]
        if start in done:
            continue
        path.append(start)
        on.add(start)
        while stack:
            number, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                on.discard(number)
                done.add(number)
                path.pop()
            elif following in on:
                return path[path.index(following):]
            elif following not in done:
                stack.append((following, iter(ahead.get(following, ()))))
                path.append(following)
                on.add(following)
    return []


def of_findings(findings: list[dict]) -> list[dict]:
    """Graphs as --json has them: ranks as ranges."""
    graphs = [graph(finding) for finding in findings[:16] if finding.get("hang")]
    return [{"source": one["source"], "cycle": one["cycle"], "edges": [list(edge) for edge in one["edges"]],
             "nodes": [dict(node, ranks=ranges(node["ranks"], 10**6), count=len(node["ranks"])) for node in one["nodes"]]}
            for one in graphs if one]


def _name(node: dict, most: int = 40) -> str:
    return "%s %s" % ("rank" if node["count"] == 1 else "ranks", clip(node["ranks"], most))


def lines(one: dict) -> list[str]:
    """A line an edge, the culprits marked."""
    wide = min(34, max(len(_name(node)) for node in one["nodes"]))
    out = []
    for begin, to, label in one["edges"]:
        node, other = one["nodes"][begin], one["nodes"][to]
        marks = " (accused)" if other["culprit"] else ""
        if begin in one["cycle"] and to in one["cycle"]:
            marks += " (cycle)"
        out.append("  %s %s for %s%s: %s" % (_name(node).ljust(wide), "waits" if node["count"] == 1 else "wait", _name(other), marks, label))
    at_rest = {edge[0] for edge in one["edges"]}
    for number, node in enumerate(one["nodes"]):
        if number not in at_rest and (node["call"] or node["state"] != "unknown"):
            out.append("  %s %s for nobody that is known: %s" % (_name(node).ljust(wide), "waits" if node["count"] == 1 else "wait",
                                                                node["call"] or node["state"]))
    return out


def _quoted(value: str) -> str:
    return '"%s"' % clean(value, 300).replace("\\", "\\\\").replace('"', '\\"')


def dot(one: dict, name: str) -> list[str]:
    """For `dot -Tsvg`. Shape and label tell what colour does."""
    out = ["digraph %s {" % _quoted(name), '  rankdir="LR"; node [shape=box];']
    for number, node in enumerate(one["nodes"]):
        label = "%s%s\\n%s" % (_quoted(_name(node))[1:-1], " (accused)" if node["culprit"] else "",
                               _quoted(clip(node["call"] or node["state"], 80))[1:-1])
        out.append('  n%d [label="%s"%s];' % (number, label, ", peripheries=2, color=red" if node["culprit"] else ""))
    for begin, to, label in one["edges"]:
        bold = ", style=bold" if begin in one["cycle"] and to in one["cycle"] else ""
        out.append("  n%d -> n%d [label=%s%s];" % (begin, to, _quoted(clip(label, 80)), bold))
    return out + ["}"]


def add_command(commands, job_help: str) -> None:
    parser = commands.add_parser("graph", help="who waits for whom, of a hang that was found; where all ranks' stacks part",
                                 epilog="exit status: 1 there are such waits (with --stacks: 0 there are stacks), 2 usage (or no such job), 3 none are known")
    parser.add_argument("job", nargs="?", metavar="JOB", help=job_help)
    parser.add_argument("--stacks", action="store_true", help="the stacks of all ranks as one tree, from dumps or from what a hang left")
    parser.add_argument("--dot", action="store_true", help="for Graphviz: resil graph --dot JOB | dot -Tsvg > graph.svg")
    parser.add_argument("--json", action="store_true", help="as `waits_for` of resil report --json; with --stacks: frame, ranks, count, children")
    parser.set_defaults(run=run)


def run(options) -> int:
    from .report import load  # pylint: disable=import-outside-toplevel
    from .summary import merge  # pylint: disable=import-outside-toplevel
    directory = load(options.job, may_collect=False)
    if options.stacks:
        return _stacks(directory, options)
    graphs = merge(directory)["waits_for"]
    if not graphs:
        sys.stderr.write("resil: no hang was found in this job that says who waits for whom\n")
        return 3
    if options.json:
        print(json.dumps(graphs, indent=1))
        return 1
    for one in graphs:
        if options.dot:
            print("\n".join(dot(one, one["source"])))
        else:
            print("%s: %s" % (one["source"], plural(len(one["edges"]), "wait")))
            print("\n".join(lines(one)))
    return 1


def _stacks(directory, options) -> int:
    from . import stack_graph  # pylint: disable=import-outside-toplevel
    tree, source = stack_graph.of_job(directory)
    if not tree:
        sys.stderr.write("resil: this job left no stacks: %s dump makes its ranks write them while they run\n" % place.command())
        return 3
    if options.json:
        print(json.dumps(dict(tree, source=source), indent=1))
    else:
        print("\n".join(stack_graph.dot(tree, directory.path) if options.dot else stack_graph.lines(tree, source)))
    return 0
