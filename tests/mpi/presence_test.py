#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The presence exchange on a real MPI: who sees whom, under every launcher arrangement that matters.

Usage: presence_test.py PROBE openmpi|mpich [--repeat N]
PROBE is presence_probe.cpp built for that MPI:
mpicxx.MPI -std=c++20 -rdynamic -I. -Ibuild -o PROBE tests/mpi/presence_probe.cpp \\
  shim/presence/{compare,files,identity,pmi1,pmix,presence,stop}.cpp shim/config/config_parse.cpp shim/call/next.cpp \\
  shim/report/own_files.cpp
(-rdynamic: PMIx_Commit must be found by the MPI library). Every run has a time limit; a hang is a failure.
"""
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

PROBE, MPI, REPEAT = "", "", 1
LIMIT = 60
VERSION = 0  # of Open MPI
LAUNCHER = {"openmpi": ["mpirun.openmpi", "--oversubscribe"], "mpich": ["mpirun.mpich"]}


def launch(command, **extra):
    """Runs in a process group of its own, so that nothing survives a hang."""
    environment = {name: value for name, value in os.environ.items()
                   if not re.match(r"(OMPI_(COMM|MCA_(orte|ess))|PMIX_|PMI_|SLURM_|MPI_LOCAL|RESIL_)", name)}
    environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **extra)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
                               start_new_session=True, text=True)
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"hangs: {' '.join(command)}\n{out}\n{err}") from None
    return process.returncode, err


class Presence(unittest.TestCase):
    def setUp(self):
        self.carrier = "PMIx" if MPI == "openmpi" else "PMI-1"
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def launch(self, command, **extra):
        """Status, standard error and the objects that the ranks wrote."""
        output = os.path.join(self.directory.name, "output")
        if os.path.exists(output):
            os.unlink(output)
        status, err = launch(command, PROBE_OUTPUT=output, **extra)
        ranks = []
        if os.path.exists(output):
            with open(output, encoding="ascii") as lines:
                ranks = [json.loads(line) for line in lines]
        return status, err, sorted(ranks, key=lambda rank: (rank["world"], rank["rank"]))

    def mpirun(self, *parts, options=(), **extra):
        """Each part is (ranks, arguments...)."""
        command = LAUNCHER[MPI] + list(options)
        if MPI == "openmpi" and len(parts) > 1:  # one application: mpirun 5.0.7 crashes with two
            command += ["-n", str(sum(part[0] for part in parts)), self.chooser(parts)]
        else:
            for index, part in enumerate(parts):
                command += [":"] if index else []
                command += ["-n", str(part[0]), PROBE, *part[1:]]
        status, err, ranks = self.launch(command, **extra)
        self.assertEqual(status, 0, err)
        return ranks

    def chooser(self, parts):
        """A script that runs the probe with its part's arguments."""
        path = os.path.join(self.directory.name, "chooser")
        with open(path, "w", encoding="ascii") as script:
            script.write("#!/bin/sh\n")
            first = 0
            for ranks, *arguments in parts:
                words = " ".join(shlex.quote(word) for word in (PROBE, *arguments))
                script.write(f"[ $OMPI_COMM_WORLD_RANK -ge {first + ranks} ] || exec {words}\n")
                first += ranks
        os.chmod(path, 0o755)
        return path

    def check_all_present(self, ranks, size, carrier):
        self.assertEqual(len(ranks), size)
        for number, rank in enumerate(ranks):
            self.assertEqual((rank["rank"], rank["size"]), (number, size))
            self.assertEqual((rank["identity_rank"], rank["identity_size"]), (number, size))
            self.assertEqual((rank["carrier"], rank["published"], rank["missing"]), (carrier, 1, 0))
            self.assertEqual((rank["synchronised"], rank["equal"], rank["agreed"]), (1, 1, 1))
        self.assertEqual(len({rank["directory"] for rank in ranks}), 1)

    def test_all_present(self):
        for size in (1, 2, 4, 8) if MPI == "openmpi" else (1, 2):
            for _ in range(REPEAT if size < 8 else 1):
                self.check_all_present(self.mpirun((size,)), size, self.carrier)

    def test_late_rank_is_seen(self):
        """The MPI library waits for every rank in MPI_Init, so a rank that comes late is not taken for missing."""
        self.check_all_present(self.mpirun((2, "--late")), 2, self.carrier)
        self.check_all_present(self.mpirun((2, "--late", "--files", "--directory", self.directory.name)), 2, "files")

    def test_some_ranks_silent(self):
        parts = ((2,), (2, "--silent")) if MPI == "openmpi" else ((1,), (1, "--silent"))
        half = parts[0][0]
        names = "2,3" if half == 2 else "1"
        for _ in range(REPEAT):
            ranks = self.mpirun(*parts)
            for rank in ranks[:half]:
                self.assertEqual((rank["missing"], rank["missing_ranks"]), (half, names))
                self.assertIn("LD_PRELOAD", rank["advice"])
            for rank in ranks[half:]:
                self.assertEqual(rank["missing"], 2 * half)

    def test_different_modes_and_versions(self):
        parts = ((3,), (1, "--modes", "off")) if MPI == "openmpi" else ((1,), (1, "--modes", "off"))
        for rank in self.mpirun(*parts):
            self.assertEqual((rank["missing"], rank["equal"]), (0, 0))
            self.assertIn(f"rank {parts[0][0]} has resil 0.1.0, RESIL_MODE=off; rank", rank["difference"])
        for rank in self.mpirun((1,), (1, "--version", "0.2.0", "--no-files")):
            self.assertIn("rank 1 has resil 0.2.0", rank["difference"])
            self.assertEqual(rank["without_files"], "1")

    def test_files(self):
        size = 4 if MPI == "openmpi" else 2
        folder = os.path.join(self.directory.name, "a", "b")
        for _ in range(REPEAT):
            self.check_all_present(self.mpirun((size, "--files", "--directory", folder)), size, "files")
            self.assertEqual(os.listdir(folder), [])
        ranks = self.mpirun((1, "--files", "--directory", folder), (1, "--silent"))
        self.assertEqual([rank["missing_ranks"] for rank in ranks], ["1", "0,1"])

    def test_files_of_another_job_do_not_count(self):
        folder = os.path.join(self.directory.name, ".present")
        os.mkdir(folder)
        for rank in range(2):
            with open(os.path.join(folder, f".another.rank-{rank}"), "w", encoding="ascii") as stale:
                stale.write("1|0.1.0|watch|42|0|1|host")
        ranks = self.mpirun((1, "--files", "--directory", self.directory.name), (1, "--silent"))
        self.assertEqual(ranks[0]["missing"], 1)

    def test_files_impossible(self):
        blocked = os.path.join(self.directory.name, "file")
        with open(blocked, "w", encoding="ascii"):
            pass
        for rank in self.mpirun((2, "--files", "--directory", blocked)):
            self.assertEqual((rank["published"], rank["carrier"], rank["missing"]), (0, "none", 2))

    def test_singleton(self):
        for _ in range(REPEAT):
            status, err, (rank,) = self.launch([PROBE])
            self.assertEqual(status, 0, err)
            self.assertEqual((rank["singleton"], rank["missing"], rank["size"]), (1, 0, 1))
            self.assertEqual(rank["launch"], str(rank["pid"]))

    def test_nothing_stays_behind_in_the_process(self):
        """Threads, descriptors and signal handlers after MPI_Init are those of a run without the exchange."""
        def seen(*arguments):
            return [(rank["threads"], rank.get("files"), rank.get("signals"))
                    for rank in self.mpirun((2, "--end", *arguments))]
        self.assertEqual(seen(), seen("--silent"))

    def test_spawn(self):
        if MPI == "mpich":
            self.skipTest("this MPICH cannot spawn (ch4:ucx), with or without resil")
        for _ in range(REPEAT):
            ranks = self.mpirun((2, "--spawn"))
            self.check_all_present(ranks[:2], 2, "PMIx")
            self.check_all_present(ranks[2:], 2, "PMIx")
            self.assertEqual([rank["world"] for rank in ranks], [0, 0, 1, 1])
            self.assertEqual(len({rank["launch"] for rank in ranks}), 1)
            self.assertEqual(len({rank["key"] for rank in ranks}), 2)

    def test_spawn_from_a_singleton(self):
        if MPI == "mpich":
            self.skipTest("this MPICH cannot spawn (ch4:ucx), with or without resil")
        status, err, ranks = self.launch([PROBE, "--spawn"], OMPI_MCA_rmaps_base_oversubscribe="1")
        self.assertEqual(status, 0, err)
        first, *children = [rank["world"] for rank in ranks]
        self.assertEqual((first, len(children), len(set(children))), (0, 2, 1))
        if VERSION < 5:
            self.assertEqual((children[0], len({rank["directory"] for rank in ranks})), (1, 1))
        else:  # the children cannot know the singleton's name, but they are no first world
            self.assertGreater(children[0], 0)

    def test_two_nodes(self):
        """Two daemons, as on two nodes: what the other node's ranks published must be here after MPI_Init."""
        more = ("--directory", self.directory.name)
        if MPI == "openmpi":
            if subprocess.run(["unshare", "-u", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
                self.skipTest("needs the right to make a UTS namespace")
            shell = os.path.join(self.directory.name, "shell")
            with open(shell, "w", encoding="ascii") as script:
                script.write('#!/bin/bash\nwhile [[ $1 == -* ]]; do shift; done\nhost=$1; shift\n'
                             'exec unshare -u bash -c "hostname $host; $*"\n')
            os.chmod(shell, 0o755)
            agent = ["--mca", "plm_rsh_agent"] if VERSION < 5 else ["--prtemca", "plm_ssh_agent"]
            options = [*agent, shell, "--host", os.uname().nodename + ":2,nodeb:2", "--map-by", "ppr:2:node"]
            size, silent = 4, "2,3"
        else:
            options, size, silent = ["-launcher", "fork", "-hosts", "nodea,nodeb", "-ppn", "1"], 2, "1"
        if VERSION >= 6:  # over this machine's network Open MPI 6.0.0rc2 does not reach itself
            more += ("--no-messages",)
        stores = [({}, "files" if VERSION == 5 else self.carrier)]
        if MPI == "openmpi":  # of another node it keeps the first rank only
            stores.append(({"PMIX_MCA_gds": "hash"}, "files"))
        for extra, carrier in stores:
            ranks = self.mpirun((size, *more), options=options, **extra)
            self.check_all_present(ranks, size, carrier)
            self.assertEqual({rank["local_size"] for rank in ranks}, {size // 2})
            ranks = self.mpirun((size // 2, *more), (size // 2, "--silent", *more), options=options, **extra)
            for rank in ranks[:size // 2]:
                self.assertEqual(rank["missing_ranks"], silent)

    def test_hash_store(self):
        """PMIx without its shared-memory store keeps the keys elsewhere."""
        if MPI == "mpich":
            self.skipTest("no PMIx")
        self.check_all_present(self.mpirun((4,), PMIX_MCA_gds="hash"), 4, "PMIx")

    def test_asynchronous_init_is_noticed(self):
        if MPI == "mpich":
            self.skipTest("has no such setting")
        for rank in self.mpirun((2,), OMPI_MCA_async_mpi_init="1"):
            self.assertEqual(rank["synchronised"], 0)

    def test_asynchronous_exchange_is_waited_for(self):
        """Open MPI 6's default: values go out in the background, but MPI_Init does not end before they are there."""
        if MPI == "mpich" or VERSION < 6:
            self.skipTest("has no such setting, or one with which 4.1.4 and 5.0.7 often fail in MPI_Init by themselves")
        for _ in range(REPEAT):
            self.check_all_present(self.mpirun((4, "--late"), OMPI_MCA_pmix_base_async_modex="1"), 4, "PMIx")

    def test_exchange_without_data_is_noticed(self):
        if MPI == "mpich":
            self.skipTest("has no such setting")
        for rank in self.mpirun((2,), OMPI_MCA_pmix_base_collect_data="0"):
            self.assertEqual(rank["synchronised"], 0)

    def test_stop(self):
        """Exit status 93 and the line once, whichever rank the launcher ends first."""
        size = "4" if MPI == "openmpi" else "2"
        status, err, _ = self.launch([*LAUNCHER[MPI], "-n", size, PROBE, "--stop", "resil: the line"])
        self.assertEqual(status, 93, err)
        self.assertEqual(err.count("resil: the line"), 1, err)
        # The problem of one rank only, while the other waits in MPI_Init.
        parts = ((1,), (1, "--stop", "resil: the line"))
        command = ["-n", "2", self.chooser(parts)] if MPI == "openmpi" else \
            ["-n", "1", PROBE, ":", "-n", "1", PROBE, *parts[1][1:]]
        status, err, _ = self.launch([*LAUNCHER[MPI], *command])
        self.assertEqual(status, 93, err)
        self.assertEqual(err.count("resil: the line"), 1, err)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if "--repeat" in arguments:
        at = arguments.index("--repeat")
        REPEAT = int(arguments[at + 1])
        del arguments[at:at + 2]
    PROBE, MPI = os.path.abspath(arguments[0]), arguments[1]
    if MPI == "openmpi":
        text = subprocess.run(["mpirun.openmpi", "--version"], capture_output=True, text=True, check=True).stdout
        VERSION = int(re.search(r"(\d+)\.\d+\.\d+", text).group(1))
    unittest.main(argv=[sys.argv[0], *arguments[2:]], verbosity=2)
