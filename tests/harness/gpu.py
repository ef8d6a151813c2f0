# SPDX-License-Identifier: Apache-2.0
"""Jobs on the stand-in GPU (tests/fakegpu): what their environment needs."""
import os

from . import mpi


def folder():
    """Where the stand-in's libraries are."""
    return os.path.join(os.path.dirname(mpi.library()), "tests", "fakegpu")


def environment(settings="", extra=None):
    """For ranks that shall find the stand-in as their driver; `settings` is FAKEGPU."""
    return {"LD_LIBRARY_PATH": folder(), "FAKEGPU": settings, **(extra or {})}
