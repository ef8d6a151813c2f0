# SPDX-License-Identifier: Apache-2.0
"""What the library makes of an environment, in its own words: it is loaded into this process and asked. There is no second
table of variables."""

from __future__ import annotations

import ctypes
import dataclasses
import os

from .job import Usage
from .text import clean

_FIELD, _LINE = "\x1f", "\x1e"


@dataclasses.dataclass
class Variable:
    name: str
    kind: str         # choice, choices, integer, real, text, signal, switch
    allowed: str      # words and ranges separated by |, or a phrase
    default: str
    value: str        # in effect
    origin: str       # default, environment, or the site's file
    limit: str        # what the site leaves to users of `allowed`; "" all
    description: str

    @property
    def values(self) -> str:
        """For people."""
        if self.kind == "switch":
            return "0, 1"
        if self.kind in ("text", "signal"):
            return self.allowed
        return self.allowed.replace("|", ", ") + ("; a comma list" if self.kind == "choices" else "")


@dataclasses.dataclass
class Configuration:
    variables: list
    warnings: list    # lines about names that are no variables
    error: str        # why a job would end with 93; "" when it would not
    modes: dict = dataclasses.field(default_factory=dict)  # those that modules add: what each does

    def find(self, name: str) -> Variable | None:
        wanted = name.upper() if name.upper().startswith("RESIL_") else "RESIL_" + name.upper()
        return next((one for one in self.variables if one.name == wanted), None)


def ask(library: str, environment: dict[str, str]) -> Configuration:
    """Raises Usage where the library cannot be loaded here, as on a login node of another architecture."""
    try:
        function = ctypes.CDLL(library).resil_configuration
    except (OSError, AttributeError) as error:
        raise Usage("%s cannot be asked: %s" % (clean(library), clean(error))) from None
    function.restype = ctypes.c_size_t
    function.argtypes = [ctypes.POINTER(ctypes.c_char_p), ctypes.c_char_p, ctypes.c_size_t]
    pairs = [os.fsencode("%s=%s" % pair) for pair in environment.items() if pair[0].startswith("RESIL_")
             and not pair[0].startswith("RESIL_TOOL_")]
    names = (ctypes.c_char_p * (len(pairs) + 1))(*pairs, None)
    room = ctypes.create_string_buffer(1 << 20)
    length = function(names, room, len(room))
    if not 0 < length <= len(room):
        raise Usage("%s gives no answer" % clean(library))
    return parse(room.raw[:length].decode("utf-8", "replace"))


def parse(text: str) -> Configuration:
    found = Configuration([], [], "")
    for line in text.split(_LINE)[:-1]:
        fields = line.split(_FIELD)[:-1]
        if fields[0] == "variable":
            found.variables.append(Variable(*fields[1:]))
        elif fields[0] == "mode":
            found.modes[fields[1]] = fields[2]
        elif fields[0] == "warning":
            found.warnings.append(fields[1])
        else:
            found.error = fields[1]
    return found
