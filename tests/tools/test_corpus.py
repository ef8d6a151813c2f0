# SPDX-License-Identifier: Apache-2.0
"""Reports that older versions left (tests/tools/corpus): today's tool reads them, or names what it cannot read."""

import json
import os
import struct
import tarfile
import unittest

import support
from resil_tool import layout
from support import Case

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
VERDICTS = {"clean": ("CLEAN", 0), "killed": ("INCOMPLETE", 3), "hung": ("FINDINGS", 1), "flip": ("FINDINGS", 1)}
CALLS = {"MPI_Sendrecv": 20, "MPI_Allreduce": 20}  # of both ranks


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


class Corpus(Case):
    def extracted(self):
        """(day, what, directory) of each."""
        for name in sorted(os.listdir(CORPUS)):
            if name.endswith(".tar.xz"):
                with tarfile.open(os.path.join(CORPUS, name)) as archive:
                    archive.extractall(self.top)
                directory = name[:-len(".tar.xz")]
                yield *directory.split("-"), os.path.join(self.top, directory)

    def report(self, directory):
        status, out, error = self.tool("report", "--json", directory)
        self.assertEqual(error, "")
        told = json.loads(out)
        self.assertEqual(told["exit_code"], status)
        return told

    def test_every_file_is_shown(self):
        for day, what, directory in self.extracted():
            files = [os.path.join(place, name) for place, _, names in os.walk(directory) for name in sorted(names) if not name.startswith(".")]
            with self.subTest(day=day, what=what):
                status, out, error = self.tool("show", *files)
                self.assertEqual((status, error), (1 if what in ("hung", "flip") else 0, ""))
                self.assertNotIn("unusable", out)
                self.assertEqual(len(self.tool("show", "--json", *files)[1].splitlines()), len(files))

    def test_reports_are_read(self):
        days = {}
        for day, what, directory in self.extracted():
            with self.subTest(day=day, what=what):
                days.setdefault(day, set()).add(what)
                told = self.report(directory)
                self.assertEqual((told["verdict"], told["exit_code"]), VERDICTS[what], told["reason"])
                self.assertEqual((told["unreadable"], told["other_runs"], told["ranks_reported"], told["missing_ranks"]), ([], [], 2, ""))
                calls = {call["name"]: call["count"] for call in told["calls"]}
                self.assertEqual({name: calls.get(name) for name in CALLS}, CALLS)
                self.assertTrue(next(iter(told["mpi"])).startswith("Open MPI v4.1.4"), told["mpi"])
                if what == "hung":
                    self.assertEqual(told["findings"][0]["kind"], "hang: deadlock", told["findings"])
                if what == "flip":
                    self.assertEqual(told["faults_injected"], {"flip": 1})
                    self.assertIn(told["findings"][0]["kind"], ("collective_mismatch", "message_corrupted"))
                if what == "killed":
                    self.assertIn("rank", told["reason"])
        self.assertTrue(len(days) >= 4 and all("clean" in day for day in days.values()), days)

    def test_other_views(self):
        """Text, the page for a browser, a trace where there are flight recorders."""
        for day, what, directory in self.extracted():
            with self.subTest(day=day, what=what):
                status, out, _ = self.tool("report", directory)
                self.assertEqual((status, out.split(":")[0]), (VERDICTS[what][1], VERDICTS[what][0]))
                page = os.path.join(self.top, "page.html")
                status, _, error = self.tool("html", directory, "--output", page)
                self.assertNotIn("Traceback", error)
                self.assertGreater(os.path.getsize(page), 10000)
                if any(name.endswith(".ring") for name in os.listdir(directory)):
                    status, out, error = self.tool("export", "--perfetto", directory)
                    names = [event["name"] for event in json.loads(out)["traceEvents"]]
                    self.assertEqual((status, names.count("MPI_Sendrecv")), (0, 20), error)

    def test_of_a_newer_version(self):
        """A report and a recorder of a format to come: both are named, the other rank is shown."""
        directory = next(place for day, what, place in self.extracted() if (day, what) == ("20261123", "clean"))
        report, ring = (os.path.join(directory, "rank-00001." + end) for end in ("json", "ring"))
        with open(report, encoding="utf-8") as file:
            value = json.load(file)
        with open(report, "w", encoding="utf-8") as file:
            json.dump(dict(value, schema_version=99), file)
        with open(ring, "r+b") as file:
            file.seek(8)
            self.assertEqual(struct.unpack("<I", file.read(4))[0], layout.VERSION)
            file.seek(8)
            file.write(struct.pack("<I", layout.VERSION + 98))
        told = self.report(directory)
        named = {os.path.basename(one["path"]): one["message"] for one in told["unreadable"]}
        self.assertEqual(told["verdict"], "INCOMPLETE")
        self.assertEqual(told["outcomes"]["finished"], "0")
        self.assertIn("99", named["rank-00001.json"])
        self.assertIn("99", named["rank-00001.ring"])


if __name__ == "__main__":
    unittest.main()
