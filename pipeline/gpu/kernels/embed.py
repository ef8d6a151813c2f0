#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a file of device code as the initialiser of an array: embed.py NAME COMPILER OUTPUT [IMAGE]; no IMAGE: empty."""

import struct
import sys


def main(name, compiler, output, image=None):
    data = b""
    if image:
        with open(image, "rb") as file:
            data = file.read()
    padded = data + b"\0" * (-len(data) % 8 or (0 if data else 8))
    words = ["0x%x" % word for (word,) in struct.iter_unpack("=Q", padded)]
    with open(output, "w", encoding="ascii") as file:
        file.write(f"alignas(4096) constexpr uint64_t {name}_words[] = {{\n")
        for first in range(0, len(words), 12):
            file.write(",".join(words[first:first + 12]) + ",\n")
        file.write(f"}};\nconstexpr size_t {name}_bytes = {len(data)};\n")
        file.write(f'constexpr const char* {name}_compiler = "{compiler if data else ""}";\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
