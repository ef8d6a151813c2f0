#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs as batch systems other than Slurm start them: what each puts into the environment, put there by this test, and mpirun in it.
While the job runs, `resil status` and `resil dump` find it by the scheduler's id, and by nothing else; afterwards `resil report` does.
No such batch system runs here: Debian has none of them.

Usage: schedulers_test.py MPI
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import launch_lines, mpi as jobs, patience  # noqa: E402
from harness.main import Long, run_checks  # noqa: E402

# (environment, the name in the report directory's, what the user types, what is another job)
# Numbers of jobs are beyond any process id (4,194,304 at most): a bare number may also be that of a process.
SYSTEMS = {
    "PBS": ({"PBS_JOBID": "47110000.server1", "PBS_ENVIRONMENT": "PBS_BATCH"}, "47110000.server1", ("47110000", "47110000.server1"), "4711000"),
    "PBS, a task of an array": ({"PBS_JOBID": "4712[3].server1", "PBS_ARRAY_INDEX": "3"}, "4712_3_.server1", ("4712[3].server1", "4712[3]"), "4712[2]"),
    "LSF": ({"LSB_JOBID": "81500000", "LSB_JOBINDEX": "0"}, "81500000", ("81500000",), "8150000"),
    "LSF, a task of an array": ({"LSB_JOBID": "816", "LSB_JOBINDEX": "7"}, "816_7", ("816[7]", "816_7"), "816[8]"),
    # Open MPI looks for a Flux that is not there, and crashes without the library, too.
    "Flux": ({"FLUX_JOB_ID": "f2ZkVQ8d3", "OMPI_MCA_pmix": "^flux"}, "f2ZkVQ8d3", ("f2ZkVQ8d3",), "f2ZkV"),
    "Grid Engine": ({"JOB_ID": "99000000", "SGE_TASK_ID": "undefined"}, "99000000", ("99000000",), "9900000"),
    "Grid Engine, a task of an array": ({"JOB_ID": "98", "SGE_TASK_ID": "4"}, "98_4", ("98_4",), "98_5"),
}


TASKS = [name for name in SYSTEMS if name.endswith("a task of an array")]  # one of them is usual, the others are long


def tool(place, environment, *words):
    return jobs.start([os.path.join(place, "bin", "resil"), *words], env=environment, cwd=place)


def found(mpi, variables, name, words, other):
    def check():
        place = launch_lines.place(mpi)
        launch_lines.add_command(place)
        launch_lines.compile_app(place, "long")
        environment = launch_lines.environment(place)
        job = jobs.Running([os.path.join(place, "bin", "resil"), "run", "mpirun", "-np", "2", "./app"], env={**environment, **variables}, cwd=place)
        patience.wait_for(lambda: job.poll() is not None or b'"calls": []' not in tool(place, environment, "status", "--json", words[0]).stdout
                          and tool(place, environment, "status", words[0]).returncode == 0, "the job", 60)
        for word in words:
            said = tool(place, environment, "dump", word)
            assert b"2 of 2 answered" in said.stdout, said.text()
        said = tool(place, environment, "dump", other)
        assert said.returncode == 2 and b"no job" in said.stderr, said.text()
        with open(os.path.join(place, "stop"), "wb"):
            pass
        patience.wait_for(lambda: job.poll() is not None, "the end of the job", 60)
        done = job.end()
        assert done.returncode == 0, done.text()
        directory, = [one for one in os.listdir(place) if one.startswith("resil-")]
        assert re.fullmatch(rf"resil-app-\d{{8}}T\d{{4}}Z-{re.escape(name)}\.\w+", directory), directory
        for word in words:
            said = tool(place, environment, "report", word)
            assert said.stdout.startswith(b"CLEAN: 2 of 2"), (word, said.text())
        return directory
    return check


def main(mpi):
    jobs.require(f"mpirun.{mpi}", f"mpicc.{mpi}")
    return run_checks([(name, Long(found(mpi, *row)) if name in TASKS[1:] else found(mpi, *row)) for name, row in SYSTEMS.items()], side_by_side=2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
