# SPDX-License-Identifier: Apache-2.0
"""scripts/resil show: each kind of file is told by its contents, shown with functions and lines, and named where it cannot be used."""

import json
import os
import random
import shutil
import subprocess
import time
import unittest

import record_support
import support
from resil_tool import layout
from support import record, report_object, ring_bytes

setUpModule, tearDownModule = support.limit_time, support.release_time

DUMP = """\
rank 1 of 3 (vm, pid 78): in MPI_Recv from rank 0, tag 99, for 4.2 s, called at app+%(site)#x
17 MPI calls so far; no pending requests
resil 0.1.0 dump 0 of rank 1 of 3 (vm, pid 78), 2026-11-28 11:37:17.156 UTC, phase running

Threads: 1
  Thread 78 (app), the main thread, writes this dump
    #0 app+%(site)#x
    #1 libc.so.6+0x2724a

Objects named above (address in file = address - base; for addr2line -e PATH OFFSET):
  app at 0x561d0a724000: %(app)s
"""


def hang_object(**members):
    return dict({"schema_version": 1, "launch": "0123456789abcdef", "time_ns": 1795865793482591869, "class": "deadlock", "confidence": "proved",
                 "culprit_ranks": [1], "culprit_count": 1, "victim_ranks": [0, 2], "victim_count": 2, "peer_ranks": [],
                 "message": "Rank 1 waits in MPI_Recv from rank 0. Rank 0 has not sent that message. To do: compare the tags at both ends.",
                 "evidence": ["reason: proved", "rank 1: MPI_Recv from rank 0, tag 99, on MPI_COMM_WORLD at app+0x10, for 3.4 s",
                              "ranks 0,2: call 41 of MPI_Barrier on MPI_COMM_WORLD at app+0x20, for 3.4 s"], "edges": [
                     {"kind": "collective", "from": [0, 2], "to": [1], "call": "MPI_Barrier", "sequence": 41, "communicator": "MPI_COMM_WORLD"}],
                 "ranks": [{"rank": 0, "state": "blocked", "call": "MPI_Barrier", "sequence": 41, "age": 3.4},
                           {"rank": 1, "state": "blocked", "call": "MPI_Recv", "age": 3.5}, {"rank": 2, "state": "blocked", "call": "MPI_Barrier", "sequence": 41,
                                                                                            "age": 3.6}]}, **members)


class Show(support.Case):
    def ring(self, name="rank-00002.ring", **members):
        now = time.time()
        done = [record("MPI_Allreduce", 10 - i, now, 0.25, sequence=i + 1, site=0x401100, bytes_=8) for i in range(9)]
        done.append(record("MPI_Recv", 0.5, now, peer=1, tag=7, state=layout.RECORD_OPEN, site=0x401234))
        request = layout.REQUEST.pack(key=5, time=int(1000 * support.RATE), site=0x401180, bytes=64, comm=1, peer=3, tag=7, call=1, kind=1)
        usual = {"rank": 2, "size": 4, "pid": 77, "records": done, "inside": True, "counters": {"MPI_Allreduce": (9, 2.25, 72), "MPI_Send": (3, 0.5, 96)},
                 "peers": [(3, 1, 64, 2, 128)], "modules": [(0x400000, 0x500000, 0x400000, "/opt/app")], "requests": [request], "now": now}
        return self.write(name, ring_bytes(**dict(usual, **members)))

    def shown(self, *arguments, status=0):
        code, out, error = self.tool("show", *arguments)
        self.assertNotIn("Traceback", error)
        self.assertEqual(code, status, out + error)
        return out, error

    def test_flight_recorder(self):
        out, _ = self.shown(self.ring())
        for words in ("flight recorder of rank 2 of 4", "was in MPI_Recv from rank 1, tag 7, on MPI_COMM_WORLD", "called at app+0x1234",
                      "rank 3: sent 1, 64 B; received 2, 128 B", "MPI_COMM_WORLD: rank 2 of 4", "thread 77 (main): 10 calls"):
            self.assertIn(words, " ".join(out.split()))
        self.assertRegex(" ".join(out.split()), r"pending +send by MPI_Send, to rank 3, tag 7, on MPI_COMM_WORLD, 64 B, since \S+ posted at app\+0x1180")
        self.assertRegex(out, r"calls +MPI_Allreduce +9 +72 B +2\.25 s\n")
        self.assertLess(out.index(" MPI_Recv from rank 1, tag 7, on MPI_COMM_WORLD, at"), out.index("MPI_Allreduce #9"))  # the newest first

    def test_number_of_calls_and_json(self):
        path = self.ring()
        out, _ = self.shown("--last", "2", path)
        self.assertEqual((out.count("MPI_Allreduce #"), "MPI_Allreduce #9" in out), (1, True))
        value = json.loads(self.shown("--json", path)[0])
        self.assertEqual((value["kind"], value["rank"], value["process"], value["current"][0]["call"], len(value["threads"][0]["newest"])),
                         ("flight recorder", 2, "gone", "MPI_Recv", 10))
        self.assertEqual((value["calls"]["MPI_Send"], value["requests"][0]["kind"]), ({"count": 3, "seconds": 0.5, "bytes": 96}, "send"))

    def test_flight_recorder_of_a_running_rank(self):
        fake = support.FakeRank(self)
        self.assertEqual(json.loads(self.shown("--json", fake.ring)[0])["process"], "runs")
        self.assertIn("process runs", self.shown(fake.ring)[0])

    def test_what_is_cut_is_said_and_the_rest_is_shown(self):
        path = self.ring()
        with open(path, "r+b") as file:
            file.truncate(layout.HEADER_RESERVED + layout.LANE.size)
        out, _ = self.shown(path, status=3)
        self.assertRegex(out, r"calls +call 3 +9 +72 B")  # the names lie behind the cut
        self.assertRegex(out, r"unusable +truncated: \d+ of \d+ bytes are there")

    def test_sections_of_modules_need_not_be_there(self):
        self.assertNotIn("section hang", self.shown(self.ring(term=("slurmstepd", 18490, 15)))[0])

    def test_files_that_are_none(self):
        other = self.write("other.txt", "hello")
        text = self.write("notes.json", {"a": 1})
        future = self.write("hang-0.json", hang_object(schema_version=9))
        ring = self.ring(version=layout.VERSION + 1)
        os.symlink(other, os.path.join(self.top, "link"))
        os.mkfifo(os.path.join(self.directory, "pipe"))
        cut = self.write("hang-1.json", json.dumps(hang_object())[:300])
        empty = self.write("empty", b"")
        for path, words in ((other, "not a file of resil"), (text, "no schema_version"), (future, "schema_version 9, this tool reads 1"),
                            (ring, "ring format 2, this tool reads format 1"), (os.path.join(self.top, "link"), "a link: not followed"),
                            (os.path.join(self.directory, "pipe"), "not a regular file"), (cut, "truncated"), (empty, "empty")):
            out, error = self.shown(path, status=3)
            self.assertEqual((out, words in error), ("", True), (path, error))

    def test_several_files_of_which_some_are_missing(self):
        out, error = self.shown("nowhere", self.ring(), self.write("x", "y"), status=2)
        self.assertIn("flight recorder of rank 2", out)
        self.assertIn("nowhere: no such file", error)
        self.assertIn("x: not a file of resil", error)

    def test_unreadable(self):
        if os.geteuid() == 0:
            self.skipTest("root reads everything")
        path = self.ring()
        os.chmod(path, 0)
        self.assertIn("Permission denied", self.shown(path, status=3)[1])

    def test_hang(self):
        self.ring()
        out, _ = self.shown(self.write("hang-0.json", hang_object()), status=1)
        for words in ("hang-0.json: hang, deadlock, 2026-", "proved, hang: deadlock: Rank 1 waits in MPI_Recv from rank 0.\n", "to do      compare the tags",
                      "ranks 0,2 wait for rank 1 (accused)", "rank 1: blocked in MPI_Recv for 3.5 s", "ranks 0,2: blocked in MPI_Barrier #41 for 3.4 s…3.6 s"):
            self.assertIn(words, out)
        value = json.loads(self.shown("--json", os.path.join(self.directory, "hang-0.json"), status=1)[0])
        self.assertEqual((value["kind"], value["class"], len(value["findings"])), ("hang", "deadlock", 1))

    def test_answer_of_why_is_no_finding(self):
        path = self.write("why-0.json", hang_object(**{"class": "moving", "message": "The job moves.", "evidence": [], "culprit_ranks": []}))
        self.assertRegex(self.shown(path)[0], r"answer of resil why, moving(.|\n)*what +The job moves\.")

    def test_node_file(self):
        lines = [json.dumps(report_object(rank=rank, size=4, outcome=outcome, host="nid1", pid=50 + rank)) for outcome in ("running", "finished") for rank in range(3)]
        lines[4:5] = [lines[4][:100]]  # rank 1 found no room
        path = self.write("node-nid1-0.jsonl", "\n".join(lines) + "\n")
        out, _ = self.shown(path, status=3)
        self.assertIn("reports of a node, of nid1, ranks 0-2", " ".join(out.split()))
        self.assertRegex(out, r"ranks +rank 1: no final report: killed, stopped, or still running\n +ranks 0,2: finished after 10 s, 15 calls, 1\.5 s…3\.5 s in MPI")
        self.assertIn("unusable   line 5: truncated", out)

    def test_report_with_a_finding(self):
        finding = {"kind": "message_corrupted", "confidence": "proved", "culprit_ranks": [], "victim_ranks": [0], "message": "8 bytes arrived changed", "evidence": {}}
        path = self.report(rank=0, size=1, findings=[finding], notes=["note one"])
        out, _ = self.shown(path, status=1)
        self.assertIn("8 bytes arrived changed", out)
        self.assertIn("note one (rank 0)", out)

    def test_log_and_texts(self):
        log = self.write("hang.log", "1795865792273240411 notice No rank has finished an MPI call for 30.7 s.\n")
        self.assertRegex(self.shown(log)[0], r"^2026-11-2\d \d\d:\d\d:32\.273 notice No rank has finished")
        self.assertEqual(self.shown(self.write("run.conf", "RESIL_MODE=watch\n"))[0], "RESIL_MODE=watch\n")
        self.assertIn("program          app", self.shown(self.write("launch.json", {"schema_version": 1, "launch": "", "program": "app", "time": 1.7e9}))[0])

    def test_stacks(self):
        entry = {"ranks": "0-2", "count": 3, "threads": 3, "steady": True, "library": True, "sleeps": True, "complete": True, "frames": ["libc.so.6+0x1"]}
        own = {"ranks": "1", "count": 1, "threads": 1, "steady": False, "library": False, "sleeps": False, "complete": True, "frames": ["app+0x10", "app+0x20"]}
        path = self.write("stacks-0.json", {"schema_version": 1, "launch": "", "time_ns": 1795865792417509017, "of": "hang-0.json", "ranks": 3, "threads": 4,
                                            "unread": 1, "left_out": 0, "samples": 4, "stacks": [entry, own]})
        out = " ".join(self.shown(path)[0].split())
        for words in ("stacks of 4 threads of 3 ranks", "1: app+0x10 app+0x20", "3 threads that MPI or its libraries have started", "1 thread: waiting for a CPU"):
            self.assertIn(words, out)

    def test_every_file_of_a_directory(self):
        self.report(rank=0, size=1)
        self.ring(), self.write("hang-trace.txt", "10.0 1 4 5 0 0.0 0.0\n"), self.write("run.conf", "RESIL_MODE=watch\n")
        self.assertEqual(self.tool("html", self.directory)[0], 0)
        out, error = self.shown(*(os.path.join(self.directory, name) for name in sorted(os.listdir(self.directory))))
        self.assertEqual(error, "")
        self.assertIn("report.html: a page of resil html, for a browser\n", out)

    def test_directory_is_reported(self):
        self.report(rank=0, size=1)
        self.assertTrue(self.shown(self.directory)[0].startswith("CLEAN: 1 of 1 ranks finished"))
        self.assertEqual(json.loads(self.shown("--json", self.directory)[0])["verdict"], "CLEAN")

    def test_dump_with_functions_and_lines(self):
        compiler = shutil.which("gcc") or shutil.which("cc")
        if not compiler or not shutil.which("addr2line"):
            self.skipTest("needs a C compiler and addr2line")
        source = self.write("solve.c", "int step(int x) { return x + 1; }\nint main(int n, char **v) { (void)v; return step(n); }\n", self.top)
        app = os.path.join(self.top, "app")
        subprocess.run([compiler, "-g", "-O0", "-no-pie", source, "-o", app], check=True, timeout=600)
        symbols_ = subprocess.run(["nm", app], stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()
        start = next(int(line.split()[0], 16) for line in symbols_.splitlines() if line.endswith(" T step"))
        path = self.write("dump-00001-0.txt", DUMP % {"site": start + 5, "app": app})
        self.write("launch.json", {"schema_version": 1, "launch": "", "program": "app", "time": time.time() + 5})
        out, _ = self.shown(path)
        self.assertIn("called at step at solve.c:1\n", out)
        self.assertIn("    #0 step at solve.c:1\n", out)
        self.assertIn("    #1 libc.so.6+0x2724a\n", out)
        cut = self.write("dump-00001-1.txt", (DUMP % {"site": 1, "app": app}).split("Objects")[0])
        self.assertIn("the dump has no end", self.shown(cut, status=3)[0])

    def test_escape_sequences_do_not_reach_the_terminal(self):
        bad = "\x1b[2J\u202e<b>"
        self.write("launch.json", {"schema_version": 1, "launch": "", "program": bad, bad: bad})
        self.write("hang-0.json", hang_object(message=bad, evidence=["a: " + bad], **{"class": bad}))
        self.write("hang.log", "1795865792273240411 notice %s\n%s\n" % (bad, bad))
        self.write("dump-00000-0.txt", DUMP % {"site": 1, "app": bad} + bad)
        self.report(rank=0, host=bad, executable=bad, notes=[bad])
        self.ring(host=bad, directory=bad, term=("\x1b[2J", 1, 15))
        for name in os.listdir(self.directory):
            out, error = self.tool("show", os.path.join(self.directory, name))[1:]
            self.assertNotRegex(out + error, "[\x00-\x09\x0b-\x1f\u202e]", name)
            self.assertTrue(out, name)

    def test_damaged_at_random(self):
        noise = random.Random(18)
        self.ring(), self.write("hang-0.json", hang_object()), self.report(rank=0), self.write("dump-00000-0.txt", DUMP % {"site": 1, "app": "/opt/app"})
        for name in sorted(os.listdir(self.directory)):
            with open(os.path.join(self.directory, name), "rb") as file:
                whole = file.read()
            for _ in range(12):
                data = bytearray(whole)
                for _ in range(noise.randrange(1, 20)):
                    data[noise.randrange(min(len(data), 8192))] = noise.randrange(256)
                del data[noise.randrange(len(data)):]
                path = self.write(name, bytes(data), os.path.join(self.top, "noise"))
                code, out, error = self.tool("show", path)
                self.assertIn(code, (0, 1, 3), error)
                self.assertNotIn("Traceback", error)
                self.assertTrue(out + error)


class Recordings(record_support.Case):
    def test_file_and_directory(self):
        place = self.record("run", [{}, {}])
        code, out, error = self.tool("show", "--last", "1", self.file(place, 1))
        self.assertEqual(code, 0, error)
        self.assertIn("recording of rank 1 of 2 on node-1, finished", " ".join(out.split()))
        self.assertEqual([line.split()[1] for line in out.splitlines() if line.startswith("       ")], ["MPI_Allreduce"])
        value = json.loads(self.tool("show", "--json", self.file(place))[1])
        self.assertEqual((value["calls"], value["threads"][0]["newest"][-1]["call"]), (7, "MPI_Allreduce"))
        self.assertEqual(self.tool("show", place)[:2], self.tool("recording", place)[:2])

    def test_recording_that_was_cut(self):
        path = self.file(self.record("run", [{}], end=""))
        code, out, _ = self.tool("show", path)
        self.assertEqual(code, 3)
        self.assertIn("MPI_Waitsome", out)
        self.assertIn("unusable", out)


if __name__ == "__main__":
    unittest.main()
