#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the readers of scripts/resil: reports, rings, recordings. A case is a list of changes to a good report
directory, ring directory or recording; no change of it may end the tool with a traceback, keep it waiting, make it
signal or remove anything, or call a damaged recording equal to the good one.

tool_fuzzer.py [--seconds N] [--cases N] [--seed N] [--replay DIR] [--keep DIR] [TARGET...]

Cases follow from the seed. What fails is printed as a line "FOUND ..." and, with --keep, kept as a file of --replay's
form. Not guided by coverage: Debian 12 has no such fuzzer for Python (docs/DEPENDENCIES.md).
"""
import argparse
import contextlib
import copy
import io
import json
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORPUS = os.path.join(ROOT, "tests", "fuzz", "corpus")
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "scripts"), os.path.join(ROOT, "tests", "tools")]

import support  # noqa: E402
from resil_tool import cli, layout, recording  # noqa: E402

LIMIT_SECONDS = 240  # of one command, milliseconds usually
HOSTILE = [None, True, False, 0, -1, 1, 2**31, -2**31, 2**63, 2**64, 10**400, 1e300, 1e308, -1e308, 0.5, float("nan"),
           float("inf"), "", "x" * 3000, "\x1b[31mred\x07", "‮\u0085", "\ud800", "../../etc", "a\nb", [], {}, [[]], {"": ""},
           [None], ["x"] * 50, [{"rank": 0}], {"count": 1}, {"a": {"b": {"c": []}}}, "running", "finished", "nan", 93]
NUMBERS = [0, 1, 2, 7, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 2**63 - 1, 2**63, 2**64 - 1,
           0x3ff0000000000000, 0x7ff0000000000000, 0x7ff8000000000000]
KINDS = ("fifo", "loop", "directory", "empty", "zeros", "unreadable", "null", "dangling")


class Failure(Exception):
    """Something that must not be."""


# -- changes ----------------------------------------------------------------------------------------------------------

def places(value, path=()):
    """Every node of a JSON value, as a path of keys."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in inner:
        yield from places(member, path + (key,))


def change_json(random_, value):
    path = random_.choice(list(places(value)))
    kind = random_.choice(("set", "set", "set", "remove", "rename", "repeat"))
    new = random_.choice(HOSTILE)
    return [kind, list(path), new if not isinstance(new, float) else ["float", repr(new)]]


def apply_json(value, kind, path, new):
    if isinstance(new, list) and len(new) == 2 and new[0] == "float":
        new = float(new[1])
    if not path:
        return new if kind == "set" else value
    at = value
    for key in path[:-1]:
        if not isinstance(at, (dict, list)) or (isinstance(at, dict) and key not in at) or (
                isinstance(at, list) and not (isinstance(key, int) and key < len(at))):
            return value
        at = at[key]
    key = path[-1]
    if isinstance(at, list) and isinstance(key, int) and key < len(at):
        if kind == "remove":
            del at[key]
        elif kind == "repeat":
            at += [copy.deepcopy(at[key])] * 20
        else:
            at[key] = new
    elif isinstance(at, dict):
        if kind == "remove":
            at.pop(key, None)
        elif kind == "rename":
            at[str(new)[:20]] = at.pop(key, None)
        else:
            at[key] = new
    return value


def change_bytes(random_, size, spots=()):
    """One change of a file of that size; `spots`: (offset, width) of numbers worth changing."""
    kind = random_.choice(("number", "number", "number", "flip", "cut", "zero", "insert", "random"))
    at = random_.randrange(max(1, size))
    if spots and kind == "number":
        at, width = random_.choice(spots)
        value = random_.choice(NUMBERS) if random_.random() < 0.7 else random_.getrandbits(64)
        return ["write", at, (value & (2**(8 * width) - 1)).to_bytes(width, "little").hex()]
    if kind == "cut":
        return ["cut", at, ""]
    if kind == "zero":
        return ["write", at, "00" * random_.choice((1, 8, 64, 600))]
    if kind == "insert":
        return ["insert", at, random_.randbytes(random_.randrange(1, 40)).hex()]
    return ["write", at, random_.randbytes(1 if kind == "flip" else random_.randrange(1, 24)).hex()]


def apply_bytes(data, kind, at, text):
    piece = bytes.fromhex(text)
    if kind == "cut":
        return data[:at]
    if kind == "insert":
        return data[:at] + piece + data[at:]
    return data[:at] + piece[:max(0, len(data) - at)] + data[at + len(piece):]


def make_kind(path, kind):
    """Another kind of file in its place."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        os.symlink(os.path.basename(path), path)
    elif kind == "dangling":
        os.symlink("/nowhere/at/all", path)
    elif kind == "null":
        os.symlink("/dev/zero", path)
    elif kind == "directory":
        os.mkdir(path)
    else:
        with open(path, "wb") as file:
            file.write(bytes(5000) if kind == "zeros" else b"")
        if kind == "unreadable":
            os.chmod(path, 0)


# -- what is fuzzed ---------------------------------------------------------------------------------------------------

def ring_spots(data):
    """Numbers of a ring that readers look at: header, section table, heads of entries."""
    spots = []
    for name, offset in layout.HEADER.offsets.items():
        spots.append((offset, 8 if name in ("magic", "file_bytes", "pid_namespace", "ticks_per_second") else 4))
    sections = layout.HEADER.offsets["sections"]
    for i in range(6):
        base = sections + i * layout.SECTION.size
        spots += [(base + layout.SECTION.offsets[name], width)
                  for name, width in (("offset", 8), ("bytes", 8), ("entry_bytes", 4), ("entries", 4))]
        start = layout.SECTION.unpack(data, base).offset
        spots += [(start + 8 * k, 8) for k in range(16)] + [(start + 4 * k, 4) for k in range(32)]
    lanes = layout.HEADER_RESERVED
    spots += [(lanes + layout.LANE.offsets[part] + 8 * k, 8) for part in ("counters", "peers", "records") for k in range(32)]
    return spots


class Reports:
    """rank-*.json, hang-*.json, node-*.jsonl, job.json, rank-*.ring and dumps of one report directory."""

    name = "tool-report"
    statuses = {0, 1, 2, 3}

    def __init__(self):
        now = 1.7e9
        finding = {"kind": "collective_mismatch", "class": "deadlock", "confidence": "proved", "culprit_ranks": [1],
                   "victim_ranks": [0], "message": "rank 1 waits", "evidence": {"call": "MPI_Recv", "count": 3}}
        checksum = {"messages_checked": 5, "messages_uncovered": {"datatype": 2}, "unverified": 1, "faults_injected": {"flip": 1},
                    "bytes_checked": 100, "mismatches": 1}
        self.objects = {
            "rank-00000.json": support.report_object(size=3, findings=[finding], checksum=checksum, reductions={"order": 3},
                                                     staging={"messages": 3}, notes=["one"], peers=[{"rank": 1, "sent_messages": 3}]),
            "rank-00001.json": support.report_object(rank=1, size=3, outcome="aborted", exit_status=7),
            "rank-00002.json": support.report_object(rank=2, size=3, outcome="running", pid=99999999),
            "hang-0.json": dict(finding, schema_version=1, ranks=[{"rank": 0, "call": "MPI_Recv"}], time=now),
            "hang-1.json": dict(finding, schema_version=1, time_ns=17 * 10**17, unanswered=[2], evidence=[
                "core: ranks 0-1", "peer: rank 0", "rank 1: MPI_Recv from rank 0, tag 9, on MPI_COMM_WORLD at app+0x10, for 1.4 s; message 1, sent 0",
                "ranks 0,2: call 4 of MPI_Barrier on MPI_COMM_WORLD at app+0x20, for 1.4 s"], ranks=[
                {"rank": 0, "state": "blocked", "call": "MPI_Barrier", "sequence": 4}, {"rank": 2, "state": "computing"}]),
            "stacks-0.json": {"schema_version": 1, "of": "hang-0.json", "ranks": 3, "threads": 4, "unread": 1, "left_out": 0, "samples": 4, "stacks": [
                {"ranks": "0,2-3", "count": 3, "threads": 3, "steady": True, "sleeps": False, "complete": True, "frames": ["app+0x10", "app+0x20"]},
                {"ranks": "1", "count": 1, "threads": 1, "steady": False, "sleeps": True, "complete": False, "frames": ["libc.so.6+0x30"]}]},
            "job.json": {"schema_version": 1, "findings": [finding], "notes": ["a note"]},
            "node-a.jsonl": support.report_object(rank=0, size=3),
            "world-1/rank-00000.json": support.report_object(world=1),
        }
        record = support.record("MPI_Recv", 5, now, state=layout.RECORD_OPEN, peer=1, tag=3)
        self.ring = support.ring_bytes(rank=2, size=3, pid=99999999, start=5, records=[record], inside=True, now=now,
                                       counters={"MPI_Send": (3, 0.5, 80)}, peers=[(1, 1, 2, 3, 4)])
        self.spots = ring_spots(self.ring)
        self.texts = {
            "dump-00000-0.txt": b"rank 0 of 3\nThreads: 1\n  Thread 5 (app), the main thread, writes this dump\n    #0 app+0x10\n    #1 main+0x4\n"
                                b"\nObjects\n  app at 0x1000: /opt/app\n",
            "hang.log": b"1700000000000000000 launch 0123456789abcdef\n1700000001000000000 notice Rank 1 is outside MPI.\n",
            "hang-trace.txt": b"10.0 1 4 5 0 0.0 0.0\n10.5 2 4 6 0 0 0\n11 3 4 9\n"}
        self.files = list(self.objects) + ["rank-00002.ring"] + list(self.texts)

    def change(self, random_):
        name = random_.choice(self.files)
        if random_.random() < 0.06:
            return ["kind", name, random_.choice(KINDS)]
        if random_.random() < 0.03:
            return ["kind", random_.choice(("rank-99999.json", "hang-9.json", "rank-00007.ring", "node-b.jsonl", "world-2", "job.json",
                                            "rank-00001.ring", "job-presence", "dump-pid3-0.txt")), random_.choice(KINDS)]
        if name in self.objects and random_.random() < 0.85:
            return ["json", name, *change_json(random_, self.objects[name])]
        size = len(self.ring) if name.endswith(".ring") else 300
        return ["bytes", name, *change_bytes(random_, size, self.spots if name.endswith(".ring") else ())]

    def prepare(self, place, changes):
        objects, data = copy.deepcopy(self.objects), dict(self.texts, **{"rank-00002.ring": self.ring})
        for what, name, *rest in changes:
            if what == "json" and name in objects:
                objects[name] = apply_json(objects[name], *rest)
        for name, value in objects.items():
            data[name] = json.dumps(value).encode("utf-8", "surrogatepass")
        for what, name, *rest in changes:
            if what == "bytes" and name in data:
                data[name] = apply_bytes(data[name], *rest)
        directory = os.path.join(place, "resil-4711.0")
        os.makedirs(os.path.join(directory, "world-1"))
        for name, content in data.items():
            with open(os.path.join(directory, name), "wb") as file:
                file.write(content)
        for what, name, *rest in changes:
            if what == "kind":
                make_kind(os.path.join(directory, name), *rest)
        return [["report", directory], ["report", "--json", directory], ["dump", directory], ["html", "--output", "-", directory],
                ["graph", "--dot", directory], ["graph", directory], ["hosts", "--json", directory], ["export", "--perfetto", directory],
                ["export", "--jsonl", directory], ["export", "--prometheus", directory], ["export", "--csv", directory],
                ["graph", "--stacks", "--dot", directory], *(["show", *more, *(os.path.join(directory, name) for name in self.files)] for more in ([], ["--json"]))]

    def check(self, statuses, _):
        pass


class Rings:
    """What lies in the node's ring directory."""

    name = "tool-ring"
    statuses = {0, 1, 2, 3}

    def __init__(self):
        record = support.record("MPI_Allreduce", 5, 0, state=layout.RECORD_OPEN)
        self.data = [support.ring_bytes(rank=rank, size=3, pid=pid, start=start, records=[record], inside=True, job="4711.0", now=1.7e9,
                                        directory="@", modules=[(0x400000, 0x500000, 0, "/opt/app")])
                     for rank, (pid, start) in enumerate(((os.getpid(), 0), (99999999, 5), (os.getppid(), 7)))]
        self.spots = ring_spots(self.data[0])

    def change(self, random_):
        which = random_.randrange(3)
        if random_.random() < 0.08:
            return ["kind", which, random_.choice(KINDS)]
        return ["bytes", which, *change_bytes(random_, len(self.data[which]), self.spots)]

    def prepare(self, place, changes):
        directory = os.path.join(place, "resil-4711.0")
        os.mkdir(directory)
        rings = [data.replace(b"@" + bytes(1023), directory.encode().ljust(1024, b"\0"), 1) for data in self.data]
        for what, which, *rest in changes:
            if what == "bytes":
                rings[which] = apply_bytes(rings[which], *rest)
        for rank, data in enumerate(rings):
            path = os.path.join(os.environ["RESIL_TOOL_SHM_DIR"], "resil-%d-4711.0-0-%d.ring" % (os.geteuid(), rank))
            with open(path, "wb") as file:
                file.write(data)
            for what, which, *rest in changes:
                if what == "kind" and which == rank:
                    make_kind(path, *rest)
        paths = [os.path.join(os.environ["RESIL_TOOL_SHM_DIR"], name) for name in sorted(os.listdir(os.environ["RESIL_TOOL_SHM_DIR"]))]
        return [["dump"], ["show", *paths], ["show", "--json", *paths], ["report", "4711.0"], ["report", "--json", directory], ["dump", "--json", directory]]

    def check(self, statuses, _):
        pass


def _seal(data):
    """The checksums made right again, as far as blocks can be followed."""
    data = bytearray(data)
    if len(data) < recording.HEAD_BYTES:
        return bytes(data)
    struct.pack_into("<I", data, 16, zlib.crc32(data[20:recording.STATE_AT]))
    struct.pack_into("<I", data, recording.STATE_AT + 4, zlib.crc32(data[recording.STATE_AT + 8:recording.HEAD_BYTES]))
    at = recording.HEAD_BYTES
    while at + 64 <= len(data):
        size = struct.unpack_from("<I", data, at + 12)[0]
        struct.pack_into("<I", data, at + 8, zlib.crc32(data[at + 64:at + 64 + size]))
        struct.pack_into("<I", data, at + 4, zlib.crc32(data[at + 8:at + 64]))
        at += 64 + size
    return bytes(data)


class Recordings:
    """rank-NNNNN.rec, beside the good one it was made from."""

    name = "tool-recording"
    statuses = {0, 1, 2, 3}
    manifest = {"resil_recording": 1, "launch": "launch-1", "world_size": 1, "world": 0, "program": "/opt/app",
                "resil_version": "", "created": 0}

    def __init__(self):
        with open(os.path.join(CORPUS, self.name, "good.rec"), "rb") as file:
            self.good = file.read()
        self.spots = [(offset, 4) for offset in range(0, 24, 4)] + [(recording.STATE_AT + 4 * k, 4) for k in range(12)]
        at = recording.HEAD_BYTES
        while at + 64 <= len(self.good):
            self.spots += [(at + 4 * k, 4) for k in range(16)] + [(at + 64 + k, 1) for k in range(64)]
            at += 64 + struct.unpack_from("<I", self.good, at + 12)[0]

    def change(self, random_):
        if random_.random() < 0.02:
            return ["kind", random_.choice(("rank-00000.rec", "recording.json", "rank-00001.rec")), random_.choice(KINDS)]
        if random_.random() < 0.2:
            return ["seal"]
        if random_.random() < 0.05:
            return ["json", *change_json(random_, self.manifest)]
        return ["bytes", *change_bytes(random_, len(self.good), self.spots)]

    def prepare(self, place, changes):
        data, manifest = self.good, copy.deepcopy(self.manifest)
        for what, *rest in changes:
            if what == "bytes":
                data = apply_bytes(data, *rest)
            if what == "json":
                manifest = apply_json(manifest, *rest)
        sealed = any(change[0] == "seal" for change in changes)
        directories = [os.path.join(place, name) for name in ("good", "changed")]
        for directory, content in zip(directories, (self.good, _seal(data) if sealed else data)):
            os.mkdir(directory)
            with open(os.path.join(directory, "rank-00000.rec"), "wb") as file:
                file.write(content)
            with open(os.path.join(directory, "recording.json"), "w", encoding="ascii") as file:
                json.dump(self.manifest if content is self.good and directory is directories[0] else manifest, file)
        for what, *rest in changes:
            if what == "kind":
                make_kind(os.path.join(directories[1], rest[0]), rest[1])
        self.same = sealed or data[:len(self.good)] == self.good
        file = os.path.join(directories[1], "rank-00000.rec")
        return [["recording", directories[1]], ["recording", "--json", "--rank", "0", "--count", "5000", directories[1]],
                ["diff", *directories], ["diff", "--json", directories[1], directories[0]], ["show", file], ["show", "--json", file]]

    def check(self, statuses, changes):
        if not self.same and 0 in statuses[2:4]:
            raise Failure("a damaged recording is said to be equal to the good one")


TARGETS = (Reports, Rings, Recordings)


# -- one case ---------------------------------------------------------------------------------------------------------

def _too_long(*_):
    raise Failure("it does not end within %d s" % LIMIT_SECONDS)


def _no_constant(name):
    raise Failure("its JSON holds %s" % name)


@contextlib.contextmanager
def guarded(place):
    """Signals go nowhere, and nothing outside `place` is removed: each such try is a failure."""
    saved = os.kill, os.unlink, os.remove, os.replace, os.rename

    def kill(pid, number):
        if number != 0:
            raise Failure("it would signal process %d" % pid)

    def inside(function):
        def checked(path, *rest, **named):
            if named.get("dir_fd") is None and not os.path.abspath(path).startswith(place + os.sep):
                raise Failure("it would remove or replace %s" % path)
            return function(path, *rest, **named)
        return checked

    os.kill = kill
    os.unlink, os.remove, os.replace, os.rename = map(inside, saved[1:])
    try:
        yield
    finally:
        os.kill, os.unlink, os.remove, os.replace, os.rename = saved


def command(arguments, place):
    """Runs the tool in this process; its exit status. Raises Failure."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace", write_through=True) for _ in "ab")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), guarded(place):
            status = cli.main(arguments)
    except SystemExit as error:
        status = error.code
    except Failure:
        raise
    except BaseException:
        raise Failure("traceback of resil %s:\n%s" % (" ".join(arguments[:-1]), traceback.format_exc())) from None
    text = out.buffer.getvalue().decode("utf-8", "replace")
    for stream in (text, err.buffer.getvalue().decode("utf-8", "replace")):
        odd = [c for c in stream if (c < " " and c != "\n") or "\x7f" <= c < "\xa0"]
        if odd:
            raise Failure("resil %s writes the control character %r" % (" ".join(arguments[:-1]), odd[0]))
    if "--json" in arguments and text.strip():
        for line in text.splitlines() if arguments[0] in ("recording", "show") else [text]:
            try:
                json.loads(line, parse_constant=_no_constant)
            except ValueError as error:
                raise Failure("resil %s writes JSON that is none: %s" % (" ".join(arguments[:-1]), error)) from None
    return status


def run_case(target, changes):
    """Raises Failure."""
    top = os.path.realpath(tempfile.mkdtemp(prefix="resil-fuzz-"))
    before, where = dict(os.environ), os.getcwd()
    try:
        os.environ["RESIL_TOOL_SHM_DIR"] = os.path.join(top, "shm")
        os.mkdir(os.environ["RESIL_TOOL_SHM_DIR"])
        commands = target.prepare(top, changes)
        os.chdir(top)
        statuses = []
        for arguments in commands:
            signal.alarm(LIMIT_SECONDS)
            statuses.append(command(arguments, top))
            signal.alarm(0)
            if statuses[-1] not in target.statuses:
                raise Failure("resil %s ends with %r" % (" ".join(arguments[:-1]), statuses[-1]))
        target.check(statuses, changes)
    finally:
        signal.alarm(0)
        os.chdir(where)
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(top, ignore_errors=True)
    return len(commands)


def shrink(target, changes):
    """The same failure from fewer changes."""
    for index in range(len(changes) - 1, -1, -1):
        fewer = changes[:index] + changes[index + 1:]
        try:
            run_case(target, fewer)
        except Failure:
            changes = fewer
    return changes


def report(target, changes, error, keep):
    changes = shrink(target, changes)
    line = json.dumps(changes)
    print("FOUND %s: %s\n  case: %s" % (target.name, str(error).strip().replace("\n", "\n  "), line), flush=True)
    if keep:
        os.makedirs(os.path.join(keep, target.name), exist_ok=True)
        name = "crash-%08x.json" % zlib.crc32(line.encode())
        with open(os.path.join(keep, target.name, name), "w", encoding="ascii") as file:
            file.write(line + "\n")


def fuzz(target, options):
    began, executions, failures, last = time.monotonic(), 0, 0, {}
    number = 0
    while (number < options.cases) if options.cases else (time.monotonic() - began < options.seconds):
        random_ = random.Random("%s:%d:%d" % (target.name, options.seed, number))
        number += 1
        changes = [target.change(random_) for _ in range(random_.choice((1, 1, 1, 2, 2, 3, 5, 9)))]
        try:
            executions += run_case(target, changes)
        except Failure as error:
            kind = str(error).strip().splitlines()
            kind = (kind[-1], kind[-3:-2] and kind[-3])
            failures += 1
            if last.setdefault(str(kind), 0) == 0:
                report(target, changes, error, options.keep)
            last[str(kind)] += 1
    print("%s: %d cases, %d executions, %d failed" % (target.name, number, executions, failures), flush=True)
    return failures


def replay(target, place):
    failures, names = 0, sorted(name for name in os.listdir(os.path.join(place, target.name)) if name.endswith(".json"))
    for name in names:
        with open(os.path.join(place, target.name, name), encoding="ascii") as file:
            changes = json.load(file)
        try:
            run_case(target, changes)
        except Failure as error:
            failures += 1
            print("FOUND %s, %s: %s" % (target.name, name, error), flush=True)
    print("%s: %d cases of the corpus, %d failed" % (target.name, len(names), failures), flush=True)
    return failures


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *(target.name for target in TARGETS)], metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--cases", type=int, default=0, help="so many of each target instead of a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", metavar="DIR", help="the cases of a corpus first")
    parser.add_argument("--keep", metavar="DIR")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    chosen = [target() for target in TARGETS if not options.targets or target.name in options.targets]
    failures = 0
    for target in chosen:
        if options.replay:
            failures += replay(target, options.replay)
        if options.cases or not options.replay:
            failures += fuzz(target, options)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
