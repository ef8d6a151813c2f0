# SPDX-License-Identifier: Apache-2.0
"""Reads a ring file (rank-NNNNN.ring, or the live one of a running rank). Trusts nothing in it.

Reads with pread only, never a mapping: a file that is truncated under a mapping kills the reader with SIGBUS.
Everything that cannot be read is a RingError or a line in `notes`; counts are clamped by the size of the file.
"""

from __future__ import annotations

import collections
import errno
import fcntl
import math
import os
import stat
import struct
import sys
import time

from . import layout, process
from .text import clean

MAX_LANES = 1024
MAX_MODULES = 4096
MAX_FILE = 1 << 30  # bytes; no live ring is larger
MAX_READ = 1 << 26  # bytes at once: a sparse file can claim any size
SANE_SECONDS = 4e9  # no real counter of seconds is larger

Call = collections.namedtuple("Call", "name state flags comm comm_handle peer tag repeat bytes site sequence start "
                                      "seconds lane")
class LaneHead(collections.namedtuple("LaneHead", "index offset head")):
    """A thread's lane. `records`: how many it holds at most."""

    @property
    def records(self) -> int:
        last = self.head.last_place
        return (last % layout.K_RECORDS_PER_LANE if last else layout.K_RECORDS_PER_LANE - 1) + 1


Section = collections.namedtuple("Section", "offset stride entries")


class RingError(Exception):
    """A ring that cannot be used. `kind`: missing, unreadable, empty, truncated, foreign, version, damaged."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class Ring:
    """An open ring file. Use as a context manager; every method may be called in any order, a failing read is
    a RingError. follow_links=False: a live one, in a place where every user may put anything under any name."""

    def __init__(self, path: str, follow_links: bool = True):
        self.path, self.notes = path, []
        if not follow_links:
            self._look_first(path)
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
        try:
            self.descriptor = os.open(path, flags)
        except FileNotFoundError:
            raise RingError("missing", "no such file") from None
        except OSError as error:
            raise RingError("unreadable", error.strerror or "cannot be opened") from None
        try:
            self._check()
        except BaseException:
            os.close(self.descriptor)
            raise
        self._sections: dict[str, Section] | None = None
        self._call_names: list[str] | None = None
        self._lanes: list[LaneHead] | None = None
        self._module_list: list | None = None

    @staticmethod
    def _look_first(path: str):
        """Before it is opened: to open a device may do something, and a second name of a file is no ring."""
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            raise RingError("missing", "no such file") from None
        except OSError as error:
            raise RingError("unreadable", error.strerror or "cannot be looked at") from None
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size > MAX_FILE:
            raise RingError("foreign", "not a ring file of resil")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.descriptor)

    def _check(self):
        self.status = os.fstat(self.descriptor)
        if not stat.S_ISREG(self.status.st_mode):
            raise RingError("foreign", "not a regular file")
        self.size = self.status.st_size
        if self.size == 0:
            raise RingError("empty", "empty file")
        raw = self.read(0, layout.HEADER.size)
        if len(raw) >= 8 and raw[:8] == bytes(8):
            raise RingError("empty", "zeroes where the header should be")
        if raw[:8] != struct.pack("<Q", layout.MAGIC)[:len(raw)]:
            raise RingError("foreign", "not a ring file of resil")
        if len(raw) >= 12 and struct.unpack_from("<I", raw, 8)[0] != layout.VERSION:
            raise RingError("version", "ring format %d, this tool reads format %d"
                            % (struct.unpack_from("<I", raw, 8)[0], layout.VERSION))
        if len(raw) < layout.HEADER.size:
            raise RingError("truncated", "truncated after %d bytes" % self.size)
        self.header = layout.HEADER.unpack(raw)
        if self.header.pid < 1 or self.header.rank < -1 or self.header.world < 0:
            raise RingError("damaged", "header makes no sense (pid %d, rank %d)" % (self.header.pid, self.header.rank))
        if self.header.file_bytes > self.size:
            self.notes.append("truncated: %d of %d bytes are there" % (self.size, self.header.file_bytes))

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` bytes; fewer at the end of the file."""
        if offset < 0 or offset >= 2**62 or count <= 0:
            return b""
        count, pieces = min(count, MAX_READ), []
        try:
            while count > 0:
                piece = os.pread(self.descriptor, min(count, 1 << 24), offset)
                if not piece:
                    break
                pieces.append(piece)
                offset, count = offset + len(piece), count - len(piece)
        except OSError as error:
            raise RingError("unreadable", error.strerror or "read error") from None
        return b"".join(pieces)

    # -- header ---------------------------------------------------------------------------------------------------

    @property
    def start_ticks(self) -> int:
        """Start time of the rank's process, clock ticks after boot; 0: not known."""
        return self.header.pid_start_hi << 32 | self.header.pid_start_lo

    @property
    def pid_is_ours(self) -> bool:
        """Whether the pid means the rank's process here: not if that lives in another container's pid namespace."""
        return process.namespace_is_ours(self.header.pid_namespace)

    def process_lives(self) -> bool | None:
        """Whether the process that made this live ring runs. Its lock on the file tells, in every pid namespace; where the
        system had no such lock, its pid does. None: it has neither a lock nor a pid that means anything here."""
        if self.header.held:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            except OSError:
                return None
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            return False
        return process.alive(self.header.pid, self.start_ticks) if self.pid_is_ours else None

    @property
    def phase(self) -> str:
        return layout.PHASES[self.header.phase] if self.header.phase < len(layout.PHASES) else "unknown"

    @property
    def key(self) -> tuple[int, int]:
        return self.header.world, self.header.rank

    def ticks_per_second(self) -> float | None:
        h = self.header
        ticks, nanoseconds = h.ticks_sync - h.ticks_start, h.realtime_sync_ns - h.realtime_start_ns
        if ticks > 0 and nanoseconds > 10**9:  # a measured pair over more than a second beats the nominal rate
            rate = ticks / nanoseconds * 1e9
            if 1e6 <= rate <= 1e11:
                return rate
        rate = h.ticks_per_second
        return rate if math.isfinite(rate) and 1e6 <= rate <= 1e11 else None

    def realtime(self, ticks: int) -> float | None:
        """Seconds since the epoch of a tick count; None when the header or the value makes no sense."""
        rate = self.ticks_per_second()
        if not rate or not ticks or not self.header.realtime_start_ns:
            return None
        value = self.header.realtime_start_ns / 1e9 + (ticks - self.header.ticks_start) / rate
        return value if 0 < value < time.time() + 86400 else None

    # -- sections -------------------------------------------------------------------------------------------------

    def section(self, name: str, known: int, always: bool = True) -> Section:
        """Where a section lies, its entries clamped to the file; empty when it is missing or too narrow for `known`. `always`: every
        ring has it; those of modules are there only while the module is on."""
        if self._sections is None:
            self._sections = {}
            raw = self.read(layout.HEADER.offsets["sections"], layout.SECTION_COUNT * layout.SECTION.size)
            for i in range(min(self.header.section_count, len(raw) // layout.SECTION.size)):
                s = layout.SECTION.unpack(raw, i * layout.SECTION.size)
                stride = s.entry_bytes
                room = max(0, min(s.bytes, self.size - s.offset)) // stride if stride else 0
                if room < s.entries:
                    self.notes.append("section %s: %d of %d entries are there" % (clean(s.name, 16), room, s.entries))
                self._sections[s.name] = Section(s.offset, stride, min(s.entries, room))
        found = self._sections.get(name)
        if found is None or found.stride < known:
            note = "section %s is missing" % name
            if always and note not in self.notes:
                self.notes.append(note)
            return Section(0, known, 0)
        return found

    def entry(self, name: str, shape: layout.Layout, index: int):
        section = self.section(name, shape.size)
        if not 0 <= index < section.entries:
            return None
        raw = self.read(section.offset + index * section.stride, shape.size)
        return shape.unpack(raw) if len(raw) == shape.size else None

    def call_name(self, call: int) -> str:
        if self._call_names is None:
            section = self.section("calls", layout.CALL_NAME.size)
            count = min(section.entries, layout.K_MAX_CALLS)
            self._call_names = _names(self.read(section.offset, count * section.stride), section.stride)
        name = self._call_names[call] if call < len(self._call_names) else ""
        return name or "call %d" % call

    def lanes(self) -> list[LaneHead]:
        """Heads of the lanes that were ever used."""
        if self._lanes is None:
            section, self._lanes = self.section("lanes", layout.LANE.size), []
            for i in range(min(section.entries, MAX_LANES)):
                offset = section.offset + i * section.stride
                raw = self.read(offset, layout.LANE_HEAD_BYTES)
                if len(raw) < layout.LANE_HEAD_BYTES:
                    break
                head = layout.LANE.type._make(layout.text_of(v) if isinstance(v, bytes) else v for v in
                                              layout.LANE.struct.unpack(raw.ljust(layout.LANE.size, b"\0")))
                if head.state != layout.LANE_FREE:
                    self._lanes.append(LaneHead(i, offset, head))
        return self._lanes

    def calls(self) -> dict[str, list]:
        """Per function [count, seconds, bytes], summed over the lanes."""
        rate, totals = self.ticks_per_second(), {}
        if rate is None:
            self.notes.append("no clock rate: seconds are not known")
        size = layout.COUNTER.size
        for lane in self.lanes():
            raw = self.read(lane.offset + layout.LANE.offsets["counters"], layout.K_MAX_CALLS * size)
            for call in _used(raw, size, "Q", 0):
                count, ticks, bytes_ = layout.COUNTER.struct.unpack_from(raw, call * size)
                seconds = ticks / rate if rate and ticks > 0 else 0.0
                total = totals.setdefault(self.call_name(call), [0, 0.0, 0])
                total[0] += count
                total[1] += seconds if seconds < SANE_SECONDS else 0.0  # NaN and infinity fail this test too
                total[2] += bytes_
        return totals

    def peers(self) -> dict[int, list[int]]:
        """Per world rank (-2: all that found no place) [sent messages, bytes, received messages, bytes]."""
        totals, size = {}, layout.PEER.size
        for lane in self.lanes():
            raw = self.read(lane.offset + layout.LANE.offsets["peers"], layout.K_PEER_ENTRIES * size)
            for i in _used(raw, size, "i", -1):
                rank, _, *numbers = layout.PEER.struct.unpack_from(raw, i * size)
                if any(numbers):
                    total = totals.setdefault(rank, [0, 0, 0, 0])
                    totals[rank] = [a + b for a, b in zip(total, numbers)]
        return totals

    def _call(self, lane: LaneHead, index: int, steps: bool = False) -> Call | None:
        """Record number `index` of a lane, if it is still there. `steps`: also where the program has begun a step."""
        if index < 0 or index + lane.records < lane.head.head:
            return None
        raw = self.read(lane.offset + layout.LANE.offsets["records"]
                        + index % lane.records * layout.RECORD.size, layout.RECORD.size)
        if len(raw) < layout.RECORD.size:
            return None
        r = layout.RECORD.unpack(raw)
        if r.time == 0 or (r.state not in (layout.RECORD_OPEN, layout.RECORD_DONE) and not (steps and r.state == layout.RECORD_STEP)):
            return None
        if r.state == layout.RECORD_STEP:
            name = self.entry("names", layout.NAME, r.aux)
            return Call(clean(name.name) if name and name.name else "step", r.state, r.flags, "", 0, r.peer, r.tag, 1, r.bytes, 0, r.sequence,
                        self.realtime(r.time), None, lane)
        comm, name = self.communicator(r.comm)
        rate = self.ticks_per_second()
        seconds = r.duration / rate if rate and 0 < r.duration < 1e20 else None
        return Call(self.call_name(r.call), r.state, r.flags, name, comm.handle if comm else 0, r.peer, r.tag,
                    max(1, r.repeat), r.bytes, r.site, r.sequence, self.realtime(r.time), seconds, lane)

    def history(self, lane: LaneHead) -> list[Call]:
        """All records of a lane that are still there, the oldest first: calls, finished or open, and the program's own steps."""
        head, found = lane.head.head, []
        for index in range(max(0, head - lane.records), min(head, 2**62)):
            call = self._call(lane, index, steps=True)
            if call:
                found.append(call)
        return found

    def current_calls(self) -> list[Call]:
        """The outermost open call of every thread that is inside MPI, the longest first."""
        calls = []
        for lane in self.lanes():
            current = lane.head.current
            if lane.head.state == layout.LANE_LIVE and 0 < current <= lane.head.head + 1:
                call = self._call(lane, current - 1)
                if call and call.state == layout.RECORD_OPEN:
                    calls.append(call)
        return sorted(calls, key=lambda call: call.start or math.inf)

    def last_call(self) -> Call | None:
        """The newest finished or folded call over all lanes; looks back past at most 64 user records a lane."""
        newest = None
        for lane in self.lanes():
            for back in range(1, 65):
                call = self._call(lane, lane.head.head - back)
                if call:
                    if newest is None or (call.start or 0) >= (newest.start or 0):
                        newest = call
                    break
        return newest

    def pending_requests(self) -> int:
        return sum(1 for _ in self.requests())

    def requests(self):
        """Those that are pending, as layout.REQUEST has them."""
        section, size = self.section("requests", layout.REQUEST.size), layout.REQUEST.size
        for first, count in self._written(section, min(section.entries, 1 << 16)):
            raw = self.read(section.offset + first * section.stride, count * section.stride)
            for i in _used(raw[:len(raw) // section.stride * section.stride], section.stride, "Q", 0):
                request = layout.REQUEST.unpack(raw, i * section.stride)
                if not request.flags & layout.REQUEST_PERSISTENT or request.flags & layout.REQUEST_ACTIVE:
                    yield request

    def communicator(self, index: int):
        """As layout.COMM has it, and its name in words; (None, "") where there is none."""
        comm = self.entry("comms", layout.COMM, index) if index else None
        return comm, (clean(comm.name) if comm and comm.name else "communicator %#x" % comm.id if comm and comm.id else "")

    def communicators(self) -> list:
        """(layout.COMM, name) of those that are in use."""
        entries = min(self.section("comms", layout.COMM.size).entries, 1 << 12)
        return [found for found in map(self.communicator, range(1, entries)) if found[0] and found[0].id]

    def _written(self, section: Section, entries: int):
        """(first entry, number) of stretches of a section that are no hole of the file."""
        first = 0
        while first < entries:
            try:
                data = os.lseek(self.descriptor, section.offset + first * section.stride, os.SEEK_DATA)
                hole = os.lseek(self.descriptor, data, os.SEEK_HOLE)
            except OSError as error:
                if error.errno != errno.ENXIO:  # a file system without holes
                    yield first, entries - first
                return
            begin = max(first, (data - section.offset) // section.stride)
            first = min(entries, -(-(hole - section.offset) // section.stride))
            if begin >= first:
                return
            yield begin, first - begin

    def locate(self, address: int) -> tuple[str, int] | None:
        """(path of the object file, address in the file) of a code address."""
        for module in self._modules():
            if module.start <= address < module.end and address >= module.base:
                return clean(module.path), address - module.base
        return None

    def object_files(self) -> list[str]:
        """Paths of the object files with call sites."""
        return [clean(module.path) for module in self._modules()]

    def _modules(self):
        if self._module_list is None:
            self._module_list = self._read_modules()
        return self._module_list

    def _read_modules(self):
        section = self.section("modules", layout.MODULE.size)
        raw = self.read(section.offset, min(section.entries, MAX_MODULES) * section.stride)
        at = layout.MODULE.offsets["path"]
        return [layout.MODULE.unpack(raw, offset) for offset in range(0, len(raw) - layout.MODULE.size + 1, section.stride)
                if raw[offset + at]]


def _used(raw: bytes, stride: int, code: str, free: int) -> list[int]:
    """Numbers of the entries whose first field (struct code Q or i) is not `free`. A large job has millions of entries."""
    wide = 8 if code == "Q" else 4
    whole = len(raw) // stride * stride
    if stride % wide or sys.byteorder != "little":
        return [i for i in range(whole // stride) if struct.unpack_from("<" + code, raw, i * stride)[0] != free]
    first = memoryview(raw)[:whole].cast(code)[::stride // wide].tolist() if whole else []
    return [i for i, value in enumerate(first) if value != free]


_known_names: dict[bytes, list[str]] = {}  # tables of names: the same in all rings of a job


def _names(raw: bytes, stride: int) -> list[str]:
    if raw not in _known_names:
        if len(_known_names) > 8:
            _known_names.clear()
        size = layout.CALL_NAME.size
        _known_names[raw] = [clean(layout.CALL_NAME.unpack(raw, i * stride).name)
                             for i in range((len(raw) - size) // stride + 1)] if raw else []
    return _known_names[raw]
