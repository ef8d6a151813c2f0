# SPDX-License-Identifier: Apache-2.0
"""Completion for bash (and zsh with bashcompinit) from an argparse tree. A pure function."""
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
