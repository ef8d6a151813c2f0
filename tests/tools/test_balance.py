# SPDX-License-Identifier: Apache-2.0
"""How evenly a job's work is spread, and how wide a report is."""

import json
import unittest

import support
from resil_tool import balance, report
from support import Case


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


def calls(inside, init=2.0):
    return {"MPI_Init": {"count": 1, "seconds": init, "bytes": 0}, "MPI_Wait": {"count": 7, "seconds": inside, "bytes": 0}}


class Balance(Case):
    def job(self, *ranks):
        """(seconds in MPI_Wait, host) of each; all take 100 s, of which MPI_Init 2."""
        for rank, (inside, host) in enumerate(ranks):
            self.report(rank=rank, size=len(ranks), elapsed_seconds=100.0, calls=calls(inside), host=host, peers=[])
        status, out, _ = self.tool("report", "--json", self.directory)
        self.assertEqual(status, 0, out)
        text = " ".join(self.tool("report", self.directory)[1].split())
        return json.loads(out)["balance"], text

    def test_the_busiest_rank_and_host(self):
        told, text = self.job((58, "nid1"), (38, "nid1"), (8, "nid2"), (48, "nid2"))
        self.assertEqual((told["ranks"], told["most"], told["least"]), (4, {"rank": "2", "host": "nid2", "seconds": 90.0},
                                                                        {"rank": "0", "host": "nid1", "seconds": 40.0}))
        self.assertEqual((told["mean_seconds"], told["load_balance"]), (60.0, 60.0 / 90.0))
        self.assertEqual(told["hosts"], [{"host": "nid2", "mean_seconds": 70.0}, {"host": "nid1", "mean_seconds": 50.0}])
        self.assertIn("balance outside MPI 60 s a rank; most rank 2 on nid2 90 s, least rank 0 on nid1 40 s; load balance 67 % (mean of most); "
                      "busiest host nid2, 70 s a rank", text)
        self.assertEqual(self.tool("html", self.directory)[0], 0)
        with open(self.directory + "/report.html", encoding="utf-8") as page:
            self.assertIn("load balance 67 %", page.read())

    def test_one_host_is_not_named(self):
        self.assertIn("most rank 0 88 s, least rank 1 48 s; load balance 77 % (mean of most) messages", self.job((10, "a"), (50, "a"))[1].replace(" coverage", " messages"))

    def test_nothing_to_compare(self):
        self.assertIsNone(self.job((10, "a"))[0])
        told, text = self.job((97.5, "a"), (97.2, "a"))  # start and end of the program alone
        self.assertIsNone(told)
        self.assertNotIn("balance", text)

    def test_of_ranks_that_finished(self):
        self.report(rank=0, size=3, elapsed_seconds=100.0, calls=calls(10), peers=[])
        self.report(rank=1, size=3, elapsed_seconds=100.0, calls=calls(50), peers=[])
        self.report(rank=2, size=3, elapsed_seconds=100.0, calls=calls(1), peers=[], outcome="stopped", exit_status=92)
        self.assertEqual(json.loads(self.tool("report", "--json", self.directory)[1])["balance"]["ranks"], 2)

    def test_what_a_rank_says_of_itself_is_not_believed(self):
        self.assertEqual(self.job((500, "a"), (50, "a"))[0]["least"]["seconds"], 0.0)
        self.assertIsNone(balance.merge([]))


class Places(unittest.TestCase):
    def test_who_polls_is_not_said_to_be_in_a_call(self):
        place = {"name": "rank 1", "count": 1, "state": "running", "from_ring": True, "inside_mpi": True, "site": "x.c:3", "since": 10.0, "phase": "running"}
        for call, said in (("MPI_Testany (9 times in a row)", "rank 1 polls with MPI_Testany (9 times in a row) for 2 s, called at x.c:3"),
                           ("MPI_Iprobe from any rank", "rank 1 polls with MPI_Iprobe from any rank for 2 s, called at x.c:3"),
                           ("MPI_Recv from rank 0", "rank 1 is in MPI_Recv from rank 0 for 2 s, called at x.c:3"), ("", "rank 1 is in MPI for 2 s")):
            self.assertEqual(report.place_sentence(dict(place, call=call), 12.0), said)
        self.assertEqual(report.place_sentence(dict(place, call="MPI_Test", name="ranks 1-2", count=2, site=""), 12.0), "ranks 1-2 poll with MPI_Test for 2 s")


class Width(Case):
    def test_of_the_environment(self):
        for rank in range(2):
            self.report(rank=rank, size=2, calls={"MPI_Neighbor_alltoallw_init": {"count": 10**12, "seconds": 1e5, "bytes": 10**15}})
        for columns, widest in (("80", 80), ("60", 80), ("140", 140), ("900", 160), ("x", 100)):
            import os  # pylint: disable=import-outside-toplevel
            os.environ["COLUMNS"] = columns
            status, out, _ = self.command("report", self.directory)
            self.assertEqual(status, 0)
            lines = out.splitlines()
            kept = [line for line in lines if not line.startswith(("next", "reports"))]  # a command is never cut
            self.assertLessEqual(max(map(len, kept)), widest, out)
            self.assertEqual("min/rank" in out, widest > 80, out)


if __name__ == "__main__":
    unittest.main()
