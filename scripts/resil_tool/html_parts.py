# SPDX-License-Identifier: Apache-2.0
"""Pieces of the HTML report: every text goes through `e`, so that a name in a file is text and nothing else. Touches no file."""

from __future__ import annotations

import html
import math

from .text import clean, clip


def e(value, limit: int = 2000) -> str:
    """Text of a file for HTML: no control characters, no markup."""
    return html.escape(clean(value, limit), quote=True)


def table(caption: str, heads: list[str], rows: list[list], numbers: set[int] | None = None) -> str:
    """`numbers`: columns set to the right."""
    numbers = numbers or set()

    def kind(i):
        return ' class="n"' if i in numbers else ""
    head = "".join('<th scope="col"%s>%s</th>' % (kind(i), e(name)) for i, name in enumerate(heads))
    body = "".join("<tr>%s</tr>" % "".join("<td%s>%s</td>" % (kind(i), e(value)) for i, value in enumerate(row)) for row in rows)
    return '<div class="scroll"><table><caption>%s</caption><thead><tr>%s</tr></thead><tbody>%s</tbody></table></div>' % (e(caption), head, body)


def facts(pairs: list[tuple[str, str]]) -> str:
    return "<dl>%s</dl>" % "".join("<dt>%s</dt><dd>%s</dd>" % (e(name), e(value)) for name, value in pairs if value)


def none(why: str) -> str:
    return '<p class="none">%s</p>' % e(why)


def picture(name: str, told: str, keys: str = "") -> str:
    """Room for a chart. `told`: what it shows, for those who do not see it."""
    return ('<figure id="%s"><div class="plot" tabindex="0" role="img" aria-label="%s. Arrow keys move through the values."></div>'
            '<output aria-live="polite"></output>%s<figcaption>%s</figcaption></figure>' % (name, e(told), keys, e(told)))


def line_key(colour: str, dashed: bool, words: str) -> str:
    return '<span class="key"><svg width="34" height="10" aria-hidden="true"><path d="M1 5H33" stroke="%s" stroke-width="3"%s/></svg>%s</span>' % (
        colour, ' stroke-dasharray="6 4"' if dashed else "", e(words))


def section(name: str, title: str, body: str) -> str:
    return '<section id="%s"><h2>%s</h2>%s</section>' % (name, e(title), body)


def graph(one: dict) -> str:
    """The wait-for graph: groups of ranks round a circle, an arrow for each wait."""
    nodes = one["nodes"][:12]
    wide, high, count = 360, 46, len(nodes)
    across, down = (0, 0) if count == 1 else (300, 0 if count == 2 else 60 + 26 * count)
    middle = (across + wide / 2 + 10, down + high / 2 + 10)
    at = [(middle[0] - across * math.cos(2 * math.pi * i / count), middle[1] - down * math.sin(2 * math.pi * i / count))
          for i in range(count)]
    out = []
    for begin, to, _ in one["edges"]:
        if begin >= count or to >= count or begin == to:
            continue
        side = 9 if (to, begin) in {(a, b) for a, b, _ in one["edges"]} else 0  # both ways: beside each other
        (x, y), (u, v) = _rim(at[begin], at[to], wide, high, side), _rim(at[to], at[begin], wide, high, -side)
        on = ' class="cycle"' if begin in one["cycle"] and to in one["cycle"] else ""
        out.append('<line x1="%.0f" y1="%.0f" x2="%.0f" y2="%.0f"%s marker-end="url(#tip)"/>' % (x, y, u, v, on))
    for (x, y), node in zip(at, nodes):
        name = ("rank " if node["count"] == 1 else "ranks ") + node["ranks"] + (" (accused)" if node["culprit"] else "")
        out.append('<rect x="%.0f" y="%.0f" width="%d" height="%d" rx="5"%s/>' % (x - wide / 2, y - high / 2, wide, high,
                                                                                 ' class="accused"' if node["culprit"] else ""))
        out.append('<text x="%.0f" y="%.0f" text-anchor="middle">%s</text><text x="%.0f" y="%.0f" text-anchor="middle" class="dim">%s</text>' % (
            x, y - 3, e(clip(name, 44)), x, y + 15, e(clip((node["call"] or node["state"]).split(" at ")[0], 46))))
    width, height = 2 * middle[0], 2 * middle[1]
    return ('<svg viewBox="0 0 %.0f %.0f" width="%.0f" style="max-width:100%%" role="img" aria-label="Wait-for graph; the list below says the '
            'same"><defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" '
            'orient="auto"><path d="M0 0L10 5L0 10z"/></marker></defs>%s</svg>' % (width, height, width, "".join(out)))


def _rim(start, end, wide, high, side):
    """Where the line from the middle `start` to the middle `end`, moved to its side, leaves the box round `start`."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy) or 1
    sx, sy = side * dy / length, -side * dx / length
    out = [((math.copysign(half + 2, step) - shift) / step) for half, step, shift in ((wide / 2, dx, sx), (high / 2, dy, sy)) if abs(step) > 1e-9]
    scale = min([1.0] + [one for one in out if one > 0])
    return start[0] + sx + dx * scale, start[1] + sy + dy * scale


def tree(node: dict, depth: int = 0) -> str:
    """Frames that all ranks of a node go through stand on one entry; branches below, the smallest first."""
    items = []
    for child in node["children"]:
        frames = [child["frame"]]
        while len(child["children"]) == 1 and child["children"][0]["count"] == child["count"]:
            child = child["children"][0]
            frames.append(child["frame"])
        words = '<span class="badge">%s%s%s</span> <span class="frames">%s</span>' % (
            "rank " if child["count"] == 1 else "ranks ", e(child["ranks"], 200), "" if child["count"] == 1 else ": %d" % child["count"],
            " › ".join(e(frame, 160) for frame in frames))
        if child["children"]:
            items.append("<li><details%s><summary>%s</summary>%s</details></li>" % (" open" if depth < 6 else "", words, tree(child, depth + 1)))
        else:
            items.append("<li>%s</li>" % words)
    return '<ul class="tree">%s</ul>' % "".join(items)
