#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/CONFIGURATION.md is what the library's own table says (resil_configuration, shim/config/config_list.cpp).

Usage: config_doc_test.py LIBRARY PAGE [--update]
"""
import difflib
import os
import pathlib
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
from resil_tool import configuration

HEAD = """# Configuration

<!-- Written by tests/golden/config_doc_test.py from the library's table, which it compares. Do not edit. -->

All settings are environment variables, read once in MPI_Init. A value that is not allowed stops the job
with one line on standard error and exit status 93. A variable that begins with `RESIL_` and is not in
this table is reported with the nearest name and has no effect. An empty value counts as not set.
Below the environment there is a file of the site, `/etc/resil.conf`, if it exists: [INSTALL.md](INSTALL.md#site).

| variable | values | default | meaning |
|---|---|---|---|
"""
MODES = """
## Modes

| mode | meaning |
|---|---|
| `off` | Calls go straight through; no files, no output. |
| `watch` | Flight recorder, dump on a signal, report. Part of every mode but `off`. |
"""
RANGE = re.compile(r"[-+.\de]+\.\.[-+.\de]+")


def values(variable):
    if variable.kind == "switch":
        return "`0`, `1`"
    if variable.kind in ("text", "signal"):
        return variable.allowed
    parts = (part if RANGE.fullmatch(part) else f"`{part}`" for part in variable.allowed.split("|"))
    return ", ".join(parts) + ("; a comma list" if variable.kind == "choices" else "")


def page_of(table):
    rows = (f"| `{one.name}` | {values(one)} | {f'`{one.default}`' if one.default else 'none'} | {one.description} |\n"
            for one in table.variables)
    modes = (f"| `{name}` | {description} |\n" for name, description in table.modes.items())
    return HEAD + "".join(rows) + MODES + "".join(modes)


def main(library, page, *options):
    wanted = page_of(configuration.ask(library, {}))
    page = pathlib.Path(page)
    if "--update" in options:
        page.write_text(wanted, encoding="utf-8")
        return 0
    found = page.read_text(encoding="utf-8") if page.exists() else ""
    if found == wanted and "| `RESIL_MODE` |" in wanted:
        return 0
    sys.stdout.writelines(difflib.unified_diff(found.splitlines(True), wanted.splitlines(True), str(page), library))
    print(f"{page} is not what the library's table says; meson compile -C build update-docs writes it")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
