#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's launch lines do what it says, word for word as printed (Slurm's: slurm_test.py); and what the loader says where it
cannot load the library is what README says of it.

Usage: launch_lines_test.py MPI...
"""
import os
import re
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import launch_lines, mpi as jobs  # noqa: E402
from harness.main import run_checks  # noqa: E402

EM_AARCH64, ELFCLASS32 = 183, 1


def as_printed(word, mpi, ranks):
    place = launch_lines.place(mpi)
    for _ in range(3):  # MPICH 4.0.2 by itself may lose messages with more than two ranks, also those of its end
        result = jobs.start(["sh", "-c", launch_lines.line_for(word)], env=launch_lines.environment(place), cwd=place, timeout=60)
        if not (mpi == "mpich" and ranks > 2 and result.timed_out):
            break
        place = launch_lines.place(mpi)
    assert result.returncode == 0, result.text()
    launch_lines.check(place, ranks, result.stdout)


def elf_hash(name):
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ (value & 0xf0000000) >> 24) & 0x0fffffff
    return value


def another_machines(library):
    struct.pack_into("<H", library, 18, EM_AARCH64)


def another_class(library):
    library[4] = ELFCLASS32


def newer_libc(library):
    """As if built against a libc that this machine's is too old for: the newest version that it wants gets another name."""
    version = max(re.findall(rb"GLIBC_2\.[0-9.]+(?=\0)", bytes(library)), key=lambda name: [int(part) for part in name[6:].split(b".")])
    wanted = b"GLIBC_" + b"9" * (len(version) - 6)
    at = library.index(version + b"\0")
    library[at:at + len(version)] = wanted
    old, new = struct.pack("<I", elf_hash(version)), struct.pack("<I", elf_hash(wanted))
    assert library.count(old) == 1
    library[:] = library.replace(old, new)


def loader_says(change, words, status):
    """The program's end, the loader's words, and that README has them."""
    def check():
        path = os.path.join(jobs.scratch(), "libresil.so")
        if change is not None:
            with open(jobs.library(), "rb") as file:
                library = bytearray(file.read())
            change(library)
            with open(path, "wb") as file:
                file.write(library)
        result = jobs.start(["/bin/echo", "ran"], env={"LD_PRELOAD": path, "LC_ALL": "C"})
        assert result.returncode == status and result.stdout == (b"ran\n" if status == 0 else b""), result.text()
        assert all(word in result.stderr.decode() for word in words), result.text()
        assert all(word in launch_lines.readme() for word in words), f"README does not say {words}"
    return check


def main(*mpis):
    checks = [(f"{word}, as printed", lambda word=word, mpi=mpi, ranks=ranks: as_printed(word, mpi, ranks))
              for word, mpi, ranks in (("Open MPI", "openmpi", 4), ("MPICH", "mpich", 4), ("none", "openmpi", 1), ("none", "mpich", 1))
              if mpi in mpis]
    ignored = ("cannot open shared object file", "ignored")
    checks += [("the loader: no such file", loader_says(None, ignored, 0)),
               ("the loader: another architecture", loader_says(another_machines, ignored, 0)),
               ("the loader: a program of 32 bits", loader_says(another_class, ("wrong ELF class", "ignored"), 0)),
               ("the loader: too old a libc", loader_says(newer_libc, ("not found (required by",), 1))]
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
