# SPDX-License-Identifier: Apache-2.0
"""How far long work has come: a line on standard error, where that is a terminal, that is gone when the work is done. Nothing else is
written meanwhile. Touches no file."""

from __future__ import annotations

import contextlib
import os
import sys
import time

from .text import integer

PATIENCE = 0.4  # seconds of work before anything is shown
PACE = 0.1      # seconds from one line to the next
NARROW = 60     # columns, below which there are per cent in place of numbers


class Progress:
    """`what` is being done, `total` times; 0: nobody knows how often. One within another one is not shown."""

    _shown: "Progress | None" = None

    def __init__(self, what: str, total: int = 0, patience: float = PATIENCE):
        self.what, self.total, self.done = what, total, 0
        self.stream = sys.stderr
        self.next = time.monotonic() + patience
        self.drawn = False

    def __enter__(self) -> "Progress":
        if Progress._shown is None and self._is_terminal():
            Progress._shown = self
        return self

    def __exit__(self, *_) -> None:
        self.clear()
        if Progress._shown is self:
            Progress._shown = None

    def _is_terminal(self) -> bool:
        try:
            return os.environ.get("TERM", "") != "dumb" and bool(self.stream) and self.stream.isatty()
        except ValueError:  # closed
            return False

    def at(self, done: int, what: str = "") -> None:
        """So much is done; `what` is next, told at once."""
        self.done, told = done, bool(what) and what != self.what
        self.what = what or self.what
        if Progress._shown is self and (time.monotonic() >= self.next or (told and self.drawn)):
            self.next = time.monotonic() + PACE
            self._write("\r" + line(self.what, self.done, self.total, self._columns()) + "\033[K")
            self.drawn = True

    def step(self, what: str = "") -> None:
        self.at(self.done + 1, what)

    def clear(self) -> None:
        """Before something else is printed on the terminal."""
        if self.drawn:
            self._write("\r\033[K")
            self.drawn = False

    def _columns(self) -> int:
        told = os.environ.get("COLUMNS", "")
        try:
            return int(told) if told.isdigit() and int(told) else os.get_terminal_size(self.stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # the terminal is gone; the work goes on
            Progress._shown = None
            self.drawn = False


@contextlib.contextmanager
def silent():
    """Nothing is shown meanwhile: what is printed for programs goes to the terminal, too."""
    before, Progress._shown = Progress._shown, Progress("")  # pylint: disable=protected-access
    try:
        yield
    finally:
        Progress._shown = before  # pylint: disable=protected-access


def over(items, what: str):
    """Each of the items, while a line says how many are done."""
    items = list(items)
    with Progress(what, len(items)) as progress:
        for number, item in enumerate(items):
            progress.at(number)
            yield item


def line(what: str, done: int, total: int, columns: int) -> str:
    """At most `columns` - 1 characters, so that no terminal begins a new line."""
    room = columns - 1
    if not total:
        return (what + " ...")[:max(0, room)]
    done = min(done, total)
    said = "%d %%" % (100 * done // total) if columns < NARROW else "%s of %s" % (integer(done), integer(total))
    width = min(30, room - len(what) - len(said) - 6)
    if width < 5:
        return ("%s  %s" % (what[:max(0, room - len(said) - 2)], said))[:max(0, room)]
    full = width * done // total
    return "%s  [%s%s]  %s" % (what, "#" * full, "-" * (width - full), said)
