# SPDX-License-Identifier: Apache-2.0
"""scripts/bench growth: instructions of libresil.so's own code for one round of calls while there are more and more pending
requests, communicators, tags, types, windows, threads or ranks of the node (growth.c), counted by callgrind on rank 0, so that
a crowded machine changes nothing. Each must stay flat or grow with the logarithm; an SVG shows the curves. Ranks that wait
sleep, so that 128 of them run on two cores; the one that is counted comes last (growth_tool.c), and what is counted is work."""
import glob
import math
import os
import re
import subprocess
import sys

from bench import budget
from bench.turns import SOURCES, compiled
from harness import mpi as jobs

MODES = {"watch": {}, "lazy": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "lazy"},
         "strict": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "strict"}, "order": {"RESIL_REDUCE": "order"}}
ALONE = {"requests": 4096, "communicators": 256, "tags": 4096, "types": 1024, "windows": 256, "threads": 64}
# What all ranks do together.
JOBS = ("peers", "neighbours", "allreduce", "bcast", "barrier", "gather", "alltoall")
ONCE = ("init", "finalize")  # of each job, besides
LEAST_RANKS = {"peers": 2, "neighbours": 2}
ROUNDS, JOB_ROUNDS = 256, 32


def built(mpi):
    """(program, tool)"""
    tool = os.path.join(jobs.scratch(), "growth_tool.so")
    subprocess.run([f"mpicc.{mpi}", "-O2", "-shared", "-fPIC", "-o", tool, os.path.join(SOURCES, "growth_tool.c")], check=True)
    return compiled(mpi, "growth", "-rdynamic"), tool


def counted(mpi, programs, arguments, mode, ranks):
    """{(kind, N): instructions a round}, of rank 0."""
    folder, (program, tool) = jobs.scratch(), programs
    env = {**MODES[mode], "RESIL_LOG": "quiet", "RESIL_DIR": os.path.join(folder, "report"),
           "LD_PRELOAD": f"{jobs.library()}:{tool}" if ranks > 1 else jobs.library()}
    given = [f"{name}={value}" for name, value in env.items()]
    line = [program, *map(str, arguments)]
    first = ["env", *given, "valgrind", "--tool=callgrind", "--separate-threads=yes", "--dump-instr=yes", "-q",
             f"--callgrind-out-file={folder}/counts.%p", *line]
    others = [":", "-n", str(ranks - 1), "nice", "env", *given, *line] if ranks > 1 else []
    # Under valgrind ucx makes no window.
    options = ["--oversubscribe", "--bind-to", "none", "--mca", "osc", "^ucx"] if mpi == "openmpi" else []
    result = jobs.run(mpi, 1, [*first, *others], preload=False, timeout=1800, options=options, cwd=folder)
    if result.returncode != 0:
        sys.exit(f"bench: failed\n{result.text()}")
    counts = {}
    for path in glob.glob(f"{folder}/counts.*-01"):
        found = budget.own_cost(path, jobs.library(), set())
        if found is not None:
            kind, number = re.fullmatch(r"(\w+?)(\d+)", found[0]).groups()
            counts[kind, int(number)] = found[1].instructions * budget.ROUNDS / arguments[-1]
    jobs.discard(folder)
    return counts


def share(kind, mode, ranks):
    """(in how many parts what rank 0 does in a round is told, what these are)"""
    if kind == "peers":
        return ranks - 1, "peers, a message there and back"
    if kind in ("gather", "alltoall") and mode in ("lazy", "strict"):  # each block is digested
        return ranks, kind + ", a block"
    return 1, kind


def alone(mpi, programs, what, most, mode):
    """{N: instructions a round}"""
    found = counted(mpi, programs, [what, most, ROUNDS], mode, 1)
    return {number: value for (_, number), value in sorted(found.items())}


def together(mpi, programs, kinds, most, mode):
    """{kind: {N: instructions of a round's share}}"""
    curves = {}
    ranks = 1
    while ranks <= most:
        asked = [kind for kind in kinds if ranks >= LEAST_RANKS.get(kind, 1)]
        found = counted(mpi, programs, [",".join(asked), 0, JOB_ROUNDS], mode, ranks)
        for kind in asked:
            parts, name = share(kind, mode, ranks)
            curves.setdefault(name, {})[ranks] = found[kind, ranks] / parts
        for kind in ONCE:
            curves.setdefault(kind, {})[ranks] = found[kind, ranks] * JOB_ROUNDS
        print(f"{mode}, {ranks} ranks: " + ", ".join(f"{kind} {curves[share(kind, mode, ranks)[1]][ranks]:,.0f}"
                                                     for kind in asked)
              + "".join(f", {kind} {curves[kind][ranks]:,.0f}" for kind in ONCE), file=sys.stderr, flush=True)
        ranks *= 2
    return curves


def growth_of(counts):
    """'flat', 'logarithmic', or by how much each further one adds. What is the first's alone does not count: a loop over
    one communicator, tag or type finds in its call site what it looked up before."""
    counts = {count: value for count, value in counts.items() if count != min(counts)} or counts
    (first, least), (last, most) = min(counts.items()), max(counts.items())
    if last == first or most <= 1.1 * least + 20:
        return "flat"
    # Of a curve that grows with the logarithm each step of four adds as much as the ones before it.
    before = [count for count in counts if count < last]
    final, earlier = most - counts[max(before)], counts[max(before)] - least
    if len(before) > 1 and final <= 1.5 * max(earlier, 10) / (len(before) - 1):
        return "logarithmic"
    return f"GROWS, {(most - least) / (last - first):,.2f} for each"


def svg(curves, path):
    """One line a curve over a logarithmic axis, relative to its beginning."""
    colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
    most = max((value / min(counts.values()) for counts in curves.values() for value in counts.values()), default=1)
    top = max(2.0, most)
    shown = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 400" font-family="sans-serif" font-size="12">',
             '<rect width="720" height="400" fill="white"/>',
             '<text x="60" y="20">instructions of a round, of those with the fewest</text>']
    for mark in range(0, 13, 2):
        shown.append(f'<text x="{60 + mark * 36}" y="390">{2 ** mark}</text>')
    for step in range(5):
        value = 1 + (top - 1) * step / 4
        shown.append(f'<text x="5" y="{365 - 320 * step / 4}">{value:.2f}</text>')
    for number, (name, counts) in enumerate(curves.items()):
        least = min(counts.values())
        points = " ".join(f"{60 + math.log2(count) * 36:.0f},{360 - 320 * (value / least - 1) / (top - 1):.0f}"
                          for count, value in counts.items())
        colour, dash = colours[number % 8], "" if number < 8 else ' stroke-dasharray="5 3"'
        shown.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        shown.append(f'<text x="540" y="{40 + 16 * number}" fill="{colour}">{name}</text>')
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(shown) + "\n</svg>\n")


def growth(options):
    programs = built(options.mpi)
    lines = [f"{options.mpi}, instructions of libresil.so's own code a round, by how many there are", "",
             "| | mode | counts | |", "|---|---|---|---|"]
    curves = {}
    kinds = options.only or [*ALONE, *JOBS]
    for mode in options.mode or ["watch", "lazy"]:
        for kind in kinds:
            if kind in ALONE:
                curves[f"{kind}, {mode}"] = alone(options.mpi, programs, kind, min(ALONE[kind], options.most), mode)
        asked = [kind for kind in kinds if kind in JOBS]
        for kind, counts in together(options.mpi, programs, asked, options.ranks, mode).items() if asked else ():
            curves[f"{kind}, {mode}"] = counts
    for name, counts in curves.items():
        verdict = growth_of(counts)
        options.failed = getattr(options, "failed", False) or verdict.startswith("GROWS")
        text = ", ".join(f"{count:,}: {value:,.0f}" for count, value in counts.items())
        lines.append("| " + " | ".join([*name.rsplit(", ", 1), text, verdict]) + " |")
    if options.svg:
        svg(curves, options.svg)
    return lines


def add(commands):
    command = commands.add_parser("growth")
    command.set_defaults(function=growth)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--only", action="append", choices=(*ALONE, *JOBS), help="only this; may be repeated")
    command.add_argument("--mode", action="append", choices=MODES, help="only this mode; may be repeated")
    command.add_argument("--most", type=int, default=4096, help="of what one rank has (default 4096)")
    command.add_argument("--ranks", type=int, default=16, help="ranks at most (default 16)")
    command.add_argument("--svg", metavar="FILE", help="the curves")
    command.add_argument("--markdown", metavar="FILE", help="append the table to FILE")
