#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LAMMPS (C++), its packaged Lennard-Jones melt: the same thermodynamics to the last digit, with 2 and 4 ranks.
Checked with 4 ranks as in production (lazy), with 2 in each way."""
from app import dropping, expect_calls, finding, jobs, main, transparent

INPUT = "/usr/share/lammps/examples/melt/in.melt"
keep = dropping("Loop time", "Performance:", "CPU", r"^(Pair|Neigh|Comm|Output|Modify|Other) ", "wall time",
                "using .* OpenMP")


def check(ranks, modes):
    _, _, found = transparent.run_both("openmpi", ranks, ["lmp", "-in", INPUT, "-log", "none"], keep=keep,
                                       numbers=finding(r"\n +250 +(.*)"), modes=modes, cwd=jobs.scratch(),
                                       coverage={"least": 99.5, "reasons": ("reduction",)})
    return expect_calls(found, Init=ranks, Send=1000, Irecv=1000, Wait=1000, Allreduce=50 * ranks)


if __name__ == "__main__":
    jobs.require("lmp", "mpirun.openmpi", INPUT)
    main([("lammps, 2 ranks", lambda: check(2, ("full", "strict"))),
          ("lammps, 4 ranks", lambda: check(4, ("off", "watch", "checksum")))])
