# SPDX-License-Identifier: Apache-2.0
"""Output that pages show, and its shape: what the same commands print now, but for numbers, addresses, times, hosts and names of report
directories.

A block without a language says in the comment in front of it what it is: `<!-- shows -->` lines of what the commands above it printed;
`<!-- shows: mpi=mpich app=NAME.c; COMMAND -->` lines of what COMMAND prints, ./app being tests/mpi/NAME.c; `<!-- site file -->` lines
of /etc/resil.conf. A line that is `…` alone leaves lines out."""
import re
import socket

BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)
HOSTS = {"vm", "node-1", socket.gethostname(), socket.gethostname().split(".")[0]}
# What another run has otherwise, and what stands for it; of two that match, the first one counts.
PLACES = (
    (r"(?:/[\w.-]+)*/?resil-[\w.]+-\d{8}T\d{4}Z-[\w.]+",) * 2,
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d",) * 2,
    (r"node-[\w.-]+\.jsonl",) * 2,
    (r"\bv\d+\.\d+\.\w+",) * 2,
    (r"[\w.-]+\+0x[0-9a-f]+",) * 2,
    (r"\b0x[0-9a-f]+",) * 2,
    (r"\b[0-9a-f]{2}(?: [0-9a-f]{2}){7}\b",) * 2,
    (r"\b[0-9a-f]{16}\b",) * 2,
    (r"\b(?:" + "|".join(map(re.escape, sorted(HOSTS))) + r")\b", r"[\w.-]+"),
    (r"(?<![\w.])\d[\d,]*(?:\.\d+)*",) * 2,
)
PLACE = re.compile("|".join(f"(?P<p{number}>{place})" for number, (place, _) in enumerate(PLACES)))


def pattern(text):
    """A regular expression for text of that shape; how it was wrapped does not matter, nor what a line `…` stands for."""
    made = []
    for part in re.split(r"(?m)^ *…$", text):
        words, end, piece = " ".join(part.split()), 0, ""
        for match in PLACE.finditer(words):
            piece += re.escape(words[end:match.start()]) + PLACES[int(match.lastgroup[1:])][1]
            end = match.end()
        made.append(piece + re.escape(words[end:]))
    return re.compile(".*?".join(made), re.S)


def printed(outputs):
    """What commands printed (bytes), as pattern() takes it: one blank between words."""
    return " ".join(b"\n".join(outputs).decode(errors="replace").split())


def compare(text, outputs, where):
    found = pattern(text).search(printed(outputs))
    assert found, (f"{where}: the page shows\n{text}\nwhich has not the shape of what is printed:\n" +
                   "\n".join(output.decode(errors="replace") for output in outputs))


class Shown:
    """A block of the page that is no command. `kind`: shows or site file; `options`, `line`: of a command of its own."""

    def __init__(self, page, words, text):
        self.page, self.text = page, text
        self.kind, _, rest = (words or "").partition(":")
        assert self.kind in ("shows", "site file"), f"{page}: a block without a comment that says what it shows: {text[:60]!r}"
        options, _, self.line = rest.strip().partition("; ")
        self.options = dict(word.split("=", 1) for word in options.split())
        assert set(self.options) <= {"mpi", "app"}, (page, words)
        assert bool(self.options) == bool(self.line) and (self.kind == "shows" or not rest), (page, words)
