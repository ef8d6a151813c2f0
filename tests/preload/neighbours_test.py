#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forty jobs side by side on one node: mpirun of both MPIs, singletons, two users, pid namespaces (containers) in which
process and job ids come again. All wait in a collective call at the same time, each in another one. Nobody's state is
ever another's: no finding, own ranks, own calls, own files. A job that is started beside what other users may put into
/dev/shm starts.

Usage: neighbours_test.py PROGRAMS_DIR [--jobs N] [--hold SECONDS]
What is not permitted here (namespaces, another user) is left out and named.
"""
import argparse
import os
import re
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, neighbours, patience, report as reports  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402
from harness.neighbours import Neighbour  # noqa: E402

OTHER_USER = 61234  # needs no account
# Any wrong story ends the job, and soon.
WATCHED = {"RESIL_HANG": "abort", "RESIL_HANG_INTERVAL": "0.02"}
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
AS_OTHER = ["setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"]


def permitted(line):
    try:
        return patience.run(line + ["true"], capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class Node:
    def __init__(self, programs, count, hold):
        self.programs, self.count, self.hold = programs, count, hold
        self.containers, self.users = permitted(CONTAINER), os.geteuid() == 0 and permitted(AS_OTHER)
        self.mpis = [mpi for mpi in jobs.MPIS if jobs.installed(f"mpirun.{mpi}")]

    def program(self, mpi):
        return os.path.join(self.programs, f"neighbours.{mpi}")

    def kinds(self):
        """(MPI, ranks or 0 for a singleton, in a container, as another user)"""
        usual = [(mpi, ranks, False, False) for mpi in self.mpis for ranks in (2, 0, 2)]
        if "openmpi" in self.mpis and self.users:
            usual += [("openmpi", 2, False, True)]
        if self.users and "mpich" in self.mpis:
            usual += [("mpich", 0, False, True)]
        if self.containers:
            usual += [("mpich", 0, True, False)] * 3 + [(mpi, 2, True, False) for mpi in self.mpis]
            usual += [("mpich", 0, True, True)] if self.users else []
        return [kind for kind in usual if kind[0] in self.mpis]

    def start(self, number, kind, folder, go, directory=None, cwd=None):
        mpi, ranks, container, other = kind
        job = Neighbour(number, ranks or 1, folder, go, directory)
        env = {"LD_PRELOAD": jobs.library(), **WATCHED}
        if directory != "":
            env["RESIL_DIR"] = job.directory
        line = [] if ranks else ["env", *(f"{name}={value}" for name, value in env.items())]
        outside = {}
        if ranks:
            options = []
            if mpi == "openmpi":
                # Open MPI's own files have names made of pids, which come again in containers.
                outside = {"TMPDIR": os.path.join(folder, f"tmp-{number}"), "OMPI_MCA_mpi_yield_when_idle": "1",
                           "OMPI_MCA_btl": "self,tcp" if container else "self,vader", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
                os.mkdir(outside["TMPDIR"])
                os.chmod(outside["TMPDIR"], 0o777)
            line = jobs.launcher(mpi, ranks, env, options)
        line = (CONTAINER if container else []) + (AS_OTHER if other else []) + line + job.arguments(self.program(mpi))
        job.start(line, outside, cwd)
        job.other = other
        return job


def shared_folder():
    folder = jobs.scratch()
    os.chmod(folder, 0o777)
    return folder


def side_by_side(node):
    kinds, folder = node.kinds(), shared_folder()
    go = os.path.join(folder, "go")
    everyone = []
    # Containers first, all at once: their processes then have the same numbers.
    for number, kind in enumerate(sorted((kinds[i % len(kinds)] for i in range(node.count)), key=lambda kind: not kind[2])):
        everyone.append(node.start(number, kind, folder, go))
    neighbours.all_wait(everyone)
    time.sleep(node.hold)  # what the watchers see all this time must be their own
    rings = {}
    for job in everyone:
        for rank, report in reports.load(job.directory).items():
            assert report["ring"] not in rings, f"one ring file for two ranks: {report['ring']}"
            rings[report["ring"]] = (job.number, rank)
            status = os.lstat(report["ring"])
            assert status.st_uid == (OTHER_USER if job.other else os.geteuid()) and status.st_nlink == 1, report["ring"]
    assert len(rings) == sum(job.ranks for job in everyone), "a rank without a ring: " + str(len(rings))
    for job in everyone[:2] + everyone[-2:]:
        states = jobs.run_tool("report", "--json", job.directory)["outcomes"]
        assert states == {"running": "0" if job.ranks == 1 else "0,1"} or states == {"running": f"0-{job.ranks - 1}"}, (states, job.story())
    neighbours.release(go)
    neighbours.end(everyone)
    keys = set()
    for job in everyone:
        job.check_output()
        key = job.check_reports()
        assert key not in keys, "two launches have one key"
        keys.add(key)
    left = [path for path in rings if os.path.exists(path) or os.path.exists(path[:-len(".ring")] + ".node")]
    assert not left, left
    said = (node.containers, "no pid namespaces"), (node.users, "no second user"), (len(node.mpis) == 2, "one MPI only")
    return f"{len(everyone)} jobs, {len(rings)} ranks" + "".join(f"; {why} here" for there, why in said if not there)


def in_one_place(node):
    """Containers that share the working directory, in which each one's process has the same number, with the default
    RESIL_DIR: as many launches as jobs, each with its own reports."""
    if not node.containers or "mpich" not in node.mpis:
        raise LeftOut("no pid namespaces here, or no MPICH")
    folder = shared_folder()
    place, go = os.path.join(folder, "place"), os.path.join(folder, "go")
    os.mkdir(place)
    everyone = [node.start(number, ("mpich", 0, True, False), folder, go, "", place) for number in range(4)]
    neighbours.all_wait(everyone)
    neighbours.release(go)
    neighbours.end(everyone)
    for job in everyone:
        job.check_output()
    found = {}
    for path, _, names in os.walk(place):
        if "rank-00000.json" in names:
            own = [job for job in everyone
                   if reports.counts(reports.load(path)[0]).get(neighbours.CALLS[job.number % 3]) == 11 + job.number]
            assert len(own) == 1, path
            own[0].directory = path
            found[own[0].number] = own[0].check_reports()
    assert sorted(found) == [0, 1, 2, 3] and len(set(found.values())) == 4, found


def processes_of(job):
    """The ranks of a job, seen from here."""
    return [pid for pid in jobs._carriers(job.job.mark) if os.path.basename(
        os.readlink(f"/proc/{pid}/exe")).startswith("neighbours.")]


def killed_in_a_container(node):
    """From outside a container: a rank that lives runs, and is not signalled, since its pid is another process here; one that
    was killed is killed. Nothing of it stays in memory."""
    if not node.containers or "mpich" not in node.mpis:
        raise LeftOut("no pid namespaces here, or no MPICH")
    folder = shared_folder()
    job = node.start(5, ("mpich", 0, True, False), folder, os.path.join(folder, "go"))
    neighbours.all_wait([job])
    assert jobs.run_tool("report", "--json", job.directory)["outcomes"] == {"running": "0"}
    answer = jobs.run_tool("dump", "--json", job.directory)["ranks"]
    assert [one["action"] for one in answer] == ["refused"] and "container" in answer[0]["reason"], answer
    ring = reports.load(job.directory)[0]["ring"]
    ranks = processes_of(job)
    assert len(ranks) == 1 and job.job.poll() is None, ranks
    os.kill(ranks[0], signal.SIGKILL)
    neighbours.wait_until(lambda: job.job.poll() is not None, lambda: "the container lives without its program")
    job.result = job.job.end()
    report = jobs.run_tool("report", "--json", job.directory)
    assert report["outcomes"] == {"killed": "0"}, report["outcomes"]
    assert not os.path.exists(ring)


def swept_from_outside(node):
    """The ring of a rank that was killed in a container goes to its report directory when the next job starts."""
    if not node.containers or "mpich" not in node.mpis:
        raise LeftOut("no pid namespaces here, or no MPICH")
    folder = shared_folder()
    go = os.path.join(folder, "go")
    dead = node.start(7, ("mpich", 0, True, False), folder, go)
    neighbours.all_wait([dead])
    ring = reports.load(dead.directory)[0]["ring"]
    os.kill(processes_of(dead)[0], signal.SIGKILL)
    neighbours.wait_until(lambda: dead.job.poll() is not None, lambda: "the container lives without its program")
    dead.result = dead.job.end()
    neighbours.release(go)
    for number in range(8, 18):  # the sweep has no time that it must keep, so the first job may leave it to the next
        job = node.start(number, ("mpich", 0, False, False), folder, go)
        neighbours.end([job])
        job.check_output()
        if not os.path.exists(ring):
            break
    assert not os.path.exists(ring)
    assert os.path.exists(os.path.join(dead.directory, "rank-00000.ring"))


HOSTILE = """
import os, sys
base = "/dev/shm/resil-%s-%s-0-0" % (sys.argv[1], sys.argv[2])
for end in (".ring", ".node", "-0123456789abcdef.ring", "-0123456789abcdef.node"):
    os.mkfifo(base + ".fifo" + end, 0o666)
    os.symlink("/dev/zero", base + ".link" + end)
    os.mkdir(base + ".directory" + end, 0o777)
    with open(base + ".huge" + end, "wb") as file:
        file.truncate(1 << 40)
    with open(base + ".magic" + end, "wb") as file:
        file.write(b"RESILRNG" + bytes([1, 0, 0, 0]) + bytes(1 << 16))
    for name in (".fifo", ".huge", ".magic"):
        os.chmod(base + name + end, 0o666)
import fcntl
held = open(base + ".magic.ring", "r+b")
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)  # a plain open of it waits
import signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
print("ready", flush=True)
sys.stdin.read()
for end in (".ring", ".node", "-0123456789abcdef.ring", "-0123456789abcdef.node"):
    for name in (".fifo", ".link", ".huge", ".magic"):
        os.unlink(base + name + end)
    os.rmdir(base + ".directory" + end)
"""


HOSTILE_NAME = "a-hostile-test-"  # and the id of the test's process: another one may run beside it


def hostile_names(pid):
    return {name for name in os.listdir("/dev/shm") if f"-{HOSTILE_NAME}{pid}-" in name}


def remove_hostile():
    """This test's, and those of tests that were killed."""
    pids = {int(pid) for name in os.listdir("/dev/shm") for pid in re.findall(rf"-{HOSTILE_NAME}(\d+)-", name)}
    for pid in pids:
        if pid == os.getpid() or not os.path.exists(f"/proc/{pid}"):
            for path in (os.path.join("/dev/shm", name) for name in hostile_names(pid)):
                os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)


def hostile_shared_memory(node):
    """What another user makes under our names costs nothing: jobs start, and all of it is still there afterwards. Before, a
    pipe under such a name made every job of the victim wait in MPI_Init."""
    if not node.users:
        raise LeftOut("needs root, to be two users")
    remove_hostile()
    with subprocess.Popen(AS_OTHER + [sys.executable, "-c", HOSTILE, str(os.geteuid()), f"{HOSTILE_NAME}{os.getpid()}"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout.readline() == b"ready\n"
            there = hostile_names(os.getpid())
            folder = shared_folder()
            go = os.path.join(folder, "go")
            neighbours.release(go)
            everyone = [node.start(number, (mpi, 2, False, False), folder, go) for number, mpi in enumerate(node.mpis)]
            neighbours.end(everyone)
            for job in everyone:
                job.check_output()
                job.check_reports()
                assert jobs.run_tool("report", "--json", job.directory)["exit_code"] == 0
            assert hostile_names(os.getpid()) == there
        finally:
            other.stdin.close()
            other.wait()
            remove_hostile()
    return f"{len(there)} files"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--hold", type=float, default=2.0)
    options = parser.parse_args()
    node = Node(options.programs, options.jobs, options.hold)
    if not node.mpis:
        jobs.skip("no MPI is installed")
    status = run_checks([(check.__name__.replace("_", " "), lambda check=check: check(node)) for check in (
        hostile_shared_memory, in_one_place, killed_in_a_container, swept_from_outside, side_by_side)])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.0f} s of processor time")
    return status


if __name__ == "__main__":
    sys.exit(main())
