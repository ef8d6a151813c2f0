#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The aarch64 trampolines assemble, and there is one entry point for each exported MPI function.

    cross_assemble.py TRAMPOLINES_S GENERATED_DIR

Exit status 77 (skipped) without the cross assembler. Nothing is run: that takes an aarch64 machine.
"""
import re
import shutil
import subprocess
import sys
import tempfile

PREFIX = "aarch64-linux-gnu-"


def main():
    source, generated = sys.argv[1:3]
    if shutil.which(PREFIX + "gcc") is None:
        print(f"{PREFIX}gcc is not installed")
        sys.exit(77)
    wanted = set(re.findall(r"ENTRY\((\w+),", open(generated + "/trampolines.inc", encoding="utf-8").read()))
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run([PREFIX + "gcc", "-c", "-I", generated, source, "-o", folder + "/t.o"], text=True,
                                capture_output=True, check=False)
        if result.returncode != 0:
            sys.exit("does not assemble:\n" + result.stderr[:2000])
        symbols = subprocess.run([PREFIX + "nm", folder + "/t.o"], text=True, capture_output=True, check=True).stdout
        code = subprocess.run([PREFIX + "objdump", "-d", folder + "/t.o"], text=True, capture_output=True, check=True).stdout
    entries = set(re.findall(r" T (\w+)", symbols))
    if entries != wanted:
        sys.exit(f"entry points differ: {sorted(entries ^ wanted)[:10]}")
    # Each entry begins with a landing pad and ends with an indirect jump through x16 (what BTI allows after one).
    for name in ("MPI_Send", "PMPI_Send", "MPI_Init"):
        body = re.search(rf"<{name}>:\n((?:.*\n)*?)\n", code + "\n").group(1)
        if not re.search(r"bti\s+c", body) or not re.search(r"br\s+x16", body):
            sys.exit(f"{name} is not a trampoline:\n{body}")
    print(f"{len(entries)} entry points")


main()
