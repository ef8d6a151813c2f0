#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Vendors' MPIs by what chooses the backend: the library's file has the vendor's name, its symbols are those of the family.

Usage: vendors_test.py openmpi|mpich

A program that was linked with a library of that name finds this machine's MPI behind it. The vendors' own libraries have not been
run: docs/PLATFORMS.md.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, transparent  # noqa: E402
from harness.main import run_checks  # noqa: E402

# family: [(vendor, file names of its MPI library)], by their documents.
VENDORS = {
    "mpich": [("Cray MPICH", ["libmpi_cray.so.12", "libmpi_gnu_123.so.12", "libmpi_intel.so.12"]),
              ("Intel MPI, MVAPICH, ParaStation MPI, Cray's ABI package", ["libmpi.so.12"])],
    "openmpi": [("HPC-X", ["libmpi.so.40"]), ("Spectrum MPI", ["libmpi_ibm.so.3"]), ("Fujitsu MPI", ["libmpi.so.0"])],
}


def compiled(mpi, folder):
    """(object file, MPI symbols it needs, path of this machine's library)."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vendor_program.c")
    code = os.path.join(folder, "program.o")
    subprocess.run([f"mpicc.{mpi}", "-w", "-O1", "-fPIC", "-c", source, "-o", code], check=True)
    needed = re.findall(r" U ((?:MPI_|ompi_)\w+)", subprocess.run(["nm", "-u", code], text=True, capture_output=True, check=True).stdout)
    probe = os.path.join(folder, "probe")
    subprocess.run([f"mpicc.{mpi}", "-w", source, "-o", probe], check=True)
    found = re.findall(r"libmpi(?:ch)?\.so\S* => (\S+)", subprocess.run(["ldd", probe], text=True, capture_output=True, check=True).stdout)
    return code, needed, os.path.realpath(found[0])


def linked(folder, name, code, needed, real):
    """(program, folder to be searched): linked with a library `name`, behind which the real one is found."""
    here = os.path.join(folder, name)
    os.makedirs(os.path.join(here, "link"))
    stub, program = os.path.join(here, "link", name), os.path.join(here, "program")
    text = "".join(f"void {symbol}(void) {{}}\n" for symbol in needed)
    subprocess.run(["cc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-x", "c", "-", "-o", stub], input=text, text=True, check=True)
    subprocess.run(["cc", "-pie", code, stub, "-o", program], check=True)
    os.symlink(real, os.path.join(here, name))
    return program, here


def check(mpi, made, folder, name):
    program, path = linked(folder, name, *made)
    plain = jobs.run(mpi, 2, [program], env={"LD_LIBRARY_PATH": path}, preload=False)
    assert plain.returncode == 0 and b"2 ranks, sum 1" in plain.stdout, plain.text()
    for mode in ("watch", "checksum"):
        preloaded = jobs.run(mpi, 2, [program], env={"LD_LIBRARY_PATH": path, "RESIL_MODE": mode})
        transparent.same_end(plain, preloaded)
        for report in transparent.clean_report(preloaded, 2).values():
            assert report["mpi"]["abi"] == mpi, report["mpi"]
            assert report["all_ranks_preloaded"] is True, report
            assert report["calls"]["MPI_Sendrecv"]["count"] == 1, report["calls"]


def main():
    mpi = sys.argv[1]
    jobs.require(f"mpirun.{mpi}")
    folder = jobs.scratch()
    made = compiled(mpi, folder)
    return run_checks([(f"{vendor}: {name}", lambda name=name: check(mpi, made, folder, name))
                       for vendor, names in VENDORS[mpi] for name in names])


if __name__ == "__main__":
    sys.exit(main())
