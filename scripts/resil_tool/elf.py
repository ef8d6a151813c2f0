# SPDX-License-Identifier: Apache-2.0
"""What an executable's ELF headers say: machine, how it is linked, which MPI it needs, which MPI functions it imports. Reads
the file, believes nothing in it."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import struct

MACHINES = {"x86_64": 62, "aarch64": 183}
MOST = 1 << 26  # bytes of a table that are read

_INTERP, _DYNAMIC, _LOAD = 3, 2, 1
_NEEDED, _STRTAB, _STRSZ, _SYMTAB = 1, 5, 10, 6


@dataclasses.dataclass
class Program:
    """`bits`, `machine`: of the ELF header. `dynamic`: has a loader, so that something can be preloaded."""
    path: str
    bits: int
    machine: int
    dynamic: bool
    setuid: bool
    needed: list
    imports: list  # names of functions and data of MPI that it takes from elsewhere

    @property
    def mpi(self) -> str:
        """openmpi, mpich, standard; "" when it names none of them, as scripts' interpreters do."""
        for name in self.needed:
            if re.fullmatch(r"libmpi(_mpifh|_usempif08|_usempi\w*)?\.so\.(20|40|80)", name) or "open-pal" in name:
                return "openmpi"
            if re.match(r"libmpich(fort|f90|cxx)?\.so|libmpi(fort|cxx)?\.so\.12|libmpi_cray|libmpi_gnu|libmpi_intel", name):
                return "mpich"
            if name.startswith("libmpi_abi.so"):
                return "standard"
        return ""


def read(path: str) -> Program | None:
    """None: not an ELF file, or not readable."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            head = file.read(64)
            if len(head) < 52 or head[:4] != b"\x7fELF" or head[4] not in (1, 2) or head[5] not in (1, 2):
                return None
            order = "<" if head[5] == 1 else ">"
            machine = struct.unpack_from(order + "H", head, 18)[0]
            found = Program(path, 32 * head[4], machine, False, bool(status.st_mode & (stat.S_ISUID | stat.S_ISGID)), [], [])
            if found.bits == 64:
                _dynamic(file, head, order, found)
            else:
                found.dynamic = True  # of no interest: it is refused for its bits
            return found
    except (OSError, struct.error, ValueError, MemoryError):
        return None


def _dynamic(file, head: bytes, order: str, found: Program):
    offset, size, count = struct.unpack_from(order + "Q", head, 32)[0], *struct.unpack_from(order + "HH", head, 54)
    loads, dynamic = [], None
    for i in range(min(count, 256)):
        file.seek(offset + i * size)
        kind, _, at, address, _, length = struct.unpack_from(order + "IIQQQQ", file.read(56))
        if kind == _LOAD:
            loads.append((address, length, at))
        elif kind == _DYNAMIC:
            dynamic = at, length
        found.dynamic |= kind == _INTERP
    if not dynamic:
        return
    file.seek(dynamic[0])
    raw, tags, needed = file.read(min(dynamic[1], 1 << 20)), {}, []
    for tag, value in struct.iter_unpack(order + "QQ", raw[:len(raw) // 16 * 16]):
        if tag == 0:
            break
        if tag == _NEEDED:
            needed.append(value)
        tags.setdefault(tag, value)

    def place(address):
        return next((at + address - start for start, length, at in loads if start <= address < start + length), None)
    if _STRTAB not in tags or place(tags[_STRTAB]) is None:
        return
    file.seek(place(tags[_STRTAB]))
    strings = file.read(min(tags.get(_STRSZ, 0), MOST))

    def text(at):
        return strings[at:strings.index(b"\0", at)].decode("utf-8", "replace") if at < len(strings) else ""
    found.needed = [text(at) for at in needed]
    if _SYMTAB not in tags or place(tags[_SYMTAB]) is None:
        return
    file.seek(place(tags[_SYMTAB]))
    # Their number is written nowhere that is easy to read; the strings follow the symbols in what linkers make.
    room = place(tags[_STRTAB]) - place(tags[_SYMTAB])
    raw = file.read(min(room, MOST)) if room > 0 else b""
    for name, _, _, section, _, _ in struct.iter_unpack(order + "IBBHQQ", raw[:len(raw) // 24 * 24]):
        word = text(name) if section == 0 and name else ""
        if re.match(r"P?MPI_|p?mpi_", word):
            found.imports.append(word)


def machine_here() -> int | None:
    return MACHINES.get(os.uname().machine)


def bindings(program: Program) -> list[str]:
    """Languages whose MPI functions it imports: "C", "mpif.h or use mpi", "use mpi_f08"."""
    found = []
    if any(name.startswith(("MPI_", "PMPI_")) for name in program.imports):
        found.append("C")
    fortran = [name for name in program.imports if name.startswith(("mpi_", "pmpi_"))]
    if any("f08" not in name for name in fortran):
        found.append("mpif.h or use mpi")
    if any("f08" in name for name in fortran):
        found.append("use mpi_f08")
    return found
