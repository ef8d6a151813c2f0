# SPDX-License-Identifier: Apache-2.0
"""Real programs that run for as long as a campaign needs, and what of their output is their result.

Used by scripts/campaign hangs and quiet. Each function makes the program's input in a directory of its own; `size` is
about the seconds that it takes on two idle cores, ENDLESS: longer than anybody waits.
"""
import os
import re
import subprocess

from . import mpi as jobs

ENDLESS = 10**6
HPCC_INPUT = "/usr/share/doc/hpcc/examples/_hpccinf.txt"
PSEUDO = "/usr/share/espresso/pseudo"
MELT = """units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 100
thermo_style custom step temp epair pe ke press
thermo_modify format float %.12g
{dump}
run {steps}
"""
SILICON = """&control
  calculation='md', prefix='si', outdir='./out', pseudo_dir='{pseudo}', nstep={steps}, dt=20, disk_io='none'
/
&system
  ibrav=2, celldm(1)=10.20, nat=2, ntyp=1, ecutwfc=12.0, nosym=.true.
/
&electrons
  conv_thr=1.0d-8
/
&ions
/
ATOMIC_SPECIES
 Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS (alat)
 Si 0.00 0.00 0.00
 Si 0.26 0.25 0.25
K_POINTS automatic
 2 2 2 1 1 1
"""
# A wave on a line in NumPy: halo exchange of arrays, and every tenth step collectives of pickled objects.
WAVE = """import sys
import numpy
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
left = rank - 1 if rank else MPI.PROC_NULL
right = rank + 1 if rank + 1 < size else MPI.PROC_NULL
x = numpy.sin(numpy.arange(20002) * 0.001 * (rank + 1))
before = x.copy()
for step in range(int(sys.argv[1])):
    comm.Sendrecv(x[-2:-1], right, 1, x[0:1], left, 1)
    comm.Sendrecv(x[1:2], left, 2, x[-1:], right, 2)
    after = x.copy()
    after[1:-1] = 2 * x[1:-1] - before[1:-1] + 0.25 * (x[2:] - 2 * x[1:-1] + x[:-2])
    before, x = x, after
    if step % 10 == 9:
        everyone = comm.allgather(float(numpy.abs(x).max()))
        energy = comm.allreduce(float((x * x)[1:-1].sum()))
        if rank == 0 and step % 1000 == 999:
            print('energy', step + 1, energy.hex(), max(everyone).hex(), flush=True)
"""


class Workload:
    """A command in a directory, the ranks it is run with, and which lines of its output are its result."""

    def __init__(self, name, mpi, ranks, command, directory, lines, needs=(), output=None):
        self.name, self.mpi, self.ranks, self.command, self.directory = name, mpi, ranks, command, directory
        self.lines, self.needs, self.output = re.compile(lines), needs, output

    @property
    def title(self):
        return f"{self.name}, {self.mpi}, {self.ranks} ranks"

    def result(self, run):
        """Lines of the result of a Result; `output`: the file that the program writes them to."""
        text = run.stdout
        if self.output:
            try:
                with open(os.path.join(self.directory, self.output), "rb") as file:
                    text = file.read()
            except OSError:
                text = b""
        return [line for line in text.decode(errors="replace").splitlines() if self.lines.search(line)]


def _file(directory, name, text):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        file.write(text)


def _compiled(mpi, source):
    directory = jobs.scratch()
    program = os.path.join(directory, os.path.splitext(os.path.basename(source))[0])
    fortran = source.endswith(".f90")
    compiler = [f"mpif90.{mpi}", "-J", directory] if fortran else [f"mpicc.{mpi}"]
    subprocess.run(compiler + ["-O2", "-g", "-w", "-o", program, os.path.join(jobs.ROOT, "tests", source)], check=True)
    return program, directory


def lammps(mpi="openmpi", ranks=4, size=ENDLESS, io=False):
    """A Lennard-Jones melt; io: every hundredth step all positions go to a file."""
    directory = jobs.scratch()
    dump = "dump 1 all atom 20 positions.txt\ndump_modify 1 flush yes" if io else ""
    _file(directory, "in.melt", MELT.format(cells=10, steps=min(int(size * 400), 10**9), dump=dump))
    return Workload("LAMMPS with dumps" if io else "LAMMPS", mpi, ranks, ["lmp", "-in", "in.melt", "-log", "none"],
                    directory, r"^ +\d+ +-?\d", ("lmp",))


def hpcc(mpi="openmpi", ranks=4, size=ENDLESS):
    """HPC Challenge: everything it has, then many matrices solved."""
    directory = jobs.scratch()
    with open(HPCC_INPUT, encoding="ascii") as file:
        lines = file.read().splitlines()
    count, points = (20, 2000) if size >= ENDLESS else (2, 1000)
    lines[4], lines[5] = f"{count} # of problems sizes (N)", f"{points} " * count + "Ns"
    lines[6], lines[7] = ("4 # of NBs", "32 40 48 64 NBs")
    lines[10], lines[11] = f"{2 if ranks > 2 else 1} Ps", f"{ranks // (2 if ranks > 2 else 1)} Qs"
    _file(directory, "hpccinf.txt", "\n".join(lines) + "\n")
    return Workload("HPCC", mpi, ranks, ["hpcc"], directory, r"Found \d+ errors in|\.{6} (PASSED|FAILED)|^HPL_N=|"
                    r"MPIRandomAccess_ErrorsCount=|MPIFFT_N=", ("hpcc", HPCC_INPUT), "hpccoutf.txt")


def stencil(mpi="openmpi", ranks=4, size=ENDLESS):
    """A five-point stencil in Fortran with a norm in each step."""
    program, directory = _compiled(mpi, "bench/stencil.f90")
    steps = min(int(size * 12000 / ranks), 2 * 10**9)
    return Workload("stencil (Fortran)", mpi, ranks, [program, str(steps)], directory, "^nothing$")


def cg(mpi="openmpi", ranks=4, size=ENDLESS):
    """Conjugate gradients in Fortran; it has an end, so it is not for ENDLESS."""
    program, directory = _compiled(mpi, "apps/cg.f90")
    return Workload("CG (Fortran)", mpi, ranks, [program, "1200", str(min(int(size * 80), 4000))], directory,
                    r"residual +[1-9]?[0-9]0 |solution")


def fft(mpi="openmpi", ranks=2, size=ENDLESS):
    """Diffusion by Fourier transforms in Fortran: a transposition in every step. Ranks: a power of two."""
    program, directory = _compiled(mpi, "apps/fft.f90")
    return Workload("FFT (Fortran)", mpi, ranks, [program, "64", str(min(max(int(size * 180), 1), 10**6))], directory, "^sum|^identities")


def multigrid(mpi="openmpi", ranks=2, size=ENDLESS):
    """Multigrid for the Poisson equation in Fortran: halos of all sizes. Ranks: a power of two."""
    program, directory = _compiled(mpi, "apps/multigrid.f90")
    return Workload("multigrid (Fortran)", mpi, ranks, [program, "64", str(min(max(int(size * 75), 1), 10**6))], directory,
                    "^residual|^distance")


def netpipe(mpi="openmpi", ranks=2, size=ENDLESS):
    """Ping-pong of all sizes to 1 MiB; endless: of one size."""
    program = {"openmpi": "NPopenmpi", "mpich": "NPmpich2"}[mpi]
    directory = jobs.scratch()
    repeats = ["-u", "65536", "-n", str(int(size * 200))]
    if size >= ENDLESS:
        repeats = ["-l", "8192", "-u", "8192", "-n", str(10**9)]
    return Workload("NetPIPE", mpi, ranks, [program, *repeats, "-o", "np.out"], directory, "^nothing$", (program,))


def espresso(mpi="openmpi", ranks=2, size=ENDLESS):
    """Molecular dynamics of two silicon atoms with Quantum ESPRESSO."""
    directory = jobs.scratch()
    _file(directory, "si.in", SILICON.format(pseudo=PSEUDO, steps=min(max(int(size * 20), 1), 10**5)))
    return Workload("Quantum ESPRESSO", mpi, ranks, ["pw.x", "-in", "si.in"], directory,
                    r"^! +total energy|Ekin \+ Etot", ("pw.x", f"{PSEUDO}/Si.pz-vbc.UPF"))


def wave(mpi="openmpi", ranks=3, size=ENDLESS):
    """mpi4py and NumPy. Debian's mpi4py is for Open MPI."""
    directory = jobs.scratch()
    _file(directory, "wave.py", WAVE)
    return Workload("wave (mpi4py)", mpi, ranks, ["/usr/bin/python3", "wave.py", str(min(int(size * 4000), 10**9))],
                    directory, "^energy", ("/usr/bin/python3", "/usr/lib/python3/dist-packages/numpy"))


def rounds(mpi="openmpi", ranks=4, size=ENDLESS, kind="short", milliseconds=5):
    """tests/faults/rounds.c. quiet: one rank computes for 4 s while all others wait; io: writes that are synced."""
    program, directory = _compiled(mpi, "faults/rounds.c")
    count = min(int(size * 1000 / milliseconds * 2 / ranks), 2 * 10**9)
    extra = {"short": [], "quiet": ["quiet", "150", "4000"], "io": ["io", "100", "8", "data"]}[kind]
    return Workload(f"rounds, {kind}", mpi, ranks, [program, str(count), str(milliseconds), *extra], directory,
                    "^rounds ")


def runnable(workload):
    return all(jobs.installed(program) for program in (f"mpirun.{workload.mpi}", *workload.needs))
