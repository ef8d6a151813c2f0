#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HPC Challenge (C): the widest mix of calls; it checks its own results. Its packaged input, with a small matrix."""
import os
import re

from app import expect_calls, jobs, main, transparent

INPUT = "/usr/share/doc/hpcc/examples/_hpccinf.txt"


def prepared():
    """A directory with the packaged input: N 128, NB 32, a grid of 1 x 2."""
    directory = jobs.scratch()
    with open(INPUT, encoding="ascii") as file:
        lines = file.read().splitlines()
    lines[5], lines[7], lines[10], lines[11] = "128 Ns", "32 NBs", "1 Ps", "2 Qs"
    with open(os.path.join(directory, "hpccinf.txt"), "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")
    return directory


def results(directory):
    """Verdicts, less times and rates; the random access part counts errors."""
    with open(os.path.join(directory, "hpccoutf.txt"), encoding="utf-8", errors="replace") as file:
        text = file.read()
    assert "Success=1" in text, text[-2000:]
    verdicts = re.findall(r"Found \d+ errors in \d+|\d+ tests completed and \w+ residual|"
                          r"\.{6} (?:PASSED|FAILED)|HPL_N=.*|PTRANS_residual=.*|"
                          r"MPIRandomAccess_ErrorsCount=.*|MPIFFT_N=.*", text)
    assert "...... PASSED" in verdicts and "...... FAILED" not in verdicts, verdicts
    return verdicts


def check():
    plain_directory = prepared()
    plain = jobs.run("openmpi", 2, ["hpcc"], preload=False, cwd=plain_directory)
    assert plain.returncode == 0, plain.text()
    one = results(plain_directory)
    for mode in ("watch", "checksum"):
        directory = prepared()
        preloaded = jobs.run("openmpi", 2, ["hpcc"], env=transparent.MODES[mode], cwd=directory)
        transparent.same_end(plain, preloaded)
        two = results(directory)
        assert one == two, f"{one}\n{two}"
        found = transparent.clean_report(preloaded, 2)
        expect_calls(found, Isend=100, Irecv=100, Alltoall=1, Iprobe=1, Bcast=10)
    return transparent.covered(preloaded, found, 99, ("reduction", "user_operator"))


if __name__ == "__main__":
    jobs.require("hpcc", "mpirun.openmpi", INPUT)
    main([("hpcc", check)])
