#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several compilations as one step of the build, with every file that each of them read as its dependencies.

  compile.py KIND DEPFILE FOLDER OUTPUT... (WITH COMMAND... FROM SOURCE... [LINK ARGUMENT...])...

KIND: archive    the objects of all sources, one by one, so that a link takes only those that it needs
      program    all sources, linked by the first command with the arguments of all LINKs
      programs   one program for each source, in the order of the outputs: `COMMAND -o OUTPUT SOURCE ARGUMENT...`
      header     one source, a header, precompiled; a copy of it lies beside it for a compiler that refuses what is precompiled

Objects are kept in FOLDER. A source is compiled again when its command has changed, or a file that it read. A COMMAND may begin
with ccache.
"""
import os
import re
import shutil
import subprocess
import sys
import time

KINDS = ("archive", "program", "programs", "header")
PART = ("WITH", "FROM", "LINK")
SOURCE = (".c", ".cpp", ".f90")
FORTRAN = ".f90"  # names no files that it reads; what an INCLUDE or a module brings is an argument


def parts(words):
    """[(command, sources, arguments of the link)...]"""
    groups, into = [], None
    for word in words:
        if word == "WITH":
            groups.append(([], [], []))
        if word in PART:
            into = groups[-1][PART.index(word)]
        else:
            into.append(word)
    return groups


def headers(path):
    """What a file made by -MD names behind its first colon."""
    with open(path, encoding="utf-8") as rule:
        text = rule.read().replace("\\\n", " ")
    return re.findall(r"(?:\\ |\S)+", text.split(": ", 1)[1])


def run(command):
    if subprocess.run(command, check=False).returncode:
        print("failed:", " ".join(command), file=sys.stderr)
        sys.exit(1)


def is_current(target, note, said, files):
    """Made by this command, which began after the last change of any of the files."""
    try:
        with open(note, encoding="utf-8") as before:
            return before.read() == said and os.path.exists(target) and os.path.getmtime(note) >= max(map(os.path.getmtime, files()))
    except (OSError, IndexError):
        return False


def make(target, note, command, source, more=()):
    """Unless it is current. Returns the files that were read, as a rule of make writes them."""
    arguments = [path for path in (*command, *more) if path.endswith((*SOURCE, ".a", ".so")) and os.path.isfile(path)]
    said, rule, note = " ".join([*command, source, *more]), note + ".d", note + ".command"

    def files():
        return headers(rule) + arguments

    if is_current(target, note, said, lambda: [path.replace("\\ ", " ") for path in files()]):
        return files()
    began = time.time()
    if os.path.exists(note):
        os.remove(note)  # an interrupted step leaves nothing that looks made
    depends = ["-MD", "-MF", rule]
    if source.endswith(FORTRAN):
        depends = []
        with open(rule, "w", encoding="utf-8") as out:
            out.write(f"{target}: {source}\n")
    run([*command, *depends, "-o", target, source, *more])
    with open(note, "w", encoding="utf-8") as out:
        out.write(said)
    os.utime(note, (began, began))  # what changes while the compiler reads is newer
    return files()


def main(kind, depfile, folder, *words):
    at = words.index("WITH")
    outputs, groups = words[:at], parts(words[at:])
    os.makedirs(folder, exist_ok=True)
    # A precompiled header is not the same bytes twice; from the cache it is, and what includes it is found there, too.
    os.environ.setdefault("CCACHE_SLOPPINESS", "pch_defines,time_macros,include_file_mtime,include_file_ctime")
    seen, objects, programs = {}, [], list(outputs)
    for command, sources, link in groups:
        for source in sources:
            note = os.path.join(folder, source.replace("../", "").replace("/", "_"))
            if kind == "programs":
                program = programs.pop(0)
                files = make(program, os.path.join(folder, os.path.basename(program)), command, source, link)
            elif kind == "header":
                files = make(outputs[0], note, [*command, "-x", "c++-header"], source)
                shutil.copyfile(source, os.path.splitext(outputs[0])[0])
            else:
                objects.append(f"{note}.{len(objects)}.o")
                files = make(objects[-1], objects[-1], [*command, "-c"], source)
            seen.update(dict.fromkeys(files))
    if kind == "archive":
        if os.path.exists(outputs[0]):
            os.remove(outputs[0])
        run(["ar", "rcs", outputs[0], *objects])
    elif kind == "program":
        command, link = groups[0][0], [word for group in groups for word in group[2]]
        run([*(command[1:] if os.path.basename(command[0]) == "ccache" else command), "-o", outputs[0], *objects, *link])
    else:
        for output in outputs:
            os.utime(output)  # one that was current would make the step stale
    with open(depfile, "w", encoding="utf-8") as out:
        out.write(f"{outputs[0]}: {' '.join(seen)}\n")


if __name__ == "__main__":
    if len(sys.argv) < 5 or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    main(*sys.argv[1:])
