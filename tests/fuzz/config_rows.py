#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The modules' configuration rows as they stand in their sources, for the fuzzer of the environment: it links none of the
modules. Usage: config_rows.py ROOT OUTPUT"""
import glob
import os
import re
import sys

BEGIN = "constexpr ConfigEntry kConfig[] = {\n"


def rows(root):
    """Text of all rows, in the order of the files' names."""
    text = ""
    for folder in ("checksum", "detectors", "pipeline"):
        for path in sorted(glob.glob(os.path.join(root, folder, "**", "*.cpp"), recursive=True)):
            with open(path, encoding="utf-8") as file:
                found = re.search(re.escape(BEGIN) + r"(.*?)^};$", file.read(), re.M | re.S)
            if found:
                text += f"// {os.path.relpath(path, root)}\n{found[1]}"
    return text


def write(root, output):
    text = rows(root)
    assert text.count("{\"RESIL_") >= 25, "where have all the rows gone?"
    old = ""
    if os.path.exists(output):
        with open(output, encoding="utf-8") as file:
            old = file.read()
    if text != old:
        with open(output, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    write(*sys.argv[1:])
