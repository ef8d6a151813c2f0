#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library's sources pass the checks of .clang-tidy, by clang-tidy 14.

  tidy_test.py ROOT BUILD [FOLDER OR FILE...]

BUILD has the generated headers. Some minutes for the whole library (`scripts/test --all`); ends with 77, skipped, where there is
no clang-tidy 14.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

TOPS = ("shim", "checksum", "detectors", "pipeline")
# Another language, or made for another compiler's extensions.
NOT_READ = ("shim/call/trampolines.S", "pipeline/gpu/kernels/")


def checker():
    for name in ("clang-tidy-14", "clang-tidy"):
        if shutil.which(name):
            said = subprocess.run([name, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
            if re.search(r"version 14\.", said):
                return name
    return None


def sources(root, chosen):
    for top in chosen or TOPS:
        if os.path.isfile(os.path.join(root, top)):
            yield top
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), root)
                if name.endswith(".cpp") and not path.startswith(NOT_READ):
                    yield path


def main(root, build, *chosen):
    program = checker()
    if program is None:
        print("skipped: no clang-tidy 14 (scripts/install-dependencies test)")
        return 77
    arguments = ["-std=c++20", "-fno-exceptions", "-fno-rtti", "-I.", "-I" + os.path.abspath(build), "-DRESIL_VERSION=\"tidy\"", "-DRESIL_ABI=mpich"]

    def check(path):
        return subprocess.run([program, "--quiet", path, "--", *arguments], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)

    files = list(sources(root, chosen))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(check, files))
    said = sorted({line.replace(os.path.abspath(root) + "/", "") for run in done for line in run.stdout.splitlines() if " error: " in line})
    print("\n".join(said))
    silent = [path for path, run in zip(files, done) if run.returncode and " error: " not in run.stdout]
    for path in silent:
        print(f"{path}: {program} failed")
    print(f"{len(files)} files, {len(said)} places")
    return 1 if said or silent else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
