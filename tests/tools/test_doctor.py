# SPDX-License-Identifier: Apache-2.0
"""resil doctor: what the self-test must refuse to believe. Jobs are made up; real ones: tests/preload/doctor_test.py."""

import os
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import support  # noqa: E402,F401

from resil_tool import machine, selftest, smoke  # noqa: E402

BOTH = "RESIL-DOCTOR 0 2 a /x/libresil.so\nRESIL-DOCTOR 1 2 b /x/libresil.so\n"
CLEAN = {"ranks_reported": 2, "verdict": "CLEAN", "reason": "", "hosts": {"a": "0", "b": "1"}, "findings": [], "faults_injected": {}}


def ended(status, output, **merged):
    job = smoke.Job("", 2, [], 1)
    job.status, job.output = status, output
    return mock.patch.object(selftest, "_job", return_value=(job, dict(CLEAN, **merged)))


class SelfTest(unittest.TestCase):
    def fails(self, check, words, status, output, **merged):
        with ended(status, output, **merged), self.assertRaisesRegex(selftest.Failed, words):
            check(["mpirun"], "program", "/")

    def test_reach(self):
        with ended(0, BOTH):
            ranks, text = selftest.reach(["mpirun"], "program", "/")
        self.assertIn("a, b", text)
        self.assertEqual(selftest.signal_owner(ranks)[1], "ok")
        self.fails(selftest.reach, "1 had the library", 0, BOTH, ranks_reported=1)
        self.fails(selftest.reach, "as jobs of 1 ranks", 0, BOTH.replace(" 2 ", " 1 "))
        self.fails(selftest.reach, "status 134", 134, "")

    def test_signal(self):
        self.assertEqual(selftest.signal_owner([["0", "2", "a", "/usr/lib/libucs.so.0"]])[1], "warning")

    def test_flip(self):
        one = {"kind": "message_corrupted"}
        with ended(0, BOTH, findings=[one], faults_injected={"flip": 1}):
            selftest.flip(["mpirun"], "program", "/")
        self.fails(selftest.flip, "found was: nothing", 0, BOTH, faults_injected={"flip": 1})
        self.fails(selftest.flip, "no report of it", 0, BOTH, findings=[one])
        self.fails(selftest.flip, "call_mismatch", 0, BOTH, findings=[one, {"kind": "call_mismatch"}], faults_injected={"flip": 1})
        self.fails(selftest.flip, "status 1", 1, BOTH, findings=[one], faults_injected={"flip": 1})

    def test_hang(self):
        with ended(92, BOTH, findings=[{"kind": "hang: deadlock"}]):
            selftest.hang(["mpirun"], "program", "/")
        self.fails(selftest.hang, "not found", None, BOTH)
        self.fails(selftest.hang, "not found", 92, BOTH)
        self.fails(selftest.hang, "not found", None, BOTH, findings=[{"kind": "hang: deadlock"}])


class Machine(unittest.TestCase):
    def test_a_preload_that_the_loader_leaves_out(self):
        with mock.patch.dict(os.environ, {"LD_PRELOAD": "/nonexistent/libdarshan.so"}):
            rows = machine.other_tools()
        self.assertEqual(rows[0][1], "warning")
        self.assertIn("Darshan", rows[0][2])

    def test_no_library(self):
        self.assertEqual(machine.library(None)[0][1], "failed")
        self.assertEqual(machine.library("/bin/true")[0][1], "failed")  # no version of resil in it

    def test_limits_and_devices_say_something(self):
        for rows in (machine.limits(), machine.accelerators()):
            self.assertTrue(all(len(row) == 4 and row[2] for row in rows))


if __name__ == "__main__":
    unittest.main()
