# SPDX-License-Identifier: Apache-2.0
"""scripts/resil hosts: a host that keeps showing up is named, one that chance explains is not."""

import argparse
import json
import math
import os
import random
import unittest

import support
from resil_tool import hosts
from support import Case, captured, report_object


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


class Hosts(Case):
    def job(self, number, names, finding=None, **members):
        """A finished job with one rank on each of these hosts."""
        place = os.path.join(self.top, "all", "resil-app%d-20261122T1315Z-%d.0" % (number % 3, number))
        lines = []
        for rank, name in enumerate(names):
            found = [finding] if finding and rank == 0 else []
            lines.append(json.dumps(report_object(rank=rank, size=len(names), host=name, findings=found, launch="%016x" % number,
                                                  launch_agreed=True, executable="/opt/app%d" % (number % 3), **members)))
        self.write("node-x-0.jsonl", "\n".join(lines), place)
        return place

    def run_hosts(self, *places, as_json=True):
        status, out = captured(hosts.run, argparse.Namespace(
            directories=list(places) or [os.path.join(self.top, "all")], json=as_json, nagios=False))
        return status, json.loads(out) if as_json else out

    @staticmethod
    def accuse(rank):
        return {"kind": "divergence", "confidence": "proved", "culprit_ranks": [rank], "victim_ranks": [], "message": "m"}

    def test_the_tail(self):
        for chances in ([0.25] * 12, [0.1, 0.5, 0.9, 0.3, 1.0]):
            for count in range(len(chances) + 2):
                brute = 0.0
                for mask in range(1 << len(chances)):
                    if bin(mask).count("1") >= count:
                        brute += math.prod(c if mask >> i & 1 else 1 - c for i, c in enumerate(chances))
                self.assertAlmostEqual(hosts.at_least(count, chances), brute if count <= len(chances) else 0.0, places=12)
        tail = hosts.at_least(20, [0.001] * 1000)
        self.assertAlmostEqual(tail / (math.comb(1000, 20) * 0.001**20 * 0.999**980), 1.05, delta=0.05)  # not lost to rounding

    def fleet(self, bad):
        draw = random.Random(4)
        for number in range(60):
            names = draw.sample(["nid%05d" % i for i in range(40)], 4)
            if bad and number % 5 == 0 and bad not in names:
                names[2] = bad
            culprit = names.index(bad) if bad in names and number % 5 == 0 else draw.randrange(4)
            self.job(number, names, self.accuse(culprit) if number % 5 == 0 or number % 7 == 0 else None)

    def test_a_bad_host_is_named(self):
        self.fleet("nid00007")
        status, told = self.run_hosts()
        self.assertEqual((status, told["jobs"], told["hosts"]), (1, 60, 40))
        self.assertEqual([row["host"] for row in told["rows"] if row["keeps_showing_up"]], ["nid00007"])
        first = told["rows"][0]
        self.assertEqual((first["kind"], first["hits"] >= 12, len(first["programs"])), ("culprit", True, 3))
        self.assertLess(first["chance_corrected"], 1e-3)
        text = self.run_hosts(as_json=False)[1]
        self.assertTrue(text.startswith("LOOK AT nid00007: 40 hosts in 60 jobs"), text)
        self.assertIn("* nid00007", text)

    def test_chance_names_nobody(self):
        self.fleet("")
        status, told = self.run_hosts()
        self.assertEqual((status, [row for row in told["rows"] if row["keeps_showing_up"]]), (0, []))
        self.assertGreater(len(told["rows"]), 5)

    def test_jobs_on_one_host_prove_nothing(self):
        for number in range(20):
            self.job(number, ["only", "only"], self.accuse(1))
        self.assertEqual(self.run_hosts()[0], 0)

    def test_slow_host_and_corruption_and_stop(self):
        names = ["a", "b", "c", "d", "e"]
        calls = {"MPI_Allreduce": {"count": 5, "seconds": 6.0, "bytes": 40}}
        place = self.job(1, names, {"kind": "message_corrupted", "confidence": "proved", "message": "m", "culprit_ranks": [],
                                    "victim_ranks": [4], "evidence": {"origin": "rank 1 on b", "target": "rank 4 on e"}}, calls=calls)
        with open(os.path.join(place, "node-x-0.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        lines[3]["calls"]["MPI_Allreduce"]["seconds"] = 0.2  # d lets the others wait
        lines[2].update(outcome="running", pid=support.NO_PROCESS, host=support.HOST)
        self.write("node-x-0.jsonl", "\n".join(map(json.dumps, lines)), place)
        rows = {(row["kind"], row["host"]) for row in self.run_hosts()[1]["rows"]}
        self.assertEqual(rows, {("slow", "d"), ("corruption", "b"), ("corruption", "e"), ("stop", support.HOST)})

    def test_a_job_counts_once(self):
        place = self.job(1, ["a", "b"])
        os.makedirs(os.path.join(self.top, "all", "copy"))
        with open(os.path.join(place, "node-x-0.jsonl"), "rb") as file:
            self.write("node-x-0.jsonl", file.read(), os.path.join(self.top, "all", "copy"))
        told = self.run_hosts()[1]
        self.assertEqual((told["jobs"], told["jobs_read_twice"]), (1, 1))

    def test_odd_files_are_named_and_the_rest_counted(self):
        self.job(1, ["a", "b\x1b[2J<script>"], self.accuse(1))
        self.write("rank-00000.json", '{"schema_version": 1, "ra', os.path.join(self.top, "all", "cut"))
        self.write("rank-00000.json", '{"schema_version": 9}', os.path.join(self.top, "all", "newer"))
        os.symlink("/", os.path.join(self.top, "all", "link"))
        status, text = self.run_hosts(as_json=False)
        self.assertEqual(status, 0)
        self.assertIn("in 1 job", text)
        self.assertIn("cut: truncated", text.replace("/rank-00000.json", ""))
        self.assertNotIn("\x1b", text)
        self.assertEqual(self.tool("hosts", os.path.join(self.top, "none"))[0], 2)
        self.assertEqual(self.tool("hosts", self.directory)[0], 2)


if __name__ == "__main__":
    unittest.main()
