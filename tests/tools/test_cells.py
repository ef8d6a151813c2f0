# SPDX-License-Identifier: Apache-2.0
"""The cells of continuous integration (scripts/matrix ci, .ci/run): what cannot be done is skipped with its reason, what fails
there is counted with care, and the last line has everything."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import support

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
setUpModule, tearDownModule = support.limit_time, support.release_time


def load():
    loader = importlib.machinery.SourceFileLoader("matrix", os.path.join(ROOT, "scripts", "matrix"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("matrix", loader))
    loader.exec_module(module)
    return module


class Cells(unittest.TestCase):
    def setUp(self):
        self.matrix = load()
        self.ci, self.light = self.matrix.ci, self.matrix.ci.light
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.roots = folder.name
        self.all = sum(len(cell.tests) for cell in self.ci.CELLS)

    def call(self, *words):
        out = io.StringIO()
        with mock.patch("sys.argv", ["matrix", "ci", "--roots", self.roots, *words]), contextlib.redirect_stdout(out), \
                mock.patch.object(self.ci, "need_here"):
            status = self.matrix.main()
        return status, out.getvalue()

    def test_what_cannot_be_made_is_skipped(self):
        """On a machine without apt, network or permission the run neither fails nor waits."""
        for patch, reason in ((mock.patch("shutil.which", return_value=None), "apt-get is not installed"),
                              (mock.patch.object(self.light, "KEYS", "/nowhere/keys"), "/nowhere/keys is missing"),
                              (mock.patch.object(self.light, "run", side_effect=self.matrix.Impossible("no network")), "no network"),
                              (mock.patch.object(self.light, "make", side_effect=OSError("no room")), "no room")):
            with patch:
                status, text = self.call()
            self.assertEqual(status, 0)
            self.assertIn(f"skipped: {self.ci.CELLS[0].name}: {' '.join(self.ci.CELLS[0].tests)}: {reason}", text)
            self.assertEqual(text.splitlines()[-1], f"0 passed, 0 failed, {self.all} skipped")

    def test_no_chroot(self):
        with mock.patch.object(self.light, "make"), \
                mock.patch.object(self.ci, "in_root", return_value=["false"]):
            status, text = self.call()
        self.assertEqual(status, 0)
        self.assertIn("chroot and mounts are not permitted here", text)
        self.assertEqual(text.splitlines()[-1], f"0 passed, 0 failed, {self.all} skipped")

    def test_other_machine(self):
        with mock.patch.object(self.ci, "host_release", return_value="trixie"), self.assertRaises(self.matrix.Impossible):
            self.ci.need_here()

    def test_nothing_outlives_its_time(self):
        began = time.monotonic()
        with self.assertRaisesRegex(self.matrix.Impossible, "no time left: a long one"):
            self.light.run(self.light.Clock(0.3), "a long one", "sh", "-c", "sleep 1000 & sleep 1000")
        self.assertLess(time.monotonic() - began, 100)

    def test_failures(self):
        cell, version = self.ci.CELLS[0], self.ci.CELLS[0].version
        told = {"hangs": ("FAIL", "FAILED hangs"), "jobs": ("OK", "left out a: b"), "ends": ("SKIP", "skipped: no c")}

        def judged(version, again):
            count, out = self.ci.Count(), io.StringIO()
            with contextlib.redirect_stdout(out):
                self.ci.judge(cell, version, told, lambda test: again, count)
                count.skips(cell, ["hangs", "jobs", "ends", "late"], "no time left")
            return str(count), out.getvalue()

        count, text = judged(version, ("FAIL", "FAILED once more"))
        self.assertEqual(count, "1 passed, 1 failed, 2 skipped")
        for line in ("FAILED: trixie-openmpi: hangs\nFAILED once more", "left out: trixie-openmpi: jobs: a: b",
                     "skipped: trixie-openmpi: ends: no c", "skipped: trixie-openmpi: late: no time left"):
            self.assertIn(line, text)
        self.assertEqual(judged(version, None)[0], "1 passed, 1 failed, 2 skipped")
        count, text = judged(version, ("OK", ""))
        self.assertEqual(count, "2 passed, 0 failed, 2 skipped")
        self.assertIn("hangs failed, and passed when it was run once more:\nFAILED hangs", text)
        count, text = judged("9.9.9", ("FAIL", "FAILED once more"))
        self.assertEqual(count, "1 passed, 0 failed, 3 skipped")
        self.assertIn("the version is 9.9.9, not 5.0.7", text)

    def test_root_of_other_packages_is_not_removed(self):
        root = os.path.join(self.roots, "ci-trixie")
        os.makedirs(os.path.join(root, "etc"))
        with self.assertRaisesRegex(self.matrix.Impossible, "was made otherwise: remove it"):
            self.light.make(root, "trixie", (), (), self.light.Clock(10))
        self.assertTrue(os.path.isdir(os.path.join(root, "etc")))


class Run(unittest.TestCase):
    """.ci/run, on stand-ins of what it calls."""

    def run_with(self, test, cells, *words):
        with tempfile.TemporaryDirectory() as tree:
            for name in (".ci", "scripts"):
                os.mkdir(os.path.join(tree, name))
            shutil.copy(os.path.join(ROOT, ".ci", "run"), os.path.join(tree, ".ci"))
            for name, text in (("demo", "echo demo"), ("test", test), ("matrix", cells)):
                with open(os.path.join(tree, "scripts", name), "w", encoding="ascii") as file:
                    file.write(f"#!/bin/sh\n{text}\n")
                os.chmod(os.path.join(tree, "scripts", name), 0o755)
            done = subprocess.run([os.path.join(tree, ".ci", "run"), *words], stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    def test_one_last_line(self):
        good, cells = "echo 204 passed, 0 failed, 2 skipped", "echo 27 passed, 0 failed, 3 skipped"
        status, lines = self.run_with(good, cells)
        self.assertEqual((status, lines[-1]), (0, "231 passed, 0 failed, 5 skipped"))
        self.assertEqual([line for line in lines if line[0].isdigit()], lines[-1:])
        self.assertEqual(self.run_with("echo 203 passed, 1 failed, 2 skipped; exit 1", cells)[0], 1)
        self.assertEqual(self.run_with(good, "echo 26 passed, 1 failed, 3 skipped; exit 1")[0], 1)
        status, lines = self.run_with("exit 1", cells)
        self.assertEqual((status, lines[-1]), (1, "27 passed, 0 failed, 3 skipped"))
        self.assertEqual(self.run_with(good, "exit 0")[0], 1)
        self.assertEqual(self.run_with(good, "exit 1", "--suite", "unit"), (0, ["demo", "204 passed, 0 failed, 2 skipped"]))


if __name__ == "__main__":
    sys.exit(unittest.main())
