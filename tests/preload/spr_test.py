#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Particle replication: a clean run finds nothing and computes what the plain program computes; flips are found and named;
each policy does what it says; a checkpoint is restored by all ranks; and whatever a program does wrong is named and harms
nothing.

Usage: spr_test.py BUILD openmpi|mpich      (BUILD holds spr.MPI, spr_cxx.MPI, spr_fortran.MPI, spr_death.MPI, spr_nbody.MPI, sph.MPI)
"""
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, report as reports  # noqa: E402
from harness.main import run_checks, shared  # noqa: E402

BUILD = MPI = ""
MOST = 2
ABORT, RETRY, CONTINUE = 1, 2, 3
STEPS, CELLS, SIDE = 6, 384, 64
FLIP = "1:2:{}:{}:51"  # rank 1, step 2
PLAIN = {}


def run(scene="clean", policy=CONTINUE, flip=None, ranks=2, preload=True, program="spr", **variables):
    env = {"RESIL_SPR": "cover", "CHECKPOINTS": tempfile.mkdtemp(dir=jobs.scratch()), **variables}
    if flip:
        env["FLIP"] = flip
    return jobs.run(MPI, ranks, [os.path.join(BUILD, f"{program}.{MPI}"), scene, str(policy), str(STEPS)], env=env,
                    preload=preload, timeout=60)


def sums(result):
    return sorted(line for line in result.stdout.decode().splitlines() if line.startswith("rank"))


def plain(ranks=2):
    if ranks not in PLAIN:
        result = run(ranks=ranks, preload=False)
        assert result.returncode == 0 and len(sums(result)) == ranks, result.text()
        PLAIN[ranks] = sums(result)
    return PLAIN[ranks]


def counts(result, rank):
    found = re.search(rf"rank {rank}: set (-?\d+) replicas (\d+) kernels (\d+) found (\d+) rollbacks (\d+)",
                      result.stderr.decode())
    assert found, result.text()
    return tuple(int(group) for group in found.groups())


def of_rank(result, rank):
    report = reports.load(result.directory)[rank]
    summary = report.get("spr") or [{}]
    return summary[0], report["findings"], report["notes"]


def check_clean():
    for method, ranks in (("cover", 2), ("hashed", MOST), ("greedy", 1)):
        result = run(ranks=ranks, RESIL_SPR=method)
        assert result.returncode == 0 and sums(result) == plain(ranks), result.text()
        for rank in range(ranks):
            chosen, replicas, kernels, found, _ = counts(result, rank)
            most = CELLS / 2 if method == "greedy" else CELLS / 3  # in the order of a grid: a chessboard
            assert chosen == 0 and CELLS / 7 <= replicas <= most and kernels == STEPS and not found, result.text()
            summary, findings, notes = of_rank(result, rank)
            assert not findings and not summary["uncovered"] and summary["compared"] == replicas * STEPS, summary
            assert not [note for note in notes if note.startswith("spr")], notes
            assert (summary["phases"], summary["selections"]) == (STEPS, 1), summary


def check_off():
    for variables in ({"RESIL_SPR": "off"}, {"RESIL_SPR": ""}):
        result = run(flip=FLIP.format("input", 5), **variables)
        assert result.returncode == 0 and counts(result, 0)[:3] == (-1, 0, 0), result.text()
        assert not of_rank(result, 1)[1]


def check_flips():
    # Of what kernels read: each cell is covered by some replica, on either rank, and is also compared itself.
    for cell in (0, 100, 383):
        result = run(flip=FLIP.format("input", cell))
        assert result.returncode == 0 and counts(result, 1)[3] >= 2, result.text()
        _, findings, _ = of_rank(result, 1)
        changed, = [one for one in findings if one["kind"] == "particle_changed"]
        differing, = [one for one in findings if one["kind"] == "replica_mismatch"]
        assert changed["culprit_ranks"] == [1] and f"particle {CELLS + cell} (u)" in changed["message"], changed
        assert changed["evidence"]["bits"] == "1 of 64 differ", changed
        assert sorted(differing["victim_ranks"]) == [0, 1] and "(next u)" in differing["message"], differing
        assert not of_rank(result, 0)[1]
        # Without looking at the inputs the replicas alone find it.
        result = run(flip=FLIP.format("input", cell), RESIL_SPR_INPUTS="0")
        assert [one["kind"] for one in of_rank(result, 1)[1]] == ["replica_mismatch"], result.text()


def check_guard():
    # Between two kernels, where no replica looks: the flip is found there, once, and the clean run finds nothing.
    result = run("guard", flip=FLIP.format("input", 30))
    assert result.returncode == 0 and counts(result, 1)[3] == 1 and counts(result, 0)[3] == 0, result.text()
    changed, = of_rank(result, 1)[1]
    assert changed["kind"] == "particle_changed" and f"particle {CELLS + 30} (u)" in changed["message"], changed
    result = run("guard")
    assert sums(result) == plain() and not counts(result, 1)[3] and not of_rank(result, 1)[0]["uncovered"], result.text()


def check_result():
    # A result that goes wrong on a replicated cell is found; bits that may differ are not.
    summary, _, _ = of_rank(run(), 1)
    seen = [0, 0]
    for cell in range(0, 6):
        for tolerant in (0, 1) if cell < 3 else (0,):
            result = run(flip=f"1:2:output:{cell}:3", RESIL_SPR_BITS="8" if tolerant else "0")
            found = counts(result, 1)[3]
            assert result.returncode == 0 and (found == 0 if tolerant else found in (0, 1)), result.text()
            seen[tolerant] += found
    assert 1 <= seen[0] < 6 and seen[1] == 0 and summary["replicas"], seen


def check_computed():
    """Of results that the program has said to be finished, each one that changes is found, with a replica or without."""
    for cell in (0, 1, 5):
        result = run("computed", flip=f"1:2:output:{cell}:3")
        found, findings = counts(result, 1)[3], of_rank(result, 1)[1]
        assert result.returncode == 0 and found in (1, 2), result.text()
        changed, = [one for one in findings if one["kind"] == "particle_changed"]
        assert changed["culprit_ranks"] == [1] and "no longer what was computed" in changed["message"], changed
        assert f"particle {CELLS + cell} (next u)" in changed["message"] and changed["evidence"]["bits"] == "1 of 64 differ", changed
        assert len(findings) == found and not of_rank(result, 0)[1], findings
    result = run("computed")
    assert sums(result) == plain() and not counts(result, 1)[3] and not of_rank(result, 1)[1], result.text()
    assert of_rank(result, 1)[0]["uncovered"] == {"wrong_count": 1}, of_rank(result, 1)[0]  # one particle too many


def check_abort():
    for policy, variables in ((ABORT, {}), (0, {}), (RETRY - 2, {"RESIL_ON_MISMATCH": "abort"})):
        result = run(policy=policy, flip=FLIP.format("input", 9), **variables)
        assert result.returncode == 90 and b"resil: replica_mismatch" in result.stderr, result.text()
        assert not sums(result) or len(sums(result)) < 2, result.text()
    assert run(policy=0, flip=FLIP.format("input", 9), RESIL_ON_MISMATCH="log").returncode == 0


def check_rollback():
    result = run("rollback", RETRY, FLIP.format("input", 77) + ",0:4:input:3:40")
    assert result.returncode == 0 and sums(result) == plain(), result.text()
    for rank in range(2):
        assert counts(result, rank)[3:] == (0, 2), result.text()
    assert b"all ranks go back" in result.stderr, result.text()
    # The same from what was kept in memory, two steps ago; and what could not be kept leaves the older copy.
    result = run("kept", RETRY, FLIP.format("input", 77) + ",0:5:input:3:40")
    assert result.returncode == 0 and sums(result) == plain(), result.text()
    for rank in range(2):
        assert counts(result, rank)[3:] == (0, 2), result.text()
        summary = of_rank(result, rank)[0]
        assert summary["kept"] == 4 and summary["uncovered"] == {"steps_disagree": 1}, summary
    # A hook that fails, one that is in vain, and none at all: the job ends.
    assert run("rollback_fails", RETRY, FLIP.format("input", 77)).returncode == 90
    result = run("clean", RETRY, FLIP.format("input", 77))  # no checkpoint was written
    assert result.returncode == 90, result.text()


def check_wrong():
    """Scene -> what is counted on the last rank and on the one before it, and a word of a note."""
    scenes = {
        "bad_lists": ("neighbour_lists", "partner", "the neighbour"),
        "kernel_fails": ("kernel", "kernel", "returned 7"),
        "moved": ("particle_moved", "partner", "particle_moved"),
        "moves": ("particle_moved", None, "particle_moved"),
        "count": ("wrong_count", "partner", "wrong_count"),
        "step": ("steps_disagree", "steps_disagree", "steps_disagree"),
        "fields": ("fields_disagree", "fields_disagree", "fields_disagree"),
        "fewer_fields": ("fields_disagree", "fields_disagree", "fields_disagree"),
        "other_fields": ("fields_disagree", "fields_disagree", "fields_disagree"),
        "order": ("call_order", None, "call_order"),
        "one_sided": (None, None, "one-sided"),
    }
    for scene, (own, others, word) in scenes.items():
        result = run(scene)
        assert result.returncode == 0, (scene, result.text())
        if scene != "one_sided" and scene != "bad_lists":  # these change what is computed
            assert sums(result) == plain(), (scene, result.text())
        for rank, reason in ((1, own), (0, others)):
            summary, findings, notes = of_rank(result, rank)
            # Who does not name a field that it has changed is told so.
            assert not findings or (scene, rank, findings[0]["kind"]) == ("fewer_fields", 1, "particle_changed"), (scene, findings)
            if reason:
                assert summary["uncovered"].get(reason), (scene, rank, summary, notes)
            else:
                assert not summary["uncovered"] and summary["compared"], (scene, rank, summary)
        assert any(word in note for note in of_rank(result, 1)[2]), (scene, of_rank(result, 1)[2])
        # It goes on to compare where it can: after the next selection, or the next phase.
        if scene in ("bad_lists", "kernel_fails", "moved"):
            assert of_rank(result, 1)[0]["compared"] > counts(result, 1)[1] * 2, (scene, of_rank(result, 1)[0])


def check_one_sided_hashed():
    result = run("one_sided", ranks=MOST, RESIL_SPR="hashed")
    assert result.returncode == 0 and not of_rank(result, 0)[1], result.text()
    assert of_rank(result, 0)[0]["compared"], result.text()


def check_silent():
    result = run("silent", RESIL_SPR_TIMEOUT="0.5")
    assert result.returncode == 0, result.text()
    summary, findings, notes = of_rank(result, 0)
    assert summary["uncovered"].get("partner_silent") and not findings, summary
    assert any("did not come to the same call" in note for note in notes), notes


def check_members():
    result = run("among", ranks=3)
    assert result.returncode == 0 and sums(result) == plain(3), result.text()
    assert counts(result, 2)[:2] == (-1, 0) and counts(result, 0)[1] and counts(result, 1)[1], result.text()
    assert of_rank(result, 0)[0]["members"] == 2 and of_rank(result, 0)[0]["compared"], of_rank(result, 0)


def check_copy():
    for ranks in range(2, MOST + 1):
        result = run("copy", ranks=ranks)
        assert result.returncode == 0, result.text()
        for rank in range(ranks):
            said = f"rank {rank}: copy of {CELLS} cells of rank {(rank + ranks - 1) % ranks}"
            assert said in result.stderr.decode(), result.text()


def check_distance():
    result = run(ranks=4, flip="3:2:input:50:44", RESIL_SPR_DISTANCE="2")
    assert of_rank(result, 3)[0]["next_rank"] == 1 and of_rank(result, 0)[0]["next_rank"] == 2, result.text()
    differing, = [one for one in of_rank(result, 3)[1] if one["kind"] == "replica_mismatch"]
    assert sorted(differing["victim_ranks"]) == [1, 3], differing


def check_languages():
    for program in ("spr_cxx", "spr_fortran"):
        quiet, found = run("computed", program=program), run(program=program, flip=FLIP.format("input", 20))
        assert quiet.returncode == found.returncode == 0, (quiet.text(), found.text())
        after = [run("computed", flip=f"1:2:output:{cell}:51", program=program) for cell in (0, 1)]
        assert program == "spr_fortran" or sums(run("kept", RETRY, FLIP.format("input", 7), program=program)) == plain()
        assert all(counts(result, 1)[3] in (1, 2) and not counts(result, 0)[3] for result in after), [one.text() for one in after]
        assert sums(quiet) == sums(run(program=program, preload=False)), quiet.text()
        assert counts(quiet, 1)[3] == 0 and counts(quiet, 1)[1] > 0, quiet.text()
        assert counts(found, 1)[3] >= 2 and counts(found, 1)[0] == 0, found.text()


def check_sph():
    """Known values: the gas sphere's energies (internal 0.05, potential -2/3, pull 1 everywhere), energy and momentum kept."""
    for problem, steps in (("evrard", 4), ("wind", 3)):
        said = []
        for preload in (False, True):
            result = jobs.run(MPI, 2, [os.path.join(BUILD, f"sph.{MPI}"), problem, "900", str(steps)], preload=preload, timeout=60,
                              env={"RESIL_SPR": "cover"})
            assert result.returncode == 0, result.text()
            said.append([line for line in result.stdout.decode().splitlines() if line.startswith(("step", "particles"))])
        assert said[0] == said[1] and said[1][-1].endswith("found 0"), said
        at = [{words[i]: float(words[i + 1]) for i in range(0, len(words), 2)} for words in (line.split() for line in said[1][:-1])]
        first, last = at[0], at[-1]
        assert abs(last["total"] / first["total"] - 1) < 1e-3 and last["mass"] == first["mass"], at
        if problem == "evrard":
            assert abs(first["internal"] - 0.05) < 1e-9 and abs(first["potential"] + 2 / 3) < 0.03, first
            assert abs(first["pull"] - 1) < 0.05 and first["mass"] == 1, first
        else:
            assert abs(last["momentum"] / first["momentum"] - 1) < 1e-9, at
        for rank in range(2):
            summary, findings, notes = of_rank(result, rank)
            assert not findings and not summary["uncovered"] and summary["compared"], summary
            assert not [note for note in notes if note.startswith("spr")], notes


def check_flips_of_sph():
    """A little of scripts/campaign spr: positions where replicas of other ranks cover some particles, densities that go wrong while
    their kernel computes others. All that reach the result are found, and nothing else."""
    for method, ranks, field, seed in (("hashed", MOST, 0, 3), ("cover", 2, 4, 2)):
        result = jobs.run(MPI, ranks, [os.path.join(BUILD, f"sph.{MPI}"), "evrard", "500", "flips", str(field), "40", str(seed), "2"],
                          timeout=90, env={"RESIL_SPR": method, "RESIL_ON_MISMATCH": "log", "RESIL_LOG": "quiet"})
        text = result.stdout.decode()
        assert result.returncode == 0 and "undetected" not in text and "2 runs, 0 false alarms" in text, result.text()
        assert re.search(r"insignificant [1-9]\d* .*, significant [1-9]\d* detected", text), text


def check_same_anywhere():
    """Selected by a hash of ids: as many on one rank as on several (which ones: test spr)."""
    chosen = {}
    for ranks in (1, 2, 3, 5) if MPI == "openmpi" else (1, 2):
        result = jobs.run(MPI, ranks, [os.path.join(BUILD, f"sph.{MPI}"), "evrard", "700", "0"], timeout=60, env={"RESIL_SPR": "hashed"})
        assert result.returncode == 0, result.text()
        summaries = [of_rank(result, rank)[0] for rank in range(ranks)]
        chosen[ranks] = sum(summary["replicas"] for summary in summaries), sum(summary["particles"] for summary in summaries)
    assert len(set(chosen.values())) == 1 and chosen[1][0] > 10, chosen


def check_nbody():
    """Everybody stands in everybody's list: one replica a rank sees what its sum does not round away; the inputs, each bit."""
    def bodies(flip=None, **variables):
        result = jobs.run(MPI, 2, [os.path.join(BUILD, f"spr_nbody.{MPI}"), "200", "8"], timeout=60,
                          env={"RESIL_SPR": "cover", "RESIL_ON_MISMATCH": "log", **({"FLIP": flip} if flip else {}), **variables})
        assert result.returncode == 0, result.text()
        return result
    quiet = bodies()
    first, last, virial, kept = re.search(r"energy (\S+) (\S+) virial (\S+) momentum \S+ (\S+)", quiet.stdout.decode()).groups()
    assert abs(float(last) / float(first) - 1) < 1e-4 and abs(float(virial) - 1) < 0.15 and float(kept) < 1e-14, quiet.text()
    for rank in range(2):
        summary, findings, _ = of_rank(quiet, rank)
        assert summary["replicas"] == 1 and summary["compared"] == 9 and not summary["uncovered"] and not findings, summary
    changed = bodies("0:4:input:0:0")
    assert [one["kind"] for one in of_rank(changed, 0)[1]] == ["particle_changed"], changed.text()
    for rank, body, bit in ((0, 0, 40), (1, 57, 52), (1, 99, 63)):
        result = bodies(f"{rank}:4:input:{body}:{bit}", RESIL_SPR_INPUTS="0")
        assert [one["kind"] for one in of_rank(result, rank)[1]] == ["replica_mismatch"], result.text()
        result = bodies(f"{rank}:4:output:{body}:{bit}")
        assert "particle_changed" in [one["kind"] for one in of_rank(result, rank)[1]], result.text()


def check_deaths():
    """Ranks die, and the others go on from what the next ranks have kept, to the same bits. Where MPI ends the job after a death
    the ranks leave instead; test spr-openmpi has both from Open MPI 5.0 on."""
    def ring(ranks, *deaths, options=()):
        result = jobs.run(MPI, ranks, [os.path.join(BUILD, f"spr_death.{MPI}"), "12", *deaths], timeout=60, options=options,
                          env={"RESIL_SPR": "cover", "RESIL_ON_MISMATCH": "log", "RESIL_SPR_TIMEOUT": "60"})
        found = re.search(r"cells (\d+) sum (\w+)", result.stdout.decode())
        assert found, (deaths, result.text())
        return found.groups(), result.stderr.decode()
    ranks = MOST + 1 if MPI == "openmpi" else 2
    whole, _ = ring(ranks)
    last = ranks - 1
    cases = [((f"{last}:7:leaves",), (), (f"rank 0: has taken over from rank {last}, back to step 6",))]
    if ranks == 4:
        cases.append((("1:10:leaves", "3:10:leaves"), (), ("rank 2: has taken over from rank 1, back to step 9",
                                                           "rank 0: has taken over from rank 3, back to step 9")))
    if MPI == "openmpi" and jobs.openmpi_version() >= (5,):
        ulfm = ("--with-ft", "ulfm", "--enable-recovery")
        cases += [(("2:7:kernel",), ulfm, ("rank 3: has taken over from rank 2, back to step 6",)),
                  (("1:5:keep",), ulfm, ("rank 2: has taken over from rank 1, back to step 3",)),
                  (("0:8:exchange",), ulfm, ("rank 1: has taken over from rank 0, back to step 6",)),
                  (("2:4:kernel", "3:9:kernel"), ulfm, ("rank 3: has taken over from rank 2, back to step 3",
                                                        "rank 0: has taken over from rank 3, back to step 9"))]
    for deaths, options, words in cases:
        same, said = ring(ranks, *deaths, options=options)
        assert same == whole, (deaths, same, whole, said)
        assert all(word in said for word in words), (deaths, said)


def main():
    global BUILD, MPI, MOST  # pylint: disable=global-statement
    BUILD, MPI = sys.argv[1:3]
    MOST = 3 if MPI == "openmpi" else 2  # Debian's MPICH 4.0.2 loses messages with three ranks
    jobs.require(f"mpirun.{MPI}")
    checks = [("clean", check_clean), ("flips", check_flips), ("rollback", check_rollback), ("wrong", check_wrong),
              ("silent", check_silent), ("sph", check_sph), ("deaths", check_deaths), ("languages", check_languages)]
    more = [("members", check_members), ("distance", check_distance)] if MPI == "openmpi" else []
    checks += more + shared([("off", check_off), ("results", check_result), ("computed", check_computed), ("abort", check_abort),
                           ("one-sided lists, hashed", check_one_sided_hashed), ("copy", check_copy), ("bodies", check_nbody), ("hashed on any ranks", check_same_anywhere), ("flips of the SPH", check_flips_of_sph), ("between kernels", check_guard)], MPI)
    return run_checks([(f"{name} ({MPI})", check) for name, check in checks])


if __name__ == "__main__":
    sys.exit(main())
