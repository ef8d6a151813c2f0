#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes what libresil.so is linked against in place of the system's libc: an empty libc.so.6 that has the names of
symbols.txt in their old versions and no others.

Usage: stub.py SYMBOLS MACHINE OUTPUT COMPILER...     MACHINE: x86_64 or aarch64"""
import subprocess
import sys
import tempfile

FIRST = {"x86_64": (2, 2, 5), "aarch64": (2, 17)}


def read(path):
    """[(version, kind, name)]; kind is "", "data", "weak" or "private", which has no version."""
    found = []
    with open(path, encoding="ascii") as file:
        for line in file:
            words = line.split("#")[0].split()
            for word in words[1:]:
                kind, _, name = word.rpartition(":")
                version = () if kind == "private" else tuple(map(int, words[0].split(".")))
                found.append((version, kind, name))
    names = [name for _, _, name in found]
    assert len(set(names)) == len(names), "named twice: " + " ".join(sorted({n for n in names if names.count(n) > 1}))
    return found


def stub(symbols, machine, output, compiler):
    code, nodes = [".text"], {}
    for version, kind, name in symbols:
        if version:
            nodes.setdefault(max(version, FIRST[machine]), []).append(name)
        code += [f".globl {name}", f".type {name}, %{'object' if kind == 'data' else 'function'}"]
        code += [".data", f".size {name}, 8", f"{name}: .quad 0", ".text"] if kind == "data" else [f"{name}: .byte 0"]
    code.append('.section .note.GNU-stack,"",%progbits')
    # A node of its own for each version, none inside another: as in glibc, as far as the linker looks.
    script = "".join("GLIBC_%s { %s; };\n" % (".".join(map(str, version)), "; ".join(names))
                     for version, names in sorted(nodes.items()))
    with tempfile.NamedTemporaryFile("w", suffix=".s") as assembly, tempfile.NamedTemporaryFile("w") as versions:
        assembly.write("\n".join(code) + "\n")
        versions.write(script)
        assembly.flush()
        versions.flush()
        subprocess.run([*compiler, "-nostdlib", "-shared", "-Wl,-soname,libc.so.6", f"-Wl,--version-script,{versions.name}",
                        "-o", output, assembly.name], check=True)


if __name__ == "__main__":
    stub(read(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
