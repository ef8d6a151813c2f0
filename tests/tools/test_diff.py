# SPDX-License-Identifier: Apache-2.0
"""scripts/resil diff: the place where two recordings part first, and who is to blame."""

import json
import os
import struct
import unittest

import record_support
import support
from resil_tool import recording

setUpModule, tearDownModule = support.limit_time, support.release_time

BENT = "4008000000000001"  # one unit in the last place above the usual part
BENT_SUM = "4022000000000001"


class Diff(record_support.Case):
    def diff(self, a, b, *options):
        status, out, error = self.tool("diff", a, b, *options)
        self.assertEqual(error, "")
        return status, out

    def test_same(self):
        a, b = self.record("a", [{}, {}, {}]), self.record("b", [{}, {}, {}])
        self.assertEqual(self.diff(a, b), (0, "the same: 18 calls in 3 threads of 3 ranks\n"))

    def test_contribution_is_the_culprit_and_results_are_victims(self):
        a = self.record("a", [{}, {}, {}])
        b = self.record("b", [{"sum": BENT_SUM}, {"sum": BENT_SUM}, {"part": BENT, "sum": BENT_SUM}])
        self.assertEqual(self.diff(a, b), (1, """\
first divergence: rank 2, call 5 (MPI_Allreduce), step 1, app+0x400
  contribution, 1 ulp apart
    first   0x1.8p+1 (3.0)
    second  0x1.8000000000001p+1 (3.0000000000000004)
  MPI gave this rank the same data up to here: it diverged by itself, before this call
later: rank 0, call 5 (MPI_Allreduce): result
later: rank 1, call 5 (MPI_Allreduce): result
the same so far: 9 calls in 3 threads of 3 ranks
"""))
        first = json.loads(self.diff(a, b, "--json")[1])["first"]
        self.assertEqual((first["rank"], first["kind"], first["number"], first["expected"]),
                         (2, "computed", 5, "0x1.8p+1 (3.0)"))

    def test_one_rank(self):
        a, b = self.record("a", [{}, {}]), self.record("b", [{}, {"sent": "5"}])
        self.assertEqual(self.diff(a, b, "--rank", "0"), (0, "the same: 6 calls in 1 thread of 1 rank\n"))
        self.assertIn("rank 1, call 2 (MPI_Send)", self.diff(a, b, "--rank", "1")[1])

    def test_message_changed_on_its_way(self):
        a, b = self.record("a", [{}, {}]), self.record("b", [{}, {"received": "6"}])
        status, out = self.diff(a, b)
        self.assertEqual(status, 1)
        self.assertIn("first divergence: rank 1, call 4 (MPI_Test), step 1, app+0x300\n  received data\n", out)
        self.assertIn("no rank sent other data before: it changed on its way", out)

    def test_other_source_is_not_called_corruption(self):
        a, b = self.record("a", [{}, {}]), self.record("b", [{}, {"source": 0, "received": "6"}])
        status, out = self.diff(a, b)
        self.assertEqual(status, 1)
        self.assertIn("message that was matched\n    first   from 2, tag 7\n    second  from 0, tag 7\n", out)
        self.assertIn("MPI chose differently, as it may", out)

    def test_logged_value(self):
        a, b = self.record("a", [{}]), self.record("b", [{"residual": "3f50624dd2f1a9fe"}])
        self.assertIn("first divergence: rank 0, call 5 (MPI_Allreduce), step 1, app+0x400\n  norm \"residual\", 2 ulp apart\n",
                      self.diff(a, b)[1])

    def test_clocks_are_not_compared(self):
        send = "call s MPI_Send site=/opt/app+0x200 comm=1f peer=1 in=digest:%x\n"
        a = self.record("a", ["time s 0 double:1\n" + send % 1 + "time s 3 signed:5\n" + send % 2])
        b = self.record("b", ["time s 0 double:2\ntime s 0 double:3\n" + send % 1 + send % 2])
        c = self.record("c", ["time s 0 double:2\n" + send % 1 + send % 3])
        self.assertEqual(self.diff(a, b)[0], 0)
        self.assertEqual(self.diff(a, c)[0], 1)

    def test_earlier_collective_comes_first(self):
        """Two ranks part by themselves: the one that had entered fewer sums is named, whatever the call numbers."""
        part = "call s MPI_Allreduce site=/opt/app+0x400 comm=1f bytes=8 in=double:{:x} out=double:5\n"
        send = "call s MPI_Send site=/opt/app+0x200 comm=1f peer=1 in=digest:1\n"

        def rank(sends, bent):
            return "".join(send * sends + part.format(7 if i >= bent else 1) for i in range(6))
        a = self.record("a", [rank(0, 9), rank(10, 9)])
        b = self.record("b", [rank(0, 4), rank(10, 2)])
        out = self.diff(a, b)[1]
        self.assertIn("first divergence: rank 1, call 33 (MPI_Allreduce)", out)
        self.assertIn("later: rank 0, call 5 (MPI_Allreduce): contribution", out)

    def test_runs_of_polls_do_not_count(self):
        polls = record_support.SOLVER.replace("poll s MPI_Test site=/opt/app+0x300 step=1\n", "", 2)
        self.assertNotEqual(polls, record_support.SOLVER)
        a, b = self.record("a", [{}]), self.record("b", [{}], body=polls)
        self.assertEqual(self.diff(a, b), (0, "the same: 6 calls in 1 thread of 1 rank\n"))
        b = self.record("b", [{"part": BENT}], body=polls)
        self.assertIn("second  0x1.8000000000001p+1 (3.0000000000000004)  (its call 4)", self.diff(a, b)[1])

    def test_other_call(self):
        a, b = self.record("a", [{}]), self.record("b", [{}], body=record_support.SOLVER.replace("Waitsome", "Waitall"))
        self.assertIn("  call\n    first   MPI_Waitsome\n    second  MPI_Waitall\n", self.diff(a, b)[1])

    def test_another_build_of_the_program(self):
        moved = record_support.SOLVER.replace("app+0x", "app+0x8")
        a, b = self.record("a", [{}]), self.record("b", [{}], body=moved)
        self.assertIn("  call site\n    first   app+0x100\n    second  app+0x8100\n", self.diff(a, b)[1])
        self.assertEqual(self.diff(a, b, "--any-site"), (0, "the same: 6 calls in 1 thread of 1 rank\n"))
        b = self.record("b", [{"part": BENT}], body=moved)
        self.assertIn("contribution, 1 ulp apart", self.diff(a, b, "--any-site")[1])

    def test_other_number_of_calls(self):
        more = record_support.SOLVER + "call s MPI_Barrier comm=1f site=/opt/app+0x600\n"
        a, b = self.record("a", [{}]), self.record("b", [{}], body=more)
        status, out = self.diff(a, b)
        self.assertEqual(status, 1)
        self.assertIn("  number of calls\n    first   the end\n    second  MPI_Barrier", out)
        self.assertIn("  number of calls\n    first   MPI_Barrier\n    second  the end", self.diff(b, a)[1])

    def test_end_by_a_kill_is_no_divergence(self):
        more = record_support.SOLVER + "call s MPI_Barrier comm=1f site=/opt/app+0x600\n"
        a, b = self.record("a", [{}], body=more), self.record("b", [{}], end="")
        status, out = self.diff(a, b)
        self.assertEqual(status, 3)
        self.assertIn("the same: 6 calls", out)
        self.assertIn("incomplete: %s has no end mark" % self.file(b), out)

    def test_missing_and_damaged_ranks(self):
        a, b = self.record("a", [{}, {}]), self.record("b", [{}, {}])
        os.remove(self.file(b, 1))
        status, out = self.diff(a, b)
        self.assertEqual((status, out.splitlines()[1]), (3, "incomplete: %s: there is no recording of rank 1" % b))
        with open(self.file(b, 0), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        status, out = self.diff(a, b)
        self.assertEqual(status, 3)
        self.assertIn("is damaged: block", out)
        self.assertEqual(self.tool("diff", a, self.directory)[0], 2)

    def test_rank_that_both_lack_is_missed(self):
        a, b = self.record("a", [{}, {}, {}]), self.record("b", [{}, {}, {}])
        for place in (a, b):
            os.remove(self.file(place, 1))
        status, out = self.diff(a, b)
        self.assertEqual(status, 3)
        self.assertIn("incomplete: %s: there is no recording of rank 1\n" % a, out)

    def test_damage_in_what_wildcards_got_is_said(self):
        a, b = self.record("a", [{}]), self.record("b", [{}])
        with open(self.file(b), "r+b") as file:
            data = bytearray(file.read())
            at = recording.HEAD_BYTES
            while struct.unpack_from("<I", data, at + 16)[0] != 0:  # the first block of stream 0
                at += 64 + struct.unpack_from("<I", data, at + 12)[0]
            data[at + 64] ^= 1
            file.seek(0)
            file.write(data)
        status, out = self.diff(a, b)
        self.assertEqual(status, 3)
        self.assertIn("its checksum does not match", out)

    def test_manifest_of_a_huge_world_is_read_in_time(self):
        a, b = self.record("a", [{}]), self.record("b", [{}])
        with open(os.path.join(b, "recording.json"), "w", encoding="ascii") as file:
            json.dump({"resil_recording": 1, "world_size": 2**31 - 1}, file)
        self.assertEqual(self.diff(a, b)[0], 3)
        self.assertEqual(self.tool("recording", b)[0], 3)

    def test_long_recordings(self):
        """Equal bytes are not decoded; the first difference in the middle of many segments is found."""
        a, b = self.record("a", ["halo s 4000 4\n"]), self.record("b", ["halo s 4000 4\n"])
        self.assertEqual(self.diff(a, b), (0, "the same: 40,000 calls in 1 thread of 1 rank\n"))
        b = self.record("b", ["halo s 2500 4\ncall s MPI_Barrier\nhalo s 1500 4\n"])
        status, out = self.diff(a, b)
        self.assertEqual(status, 1)
        self.assertIn("first divergence: rank 0, call 25,001 (MPI_Irecv)", out)
        self.assertIn("the same so far: 25,000 calls", out)


if __name__ == "__main__":
    unittest.main()
