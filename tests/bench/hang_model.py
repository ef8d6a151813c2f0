# SPDX-License-Identifier: Apache-2.0
"""scripts/bench hang-model: the judge of computation hangs on simulated programs, tests/bench/hang_simulator.cpp."""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from harness import mpi as jobs

RANKS = ("4", "16", "64", "256", "1024", "10000", "100000")
SHAPES = 14


def _simulator():
    build = os.path.dirname(jobs.library())
    made = subprocess.run(["ninja", "-C", build, "tests/hang_simulator"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        sys.exit(f"bench: cannot build the simulator\n{made.stdout}{made.stderr}")
    return os.path.join(build, "tests", "hang_simulator")


def _simulate(program, ranks, options):
    """[[field]] of one size, a shape each."""
    command = [program, "--ranks", ranks, "--hours", str(options.hours / SHAPES), "--hangs", str(options.hangs),
               "--seed", str(options.seed), *(["--blind"] if options.blind else [])]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    if result.returncode != 0 or len(rows) != SHAPES:
        sys.exit(f"bench: {' '.join(command)}: {result.returncode}, {len(rows)} shapes instead of {SHAPES}\n{result.stderr}")
    return rows


def _share(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"


def hang_model(options):
    """Sizes side by side; shapes below, over all sizes. The shapes marked `beyond` are in no sum."""
    program, sizes = _simulator(), options.only or RANKS
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = dict(zip(sizes, pool.map(lambda ranks: _simulate(program, ranks, options), sizes)))
    lines = [f"hang-model: {options.hours:g} simulated hours and {SHAPES} x {options.hangs} hangs for each size, seed "
             f"{options.seed}" + (", kernel and counts of calls not asked" if options.blind else ""), "",
             "| ranks | hours | suspicions an hour | verified false alarms | hangs suspected | verified |",
             "|---:|---:|---:|---:|---:|---:|"]
    for ranks, rows in results.items():
        judged = [row for row in rows if row[1] == "1"]
        hours, hangs = sum(float(row[2]) for row in judged), sum(int(row[5]) for row in judged)
        suspicions = sum(float(row[2]) * float(row[3]) for row in judged) / hours if hours else 0
        lines.append(f"| {int(ranks):,} | {hours:,.0f} | {suspicions:.3f} | {sum(int(row[4]) for row in judged)} | "
                     f"{_share(sum(int(row[6]) for row in judged), hangs)} | "
                     f"{_share(sum(int(row[7]) for row in judged), hangs)} |")
    lines += ["", "Delays of all sizes: [least .. greatest] of their medians, and greatest of their 95 % values.", "",
              "| program | hours | false alarms | suspected, median s | 95 % | verified, median s | 95 % | "
              "longest quiet before, s |", "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for index in range(SHAPES):
        rows = [rows[index] for rows in results.values()]
        spread = [(min(values), max(values)) for values in ([float(row[i]) for row in rows] for i in range(8, 13))]
        name = rows[0][0] + ("" if rows[0][1] == "1" else " (beyond)")
        lines.append(f"| {name} | {sum(float(row[2]) for row in rows):,.0f} | {sum(int(row[4]) for row in rows)} | "
                     f"{spread[0][0]:.1f} .. {spread[0][1]:.1f} | {spread[1][1]:.1f} | "
                     f"{spread[2][0]:.1f} .. {spread[2][1]:.1f} | {spread[3][1]:.1f} | "
                     f"{spread[4][0]:.1f} .. {spread[4][1]:.1f} |")
    return lines


def add(commands):
    """The subcommand's own options."""
    command = commands.add_parser("hang-model")
    command.set_defaults(function=hang_model, runs=1)
    command.add_argument("--hours", type=float, default=30000 * SHAPES / (SHAPES - 1), help="simulated hours a size")
    command.add_argument("--hangs", type=int, default=100, help="injected hangs a size and program (default 100)")
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--only", action="append", choices=RANKS, help="only this size; may be repeated")
    command.add_argument("--blind", action="store_true", help="without the kernel's word and counts of calls")
    command.add_argument("--markdown", metavar="FILE", help="append the table to FILE")
