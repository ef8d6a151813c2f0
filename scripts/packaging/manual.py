# SPDX-License-Identifier: Apache-2.0
"""Writes the manual pages and the completion of the command `resil` from its own tree of arguments, so that neither can
forget an option.

Usage: manual.py --list [...]     prints the names of the pages, one a line
       manual.py --version V --docs docs [--depfile FILE] OUTDIR
"""
from __future__ import annotations

import argparse
import os
import sys

sys.dont_write_bytecode = True
SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [SCRIPTS, os.path.dirname(os.path.abspath(__file__))]
os.environ["COLUMNS"] = "10000"  # argparse folds its usage at the terminal's width

import completion  # noqa: E402
import roff  # noqa: E402
from resil_tool import cli  # noqa: E402

LIBRARY_PAGE, SITE_PAGE = "libresil.7", "resil.conf.5"


def names(commands) -> list[str]:
    return ["resil.1"] + ["resil-%s.1" % command for command in commands] + [SITE_PAGE, LIBRARY_PAGE]


def main() -> int:
    options = argparse.ArgumentParser()
    options.add_argument("--list", action="store_true")
    options.add_argument("--version")
    options.add_argument("--docs")
    options.add_argument("--depfile")
    options.add_argument("place")
    options = options.parse_args()
    parser = cli.parser("resil")
    commands = roff.subparsers(parser)
    if options.list:
        print("\n".join(names(commands)))
        return 0
    pages = {}
    for name in ("CONFIGURATION.md", "INSTALL.md"):
        with open(os.path.join(options.docs, name), encoding="utf-8") as file:
            pages[name] = file.read()
    texts = {"resil.1": roff.page("resil", parser, "finds hangs, wrong data and irreproducible results of MPI programs",
                                  options.version, commands),
             LIBRARY_PAGE: roff.library_page(pages["CONFIGURATION.md"], options.version),
             SITE_PAGE: roff.site_page(pages["INSTALL.md"], options.version), "resil": completion.bash(parser), "resil.fish": completion.fish(parser), "_resil": completion.zsh(parser)}
    for command, (line, sub) in commands.items():
        texts["resil-%s.1" % command] = roff.page("resil-" + command, sub, line, options.version)
    for name, text in texts.items():
        with open(os.path.join(options.place, name), "w", encoding="utf-8") as file:
            file.write(text)
    if options.depfile:
        sources = sorted(module.__file__ for module in list(sys.modules.values())
                         if (getattr(module, "__file__", None) or "").startswith(SCRIPTS))
        with open(options.depfile, "w", encoding="utf-8") as file:
            file.write("%s: %s\n" % (" ".join(os.path.join(options.place, name) for name in texts), " ".join(sources)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
