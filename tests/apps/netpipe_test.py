#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NetPIPE (C): ping-pong over all sizes up to 4 KiB and some around each power of two, on both MPIs, capped."""
import os

from app import expect_calls, jobs, main, transparent

PROGRAMS = {"openmpi": "NPopenmpi", "mpich": "NPmpich2"}


def check(mpi):
    table = os.path.join(jobs.scratch(), "np.out")
    sizes = []

    def note_sizes():
        """From the table that the program leaves; how fast they were differs in every run."""
        with open(table, encoding="ascii") as file:
            sizes.append([line.split()[0] for line in file])
        os.unlink(table)
    command = [PROGRAMS[mpi], "-u", "4096", "-n", "300", "-o", table]
    plain = jobs.run(mpi, 2, command, preload=False)
    note_sizes()
    for mode in ("watch", "checksum", "strict") if mpi == "openmpi" else ("watch", "checksum"):
        preloaded = jobs.run(mpi, 2, command, env=transparent.MODES[mode])
        note_sizes()
        # Each rank prints its host, whoever comes first.
        transparent.same_end(plain, preloaded, keep=lambda text: sorted(text.splitlines()))
        assert sizes[0] == sizes[-1] and len(sizes[0]) > 50, sizes
        # 300 times there and back, for each size and each of its repetitions
        found = transparent.clean_report(preloaded, 2)
        expect_calls(found, Send=30000, Recv=30000)
        if mode in transparent.CHECKING:
            print(f"        {mode}: {transparent.covered(preloaded, found)}")
    return ""


if __name__ == "__main__":
    checks = [(f"netpipe ({mpi})", lambda mpi=mpi: check(mpi)) for mpi in jobs.MPIS if jobs.installed(PROGRAMS[mpi])]
    if not checks:
        jobs.skip("NetPIPE is not installed")
    main(checks)
