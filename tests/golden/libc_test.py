#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which libc the library wants: libc.so.6 and nothing else, and of it no version newer than glibc 2.17 (RHEL 7 and later,
SLES 12 and later, Debian 8 and later). What an old libc has in libpthread or libdl is weak: it is missing in processes
without MPI, and the loader must not mind.

The table itself is held against the libc of this machine, which has all old versions still.

Usage: libc_test.py LIBRARY SYMBOLS"""
import ctypes
import os
import platform
import re
import subprocess
import sys

NEWEST = (2, 17)
library, table = sys.argv[1:]


def read(*options):
    return subprocess.run(["readelf", "--wide", *options, library], stdout=subprocess.PIPE, check=True, timeout=600).stdout.decode()


needed = re.findall(r"\(NEEDED\).*\[(.*)\]", read("--dynamic"))
symbols = re.findall(r" (\w+) +\w+ +UND +(\w+)(?:@(\w+_[\d.]+|\w+))?", read("--dyn-syms"))
wanted = {(name, version): binding for binding, name, version in symbols if version}
with open(table, encoding="ascii") as file:
    weak = set(re.findall(r"weak:(\w+)", file.read()))
problems = [] if needed == ["libc.so.6"] else [f"it needs {needed}"]
for (name, version), binding in sorted(wanted.items()):
    number = re.fullmatch(r"GLIBC_([\d.]+)", version)
    if not number or tuple(map(int, number.group(1).split("."))) > NEWEST:
        problems.append(f"{name}@{version} is newer than glibc {'.'.join(map(str, NEWEST))}")
    if name in weak and binding != "WEAK":
        problems.append(f"{name} is not weak: an old libc has it in another library")
if len(wanted) < 50 or not any(name in weak for name, _ in wanted):
    problems.append(f"only {len(wanted)} names were read")
libc = ctypes.CDLL("libc.so.6")
libc.dlvsym.restype = ctypes.c_void_p
with open(table, encoding="ascii") as file:
    rows = [line.split("#")[0].split() for line in file]
for version, name in [(row[0], word.split(":")[-1]) for row in rows for word in row[1:]]:
    if version != "private" and platform.machine() == "x86_64" and not libc.dlvsym(None, name.encode(), f"GLIBC_{version}".encode()):
        problems.append(f"{os.path.basename(table)}: no libc has {name} in version {version}")
print("\n".join(problems) or f"{len(wanted)} names of libc, none newer than glibc 2.17")
sys.exit(1 if problems else 0)
