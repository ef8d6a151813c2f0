# SPDX-License-Identifier: Apache-2.0
"""What continuous integration runs beside Debian 12's MPIs: suites that start jobs, on Open MPI 5.0.7 and on the standard ABI of
MPICH 5.0.2, in small roots (light.py), with the library and the programs that were built here.

An Open MPI 5 runs what was compiled for Open MPI 4, so these programs are those of the other tests; those of the standard ABI
are compiled here against MPICH's header. Never in the way: what cannot be made or run here, or not within the time, is
skipped with its reason. A test that failed is run once more, alone; one that passes then is told and counts as passed.
Where the mirror has another version of the MPI by now, a failure is told and counts as skipped: it may be that MPI's."""
import collections
import concurrent.futures
import contextlib
import os
import platform
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import threading
import time

from . import light, results
from .cells import Impossible
from .roots import ABI, INTROSPECT, LIBRARIES, TREE, host_release, tests_of

IN_ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "in_root")
ROOTS_SECONDS = 150  # making the roots, where tests wait for it; 20 or 30 on an idle machine with a quick network
AT_ONCE = max(2, os.cpu_count() or 2)  # in each cell; both together as scripts/test

Cell = collections.namedtuple("Cell", "name release mpi version standard packages unpacked tests")
CELLS = (
    # Not what has windows: Open MPI 5.0.7 itself crashes there in some runs (docs/PLATFORMS.md). Not C++, whose wrapper here
    # links Open MPI 4's bindings. Not ends: its prterun sometimes ends the other rank before that one's report is written.
    Cell("trixie-openmpi", "trixie", "openmpi", "5.0.7", False, ("openmpi-bin", "libmpich12"), (),
         ("checksum-jobs", "orders", "hangs", "jobs", "faults", "mismatch", "hang-injector", "double-run", "dumps", "early",
          "small-stacks", "handles", "collective-checks", "pending", "replay", "modes")),
    # Not handles and early, whose programs crash there without resil.
    Cell("forky-abi-mpich", "forky", "mpich", "5.0.2", True, ("mpich",), ("libmpich-dev",),
         ("checksum-jobs", "orders", "hangs", "ends", "jobs", "faults", "mismatch", "hang-injector", "double-run", "dumps", "steps",
          "launches", "small-stacks", "collective-checks", "pending", "replay", "modes")),
)
MARK = "CELL_OF_RESIL"
MAIN = threading.Lock()  # one at a time builds in the main folder
VERSION = {"openmpi": ("mpirun.openmpi", "--version"), "mpich": ("mpirun.mpich", "--version")}
# What Debian 12's linker need not find: the library is of a newer system.
COMPILE = """#!/bin/sh
exec {compiler} -DRESIL_STANDARD_ABI -I{folder}/include "$@" -L{folder}/lib -lmpi_abi -Wl,--allow-shlib-undefined
"""


class Count:
    """Tests that passed, failed, were skipped."""

    def __init__(self):
        self.lock = threading.RLock()  # cells are counted side by side
        self.passed = self.failed = self.skipped = 0
        self.known = set()  # (cell's name, test)

    def passes(self, cell, test):
        with self.lock:
            self.passed += 1
            self.known.add((cell.name, test))

    def fails(self, cell, test, output):
        with self.lock:
            self.failed += 1
            self.known.add((cell.name, test))
        print(f"FAILED: {cell.name}: {test}\n{output[-6000:]}", flush=True)

    def skips(self, cell, tests, reason):
        """Of these tests, those that have not ended another way."""
        with self.lock:
            tests = [test for test in tests if (cell.name, test) not in self.known]
            self.known |= {(cell.name, test) for test in tests}
            self.skipped += len(tests)
        if tests:
            print(f"skipped: {cell.name}: {' '.join(tests)}: {reason}", flush=True)

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def in_root(root):
    return [IN_ROOT, root, TREE]


def version_of(cell, root, clock):
    """Of the MPI in the root. Impossible where no command runs in a root."""
    light.run(clock, "chroot and mounts are not permitted here", *in_root(root), "true")
    text = light.run(clock, f"{' '.join(VERSION[cell.mpi])} in {root}", *in_root(root), *VERSION[cell.mpi],
                     env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    found = re.search(r"\d+\.\d+\.\d+\S*", text)
    return found[0] if found else "of an unknown version"


def environment_of(cell, build):
    """For Meson, and what it starts."""
    more = {"PATH": f"{build}/mpi/bin:{os.environ['PATH']}", "RESIL_TEST_MPI_LIBRARY": f"{ABI}/{cell.mpi}"} if cell.standard else {}
    return {**os.environ, "RESIL_TEST_SHARE": "other", **more}  # the scenes that the other MPI of this kind does not run


def prepare_standard(cell, root, build, clock):
    """A build folder of its own, whose wrappers compile for the standard ABI."""
    folder, mpi = f"{build}/mpi", f"{root}{LIBRARIES}/libmpi_abi_{cell.mpi}.so.1.0.0"
    link = f"{root}{ABI}/{cell.mpi}/libmpi_abi.so.1"
    header = f"{root}{LIBRARIES}/{cell.mpi}/include/mpi_abi.h"
    for file in (mpi, header):
        if not os.path.exists(file):
            raise Impossible(f"there is no {file}")
    for path in ("bin", "include", "lib"):
        os.makedirs(f"{folder}/{path}", exist_ok=True)
    os.makedirs(os.path.dirname(link), exist_ok=True)
    for target, name in ((mpi, f"{folder}/lib/libmpi_abi.so"), (mpi[len(root):], link)):
        if not os.path.islink(name) or os.readlink(name) != target:
            if os.path.lexists(name):
                os.unlink(name)
            os.symlink(target, name)
    shutil.copy2(header, f"{folder}/include/mpi.h")
    for wrapper, compiler in (("mpicc", "cc"), ("mpicxx", "c++")):
        path = f"{folder}/bin/{wrapper}.{cell.mpi}"
        with open(path, "w", encoding="ascii") as file:
            file.write(COMPILE.format(compiler=compiler, folder=folder))
        os.chmod(path, 0o755)
    if not os.path.exists(f"{build}/build.ninja"):
        light.run(clock, f"meson setup {build}", "meson", "setup", build, TREE, env=environment_of(cell, build))


def take_library(library, build):
    """The one that was built."""
    shutil.copy2(library, f"{build}/libresil.so.new")
    os.replace(f"{build}/libresil.so.new", f"{build}/libresil.so")  # jobs that have the old one mapped would die of a change


def known_tests(cell, build, clock):
    """{test without the MPI's name: files that it needs}"""
    text = light.run(clock, f"meson introspect {build}", *INTROSPECT, build, env=environment_of(cell, build))
    found = tests_of(text, build)
    return {test: found[f"{test}-{cell.mpi}"] for test in cell.tests if f"{test}-{cell.mpi}" in found}


def end_all(mark):
    """Kills what carries the mark: jobs that outlive a test that was ended."""
    wanted = f"{MARK}={mark}".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    os.kill(int(name), signal.SIGKILL)


def run_tests(cell, root, build, tests, clock):
    """{test: (result, output)} of those that ended in time."""
    log = results.Log(f"{build}/meson-logs/testlog-{os.path.basename(IN_ROOT)}.json")
    found, mark = {}, secrets.token_hex(8)
    process = subprocess.Popen(["meson", "test", "-C", build, "--no-rebuild", "--wrapper", shlex.join(in_root(root)), "--num-processes",
                                str(AT_ONCE), "--timeout-multiplier", "10", *(f"{test}-{cell.mpi}" for test in tests)],
                               env={**environment_of(cell, build), MARK: mark}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        process.wait(timeout=clock.left())
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # Meson ends what it started, and writes that it did
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    end_all(mark)
    for name, result, _, output in log.news():
        if result != "INTERRUPT":
            found[name[:-len(cell.mpi) - 1]] = (result, output)
    return found


def judge(cell, version, told, again, count):
    """Adds {test: (result, output)} to the count, and says what is not well. again(test): likewise, of one test alone."""
    for test, (result, output) in sorted(told.items()):
        if result not in ("OK", "SKIP"):
            first = output
            result, output = again(test) or (result, output)
            if result == "OK":
                print(f"{cell.name}: {test} failed, and passed when it was run once more:\n{first[-3000:]}", flush=True)
        for left_out in re.findall(r"^left out (.*)", output, re.M):
            print(f"left out: {cell.name}: {test}: {left_out}", flush=True)
        if result == "OK":
            count.passes(cell, test)
        elif result == "SKIP":
            count.skips(cell, [test], results.reasons(output, result) or "no reason given")
        elif version != cell.version:
            count.skips(cell, [test], f"failed; the version is {version}, not {cell.version}:\n{output[-3000:]}")
        else:
            count.fails(cell, test, output)


def build_of(cell, library):
    main = os.path.dirname(library)
    return f"{main}/ci-{cell.name}" if cell.standard else main


def parts_of(cell, known):
    """Of {test: files that it needs}: (files of this MPI, files of none). What is another MPI's is left out by the tests."""
    files = sorted({file for needed in known.values() for file in needed})
    if not cell.standard:
        return files, []
    mpi_of = {file: next((mpi for mpi in VERSION if mpi in os.path.basename(file).split(".")), None) for file in files}
    return [file for file in files if mpi_of[file] == cell.mpi], [file for file in files if mpi_of[file] is None]


def make_files(what, build, files, clock, environment):
    if files:
        light.run(clock, what, "ninja", "-C", build, *files, env=environment)


def take_files(cell, files, main, build, clock):
    """What is no MPI's is the main folder's."""
    with MAIN:
        make_files(f"building what {cell.name} shares", main, files, clock, {**os.environ})
    for file in files:
        os.makedirs(os.path.dirname(f"{build}/{file}"), exist_ok=True)
        shutil.copy2(f"{main}/{file}", f"{build}/{file}")


def build_programs(cell, root, build, clock):
    """{test: files that it needs}; those of the cell's MPI are there now."""
    if cell.standard:
        prepare_standard(cell, root, build, clock)
    with contextlib.suppress(Impossible):  # without, each Python of the tests compiles all that it imports: unpacking ran no script
        light.run(clock, "compiling Python's files", *in_root(root), "/usr/bin/python3", f"{TREE}/tests/pycache.py", f"{build}/pycache",
                  env={**os.environ, "IN_ROOT_WRITES": "1"})
    known = known_tests(cell, build, clock)
    with contextlib.nullcontext() if cell.standard else MAIN:
        make_files(f"building the programs of {cell.name}", build, parts_of(cell, known)[0], clock, environment_of(cell, build))
    return known


def run_cell(cell, root, library, clock, count):
    build = build_of(cell, library)
    began = time.monotonic()
    version = version_of(cell, root, clock)
    known = build_programs(cell, root, build, clock)
    if cell.standard:
        take_files(cell, parts_of(cell, known)[1], os.path.dirname(library), build, clock)
        take_library(library, build)
    count.skips(cell, [test for test in cell.tests if test not in known], f"no such test here: is {cell.mpi} installed?")
    print(f"{cell.name}: {cell.mpi} {version}, {len(known)} tests; ready after {time.monotonic() - began:.0f} s", flush=True)
    if known:
        told = run_tests(cell, root, build, known, clock)
        judge(cell, version, told, lambda test: run_tests(cell, root, build, [test], clock).get(test), count)
    count.skips(cell, cell.tests, "no time left")
    print(f"{cell.name}: {time.monotonic() - began:.0f} s", flush=True)


def need_here():
    """Impossible where what is built here does not run in the roots."""
    if platform.machine() != "x86_64" or host_release() != "bookworm":
        raise Impossible("the programs must be built on Debian 12 for x86-64, so that they run on newer ones")


def run(options):
    """The verb `ci`."""
    clock, count = light.Clock(options.seconds), Count()
    making = clock if options.prepare else light.Clock(min(ROOTS_SECONDS, options.seconds))
    library = os.path.abspath(options.library)
    ready, running = {}, {}
    for cell in CELLS:
        try:
            need_here()
            root = os.path.join(options.roots, f"ci-{cell.release}")
            light.make(root, cell.release, cell.packages, cell.unpacked, making)
            ready[cell] = root
        except (Impossible, OSError) as reason:
            count.skips(cell, cell.tests, str(reason))
    if options.prepare:  # what has a build folder of its own: the main one is at work
        for cell in ready:
            if cell.standard:
                version_of(cell, ready[cell], clock)
                build_programs(cell, ready[cell], build_of(cell, library), clock)
        return 0
    with concurrent.futures.ThreadPoolExecutor(len(CELLS)) as pool:  # side by side: one builds programs while the other waits
        for cell, root in ready.items():
            running[cell] = pool.submit(run_cell, cell, root, library, clock, count)
    for cell, done in running.items():
        try:
            done.result()
        except (Impossible, OSError) as reason:
            count.skips(cell, cell.tests, str(reason))
    print(count)
    return 1 if count.failed else 0
