# SPDX-License-Identifier: Apache-2.0
"""scripts/bench limit: how far small messages and collectives are from what a tool on every call costs at least, on this machine: the
same loops natively, under tests/bench/limit_tool.c, which does a little more at each level, and under the library, in the same
turns. Touches scratch directories and the jobs that it starts."""
import os
import re
import statistics
import subprocess
import sys

from bench import turns
from harness import mpi as jobs

LEVELS = ("empty", "clock", "record", "check", "record_check", "record_wait")
VARIANTS = ("native", *LEVELS, "watch", "lazy", "strict")
COMPARING = ("check", "record_check", "record_wait")
LARGEST = 4096  # bytes
LEGEND = """\
Two ranks, one a core. The least tool (`tests/bench/limit_tool.c`): empty = calls PMPI and counts; clock = two reads of the
processor's clock a call; record = that, and one cache line written a call; check = a digest of the data, one cache line written to
shared memory by the sender, read and compared by the receiver, 32 at a time; record+check = both; record+wait = likewise, but the line goes
before the message, and the receiver waits for it. Then the library: watch, lazy, strict. A ping-pong figure is one way. Medians [least .. greatest] over the turns."""
# (what, row, variant of the library, level that does the least for it, most as a ratio, most in ns above `over`)
AIMS = (
    ("watch, 8-byte ping-pong (point 2)", "pingpong_8", "watch", "record", 1.12, None, "native"),
    ("watch, a collective, at most 8 ns (point 2)", "allreduce_8", "watch", "record", None, 8, "native"),
    ("watch, a request made and completed, at most 20 ns (point 2)", "window64_message_8", "watch", "record", None, 20, "native"),
    ("lazy, 8-byte ping-pong (point 3)", "pingpong_8", "lazy", "record_check", 1.35, None, "native"),
    ("lazy over watch, a small message, at most 20 ns (point 3)", "window64_message_8", "lazy", "record_check", None, 20, "watch"),
    ("lazy over watch, a small collective, at most 20 ns (point 3)", "allreduce_8", "lazy", "record_check", None, 20, "watch"),
    ("strict, 8 bytes, at most 120 ns (point 5)", "pingpong_8", "strict", "record_wait", None, 120, "native"),
    ("strict, 256 bytes, at most 120 ns (point 5)", "pingpong_256", "strict", "record_wait", None, 120, "native"),
    ("strict, 4 KiB, at most 200 ns (point 5)", "pingpong_4096", "strict", "record_wait", None, 200, "native"),
)


def tool(mpi):
    output = os.path.join(jobs.scratch(), "limit_tool.so")
    subprocess.run([f"mpicc.{mpi}", "-O3", "-march=native", "-Wall", "-Werror", "-shared", "-fPIC", "-o", output,
                    os.path.join(turns.SOURCES, "limit_tool.c")], check=True)
    return output


def counted(text):
    """What the tool says that it did: {calls, records, compared}."""
    return {name: int(number) for name, number in re.findall(r"(?m)^tool_(\w+) (\d+) messages$", text)}


def run(mpi, command, variant, behind):
    """Standard output of one run. Ends the benchmark where the tool did not do what the variant is for."""
    if variant not in LEVELS:
        return turns.launch(mpi, 2, command, variant)
    pin = ["--bind-to", "core"] if mpi == "openmpi" else ["-bind-to", "core"]
    result = jobs.run(mpi, 2, command, env={"LIMIT_TOOL": variant}, preload=False, timeout=300, options=pin, cwd=jobs.scratch(),
                      tools_after=[behind])
    text = result.stdout.decode()
    did = counted(text)
    if result.returncode != 0 or not did.get("calls") or bool(did["records"]) != variant.startswith("record") or \
            bool(did["compared"]) != (variant in COMPARING):
        sys.exit(f"bench: failed as {variant}: {did}\n{result.text()}")
    return text


def timed(text):
    return {name: value for name, value in turns.measured(text).items() if not name.startswith("tool_")}


def _name(variant):
    return variant.replace("_", "+")


def _table(samples, units):
    lines = ["| measured | native | " + " | ".join(map(_name, VARIANTS[1:])) + " |", "|---|" + "---:|" * len(VARIANTS)]
    for name, values in samples.items():
        cells = [name.replace("_", " "), f"{statistics.median(values['native']):.1f} {units[name]}"]
        cells += [turns.spread(turns.ratios(values, variant, "native"), "{:.2f}") for variant in VARIANTS[1:]]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| adds, ns | " + " | ".join(map(_name, VARIANTS[1:])) + " |", "|---|" + "---:|" * len(VARIANTS[1:])]
    for name, values in samples.items():
        cells = [name.replace("_", " ")]
        cells += [turns.spread(turns.adds(values, variant, "native"), "{:.1f}") for variant in VARIANTS[1:]]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _aims(samples):
    """Beside each aim what the least tool takes for it, and the library."""
    lines = ["| aim | at most | the least tool | the library | the aim is |", "|---|---:|---:|---:|---|"]
    for text, row, variant, level, ratio, nanoseconds, over in AIMS:
        values = samples[row]
        # What is added to watch is, of the least tool, what is added to its record.
        base = "record" if over == "watch" else over
        if ratio is not None:
            least, library, most, form = turns.ratios(values, level, base), turns.ratios(values, variant, over), ratio, "{:.2f}"
        else:
            least, library, most, form = turns.adds(values, level, base), turns.adds(values, variant, over), nanoseconds, "{:.1f}"
        bound, found = statistics.median(least), statistics.median(library)
        verdict = "reached" if found <= most else "below the least tool" if most < bound else "above the least tool, not reached"
        unit = "" if ratio is not None else " ns"
        lines.append(f"| {text} | {most}{unit} | {turns.spread(least, form)}{unit} | {turns.spread(library, form)}{unit} | {verdict} |")
    return lines


def limit(options):
    """The lines of both tables."""
    jobs.as_delivered()  # ranks that give up their core while they wait measure the system's scheduler
    where, behind = turns.machine(), tool(options.mpi)
    command = [turns.compiled(options.mpi, "latency"), str(options.per_cent), str(LARGEST)]
    samples, units = turns.take([(2, command, timed)], list(VARIANTS), options.runs,
                                lambda ranks, line, variant: run(options.mpi, line, variant, behind))
    return [f"{options.mpi}, {options.runs} turns; {where}", "", *LEGEND.splitlines(), "", *_table(samples, units), "", *_aims(samples)]


def add(commands):
    command = commands.add_parser("limit")
    command.set_defaults(function=limit)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--runs", type=int, default=12, help="turns that count, at least 1 (default 12)")
    command.add_argument("--per-cent", type=int, default=100, help="work of each run, 1 to 100 (default 100): to try the script; "
                         "figures need 100")
    command.add_argument("--markdown", metavar="FILE", help="append the tables to FILE")
