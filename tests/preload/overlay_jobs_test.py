#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real jobs of four simulated nodes while somebody without the key knocks at every leader's port: garbage, half
greetings, silence, resets, as fast as two threads can. The job does not notice, and its hang is found.

Usage: overlay_jobs_test.py BUILD openmpi|mpich      (BUILD holds hangs.MPI)
"""
import glob
import json
import os
import random
import re
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness import patience  # noqa: E402
from harness.main import run_checks  # noqa: E402

BUILD = MPI = ""
LIMIT = 60
REFUSED = ("refused_key", "refused_silent", "refused_full")


def reports(directory):
    found = []
    for path in sorted(glob.glob(os.path.join(directory, "rank-*.json"))):
        with open(path, encoding="utf-8") as file:
            found.append(json.load(file))
    return found


def ports(pids):
    """Where these processes listen on loopback: sockets of theirs that the kernel's table calls LISTEN. The MPIs' own
    are on all addresses, and not ours to attack."""
    listening = {}
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in list(table)[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[1].startswith("0100007F:"):
                listening[fields[9]] = int(fields[1].split(":")[1], 16)
    found = set()
    for pid in pids:
        for path in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(path))
            except OSError:
                continue
            if match and match[1] in listening:
                found.add(listening[match[1]])
    return sorted(found)


class Attack:
    """Until stop()."""

    def __init__(self, targets):
        self.targets, self.over, self.count = targets, False, 0
        self.threads = [threading.Thread(target=self.knock, args=(seed,), daemon=True) for seed in range(2)]
        for thread in self.threads:
            thread.start()

    def knock(self, seed):
        dice, kept = random.Random(seed), []
        while not self.over:
            try:
                one = socket.create_connection(("127.0.0.1", dice.choice(self.targets)), 1)
                self.count += 1  # whatever becomes of it
                what = dice.randrange(4)
                if what == 0:
                    one.sendall(dice.randbytes(dice.randrange(1, 20000)))
                elif what == 1:
                    one.sendall(b"RSLO" + dice.randbytes(dice.randrange(60)))
                elif what == 2:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                kept = kept[-100:] + [one]  # the older ones are closed
            except OSError:
                pass
            time.sleep(0.001)

    def stop(self):
        self.over = True
        for thread in self.threads:
            thread.join()


def attacked(kind, *arguments, env=None):
    """(result, attack, directory) of a job of four ranks, each a node, that is under attack from MPI_Init on."""
    directory = os.path.join(jobs.scratch(), "report")
    environment = jobs.rank_environment(True, directory, {"RESIL_NODE_RANKS": "1", **(env or {})})
    line = jobs.launcher(MPI, 4, environment)
    job = jobs.Running(line + [os.path.join(BUILD, f"hangs.{MPI}"), kind, *arguments], directory)
    attack = None
    try:
        limit = patience.Patience(LIMIT)
        while job.poll() is None:
            assert not limit.over(), "the job does not end"
            if attack is None:
                targets = ports([report["pid"] for report in reports(directory)])
                attack = Attack(targets) if len(targets) >= 4 else None
            time.sleep(0.01)
    finally:
        if attack is not None:
            attack.stop()
        result = job.end()
        jobs.remove_rings(directory)
    assert attack is not None, f"no ports\n{result.text()}"
    return result, attack, directory


def counted(directory):
    """Sums over the leaders' counters."""
    overlays = [report["hang"]["overlay"] for report in reports(directory) if "overlay" in report.get("hang", {})]
    return len(overlays), {name: sum(one[name] for one in overlays) for name in overlays[0]} if overlays else {}


def check_innocent():
    """Ends as it should, finds nothing, and says how many it has sent away."""
    result, attack, directory = attacked("quiet", "4")
    assert result.returncode == 0 and b"hangs quiet 4" in result.stdout, result.text()
    assert not glob.glob(os.path.join(directory, "hang-*")) and b"hang [" not in result.stderr, result.text()
    leaders, counters = counted(directory)
    refused = sum(counters.get(name, 0) for name in REFUSED)
    assert leaders == 4, leaders
    assert 0 < refused <= attack.count + 4, (refused, attack.count)
    assert counters["bad_frames"] == 0 and counters["refused_address"] == 0, counters
    assert counters["rounds"] > 0 and counters["bytes_in"] > 0, counters
    return f"({attack.count} connections, {refused} refused, {counters['rounds']} rounds)"


def check_abort():
    result, attack, directory = attacked("cycle", env={"RESIL_HANG": "abort"})
    assert result.returncode == 92, result.text()
    with open(os.path.join(directory, "hang-0.json"), encoding="utf-8") as file:
        found = json.load(file)
    assert found["class"] == "deadlock" and found["confidence"] == "proved", found
    assert sorted(found["culprit_ranks"]) == [0, 1, 2, 3] and not found["unanswered"], found
    return f"({attack.count} connections)"


def main():
    global BUILD, MPI
    BUILD, MPI = sys.argv[1:3]
    jobs.require(f"mpirun.{MPI}")
    return run_checks([("a job that is well", check_innocent), ("a job that hangs is ended", check_abort)])


if __name__ == "__main__":
    sys.exit(main())
