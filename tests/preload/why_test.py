#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""resil why on jobs that move, spin, wait for each other and wait for a file: verdict, culprit, line and communicator are right, the ranks
go on, and a job that can end does so with its own result.

Usage: why_test.py MPI
"""
import glob
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "scripts"))
sys.dont_write_bytecode = True
from harness import launch_lines, mpi as jobs, patience  # noqa: E402
from harness.main import LeftOut, run_checks  # noqa: E402
from resil_tool import process, remote_stacks  # noqa: E402

TOOL = os.path.join(jobs.ROOT, "scripts", "resil")
APP = r"""
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static volatile double sink;
static inline __attribute__((always_inline)) void relax(double x) {
  sink = sink * x + 1;                                              /* relax */
}
static void solve(const char* file) {
  while (access(file, F_OK) != 0)                                   /* look */
    for (int i = 0; i < 1000000; ++i) relax(0.5);                   /* solve */
}
static void checkpoint(const char* file) {
  int fd = open(file, O_RDONLY);                                    /* checkpoint */
  close(fd);
}
int main(int argc, char** argv) {
  int rank, value = 1, sum = 0, more = 1;
  char fifo[4096];
  MPI_Comm comm;
  MPI_Init(&argc, &argv);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_name(comm, "atmosphere");
  MPI_Comm_rank(comm, &rank);
  strcpy(fifo, argv[2]);
  strcat(fifo, ".fifo");
  while (strcmp(argv[1], "move") == 0 && more) {
    value = access(argv[2], F_OK) != 0;
    MPI_Allreduce(&value, &more, 1, MPI_INT, MPI_MIN, comm);
    usleep(1000);
  }
  if (rank == 1 && strcmp(argv[1], "spin") == 0) solve(argv[2]);
  if (rank == 1 && strcmp(argv[1], "fifo") == 0) checkpoint(fifo);
  if (rank < 2 && strcmp(argv[1], "cycle") == 0) MPI_Recv(&sum, 1, MPI_INT, 1 - rank, 7, comm, MPI_STATUS_IGNORE); /* cycle */
  if (rank == 0 && strcmp(argv[1], "lose") == 0) MPI_Send(&value, 1, MPI_INT, 1, 77, comm);
  if (rank == 1 && strcmp(argv[1], "lose") == 0) MPI_Recv(&sum, 1, MPI_INT, 0, 77, comm, MPI_STATUS_IGNORE);
  value = rank + 1;
  MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
  MPI_Comm_free(&comm);
  MPI_Finalize();
  if (rank == 0) printf("sum %d\n", sum);
  return 0;
}
"""
LOSE = """
#include <mpi.h>
int MPI_Send(const void* buffer, int count, MPI_Datatype type, int destination, int tag, MPI_Comm comm) {
  return tag == 77 ? MPI_SUCCESS : PMPI_Send(buffer, count, type, destination, tag, comm);
}
"""
PYTHON = "/usr/bin/python3"
PYTHON_APP = """
import os
import sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
def converge(n):
    while rank == 1 and not os.path.exists(sys.argv[1]):
        for i in range(1000000): n = i % 5
    return comm.allreduce(rank + 1)
def main():
    total = converge(3)
    if rank == 0: print("sum", total)
main()
"""
PYTHON_LINE = 9


def line_of(mark):
    """The line's number, of the first that has it."""
    return 1 + next(i for i, line in enumerate(APP.split("\n")) if "/* %s */" % mark in line)


class Job:
    """A job that goes on until `end`, or for ever."""

    def __init__(self, mpi, place, what, ranks=2, tools=(), **settings):
        self.ranks = ranks
        self.file, self.directory = os.path.join(jobs.scratch(), "end"), os.path.join(jobs.scratch(), "report")
        os.mkfifo(self.file + ".fifo")
        environment = jobs.rank_environment(True, self.directory, {"RESIL_LOG": "quiet", "RESIL_HANG_NOTICE": "0", **settings},
                                            tools_after=tools)
        self.job = jobs.Running(jobs.launcher(mpi, ranks, environment) + (
            [PYTHON, os.path.join(place, "app.py")] if what == "python" else [os.path.join(place, "app"), what]) + [self.file], self.directory)

    def why(self, *words):
        return patience.run([sys.executable, TOOL, "why", *words, self.directory], capture_output=True, timeout=60,
                            env=jobs.clean_environment())

    def until(self, wanted, *words):
        """The first answer that `wanted` takes."""
        limit = patience.Patience(30)
        while True:
            done = self.why("--json", *words)
            found = json.loads(done.stdout) if done.returncode in (0, 1, 3) else {}
            if found and found["ranks_here"] == self.ranks and found["source"] and wanted(found):
                return done, found
            assert self.job.poll() is None and not limit.over(), (done.stdout, done.stderr)

    def pids(self):
        return [pid for _, pid in sorted(self.job.ranks().items())]

    def end(self, dumps=0):
        """The result is the program's own, though it was asked."""
        with open(self.file, "w", encoding="ascii"):
            pass
        patience.wait_for(lambda: self.job.poll() is not None, "the end of the job", 60)
        result = self.job.end()
        assert result.returncode == 0 and result.stdout == b"sum 3\n", result.text()
        assert dumps is None or len(glob.glob(os.path.join(self.directory, "dump-*"))) == dumps, "which ranks were signalled?"


def stacks_can_be_read():
    """ptrace may be forbidden here, or no reader installed."""
    with subprocess.Popen(["sleep", "60"]) as other:
        found, _ = remote_stacks.take([other.pid])
        other.kill()
    return bool(found)


def moves(mpi, place):
    job = Job(mpi, place, "move")
    done, found = job.until(lambda found: found["verdict"] == "moving")
    assert done.returncode == 0 and not found["culprits"] and found["ranks_here"] == 2, found
    text = patience.wait_for(lambda: (told := job.why().stdout.decode()).startswith("MOVING: ") and told, "MOVING on the screen", 30)
    assert "stacks" not in text and "\033" not in text, text
    job.end()
    again = job.why()
    assert again.returncode == 2 and b"no rank of" in again.stderr, again


def spins(mpi, place):
    job = Job(mpi, place, "spin")
    # Before, ranks that a busy machine does not let run stand still elsewhere: likewise in the other scenes.
    done, found = job.until(lambda found: found["verdict"] == "a rank never arrived" and any(edge["communicator"] == "atmosphere" for edge in found["edges"]))
    assert done.returncode == 1 and found["detail"] == "computing", found
    assert found["culprits"] == [1] and found["victims"] == [0] and found["confidence"] == "suspected", found
    edges = [(edge["from"], edge["to"], edge["call"], edge["communicator"]) for edge in found["edges"]]
    assert edges == [([0], [1], "MPI_Allreduce", "atmosphere")], edges
    if stacks_can_be_read():
        text = job.why().stdout.decode()
        assert any("%s at app.c:%d" % place in text for place in (
            ("solve", line_of("solve")), ("relax", line_of("relax")), ("solve", line_of("look")))), text
        assert all(process.stat(pid)[0] in "RSD" for pid in job.pids())
    job.end()


def waits_for_each_other(mpi, place, **settings):
    job = Job(mpi, place, "cycle", **settings)
    done, found = job.until(lambda found: found["confidence"] == "proved", "--no-stacks")
    assert done.returncode == 1 and found["verdict"] == "deadlock" and found["kind"] == "deadlock", found
    assert found["culprits"] == [0, 1] and not found["unanswered"], found
    edges = sorted((edge["from"], edge["to"], edge["kind"], edge["tag"], edge["communicator"]) for edge in found["edges"])
    assert edges == [([0], [1], "receive", 7, "atmosphere"), ([1], [0], "receive", 7, "atmosphere")], edges
    assert found["nodes"] == (2 if settings else 1), found
    text = job.why("--no-stacks").stdout.decode()
    assert text.startswith("PROVED deadlock: ") and "tag 7, on atmosphere" in text, text
    # A state dump of one rank is the same question.
    before = len(glob.glob(os.path.join(job.directory, "why-*.json")))
    os.kill(job.pids()[1], signal.SIGHUP)
    patience.wait_for(lambda: len(glob.glob(os.path.join(job.directory, "why-*.json"))) > before, "the answer to a dump", 30)
    job.job.end()


def gathered(job, owner):
    """Each stacks-N.json of that owner."""
    for path in sorted(glob.glob(os.path.join(job.directory, "stacks-*.json"))):
        with open(path, encoding="utf-8") as file:
            found = dict(json.load(file), path=path)
        if found["of"].startswith(owner):
            yield found


def perf_is_permitted():
    try:
        with open("/proc/sys/kernel/perf_event_paranoid", encoding="ascii") as file:
            return os.geteuid() == 0 or int(file.read()) <= 2
    except (OSError, ValueError):
        return False


def gathers_stacks(mpi, place):
    """Of a hang that is told, without anybody asking: stacks of the ranks of both nodes as one tree."""
    job = Job(mpi, place, "cycle", RESIL_NODE_RANKS="1")
    found = patience.wait_for(lambda: next(gathered(job, "hang-"), None), "the stacks", 40)
    assert found["ranks"] == 2 and found["samples"] >= 4 and found["left_out"] == 0, found
    own = []
    if perf_is_permitted() and not found["unread"]:
        own = [stack["ranks"] for stack in found["stacks"] if any(frame.startswith("app+0x") for frame in stack["frames"])]
        assert sorted(",".join(own).replace("-", ",").split(",")) == ["0", "1"], found
    with open(found["path"].replace(".json", ".txt"), encoding="utf-8") as file:
        assert file.read().startswith("Stacks of %d threads of 2 ranks, with hang-" % found["threads"])
    of = os.path.join(job.directory, found["of"])
    patience.wait_for(lambda: json.load(open(of, encoding="utf-8")).get("stacks"), "the stacks in the finding", 40)
    with open(of, encoding="utf-8") as file:
        finding = json.load(file)
    assert finding["class"] == "deadlock" and len(finding["ranks"]) == 2 and finding["stacks"]["stacks"] == found["stacks"], finding
    assert os.path.exists(os.path.join(job.directory, finding["stacks"]["file"])), finding["stacks"]
    with open(of.replace(".json", ".txt"), encoding="utf-8") as file:
        text = file.read()
    assert text.startswith("deadlock (proved), found at ") and "\nStacks of %d threads of 2 ranks, with hang-" % found["threads"] in text, text
    shown = patience.run([sys.executable, TOOL, "report", job.directory], capture_output=True, timeout=60, env=jobs.clean_environment()).stdout.decode()
    assert "stacks     %d threads of 2 ranks" % found["threads"] in shown and "/" + found["of"] in shown, shown
    if own:
        assert "main at app.c:%d" % line_of("cycle") in shown, shown
    assert all(process.stat(pid)[0] in "RSD" for pid in job.pids())
    job.job.end()


def gathers_none(mpi, place):
    job = Job(mpi, place, "cycle", RESIL_HANG_STACKS="0")
    job.until(lambda found: found["confidence"] == "proved", "--no-stacks")
    patience.wait_for(lambda: glob.glob(os.path.join(job.directory, "hang-*.json")), "the finding", 40)
    job.until(lambda found: found["confidence"] == "proved", "--no-stacks")  # one more chain of rounds
    assert not glob.glob(os.path.join(job.directory, "stacks-*")), os.listdir(job.directory)
    job.job.end()


def is_suspected_and_goes_on(mpi, place):
    """A program that computes for longer than the line about it waits: looked at from outside, and its result is its own."""
    job = Job(mpi, place, "spin", RESIL_NODE_RANKS="1", RESIL_HANG_NOTICE="1", RESIL_LOG="info")
    def rank_1_computes(found):
        return not perf_is_permitted() or any(
            stack["ranks"] == "1" and any(frame.startswith("app+0x") for frame in stack["frames"]) for stack in found["stacks"])
    # The first notice may be of ranks that a busy machine has not let come so far.
    patience.wait_for(lambda: any(map(rank_1_computes, gathered(job, "notice"))), "the stacks of a notice", 40)
    job.end()


def loses_a_message(mpi, place):
    """A library that says that a message was sent, and never delivers it (as MPICH 4.0.2 is said to, now and then)."""
    library = os.path.join(place, "lose.so")
    job = Job(mpi, place, "lose", ranks=3, tools=[library])
    _, found = job.until(lambda found: found["verdict"] == "inside MPI with everyone arrived" and "tag 77" in found["message"], "--no-stacks")
    assert found["kind"] == "inside_mpi", found
    assert not found["culprits"] and found["culprit_count"] == 0 and found["victims"], found
    assert "The message was sent, but has not been delivered" in found["message"], found
    assert "The MPI library or the network does not deliver." in found["message"], found
    assert found["message"].startswith("Rank 1 waits in MPI_Recv from rank 0, tag 77, on atmosphere"), found
    job.job.end()


def is_taken_over(mpi, place):
    """The rank whose thread led is stopped: who takes over knows from the record for how long the job has stood still."""
    job = Job(mpi, place, "cycle")
    _, before = job.until(lambda found: found["verdict"] != "moving" and found["quiet"] > 3, "--no-stacks")
    os.kill(job.pids()[0], signal.SIGSTOP)
    try:
        _, found = job.until(lambda found: True, "--no-stacks")
        with open(os.path.join(job.directory, found["source"]), encoding="utf-8") as file:
            age = max(rank.get("age", 0) for rank in json.load(file)["ranks"])  # for so long a rank has been in its call, by its slots
        assert found["kind"] == "rank_stopped" and found["culprits"] == [0], found
        assert before["quiet"] < found["quiet"] and age - 2 < found["quiet"] < age + 2, (age, found["quiet"])
    finally:
        os.kill(job.pids()[0], signal.SIGCONT)
    job.job.end()


def is_stopped_as_a_whole(mpi, place):
    """All ranks: this is said at once, from /proc, and the job goes on with its own result."""
    job = Job(mpi, place, "move")
    job.until(lambda found: found["verdict"] == "moving", "--no-stacks")
    pids = job.pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        done = job.why("--json")
        found = json.loads(done.stdout)
        text = " ".join(job.why("--no-stacks").stdout.decode().split())
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1 and found["verdict"] == "stopped" and found["kind"] == "rank_stopped", found
    assert found["culprits"] == [0, 1] and found["pids"] == {"0": pids[0], "1": pids[1]}, (found, pids)
    assert text.startswith("STOPPED: All 2 ranks of this job on ") and "kill -CONT " in text and "RESIL_HANG" not in text, text
    job.until(lambda found: found["verdict"] == "moving", "--no-stacks")
    job.end()


def has_its_first_node_stopped(mpi, place):
    """Nobody of the node whose thread answers for all runs any more: another node answers, does not accuse it at once, later it does; when it
    goes on it is asked again."""
    job = Job(mpi, place, "cycle", ranks=3, RESIL_NODE_RANKS="1")
    def seconds(found):
        """From the question to the answer."""
        with open(os.path.join(job.directory, found["source"]), encoding="utf-8") as file:
            told = json.load(file)
        return (told["time_ns"] - told["ticket"]) * 1e-9
    _, found = job.until(lambda found: found["verdict"] == "deadlock", "--no-stacks")
    usual = seconds(found)  # longer on a crowded machine
    os.kill(job.pids()[0], signal.SIGSTOP)
    try:
        _, found = job.until(lambda found: True, "--no-stacks", "--wait", "30")
        assert found["unanswered"] == [0], found
        # Given up after 3 s without a word; the last word may have come some time before the last call.
        assert not found["culprits"] or found["quiet"] > 2, found
        assert seconds(found) < 5 + usual, (seconds(found), usual)  # 5 s of silence: given up where nobody has asked
        _, found = job.until(lambda found: found["kind"] == "node_silent", "--no-stacks")
        assert found["culprits"] == [0] and found["detail"] == "unreachable", found
    finally:
        os.kill(job.pids()[0], signal.SIGCONT)
    _, found = job.until(lambda found: found["verdict"] == "deadlock", "--no-stacks")
    assert not found["unanswered"], found
    job.job.end()


def waits_for_a_file(mpi, place):
    job = Job(mpi, place, "fifo")
    done, found = job.until(lambda found: found["culprits"] == [1] and found["verdict"] == ("file I/O" if found["blocked"] else "a rank never arrived"), "--no-stacks")
    assert done.returncode == 1 and found["victims"] == [0], found
    pid = job.pids()[1]
    if os.access("/proc/%d/syscall" % pid, os.R_OK) and found["blocked"]:
        assert found["verdict"] == "file I/O" and found["detail"] == 'in open("%s.fifo")' % job.file, found
    dumped = patience.run([sys.executable, TOOL, "dump", "--json", job.directory], capture_output=True, timeout=60,
                          env=jobs.clean_environment())
    said = patience.run([sys.executable, TOOL, "dump", job.directory], capture_output=True, timeout=60,
                        env=jobs.clean_environment()).stdout.decode()
    assert dumped.returncode == 0, dumped
    if found["blocked"]:
        assert 'in open("%s.fifo"), called from checkpoint at app.c:%d, not in MPI' % (job.file, line_of("checkpoint")) in said, said
    with open(job.file + ".fifo", "w", encoding="ascii"):
        job.end(dumps=4)


def waits_in_python(mpi, place):
    """mpi4py: function and line of both ranks in their dumps, and in the answer, which reads them from outside."""
    if subprocess.run([PYTHON, "-c", "from mpi4py import MPI; assert 'Open MPI' in MPI.Get_library_version()"], check=False,
                      stderr=subprocess.DEVNULL).returncode or mpi != "openmpi":
        raise LeftOut("no mpi4py for this MPI")
    job = Job(mpi, place, "python")
    limit = patience.Patience(30)
    while True:  # until both are in converge: one can be there while the other still imports
        said = patience.run([sys.executable, TOOL, "dump", job.directory], capture_output=True, timeout=60,
                            env=jobs.clean_environment()).stdout.decode()
        texts = [open(path, encoding="utf-8").read() for path in glob.glob(os.path.join(job.directory, "dump-00000-*.txt"))]
        if "now at converge at app.py:%d" % PYTHON_LINE in said and any(
                'app.py", line %d in converge' % (PYTHON_LINE + 1) in text and ' in main\n' in text for text in texts):
            break
        assert job.job.poll() is None and not limit.over(), said + str(texts) + str(job.job.output)
    _, found = job.until(lambda found: found["culprits"] == [1])
    if stacks_can_be_read():
        lines = ["converge at app.py:%d" % line for line in (PYTHON_LINE - 1, PYTHON_LINE)]
        assert found["at"]["1"] in lines and any("Rank 1 is outside MPI at %s; " % line in found["message"] for line in lines), found
        place, = [one["place"] for one in found["places"] if one["name"] == "rank 0"]
        assert "called at converge at app.py:%d" % (PYTHON_LINE + 1) in place, found["places"]
        shown = " ".join(job.why().stdout.decode().split())
        assert "main at app.py:%d" % (PYTHON_LINE + 3) in shown, shown
        assert "_PyEval" not in shown and "python3" not in shown.split("stacks (")[1], shown
    job.end(dumps=None)


def main(mpi):
    place = launch_lines.place(mpi)
    with open(os.path.join(place, "app.c"), "w", encoding="ascii") as file:
        file.write(APP)
    with open(os.path.join(place, "lose.c"), "w", encoding="ascii") as file:
        file.write(LOSE)
    subprocess.run([os.path.join(place, "bin", "mpicc"), "-shared", "-fPIC", "-o", "lose.so", "lose.c"], cwd=place, check=True)
    with open(os.path.join(place, "app.py"), "w", encoding="ascii") as file:
        file.write(PYTHON_APP)
    subprocess.run([os.path.join(place, "bin", "mpicc"), "-g", "-O1", "-o", "app", "app.c"], cwd=place, check=True)
    checks = [("a job that moves", moves), ("a rank that computes for ever", spins), ("a rank that waits for a file", waits_for_a_file),
              ("two ranks of Python", waits_in_python), ("a message that is lost", loses_a_message),
              ("two ranks that wait for each other", waits_for_each_other),
              ("asked of a thread that has taken over", is_taken_over), ("all ranks stopped", is_stopped_as_a_whole), ("its first node stopped", has_its_first_node_stopped),
              ("stacks of all nodes with a hang that is told", gathers_stacks), ("stacks switched off", gathers_none),
              ("suspected, looked at, and goes on", is_suspected_and_goes_on),
              ("the same on two nodes", lambda mpi, place: waits_for_each_other(mpi, place, RESIL_NODE_RANKS="1"))]
    return run_checks([(name, lambda check=check: check(mpi, place)) for name, check in checks])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
