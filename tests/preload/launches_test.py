#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A report directory holds one launch: used directories, jobs inside jobs and beside each other, names of launches that
come again, ranks that could not agree before MPI_Init.

Usage: launches_test.py BUILD openmpi|mpich      (BUILD holds p2p.MPI, ends.MPI, nested.MPI, spawn.MPI)
"""
import glob
import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, patience, report as reports  # noqa: E402
from harness.main import LeftOut, run_checks, shared  # noqa: E402

BUILD = MPI = ""
LIMIT = 300
DEFAULT = r"resil-[\w.]+-\d{8}T\d{4}Z-"
# What a rank's own environment tells a launcher that is started in it.
CLEAN = "for name in $(compgen -e); do case $name in OMPI_*|PMIX_*|PMI_*|PRTE_*|HYDI_*|MPI_LOCAL*) unset $name;; esac; done; "


def program(name):
    return os.path.join(BUILD, f"{name}.{MPI}")


def run(ranks, command, directory=None, env=None, **named):
    result = jobs.run(MPI, ranks, command, directory=directory, env=env, timeout=LIMIT, **named)
    assert result.returncode == 0, result.text()
    return result


def runs(directory):
    """Directories of launches in it, itself first."""
    below = sorted(glob.glob(os.path.join(directory, "resil-*")))
    return [path for path in [directory] + below if glob.glob(os.path.join(path, "rank-*.json")) + glob.glob(os.path.join(path, "node-*.jsonl"))]


def one_launch(directory, ranks, outcome="finished"):
    """All files of a directory are of one launch, whose key launch.json has. Returns the key."""
    with open(os.path.join(directory, "launch.json"), encoding="utf-8") as file:
        key = json.load(file)["launch"]
    assert re.fullmatch("[0-9a-f]{16}", key), key
    found = reports.load(directory)
    assert sorted(found) == list(range(ranks)), (directory, sorted(found))
    for rank, report in found.items():
        assert report["launch"] == key and report["launch_agreed"] and report["outcome"] == outcome, (rank, report["launch"], key)
        assert report["directory"] == directory, report["directory"]
    left = [name for name in os.listdir(directory) if name.endswith(".tmp")]
    assert not left, left
    return key


def used_directory():
    """A second run gets a directory of its own, says so in one line, and `report` shows the newest and lists the other."""
    directory = os.path.join(jobs.scratch(), "report")
    run(2, [program("p2p")], directory)
    first = one_launch(directory, 2)
    result = run(2, [program("p2p")], directory)
    lines = [line for line in result.stderr.decode().splitlines() if "holds the reports of another run" in line]
    assert len(lines) == 1, result.text()
    found = runs(directory)
    assert len(found) == 2 and re.match(DEFAULT, os.path.basename(found[1])) and found[1] in lines[0], (found, lines)
    assert one_launch(directory, 2) == first != one_launch(found[1], 2)
    told = jobs.run_tool("report", "--json", directory)
    assert (told["verdict"], told["directory"]) == ("CLEAN", found[1]), told
    assert [run_["path"] for run_ in told["launches"]] == [directory], told["launches"]
    assert jobs.run_tool("report", "--json", found[1])["directory"] == found[1]


def stale_findings():
    """What an earlier run left (a proved hang, rings of more ranks) is not told of a clean run."""
    directory = os.path.join(jobs.scratch(), "report")
    run(2, [program("p2p")], directory)
    for name in ("launch.json", "rank-00000.json"):
        os.unlink(os.path.join(directory, name))  # an older version's, half removed
    hang = {"schema_version": 1, "class": "deadlock", "confidence": "proved", "culprit_ranks": [0], "message": "stale"}
    with open(os.path.join(directory, "hang-0.json"), "w", encoding="utf-8") as file:
        json.dump(hang, file)
    for rank in range(2, 5):
        shutil.copy(os.path.join(directory, "rank-00001.ring"), os.path.join(directory, f"rank-{rank:05d}.ring"))
    run(2, [program("p2p")], directory)
    told = jobs.run_tool("report", "--json", directory)
    assert told["verdict"] == "CLEAN" and not told["findings"] and told["ranks_expected"] == 2, told["reason"]
    # The same files beside the reports of a run with a key: not believed either.
    newest = told["directory"]
    for name in ("hang-0.json", "rank-00004.ring"):
        shutil.copy(os.path.join(directory, name), newest)
    told = jobs.run_tool("report", "--json", newest)
    assert told["verdict"] == "CLEAN" and not told["findings"] and told["ranks_expected"] == 2, told["reason"]
    assert len(told["other_runs"]) == 2, told["other_runs"]


def inside_a_rank():
    """mpirun in a rank of a job, same RESIL_DIR: two launches, each whole."""
    directory = os.path.join(jobs.scratch(), "report")
    inner = " ".join(jobs.launcher(MPI, 2, {})) + " " + program("p2p")
    script = os.path.join(jobs.scratch(), "inner")
    with open(script, "w", encoding="utf-8") as file:
        file.write(CLEAN + "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n" + inner + "\n")
    result = run(2, [program("nested"), "bash " + script], directory)
    assert b"nested: status 0" in result.stdout, result.text()
    found = runs(directory)
    assert len(found) == 2, (found, result.text())
    keys = {one_launch(place, 2) for place in found}
    assert len(keys) == 2, keys
    calls = [reports.counts(reports.load(place)[0]) for place in found]
    assert "MPI_Bcast" in calls[0] and "MPI_Bcast" not in calls[1], calls


def side_by_side():
    """Three jobs at once with one RESIL_DIR."""
    directory = os.path.join(jobs.scratch(), "report")
    line = jobs.launcher(MPI, 2, jobs.rank_environment(True, directory)) + [program("p2p")]
    running = [jobs.Running(line, directory) for _ in range(3)]
    patience.wait_for(lambda: all(job.poll() is not None for job in running), "the end of all", LIMIT)
    for job in running:
        result = job.end()
        assert result.returncode == 0, result.text()
    found = runs(directory)
    assert len(found) == 3, found
    assert len({one_launch(place, 2) for place in found}) == 3


def moves():
    """Ranks of different programs find different default names: all take rank 0's, and nothing is left of the others."""
    if MPI == "openmpi" and jobs.openmpi_version()[0] == 5:
        raise LeftOut("mpirun 5.0.7 crashes natively when it is given two programs")
    here, folder = jobs.scratch(), jobs.scratch()
    names = [os.path.join(folder, name) for name in ("first", "second")]
    for name in names:
        shutil.copy(program("p2p"), name)
    environment = {"LD_PRELOAD": jobs.library()}
    line = jobs.launcher(MPI, 1, environment) + [names[0]] + [":"]
    if MPI == "openmpi":
        line += ["-x", f"LD_PRELOAD={jobs.library()}"]
    result = jobs.start(line + ["-n", "1", names[1]], cwd=here, timeout=LIMIT)
    assert result.returncode == 0, result.text()
    made = os.listdir(here)
    assert len(made) == 1 and made[0].startswith("resil-first-"), (made, result.text())
    one_launch(os.path.join(here, made[0]), 2)
    told = jobs.run_tool("report", "--json", os.path.join(here, made[0]))
    assert told["verdict"] == "CLEAN" and told["ranks_expected"] == 2, told["reason"]


def same_name_again():
    """A launch name that comes again at once (two programs in one step): the second one goes elsewhere; so does a job that
    was requeued. The step of an array says which task it is."""
    here = jobs.scratch()
    step = {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0",
            "PMI_RANK": "0", "SLURM_ARRAY_JOB_ID": "4700", "SLURM_ARRAY_TASK_ID": "3", "LD_PRELOAD": jobs.library()}
    for env in ({}, {}, {"SLURM_RESTART_COUNT": "1"}):
        result = jobs.start([program("p2p")], env={**step, **env, "RESIL_DIR": "d"}, cwd=here, timeout=LIMIT)
        assert result.returncode in (0, 1), result.text()  # p2p wants two ranks
    found = runs(os.path.join(here, "d"))
    assert len(found) == 3 and all("-4700_3.0" in os.path.basename(place) for place in found[1:]), found
    with open(os.path.join(found[1], "launch.json"), encoding="utf-8") as file:
        assert json.load(file)["name"] == "4700_3.0."
    assert len({report["launch"] for place in found for report in reports.load(place).values()}) == 3


def spawned_worlds():
    """A world that was spawned stays in its job's directory, also where that is not RESIL_DIR itself."""
    directory = os.path.join(jobs.scratch(), "report")
    for _ in range(2):
        run(2, [program("spawn")], directory, options=["--oversubscribe"], spawns=True)
    found = runs(directory)
    assert len(found) == 2, found
    for place in found:
        one_launch(place, 2)
        worlds = glob.glob(os.path.join(place, "world-*"))
        assert len(worlds) == 1, worlds
        one_launch(worlds[0], 2)
        told = jobs.run_tool("report", "--json", place)
        assert told["verdict"] == "CLEAN" and told["worlds"] == {"0": 2, "1": 2}, told["reason"]


def no_pmi():
    """srun without a PMI: Open MPI exits in MPI_Init. That is told, and what to do; it is not called a kill."""
    here = jobs.scratch()
    step = {"SLURM_JOB_ID": "77", "SLURM_JOBID": "77", "SLURM_PROCID": "0", "SLURM_STEP_ID": "0", "SLURM_STEPID": "0", "SLURM_NTASKS": "1",
            "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "SLURM_NODELIST": "x", "SLURM_STEP_NODELIST": "x", "LD_PRELOAD": jobs.library()}
    result = jobs.start([program("nested"), "true"], env={**step, "RESIL_DIR": "d"}, cwd=here, timeout=LIMIT)
    if MPI == "openmpi" and jobs.openmpi_version() >= (5,) and result.returncode == 0:
        raise LeftOut("Open MPI 5 and later start alone there")
    assert result.returncode not in (0, None), result.text()
    told = jobs.run_tool("report", "--json", os.path.join(here, "d"))
    assert "--mpi=pmix" in told["notes"][0]["text"], told["notes"]
    place = told["places"][0]
    assert place["phase"] == "starting" and place["end"] == "killed", place
    text = jobs.start([sys.executable, os.path.join(jobs.ROOT, "scripts", "resil"), "report", os.path.join(here, "d")]).stdout.decode()
    assert "rank 0 ended within MPI_Init (exited, or was killed)" in text and "was killed in" not in text, text


def main():
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = sys.argv[1:3]
    jobs.require(f"mpirun.{MPI}")
    checks = [("used directory", used_directory), ("stale findings", stale_findings), ("inside a rank", inside_a_rank),
              ("side by side", side_by_side), ("moves", moves)]
    checks = shared(checks, MPI)
    if MPI == "mpich":
        checks += [("same name again", same_name_again)]
    else:
        checks += [("spawned worlds", spawned_worlds), ("no PMI from srun", no_pmi)]
    return run_checks([(f"{name} ({MPI})", check) for name, check in checks])


if __name__ == "__main__":
    sys.exit(main())
