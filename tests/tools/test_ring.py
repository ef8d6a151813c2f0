# SPDX-License-Identifier: Apache-2.0
"""The ring reader: what it reads, and that nothing in a file makes it fail or hang."""

import os
import random
import unittest

import support
from resil_tool import layout
from resil_tool.ring import Ring, RingError
from resil_tool.wording import describe


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


def sample(**members):
    records = [support.record("MPI_Send", 20, None, 0.5, peer=1, tag=7, bytes_=80, sequence=1),
               support.record("MPI_Allreduce", 12, None, state=layout.RECORD_OPEN, sequence=17, site=0x401234)]
    members = dict(dict(rank=2, size=4, records=records, inside=True, counters={
        "MPI_Send": (10, 0.5, 800), "MPI_Allreduce": (17, 3.0, 136)}, peers=[(1, 10, 800, 9, 720)],
        modules=[(0x400000, 0x500000, 0x400000, "/opt/app")],
        requests=[layout.REQUEST.pack(key=5, kind=2), layout.REQUEST.pack(key=6, flags=layout.REQUEST_PERSISTENT)]),
        **members)
    return support.ring_bytes(**members)


class Reader(support.Case):
    def open(self, data):
        return Ring(self.write("rank-00002.ring", data))

    def test_reads_what_was_written(self):
        with self.open(sample()) as ring:
            self.assertEqual(ring.key, (0, 2))
            self.assertEqual(ring.phase, "running")
            self.assertEqual(ring.calls(), {"MPI_Send": [10, 0.5, 800], "MPI_Allreduce": [17, 3.0, 136]})
            self.assertEqual(ring.peers(), {1: [10, 800, 9, 720]})
            self.assertEqual(ring.pending_requests(), 1)
            current = ring.current_calls()[0]
            self.assertEqual(describe(current), "MPI_Allreduce #17 on MPI_COMM_WORLD")
            self.assertEqual(ring.locate(current.site), ("/opt/app", 0x1234))
            self.assertAlmostEqual(ring.header.realtime_sync_ns / 1e9 - current.start, 12, places=3)
            self.assertEqual(ring.notes, [])

    def test_last_call_outside_mpi(self):
        send = support.record("MPI_Send", 20, None, 0.5, peer=1, tag=7)
        step = layout.RECORD.pack(time=10**11, state=layout.RECORD_STEP)
        with self.open(sample(records=[send, step], inside=False)) as ring:
            self.assertEqual(ring.current_calls(), [])
            self.assertEqual(describe(ring.last_call()), "MPI_Send to rank 1, tag 7, on MPI_COMM_WORLD")

    def test_thread_that_keeps_fewer_records(self):
        records = [support.record("MPI_Barrier", 500 - i / 10, None, sequence=i + 1) for i in range(3000)]
        for kept in (layout.K_RECORDS_OF_FURTHER, layout.K_RECORDS_PER_LANE, None):
            with self.open(sample(records=records, inside=False, kept=kept)) as ring:
                found = [call.sequence for call in ring.history(ring.lanes()[0])]
                self.assertEqual(found, list(range(3001 - (kept or layout.K_RECORDS_PER_LANE), 3001)))

    def test_record_ring_wraps(self):
        records = [support.record("MPI_Barrier", 500 - i / 10, None, sequence=i + 1) for i in range(3000)]
        with self.open(sample(records=records, inside=False)) as ring:
            self.assertEqual(ring.last_call().sequence, 3000)

    def test_overwritten_current_record_is_not_used(self):
        data = bytearray(sample())
        lane = layout.HEADER_RESERVED
        data[lane + 8:lane + 16] = (5000).to_bytes(8, "little")  # head, far beyond the open record
        with self.open(bytes(data)) as ring:
            self.assertEqual(ring.current_calls(), [])

    def test_errors_have_kinds(self):
        good = sample()
        for kind, data in (("empty", b""), ("empty", bytes(5000)), ("foreign", b"hello" * 1000),
                           ("truncated", good[:1000]), ("truncated", good[:12]), ("foreign", b"\x7fELF"),
                           ("version", support.ring_bytes(version=2)), ("damaged", support.ring_bytes(pid=0)),
                           ("damaged", support.ring_bytes(pid=-1)), ("damaged", support.ring_bytes(rank=-7))):
            with self.assertRaises(RingError) as caught:
                self.open(data)
            self.assertEqual(caught.exception.kind, kind, str(caught.exception))
        with self.assertRaises(RingError) as caught:
            Ring(os.path.join(self.directory, "none.ring"))
        self.assertEqual(caught.exception.kind, "missing")

    def test_pipes_and_directories_are_foreign(self):
        pipe = os.path.join(self.directory, "rank-00001.ring")
        os.mkfifo(pipe)
        for path in (pipe, self.directory):
            with self.assertRaises(RingError) as caught:
                Ring(path)
            self.assertIn(caught.exception.kind, ("foreign", "unreadable"))

    def test_link_in_the_ring_directory_is_not_followed(self):
        target = self.write("target", sample())
        os.symlink(target, os.path.join(self.shm, "link"))
        with self.assertRaises(RingError):
            Ring(os.path.join(self.shm, "link"), follow_links=False)

    def test_partial_data_with_a_note(self):
        good = sample()
        with self.open(good[:layout.HEADER_RESERVED + 30000]) as ring:
            ring.calls(), ring.current_calls(), ring.pending_requests()
            self.assertIn("truncated", ring.notes[0])

    def exercise(self, data):
        """Everything the tool asks of a ring. RingError is the only exception."""
        try:
            with self.open(data) as ring:
                ring.calls(), ring.peers(), ring.pending_requests(), ring.locate(0x401234)
                for call in ring.current_calls() + [ring.last_call()]:
                    if call:
                        describe(call)
                        ring.locate(call.site)
                self.assertLess(len(ring.notes), 100)
        except RingError:
            pass

    def test_truncation_anywhere(self):
        good = sample()
        for size in list(range(0, 2400, 41)) + list(range(2400, len(good), 5003)):
            self.exercise(good[:size])

    def test_sparse_giant(self):
        """Sections that claim a file of a tebibyte."""
        data = bytearray(sample())
        for i in range(6):
            at = layout.HEADER.offsets["sections"] + i * layout.SECTION.size
            section = layout.SECTION.unpack(bytes(data), at)
            data[at:at + layout.SECTION.size] = layout.SECTION.pack(**dict(
                section._asdict(), bytes=2**40, entries=2**31))
        path = self.write("rank-00002.ring", bytes(data))
        os.truncate(path, 2**40)
        with Ring(path) as ring:
            ring.pending_requests(), ring.call_name(3), ring.locate(5)
            self.assertEqual(len(ring.lanes()), 1)

    def test_fuzz(self):
        random_ = random.Random(20240607)
        good = sample()
        interesting = [0, 1, 0xff, 0x7f, 0x80]
        for _ in range(400):
            data = bytearray(good)
            for _ in range(random_.randint(1, 30)):
                zone = random_.choice((layout.HEADER.size + 640, layout.HEADER_RESERVED + 200, len(data)))
                at = random_.randrange(8, zone - 8)
                width = random_.choice((1, 2, 4, 8))
                data[at:at + width] = bytes(random_.choice(interesting + [random_.randrange(256)])
                                            for _ in range(width))
            self.exercise(bytes(data[:random_.choice((len(data), len(data), random_.randrange(len(data))))]))

    def test_random_bytes_after_the_magic(self):
        random_ = random.Random(7)
        for _ in range(60):
            noise = bytearray(random_.randbytes(20000))
            noise[:12] = layout.HEADER.pack(magic=layout.MAGIC, version=layout.VERSION)[:12]
            self.exercise(bytes(noise))


if __name__ == "__main__":
    unittest.main()
