# SPDX-License-Identifier: Apache-2.0
"""What /proc says about a process, and which signal a word means. Reads /proc only; sends nothing."""

from __future__ import annotations

import os
import re
import signal

STATES = {"R": "running", "S": "sleeping", "D": "uninterruptible sleep (state D)", "T": "stopped (state T)",
          "t": "stopped by a debugger (state t)", "Z": "dead (zombie)", "X": "dead"}

# Tasks of an array as the library names them (shim/presence/identity.cpp): job, task, what a task is called that is none.
_ARRAYS = (("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", ""), ("LSB_JOBID", "LSB_JOBINDEX", "0"), ("JOB_ID", "SGE_TASK_ID", "undefined"))
_ID_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "COBALT_JOBID", "JOB_ID")


def _read(pid: int, name: str, limit: int = 1 << 24) -> bytes | None:
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read(limit)
    except (OSError, ValueError):
        return None


def stat(pid: int) -> tuple[str, int, int] | None:
    """(state letter, parent, start time in clock ticks after boot), None when there is no such process."""
    raw = _read(pid, "stat") if pid > 0 else None
    try:
        fields = raw.rsplit(b")", 1)[1].split()  # the name before it may hold spaces and parentheses
        return fields[0].decode(), int(fields[1]), int(fields[19])
    except (AttributeError, IndexError, ValueError, UnicodeDecodeError):
        return None


def alive(pid: int, start_ticks: int) -> bool:
    """Whether the process that had this pid and start time still runs. start_ticks 0: not known, the pid decides."""
    now = stat(pid)
    return bool(now and now[0] not in "ZX" and (not start_ticks or now[2] == start_ticks))


def namespace_is_ours(namespace: int) -> bool:
    """Whether pids of that pid namespace (its inode; 0: not known) mean here what they mean there."""
    try:
        return not namespace or (os.stat("/proc/self/ns/pid").st_ino == namespace
                                 and os.readlink("/proc/self") == str(os.getpid()))
    except OSError:
        return False


def boot_id() -> str:
    """Of this machine's present boot: hosts may share a host name. "" when not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def status(pid: int) -> dict[str, str]:
    """Lines of /proc/PID/status, for example {"SigCgt": "0000000000000001"}."""
    raw = _read(pid, "status") or b""
    pairs = (line.split(":", 1) for line in raw.decode("utf-8", "replace").split("\n") if ":" in line)
    return {name: value.strip() for name, value in pairs}


def has_signal(fields: dict[str, str], mask: str, number: int) -> bool:
    """Bit of a signal mask (SigCgt, SigBlk, ShdPnd) of `status`."""
    try:
        return bool(int(fields[mask], 16) >> (number - 1) & 1)
    except (KeyError, ValueError):
        return False


def real_uid(fields: dict[str, str]) -> int:
    try:
        return int(fields["Uid"].split()[0])
    except (KeyError, ValueError, IndexError):
        return -1


def mappings(pid: int) -> list[tuple[str, int, str]] | None:
    """(device "fd:01", inode, path) of each file mapping; None when they may not be read."""
    raw = _read(pid, "maps")
    if raw is None:
        return None
    found = []
    for line in raw.decode("utf-8", "surrogateescape").split("\n"):
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[4] != "0":
            found.append((fields[3], int(fields[4]), fields[5]))
    return found


def device_text(device: int) -> str:
    """A device number the way /proc/PID/maps writes it."""
    return "%02x:%02x" % (os.major(device), os.minor(device))


def environment(pid: int) -> dict[str, str]:
    """Environment at exec, empty when it may not be read."""
    raw = _read(pid, "environ") or b""
    pairs = (item.split("=", 1) for item in raw.decode("utf-8", "surrogateescape").split("\0") if "=" in item)
    return {name: value for name, value in pairs}


def scheduler_ids(variables: dict[str, str]) -> list[str]:
    """All names under which the scheduler's job goes: "4711", "4711.0", "123.server", "123"."""
    ids = []
    for job, task, none in _ARRAYS:
        if variables.get(job) and variables.get(task, none) not in ("", none):
            ids += [variables[job], variables[job] + "_" + variables[task], "%s[%s]" % (variables[job], variables[task])]
    for name in _ID_VARIABLES:
        value = variables.get(name)
        if not value:
            continue
        ids += [value, value.split(".")[0]]
        if name == "SLURM_JOB_ID" and variables.get("SLURM_STEP_ID"):
            ids.append("%s.%s" % (value, variables["SLURM_STEP_ID"]))
    return ids


def ancestors(pid: int) -> list[int]:
    """The process itself, its parent, … up to 64 generations."""
    chain = []
    while pid > 1 and pid not in chain and len(chain) < 64:
        chain.append(pid)
        now = stat(pid)
        pid = now[1] if now else 0
    return chain


def wchan(pid: int) -> str:
    raw = (_read(pid, "wchan", 128) or b"").decode("ascii", "replace").strip()
    return "" if raw == "0" else raw


def all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def maps_any_of(inodes: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Which of the files (device text, inode) some process on this node still maps, as far as it may be read. The
    guard for processes whose pid reads differently here, in a container for example."""
    found = set()
    for pid in all_pids() if inodes else []:
        for device, inode, _ in mappings(pid) or []:
            if (device, inode) in inodes:
                found.add((device, inode))
    return found


# The signals RESIL_SIGNAL takes (shim/config/config_parse.cpp): none that reports a fault or that cannot be caught.
DUMP_SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "ALRM", "VTALRM", "URG", "WINCH", "IO", "PWR", "XCPU",
                "XFSZ")


def signal_number(word: str) -> int | None:
    """"HUP", "SIGUSR1", "RTMIN+3"; None: off, or nothing that RESIL_SIGNAL takes."""
    word = word.strip().upper()
    word = word[3:] if word.startswith("SIG") else word
    if word in DUMP_SIGNALS:
        return int(getattr(signal, "SIG" + word))
    real_time = re.fullmatch(r"RTMIN(?:\+([0-9]{1,2}))?|RTMAX(?:-([0-9]{1,2}))?", word)
    if not real_time:
        return None
    number = (int(signal.SIGRTMIN) + int(real_time.group(1) or 0) if word.startswith("RTMIN")
              else int(signal.SIGRTMAX) - int(real_time.group(2) or 0))
    return number if int(signal.SIGRTMIN) <= number <= int(signal.SIGRTMAX) else None


def signal_word(number: int) -> str:
    if number >= int(signal.SIGRTMIN):
        return "RTMIN+%d" % (number - int(signal.SIGRTMIN))
    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return "%d" % number
