# SPDX-License-Identifier: Apache-2.0
"""Launchers on several hosts (hosts.py): how each is called, its jobs' output, status and reports. What is checked of them:
launchers.py."""
import collections
import os
import sys

from .hosts import SHARED, until
from .roots import TREE

sys.path.insert(0, os.path.join(TREE, "tests"))
from harness import report as reports  # noqa: E402  # pylint: disable=wrong-import-position

LIBRARY = f"{SHARED}/libresil.so"
TOOL = ("/usr/bin/python3", "/src/scripts/resil")
OPENMPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_ALLOW_RUN_AS_ROOT": "1",
           "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
END = 90  # seconds that anything may take

Launcher = collections.namedtuple("Launcher", "name release mpi how nodes each")
ALL = {}
for _release in ("bookworm", "trixie"):
    for _one in (Launcher(f"{_release}-srun-pmix", _release, "openmpi", "srun --mpi=pmix", 3, 2),
                 # MPICH 4.0.2 loses messages with three ranks and more: docs/PLATFORMS.md
                 Launcher(f"{_release}-srun-pmi2", _release, "mpich", "srun --mpi=pmi2", 3 if _release != "bookworm" else 2,
                          2 if _release != "bookworm" else 1),
                 Launcher(f"{_release}-sbatch-mpirun", _release, "openmpi", "mpirun in sbatch", 3, 2),
                 Launcher(f"{_release}-ssh-openmpi", _release, "openmpi", "mpirun over ssh", 2, 2),
                 Launcher(f"{_release}-ssh-hydra", _release, "mpich", "hydra over ssh", 2, 1 if _release == "bookworm" else 2)):
        ALL[_one.name] = _one


class Failed(Exception):
    """What was not as it must be."""


def must(condition, *story):
    if not condition:
        raise Failed("; ".join(str(part) for part in story))


class Short(Exception):
    """What this launcher does not give, and is said to the user."""


class Bench:
    """One launcher on running hosts."""

    def __init__(self, launcher, hosts, slurm):
        self.launcher, self.hosts, self.slurm, self.count = launcher, hosts, slurm, 0
        self.nodes = hosts.names[1:1 + launcher.nodes]
        self.ranks = launcher.nodes * launcher.each
        self.node_of = {rank: self.nodes[rank // launcher.each] for rank in range(self.ranks)}
        self.cyclic = {rank: self.nodes[rank % launcher.nodes] for rank in range(self.ranks)}

    def fresh(self):
        """The name of a shared folder of its own."""
        self.count += 1
        name = f"{self.launcher.name}-{self.count}"
        os.mkdir(self.hosts.path(name))
        return name

    def line(self, program, settings, preload=True, cyclic=False):
        """The command line on the head. cyclic: ranks that follow each other are on different nodes."""
        one = self.launcher
        each = 1 if cyclic else one.each
        settings = {**({"LD_PRELOAD": LIBRARY} if preload else {}), **settings}
        if one.how.startswith("srun"):
            return [*one.how.split(), "--kill-on-bad-exit=1", "-N", str(one.nodes), "-n", str(self.ranks), f"--ntasks-per-node={one.each}",
                    "-m", "cyclic" if cyclic else "block",
                    "--export=" + ",".join(["ALL", *(f"{name}={value}" for name, value in settings.items())]), *program]
        if one.mpi == "openmpi":
            where = ["--host", ",".join(f"{node}:{one.each}" for node in self.nodes)] if "ssh" in one.how else []
            given = [word for name, value in settings.items() for word in ("-x", f"{name}={value}")]
            given += ["--map-by", "node"] if cyclic else []
            return ["mpirun.openmpi", *where, *given, "-np", str(self.ranks), *program]
        given = [word for name, value in settings.items() for word in ("-genv", name, value)]
        return ["mpirun.mpich", "-launcher", "ssh", "-hosts", ",".join(self.nodes), "-ppn", str(each), *given, "-n", str(self.ranks), *program]

    def program(self, name, *arguments):
        return [f"{SHARED}/bin/{name}.{self.launcher.mpi}", *arguments]

    def start(self, words, folder):
        """A job in the background; its output, and its status when it has ended, lie in the folder."""
        if self.launcher.how == "mpirun in sbatch":
            script = "".join(f"export {name}={value}\n" for name, value in OPENMPI.items())
            script += " ".join(words) + f" > {SHARED}/{folder}/out 2> {SHARED}/{folder}/err\necho $? > {SHARED}/{folder}/status\n"
            self.slurm.submit(script, "-N", str(self.launcher.nodes), "-n", str(self.ranks), f"--ntasks-per-node={self.launcher.each}", name=folder)
            return
        script = '"$@" > ../out 2> ../err < /dev/null; echo $? > ../status.new; mv ../status.new ../status'
        os.mkdir(self.hosts.path(f"{folder}/cwd"))
        self.hosts.start(self.hosts.names[0], "/bin/sh", "-c", script, "sh", *words, env=OPENMPI, cwd=f"{SHARED}/{folder}/cwd")

    def story(self, folder):
        text = [folder]
        for name in ("out", "err", "status"):
            if os.path.exists(self.hosts.path(f"{folder}/{name}")):
                text.append(f"{name}: {self.hosts.read(f'{folder}/{name}')[-1500:]}")
        return "\n".join(text)

    def status(self, folder, seconds=END):
        until(lambda: os.path.exists(self.hosts.path(f"{folder}/status")), lambda: "does not end: " + self.story(folder), seconds)
        return int(self.hosts.read(f"{folder}/status"))

    def reports(self, folder, name="report"):
        return reports.load(self.hosts.path(f"{folder}/{name}"))

    def tool(self, host, *words):
        done = self.hosts.run(host, *TOOL, *words)
        must(done.returncode in (0, 1, 3) and done.stdout, f"resil {' '.join(words)} on {host}: status {done.returncode}", done.stderr)
        return done.stdout
