# SPDX-License-Identifier: Apache-2.0
"""The only place of the tool that sends a signal, and the tests that a process must pass before it does.

A rank passes when all of this holds: its ring lies in the node's ring directory and belongs to the process's user, who
is the caller (or the caller is root); the ring's pid and start time are those of a living process; that process has
libresil mapped and this very ring too (a launcher or shell has the library and no ring; a program that the rank has
become by exec has neither the ring nor the handlers); and it catches the signal. Otherwise nothing is sent.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import struct

from . import process
from .job import LiveRing, owner_name
from .records import Rank

# Sent along: the rank then writes its file, and nothing to the job's standard error (detectors/dump/writer.h).
_TOOL_MARK = 0x6c69736572
_SI_QUEUE = -1
_PIDFD_SEND_SIGNAL = 424  # the same number on all machines

_LIBRARY = re.compile(r"/libresil[^/]*\.so[^/]*$")


def signal_of(ring: LiveRing, rank: Rank | None) -> int | None:
    """Number of the rank's dump signal: as its report says, else its environment, else HUP. None: off or unknown."""
    word = (rank.signal if rank else "") or (
        process.environment(ring.pid).get("RESIL_SIGNAL") if ring.pid_is_ours else "") or "HUP"
    return process.signal_number(word)


def refusal(ring: LiveRing, number: int | None) -> str | None:
    """Why this rank must not be signalled; None when it passes every test."""
    if number is None:
        return "its dump signal is switched off (RESIL_SIGNAL)"
    word = "SIG" + process.signal_word(number)
    if not ring.pid_is_ours:
        return "it runs in another container, where pid %d means another process than here: ask from there" % ring.pid
    if ring.pid <= 1 or ring.pid == os.getpid():
        return "pid %d is no rank" % ring.pid
    now = process.stat(ring.pid)
    if not now or now[0] in "ZX":
        return "the process is gone"
    if not ring.start_ticks:
        return "the ring does not tell when its process started, so the pid may be another's"
    if now[2] != ring.start_ticks:
        return "pid %d belongs to another process now" % ring.pid
    fields = process.status(ring.pid)
    uid, caller = process.real_uid(fields), os.geteuid()
    if uid != ring.uid or caller not in (uid, 0):
        return "the process belongs to %s" % owner_name(uid)
    maps = process.mappings(ring.pid)
    if maps is None:
        return "its memory map cannot be read"
    if not any(_LIBRARY.search(path) for _, _, path in maps):
        return "the process does not carry libresil"
    path = os.path.realpath(ring.path)
    if not any((device, inode) == ring.inode or mapped == path for device, inode, mapped in maps):
        return "the process does not hold this ring"
    if process.has_signal(fields, "SigIgn", number) or not process.has_signal(fields, "SigCgt", number):
        return "the process does not catch %s, it would die of it or ignore it" % word
    return None


def foreign_handler(rank: Rank | None) -> str | None:
    """The rank's own note that somebody else's handler has the signal: what that would do nobody knows."""
    for note in rank.notes if rank else []:
        if "does not dump state" in note or "could not be taken back" in note:
            return note
    return None


def signal_rank(ring: LiveRing, rank: Rank | None) -> tuple[int | None, str | None]:
    """Signals the rank if it passes. Returns (signal number, None) or (number or None, why it was not sent)."""
    number = signal_of(ring, rank)
    handle = _open_handle(ring.pid)
    try:
        # The handle is taken before the tests: it names the process that is tested, whatever becomes of the pid.
        reason = foreign_handler(rank) or refusal(ring, number)
        if reason:
            return number, reason
        if handle is not None:
            if not _send_marked(handle, number):
                signal.pidfd_send_signal(handle, number)
        else:
            os.kill(ring.pid, number)
        return number, None
    except OSError as error:
        return number, error.strerror or "cannot be signalled"
    finally:
        if handle is not None:
            os.close(handle)


def _send_marked(handle: int, number: int) -> bool:
    """False: nothing was sent."""
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return False
    # siginfo_t of a 64-bit machine: signal, errno, code, padding, pid, uid, value
    info = struct.pack("=iiiiiIQ", number, 0, _SI_QUEUE, 0, os.getpid(), os.getuid(), _TOOL_MARK).ljust(128, b"\0")
    return call(ctypes.c_long(_PIDFD_SEND_SIGNAL), ctypes.c_int(handle), ctypes.c_int(number), ctypes.c_char_p(info), ctypes.c_uint(0)) == 0


def _open_handle(pid: int) -> int | None:
    """A handle on the process; None on kernels before 5.3, where the pid itself has to do."""
    if pid <= 1 or not hasattr(os, "pidfd_open") or not hasattr(signal, "pidfd_send_signal"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
