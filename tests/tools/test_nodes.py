# SPDX-License-Identifier: Apache-2.0
"""resil status --all: the same command on the other nodes of a job, by ssh or srun, and one answer of all. The nodes are folders of rings;
ssh and srun are stand-ins that run the command in the folder of the host that they are given."""

import json
import os
import time
import unittest

import support
from resil_tool import layout, nodes
from support import Case, record

STAND_IN = """#!/bin/sh
echo "$0 $*" >> "{top}/asked"
for word in "$@"; do case $word in node-*) host=$word;; --nodelist=*) host=${{word#--nodelist=}};; esac; done
case $host in node-down) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255;; node-odd) echo garbage; exit 0;; esac
while [ "$1" != "$host" ] && [ "$1" != --quiet ]; do shift; done
shift
export RESIL_TOOL_SHM_DIR="{top}/$host"
unset SLURM_JOB_ID
case $1 in */resil) exec "$@";; *) exec sh -c "$1";; esac
"""


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


class Nodes(Case):
    def setUp(self):
        super().setUp()
        programs = os.path.join(self.top, "programs")
        os.mkdir(programs)
        for name in ("ssh", "srun"):
            path = os.path.join(programs, name)
            with open(path, "w", encoding="ascii") as file:
                file.write(STAND_IN.format(top=self.top))
            os.chmod(path, 0o755)
        os.environ["PATH"] = programs + os.pathsep + os.environ["PATH"]

    def rank(self, rank, host, age=-600, call="MPI_Barrier", size=4):
        """A living rank that moved just now, however slow this machine is (in the rank's future): of this node ("") or of another one, whose rings lie in a folder of its own."""
        pid, start = os.getpid(), support.process.stat(os.getpid())[2]
        records = [record("MPI_Allreduce", age, None, sequence=3, site=0x401100)]
        records.append(record(call, age, None, state=layout.RECORD_OPEN, sequence=4, site=0x401234))
        self.report(rank=rank, size=size, outcome="running", pid=pid, calls={}, peers=[], start_time=time.time() - 1000, **({"host": host} if host else {}))
        shm, self.shm = self.shm, os.path.join(self.top, host) if host else self.shm
        os.makedirs(self.shm, exist_ok=True)
        self.live_ring(rank=rank, size=size, pid=pid, start=start, inside=True, records=records)
        self.shm = shm

    def status(self, *words):
        return self.tool("status", "--interval", "0.05", *words, self.directory)

    def asked(self):
        with open(os.path.join(self.top, "asked"), encoding="utf-8") as file:
            return file.read()

    def test_all_nodes_by_ssh(self):
        for rank, host in enumerate(("", "", "node-b", "node-c")):
            self.rank(rank, host)
        status, out, _ = self.status()
        self.assertIn("2 of 4 on %s; the other 2 ranks: --all" % os.uname().nodename, out)
        self.assertFalse(os.path.exists(os.path.join(self.top, "asked")), "nobody is asked without --all")
        status, out, error = self.status("--all")
        self.assertEqual((status, error), (0, ""))
        self.assertIn("ranks      4 of 4 on ", out)
        self.assertIn("node-[b", out.replace("node-b", "node-[b"))
        self.assertRegex(out, r"where +ranks 0-3: in MPI_Barrier #4 on MPI_COMM_WORLD for ")
        self.assertEqual(self.asked().count("BatchMode=yes"), 2)
        status, out, _ = self.status("--all", "--json")
        told = json.loads(out)
        self.assertEqual(({one["rank"] for one in told["ranks"]}, told["hosts"]["node-b"], told["unanswered"]), ({0, 1, 2, 3}, 1, []))

    def test_one_that_stands_does_not_make_the_job_stand(self):
        self.rank(0, "", age=80)
        self.rank(1, "node-b", size=2)
        self.assertEqual(self.status()[0], 1)
        status, out, _ = self.status("--all")
        self.assertEqual((status, out.split(":")[0]), (0, "MOVING"))
        self.rank(1, "node-b", age=70, size=2)
        status, out, _ = self.status("--all")
        self.assertEqual(status, 1)
        self.assertRegex(out, r"\ASTANDING: no rank has entered or left an MPI call for (7\d(\.\d)?|8\d(\.\d)?|9\d(\.\d)?|1 min \d\d|\d+ min \d\d) s")  # since the last one of all

    def test_who_does_not_answer_is_named(self):
        for rank, host in enumerate(("", "node-down", "node-odd", "node-b")):
            self.rank(rank, host)
        status, out, _ = self.status("--all")
        self.assertEqual(status, 0)
        self.assertIn("2 of 4 on", out)
        self.assertIn("no answer  node-down: ssh: connect to host node-down port 22: No route to host", out)
        self.assertIn("node-odd: ", out)

    def test_by_srun_in_a_slurm_job_and_from_elsewhere(self):
        self.rank(0, "node-b", size=2)
        self.rank(1, "node-c", size=2)
        os.environ["SLURM_JOB_ID"] = "4711"
        status, out, error = self.status("--all")
        self.assertEqual((status, error), (0, ""), out)
        self.assertIn("2 of 2 on ", out)
        self.assertIn("--overlap --jobid=4711 --nodelist=node-b", self.asked())
        status, _, error = self.status()  # no rank here, and nobody else is asked
        self.assertEqual(status, 2)
        self.assertRegex(error, "no rank of .* runs on this node, but on node-b, node-c .*: --all")

    def test_names_that_are_no_hosts(self):
        self.rank(0, "", size=2)
        self.report(rank=1, size=2, outcome="running", pid=1, calls={}, peers=[], host="-oProxyCommand=touch x")
        status, out, _ = self.status("--all")
        self.assertIn("of the other 1 rank no host is known", out)
        told = nodes.Asked(["-oProxyCommand=touch x"], "", ["status"], 0.1)
        self.assertEqual((told.answers(), told.unanswered), ([], [{"host": "-oProxyCommand=touch x", "why": "no name of a host"}]))
        self.assertFalse(os.path.exists(os.path.join(self.top, "asked")))

    def test_any_answer(self):
        for part in ({}, {"ranks": 3, "calls": "x", "still_seconds": "y"}, {"ranks": [{"rank": "x", "place": 3}], "calls": [1], "verdict": []}):
            told = nodes.join([part, {"verdict": "POLLING", "host": "b"}])
            self.assertEqual(told["verdict"], "POLLING")


if __name__ == "__main__":
    unittest.main()
