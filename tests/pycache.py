#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the Python that tests start many times over, once: pycache.py FOLDER.

Nothing is written beside the sources (sys.dont_write_bytecode), so each test and each command `resil` in a test would compile all
that it imports again, which is half of the command's time. With PYTHONPYCACHEPREFIX=FOLDER they find it there; what has been
edited since is compiled as before. That variable hides the cache of the standard library, too, so of that FOLDER holds what the
tree's files import. Writes FOLDER only; harmless beside a second one that does the same."""
import compileall
import glob
import importlib
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STARTED = ("scripts/resil_tool", "tests/harness")  # packages that more than one process imports
IMPORT = re.compile(r"^ *(?:from|import) (\w+(?:\.\w+)*)", re.M)


def fill():
    for folder in STARTED:
        compileall.compile_dir(os.path.join(ROOT, folder), quiet=2)
    # Python 3.9 does not list its own modules.
    own = getattr(sys, "stdlib_module_names", None) or {os.path.splitext(name)[0] for name in os.listdir(os.path.dirname(os.__file__))}
    wanted = {"runpy"}
    for path in glob.glob(os.path.join(ROOT, "scripts", "**", "*.py"), recursive=True) + \
            glob.glob(os.path.join(ROOT, "tests", "**", "*.py"), recursive=True):
        with open(path, encoding="utf-8") as file:
            wanted.update(IMPORT.findall(file.read()))
    for name in sorted(wanted):
        if name.split(".")[0] in own:
            try:
                importlib.import_module(name)
            except ImportError:
                pass  # of another version of Python, or a word of a text


def main(folder):
    # What Python itself imports is compiled before a line of this runs.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": os.path.abspath(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run([sys.executable, os.path.abspath(__file__)], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) > 1 else fill())
