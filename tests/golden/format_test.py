#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every source is as .clang-format says, by clang-format 14: others lay out some lines otherwise.

  format_test.py ROOT [--update]

Ends with 77, skipped, where there is no clang-format 14.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

ENDINGS = (".h", ".cpp", ".c", ".inc", ".cu")


def formatter():
    for name in ("clang-format-14", "clang-format"):
        if shutil.which(name):
            said = subprocess.run([name, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
            if re.search(r"version 14\.", said):
                return name
    return None


def sources(root):
    for top in ("shim", "checksum", "detectors", "pipeline", "scripts", "tests"):
        for folder, folders, names in os.walk(os.path.join(root, top)):
            if "corpus" in folders:
                folders.remove("corpus")
            yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith(ENDINGS))


def main(root, update):
    program = formatter()
    if program is None:
        print("skipped: no clang-format 14 (scripts/install-dependencies test)")
        return 77
    files = list(sources(root))
    parts = [files[at::16] for at in range(16)]
    how = ["-i"] if update else ["--dry-run", "--Werror"]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(lambda part: subprocess.run([program, *how, *part], stderr=subprocess.PIPE, text=True, check=False), parts))
    wrong = sorted({line.split(":")[0] for run in done for line in run.stderr.splitlines() if "[-Wclang-format-violations]" in line})
    for path in wrong:
        print(f"not as .clang-format says: {os.path.relpath(path, root)} ({program} -i)")
    other = [run.stderr for run in done if run.returncode and "[-Wclang-format-violations]" not in run.stderr]
    print("".join(other), end="")
    print(f"{len(files)} files, {len(wrong)} laid out otherwise")
    return 1 if wrong or other else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), "--update" in sys.argv[2:]))
