# SPDX-License-Identifier: Apache-2.0
"""In which system call a thread of another process sleeps, with the file that it is about: `open("/scratch/fifo")`. Reads /proc only;
the process does not notice. Where the kernel does not permit it (another user, ptrace_scope), nothing is known."""

from __future__ import annotations

import os
import platform

from . import process
from .text import clean

# Number: (name, kind of its first arguments): p path, d directory and path, f descriptor, "" none of these.
_X86_64 = {0: ("read", "f"), 1: ("write", "f"), 2: ("open", "p"), 4: ("stat", "p"), 5: ("fstat", "f"), 7: ("poll", ""), 16: ("ioctl", "f"),
           17: ("pread", "f"), 18: ("pwrite", "f"), 19: ("readv", "f"), 20: ("writev", "f"), 23: ("select", ""), 34: ("pause", ""),
           35: ("nanosleep", ""), 42: ("connect", "f"), 43: ("accept", "f"), 45: ("recvfrom", "f"), 47: ("recvmsg", "f"), 61: ("wait4", ""),
           72: ("fcntl", "f"), 73: ("flock", "f"), 74: ("fsync", "f"), 75: ("fdatasync", "f"), 76: ("truncate", "p"), 77: ("ftruncate", "f"),
           78: ("getdents", "f"), 80: ("chdir", "p"), 82: ("rename", "p"), 83: ("mkdir", "p"), 87: ("unlink", "p"), 202: ("futex", ""),
           217: ("getdents", "f"), 230: ("clock_nanosleep", ""), 232: ("epoll_wait", ""), 257: ("openat", "d"), 262: ("newfstatat", "d"),
           270: ("pselect", ""), 271: ("ppoll", ""), 281: ("epoll_pwait", ""), 285: ("fallocate", "f"), 295: ("preadv", "f"),
           296: ("pwritev", "f"), 332: ("statx", "d"), 437: ("openat2", "d")}
_AARCH64 = {22: ("epoll_pwait", ""), 25: ("fcntl", "f"), 29: ("ioctl", "f"), 32: ("flock", "f"), 34: ("mkdirat", "d"), 35: ("unlinkat", "d"),
            46: ("ftruncate", "f"), 47: ("fallocate", "f"), 56: ("openat", "d"), 61: ("getdents", "f"), 63: ("read", "f"), 64: ("write", "f"),
            65: ("readv", "f"), 66: ("writev", "f"), 67: ("pread", "f"), 68: ("pwrite", "f"), 72: ("pselect", ""), 73: ("ppoll", ""),
            79: ("newfstatat", "d"), 82: ("fsync", "f"), 83: ("fdatasync", "f"), 98: ("futex", ""), 101: ("nanosleep", ""),
            115: ("clock_nanosleep", ""), 202: ("accept", "f"), 203: ("connect", "f"), 207: ("recvfrom", "f"), 212: ("recvmsg", "f"),
            260: ("wait4", ""), 291: ("statx", "d"), 437: ("openat2", "d")}
_TABLE = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(platform.machine(), {})

_FILES = ("read", "write", "open", "stat", "fstat", "pread", "pwrite", "readv", "writev", "preadv", "pwritev", "fcntl", "flock", "fsync",
          "fdatasync", "truncate", "ftruncate", "getdents", "chdir", "rename", "mkdir", "unlink", "mkdirat", "unlinkat", "openat", "openat2",
          "newfstatat", "statx", "fallocate")


def system_call(pid: int, tid: int = 0) -> dict | None:
    """{"name", "file", "text", "state", "io"} of a thread that sleeps in a system call; None while it runs, or where it is not
    known. `io`: the call is about a file of a file system, a FIFO or a device, and no socket."""
    now = process.stat(pid)
    try:
        with open("/proc/%d/task/%d/syscall" % (pid, tid or pid), encoding="ascii") as file:
            words = file.read(400).split()
        number, arguments = int(words[0]), [int(word, 16) for word in words[1:7]]
    except (OSError, ValueError, IndexError):
        return None  # "running", or not permitted
    if number < 0 or len(arguments) < 2:
        return None
    name, kind = _TABLE.get(number, ("system call %d" % number, ""))
    path = _string(pid, arguments[0]) if kind == "p" else _string(pid, arguments[1]) if kind == "d" else \
        _descriptor(pid, arguments[0]) if kind == "f" else ""
    io = name in _FILES and not path.startswith(("socket:", "anon_inode:"))
    text = '%s("%s")' % (name.removesuffix("at").removesuffix("at2") if name.startswith("open") else name, path) if path else name
    return {"name": name, "file": path, "text": text, "state": now[0] if now else "", "io": io}


def _descriptor(pid: int, number: int) -> str:
    try:
        return clean(os.readlink("/proc/%d/fd/%d" % (pid, number & 0xffffffff)), 300)
    except OSError:
        return ""


def _string(pid: int, address: int) -> str:
    """Text at that address of the process; "" where it may not be read."""
    try:
        with open("/proc/%d/mem" % pid, "rb", buffering=0) as memory:
            memory.seek(address)
            room = 4096 - address % 4096  # a page: the next one may not be there
            data = memory.read(room)
            if b"\0" not in data:
                memory.seek(address + room)
                data += memory.read(4096)
    except (OSError, ValueError, OverflowError):
        return ""
    return clean(data.split(b"\0", 1)[0].decode("utf-8", "replace"), 300)
