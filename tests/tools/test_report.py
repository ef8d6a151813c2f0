# SPDX-License-Identifier: Apache-2.0
"""scripts/resil report: verdicts, exit status, one screen, and every way a report directory can be wrong."""

import fcntl
import json
import mmap
import os
import random
import time
import unittest

import support
from resil_tool import cli, layout, report
from support import Case, captured, report_object, ring_bytes


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


class Report(Case):
    def run_report(self, *arguments):
        """(exit status, text) of `report DIR`; every text is one screen."""
        status, out, error = self.tool("report", self.directory, *arguments)
        self.assertEqual(error, "")
        lines = out.splitlines()
        if "--json" not in arguments:
            self.assertLessEqual(len(lines), 40, out)
            self.assertFalse([line for line in lines[:-1] if len(line) > 100], out)
        return status, out

    def summary(self):
        status, out = self.run_report("--json")
        value = json.loads(out)
        self.assertEqual(value["exit_code"], status)
        return value

    def killed(self, rank=2, size=4, pid=None, **members):
        pid = pid or support.NO_PROCESS
        self.report(rank=rank, size=size, outcome="running", pid=pid, calls={}, peers=[])
        return dict(dict(rank=rank, size=size, pid=pid, directory=self.directory, inside=True, records=[support.record(
            "MPI_Allreduce", 12, None, state=layout.RECORD_OPEN, sequence=17, site=0x401234)], modules=[
                (0x400000, 0x500000, 0x400000, "/opt/app")], counters={"MPI_Allreduce": (17, 3.0, 136)}), **members)

    def test_clean(self):
        for rank in range(4):
            self.report(rank=rank, size=4)
        status, out = self.run_report()
        self.assertEqual(status, 0)
        self.assertTrue(out.startswith("CLEAN: 4 of 4 ranks finished, no findings; "
                                       "message contents were not checked\n"), out)
        self.assertIn("finished: 0-3", out)
        self.assertIn("message contents were not checked", out)
        send = [line for line in out.splitlines() if line.startswith("  MPI_Send ")][0].split()
        self.assertEqual(send, ["MPI_Send", "40", "16.0", "KiB", "10", "1", "2.5", "4", "3"])
        self.assertIn("sent 40, 16.0 KiB; received 40, 16.0 KiB; most from 3 to 0: 10, 4.0 KiB", out)
        self.assertIn("30.0 % of the ranks' time is in MPI", out)

    def test_finding(self):
        self.report(rank=0, size=2)
        finding = {"kind": "transit", "confidence": "proved", "culprit_ranks": [1], "victim_ranks": [0],
                   "message": "8 bytes from rank 1 arrived changed", "evidence": {}}
        self.report(rank=1, size=2, findings=[finding])
        status, out = self.run_report()
        self.assertEqual(status, 1)
        self.assertTrue(out.startswith("FINDINGS: 1 finding"), out)
        self.assertIn("proved, transit: 8 bytes from rank 1 arrived changed (culprit: rank 1)", out)

    def test_finding_wins_over_missing_ranks(self):
        self.report(rank=1, size=9, findings=[{"kind": "k", "confidence": "proved", "message": "m"}])
        self.assertEqual(self.run_report()[0], 1)

    def test_hang_file_is_a_finding(self):
        self.report(rank=0, size=1)
        self.write("hang-0.json", {"schema_version": 1, "class": "deadlock", "confidence": "verified",
                                   "culprit_ranks": [0], "message": "rank 0 waits for itself"})
        status, out = self.run_report()
        self.assertEqual(status, 1)
        self.assertIn("verified, hang: deadlock: rank 0 waits for itself", out)

    def test_stopped_by_resil_is_a_finding(self):
        self.report(rank=0, size=1, outcome="stopped", exit_status=93)
        status, out = self.run_report()
        self.assertEqual(status, 1)
        self.assertIn("stopped by resil with status 93: 0", out)

    def test_aborted(self):
        self.report(rank=0, size=1, outcome="aborted", exit_status=7)
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertTrue(out.startswith("INCOMPLETE: rank 0 called MPI_Abort"), out)
        self.assertIn("error code 7", out)

    def test_aborted_rank_says_where(self):
        self.report(rank=0, size=1, outcome="aborted", exit_status=7, pid=4)
        self.write("rank-00000.ring", ring_bytes(**dict(self.killed(), rank=0, size=1, pid=4, phase=4)))
        os.unlink(os.path.join(self.directory, "rank-00002.json"))
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertIn("rank 0 aborted in MPI_Allreduce #17 on MPI_COMM_WORLD, called at app+0x1234", out)
        self.assertIn("15 calls", out)  # of the final report, not of the ring

    def test_missing_ranks(self):
        for rank in (0, 1, 2, 4, 9):
            self.report(rank=rank, size=10)
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertTrue(out.startswith("INCOMPLETE: no report of ranks 3,5-8"), out)

    def test_killed_rank_ring_is_collected(self):
        for rank in (0, 1, 3):
            self.report(rank=rank, size=4)
        live = self.live_ring(**self.killed())
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertIn("rank 2 was killed in MPI_Allreduce #17 on MPI_COMM_WORLD, called at app+0x1234", out)
        self.assertFalse(os.path.exists(live))
        collected = os.path.join(self.directory, "rank-00002.ring")
        self.assertTrue(os.path.isfile(collected))
        self.assertIn("from rings calls of rank 2", out)
        again = self.summary()  # now from the collected one
        self.assertEqual(again["outcomes"], {"finished": "0-1,3", "killed": "2"})
        allreduce = [call for call in again["calls"] if call["name"] == "MPI_Allreduce"][0]
        self.assertEqual((allreduce["count"], allreduce["max_rank"]), (15 + 17, "2"))

    def test_who_was_killed_first_is_not_known_where_the_launcher_kills_the_others(self):
        for rank in range(4):
            self.write("rank-%05d.ring" % rank, ring_bytes(**self.killed(rank=rank)))
        out = self.run_report()[1]
        self.assertTrue(out.startswith("INCOMPLETE: ranks 0-3 ended without MPI_Finalize, which of them first is not known\n"), out)
        self.assertIn("called at", out)

    def test_collected_ring_is_the_same_bytes(self):
        data = ring_bytes(**self.killed())
        self.write("resil-%d-job-0-2.ring" % os.geteuid(), data, self.shm)
        self.run_report()
        with open(os.path.join(self.directory, "rank-00002.ring"), "rb") as file:
            self.assertEqual(file.read(), data)
        self.assertEqual(sorted(os.listdir(self.directory)), ["rank-00002.json", "rank-00002.ring"])

    def test_ring_that_a_process_maps_is_not_removed(self):
        live = self.live_ring(**self.killed())
        with open(live, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
            self.run_report()
            self.assertTrue(os.path.exists(live))

    def test_ring_of_a_living_process_stays(self):
        me = os.getpid()
        live = self.live_ring(**self.killed(pid=me, start=support.process.stat(me)[2]))
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertTrue(out.startswith("RUNNING: 1 of 4 ranks run"), out)
        self.assertRegex(out, "rank 2 is in MPI_Allreduce #17 on MPI_COMM_WORLD for (1[2-9]|[2-9][0-9])(\\.[0-9])? s")
        allreduce = [call for call in self.summary()["calls"] if call["name"] == "MPI_Allreduce"][0]
        self.assertGreater(allreduce["seconds"], 14.9)  # 3 s returned, 12 s in the call that has not
        self.assertTrue(os.path.exists(live))
        self.assertFalse(os.path.exists(os.path.join(self.directory, "rank-00002.ring")))
        self.assertIn("resil dump ", out.splitlines()[-1])

    def test_rank_of_another_container_runs_as_long_as_it_holds_its_ring(self):
        live = self.live_ring(**self.killed(pid=os.getpid(), held=1, namespace=4711))
        with open(live, "r+b") as holder:  # what a pid is here says nothing of it
            fcntl.flock(holder, fcntl.LOCK_EX)
            self.assertEqual(self.summary()["outcomes"], {"running": "2"})
            self.assertTrue(os.path.exists(live))
        self.assertEqual(self.summary()["outcomes"], {"killed": "2"})
        self.assertFalse(os.path.exists(live))
        self.assertTrue(os.path.exists(os.path.join(self.directory, "rank-00002.ring")))

    def test_rank_of_another_container_or_host_of_the_same_name_is_not_looked_up_here(self):
        for member in ({"pid_namespace": 4711}, {"boot_id": "of another machine"}):
            self.report(rank=0, size=1, outcome="running", pid=os.getpid(), start_time=time.time(), **member)
            self.assertEqual(self.summary()["outcomes"], {"unknown": "0"})
        self.report(rank=0, size=1, outcome="running", pid=os.getpid(), start_time=time.time(), boot_id=support.process.boot_id(),
                    pid_namespace=os.stat("/proc/self/ns/pid").st_ino)
        self.assertEqual(self.summary()["outcomes"], {"running": "0"})

    def test_whatever_lies_in_shared_memory_under_our_names_costs_nothing(self):
        name = os.path.join(self.shm, "resil-%d-job-0-%%d-0123456789abcdef.ring" % os.geteuid())
        os.mkfifo(name % 0)
        os.mkdir(name % 1)
        os.symlink("/dev/zero", name % 2)
        os.symlink("/etc/passwd", name % 3)
        with open(name % 4, "wb") as file:
            file.truncate(1 << 42)
        live = self.live_ring(**self.killed())
        os.link(live, name % 5)
        with open(name % 6, "wb") as file:
            file.write(os.urandom(1 << 16))
        self.assertEqual(self.summary()["outcomes"], {"killed": "2"})
        self.assertEqual(len(os.listdir(self.shm)), 8)  # a file with two names is nobody's ring
        os.unlink(name % 5)
        self.assertEqual(self.summary()["outcomes"], {"killed": "2"})
        self.assertEqual(len(os.listdir(self.shm)), 6)

    def test_reused_pid_is_not_the_rank(self):
        me = os.getpid()
        self.live_ring(**self.killed(pid=me, start=support.process.stat(me)[2] + 1))
        self.assertEqual(self.summary()["outcomes"], {"killed": "2"})

    def test_ring_of_another_run_is_not_used(self):
        self.killed()
        live = self.live_ring(rank=2, size=4, pid=support.NO_PROCESS + 100000)
        summary = self.summary()
        self.assertEqual(summary["outcomes"], {"killed": "2"})
        self.assertEqual(summary["from_ring"], "")
        self.assertTrue(os.path.exists(live))

    def test_killed_outside_mpi(self):
        self.live_ring(**self.killed(size=1, rank=0, inside=False, records=[
            support.record("MPI_Send", 12, None, 0.1, peer=0, tag=7)]))
        self.assertIn("rank 0 ended outside MPI (killed, or left without MPI_Finalize), last call MPI_Send to rank 0, "
                      "tag 7, on MPI_COMM_WORLD", " ".join(self.run_report()[1].split()))

    def test_killed_without_ring(self):
        self.report(rank=0, size=1, outcome="running", pid=support.NO_PROCESS)
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertIn("rank 0 is gone, and left no ring", out)

    def test_other_host(self):
        self.report(rank=0, size=2)
        self.report(rank=1, size=2, outcome="running", host="elsewhere17")
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertTrue(out.startswith("INCOMPLETE: rank 1 left no final report and cannot be seen"), out)

    def test_rings_alone(self):
        self.write("rank-00000.ring", ring_bytes(size=1, pid=support.NO_PROCESS, phase=3))
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertIn("final report missing, counters from the ring: rank 0", out)

    def test_uncovered_and_notes(self):
        for rank in range(3):
            self.report(rank=rank, size=3, uncovered={"untracked_requests": 2, "unrecorded_calls": 0},
                        checksum={"messages_checked": 5, "messages_uncovered": {"device_buffer": 7}},
                        notes=["clock went back"] if rank else [])
        status, out = self.run_report()
        self.assertEqual(status, 0)
        self.assertIn("NOT checked: 21 messages, 0 B: the data is, or may be, in a GPU's memory", out)
        self.assertIn("not seen: 6 untracked requests", out)
        self.assertIn("clock went back (ranks 1-2)", out)

    def test_notes_of_many_ranks_that_differ_in_numbers_share_a_line(self):
        whole = ring_bytes(**self.killed(rank=0, size=12))
        for rank in range(12):
            data = ring_bytes(**self.killed(rank=rank, size=12))
            self.write("rank-%05d.ring" % rank, data[:len(data) - rank - 1])
        out = " ".join(self.run_report()[1].split())
        self.assertIn("flight recorder: truncated: {:d}…{:d} of {:d} bytes are there (ranks 0-11)".format(len(whole) - 12, len(whole) - 1, len(whole)), out)
        self.assertLessEqual(len(self.summary()["notes"]), 3)

    def test_a_module_that_is_off_is_no_note(self):
        """With RESIL_HANG=off, each rank that was ended had a note."""
        for rank in range(2):
            self.write("rank-%05d.ring" % rank, ring_bytes(**self.killed(rank=rank, size=2), term=("slurmstepd", 9, 15)))
        self.assertEqual(self.summary()["notes"], [])

    def test_a_verification_says_how_much_it_compared(self):
        one = {"calls": 1500, "completions": 3, "messages": 400, "values": 700, "bytes": 4096, "complete": True}
        cases = (({}, "; 3,000 calls and the contents of 1,400 values (800 messages, 8.0 KiB) agree with the recording"),
                 ({"values": 0, "messages": 0, "bytes": 0}, "; 3,000 calls agree with the recording, NO contents were compared"),
                 ({"calls": 0, "values": 0}, "; NO call was compared with the recording"),
                 ({"complete": False}, "; 3,000 calls and the contents of 1,400 values (800 messages, 8.0 KiB) agree with the "
                                       "recording, which ENDS EARLY (2 of 2 ranks): the rest was not compared"))
        for change, words in cases:
            for rank in range(2):
                self.report(rank=rank, size=2, verify={**one, **change})
            first = self.run_report()[1].partition("\nreports ")[0]
            self.assertEqual(" ".join(first.split()), "CLEAN: 2 of 2 ranks finished, no findings" + words)

    def test_a_recording_says_where_it_is_and_how_large(self):
        one = {"directory": "/scratch/rec", "recording": False, "calls": 1500, "bytes": 4096, "streams": 1, "streams_refused": 0, "times_left_out": 0,
               "stalls": 0, "stalled_seconds": 0, "failure": ""}
        cases = (({}, "3,000 calls of 2 ranks in /scratch/rec, 8.0 KiB"),
                 ({"streams_refused": 1, "times_left_out": 20, "stalls": 2, "stalled_seconds": 0.5},
                  "3,000 calls of 2 ranks in /scratch/rec, 8.0 KiB; not recorded: 2 threads, 40 clock readings; "
                  "the file system was too slow 4 times, 1 s"),
                 ({"failure": "No space left\x1b[31m"}, "3,000 calls of 2 ranks in /scratch/rec, 8.0 KiB; ENDS EARLY in 2 ranks (rank 0: No space left?[31m)"))
        for change, words in cases:
            for rank in range(2):
                self.report(rank=rank, size=2, record={**one, **change})
            row = self.run_report()[1].partition("\nrecorded ")[2].partition("\n\w")[0]
            self.assertIn(words, " ".join(row.split()))
        for odd in ([], 7, "x", {"calls": -1, "bytes": "many", "stalled_seconds": None, "directory": 7}):
            self.report(rank=0, size=2, record=odd)
            self.assertEqual(self.run_report()[0], 0)

    def test_reports_of_ranks_and_of_nodes_beside_each_other(self):
        """What a job leaves that ended while its ranks moved from files of their own to the node's; the final report counts."""
        self.report(rank=0, size=3, outcome="running")
        self.report(rank=1, size=3, outcome="finished", resil_version="0.0.9")
        self.write("node-a.jsonl", "".join(json.dumps(report_object(rank=rank, size=3, outcome=outcome)) + "\n" for rank, outcome in (
            (0, "finished"), (1, "running"), (2, "running"), (2, "finished"))))
        status, out, _ = self.tool("report", "--json", self.directory)
        told = json.loads(out)
        self.assertEqual((status, told["verdict"], told["ranks_reported"]), (0, "CLEAN", 3), out)
        self.assertEqual(sorted(told["resil_version"]), ["0.0.9", "0.1.0"])

    def test_a_line_that_was_cut_hides_no_other(self):
        """A full disk: rank 1's line has no end, rank 0's stands behind it."""
        lines = [json.dumps(report_object(rank=rank, size=2)) for rank in (0, 1)]
        self.write("node-a.jsonl", lines[1][:200] + lines[0] + "\n")
        status, out, _ = self.tool("report", "--json", self.directory)
        told = json.loads(out)
        self.assertEqual((status, told["ranks_reported"], [one["rank"] for one in told["ranks"]]), (3, 1, [0]), out)
        self.assertIn("node-a.jsonl", out)

    def test_node_file_last_line_wins(self):
        lines = [report_object(rank=r, size=3, outcome="running") for r in range(3)]
        lines += [report_object(rank=r, size=3) for r in range(3)]
        self.write("node-a.jsonl", "\n".join(map(json.dumps, lines)) + "\n")
        status, out = self.run_report()
        self.assertEqual(status, 0, out)

    def test_node_file_with_a_torn_last_line(self):
        text = "\n".join(json.dumps(report_object(rank=r, size=3)) for r in range(3))
        self.write("node-a.jsonl", text[:-40])
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertIn("node-a.jsonl: line 3: truncated", out)
        self.assertIn("no report of rank 2", out)

    def test_a_finding_that_cannot_be_read_is_not_none(self):
        self.report(rank=0, size=1)
        self.write("hang-0.json", '{"schema_version": 1, "class": "dead')
        out = self.run_report()[1]
        self.assertIn("none that can be read: hang-0.json cannot", " ".join(out.split()))

    def test_spawned_world(self):
        self.report(rank=0, size=1)
        place = os.path.join(self.directory, "world-1")
        for rank in range(2):
            self.write("rank-%05d.json" % rank, report_object(rank=rank, size=2, world=1), place)
        status, out = self.run_report()
        self.assertEqual(status, 0)
        self.assertIn("finished: 0, w1:0-1", out)

    def test_bad_files_are_named_and_the_rest_is_shown(self):
        self.report(rank=0, size=6)
        good = json.dumps(report_object(rank=1, size=6))
        self.write("rank-00001.json", good[:-30])
        self.write("rank-00002.json", "")
        self.write("rank-00003.json", bytes(300))
        self.write("rank-00004.json", json.dumps({"hello": 1}))
        self.write("rank-00005.json", report_object(rank=5, size=6, schema_version=9))
        os.mkfifo(os.path.join(self.directory, "rank-00006.json"))
        self.write("rank-00007.json", "[" * 200000)
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertIn("MPI_Send", out)
        summary = {os.path.basename(p["path"]): p["message"] for p in self.summary()["unreadable"]}
        self.assertEqual({name: summary[name].split(",")[0] for name in sorted(summary)}, {
            "rank-00001.json": "truncated", "rank-00002.json": "empty", "rank-00003.json": "zeroes",
            "rank-00004.json": "not a report of resil: no schema_version", "rank-00005.json": "schema_version 9",
            "rank-00006.json": "not a regular file", "rank-00007.json": summary["rank-00007.json"]})

    def test_files_of_an_earlier_run_are_set_apart(self):
        for rank in range(8):
            self.report(rank=rank, size=8, start_time=1.6e9)
        for rank in range(4):
            self.report(rank=rank, size=4, start_time=1.7e9)
        status, out = self.run_report()
        self.assertEqual(status, 0)
        self.assertIn("of another run: a job of 8 ranks", out)

    def test_escape_sequences_do_not_reach_the_terminal(self):
        self.report(rank=0, size=1, host="evil\033]0;x\007", notes=["\033[31mred\u202e"], modes="wa\ntch")
        out = self.run_report()[1]
        self.assertNotIn("\033", out)
        self.assertNotIn("\u202e", out)

    def test_report_before_the_rank_was_known(self):
        self.write("rank-31415.json", report_object(rank=-1, size=0, outcome="running", pid=support.NO_PROCESS))
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertIn("1 process did not get out of MPI_Init", out)

    def test_many_ranks_many_findings_fit_one_screen(self):
        for rank in range(300):
            if rank % 3:
                self.report(rank=rank, size=400, host="node%d" % (rank % 50), notes=["note %d" % rank], findings=[
                    {"kind": "k", "confidence": "suspected", "message": "m%d " % rank * 40}],
                            calls={"MPI_Function_%d" % i: {"count": 1, "seconds": i, "bytes": 2**60}
                                   for i in range(40)})
            else:
                self.report(rank=rank, size=400, outcome="running", host=support.HOST, pid=support.NO_PROCESS)
        self.assertEqual(self.run_report()[0], 1)

    def test_an_interpreter_is_named_with_its_script(self):
        self.report(rank=0, size=1, executable="/usr/bin/python3.11")
        self.write("launch.json", {"schema_version": 1, "launch": "", "time": 1e9, "program": "train.py"}, self.directory)
        self.assertIn("program    train.py (python3.11), modes", self.tool("report")[1])

    def test_usage(self):
        for arguments in (["report", "/nonexistent/dir"], ["report", self.top], ["report", "--bogus"], ["report", ""],
                          ["report", "99999999"], ["report", "a", "b"], ["frobnicate"], []):
            status, out, error = self.command(*arguments)
            self.assertEqual((status, out), (2, ""), arguments)
            self.assertTrue(error)
            self.assertNotIn("Traceback", error)

    def test_no_argument_takes_the_newest_report_here_and_says_so(self):
        self.report(rank=0, size=1)
        self.assertEqual(self.command("report")[0], 0)
        os.mkdir(os.path.join(self.top, "resil-5.0"))
        status, _, error = self.tool("report")
        self.assertEqual((status, error), (0, ""), "an empty directory is no report")
        newer = os.path.join(self.top, "resil-5.0")
        self.write("rank-00000.json", report_object(), newer)
        self.write("launch.json", {"schema_version": 1, "launch": "0123456789abcdef", "time": 4e9, "program": "newer"}, newer)
        status, out, error = self.tool("report")
        self.assertEqual(status, 0)
        self.assertIn(newer, out)
        self.assertIn("resil-5.0: the newest of 2 reports here", error)

    def test_scheduler_id(self):
        self.report(rank=0, size=1)
        self.assertEqual(self.tool("report", "4711")[0], 0)
        self.assertEqual(self.tool("report", "4711.0")[0], 0)
        self.assertEqual(self.tool("report", "471")[0], 2)

    def test_every_command_says_its_exit_status_and_has_json(self):
        """`export` alone has none: all that it writes is for programs."""
        commands = next(action.choices for action in cli.parser("resil")._actions if isinstance(action.choices, dict))
        self.assertGreater(len(commands), 15)
        for name, one in commands.items():
            self.assertIn("exit status", one.epilog or "", name)
            self.assertEqual(any("--json" in action.option_strings for action in one._actions), name != "export", name)

    def test_nearest_command_and_option_are_named(self):
        for words, said in ((("reprot",), "'reprot' is no command (did you mean report?)"), (("report", "--jsno"), "--jsno (did you mean --json?)"),
                            (("xyzzy",), "'xyzzy' is no command; --help"), (("report", "a", "b"), "unrecognized arguments: b")):
            status, out, error = self.tool(*words)
            self.assertEqual((status, out), (2, ""))
            self.assertIn(said, error)

    def test_version_and_help(self):
        self.assertIn("resil ", self.tool("--version")[1])
        status, out, _ = self.tool("--help")
        self.assertEqual(status, 0)
        self.assertIn("examples:", out)

    def test_unwritable_directory_still_reports(self):
        if os.geteuid() == 0:
            self.skipTest("root may write everywhere")
        live = self.live_ring(**self.killed())
        os.chmod(self.directory, 0o500)
        self.addCleanup(os.chmod, self.directory, 0o700)
        self.assertIn("was killed in MPI_Allreduce", self.run_report()[1])
        self.assertTrue(os.path.exists(live))

    def test_fuzz_json(self):
        random_ = random.Random(99)
        values = [None, True, -1, 2**70, 1e308, 1e999, "x", "\0", [], {}, [[]], {"a": {}}, "\ud800", -5.5, [None] * 3]

        def mutate(value, depth=0):
            if isinstance(value, dict):
                return {k if random_.random() > 0.03 else "\u202e": random_.choice(values)
                        if random_.random() < 0.12 and depth else mutate(v, depth + 1)
                        for k, v in value.items() if random_.random() > 0.03}
            if isinstance(value, list):
                return [random_.choice(values) if random_.random() < 0.3 else mutate(v, depth + 1) for v in value]
            return value if random_.random() > 0.1 else random_.choice(values)

        for _ in range(150):
            one = report_object(rank=0, size=2, findings=[{"kind": "k", "culprit_ranks": [1], "message": "m"}],
                                checksum={"messages_uncovered": {"a": 1}, "x_uncovered": 3})
            data = json.dumps(mutate(one)).encode()
            if random_.random() < 0.3:
                data = bytearray(data)
                for _ in range(3):
                    data[random_.randrange(len(data))] = random_.randrange(256)
            self.write("rank-00000.json", bytes(data))
            self.write("node-x.jsonl", json.dumps(mutate(one)))
            for as_json in (False, True):
                _, out = captured(report.run, self.directory, as_json)
                self.assertTrue(out)


if __name__ == "__main__":
    unittest.main()
