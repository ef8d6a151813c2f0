#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/pictures makes all pictures of the documentation anew: as wide and as high as those that are there, and not empty. Skipped (77)
where it is. Suite "browser"."""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main():
    with tempfile.TemporaryDirectory(prefix="resil-test-") as folder:
        done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "pictures"), "--output", folder], check=False)
        if done.returncode:
            return done.returncode
        for name in os.listdir(os.path.join(ROOT, "docs", "pictures")):
            old, new = (open(os.path.join(place, name), "rb").read() for place in (os.path.join(ROOT, "docs", "pictures"), folder))
            if name.endswith(".png"):
                assert old[16:24] == new[16:24], f"{name} has another size"
                assert len(new) > len(old) // 2, f"{name}: {len(new)} bytes instead of {len(old)}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
