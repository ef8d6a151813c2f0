# SPDX-License-Identifier: Apache-2.0
"""scripts/resil dump: signals ranks, only ranks, and can kill nothing. Fake ranks stand in for real ones."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

import support
from resil_tool import dump, job, layout, process, signalling, symbols
from support import Case, FakeRank, captured

SILENT_SECONDS = 0.3  # how long a dump waits for ranks of which the test knows that they never answer


def setUpModule():
    support.limit_time()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, by the programs started here as well


def tearDownModule():
    support.release_time()


class Dump(Case):
    def refusal(self, rank, number=signal.SIGHUP):
        """Why the ring of a fake rank must not be signalled."""
        rings = [ring for ring in job.scan() if ring.path == rank.ring]
        self.assertEqual(len(rings), 1)
        return signalling.refusal(rings[0], number)

    def ask(self, word=None, wait=30.0, **options):
        """(exit status, object) of `dump --json`, run in this process."""
        status, out = captured(dump.run, word, True, wait_seconds=wait, **options)
        return status, json.loads(out)

    def assert_untouched(self, *ranks):
        for rank in ranks:
            self.assertTrue(rank.lives())
            self.assertEqual(rank.signals(), 0)

    def test_every_rank_answers(self):
        ranks = [FakeRank(self, r, 3) for r in range(3)]
        status, out = captured(dump.run, None)
        self.assertEqual(status, 0, out)
        self.assertIn("SIGHUP sent to ranks 0-2 on this node; 3 of 3 answered", out)
        self.assertIn("dumps in %s: dump-00000-0.txt, dump-00001-0.txt, dump-00002-0.txt" % self.directory, out)
        self.assertIn("  ranks 0-2 of 3 (%s): in MPI_Recv from rank 1, called at app+0x10\n" % support.HOST, out)
        self.assertEqual([rank.signals() for rank in ranks], [1, 1, 1])

    def test_second_dump_shows_the_second_file(self):
        FakeRank(self)
        self.ask()
        status, answer = self.ask()
        self.assertEqual(status, 0)
        self.assertEqual(answer["ranks"][0]["file"], os.path.join(self.directory, "dump-00000-1.txt"))

    def test_as_a_command(self):
        rank = FakeRank(self)
        status, out, error = self.tool("dump", self.directory)
        self.assertEqual((status, error), (0, ""))
        self.assertIn("1 of 1 answered", out)
        self.assertEqual(rank.signals(), 1)

    def test_signal_only(self):
        rank = FakeRank(self, options=["silent"])
        status, out, _ = self.tool("dump", "--signal-only")
        self.assertEqual(status, 0)
        self.assertEqual(out, "SIGHUP sent to rank 0 on this node\n")
        self.assertEqual(rank.signals(), 1)

    def test_launcher_pid_reaches_its_ranks_and_not_the_launcher(self):
        """The launcher has the library mapped and would die of SIGHUP."""
        launcher = [sys.executable, "-c",
                    "import mmap, subprocess, sys; f = open(sys.argv[3], 'rb');"
                    "m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); sys.exit(subprocess.call(sys.argv[1:]))"]
        rank = FakeRank(self, parent=launcher)
        self.assertNotEqual(rank.process.pid, rank.pid)
        self.assertTrue(any("libresil.so" in path for _, _, path in process.mappings(rank.process.pid)))
        status, answer = self.ask(str(rank.process.pid))
        self.assertEqual(status, 0)
        self.assertEqual([one["pid"] for one in answer["ranks"]], [rank.pid])
        self.assertIsNone(rank.process.poll())
        self.assertEqual(rank.signals(), 1)

    def test_process_that_does_not_catch_the_signal(self):
        rank = FakeRank(self, options=["no-handler"])
        status, answer = self.ask()
        self.assertEqual(status, 3)
        self.assertEqual(answer["ranks"][0]["action"], "refused")
        self.assertIn("does not catch SIGHUP", answer["ranks"][0]["reason"])
        self.assertIn("it is in MPI_Recv from rank 1, tag 7, on MPI_COMM_WORLD", answer["ranks"][0]["sentence"])
        self.assert_untouched(rank)

    def test_process_without_the_library(self):
        rank = FakeRank(self, options=["no-library"])
        self.assertIn("does not carry libresil", self.refusal(rank))
        self.assertEqual(self.ask()[0], 3)
        self.assert_untouched(rank)

    def test_foreign_ring_that_names_a_living_process(self):
        """Everything fits but that the process does not hold this ring."""
        rank = FakeRank(self, options=["no-ring-map"])
        self.assertIn("does not hold this ring", self.refusal(rank))
        self.assertEqual(self.ask()[0], 3)
        self.assert_untouched(rank)

    def test_reused_pid(self):
        rank = FakeRank(self, options=["wrong-start"])
        self.assertIn("belongs to another process now", self.refusal(rank))
        status, _, error = self.tool("dump")
        self.assertEqual(status, 2)
        self.assertIn("no rank of yours", error)
        self.assert_untouched(rank)

    def test_ring_that_does_not_know_its_start_time(self):
        rank = FakeRank(self)
        ring = [one for one in job.scan() if one.path == rank.ring][0]
        ring.start_ticks = 0
        self.assertIn("does not tell", signalling.refusal(ring, signal.SIGHUP))

    def test_ring_of_another_user(self):
        rank = FakeRank(self)
        ring = [one for one in job.scan() if one.path == rank.ring][0]
        ring.uid += 1
        self.assertIn("belongs to", signalling.refusal(ring, signal.SIGHUP))
        self.assert_untouched(rank)

    def test_rank_that_became_another_program(self):
        """exec keeps pid and start time; the new program catches SIGHUP for reasons of its own."""
        rank = FakeRank(self, options=["exec"])
        self.assertTrue(process.has_signal(process.status(rank.pid), "SigCgt", signal.SIGHUP))
        status, answer = self.ask()
        self.assertEqual((status, answer["ranks"][0]["action"]), (3, "refused"))
        self.assertTrue(rank.lives())

    def test_damaged_and_foreign_rings_are_not_candidates(self):
        self.write("resil-%d-job-0-0.ring" % os.geteuid(), b"garbage" * 999, self.shm)
        self.write("resil-%d-job-0-1.ring" % os.geteuid(), b"", self.shm)
        self.write("resil-%d-job-0-2.ring" % os.geteuid(), support.ring_bytes(pid=0), self.shm)
        self.write("resil-%d-job-0-3.ring" % os.geteuid(), support.ring_bytes(pid=-1), self.shm)
        os.symlink("/proc/self/mem", os.path.join(self.shm, "resil-%d-job-0-4.ring" % os.geteuid()))
        self.assertEqual(self.tool("dump")[0], 2)

    def test_ring_of_pid_1_is_a_candidate_and_not_signalled(self):
        """A rank may be pid 1 of its container."""
        self.write("resil-%d-job-0-0.ring" % os.geteuid(), support.ring_bytes(pid=1), self.shm)
        status, answer = self.ask()
        self.assertEqual((status, answer["ranks"][0]["action"]), (3, "refused"))

    def test_own_pid_and_init_are_never_signalled(self):
        for pid in (-1, 0, 1, os.getpid()):
            ring = job.LiveRing("", os.geteuid(), ("", 0), 0, 0, pid, 5, support.HOST, "job", "", 0, True)
            self.assertIn("is no rank", signalling.refusal(ring, signal.SIGHUP))

    def test_foreign_handler_noted_by_the_rank(self):
        rank = FakeRank(self)
        self.report(outcome="running", pid=rank.pid, notes=[
            "SIGHUP does not dump state: MPI_Init installed a handler of /lib/x.so"])
        status, answer = self.ask()
        self.assertEqual((status, answer["ranks"][0]["action"]), (3, "refused"))
        self.assert_untouched(rank)

    def test_signal_of_the_report(self):
        rank = FakeRank(self, environment={"FAKE_SIGNAL": "USR2"})
        self.assertIn("does not catch SIGHUP", self.refusal(rank))
        self.report(outcome="running", pid=rank.pid, config={"RESIL_SIGNAL": "USR2"})
        status, answer = self.ask()
        self.assertEqual((status, answer["ranks"][0]["signal"]), (0, "USR2"))

    def test_signal_of_the_environment(self):
        FakeRank(self, environment={"FAKE_SIGNAL": "RTMIN+3", "RESIL_SIGNAL": "RTMIN+3"})
        status, answer = self.ask()
        self.assertEqual((status, answer["ranks"][0]["signal"]), (0, "RTMIN+3"))

    def test_signal_switched_off(self):
        rank = FakeRank(self)
        self.report(outcome="running", pid=rank.pid, config={"RESIL_SIGNAL": "off"})
        status, answer = self.ask()
        self.assertEqual(status, 3)
        self.assertIn("switched off", answer["ranks"][0]["reason"])
        self.assert_untouched(rank)

    def test_only_signals_that_resil_takes(self):
        for word in ("KILL", "STOP", "SEGV", "CHLD", "9", "-1", "0", "", "RTMIN+99", "RTMAX+1", "off", "SIG", "_IGN"):
            self.assertIsNone(process.signal_number(word), word)
        self.assertEqual(process.signal_number("sighup"), signal.SIGHUP)
        self.assertEqual(process.signal_number("RTMAX-1"), signal.SIGRTMAX - 1)

    def test_stopped_rank_is_described_from_outside(self):
        rank = FakeRank(self)
        os.kill(rank.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, rank.pid, os.WSTOPPED)
        status, answer = self.ask(wait=SILENT_SECONDS)
        sentence = answer["ranks"][0]["sentence"]
        self.assertEqual((status, answer["ranks"][0]["answer"]), (3, "none"))
        for words in ("no answer", "stopped (state T)", "the signal is still pending", "it is in MPI_Recv from rank 1"):
            self.assertIn(words, sentence)

    def test_half_a_dump_is_called_incomplete(self):
        FakeRank(self, options=["partial"])
        status, answer = self.ask(wait=SILENT_SECONDS)
        self.assertEqual((status, answer["ranks"][0]["answer"]), (3, "late"))
        self.assertIn("not complete yet", answer["ranks"][0]["sentence"])

    def test_silent_rank_does_not_hide_the_others(self):
        FakeRank(self, 0, 2, options=["silent"])
        FakeRank(self, 1, 2)
        status, answer = self.ask(wait=SILENT_SECONDS * 3)
        self.assertEqual(status, 3)
        self.assertEqual(answer["ranks"][0]["answer"], "none")
        self.assertEqual(answer["ranks"][1]["answer"], "dumped")

    def test_other_hosts_get_a_command(self):
        FakeRank(self, 0, 3)
        for rank, host in ((1, "nid7"), (2, "nid8")):
            self.report(rank=rank, size=3, outcome="running", host=host)
        status, out = captured(dump.run, self.directory)
        self.assertEqual(status, 3)
        self.assertIn("2 ranks on other hosts (nid7: 1; nid8: 2); run there:", out)
        self.assertIn("  ssh nid7 %s dump %s\n" % (support.TOOL, self.directory), out)
        os.environ["SLURM_JOB_ID"] = "77"
        self.assertIn("srun --overlap --jobid=77 --nodelist=nid7,nid8 --nodes=2 --ntasks-per-node=1 %s dump %s"
                      % (support.TOOL, self.directory), captured(dump.run, self.directory)[1])

    def test_host_names_cannot_carry_commands(self):
        for host in ("a; rm -rf $HOME\n", "-oProxyCommand=x", "$(x)", "a b"):
            self.report(rank=0, size=1, outcome="running", host=host)
            self.assertEqual(self.ask(self.directory)[1]["commands"], ["(their host names make no sense: no command)"])

    def test_rank_without_ring_is_told_and_left_alone(self):
        rank = FakeRank(self, options=["no-ring"])
        self.report(outcome="running", pid=rank.pid, start_time=2e9, ring_anonymous=True)
        status, out = captured(dump.run, self.directory)
        self.assertEqual(status, 3)
        self.assertIn("not signalled: it has no ring", out)
        self.assert_untouched(rank)

    def test_several_jobs_are_listed(self):
        FakeRank(self)
        self.directory = os.path.join(self.top, "resil-%d.0" % support.NO_PROCESS)
        os.mkdir(self.directory)
        other = FakeRank(self, 1, 2)
        status, _, error = self.tool("dump")
        self.assertEqual(status, 2)
        self.assertIn("resil-%d.0" % support.NO_PROCESS, error)
        self.assertIn("resil-4711.0", error)
        self.assert_untouched(other)
        self.assertEqual([one["pid"] for one in self.ask(str(support.NO_PROCESS))[1]["ranks"]], [other.pid])
        self.assertEqual([one["pid"] for one in self.ask(self.directory)[1]["ranks"]], [other.pid])

    def test_rank_of_another_container_is_not_signalled(self):
        """Its pid means another process here: this one catches the signal and maps the ring, but is not the rank."""
        rank = FakeRank(self)
        with open(rank.ring, "r+b") as file:
            file.seek(layout.HEADER.offsets["pid_namespace"])
            file.write((4711).to_bytes(8, "little") + b"")
            file.seek(layout.HEADER.offsets["held"])
            file.write((1).to_bytes(4, "little"))
            file.flush()
            fcntl.flock(file, fcntl.LOCK_EX)
            status, answer = self.ask(self.directory)
            self.assertEqual([(one["action"], "container" in one["reason"]) for one in answer["ranks"]], [("refused", True)])
            self.assertEqual(self.tool("dump", str(rank.pid))[0], 2)
        self.assertEqual((status, rank.signals()), (3, 0))

    def test_scheduler_id_of_the_environment(self):
        rank = FakeRank(self, environment={"SLURM_JOB_ID": str(support.NO_PROCESS), "SLURM_STEP_ID": "3"})
        for word in (str(support.NO_PROCESS), "%d.3" % support.NO_PROCESS):
            self.assertEqual([one["pid"] for one in self.ask(word)[1]["ranks"]], [rank.pid])
        self.assertEqual(self.tool("dump", "%d.4" % support.NO_PROCESS)[0], 2)

    def test_nothing_to_dump(self):
        self.report(rank=0, size=1)
        status, _, error = self.tool("dump", self.directory)
        self.assertEqual(status, 2)
        self.assertIn("no rank of", error)
        self.assertEqual(self.tool("dump", str(os.getpid()))[0], 2)

    def test_job_of_another_user_is_refused(self):
        path = self.write("resil-%d-%d.0-0-0.ring" % (os.geteuid() + 1, support.NO_PROCESS), b"", self.shm)
        status, _, error = self.tool("dump", str(support.NO_PROCESS))
        self.assertEqual(status, 2)
        self.assertIn("no job %d" % support.NO_PROCESS, error)  # a name tells nothing of whose a file is
        if os.geteuid() == 0:
            os.chown(path, 1, 1)
            self.assertIn("belongs to %s: refused" % job.owner_name(1), self.tool("dump", str(support.NO_PROCESS))[2])

    def test_call_sites_get_names(self):
        compiler = shutil.which("gcc") or shutil.which("cc")
        if not compiler or not shutil.which("addr2line"):
            self.skipTest("needs a C compiler and addr2line")
        source = self.write("app.c", "int f(int x) {\n  return x + 1;\n}\nint main(void) { return f(1); }\n", self.top)
        app = os.path.join(self.top, "app")
        subprocess.run([compiler, "-g", "-O0", source, "-o", app], check=True, timeout=600)
        names = subprocess.run(["nm", app], stdout=subprocess.PIPE, check=True, timeout=600).stdout.decode()
        address = [int(line.split()[0], 16) for line in names.splitlines() if line.endswith(" T f")][0]
        known = symbols.lookup([(app, address + 5), ("/nonexistent", 4), (self.top, 4)])
        self.assertRegex(known[app, address + 5], r"^f at app\.c:[12]$")
        self.assertEqual(symbols.lookup([(app, address + 5)], not_after=1.0), {})
        sentence = symbols.resolve_sentence("called at app+%#x (f+0x5)." % (address + 5), {"app": app}, known)
        self.assertRegex(sentence, r"^called at f at app\.c:[12]\.$")

    def test_rank_of_the_report_and_of_the_ring_need_not_be_the_same_process(self):
        """A report left by an earlier run does not choose the signal of today's process."""
        rank = FakeRank(self)
        self.report(outcome="running", pid=rank.pid + 1, config={"RESIL_SIGNAL": "off"})
        self.assertEqual(self.ask()[0], 0)

if __name__ == "__main__":
    unittest.main()
