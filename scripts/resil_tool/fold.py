# SPDX-License-Identifier: Apache-2.0
"""Ranks that say the same on one line: sentences that differ in numbers and ages only become one, with the range of each. Names of
hosts likewise. Touches no file."""

from __future__ import annotations

import re

from .text import integer, ranges

# An age ("for 138 us", "1 min 05 s" is left alone), or a number that stands alone; what follows "called at", "+0x" and ":" is a place.
_PART = re.compile(r"(?P<age>(?<![\w.:+,#])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)? (?:ns|us|µs|ms|s)\b)|(?P<number>(?<![\w.:+,])#?\d[\d,]*(?![\w.]))")
_PLACE = re.compile(r"(?:called |started |posted |now )?at \S+ at \S+:\d+|\S+\+0x[0-9a-f]+|\S+:\d+")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_HOST = re.compile(r"(.*?)(\d+)(\D*)$")


FEW = 8  # groups of ranks that differ in more than ages: these keep a line each


def _split(sentence: str, ages_only: bool = False) -> tuple[str, list[tuple[str, float, str]]]:
    """(what stays, the parts that may differ: kind, value, as it is written)."""
    kept, parts, at = [], [], 0
    places = [match.span() for match in _PLACE.finditer(sentence)]
    for match in _PART.finditer(sentence):
        if any(begin <= match.start() < end for begin, end in places) or (ages_only and not match.group("age")):
            continue
        written = match.group(0)
        if match.group("age"):
            digits, unit = written.rsplit(" ", 1)
            parts.append(("age", float(digits.replace(",", "")) * _UNITS[unit], written))
        else:
            parts.append(("number", float(written.lstrip("#").replace(",", "")), written))
        kept += [sentence[at:match.start()], "\0"]
        at = match.end()
    return "".join(kept) + sentence[at:], parts


def template(sentence: str) -> str:
    """Equal for sentences that differ in numbers and ages only."""
    return _split(sentence)[0]


def merge(sentences: list[str], ages_only: bool = False) -> str:
    """One sentence for all of them, which have the same template: "#5,316…5,338", "for 138 us…0.002 s"."""
    split = [_split(sentence, ages_only) for sentence in dict.fromkeys(sentences)]
    words = split[0][0].split("\0")
    out = [words[0]]
    for i, word in enumerate(words[1:]):
        column = [parts[i] for _, parts in split]
        low, high = min(column, key=lambda part: part[1]), max(column, key=lambda part: part[1])
        out += [low[2] if low[1] == high[1] else "%s…%s" % (low[2], high[2].lstrip("#")), word]
    return "".join(out)


def groups(said: list[tuple[tuple[int, int], str]]) -> list[tuple[list, str]]:
    """(ranks, sentence) of those who say the same but for ages, and where there are many such groups but for numbers; the smallest
    group first: the odd one out is the interesting one."""
    found = _grouped(said, True)
    return found if len(found) <= FEW else _grouped(said, False)


def _grouped(said, ages_only: bool) -> list[tuple[list, str]]:
    found: dict[str, list] = {}
    for key, sentence in said:
        found.setdefault(_split(sentence, ages_only)[0], []).append((key, sentence))
    merged = [([key for key, _ in members], merge([sentence for _, sentence in members], ages_only)) for members in found.values()]
    return sorted(merged, key=lambda group: (len(group[0]), group[0][0]))


def hosts(ranks_of: dict[str, int], most: int = 6) -> str:
    """Hosts with equally many ranks on one entry: "nid[00000-00063], 64 ranks each"."""
    by_count: dict[int, list[str]] = {}
    for host, count in ranks_of.items():
        by_count.setdefault(count, []).append(host)
    words = []
    for count, names in sorted(by_count.items(), key=lambda item: len(item[1])):
        families: dict[tuple, list[int]] = {}
        single = []
        for name in names:
            parts = _HOST.match(name)
            if parts and len(parts.group(2)) < 10:
                families.setdefault((parts.group(1), len(parts.group(2)), parts.group(3)), []).append(int(parts.group(2)))
            else:
                single.append(name)
        named = []
        for (head, width, tail), numbers in families.items():
            if len(numbers) == 1:
                named.append("%s%0*d%s" % (head, width, numbers[0], tail))
                continue
            pieces = ranges(numbers, most).split(",")
            wide = ["-".join(end.zfill(width) if end.isdigit() else end for end in piece.split("-")) for piece in pieces]
            named.append("%s[%s]%s" % (head, ",".join(wide), tail))
        named += single
        more = len(named) - most
        each = " each" if len(names) > 1 else ""
        words.append("%s%s (%s rank%s%s)" % (", ".join(named[:most]), " and %d more" % more if more > 0 else "", integer(count),
                                             "" if count == 1 else "s", each))
    return ", ".join(words)
