# SPDX-License-Identifier: Apache-2.0
"""What `resil doctor` looks at before it starts anything. Each function gives rows: name, state, what was found, what to do.
Reads files of this machine, runs launchers for their version and /bin/true with the library."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import resource
import shutil
import subprocess

from . import configuration, elf, job, launch, place
from . import launchers as known
from .job import Usage
from .text import bytes_text, clean, ranges

RING_BYTES = 3 << 20  # of a rank, rounded up: docs/ARCHITECTURE.md, "Memory"
TOOLS = {"darshan": "Darshan", "xalt": "XALT", "mpip": "mpiP", "libscorep": "Score-P", "libtau": "TAU", "vt_": "Trace Collector",
         "libmemkind": "memkind", "asan": "AddressSanitizer", "tsan": "ThreadSanitizer"}


def library(path: str | None) -> list:
    if path is None:
        return [("library", "failed", "libresil.so is not there", "meson compile -C build, or reinstall")]
    version, tool = place.library_version(path), place.version()
    state = "ok" if version == tool else "failed"
    rows = [("library", state, "%s, version %s" % (path, version or "not readable") + (
        "" if state == "ok" else "; this command is of version %s" % tool), "" if state == "ok" else "install both together")]
    said = _preloaded(path)
    if said:
        rows.append(("loader", "failed", "the loader says: %s" % said, "README.md, \"By hand\", explains the loader's lines"))
    elif _preloaded("libresil.so"):
        rows.append(("loader", "ok", "loads by its path; for the name alone its folder must be in the loader's path (ldconfig, module "
                     "load)", ""))
    else:
        rows.append(("loader", "ok", "loads by its path, and by its name alone", ""))
    return rows


def _preloaded(word: str) -> str:
    """What the loader says when it preloads that into a program; "" when nothing."""
    try:
        done = subprocess.run(["/bin/true"], env={"LD_PRELOAD": word, "LC_ALL": "C", "PATH": os.environ.get("PATH", ""),
                                                  "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")},
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return clean(error)
    said = done.stderr.decode(errors="replace").strip().split("\n")[0]
    return clean(said or ("status %d" % done.returncode if done.returncode else ""))


def settings(path: str) -> list:
    try:
        found = configuration.ask(path, dict(os.environ))
    except Usage as error:
        return [("settings", "warning", str(error), "run resil doctor where jobs run")]
    rows = [("settings", "warning", line, "correct or unset it") for line in found.warnings]
    if found.error:
        rows.append(("settings", "failed", found.error, "resil env shows all variables"))
    changed = [one for one in found.variables if one.origin != "default"]
    if not rows:
        rows.append(("settings", "ok", ", ".join("%s=%s" % (one.name, one.value) for one in changed) or "all defaults", ""))
    return rows


def launchers(command: list[str]) -> tuple[list, str | None]:
    """(rows, the launcher that the self-test takes)"""
    if command:
        try:
            found = known.identify(command[0])
        except Usage as error:
            return [("launcher", "failed", str(error), "")], None
        if found:
            return [("launcher", "ok", "%s: %s" % (command[0], found.name), "")], command[0]
    rows, first = [], None
    program = elf.read(known.executable(command[0]) or "") if command else None
    for name in ("srun", "mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich"):
        if not shutil.which(name):
            continue
        try:
            found = known.identify(name)
        except Usage as error:
            rows.append(("launcher", "note", str(error), ""))
            continue
        if name == "srun" and not os.environ.get("SLURM_JOB_ID"):
            rows.append(("launcher", "note", "srun is there, and this is no allocation of Slurm's", ""))
            continue
        fits = not (program and program.mpi and found.mpi) or program.mpi == found.mpi
        if first is None and fits:
            first = name
        if not any(found.name in row[2] for row in rows):
            rows.append(("launcher", "ok", "%s: %s" % (name, found.name), ""))
    if first is None:
        rows.append(("launcher", "failed", "neither srun nor mpirun nor mpiexec is in the path", "load the module of your MPI"))
    return rows, first


def program(command: list[str], launcher: str | None) -> list:
    if not command:
        return []
    line = command if launcher == command[0] else None
    try:
        paths = known.programs(known.identify(launcher).kind, line[1:]) if line else [known.executable(command[0])]
    except Usage:
        paths = []
    path = next(iter(filter(None, paths)), None)
    if not path:
        return [("program", "warning", "no program is named, or it is not on this node", "")]
    found = elf.read(path)
    if found is None:
        return [("program", "note", "%s is a script: what it starts gets the library, too" % path, "")]
    reasons = launch.refusals(known.identify(launcher) if line else None, line or command)
    if reasons:
        return [("program", "failed", reason, "docs/TOOL.md, \"What is refused\"") for reason in reasons]
    languages = elf.bindings(found)
    mpi = {"": "names no MPI itself: libraries of it may"}.get(found.mpi, launch.MPI_NAMES.get(found.mpi, ""))
    return [("program", "ok", "%s: dynamic, %s%s" % (path, mpi, "; calls MPI from " + ", ".join(languages) if languages else ""), "")]


def limits() -> list:
    rows, shm = [], job.shm_directory()
    try:
        room, cores = os.statvfs(shm), len(os.sched_getaffinity(0))
        free, need = room.f_bavail * room.f_frsize, cores * RING_BYTES
        state = "ok" if free >= need and os.access(shm, os.W_OK) else "warning"
        rows.append(("memory", state, "%s: %s free; %s for a rank on each of %d cores" % (
            shm, bytes_text(free), bytes_text(need), cores), "" if state == "ok" else
            "without room there, what a killed rank did last is lost; make /dev/shm larger"))
    except OSError as error:
        rows.append(("memory", "warning", "%s: %s; rings are in private memory, and a kill loses them" % (shm, error.strerror),
                     "mount /dev/shm"))
    size = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if size not in (resource.RLIM_INFINITY,) and size < RING_BYTES:
        rows.append(("limits", "warning", "files may have %s only: rings do not fit" % bytes_text(size), "ulimit -f unlimited"))
    scope = _text("/proc/sys/kernel/yama/ptrace_scope")
    own = _reads_itself()
    rows.append(("ptrace", "ok" if own else "warning", ("a process may read itself" if own else
                 "a process may not read itself (process_vm_readv: %s)" % (_errno or "?")) + "; ptrace_scope %s, which resil does not "
                 "need" % (scope or "not there"), "" if own else "stacks in dumps will be short; allow process_vm_readv in the "
                 "container's seccomp profile"))
    return rows


_errno = ""


def _reads_itself() -> bool:
    """process_vm_readv on itself: how dumps read memory without a fault. A seccomp profile may forbid it."""
    global _errno

    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    source, target = ctypes.create_string_buffer(b"resil", 8), ctypes.create_string_buffer(8)
    here, there = Vector(ctypes.addressof(target), 8), Vector(ctypes.addressof(source), 8)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        done = libc.process_vm_readv(os.getpid(), ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1),
                                     ctypes.c_ulong(0))
    except AttributeError:
        _errno = "libc has it not"
        return False
    _errno = errno.errorcode.get(ctypes.get_errno(), "") if done < 0 else ""
    return done == 8


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""


def other_tools() -> list:
    """Whatever else is preloaded: kept, and named."""
    rows = []
    for source, text in (("LD_PRELOAD", os.environ.get("LD_PRELOAD", "")), ("/etc/ld.so.preload", _text("/etc/ld.so.preload"))):
        for word in re.split(r"[:\s]+", text):
            if not word or os.path.basename(word) == "libresil.so":
                continue
            name = next((known_as for part, known_as in TOOLS.items() if part in os.path.basename(word).lower()), "")
            broken = _preloaded(word)
            rows.append(("preloads", "warning" if broken else "ok", "%s%s, by %s%s" % (
                word, " (%s)" % name if name else "", source, ": " + broken if broken else "; kept behind libresil.so"),
                "correct it: it reaches no program" if broken else ""))
    return rows or [("preloads", "ok", "nothing else is preloaded", "")]


def accelerators() -> list:
    """Runtimes that the loader would find; devices are not opened."""
    try:
        cache = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=False,
                               env=dict(os.environ, PATH=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        cache = ""
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    found = []
    for name, what in (("libcuda.so.1", "CUDA"), ("libamdhip64.so", "HIP"), ("libze_loader.so.1", "Level Zero")):
        listed = re.search(r"(?m)^\s*%s\S* .*=> (\S+)" % re.escape(name), cache)
        path = next((os.path.join(folder, name) for folder in folders if os.path.exists(os.path.join(folder, name))),
                    listed.group(1) if listed else "")
        if path:
            found.append("%s (%s)" % (what, path))
    devices = sorted(int(name[6:]) for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name))
    text = ", ".join(found) or "no runtime of CUDA, HIP or Level Zero: nothing of device buffers is needed"
    if devices:
        text += "; NVIDIA devices %s" % ranges(devices)
    elif os.path.exists("/dev/kfd"):
        text += "; AMD devices"
    return [("devices", "ok", text, "")]
