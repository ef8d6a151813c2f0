# SPDX-License-Identifier: Apache-2.0
"""resil why without an MPI: errors, stacks of other processes read from outside, system calls, edges. Real jobs: tests/preload/why_test.py."""

import json
import os
import signal
import subprocess
import tempfile
import time
import types
import unittest
import unittest.mock

import support
from resil_tool import blocked, gathered, halted, process, remote_stacks, waits, why
from resil_tool.job import Usage
from support import Case, FakeRank, captured
from test_ending import HANG

EU = """PID 7 - process
TID 7:
#0  0x0000560042cf33d3 relax - /home/ada/app
    /home/ada/src/app.c:9:98
#1  0x0000560042cf33d3 __solver_MOD_solve - /home/ada/app
    /home/ada/src/solver.f90:10:56
#2  0x0000560042cf33d4 main.constprop.0 - /home/ada/app
    /home/ada/src/app.c:20:42
#3  0x00007fd819d0624a __libc_start_call_main - /usr/lib/libc.so.6
TID 9:
#0  0x00007fd819ddb26f - /usr/lib/libevent.so
"""
GDB = """Thread 2 (Thread 0x7f5 (LWP 9) "app"):
#0  0x00007fd819ddb26f in poll () from /usr/lib/libc.so.6
Thread 1 (Thread 0x7f3 (LWP 7) "app"):
#0  relax (x=1) at app.c:9
#1  solve (file=0x7ffd "a (b)") at app.c:12
#2  0x0000560042cf33d4 in main (argc=2, argv=0x7ffd) at app.c:20
"""


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


def ask(word=None, **more):
    return captured(why.run, types.SimpleNamespace(**{"job": word, "json": False, "no_stacks": True, "wait": 0.2, **more}))


class Errors(Case):
    def test_no_job_runs_here(self):
        with self.assertRaisesRegex(Usage, "no rank of yours"):
            ask()

    def test_several_jobs_are_listed(self):
        FakeRank(self)
        with tempfile.TemporaryDirectory() as other:
            self.directory = other
            FakeRank(self, 1)
            with self.assertRaisesRegex(Usage, "several jobs of yours"):
                ask()

    def test_a_library_that_gives_no_answer(self):
        ranks = [FakeRank(self, r, 2) for r in range(2)]
        status, out = ask()
        self.assertEqual(status, 3, out)
        self.assertTrue(out.startswith("NO ANSWER: "), out)
        self.assertIn("MPI_Recv", out)
        for rank in ranks:
            self.assertTrue(rank.lives())
            self.assertEqual(rank.signals(), 0)

    def test_all_ranks_of_this_node_are_stopped(self):
        """Nobody can answer: no word of RESIL_HANG, and no waiting for it."""
        ranks = [FakeRank(self, r, 4) for r in range(2)]
        for rank in ranks:
            os.kill(rank.pid, signal.SIGSTOP)
        while any(process.stat(rank.pid)[0] != "T" for rank in ranks):
            os.sched_yield()
        self.report(rank=3, size=4, host="nid7", outcome="running", start_time=time.time() - 100)
        asked = unittest.mock.patch.object(why, "ask", side_effect=AssertionError("nobody can answer"))
        with asked:
            status, out = ask()
            found = json.loads(ask(json=True)[1])
        words = " ".join(out.split())
        pids = " ".join(str(pid) for pid in sorted(rank.pid for rank in ranks))
        self.assertEqual(status, 1, out)
        self.assertTrue(words.startswith("STOPPED: All 2 ranks of this job on %s are stopped: ranks 0-1 (pids %s, state T in /proc)." % (os.uname().nodename, pids)), out)
        self.assertIn("kill -CONT %s" % pids, words)
        self.assertIn("MPI_Recv", out)  # where they are, of their rings
        self.assertNotIn("RESIL_HANG", out)
        self.assertEqual((found["verdict"], found["kind"], found["culprits"], found["world_size"]), ("stopped", "rank_stopped", [0, 1], 4))
        self.assertEqual(found["pids"], {str(r): rank.pid for r, rank in enumerate(ranks)})
        self.assertIn("Other ranks run on nid7 (1 rank): ask there.", words)
        os.kill(ranks[1].pid, signal.SIGCONT)
        while process.stat(ranks[1].pid)[0] == "T":
            os.sched_yield()
        status, out = ask()
        self.assertEqual(status, 3, out)
        self.assertIn("Rank 0 is stopped (pid %d, in /proc)." % ranks[0].pid, " ".join(out.split()))

    def test_a_debugger_that_holds_a_rank_is_named(self):
        found = {(0, 0): (70, "t", 9), (0, 2): (71, "T", 0)}
        said = halted.message(found, "n1", 0, {})
        self.assertIn("ranks 0,2 (pids 70 71, state T or t in /proc). Their helper threads", said)
        self.assertIn("A debugger (pid 9) holds rank 0: let it continue, or detach it.", said)
        self.assertIn("kill -CONT 71,", said)
        self.assertNotIn("Of the other", said)
        self.assertIn("The only rank of this job on n1 is stopped: rank 3 (pid 7, state T", halted.message({(0, 3): (7, "T", 0)}, "n1", 3, {}))
        self.assertIn("Other ranks run on nid[7-8] (1 rank each): ask there.", halted.message(found, "n1", 3, {"nid7": [3], "nid8": [4]}))

    def test_this_nodes_ranks_are_shown_where_the_answer_takes_long(self):
        FakeRank(self, 0, 2)
        asked = unittest.mock.patch.object(why, "_write", lambda ring, ticket: True)
        asked.start()
        self.addCleanup(asked.stop)
        status, out = ask(wait=why.SOONER + 0.5)
        self.assertEqual(status, 3, out)
        sooner, later = out.split("\n\n")
        self.assertTrue(sooner.startswith("NO ANSWER YET: after 2 s"), out)
        self.assertIn("up to 0.5 s more", " ".join(sooner.split()))
        self.assertIn("MPI_Recv", sooner)
        self.assertNotIn("\nnext", sooner)
        self.assertTrue(later.startswith("NO ANSWER: "), out)
        self.assertEqual(json.loads(ask(wait=why.SOONER + 0.5, json=True)[1])["verdict"], "not known")

    def test_an_answer_that_is_cut_off_counts_for_nothing(self):
        path = os.path.join(self.directory, "why-0.json")
        for data in (b"", b'{"ticket": 1', b"[]", b"\0" * 100):
            with open(path, "wb") as file:
                file.write(data)
            self.assertIsNone(why._read(path))

    @unittest.skipIf(os.geteuid() != 0, "only root can make files of another user")
    def test_another_users_job_is_refused(self):
        path = self.write("resil-%d-4242.0-0-0.ring" % (os.geteuid() + 1), b"", self.shm)
        os.chown(path, 1, 1)
        with self.assertRaisesRegex(Usage, "belongs to .*: refused"):
            ask("4242")

    def test_stacks_that_are_cut_off_are_left_out(self):
        self.report(rank=0, size=1)
        whole = json.dumps({"schema_version": 1, "of": "hang-0.json", "ranks": 1, "threads": 1, "stacks": [{"ranks": "0", "threads": 1, "frames": ["app+0x10"]}]})
        for text, shown in ((whole, True), (whole[:40], False), ("", False), ("[]", False), ('{"schema_version": 1, "of": 7, "stacks": [7, {"frames": 3}]}', False)):
            self.write("stacks-0.json", text)
            status, out, error = self.tool("report", self.directory)
            self.assertEqual((status, error), (0, ""))
            self.assertEqual("1 thread of 1 rank" in out, shown, (text, out))

    def test_threads_of_the_mpi_library_are_left_out_of_a_report(self):
        self.report(rank=0, size=1)
        told = {"schema_version": 1, "of": "hang-0.json", "ranks": 1, "threads": 2, "unread": 1, "stacks": [
            {"ranks": "0", "threads": 1, "frames": ["app+0x10"]}, {"ranks": "0", "threads": 1, "library": True, "frames": ["libpmix.so.2+0x20"]}]}
        for name, shown in (("deadlock", False), ("inside_mpi", True)):
            self.write("hang-0.json", dict(HANG, **{"class": name}))
            self.write("stacks-0.json", told)
            out = self.tool("report", self.directory)[1]
            self.assertEqual(("app+0x10" in out, "libpmix" in out), (True, shown), out)
            self.assertIn("1 thread not read", out)
        del told["stacks"][0]
        self.write("hang-0.json", HANG)
        self.write("stacks-0.json", told)
        self.assertNotIn("libpmix", self.tool("report", self.directory)[1])


class Stacks(Case):
    def words(self, frames):
        return [remote_stacks.words(frame) for frame in frames]

    def test_names_lines_and_inlined_frames(self):
        threads = remote_stacks.parse("eu-stack", EU)
        self.assertEqual(self.words(threads[7]), ["relax at app.c:9", "solver::solve at solver.f90:10", "main at app.c:20",
                                                  "__libc_start_call_main in libc.so.6"])
        self.assertEqual(self.words(threads[9]), ["? in libevent.so"])
        threads = remote_stacks.parse("gdb", GDB)
        self.assertEqual(self.words(threads[7]), ["relax at app.c:9", "solve at app.c:12", "main at app.c:20"])
        self.assertEqual(self.words(threads[9]), ["poll in libc.so.6"])

    def test_names_of_fortran(self):
        self.assertEqual(remote_stacks.written("__heat_MOD_step"), "heat::step")
        self.assertEqual(remote_stacks.written("step_", "heat.f90:3"), "step")
        self.assertEqual(remote_stacks.written("step_", "heat.c:3"), "step_")
        self.assertEqual(remote_stacks.written("MAIN__"), "program")

    def test_equal_stacks_are_one_branch(self):
        frames = remote_stacks.parse("eu-stack", EU)[7]
        other = frames[1:]
        tree = remote_stacks.tree({(0, 0): {1: frames}, (0, 1): {2: other}, (0, 2): {3: frames}})
        self.assertEqual(remote_stacks.lines(tree), ["0-2: main at app.c:20", "  solver::solve at solver.f90:10", "    0,2: relax at app.c:9"])

    def test_what_starts_a_program_is_left_out_without_its_name_too(self):
        frames = [{"function": name, "source": source, "object": place} for name, source, place in (
            ("relax", "app.c:9", "app"), ("main", "app.c:20", "app"), ("libc.so.6+0x2724a", "", ""), ("app+0x1211", "", ""))]
        self.assertEqual(remote_stacks.shown(frames), ["main at app.c:20", "relax at app.c:9"])

    def test_threads_of_libraries_are_counted_and_not_shown(self):
        told = {"stacks": [{"ranks": "0", "threads": 1, "library": False, "frames": ["app+0x10"]}, {"ranks": "0", "threads": 1, "library": True, "frames": ["libpmix.so+0x10"]}]}
        self.assertEqual(gathered.of_libraries(told), {1})
        seen = {"kind": "deadlock", "world": 0, "culprits": [0], "started": 0.0}
        why._add_stacks(seen, [], told)
        self.assertEqual((seen["of_libraries"], remote_stacks.lines(seen["shown_stacks"])), (1, ["0: app+0x10"]))
        self.assertEqual({child["frame"] for child in seen["stacks"]["children"]}, {"app+0x10", "libpmix.so+0x10"})
        seen = {"kind": "inside_mpi", "world": 0, "culprits": [0], "started": 0.0}
        why._add_stacks(seen, [], told)
        self.assertNotIn("shown_stacks", seen)  # there they may say why MPI does not go on

    def test_a_reader_that_is_killed_leaves_nobody_stopped(self):
        tool = remote_stacks.reader()
        if not tool:
            self.skipTest("neither eu-stack nor gdb")
        with subprocess.Popen(["sleep", "600"]) as victim:
            try:
                before = process.stat(victim.pid)
                for delay in (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.03, 0.06):
                    remote_stacks._run(tool, victim.pid, delay)
                    remote_stacks._let_go(victim.pid, before)
                    limit = time.monotonic() + 20
                    while process.stat(victim.pid)[0] not in "SR":
                        self.assertLess(time.monotonic(), limit, process.stat(victim.pid))
                        time.sleep(0.01)
            finally:
                victim.kill()

    def test_a_reading_that_fails_is_tried_again(self):
        directory = self.directory

        def reader(fails, complaint):
            path = os.path.join(directory, "eu-stack")
            with open(path, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\necho once >> %s/tried\n[ $(wc -l < %s/tried) -gt %d ] || { echo '%s' >&2; exit 1; }\n"
                           "printf 'TID %%d:\\n#0  0x1 relax - /app\\n' $PPID\n" % (directory, directory, fails, complaint))
            os.chmod(path, 0o755)
            with open(os.path.join(directory, "tried"), "w", encoding="utf-8"):
                pass
            found, problems = remote_stacks.take([os.getpid()])
            with open(os.path.join(directory, "tried"), encoding="utf-8") as file:
                return bool(found), problems, len(file.readlines())

        before = os.environ["PATH"]
        os.environ["PATH"] = directory + ":" + before
        try:
            self.assertEqual(reader(2, "no such thread"), (True, [], 3))
            words = "process %d cannot be read by eu-stack: %s"
            self.assertEqual(reader(9, "no such thread"), (False, [words % (os.getpid(), "no such thread")], 3))
            refused = "cannot attach: Operation not permitted"
            self.assertEqual(reader(9, refused), (False, [words % (os.getpid(), refused)], 1))
        finally:
            os.environ["PATH"] = before

    def test_a_stopped_process_is_left_alone(self):
        with subprocess.Popen(["sleep", "600"]) as victim:
            try:
                os.kill(victim.pid, 19)
                limit = time.monotonic() + 20
                while process.stat(victim.pid)[0] != "T" and time.monotonic() < limit:
                    time.sleep(0.01)
                found, problems = remote_stacks.take([victim.pid])
                if remote_stacks.reader():
                    self.assertIn("stopped already", problems[0])
                self.assertFalse(found)
                self.assertEqual(process.stat(victim.pid)[0], "T")
            finally:
                victim.kill()


class Gathered(Case):
    STACKS = {"schema_version": 1, "of": "hang-0.json", "ranks": 4, "threads": 5, "samples": 4, "stacks": [
        {"ranks": "0,2-3", "count": 3, "threads": 3, "steady": False, "sleeps": False, "frames": ["app+0x10", "libmpi.so+0x20"]},
        {"ranks": "1", "count": 1, "threads": 1, "steady": True, "sleeps": False, "frames": ["app+0x30"]},
        {"ranks": "0-3", "count": 4, "threads": 4, "steady": True, "sleeps": True, "frames": ["libc.so.6+0x40"]}]}

    def test_those_of_a_finding(self):
        self.write("stacks-0.json", {"schema_version": 1, "of": "notice"})
        self.write("stacks-9.json", b"{\"schema_version\": 1, \"of\": ")
        self.write("stacks-1.json", self.STACKS)
        self.assertEqual(gathered.of(self.directory, "hang-0.json")["threads"], 5)
        self.assertEqual(gathered.of(self.directory, "hang-1.json"), {})
        self.assertEqual(gathered.files(self.directory), ["stacks-0.json", "stacks-1.json", "stacks-9.json"])

    def test_one_stack_a_rank_without_files_to_look_into(self):
        found = gathered.stacks(self.STACKS, 0, {}, 0.0)
        self.assertEqual(sorted(found), [(0, 0), (0, 1), (0, 2), (0, 3)])
        frames = found[(0, 1)][1]
        self.assertEqual([frame["function"] for frame in frames], ["app+0x30"])

    def test_what_all_ranks_have_is_not_abnormal(self):
        said = gathered.abnormal(self.STACKS, {}, 0.0)
        self.assertEqual(len(said), 1)
        self.assertTrue(said[0].startswith("1 thread of rank 1 at the same place in all of 4 samples: app+0x30"), said)

    def test_ranks(self):
        self.assertEqual(gathered.members("0,2-4"), [0, 2, 3, 4])
        for words in ("", "x", "4-2", "1-", "-1", "0-99999999", "1,,2"):
            self.assertLessEqual(len(gathered.members(words)), 1, words)

    def test_anything_else_is_left_out(self):
        for told in ({}, {"stacks": 7}, {"stacks": [7, None, {"ranks": [], "frames": "x"}, {"ranks": "0", "frames": [7, None]}]}):
            gathered.stacks(told, 0, {"app": "/nowhere/app"}, 0.0)
            gathered.abnormal(told, {"app": "/nowhere/app"}, 0.0)
            self.assertEqual(why.error_lines([]), [])

    def test_errors_are_lines(self):
        said = why.error_lines([{"sources": "0,2", "destination": 1, "type": "receive", "distance": "other node", "seconds": 12.0, "threshold": 5.0,
                                 "status": "computing"}, {"sources": "3", "destination": 0, "type": "send", "status": "waiting", "follows": 1}, {}])
        self.assertTrue(said[0].startswith("0,2 for rank 1: receive, other node, 12"), said)
        self.assertTrue(said[0].endswith("rank 1 is computing"), said)
        self.assertTrue(said[1].endswith("follows from rank 1"), said)
        known = [{"sources": "0", "destination": 1, "status": status} for status in ("waiting", "path broken", "stopped")]
        self.assertEqual([line[-40:] for line in why.error_lines(known, proved=True)], [line[-40:] for line in why.error_lines(known)[1:]])


class Blocked(unittest.TestCase):
    def test_a_fifo_that_nobody_opens(self):
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "fifo")
            os.mkfifo(path)
            with subprocess.Popen(["cat", path], stdout=subprocess.DEVNULL) as victim:
                try:
                    limit = time.monotonic() + 20
                    while True:
                        found = blocked.system_call(victim.pid)
                        if (found and found["name"].startswith("open") and found["file"] == path) or not blocked._TABLE:
                            break
                        if not os.access("/proc/%d/syscall" % victim.pid, os.R_OK):
                            self.skipTest("the kernel does not tell")
                        self.assertLess(time.monotonic(), limit, found)
                        time.sleep(0.01)
                    if found:
                        self.assertEqual(found["text"], 'open("%s")' % path)
                        self.assertTrue(found["io"])
                finally:
                    victim.kill()


class Edges(unittest.TestCase):
    def test_those_of_the_file_count(self):
        hang = {"edges": [{"kind": "collective", "from": [0, 2], "to": [1], "call": "MPI_Allreduce", "sequence": 11, "communicator": "atmosphere"},
                          {"kind": "receive", "from": [1], "to": [0], "call": "MPI_Recv", "tag": 7, "communicator": "atmosphere"}],
                "ranks": [{"rank": 0, "state": "blocked", "call": "MPI_Allreduce", "sequence": 11},
                          {"rank": 1, "state": "blocked", "call": "MPI_Recv"},
                          {"rank": 2, "state": "blocked", "call": "MPI_Allreduce", "sequence": 11}]}
        one = waits.graph({"hang": hang, "culprit_ranks": [1], "source": "hang-0.json"})
        names = [one["nodes"][i]["ranks"] for i in range(len(one["nodes"]))]
        self.assertEqual([(names[a], names[b], label) for a, b, label in one["edges"]],
                         [({0, 2}, {1}, "MPI_Allreduce, collective 11, on atmosphere"), ({1}, {0, 2}, "MPI_Recv, tag 7, on atmosphere")])
        self.assertEqual(len(one["cycle"]), 2)
        self.assertEqual(why.edge_lines(hang["edges"]), ["ranks 0,2 wait for rank 1: MPI_Allreduce, collective 11, on atmosphere",
                                                         "rank 1 waits for rank 0: MPI_Recv, tag 7, on atmosphere"])
        self.assertEqual(why.edge_lines([None, {}, {"from": "x"}, {"from": [1], "to": []}]),
                         ["rank 1 waits for nobody that is known: a call"])


if __name__ == "__main__":
    unittest.main()
