#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a job leaves behind (RESIL_FILES): after a clean end a file a node and no recorder; recorders where something was found or a
rank died; nothing lost on a full disk, with two jobs in one directory, or without one. The closing line begins with the verdict.

Usage: files_test.py MPI
"""
import concurrent.futures
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports  # noqa: E402
from harness.main import LeftOut, Long, run_checks  # noqa: E402

APP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "files_app.c")
RANKS = 2  # MPICH 4.0.2 loses messages of more: docs/PLATFORMS.md
FLIP = {"RESIL_MODE": "checksum", "RESIL_ON_MISMATCH": "log", "RESIL_FAULT": "flip,nth=5,rank=1"}


class Job:
    def __init__(self, mpi):
        self.mpi, self.program = mpi, os.path.join(jobs.scratch(), "app")
        subprocess.run([f"mpicc.{mpi}", "-O1", "-o", self.program, APP], check=True)

    def run(self, *arguments, files="node", directory=None, status=0, ranks=RANKS, timeout=60, **settings):
        result = jobs.run(self.mpi, ranks, [self.program, *arguments], env={"RESIL_FILES": files, **settings}, directory=directory, timeout=timeout)
        if status is not None:
            assert result.returncode == status and f"{ranks} ranks\n".encode() == result.stdout, result.text()
        return result


def left(directory):
    """What lies in a report directory; the name of the node's file is told by its kind."""
    return {re.sub(r"node-.+\.jsonl$", "NODE", name) for name in os.listdir(directory)}


def recorders(directory):
    """Live recorders on this node of ranks that report there."""
    found, wanted = [], os.fsencode(os.path.realpath(directory))
    for name in os.listdir("/dev/shm"):
        if name.startswith("resil-") and name.endswith(".ring"):
            try:
                with open(os.path.join("/dev/shm", name), "rb") as file:
                    if wanted + b"\0" in file.read(4096):
                        found.append(name)
            except OSError:
                pass  # another job's, gone meanwhile
    return found


def closing(result):
    lines = [line for line in result.stderr.decode(errors="replace").splitlines() if "; next: resil report " in line or "; NO reports" in line]
    assert len(lines) == 1, result.text()
    return lines[0]


def whole(result, size=RANKS):
    """Reports of all ranks, finished, of one launch."""
    found = reports.load(result.directory)
    assert sorted(found) == list(range(size)), (sorted(found), result.text())
    assert {one["outcome"] for one in found.values()} == {"finished"} and len({one["launch"] for one in found.values()}) == 1, found
    return found


def clean(job):
    """One small file, whose last line of each rank is its report."""
    result = job.run(RESIL_MODE="checksum")
    assert left(result.directory) == {"NODE", "launch.json", "run.conf", ".taken"}, left(result.directory)
    assert not recorders(result.directory) and {one["ring"] for one in whole(result).values()} == {""}
    assert closing(result).startswith(f"resil: CLEAN: watch,checksum on {RANKS} ranks, "), result.text()
    told = re.search(r"; (\d+) MPI calls on rank 0, set-up and recorder ([\d.e+-]+) % of its time \(estimate\); finished; ", closing(result))
    rank0 = whole(result)[0]
    assert told and int(told[1]) == sum(call["count"] for call in rank0["calls"].values()), (closing(result), rank0["calls"])
    assert 0 < float(told[2]) <= 100, closing(result)
    assert re.search(r"; rank 0 checked \d+ of \d+ messages; next: resil report ", closing(result)), result.text()
    size = sum(os.path.getsize(os.path.join(result.directory, name)) for name in os.listdir(result.directory))
    assert size < 16384 * RANKS, size
    told = jobs.run_tool("report", "--json", result.directory)
    assert told["verdict"] == "CLEAN" and told["ranks_reported"] == RANKS and told["checksum"]["messages_checked"] > 0, told
    return f"{size} bytes"


def asked(job):
    """The recorders on demand, the reports of each rank on demand."""
    names = {f"rank-{rank:05}.ring" for rank in range(RANKS)}
    result = job.run(files="rings")
    assert left(result.directory) == {"NODE", "launch.json", "run.conf", ".taken"} | names, left(result.directory)
    whole(result)
    result = job.run(files="all")
    assert left(result.directory) == {"launch.json", "run.conf"} | names | {f"rank-{rank:05}.json" for rank in range(RANKS)}, left(result.directory)
    whole(result)


def found(job):
    """One rank has a finding: all ranks' recorders stay, and the closing line is rank 0's, whoever found it."""
    result = job.run(**FLIP)
    assert {f"rank-{rank:05}.ring" for rank in range(RANKS)} <= left(result.directory) and not recorders(result.directory), left(result.directory)
    assert sum(bool(one["findings"]) for one in whole(result).values()) == 1
    assert closing(result).startswith("resil: FINDINGS: "), result.text()


def killed(job):
    """A rank dies before or in MPI_Finalize: its report and all recorders are there for the one who asks."""
    for how in ("killed", "late"):
        result = job.run(how, status=None)
        assert result.returncode != 0, result.text()
        present = reports.load(result.directory)
        assert sorted(present) == list(range(RANKS)) and present[1]["outcome"] == "running", (how, present)
        told = jobs.run_tool("report", "--json", result.directory)
        assert told["verdict"] == "INCOMPLETE" and told["ranks_reported"] == RANKS, (how, told["verdict"], told["reason"])
        assert {f"rank-{rank:05}.ring" for rank in range(RANKS)} <= left(result.directory), (how, left(result.directory))
        assert not recorders(result.directory)
        calls = {call["name"]: call["count"] for call in told["calls"]}
        assert calls["MPI_Sendrecv"] == 20 * RANKS, calls


def two_at_once(job):
    """Two jobs that are given one directory: each has its own, and each is whole."""
    for _ in range(3):
        place = os.path.join(jobs.scratch(), "report")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda _: job.run(directory=place), range(2)))
        where = [closing(result).rsplit("next: resil report ", 1)[1] for result in results]
        assert len(set(where)) == 2, where
        for path, result in zip(where, results):
            result.directory = path
            whole(result)
            told = jobs.run_tool("report", "--json", path)
            assert told["verdict"] == "CLEAN" and told["ranks_reported"] == RANKS, told["reason"]
            assert not recorders(path)


def many(job):
    """128 ranks on one node: one file after a clean end; with recorders on demand, and after a kill, still one file of reports."""
    if job.mpi == "mpich":
        raise LeftOut("MPICH's ranks spin for each other's core")
    result = job.run(ranks=128, timeout=240)
    assert left(result.directory) == {"NODE", "launch.json", "run.conf", ".taken"}, left(result.directory)
    whole(result, 128)
    assert not recorders(result.directory) and closing(result).startswith("resil: CLEAN: watch on 128 ranks, "), result.text()
    size = sum(os.path.getsize(os.path.join(result.directory, name)) for name in os.listdir(result.directory))
    told = jobs.run_tool("report", "--json", result.directory)
    assert told["verdict"] == "CLEAN" and told["ranks_reported"] == 128 and size < 8192 * 128, (told["reason"], size)
    result = job.run(ranks=128, timeout=240, files="all")
    rings = {f"rank-{rank:05}.ring" for rank in range(128)}
    assert left(result.directory) == {"NODE", "launch.json", "run.conf", ".taken"} | rings, left(result.directory)
    whole(result, 128)
    result = job.run("killed", ranks=128, timeout=240, status=None)
    told = jobs.run_tool("report", "--json", result.directory)
    assert told["verdict"] == "INCOMPLETE" and told["ranks_reported"] == 128, told["reason"]
    assert len([name for name in os.listdir(result.directory) if name.endswith(".jsonl")]) == 1 and rings <= left(result.directory), left(result.directory)
    return f"{size} bytes"


def no_directory(job):
    """Nothing can be written: the program ends as it would, and no recorder is left."""
    result = job.run(directory="/proc/resil-nowhere")
    assert "; NO reports: " in closing(result) and not recorders("/proc/resil-nowhere"), result.text()


def full_disk(job):
    """No room for the last lines: the program ends as it would, and what was written before is read."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode:
        raise LeftOut("needs a mount namespace")
    # A file takes all pages of the disk but a few.
    script = ('mount -t tmpfs -o size=64k none "$1" && dd if=/dev/zero of="$1/full" bs=4k count="$3" 2> /dev/null; disk=$1; copy=$2; shift 3; '
              '"$@"; status=$?; cp -r "$disk/report" "$copy" 2> /dev/null; exit $status')
    cut = 0
    for pages in (1, 3, 4, 5, 6):
        place = jobs.scratch()
        kept, disk = os.path.join(place, "kept"), os.path.join(place, "disk")
        os.mkdir(disk)
        line = jobs.launcher(job.mpi, RANKS, jobs.rank_environment(True, disk + "/report", {"RESIL_FILES": "node"}))
        result = jobs.start(["unshare", "-m", "sh", "-c", script, "sh", disk, kept, str(16 - pages), *line, job.program])
        assert result.returncode == 0 and result.stdout == f"{RANKS} ranks\n".encode(), result.text()
        told = jobs.run_tool("report", "--json", kept) if os.path.isdir(kept) and left(kept) - {"launch.json", ".taken"} else {}
        if told.get("verdict") != "CLEAN":
            cut += 1
            assert re.search(rb"cannot write|(NO|no) reports", result.stderr), result.text()
        elif told["ranks_reported"] != RANKS:
            raise AssertionError((pages, told["reason"]))
    assert cut, "never full"
    return f"{cut} of 5 were too small"


def main():
    jobs.require(f"mpirun.{sys.argv[1]}", f"mpicc.{sys.argv[1]}")
    job = Job(sys.argv[1])
    return run_checks([(name, lambda check=check: check(job)) for name, check in (
        ("clean", clean), ("asked for", asked), ("found", found), ("killed", killed), ("two jobs at once", two_at_once),
        ("no directory", no_directory), ("full disk", full_disk))] + [("128 ranks", Long(lambda: many(job)))])


if __name__ == "__main__":
    sys.exit(main())
