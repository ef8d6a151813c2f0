# SPDX-License-Identifier: Apache-2.0
"""`resil env`: every variable with its default and the value in effect, and what is wrong with the environment."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import textwrap

from . import configuration, place
from .job import Usage
from .text import WIDTH, clean, clip, colour

EPILOG = """\
examples:
  %(prog)s                 all variables; what is set stands out
  %(prog)s --set           only what is not the default
  %(prog)s RESIL_HANG      what it means, and what it may be

exit status: 0, 1 if a job would end with 93 or a name is not known, 2 usage
"""


def add_command(commands):
    parser = commands.add_parser("env", help="every variable: default, value in effect, meaning", epilog=EPILOG,
                                 description="Asks the library itself what it makes of this environment.",
                                 formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these; RESIL_ may be left out")
    parser.add_argument("--set", dest="changed", action="store_true", help="only what is not the default")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)
    helper = commands.add_parser("help", help="what a variable means; the same text as RESIL_HELP=1 prints",
                                 description="Values, default and meaning of variables, from the library's own table.",
                                 epilog="exit status: 0, 2 usage")
    helper.add_argument("names", nargs="*", metavar="NAME", help="only these; RESIL_ may be left out")
    helper.add_argument("--json", action="store_true", help="as JSON")
    helper.set_defaults(run=explain)


def explain(options) -> int:
    found = _asked(os.environ)
    chosen = _named(found, options.names) if options.names else found.variables
    if options.json:
        print(json.dumps([{"name": one.name, "values": one.values, "default": one.default, "meaning": one.description} for one in chosen], indent=1))
    else:
        print("".join(map(help_text, chosen)), end="")
    return 0


def help_text(one: configuration.Variable) -> str:
    """As shim/config/config_text.cpp prints it."""
    lines = [one.name]
    for text in ("Values: %s. Default: %s." % (one.values, one.default or "none"), one.description):
        lines += textwrap.wrap(clean(text, 4000), 100, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False,
                               break_long_words=False)
    return "\n".join(lines) + "\n"


def _asked(environment) -> configuration.Configuration:
    library = place.library()
    if library is None:
        raise Usage("libresil.so is not there: meson compile -C build, or reinstall")
    return configuration.ask(library, dict(environment))


def _named(found: configuration.Configuration, names: list) -> list:
    chosen = [found.find(name) for name in names]
    for name, one in zip(names, chosen):
        if one is None:
            raise Usage("%s is no variable of resil" % clean(name, 80))
    return chosen


def run(options) -> int:
    found, library = _asked(os.environ), place.library()
    chosen = _named(found, options.names) if options.names else found.variables
    if options.changed:
        chosen = [one for one in chosen if one.origin != "default"]
    if options.json:
        print(json.dumps({"library": library, "version": place.library_version(library), "error": found.error or None,
                          "warnings": found.warnings, "variables": [
                              dict(dataclasses.asdict(one), values=one.values) for one in chosen]}, indent=1))
    else:
        print("\n".join(_details(chosen) if options.names else _table(chosen)))
        for line in found.warnings + ([found.error] if found.error else []):
            print(colour(clean(line), "33"))
    return 1 if found.error or found.warnings else 0


def _table(chosen: list) -> list[str]:
    width = max([len(one.name) for one in chosen] or [0])
    lines = []
    for one in chosen:
        text = "%s  %s" % (one.name.ljust(width), clean(one.value, 200) or "none")
        if one.origin != "default":
            text += "  (%s; default %s)" % (one.origin, clean(one.default, 80) or "none")
        lines.append(colour(clip(text), "1") if one.origin != "default" else clip(text))
    return lines or ["all variables have their defaults"]


def _details(chosen: list) -> list[str]:
    lines = []
    for one in chosen:
        lines += [colour(one.name, "1")]
        for label, text in (("value", "%s (%s)" % (clean(one.value, 200) or "none", one.origin)),
                            ("default", one.default or "none"), ("values", one.values),
                            *([("limit", one.limit.replace("|", ", ") + " (of this site)")] if one.limit else []), ("meaning", one.description)):
            lines += textwrap.wrap(clean(text, 2000), WIDTH, initial_indent="  " + label.ljust(9), subsequent_indent=" " * 11,
                                   break_on_hyphens=False)
    return lines
