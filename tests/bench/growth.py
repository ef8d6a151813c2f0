# SPDX-License-Identifier: Apache-2.0
"""scripts/bench growth: instructions of libresil.so's own code for one round of calls while there are more and more pending
requests, communicators, tags, types, windows, threads, peers or ranks (growth.c), counted by callgrind on rank 0, so that
a crowded machine changes nothing. Each must stay flat or grow with the logarithm; an SVG shows the curves."""
import glob
import math
import os
import sys

from bench import budget
from bench.turns import compiled
from harness import mpi as jobs

MODES = {"watch": {}, "lazy": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "lazy"}, "order": {"RESIL_REDUCE": "order"}}
ALONE = {"requests": 4096, "communicators": 256, "tags": 4096, "types": 1024, "windows": 64, "threads": 64}
JOBS = ("peers", "ranks")
ROUNDS = 256


def of_one(mpi, program, what, most, mode, ranks):
    """{N: instructions a round}, of rank 0."""
    folder = jobs.scratch()
    env = {**MODES[mode], "RESIL_LOG": "quiet", "RESIL_DIR": os.path.join(folder, "report"), "LD_PRELOAD": jobs.library()}
    given = [f"{name}={value}" for name, value in env.items()]
    arguments = [program, what, str(most), str(ROUNDS)]
    counted = ["env", *given, "valgrind", "--tool=callgrind", "--separate-threads=yes", "--dump-instr=yes", "-q",
               f"--callgrind-out-file={folder}/counts.%p", *arguments]
    others = [":", "-n", str(ranks - 1), "env", *given, *arguments] if ranks > 1 else []
    # Under valgrind ucx makes no window.
    options = ["--oversubscribe", "--bind-to", "none", "--mca", "osc", "^ucx"] if mpi == "openmpi" else []
    result = jobs.run(mpi, 1, [*counted, *others], preload=False, timeout=600, options=options, cwd=folder)
    if result.returncode != 0:
        sys.exit(f"bench: failed\n{result.text()}")
    counts = {}
    for path in glob.glob(f"{folder}/counts.*-01"):
        found = budget.own_cost(path, jobs.library(), set())
        if found is not None:
            counts[int(found[0][1:])] = found[1].instructions * budget.ROUNDS / ROUNDS
    return dict(sorted(counts.items()))


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
    program = compiled(options.mpi, "growth")
    lines = [f"{options.mpi}, instructions of libresil.so's own code a round, by how many there are", "",
             "| | mode | counts | |", "|---|---|---|---|"]
    curves = {}
    for what in options.only or [*ALONE, *JOBS]:
        for mode in options.mode or (["order"] if what == "ranks" else ["watch", "lazy"]):
            if what in JOBS:
                counts = {}
                ranks = 2
                while ranks <= options.ranks:
                    found = of_one(options.mpi, program, what, 1, mode, ranks)
                    counts.update({n - 1 if what == "peers" else n: value / (n - 1 if what == "peers" else 1)
                                   for n, value in found.items()})
                    ranks *= 2
            else:
                counts = of_one(options.mpi, program, what, min(ALONE[what], options.most), mode, 1)
            curves[f"{what}, {mode}"] = counts
            verdict = growth_of(counts)
            options.failed = getattr(options, "failed", False) or verdict.startswith("GROWS")
            text = ", ".join(f"{count:,}: {value:,.0f}" for count, value in counts.items())
            lines.append(f"| {what} | {mode} | {text} | {verdict} |")
            print(lines[-1], file=sys.stderr, flush=True)
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
