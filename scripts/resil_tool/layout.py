# SPDX-License-Identifier: Apache-2.0
"""Layout of rank-NNNNN.ring: the Python mirror of shim/ring/ring_format.h.

tests/tools/test_ring_layout.py compiles the header and compares every offset, size, constant and enumerator with
this file: after an edit there, edit here. Touches no file.
"""

from __future__ import annotations

import collections
import struct

MAGIC = 0x474E524C49534552
VERSION = 1

K_NO_PEER = -32768
K_ANY_SOURCE = -1
K_PROC_NULL = -2
K_ROOT_SELF = -3
K_NO_TAG = -32768
K_ANY_TAG = -1
K_MAX_CALLS = 704
K_PEER_ENTRIES = 128
K_RECORDS_PER_LANE = 2048
K_RECORDS_OF_FURTHER = 256

PHASES = ("starting", "running", "finalizing", "finished", "aborted", "stopped")
RECORD_OPEN, RECORD_DONE, RECORD_STEP, RECORD_NORM, RECORD_CHECKSUM, RECORD_COUNT = range(6)
FLAG_FAILED, FLAG_FOLDED, FLAG_CALLBACK, FLAG_UNTIMED = 1, 2, 4, 8
LANE_FREE, LANE_LIVE, LANE_ENDED = range(3)
REQUEST_PERSISTENT, REQUEST_ACTIVE, REQUEST_PARTITIONED, REQUEST_POSTED_LATER = 1, 2, 4, 8
REQUEST_KINDS = ("none", "send", "receive", "collective", "rma", "io", "communicator", "generalized")

CONSTANTS = {  # name in the header: value here; compared by the drift test
    "kMagic": MAGIC, "kVersion": VERSION, "kNoPeer": K_NO_PEER, "kAnySource": K_ANY_SOURCE,
    "kProcNull": K_PROC_NULL, "kRootSelf": K_ROOT_SELF, "kNoTag": K_NO_TAG, "kAnyTag": K_ANY_TAG,
    "kMaxCalls": K_MAX_CALLS, "kPeerEntries": K_PEER_ENTRIES, "kRecordsPerTrace": K_RECORDS_PER_LANE, "kRecordsOfFurther": K_RECORDS_OF_FURTHER,
    "kRequestBucket": 8, "kRequestReach": 4,
    "Phase::kStarting": 0, "Phase::kRunning": 1, "Phase::kFinalizing": 2, "Phase::kFinished": 3,
    "Phase::kAborted": 4, "Phase::kStopped": 5, "RecordState::kOpen": RECORD_OPEN,
    "RecordState::kDone": RECORD_DONE, "RecordState::kStep": RECORD_STEP, "RecordState::kNorm": RECORD_NORM,
    "RecordState::kChecksum": RECORD_CHECKSUM, "RecordState::kCount": RECORD_COUNT, "kFailed": FLAG_FAILED,
    "kFolded": FLAG_FOLDED, "kCallback": FLAG_CALLBACK, "kUntimed": FLAG_UNTIMED, "TraceState::kFree": LANE_FREE,
    "TraceState::kLive": LANE_LIVE, "TraceState::kEnded": LANE_ENDED, "RequestKind::kNone": 0, "RequestKind::kSend": 1,
    "RequestKind::kReceive": 2, "RequestKind::kCollective": 3, "RequestKind::kRma": 4, "RequestKind::kIo": 5,
    "RequestKind::kCommunicator": 6, "RequestKind::kGeneralized": 7, "kPersistent": REQUEST_PERSISTENT,
    "kActive": REQUEST_ACTIVE, "kPartitioned": REQUEST_PARTITIONED, "kPostedLater": REQUEST_POSTED_LATER,
}

SIZES = {"Q": 8, "q": 8, "d": 8, "I": 4, "i": 4, "f": 4, "H": 2, "B": 1}


class Layout:
    """A plain C struct with natural alignment, little-endian. `fields`: text, one "type name" or "type[n] name" a
    line; types are struct codes, s[n] is a character array, opaque[n] takes no part in reading (nested arrays), with
    its alignment after '@'."""

    def __init__(self, name: str, fields: str):
        self.name = name
        self.offsets: dict[str, int] = {}
        format_, read, position, widest = "<", [], 0, 1
        for line in fields.split("\n"):
            if not line.strip():
                continue
            kind, field = line.split()
            kind, _, align_text = kind.partition("@")
            code, _, count_text = kind.rstrip("]").partition("[")
            count = int(count_text) if count_text else 1
            align = int(align_text) if align_text else SIZES.get(code, 1)
            size = count * SIZES.get(code, 1)
            gap = -position % align
            format_ += "%dx" % gap
            position += gap
            self.offsets[field] = position
            if code == "s":
                format_ += "%ds" % count
            elif count_text:  # arrays of numbers are reserved space or read by their own layout
                format_ += "%dx" % size
            else:
                format_ += code
            if code == "s" or not count_text:
                read.append(field)
            position += size
            widest = max(widest, align)
        tail = -position % widest
        self.struct = struct.Struct(format_ + "%dx" % tail)
        self.size = self.struct.size
        self.type = collections.namedtuple(name, read)

    def unpack(self, data: bytes, offset: int = 0):
        """A named tuple; character arrays become text up to the first NUL. struct.error when `data` is too short."""
        return self.type._make(text_of(value) if isinstance(value, bytes) else value
                               for value in self.struct.unpack_from(data, offset))

    def pack(self, **values) -> bytes:
        """The inverse of unpack; what is not named is zero. For tests and tools that make rings."""
        packed = []
        for field in self.type._fields:
            value = values.pop(field, None)
            if isinstance(value, str):
                value = value.encode()
            packed.append(value if value is not None else self._zero(field))
        if values:
            raise KeyError("%s has no field %s" % (self.name, ", ".join(values)))
        return self.struct.pack(*packed)

    def _zero(self, field: str):
        sample = self.type._make(self.struct.unpack(bytes(self.size)))
        return getattr(sample, field)


def text_of(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


SECTION = Layout("Section", """
s[16] name
Q offset
Q bytes
I entry_bytes
I entries
""")

SECTION_COUNT = 16

HEADER = Layout("Header", """
Q magic
I version
I header_bytes
Q file_bytes
i rank
i world_size
i pid
i world
s[64] host
s[64] job
s[1024] directory
s[256] executable
s[128] mpi
s[32] resil_version
I phase
I exit_status
Q ticks_start
Q realtime_start_ns
Q ticks_sync
Q realtime_sync_ns
d ticks_per_second
Q untracked_requests
Q unrecorded_calls
I dumps
I section_count
I pid_start_lo
I pid_start_hi
opaque[%d]@8 sections
Q pid_namespace
Q term_ticks
i term_pid
I term_signal
s[16] term_sender
Q nonce
s[24] launch
I launch_agreed
I held
Q view
I fed
""" % (SECTION_COUNT * SECTION.size))

HEADER_RESERVED = 4096

RECORD = Layout("Record", """
Q time
f duration
H call
B state
B flags
I comm
i peer
i tag
I repeat
Q bytes
Q site
Q sequence
Q aux
""")

COUNTER = Layout("CallCounter", """
Q count
d ticks
Q bytes
""")

PEER = Layout("PeerCounter", """
i rank
I reserved
Q sent_messages
Q sent_bytes
Q received_messages
Q received_bytes
""")

LANE = Layout("TraceBuffer", """
I state
i tid
Q head
Q calls
Q current
Q step
I step_name
I depth
s[16] name
Q last_place
Q[6] reserved
opaque[%d]@8 counters
opaque[%d]@8 peers
opaque[%d]@64 records
""" % (K_MAX_CALLS * COUNTER.size, K_PEER_ENTRIES * PEER.size, K_RECORDS_PER_LANE * RECORD.size))

LANE_HEAD_BYTES = LANE.offsets["counters"]

COMM = Layout("Comm", """
Q id
Q collectives
Q handle
i size
i rank
i remote_size
I flags
H last_collective
H unnamed
I generation
Q ordered
Q was
Q site
s[56] name
""")

REQUEST = Layout("Request", """
Q key
Q time
Q site
Q bytes
I serial
I comm
i peer
i tag
H call
B kind
B flags
I trace
Q cleanup
""")

MODULE = Layout("Module", """
Q start
Q end
Q base
s[232] path
""")

CALL_NAME = Layout("CallName", """
s[48] name
""")

NAME = Layout("Name", """
s[64] name
""")

LAYOUTS = (SECTION, HEADER, RECORD, COUNTER, PEER, LANE, COMM, REQUEST, MODULE, CALL_NAME, NAME)
