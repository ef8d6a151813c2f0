#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The API table against an installed MPI: every function of the library is in it, and every prototype agrees.

    api_check.py REDECLARE_H MPICC

REDECLARE_H is generated from the table: one prototype a function. Each is compiled behind the real mpi.h, so that a
table row that differs from the header is an error of the compiler.
"""
import re
import subprocess
import sys
import tempfile

# Functions that the table leaves out on purpose; shim/api/mpi.txt says why.
LEFT_OUT = re.compile(r"MPI_(Get_version|Get_library_version|Pcontrol|Aint_add|Aint_diff|\w+_[cf]2[cf]|\w+_FN|\w+_FN_NULL(_C)?"
                      r"|\w+_(from|to)int|Session_set_info|Status_(\w+)?f08\w*|AINT_\w+|WTI\w+|Abi_\w+)$")

FAILURES = re.compile(r"MPIX_Comm_(i?agree|i?shrink|is_revoked|revoke|\w*(fail|ack)\w*)$")


def library_functions(mpicc):
    with tempfile.TemporaryDirectory() as folder:
        program = folder + "/probe"
        subprocess.run([mpicc, "-w", "-x", "c", "-", "-o", program], input="#include <mpi.h>\nint main(int c, char **v) "
                       "{ MPI_Init(&c, &v); return MPI_Finalize(); }", text=True, check=True)
        libraries = re.findall(r"=> (\S*libmpi[^/ ]*)", subprocess.run(["ldd", program], text=True, capture_output=True,
                                                                        check=True).stdout)
    names = set()
    for library in libraries:
        listing = subprocess.run(["nm", "-D", "--defined-only", library], text=True, capture_output=True, check=True).stdout
        names |= set(re.findall(r" [TW] (MPIX?_\w+)", listing))
    return names


def main():
    redeclare, mpicc = sys.argv[1:3]
    table = set(re.findall(r"RESIL_HAS_(\w+)", open(redeclare, encoding="utf-8").read()))
    library = library_functions(mpicc)
    # Of the extensions, those of failure mitigation alone are in the table (from Open MPI 5.0 and MPICH 3.2 on).
    missing = sorted(n for n in library - table if not LEFT_OUT.match(n) and (n.startswith("MPI_") or FAILURES.match(n)))
    if missing:
        sys.exit(f"in the library, not in the table: {missing}")
    both = sorted(library & table)
    if len(both) < 300:
        sys.exit(f"only {len(both)} functions found in the library: is this an MPI?")
    # Names that the header turns into macros or leaves undeclared (functions removed from MPI) are redeclared freely.
    source = "#include <mpi.h>\n#if __has_include(<mpi-ext.h>)\n#include <mpi-ext.h>\n#endif\n" + "".join(f"#define RESIL_HAS_{n}\n" for n in both) + f'#include "{redeclare}"\n'
    # Without const: versions of the standard, and MPICH 4.2, differ in it, and a call is the same with it and without.
    result = subprocess.run([mpicc, "-std=gnu11", "-Dconst=", "-Wno-deprecated-declarations", "-fsyntax-only", "-x", "c", "-"],
                            input=source, text=True, capture_output=True, check=False)
    if result.returncode != 0:
        sys.exit("table and mpi.h differ:\n" + result.stderr[:4000])
    print(f"{len(both)} prototypes agree, {len(library - table)} functions left out on purpose")


main()
