# SPDX-License-Identifier: Apache-2.0
"""Systems that cells run in: roots of other Debian releases by chroot, and this machine where it is Debian 12 itself.

Touches the folder of the roots only. Never removes a root."""
import json
import os
import platform
import shutil
import subprocess
import tempfile

from .cells import MORE_PACKAGES, PACKAGES, Impossible
from .results import build_id

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# For Open MPI on a machine with little network, where jobs that spawn each other meet over TCP alone. osc/ucx of 6.0.0rc2
# crashes without fast network.
OPENMPI_PARAMETERS = "btl = self,sm,tcp\nbtl_tcp_if_include = lo\nosc = ^ucx\n"
OLD_OPENMPI_PARAMETERS = "btl = self,vader,tcp\nbtl_tcp_if_include = lo\nbtl_vader_single_copy_mechanism = none\n"
MOUNTS = """set -e
root=$1 source=$2; shift 2
mount --make-rprivate /
for folder in proc sys dev; do mkdir -p "$root/$folder"; mount --rbind "/$folder" "$root/$folder"; done
mkdir -p "$root/src" "$root/build"
mount --bind "$source" "$root/src"
mount -o remount,bind,ro "$root/src"
exec chroot "$root" "$@"
"""
EVERY_SCENE = {"RESIL_TEST_LONG": "all"}  # tests/harness/main.py: also those that the other MPI of this machine has run
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
# The wrappers of the standard ABI: one header, one library to link, whichever MPI is asked for. Fortran is the MPI's own.
WRAPPER = """#!/bin/sh
exec {compiler} -DRESIL_STANDARD_ABI -I{folder}/openmpi/include/standard_abi "$@" -L{folder}/openmpi/lib -lmpi_abi
"""
ABI = "/abi"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def need(program):
    """Where it is."""
    path = shutil.which(program)
    if path is None:
        raise Impossible(f"{program} is not installed")
    return path


def need_root():
    if os.geteuid() != 0:
        raise Impossible("needs root: chroot and mounts")
    need("unshare")


def knowing(release, folder):
    """What debootstrap needs of its own, made in `folder`, with a script for releases that are newer than it."""
    own = os.environ.get("DEBOOTSTRAP_DIR", "/usr/share/debootstrap")
    os.makedirs(os.path.join(folder, "scripts"))
    for name in os.listdir(own):
        if name != "scripts":
            os.symlink(os.path.join(own, name), os.path.join(folder, name))
    for name in os.listdir(os.path.join(own, "scripts")):
        os.symlink(os.path.join(own, "scripts", name), os.path.join(folder, "scripts", name))
    if not os.path.lexists(os.path.join(folder, "scripts", release)):
        os.symlink("sid", os.path.join(folder, "scripts", release))
    return folder


INTROSPECT = ("meson", "introspect", "--tests", "--targets")


def tests_of(listing, build):
    """{test: files that it needs, but for the library}, of what INTROSPECT prints."""
    listing = json.loads(listing)
    targets = {target["id"]: target["filename"] for target in listing["targets"]}
    found = {}
    for test in listing["tests"]:
        files = {os.path.relpath(file, build) for depend in test["depends"] for file in targets.get(depend, ())}
        found[test["name"]] = sorted(file for file in files if os.path.basename(file) != "libresil.so")
    return found


class System:
    """Where a cell's commands run. build: its build folder as its own processes see it; outside(path): as this one does."""

    build, source, environment = "/build", "/src", {}
    own_library = False  # another one than what was given
    patience = "10"  # how many times a test's limit it may take

    def run(self, *words, **options):
        raise NotImplementedError

    def outside(self, path):
        raise NotImplementedError

    def built(self, *words):
        return self.outside(os.path.join(self.build, *words))

    def compile(self, *words):
        """With the cell's compilers."""
        self.run(*words)

    def configure(self):
        setup = ["meson", "setup", self.build, self.source]
        if os.path.exists(self.built("build.ninja")):
            setup.insert(2, "--reconfigure")
        self.run(*setup, stdout=subprocess.DEVNULL)

    def known_tests(self):
        """{test: files that it needs, but for the library}, of what is configured."""
        return tests_of(self.run(*INTROSPECT, self.build, stdout=subprocess.PIPE, text=True).stdout, self.build)

    def make_files(self, files):
        if self.own_library:
            files = ["libresil.so", *files]
        if files:
            done = self.run("ninja", "-C", self.build, *files, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode:
                lines = done.stdout[max(0, done.stdout.find("FAILED: ")):].splitlines()
                raise Impossible("does not build:\n" + "\n".join(lines[:20]))

    def log(self, base):
        """Where `meson test` writes what it finds, told to write to `base`."""
        return self.built("meson-logs", f"{base}.json")

    def architecture(self):
        return platform.machine()

    def build_library(self):
        """From now on the library is one that is built there, in a build folder of its own."""
        self.build, self.own_library = "/build-there", True

    def library_id(self):
        """Of the own library; None where there is none yet."""
        file = self.built("libresil.so")
        return build_id(file) if os.path.exists(file) else None

    def take_library(self, library):
        if self.own_library:
            return
        mine = self.built("libresil.so")
        if os.path.abspath(library) == mine:
            return
        shutil.copy2(library, mine + ".new")
        os.replace(mine + ".new", mine)  # a process that has the old one mapped would die of a change


class Host(System):
    """This machine, in this tree's build folder."""

    def __init__(self, library):
        self.build, self.source = os.path.dirname(os.path.abspath(library)), TREE

    def build_library(self):
        """It is built there as it is."""

    def make(self):
        if not os.path.exists(os.path.join(self.build, "build.ninja")):
            raise Impossible(f"{self.build} is no build folder: meson setup")

    def prepare(self):
        self.configure()

    def outside(self, path):
        return path

    def run(self, *words, **options):
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **options.pop("env", {})}
        return subprocess.run(words, env=environment, check=options.pop("check", True), **options)

    def start(self, *words, **options):
        return subprocess.Popen(words, env={**os.environ, **EVERY_SCENE}, **options)


class Root(System):
    """The system of one release, for one cell."""

    def __init__(self, folder, release, cell=None):
        self.release, self.path, self.cell = release, os.path.join(folder, release), cell
        if cell and cell.abi == "standard":
            self.build = "/build-abi"
            self.environment = {"PATH": f"{ABI}/bin:{PATH}", "RESIL_TEST_MPI_LIBRARY": f"{ABI}/{cell.mpi}"}

    def done(self, step):
        return os.path.exists(os.path.join(self.path, f".done-{step}"))

    def finish(self, step):
        with open(os.path.join(self.path, f".done-{step}"), "w", encoding="ascii"):
            pass

    def outside(self, path):
        return os.path.join(self.path, path.lstrip("/"))

    def command(self, *words):
        return ["unshare", "-m", "sh", "-c", MOUNTS, "sh", self.path, TREE, *words]

    def environment_of(self, more=None):
        return {"HOME": "/root", "LC_ALL": "C.UTF-8", "PATH": PATH, "DEBIAN_FRONTEND": "noninteractive",
                "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **EVERY_SCENE, **self.environment, **(more or {})}

    def run(self, *words, **options):
        """In the root, as its own root."""
        environment = self.environment_of(options.pop("env", None))
        return subprocess.run(self.command(*words), env=environment, check=options.pop("check", True), **options)

    def start(self, *words, **options):
        return subprocess.Popen(self.command(*words), env=self.environment_of(), **options)

    def make(self):
        need_root()
        if not self.done("debootstrap"):
            need("debootstrap")
            if os.path.isdir(self.path) and os.listdir(self.path):
                raise Impossible(f"{self.path} was not made to its end: remove it, or make {self.path}/.done-debootstrap")
            line = ["debootstrap", "--variant=minbase", "--include=ca-certificates", self.release, self.path]  # it knows its mirror
            with tempfile.TemporaryDirectory() as folder:
                if subprocess.run(line, env={**os.environ, "DEBOOTSTRAP_DIR": knowing(self.release, folder)}, check=False).returncode:
                    raise Impossible(f"debootstrap of {self.release} failed (no network, or no room in {self.path}?)")
            self.finish("debootstrap")
        if not self.done("packages"):
            with open(self.outside("usr/sbin/policy-rc.d"), "w", encoding="ascii") as file:
                file.write("#!/bin/sh\nexit 101\n")  # no service is started
            os.chmod(self.outside("usr/sbin/policy-rc.d"), 0o755)
            for line in (("update",), ("-y", "--no-install-recommends", "install", *PACKAGES, *MORE_PACKAGES.get(self.release, ()))):
                if self.run("apt-get", "-q", "-o", "Acquire::Check-Valid-Until=false", *line, check=False).returncode:
                    raise Impossible(f"apt-get {line[0] if len(line) == 1 else 'install'} failed in {self.path} (no network?)")
            self.finish("packages")

    def prepare(self):
        """Configures."""
        with open(self.outside("etc/hosts"), "w", encoding="ascii") as file:
            file.write(f"127.0.0.1 localhost\n127.0.1.1 {platform.node()}\n")  # MPICH 3.4 looks its own host up
        old = self.release in ("bullseye", "bookworm")
        os.makedirs(self.outside("root/.openmpi"), exist_ok=True)
        with open(self.outside("root/.openmpi/mca-params.conf"), "w", encoding="ascii") as file:
            file.write(OLD_OPENMPI_PARAMETERS if old else OPENMPI_PARAMETERS)
            if self.release == "bullseye":
                # 4.1.0's osc/ucx fails without fast network; of mtl/ofi libfabric 1.11 leaves a handler for SIGTERM, and is unloaded.
                file.write("osc = ^ucx\nmtl = ^ofi\n")
        if self.release == "bullseye":
            self.newer_meson()
        if self.cell.abi == "standard":
            self.make_wrappers()
        self.configure()

    def newer_meson(self):
        """Debian 11's is too old; Meson is Python alone, and this machine has one."""
        with open(need("meson"), encoding="utf-8") as file:
            python = file.readline().lstrip("#!").split() or ["python3"]
        code = "import mesonbuild, os; print(os.path.dirname(mesonbuild.__file__))"
        found = subprocess.run([*python, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
        if found.returncode:
            raise Impossible("Debian 11 needs a newer Meson, and the one of this machine is not found")
        target = self.outside("opt/meson/mesonbuild")
        if not os.path.exists(target):
            shutil.copytree(found.stdout.strip(), target, ignore=shutil.ignore_patterns("__pycache__"))
        with open(self.outside("usr/local/bin/meson"), "w", encoding="ascii") as file:
            file.write('#!/bin/sh\nPYTHONPATH=/opt/meson exec python3 -c '
                       '"import sys; sys.argv[0] = \'/usr/local/bin/meson\'; from mesonbuild.mesonmain import main; sys.exit(main())" "$@"\n')
        os.chmod(self.outside("usr/local/bin/meson"), 0o755)

    def make_wrappers(self):
        """/abi/bin: compilers of the standard ABI under both MPIs' names; /abi/MPI: the library of each."""
        os.makedirs(self.outside(f"{ABI}/bin"), exist_ok=True)
        for mpi in ("openmpi", "mpich"):
            for wrapper, compiler in (("mpicc", "cc"), ("mpicxx", "c++")):
                path = self.outside(f"{ABI}/bin/{wrapper}.{mpi}")
                with open(path + ".new", "w", encoding="ascii") as file:
                    file.write(WRAPPER.format(compiler=compiler, folder=LIBRARIES))
                os.chmod(path + ".new", 0o755)
                os.replace(path + ".new", path)
            library = f"{LIBRARIES}/libmpi_abi_{mpi}.so.1.0.0"
            if not os.path.exists(self.outside(library)):
                raise Impossible(f"{self.release} has no {library}")
            os.makedirs(self.outside(f"{ABI}/{mpi}"), exist_ok=True)
            link = self.outside(f"{ABI}/{mpi}/libmpi_abi.so.1")
            if not os.path.islink(link):
                os.symlink(library, link)


def host_release():
    """This machine's release, if it is Debian."""
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            words = dict(line.rstrip().split("=", 1) for line in file if "=" in line)
    except OSError:
        return None
    return words.get("VERSION_CODENAME") if words.get("ID") == "debian" else None


def system_of(cell, options):
    if cell.machine != "x86_64":
        from .emulated import Emulated  # pylint: disable=import-outside-toplevel,cyclic-import
        return Emulated(options.roots, cell)
    if cell.release == "bookworm" and host_release() == "bookworm":
        return Host(options.library)
    return Root(options.roots, cell.release, cell)
