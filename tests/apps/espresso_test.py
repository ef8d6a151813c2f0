#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantum ESPRESSO (Fortran): the self-consistent energy of silicon to the last digit printed."""
import os

from app import dropping, expect_calls, finding, jobs, main, transparent

PSEUDO = "/usr/share/espresso/pseudo"
INPUT = f"""&control
  calculation='scf', prefix='si', outdir='./out', pseudo_dir='{PSEUDO}'
/
&system
  ibrav=2, celldm(1)=10.20, nat=2, ntyp=1, ecutwfc=16.0
/
&electrons
  conv_thr=1.0d-8
/
ATOMIC_SPECIES
 Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS (alat)
 Si 0.00 0.00 0.00
 Si 0.25 0.25 0.25
K_POINTS automatic
 2 2 2 1 1 1
"""
keep = dropping("cpu time", "CPU", "starts on", "terminated on", r"\bWALL\b", "MiB|Mb|RAM")


def check():
    directory = jobs.scratch()
    with open(os.path.join(directory, "si.in"), "w", encoding="ascii") as file:
        file.write(INPUT)
    _, _, found = transparent.run_both("openmpi", 2, ["pw.x", "-in", "si.in"], keep=keep, cwd=directory,
                                       numbers=finding(r"!.* total energy += +(\S+) Ry"), modes=("watch", "checksum"),
                                       coverage={"least": 90, "reasons": ("reduction",)})
    return expect_calls(found, Allreduce=500, Bcast=100)


if __name__ == "__main__":
    jobs.require("pw.x", "mpirun.openmpi", f"{PSEUDO}/Si.pz-vbc.UPF")
    main([("quantum espresso", check)])
