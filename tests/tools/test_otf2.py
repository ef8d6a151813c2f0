# SPDX-License-Identifier: Apache-2.0
"""scripts/resil export --otf2: what OTF2's own reader finds in the archive is what the Perfetto trace says. Skipped without otf2-print."""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest

import record_support
import support
from resil_tool import layout, otf2_trace
from resil_tool.job import Usage
from support import Case, record, ring_bytes

EVENT = re.compile(r"(ENTER|LEAVE)\s+(\d+)\s+(\d+)\s+Region: \"(.*?)\" <\d+>")


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


def module_missing():
    try:
        otf2_trace.library()
    except Usage:
        return True
    return not shutil.which("otf2-print")


@unittest.skipIf(module_missing(), "otf2-tools and python3-otf2 are not installed")
class Otf2(Case):
    def export(self, *arguments, status=0):
        done, out, error = self.tool("export", *arguments)
        self.assertEqual((done, "Traceback" in error), (status, False), error)
        return out

    def printed(self, archive, *options):
        done = subprocess.run(["otf2-print", *options, os.path.join(archive, "traces.otf2")], capture_output=True, timeout=60, check=True)
        self.assertEqual(done.stderr, b"")
        return done.stdout.decode()

    def same_as_perfetto(self, job):
        """Every call of the one trace begins and ends in the other at the same ns, in the same thread."""
        archive = os.path.join(self.top, "archive")
        shutil.rmtree(archive, ignore_errors=True)
        self.export("--otf2", archive, job)
        events = json.loads(self.export("--perfetto", job))["traceEvents"]
        threads = {(event["pid"], event["tid"]): number for number, event in enumerate(
            event for event in events if event["ph"] == "M" and event["name"] == "thread_name")}
        wanted = []
        for event in events:
            if event["ph"] != "M":
                at, thread = round(event["ts"] * 1000), threads[event["pid"], event["tid"]]
                wanted += [("ENTER", thread, at, event["name"]), ("LEAVE", thread, at + round(event.get("dur", 0) * 1000), event["name"])]
        found = [(kind, int(thread), int(at), name) for kind, thread, at, name in EVENT.findall(self.printed(archive))]
        self.assertEqual(sorted(found), sorted(wanted))
        self.assertGreater(len(found), 4)
        return archive

    def ring_of(self, rank):
        records = [record("MPI_Send", 20, None, 0.25, peer=1, tag=7, bytes_=4096, sequence=1, site=0x401100),
                   record("MPI_Allreduce", 19, None, 1.5, sequence=1, site=0x401200),
                   layout.RECORD.pack(time=int(984 * support.RATE), state=layout.RECORD_STEP, sequence=3, aux=1, peer=-1),
                   record("MPI_Barrier", 5, None, state=layout.RECORD_OPEN, sequence=2)]
        self.report(rank=rank, size=2, host="h\x1b[2J%d" % rank)
        self.write("rank-%05d.ring" % rank, ring_bytes(rank=rank, size=2, pid=support.NO_PROCESS + rank, records=records, inside=True,
                                                       modules=[(0x400000, 0x500000, 0x400000, "/opt/app")]))

    def test_flight_recorders(self):
        for rank in range(2):
            self.ring_of(rank)
        archive = self.same_as_perfetto(self.directory)
        text = self.printed(archive)
        self.assertRegex(text, r'\("peer" <\d+>; STRING; "rank 1" <\d+>\), \("tag" <\d+>; STRING; "tag 7" <\d+>\), \("bytes" <\d+>; INT64; 4096\)')
        definitions = self.printed(archive, "-G")
        self.assertRegex(definitions, r'LOCATION_GROUP +1  Name: "rank 1 ')
        self.assertRegex(definitions, r'"MPI_Allreduce".* Role: COLL_OTHER, Paradigm: MPI')
        self.assertNotIn("\x1b", definitions + text)

    def test_what_is_refused(self):
        self.ring_of(0)
        os.mkdir(os.path.join(self.top, "there"))
        done, _, error = self.tool("export", "--otf2", os.path.join(self.top, "there"), self.directory)
        self.assertEqual((done, "is a new directory" in error), (2, True), error)
        self.assertEqual([name for name in os.listdir(self.top) if name.endswith(".tmp")], [])


@unittest.skipIf(module_missing(), "otf2-tools and python3-otf2 are not installed")
class Recording(record_support.Case):
    def test_calls_of_a_recording(self):
        place, archive = self.record("run", [{}, {}]), os.path.join(self.top, "archive")
        status, _, error = self.tool("export", "--otf2", archive, place)
        self.assertEqual(status, 0, error)
        text = subprocess.run(["otf2-print", os.path.join(archive, "traces.otf2")], capture_output=True, timeout=60, check=True).stdout.decode()
        found = EVENT.findall(text)
        self.assertEqual({int(thread) for _, thread, _, _ in found}, {0, 1})
        self.assertIn("MPI_Allreduce", {name for _, _, _, name in found})


class Missing(Case):
    def test_said_with_the_package(self):
        """A Python without the module: a sentence with the package's name, and nothing is written."""
        self.report(rank=0, size=1)
        hidden, sys.modules["otf2"] = sys.modules.get("otf2"), None  # what import takes for "not there"
        try:
            done, out, error = self.tool("export", "--otf2", os.path.join(self.top, "archive"), self.directory)
        finally:
            del sys.modules["otf2"]
            if hidden:
                sys.modules["otf2"] = hidden
        self.assertEqual((done, out), (2, ""))
        self.assertIn("needs OTF2 and its Python module, which are not here (Debian: python3-otf2", error)
        self.assertFalse(os.path.exists(os.path.join(self.top, "archive")))


if __name__ == "__main__":
    unittest.main()
