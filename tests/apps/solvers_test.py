#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MUMPS (Fortran, Open MPI) and ScaLAPACK (Fortran over BLACS in C, both MPIs): they check their own residuals.
ScaLAPACK commits thousands of datatypes and makes thousands of user operators in a tenth of a second."""
import os
import re

from app import dropping, expect_calls, finding, jobs, main, transparent

MUMPS = "/usr/lib/mumps/dsimpletest"
MUMPS_INPUT = "/usr/lib/mumps/input_simpletest_real"
SCALAPACK = "/usr/lib/x86_64-linux-gnu/scalapack"


def mumps():
    with open(MUMPS_INPUT, "rb") as file:
        stdin = file.read()
    # The second rank's lines may come anywhere: sort. Times and memory of the analysis differ.
    drop = dropping("[Ee]lapsed|ELAPSED|[Tt]ime|TIME|MBYTES|[Mm]emory|GFLOPS")

    def keep(text):
        return b"\n".join(sorted(drop(text).split(b"\n")))
    _, _, found = transparent.run_both("openmpi", 2, [MUMPS], stdin=stdin, keep=keep,
                                       numbers=finding(r"Solution is +(.*)"), modes=("watch", "checksum"),
                                       coverage={"least": 80, "reasons": ("reduction",)})
    return expect_calls(found, Bcast=10, Send=1, Barrier=1)


def scalapack(mpi, program):
    def keep(text):
        """Rates and times are the last columns before the verdict."""
        text = re.sub(rb"(?m)^(WALL|CPU|BOTH) +([ \d]+?)( +[\d.]+)+( +PASSED| +FAILED)", rb"\1 \2 \4", text)
        return dropping("floating-point exceptions")(text)
    _, _, found = transparent.run_both(mpi, 2, [f"./{program}"], keep=keep, cwd=f"{SCALAPACK}/{mpi}-tests",
                                       numbers=finding(r"(\d+) tests completed and (?:passed|failed) residual"),
                                       modes=("watch", "checksum"),
                                       coverage={"least": 50, "reasons": ("reduction", "user_operator")})
    return expect_calls(found, Type_commit=1000, Op_create=1000, Bcast=1000, Reduce=1000)


if __name__ == "__main__":
    checks = []
    if os.path.exists(MUMPS):
        checks.append(("mumps", mumps))
    checks += [(f"scalapack {program} ({mpi})", lambda m=mpi, p=program: scalapack(m, p)) for mpi in jobs.MPIS
               for program in ("xdlu", "xdqr") if os.path.exists(f"{SCALAPACK}/{mpi}-tests/{program}")]
    if not checks:
        jobs.skip("neither MUMPS nor ScaLAPACK tests are installed")
    main(checks)
