# SPDX-License-Identifier: Apache-2.0
"""scripts/resil smoke: options, the verdict, and that nothing of a run that does not end stays behind."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import support
from resil_tool import smoke, smoke_verdict

setUpModule, tearDownModule = support.limit_time, support.release_time

SIZES = [4096, 1 << 20]


def row(size, gbs, bad=0, memory="host", ranks=2):
    wrong = {"from": 1, "to": 0, "from_host": "a", "to_host": "b", "packet": 7, "offset": 64, "words": 1,
             "expected": "00", "found": "01"}
    return {"memory": memory, "processes": ranks, "nodes": 2, "bytes": size, "packets": 100, "bad_packets": bad,
            "node_gbs": gbs * 1.1, "worst_node_gbs": gbs, "slowest_gbs": gbs, "slowest_pair": [0, 1],
            "bad": [wrong] if bad else []}


def job(rows, status=0):
    return types.SimpleNamespace(rows=rows, status=status, limit=5.0, output="line\x1b[31m of the launcher")


def result(peak, *runs):
    made = smoke_verdict.Result(peak, "srun -n {ranks}")
    for rows in runs:
        made.add(rows[0]["memory"], rows[0]["processes"], SIZES, job(rows))
    return made


def tool(words):
    return subprocess.run([sys.executable, support.TOOL, "smoke", *words], capture_output=True, timeout=600, check=False)


class Verdict(unittest.TestCase):
    def test_the_best_size_counts(self):
        self.assertEqual(result(10, [row(4096, 0.1), row(1 << 20, 8.0)]).status(), 0)
        self.assertEqual(result(10, [row(4096, 0.1), row(1 << 20, 7.99)]).status(), 1)
        self.assertEqual(result(10, [row(4096, 0.1), row(1 << 20, 5.0)]).status(), 1)
        self.assertEqual(result(10, [row(4096, 0.1), row(1 << 20, 4.99)]).status(), 2)

    def test_the_worst_run_counts(self):
        good, bad = [row(4096, 1), row(1 << 20, 9)], [row(4096, 1, ranks=8), row(1 << 20, 6, ranks=8)]
        made = result(10, good, bad)
        self.assertEqual(made.status(), 1)
        self.assertIn("8 processes", made.reason())

    def test_one_wrong_packet_stops(self):
        for peak in (None, 1):
            made = result(peak, [row(4096, 9, bad=1), row(1 << 20, 9)])
            self.assertEqual(made.status(), 2)
            text = "\n".join(made.lines(SIZES))
            self.assertIn("message 7 from rank 1 (a) to rank 0 (b)", text)
            self.assertIn("stop: 1 of 200 messages", text)

    def test_without_peak_no_verdict_on_bandwidth(self):
        made = result(None, [row(4096, 0.001), row(1 << 20, 0.001)])
        self.assertEqual((made.status(), made.summary()["verdict"]), (0, "good"))
        self.assertIn("without --peak", made.reason())

    def test_a_failed_run_stops(self):
        whole = [row(4096, 9), row(1 << 20, 9)]
        for rows, status in ((whole, None), (whole, 1), (whole[:1], 0), ([], 0)):
            made = smoke_verdict.Result(1, "mpirun")
            made.add("host", 2, SIZES, job(rows, status))
            self.assertEqual(made.status(), 2, (rows, status))
            self.assertNotIn("\x1b", "\n".join(made.lines(SIZES)) + made.problems[0]["output"][0])
        nothing = smoke_verdict.Result(1, "mpirun")
        self.assertEqual(nothing.status(), 2)

    def test_one_screen(self):
        made = result(10, *[[row(4096, 1, memory=memory, ranks=ranks), row(1 << 20, 9, memory=memory, ranks=ranks)]
                            for memory in ("host", "device") for ranks in smoke.COUNTS])
        lines = made.lines(SIZES)
        self.assertLess(len(lines), 24)
        self.assertLessEqual(max(map(len, lines)), 100)


class Options(unittest.TestCase):
    def test_sizes(self):
        self.assertEqual([smoke.size(word) for word in ("4K", "64KiB", "1m", "16MB", "4096")],
                         [4096, 65536, 1 << 20, 16 << 20, 4096])
        for word in ("", "0", "7", "12", "1T", "4KK", "2G", "-8", "٣2"):
            with self.assertRaises(ValueError, msg=word):
                smoke.size(word)

    def test_counts_that_the_allocation_allows(self):
        self.assertEqual(smoke.allowed({"SLURM_NTASKS": "64"}), 64)
        with tempfile.NamedTemporaryFile("w") as nodes:
            nodes.write("a\na\nb\nb\n")
            nodes.flush()
            self.assertEqual(smoke.allowed({"PBS_NODEFILE": nodes.name}), 4)
        self.assertGreaterEqual(smoke.allowed({}), 2)
        options = types.SimpleNamespace(ranks=None, sizes=None, memory="both")
        with mock.patch.dict(os.environ, {"SLURM_NTASKS": "100"}):
            self.assertEqual(smoke.plan(options), ([2, 8, 64], list(smoke.SIZES), ["host", "device"]))

    def test_launcher(self):
        with mock.patch.object(shutil, "which", lambda name: "/x/" + name):
            self.assertEqual(smoke.default_launcher({"SLURM_JOB_ID": "1"}), "srun -n {ranks}")
            self.assertEqual(smoke.default_launcher({}), "mpirun -n {ranks}")

    def test_usage(self):
        for words in (["--launcher", "mpirun"], ["--ranks", "1"], ["--ranks", "2,x"], ["--sizes", "3"], ["--peak", "0"],
                      ["--mpicc", "no-such-compiler", "--launcher", "true {ranks}"], ["--library", "/nonexistent"]):
            done = tool(words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(b"resil: ", done.stderr, words)


class Runs(unittest.TestCase):
    """With a launcher that is a shell script, and a compiler that makes nothing."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="resil-test-")
        self.addCleanup(shutil.rmtree, self.directory)

    def smoke(self, launcher, *words):
        done = tool(["--mpicc", "true", "--memory", "host", "--directory", self.directory, "--json", "--launcher",
                     launcher, *words])
        self.assertEqual([name for name in os.listdir(self.directory) if name.startswith("resil-smoke")], [])
        return done.returncode, json.loads(done.stdout)

    def test_a_run_that_does_not_end(self):
        # It ignores the friendly signal, and so does what it started.
        mark = os.path.join(self.directory, "pid")
        status, said = self.smoke("sh -c 'trap \"\" TERM; sleep 1000 & echo $! > %s; wait' {ranks}" % mark,
                                  "--timeout", "0.5", "--ranks", "2")
        self.assertEqual(status, 2)
        self.assertIn("did not end", said["problems"][0]["problem"])
        with open(mark, encoding="utf-8") as file:
            pid = int(file.read())
        self.assertFalse(support.process.alive(pid, 0))

    def test_rows_among_other_output(self):
        script = os.path.join(self.directory, "launch")
        with open(script, "w", encoding="utf-8") as file:
            file.write("echo a banner; echo 'prefix %s%s'; echo '%s{broken'"
                       % (smoke.MARK, json.dumps(row(4096, 3)), smoke.MARK))
        status, said = self.smoke("sh %s {ranks}" % script, "--ranks", "2", "--sizes", "4K", "--peak", "3.5")
        self.assertEqual((status, said["verdict"], said["runs"][0]["bytes"]), (0, "good", 4096))

    def test_a_job_that_fails(self):
        status, said = self.smoke("sh -c 'echo no such queue; exit 3' {ranks}", "--ranks", "2")
        self.assertEqual(status, 2)
        self.assertEqual(said["problems"][0]["output"], ["no such queue"])


if __name__ == "__main__":
    unittest.main()
