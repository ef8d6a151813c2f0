#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs as batch systems other than Slurm start them: what each puts into the environment, put there by this test, and mpirun in it.
While the job runs, `resil status` and `resil dump` find it by the scheduler's id, and by nothing else; afterwards `resil report` does.
No such batch system runs here: Debian has none of them.

Usage: schedulers_test.py MPI
"""
import os
import re
import secrets
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import launch_lines, mpi as jobs, patience  # noqa: E402
from harness.main import Long, run_checks  # noqa: E402

# A bare number may also be that of a process: it is beyond any process id (4,194,304 at most), also without its last digit. And the
# same test may run beside this one on the machine, with other numbers.
NUMBER = str(50_000_000 + secrets.randbelow(40_000_000))
LETTERS = "f2Zk" + secrets.token_hex(4)
# (environment, the name in the report directory's, what the user types, what is another job)
SYSTEMS = {
    "PBS": ({"PBS_JOBID": f"{NUMBER}.server1", "PBS_ENVIRONMENT": "PBS_BATCH"}, f"{NUMBER}.server1", (NUMBER, f"{NUMBER}.server1"), NUMBER[:-1]),
    "PBS, a task of an array": ({"PBS_JOBID": f"{NUMBER}1[3].server1", "PBS_ARRAY_INDEX": "3"}, f"{NUMBER}1_3_.server1",
                                (f"{NUMBER}1[3].server1", f"{NUMBER}1[3]"), f"{NUMBER}1[2]"),
    "LSF": ({"LSB_JOBID": f"{NUMBER}2", "LSB_JOBINDEX": "0"}, f"{NUMBER}2", (f"{NUMBER}2",), f"{NUMBER}20"),
    "LSF, a task of an array": ({"LSB_JOBID": f"{NUMBER}3", "LSB_JOBINDEX": "7"}, f"{NUMBER}3_7", (f"{NUMBER}3[7]", f"{NUMBER}3_7"), f"{NUMBER}3[8]"),
    # Open MPI looks for a Flux that is not there, and crashes without the library, too.
    "Flux": ({"FLUX_JOB_ID": LETTERS, "OMPI_MCA_pmix": "^flux"}, LETTERS, (LETTERS,), LETTERS[:-2]),
    "Grid Engine": ({"JOB_ID": f"{NUMBER}4", "SGE_TASK_ID": "undefined"}, f"{NUMBER}4", (f"{NUMBER}4",), NUMBER[:-2]),
    "Grid Engine, a task of an array": ({"JOB_ID": f"{NUMBER}5", "SGE_TASK_ID": "4"}, f"{NUMBER}5_4", (f"{NUMBER}5_4",), f"{NUMBER}5_5"),
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
        launch_lines.wait_until_moving(job, lambda: tool(place, environment, "status", "--json", words[0]))
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
