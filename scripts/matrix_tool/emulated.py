# SPDX-License-Identifier: Apache-2.0
"""The cells of aarch64: a small root (light.py) whose MPIs are of Debian 12 for arm64, run by qemu-user through binfmt_misc;
the library and the programs are cross-compiled here, by compilers under the names of the MPIs' wrappers. The shell and Python
in the root are this machine's, so that ranks and launchers alone are emulated.

Touches the root and build/arm64 of this tree."""
import os
import re
import subprocess

from . import light
from .cells import Impossible
from .roots import INTROSPECT, PATH, TREE, System, need, tests_of

IN_ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "in_root")
EMULATOR = "/proc/sys/fs/binfmt_misc/qemu-aarch64"
TRIPLE = "aarch64-linux-gnu"
CROSS = """[binaries]
c = '{triple}-gcc'
cpp = '{triple}-g++'
ar = '{triple}-ar'
strip = '{triple}-strip'
exe_wrapper = '{folder}/bin/emulated'
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
"""
# Mind what stands last: `-x c++` of the tests is for sources, and would be for libraries, too.
WRAPPER = """#!/bin/sh
exec {compiler} {include} "$@" -x none -L{libraries} {link} -Wl,--allow-shlib-undefined
"""
LINK = {"openmpi": {"c": "-L{0}/openmpi/lib -lmpi", "c++": "-L{0}/openmpi/lib -lmpi_cxx -lmpi",
                    "f90": "-L{0}/openmpi/lib -lmpi_usempif08 -lmpi_usempi_ignore_tkr -lmpi_mpifh -lmpi"},
        "mpich": {"c": "-lmpich", "c++": "-lmpichcxx -lmpich", "f90": "-lmpichfort -lmpich"}}
COMPILER = {"c": ("mpicc", "gcc"), "c++": ("mpicxx", "g++"), "f90": ("mpif90", "gfortran")}


class Emulated(System):
    """One cell."""

    own_library, patience = True, "40"

    def __init__(self, folder, cell):
        self.path, self.cell, self.release = os.path.join(folder, "small-arm64"), cell, cell.release
        self.build, self.source = os.path.join(TREE, "build", "arm64"), TREE

    def done(self, step):
        return os.path.exists(os.path.join(self.path, ".packages")) if step == "packages" else False

    def outside(self, path):
        return path  # build and source are at their own paths there

    def make(self):
        need("unshare")
        for _, compiler in COMPILER.values():
            need(f"{TRIPLE}-{compiler}")
        if not os.path.exists(EMULATOR):
            raise Impossible("nothing here runs programs of aarch64: the packages qemu-user-static and binfmt-support, "
                             "then update-binfmts --enable qemu-aarch64")
        need("qemu-aarch64-static")
        light.make(self.path, self.release, ("openmpi-bin", "mpich"), ("libopenmpi-dev", "libmpich-dev"), light.Clock(1800), "arm64")
        os.makedirs(f"{self.path}/etc/ucx", exist_ok=True)
        with open(f"{self.path}/etc/ucx/ucx.conf", "w", encoding="ascii") as file:
            file.write("UCX_TLS=self,sysv,posix\n")  # over TCP MPICH 4.0.2 hangs in MPI_Finalize: docs/PLATFORMS.md
        with open(f"{self.path}/root/.openmpi/mca-params.conf", "w", encoding="ascii") as file:
            file.write(light.OLD_OPENMPI_PARAMETERS + "osc = ^rdma\n")  # which makes no window there natively: docs/PLATFORMS.md

    def environment_of(self, plain=False):
        """plain: cc and c++ cross-compile, too. Not for meson setup, which tries them as this machine's."""
        path = f"{self.build}/mpi/bin:{os.environ.get('PATH', PATH)}"
        return {**os.environ, "PATH": f"{self.build}/mpi/plain:{path}" if plain else path,
                "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                # Open MPI's copies between processes ask for a system call that the emulator does not have.
                "OMPI_MCA_btl": "self,vader,tcp", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}

    def here(self, *words, **options):
        return subprocess.run(["nice", *words], env=self.environment_of(words[0] == "ninja"), check=options.pop("check", True), **options)

    def compile(self, *words):
        self.here(*words)

    def run(self, *words, **options):
        """In the root."""
        environment = {**self.environment_of(), "IN_ROOT_WRITES": "1", **options.pop("env", {})}
        return subprocess.run(["nice", IN_ROOT, self.path, TREE, *words], env=environment, check=options.pop("check", True), **options)

    def start(self, *words, **options):
        """meson test, whose tests run in the root."""
        return subprocess.Popen(["nice", *words[:2], "--wrapper", f"{IN_ROOT} {self.path} {TREE}", *words[2:]],
                                env=self.environment_of(), **options)

    def architecture(self):
        text = subprocess.run(["qemu-aarch64-static", "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
        version = re.search(r"\d+\.\d+", text)
        return f"aarch64 (qemu-user {version[0]})" if version else "aarch64 (emulated)"

    def build_library(self):
        """It is always so."""

    def log(self, base):
        return self.built("meson-logs", f"{base}-{os.path.basename(IN_ROOT)}.json")

    def prepare(self):
        folder, libraries = f"{self.build}/mpi", f"{self.path}/usr/lib/{TRIPLE}"
        for name in ("bin", "plain"):
            os.makedirs(f"{folder}/{name}", exist_ok=True)
        texts = {"cross": CROSS.format(triple=TRIPLE, folder=folder),
                 "bin/emulated": f'#!/bin/sh\nexec {IN_ROOT} {self.path} {TREE} "$@"\n',
                 "plain/cc": f'#!/bin/sh\nexec {TRIPLE}-gcc "$@"\n', "plain/c++": f'#!/bin/sh\nexec {TRIPLE}-g++ "$@"\n'}
        for mpi, kinds in LINK.items():
            for language, link in kinds.items():
                name, compiler = COMPILER[language]
                include = f"-I{libraries}/{mpi}/include"
                if language == "f90":
                    include += f" -I{libraries}/fortran/gfortran-mod-15/{mpi}"
                texts[f"bin/{name}.{mpi}"] = WRAPPER.format(compiler=f"{TRIPLE}-{compiler}", include=include, libraries=libraries,
                                                            link=link.format(libraries))
        for name, text in texts.items():
            path = f"{folder}/{name}"
            try:
                with open(path, encoding="ascii") as file:
                    if file.read() == text:
                        continue
            except OSError:
                pass
            with open(path + ".new", "w", encoding="ascii") as file:
                file.write(text)
            os.chmod(path + ".new", 0o755)
            os.replace(path + ".new", path)
        if not os.path.exists(f"{self.build}/build.ninja"):
            self.here("meson", "setup", self.build, TREE, "--cross-file", f"{folder}/cross", stdout=subprocess.DEVNULL)

    def known_tests(self):
        return tests_of(self.here(*INTROSPECT, self.build, stdout=subprocess.PIPE, text=True).stdout, self.build)

    def make_files(self, files):
        done = self.here("ninja", "-C", self.build, "libresil.so", *files, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         check=False)
        if done.returncode:
            lines = done.stdout[max(0, done.stdout.find("FAILED: ")):].splitlines()
            raise Impossible("does not build:\n" + "\n".join(lines[:20]))
