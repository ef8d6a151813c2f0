# SPDX-License-Identifier: Apache-2.0
"""Words and numbers for people: rank sets, quantities, safe text, colour. Touches no file."""

from __future__ import annotations

import os
import re
import shutil
import sys

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")



def _width() -> int:
    """Columns to write, 80 to 160: those of a terminal, or what COLUMNS says; elsewhere 100, so that a saved report looks the same."""
    told = os.environ.get("COLUMNS", "").isdigit() or sys.stdout and sys.stdout.isatty()
    return min(160, max(80, shutil.get_terminal_size((100, 40)).columns)) if told else 100


WIDTH = _width()


def clean(value, limit: int = 400) -> str:
    """Text from a file, made safe for a terminal: no control character (escape sequences), bounded length."""
    text = _CONTROL.sub("?", str(value).replace("\t", " ").replace("\n", " "))
    return text if len(text) <= limit else text[:limit - 1] + "…"


def clip(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else text[:max(0, width - 1)] + "…"


def wrap(text: str, first: str, rest: str, width: int = WIDTH, lines: int = 2) -> list[str]:
    """`text` on at most `lines` lines, the last one clipped; prefixes `first` and `rest`."""
    out, prefix, words = [], first, text.split(" ")
    while words:
        line = prefix + words.pop(0)
        last = len(out) == lines - 1
        while words and (last or len(line) + 1 + len(words[0]) <= width):
            line += " " + words.pop(0)
        out.append(clip(line, width))
        prefix = rest
        if last:
            break
    return out


def rank_label(key: tuple[int, int]) -> str:
    """(world, rank): "3" in the first world, "w1:3" in a spawned one."""
    return "%d" % key[1] if key[0] == 0 else "w%d:%d" % key


def rank_name(key: tuple[int, int]) -> str:
    return "rank %d" % key[1] if key[0] == 0 else "rank %d of world %d" % (key[1], key[0])


def ranges(numbers, most: int = 12) -> str:
    """"3,5-9": sorted, compressed, at most `most` pieces."""
    pieces: list[list[int]] = []
    for number in sorted(set(numbers)):
        if pieces and number == pieces[-1][1] + 1:
            pieces[-1][1] = number
        else:
            pieces.append([number, number])
    words = ["%d" % low if low == high else "%d-%d" % (low, high) for low, high in pieces]
    return ",".join(words[:most]) + (",… (%d in all)" % len(set(numbers)) if len(words) > most else "")


def rank_set(keys, most: int = 12) -> str:
    """Compressed set of (world, rank): "0-3" or "0-3, w1:0-1"."""
    worlds: dict[int, list[int]] = {}
    for world, rank in keys:
        worlds.setdefault(world, []).append(rank)
    return ", ".join(("w%d:" % world if world else "") + ranges(worlds[world], most) for world in sorted(worlds))


def ranks_word(those: str) -> str:
    """"rank 3" or "ranks 3,5-9", of a set that is text already."""
    return ("ranks " if set("-,") & set(those) else "rank ") + those


def ranks_phrase(keys) -> str:
    """"rank 3" or "ranks 3,5-9"."""
    keys = list(keys)
    return rank_name(keys[0]) if len(keys) == 1 else "ranks " + rank_set(keys)


def plural(count: int, word: str) -> str:
    return "%s %s%s" % (integer(count), word, "" if count == 1 else "s")


def integer(value: int) -> str:
    return format(value, ",") if value < 10**12 else "%.3g" % value


def significant(value: float) -> str:
    """Four digits, and thousands apart: "0.0123", "67.98", "4,096"."""
    return "%.4g" % value if abs(value) < 1e3 or abs(value) >= 1e8 else format(round(value), ",")


def bytes_text(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024 or unit == "PiB":
            return "%d B" % value if unit == "B" else "%.1f %s" % (value, unit)
        value /= 1024
    return ""


def seconds_text(value: float | None) -> str:
    if value is None:
        return "?"
    if value >= 3600:
        return "%d h %02d min" % (value // 3600, value % 3600 // 60)
    if value >= 100:
        return "%d min %02d s" % (value // 60, value % 60)
    return "%.3g s" % value if value >= 0.0995 else "%.3g ms" % (value * 1e3)


def colour(text: str, code: str, stream=None) -> str:
    """ANSI colour `code` on a terminal without NO_COLOR, else `text` itself."""
    stream = stream or sys.stdout
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not stream.isatty():
        return text
    return "\033[%sm%s\033[0m" % (code, text)
