# SPDX-License-Identifier: Apache-2.0
"""A file that a command writes where the user says: there as a whole or not at all. Writes that file and a temporary one beside it."""

from __future__ import annotations

import contextlib
import errno
import os

from .job import Usage
from .text import clean

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def whole(path: str):
    """The file to write to. Somebody else's directory and a full disk are Usage; nothing is left of the attempt."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    try:
        with open(temporary, "x", encoding="utf-8", newline="", errors="replace") as file:
            yield file
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename in (None, temporary):
            raise Usage("%s cannot be written: %s; --output FILE puts it elsewhere" % (clean(path, 4096), error.strerror)) from None
        raise
