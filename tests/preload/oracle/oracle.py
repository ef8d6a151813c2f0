# SPDX-License-Identifier: Apache-2.0
"""Builds the oracle (oracle.c) for the names that the library exports, and reads what it counted."""
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
SPECIAL = {"kInit": "MPI_Init", "kInitThread": "MPI_Init_thread", "kSessionInit": "MPI_Session_init",
           "kFinalize": "MPI_Finalize", "kFinalized": "MPI_Finalized"}


def build(library, directory):
    """Compiles the oracle for this library into the directory; its path."""
    command = ["nm", "-D", "--defined-only", library]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    exported = {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines()}
    names = sorted(name for name in exported if name.startswith("MPI_") or name == "MPIX_Op_create_x")
    with open(os.path.join(directory, "names.inc"), "w", encoding="ascii") as file:
        file.write("static const char* const names[] = {%s};\n" % ", ".join(f'"{name}"' for name in names))
        special = ", ".join(f"{constant} = {names.index(name)}" for constant, name in SPECIAL.items())
        file.write(f"enum {{ kNames = {len(names)}, {special} }};\n")
    with open(os.path.join(directory, "stubs.inc"), "w", encoding="ascii") as file:
        for slot, name in enumerate(names):
            file.write(f'STUB("{name}", "{slot}")\nSTUB("P{name}", "{slot + len(names)}")\n')
    output = os.path.join(directory, "oracle.so")
    subprocess.run(["cc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{directory}", "-o",
                    output, os.path.join(HERE, "oracle.c"), "-ldl"], check=True)
    return output


def counted(directory):
    """{pid: {function: count}} of the processes that started MPI."""
    found = {}
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), encoding="ascii") as file:
            found[int(name)] = {line.split()[0]: int(line.split()[1]) for line in file}
    return found
