# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tool's tests: synthetic rings and reports, a private ring directory, fake ranks.
Touches temporary directories and the processes that it starts itself."""

import contextlib
import faulthandler
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(ROOT, "scripts", "resil")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "scripts"))

from resil_tool import cli, layout, process  # noqa: E402

HOST = os.uname().nodename
RATE = 1e9  # ticks a second in synthetic rings
CALLS = ["MPI_Init", "MPI_Send", "MPI_Recv", "MPI_Allreduce", "MPI_Barrier"]
LIMIT_SECONDS = 120


def limit_time():
    """For setUpModule: a test module that hangs dies with a stack trace."""
    faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)


def release_time():
    faulthandler.cancel_dump_traceback_later()


def record(call, age, now, seconds=0.0, state=layout.RECORD_DONE, comm=1, peer=layout.K_NO_PEER, tag=layout.K_NO_TAG,
           sequence=0, site=0, bytes_=0, repeat=1, flags=0):
    """One record, `age` seconds old; times are ticks; the ring starts at second 1 and was synchronised at 1001."""
    del now
    return layout.RECORD.pack(time=int((1001 - age) * RATE), duration=seconds * RATE, call=CALLS.index(call),
                              state=state, flags=flags, comm=comm, peer=peer, tag=tag, repeat=repeat, bytes=bytes_,
                              site=site, sequence=sequence)


def ring_bytes(rank=0, size=1, pid=2, start=0, world=0, directory="", job="job", phase=1, host=HOST, records=(),
               inside=False, counters=None, peers=(), modules=(), requests=(), now=None, lanes=1,
               version=layout.VERSION, held=0, namespace=0, room=None, term=None, kept=None):
    """A well-formed ring with one used lane. kept: how many records it keeps, if not all. counters: name: (count, seconds, bytes). room: section: entries, if more.
    term: name, pid and signal of who ended it, at `now`."""
    now = time.time() if now is None else now
    body, sections, offset = [], [], layout.HEADER_RESERVED

    def section(name, entry, entries, data):
        nonlocal offset
        entries = max(entries, (room or {}).get(name, 0))
        sections.append(layout.SECTION.pack(name=name, offset=offset, bytes=entry * entries, entry_bytes=entry,
                                            entries=entries))
        body.append(data.ljust(entry * entries, b"\0"))
        offset += entry * entries

    lane = bytearray(layout.LANE.size)
    head = layout.LANE.pack(state=layout.LANE_LIVE, tid=pid, head=len(records), calls=len(records),
                            current=len(records) if inside else 0, name="main", last_place=kept - 1 if kept else 0)
    kept = kept or layout.K_RECORDS_PER_LANE
    lane[:layout.LANE_HEAD_BYTES] = head[:layout.LANE_HEAD_BYTES]
    for name, (count, seconds, bytes_) in (counters or {}).items():
        at = layout.LANE.offsets["counters"] + CALLS.index(name) * layout.COUNTER.size
        lane[at:at + layout.COUNTER.size] = layout.COUNTER.pack(count=count, ticks=seconds * RATE, bytes=bytes_)
    every_peer = [layout.PEER.pack(rank=peer, sent_messages=a, sent_bytes=b, received_messages=c, received_bytes=d)
                  for peer, a, b, c, d in peers]
    every_peer += [layout.PEER.pack(rank=-1)] * (layout.K_PEER_ENTRIES - len(every_peer))
    at = layout.LANE.offsets["peers"]
    lane[at:at + layout.K_PEER_ENTRIES * layout.PEER.size] = b"".join(every_peer)
    for i, one in enumerate(records):
        at = layout.LANE.offsets["records"] + i % kept * layout.RECORD.size
        lane[at:at + layout.RECORD.size] = one
    section("lanes", layout.LANE.size, lanes, bytes(lane))
    section("comms", layout.COMM.size, 4, layout.COMM.pack() + layout.COMM.pack(
        id=7, size=size, rank=rank, remote_size=-1, name="MPI_COMM_WORLD"))
    section("requests", layout.REQUEST.size, 8, b"".join(requests))
    section("modules", layout.MODULE.size, 4, b"".join(
        layout.MODULE.pack(start=a, end=b, base=c, path=path) for a, b, c, path in modules))
    section("calls", layout.CALL_NAME.size, len(CALLS), b"".join(layout.CALL_NAME.pack(name=n) for n in CALLS))
    section("names", layout.NAME.size, 2, b"")
    if "hang" in (room or {}):  # of a module: not of all jobs
        section("hang", 8, 0, b"")
    header = layout.HEADER.pack(
        magic=layout.MAGIC, version=version, header_bytes=layout.HEADER_RESERVED, file_bytes=offset, rank=rank,
        world_size=size, pid=pid, world=world, host=host, job=job, directory=directory, executable="/opt/app",
        mpi="Test MPI 1.0", resil_version="0", phase=phase, ticks_start=int(RATE),
        realtime_start_ns=int((now - 1000) * 1e9),
        ticks_sync=int(1001 * RATE), realtime_sync_ns=int(now * 1e9), ticks_per_second=RATE,
        term_ticks=int(1001 * RATE) if term else 0, term_sender=term[0] if term else "", term_pid=term[1] if term else 0,
        term_signal=term[2] if term else 0, section_count=len(sections), held=held, pid_namespace=namespace, pid_start_lo=start & 0xffffffff, pid_start_hi=start >> 32)
    at, room = layout.HEADER.offsets["sections"], layout.SECTION_COUNT * layout.SECTION.size
    header = header[:at] + b"".join(sections).ljust(room, b"\0") + header[at + room:]
    return header.ljust(layout.HEADER_RESERVED, b"\0") + b"".join(body)


def report_object(rank=0, size=1, outcome="finished", **members):
    value = {
        "schema_version": 1, "rank": rank, "world_size": size, "world": 0, "host": HOST, "pid": NO_PROCESS + rank,
        "outcome": outcome, "exit_status": 0, "resil_version": "0.1.0",
        "mpi": {"library": "Test MPI 1.0", "abi": "test"}, "modes": "watch", "executable": "/opt/app",
        "ring": "", "ring_anonymous": False, "start_time": 1.7e9, "elapsed_seconds": 10.0,
        "config": {"RESIL_MODE": "watch", "RESIL_SIGNAL": "HUP"},
        "calls": {"MPI_Send": {"count": 10, "seconds": 1.0 + rank, "bytes": 4096},
                  "MPI_Allreduce": {"count": 5, "seconds": 0.5, "bytes": 40}},
        "peers": [{"rank": (rank + 1) % max(size, 1), "sent_messages": 10, "sent_bytes": 4096 + rank,
                   "received_messages": 10, "received_bytes": 4096}],
        "uncovered": {"untracked_requests": 0, "unrecorded_calls": 0}, "findings": [], "notes": []}
    value.update(members)
    return value


# A number beyond any process id (4,194,304 at most): what has it is gone, and a job of such a number is no process.
NO_PROCESS = 50000000


class Case(unittest.TestCase):
    """A report directory, a private ring directory, and the tool run in this process or as a command."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.top = os.path.realpath(holder.name)
        self.directory = os.path.join(self.top, "resil-4711.0")
        self.shm = os.path.join(self.top, "shm")
        os.mkdir(self.directory)
        os.mkdir(self.shm)
        old = dict(os.environ)
        os.environ["RESIL_TOOL_SHM_DIR"] = self.shm
        for name in ("SLURM_JOB_ID", "PBS_JOBID"):
            os.environ.pop(name, None)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(old)))

    def write(self, name, data, place=None):
        path = os.path.join(place or self.directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not isinstance(data, bytes):
            data = (data if isinstance(data, str) else json.dumps(data)).encode()
        with open(path, "wb") as file:
            file.write(data)
        return path

    def report(self, **members):
        return self.write("rank-%05d.json" % members.get("rank", 0), report_object(**members))

    def live_ring(self, name="resil-%d-job-0-%d.ring", **members):
        members.setdefault("directory", self.directory)
        return self.write(name % (os.geteuid(), members.get("rank", 0)), ring_bytes(**members), self.shm)

    def tool(self, *arguments, directory=None):
        """(exit status, standard output, standard error) of scripts/resil, in a fork of this process: a new interpreter costs
        ten times as much."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            pid = os.fork()
            if pid == 0:
                _be_the_tool(arguments, directory or self.top, out, err)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            return status, *(os.pread(stream.fileno(), os.fstat(stream.fileno()).st_size, 0).decode() for stream in (out, err))

    def command(self, *arguments, directory=None):
        """The same from the file that users start."""
        done = subprocess.run([sys.executable, TOOL] + list(arguments), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=600,
                              cwd=directory or self.top, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()


def _be_the_tool(arguments, directory, out, err):
    """In the child of a fork; does not return."""
    status = 1
    try:
        signal.alarm(LIMIT_SECONDS)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        sys.stdin, sys.stdout, sys.stderr = open(0, "r"), open(1, "w"), open(2, "w")  # pylint: disable=all
        os.chdir(directory)
        status = cli.main(list(arguments))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            sys.stderr.write(end.code + "\n")
    except BaseException:  # pylint: disable=broad-except
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def captured(function, *arguments, **named):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = function(*arguments, **named)
    return result, out.getvalue()


class FakeRank:
    """A process like a rank: maps a file named libresil.so and its ring, catches the signal, writes dump files. Ends
    when its standard input closes, so it cannot outlive the test."""

    def __init__(self, case, rank=0, size=1, options=(), environment=None, parent=None):
        self.library = os.path.join(case.top, "libresil.so")
        if not os.path.exists(self.library):
            case.write("libresil.so", bytes(4096), case.top)
        self.ring = os.path.join(case.shm, "resil-%d-job-0-%d.ring" % (os.geteuid(), rank))
        command = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_rank.py"),
                   self.library, self.ring, case.directory, str(rank), str(size)] + list(options)
        self.process = subprocess.Popen((parent or []) + command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=dict(os.environ, **(environment or {})))
        case.addCleanup(self.close)
        self.pid = int(self.process.stdout.readline().split()[1])
        self.start = process.stat(self.pid)[2]

    def signals(self):
        """How many signals it has caught."""
        self.process.stdin.write(b"count\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def lives(self):
        return self.process.poll() is None and process.alive(self.pid, self.start)

    def close(self):
        with contextlib.suppress(OSError):
            os.kill(self.process.pid, 18)  # SIGCONT: a stopped one cannot read the end of its input
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
