# SPDX-License-Identifier: Apache-2.0
"""Jobs on the stand-in GPU (tests/fakegpu/fakegpu.h): what their ranks get. See docs/STAGING.md.

RESIL_TEST_GPU=real (scripts/bench gpu) leaves the ranks the machine's own driver: settings that are speeds are dropped, a
check that wants others (faults, two devices, little memory) ends as left out."""
import os
import re

from . import mpi
from .main import LeftOut

SPEEDS = ("down", "up", "peer", "digest", "latency", "overdue", "log")


def real():
    return os.environ.get("RESIL_TEST_GPU") == "real"


def folder():
    """Where the stand-in's libraries are."""
    return os.path.join(os.path.dirname(mpi.library()), "tests", "fakegpu")


def environment(settings="", extra=None):
    """For ranks that shall find the stand-in as their driver; `settings` is FAKEGPU."""
    if real():
        wanted = [setting for setting in settings.split(",") if setting and setting.split("=")[0] not in SPEEDS]
        if wanted:
            raise LeftOut("needs the stand-in: " + ",".join(wanted))
        return dict(extra or {})
    return {"LD_LIBRARY_PATH": folder(), "FAKEGPU": settings, **(extra or {})}


def devicify(which):
    """The tool that gives a program of this MPI device buffers, for tools_before of mpi.run()."""
    return os.path.join(folder(), f"libdevicify.{which}.so")


class Devicified:
    """A job whose buffers are on devices: its Result, and how many buffers were moved there."""

    def __init__(self, result, log):
        self.result, self.buffers, self.bytes, self.left = result, 0, 0, 0
        for name in os.listdir(log):
            with open(os.path.join(log, name), encoding="utf-8") as file:
                for words in re.findall(r"buffers=(\d+) bytes=(\d+) left=(\d+)", file.read()):
                    self.buffers, self.bytes, self.left = (
                        old + int(new) for old, new in zip((self.buffers, self.bytes, self.left), words))


def run(which, ranks, command, settings="", how="", env=None, **more):
    """mpi.run() with device buffers; `how` is FAKEGPU_DEVICIFY (tests/fakegpu/devicify.cpp). A Devicified."""
    log = mpi.scratch()
    ranks_get = environment(settings, {"FAKEGPU_DEVICIFY_LOG": os.path.join(log, "%p"), **(env or {})})
    if how:
        ranks_get["FAKEGPU_DEVICIFY"] = how
    return Devicified(mpi.run(which, ranks, command, env=ranks_get, tools_before=[devicify(which)], **more), log)
