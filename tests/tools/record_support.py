# SPDX-License-Identifier: Apache-2.0
"""Recordings for the tests of the tool, written by the library's own writer (record_sample.cpp)."""

import os
import shutil
import subprocess
import unittest

import support

SAMPLE = os.environ.get("RESIL_RECORD_SAMPLE") or os.path.join(support.ROOT, "build", "tests", "unit", "record_sample")

# A solver's steps on three ranks: neighbours exchange, everybody sums.
SOLVER = """
call s MPI_Irecv site=/opt/app+0x100 comm=1f peer=-1 tag=7 bytes=64 step=1 flags=4
call s MPI_Send site=/opt/app+0x200 comm=1f peer=1 tag=7 bytes=64 step=1 in=digest:{sent}
poll s MPI_Test site=/opt/app+0x300 step=1
poll s MPI_Test site=/opt/app+0x300 step=1
call s MPI_Test site=/opt/app+0x300 step=1
outcome s flag=1
complete s 1 digest:{received} source={source} tag=7
call s MPI_Allreduce site=/opt/app+0x400 comm=1f bytes=8 step=1 in=double:{part} out=double:{sum}
logged s 1 residual double:{residual}
call s MPI_Waitsome site=/opt/app+0x500 step=2
indices s 3 1 2
call s MPI_Allreduce site=/opt/app+0x400 comm=1f bytes=8 step=2 in=signed:ffffffffffffffff out=signed:2a
"""
USUAL = {"sent": "1111", "received": "2222", "source": 2, "part": "4008000000000000", "sum": "4022000000000000",
         "residual": "3f50624dd2f1a9fc"}


def run(script):
    """The writer's exit status; without finish or abort at the end of the script it leaves what a kill leaves."""
    done = subprocess.run([SAMPLE], input=script.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
                          check=False)
    if done.returncode:
        raise AssertionError(done.stdout.decode())


class Case(support.Case):
    @classmethod
    def setUpClass(cls):
        if not os.path.exists(SAMPLE):
            raise unittest.SkipTest("no %s: ninja -C build tests/unit/record_sample" % SAMPLE)

    def record(self, name, ranks, end="finish", body=SOLVER, launch=None):
        """A recording; `ranks`: for each rank what differs from USUAL, or its whole script."""
        place = os.path.join(self.top, name)
        shutil.rmtree(place, ignore_errors=True)
        for rank, changes in enumerate(ranks):
            text = changes if isinstance(changes, str) else body.format(**dict(USUAL, **changes))
            run("rank %s %d %d %s /opt/app 0\nstream s /opt/app+0x100\n%s\nflush\n%s\n"
                % (place, rank, len(ranks), launch or "launch-" + name, text, end))
        return place

    def file(self, place, rank=0):
        return os.path.join(place, "rank-%05d.rec" % rank)
