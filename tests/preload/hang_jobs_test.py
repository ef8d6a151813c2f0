#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that hang and jobs that only look so (tests/mpi/hangs.c): what is found, how fast, who is named, what a job
that is ended by RESIL_HANG=abort leaves, and who takes over when the helper's process is stopped or killed.

hang_jobs_test.py PROGRAMS_DIR MPI [KIND...]
"""
import contextlib
import glob
import json
import os
import re
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import mpi as jobs  # noqa: E402
from harness import patience  # noqa: E402
from harness.main import LeftOut, run_checks, shared  # noqa: E402

BUILD = MPI = ""
LIMIT = 40     # seconds for anything to happen; a loaded machine is slow
SIDE_BY_SIDE = 5  # they mostly wait

# kind: ranks, classes that are right, confidence, culprits that are right (None: any), words of the message
FOUND = {
    "cycle": (3, {"deadlock", "unmatched_message"}, "proved", {0, 1, 2}, "MPI_Recv"),
    "ssend": (2, {"deadlock"}, "proved", {0, 1}, "MPI_Send"),
    "eager": (2, {"deadlock"}, "proved", {0, 1}, "MPI_Ssend"),
    "missing": (3, {"deadlock", "missing_rank", "unmatched_message"}, "proved", None, "MPI_Recv"),
    "tag": (2, {"deadlock", "unmatched_message"}, "proved", None, "tag 8"),
    "finished": (2, {"missing_rank", "unmatched_message"}, "proved", None, "MPI_Recv"),
    "wildcard": (2, {"deadlock", "unmatched_message"}, "proved", None, "MPI_Recv"),
    "waitall": (2, {"deadlock", "unmatched_message"}, "proved", None, "MPI_Waitall"),
    "anyfirst": (3, {"deadlock", "unmatched_message"}, "proved", None, "1 message that it can receive has been sent, and the call waits for 2"),
    "waitany": (3, {"deadlock", "unmatched_message"}, "proved", None, "MPI_Wait"),
    "sendrecv": (3, {"deadlock", "missing_rank", "unmatched_message"}, "proved", None, "MPI_"),
    "collective": (3, {"deadlock", "collective_mismatch"}, "proved", None, "MPI_Barrier"),
    "twins": (2, {"deadlock"}, "proved", None, "MPI_Comm_dup of MPI_COMM_WORLD (2 ranks, made in hangs."),
    "windows": (2, {"deadlock"}, "proved", None, "a window of MPI_COMM_WORLD (made in hangs."),
    "ibarrier": (2, {"deadlock", "missing_rank", "unmatched_message"}, "proved", None, "MPI_Wait"),
    "exposure": (2, {"deadlock"}, "proved", {0, 1}, "MPI_Win_wait for MPI_Win_complete of rank 1"),
    "access": (2, {"deadlock"}, "proved", {0, 1}, "for MPI_Win_post of rank 0"),
    "lock": (2, {"deadlock"}, "proved", {0, 1}, "for the exclusive lock of rank 0"),
    "groups": (2, {"deadlock", "unmatched_message"}, "proved", None, "MPI_Barrier"),
    "merge": (2, {"deadlock", "unmatched_message"}, "proved", None, "MPI_Intercomm_merge"),
    "leaders": (2, {"deadlock"}, "proved", {0, 1}, "MPI_Intercomm_create"),
    "ordered": (2, {"deadlock", "unmatched_message"}, "proved", None, "MPI_File_write_ordered"),
    "partial": (4, {"deadlock", "unmatched_message"}, "proved", {0, 1}, "MPI_Recv"),
}


def wait_for(what, condition, limit=LIMIT):
    return patience.wait_for(condition, what, limit)


class Job(jobs.Running):
    """A job of hangs.c; with several, each has a directory of its own."""

    def __init__(self, kind, ranks, *arguments, env=None, options=(), program="hangs"):
        self.kind, self.count = kind, ranks
        directory = os.path.join(jobs.scratch(), "report")
        environment = jobs.rank_environment(True, directory, env)
        line = jobs.launcher(MPI, ranks, environment, options)
        super().__init__(line + [os.path.join(BUILD, f"{program}.{MPI}"), kind, *map(str, arguments)], directory)

    def ready(self):
        wait_for(f"{self.kind}: the hang", lambda: b"ready" in self.read(0) or self.poll() is not None)
        return time.time_ns()

    def read(self, index):
        with open(self.output[index], "rb") as file:
            return file.read()

    def hang(self, limit=LIMIT):
        """The first finding of the job."""
        path = os.path.join(self.directory, "hang-0.json")
        wait_for(f"{self.kind}: a finding", lambda: os.path.exists(path) or self.poll() is not None, limit)
        assert os.path.exists(path), self.read(1).decode()
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def log(self):
        try:
            with open(os.path.join(self.directory, "hang.log"), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def end(self):
        result = super().end()
        jobs.remove_rings(self.directory)
        return result


def check_found(kind, env=None):
    ranks, classes, confidence, culprits, words = FOUND[kind]
    job = Job(kind, ranks, env=env)
    try:
        began = job.ready()
        found = job.hang()
        seconds = (found["time_ns"] - began) / 1e9
        text = json.dumps(found, indent=1)
        assert found["class"] in classes and found["confidence"] == confidence, text
        assert culprits is None or set(found["culprit_ranks"]) == culprits, text
        assert words in found["message"], text
        if kind in ("twins", "windows"):  # two of one kind and size are told apart by where they were made
            assert len(set(re.findall(r"made in (\S+)\)", found["message"]))) == 2, text
        assert len(found["ranks"]) == ranks and not found["unanswered"], text
        for sentence in re.split(r"(?<=\.) (?=[A-Z])", found["message"]):  # a line each
            line = rf"^resil:(?: hang \[{found['class']}, {confidence}\]|  ) {re.escape(sentence)}\n"
            wait_for(f"a line: {sentence}", lambda line=line: re.search(line, job.read(1).decode(errors="replace"), re.M))
        core = [line for line in found["evidence"] if line.startswith("core: ")]
        told = {rank for first, last in re.findall(r"(\d+)(?:-(\d+))?", core[0]) for rank in range(int(first), int(last or first) + 1)} if core else set()
        assert not core or told == set(found["culprit_ranks"]) and not told & set(found["peer_ranks"]), text
        with open(os.path.join(job.directory, "hang-0.txt"), encoding="utf-8") as file:
            assert found["message"] in file.read()
        return f"{found['class']} after {seconds:.1f} s"
    finally:
        job.end()


def check_innocent(kind, ranks, seconds):
    """Ends by itself, with the right result and nothing found."""
    job = Job(kind, ranks, seconds)
    wait_for("the end", lambda: job.poll() is not None, LIMIT + seconds)
    result = job.end()
    assert result.returncode == 0 and f"hangs {kind} {ranks}" in result.stdout.decode(), result.text()
    assert not glob.glob(os.path.join(job.directory, "hang-*")), job.log()
    assert b"hang [" not in result.stderr, result.text()


def check_abort():
    """The job ends with status 92, its files are there, and nothing of it is left."""
    job = Job("cycle", 2, env={"RESIL_HANG": "abort"})
    began = job.ready()
    found = job.hang()
    wait_for("the end", lambda: job.poll() is not None)
    seconds = (time.time_ns() - began) / 1e9
    result = job.end()
    assert result.returncode == 92, result.text()
    assert found["action"] == "abort", found
    assert not result.leftovers, result.leftovers
    return f"ended after {seconds:.1f} s"


def check_hook():
    folder = jobs.scratch()
    place = os.path.join(folder, "hook")
    job = Job("cycle", 2, env={"RESIL_HANG_HOOK": f'cp "$RESIL_HANG_REPORT" {place}.tmp && mv {place}.tmp {place}'})
    try:
        job.ready()
        job.hang()
        wait_for("the hook", lambda: os.path.exists(place))
        with open(place, encoding="utf-8") as file:
            assert json.load(file)["class"] in FOUND["cycle"][1]
    finally:
        job.end()


def check_stopped():
    """A rank that is stopped is named within seconds, is no finding while that is short, and the job goes on after it."""
    go = os.path.join(jobs.scratch(), "go")
    job = Job("quiet", 3, go)
    try:
        job.ready()
        pid = wait_for("the ranks", lambda: len(job.ranks()) == 3 and job.ranks())[1]
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        wait_for("the notice", lambda: "rank 1 is stopped" in job.log())
        seconds = time.monotonic() - began
        os.kill(pid, signal.SIGCONT)
        wait_for("the end of the stop", lambda: "rank 1 runs again" in job.log())
        with open(go, "w", encoding="ascii"):
            pass
        wait_for("the end", lambda: job.poll() is not None)
    finally:
        result = job.end()
    assert result.returncode == 0, result.text()
    assert not glob.glob(os.path.join(job.directory, "hang-*.json")), job.log()
    return f"named after {seconds:.1f} s"


def check_stopped_for_good():
    """A rank that stays stopped while all others wait for it is a finding within seconds, not after 15; where the finding
    would end the job, later."""
    job = Job("quiet", 3, 2)
    try:
        job.ready()
        pid = wait_for("the ranks", lambda: len(job.ranks()) == 3 and job.ranks())[0]
        os.kill(pid, signal.SIGSTOP)
        began = time.time_ns()
        found = job.hang()
        seconds = (found["time_ns"] - began) / 1e9
        assert (found["class"], found["confidence"], found["culprit_ranks"]) == ("rank_stopped", "verified", [0]), found
        assert "been stopped by a signal for " in found["message"], found
        assert float(found["message"].split("by a signal for ")[1].split(" s")[0]) < 14, found
        os.kill(pid, signal.SIGCONT)
        wait_for("the end", lambda: job.poll() is not None)
    finally:
        result = job.end()
    assert result.returncode == 0, result.text()
    return f"found after {seconds:.1f} s"


NOTHING_MOVES = "resil: No rank has finished an MPI call for "


def check_notice():
    """A rank that computes while the other waits, in the job's first second: one line, that names it and is no finding,
    and one more when the job goes on. The next silence, no longer than the first one, is not told."""
    job = Job("twice", 2, 6, env={"RESIL_HANG_NOTICE": "2"})
    wait_for("the end", lambda: job.poll() is not None)
    result = job.end()
    said = result.stderr.decode()
    assert result.returncode == 0 and "hang [" not in said, result.text()
    assert not glob.glob(os.path.join(job.directory, "hang-*")), job.log()
    assert said.count(NOTHING_MOVES) == 1 and said.count("resil: ranks finish MPI calls again") == 1, result.text()
    assert said.index(NOTHING_MOVES) < said.index("resil: ranks finish MPI calls again"), said
    line = said[said.index(NOTHING_MOVES):].splitlines()[0]
    assert re.search(r"Rank 0 is outside MPI( asleep in system call \d+( \([a-z :,]+\))?)?; its last call was MPI_Allreduce on MPI_COMM_WORLD", line), line
    assert "Rank 1 waits in MPI_Allreduce" in line and "ignore this line" in line, line
    assert " notice No rank has finished" in job.log() and " withdrawn ranks finish" in job.log(), job.log()


def samples_are_permitted():
    """Whether the kernel lets a process sample another one of its user (docs/HANGS.md). An emulator does not."""
    if jobs.emulated(os.path.join(BUILD, f"hangs.{MPI}")):
        return False
    try:
        with open("/proc/sys/kernel/perf_event_paranoid", encoding="ascii") as file:
            return int(file.read()) <= 2 and not os.path.exists("/.dockerenv")
    except OSError:
        return False


def check_notice_of_loop():
    """A rank in an endless loop of its own: the line says where the loop is, nothing is found, and nothing is withdrawn."""
    job = Job("compute", 2, 0, env={"RESIL_HANG_NOTICE": "2"})
    try:
        job.ready()
        line = wait_for("the line", lambda: re.search(re.escape(NOTHING_MOVES) + r".*(?=\n)", job.read(1).decode())).group()
        said = job.read(1).decode()
        place = rf" at hangs\.{MPI}\+0x[0-9a-f]+( to 0x[0-9a-f]+)?" if samples_are_permitted() else "( at .*)?"
        assert re.search(rf"Rank 1 is outside MPI{place}; its last call was MPI_Allreduce", line), line
        assert "ranks finish MPI calls again" not in said and "hang [" not in said, said
    finally:
        job.end()


# No line: switched off, quiet on the whole, one rank, nobody who waits.
NO_NOTICE = {"off": ("quiet", 2, {"RESIL_HANG_NOTICE": "0"}), "quiet": ("quiet", 2, {"RESIL_HANG_NOTICE": "1", "RESIL_LOG": "quiet"}),
             "one rank": ("alone", 1, {"RESIL_HANG_NOTICE": "1"}), "nobody waits": ("apart", 2, {"RESIL_HANG_NOTICE": "1"})}


def check_no_notice(kind, ranks, settings):
    job = Job(kind, ranks, 4, env=settings)
    wait_for("the end", lambda: job.poll() is not None)
    result = job.end()
    assert result.returncode == 0 and NOTHING_MOVES not in result.stderr.decode(), (kind, result.text())


def helpers(pid):
    """Threads of a rank that belong to hang detection."""
    names = []
    for path in glob.glob(f"/proc/{pid}/task/*/comm"):
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            with open(path, encoding="ascii") as file:
                names.append(file.read().strip())
    return names.count("resil-hang")


def check_takeover():
    """Leader and sleeper have a thread each, no other rank has one. When the leader's process is stopped the sleeper takes
    over; and there is a new sleeper then, because it happens twice."""
    job = Job("busy", 4)
    try:
        job.ready()
        pids = wait_for("the ranks", lambda: len(job.ranks()) == 4 and job.ranks())
        wait_for("the helpers", lambda: [helpers(pids[rank]) for rank in range(4)] == [1, 1, 0, 0])
        for rank in (0, 1):
            os.kill(pids[rank], signal.SIGSTOP)
            wait_for("the notice", lambda r=rank: f"rank {r} is stopped" in job.log())
            os.kill(pids[rank], signal.SIGCONT)
            wait_for("the end of the stop", lambda r=rank: f"rank {r} runs again" in job.log())
        assert not glob.glob(os.path.join(job.directory, "hang-*.json")), job.log()
    finally:
        job.end()


def check_leader_gone():
    """The leader's process is killed and its launcher lets the others run: the sleeper, which has seen its ring while it
    lived, names it."""
    job = Job("busy", 3, options=["--enable-recovery"])
    try:
        job.ready()
        pids = wait_for("the ranks", lambda: len(job.ranks()) == 3 and job.ranks())
        ring = jobs.reports.load(job.directory)[0]["ring"]

        def maps():
            with open(f"/proc/{pids[1]}/maps", encoding="utf-8") as file:
                return file.read().count(ring)
        wait_for("the sleeper", lambda: helpers(pids[1]) == 1 and maps() >= 2)  # the board, and all of it
        os.kill(pids[0], signal.SIGKILL)
        found = job.hang()
        assert (found["class"], found["confidence"], found["culprit_ranks"]) == ("rank_gone", "proved", [0]), found
    finally:
        job.end()


def check_launcher():
    """One rank is killed, the launcher ends the other one: the report says who began it and who ended the other."""
    directory = os.path.join(jobs.scratch(), "report")
    jobs.run(MPI, 2, [os.path.join(BUILD, f"ends.{MPI}"), "kill"], directory=directory)
    told = jobs.run_tool("report", "--json", directory)["reason"]
    launcher = "prterun" if MPI == "openmpi" and jobs.openmpi_version() >= (5,) else "mpirun"
    assert f"rank 1 ended without MPI_Finalize first; rank 0 was then ended by {launcher}" in told, told


def check_unreceived(ranks=2, env=None):
    """What nobody received is told at the end, message by message, and changes nothing."""
    if MPI == "mpich" and jobs.mpich_version() >= (4, 1):
        raise LeftOut("MPICH from 4.1 on ends such a job itself, when the communicator is freed")
    job = Job("unreceived", ranks, env=env)
    wait_for("the end", lambda: job.poll() is not None)
    result = job.end()
    assert result.returncode == 0 and b"hang [" not in result.stderr, result.text()
    assert not glob.glob(os.path.join(job.directory, "hang-*.json"))
    report = jobs.reports.load(job.directory)[0]
    assert "unreceived" in job.log() and "received" in " ".join(report["notes"]), (job.log(), report["notes"])
    told = sorted(report["unreceived_messages"], key=lambda entry: entry["tag"])
    half = "MPI_Comm_split of MPI_COMM_WORLD (2 ranks, freed)"
    assert told == [{"sender": 0, "receiver": 1, "communicator": "MPI_COMM_WORLD", "tag": 77, "count": 1},
                    {"sender": ranks - 2, "receiver": ranks - 1, "communicator": half, "tag": 78, "count": 2}], told
    assert report["unreceived_messages_total"] == 3, report


def main():
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = sys.argv[1:3]
    jobs.require(f"mpirun.{MPI}")
    jobs.as_delivered()  # in a library that yields, MPI_Win_start is not always proved to wait
    checks = [(kind, lambda k=kind: check_found(k)) for kind in FOUND if FOUND[kind][0] == 2]
    checks += [("quiet", lambda: check_innocent("quiet", 2, 6)), ("staggered", lambda: check_innocent("staggered", 2, 8)),
               ("epochs", lambda: check_innocent("epochs", 2, 3)), ("between", lambda: check_innocent("between", 2, 3)),
               ("transfers", lambda: check_innocent("transfers", 2, 3)),
               ("notice", check_notice), ("notice of a loop", check_notice_of_loop),
               *((f"no notice, {name}", lambda job=job: check_no_notice(*job)) for name, job in NO_NOTICE.items()),
               ("abort", check_abort), ("hook", check_hook), ("unreceived", check_unreceived)]
    checks = shared(checks, MPI)
    if MPI == "openmpi":
        checks += [(kind, lambda k=kind: check_found(k)) for kind in FOUND if FOUND[kind][0] != 2]
        checks += [("anyright", lambda: check_innocent("anyright", 3, 2))]
        checks += [("stopped", check_stopped), ("stopped for good", check_stopped_for_good), ("takeover", check_takeover), ("leader gone", check_leader_gone),
                   ("launcher", check_launcher),
                   ("unreceived, 1 rank a node", lambda: check_unreceived(4, {"RESIL_NODE_RANKS": "1"}))]
        checks += [(f"{kind}, {node} rank{'s' if node > 1 else ''} a node",
                    lambda k=kind, n=node: check_found(k, env={"RESIL_NODE_RANKS": str(n)}))
                   for kind, node in (("missing", 1), ("cycle", 2), ("partial", 2))]
    wanted = sys.argv[3:]
    if wanted:
        os.environ["RESIL_TEST_LONG"] = "all"
    return run_checks([(f"{name} ({MPI})", check) for name, check in checks if not wanted or name in wanted], SIDE_BY_SIDE)


if __name__ == "__main__":
    sys.exit(main())
