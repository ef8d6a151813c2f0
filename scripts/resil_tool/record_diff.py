# SPDX-License-Identifier: Apache-2.0
"""scripts/resil diff: where two recordings part, call by call for every rank and thread, and which of these places comes
first. Runs of failing polls are not compared: how often a program asks in vain is nobody's result.

What comes first cannot be read off clocks. A rank diverges from its other run either by itself (it contributes other data,
makes another call, logs another value, although all that MPI gave it before was the same) or because MPI gave it
something else (a result, a message) or matched otherwise (another source). Who was given something else is a victim, as
long as somebody parted by himself; among those, who had entered fewer collectives on the communicators that both use
comes first.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os

from . import record_text, symbols
from . import recording as r
from .progress import over
from .record_files import missing_ranks, opened, rank_files, world_size
from .text import clean, integer, plural, rank_name, rank_set, ranges

COMPUTED, MATCHED, RECEIVED = "computed", "matched", "received"
_ORDER = {COMPUTED: 0, MATCHED: 0, RECEIVED: 1}
_MOST_ORDERED = 16  # origins that are put into order by their collectives
_COLLECTIVE = frozenset("""Barrier Bcast Gather Gatherv Scatter Scatterv Allgather Allgatherv Alltoall Alltoallv Alltoallw
Reduce Allreduce Reduce_scatter Reduce_scatter_block Scan Exscan Comm_split Comm_dup Comm_create File_write_all
File_read_all Win_fence""".split())


@dataclasses.dataclass
class Divergence:
    key: tuple           # (world, rank)
    thread: int          # stream in the first recording
    kind: str            # COMPUTED, MATCHED or RECEIVED
    what: str            # what differs, a noun
    number: int          # of the call in the first recording; 0: before the first
    found_number: int    # in the second
    call: str
    step: int
    site: tuple
    expected: str
    found: str
    distance: str = ""


class _Side:
    """One thread of one recording as a sequence of what is compared: neither remarks, runs of failing polls nor what
    clocks said."""

    def __init__(self, stream, segment: int):
        self.items = (item for item in stream.items(segment) if item.kind != r.TEXT and not (
            item.kind == r.CALL and item.shape.flags & r.CALL_POLLS) and not (item.kind == r.VALUE and item.logged == "time"))
        self.last = None  # the call that later items belong to

    def next(self):
        item = next(self.items, None)
        if item is not None and item.kind == r.CALL:
            self.last = item
        return item


def _call_difference(a, b, sites):
    """(kind, what, expected, found, distance) of two calls, or None. `sites`: must be the same."""
    x, y = a.shape, b.shape
    if x is not y:
        if x.call != y.call:
            return COMPUTED, "call", x.call, y.call, ""
        if sites and (os.path.basename(x.site[0]), x.site[1]) != (os.path.basename(y.site[0]), y.site[1]):
            return COMPUTED, "call site", record_text.site(x.site, {}), record_text.site(y.site, {}), ""
        for name, show in (("peer", record_text.peer), ("tag", record_text.tag), ("bytes", integer),
                           ("comm", lambda comm: "%016x" % comm)):
            p, q = getattr(x, name), getattr(y, name)
            if p != q:
                return COMPUTED, {"comm": "communicator"}.get(name, name), show(p), show(q), ""
        if x.flags & ~r.CALL_FAILED != y.flags & ~r.CALL_FAILED or x.in_type != y.in_type:
            return COMPUTED, "kind of call", "flags %#x" % x.flags, "flags %#x" % y.flags, ""
    if a.count != b.count:
        return COMPUTED, "number of requests", integer(a.count), integer(b.count), ""
    if a.in_ != b.in_:
        return (COMPUTED, "contribution",) + _values(x.in_type, a.in_, b.in_)
    if x.out_type != y.out_type or (x.flags ^ y.flags) & r.CALL_FAILED:
        return RECEIVED, "return", "flags %#x" % x.flags, "flags %#x" % y.flags, ""
    if a.out != b.out:
        return (RECEIVED, "result",) + _values(x.out_type, a.out, b.out)
    if a.step != b.step:
        return COMPUTED, "step", integer(a.step), integer(b.step), ""
    if a.ordinal != b.ordinal:
        return COMPUTED, "requests started before", integer(a.ordinal), integer(b.ordinal), ""
    return None


def _values(type_, a, b):
    return record_text.value(type_, a), record_text.value(type_, b), record_text.distance(type_, a, b)


def _detail_difference(a, b):
    if a.kind == r.COMPLETION:
        if a.ordinal != b.ordinal or a.stream != b.stream:
            return MATCHED, "request that completed", "request %d" % a.ordinal, "request %d" % b.ordinal, ""
        if (a.source, a.tag) != (b.source, b.tag):
            return MATCHED, "message that was matched", "from %s, tag %d" % (record_text.peer(a.source), a.tag), \
                "from %s, tag %d" % (record_text.peer(b.source), b.tag), ""
        if a.flags != b.flags or a.bytes != b.bytes or a.type != b.type:
            return RECEIVED, "completion", "%d bytes, flags %#x" % (a.bytes, a.flags), \
                "%d bytes, flags %#x" % (b.bytes, b.flags), ""
        return (RECEIVED, "received data") + _values(a.type, a.digest, b.digest)
    if a.kind == r.VALUE:
        if (a.logged, a.name, a.type) != (b.logged, b.name, b.type):
            return COMPUTED, "logged value", "%s \"%s\"" % (a.logged, clean(a.name)), \
                "%s \"%s\"" % (b.logged, clean(b.name)), ""
        return (COMPUTED, "%s \"%s\"" % (a.logged, clean(a.name))) + _values(a.type, a.bits, b.bits)
    return MATCHED, "outcome", record_text.line(a, {}).strip(), record_text.line(b, {}).strip(), ""


def _same(a, b, sites) -> bool:
    """Equal but for the numbers, which count runs of polls too, and the paths of call sites."""
    if a.kind != b.kind:
        return False
    if a.kind == r.CALL:
        return (a[2] == b[2] and a[3:] == b[3:]) or (a[3:] == b[3:] and _call_difference(a, b, sites) is None)
    return a[2:] == b[2:]


class Comparison:
    """Of one thread of one rank."""

    def __init__(self, key, a, b, sites):
        self.key, self.a, self.b, self.sites = key, a, b, sites
        self.divergence, self.calls, self.cut = None, 0, ""

    def run(self):
        segment = self._equal_segments()
        self.calls = self.a.segments[segment].number if segment < len(self.a.segments) else \
            self.a.segments[-1].number if self.a.segments else 0
        left, right = _Side(self.a, segment), _Side(self.b, segment)
        while True:
            x, y = left.next(), right.next()
            if x is None or y is None:
                return self._ended(x, y, left, right)
            if not _same(x, y, self.sites):
                self.divergence = self._describe(x, y, left, right)
                return None
            self.calls += x.kind == r.CALL

    def _equal_segments(self) -> int:
        """The first segment whose bytes differ, or the last one: only from there on items must be looked at."""
        pairs = zip(self.a.segments, self.b.segments)
        last = min(len(self.a.segments), len(self.b.segments)) - 1
        for index, (one, two) in enumerate(pairs):
            if index == last or (one.number, one.ordinal) != (two.number, two.ordinal) \
                    or self.a.data(index) != self.b.data(index):
                return index
        return 0

    def _ended(self, x, y, left, right):
        if x is None and y is None:
            return
        stream = self.a if x is None else self.b
        recording = stream.recording
        if not stream.closed and recording.end != "finished":
            self.cut = "%s %s" % (recording.path, recording.problem)
            return
        item = x or y
        name = item.shape.call if item.kind == r.CALL else item.kind
        texts = [name, "the end"] if y is None else ["the end", name]
        last = left.last or right.last
        self.divergence = Divergence(self.key, self.a.id, COMPUTED, "number of calls", left.last.number if left.last else 0,
                                     right.last.number if right.last else 0, last.shape.call if last else "",
                                     last.step if last else 0, last.shape.site if last else ("", 0), *texts)

    def _describe(self, x, y, left, right) -> Divergence:
        if x.kind != y.kind:
            kinds = [item.shape.call if item.kind == r.CALL else item.kind for item in (x, y)]
            involved = {x.kind, y.kind} & {r.COMPLETION, r.OUTCOME, r.INDICES}
            found = (MATCHED if involved else COMPUTED, "what follows", kinds[0], kinds[1], "")
        else:
            found = (_call_difference(x, y, self.sites) if x.kind == r.CALL else _detail_difference(x, y)) or \
                (COMPUTED, x.kind, "one form", "another form", "")
        call = left.last
        return Divergence(self.key, self.a.id, found[0], found[1], x.number, y.number, call.shape.call if call else "",
                          call.step if call else 0, call.shape.site if call else ("", 0), *found[2:])


def _name(call: str) -> str:
    """"Allreduce" of MPI_Iallreduce_c."""
    name = call[4:].removesuffix("_c")
    return name[1:].capitalize() if name[:1] == "I" and name[1:2].islower() else name


def _collectives(stream, number: int) -> dict:
    """How many collectives the thread had entered on each communicator before call `number`."""
    counts: dict[int, int] = {}
    for item in stream.items():
        if item.number >= number:
            break
        if item.kind == r.CALL and _name(item.shape.call) in _COLLECTIVE:
            counts[item.shape.comm] = counts.get(item.shape.comm, 0) + 1
    return counts


def _in_order(comparisons) -> list:
    """Those that diverge, what comes first first."""
    found = sorted((c for c in comparisons if c.divergence), key=lambda c: (
        _ORDER[c.divergence.kind], c.divergence.step, c.divergence.number, c.key))
    origins = [c for c in found if _ORDER[c.divergence.kind] == _ORDER[found[0].divergence.kind]][:_MOST_ORDERED]
    if len(origins) > 1:
        entered = {id(c): _counted(c) for c in origins}

        def before(one, two) -> bool:
            common = set(entered[id(one)]) & set(entered[id(two)])
            pairs = [(entered[id(one)][comm], entered[id(two)][comm]) for comm in common]
            return any(p < q for p, q in pairs) and all(p <= q for p, q in pairs)
        first = next((c for c in origins if not any(before(other, c) for other in origins)), origins[0])
        found.remove(first)
        found.insert(0, first)
    return found


def _counted(comparison) -> dict:
    recording, _ = opened(comparison.a.recording.path)
    if recording is None:
        return {}
    with recording:
        try:
            return _collectives(recording.streams[comparison.a.id], comparison.divergence.number)
        except (KeyError, r.RecordingError):
            return {}


def run(first: str, second: str, rank, sites: bool, as_json: bool) -> int:
    """`sites`: the same program, so that calls come from the same places. 0 same, 1 they differ, 3 incomplete data and no difference."""
    files, others = rank_files(first), rank_files(second)
    problems, comparisons = [], []
    sizes = [world_size(directory) for directory in (first, second)]
    if sizes[0] != sizes[1] and all(sizes):
        problems.append("%s is a recording of %s, %s of %d" % (first, plural(sizes[0], "rank"), second, sizes[1]))
    if rank is not None:
        files = {key: path for key, path in files.items() if key == (0, rank)}
        others = {key: path for key, path in others.items() if key == (0, rank)}
    for directory, have in ((first, files), (second, others)):
        wanted = {(0, number) for number in missing_ranks(max(sizes), have)} if rank is None else {(0, rank)}
        missing = (wanted | set(files) | set(others)) - set(have)
        if missing:
            problems.append("%s: there is no recording of %s" % (directory, "rank%s %s" % (
                "" if len(missing) == 1 else "s", rank_set(missing))))
    created = 0
    for key in over(sorted(set(files) & set(others)), "comparing ranks"):
        pair = [opened(files[key]), opened(others[key])]
        problems += [problem for _, problem in pair if problem]
        try:
            if pair[0][0] and pair[1][0]:
                created = created or pair[0][0].identity.created
                comparisons += _compare_rank(key, pair[0][0], pair[1][0], sites, problems)
        finally:
            for recording, _ in pair:
                if recording:
                    recording.__exit__()
    found = _in_order(comparisons)
    if as_json:
        print(json.dumps(_as_object(found, comparisons, problems), indent=1))
    else:
        _print(found, comparisons, problems, created)
    return 1 if found else 3 if problems else 0


def _compare_rank(key, a, b, sites, problems) -> list:
    for field in ("build", "reduce") if sites else ("reduce",):
        x, y = getattr(a.identity, field), getattr(b.identity, field)
        if x != y:
            problems.append("%s: recordings of different programs: %s and %s" % (rank_name(key), x, y)
                            if field == "build" else "%s: RESIL_REDUCE was %s and %s" % (rank_name(key), x, y))
    done, others = [], {stream.key if sites else stream.id: stream for stream in b.streams.values()}
    for stream in a.streams.values():
        other = others.pop(stream.key if sites else stream.id, None)
        if other is None and b.damaged:
            continue
        if other is None:
            problems.append("%s: thread %d has no partner in %s" % (rank_name(key), stream.id, b.path))
            continue
        comparison = Comparison(key, stream, other, sites)
        try:
            comparison.run()
        except r.RecordingError as error:
            comparison.cut = str(error)
        if comparison.cut:
            problems.append(comparison.cut)
        done.append(comparison)
    for stream in () if a.damaged else others.values():
        problems.append("%s: thread %d has no partner in %s" % (rank_name(key), stream.id, a.path))
    for recording in (a, b):
        recording.check_matches()
        text = "%s %s" % (recording.path, recording.problem)
        if recording.problem and text not in problems:
            problems.append(text)
    return done


def _print(found, comparisons, problems, created):
    if found:
        d = found[0].divergence
        known = symbols.lookup([d.site] if d.site[0] else [], created + 1)
        print("first divergence: %s, call %s%s%s%s%s" % (
            rank_name(d.key), integer(d.number), " (%s)" % clean(d.call, 40) if d.call else "",
            ", step %d" % d.step if d.step else "", ", " + record_text.site(d.site, known) if d.site[0] else "",
            ", thread %d" % d.thread if d.thread != 1 else ""))
        print("  %s%s" % (d.what, ", %s" % d.distance if d.distance else ""))
        print("    first   %s" % d.expected)
        print("    second  %s%s" % (d.found, "  (its call %s)" % integer(d.found_number)
                                    if d.found_number != d.number else ""))
        print("  " + _verdict(d))
        for comparison in itertools.islice(found, 1, 6):
            e = comparison.divergence
            print("later: %s, call %s (%s): %s" % (rank_name(e.key), integer(e.number), clean(e.call, 40), e.what))
        if len(found) > 6:
            print("later: %s more" % plural(len(found) - 6, "thread"))
    calls = sum(comparison.calls for comparison in comparisons)
    print("%s: %s in %s of %s" % ("the same so far" if found else "the same", plural(calls, "call"),
                                  plural(len(comparisons), "thread"), plural(len({c.key for c in comparisons}), "rank")))
    for problem in problems[:20]:
        print("incomplete: " + clean(problem, 1500))
    if len(problems) > 20:
        print("incomplete: %d more" % (len(problems) - 20))


def _verdict(d) -> str:
    if d.kind == MATCHED:
        return "MPI chose differently, as it may: this alone can explain the differences that follow"
    if d.kind == COMPUTED:
        return "MPI gave this rank the same data up to here: it diverged by itself, before this call" if d.number else \
            "it diverged by itself, before its first call"
    return "no rank sent other data before: it changed on its way, or in a rank that is not compared"


def _as_object(found, comparisons, problems) -> dict:
    def one(comparison):
        d = dataclasses.asdict(comparison.divergence)
        world, rank = d.pop("key")
        site = d.pop("site")
        return dict({"world": world, "rank": rank}, **d, site="%s+%#x" % site if site[0] else None)
    return {"same": not found, "first": one(found[0]) if found else None, "later": [one(c) for c in found[1:]],
            "ranks": ranges({c.key[1] for c in comparisons}), "calls_equal": sum(c.calls for c in comparisons),
            "incomplete": problems}
