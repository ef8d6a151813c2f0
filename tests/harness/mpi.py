# SPDX-License-Identifier: Apache-2.0
"""Runs MPI jobs for the tests: one function for both launchers, with a time limit (patience.py) that nothing survives.

Touches temporary directories, the processes that it starts, and those ring files in /dev/shm that the jobs' own
reports name. Every process of a job carries a mark in its environment, by which it is found again.

RESIL_TEST_LIBRARY  the library to preload (default: build/libresil.so of this tree)
RESIL_TEST_OPENMPI  further options of mpirun.openmpi, for machines that need them
                    (containers: --mca btl_vader_single_copy_mechanism none)
RESIL_TEST_FILES    RESIL_FILES of the jobs (default: all)
RESIL_TEST_MPI_LIBRARY  folder of the MPI library that jobs load, for programs of the standard ABI; behind what a test
                    puts into LD_LIBRARY_PATH itself
"""
import atexit
import contextlib
import functools
import json
import os
import platform
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import patience
from . import report as reports

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MPIS = ("openmpi", "mpich")
SKIP = 77
MARK = "TEST_OF_RESIL"  # not RESIL_…: the library warns of such names
# Tests read what each rank wrote; files_test.py, and any test with RESIL_TEST_FILES=node, has the default.
# What Open MPI would choose on a node without a fast network, said at once: it looks for one for 0.2 s at every start. And
# ranks of several tests side by side neither spin nor are all bound to the first two cores.
FILES = os.environ.get("RESIL_TEST_FILES") or "all"
SIDE_BY_SIDE = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
                "PRTE_MCA_hwloc_default_binding_policy": "none"}
PRTE_4 = "PRTE_MCA_bindto"  # its name from Open MPI 6 on, which speaks of the old one on standard error

_scratch = []
_as_delivered = False


def as_delivered():
    """For tests of what users start: from here on Open MPI chooses by itself."""
    global _as_delivered  # pylint: disable=global-statement
    _as_delivered = True


def library():
    return os.environ.get("RESIL_TEST_LIBRARY") or os.path.join(ROOT, "build", "libresil.so")


def scratch(prefix="resil-test-"):
    """A directory of its own, removed when the test ends."""
    path = tempfile.mkdtemp(prefix=prefix)
    _scratch.append(path)
    return path


def discard(*paths):
    """Removes scratch directories before the test ends: for scripts that make very many."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        if path in _scratch:
            _scratch.remove(path)


@atexit.register
def _remove_scratch():
    for path in _scratch:
        shutil.rmtree(path, ignore_errors=True)


def skip(reason):
    """Ends the test as skipped."""
    print(f"skipped: {reason}")
    sys.exit(SKIP)


def installed(program):
    """Whether the program is in PATH; an absolute path must exist."""
    return bool(os.path.exists(program) if program.startswith("/") else shutil.which(program))


def require(*programs):
    """Skips the test unless all these programs are installed."""
    for program in programs:
        if not installed(program):
            skip(f"{program} is not installed")


def clean_environment(extra=None):
    """This process's environment without what would change a job, and with what root needs."""
    dirty = re.compile(r"(RESIL_|OMPI_|PMIX_|PMI_|PRTE_|HYDRA_|MPICH_|MPIR_|UCX_|SLURM_|"
                       r"LD_(PRELOAD|BIND_NOW|LIBRARY_PATH)$|MALLOC_PERTURB_$)")
    environment = {name: value for name, value in os.environ.items() if not dirty.match(name)}
    environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    if not _as_delivered:
        environment.update(SIDE_BY_SIDE)
        if shutil.which("mpirun.openmpi") and openmpi_version() >= (6,):
            environment[PRTE_4] = environment.pop("PRTE_MCA_hwloc_default_binding_policy")
    environment["RESIL_FILES"] = FILES
    environment.update(extra or {})
    return _with_mpi_library(environment, always=True)


def _with_mpi_library(environment, always=False):
    """RESIL_TEST_MPI_LIBRARY behind LD_LIBRARY_PATH where there is one; always: and where there is none."""
    folder = os.environ.get("RESIL_TEST_MPI_LIBRARY")
    if not folder or not (always or "LD_LIBRARY_PATH" in environment):
        return environment
    words = [word for word in environment.get("LD_LIBRARY_PATH", "").split(":") if word and word != folder]
    return {**environment, "LD_LIBRARY_PATH": ":".join([*words, folder])}


def _carriers(mark):
    """Process ids, zombies excepted, whose environment carries the mark."""
    found, wanted = [], f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/stat", "rb") as file:
                if file.read().rsplit(b")", 1)[1].split()[0] != b"Z":
                    found.append(int(name))
        except OSError:
            pass
    return found


def _left_behind(mark):
    """Processes of a job whose launcher has ended: it may be gone a moment before its proxies, and the ranks that they kill."""
    limit = patience.Patience(2)
    while (left := _carriers(mark)) and not limit.over():
        time.sleep(0.02)
    return left


def _kill(mark):
    """Kills every process of the job, again until none is left: a launcher may be starting one more."""
    for _ in range(50):
        left = _carriers(mark)
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def _standing(mark):
    """Where each process of a job that does not end is: state, processor time, stacks where a debugger is installed."""
    text = []
    for pid in _carriers(mark):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace")[:120]
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            with open(f"/proc/{pid}/wchan", encoding="ascii") as file:
                waits = file.read()
        except OSError:
            continue
        text.append(f"{pid} {command}: state {fields[0]}, {fields[11]} + {fields[12]} ticks, in {waits}")
        if shutil.which("gdb"):
            try:
                stacks = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 24"], timeout=60,
                                        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
                text += [line for line in stacks.stdout.splitlines() if re.match(r"#|Thread ", line)]
            except subprocess.TimeoutExpired:
                pass
    return "\n".join(text)


class Result:
    """What a job left: returncode (None: killed at the limit), stdout and stderr (bytes), directory, seconds; standing:
    where its processes were when it was killed at the limit."""

    def __init__(self, command, returncode, stdout, stderr, directory, seconds, leftovers, standing=""):
        self.standing = standing
        self.command, self.returncode, self.stdout, self.stderr = command, returncode, stdout, stderr
        self.directory, self.seconds, self.leftovers = directory, seconds, leftovers
        self.timed_out = returncode is None

    def ranks(self):
        """{rank: object of rank-NNNNN.json} of the first world."""
        return reports.load(self.directory)

    def text(self):
        """The whole story, for the message of a failed assertion."""
        return (f"{' '.join(self.command)}\nstatus {self.returncode}, {self.seconds:.1f} s\n"
                f"--- stdout\n{self.stdout.decode(errors='replace')[-4000:]}\n"
                f"--- stderr\n{self.stderr.decode(errors='replace')[-4000:]}" +
                (f"\n--- where it stood\n{self.standing}" if self.standing else ""))


def emulated(program):
    """Is it of another machine than this Python (scripts/matrix, arm64)?"""
    with open(program, "rb") as file:
        return file.read(20)[18] != {"x86_64": 62, "aarch64": 183}[platform.machine()]


def standard_abi(mpi):
    """Are the programs of the standard ABI, and this MPI is behind it?"""
    return os.path.basename(os.environ.get("RESIL_TEST_MPI_LIBRARY", "")) == mpi


@functools.lru_cache
def openmpi_version():
    """(major, minor, release) of mpirun.openmpi."""
    text = subprocess.run(["mpirun.openmpi", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(number) for number in re.search(r"(\d+)\.(\d+)\.(\d+)", text).groups())


@functools.lru_cache
def mpich_version():
    """(major, minor, release) of mpirun.mpich."""
    text = subprocess.run(["mpirun.mpich", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(number) for number in re.search(r"Version: *(\d+)\.(\d+)\.(\d+)", text).groups())


def before_mpi4(mpi):
    """MPICH before 4.0 (Debian 11's 3.4.1), which has MPI 3.1."""
    return mpi == "mpich" and mpich_version() < (4,)


def loses_messages(mpi):
    """Debian 12's MPICH 4.0.2 is said to, with three or more ranks on two cores: docs/PLATFORMS.md."""
    return mpi == "mpich" and mpich_version() < (4, 2)


def openmpi_has(framework, component):
    """Whether Open MPI was built with a component of which the name begins so."""
    text = subprocess.run(["ompi_info"], capture_output=True, text=True, check=True).stdout
    return re.search(rf"^ *MCA {framework}: {component}", text, re.M) is not None


def _openmpi_options(options):
    """As this version has its components: Open MPI 5 has one-sided transfers over messages no more."""
    options = list(options)
    for at, word in enumerate(options):
        if word == "osc" and "pt2pt" in options[at + 1] and openmpi_version() >= (5,):
            return options[:at - 1] + options[at + 2:]
        if word == "osc" and options[at + 1] == "^rdma" and openmpi_version() >= (5,):
            return options[:at - 1] + options[at + 2:]  # nothing else is left that has windows over given memory
        if word == "osc" and options[at + 1] == "^rdma" and openmpi_version() < (4, 1, 1):
            options[at + 1] = "^rdma,ucx"  # 4.1.0: MPI_Win_create fails natively without a fast network
    return options


def launcher(mpi, ranks, environment, options=()):
    """The command line up to the program. `environment` is what the ranks get beyond the launcher's own."""
    line, environment = [f"mpirun.{mpi}"], _with_mpi_library(environment)
    if mpi == "openmpi":
        line += ["--oversubscribe"] if ranks > 2 else []
        line += shlex.split(os.environ.get("RESIL_TEST_OPENMPI", "")) + _openmpi_options(options)
        for name, value in environment.items():
            line += ["-x", f"{name}={value}"]
    else:
        line += list(options)
        for name, value in environment.items():
            line += ["-genv", name, value]
    return line + ["-n", str(ranks)]


def launcher_of_parts(mpi, parts):
    """The whole command line of a job whose ranks are unlike: (environment, command) for each rank."""
    if mpi == "openmpi":  # one application: mpirun 5.0.7 crashes when it is given two
        script = os.path.join(scratch(), "rank")
        with open(script, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\ncase $OMPI_COMM_WORLD_RANK in\n')
            for rank, (environment, command) in enumerate(parts):
                exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in environment.items())
                file.write(f"{rank}) {exports}exec {' '.join(map(shlex.quote, command))} ;;\n")
            file.write("esac\n")
        os.chmod(script, 0o755)
        return launcher(mpi, len(parts), {}) + [script]
    line = [f"mpirun.{mpi}"]
    for rank, (environment, command) in enumerate(parts):
        line += [":"] if rank else []
        line += ["-n", "1", *(word for name, value in environment.items() for word in ("-env", name, value)), *command]
    return line


def rank_environment(preload, directory, env=None, tools_before=(), tools_after=()):
    """What the ranks get: LD_PRELOAD with further tools around the library, RESIL_DIR, and `env`."""
    chain = list(tools_before) + ([library()] if preload else []) + list(tools_after)
    environment = {"LD_PRELOAD": ":".join(chain)} if chain else {}
    if preload:
        environment.update(RESIL_DIR=directory, RESIL_FILES=FILES)
    environment.update(env or {})
    return _with_mpi_library(environment)


def run(mpi, ranks, command, env=None, preload=True, timeout=60, options=(), cwd=None, stdin=b"", directory=None,
        tools_before=(), tools_after=(), spawns=False):
    """Runs `command` on `ranks` ranks; a Result. Nothing of the job is alive afterwards. spawns: the ranks' environment is
    for processes that they spawn, too: Open MPI 5 and 6 give these what its launcher inherited, and nothing of -x."""
    given, directory = directory, directory or os.path.join(scratch(), "report")
    environment = rank_environment(preload, directory, env, tools_before, tools_after)
    line = launcher(mpi, ranks, environment, options) + list(command)
    fresh = not os.path.exists(directory)
    inherited = environment if spawns and mpi == "openmpi" and openmpi_version() >= (5,) else None
    for left in (2, 1, 0):
        result = start(line, directory, env=inherited, timeout=timeout, cwd=cwd, stdin=stdin)
        why = left and (not given or fresh) and _native_defect(mpi, result)
        if not why:
            break
        print(f"run again: {why}, as it does natively: {' '.join(command)}", flush=True)
        remove_rings(directory)
        shutil.rmtree(directory, ignore_errors=True)
    return result


def _native_defect(mpi, result):
    """What of an MPI's own has ended the job otherwise than the program would: docs/PLATFORMS.md. None: nothing known."""
    if mpi != "openmpi":
        return None
    if result.returncode == 139 and openmpi_version()[:2] == (5, 0):
        # In MPI_Win_allocate, in a tenth of the runs of rma_checks: what has come is given to a function that it does not have.
        said = result.stdout + result.stderr
        if b"mca_btl_sm_poll_handle_frag" in said or re.search(rb"==== backtrace .*\n(?: \d .*lib(?:ucs|c)\.so.*\n)+ \d +\[0x\w+\]\n===", said):
            return "Open MPI 5.0.7 crashed in btl/sm"
    if result.returncode == 213 and openmpi_version() >= (5,) and not result.stdout and not os.path.exists(result.directory or ""):
        return "Open MPI's launcher ended before any rank ran"  # twice in some thousand jobs, while others start
    if openmpi_version()[:2] == (4, 1) and result.timed_out and "PMIx_server_finalize" in result.standing:
        return "Open MPI 4.1's launcher hung after the last rank had ended"
    return None


def _launcher_alone(process, mark):
    """Of the job nothing but the launcher is left."""
    return _carriers(mark) == [process.pid]


def start(line, directory=None, env=None, timeout=60, cwd=None, stdin=b""):
    """Runs any command line under the same rules as run()."""
    mark = secrets.token_hex(8)
    began = time.monotonic()
    is_launcher = os.path.basename(line[0]) == "mpirun.openmpi"
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd,
                               env=clean_environment({MARK: mark, **(env or {})}), start_new_session=True)
    try:
        stdout, stderr = patience.communicate(process, stdin, timeout, stuck=lambda: is_launcher and _launcher_alone(process, mark))
        returncode, standing = process.returncode, ""
    except subprocess.TimeoutExpired:
        standing = _standing(mark)
        _kill(mark)
        stdout, stderr = process.communicate()
        returncode = None
    seconds = time.monotonic() - began
    leftovers = _left_behind(mark) if returncode is not None else []
    _kill(mark)
    return Result(line, returncode, stdout, stderr, directory, seconds, leftovers, standing)


_running = []


@atexit.register
def _end_running():
    for job in list(_running):
        _kill(job.mark)


class Running:
    """A job that goes on while somebody looks at it; what it prints goes to files. end() must be called; when the
    script ends before, the job is killed."""

    def __init__(self, line, directory=None, env=None, cwd=None):
        self.line, self.directory, self.mark = line, directory, secrets.token_hex(8)
        folder = scratch()
        self.output = [os.path.join(folder, name) for name in ("stdout", "stderr")]
        self.began = time.monotonic()
        with open(self.output[0], "wb") as out, open(self.output[1], "wb") as err:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd,
                                            env=clean_environment({MARK: self.mark, **(env or {})}),
                                            start_new_session=True)
        _running.append(self)
        self.seconds = self.ended_ns = None  # until it ended by itself
        self.result = None  # until end()

    def poll(self):
        """The launcher's status; None while it runs."""
        if self.process.poll() is not None and self.seconds is None:
            self.seconds, self.ended_ns = time.monotonic() - self.began, time.time_ns()
        return self.process.returncode

    def ranks(self):
        """{rank: pid} of the processes that a launcher started as ranks."""
        found = {}
        for pid in _carriers(self.mark):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    names = dict(word.split(b"=", 1) for word in file.read().split(b"\0") if b"=" in word)
            except OSError:
                continue
            rank = names.get(b"OMPI_COMM_WORLD_RANK", names.get(b"PMI_RANK"))
            if rank is not None:
                found[int(rank)] = pid
        return found

    def end(self):
        """Kills what is left; a Result, whose returncode is None when the launcher had to be killed. The same when called
        again."""
        if self.result:
            return self.result
        returncode = self.poll()
        seconds = self.seconds or time.monotonic() - self.began
        leftovers = _left_behind(self.mark) if returncode is not None else []
        _kill(self.mark)
        self.process.wait()
        if self in _running:
            _running.remove(self)
        texts = []
        for path in self.output:
            with open(path, "rb") as file:
                texts.append(file.read())
        discard(os.path.dirname(self.output[0]))
        self.result = Result(self.line, returncode, *texts, self.directory, seconds, leftovers)
        return self.result


def run_tool(*arguments):
    """What `scripts/resil ... --json` prints."""
    done = patience.run([sys.executable, os.path.join(ROOT, "scripts", "resil"), *arguments], capture_output=True,
                        timeout=60)
    assert done.returncode in (0, 1, 3), done.stderr.decode()
    return json.loads(done.stdout)


def live_rings(directory):
    """Ring files in /dev/shm that the reports of the directory name and that still exist."""
    return [path for path in reports.rings(directory) if path.startswith("/dev/shm/") and os.path.exists(path)]


def remove_rings(directory):
    """Ring files of jobs that were killed, and what lies beside them: what a helper, the tool or the next job would take."""
    for path in live_rings(directory):
        for name in (path, path[:-len(".ring")] + ".node"):
            with contextlib.suppress(FileNotFoundError):  # another job's start may sweep what a dead one left
                os.unlink(name)
