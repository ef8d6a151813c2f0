# SPDX-License-Identifier: Apache-2.0
"""Function and source line of code addresses, by addr2line when it is installed. Runs addr2line; silent without it.

Never wrong rather than complete: an object file that changed after the job began is not asked, and a symbol names an
address only when it covers it (of a stripped program addr2line gives the nearest one, however far away).
"""

from __future__ import annotations

import bisect
import os
import re
import shutil
import stat
import struct
import subprocess
import time

from .text import clean

SECONDS = 15.0       # for all object files of one report together
MAX_ADDRESSES = 256  # of one object file
MAX_TABLE = 1 << 29  # bytes of one symbol table

# "lmp+0x1234 (main+0x56)", "/usr/bin/lmp+0x1234": how the dumps write a call site
SITE = re.compile(r"(?P<object>[^\s()+]+)\+0x(?P<offset>[0-9a-f]{1,16})(?P<symbol> \([^()]*\+0x[0-9a-f]+\))?")
_FORTRAN = re.compile(r"__(?P<module>[a-z]\w*?)_MOD_(?P<name>\w+)$")
_FORTRAN_PLACE = re.compile(r"\.f(?:or|pp|tn|\d\d)?:\d+$", re.I)
_OBJECT_LINE = re.compile(r"  (\S+) at 0x[0-9a-f]+: (/.*)$")


def lookup(sites, not_after: float = 0.0) -> dict[tuple[str, int], str]:
    """"function at file:line" for each (object file, return address in it) that addr2line knows.
    not_after: seconds since the epoch; an object file changed later is skipped. 0: no such test."""
    tool = shutil.which("addr2line")
    by_object: dict[str, list[int]] = {}
    for path, address in sites:
        if address > 0 and address not in by_object.setdefault(path, []) \
                and len(by_object[path]) < MAX_ADDRESSES:
            by_object[path].append(address)
    known: dict[tuple[str, int], str] = {}
    deadline = time.monotonic() + SECONDS
    for path, addresses in by_object.items():
        if tool and _usable(path, not_after) and time.monotonic() < deadline:
            known.update(_ask(tool, path, addresses, deadline - time.monotonic()))
    return known


def _usable(path: str, not_after: float) -> bool:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return path.startswith("/") and stat.S_ISREG(status.st_mode) and (not not_after or status.st_mtime <= not_after)


def _ask(tool: str, path: str, addresses: list[int], seconds: float) -> dict[tuple[str, int], str]:
    return {(path, address): " at ".join(filter(None, frames[0])) for address, frames in _chains_of(tool, path, addresses, seconds).items()}


def _chains_of(tool: str, path: str, addresses: list[int], seconds: float) -> dict[int, list[tuple[str, str]]]:
    """[(function, "file:line")] of each address that is known, the innermost first."""
    begun, chains_ = time.monotonic(), {}
    blocks = _blocks(_run(tool, ["-i", "-a", "-C", "-f", "-e", path], addresses, seconds))
    for address, lines in zip(addresses, blocks):
        found = [one for one in (_pair(path, address, lines[i], lines[i + 1]) for i in range(0, len(lines) - 1, 2)) if one]
        if found:
            chains_[address] = found
    # A contained procedure of Fortran has no name for the linker: of one that was inlined addr2line says that of the symbol around it.
    doubtful = [address for address, frames in chains_.items()
                if len(frames) > 1 and frames[0][0] in (frames[-1][0], "program") and _FORTRAN_PLACE.search(frames[0][1])]
    other = shutil.which("eu-addr2line") if doubtful else None
    lines = _run(other, ["-i", "-a", "-C", "-f", "-e", path], doubtful, seconds - (time.monotonic() - begun)) if other else ""
    names = {address: re.match(r"(\w+) inlined at ", block[0]) for address, block in zip(doubtful, _blocks(lines))}
    for address in doubtful:
        (_, place), (around, _), name = chains_[address][0], chains_[address][1], names.get(address)
        chains_[address][0] = (written(name[1], place) if name else around, place)
    return chains_


def _blocks(text: str) -> list[list[str]]:
    """What -a puts in front of each address takes apart what is said of it."""
    return [block.split("\n") for block in re.split(r"(?m)^0x[0-9a-f]+\n", text)[1:]]


def _run(tool: str, words: list[str], addresses: list[int], seconds: float) -> str:
    try:
        # A return address may be the first of the next line or function: ask for the call before it.
        done = subprocess.run([tool, *words] + ["%#x" % (address - 1) for address in addresses],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=seconds, env=environment(), check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


def environment() -> dict[str, str]:
    """Of the programs that read debugging information: not preloaded, and no network unless the user says so."""
    leave = {"LD_PRELOAD"} if os.environ.get("RESIL_TOOL_DEBUGINFOD") == "1" else {"LD_PRELOAD", "DEBUGINFOD_URLS"}
    return {name: value for name, value in os.environ.items() if name not in leave}


def _pair(path: str, address: int, function: str, line: str) -> tuple[str, str] | None:
    """(function, "file:line"), either of which may be "", of two lines of addr2line; None: it knows nothing."""
    function, line = clean(function, 80), re.sub(r" \(discriminator \d+\)$", "", clean(line, 400))
    place = os.path.basename(line) if not line.startswith("?") and not re.search(r":[0?]*$", line) else ""
    if function and function != "??" and (place or covered(path, address - 1)):
        return written(function, place), place
    return ("", place) if place else None


def chains(sites, not_after: float = 0.0) -> dict[tuple[str, int], list[tuple[str, str]]]:
    """As lookup(), with what the compiler inlined there: [(function, "file:line" or "")], the innermost first."""
    tool, deadline = shutil.which("addr2line"), time.monotonic() + SECONDS
    by_object: dict[str, list[int]] = {}
    for path, address in sites:
        if address > 0 and address not in by_object.setdefault(path, []) and len(by_object[path]) < MAX_ADDRESSES:
            by_object[path].append(address)
    known: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for path, addresses in by_object.items():
        if not tool or not _usable(path, not_after) or time.monotonic() >= deadline:
            continue
        known.update({(path, address): frames for address, frames in
                      _chains_of(tool, path, addresses, deadline - time.monotonic()).items()})
    return known


def written(name: str, source: str = "") -> str:
    """A function as the program's author wrote it: gfortran's __solver_MOD_step is solver::step, step_ of a Fortran file step."""
    module = _FORTRAN.match(name)
    if module:
        return "%s::%s" % (module.group("module"), module.group("name"))
    if name == "MAIN__":
        return "program"
    fortran = re.search(r"\.f\w*$", source.split(":")[0], re.IGNORECASE)
    return name[:-1] if fortran and name.endswith("_") else re.sub(r"(\.(constprop|isra|part|cold)(\.\d+)?)+$", "", name)


def covered(path: str, address: int) -> bool:
    """Whether the symbol of the object file that is nearest below the address reaches as far as that."""
    if path not in _tables:
        _tables[path] = _read_symbols(path)
    starts, sizes = _tables[path]
    index = bisect.bisect_right(starts, address) - 1
    return index >= 0 and address - starts[index] < sizes[index]


_tables: dict[str, tuple[list[int], list[int]]] = {}


def _read_symbols(path: str) -> tuple[list[int], list[int]]:
    """Addresses of the defined symbols that addr2line may name, in order, and how many bytes each covers. Empty for
    anything but a 64-bit little-endian ELF file."""
    found: dict[int, int] = {}
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return [], []
    try:
        head = os.pread(descriptor, 64, 0)
        if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
            return [], []
        offset, entry, count = struct.unpack_from("<Q", head, 40)[0], *struct.unpack_from("<HH", head, 58)
        sections = os.pread(descriptor, entry * count, offset) if entry >= 64 else b""
        for at in range(0, len(sections) - 63, entry or 64):
            kind, start, size = struct.unpack_from("<I", sections, at + 4)[0], *struct.unpack_from("<QQ", sections, at + 24)
            if kind not in (2, 11):  # SHT_SYMTAB, SHT_DYNSYM
                continue
            table = os.pread(descriptor, min(size, MAX_TABLE), start)
            for _, info, _, section, value, length in struct.iter_unpack("<IBBHQQ", table[:len(table) // 24 * 24]):
                if section and info & 15 in (0, 1, 2, 10):  # STT_NOTYPE, OBJECT, FUNC, GNU_IFUNC
                    found[value] = max(length, found.get(value, 0))
    except (OSError, ValueError, OverflowError, struct.error):
        return [], []
    finally:
        os.close(descriptor)
    starts = sorted(found)
    return starts, [found[start] for start in starts]


def site_text(site: tuple[str, int] | None, known: dict[tuple[str, int], str]) -> str:
    """"solve at step.cpp:88", else "app+0x1234", else ""."""
    if not site:
        return ""
    return known.get(site) or "%s+%#x" % (os.path.basename(site[0]), site[1])


def objects_of_dump(text: str) -> dict[str, str]:
    """Short name: path, from the list of object files that a dump ends with; a name that is not unique is left out."""
    objects: dict[str, str] = {}
    for line in text.split("\n"):
        found = _OBJECT_LINE.match(line)
        if found:
            objects[found.group(1)] = "" if objects.get(found.group(1), found.group(2)) != found.group(2) \
                else found.group(2)
    return {name: path for name, path in objects.items() if path}


def sites_in(sentence: str, objects: dict[str, str]) -> list[tuple[str, int]]:
    found = []
    for match in SITE.finditer(sentence):
        path = match.group("object") if match.group("object").startswith("/") else objects.get(match.group("object"))
        if path:
            found.append((path, int(match.group("offset"), 16)))
    return found


def resolve_sentence(sentence: str, objects: dict[str, str], known: dict[tuple[str, int], str]) -> str:
    """The sentence with every known "object+0xoffset" written as "function at file:line"."""
    def replace(match):
        path = match.group("object") if match.group("object").startswith("/") else objects.get(match.group("object"))
        return known.get((path, int(match.group("offset"), 16)), match.group(0)) if path else match.group(0)
    return SITE.sub(replace, sentence)
