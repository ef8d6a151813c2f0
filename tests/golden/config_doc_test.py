#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/CONFIGURATION.md must equal what resil-config-doc prints.

Usage: config_doc_test.py PROGRAM PAGE [--update]
"""
import difflib
import pathlib
import subprocess
import sys


def main():
    program, page = sys.argv[1], pathlib.Path(sys.argv[2])
    wanted = subprocess.run([program], stdout=subprocess.PIPE, check=True, timeout=600).stdout.decode()
    if "--update" in sys.argv[3:]:
        page.write_text(wanted)
        return 0
    found = page.read_text() if page.exists() else ""
    if found == wanted and "| `RESIL_MODE` |" in wanted:
        return 0
    sys.stdout.writelines(difflib.unified_diff(found.splitlines(True), wanted.splitlines(True), str(page), program))
    print(f"{page} is not what the table says; write it with: {program} > {page}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
