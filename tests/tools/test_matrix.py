# SPDX-License-Identifier: Apache-2.0
"""scripts/matrix: what it knows and what it cannot do, without making a root."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import tempfile
import unittest
from unittest import mock

import support

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "scripts", "matrix")
setUpModule, tearDownModule = support.limit_time, support.release_time


def load():
    loader = importlib.machinery.SourceFileLoader("matrix", SCRIPT)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("matrix", loader))
    loader.exec_module(module)
    return module


class Matrix(unittest.TestCase):
    def setUp(self):
        self.matrix = load()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.roots = folder.name

    def call(self, *words):
        """Exit status and what was written to both streams."""
        out = io.StringIO()
        with mock.patch("sys.argv", ["matrix", words[0], "--roots", self.roots, *words[1:]]), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                status = self.matrix.main()
            except SystemExit as end:
                status = end.code
        return status, out.getvalue()

    def test_list(self):
        status, text = self.call("list")
        self.assertEqual(status, 0)
        for cell in self.matrix.CELLS:
            self.assertIn(f"{cell:<16} no root yet", text)
        os.mkdir(os.path.join(self.roots, "trixie"))
        self.matrix.Root(self.roots, "trixie").finish("packages")
        self.assertIn(f"{'trixie-mpich':<16} root: {self.roots}/trixie", self.call("list")[1])

    def test_unknown_cell(self):
        status, text = self.call("run", "potato-lam")
        self.assertEqual(status, 2)
        self.assertIn("no such cell: potato-lam; there are trixie-openmpi", text)

    def test_says_what_it_cannot(self):
        with mock.patch("os.geteuid", return_value=1000):
            self.assertEqual(self.call("run"), (1, "matrix: needs root: chroot and mounts\n"))
        with mock.patch("os.geteuid", return_value=0), \
                mock.patch("shutil.which", side_effect=lambda name: None if name == "debootstrap" else name):
            self.assertEqual(self.call("root", "forky-mpich"), (1, "matrix: debootstrap is not installed\n"))
            self.assertEqual(self.call("run", "--library", "/nowhere/libresil.so"),
                             (1, "matrix: there is no /nowhere/libresil.so: build it first\n"))
        failed = mock.Mock(returncode=1)
        with mock.patch("os.geteuid", return_value=0), mock.patch("shutil.which", side_effect=lambda name: name), \
                mock.patch("subprocess.run", return_value=failed):
            status, text = self.call("root", "trixie-mpich")
        self.assertEqual(status, 1)
        self.assertIn("debootstrap of trixie failed", text)


if __name__ == "__main__":
    unittest.main()
