#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the helper of a node sees of ranks in every kind of wait: exactly the parts, ordinals and counters that MPI gives
them, from outside, while they wait; then they are let go and end well.

Usage: hang_states_test.py BUILD openmpi|mpich READER      (BUILD holds hang_states.MPI)
"""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402
from harness import patience  # noqa: E402
from harness.main import run_checks  # noqa: E402

BUILD = MPI = READER = ""
LIMIT = 20
LENIENT, ROOT_ONLY, LOWER_ONLY, NONBLOCKING, PERSISTENT = 1, 2, 4, 8, 16
ANY, ANY_TAG, NO_TAG, UNKNOWN = -1, -1, -32768, -4
WORLD, MIRROR = "MPI_COMM_WORLD", "MPI_Comm_split of MPI_COMM_WORLD (2 ranks)"


def receive(tag, ordinal=1, needed=1, peer=1, flags=0, comm=WORLD, kind="receive"):
    return {"kind": kind, "tag": tag, "ordinal": ordinal, "needed": needed, "peer": peer, "flags": flags, "comm": comm}


def send(tag, size, flags=0):
    return {"kind": "send", "tag": tag, "ordinal": 1, "needed": 1, "peer": 1, "flags": flags, "bytes": size, "comm": WORLD}


def collective(flags=0, comm=WORLD, **more):
    return {"kind": "collective", "flags": flags, "comm": comm, "sequence": "next", **more}


# scene: (call, "all" or "any", parts, answers). An answer: (tag, sent, posted, taken, pending, wild_pending) for messages
# from rank 1 to rank 0, or to the other direction when the tag is negative: (-tag, sent).
SCENES = {
    "recv_second": ("MPI_Recv", "all", [receive(11, 2, 2)], [(11, 1, 2, 0, 1, 0)]),
    "recv_any_source": ("MPI_Recv", "all", [receive(12, 1, 0, ANY)], [(12, 0, 0, 0, 0, 1)]),
    "recv_any_tag": ("MPI_Recv", "all", [receive(ANY_TAG, 1, 0)], [(13, 0, 0, 0, 0, 1)]),
    "recv_after_wild": ("MPI_Recv", "all", [receive(14, 1, 3)], [(14, 2, 1, 2, 1, 0)]),
    "recv_mirror": ("MPI_Recv", "all", [receive(15, comm=MIRROR)], []),
    "probe": ("MPI_Probe", "all", [receive(16, 0, 1, kind="probe")], [(16, 0, 0, 0, 0, 0)]),
    "mprobe": ("MPI_Mprobe", "all", [receive(17, 0, 2, kind="probe")], [(17, 1, 0, 1, 0, 1)]),
    "ssend": ("MPI_Ssend", "all", [send(18, 12)], [(-18, 1)]),
    "send_large": ("MPI_Send", "all", [send(19, 1 << 20)], [(-19, 1)]),
    "sendrecv": ("MPI_Sendrecv", "all", [send(20, 8, LENIENT), receive(21)], [(-20, 1), (21, 0, 1, 0, 1, 0)]),
    "wait": ("MPI_Wait", "all", [receive(22, flags=NONBLOCKING)], [(22, 0, 1, 0, 1, 0)]),
    "waitall": ("MPI_Waitall", "all",
                [receive(23, 1, 0, ANY, NONBLOCKING), send(24, 4, NONBLOCKING), receive(25, flags=NONBLOCKING | PERSISTENT),
                 send(26, 4, NONBLOCKING | PERSISTENT)],
                [(23, 0, 0, 0, 0, 1), (-24, 1), (25, 0, 1, 0, 1, 0), (-26, 1)]),
    "waitany": ("MPI_Waitany", "any", [receive(27, flags=NONBLOCKING), receive(29, flags=NONBLOCKING)], [(28, 0, 0, 0, 0, 0)]),
    "waitsome": ("MPI_Waitsome", "any", [receive(27, 2, 2, flags=NONBLOCKING), receive(29, 2, 2, flags=NONBLOCKING)],
                 [(27, 1, 2, 0, 1, 0)]),
    "test_loop": ("poll", "any", [receive(30, flags=NONBLOCKING), receive(31, flags=NONBLOCKING),
                                  receive(32, 0, 0, ANY, kind="probe")], []),
    "testall_loop": ("poll", "all", [receive(33, flags=NONBLOCKING), receive(34, flags=NONBLOCKING)], []),
    "barrier": ("MPI_Barrier", "all", [collective()], []),
    "bcast": ("MPI_Bcast", "all", [collective(ROOT_ONLY, peer=1)], []),
    "reduce": ("MPI_Reduce", "all", [collective(peer=0)], []),
    "allreduce": ("MPI_Allreduce", "all", [collective()], []),
    "gather": ("MPI_Gather", "all", [collective(peer=0)], []),
    "scatter": ("MPI_Scatter", "all", [collective(ROOT_ONLY, peer=1)], []),
    "allgather": ("MPI_Allgather", "all", [collective()], []),
    "alltoall": ("MPI_Alltoall", "all", [collective()], []),
    "scan": ("MPI_Scan", "all", [collective(LOWER_ONLY, comm=MIRROR)], []),
    "reduce_scatter_block": ("MPI_Reduce_scatter_block", "all", [collective()], []),
    "ibarrier": ("MPI_Wait", "all", [collective(NONBLOCKING)], []),
    "iallreduce": ("MPI_Wait", "all", [collective(NONBLOCKING, comm=MIRROR)], []),
    "ibcast": ("MPI_Wait", "all", [collective(NONBLOCKING | ROOT_ONLY, comm=MIRROR, peer=1)], []),
    "comm_dup": ("MPI_Comm_dup", "all", [collective()], []),
    "comm_split": ("MPI_Comm_split", "all", [collective(comm=MIRROR)], []),
    "win_create": ("MPI_Win_create", "all", [collective()], []),
    "win_fence": ("MPI_Win_create", "all", [collective(comm=MIRROR)], []),
    "win_fence_second": ("MPI_Win_fence", "all", [collective(comm="a window of MPI_Comm_split of MPI_COMM_WORLD")], []),
    "finalize": ("MPI_Finalize", "all", [collective()], []),
}
FORTRAN = {
    "f08_recv": ("MPI_Recv", "all", [receive(11)], [(11, 0, 1, 0, 1, 0)]),
    "f08_waitall": ("MPI_Waitall", "all", [receive(22, 1, 0, ANY, NONBLOCKING), send(24, 4, NONBLOCKING)], [(22, 0, 0, 0, 0, 1)]),
    "f08_allreduce": ("MPI_Allreduce", "all", [collective()], []),
}
EVERY = {**SCENES, **FORTRAN}


class Reader:
    """The reader program on the rings of a job."""

    def __init__(self, rings):
        self.process = subprocess.Popen([READER, *rings], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def until(what, look, good):
    """What `look` returns once `good` says so."""
    limit = patience.Patience(LIMIT)
    while not good(value := look()):
        assert not limit.over(), f"{what} did not happen within {LIMIT} s: {value}"
        time.sleep(0.005)
    return value


class Job:
    def __init__(self, arguments, env=None, ranks=2, program="hang_states"):
        self.folder = jobs.scratch()
        self.directory = os.path.join(self.folder, "report")
        command = [os.path.join(BUILD, f"{program}.{MPI}"), self.folder, *arguments]
        environment = jobs.rank_environment(True, self.directory, env)
        self.running = jobs.Running(jobs.launcher(MPI, ranks, environment) + command, self.directory)
        rings = until("the rings", lambda: jobs.live_rings(self.directory), lambda found: len(found) == ranks)
        self.reader = Reader(sorted(rings, key=lambda path: int(path.split("-")[-2])))

    def go(self, scene):
        with open(os.path.join(self.folder, f"go.{scene}"), "w", encoding="utf-8"):
            pass

    def end(self):
        """The job must end by itself, and well."""
        try:
            until("the end of the job", self.running.poll, lambda status: status is not None)
        finally:
            self.reader.end()
            result = self.running.end()
        assert result.returncode == 0 and result.stdout.decode() == "hang_states: ok\n", result.text()

    def abandon(self):
        self.reader.end()
        result = self.running.end()
        jobs.remove_rings(self.directory)
        return result.text()


def is_waiting(call):
    """Rank 0 is in that call, stably, and rank 1 is in its own code."""
    def judge(states):
        waiting, computing = states
        return (computing["activity"] == "computing" and len(waiting["threads"]) == 1 and
                (waiting["activity"] == "polling" if call == "poll" else
                 waiting["activity"] == "blocked" and waiting["threads"][0]["call"] == call))
    return judge


def sequence_of(state, part):
    found = [comm["sequence"] for comm in state["comms"] if comm["id"] == part["id"]]
    assert len(found) == 1, (part, state)
    return found[0]


def check_parts(scene, states):
    call, kind, expected, _ = EVERY[scene]
    thread = states[0]["threads"][0]
    assert thread["kind"] == kind and not thread["truncated"], (scene, thread)
    assert call == "poll" or thread["site"].startswith("hang_states"), (scene, thread)
    assert states[0]["provable"] == 1 and states[0]["irregular"] == 0, (scene, states[0])
    assert len(thread["parts"]) == len(expected), (scene, thread)
    for part, wanted in zip(thread["parts"], expected):
        if wanted.get("sequence") == "next":
            wanted = {**wanted, "sequence": sequence_of(states[1], part) + 1}
            assert sequence_of(states[0], part) == wanted["sequence"], (scene, states)
        assert {key: part[key] for key in wanted} == wanted, (scene, part, wanted)


def check_answers(scene, reader):
    for tag, sent, *rest in EVERY[scene][3]:
        given = reader.ask(f"ask {WORLD} " + (f"0 1 {-tag}" if tag < 0 else f"1 0 {tag}"))
        names = ("sent", "posted", "taken", "pending", "wild_pending")
        wanted = dict(zip(names, (sent, *rest)))
        assert {key: given[key] for key in wanted} == wanted, (scene, tag, given)
        assert given["from_source"] == given["from_destination"] == given["covered"] == 1 and not given["other_tags"], given


def reach(scene, job):
    """The states in which the scene's parts are there. Before, the ranks may be in the calls that lead to it."""
    last = [None]

    def judge(states):
        if not is_waiting(EVERY[scene][0])(states):
            return False
        try:
            check_parts(scene, states)
        except AssertionError as error:
            last[0] = error
            return False
        return True

    try:
        return until(scene, lambda: job.reader.ask("state"), judge)
    except AssertionError as error:
        raise last[0] or error


def check_scenes(scenes, job):
    try:
        for scene, (call, *_) in scenes.items():
            states = reach(scene, job)
            check_answers(scene, job.reader)
            # The same call at a second look: nothing moves, and the instance tells so.
            looks = [job.reader.ask("look") for _ in range(2)]
            again = reach(scene, job)
            assert again[0]["threads"][0]["instance"] == states[0]["threads"][0]["instance"], (scene, states, again)
            assert not looks[1][0]["moved"] and not looks[1][1]["in_mpi"], (scene, looks)
            assert looks[1][0]["in_mpi"] or call == "poll", (scene, looks)
            assert looks[1][0]["life"] == "unknown", looks
            job.go(scene)
        until("the end", lambda: job.reader.ask("state"), lambda states: all(s["activity"] == "finished" for s in states))
    except BaseException:
        print(job.abandon())
        raise
    job.end()


def check_off():
    """RESIL_HANG=off: no section, and nothing is written."""
    job = Job(["barrier"], {"RESIL_HANG": "off"})
    try:
        assert job.reader.ask("state") == ["no section"] * 2
        job.go("barrier")
    except BaseException:
        print(job.abandon())
        raise
    job.end()


def main():
    global BUILD, MPI, READER  # pylint: disable=global-statement
    BUILD, MPI, READER = sys.argv[1:4]
    jobs.require(f"mpirun.{MPI}")
    return run_checks([(f"every wait ({MPI})", lambda: check_scenes(SCENES, Job(list(SCENES)))),
                       (f"through the Fortran 2008 bindings ({MPI})",
                        lambda: check_scenes(FORTRAN, Job([], program="hang_states_f08"))),
                       (f"switched off ({MPI})", check_off)])


sys.exit(main())
