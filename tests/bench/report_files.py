#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/resil costs on a large job: makes the report directory of such a job and measures a command on it. Touches a
directory of its own, removed at the end (or --keep DIR).

    tests/bench/report_files.py                                     report on 4,096 ranks, of each kind
    tests/bench/report_files.py --kind killed --ranks 4096 --keep D make the directory D only
    tests/bench/report_files.py --command html --output x.html      another command of scripts/resil

Kinds: `files`, a report a rank; `nodes`, a JSON Lines file a node, as jobs above 1,024 ranks write them; `killed`, these and the
flight recorder of each rank, of a job that stood still for 68 s and was ended by its time limit; `hang`, a finding as well."""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tools"))

import support  # noqa: E402
from resil_tool import layout  # noqa: E402

KINDS = ("files", "nodes", "killed", "hang")
PER_NODE = 64
CULPRIT = 1234
LAUNCH = "0123456789abcdef"
STILL = 68
ROOM = {"lanes": 8, "comms": 512, "requests": 8192, "modules": 128, "calls": 650, "names": 256, "hang": 61208}  # as the library's rings have


def neighbours(rank, size):
    """Ranks that exchange halos in a grid of three dimensions, and two far ones."""
    side = max(2, round(size ** (1 / 3)))
    return sorted({(rank + step) % size for step in (1, -1, side, -side, side * side, -side * side, size // 2)} - {rank})


def rank_report(rank, size, outcome, now):
    peers = [{"rank": other, "sent_messages": 5000 + other % 7, "sent_bytes": (5000 + other % 7) * 34992, "received_messages": 5000,
              "received_bytes": 5000 * 34992} for other in neighbours(rank, size)]
    slow = 1.0 + rank % 97 / 500
    calls = {"MPI_Send": {"count": 35000, "seconds": 3.1 * slow, "bytes": 35000 * 34992},
             "MPI_Irecv": {"count": 35000, "seconds": 0.4, "bytes": 35000 * 34992},
             "MPI_Wait": {"count": 35000, "seconds": 9.7 / slow, "bytes": 0},
             "MPI_Allreduce": {"count": 10000, "seconds": 4.2 / slow, "bytes": 80000},
             "MPI_Barrier": {"count": 3, "seconds": 0.01, "bytes": 0}, "MPI_Comm_rank": {"count": 9, "seconds": 0, "bytes": 0}}
    config = {"RESIL_SETTING_%02d" % i: "value" for i in range(40)}
    config.update(RESIL_MODE="watch", RESIL_SIGNAL="HUP")
    return support.report_object(
        rank=rank, size=size, outcome=outcome, host="nid%05d" % (rank // PER_NODE), pid=100000 + rank, calls=calls, peers=peers,
        config=config, launch=LAUNCH, launch_agreed=True, start_time=now - 1000, elapsed_seconds=900.0 + rank % 11, all_ranks_preloaded=True,
        boot_id="boot-%d" % (rank // PER_NODE), pid_namespace=4026531836, overhead_seconds=0.5, modes="watch",
        hang={"role": "none", "turns": 0})


def ring(rank, size, now):
    """A rank in a barrier for STILL seconds; the culprit is outside. SIGTERM came at the end."""
    done = [support.record("MPI_Allreduce", STILL + 0.01 * (40 - i), None, 0.002, sequence=i + 1, site=0x401100, bytes_=8 << i % 12) for i in range(40)]
    inside = rank != CULPRIT % size
    if inside:
        done.append(support.record("MPI_Barrier", STILL, None, state=layout.RECORD_OPEN, sequence=41, site=0x401234))
    data = bytearray(support.ring_bytes(
        rank=rank, size=size, pid=100000 + rank, host="nid%05d" % (rank // PER_NODE), now=now, records=done, inside=inside,
        counters={"MPI_Allreduce": (40, 3.0, 320), "MPI_Send": (100, 1.0, 3499200)}, job="4711.0", term=("slurmstepd", 18490, 15),
        peers=[(other, 20, 20 * 34992, 20, 20 * 34992) for other in neighbours(rank, size)],
        modules=[(0x400000, 0x500000, 0x400000, "/opt/app")], room=ROOM))
    at = layout.HEADER.offsets["launch"]
    data[at:at + len(LAUNCH)] = LAUNCH.encode()
    data[layout.HEADER.offsets["launch_agreed"]] = 1
    return bytes(data)


def hang_file(size, now):
    culprit = CULPRIT % size
    ranks = [{"rank": r, "state": "blocked", "call": "MPI_Barrier", "sequence": 41, "age": 12.5, "calls": 41, "pid": 100000 + r,
              "node": r // PER_NODE} for r in range(size)]
    ranks[culprit].update(state="blocked", call="MPI_Recv")
    others = "0-%d,%d-%d" % (culprit - 1, culprit + 1, size - 1)
    return {"schema_version": 1, "resil_version": "0.1.0", "launch": LAUNCH, "time_ns": int((now - STILL + 3) * 1e9), "class": "deadlock",
            "confidence": "proved", "culprit_ranks": [culprit], "culprit_count": 1, "victim_ranks": list(range(256)),
            "victim_count": size - 1, "communicator": "MPI_COMM_WORLD", "call": "MPI_Barrier", "sequence": 41,
            "message": "Ranks %s (%d of %d) have waited 3.4 s in call 41 of MPI_Barrier on MPI_COMM_WORLD at app+0x1234. Rank %d waits "
                       "in MPI_Recv from rank 7, tag 99, on MPI_COMM_WORLD at app+0x1300. Rank 7 has not sent that message. To do: find "
                       "out why rank %d took another path through the program." % (others, size - 1, size, culprit, culprit),
            "evidence": ["reason: proved; these calls were open before and after the counters were read, and only their own ranks can end "
                         "them", "core: rank %d" % culprit, "peer: rank 7", "waiting: ranks %s" % others,
                         "rank %d: MPI_Recv from rank 7, tag 99, on MPI_COMM_WORLD at app+0x1300, for 3.4 s; message 1, sent 0" % culprit,
                         "ranks %s: call 41 of MPI_Barrier on MPI_COMM_WORLD at app+0x1234, for 3.4 s" % others],
            "action": "report", "unanswered": [], "ranks": ranks}


def make(place, kind, size):
    """The report directory of a job of `size` ranks."""
    now = time.time() - 60
    outcome = "finished" if kind in ("files", "nodes") else "running"
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "launch.json"), "w", encoding="utf-8") as file:
        json.dump({"schema_version": 1, "launch": LAUNCH, "name": "4711.0", "program": "app", "time": now - 1000}, file)
    if kind == "files":
        for rank in range(size):
            with open(os.path.join(place, "rank-%05d.json" % rank), "w", encoding="utf-8") as file:
                json.dump(rank_report(rank, size, outcome, now), file, indent=1)
    else:
        for first in range(0, size, PER_NODE):
            with open(os.path.join(place, "node-nid%05d-0.jsonl" % (first // PER_NODE)), "w", encoding="utf-8") as file:
                for rank in range(first, min(size, first + PER_NODE)):
                    file.write(json.dumps(rank_report(rank, size, outcome, now)) + "\n")
    if kind in ("killed", "hang"):
        for rank in range(size):
            data = ring(rank, size, now)
            with open(os.path.join(place, "rank-%05d.ring" % rank), "wb") as file:  # with holes, as the library's are
                for at in range(0, len(data), 4096):
                    if data[at:at + 4096].strip(b"\0"):
                        file.seek(at)
                        file.write(data[at:at + 4096])
                file.truncate(len(data))
    if kind == "hang":
        with open(os.path.join(place, "hang-0.json"), "w", encoding="utf-8") as file:
            json.dump(hang_file(size, now), file)


def measure(command):
    """Prints seconds by the clock and of CPU, MiB at most, and the exit status of a command. In a process of its own: the largest child
    is what counts."""
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        sys.stderr.write("%.2f s, of which CPU %.2f s, %.0f MiB, exit status %d\n" % (
            time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, done.returncode))
        os._exit(0)
    os.waitpid(pid, 0)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kind", choices=KINDS, action="append")
    options.add_argument("--ranks", type=int, default=4096)
    options.add_argument("--keep", metavar="DIR", help="make it there and stop")
    options.add_argument("--times", type=int, default=1, metavar="N", help="run it so often")
    options.add_argument("--command", default="report", help="default report")
    options.add_argument("--output", help="of commands that write a file")
    options = options.parse_args()
    if options.keep:
        return make(options.keep, (options.kind or ["nodes"])[0], options.ranks)
    for kind in options.kind or KINDS:
        with tempfile.TemporaryDirectory() as top:
            place = os.path.join(top, "resil-4711.0")
            make(place, kind, options.ranks)
            for _ in range(options.times):
                sys.stderr.write("%-8s %d ranks: " % (kind, options.ranks))
                sys.stderr.flush()
                measure([sys.executable, support.TOOL, options.command, place] + (["--output", options.output] if options.output else []))
    return None


if __name__ == "__main__":
    main()
