# SPDX-License-Identifier: Apache-2.0
"""Completion for bash, zsh and fish from an argparse tree. Pure functions."""
from __future__ import annotations

import argparse

import roff

HEAD = """\
# Written from the command's own arguments by scripts/packaging/manual.py. Do not edit.
_resil() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command i words files
  command="" words="" files=""
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in -*) ;; *) command=${COMP_WORDS[i]}; break ;; esac
  done
"""

TAIL = """\
  esac
  # shellcheck disable=SC2207
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [ -n "$files" ] && [ ${#COMPREPLY[@]} -eq 0 ]; then
    compopt -o filenames 2>/dev/null
    # shellcheck disable=SC2207
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -F _resil resil
"""


def options(parser: argparse.ArgumentParser) -> list[str]:
    return [word for action in parser._actions if action.help != argparse.SUPPRESS for word in action.option_strings]


def choices(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """{option: what it takes}"""
    return {word: [str(choice) for choice in action.choices] for action in parser._actions if action.choices
            for word in action.option_strings}


def bash(parser: argparse.ArgumentParser) -> str:
    commands = roff.subparsers(parser)
    lines = [HEAD + "  case $command in"]
    lines.append("    '') words='%s' ;;" % " ".join([*commands, *options(parser)]))
    for name, (_, sub) in commands.items():
        lines.append("    %s)" % name)
        lines.append("      words='%s' files=1" % " ".join(options(sub)))
        taken = choices(sub)
        if taken:
            lines.append("      case $previous in")
            lines += ["        %s) words='%s' ;;" % (word, " ".join(values)) for word, values in taken.items()]
            lines.append("      esac")
        lines.append("      ;;")
    return "\n".join(lines) + "\n" + TAIL


FISH = """\
# Written from the command's own arguments by scripts/packaging/manual.py. Do not edit.
set -l commands %s
complete -c resil -n "not __fish_seen_subcommand_from $commands" -f
"""


def _quoted(text: str) -> str:
    """For fish: within single quotes a backslash and a quote are escaped."""
    return "'%s'" % text.replace("\\", "\\\\").replace("'", "\\'")


def _first(text: str) -> str:
    """What stands behind an offered word: the first clause of its help."""
    return (text or "").replace("%%", "%").split(";")[0].split(": ")[0][:80]


def fish(parser: argparse.ArgumentParser) -> str:
    commands = roff.subparsers(parser)
    lines = [FISH % " ".join(commands)]

    def option(action, when):
        words = ["-n", when]
        for word in action.option_strings:
            words += ["-l", word[2:]] if word.startswith("--") else ["-s" if len(word) == 2 else "-o", word[1:]]
        if action.choices:
            words += ["-x", "-a", _quoted(" ".join(str(choice) for choice in action.choices))]
        elif action.nargs != 0:
            words.append("-r")
        lines.append("complete -c resil %s -d %s" % (" ".join(words), _quoted(_first(action.help))))

    def options(of, when):
        for action in of._actions:
            if action.option_strings and action.help != argparse.SUPPRESS:
                option(action, when)

    nothing = '"not __fish_seen_subcommand_from $commands"'
    for name, (line, _) in commands.items():
        lines.append("complete -c resil -n %s -a %s -d %s" % (nothing, name, _quoted(_first(line))))
    options(parser, nothing)
    for name, (_, sub) in commands.items():
        options(sub, '"__fish_seen_subcommand_from %s"' % name)
    return "\n".join(lines) + "\n"


ZSH = """\
#compdef resil
# Written from the command's own arguments by scripts/packaging/manual.py. Do not edit.
local -a commands
commands=(
%s
)
if (( CURRENT == 2 )); then
  _describe -t commands 'command of resil' commands
  _arguments -s : %s
  return
fi
local command=$words[2]
shift words
(( CURRENT-- ))
case $command in
"""


def _in_zsh(text: str) -> str:
    """Between single quotes."""
    return "'%s'" % text.replace("'", "'\\''")


def _spec(action) -> list[str]:
    """For _arguments: what each spelling of an option is, takes and means."""
    meaning = "".join("\\" + c if c in "[]\\:" else c for c in _first(action.help))
    takes = ""
    if action.choices:
        takes = ":value:(%s)" % " ".join(str(choice) for choice in action.choices)
    elif action.nargs != 0:
        takes = ":%s:%s" % (str(action.metavar or "value").lower().replace(":", " ")[:20], "_files" if action.metavar in ("FILE", "DIR", "PATH") else " ")
    return [_in_zsh("%s[%s]%s" % (word, meaning, takes)) for word in action.option_strings]


def zsh(parser: argparse.ArgumentParser) -> str:
    commands = roff.subparsers(parser)

    def specs(of):
        return [spec for action in of._actions if action.option_strings and action.help != argparse.SUPPRESS for spec in _spec(action)]
    lines = [ZSH % ("\n".join("  " + _in_zsh("%s:%s" % (name, _first(line).replace(":", "\\:"))) for name, (line, _) in commands.items()),
                    " ".join(specs(parser)))]
    for name, (_, sub) in commands.items():
        # The launch line of these is a command of its own, with its own completion.
        rest = "'*::launch line:_normal'" if name in ("run", "doctor") else "'*:file:_files'"
        lines.append("  %s) _arguments -s : %s %s ;;" % (name, " ".join(specs(sub)), rest))
    return "\n".join(lines) + "\nesac\n"
