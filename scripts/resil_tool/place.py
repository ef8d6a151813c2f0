# SPDX-License-Identifier: Apache-2.0
"""Where this tool and its library are: in the source tree with its build folder, or where `meson install` put them. Reads
file names and the version inside the library; changes nothing."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import sys

try:
    from . import installed  # made by Meson; the source tree has none
except ImportError:
    installed = None

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))  # of the source tree


def version() -> str:
    """The project's version: as installed, else from the build file beside the scripts. It is written down in one place."""
    if installed:
        return installed.VERSION
    try:
        with open(os.path.join(ROOT, "meson.build"), encoding="utf-8") as build:
            found = re.search(r"""\bversion\s*:\s*['"]([^'"]+)['"]""", build.read())
    except OSError:
        found = None
    return found.group(1) if found else "unknown"


def library() -> str | None:
    """libresil.so that belongs to this tool; None when it is not there. RESIL_TOOL_LIBRARY is for tests."""
    path = os.environ.get("RESIL_TOOL_LIBRARY") or (
        os.path.normpath(os.path.join(HERE, "..", installed.LIBRARY)) if installed
        else os.path.join(ROOT, "build", "libresil.so"))
    return os.path.abspath(path) if os.path.isfile(path) else None


def documents() -> str:
    """Folder of README.md and docs/."""
    return os.path.normpath(os.path.join(HERE, "..", installed.DOCS)) if installed else ROOT


def library_version(path: str) -> str:
    """What `strings FILE | grep '^resil '` prints; "" when it says nothing."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = re.search(rb"\0resil (\d[\w.+~-]{0,31})\0", data)
            return found.group(1).decode("ascii", "replace") if found else ""
    except (OSError, ValueError):
        return ""


def command() -> str:
    """How the user called this tool: by its name alone where that finds it."""
    called = sys.argv[0] if os.path.basename(sys.argv[0]) == "resil" else "scripts/resil"
    found = shutil.which("resil")
    if found and os.path.isabs(called) and os.path.realpath(found) == os.path.realpath(called):
        return "resil"
    return called
