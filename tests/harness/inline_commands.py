# SPDX-License-Identifier: Apache-2.0
"""Commands and settings within sentences and table cells of the pages: inline code. Each is held against what there is: the command's
own parser of arguments, the library's table of variables, the help of srun, the scripts of this tree."""
import functools
import os
import re
import shlex
import subprocess
import sys

from harness import mpi as jobs

sys.path.insert(0, os.path.join(jobs.ROOT, "scripts"))
from resil_tool import cli, configuration  # noqa: E402  # pylint: disable=wrong-import-position

FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
COMMENT = re.compile(r"<!--.*?-->", re.S)
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
SETTING = re.compile(r"(?:^|[ ,])(RESIL_[A-Z0-9_]+)(?:=(\S*))?")
OWN = ("RESIL_TOOL_", "RESIL_TEST_", "RESIL_FUZZ_")  # of the command and of the tests, which the library does not have


def inline(page):
    """(line's number, code) of a page."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for pattern in (FENCED, COMMENT):
        text = pattern.sub(lambda match: "\n" * match.group().count("\n"), text)
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("> "):
            continue  # a message, quoted (test docs)
        for code in INLINE.findall(line):
            yield number, code.replace("\\|", "|")


def kind(code):
    """What a piece of inline code is: tool, script, launcher, setting, variable, option; "" nothing to look at."""
    bare = re.sub(r"^(?:[A-Za-z_][A-Za-z0-9_]*=\S* )+", "", code)
    for name, pattern in (("tool", r"(?:scripts/)?resil(?: |$)(?!VERSION)"), ("script", r"(?:scripts|tests)/[\w./-]+(?: |$)"),
                          ("launcher", r"(?:mpirun|srun|salloc|sbatch|scancel|scontrol) ")):
        if re.match(pattern, bare):
            return "" if name == "tool" and bare == "resil" else name
    if re.match(r"RESIL_[A-Z0-9_]+=", code):
        return "setting"
    if re.fullmatch(r"RESIL_[A-Z0-9_]+", code):
        return "variable"
    return "option" if re.match(r"--[a-z]", code) else ""


@functools.lru_cache(None)
def table():
    return configuration.ask(jobs.library(), {})


@functools.lru_cache(None)
def names():
    """Names of the sources that are no settings: what a hook is given, constants and macros of the headers."""
    found = set()
    for folder in ("shim", "detectors", "checksum", "pipeline"):
        for at, _, files in os.walk(os.path.join(jobs.ROOT, folder)):
            for name in files:
                with open(os.path.join(at, name), encoding="utf-8", errors="replace") as file:
                    found.update(re.findall(r"\bRESIL_[A-Z0-9_]+", file.read()))
    return found


def wrong_setting(name, value):
    """Why NAME=VALUE is not a setting; "" if it is one. A value that the reader fills in is not looked at."""
    if name.startswith(OWN):
        return ""
    if not any(one.name == name for one in table().variables):
        return "" if not value and name in names() else f"{name}: no such variable"
    if value is None or not value or "…" in value or "..." in value or re.search(r"[A-Z$<*|]", value.replace("RTMIN", "").replace("USR", "")):
        return ""
    found = configuration.ask(jobs.library(), {name: value.rstrip(".,;:")})
    return found.error or "; ".join(found.warnings)


class _Quiet:
    """The command's parser, which says nothing itself: other checks of this process print meanwhile."""

    def __init__(self):
        self.top = cli.parser("resil")
        every = [self.top, *_commands(self.top).values()]
        for one in every:
            one.error = self.refuse
            one.print_help = lambda *_: None

    @staticmethod
    def refuse(message):
        raise SystemExit(2, message)

    def parse(self, words):
        return self.top.parse_args(words)


def _commands(top):
    return next(action for action in top._actions if action.dest == "chosen").choices  # pylint: disable=protected-access


def parsed(words):
    """Why the command's parser refuses these words; "" if it does not."""
    if "--version" in words:
        return ""
    try:
        options = _Quiet().parse(words)
    except SystemExit as end:
        return end.args[1] if len(end.args) > 1 else ""
    for one in getattr(options, "set", None) or []:
        name, _, value = one.partition("=")
        why = wrong_setting(name if name.startswith("RESIL_") else "RESIL_" + name.upper(), value) if name not in ("NAME", "TRUE") else ""
        if why:
            return why
    return ""


@functools.lru_cache(None)
def commands():
    """{subcommand: its options}"""
    return {name: {word for action in one._actions for word in action.option_strings}  # pylint: disable=protected-access
            for name, one in _commands(cli.parser("resil")).items()}


@functools.lru_cache(None)
def help_of(*command):
    """What a program says of its options; "" where it is not installed."""
    if not jobs.installed(command[0]):
        return ""
    slurm = os.path.join(jobs.scratch(), "slurm.conf")  # without one its commands do not even say that
    with open(slurm, "w", encoding="ascii") as file:
        file.write("ClusterName=none\nSlurmctldHost=localhost\n")
    done = subprocess.run([*command, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, timeout=60, env=jobs.clean_environment({"SLURM_CONF": slurm}))
    return done.stdout if done.returncode == 0 else ""


def words_of(code):
    """Without assignments in front and what the reader leaves out; None where it is no line of a shell."""
    code = re.sub(r"\[([^\]]*)\]", r"\1", code).replace("<", "").replace(">", "")  # [--json]
    try:
        words = shlex.split(re.split(r" (?:\||&&|;|2?>) ?", code)[0])
    except ValueError:
        return None
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        words.pop(0)
    return words


def filled(words):
    """What the reader fills in, as something that a parser takes; a list that goes on ends there."""
    found = []
    for word in words:
        if word in ("…", "...") or word == "|":
            continue
        found.append(re.sub(r"=(N|PERCENT|GB/S|MS|S)$", "=1", word).replace("…", ""))
    return ["1" if word in ("N", "R", "GB/s") else word for word in found]


def wrong_tool(code):
    words = words_of(code)
    if words is None:
        return "not a line of a shell"
    words = filled(words[1:])
    if words and not words[0].startswith("-") and words[0] not in commands():
        return f"{words[0]}: no such command of resil"
    # Named, not called: `resil diff` alone is not what is to be typed.
    needed = {"recording": ["DIR"], "diff": ["A", "B"], "hosts": ["DIR"], "show": ["FILE"], "export": ["--csv", "DIR"]}.get(words[0] if words else "", [])
    if not words[1:] or (words[0] != "export" and not [word for word in words[1:] if not word.startswith("-")]):
        words += needed
    if words and words[-1].startswith("--") and parsed(words).endswith("expected one argument"):
        words += ["1"] + (["DIR"] if words[0] == "export" else [])  # an option, named
    return parsed(words)


def wrong_script(code):
    words = words_of(code)
    path = os.path.join(jobs.ROOT, words[0])
    if "NAME" in words[0]:
        return ""
    if not os.path.exists(path):
        return f"{words[0]}: no such file"
    if len(words) < 2 or not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    folder = path + "_tool" if os.path.isdir(path + "_tool") else None
    for name in os.listdir(folder) if folder else ():
        if name.endswith(".py"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text += file.read()
    first = words[1]
    if "ArgumentParser" in text and re.fullmatch(r"[a-z][a-z-]*", first):
        text = help_of(path, first) or ""
        if not text:
            return f"{words[0]} has no {first}"
    missing = [word for word in (word.split("=")[0] for word in words[1:] if re.match(r"--[a-z]", word)) if word not in text]
    if missing:
        return f"{words[0]} has no {', '.join(missing)}"
    return "" if not re.fullmatch(r"[a-z][a-z-]*", first) or first in text or "ArgumentParser" in text else f"{words[0]} has no {first}"


def wrong_launcher(code):
    words = words_of(code)
    known = help_of(words[0])
    for word in words[1:] if known and words[0] != "mpirun" else ():
        if not word.startswith("-"):
            if not re.fullmatch(r"[\d…NA-Z@]+", word):
                break
            continue
        name = word.split("=")[0]
        if name.startswith("--") and name not in known and name != "--resil":  # --resil is the plugin's (test neighbours-slurm)
            return f"{words[0]} has no {name}"
    return ""


def wrong_option(code):
    """An option alone: of a command of resil, or of srun (--mpi)."""
    name = re.match(r"--[a-z][a-z-]*", code).group()
    if any(name in options for options in commands().values()) or name in ("--help", "--version"):
        return parsed(["run", *filled(words_of(code)), "true"]) if name in commands()["run"] and name not in ("--dir",) else ""
    return "" if name == "--resil" or not jobs.installed("srun") or name in help_of("srun") else f"no command has {name}"


def wrong(code):
    """Why a piece of inline code is not what there is; "" if it is, or nothing to look at."""
    what = kind(code)
    for name, value in SETTING.findall(code) if what else ():
        if not name.endswith("_") and name != "RESIL_HELLO":  # the module that docs/CONTRIBUTING.md makes
            why = wrong_setting(name, value)
            if why:
                return why
    check = {"tool": wrong_tool, "script": wrong_script, "launcher": wrong_launcher, "option": wrong_option}.get(what)
    return check(code) if check else ""
