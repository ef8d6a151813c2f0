#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The aarch64 trampolines assemble, and there is one entry point for each exported MPI function.

    cross_assemble.py TRAMPOLINES_S PARTS_S GENERATED_DIR

Exit status 77 (skipped) without the cross assembler. Nothing is run: that takes an aarch64 machine.
"""
import re
import shutil
import subprocess
import sys
import tempfile

PREFIX = "aarch64-linux-gnu-"


def stubs_of_parts(source, generated):
    """Two stubs for each function with a communicator, and one more for those that are looked at first."""
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run([PREFIX + "gcc", "-c", "-I", generated, source, "-o", folder + "/p.o"], text=True,
                                capture_output=True, check=False)
        if result.returncode != 0:
            sys.exit("the stubs of parts do not assemble:\n" + result.stderr[:2000])
        code = subprocess.run([PREFIX + "objdump", "-d", folder + "/p.o"], text=True, capture_output=True, check=True).stdout
    rows = re.findall(r"PART\(\d+, (\d), \d+, \d+, (\d)\)", open(generated + "/parts.inc", encoding="utf-8").read())
    stubs = sum(2 * (count != "0") + (prepared == "1") for count, prepared in rows)
    if stubs < 600 or len(re.findall(r"bti\s+c", code)) != stubs:
        sys.exit(f"{len(re.findall('bti', code))} landing pads, {stubs} stubs of parts")


def main():
    source, parts, generated = sys.argv[1:4]
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
    stubs_of_parts(parts, generated)
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
