# SPDX-License-Identifier: Apache-2.0
"""Stacks of all threads of other processes, unwound and named from outside: by eu-stack (elfutils), else by gdb. Static functions, inlined
frames and source lines need debugging information, function names only a symbol table. Each process is stopped by ptrace while its
stacks are read. It goes on whatever happens to the reader: the kernel detaches a tracer that dies, and what an interrupted attach
leaves stopped is continued here."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time

from . import process, symbols
from .stacks import _from_main, _node
from .symbols import written
from .text import clean, seconds_text

SECONDS = 20.0      # for all processes together
EACH = 10.0         # for one of them
TRIES = 3           # of one that lives and gave nothing
MOST_FRAMES = 128
_EU_FRAME = re.compile(r"#\d+ +0x[0-9a-f]+(?: (?P<name>.*?))? - (?P<object>/\S+|\S+)?$")
_GDB_FRAME = re.compile(r"#\d+ +(?:0x[0-9a-f]+ in )?(?P<name>.+?) ?\((?:.*)\)(?: at (?P<line>\S+:\d+)| from (?P<object>\S+))?$")
_GDB_THREAD = re.compile(r"Thread \d+ \(.*?(?:LWP |process |Thread 0x[0-9a-f]+ \(LWP )(\d+)")
_OWN = ("resil-",)  # names of resil's helper threads
_LIBRARY = re.compile(r"(P?MPI_[A-Z]\w*|p?mpi_[a-z0-9_]+?_+)$")


def reader() -> str:
    """"eu-stack", "gdb", or "" where neither is installed."""
    return next((tool for tool in ("eu-stack", "gdb") if shutil.which(tool)), "")


def thread_name(pid: int, tid: int) -> str:
    try:
        with open("/proc/%d/task/%d/comm" % (pid, tid), encoding="utf-8", errors="replace") as file:
            return clean(file.read().strip(), 20)
    except OSError:
        return ""


def take(pids: list[int], seconds: float = SECONDS) -> tuple[dict[int, dict[int, list[dict]]], list[str]]:
    """({pid: {tid: frames, the innermost first}}, problems). A frame: function, source ("a.c:12", "" not known), object."""
    tool, found, problems = reader(), {}, []
    if not tool:
        return {}, ["neither eu-stack (elfutils) nor gdb is installed"]
    deadline = time.monotonic() + seconds
    for pid in pids:
        left = deadline - time.monotonic()
        if left <= 0:
            problems.append("no time for %d more processes" % (len(pids) - len(found)))
            break
        before = process.stat(pid)
        if before and before[0] in "Tt":
            problems.append("process %d is stopped already: left alone" % pid)
            continue
        # Reading a process whose threads come and go meanwhile fails now and then.
        for _ in range(TRIES):
            output, complaint = _run(tool, pid, min(left, EACH))
            _let_go(pid, before)
            threads = parse(tool, output)
            left = deadline - time.monotonic()
            if threads or left <= 0 or "not permitted" in complaint or not process.alive(pid, before[2] if before else 0):
                break
        if threads:
            found[pid] = {tid: frames for tid, frames in threads.items() if not thread_name(pid, tid).startswith(_OWN)}
        else:
            problems.append("process %d cannot be read by %s: %s" % (pid, tool, complaint or "ptrace is not permitted, or it ended"))
    return found, problems


def _run(tool: str, pid: int, seconds: float) -> tuple[str, str]:
    """(What it printed, its last complaint)."""
    command = ["eu-stack", "-i", "-s", "-m", "-n", str(MOST_FRAMES), "-p", str(pid)] if tool == "eu-stack" else [
        "gdb", "-batch", "-nx", "-iex", "set auto-load off", "-iex", "set debuginfod enabled %s" % ("on" if os.environ.get("RESIL_TOOL_DEBUGINFOD") == "1" else "off"), "-p", str(pid), "-ex",
        "thread apply all backtrace %d" % MOST_FRAMES]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds,
                              env=symbols.environment(), check=False)
    except subprocess.TimeoutExpired:
        return "", "not read in %s" % seconds_text(seconds)
    except (OSError, subprocess.SubprocessError) as error:
        return "", clean(str(error), 200)
    said = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return done.stdout.decode("utf-8", "replace"), clean(said[-1].strip(), 200) if said else ""


def _let_go(pid: int, before) -> None:
    """A reader that died between its attach and the stop that this asks for leaves a stopped process. Continues it, if it ran before."""
    for _ in range(5):
        now = process.stat(pid)
        if not now or not before or now[2] != before[2] or now[0] not in "Tt":
            return
        if now[0] == "T":
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.02)


def parse(tool: str, text: str) -> dict[int, list[dict]]:
    return _parse_eu(text) if tool == "eu-stack" else _parse_gdb(text)


def _frame(name, source: str, path) -> dict:
    source = os.path.basename(clean(source, 300))
    return {"function": written(clean(name or "", 200), source) or "?", "source": re.sub(r"^(.*:\d+):\d+$", r"\1", source),
            "object": os.path.basename(clean(path or "", 300))}


def _parse_eu(text: str) -> dict[int, list[dict]]:
    threads: dict[int, list[dict]] = {}
    frames: list[dict] | None = None
    for line in text.split("\n"):
        if line.startswith("TID ") and line[4:].rstrip(":").isdigit():
            frames = threads.setdefault(int(line[4:].rstrip(":")), [])
        elif frames is not None and line.startswith("#"):
            found = _EU_FRAME.match(line)
            frames.append(_frame(found.group("name") if found else "", "", found.group("object") if found else ""))
        elif frames and line.startswith("    ") and not frames[-1]["source"]:
            frames[-1].update(_frame(frames[-1]["function"], line.strip(), frames[-1]["object"]))
    return {tid: frames for tid, frames in threads.items() if frames}


def _parse_gdb(text: str) -> dict[int, list[dict]]:
    threads: dict[int, list[dict]] = {}
    frames: list[dict] | None = None
    for line in text.split("\n"):
        begin = _GDB_THREAD.match(line)
        if begin:
            frames = threads.setdefault(int(begin.group(1)), [])
        elif frames is not None and line.startswith("#"):
            found = _GDB_FRAME.match(line)
            if found:
                frames.append(_frame(found.group("name"), found.group("line") or "", found.group("object") or ""))
    return {tid: frames for tid, frames in threads.items() if frames}


def words(frame: dict) -> str:
    if frame["source"]:
        return "%s at %s" % (frame["function"], frame["source"])
    return "%s in %s" % (frame["function"], frame["object"]) if frame["object"] else frame["function"]


def own_frame(frames: list[dict], system) -> dict | None:
    """The innermost frame in the program's own code."""
    return next((frame for frame in frames if frame["object"] and not system.match(frame["object"])), None)


def shown(frames: list[dict]) -> list[str]:
    """The outermost first, from main on, down to the MPI call: what is below it is the library's own."""
    names = [words(frame) for frame in frames[::-1]]
    for depth, frame in enumerate(frames[::-1]):
        if _LIBRARY.match(frame["function"]) and not frame["object"].startswith("libresil"):
            names = names[:depth + 1]
            break
    kept = [name for name, frame in zip(names, frames[::-1]) if not frame["object"].startswith("libresil")]
    named = [re.sub(r"^(start_thread|__clone3?|clone)( .*)?$", "(thread)", name) for name in kept]
    return _from_main([name for depth, name in enumerate(named) if depth == 0 or name != "(thread)"])


def tree(stacks: dict) -> dict | None:
    """{"frame", "ranks", "count", "children"} of {(world, rank): {tid: frames}}: main threads and others, the smallest group first."""
    members = [(key, shown(frames)) for key in sorted(stacks) for frames in stacks[key].values()]
    return _node("all", members, 0) if members else None


def lines(node: dict, most: int = 40) -> list[str]:
    """The tree as text: a frame a line, ranks where they part."""
    out: list[str] = []

    def walk(one: dict, depth: int, ranks: str) -> None:
        for child in one["children"]:
            if len(out) >= most:
                return
            label = "" if child["ranks"] == ranks and len(one["children"]) == 1 else "%s: " % child["ranks"]
            out.append("%s%s%s" % ("  " * min(depth, 16), label, child["frame"]))
            walk(child, depth + 1, child["ranks"])
    walk(node, 0, "")
    return out + (["…"] if len(out) >= most else [])
