# SPDX-License-Identifier: Apache-2.0
"""scripts/resil report on receives from MPI_ANY_SOURCE with several candidates: said where it holds, and nowhere else."""

import json

import support
from support import Case


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


def counted(followed, several):
    return {"mode": "lazy", "any_source": {"followed": followed, "several_candidates": several}}


SAID = "of 10 receives from MPI_ANY_SOURCE had more than one candidate (rank 0)"


class Candidates(Case):
    def merged(self, *sections, calls=None, **members):
        for rank, one in enumerate(sections):
            extra = {"calls": calls} if calls is not None and rank == len(sections) - 1 else {}
            self.report(rank=rank, size=len(sections), checksum=one, modes="checksum",
                        **{"all_ranks_preloaded": True, **extra, **members})
        text = " ".join(self.tool("report", self.directory)[1].split())
        return text, json.loads(self.tool("report", "--json", self.directory)[1])["any_source"]

    def test_summed_over_ranks(self):
        text, found = self.merged(counted(6, 3), counted(4, 0))
        self.assertIn("any source 3 " + SAID, text)
        self.assertEqual(found, {"followed": 10, "several_candidates": 3, "ranks": "0", "unknown": ""})

    def test_none_is_not_said(self):
        text, found = self.merged(counted(6, 0), counted(4, 0))
        self.assertNotIn("candidate", text)
        self.assertEqual(found["several_candidates"], 0)

    def test_not_followed(self):
        self.assertEqual(self.merged({"mode": "lazy"})[1], None)

    def void(self, name):
        text, found = self.merged(counted(6, 3), counted(4, 0), calls={name: {"count": 1, "seconds": 0, "bytes": 0}})
        self.assertNotIn("candidate", text)
        self.assertIsNone(found["several_candidates"])
        return found["unknown"]

    def test_a_synchronous_send_of_any_rank_tells_of_a_receive(self):
        for name in ("MPI_Ssend", "MPI_Issend", "MPI_Ssend_init", "MPI_Issend_c"):
            self.assertEqual(self.void(name), "synchronous sends")

    def test_so_do_windows_and_cancelled_sends_and_other_worlds(self):
        self.assertEqual(self.void("MPI_Win_allocate"), "windows")
        self.assertEqual(self.void("MPI_Cancel"), "MPI_Cancel")
        self.assertEqual(self.void("MPI_Comm_spawn"), "other worlds")

    def test_calls_of_a_rank_that_are_not_known(self):
        self.assertEqual(self.merged(counted(6, 3), counted(4, 0), all_ranks_preloaded=False)[1]["unknown"], "calls of some rank")
        self.assertEqual(self.merged(counted(6, 3), counted(4, 0), outcome="aborted")[1]["unknown"], "calls of some rank")

    def test_nonsense_is_no_number(self):
        text, found = self.merged(counted(3, 9), {"mode": "lazy", "any_source": [1]}, {"any_source": {"followed": "x"}})
        self.assertNotIn("candidate", text)
        self.assertEqual(found["followed"], 3)
