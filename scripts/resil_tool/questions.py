# SPDX-License-Identifier: Apache-2.0
"""Questions that `resil run` answers, and the settings that answer each; modes go by their names, too. One table for options,
help, manual page and docs/TOOL.md (a test compares)."""

from __future__ import annotations

import argparse
import dataclasses
import os

from .job import Usage
from .record_files import rank_files


@dataclasses.dataclass(frozen=True)
class Question:
    option: str
    settings: tuple  # of (variable, value)
    answer: str      # what happens
    cost: str        # what it costs, or what it changes


QUESTIONS = (
    Question("why-does-it-hang", (("RESIL_HANG_NOTICE", "10"),),
             "deadlocks are reported with their cause after some 2 s; one line when nothing has moved for 10 s",
             "as without an option: only watches"),
    Question("is-my-data-right", (("RESIL_MODE", "checksum"),),
             "each message, collective and one-sided transfer is compared at both ends",
             "some percent; ends the job with status 90 at the first difference"),
    Question("who-changed-my-data", (("RESIL_MODE", "checksum"), ("RESIL_BLAME", "full")),
             "the same, and tells whether the program, the MPI library or the network changed it",
             "reads each buffer twice and keeps copies"),
    Question("why-do-runs-differ", (),
             "the first run is recorded in ./resil-record; the same line again compares the next run with it, call by call",
             "the second run repeats MPI's choices of the first, and ends with status 91 where it differs"),
    Question("same-bits", (("RESIL_REDUCE", "order"),),
             "sums over ranks have the same bits in each run with as many ranks",
             "carries out reductions in MPI's place"),
    Question("is-my-computation-right", (("RESIL_REPLICAS", "2"),),
             "the program runs twice within the job; what the copies send, reduce and write is compared",
             "twice the ranks: with -n 8 the program has 4"),
    Question("end-if-hung", (("RESIL_HANG", "abort"),),
             "a hang that is proved or verified ends the job, so that the allocation is not lost",
             "exit status 92"),
)

MODES = ("watch", "checksum", "record", "verify")


def add_options(parser: argparse.ArgumentParser):
    group = parser.add_argument_group("questions")
    for question in QUESTIONS:
        group.add_argument("--" + question.option, dest="questions", action="append_const", const=question.option,
                           help=question.answer)
    group = parser.add_argument_group("modes and settings")
    for mode in MODES:
        group.add_argument("--" + mode, dest="modes", action="append_const", const=mode, help="RESIL_MODE=%s" % mode)
    group.add_argument("--dir", metavar="DIR", help="directory of the reports (RESIL_DIR)")
    group.add_argument("--set", dest="set", action="append", metavar="NAME=VALUE", default=[],
                       help="any other setting; RESIL_ in front of its name may be left out")


def settings(options, environment: dict[str, str], notes: list[str]) -> dict[str, str]:
    """What was asked for by options. Raises Usage where two of them exclude each other."""
    chosen: dict[str, str] = {}
    modes = list(options.modes or [])
    for word in options.set:  # first: where a recording is may be among them
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise Usage("--set takes NAME=VALUE")
        _choose(chosen, name if name.startswith("RESIL_") else "RESIL_" + name.upper(), value)
    for name in options.questions or []:
        if name == "why-do-runs-differ":
            modes.append(_record_or_verify({**environment, **chosen}, notes))
            continue
        question = next(one for one in QUESTIONS if one.option == name)
        for variable, value in question.settings:
            if variable == "RESIL_MODE":
                modes.append(value)
            else:
                _choose(chosen, variable, value)
    if "record" in modes and "verify" in modes:
        raise Usage("a run is recorded or verified, not both")
    if modes:
        named = [mode for mode in MODES if mode in modes]
        _choose(chosen, "RESIL_MODE", ",".join([mode for mode in named if mode != "watch"] or ["watch"]))
    if options.dir:
        _choose(chosen, "RESIL_DIR", os.path.abspath(options.dir))
    return chosen


def _choose(chosen: dict[str, str], name: str, value: str):
    if chosen.get(name, value) != value:
        raise Usage("%s is asked for twice: %s and %s" % (name, chosen[name], value))
    chosen[name] = value


def _record_or_verify(environment: dict[str, str], notes: list[str]) -> str:
    place = environment.get("RESIL_RECORD") or "resil-record"
    try:
        count = len(rank_files(place))
    except Usage:
        notes.append("this run is recorded in %s; run the same line again to compare with it" % place)
        return "record"
    notes.append("this run is compared with the recording of %d rank%s in %s; to record anew, remove that directory or name another one "
                 "by --set record=DIR" % (count, "" if count == 1 else "s", place))
    return "verify"
