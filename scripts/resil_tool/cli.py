# SPDX-License-Identifier: Apache-2.0
"""The command line of resil. Exit status: 0 clean, 1 findings, 2 usage, 3 incomplete data."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys

from . import REPORT_SCHEMA, dump, layout, output, place, record_diff, record_print, report, smoke, views
from . import doctor, environment, launch, status
from .job import Usage
from .text import clean

JOB_HELP = "report directory, scheduler's job id or launcher's pid; none: your only job on this node"

EPILOG = """\
examples:
  %(prog)s run mpirun -np 4 ./app     watches a job; run --help has the questions that it answers
  %(prog)s doctor mpirun -np 4 ./app  does it work here? finds a flipped bit and a hang that it makes itself
  %(prog)s status --watch             what your job does right now, without a signal
  %(prog)s env --set                  what is set, and where
  %(prog)s report                     your job that runs here, or the newest reports here
  %(prog)s report resil-4711.0        a job that has ended, or was killed
  %(prog)s report --json 4711 | jq .  the same for programs, job named by the scheduler's id
  %(prog)s dump                       every rank of your job on this node writes what it is doing
  %(prog)s dump 31415                 the ranks that launcher 31415 started; the launcher is never signalled
  %(prog)s show hang-0.json        one file of resil's, whichever it is, with functions and lines
  %(prog)s recording resil-record     what was recorded; --rank 0 --from 100 --count 20: twenty calls of rank 0
  %(prog)s diff run-1 run-2           where two recordings part first: rank, call, place, values
  %(prog)s smoke --peak 25            in an allocation: is every message right, how many GB/s, is that enough

exit status: 0 clean (diff: the same), 1 findings (diff: they differ), 2 usage error, 3 incomplete data (a rank still
runs, was killed, did not answer; a recording is damaged or has no end); smoke: 0 good, 1 between, 2 stop
"""


def natural(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError("'%s' is not a number" % clean(text, 40))
    return int(text)


def hexadecimal(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise argparse.ArgumentTypeError("'%s' is not a hexadecimal number" % clean(text, 40)) from None


def version_text() -> str:
    """Of this tool, and of the library that belongs to it."""
    library = place.library()
    return "resil %s (ring format %d, report schema %d)\nlibrary %s" % (
        place.version(), layout.VERSION, REPORT_SCHEMA,
        "%s: %s" % (clean(library, 4096), place.library_version(library) or "not readable") if library else "not found")


class Version(argparse.Action):
    """Made when it is asked for: it reads the library."""

    def __init__(self, option_strings, dest, **_):
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help="versions of the command and of its library")

    def __call__(self, *_):
        print(version_text())
        sys.exit(0)


def nearest(word: str, known) -> str:
    """" (did you mean run?)", or ""."""
    found = difflib.get_close_matches(word, list(known), 1)
    return " (did you mean %s?)" % found[0] if found else ""


class Parser(argparse.ArgumentParser):
    """Names the nearest command or option to one that there is not."""

    def error(self, message: str):
        wrong = re.match(r"argument COMMAND: invalid choice: '([^']*)'", message)
        if wrong:
            known = next(action.choices for action in self._actions if isinstance(action.choices, dict))
            message = "'%s' is no command%s; --help lists them" % (clean(wrong.group(1), 40), nearest(wrong.group(1), known))
        super().error(message)

    def parse_args(self, args=None, namespace=None):
        options, extra = self.parse_known_args(args, namespace)
        if extra:
            commands = next((action.choices for action in self._actions if isinstance(action.choices, dict)), {})
            sub = commands.get(getattr(options, "chosen", None), self)
            known = [option for action in sub._actions for option in action.option_strings]
            sub.error("unrecognized arguments: %s%s" % (clean(" ".join(extra), 200), nearest(extra[0].split("=")[0], known) if extra[0].startswith("-") else ""))
        return options


def parser(name: str | None = None) -> argparse.ArgumentParser:
    top = Parser(
        prog=name or place.command(), description="Starts MPI jobs with libresil.so in their ranks, reads what it leaves behind, and asks "
        "running ranks what they are doing.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--version", action=Version)
    commands = top.add_subparsers(dest="chosen", metavar="COMMAND")
    for command in (launch, environment, doctor, status):
        command.add_command(commands)
    views.add_commands(commands, JOB_HELP)
    one = commands.add_parser("report", help="one screen about a job: verdict, ranks, calls, findings, coverage",
                              epilog="exit status: 0 clean, 1 findings, 2 usage (or no such job), 3 incomplete: a rank runs, was killed or left nothing")
    one.add_argument("job", nargs="?", metavar="JOB", help="report directory, scheduler's job id or launcher's pid; none: your job that "
                     "reports to this directory, else the newest reports here, else your only job on this node")
    one.add_argument("--json", action="store_true", help="the merged summary as JSON")
    one.add_argument("--nagios", action="store_true", help="one line with performance data for Nagios and Icinga; exit status 0 clean or "
                     "running, 1 incomplete, standing still or only suspected, 2 findings, 3 not known")
    one.add_argument("--exclude", action="store_true", help="only the hosts to leave out of the next run, for srun --exclude; "
                     "nothing where the findings name none")
    two = commands.add_parser("dump", help="make the ranks of a job on this node dump their state",
                              description="Signals exactly the ranks that carry resil, never a launcher, waits up to "
                              "5 s for their dump files, and prints a line for ranks that say the same.",
                              epilog="exit status: 0 all answered, 2 usage (or no such job runs here), 3 some did not answer, or are on other hosts")
    two.add_argument("job", nargs="?", metavar="JOB", help=JOB_HELP)
    two.add_argument("--signal-only", action="store_true", help="do not wait for the dumps")
    two.add_argument("--json", action="store_true", help="the answers as JSON")
    three = commands.add_parser("recording", help="what a recording holds",
                                description="A line for each rank; with an option that chooses, call by call.",
                                epilog="exit status: 0 whole, 2 usage (or no recording), 3 damaged, or without an end")
    three.add_argument("directory", metavar="DIR", help="the recording, RESIL_RECORD of the run that made it")
    three.add_argument("--rank", type=natural, metavar="R", help="this rank only")
    three.add_argument("--call", metavar="NAME", help="these calls only, e.g. MPI_Allreduce")
    three.add_argument("--comm", type=hexadecimal, metavar="ID", help="calls on this communicator only")
    three.add_argument("--from", dest="first", type=natural, metavar="N", help="of each thread, from call N on")
    three.add_argument("--count", type=natural, metavar="N", help="so many calls in all")
    three.add_argument("--json", action="store_true", help="one object a line, or for the summary one object")
    four = commands.add_parser("diff", help="where two recordings part",
                               description="Compares two recordings call by call and names the place where they diverge "
                               "first.", epilog="exit status: 0 the same, 1 they differ, 2 usage (or no recording), 3 damaged, or without an end")
    four.add_argument("first", metavar="A", help="a recording: what is taken for right")
    four.add_argument("second", metavar="B", help="another one of the same program")
    four.add_argument("--rank", type=natural, metavar="R", help="this rank only")
    four.add_argument("--any-site", action="store_true", help="calls may come from other places: the same source, built "
                      "again or for another MPI")
    four.add_argument("--json", action="store_true", help="the result as JSON")
    smoke_options(commands.add_parser("smoke", help="is a new system right, and fast enough",
                                      description="Pairs of processes send each other packets of known content, with more "
                                      "and more processes, host and device memory. Good: every message right and at least "
                                      "80 %% of --peak; stop: a wrong packet, a failed run, or below 50 %%.",
                                      epilog="exit status: 0 good, 1 between, 2 stop (or a usage error)"))
    return top


def smoke_options(five: argparse.ArgumentParser) -> None:
    five.add_argument("--peak", type=float, metavar="GB/S", help="what a node can receive; without it no verdict on bandwidth")
    five.add_argument("--ranks", metavar="N,N", help="numbers of processes; default 2,8,64,512 as far as the allocation allows")
    five.add_argument("--sizes", metavar="S,S", help="bytes a packet; default 4K,64K,1M,16M")
    five.add_argument("--memory", choices=("host", "device", "both"), default="both", help="default both, if there is a device")
    five.add_argument("--launcher", metavar="COMMAND", help="with {ranks}; default 'srun -n {ranks}' in a SLURM allocation, "
                      "else 'mpirun -n {ranks}'")
    five.add_argument("--mpicc", default=os.environ.get("MPICC") or "mpicc", metavar="COMMAND", help="default $MPICC or mpicc")
    five.add_argument("--library", metavar="FILE", help="libresil.so, through which device buffers go")
    five.add_argument("--gpu-aware", action="store_true", help="device buffers are given to the MPI itself")
    five.add_argument("--with-resil", action="store_true", help="libresil.so is preloaded for host buffers, too")
    five.add_argument("--volume", type=natural, default=64, metavar="MIB", help="each process sends so much of each size; default 64")
    five.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="limit of each run; default 300")
    five.add_argument("--directory", metavar="DIR", help="all nodes see it; default the working directory")
    five.add_argument("--keep", action="store_true", help="leave the program and resil's reports there")
    five.add_argument("--json", action="store_true", help="the result as JSON")


def _open_streams() -> None:
    """What the caller has closed goes nowhere: no file that is opened later must take its place."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False))


def main(arguments: list[str]) -> int:
    _open_streams()
    top = parser()
    options = top.parse_args(arguments)  # ends with status 2 on an unknown command or option
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a C locale must not turn a report into a traceback
    try:
        if hasattr(options, "run"):
            status = options.run(options)
        elif options.chosen == "report":
            status = report.run(options.job, options.json, options.exclude, options.nagios)
        elif options.chosen == "dump":
            status = dump.run(options.job, options.json, options.signal_only)
        elif options.chosen == "recording":
            status = record_print.run(options.directory, options.rank, options.call, options.comm, options.first,
                                      options.count, options.json)
        elif options.chosen == "diff":
            status = record_diff.run(options.first, options.second, options.rank, not options.any_site, options.json)
        elif options.chosen == "smoke":
            status = smoke.run(options)
        else:
            top.print_usage(sys.stderr)
            sys.stderr.write("resil: which command? See --help\n")
            return 2
        sys.stdout.flush()
        return status
    except Usage as error:
        sys.stderr.write("resil: %s\n" % error)
        return 2
    except BrokenPipeError:  # "| head": whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        sys.stderr.write("resil: %s%s\n" % (clean(error.strerror or error),
                                            ": " + clean(error.filename) if error.filename else ": standard output" if error.errno in output.FULL else ""))
        return 3
