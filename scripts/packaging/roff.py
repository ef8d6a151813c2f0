# SPDX-License-Identifier: Apache-2.0
"""Manual pages (man(7)) from argparse parsers and from the table of docs/CONFIGURATION.md. Pure functions."""
from __future__ import annotations

import argparse
import re


def escape(text: str) -> str:
    """Text that troff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    text = text.replace("…", "...").replace("→", "->")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def head(name: str, section: int, version: str, what: str) -> list[str]:
    return ['.TH "%s" "%d" "" "resil %s" "resil"' % (name.upper(), section, version), ".SH NAME",
            "%s \\- %s" % (escape(name), escape(what))]


def subparsers(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """{command: (its line in --help, its parser)}"""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            lines = {choice.dest: choice.help or "" for choice in action._choices_actions}
            return {name: (lines.get(name, ""), sub) for name, sub in action.choices.items()}
    return {}


def argument_words(action: argparse.Action) -> str:
    """"--rank R": bold what is typed, italic what stands for something."""
    meta = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    if isinstance(meta, tuple):
        meta = " ".join(meta)
    if action.choices and not action.metavar:
        meta = "|".join(map(str, action.choices))
    if not action.option_strings:
        return "\\fI%s\\fR" % escape(meta)
    names = ", ".join("\\fB%s\\fR" % escape(word) for word in action.option_strings)
    return names if action.nargs == 0 else "%s \\fI%s\\fR" % (names, escape(meta))


def help_text(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    values = dict(vars(action), prog=parser.prog)
    return (action.help or "") % values if "%" in (action.help or "") else action.help or ""


def arguments(parser: argparse.ArgumentParser) -> list[str]:
    lines = []
    for group in parser._action_groups:
        actions = [a for a in group._group_actions
                   if a.help != argparse.SUPPRESS and not isinstance(a, argparse._SubParsersAction)]
        if not actions:
            continue
        title = {"optional arguments": "OPTIONS", "options": "OPTIONS", "positional arguments": "ARGUMENTS"}
        lines.append(".SH %s" % escape(title.get(group.title, (group.title or "").upper())))
        if group.description:
            lines += [escape(group.description)]
        for action in actions:
            lines += [".TP", argument_words(action), escape(help_text(parser, action))]
    return lines


def example_block(text: str) -> list[str]:
    """An epilog: its headings as sections, the rest as it stands."""
    lines, inside = [], False
    for line in text.rstrip().split("\n"):
        if line.endswith(":") and not line.startswith(" ") and len(line) < 30:
            lines += [".fi"] if inside else []
            lines += [".SH %s" % escape(line[:-1].upper()), ".nf"]
            inside = True
        elif line.startswith("exit status: "):
            lines += [".fi"] if inside else []
            lines += [".SH EXIT STATUS", escape(line[len("exit status: "):])]
            inside = False
        else:
            lines.append(escape(line))
    return lines + ([".fi"] if inside else [])


def usage(parser: argparse.ArgumentParser) -> str:
    words = " ".join(parser.format_usage().split())
    return words[len("usage: "):] if words.startswith("usage: ") else words


def page(name: str, parser: argparse.ArgumentParser, what: str, version: str, commands=None) -> str:
    lines = head(name, 1, version, what)
    lines += [".SH SYNOPSIS", ".nh", escape(usage(parser))]
    if parser.description:
        lines += [".SH DESCRIPTION", escape(parser.description % {"prog": parser.prog} if "%" in parser.description
                                            else parser.description)]
    if commands:
        lines.append(".SH COMMANDS")
        for command, (text, _) in commands.items():
            lines += [".TP", "\\fBresil\\-%s\\fR(1)" % escape(command), escape(text)]
    lines += arguments(parser)
    if parser.epilog:
        lines += example_block(parser.epilog % {"prog": parser.prog} if "%(" in parser.epilog else parser.epilog)
    others = ["resil"] if not commands else ["resil-%s" % command for command in commands]
    others = ["\\fB%s\\fR(1)" % escape(one) for one in others if one != name] + ["\\fBlibresil\\fR(7)"]
    lines += [".SH SEE ALSO", ", ".join(others)]
    return "\n".join(lines) + "\n"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def library_page(markdown: str, version: str) -> str:
    """libresil(7): variables and modes."""
    lines = head("libresil", 7, version, "finds hangs, wrong data and irreproducible results of MPI programs")
    lines += [".SH SYNOPSIS", ".nf", "\\fBresil run mpirun\\fR \\-np 4 ./app",
              "\\fBLD_PRELOAD=libresil.so mpirun\\fR \\-np 4 ./app    (one node)", ".fi", ".SH DESCRIPTION",
              "The library is preloaded into the ranks of an unchanged MPI program. In other processes it does nothing."]
    for line in markdown.split("\n"):
        if line.startswith("All settings"):
            lines.append(".SH ENVIRONMENT")
        if line.startswith("## "):
            lines.append(".SH %s" % escape(line[3:].upper()))
        elif line.startswith("| `"):
            row = cells(line)
            lines += [".TP", "\\fB%s\\fR" % escape(row[0])]
            lines += [escape(row[3]), ".br", escape("Values: %s. Default: %s." % (row[1], row[2]))] if len(row) == 4 else [
                escape(row[1])]
        elif line and not line.startswith(("#", "<!--", "|")):
            lines.append(escape(line))
    lines += [".SH EXIT STATUS", "The job's own, but for: 90, data differ; 91, the run differs from its recording; 92, a hang that is",
              "proved or verified with RESIL_HANG=abort, or calls that do not match; 93, settings that are not allowed or differ",
              "between ranks.", ".SH SEE ALSO", "\\fBresil\\fR(1), \\fBresil.conf\\fR(5)"]
    return "\n".join(lines) + "\n"


def site_page(markdown: str, version: str) -> str:
    """resil.conf(5), from the section "Site" of docs/INSTALL.md."""
    section = re.search(r"(?ms)^## Site\n(.*?)(?=^## )", markdown).group(1)
    lines = head("resil.conf", 5, version, "settings of a site for resil") + [".SH DESCRIPTION"]
    inside = False
    for line in section.split("\n"):
        line = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line)
        if line.startswith("```"):
            inside = not inside
            lines.append(".RS\n.nf" if inside else ".fi\n.RE")
        elif inside or (line and not line.startswith(("|", "- ", "  "))):
            lines.append(escape(line))
        elif line.startswith("| `"):
            name, text = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:3])
            lines += [".TP", "\\fB%s\\fR" % escape(name), escape(text.replace("\\|", "|"))]
        elif line.startswith("- "):
            lines += [".PP", escape(line[2:])]
        elif line.startswith("  "):
            lines.append(escape(line.strip()))
    lines += [".SH FILES", ".I /etc/resil.conf", ".SH SEE ALSO", "\\fBresil\\-env\\fR(1), \\fBlibresil\\fR(7)"]
    return "\n".join(lines) + "\n"
