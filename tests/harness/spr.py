# SPDX-License-Identifier: Apache-2.0
"""Bits flipped in the particles of tests/mpi/sph.c by the method of Cavelan et al. (CCGrid 2019), and what finds them; and
what particle replication costs in instructions. Used by scripts/campaign spr.
"""
import json
import os
import re
import subprocess

from . import mpi as jobs

SOURCE = os.path.join(jobs.ROOT, "tests", "mpi", "sph.c")
LINE = re.compile(r"flips (\w+): masked (\d+) detected (\d+), insignificant (\d+) detected (\d+), significant (\d+) detected (\d+), "
                  r"not made (\d+)")
KERNELS = ("density", "state", "forces", "gravity", "drift", "kick")


def compiled(mpi):
    output = os.path.join(jobs.scratch(), "sph." + mpi)
    subprocess.run([f"mpicc.{mpi}", "-std=gnu11", "-O2", "-g", "-w", "-I" + os.path.join(jobs.ROOT, "shim", "include"), "-o", output,
                    SOURCE, "-lm", "-ldl"], check=True)
    return output


def flips(program, mpi, ranks, problem, particles, each, seed, method, inputs):
    """[(field, {kind: (number, detected)})...], false alarms of undisturbed steps."""
    result = jobs.run(mpi, ranks, [program, problem, str(particles), "flips", str(each), str(seed)], timeout=3600,
                      env={"RESIL_SPR": method, "RESIL_SPR_INPUTS": "1" if inputs else "0", "RESIL_ON_MISMATCH": "log",
                           "RESIL_LOG": "quiet"})
    text = result.stdout.decode()
    assert result.returncode == 0, result.text()
    rows = []
    for found in LINE.finditer(text):
        numbers = [int(word) for word in found.groups()[1:]]
        rows.append((found[1], {"masked": numbers[0:2], "insignificant": numbers[2:4], "significant": numbers[4:6]}))
    return rows, int(re.search(r"(\d+) false alarms", text)[1])


def percent(found, of):
    return f"{100 * found / of:.1f} %" if of else "none"


def instructions(program, mpi, problem, particles, method, steps=2):
    """Of one rank: (all, {function of sph.c: inclusive}), by callgrind."""
    work = jobs.scratch()
    out = os.path.join(work, "callgrind.out")
    environment = dict(os.environ, RESIL_DIR=os.path.join(work, "report"), RESIL_SPR=method, RESIL_LOG="quiet",
                       LD_PRELOAD=os.path.join(jobs.ROOT, "build", "libresil.so"), RESIL_FILES="all")
    subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out, program, problem, str(particles), str(steps)],
                   env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    environment.pop("LD_PRELOAD")
    said = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", out], env=environment, check=True,
                          stdout=subprocess.PIPE).stdout.decode()
    counts = {}
    for number, name in re.findall(r"^ *([\d,]+) \([^)]*\)  \S*?:([\w: ]+?)(?:\(| \[|$)", said, re.MULTILINE):
        counts.setdefault(name.strip(), int(number.replace(",", "")))
    total = re.search(r"^ *([\d,]+) \([^)]*\)  PROGRAM TOTALS", said, re.MULTILINE)
    with open(os.path.join(work, "report", "rank-00000.json"), encoding="utf-8") as report:
        summary = (json.load(report).get("spr") or [{}])[0]
    return int(total[1].replace(",", "")), counts, summary


def table(title, head, rows):
    lines = ["", title, "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def campaign_flips(options, program):
    """One table for each way of looking; how many false alarms."""
    text, alarms = "", 0
    for inputs in (True, False):
        rows, false = flips(program, options.mpi, options.ranks, "evrard", options.particles, options.injections, options.seed,
                            options.method, inputs)
        alarms += false
        shown = []
        for field, counted in rows:
            significant, small = counted["significant"], counted["insignificant"]
            shown.append((field, significant[0], percent(significant[1], significant[0]), sum(significant[:1] + small[:1]),
                          percent(significant[1] + small[1], significant[0] + small[0]), counted["masked"][0], counted["masked"][1]))
        everything = [sum(row[1][kind][at] for row in rows) for kind in ("significant", "insignificant") for at in (0, 1)]
        shown.append(("all", everything[0], percent(everything[1], everything[0]), everything[0] + everything[2],
                      percent(everything[1] + everything[3], everything[0] + everything[2]), sum(row[1]["masked"][0] for row in rows),
                      sum(row[1]["masked"][1] for row in rows)))
        text += table(f"{options.mpi}, {options.ranks} ranks, RESIL_SPR={options.method}, " +
                      ("replicas and inputs" if inputs else "replicas alone (RESIL_SPR_INPUTS=0), as in the paper") +
                      f"; false alarms in 3 undisturbed runs: {false}",
                      ("field", "significant", "found", "all that survive", "found", "masked", "of these found"), shown)
    return text, alarms


def campaign_cost(options, program):
    """Instructions of one rank, whose replicas are its own: with and without."""
    rows, base = [], None
    for method in ("off", "cover", "hashed", "greedy"):
        total, counts, summary = instructions(program, options.mpi, "evrard", options.particles, method)
        base = base or total
        share = {name: counts.get("resil_spr_" + name, 0) for name in ("select", "begin", "end")}
        rows.append((method, f"{total:,}", f"{100 * (total / base - 1):+.2f} %",
                     f"{100 * summary.get('replicas', 0) / max(1, summary.get('particles', 1)):.2f} %",
                     *(f"{100 * share[name] / base:.2f} %" for name in share)))
    return table("Instructions of one rank (callgrind), five evaluations of all kernels and gravity, MPI_Init to MPI_Finalize",
                 ("RESIL_SPR", "instructions", "added", "replicas", "select", "begin", "end, with kernels"), rows)


def campaign(options):
    program = compiled(options.mpi)
    text, alarms = campaign_flips(options, program)
    if options.instructions:
        text += campaign_cost(options, program)
    print(text)
    if options.markdown:
        with open(options.markdown, "a", encoding="utf-8") as file:
            file.write(text)
    return 1 if alarms else 0
