# SPDX-License-Identifier: Apache-2.0
"""Bits flipped in a program's memory while it runs, held against what a verify run says.

Used by scripts/campaign flips and scripts/demo repro's test. The truth does not come from resil: a flip has reached the
result when the program's own output, which prints its numbers to the last bit, differs from that of the clean run.
"""
import json
import os
import re
import shutil
import subprocess
import sys

from . import mpi as jobs, spr

SOURCE = os.path.join(jobs.ROOT, "tests", "faults", "memory_flip.c")
# timer off: sums over the ranks of what a clock said are different in every run.
MELT = """timer off
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 8 0 8 0 8
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 10
thermo_style custom step temp epair pe ke press
thermo_modify format float %.17g
run {steps}
"""


def injector(mpi):
    output = os.path.join(jobs.scratch(), "memory_flip.so")
    subprocess.run([f"mpicc.{mpi}", "-std=gnu11", "-O1", "-w", "-shared", "-fPIC", "-o", output, SOURCE, "-ldl", "-lpthread",
                    "-lm"], check=True)
    return output


class Program:
    """Something to damage: a command, the lines of its output that are its result, and how many messages a rank sends."""

    def __init__(self, name, command, lines, messages, directory):
        self.name, self.command, self.lines, self.messages, self.directory = name, command, re.compile(lines), messages, directory
        self.env = {}

    def result(self, run):
        return [line for line in run.stdout.decode(errors="replace").splitlines() if self.lines.match(line)]


def lammps(steps=200):
    """A small Lennard-Jones melt, thermodynamics to 17 digits every ten steps."""
    directory = jobs.scratch()
    with open(os.path.join(directory, "in.melt"), "w", encoding="utf-8") as file:
        file.write(MELT.format(steps=steps))
    return Program("LAMMPS", ["lmp", "-in", "in.melt", "-log", "none"], r" +\d+ +-?\d", 5 * steps, directory)


def cg(mpi, points=160, iterations=200):
    """Conjugate gradients in Fortran, residuals bit for bit."""
    directory = jobs.scratch()
    program = os.path.join(directory, "cg")
    subprocess.run([f"mpif90.{mpi}", "-O2", "-g", "-w", "-J", directory, "-o", program,
                    os.path.join(jobs.ROOT, "tests", "apps", "cg.f90")], check=True)
    return Program("CG (Fortran)", [program, str(points), str(iterations)], r"residual|solution", 2 * iterations, directory)


def sph(mpi, particles=300, steps=20):
    """An SPH with gravity (tests/mpi/sph.c): collectives alone; energies to nine digits."""
    program = Program("SPH", [spr.compiled(mpi), "evrard", str(particles), str(steps)], r"step", 4 * steps, jobs.scratch())
    program.env = {"MEMORY_FLIP_CALLS": "1"}
    return program


def espresso():
    """Quantum ESPRESSO: the self-consistent energy of silicon, line by line."""
    sys.path.insert(0, os.path.join(jobs.ROOT, "tests", "apps"))
    import espresso_test  # pylint: disable=import-outside-toplevel
    directory = jobs.scratch()
    with open(os.path.join(directory, "si.in"), "w", encoding="ascii") as file:
        file.write(espresso_test.INPUT)
    program = Program("Quantum ESPRESSO", ["pw.x", "-in", "si.in"], r"!? +(total energy|estimated scf|one-electron|hartree|xc contr|-?\d+\.\d+ +-?\d)",
                      1500, directory)
    program.env = {"MEMORY_FLIP_CALLS": "1"}
    return program


def programs(mpi, small=False):
    """By the names that scripts/campaign knows."""
    if small:
        return {"lammps": lambda: lammps(40), "cg": lambda: cg(mpi, 60, 60), "sph": lambda: sph(mpi, 150, 10), "espresso": espresso}
    return {"lammps": lammps, "cg": lambda: cg(mpi), "sph": lambda: sph(mpi), "espresso": espresso}


def run(program, mpi, ranks, mode, recording, variables=None, flip=None, library=None, log=None, timeout=120):
    """One run under `mode` (record or verify), with a flip if there is one."""
    env = {"RESIL_MODE": mode, "RESIL_RECORD": recording, "RESIL_LOG": "quiet", **program.env, **(variables or {})}
    tools = ()
    if flip:
        env.update({"MEMORY_FLIP": flip, "MEMORY_FLIP_LOG": log})
        tools = (library,)
    if mode == "record":
        shutil.rmtree(recording, ignore_errors=True)
    return jobs.run(mpi, ranks, program.command, env=env, timeout=timeout, cwd=program.directory, tools_after=tools)


def run_parts(program, mpi, ranks, parts, variables=None, flip=None, library=None, log=None, timeout=240, some=None):
    """One run in `parts` parts of `ranks` ranks each; `some`: copies of these ranks only."""
    env = {"RESIL_REPLICAS": str(parts), "RESIL_LOG": "quiet", **program.env, **(variables or {})}
    copies = ranks if some is None else len(some)
    if some is not None:
        env["RESIL_REPLICAS_RANKS"] = ",".join(map(str, some))
    if flip:
        env.update({"MEMORY_FLIP": flip, "MEMORY_FLIP_LOG": log})
    return jobs.run(mpi, ranks + copies * (parts - 1), program.command, env=env, timeout=timeout, cwd=program.directory,
                    tools_after=(library,) if flip else ())


def flipped(log):
    """What the injector did; None: nothing."""
    try:
        with open(log, encoding="utf-8") as file:
            row = json.load(file)
    except (OSError, ValueError):
        return None
    return row if row.get("flipped") else None


def divergences(directory):
    """What the report says of runs that part from their recording, the beginning first. Not what differs between parts without
    consequence: a program may send memory that it has not initialised (Quantum ESPRESSO does), and comparing goes on."""
    report = jobs.run_tool("report", "--json", directory)
    return [finding for finding in report["findings"] if finding["kind"] in ("divergence", "divergent_input", "replay_stuck", "parts_differ")
            and "nothing that they have given or got since then depends on it" not in finding["message"]]


def culprits(found):
    """Ranks that are named as where it began."""
    return sorted(found[0]["culprit_ranks"]) if found else []


def named_by_parts(found, ranks, rank, some=None):
    """The flipped rank where it is the one that is named, or one of two; else what is named."""
    named = culprits(found)
    both = sorted(found[0]["victim_ranks"]) if found else []
    partner = ranks + (rank if some is None else some.index(rank))
    return [rank] if not named and both == [rank, partner] else named
