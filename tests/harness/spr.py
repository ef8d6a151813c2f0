# SPDX-License-Identifier: Apache-2.0
"""Bits flipped in the particles of tests/mpi/sph.c by the method of Cavelan et al. (CCGrid 2019), and what finds them; and
what particle replication costs in instructions. Used by scripts/campaign spr.
"""
import json
import math
import os
import re
import statistics
import subprocess

from . import mpi as jobs

SOURCE = os.path.join(jobs.ROOT, "tests", "mpi", "sph.c")
LINE = re.compile(r"flips (\w+): masked (\d+) detected (\d+), insignificant (\d+) detected (\d+), significant (\d+) detected (\d+), "
                  r"not made (\d+)")
QUIET = re.compile(r"undisturbed: (\d+) runs, (\d+) false alarms")
FIELDS = ("position", "mass", "energy", "velocity", "density")  # by their numbers in sph_campaign.h
METHODS = ("cover", "hashed", "greedy")
KINDS = ("masked", "insignificant", "significant")


def compiled(mpi):
    output = os.path.join(jobs.scratch(), "sph." + mpi)
    subprocess.run([f"mpicc.{mpi}", "-std=gnu11", "-O2", "-g", "-w", "-I" + os.path.join(jobs.ROOT, "shim", "include"), "-o", output,
                    SOURCE, "-lm", "-ldl"], check=True)
    return output


def flips(program, options, field, each, inputs):
    """({kind: [number, detected]}, undisturbed runs, false alarms, [undetected]), in jobs of at most 500 flips."""
    counted = {kind: [0, 0] for kind in KINDS}
    quiet = alarms = 0
    undetected = []
    while each > 0:
        now = min(each, 500)
        result = jobs.run(options.mpi, options.ranks, [program, "evrard", str(options.particles), "flips", str(FIELDS.index(field)),
                                                       str(now), str(options.seed * 1000 + each), str(max(2, now // 10))], timeout=3600,
                          env={"RESIL_SPR": options.method, "RESIL_SPR_INPUTS": "1" if inputs else "0",
                               "RESIL_ON_MISMATCH": "log", "RESIL_LOG": "quiet"})
        text = result.stdout.decode()
        assert result.returncode == 0, result.text()
        numbers = [int(word) for word in LINE.search(text).groups()[1:]]
        for at, kind in enumerate(KINDS):
            counted[kind][0] += numbers[2 * at]
            counted[kind][1] += numbers[2 * at + 1]
        assert numbers[6] == 0, f"{numbers[6]} flips were not made"
        runs, false = (int(word) for word in QUIET.search(text).groups())
        quiet, alarms = quiet + runs, alarms + false
        undetected += re.findall(r"undetected: .*", text)
        jobs.discard(os.path.dirname(result.directory))
        each -= now
    return counted, quiet, alarms, undetected


def percent(found, of):
    return f"{100 * found / of:.1f} %" if of else "none"


def at_least(found, of, level=0.95):
    """Lower end of the two-sided interval of Clopper and Pearson for `found` of `of`, as a share."""
    def tail(share):  # so many or more
        return sum(math.exp(math.lgamma(of + 1) - math.lgamma(k + 1) - math.lgamma(of - k + 1) + k * math.log(share) +
                            (of - k) * math.log1p(-share)) for k in range(found, of + 1))
    low, high = 0.0, 1.0
    while found and high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) < (1 - level) / 2 else (low, middle)
    return low


def instructions(program, mpi, problem, particles, method, steps=2):
    """Of one rank: (all, {function of sph.c: inclusive}), by callgrind."""
    work = jobs.scratch()
    out = os.path.join(work, "callgrind.out")
    environment = dict(os.environ, RESIL_DIR=os.path.join(work, "report"), RESIL_SPR=method, RESIL_LOG="quiet",
                       LD_PRELOAD=jobs.library(), RESIL_FILES="all")
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


def processor_seconds(program, problem, particles, steps, method):
    """Of one rank by itself, started without a launcher, with its replicas on itself: nothing waits for anybody."""
    environment = dict(os.environ, RESIL_DIR=os.path.join(jobs.scratch(), "report"), RESIL_SPR=method, RESIL_LOG="quiet",
                       LD_PRELOAD=jobs.library())
    started = os.posix_spawn(program, [program, problem, str(particles), str(steps)], environment,
                             file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, used = os.wait4(started, 0)
    assert status == 0
    return used.ru_utime + used.ru_stime


def table(title, head, rows):
    lines = ["", title, "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def campaign_flips(options, program):
    """One table for each way of looking; how many false alarms."""
    text, alarms = "", 0
    for inputs in (True, False):
        shown, runs, false_alarms = [], 0, 0
        for field in FIELDS:
            each = options.density if field == "density" and options.density else options.injections
            each = each if inputs else -(-each // 10)
            counted, quiet, false, undetected = flips(program, options, field, each, inputs)
            runs, false_alarms = runs + quiet, false_alarms + false
            significant, small, masked = (counted[kind] for kind in ("significant", "insignificant", "masked"))
            alive = [significant[0] + small[0], significant[1] + small[1]]
            shown.append((field, each, significant[0], significant[1], f"{100 * at_least(significant[1], significant[0]):.1f} %",
                          alive[0], alive[1], f"{100 * at_least(alive[1], alive[0]):.1f} %", masked[0], masked[1]))
            print(shown[-1], *(undetected if options.verbose else []), sep="\n", flush=True)
        alarms += false_alarms
        text += table(f"{options.mpi}, {options.ranks} ranks, RESIL_SPR={options.method}, " +
                      ("replicas, inputs and results" if inputs else "replicas alone (RESIL_SPR_INPUTS=0)") +
                      f"; false alarms in {runs} undisturbed runs: {false_alarms}",
                      ("field", "flips", "significant", "found", "share at least (95 %)", "all that survive", "found",
                       "share at least (95 %)", "masked", "of these found"), shown)
    return text, alarms


def campaign_cost(options, program, problem):
    """Instructions of one rank, whose replicas are its own: with and without."""
    rows, base = [], None
    for method in ("off", *METHODS):
        total, counts, summary = instructions(program, options.mpi, problem, options.particles, method)
        base = base or total
        share = {name: counts.get("resil_spr_" + name, 0) for name in ("select", "begin", "computed", "end")}
        rows.append((method, f"{total:,}", f"{100 * (total / base - 1):+.2f} %",
                     f"{100 * summary.get('replicas', 0) / max(1, summary.get('particles', 1)):.2f} %",
                     *(f"{100 * share[name] / base:.2f} %" for name in share)))
    return table(f"{problem}: instructions of one rank (callgrind), four evaluations of all kernels, MPI_Init to MPI_Finalize",
                 ("RESIL_SPR", "instructions", "added", "replicas", "select", "begin", "computed", "end, with kernels"), rows)


def campaign_time(options, program, problem):
    """Processor time of one rank, in pairs one after the other, so that what else runs on the machine hits both."""
    ratios, seconds = [], []
    for _ in range(options.pairs):
        seconds.append(processor_seconds(program, problem, options.particles, 10, "off"))
        ratios.append(processor_seconds(program, problem, options.particles, 10, options.method) / seconds[-1])
    ratios.sort()
    row = (problem, options.method, f"{statistics.median(seconds):.2f}", f"{100 * (statistics.median(ratios) - 1):+.1f} %",
           f"{100 * (ratios[len(ratios) // 4] - 1):+.1f} to {100 * (ratios[-1 - len(ratios) // 4] - 1):+.1f} %")
    return table(f"Processor time of one rank, 10 steps of {options.particles} particles, {options.pairs} pairs of runs",
                 ("problem", "RESIL_SPR", "seconds without", "added, median", "half of the pairs"), [row])


def campaign(options):
    program = compiled(options.mpi)
    text, alarms = campaign_flips(options, program) if options.injections else ("", 0)
    for problem in ("evrard", "wind") if options.time else ():
        text += campaign_time(options, program, problem)
    if options.instructions:
        text += campaign_cost(options, program, "evrard") + campaign_cost(options, program, "wind")
    print(text)
    if options.markdown:
        with open(options.markdown, "a", encoding="utf-8") as file:
            file.write(text)
    return 1 if alarms else 0
