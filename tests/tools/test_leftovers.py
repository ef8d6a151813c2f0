# SPDX-License-Identifier: Apache-2.0
"""scripts/resil report on what was left at MPI_Finalize: one line and the places, no verdict, and sections that make no sense."""

import json

import support
from support import Case


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


def left(count, *sites):
    return {"count": count, "sites": [{"call": call, "site": site, "count": number} for call, site, number in sites]}


class Leftovers(Case):
    def text(self, *sections, **members):
        for rank, one in enumerate(sections):
            self.report(rank=rank, size=len(sections), leftovers=one, **members)
        status, out, _ = self.tool("report", self.directory)
        self.assertEqual(status, 0, out)
        self.assertIn("CLEAN", out)
        return " ".join(out.split())

    def test_summed_over_ranks_and_places(self):
        out = self.text({"datatypes": left(3, ("MPI_Type_vector", "app+0x10", 2), ("MPI_Type_dup", "app+0x20", 1))},
                        {"datatypes": left(5, ("MPI_Type_vector", "app+0x10", 5)), "windows": left(1, ("MPI_Win_create", "app+0x30", 1))})
        self.assertIn("left over at MPI_Finalize: 8 datatypes, 1 window 7 from MPI_Type_vector at app+0x10 (ranks 0-1)", out)
        self.assertIn("1 from MPI_Win_create at app+0x30 (rank 1)", out)

    def test_few_places_are_shown(self):
        out = self.text({"groups": left(9, *(("MPI_Comm_group", "app+%#x" % place, 1) for place in range(1, 10)))})
        self.assertIn("9 groups", out)
        self.assertIn("and from 6 more places (--json lists them)", out)

    def test_nothing_left_is_not_said(self):
        self.assertNotIn("left over", self.text({}, {}))
        self.assertNotIn("left over", self.text(None, 7))

    def test_messages_that_nobody_received(self):
        self.assertIn("left over at MPI_Finalize: 4 unreceived messages", self.text({}, unreceived_messages_total=4))

    def test_nonsense_is_no_number(self):
        out = self.text({"datatypes": left(-1), "groups": 7, "files": {"count": 1, "sites": [3, {"call": 5, "count": 1}]}, "odd": left(2)},
                        [], "many")
        self.assertIn("left over at MPI_Finalize: 1 file 1 from ? at ? (rank 0)", out)
        self.assertNotIn("odd", out)

    def test_json(self):
        self.text({"files": left(1, ("MPI_File_open", "app+0x1", 1))})
        summary = json.loads(self.tool("report", "--json", self.directory)[1])
        self.assertEqual(summary["leftovers"]["kinds"], {"files": {"count": 1, "ranks": "0"}})
        self.assertEqual(summary["leftovers"]["sites"], [{"kind": "files", "call": "MPI_File_open", "site": "app+0x1", "count": 1,
                                                         "ranks": "0"}])
