# SPDX-License-Identifier: Apache-2.0
"""scripts/resil: reads what libresil.so leaves behind. Standard library only, Python 3.9 or newer."""

from __future__ import annotations

import os
import re

REPORT_SCHEMA = 1  # schema_version of rank-*.json, node-*.jsonl and hang-*.json that this tool understands


def version() -> str:
    """The project's version, from the build file beside the scripts: it is written down in one place only."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    try:
        with open(os.path.join(root, "meson.build"), encoding="utf-8") as build:
            found = re.search(r"""\bversion\s*:\s*['"]([^'"]+)['"]""", build.read())
    except OSError:
        found = None
    return found.group(1) if found else "unknown"
