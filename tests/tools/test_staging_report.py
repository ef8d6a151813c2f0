# SPDX-License-Identifier: Apache-2.0
"""scripts/resil report on jobs with device buffers: which way they went, and sections that make no sense."""

import json

import support
from support import Case


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


def section(**members):
    return {"mode": "auto", "mpi_takes_device_buffers": False, "active": True,
            "messages": {"calls": 40, "bytes": 1 << 20}, "collectives": {"calls": 3, "bytes": 1 << 20},
            "persistent": {"calls": 0, "bytes": 0}, "not_pinned": {"calls": 0, "bytes": 0},
            "pinned_memory": {"bytes": 1 << 25, "limit": 1 << 31, "most_used": 1 << 20}, "uncovered": {}, **members}


class StagingReport(Case):
    def text(self, *sections):
        for rank, one in enumerate(sections):
            self.report(rank=rank, size=len(sections), staging=one)
        status, out, _ = self.tool("report", self.directory)
        self.assertEqual(status, 0, out)
        return " ".join(out.split())

    def test_summed_over_ranks(self):
        out = self.text(section(), section())
        self.assertIn("devices through host memory: 80 messages, 6 collectives, 4.0 MiB", out)
        self.assertNotIn("LEFT TO THE LIBRARY", out)
        self.assertNotIn("pinned", out)

    def test_what_was_left_to_the_library_is_said_and_why(self):
        out = self.text(section(uncovered={"one_sided": {"calls": 5, "bytes": 10}, "new_one": {"calls": 1, "bytes": 1}}),
                        section(not_pinned={"calls": 1, "bytes": 1 << 19}))
        self.assertIn("6 calls LEFT TO THE LIBRARY (one-sided: 5, new one: 1)", out)
        self.assertIn("512.0 KiB of it not pinned, slower: RESIL_STAGE_MEMORY is too small", out)

    def test_large_messages_are_told_apart(self):
        out = self.text(section(chunked={"sent": 3, "sent_bytes": 3 << 21, "received": 9, "received_bytes": 9 << 21}),
                        section(peer_copies={"sent": 2, "sent_bytes": 1 << 22}, chunked=5,
                                local={"calls": 7, "bytes": 1 << 10}))
        self.assertIn("80 messages, 6 collectives, 7 calls that pack or reduce locally, 4.0 MiB; large messages sent 3 in "
                      "chunks (6.0 MiB), 2 from device to device (4.0 MiB)", out)

    def test_nothing_is_said_where_there_was_no_device_buffer(self):
        self.assertNotIn("devices", self.text({"mode": "auto", "mpi_takes_device_buffers": False, "active": False}))

    def test_nonsense_is_no_number(self):
        out = self.text(section(messages="many", uncovered=[1, 2], not_pinned={"calls": -3}), {"active": "yes"}, [], 7)
        self.assertIn("devices through host memory: 3 collectives, 1.0 MiB", out)

    def test_json(self):
        self.text(section(), section(uncovered={"other": {"calls": 2, "bytes": 3}}))
        _, out, _ = self.tool("report", "--json", self.directory)
        found = json.loads(out)["staging"]
        self.assertEqual(found["ways"]["messages"], [80, 2 << 20])
        self.assertEqual(found["uncovered"], {"other": [2, 3]})
        self.assertEqual(found["ranks"], 2)
