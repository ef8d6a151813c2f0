#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Launch lines of README and docs: LD_PRELOAD goes to the ranks through the launcher's own option. In front of the
launcher it reaches mpirun itself and ranks of one node at most, and a bare file name is found nowhere: the loader says
"ignored", and the job runs unwatched. The page on installation may say what works after it (test `install` runs that line).

Usage: launch_lines_test.py ROOT"""
import glob
import os
import re
import sys

LAUNCHER = r"\b(mpirun|mpiexec|srun|prterun|jsrun|flux)\b"
INSTALLED = "LD_PRELOAD=libresil.so mpirun -np 4 ./app"
root = sys.argv[1]
pages = [os.path.join(root, "README.md"), *sorted(glob.glob(os.path.join(root, "docs", "**", "*.md"), recursive=True))]
wrong, launches = [], 0
for page in pages:
    with open(page, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            place = f"{os.path.relpath(page, root)}:{number}: {line.strip()}"
            for part in re.findall(r"`[^`]+`", line) if "`" in line else [line]:
                preload = re.search(r"LD_PRELOAD[= ](\S+)", part)
                if not preload or "libresil.so" not in preload.group(1):
                    continue
                launches += 1
                if part.strip() == INSTALLED and os.path.basename(page) == "INSTALL.md":
                    continue
                launcher = re.search(LAUNCHER, part)
                if launcher and preload.start() < launcher.start():
                    wrong.append(f"{place}\n    preloads the launcher instead of the ranks")
                if "/" not in preload.group(1):
                    wrong.append(f"{place}\n    has no path: the loader does not find the library")
print("\n".join(wrong) or f"{launches} launch lines on {len(pages)} pages")
sys.exit(1 if wrong or launches < 10 else 0)
