# SPDX-License-Identifier: Apache-2.0
"""scripts/matrix: what it knows, keeps, writes and cannot do, without making a root."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import tempfile
import unittest
from unittest import mock

import support

SCRIPTS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "scripts")
setUpModule, tearDownModule = support.limit_time, support.release_time


def load():
    loader = importlib.machinery.SourceFileLoader("matrix", os.path.join(SCRIPTS, "matrix"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("matrix", loader))
    loader.exec_module(module)
    return module


class Matrix(unittest.TestCase):
    def setUp(self):
        self.matrix = load()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.roots = folder.name
        self.library = os.path.join(self.roots, "libresil.so")
        with open(self.library, "wb") as file:
            file.write(b"\x7fELF, more or less")

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

    def kept(self, cell, **tests):
        """Results as a run leaves them."""
        kept = self.matrix.results.Kept(self.roots, cell)
        for test, result in tests.items():
            kept.note(test.replace("_", "-"), result, 60, self.matrix.results.build_id(self.library))
        kept.facts["MPI"] = "Open MPI 5.0.7"
        kept.save()
        return kept

    def test_two_commands_keep_results_of_one_cell(self):
        one, other = (self.matrix.results.Kept(self.roots, "trixie-openmpi") for _ in range(2))
        one.note("hangs", "OK", 1, "x")
        one.save()
        other.note("dumps", "FAIL", 1, "x")
        other.facts["across"] = {"digests": {}}
        other.save()
        one.note("api", "OK", 1, "x")
        other.facts["across"]["digests"]["order 2"] = {}
        other.save()
        one.save()
        kept = self.matrix.results.Kept(self.roots, "trixie-openmpi")
        self.assertEqual({name: told["result"] for name, told in kept.tests.items()}, {"hangs": "OK", "dumps": "FAIL", "api": "OK"})
        self.assertEqual(kept.facts, {"across": {"digests": {"order 2": {}}}})

    def test_list(self):
        with mock.patch.object(self.matrix.roots, "host_release", return_value="sid"):
            status, text = self.call("list")
            self.assertEqual(status, 0)
            for cell in self.matrix.CELLS:
                self.assertIn(f"{cell:<18} no root yet", text)
            os.mkdir(os.path.join(self.roots, "trixie"))
            self.matrix.roots.Root(self.roots, "trixie").finish("packages")
            self.assertIn(f"{'trixie-mpich':<18} root: {self.roots}/trixie", self.call("list")[1])
        with mock.patch.object(self.matrix.roots, "host_release", return_value="bookworm"):
            self.assertIn(f"{'bookworm-mpich':<18} this machine", self.call("list")[1])

    def test_names(self):
        self.assertEqual(self.matrix.named("debian13-openmpi").name, "trixie-openmpi")
        self.assertEqual(self.matrix.named("forky-abi-mpich").abi, "standard")
        status, text = self.call("run", "potato-lam")
        self.assertEqual(status, 2)
        self.assertIn("no such cell: potato-lam; there are bookworm-openmpi", text)
        self.assertEqual(self.call("run", "--tests", "nothing")[0], 2)

    def test_says_what_it_cannot(self):
        with mock.patch("os.geteuid", return_value=1000):
            status, text = self.call("run", "trixie-mpich", "--library", self.library)
            self.assertEqual(status, 3)
            self.assertIn("matrix: trixie-mpich: not run: needs root: chroot and mounts\n", text)
        with mock.patch("os.geteuid", return_value=0), \
                mock.patch("shutil.which", side_effect=lambda name: None if name == "debootstrap" else name):
            self.assertEqual(self.call("root", "forky-mpich"), (3, "matrix: forky-mpich: not run: debootstrap is not installed\n"))
            self.assertEqual(self.call("run", "--library", "/nowhere/libresil.so"),
                             (1, "matrix: there is no /nowhere/libresil.so: build it first\n"))
        failed = mock.Mock(returncode=1)
        with mock.patch("os.geteuid", return_value=0), mock.patch("shutil.which", side_effect=lambda name: name), \
                mock.patch("subprocess.run", return_value=failed):
            status, text = self.call("root", "trixie-mpich")
        self.assertEqual(status, 3)
        self.assertIn("debootstrap of trixie failed", text)

    def test_no_root_is_ever_removed(self):
        """A root without its mark may be somebody's: it was removed and made anew."""
        place = os.path.join(self.roots, "trixie", "etc")
        os.makedirs(place)
        with mock.patch("os.geteuid", return_value=0), mock.patch("shutil.which", side_effect=lambda name: name), \
                mock.patch("subprocess.run") as ran:
            status, text = self.call("root", "trixie-mpich")
        self.assertEqual(status, 3)
        self.assertIn("was not made to its end", text)
        self.assertTrue(os.path.isdir(place))
        ran.assert_not_called()

    def test_what_is_kept_is_not_run_again(self):
        self.kept("trixie-openmpi", jobs="OK", hangs="FAIL")
        with mock.patch.object(self.matrix.roots.Root, "make") as make:
            status, text = self.call("run", "trixie-openmpi", "--tests", "jobs", "--library", self.library)
            make.assert_not_called()
            self.assertEqual(status, 0)
            self.assertIn("all 1 results are kept", text)
            status, text = self.call("run", "trixie-openmpi", "--tests", "hangs", "--library", self.library)
            make.assert_not_called()
            self.assertEqual(status, 1)
            make.side_effect = self.matrix.Impossible("asked")
            for words in (("--failed",), ("--again",)):
                self.assertIn("not run: asked", self.call("run", "trixie-openmpi", "--tests", "hangs", "--library", self.library, *words)[1])
            with open(self.library, "ab") as file:
                file.write(b"another")  # another library: nothing is known of it
            self.assertIn("not run: asked", self.call("run", "trixie-openmpi", "--tests", "jobs", "--library", self.library)[1])

    def test_versions_by_their_names(self):
        """Open MPI 4.1.0 calls itself OpenRTE."""
        for cell, said, version in (("bullseye-openmpi", "mpirun.openmpi (OpenRTE) 4.1.0\n\nReport bugs", "Open MPI 4.1.0"),
                                    ("forky-openmpi", "mpirun.openmpi (Open MPI) 6.0.0rc2\n", "Open MPI 6.0.0rc2"),
                                    ("trixie-openmpi", "mpirun (Open MPI) 5.0.7\n", "Open MPI 5.0.7"),
                                    ("bullseye-mpich", "MPICH Version:    \t3.4.1\n", "MPICH 3.4.1")):
            system = mock.Mock(**{"run.return_value.stdout": said, "architecture.return_value": "x86_64"})
            self.assertEqual(self.matrix.facts_of(self.matrix.named(cell), system)["MPI"], version)

    def test_time_to_come(self):
        kept = self.kept("trixie-openmpi", jobs="OK", hangs="OK", dumps="OK")
        self.assertEqual(kept.expected_seconds(["jobs", "hangs", "dumps", "ends"], 2), (90, 1))
        self.assertEqual(kept.expected_seconds(["ends"], 2), (0, 1))

    def test_garbage_is_not_believed(self):
        kept = self.kept("trixie-openmpi", jobs="OK")
        for text in ("", "[]", "{", '{"tests": 7}'):
            with open(kept.path, "w", encoding="utf-8") as file:
                file.write(text)
            self.assertEqual(self.matrix.results.Kept(self.roots, "trixie-openmpi").tests, {})

    def test_log_while_it_grows(self):
        path = os.path.join(self.roots, "testlog.json")
        log = self.matrix.results.Log(path)
        self.assertEqual(log.news(), [])
        line = json.dumps({"name": "resil:mpi / jobs-mpich", "result": "OK", "duration": 3.5, "stdout": "left out x: é\n"}, ensure_ascii=False)
        with open(path, "a", encoding="utf-8") as file:
            file.write(line[:20])
            file.flush()
            self.assertEqual(log.news(), [])
            file.write(line[20:] + "\n")
            file.flush()
            self.assertEqual(log.news(), [("jobs-mpich", "OK", 3.5, "left out x: é\n")])
            file.write(line.replace(" / ", ":").replace("jobs", "ends") + "\n")
        self.assertEqual([entry[0] for entry in log.news()], ["ends-mpich"])
        self.assertEqual(self.matrix.results.reasons("left out x: y\n", "OK"), "x: y")
        self.assertEqual(self.matrix.results.reasons("ok a\nFAILED  a, b (1.0 s)\n", "FAIL"), "a, b (1.0 s)")

    def test_page(self):
        page = self.matrix.page
        empty = f"Words.\n{page.BEGIN}\n{page.END}\nMore.\n"
        kept = self.kept("trixie-openmpi", jobs="OK", ends="FAIL", reductions="OK")
        kept.facts["across"] = {"verify": "clean", "digests": {"order 2": {"sum": "0123456789abcdef"}}}
        text = page.written(empty, {"trixie-openmpi": kept})
        self.assertTrue(text.startswith("Words.\n") and text.endswith("\nMore.\n"))
        self.assertIn("| trixie-openmpi | Debian 13 | Open MPI 5.0.7 |", text)
        self.assertIn("1 of 2: not ends", text)
        self.assertIn("- trixie-openmpi, `ends`: fail", text)
        # Written on another machine, which keeps nothing: the lines stay.
        self.assertEqual(page.written(text, {}), text)
        other = self.kept("forky-mpich", jobs="OK")
        both = page.written(text, {"forky-mpich": other})
        self.assertIn("| trixie-openmpi | Debian 13 |", both)
        self.assertIn("| forky-mpich | Debian testing |", both)


if __name__ == "__main__":
    unittest.main()
