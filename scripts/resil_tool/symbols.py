# SPDX-License-Identifier: Apache-2.0
"""Function and source line of code addresses, by addr2line when it is installed. Runs addr2line; silent without it.

Never wrong rather than complete: an object file that changed after the job began is not asked.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import time

from .text import clean

SECONDS = 15.0       # for all object files of one report together
MAX_ADDRESSES = 256  # of one object file

# "lmp+0x1234 (main+0x56)", "/usr/bin/lmp+0x1234": how the dumps write a call site
SITE = re.compile(r"(?P<object>[^\s()+]+)\+0x(?P<offset>[0-9a-f]{1,16})(?P<symbol> \([^()]*\+0x[0-9a-f]+\))?")
_OBJECT_LINE = re.compile(r"  (\S+) at 0x[0-9a-f]+: (/.*)$")


def lookup(sites, not_after: float = 0.0) -> dict[tuple[str, int], str]:
    """"function at file:line" for each (object file, return address in it) that addr2line knows.
    not_after: seconds since the epoch; an object file changed later is skipped. 0: no such test."""
    tool = shutil.which("addr2line")
    by_object: dict[str, list[int]] = {}
    for path, address in sites:
        if address > 0 and address not in by_object.setdefault(path, []) \
                and len(by_object[path]) < MAX_ADDRESSES:
            by_object[path].append(address)
    known: dict[tuple[str, int], str] = {}
    deadline = time.monotonic() + SECONDS
    for path, addresses in by_object.items():
        if tool and _usable(path, not_after) and time.monotonic() < deadline:
            known.update(_ask(tool, path, addresses, deadline - time.monotonic()))
    return known


def _usable(path: str, not_after: float) -> bool:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return path.startswith("/") and stat.S_ISREG(status.st_mode) and (not not_after or status.st_mtime <= not_after)


def _ask(tool: str, path: str, addresses: list[int], seconds: float) -> dict[tuple[str, int], str]:
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("DEBUGINFOD_URLS", "LD_PRELOAD")}  # no network, no preloading of this helper
    try:
        # A return address may be the first of the next line or function: ask for the call before it.
        done = subprocess.run([tool, "-C", "-f", "-e", path] + ["%#x" % (address - 1) for address in addresses],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=seconds, env=environment, check=False)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = done.stdout.decode("utf-8", "replace").split("\n")
    known = {}
    for i, address in enumerate(addresses):
        if 2 * i + 1 >= len(lines):
            break
        function, line = clean(lines[2 * i], 80), re.sub(r" \(discriminator \d+\)$", "", clean(lines[2 * i + 1], 400))
        place = os.path.basename(line) if not line.startswith("?") and not re.search(r":[0?]*$", line) else ""
        if function and function != "??":
            known[path, address] = "%s at %s" % (function, place) if place else function
        elif place:
            known[path, address] = place
    return known


def site_text(site: tuple[str, int] | None, known: dict[tuple[str, int], str]) -> str:
    """"solve at step.cpp:88", else "app+0x1234", else ""."""
    if not site:
        return ""
    return known.get(site) or "%s+%#x" % (os.path.basename(site[0]), site[1])


def objects_of_dump(text: str) -> dict[str, str]:
    """Short name: path, from the list of object files that a dump ends with; a name that is not unique is left out."""
    objects: dict[str, str] = {}
    for line in text.split("\n"):
        found = _OBJECT_LINE.match(line)
        if found:
            objects[found.group(1)] = "" if objects.get(found.group(1), found.group(2)) != found.group(2) \
                else found.group(2)
    return {name: path for name, path in objects.items() if path}


def sites_in(sentence: str, objects: dict[str, str]) -> list[tuple[str, int]]:
    found = []
    for match in SITE.finditer(sentence):
        path = match.group("object") if match.group("object").startswith("/") else objects.get(match.group("object"))
        if path:
            found.append((path, int(match.group("offset"), 16)))
    return found


def resolve_sentence(sentence: str, objects: dict[str, str], known: dict[tuple[str, int], str]) -> str:
    """The sentence with every known "object+0xoffset" written as "function at file:line"."""
    def replace(match):
        path = match.group("object") if match.group("object").startswith("/") else objects.get(match.group("object"))
        return known.get((path, int(match.group("offset"), 16)), match.group(0)) if path else match.group(0)
    return SITE.sub(replace, sentence)
