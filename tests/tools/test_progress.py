# SPDX-License-Identifier: Apache-2.0
"""How far long work has come (progress.py): a line on standard error of a terminal that fits its width and is gone at the end; nothing
where there is no terminal. Touches pseudo-terminals and the report directories that it makes."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

import support
from support import ROOT, TOOL, Case

from resil_tool import progress

# Work of 500 pieces, of which the line tells each: no time passes between two of them.
WORK = """
import sys
sys.path.insert(0, %r)
from resil_tool import progress
progress.PACE = 0
with progress.Progress("reading reports", 500, 0) as line:
    for number in range(500):
        line.at(number)
    line.clear()
    print("%%d said" %% number)
    with progress.Progress("within it", 9, 0) as inner:
        inner.at(3)
""" % os.path.join(ROOT, "scripts")


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


def on_terminal(line, columns, output=None, **environment):
    """(status, what a terminal of so many columns got). Standard output goes to the file `output`, or there, too."""
    top, end = os.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "TERM")}
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=output or end, stderr=end,
                          env={**clean, "TERM": "xterm", **environment}) as child:
        os.close(end)
        said = b""
        while True:
            try:
                piece = os.read(top, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            said += piece
    os.close(top)
    return child.returncode, said.decode().replace("\r\n", "\n")


def screen(text):
    """(lines that stay, widest line that was ever seen)."""
    widest, lines = 0, [""]
    for piece in re.findall(r"\x1b\[K|\r|\n|[^\r\n\x1b]+", text):
        if piece == "\x1b[K":
            lines[-1] = lines[-1][:at]
        elif piece == "\r":
            at = 0
        elif piece == "\n":
            lines.append("")
            at = 0
        else:
            at = len(piece)
            lines[-1] = piece
            widest = max(widest, at)
    return [line for line in lines if line], widest


class Progress(Case):
    def test_width(self):
        self.assertEqual(progress.line("reading reports", 1234, 4096, 80), "reading reports  [#########---------------------]  1,234 of 4,096")
        self.assertEqual(progress.line("reading reports", 1234, 4096, 40), "reading reports  [####----------]  30 %")
        for columns in range(1, 200):
            for what, done, total in (("reading flight recorders", 0, 0), ("x", 7, 9), ("waiting for dumps", 123456, 1234567)):
                self.assertLess(len(progress.line(what, done, total, columns)), columns)

    def test_on_terminals(self):
        for columns in (80, 40, 12):
            for colour in ({}, {"NO_COLOR": "1"}):
                status, said = on_terminal([sys.executable, "-c", WORK], columns, **colour)
                self.assertEqual(status, 0, said)
                stays, widest = screen(said)
                self.assertEqual(stays, ["499 said"])
                self.assertTrue(min(columns - 1, 20) <= widest < columns, (columns, widest))
                self.assertEqual(re.sub(r"\x1b\[K", "", said).count("\x1b"), 0)  # no colour, with or without NO_COLOR
                self.assertNotIn("within it", said)
        self.assertEqual(on_terminal([sys.executable, "-c", WORK], 40, COLUMNS="80")[1].count("of 500"), 500)

    def test_nowhere_else(self):
        self.assertEqual(on_terminal([sys.executable, "-c", WORK], 80, TERM="dumb")[1], "499 said\n")
        done = subprocess.run([sys.executable, "-c", WORK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        self.assertEqual((done.stdout, done.stderr), (b"499 said\n", b""))

    def test_commands(self):
        """A command that works long leaves its result alone on the terminal, and the result in a file is the same."""
        for rank in range(64):
            self.report(rank=rank, size=64)
        impatient = "import sys; sys.path.insert(0, %r)\nfrom resil_tool import progress, cli\nprogress.PATIENCE = progress.PACE = 0\n" \
            "progress.Progress.__init__.__defaults__ = (0, 0)\nsys.exit(cli.main(sys.argv[1:]))" % os.path.join(ROOT, "scripts")
        for words in (["report"], ["report", "--json"], ["hosts"], ["html", "--output", "-"], ["export", "--csv"]):
            line = [sys.executable, "-c", impatient, *words, self.directory]
            with tempfile.TemporaryFile() as file:
                status, said = on_terminal(line, 80, file)
                file.seek(0)
                out = file.read().decode()
            plain = subprocess.run([sys.executable, TOOL, *words, self.directory], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            self.assertEqual(status, plain.returncode, said)
            self.assertRegex(said, r"\rreading (reports|jobs)  \[-+\]  0 of \d+\x1b\[K")
            self.assertEqual(screen(said)[0], [], words)
            was, now = (re.sub(r"\d\d:\d\d:\d\d", "TIME", text.replace(ROOT + "/", "")) for text in (plain.stdout.decode(), out))
            self.assertEqual(now, was, words)
        # To the terminal itself: the table for programs is alone there from its first line on.
        said = on_terminal([sys.executable, "-c", impatient, "export", "--csv", self.directory], 80)[1]
        self.assertNotIn("\r", said[said.index("directory,"):])


if __name__ == "__main__":
    unittest.main()
