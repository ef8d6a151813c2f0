# SPDX-License-Identifier: Apache-2.0
"""scripts/resil on report directories that are damaged on purpose: odd files under resil's names, values of every wrong
type and size. It never waits, never follows a link, never ends in a traceback."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import unittest

import support
from resil_tool import attach, job, records, report, symbols
from support import Case, captured, report_object, ring_bytes

NAMES = ("rank-00000.json", "rank-00000.ring", "node-x.jsonl", "hang-0.json", "job.json", "launch.json", "dump-00000-0.txt",
         "world-1", "resil-a-20261122T1315Z-4711.0", ".present")
VALUES = (None, True, -1, 0, 2**31, 2**63, 2**64, -2**70, 10**400, 1e300, -1e300, 1e18, 253402300800.0, float("nan"), float("inf"),
          "", "x" * 5000, "\x1b[2J\u202e", [], [[]] * 50, {}, {"a": {"b": [1, {}]}}, [None, 1e300, "x"], {"x" * 500: 1e300})


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


class Hostile(Case):
    def quiet(self, *arguments):
        """The tool as a command: one of its exit statuses, and nothing of Python's."""
        status, out, error = self.tool(*arguments)
        self.assertIn(status, (0, 1, 2, 3), error)
        self.assertNotIn("Traceback", error)
        return status, out, error

    def test_odd_files_under_every_name(self):
        home = os.path.join(self.top, "home")
        os.mkdir(home)
        secret = self.write("secret", report_object(executable="/secret"), home)
        for make in (os.mkfifo, lambda path: os.symlink(secret, path), os.mkdir, lambda path: os.symlink(home, path),
                     lambda path: os.symlink(path, path)):
            for name in NAMES:
                make(os.path.join(self.directory, name))
            for arguments in (["report", self.directory], ["report", "--json", self.directory], ["dump", self.directory],
                              ["recording", self.directory], ["show", self.directory], ["show", *(os.path.join(self.directory, name) for name in NAMES)]):
                _, out, _ = self.quiet(*arguments)
                self.assertNotIn("/secret", out)
            shutil.rmtree(self.directory)
            os.mkdir(self.directory)

    def test_a_good_report_beside_odd_files(self):
        self.report(rank=0, size=1)
        for name in NAMES[2:]:
            os.mkfifo(os.path.join(self.directory, name))
        status, out, _ = self.quiet("report", self.directory)
        self.assertEqual(status, 3)
        self.assertIn("1 report; finished: 0", out)
        self.assertIn("not a regular file", out)

    def test_links_are_not_followed(self):
        other = self.write("other.json", report_object(rank=1, size=2), self.top)
        self.report(rank=0, size=2)
        os.symlink(other, os.path.join(self.directory, "rank-00001.json"))
        status, out, _ = self.quiet("report", self.directory)
        self.assertEqual(status, 3)
        self.assertIn("a link: not followed", out)

    def test_huge_start_time(self):
        for value in (1e300, 253402300800.0, 2**63, 1e18, float("inf")):
            self.report(rank=0, size=1, start_time=value)
            status, out, _ = self.quiet("report", self.directory)
            self.assertEqual(status, 0, out)
            self.assertIn("started ?", out)

    def test_every_member_with_every_wrong_value(self):
        good = report_object(rank=0, size=1, launch="0123456789abcdef", launch_agreed=True, exit_in_init=1, overhead_seconds=1.0,
                             findings=[{"kind": "message_corrupted", "confidence": "proved", "message": "m", "culprit_ranks": [0],
                                        "victim_ranks": [0], "evidence": {"origin": "rank 0 on a", "time": "1"}}],
                             notes=["n"], checksum={"messages_total": 1, "messages_checked": 1, "drains": {"count": 1}},
                             reductions={"mode": "order", "calls": 1, "native": {"calls": 1, "reasons": {"x": 1}}},
                             staging={"mode": "auto", "active": True, "messages": {"calls": 1, "bytes": 1}},
                             faults_injected={"flip": 1})
        places = []

        def walk(value, path):
            items = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
            for key, inner in items:
                places.append(path + [key])
                walk(inner, path + [key])
        walk(good, [])
        drawn = random.Random(13)
        for _ in range(300):
            value = json.loads(json.dumps(good))
            for _ in range(drawn.choice((1, 1, 2, 5))):
                at, path = value, drawn.choice(places)
                try:
                    for key in path[:-1]:
                        at = at[key]
                    at[path[-1]] = drawn.choice(VALUES)
                except (KeyError, IndexError, TypeError):
                    pass  # changed above already
            self.write("rank-00000.json", json.dumps(value))
            self.write("hang-0.json", json.dumps(dict(value, **{"class": "deadlock"})))
            self.write("launch.json", json.dumps(dict(value, time=drawn.choice(VALUES))))
            with self.subTest(value=value):
                captured(report.run, self.directory, False)
                captured(report.run, self.directory, True)

    def test_deep_and_long_files(self):
        self.report(rank=0, size=1)
        for text in ("[" * 200000, '{"schema_version": 1, "rank": ' + "[" * 100000 + "]" * 100000 + "}", "{" + '"a":{' * 50000,
                     '{"schema_version": 1, "rank": 1, "outcome": "running", "pid": ' + "9" * 100000 + "}"):
            for name in ("rank-00001.json", "hang-0.json", "launch.json", "node-a.jsonl"):
                self.write(name, text)
            status, out, _ = self.quiet("report", self.directory)
            self.assertEqual(status, 3, out)
        with open(os.path.join(self.directory, "rank-00002.json"), "wb") as file:
            file.truncate(1 << 42)  # takes no room
        self.assertIn("larger than", self.quiet("report", "--json", self.directory)[1])

    @unittest.skipIf(os.geteuid() != 0, "only root can make files of another user")
    def test_files_of_another_user(self):
        self.report(rank=0, size=1)
        path = self.write("hang-0.json", {"schema_version": 1, "class": "deadlock", "message": "made up", "confidence": "proved"})
        os.chown(path, 64002, 64002)
        status, out, _ = self.quiet("report", self.directory)
        self.assertEqual(status, 3)
        self.assertNotIn("made up", out)
        self.assertIn("not believed", out)


class SecurityPage(unittest.TestCase):
    def test_each_line_has_a_test(self):
        with open(os.path.join(support.ROOT, "docs", "SECURITY.md"), encoding="utf-8") as file:
            page = file.read().split("## What is opened")[1].split("## What others")[0]
        rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
        self.assertGreater(len(rows), 20)
        for line in rows:
            named = re.search(r"`(tests/[^`]+)`: ([^|]+) \|$", line)
            self.assertTrue(named, line)
            with open(os.path.join(support.ROOT, named.group(1)), encoding="utf-8") as file:
                self.assertIn(named.group(2), file.read(), line)


class Symbols(Case):
    """A symbol is named only where it covers the address (of a stripped program addr2line gives the nearest one)."""

    def test_nearest_symbol_is_no_name(self):
        if not shutil.which("cc") or not shutil.which("addr2line"):
            self.skipTest("no compiler, or no addr2line")
        source = self.write("far.c", "int exported(void) { return 1; }\n"
                            "static __attribute__((noinline)) int hidden(int x) { volatile int y = x; return 3 * y; }\n"
                            "int (*volatile keep)(int) = hidden;\nint main(void) { return keep(1) + exported(); }\n", self.top)
        whole, bare = os.path.join(self.top, "whole"), os.path.join(self.top, "bare")
        subprocess.run(["cc", "-O1", "-rdynamic", "-o", whole, source], check=True)
        subprocess.run(["strip", "-o", bare, whole], check=True)
        table = subprocess.run(["nm", whole], stdout=subprocess.PIPE, check=True).stdout.decode()
        address = {line.split()[2]: int(line.split()[0], 16) for line in table.splitlines() if len(line.split()) == 3}
        sites = [(path, address[name] + 3) for path in (whole, bare) for name in ("exported", "hidden")]
        known = symbols.lookup(sites)
        self.assertEqual([known.get(site, "").split(" at ")[0] for site in sites], ["exported", "hidden", "exported", ""])
        self.assertEqual(symbols.site_text(sites[3], known), "bare+%#x" % sites[3][1])

    def test_damaged_object_files(self):
        with open(sys.executable, "rb") as file:
            elf = bytearray(file.read(1 << 16))
        drawn = random.Random(7)
        for _ in range(200):
            damaged = bytearray(elf)
            for _ in range(8):
                damaged[drawn.randrange(0, 64)] = drawn.randrange(256)
            damaged[:6] = elf[:6]
            path = self.write("object-%d" % drawn.randrange(10**9), bytes(damaged), self.top)
            symbols.covered(path, 0x1000)
            os.unlink(path)


class Launches(Case):
    """Which launch of a directory is shown."""

    def launch(self, place, key, when):
        self.write("launch.json", {"schema_version": 1, "launch": key, "claim": key, "name": "x", "origin": "", "program": "app",
                                   "time": when}, place)
        self.write("rank-00000.json", report_object(launch=key, launch_agreed=True, directory=place), place)

    def test_newest_is_shown_and_the_others_are_listed(self):
        newer = os.path.join(self.directory, "resil-app-20261122T1315Z-4711.1")
        self.launch(self.directory, "%016x" % 1, 1.7e9)
        self.launch(newer, "%016x" % 2, 1.7e9 + 60)
        status, out, _ = self.tool("report", self.directory)
        self.assertEqual(status, 0)
        self.assertIn("reports    %s" % newer, out.replace("\n           ", ""))
        self.assertIn("other runs .. (", out)
        self.assertEqual(self.tool("report", "4711.1", directory=self.directory)[0], 0)

    def test_directories_of_several_jobs(self):
        """A directory that somebody made for many: the newest is shown, and told; by names of the user's they are listed."""
        many = os.path.join(self.top, "many")
        for number in range(3):
            self.launch(os.path.join(many, "resil-app-20261122T1315Z-471%d.0" % number), "%016x" % (number + 1), 1.7e9 - 60 * number)
        status, out, error = self.tool("report", many)
        self.assertEqual((status, "4710.0" in out), (0, True), out)
        self.assertEqual(error, "resil: resil-app-20261122T1315Z-4710.0: the newest of 3 reports in %s; name another one to see it\n" % many)
        named = os.path.join(self.top, "named")
        for number in range(9):
            self.launch(os.path.join(named, "run-%d" % number), "%016x" % (number + 1), 1.7e9)
        os.makedirs(os.path.join(named, "empty"))
        status, out, error = self.tool("report", named)
        self.assertEqual((status, out), (2, ""))
        self.assertIn("holds no reports of resil; these directories in it do: run-0, run-1, ", error)
        self.assertIn("run-7, … (9 in all)", error)
        self.assertNotIn("empty", error)

    def test_rings_and_reports_of_another_launch(self):
        self.launch(self.directory, "%016x" % 1, 1.7e9)
        self.write("rank-00001.json", report_object(rank=1, size=2, launch="%016x" % 2, launch_agreed=True))
        status, out, _ = self.tool("report", self.directory)
        self.assertEqual(status, 0, out)
        self.assertIn("of another run: launch 0000000000000002", out)
        self.write("rank-00002.ring", ring_bytes(rank=2, size=3, pid=support.NO_PROCESS))  # an older version's
        self.assertEqual(self.tool("report", self.directory)[0], 0)

    def test_a_ring_that_a_starting_job_collects_meanwhile(self):
        pid = support.NO_PROCESS
        self.report(rank=0, size=1, outcome="running", pid=pid, calls={}, peers=[])
        path = self.live_ring(rank=0, size=1, pid=pid, counters={"MPI_Send": (7, 1.0, 8)})
        rings = job.scan()
        directory = records.read_directory(self.directory)
        os.rename(path, os.path.join(self.directory, "rank-00000.ring"))
        attach.attach(directory, rings)
        self.assertEqual(directory.ranks[0, 0].calls["MPI_Send"][0], 7)
        self.assertEqual(directory.ranks[0, 0].state, "killed")

    def test_a_rank_that_stayed_in_init_counts(self):
        self.write("launch.json", {"schema_version": 1, "launch": "", "claim": "1", "name": "x", "time": 1.7e9})
        for rank in range(2):
            self.report(rank=rank, size=2, outcome="running", pid=support.NO_PROCESS, launch="%016x" % (rank + 1), launch_agreed=False)
        status, out, _ = self.tool("report", self.directory)
        self.assertEqual(status, 3)
        self.assertIn("2 reports; ended without MPI_Finalize: 0-1", out)

    def test_an_exit_within_init_is_no_kill(self):
        self.report(rank=0, size=1, outcome="running", pid=support.NO_PROCESS, exit_in_init=3)
        out = self.tool("report", self.directory)[1]
        self.assertIn("rank 0 exited with status 3 within MPI_Init", out)


if __name__ == "__main__":
    unittest.main()
