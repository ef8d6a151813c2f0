# SPDX-License-Identifier: Apache-2.0
"""scripts/resil recording: what the library's writer wrote is read and printed; nothing in a file makes it fail."""

import json
import os
import random
import unittest

import record_support
import support
from resil_tool import recording as r
from resil_tool import record_text

setUpModule, tearDownModule = support.limit_time, support.release_time

PRINTED = """\
rank 0, thread 1, first call from app+0x100
       1  MPI_Irecv               peer any, tag 7, 64 bytes, comm 000000000000001f  request 1  step 1  app+0x100
       2  MPI_Send                peer 1, tag 7, 64 bytes, comm 000000000000001f  in digest 0000000000001111  step 1  app+0x200
       3  MPI_Test                found nothing 2 times  step 1  app+0x300
       4  MPI_Test                step 1  app+0x300
            found flag true
            completes request 1  from 2, tag 7  digest 0000000000002222
       5  MPI_Allreduce           8 bytes, comm 000000000000001f  in 0x1.8p+1 (3.0)  out 0x1.2p+3 (9.0)  step 1  app+0x400
            norm "residual"  0x1.0624dd2f1a9fcp-10 (0.001)
       6  MPI_Waitsome            step 2  app+0x500
            indices 3 1 2
       7  MPI_Allreduce           8 bytes, comm 000000000000001f  in -1  out 42  step 2  app+0x400
"""


class Printing(record_support.Case):
    def test_summary(self):
        place = self.record("run", [{}, {}, {}])
        status, out, _ = self.tool("recording", place)
        self.assertEqual(status, 0)
        lines = out.splitlines()
        self.assertEqual(lines[0], "%s: recording of /opt/app, 3 ranks, Some MPI 4.1, RESIL_REDUCE=order" % place)
        self.assertRegex(lines[1], r"^rank 0 on node-0: 7 calls in 1 thread, 4\.\d KiB$")
        self.assertEqual(len(lines), 4)
        status, out, _ = self.tool("recording", place, "--json")
        value = json.loads(out)
        self.assertEqual((status, value["ranks"][2]["calls"], value["ranks"][2]["end"], value["missing"]),
                         (0, 7, "finished", []))

    def test_items(self):
        place = self.record("run", [{}])
        self.assertEqual(self.tool("recording", place, "--rank", "0")[:2], (0, PRINTED))

    def test_filters(self):
        place = self.record("run", [{}, {"part": "0"}])
        printed = PRINTED.splitlines()
        for options, lines in ((["--call", "MPI_Test"], printed[3:7]), (["--from", "6"], printed[9:]),
                               (["--from", "4", "--count", "1"], printed[4:7]), (["--count", "0"], []),
                               (["--comm", "1f", "--count", "2"], printed[1:3])):
            status, out, _ = self.tool("recording", place, "--rank", "0", *options)
            self.assertEqual((status, out.splitlines()[1:]), (0, lines), options)
        status, out, _ = self.tool("recording", place, "--call", "MPI_Allreduce")
        self.assertEqual([line for line in out.splitlines() if line.startswith("rank")],
                         ["rank 0, thread 1, first call from app+0x100", "rank 1, thread 1, first call from app+0x100"])

    def test_json_items(self):
        place = self.record("run", [{}])
        status, out, _ = self.tool("recording", place, "--rank", "0", "--json")
        items = [json.loads(line) for line in out.splitlines()]
        self.assertEqual((status, len(items)), (0, 11))
        self.assertEqual(items[0], {"world": 0, "rank": 0, "stream": 1, "kind": "call", "number": 1, "call": "MPI_Irecv",
                                    "communicator": "000000000000001f", "peer": -1, "tag": 7, "bytes": 64, "step": 1,
                                    "count": 1, "flags": 4, "site": "/opt/app+0x100", "request": 1})
        self.assertEqual(items[6]["in"], {"type": "double", "bits": "4008000000000000", "number": 3.0, "hex": "0x1.8p+1"})

    def test_what_is_not_there(self):
        place = self.record("run", [{}, {}])
        os.remove(self.file(place, 1))
        status, out, _ = self.tool("recording", place)
        self.assertEqual((status, out.splitlines()[-1]), (3, "missing: ranks 1"))
        self.assertEqual(self.tool("recording", place, "--rank", "1")[0], 3)
        status, _, error = self.tool("recording", os.path.join(self.top, "nowhere"))
        self.assertEqual(status, 2)
        self.assertIn("No such file or directory", error)
        status, _, error = self.tool("recording", self.directory)
        self.assertEqual((status, error), (2, "resil: %s holds no recording\n" % self.directory))
        self.assertEqual(self.tool("recording", place, "--rank", "-3")[0], 2)

    def test_ends(self):
        for end, text in (("", "has no end mark: the program was killed, or still runs"),
                          ("abort", "ends with an abort of the program")):
            place = self.record("run", [{}], end)
            status, out, _ = self.tool("recording", place)
            self.assertEqual(status, 3)
            self.assertIn(text, out)
            self.assertIn("7 calls in 1 thread" if end else "at least 7 calls in 1 thread", out)
            status, out, _ = self.tool("recording", place, "--rank", "0")
            self.assertEqual((status, out), (3, PRINTED + "%s %s\n" % (self.file(place), text)))

    def test_times(self):
        """What clocks said, each clock as differences of its own; a recording of format 1 is read, too."""
        script = "call s MPI_Send site=/opt/app+0x200 in=digest:1\n" + "".join(
            "time s 0 double:%x\ntime s 3 signed:%x\ntime s 6 signed:%x\n" % (0x4059000000000000 + i, 1700000000 + i, 10**15 - i)
            for i in range(3))
        place = self.record("run", [script])
        with r.Recording(self.file(place)) as recording:
            (stream,) = recording.streams.values()
            values = [item for item in stream.items(0) if item.kind == r.VALUE]
        self.assertEqual([(v.logged, v.name, v.bits) for v in values[-3:]],
                         [("time", "MPI_Wtime", 0x4059000000000002), ("time", "time", 1700000002),
                          ("time", "clock_gettime(1)", 10**15 - 2)])
        with open(self.file(place), "r+b") as file:
            file.seek(8)
            file.write(b"\1")
        status, out, _ = self.tool("recording", place, "--rank", "0")
        self.assertIn("MPI_Send", out, status)

    def test_terminal_is_safe(self):
        place = self.record("run", ["logged s 1 bad\x1b[2Jname double:0\n"])
        _, out, _ = self.tool("recording", place, "--rank", "0")
        self.assertIn("bad?[2Jname", out)


class Threads(record_support.Case):
    def test_each_has_its_items(self):
        script = "stream t /opt/app+0x900\nstream u /opt/app+0x100\n" + "".join(
            "call %s MPI_Send site=/opt/app+0x900 in=unsigned:%x\n" % ("stu"[i % 3], i) for i in range(3000)) + "close t\n"
        place = self.record("run", [script])
        with r.Recording(self.file(place)) as recording:
            self.assertEqual([stream.key for stream in recording.streams.values()],
                             [("app", 0x100, 0), ("app", 0x900, 0), ("app", 0x100, 1)])
            self.assertEqual([stream.closed for stream in recording.streams.values()], [False, True, False])
            for index, stream in enumerate(recording.streams.values()):
                self.assertEqual([item.in_ for item in stream.items()], list(range(index, 3000, 3)))

    def test_reading_begins_anywhere(self):
        place = self.record("run", ["halo s 3000 4\n"])
        with r.Recording(self.file(place)) as recording:
            stream = recording.streams[1]
            whole = list(stream.items())
            self.assertGreater(len(stream.segments), 3)
            self.assertEqual(recording.calls, 30000)
            for number in (1, 2, 4711, 20000, 30000):
                found = [item for item in stream.items(stream.at(number)) if item.number >= number]
                self.assertEqual(found, [item for item in whole if item.number >= number])


class Damage(record_support.Case):
    def everything(self, path):
        """Reads all there is. RecordingError is the only exception; returns whether something was said."""
        try:
            with r.Recording(path) as recording:
                count = 0
                for stream in recording.streams.values():
                    count += sum(1 for _ in stream.items())
                return bool(recording.problem), count
        except r.RecordingError:
            return True, 0

    def test_cut_anywhere(self):
        for end in ("finish", ""):
            path = self.file(self.record("run", [{}], end))
            whole = self.everything(path)[1]
            self.assertEqual(whole, 11)
            for size in range(os.path.getsize(path) - 1, 0, -1):
                os.truncate(path, size)
                said, count = self.everything(path)
                self.assertTrue(said, size)
                self.assertLess(count, whole, size)
                if size > 4096:
                    with r.Recording(path) as recording:
                        self.assertFalse(recording.damaged, size)

    def test_any_bit(self):
        path = self.file(self.record("run", [{"source": 1}]))
        with open(path, "r+b") as file:
            good = file.read()
            # A flipped bit in the block of matches, which only verify reads, is not looked for here.
            matches = good.find(b"RBLK", 4096)
            self.assertEqual(int.from_bytes(good[matches + 16:matches + 20], "little"), 0)
            size = int.from_bytes(good[matches + 12:matches + 16], "little")
            for at in range(len(good)):
                file.seek(at)
                file.write(bytes([good[at] ^ 1 << at % 8]))
                file.flush()
                if not matches + 64 <= at < matches + 64 + size:
                    self.assertTrue(self.everything(path)[0], at)
                file.seek(at)
                file.write(good[at:at + 1])

    def test_noise_behind_valid_checksums(self):
        """What a writer with an error could write."""
        import zlib
        random_ = random.Random(5)
        path = self.file(self.record("run", [{}]))
        with open(path, "rb") as file:
            good = file.read()
        last = good.rfind(b"RBLK")
        for _ in range(500):
            data = bytearray(good)
            for _ in range(random_.randint(1, 8)):
                at = random_.randrange(last + 64, len(good))
                data[at] = random_.randrange(256)
            data[last + 8:last + 12] = zlib.crc32(data[last + 64:]).to_bytes(4, "little")
            data[last + 4:last + 8] = zlib.crc32(data[last + 8:last + 64]).to_bytes(4, "little")
            self.everything(self.write("rank-00000.rec", bytes(data)))

    def test_foreign_files(self):
        for data, kind in ((b"", "foreign"), (b"hello" * 2000, "foreign"), (b"RESILREC" + bytes(100), "foreign"),
                           (b"RESILREC" + b"\7" + bytes(8000), "version")):
            with self.assertRaises(r.RecordingError) as caught:
                r.Recording(self.write("rank-00000.rec", data))
            self.assertEqual(caught.exception.kind, kind)
        os.mkfifo(os.path.join(self.top, "pipe"))
        with self.assertRaises(r.RecordingError):
            r.Recording(os.path.join(self.top, "pipe"))


class Values(unittest.TestCase):
    def test_floats(self):
        for type_, bits, text in ((r.DOUBLE, 0x3ff0000000000001, "0x1.0000000000001p+0 (1.0000000000000002)"),
                                  (r.DOUBLE, 1 << 63, "-0x0p+0 (-0.0)"), (r.DOUBLE, 1, "0x0.0000000000001p-1022 (5e-324)"),
                                  (r.DOUBLE, 0x7ff0000000000000, "inf"), (r.FLOAT, 0x40490fdb, "0x1.921fb6p+1 (3.1415927410125732)"),
                                  (r.DOUBLE, 0x7ff8000000000001, "NaN (bits 0x7ff8000000000001)"),
                                  (r.SIGNED, 2**64 - 5, "-5"), (r.UNSIGNED, 5, "5"), (r.NONE, 0, "nothing")):
            self.assertEqual(record_text.value(type_, bits), text)

    def test_distance(self):
        for type_, a, b, apart in ((r.DOUBLE, 0x3ff0000000000000, 0x3ff0000000000003, 3), (r.DOUBLE, 0, 1 << 63, 0),
                                   (r.DOUBLE, 1, 1 << 63 | 1, 2), (r.FLOAT, 0x3f800000, 0x3f7fffff, 1),
                                   (r.DOUBLE, 0, 0x7ff0000000000000, None), (r.SIGNED, 2**64 - 1, 4, 5),
                                   (r.DIGEST, 1, 2, None)):
            self.assertEqual(record_text.ulps(type_, a, b), apart)
            self.assertEqual(record_text.ulps(type_, b, a), apart)


if __name__ == "__main__":
    unittest.main()
