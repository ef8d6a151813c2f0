# SPDX-License-Identifier: Apache-2.0
"""scripts/resil export: a trace that viewers take, findings as JSON Lines, Prometheus text, CSV; with hostile names in all of them."""

import csv
import io
import json
import os
import re
import subprocess
import unittest

import record_support
import support
from resil_tool import layout
from support import Case, record, ring_bytes

EVIL = 'x"}\n<script>alert(1)</script>\x1b[2J=cmd\\'
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)\Z')


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


def check_trace(case, text):
    """The JSON object form of the trace event format, as far as resil uses it; the events."""
    value = json.loads(text)
    case.assertEqual(value["displayTimeUnit"], "ms")
    case.assertIsInstance(value["otherData"], dict)
    spans, named, threads = {}, set(), set()
    for event in value["traceEvents"]:
        case.assertIn(event["ph"], ("M", "X", "i"))
        case.assertIsInstance(event["name"], str)
        case.assertTrue(event["name"])
        for member in ("pid", "tid"):
            case.assertIsInstance(event[member], int)
        case.assertIsInstance(event["args"], dict)
        if event["ph"] == "M":
            case.assertIn(event["name"], ("process_name", "process_sort_index", "thread_name"))
            if event["name"] == "process_name":
                named.add(event["pid"])
            if event["name"] == "thread_name":
                threads.add((event["pid"], event["tid"]))
            continue
        case.assertIn(event["pid"], named)
        case.assertIn((event["pid"], event["tid"]), threads)
        case.assertGreaterEqual(event["ts"], 0)
        case.assertIsInstance(event["cat"], str)
        if event["ph"] == "X":
            case.assertGreaterEqual(event["dur"], 0)
            spans.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
        else:
            case.assertEqual(event["s"], "t")
    for track in spans.values():  # what overlaps without being inside is drawn wrongly
        open_until = []
        for begin, end in sorted(track, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= begin + 0.002:
                open_until.pop()
            case.assertTrue(not open_until or end <= open_until[-1] + 0.002)
            open_until.append(end)
    return value["traceEvents"], value["otherData"]


class Export(Case):
    def ring_of(self, rank, size=2, **members):
        records = [record("MPI_Send", 20, None, 0.25, peer=1, tag=7, bytes_=4096, sequence=1, site=0x401100),
                   record("MPI_Allreduce", 19, None, 1.5, sequence=1, site=0x401200),
                   layout.RECORD.pack(time=int(984 * support.RATE), state=layout.RECORD_STEP, sequence=3, aux=1, peer=-1),
                   record("MPI_Barrier", 5, None, state=layout.RECORD_OPEN, sequence=2)]
        self.report(rank=rank, size=size, host="h\x07" + EVIL, executable=EVIL)
        return self.write("rank-%05d.ring" % rank, ring_bytes(**dict(dict(
            rank=rank, size=size, pid=support.NO_PROCESS + rank, records=records, inside=True, modules=[(0x400000, 0x500000, 0x400000, "/opt/app")]), **members)))

    def export(self, *arguments, status=0):
        done, out, error = self.tool("export", *arguments)
        self.assertEqual(done, status, error)
        self.assertNotIn("Traceback", error)
        return out

    def test_trace_of_flight_recorders(self):
        for rank in range(2):
            self.ring_of(rank)
        events, other = check_trace(self, self.export("--perfetto", self.directory))
        calls = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
        self.assertEqual([event["name"] for event in calls], ["MPI_Send", "MPI_Allreduce", "MPI_Barrier"])
        send = calls[0]
        self.assertEqual((send["ts"], send["dur"], send["cat"]), (0, 250000, "message"))
        self.assertEqual(send["args"], {"communicator": "MPI_COMM_WORLD", "peer": "rank 1", "tag": "tag 7", "bytes": 4096, "number": 1,
                                        "called at": "app+0x1100"})
        self.assertTrue(calls[2]["args"]["open"])
        self.assertEqual(len([event for event in events if event["ph"] == "i"]), 2)
        self.assertIn("does not synchronise", other["clocks"])
        one = check_trace(self, self.export("--perfetto", "--ranks", "1", "--last", "6", self.directory))[0]
        self.assertEqual({event["pid"] for event in one}, {2})
        self.assertEqual([event["name"] for event in one if event["ph"] == "X"], ["MPI_Barrier"])

    def test_trace_names_what_cannot_be_used(self):
        path = self.ring_of(0)
        with open(path, "r+b") as file:
            file.truncate(9000)
        self.report(rank=1, size=2)
        self.write("rank-00001.ring", b"not a ring")
        output = os.path.join(self.top, "trace.json")
        self.assertEqual(self.export("--perfetto", self.directory, "--output", output, status=3), "")
        with open(output, encoding="utf-8") as file:
            other = check_trace(self, file.read())[1]
        self.assertTrue(any("rank 0: truncated" in problem for problem in other["problems"]), other)
        self.assertTrue(any("rank 1: " in problem for problem in other["problems"]), other)
        self.assertEqual([name for name in os.listdir(self.top) if name.endswith(".tmp")], [])

    def test_jsonl(self):
        self.ring_of(0)
        self.report(rank=1, size=2, host=EVIL, findings=[{"kind": EVIL, "confidence": "proved", "message": EVIL, "culprit_ranks": [1]}] * 2)
        lines = self.export("--jsonl", self.directory, self.directory).splitlines()
        self.assertEqual(len(lines), 2)
        value = json.loads(lines[0])
        self.assertEqual((value["schema_version"], value["job_verdict"], value["culprit_ranks"], value["count"]), (1, "FINDINGS", [1], 2))
        self.assertNotIn("\x1b", json.dumps(value, ensure_ascii=False))

    def test_prometheus(self):
        self.ring_of(0)
        self.report(rank=1, size=2, findings=[{"kind": EVIL, "confidence": "proved", "message": "m"}])
        text = self.export("--prometheus", self.directory)
        families, samples = [], {}
        for line in text.splitlines():
            if line.startswith("#"):
                kind, name = line.split(" ")[1:3]
                self.assertIn(kind, ("HELP", "TYPE"))
                families += [name] if kind == "TYPE" else []
                continue
            found = SAMPLE.match(line)
            self.assertTrue(found, line)
            self.assertEqual(found.group(1), families[-1])  # samples of a family stand together
            samples.setdefault(found.group(1), []).append(float(found.group(3)))
        self.assertEqual(len(families), len(set(families)))
        self.assertEqual(samples["resil_job_exit_code"], [1])
        self.assertEqual(sum(samples["resil_job_ranks"]), 2)
        self.assertEqual(samples["resil_job_findings"], [1])
        # Prometheus' own reader for Python, which Debian's interpreter has.
        done = subprocess.run(["/usr/bin/python3", "-c", READER], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if "ModuleNotFoundError" in done.stderr or not os.path.exists("/usr/bin/python3"):
            self.skipTest("python3-prometheus-client is not installed")
        self.assertEqual((done.stderr, sorted(done.stdout.split())), ("", sorted(families)))

    def test_csv(self):
        self.ring_of(0)
        self.report(rank=1, size=2, host="=1+2", executable="@sum")
        rows = list(csv.DictReader(io.StringIO(self.export("--csv", self.directory))))
        self.assertEqual([row["rank"] for row in rows], ["0", "1"])
        self.assertEqual((rows[1]["host"], rows[1]["program"], rows[1]["sent_messages"], rows[1]["calls"]), ("'=1+2", "'@sum", "10", "15"))
        self.assertEqual(rows[0]["state"], "finished")

    def test_a_clean_run_has_nothing_to_draw_and_that_is_said(self):
        self.report(rank=0, size=1)
        status, _, error = self.tool("export", "--perfetto", self.directory)
        self.assertEqual(status, 3)
        self.assertIn("a clean run keeps no flight recorders; resil run --set files=rings keeps them", error)

    def test_what_is_asked_must_make_sense(self):
        self.ring_of(0)
        self.assertEqual(self.tool("export", self.directory)[0], 2)
        self.assertEqual(self.tool("export", "--perfetto", "--ranks", "x", self.directory)[0], 2)
        self.assertEqual(self.tool("export", "--perfetto", self.directory, self.directory)[0], 2)


READER = ("import sys; from prometheus_client.parser import text_string_to_metric_families as read; "
          "print(*(family.name for family in read(sys.stdin.read())))")


class Recording(record_support.Case):
    def test_trace_of_a_recording(self):
        place = self.record("run", [{}, {"sent": "1112"}, {}])
        with open(self.file(place, 2), "r+b") as file:
            file.truncate(40)
        status, out, error = self.tool("export", "--perfetto", place)
        self.assertEqual(status, 3, error)
        events, other = check_trace(self, out)
        self.assertEqual({event["pid"] for event in events}, {1, 2})
        self.assertIn("MPI_Allreduce", {event["name"] for event in events})
        self.assertEqual(other["clock"], "number of the call in its thread, not time")
        self.assertEqual(len(other["problems"]), 1)


if __name__ == "__main__":
    unittest.main()
