#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replicas: each program of tests/mpi ends, prints and writes in a job of two or three parts as it does alone; what a part
keeps to itself; what is refused.

Usage: replicas_test.py BUILD openmpi|mpich PROGRAM…      (BUILD holds PROGRAM.MPI, and replicas.MPI)
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "mpi"))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports, transparent  # noqa: E402
from harness.main import LeftOut, Long, run_checks  # noqa: E402
import programs_test  # noqa: E402

BUILD = MPI = ""
ALWAYS = ("p2p", "callbacks", "errors", "files", "cxx", "fortran_f08")  # the others are of the same kinds
REFUSED = ("spawn", "sessions", "mpi4")  # they start processes, or use sessions


def lines(result):
    return sorted(result.stdout.splitlines())


def check_program(name, parts=2):
    """The same end, output and file as alone."""
    program = programs_test.Program(BUILD, MPI, name)
    if program.rules.get("needs", MPI) != MPI:
        return
    if name.startswith(("rma", "window")) and (jobs.mpich_version() < (4, 1) if MPI == "mpich" else jobs.openmpi_version() < (5,)):
        raise LeftOut("this MPI mixes up windows of communicators that were made by a split, also natively")
    plain, wrote = program.run(False)
    program.ranks *= parts
    file = os.path.join(jobs.scratch(), "file")
    result = jobs.run(MPI, program.ranks, program.command(file), options=program.options, env={"RESIL_REPLICAS": str(parts)})
    also_wrote = programs_test.digest(file) if os.path.exists(file) else None
    status = int(program.rules.get("exit", 0))
    assert plain.returncode == status, f"the plain run ends with {plain.returncode}\n{plain.text()}"
    assert result.returncode == plain.returncode and not result.timed_out, transparent.describe("the end differs", plain, result)
    assert lines(result) == lines(plain), transparent.describe("standard output differs", plain, result)
    assert wrote == also_wrote, "the file written differs"
    if status == 0:
        said = [line for line in result.stderr.splitlines() if line not in plain.stderr.splitlines()]
        said = [line for line in said if not line.startswith((b"resil: CLEAN", b"resil: reports"))]
        assert not transparent.without_noise(b"\n".join(said)), result.text()


def program(scene, *, parts, ranks=2, **arguments):
    env = {"RESIL_REPLICAS": str(parts), **arguments.pop("env", {})} if parts > 1 else arguments.pop("env", {})
    return jobs.run(MPI, ranks * parts, [os.path.join(BUILD, f"replicas.{MPI}"), *scene.split()], preload=parts > 1, env=env,
                    timeout=60, **arguments)


def beginning():
    """A directory as the program finds it."""
    folder = jobs.scratch()
    for name, text in (("old.txt", "of before\n"), ("both.txt", "abcdef\n"), ("goes.txt", "gone\n"), ("moves.txt", "moves\n"),
                       ("mpi-old.bin", "MPI\n")):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    os.mkdir(os.path.join(folder, "empty"))
    return folder


def tree(folder):
    """What lies there: {path: contents}; None: a directory."""
    found = {}
    for at, folders, names in os.walk(folder):
        for name in folders:
            found[os.path.relpath(os.path.join(at, name), folder)] = None
        for name in names:
            with open(os.path.join(at, name), "rb") as file:
                found[os.path.relpath(os.path.join(at, name), folder)] = file.read()
    return found


def check_files(parts, slow):
    """A part that is late reads what was there when the job began, and every part what it has written itself."""
    folder = beginning()
    plain = program("files", parts=1, cwd=folder)
    assert plain.returncode == 0 and b"not made" not in plain.stdout, plain.text()
    left = tree(folder)
    folder = beginning()
    result = program("files", parts=parts, cwd=folder, env={"SLOW": str(slow)})
    assert result.returncode == 0 and result.stdout == plain.stdout, transparent.describe("output differs", plain, result)
    assert tree(folder) == left, f"{tree(folder)}\nare left, alone\n{left}"
    said = result.stderr.split(b"\n")
    assert sorted(line for line in said if b"is through" in line) == [b"rank 0 is through", b"rank 1 is through"], result.text()
    beside = [name for name in os.listdir(result.directory) if name.startswith("part-") or name.endswith(".stderr")]
    assert not beside, f"files of parts are left: {beside}"


def check_world(parts, ranks):
    plain = program("world", parts=1, ranks=ranks)
    assert plain.returncode == 0, plain.text()
    result = program("world", parts=parts, ranks=ranks)
    assert result.returncode == 0 and result.stdout == plain.stdout, transparent.describe("output differs", plain, result)
    for rank, report in reports.load(result.directory).items():
        of = report["replicas"]
        assert (of["parts"], of["part"], of["rank"], of["ranks"]) == (parts, rank // ranks, rank % ranks, ranks), of
        assert not report["findings"], report["findings"]


def check_input():
    """Every part has read all of it, or it would have ended the job."""
    text = b"".join(b"line %d\n" % i for i in range(1000))
    result = program("input", parts=2, stdin=text)
    assert result.returncode == 0 and sorted(result.stdout.splitlines()) == [
        b"rank 0: 1000 lines, the last one line 999", b"rank 1: 1000 lines, the last one line 999"], result.text()


def refusal(result, words):
    assert not result.timed_out and words in result.stderr, result.text()
    assert result.returncode == 93 or MPI == "mpich" and result.returncode in (93, 15, 9), result.text()
    assert result.stderr.count(words) == 1, result.text()


def check_refused():
    refusal(program("port", parts=2, ranks=1), b"the program calls MPI_Open_port, which cannot be done")
    result = jobs.run(MPI, 3, [os.path.join(BUILD, f"replicas.{MPI}"), "world"], env={"RESIL_REPLICAS": "2"})
    refusal(result, b"needs a number of ranks that it divides, and this job has 3; start 2 or 4 ranks")
    environment = jobs.rank_environment(True, os.path.join(jobs.scratch(), "report"), {"RESIL_REPLICAS": "2"})
    command = [os.path.join(BUILD, f"replicas.{MPI}"), "world"]
    line = jobs.launcher_of_parts(MPI, [(environment, command), (environment, command + ["more"])])
    refusal(jobs.start(line), b"rank 1 runs another one, or with other arguments, than rank 0")
    if MPI == "mpich" and jobs.mpich_version() >= (4,):
        result = jobs.run(MPI, 4, [os.path.join(BUILD, f"sessions.{MPI}")], env={"RESIL_REPLICAS": "2"})
        assert result.returncode != 0 and b"RESIL_REPLICAS needs a program that calls MPI_Init" in result.stderr, result.text()


def check_nodes():
    """Partners on one node where there are two are told; on two they are not."""
    words = b"are both on"
    together = program("world", parts=3, env={"RESIL_NODE_RANKS": "3"})
    assert together.returncode == 0 and together.stderr.count(words) == 1, together.text()
    assert b"rank 0 and its partner rank 2" in together.stderr and b"has 2 nodes" in together.stderr, together.text()
    apart = program("world", parts=2, env={"RESIL_NODE_RANKS": "2"})
    assert apart.returncode == 0 and words not in apart.stderr, apart.text()


def check_flips(parts, kind):
    """A flipped bit: the call that gives it first, on the rank that has it; with three parts its part alone."""
    for policy, status in (("log", 0), ("abort", 90)):
        result = program(f"flip {kind}", parts=parts, env={"FLIP": str(2 * parts - 1), "RESIL_ON_MISMATCH": policy})  # the last rank
        assert (result.returncode == status or status and result.returncode != 0) and not result.timed_out, result.text()
        found = [(rank, one) for rank, report in reports.load(result.directory).items() for one in report["findings"]]
        assert len(found) == 1, found
        (rank, one), = found
        assert rank == 1 and one["kind"] == "parts_differ" and one["confidence"] == "verified", one
        if parts == 3:
            assert one["culprit_ranks"] == [5] and not one["victim_ranks"], one
        else:
            assert one["victim_ranks"] == [1, 3] and not one["culprit_ranks"], one
        assert {"send": "MPI_Send", "isend": "MPI_Isend", "reduce": "MPI_Allreduce"}[kind] in one["message"], one


def check_default():
    """Of two parts nobody knows which is wrong, or whether one is: that ends no job that nobody has told to end."""
    result = program("flip send", parts=2, env={"FLIP": "3"})
    assert result.returncode == 0 and result.stderr.count(b"parts_differ [verified]") == 1, result.text()
    result = program("flip send", parts=3, env={"FLIP": "3"})
    assert result.returncode != 0 and result.stderr.count(b"parts_differ [verified]") == 1, result.text()


def check_more_kinds(what, call):
    """The same of partitioned messages, persistent collectives, and one-sided calls."""
    def run(parts, **env):
        return jobs.run(MPI, 2 * parts, [os.path.join(BUILD, f"parts_kinds.{MPI}"), what], env={"RESIL_REPLICAS": str(parts), **env})
    if what == "get" and MPI == "openmpi" and jobs.openmpi_version() < (5,):
        raise LeftOut("this MPI mixes up windows of communicators that were made by a split, also natively")
    clean = run(2)
    if clean.returncode == 77:
        raise LeftOut("this MPI has none of these calls")
    assert clean.returncode == 0, clean.text()
    for rank, report in reports.load(clean.directory).items():
        assert not report["findings"] and (rank > 1 or report["replicas"]["compared"] == report["replicas"]["words"] >= 6 * 2), report
    assert not os.path.exists(os.path.join(clean.directory, "replicas-may-differ"))
    result = run(3, FLIP="2", RESIL_ON_MISMATCH="log")
    found = [one for report in reports.load(result.directory).values() for one in report["findings"]]
    assert len(found) == 1 and found[0]["confidence"] == "verified" and found[0]["culprit_ranks"] == [2], (result.text(), found)
    assert call in found[0]["message"], found


def check_on_the_way():
    """Data that changes while MPI has it: the part is known, and no rank is accused."""
    result = program("flip all", parts=3, env={"FLIP": "-1", "RESIL_FAULT": "flip,rank=3,call=MPI_Recv,nth=5", "RESIL_ON_MISMATCH": "log"})
    assert result.returncode == 0, result.text()
    found = [one for report in reports.load(result.directory).values() for one in report["findings"] if one["kind"] == "parts_differ"]
    assert len(found) == 1 and not found[0]["culprit_ranks"] and found[0]["victim_ranks"] in ([2], [3]), (result.text(), found)


def check_clean():
    """No finding, everything compared: messages of all kinds, and clocks in the data."""
    result = program("flip all", parts=3, env={"FLIP": "-1"})
    assert result.returncode == 0, result.text()
    for rank, report in reports.load(result.directory).items():
        of = report["replicas"]
        assert not report["findings"] and of["words"] > 100 and not of["left_out"], report
        assert rank > 1 or of["compared"] == of["words"], of
    assert not os.path.exists(os.path.join(result.directory, "replicas-may-differ"))


def choices_of(result):
    return {rank: report["choices"] for rank, report in reports.load(result.directory).items()}


def check_led(parts):
    """Parts whose ranks are late in other ways choose the same: messages, requests, how often nothing was found, random numbers."""
    turns = 3
    result = program(f"led {turns}", parts=parts, ranks=4)
    assert result.returncode == 0 and result.stdout.count(b"taken") == turns, result.text()
    assert not os.path.exists(os.path.join(result.directory, "replicas-may-differ")), result.text()
    for rank, report in reports.load(result.directory).items():
        of = report["replicas"]
        assert not report["findings"] and not of["left_out"], report
        assert rank >= 4 or of["compared"] == of["words"] > 10, of
    chosen = choices_of(result)
    for rank in range(4, 4 * parts):
        leader, follower = chosen[rank % 4], chosen[rank]
        assert "lost" not in follower and follower["failing_polls"] == leader["failing_polls"], chosen
        assert follower["matches"] == leader["matches"], chosen
    assert chosen[0]["told"] > 20 * turns and chosen[0]["failing_polls"] > 0 and chosen[0]["matches"] == 21 * turns, chosen[0]


def check_random_device():
    """C++'s random device asks the processor: its numbers are the leading part's."""
    result = jobs.run(MPI, 4, [os.path.join(BUILD, f"parts_random.{MPI}")], env={"RESIL_REPLICAS": "2"})
    assert result.returncode == 0 and b"parts_differ" not in result.stderr, result.text()
    assert not os.path.exists(os.path.join(result.directory, "replicas-may-differ")), result.text()
    result = jobs.run(MPI, 4, [os.path.join(BUILD, f"parts_random.{MPI}")], env={"RESIL_REPLICAS": "2", "RESIL_REPLICAS_FOLLOW": "clocks"})
    assert result.stderr.count(b"parts_differ [suspected]") == 1, result.text()


def check_led_flip():
    """Where choices follow, what differs is a rank's fault."""
    result = program("led 2", parts=3, ranks=3, env={"FLIP": "3", "RESIL_ON_MISMATCH": "log"})
    assert result.returncode == 0, result.text()
    found = [one for report in reports.load(result.directory).values() for one in report["findings"]]
    assert len(found) == 1 and found[0]["confidence"] == "verified" and found[0]["culprit_ranks"] == [3], found


def check_kinds(what):
    """Data of requests of all kinds has words: a flip there is found where it is given."""
    clean = program("kinds none", parts=2)
    for rank, report in reports.load(clean.directory).items():
        assert not report["findings"] and (rank > 1 or report["replicas"]["words"] >= 6 * 6), report
    assert not os.path.exists(os.path.join(clean.directory, "replicas-may-differ"))
    result = program(f"kinds {what}", parts=3, env={"FLIP": "2", "RESIL_ON_MISMATCH": "log"})
    found = [one for report in reports.load(result.directory).values() for one in report["findings"]]
    assert len(found) == 1 and found[0]["confidence"] == "verified" and found[0]["culprit_ranks"] == [2], (result.text(), found)
    assert {"start": "MPI_Send_init", "ireduce": "MPI_Iallreduce"}[what] in found[0]["message"], found


POOL = ("recv", "probe", "iprobe", "mprobe", "improbe", "waitany", "testany", "waitsome", "testsome", "each", "any-waitany", "any-testsome",
        "any-each", "persistent-waitany", "persistent-testany", "persistent-waitsome")


def check_pool():
    """Workers whose answers depend on the order in which rank 0 takes them: the followers take the leader's."""
    ranks = {"openmpi": 3, "mpich": 2}[MPI]  # MPICH 4.0.2 itself loses messages with more
    result = jobs.run(MPI, 2 * ranks, [os.path.join(BUILD, f"replay.{MPI}"), ",".join(POOL), "12"], env={"RESIL_REPLICAS": "2"},
                      timeout=120)
    assert result.returncode == 0 and len(result.stdout.splitlines()) == len(POOL), result.text()
    for rank, report in reports.load(result.directory).items():
        assert not report["findings"] and "lost" not in report["choices"] and not report["replicas"]["left_out"], report
        assert rank >= ranks or report["replicas"]["compared"] == report["replicas"]["words"], report["replicas"]
    assert not os.path.exists(os.path.join(result.directory, "replicas-may-differ"))
    assert choices_of(result)[ranks]["forced"] > 12 * len(POOL), choices_of(result)


def check_restless():
    """A program that is not deterministic: one finding, however many words differ."""
    result = program("restless", parts=2, env={"RESIL_ON_MISMATCH": "log"})
    assert result.returncode == 0, result.text()
    loaded = reports.load(result.directory)
    found = [one for report in loaded.values() for one in report["findings"]]
    assert len(found) == 1 and found[0]["kind"] == "parts_differ" and "MPI_Allreduce" in found[0]["message"], found
    assert result.stderr.count(b"parts_differ") == 1, result.text()
    assert max(report["replicas"].get("differing", 0) for report in loaded.values()) == 1, loaded
    result = program("restless", parts=3)  # no two agree: that is no fault of the machine, and ends no job
    assert result.returncode == 0, result.text()
    found = [one for report in reports.load(result.directory).values() for one in report["findings"]]
    assert len(found) == 1 and found[0]["confidence"] == "suspected" and "no two of the three" in str(found[0]["evidence"]), found


def check_unset(parts, unset, steps=100, **env):
    """Bytes that differ and that nobody reads: one finding, suspected, which ends no job; all is compared, and a fault is found after it."""
    def run(**more):
        result = jobs.run(MPI, 2 * parts, [os.path.join(BUILD, f"parts_unset.{MPI}"), str(steps)],
                          env={"RESIL_REPLICAS": str(parts), "RESIL_ON_MISMATCH": "abort", **env, **more, **({"UNSET": unset} if unset else {})})
        assert not result.timed_out, result.text()
        return result, [one for report in reports.load(result.directory).values() for one in report["findings"]]
    result, found = run()
    assert result.returncode == 0 and result.stdout, result.text()
    assert 0 < len(found) <= 2 and all(one["kind"] == "parts_differ" and one["confidence"] == "suspected" for one in found), found
    assert all("nothing that they have given or got since then depends on it" in one["message"] and "MPI_Send" in one["message"] and
               "512 bytes" in one["message"] and "floating-point numbers of 8 bytes" in str(one["evidence"]) for one in found), found
    for rank, report in reports.load(result.directory).items():
        of = report["replicas"]
        assert not of["left_out"] and (rank > 1 or of["compared"] == of["words"] >= 6 * steps), of
        assert rank > 1 or of["differing"] == of["without_consequence"] == (2 * steps if unset else of["differing"]) > 0, of
    if not unset or steps < 50:  # too little for words to tell what the flip is and what not
        return
    flipped = 2 * parts - 1
    result, found = run(FLIP=str(flipped))
    assert result.returncode != 0, result.text()
    found = [one for one in found if one["confidence"] == "verified"]
    assert len(found) == 1 and "has consequences" not in found[0]["message"], (result.text(), found)
    assert flipped in found[0]["culprit_ranks"] + found[0]["victim_ranks"] and "256 bytes" in found[0]["message"], found


def check_names():
    """On two hosts, one for each part: the second part is told the names of the first one's."""
    if subprocess.run(["unshare", "--uts", "hostname", "host-0"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise LeftOut("no names of hosts of its own are permitted here")
    wrapper = "r=${PMIX_RANK:-$PMI_RANK}; exec unshare --uts sh -c 'hostname host-$0; exec \"$@\"' $((r / 2)) \"$@\""
    command = ["sh", "-c", wrapper, "sh", os.path.join(BUILD, f"replicas.{MPI}"), "names"]
    result = jobs.run(MPI, 4, command, env={"RESIL_REPLICAS": "2"}, timeout=60)
    lines_said = result.stdout.decode().splitlines()
    assert result.returncode == 0 and len(lines_said) == 2, result.text()
    assert all(line.endswith("host-0 1 host-0 host-0") for line in lines_said), result.text()
    hosts = {report["host"] for report in reports.load(result.directory).values()}
    assert hosts == {"host-0", "host-1"}, hosts
    result = jobs.run(MPI, 4, command, env={"RESIL_REPLICAS": "2", "RESIL_REPLICAS_FOLLOW": "clocks", "RESIL_ON_MISMATCH": "log"}, timeout=60)
    assert [one for report in reports.load(result.directory).values() for one in report["findings"]], "names that differ make no difference"


def check_strangers():
    """A message that came in the leading part only is not waited for without end."""
    result = program("strangers", parts=2, ranks=3, env={"RESIL_REPLICAS_SECONDS": "2", "RESIL_ON_MISMATCH": "log"})
    assert result.returncode == 0 and not result.timed_out, result.text()
    assert "do not come here" in choices_of(result)[3]["lost"], choices_of(result)


def check_ids():
    """A program that has asked for its process id may send other messages in each part: choices do not follow from there on."""
    result = program("ids", parts=2, ranks=3, env={"RESIL_ON_MISMATCH": "log"})
    assert result.returncode == 0 and not result.timed_out, result.text()
    assert all(one["lost"] == "getpid" for one in choices_of(result).values()), choices_of(result)
    found = [one for report in reports.load(result.directory).values() for one in report["findings"]]
    assert all(one["confidence"] == "suspected" for one in found), found


def check_choices():
    """What comes apart by MPI's choice alone is suspected, and ends no job."""
    for _ in range(5):  # on a crowded machine a message may be later than a pause of 0.3 s, and both parts choose alike
        result = program("choice", parts=2, ranks=3, env={"RESIL_REPLICAS_FOLLOW": "clocks"})
        assert result.returncode == 0, result.text()
        found = [one for report in reports.load(result.directory).values() for one in report["findings"]]
        if found:
            break
    assert len(found) == 1 and found[0]["confidence"] == "suspected", found
    assert "any source" in str(found[0]["evidence"]), found


def stuck(how, hangs, parts, options=(), timeout=120, **env):
    return jobs.run(MPI, 2 * parts, [os.path.join(BUILD, f"parts_stuck.{MPI}"), how], timeout=timeout, options=options,
                    env={"RESIL_REPLICAS": str(parts), "RESIL_REPLICAS_SECONDS": "1.5", "HANG": str(hangs), **env})


def talking(folder=None):
    """A folder as the program that talks finds it; what it holds."""
    if folder is not None:
        return tree(folder)
    folder = jobs.scratch()
    for rank in range(2):
        for name, text in (("goes", "gone\n"), ("appended", "of before\n")):
            with open(os.path.join(folder, f"{name}-{rank}"), "w", encoding="utf-8") as file:
                file.write(text)
    return folder


def check_stuck(how, hangs, parts, talks=False, **env):
    """A rank that stops: the job ends as the program does, and the part and the rank are named. Where the leading part loses it, another
    one goes on with output and files where it was."""
    leads = hangs < 2
    if leads:  # whose partner comes later than that waits no longer for what the leading part has chosen
        env["RESIL_REPLICAS_SECONDS"] = "4"
    if talks:
        env["TALK"] = talking()
    plain = jobs.run(MPI, 2, [os.path.join(BUILD, f"parts_stuck.{MPI}")], preload=False, env=env)
    if talks:
        wrote, env["TALK"] = talking(env["TALK"]), talking()
    options = ("--with-ft", "ulfm") if how == "die" else ()
    if options and (MPI != "openmpi" or jobs.openmpi_version() < (5,)):
        raise LeftOut("this MPI does not go on after the death of a rank")
    result = stuck(how, hangs, parts, options, **env)
    assert not result.timed_out and result.returncode == plain.returncode == int(env.get("STATUS", 0)), transparent.describe("the end differs", plain, result)
    assert lines(result) == lines(plain) and b"is through" in plain.stdout, transparent.describe("output differs", plain, result)
    loaded = reports.load(result.directory)
    found = [one for report in loaded.values() for one in report["findings"] if one["kind"] == "part_dropped"]
    assert len(found) == 1 and f"part {hangs // 2} of the job" in found[0]["message"], (result.text(), found)
    named = {"culprit_ranks": [hangs], "victim_ranks": []} if how != "wait" else {"culprit_ranks": []}
    assert named.items() <= found[0].items(), found
    assert ("part 1" in str(found[0]["evidence"])) == leads, found
    assert result.stderr.count(b"part_dropped") == 1 and b"resil: CLEAN" not in result.stderr, result.text()
    if talks:
        assert talking(env["TALK"]) == wrote, f"{talking(env['TALK'])}\nare left, alone\n{wrote}"
    for rank in (2, 3) if leads else (0, 1):
        of = loaded[rank]["replicas"]
        assert loaded[rank]["outcome"] == "finished" and of["words"] == of["compared"] + of["left_out"], of
        assert parts == 2 or leads or not of["left_out"], of  # two are left, which are compared to the end
        assert parts == 2 or not talks or of["compared"], of
    left = [name for name in os.listdir(result.directory) if name.startswith("replicas-") or name == "part-0" or name.endswith(".stdout")]
    # Launchers continue what is stopped before they end it: ranks of the part that was dropped may come to MPI_Finalize then.
    left = [name for name in left if name not in [f"replicas-end-{rank}" for rank in (hangs // 2 * 2, hangs // 2 * 2 + 1)]]
    assert not left, left


def check_not_replaced():
    """The leading part is stuck, and the program has asked for what differs from part to part: nobody takes its place, and nothing that
    another part has written comes to where the program writes."""
    folder = talking()
    result = stuck("loop", 1, 2, timeout=20, TALK=folder, PIDS="1")
    assert result.timed_out, result.text()  # as before: it hangs
    assert result.stderr.count(b"no other part can take its place: something was asked that may differ") == 1, result.text()
    assert b"part_dropped" not in result.stderr and b"step 9" in result.stdout and b"step 11" not in result.stdout, result.text()
    assert "goes-0" in talking(folder) and "there-0" not in talking(folder), talking(folder)
    with open(os.path.join(folder, "fresh-1"), encoding="utf-8") as file:
        assert "11" not in file.read()


def check_late():
    """A follower that is silent for longer than RESIL_REPLICAS_SECONDS, where the leading part was silent for a third of that time: it is waited for."""
    result = stuck("late", -1, 2, RESIL_REPLICAS_SECONDS="0.3")
    assert result.returncode == 0, result.text()
    for report in reports.load(result.directory).values():
        assert not report["findings"] and not report["replicas"]["left_out"], report


def check_ahead_and_blocked():
    """A leading rank is inside one call for 7 s, and has not handed over all that it was told before: nothing is wrong, nothing is lost."""
    result = stuck("block", -1, 3, RESIL_REPLICAS_SECONDS="2")
    assert result.returncode == 0, result.text()
    for report in reports.load(result.directory).values():
        assert not report["findings"] and not report["replicas"]["left_out"] and not report["replicas"]["times_left_out"], report
        assert "lost" not in report["choices"], report
    left = [name for name in os.listdir(result.directory) if name.startswith("replicas-")]
    assert not left, left


def check_one_part_fails():
    """What a part that fails alone has said is kept."""
    result = program("fail", parts=2)
    assert result.returncode != 0, result.text()
    with open(os.path.join(result.directory, "rank-00002.stderr"), "rb") as file:
        assert b"this part has failed" in file.read()


def main(build, mpi, *names):
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = os.path.abspath(build), mpi
    jobs.require(f"mpirun.{mpi}")
    checks = [(f"{name} in parts ({mpi})", check if name in ALWAYS else Long(check)) for name in names if name not in REFUSED
              for check in [lambda name=name: check_program(name)]]
    checks += [("files, the leading part ahead", lambda: check_files(2, 1)), ("files, the leading part behind", lambda: check_files(2, 0)),
               ("files, three parts", lambda: check_files(3, 2)), ("the world, two parts", lambda: check_world(2, 2)),
               ("the world, three parts of one rank", lambda: check_world(3, 1)), ("standard input", check_input),
               ("what is refused", check_refused), ("nodes", check_nodes), ("clean", check_clean), ("a flip on the way", check_on_the_way), ("choices", check_choices),
               ("choices that follow, two parts", lambda: check_led(2)), ("choices that follow, three parts", Long(lambda: check_led(3))),
               ("choices that follow, a flip", check_led_flip), ("the random device of C++", check_random_device), ("a message of the leading part's alone", check_strangers),
               ("names of hosts", check_names), ("process ids", check_ids), ("not deterministic", check_restless), ("a pool of workers", Long(check_pool)),
               *((f"requests of all kinds, {what}", lambda what=what: check_kinds(what)) for what in ("start", "ireduce")),
               ("two parts that differ, by default", check_default),
               ("bytes that nobody reads, two parts", lambda: check_unset(2, "all")), ("bytes that nobody reads, three parts", lambda: check_unset(3, "all")),
               ("bytes that nobody reads, in one of three parts", lambda: check_unset(3, "last")),
               ("bytes that nobody reads, a short job", lambda: check_unset(2, "all", steps=6)),
               ("a flip where nobody reads", lambda: check_unset(3, None, FLIP_UNREAD="3")),
               *((f"data by {what}", lambda what=what, call=call: check_more_kinds(what, call))
                 for what, call in (("partitioned", "MPI_Psend_init"), ("collective", "MPI_Allreduce_init"), ("get", "MPI_Put"))),
               *((f"flips, {kind}, {parts} parts", lambda kind=kind, parts=parts: check_flips(parts, kind))
                 for kind in ("send", "isend", "reduce") for parts in (2, 3)), ("one part fails", check_one_part_fails), ("a part that is late", check_late),
               ("a rank in a loop", lambda: check_stuck("loop", 3, 2)), ("a leading rank that is ahead, and blocked", check_ahead_and_blocked), ("a rank that is stopped, three parts", lambda: check_stuck("stop", 4, 3, STATUS="3")),
               ("a rank in a loop, three parts", Long(lambda: check_stuck("loop", 2, 3))), ("a rank that dies", lambda: check_stuck("die", 5, 3, STATUS="2")), ("a rank that waits for ever", Long(lambda: check_stuck("wait", 2, 2))),
               ("a rank that is stopped, and choices", Long(lambda: check_stuck("stop", 3, 2, CALLS="30000"))),
               ("a follower that is stopped, of a program that talks", Long(lambda: check_stuck("stop", 4, 3, talks=True))),
               ("the leading part: a rank in a loop", lambda: check_stuck("loop", 1, 2, talks=True, STATUS="3")),
               ("the leading part: its first rank is stopped, three parts", lambda: check_stuck("stop", 0, 3, talks=True)),
               ("the leading part: its first rank in a loop, no choices", Long(lambda: check_stuck("loop", 0, 3))),
               ("the leading part: a rank that waits for ever, three parts", Long(lambda: check_stuck("wait", 1, 3, talks=True))),
               ("the leading part: a rank that dies", lambda: check_stuck("die", 1, 3, talks=True, STATUS="2")),
               ("the leading part: its first rank dies", lambda: check_stuck("die", 0, 2, talks=True)),
               ("the leading part is not replaced", Long(check_not_replaced))]
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
