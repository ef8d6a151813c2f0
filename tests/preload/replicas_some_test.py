#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replicas of some ranks only: each program of tests/mpi ends, prints and writes as it does alone; a flipped bit in a replicated
rank is found there, one in another rank is not; what cannot be handed to copies ends them and not the job; what is refused.

Usage: replicas_some_test.py BUILD openmpi|mpich PROGRAM…      (BUILD holds PROGRAM.MPI, replicas.MPI and parts_some.MPI)
"""
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "mpi"))
sys.dont_write_bytecode = True
from harness import flips, mpi as jobs, report as reports, transparent  # noqa: E402
from harness.main import LeftOut, Long, run_checks  # noqa: E402
import programs_test  # noqa: E402

BUILD = MPI = ""
ALWAYS = ("p2p", "communicators", "files", "fortran_f08", "spawn")  # the others are of the same kinds
REFUSED = ("sessions", "mpi4", "threads", "stress_threads")  # sessions, or several threads
# What they call cannot be handed over: windows, generalized requests, errors of several requests, a type for each rank.
GIVEN_UP = ("rma", "rma_checks", "rma_threads", "window_base", "collectives", "callbacks", "errors", "collective_checks")


def settings(ranks, parts=2):
    return {"RESIL_REPLICAS": str(parts), "RESIL_REPLICAS_RANKS": ranks}


def lines(result):
    return sorted(result.stdout.splitlines())


def findings_of(result):
    return [one for report in reports.load(result.directory).values() for one in report["findings"]]


def check_program(name, ranks, copies):
    """The same end, output and file as alone, and no finding."""
    program = programs_test.Program(BUILD, MPI, name)
    if program.rules.get("needs", MPI) != MPI:
        return
    status = int(program.rules.get("exit", 0))
    if name == "spawn" and status:
        raise LeftOut("this MPI refuses to spawn natively")
    last = program.ranks - 1
    plain, wrote = program.run(False)
    file = os.path.join(jobs.scratch(), "file")
    result = jobs.run(MPI, program.ranks + (1 if ranks == "0" or last == 0 else copies), program.command(file), options=program.options,
                      env=settings(ranks if last else "0"), timeout=60)
    also_wrote = programs_test.digest(file) if os.path.exists(file) else None
    assert plain.returncode == status, f"the plain run ends with {plain.returncode}\n{plain.text()}"
    assert result.returncode == plain.returncode and not result.timed_out, transparent.describe("the end differs", plain, result)
    assert lines(result) == lines(plain), transparent.describe("standard output differs", plain, result)
    assert wrote == also_wrote, "the file written differs"
    if status != 0:
        return
    said = [line for line in result.stderr.splitlines() if line not in plain.stderr.splitlines()]
    said = [line for line in said if not line.startswith((b"resil: CLEAN", b"resil: reports"))]
    given_up = [line for line in said if b"has no copies any more" in line]
    assert not transparent.without_noise(b"\n".join(line for line in said if line not in given_up)), result.text()
    assert not given_up or name in GIVEN_UP, result.text()
    assert not findings_of(result), result.text()


def job(program, arguments, copies, ranks=3, parts=2, **env):
    """`copies`: the list, and how many ranks it names."""
    text, count = copies
    return jobs.run(MPI, ranks + count * (parts - 1), [os.path.join(BUILD, f"{program}.{MPI}"), *arguments.split()],
                    env={**settings(text, parts), **env}, timeout=60)


def alone(program, arguments, ranks=3):
    result = jobs.run(MPI, ranks, [os.path.join(BUILD, f"{program}.{MPI}"), *arguments.split()], preload=False, timeout=60)
    assert result.returncode == 0, result.text()
    return result


def check_same(program, arguments, copies, parts=2):
    """Clean: the same output, all that is given and got compared, nothing left out."""
    plain, result = alone(program, arguments), job(program, arguments, copies, parts=parts)
    assert result.returncode == 0 and result.stdout == plain.stdout, transparent.describe("output differs", plain, result)
    fed = 0
    for rank, report in reports.load(result.directory).items():
        of = report["replicas"]
        assert not report["findings"] and not of["left_out"] and not of["given_up"] and of["ranks"] == 3, report
        if rank < 3 and of["copies"]:
            assert of["compared"] == of["words"] > 2 and of["fed_bytes"] > 0, of
            fed += 1
        elif rank < 3:
            assert not of["words"] and not of["fed_bytes"], of
    assert fed == copies[1] and not os.path.exists(os.path.join(result.directory, "replicas-may-differ")), result.text()


def check_flip(kind, where, parts):
    """Rank 1 of four has copies: a flip in one of these is named, and leaves the program's result alone; one in another rank is nobody's
    to see."""
    plain = alone("replicas", f"flip {kind}", 4)
    result = job("replicas", f"flip {kind}", ("1", 1), 4, parts, FLIP=str(where), RESIL_ON_MISMATCH="log")
    assert result.returncode == 0, result.text()
    assert (result.stdout == plain.stdout) == (where >= 4), transparent.describe("the flip is in the result", plain, result)
    found = findings_of(result)
    if where in (0, 2, 3):
        assert not found, found
        return
    assert len(found) == 1 and found[0]["kind"] == "parts_differ" and found[0]["confidence"] == "verified", (result.text(), found)
    named = {"culprit_ranks": [where], "victim_ranks": []} if parts == 3 else {"culprit_ranks": [], "victim_ranks": [1, 4]}
    assert named.items() <= found[0].items(), found
    assert {"send": "MPI_Send", "isend": "MPI_Isend", "reduce": "MPI_Allreduce"}[kind] in found[0]["message"], found


def check_handed_over(scene, copies, call, parts=2):
    """Clean, as alone; and a flip in a copy is found in the call that gives it, and leaves the program's result alone."""
    arguments = scene if scene != "split" else f"split {os.path.join(jobs.scratch(), 'file')}"
    plain = jobs.run(MPI, 3, [os.path.join(BUILD, f"parts_some.{MPI}"), *arguments.split()], preload=False, timeout=60)
    if plain.returncode == 77:
        raise LeftOut("this MPI has none of these calls")
    check_same("parts_some", arguments, copies, parts)
    result = job("parts_some", arguments, copies, parts=parts, FLIP="3", HOW="bit", RESIL_ON_MISMATCH="log")
    assert result.returncode == 0 and result.stdout == plain.stdout, transparent.describe("output differs", plain, result)
    found = findings_of(result)
    assert len(found) == 1 and found[0]["confidence"] == "verified" and 3 in found[0]["culprit_ranks"] + found[0]["victim_ranks"], (result.text(), found)
    assert call in found[0]["message"], found


def check_wrong_way(how):
    """A copy that takes another way, ends, or hangs: the program's result and status are as alone, and the copy is named."""
    plain = alone("parts_some", "steps")
    result = job("parts_some", "steps", ("1", 1), FLIP="3", HOW=how, RESIL_ON_MISMATCH="log", RESIL_REPLICAS_SECONDS="1.5")
    assert result.returncode == 0 and not result.timed_out, result.text()
    assert result.stdout == plain.stdout, transparent.describe("output differs", plain, result)
    found = findings_of(result)
    kind = "part_dropped" if how == "loop" else "parts_differ"
    assert len(found) == 1 and found[0]["kind"] == kind and found[0]["confidence"] == "verified", (result.text(), found)
    assert 3 in found[0]["culprit_ranks"] + found[0]["victim_ranks"] and 2 not in found[0]["victim_ranks"], found
    if how in ("way", "exit", "abort"):
        notes = reports.load(result.directory)[3]["notes"]
        assert any("this copy has left the program in" in note for note in notes), notes


def check_given_up():
    """What cannot be handed over: a line, no finding, and the program goes on."""
    plain = alone("collectives", "", 2)
    result = job("collectives", "", ("0", 1), 2)
    assert result.returncode == 0 and lines(result) == lines(plain), transparent.describe("output differs", plain, result)
    assert result.stderr.count(b"rank 0 has no copies any more: MPI_Alltoallw cannot be handed to them") == 1, result.text()
    loaded = reports.load(result.directory)
    assert loaded[0]["replicas"]["given_up"] and loaded[0]["replicas"]["left_out"] > 0 and not findings_of(result), loaded[0]


def check_hang():
    """Nobody waits for a copy: a deadlock of the program's is proved as alone."""
    result = job("parts_some", "deadlock", ("0", 1), RESIL_HANG="abort")
    assert result.returncode != 0 and not result.timed_out, result.text()
    assert b"hang [deadlock, proved] Ranks 0-1 wait for each other" in result.stderr, result.text()


def check_checksums():
    """Beside checksums: what changes on the way is theirs to find, and both copies have it."""
    mode = {"RESIL_MODE": "checksum", "RESIL_ON_MISMATCH": "log"}
    clean = job("replicas", "flip all", ("1", 1), 3, **mode)
    assert clean.returncode == 0 and not findings_of(clean) and b"CLEAN" in clean.stderr, clean.text()
    result = job("replicas", "flip send", ("1", 1), 3, RESIL_FAULT="flip,rank=1,call=MPI_Recv,nth=5", **mode)
    found = findings_of(result)
    assert result.returncode == 0 and found and all(one["kind"] != "parts_differ" for one in found), (result.text(), found)
    assert found[0]["kind"] == "message_corrupted", found


def check_files():
    """Files of libc: what the rank itself has written it reads back; where another rank has changed one, findings are suspected."""
    for copies in (("0", 1), ("1", 1), ("0-1", 2)):
        folder = jobs.scratch()
        for name in ("old.txt", "both.txt", "goes.txt", "moves.txt", "mpi-old.bin"):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(f"{name} of before\n")
        os.mkdir(os.path.join(folder, "empty"))
        text, count = copies
        result = jobs.run(MPI, 2 + count, [os.path.join(BUILD, f"replicas.{MPI}"), "files"], cwd=folder, env=settings(text), timeout=60)
        assert result.returncode == 0, result.text()
        for one in findings_of(result):
            assert one["confidence"] == "suspected" and "another rank has changed" in str(one["evidence"]), one
        left = [name for name in os.listdir(result.directory) if name.startswith("of-") or name.endswith(".stderr")]
        assert not left, left


def refused(words, ranks, **env):
    result = jobs.run(MPI, ranks, [os.path.join(BUILD, f"replicas.{MPI}"), "world"], env={"RESIL_REPLICAS": "2", **env}, timeout=60)
    assert not result.timed_out and words in result.stderr and b"group 4" not in result.stdout, result.text()
    assert result.returncode == 93 or MPI == "mpich" and result.returncode in (93, 15, 9), result.text()
    assert result.stderr.count(words) == 1, result.text()


def check_refused():
    for text, words in (("1,x", b"'x' is not a rank"), ("3-1", b"'3-1' is not a rank"), ("-1", b"'-1' is not a rank"),
                        ("0,2-4,3", b"'3' is named twice"), ("1,,2", b"'' is not a rank")):
        refused(words, 4, RESIL_REPLICAS_RANKS=text)
    refused(b"names rank 3, and with RESIL_REPLICAS=2 this job of 4 ranks has 3 for the program, besides 1 copies; start 5 ranks or more", 4,
            RESIL_REPLICAS_RANKS="3")
    refused(b"names rank 1, and with RESIL_REPLICAS=3 this job of 4 ranks has 0 for the program, besides 4 copies; start 6 ranks or more", 4,
            RESIL_REPLICAS_RANKS="0-1", RESIL_REPLICAS="3")
    refused(b"needs RESIL_REPLICAS=2 or 3", 4, RESIL_REPLICAS_RANKS="0", RESIL_REPLICAS="1")
    refused(b"RESIL_REPLICAS_RANKS goes with RESIL_MODE=watch and checksum, not with", 4, RESIL_REPLICAS_RANKS="0", RESIL_MODE="record",
            RESIL_RECORD=os.path.join(jobs.scratch(), "recording"))
    result = jobs.run(MPI, 3, [os.path.join(BUILD, f"threads.{MPI}")], env=settings("0"), timeout=60)
    assert b"cannot follow calls of several threads" in result.stderr and result.returncode != 0, result.text()


def check_input():
    text = b"".join(b"line %d\n" % i for i in range(1000))
    result = jobs.run(MPI, 3, [os.path.join(BUILD, f"replicas.{MPI}"), "input"], env=settings("0"), stdin=text, timeout=60)
    assert result.returncode == 0 and sorted(result.stdout.splitlines()) == [
        b"rank 0: 1000 lines, the last one line 999", b"rank 1: 1000 lines, the last one line 999"], result.text()
    assert not findings_of(result), result.text()


def check_application(make, copies, ranks=3):
    """The application's own result, to the last bit."""
    program = make()
    plain = jobs.run(MPI, ranks, program.command, preload=False, cwd=program.directory, timeout=120)
    text, count = copies
    result = jobs.run(MPI, ranks + count, program.command, env=settings(text), cwd=program.directory, timeout=120)
    assert plain.returncode == result.returncode == 0 and program.result(plain), transparent.describe("the end differs", plain, result)
    assert program.result(plain) == program.result(result), transparent.describe("the result differs", plain, result)
    for report in reports.load(result.directory).values():
        of = report["replicas"]
        assert not report["findings"] and not of["given_up"] and not of["left_out"], report
        assert of["part"] or not of["copies"] or of["compared"] == of["words"] > 100, of


def lammps():
    if shutil.which("lmp") is None or MPI != "openmpi":
        raise LeftOut("LAMMPS of this system is built on Open MPI")
    return flips.lammps(40)


def main(build, mpi, *names):
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = os.path.abspath(build), mpi
    jobs.require(f"mpirun.{mpi}")
    checks = [(f"{name}, copies of {ranks} ({mpi})", check if name in ALWAYS and ranks == "0-1" else Long(check)) for name in names
              if name not in REFUSED for ranks, copies in (("0", 1), ("0-1", 2))
              for check in [lambda name=name, ranks=ranks, copies=copies: check_program(name, ranks, copies)]]
    kinds = (("parts_some", "topologies", ("1,2", 2)), ("parts_some", "messages", ("0-2", 3)), ("replicas", "world", ("0-2", 3)),
             ("replicas", "flip all", ("0-1", 2)))
    kinds += tuple((program, arguments, copies, 2) for program, arguments, copies in (
        ("parts_some", "messages", ("0", 1)), ("parts_some", "large", ("1", 1)), ("replicas", "led 2", ("0,2", 2)),
        ("replicas", "kinds none", ("1", 1))))
    flipped = (("isend", 4, 2), ("reduce", 0, 2), ("send", 5, 3)), (("send", 1, 2), ("isend", 1, 3), ("reduce", 4, 3))
    checks += [(f"{kind[0]} {kind[1]}, copies of {kind[2][0]}", check if len(kind) == 3 else Long(check)) for kind in kinds
               for check in [lambda kind=kind: check_same(*kind)]]
    checks += [(f"a flip, {one[0]}, rank {one[1]}, {one[2]} of each", check if some is flipped[0] else Long(check)) for some in flipped
               for one in some for check in [lambda one=one: check_flip(*one)]]
    checks += [(f"a copy goes wrong, {how}", check if how in ("way", "loop") else Long(check)) for how in ("way", "exit", "abort", "loop", "size")
               for check in [lambda how=how: check_wrong_way(how)]]
    checks += [("three of each", lambda: check_same("replicas", "flip all", ("0,2", 2), 3)), ("what cannot be handed over", check_given_up),
               ("split file access", lambda: check_handed_over("split", ("1", 1), "MPI_File_write_at_all_begin")), ("partitioned messages", lambda: check_handed_over("partitions", ("1", 1), "MPI_Psend_init")),
               ("split file access, three of each", Long(lambda: check_handed_over("split", ("0,2", 2), "MPI_File_write_at_all_begin", 3))),
               ("a deadlock", check_hang), ("beside checksums", check_checksums), ("files", Long(check_files)), ("what is refused", check_refused), ("standard input", Long(check_input)),
               ("CG in Fortran", lambda: check_application(lambda: flips.cg(MPI, 96, 80), ("0,2", 2))),
               ("LAMMPS", Long(lambda: check_application(lammps, ("0-1", 2))))]
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
