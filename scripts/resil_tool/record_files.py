# SPDX-License-Identifier: Apache-2.0
"""The ranks of a recording: which files a directory holds, opened one at a time. Lists directories, reads
recording.json."""

from __future__ import annotations

import itertools
import json
import os
import re

from . import values
from .job import Usage
from .recording import Recording, RecordingError

MOST_MISSING = 1 << 16
_RANK = re.compile(r"rank-(\d{5,9})\.rec$")
_WORLD = re.compile(r"world-(\d{1,9})$")


def rank_files(directory: str) -> dict[tuple[int, int], str]:
    """(world, rank): path. Usage when there is no recording."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise Usage("%s: %s" % (directory, error.strerror)) from None
    found = {}
    for name in names:
        if _RANK.match(name):
            found[0, int(_RANK.match(name).group(1))] = os.path.join(directory, name)
        elif _WORLD.match(name) and os.path.isdir(os.path.join(directory, name)):
            for inner in os.listdir(os.path.join(directory, name)):
                if _RANK.match(inner):
                    found[int(_WORLD.match(name).group(1)), int(_RANK.match(inner).group(1))] = \
                        os.path.join(directory, name, inner)
    if not found:
        raise Usage("%s holds no recording%s" % (directory, " of any rank" if "recording.json" in names else ""))
    return dict(sorted(found.items()))


def world_size(directory: str) -> int:
    """Of the first world, from recording.json; 0: not known."""
    try:
        data = json.loads(values.read_bytes(os.path.join(directory, "recording.json"), 1 << 20))
    except (values.Invalid, OSError, ValueError, RecursionError):
        return 0
    return values.integer(data.get("world_size"), 0, 2**31) if isinstance(data, dict) else 0


def missing_ranks(size: int, files: dict) -> list[int]:
    """Ranks of the first world without a file, the first MOST_MISSING of them: `size` is what a file says."""
    return list(itertools.islice((rank for rank in range(size) if (0, rank) not in files), MOST_MISSING))


def opened(path: str):
    """(recording, ""), or (None, why not)."""
    try:
        return Recording(path), ""
    except RecordingError as error:
        return None, str(error)
