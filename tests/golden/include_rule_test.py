#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom (docs/ARCHITECTURE.md, "Who may include whom"):

  a module includes itself and shim/, never another module
  shim/ never includes a module
  shim/model/ includes itself, shim/base/, the ring's format and memory: neither hooks nor I/O nor MPI

  an internal header (..._internal.h) is included by the files of its folder only
  of modules, none uses the private communicator but through shim/runtime/mailbox.h

And what no file has, because g++ 10 (Debian 11) does not: NEWER.

  include_rule_test.py ROOT
"""
import os
import re
import sys

MODULE_PARENTS = ("detectors", "pipeline")
MODULES_OF_CHECKSUM = ("fault", "record", "double_run")
# pipeline/gpu/ is how staging drives devices: one module in two folders.
PARTS = {"pipeline/gpu": "pipeline/staging"}
# What the model may take from elsewhere: what has neither hooks nor I/O.
FREE_OF_HOOKS = ("shim/model/", "shim/base/", "shim/ring/ring_format.h") + tuple(
    f"shim/runtime/{memory}.h" for memory in ("memory", "pool", "block_pool", "arena", "work_memory"))
NOT_IN_MODEL = {"<cstdio>", "<fstream>", "<iostream>", "<stdio.h>", "<fcntl.h>", "<unistd.h>", "<pthread.h>", "<dlfcn.h>", "<mpi.h>"}
NEWER = re.compile(r"^[^/\n]*?(\busing enum\b|\bstd::(?:bit_cast|format|source_location|to_underlying|move_only_function)\b)", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|(<[^>]+>))', re.M)


def module_of(path):
    """The module that a file of the library belongs to; "shim" for the shim, None for what is neither."""
    parts = path.split("/")
    if parts[0] == "shim":
        return "shim"
    if parts[0] == "checksum":
        return "checksum/" + parts[1] if len(parts) > 2 and parts[1] in MODULES_OF_CHECKSUM else "checksum"
    if parts[0] in MODULE_PARENTS and len(parts) > 2:
        of = "/".join(parts[:2])
        return PARTS.get(of, of)
    return None


def sources(root):
    for top in ("shim", "checksum", "detectors", "pipeline"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith((".h", ".cpp", ".inc", ".cu")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def included(root, path):
    """Headers of the library as paths from the root, and system headers in their brackets."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        for own, system in INCLUDE.findall(file.read()):
            beside = os.path.join(os.path.dirname(path), own)
            yield system or (os.path.normpath(beside) if os.path.exists(os.path.join(root, beside)) else own)


def communicates(root, path):
    """Uses the private communicator by its handle."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return module_of(path) != "shim" and re.search(r"^[^/]*\bprivate_comm\(\)", file.read(), re.M) is not None


def newer(root, path):
    """What of NEWER it has."""
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return NEWER.findall(file.read())


def breaks(path, header):
    """Why this include is against the rule; None if it is not."""
    if header.endswith("_internal.h") and os.path.dirname(header) != os.path.dirname(path):
        return "an internal header stays in its folder"
    if path.startswith("shim/model/"):
        if header.startswith("<"):
            return "the model has no I/O" if header in NOT_IN_MODEL else None
        generated = "/" not in header
        return None if generated or header.startswith(FREE_OF_HOOKS) else "the model includes nothing with hooks or I/O"
    if header.startswith("<"):
        return None
    of, to = module_of(path), module_of(header)
    if to in (None, "shim", of):
        return None
    return "shim/ never includes a module" if of == "shim" else "a module never includes another module"


def main(root):
    found = sorted((path, header, why) for path in sources(root) for header in included(root, path) if (why := breaks(path, header)))
    for path, header, why in found:
        print(f"{path} includes {header}: {why}. What two modules need belongs into shim/model/ or shim/runtime/.")
    own = sorted(path for path in sources(root) if communicates(root, path))
    for path in own:
        print(f"{path} uses the private communicator by its handle: messages of resil's own go through shim/runtime/mailbox.h.")
    late = sorted((path, what) for path in sources(root) for what in newer(root, path))
    for path, what in late:
        print(f"{path} has {what}, which g++ 10 does not have.")
    print(f"{sum(1 for _ in sources(root))} files, {len(found)} includes against the rule")
    return 1 if found or own or late else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
