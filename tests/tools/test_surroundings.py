# SPDX-License-Identifier: Apache-2.0
"""What the command is started in: locales that are not UTF-8, no terminal, no standard streams, a narrow and a dumb one; with names
of programs and hosts that hold control characters, markup and letters that the locale does not have."""
import json
import os
import pty
import subprocess
import sys
import unittest

import support

ODD = "h\u00f6st\u2028\x1b[2J\x07<img src=x onerror=alert(1)>\udcff"
POSIX = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
COMMANDS = (("report",), ("report", "--json"), ("html", "--output", "OUT"), ("graph",), ("export", "--csv"), ("export", "--jsonl"),
            ("export", "--prometheus"), ("hosts",))


class Surroundings(support.Case):
    def setUp(self):
        super().setUp()
        for rank in range(2):
            self.report(rank=rank, size=2, host=ODD, executable="/home/\u00fcser/" + ODD, modes="watch", notes=[ODD],
                        findings=[{"kind": "message_corrupted", "confidence": "proved", "culprit_ranks": [], "victim_ranks": [rank],
                                   "message": ODD + " and so on" * 40, "evidence": {"sender_host": ODD, ODD: ODD}}])

    def start(self, words, **more):
        words = [os.path.join(self.top, "out.html") if word == "OUT" else word for word in words]
        environment = {**os.environ, **more.pop("environment", {})}
        return subprocess.run([sys.executable, support.TOOL, *words, self.directory], env=environment, cwd=self.top, timeout=120, check=False, **more)

    def safe(self, words, text):
        self.assertNotIn(b"Traceback", text, words)
        for bad in (b"\x1b", b"\x07", b"<img src"):
            if bad != b"<img src" or words[0] == "html":
                self.assertNotIn(bad, text, words)

    def test_every_command_in_a_locale_without_utf_8(self):
        for words in COMMANDS:
            done = self.start(words, environment=POSIX, capture_output=True)
            self.safe(words, done.stdout + done.stderr)
            self.assertIn(done.returncode, (0, 1, 3), (words, done.stderr))
            if words[0] not in ("hosts", "graph"):
                self.assertTrue(done.stdout, words)
            if words[0] == "report":
                self.assertIn(b"st", done.stdout)
        with open(os.path.join(self.top, "out.html"), "rb") as file:
            page = file.read()
        self.safe(("html",), page)
        page.decode("utf-8")
        json.loads(self.start(("report", "--json"), environment=POSIX, capture_output=True).stdout)

    def test_a_program_whose_name_is_no_text_is_shown(self):
        done = self.start(("report",), environment={"PYTHONIOENCODING": "latin-1"}, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (1, b""))
        self.assertIn("h\u00f6st".encode("latin-1"), done.stdout)

    def test_no_terminal_and_no_streams(self):
        plain = self.start(("report",), stdin=subprocess.DEVNULL, capture_output=True)
        self.assertEqual(plain.returncode, 1)
        self.assertNotIn(b"\x1b", plain.stdout)
        self.assertLessEqual(max(map(len, plain.stdout.decode().splitlines())), 100)
        clean = os.path.join(self.top, "clean")
        self.write("rank-00000.json", support.report_object(rank=0, size=1), clean)
        without = {name: value for name, value in os.environ.items() if not name.startswith("RESIL_")}  # of the harness: `env` knows no such ones
        for streams in ("<&- >&- 2>&-", ">&-", "2>&-", "<&-"):
            for words, expected in ((("report", self.directory), 1), (("report", "--json", clean), 0), (("html", clean), 0), (("env",), (0, 2)),
                                    (("report", "/nowhere"), 2)):
                closed = subprocess.run(["sh", "-c", 'exec "$0" "$@" ' + streams, sys.executable, support.TOOL, *words], capture_output=True,
                                        env=without, timeout=120, check=False)
                self.assertIn(closed.returncode, expected if isinstance(expected, tuple) else (expected,), (streams, words, closed))
                self.assertNotIn(b"Traceback", closed.stderr)
        reader = subprocess.run(["sh", "-c", '{ "$0" "$@"; echo "status $?" >&2; } | head -n 1', sys.executable, support.TOOL, "report",
                                 self.directory], capture_output=True, timeout=120, check=False)
        self.assertTrue(reader.stdout.startswith(b"FINDINGS"), reader)
        self.assertNotIn(b"Traceback", reader.stderr)

    def on_terminal(self, columns, **environment):
        master, slave = pty.openpty()
        text = b""
        with subprocess.Popen([sys.executable, support.TOOL, "report", self.directory], stdin=slave, stdout=slave, stderr=subprocess.DEVNULL,
                              env={**os.environ, "COLUMNS": str(columns), **environment}) as process:
            os.close(slave)
            try:
                while piece := os.read(master, 65536):
                    text += piece
            except OSError:  # the other end is closed
                pass
            os.close(master)
        self.assertEqual(process.returncode, 1)
        return text.decode(errors="replace").splitlines()

    def test_on_a_terminal_lines_have_its_width(self):
        for columns, least, most in ((20, 60, 100), (120, 101, 120), (400, 101, 160)):
            lines = self.on_terminal(columns, NO_COLOR="1", TERM="dumb")
            self.assertFalse([line for line in lines if "\x1b" in line])
            longest = max(map(len, lines))
            self.assertTrue(least <= longest <= most, (columns, longest))


class FullDisk(support.Case):
    """Files may grow to 2 KB only: what the kernel then says differs from a full disk's in its number alone."""

    def full(self, *words, stdout=subprocess.PIPE):
        done = subprocess.run([sys.executable, "-c", "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048)); sys.path.insert(0, %r); "
                               "from resil_tool import cli; sys.exit(cli.main(sys.argv[1:]))" % os.path.join(support.ROOT, "scripts"), *words],
                              stdout=stdout, stderr=subprocess.PIPE, cwd=self.top, timeout=120, check=False)
        self.assertNotIn(b"Traceback", done.stderr)
        return done.returncode, done.stderr.decode()

    def test_what_cannot_be_written_is_named_and_nothing_is_left_of_it(self):
        for rank in range(40):
            self.report(rank=rank, size=40)
        before = sorted(os.listdir(self.directory))
        for words, name in ((("html",), "report.html"), (("html", "--output", "x.html"), "x.html"), (("export", "--csv", "--output", "x.csv"), "x.csv"),
                            (("export", "--perfetto", "--output", "x.json"), "")):
            status, said = self.full(*words, self.directory)
            if name:  # of a job without flight recorders a trace is small
                self.assertEqual(status, 2, said)
                self.assertRegex(said, r"^resil: \S*%s cannot be written: File too large; --output FILE puts it elsewhere\n$" % name)
        self.assertEqual(sorted(os.listdir(self.directory)), before)
        self.assertEqual([name for name in os.listdir(self.top) if name.endswith(".tmp") or name in ("x.html", "x.csv")], [])

    def test_standard_output(self):
        for rank in range(40):
            self.report(rank=rank, size=40)
        with open(os.path.join(self.top, "out"), "wb") as file:
            self.assertEqual(self.full("report", "--json", self.directory, stdout=file), (3, "resil: File too large: standard output\n"))
        if os.path.exists("/dev/full"):
            with open("/dev/full", "wb") as file:
                self.assertEqual(self.full("report", self.directory, stdout=file), (3, "resil: No space left on device: standard output\n"))

    def test_flight_recorder_of_a_rank_that_was_killed_stays_in_memory(self):
        self.report(rank=0, size=1, outcome="running", pid=support.NO_PROCESS, calls={})
        with open(os.path.join(self.directory, "rank-00000.json"), encoding="utf-8") as file:
            pid = json.load(file)["pid"]
        live = self.live_ring(rank=0, size=1, pid=pid, counters={"MPI_Allreduce": (17, 3.0, 136)})
        status, _ = self.full("report", self.directory)
        self.assertEqual(status, 3)
        self.assertTrue(os.path.exists(live))
        self.assertEqual(sorted(os.listdir(self.directory)), ["rank-00000.json"])
        out = self.tool("report", self.directory)[1]  # now there is room
        self.assertIn("17 calls", out)
        self.assertFalse(os.path.exists(live))


if __name__ == "__main__":
    unittest.main()
