# SPDX-License-Identifier: Apache-2.0
"""A process that looks like a rank to scripts/resil. Options take single properties away:
no-handler, no-library, no-ring-map, no-ring, silent (catches and writes nothing), wrong-start, partial (half a dump,
never counted), exec (becomes another program after the ring was made). Answers "count" with the signals caught."""

import mmap
import os
import signal
import struct
import sys

import support
from resil_tool import layout, process

library, ring_path, directory, rank, size = sys.argv[1:6]
options = sys.argv[6:]
rank, size = int(rank), int(size)
caught = 0
ring = None
number = process.signal_number(os.environ.get("FAKE_SIGNAL", "HUP"))
dumps_at = layout.HEADER.offsets["dumps"]


def on_signal(*_):
    global caught
    caught += 1
    if "silent" in options:
        return
    done = struct.unpack_from("<I", ring, dumps_at)[0]
    with open(os.path.join(directory, "dump-%05d-%d.txt" % (rank, done)), "w") as file:
        file.write("rank %d of %d (%s, pid %d): in MPI_Recv from rank 1, called at app+0x10\nmore\n"
                   % (rank, size, support.HOST, os.getpid()))
        file.write("  app at 0x1000: %s\n" % os.environ.get("FAKE_OBJECT", "/nonexistent/app"))
    if "partial" not in options:
        struct.pack_into("<I", ring, dumps_at, done + 1)


def map_file(path, writable):
    with open(path, "r+b" if writable else "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)


held = []
if "no-library" not in options:
    held.append(map_file(library, False))
if "no-ring" not in options:
    start = process.stat(os.getpid())[2] + (1 if "wrong-start" in options else 0)
    recv = support.record("MPI_Recv", 12, None, state=layout.RECORD_OPEN, peer=1, tag=7)
    with open(ring_path, "wb") as file:
        file.write(support.ring_bytes(rank=rank, size=size, pid=os.getpid(), start=start, directory=directory,
                                      records=[recv], inside=True))
    if "no-ring-map" not in options:
        ring = map_file(ring_path, True)
if "exec" in options:  # the shell catches the signal, has the library in its environment only
    os.execvp("sh", ["sh", "-c", "trap 'echo died' HUP; echo ready $$; read line"])
if "no-handler" not in options:
    signal.signal(number, on_signal)
print("ready %d" % os.getpid(), flush=True)
for line in sys.stdin:
    print(caught, flush=True)
