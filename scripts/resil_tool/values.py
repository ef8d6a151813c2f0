# SPDX-License-Identifier: Apache-2.0
"""Values and files that nobody vouches for: each function returns something of the type it promises or raises Invalid.
Opens only the files it is told to."""

from __future__ import annotations

import errno
import json
import math
import os
import stat

from . import REPORT_SCHEMA
from .text import clean

MAX_FILE = 64 << 20      # bytes of one JSON file; a node's JSON Lines file may be larger, its lines may not
MAX_LIST = 10000         # findings, notes and peers taken from one file
BIG = 2**63
MOST_SECONDS = 4e9       # since 1970, and of a duration: more is damage


class Invalid(Exception):
    """A file that is not what its name says."""


def integer(value, low: int = 0, high: int = BIG, default=0):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (
            isinstance(value, float) and not math.isfinite(value)):
        return default
    return int(value) if low <= value <= high else default


def number(value, default=0.0):
    """A finite, non-negative number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return default
    try:
        value = float(value)
    except OverflowError:
        return default
    return value if 0 <= value < 1e300 else default


def moment(value) -> float:
    """Seconds since 1970; 0 for what is no time of a job (or of a calendar)."""
    value = number(value)
    return value if value < MOST_SECONDS else 0.0


def duration(value, default=0.0):
    """Seconds that something took."""
    value = number(value, None)
    return value if value is not None and value < MOST_SECONDS else default


def text(value, limit: int = 400) -> str:
    return clean(value, limit) if isinstance(value, str) else ""


def items(value) -> list:
    return value[:MAX_LIST] if isinstance(value, list) else []


def members(value) -> list:
    return list(value.items())[:MAX_LIST] if isinstance(value, dict) else []


def rank_list(value) -> list[int]:
    return [r for r in (integer(v, 0, 2**31, None) for v in items(value)) if r is not None]


def read_bytes(path: str, limit: int = MAX_FILE, owner: int | None = None) -> bytes:
    """A regular file's bytes; never through a link, never waits on a pipe or device. `owner`: user id that the file must
    belong to, unless it belongs to the caller or to root. Raises Invalid."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    except OSError as error:
        raise Invalid("a link: not followed" if error.errno == errno.ELOOP
                      else "cannot be opened: %s" % error.strerror) from None
    try:
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Invalid("not a regular file")
            if owner is not None and status.st_uid not in (owner, os.geteuid(), 0):
                raise Invalid("belongs to user %d, the directory to user %d: not believed" % (status.st_uid, owner))
            # read(n) allocates n bytes at once; a file that grows meanwhile is read up to the size seen here.
            data = file.read(min(limit, status.st_size) + 1)
    except OSError as error:
        raise Invalid("cannot be read: %s" % error.strerror) from None
    if len(data) > limit:
        raise Invalid("larger than %d MiB" % (limit >> 20))
    return data


def parse_object(data: bytes) -> dict:
    if not data.strip(b"\0 \t\r\n"):
        raise Invalid("empty" if not data.strip() else "zeroes")
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except RecursionError:
        raise Invalid("nested too deeply") from None
    except ValueError as error:
        begun = data.lstrip()[:1] == b"{"
        cut = begun and (data.rstrip()[-1:] != b"}" or getattr(error, "pos", 0) >= len(getattr(error, "doc", "x ")) - 1)
        raise Invalid("truncated" if cut else "not valid JSON: %s" % clean(error, 80)) from None
    if not isinstance(value, dict):
        raise Invalid("not a report: no JSON object")
    schema = value.get("schema_version")
    if isinstance(schema, bool) or not isinstance(schema, (int, float)):
        raise Invalid("not a report of resil: no schema_version")
    if schema != REPORT_SCHEMA:
        raise Invalid("schema_version %s, this tool reads %d" % (clean(schema, 20), REPORT_SCHEMA))
    return value
