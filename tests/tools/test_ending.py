# SPDX-License-Identifier: Apache-2.0
"""How scripts/resil tells a job that stands still, one that somebody ended, who waits for whom, and many ranks at once."""

import json
import os
import re
import time
import types
import unittest
from unittest import mock

import support
from resil_tool import dump, ending, findings, fold, layout, ring, waits
from support import Case, record, ring_bytes

HANG = {"schema_version": 1, "class": "deadlock", "confidence": "proved", "time_ns": 10**18, "culprit_ranks": [1], "victim_ranks": [0, 2, 3],
        "message": "Ranks 0,2-3 (3 of 4) have waited 1.4 s in call 4 of MPI_Barrier on MPI_COMM_WORLD. Rank 1 waits in MPI_Recv from "
                   "rank 0, tag 9, on MPI_COMM_WORLD. Rank 0 has not sent that message.",
        "peer_ranks": [0], "evidence": ["reason: proved", "core: rank 1", "peer: rank 0", "waiting: ranks 0,2-3",
                     "rank 0: call 4 of MPI_Barrier on MPI_COMM_WORLD at hangs+0x3436, for 1.4 s",
                     "rank 1: MPI_Recv from rank 0, tag 9, on MPI_COMM_WORLD at hangs+0x2908, for 1.4 s; message 1, sent 0",
                     "ranks 2-3: call 4 of MPI_Barrier on MPI_COMM_WORLD at hangs+0x3436, for 1.4 s"],
        "action": "report", "unanswered": [],
        "ranks": [{"rank": r, "state": "blocked", "call": "MPI_Recv" if r == 1 else "MPI_Barrier"} for r in range(4)]}


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


class Ending(Case):
    def ring_of(self, rank, inside, age, live=True, size=4, **members):
        """A rank of this process that has been in a barrier, or outside MPI, for `age` seconds."""
        done = [record("MPI_Allreduce", age, None, sequence=3, site=0x401100)]
        if inside:
            done.append(record("MPI_Barrier", age, None, state=layout.RECORD_OPEN, sequence=4, site=0x401234))
        pid = os.getpid() if live else support.NO_PROCESS + rank
        members = dict(dict(rank=rank, size=size, pid=pid, start=support.process.stat(os.getpid())[2] if live else 0, inside=inside,
                            records=done, directory=self.directory), **members)
        self.report(rank=rank, size=size, outcome="running", pid=pid, calls={}, peers=[], start_time=members.get("now", time.time()) - 1000)
        if live:
            return self.live_ring(**members)
        return self.write("rank-%05d.ring" % rank, ring_bytes(**members))

    def screen(self):
        status, out, error = self.tool("report", self.directory)
        self.assertEqual(error, "")
        self.assertLessEqual(len(out.splitlines()), 40)
        return status, out

    def test_standing_still(self):
        for rank in range(4):
            self.ring_of(rank, rank != 1, 89)
        status, out = self.screen()
        self.assertEqual(status, 3)
        self.assertRegex(re.sub(r"\s+", " ", out), r"\ASTANDING STILL (89|9\d|1\d\d|\d+ min \d\d)(\.\d)? s: no rank has entered or left an MPI call; rank 1 is outside MPI, 3 ranks "
                              r"wait in it")

    def verdict(self):
        return json.loads(self.tool("report", "--json", self.directory)[1])["verdict"]

    def test_pauses_that_are_work_are_no_standstill(self):
        for ages in ((89, 89, 89, 2), (10, 10, 10, 10)):  # one moved a moment ago; all did
            for rank, age in enumerate(ages):
                self.ring_of(rank, rank != 1, age)
            self.assertEqual(self.verdict(), "RUNNING", ages)
        for rank in range(4):  # most compute
            self.ring_of(rank, rank == 0, 300)
        self.assertEqual(self.verdict(), "RUNNING")

    def test_ranks_that_cannot_be_seen_may_move(self):
        for rank in range(3):
            self.ring_of(rank, rank != 1, 89)
        self.assertEqual(self.verdict(), "RUNNING")  # no report of rank 3
        self.report(rank=3, size=4, outcome="running", host="elsewhere", start_time=time.time() - 1000)
        self.assertEqual(self.verdict(), "RUNNING")

    def test_time_limit(self):
        now = time.time() - 500
        for rank in range(4):
            self.ring_of(rank, rank != 1, 68, False, now=now, term=("slurmstepd", 18490, 15))
        status, out = self.screen()
        self.assertEqual(status, 3)
        self.assertIn("INCOMPLETE: ranks 0-3 were ended by slurmstepd with signal 15 (Slurm: a time limit, scancel", out)
        self.assertIn("nobody had moved for 68 s: rank 1 was outside MPI, 3 ranks waited in it", re.sub(r"\s+", " ", out))
        self.assertIn("took 16 min 40 s", out)  # not the 932 s of the last record
        value = json.loads(self.tool("report", "--json", self.directory)[1])
        self.assertAlmostEqual(value["seconds"], 1000, delta=2)
        self.assertEqual(value["ending"]["senders"][0]["ranks"], "0-3")

    def test_reason_of_slurm(self):
        now = time.time() - 500
        for rank in range(2):
            self.ring_of(rank, True, 5, False, 2, now=now, term=("slurmstepd", 18490 + rank, 15), job="4711.0")
        tools = os.path.join(self.top, "bin")
        script = self.write("scontrol", '#!/bin/sh\n[ "$*" = "-o show job 4711" ] && echo "JobId=4711 JobState=OUT_OF_MEMORY Reason=OutOfMemory"\n', tools)
        os.chmod(script, 0o755)
        os.environ["PATH"] = tools + ":" + os.environ["PATH"]
        self.assertIn("Slurm says: the out-of-memory killer", re.sub(r"\s+", " ", self.screen()[1]))
        self.write("scontrol", "#!/bin/sh\nexit 1\n", tools)
        self.assertNotIn("Slurm says", self.screen()[1])

    def test_operator(self):
        for sender, means in (("bash", "an operator or a script"), ("timeout", "the command timeout"), ("mpirun.openmpi", "the launcher"),
                              ("x\x1b[2J", "")):
            self.assertIn(means, ending.reason(sender))
        self.ring_of(0, True, 5, False, 1, term=("b\x1b]0;ash", 77, 15))
        out = self.screen()[1]
        self.assertIn("rank 0 was ended by b?]0;ash with signal 15", out)
        self.assertNotIn("nobody had moved", out)  # 5 s are a program's own

    def test_out_of_memory_by_the_log(self):
        now = time.time() - 500
        for rank in range(4):
            self.ring_of(rank, rank != 1, 5, False, now=now, **({} if rank == 1 else {"term": ("mpirun", 77, 15)}))
        self.write("hang.log", "%d launch 0123\n%d notice rank 1 has ended without MPI_Finalize; the out-of-memory killer has ended processes on its node\n"
                   % (now * 1e9, now * 1e9))
        out = re.sub(r"\s+", " ", self.screen()[1])
        self.assertIn("rank 1 ended without MPI_Finalize first; rank 1 ran out of memory: the kernel's out-of-memory killer", out)
        self.assertIn("rank 1 was killed by the out-of-memory killer outside MPI", out)
        self.assertEqual(json.loads(self.tool("report", "--json", self.directory)[1])["ending"]["out_of_memory"], "1")
        self.write("hang.log", "%d launch 0123\n%d notice rank 1 has ended without MPI_Finalize\n" % (now * 1e9, now * 1e9))
        self.assertNotIn("memory", self.screen()[1].split("reports")[0])

    def test_out_of_memory_by_counted_kills(self):
        """Rank 0 noted that it was ended, and how many kills its control group had counted; the others left without a trace."""
        def told(silent, kills, log=(), kernel=None):
            ranks = [types.SimpleNamespace(rank=rank, key=(0, rank), pid=50 + rank, host="one", ended_by="" if rank else "prterun",
                                           oom_kills=0 if rank else kills, by_memory=False) for rank in range(silent + 1)]
            with mock.patch.object(ending, "kernel_kills", return_value=kernel or {}), mock.patch.object(ending.attach, "is_here", return_value=True):
                memory, some = ending._by_memory(ranks, log, 1.0)  # pylint: disable=protected-access
            self.assertEqual(memory, [rank.key for rank in ranks if rank.by_memory])
            return ending.memory({"memory": memory, "memory_some": some}).partition(" ran out of memory: the kernel's")[0]

        self.assertEqual([told(1, 1), told(2, 2), told(2, 1), told(2, 0)], ["rank 1", "ranks 1-2", "1 of ranks 1-2", ""])
        notice = "rank 2 has ended without MPI_Finalize; the out-of-memory killer has ended processes on its node"
        self.assertEqual(told(2, 1, [(1.0, "notice", notice)]), "rank 2")
        self.assertEqual(told(2, 1, kernel={51: 1.0}), "rank 1")
        self.assertEqual(told(2, 0, kernel={51: 1.0}), "rank 1")

    def test_out_of_memory_by_the_kernel(self):
        up = time.clock_gettime(time.CLOCK_MONOTONIC)
        log = self.write("kmsg", "4,1,%d,-;greedy invoked oom-killer: gfp_mask=0xcc0\n"
                         "3,2,%d,-;Memory cgroup out of memory: Killed process 4711 (app) total-vm:1kB\n"
                         "3,3,%d,-;Out of memory: Killed process 4712 (a) b) total-vm:1kB\n"
                         "3,4,%d,-;Out of memory: Killed process 4713 (old) total-vm:1kB\n"
                         "6,5,%d,-;app: Killed process 4714 (x)\n\xff\n" % (up * 1e6, up * 1e6, up * 1e6, (up - 900) * 1e6 if up > 900 else 0, up * 1e6))
        self.assertEqual(sorted(ending.kernel_kills(time.time() - (500 if up > 900 else up - 3), log)), [4711, 4712])
        self.assertEqual(ending.kernel_kills(0, log + "-missing"), {})

    def test_sender_without_a_name(self):
        """pkill is gone before a rank reads its name; who sends from outside a container has no pid in it."""
        for pid, words in ((18490, "ranks 0-3 were ended by process 18490 with signal 15 (gone before its name was read: kill, pkill, or a script)"),
                           (0, "ranks 0-3 were ended by a process outside this container with signal 15")):
            for rank in range(4):
                self.ring_of(rank, True, 68, False, now=time.time() - 500, term=("", pid, 15))
            self.assertIn(words, re.sub(r"\s+", " ", self.screen()[1]))

    def test_accusation_of_the_log_is_told(self):
        now = time.time() - 500
        for rank in range(4):
            self.ring_of(rank, rank != 1, 68, False, now=now, term=("slurmstepd", 18490, 15))
        self.write("hang.log", "%d launch 0123\n%d notice No rank has finished an MPI call for 31 s. Rank 1 is outside MPI.\n\xff broken\n"
                   % (now * 1e9, now * 1e9))
        self.assertIn("hang log   No rank has finished an MPI call for 31 s. Rank 1 is outside MPI.", self.screen()[1])
        with open(os.path.join(self.directory, "hang.log"), "a", encoding="utf-8") as file:  # a victim: it said "accused rank 0 …"
            file.write("%d suspected rank 0 has been in MPI_Barrier for 60.8 s; the longest such wait before was 0.0 s\n" % (now * 1e9))
        self.assertIn("hang log   No rank has finished an MPI call for 31 s. Rank 1 is outside MPI.", self.screen()[1])
        self.write("hang.log", "%d notice Rank 1 is out.\n%d withdrawn It goes on.\n" % (now * 1e9, now * 1e9 + 5))
        self.assertNotIn("hang log", self.screen()[1])

    def test_the_dump_to_look_at_is_of_the_rank_that_the_others_wait_for(self):
        now = time.time() - 500
        for rank in range(4):
            self.ring_of(rank, rank != 1, 68, False, now=now, term=("slurmstepd", 18490, 15))
            for number in (2, 10):
                self.write("dump-%05d-%d.txt" % (rank, number), "x")
        self.assertRegex(self.screen()[1], r"\nnext +\S+ show %s/dump-00001-10\.txt\n?" % self.directory)

    def test_who_waits_for_whom(self):
        self.report(rank=0, size=4)
        self.write("hang-0.json", HANG)
        out = self.screen()[1]
        self.assertIn("(culprit: rank 1; peer, not accused: rank 0)", re.sub(r"\s+", " ", out))
        self.assertIn("waits      rank 0 waits for rank 1 (accused) (cycle): call 4 of MPI_Barrier on MPI_COMM_WORLD", out)
        self.assertIn("ranks 2-3 wait for rank 1 (accused): call 4 of MPI_Barrier", out)
        status, out, _ = self.tool("graph", self.directory)
        self.assertEqual((status, len(out.splitlines())), (1, 4), out)
        status, out, _ = self.tool("graph", "--dot", self.directory)
        self.assertEqual((status, out.count("->")), (1, 3))
        self.assertIn('label="rank 1 (accused)\\nMPI_Recv from rank 0', out)

    def test_graph_of_any_file(self):
        for hang in ({}, {"evidence": 3, "ranks": [None, {"rank": "x"}, {"rank": -1}]}, {"evidence": ["rank 0: ", "ranks 5-1: x", "core: ranks x"]},
                     {"evidence": ["rank 999999999: MPI_Recv from rank 0"], "unanswered": [1e300, "x", 7]},
                     {"evidence": ['rank 0: MPI_Recv from rank 0 "]; evil [label="\\'], "culprit_ranks": [0]}):
            one = waits.graph({"hang": hang, "culprit_ranks": [0], "source": "hang-0.json"})
            for graph in waits.of_findings([{"hang": hang, "culprit_ranks": [0], "source": 'h"'}]):
                waits.lines(graph)
                text = "\n".join(waits.dot(graph, 'h"'))
                self.assertEqual(len(re.findall(r'(?<!\\)(?:\\\\)*"', text)) % 2, 0, text)
            self.assertTrue(one is None or one["nodes"])

    def test_stacks_of_all_ranks_as_one_tree(self):
        self.report(rank=0, size=4)
        self.assertEqual(self.tool("graph", "--stacks", self.directory)[0], 3)
        entry = {"ranks": "0-3", "threads": 4, "frames": ["app+0x1", "app+0x9"], "library": False}
        self.write("stacks-0.json", {"schema_version": 1, "of": "hang-0.json", "threads": 4, "ranks": 4, "samples": 4, "stacks": [entry]})
        out = self.tool("graph", "--stacks", self.directory)[1]
        self.assertIn("from stacks-0.json (hang-0.json)\n  0-3: app+0x1\n    app+0x9\n", out)
        for rank in range(4):  # newer than those, and of main threads
            below = "    #0 poll+0x7 (libc.so.6)\n    #1 PMPI_Recv+0xfa (libmpi.so.40)\n    #2 libresil.so+0x1\n" if rank == 2 else "    #0 solve\"+0x5 (app)\n"
            self.write("dump-%05d-0.txt" % rank, "Threads: 2\n  Thread 7 (app), the main thread, writes\n%s    #%d main+0x1 (app)\n  Thread 8 (x): S\n    #0 app+0x9\n" % (
                below, below.count("#")))
        status, out, _ = self.tool("graph", "--stacks", self.directory)
        self.assertEqual((status, out.split("\n", 1)[1]), (0, "  0-3: main+0x1 (app)\n    2: PMPI_Recv+0xfa (libmpi.so.40)\n    0-1,3: solve\"+0x5 (app)\n"))
        self.assertEqual(json.loads(self.tool("graph", "--stacks", "--json", self.directory)[1])["children"][0]["count"], 4)
        dot = self.tool("graph", "--stacks", "--dot", self.directory)[1]
        self.assertIn('n0 -> n1 [label="4: [0-3]"];', dot)
        self.assertIn('n1 -> n2 [label="1: [2]"];', dot)
        self.assertIn('[label="solve\\"+0x5 (app)"];', dot)
        self.assertEqual(dot.count("{"), dot.count("}"))

    def test_graph_without_a_cycle(self):
        hang = dict(HANG, evidence=HANG["evidence"][3:5] + ["ranks 2-3: call 4 of MPI_Barrier on MPI_COMM_WORLD"],
                    ranks=[{"rank": r, "state": "computing" if r == 1 else "blocked"} for r in range(4)])
        one = waits.of_findings([{"hang": hang, "culprit_ranks": [1], "source": "hang-0.json"}])[0]
        self.assertEqual(one["cycle"], [])
        self.assertEqual(sorted((one["nodes"][a]["ranks"], one["nodes"][b]["ranks"]) for a, b, _ in one["edges"]), [("0", "1"), ("2-3", "1")])

    def test_second_finding_of_the_same_cause_says_so(self):
        self.report(rank=0, size=4)
        self.write("hang-1.json", HANG)
        self.write("hang-0.json", dict(HANG, **{"class": "mismatch", "time_ns": 9 * 10**17}))
        self.write("hang-2.json", dict(HANG, **{"class": "rank_gone", "culprit_ranks": [3], "victim_ranks": []}))
        value = json.loads(self.tool("report", "--json", self.directory)[1])
        self.assertEqual({f["source"]: f.get("follows") for f in value["findings"]},
                         {"hang-0.json": None, "hang-2.json": None, "hang-1.json": "hang-0.json"})
        self.assertIn("3 findings, one of the same cause", value["reason"])
        self.assertIn("follows from hang-0.json", findings.sentence(value["findings"][-1]))


class Folding(unittest.TestCase):
    def test_numbers_and_ages(self):
        said = [((0, r), "in MPI_Allreduce #%s on MPI_COMM_WORLD for %s, called at f at a.c:7" % (n, age))
                for r, n, age in ((0, "5,316", "138 us"), (1, "5,338", "0.002 s"), (2, "5,316", "1 ms"))]
        at = " on MPI_COMM_WORLD for %s, called at f at a.c:7"
        self.assertEqual(fold.groups(said), [([(0, 1)], "in MPI_Allreduce #5,338" + at % "0.002 s"),
                                             ([(0, 0), (0, 2)], "in MPI_Allreduce #5,316" + at % "138 us…1 ms")])
        self.assertEqual(fold.merge([sentence for _, sentence in said]), "in MPI_Allreduce #5,316…5,338" + at % "138 us…0.002 s")

    def test_places_stay_apart(self):
        said = [((0, 0), "called at f at a.c:7"), ((0, 1), "called at f at a.c:8"), ((0, 2), "at app+0x10"), ((0, 3), "at app+0x11")]
        self.assertEqual(len(fold.groups(said)), 4)

    def test_odd_one_first(self):
        said = [((0, r), "in MPI_Recv from rank %d" % r if r != 900 else "in user code") for r in range(1000)]
        self.assertEqual([len(keys) for keys, _ in fold.groups(said)], [1, 999])

    def test_dump_of_many_ranks(self):
        targets = []
        for rank in range(64):
            live = ring_live(rank)
            where = "in MPI_Recv from rank 20, tag 99" if rank == 13 else "in MPI_Allreduce, collective 21 on it, for 3.%d s" % (rank % 10)
            targets.append(dump.Target(live, None, sentence="rank %d of 64 (n%d, pid %d): %s" % (rank, rank // 64, rank + 7, where)))
        lines = dump.folded(targets)
        self.assertEqual(len(lines), 2, lines)
        self.assertEqual(lines[0], "  rank 13 of 64 (n0, pid 20): in MPI_Recv from rank 20, tag 99")
        self.assertEqual(lines[1], "  ranks 0-12,14-63 of 64 (n0): in MPI_Allreduce, collective 21 on it, for 3.0…3.9 s".replace(
            "3.0…3.9 s", "3.0 s…3.9 s"))

    def test_place_outside_mpi(self):
        text = ("rank 1 of 2 (h, pid 5): in user code, not in MPI, for 3 s\nmain thread: __nanosleep+0x13 (libc.so.6) < spin+0x1326 < spin+0x1500\n"
                "  libc.so.6 at 0x7f0000000000: /lib/libc.so.6\n  spin at 0x5500000000: /home/u/spin\n")
        objects = dump.symbols.objects_of_dump(text)
        self.assertEqual(dump._own_frame(text, objects), "spin+0x1326")  # a return address as it is
        self.assertEqual(dump._own_frame(text.replace("__nanosleep+0x13 (libc.so.6) < ", ""), objects), "spin+0x1327")
        self.assertEqual(dump._own_frame("main thread: ", {}), "")

    def test_hosts(self):
        self.assertEqual(fold.hosts({"nid%05d" % i: 64 for i in range(64)}), "nid[00000-00063] (64 ranks each)")
        self.assertEqual(fold.hosts({"a1": 2, "a2": 2, "login": 1}), "login (1 rank), a[1-2] (2 ranks each)")


class Speed(Case):
    def test_rings_with_holes(self):
        request = layout.REQUEST.pack(key=7, kind=2)
        path = self.write("x.ring", ring_bytes(requests=[bytes(64)] * 3 + [request], room={"requests": 8192}))
        with ring.Ring(path) as one:
            self.assertEqual(one.pending_requests(), 1)
        sparse = os.path.join(self.top, "sparse.ring")
        data = ring_bytes(requests=[request], room={"requests": 8192, "modules": 128})
        with open(sparse, "wb") as file:
            for at in range(0, len(data), 4096):
                if data[at:at + 4096].strip(b"\0"):
                    file.seek(at)
                    file.write(data[at:at + 4096])
            file.truncate(len(data))
        with ring.Ring(sparse) as one:
            self.assertEqual(one.pending_requests(), 1)
        with open(sparse, "r+b") as file:
            file.truncate(len(data) // 2)
        with ring.Ring(sparse) as one:
            one.pending_requests()


def ring_live(rank):
    return dump.LiveRing("/x", 0, ("0:0", 0), rank, 0, rank + 7, 0, "n0", "job", "", 0, True)



if __name__ == "__main__":
    unittest.main()
