#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of MPI functions in modules: what a call means stands in shim/model/calls.h, and modules ask there.

    names_test.py SOURCE_ROOT [--list]

Counts CallId::kMPI_X and strings that begin with a name in the code (not the comments) of checksum/, detectors/ and
pipeline/. The limits only go down: whoever removes names lowers them. What is left speaks of one function only: the call
id of a token in a proof, the counter of MPI_Wtime, the place where a finding was made.
"""
import os
import re
import sys

MODULES = ("checksum", "detectors", "pipeline")
NAMES, FILES = 25, 12
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|\bkMPIX?_\w+', re.S)
NAME = re.compile(r'(?:k|")MPIX?_[A-Z][a-z]\w*')


def names_in(text):
    """Line numbers and names."""
    return [(text.count("\n", 0, token.start()) + 1, token[0]) for token in TOKEN.finditer(text)
            if NAME.match(token[0])]


def main():
    found, read = {}, 0
    for module in MODULES:
        for folder, _, files in os.walk(os.path.join(sys.argv[1], module)):
            for name in sorted(files):
                if name.endswith((".cpp", ".h", ".inc")):
                    path = os.path.join(folder, name)
                    read += 1
                    with open(path, encoding="utf-8") as file:
                        if names := names_in(file.read()):
                            found[os.path.relpath(path, sys.argv[1])] = names
    assert read > 100, f"{read} sources below {sys.argv[1]}: where have they gone?"
    total = sum(map(len, found.values()))
    if "--list" in sys.argv or total > NAMES or len(found) > FILES:
        for path, names in found.items():
            print("\n".join(f"{path}:{line}: {name}" for line, name in names))
    print(f"{total} names of MPI functions in {len(found)} files of modules; at most {NAMES} in {FILES}")
    if total > NAMES or len(found) > FILES:
        sys.exit("Ask shim/model/calls.h what the call means, and let the row in shim/api/mpi.txt say it.")


if __name__ == "__main__":
    main()
