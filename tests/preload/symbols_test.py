#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the library exports equals tests/golden/exported_symbols.txt: one name a line, sorted.

Usage: symbols_test.py LIBRARY GOLDEN [--update]
"""
import re
import subprocess
import sys

# Names of accelerator runtimes are those of detectors/gpu_runtime and no others, PMIx_Commit is that of
# shim/presence/pmix.cpp, dlclose that of shim/call/unload.cpp, the two by which a library ends the job those of shim/call/fatal_error.cpp; the list says which.
ALLOWED = re.compile(r"P?MPI_[A-Z]\w*$|P?MPIX_(Op_create_x|Comm_[a-z_]+)$|resil_\w+$|(cu|cuda|hip)(Stream|Event|Ctx|Device|Ipc|ExtStream)\w+$|InitializeInjection$|PMIx_Commit$|dlclose$|MPIR_Err_return_comm$|ompi_mpi_abort$")


def exported(library):
    listing = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    return sorted(line.split()[-1].split("@")[0] for line in listing.stdout.splitlines())


def main(library, golden, update):
    names = exported(library)
    strange = [name for name in names if not ALLOWED.match(name)]
    if strange:
        print("exported, but neither MPI_, PMPI_, resil_, of an accelerator runtime PMIx_Commit nor of a library that ends the job:", *strange)
        return 1
    lonely = [name for name in names if name.startswith(("MPI_", "MPIX_")) and "P" + name not in names]
    if lonely:
        print("exported without the PMPI_ name:", *lonely)
        return 1
    if update:
        with open(golden, "w", encoding="ascii") as file:
            file.write("\n".join(names) + "\n")
        return 0
    with open(golden, encoding="ascii") as file:
        expected = file.read().split()
    new, gone = sorted(set(names) - set(expected)), sorted(set(expected) - set(names))
    for title, difference in (("exported, not in the list", new), ("in the list, not exported", gone)):
        if difference:
            print(f"{title}:", *difference)
    if new or gone:
        print(f"If that is meant: {sys.argv[0]} {library} {golden} --update")
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], "--update" in sys.argv[3:]))
