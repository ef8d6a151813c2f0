#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Flattened datatypes against the MPI library: type_digest with a few fixed seeds, one rank without a launcher.

Usage: type_digest_test.py PROGRAM
"""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs  # noqa: E402

program = sys.argv[1]
for seed in ("1", "2", "3"):
    environment = dict(os.environ, RESIL_DIR=jobs.scratch(), RESIL_LOG="quiet")
    result = subprocess.run([program, "700", seed], env=environment, text=True, capture_output=True,
                            timeout=600, check=False)
    print(result.stdout, end="")
    if result.returncode != 0:
        sys.exit(f"seed {seed}: status {result.returncode}\n{result.stderr[-3000:]}")
