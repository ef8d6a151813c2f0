# SPDX-License-Identifier: Apache-2.0
"""Reads rank-NNNNN.rec, one rank's recording; the Python mirror of checksum/record/layout.h and decoder.cpp (the bytes:
docs/RECORD.md, "Format"). Trusts nothing in it; holds one segment (64 KiB) of a stream at a time, and 100 bytes for each
block of the file."""

from __future__ import annotations

import collections
import os
import stat
import struct
import zlib

from .text import clean

FORMAT, OLDEST_FORMAT = 2, 1  # of format 1 there are no times but as logged values
HEAD_BYTES, STATE_AT, MAX_PAYLOAD = 4096, 4096 - 64, 64 << 10
FILE_MAGIC, STATE_MAGIC, BLOCK_MAGIC = b"RESILREC", b"STAT", b"RBLK"
_FILE = struct.Struct("<8sIIII")
_IDENTITY = struct.Struct("<iiiiQ96s64s1024s64s128s16s32s16s")
_STATE = struct.Struct("<4sIIiQQQQ16x")
_BLOCK = struct.Struct("<4sIIIIHHIIQQQQ")
BLOCK_FIRST, BLOCK_OPENS, BLOCK_CLOSES = 1, 2, 4
PHASES = ("", "running", "finished", "aborted", "failed")

CALL_FAILED, CALL_NESTED, CALL_STARTED, CALL_POLLS, CALL_UNREAD, CALL_UNFORCED = 1, 2, 4, 8, 16, 32
COMPLETION_MATCH, COMPLETION_BYTES, COMPLETION_CANCELLED, COMPLETION_FAILED, COMPLETION_FREED, COMPLETION_UNREAD = \
    1, 2, 4, 8, 16, 32
_COMPLETION_STREAM = 0x80
OUTCOME_FLAG, OUTCOME_INDEX, OUTCOME_MATCH, OUTCOME_BYTES, _OUTCOME_TRUE = 1, 2, 4, 8, 0x80
NONE, DIGEST, DOUBLE, FLOAT, SIGNED, UNSIGNED, BYTES = range(7)
TYPE_NAMES = ("none", "digest", "double", "float", "signed", "unsigned", "bytes")
LOGGED_NAMES = ("", "norm", "checksum", "count", "time", "step", "fingerprint", "value")
MAX_INDICES, NO_PEER, ANY, PROC_NULL, ROOT_SELF = 256, -32768, -1, -2, -3
SHAPES, SITES, COMMS, CALL_NAMES, OBJECTS, LOGGED = 1024, 512, 256, 1024, 64, 256
_DIRECT = 0xc0
# Name and type of what a clock says, by its number; from the sixth on clock_gettime of the clocks 0, 1 and so on.
_CLOCKS = (("MPI_Wtime", DOUBLE), ("MPI_Wtick", DOUBLE), ("clock", SIGNED), ("time", SIGNED), ("gettimeofday", SIGNED))
CLOCKS = 32

# What items() yields: tuples that begin with their kind and the number of the call they are or belong to.
CALL, COMPLETION, OUTCOME, INDICES, VALUE, TEXT = "call", "completion", "outcome", "indices", "value", "text"
Shape = collections.namedtuple("Shape", "call flags comm peer tag bytes in_type out_type counted site")
Call = collections.namedtuple("Call", "kind number shape step count ordinal in_ out")
Completion = collections.namedtuple("Completion", "kind number ordinal type digest flags stream source tag bytes")
Outcome = collections.namedtuple("Outcome", "kind number flag index source tag bytes")
Indices = collections.namedtuple("Indices", "kind number list")
Value = collections.namedtuple("Value", "kind number logged name type bits")
Text = collections.namedtuple("Text", "kind number text")
Identity = collections.namedtuple("Identity", "rank world_size world thread_level created launch host program build mpi "
                                              "abi resil_version reduce")
Segment = collections.namedtuple("Segment", "number ordinal blocks")  # calls and requests before it; [offset, bytes]


class RecordingError(Exception):
    """A recording that cannot be read (further). `kind`: missing, unreadable, foreign, version, damaged, cut."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class Stream:
    """One thread's items. `site`: (object file, offset) of its first call, `nth` among those that began there."""

    def __init__(self, recording, identifier: int):
        self.recording, self.id = recording, identifier
        self.site, self.nth, self.closed = ("", 0), 0, False
        self.segments: list[Segment] = []

    @property
    def key(self) -> tuple:
        """Finds the same thread in another recording, the program at another path included."""
        return os.path.basename(self.site[0]), self.site[1], self.nth

    def data(self, index: int) -> bytes:
        return b"".join(self.recording.payload(offset, size) for offset, size in self.segments[index].blocks)

    def at(self, number: int) -> int:
        """Index of the segment that holds call `number`, or an item before it."""
        low, high = 0, len(self.segments)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.segments[middle].number < number else (low, middle)
        return low

    def items(self, segment: int = 0):
        """All items from that segment on. Ends where the stream does; RecordingError when it is damaged."""
        for index in range(segment, len(self.segments)):
            head = self.segments[index]
            try:
                yield from _decode(self.data(index), head.number, head.ordinal)
            except (IndexError, struct.error):
                raise RecordingError("damaged", "%s is damaged: segment %d of stream %d holds what this version cannot "
                                     "read" % (self.recording.path, index, self.id)) from None


class Recording:
    """An open file. `end`: finished, aborted, failed, killed, cut; `problem`: a sentence for all but finished, or about
    the first block that is damaged."""

    def __init__(self, path: str):
        self.path, self.streams, self.problem, self.damaged = path, {}, "", False
        self._matches = []  # blocks of stream 0: what receives with wildcards got, which the other streams repeat
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise RecordingError("missing", "%s: no such file" % path) from None
        except OSError as error:
            raise RecordingError("unreadable", "%s: %s" % (path, error.strerror)) from None
        try:
            self._read_head()
            self._read_blocks()
        except OSError as error:
            os.close(self.descriptor)
            raise RecordingError("unreadable", "%s: %s" % (path, error.strerror)) from None
        except BaseException:
            os.close(self.descriptor)
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.descriptor)

    def _read_head(self):
        status = os.fstat(self.descriptor)
        head = os.pread(self.descriptor, HEAD_BYTES, 0) if stat.S_ISREG(status.st_mode) else b""
        if head[:8] != FILE_MAGIC:
            raise RecordingError("foreign", "%s is not a recording" % self.path)
        if len(head) < _FILE.size + _IDENTITY.size:
            raise RecordingError("foreign", "%s is cut off within its head: nothing was recorded" % self.path)
        _, version, head_bytes, checksum, identity_bytes = _FILE.unpack_from(head)
        if not OLDEST_FORMAT <= version <= FORMAT or head_bytes != HEAD_BYTES or identity_bytes != _IDENTITY.size:
            raise RecordingError("version", "%s is a recording of format %d, this tool reads formats %d to %d"
                                 % (self.path, version, OLDEST_FORMAT, FORMAT))
        if len(head) < HEAD_BYTES:
            raise RecordingError("foreign", "%s is cut off within its head: nothing was recorded" % self.path)
        magic, state_crc, phase, error, size, _, self.calls, _ = _STATE.unpack_from(head, STATE_AT)
        if checksum != zlib.crc32(head[_FILE.size - 4:STATE_AT]) or magic != STATE_MAGIC \
                or state_crc != zlib.crc32(head[STATE_AT + 8:]) or not 1 <= phase <= 4:
            raise RecordingError("damaged", "%s is damaged: the checksum of its head does not match" % self.path)
        self.identity = Identity._make(
            value.split(b"\0", 1)[0].decode("utf-8", "replace") if isinstance(value, bytes) else value
            for value in _IDENTITY.unpack_from(head, _FILE.size))
        self.size, self.end = status.st_size, PHASES[phase]
        if self.end == "running":
            self.end, self.problem = "killed", "has no end mark: the program was killed, or still runs"
        elif self.size < size:
            self.end, self.problem = "cut", "is cut off: it has %d of %d bytes" % (self.size, size)
        else:
            self.size = size
            self.problem = {"finished": "", "aborted": "ends with an abort of the program",
                            "failed": "ended early: %s" % os.strerror(error)}[self.end]

    def _damage(self, sequence: int, offset: int, what: str):
        self.damaged = True
        self.problem = "is damaged: block %d at byte %d: %s" % (sequence, offset, what)

    def _read_blocks(self):
        offset, sequence = HEAD_BYTES, 0
        while offset < self.size:
            head = os.pread(self.descriptor, _BLOCK.size, offset)
            if len(head) < _BLOCK.size:
                if self.end == "finished":
                    self._damage(sequence, offset, "it is not whole")
                return
            magic, crc, _, size, stream, flags, _, segment, start, number, calls, ordinal, _ = _BLOCK.unpack(head)
            if head[:4] == b"\0\0\0\0" and self.end == "killed" and self._zeros_from(offset):
                return
            if magic != BLOCK_MAGIC or crc != zlib.crc32(head[8:]) or size > MAX_PAYLOAD or number != sequence:
                return self._damage(sequence, offset, "its head is not that of the next block")
            if offset + _BLOCK.size + size > self.size:
                if self.end == "finished":
                    self._damage(sequence, offset, "it is not whole")
                return
            if stream == 0:
                self._matches.append((offset, size))
            else:
                self._add(stream, flags, segment, start, calls, ordinal, offset, size, sequence)
                if self.damaged:
                    return
            offset += _BLOCK.size + size
            sequence += 1

    def _add(self, number, flags, segment, start, calls, ordinal, offset, size, sequence):
        stream = self.streams.get(number)
        if stream is None:
            stream = self.streams[number] = Stream(self, number)
        if flags & BLOCK_CLOSES:
            stream.closed = True
        if not size:
            return
        segments = stream.segments
        here = sum(block[1] for block in segments[-1].blocks) if segments and not flags & BLOCK_FIRST else 0
        if segment != len(segments) - (0 if flags & BLOCK_FIRST else 1) or start != here:
            return self._damage(sequence, offset, "it does not go on where its stream stopped")
        if flags & BLOCK_FIRST:
            segments.append(Segment(calls, ordinal, []))
        segments[-1].blocks.append((offset, size))
        if flags & BLOCK_OPENS:
            try:
                data = self.payload(offset, size)
                at, text = _text(data, 1)
                at, place = _number(data, at)
                stream.site, stream.nth = (text, place), _number(data, at)[1]
            except RecordingError as error:
                self.damaged, self.problem = True, str(error)[len(self.path) + 1:]
                segments.pop()
            except IndexError:
                self._damage(sequence, offset, "a stream that does not say where it began")

    def check_matches(self):
        """The blocks that nobody here reads: a recording with damage in them is no good one."""
        for offset, size in () if self.damaged else self._matches:
            try:
                self.payload(offset, size)
            except RecordingError as error:
                if error.kind == "damaged":
                    self.damaged, self.problem = True, str(error)[len(self.path) + 1:]
                    return

    def _zeros_from(self, offset: int) -> bool:
        while True:
            piece = os.pread(self.descriptor, 1 << 20, offset)
            if piece.strip(b"\0"):
                return False
            if not piece:
                return True
            offset += len(piece)

    def payload(self, offset: int, size: int) -> bytes:
        head = os.pread(self.descriptor, _BLOCK.size + size, offset)
        if len(head) != _BLOCK.size + size or zlib.crc32(head[_BLOCK.size:]) != _BLOCK.unpack_from(head)[2]:
            if self.end == "killed" and self._zeros_from(offset + _BLOCK.size):
                raise RecordingError("cut", "%s %s" % (self.path, self.problem))
            raise RecordingError("damaged", "%s is damaged: block %d at byte %d: its checksum does not match"
                                 % (self.path, _BLOCK.unpack_from(head)[9] if len(head) >= _BLOCK.size else 0, offset))
        return head[_BLOCK.size:]


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            return at, value & 0xffffffffffffffff
        shift += 7


def _signed(data: bytes, at: int) -> tuple[int, int]:
    at, value = _number(data, at)
    return at, value >> 1 ^ -(value & 1)


def _text(data: bytes, at: int) -> tuple[int, str]:
    at, length = _number(data, at)
    if at + length > len(data):
        raise IndexError
    return at + length, clean(data[at:at + length].decode("utf-8", "replace"), 1024)


def _value(data: bytes, at: int, type_: int) -> tuple[int, int]:
    if type_ == NONE:
        return at, 0
    if type_ == SIGNED:
        at, value = _signed(data, at)
        return at, value & 0xffffffffffffffff
    if type_ == UNSIGNED:
        return _number(data, at)
    size = 4 if type_ == FLOAT else 8
    if at + size > len(data) or type_ > BYTES:
        raise IndexError
    return at + size, int.from_bytes(data[at:at + size], "little")


def _put(table: list, count: int, size: int, entry) -> int:
    if len(table) < size:
        table.append(entry)
    else:
        table[count % size] = entry
    return count + 1


def _decode(data: bytes, number: int, started: int):
    """The items of one segment. IndexError: not what a writer makes."""
    at, end, step, completed = 0, len(data), 0, started
    shapes, sites, comms, names, objects, logged = [], [], [], [], [], []
    last = {}  # last shape of a site's number
    clocks = [0] * CLOCKS
    shape_count = site_count = comm_count = logged_count = 0
    from_bytes = int.from_bytes
    while at < end:
        token = data[at]
        at += 1
        if token <= 0xc1:
            if token < _DIRECT:
                shape = shapes[token]
            elif token == _DIRECT:
                at, index = _number(data, at)
                shape = shapes[index + _DIRECT]
            else:
                at, place = _number(data, at)
                fields = data[at]
                at += 1
                site = sites[place]
                call, flags, comm, peer, tag, size, in_type, out_type = last.get(place) or (None, 0, 0, 0, 0, 0, 0, 0)
                if fields & 1:
                    at, index = _number(data, at)
                    call = names[index]
                if fields & 2:
                    at, flags = _number(data, at)
                if fields & 4:
                    at, index = _number(data, at)
                    comm = comms[index]
                if fields & 8:
                    at, change = _signed(data, at)
                    peer += change
                if fields & 16:
                    at, change = _signed(data, at)
                    tag += change
                if fields & 32:
                    at, change = _signed(data, at)
                    size = (size + change) & 0xffffffffffffffff
                if fields & 64:
                    in_type, out_type = data[at] >> 4, data[at] & 15
                    at += 1
                if call is None:
                    raise IndexError
                last[place] = (call, flags, comm, peer, tag, size, in_type, out_type)
                shape = Shape(call, flags, comm, peer, tag, size, in_type, out_type, fields >> 7, site)
                shape_count = _put(shapes, shape_count, SHAPES, shape)
            number += 1
            count, in_, out, ordinal = 1, 0, 0, 0
            if shape[8]:
                at, count = _number(data, at)
            type_ = shape[6]
            if type_:
                if type_ < FLOAT:
                    in_ = from_bytes(data[at:at + 8], "little")
                    at += 8
                else:
                    at, in_ = _value(data, at, type_)
            type_ = shape[7]
            if type_:
                if type_ < FLOAT:
                    out = from_bytes(data[at:at + 8], "little")
                    at += 8
                else:
                    at, out = _value(data, at, type_)
            if at > end:
                raise IndexError
            if shape[1] & CALL_STARTED:
                ordinal = started + 1
                started += count
            yield Call(CALL, number, shape, step, count, ordinal, in_, out)
        elif token >= 0xd0:
            type_, flags, stream, source, tag, size = token & 7, 0, 0, 0, 0, 0
            completed += 1
            if token >= 0xe0:
                raise IndexError
            if token >= 0xd8:
                flags = data[at]
                at, change = _signed(data, at + 1)
                completed = (completed + change) & 0xffffffffffffffff
                if flags & _COMPLETION_STREAM:
                    at, stream = _number(data, at)
                if flags & COMPLETION_MATCH:
                    at, source = _signed(data, at)
                    at, tag = _signed(data, at)
                if flags & COMPLETION_BYTES:
                    at, size = _number(data, at)
                flags &= ~_COMPLETION_STREAM
            at, digest = _value(data, at, type_)
            yield Completion(COMPLETION, number, completed, type_, digest, flags, stream, source, tag, size)
        elif token == 0xc2:
            at, change = _signed(data, at)
            step = (step + change) & 0xffffffff
        elif token == 0xc3:
            at, text = _text(data, at)
            names.append(text)
        elif token == 0xc4:
            at, text = _text(data, at)
            objects.append(text)
        elif token == 0xc5:
            at, index = _number(data, at)
            at, place = _number(data, at)
            last.pop(site_count % SITES, None)
            site_count = _put(sites, site_count, SITES, (objects[index - 1], place) if index else ("", 0))
        elif token == 0xc6:
            comm_count = _put(comms, comm_count, COMMS, from_bytes(data[at:at + 8], "little"))
            at += 8
        elif token == 0xc7:
            at, text = _text(data, at)
            logged_count = _put(logged, logged_count, LOGGED, text)
        elif token == 0xc8:
            at, _ = _text(data, at)
            at, _ = _number(data, at)
            at, _ = _number(data, at)
        elif token == 0xc9:
            what = data[at]
            at += 1
            index = source = tag = size = None
            if what & OUTCOME_INDEX:
                at, index = _signed(data, at)
            if what & OUTCOME_MATCH:
                at, source = _signed(data, at)
                at, tag = _signed(data, at)
            if what & OUTCOME_BYTES:
                at, size = _number(data, at)
            yield Outcome(OUTCOME, number, bool(what & _OUTCOME_TRUE) if what & OUTCOME_FLAG else None, index, source,
                          tag, size)
        elif token == 0xca:
            at, length = _number(data, at)
            if length > MAX_INDICES:
                raise IndexError
            found, index = [], 0
            for _ in range(length):
                at, change = _signed(data, at)
                index += change
                found.append(index)
            yield Indices(INDICES, number, tuple(found))
        elif token == 0xcb:
            what = data[at]
            at, index = _number(data, at + 1)
            at, bits = _value(data, at, what & 15)
            yield Value(VALUE, number, LOGGED_NAMES[what >> 4], logged[index], what & 15, bits)
        elif token in (0xcd, 0xce):
            clock = 0
            if token == 0xce:
                clock = data[at]
                at += 1
                if not 0 < clock < CLOCKS:
                    raise IndexError
            at, change = _signed(data, at)
            clocks[clock] = (clocks[clock] + change) & 0xffffffffffffffff
            name, type_ = _CLOCKS[clock] if clock < len(_CLOCKS) else ("clock_gettime(%d)" % (clock - len(_CLOCKS)), SIGNED)
            bits = clocks[clock]
            yield Value(VALUE, number, "time", name, type_, bits - (bits >> 63 << 64) if type_ == SIGNED else bits)
        elif token == 0xcc:
            at, text = _text(data, at)
            yield Text(TEXT, number, text)
        else:
            raise IndexError
    if at != end:
        raise IndexError
