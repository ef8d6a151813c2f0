# SPDX-License-Identifier: Apache-2.0
"""Flight recorders and recordings as an OTF2 archive, for Vampir, Score-P's tools and the like: written by OTF2's own library through its
Python module. Takes the events that `trace` makes; a host is a node, a rank a process, a thread a location."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys

from .job import Usage
from .text import clean
from .trace import WORLD_STEP

DEBIAN = "/usr/lib/python3/dist-packages"  # where Debian puts modules of pure Python for its own interpreter
CHUNK = 256 * 1024                         # a thread's buffer; the smallest that OTF2 takes
_ROLES = {"collective": "COLL_OTHER", "file": "FILE_IO", "one-sided": "RMA", "message": "POINT2POINT", "completion": "POINT2POINT"}


def library():
    """The module otf2, with its enumerations. Raises Usage where it, or the library below it, is missing."""
    why = None
    for path in (None, DEBIAN):
        if path:
            sys.path.append(path)
        try:
            return importlib.import_module("otf2"), importlib.import_module("otf2.enums")
        except (ImportError, OSError, AttributeError) as error:
            why = why or error
        finally:
            if path:
                sys.path.remove(path)
    raise Usage("--otf2 needs OTF2 and its Python module, which are not here (Debian: python3-otf2; %s): %s" % (
        os.path.realpath(sys.executable), clean(why, 200)))


class Writer:
    """An archive in place of one trace file of `trace`; the same calls."""

    def __init__(self, directory: str):
        self.otf2, self.enums = library()
        if os.path.lexists(directory):
            raise Usage("%s exists: an archive is a new directory" % clean(directory))
        self.directory, self.count = directory, 0
        self.temporary = "%s.%d.tmp" % (directory.rstrip("/"), os.getpid())
        os.mkdir(self.temporary)
        self.archive = self.otf2.writer.Writer(self.temporary, chunk_size_events=CHUNK, timer_resolution=10**9)
        self.known = self.archive.definitions
        self.root = self.known.system_tree_node("resil", class_name="job")
        self.hosts, self.groups, self.regions, self.attributes, self.threads = {}, {}, {}, {}, {}

    def process(self, key, title: str, host: str = "") -> int:
        pid = key[1] + 1 + key[0] * WORLD_STEP
        name = clean(host, 64) or "host not known"
        if name not in self.hosts:
            self.hosts[name] = self.known.system_tree_node(name, class_name="node", parent=self.root)
        self.groups[pid] = self.known.location_group(clean(title, 200), system_tree_parent=self.hosts[name],
                                                     location_group_type=self.enums.LocationGroupType.PROCESS)
        return pid

    def thread(self, pid: int, tid: int, title: str) -> None:
        self._flush()
        self.location = self.known.location(clean(title, 200), group=self.groups[pid], type=self.enums.LocationType.CPU_THREAD)
        self.threads = []

    def event(self, **members) -> None:
        self.threads.append(members)
        self.count += 1

    def _flush(self) -> None:
        """The calls of one thread in their order: what begins within another call ends with it."""
        if not self.threads:
            return
        out = self.archive.event_writer_from_location(self.location)
        open_until: list[tuple[int, object]] = []
        last = 0

        def leave(until):
            nonlocal last
            while open_until and (until is None or open_until[-1][0] - open_until[-1][2] <= until):
                end, region, _ = open_until.pop()
                last = max(last, end if until is None else min(end, until))
                out.leave(last, region)
        for one in sorted(self.threads, key=lambda one: (one["ts"], -one.get("dur", 0))):
            begin = round(one["ts"] * 1000)
            end = begin + round(one.get("dur", 0) * 1000)
            leave(begin)
            last = begin = max(last, begin)
            end = max(begin, min(end, open_until[-1][0]) if open_until else end)
            region = self._region(clean(one["name"], 100), one["cat"])
            out.enter(begin, region, attributes={self._attribute(name, value): value if isinstance(value, int) and not isinstance(value, bool)
                                                 else clean(value, 400) for name, value in one["args"].items()})
            open_until.append((end, region, (end - begin) * 1e-6))  # a duration has 24 bits
        leave(None)
        self.threads = []

    def _region(self, name: str, category: str):
        if name not in self.regions:
            mpi = name.startswith("MPI_")
            self.regions[name] = self.known.region(
                name, region_role=getattr(self.enums.RegionRole, _ROLES.get(category, "FUNCTION")),
                paradigm=self.enums.Paradigm.MPI if mpi else self.enums.Paradigm.USER)
        return self.regions[name]

    def _attribute(self, name: str, value):
        kind = self.enums.Type.INT64 if isinstance(value, int) and not isinstance(value, bool) else self.enums.Type.STRING
        if (name, kind) not in self.attributes:
            self.attributes[name, kind] = self.known.attribute(name, "of a call", kind)
        return self.attributes[name, kind]

    def close(self, other: dict) -> None:
        self._flush()
        self.archive.description = json.dumps(other)[:2000]
        if other.get("epoch_seconds"):  # when timestamp 0 was
            self.archive._realtime_timestamp = other["epoch_seconds"] + (self.archive._first_timestamp or 0) / 1e9
        self.archive.close()
        os.rename(self.temporary, self.directory)

    def abandon(self) -> None:
        self.archive.close()
        shutil.rmtree(self.temporary, ignore_errors=True)
