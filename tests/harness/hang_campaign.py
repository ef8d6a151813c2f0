# SPDX-License-Identifier: Apache-2.0
"""scripts/campaign hangs: many hangs, several side by side, and the table of what was found."""
import functools
import json
import random
import statistics
import threading

from . import hangs, workloads

# {name: makers of endless workloads, by MPI}. MPICH here loses messages of its own with more than two ranks.
# Each takes the number of ranks, None: its usual one.
PROGRAMS = {
    "lammps": {"openmpi": lambda n: workloads.lammps(ranks=n or 4)},
    "hpcc": {"openmpi": lambda n: workloads.hpcc(ranks=n or 4)},
    "stencil": {"openmpi": lambda n: workloads.stencil(ranks=n or 8), "mpich": lambda n: workloads.stencil("mpich", n or 2)},
    "espresso": {"openmpi": lambda n: workloads.espresso(ranks=n or 2)},
    "wave": {"openmpi": lambda n: workloads.wave(ranks=n or 3)},
    "netpipe": {"openmpi": lambda n: workloads.netpipe(), "mpich": lambda n: workloads.netpipe("mpich")},
    "rounds": {"openmpi": lambda n: workloads.rounds(ranks=n or 16, milliseconds=2),
               "mpich": lambda n: workloads.rounds("mpich", n or 2)},
}
# Ways that a program has no calls for, or not in the part that is under way.
# mpi4py's own messages with another tag are an exception, not a hang.
NOT = {"hpcc": ("skip", "reorder"), "netpipe": ("skip", "reorder"), "espresso": ("tag",), "wave": ("tag",)}
HEADER = ("program", "hang", "runs", "hung", "found", "right rank named, nobody, wrong", "noticed: median, 95 %",
          "suspected: median, 95 %", "found: median, 95 %", "said", "false alarms")
PARASTACK = """ParaStack's published figures (Li, Chen and Gupta, SC'17), 10 sampled processes of 256 to 16,384, hangs injected
as a long sleep: median delay at 256 processes 3 to 13 s (BT 4, CG 6, LU 3, SP 3, FT 13, MG 3, HPL 4, HPCG 5); over 99 %
found of 100 runs of each program; no false alarm in 66 h at 256 and 39.7 h at 1,024 processes.

| ParaStack, average delay (standard deviation), s | BT | CG | FT | LU | SP | HPL |
|---|---|---|---|---|---|---|
| Tianhe-2, 1,024 processes, 50 runs | 7.2 (7.3) | 18.8 (14.7) | 8.8 (7.3) | 9.0 (4.2) | 4.8 (2.2) | 6.8 (3.3) |
| Stampede, 1,024 processes, 20 runs | 7.1 (4.5) | 7.6 (4.5) | – | 7.8 (5.9) | 4.1 (1.2) | 5.0 (2.5) |
| Stampede, 4,096 processes, 10 runs | 5.4 (3.6) | 24.1 (13.1) | – | 4.3 (1.3) | 3.7 (2.0) | 5.6 (4.7) |"""


def percent(part, whole):
    return f"{100 * part / whole:.0f} %" if whole else "–"


def spread(values):
    """Median and 95th percentile (nearest rank), or that there are none."""
    ordered = sorted(values)
    if not ordered:
        return "–"
    return f"{statistics.median(ordered):.1f}, {ordered[max(0, -(-95 * len(ordered) // 100) - 1)]:.1f} s"


def line(outcomes, *names):
    """One row over these outcomes."""
    made = [each for each in outcomes if each.injected]
    hung = [each for each in made if each.hung]
    found = [each for each in hung if each.found is not None]
    kinds = sorted({f"{each.confidence} {each.finding_class}" for each in found})
    noticed = [each.noticed for each in hung if each.noticed is not None]
    suspected = [each.suspected for each in hung if each.suspected is not None]
    return (*names, len(outcomes), len(hung), percent(len(found), len(hung)),
            f"{sum(each.right for each in found)}, {sum(not each.culprits for each in found)}, "
            f"{sum(each.wrong for each in found)}", spread(noticed), spread(suspected),
            spread([each.found for each in found]), ", ".join(kinds) or "–",
            sum(each.false_alarms for each in outcomes))


def ends(outcomes):
    """A sentence on RESIL_HANG=abort."""
    acted = [each for each in outcomes if each.action == "abort" and each.found is not None]
    if not acted:
        return ""
    told = [each for each in acted if (each.mpi, each.kind) != ("openmpi", "kill")]
    right = sum(each.status == 92 for each in told)
    seconds = spread([each.ended for each in acted if each.ended is not None])
    return (f"\n\nRESIL_HANG=abort: {right} of {len(told)} jobs ended with status 92 (after `kill` Open MPI's "
            f"launcher, told to leave the others alone, always gives 0); from the finding to the launcher's "
            f"end (median, 95 %): {seconds}.")


def table_rows(outcomes):
    rows, groups = [], {}
    for outcome in outcomes:
        program = f"{outcome.program}, {outcome.mpi}, {outcome.ranks} ranks"
        groups.setdefault((program, outcome.kind + (", alone on its node" if outcome.alone else "")), []).append(outcome)
    for (program, kind), group in sorted(groups.items()):
        rows.append(line(group, program, kind))
    for program in sorted({program for program, _ in groups}):
        every = [outcome for (its, _), group in groups.items() if its == program for outcome in group]
        rows.append(line(every, f"**{program}**", "all"))
    rows.append(line(outcomes, "**all**", "all"))
    return rows


def plan(options):
    """[(maker, kind, rank seed, seconds until the hang, simulated ranks a node)], in random order."""
    choice, runs = random.Random(options.seed), []
    for name in options.programs or PROGRAMS:
        known = PROGRAMS[name].get(options.mpi)
        maker = functools.partial(known, options.ranks) if known else None
        if maker is None or not workloads.runnable(maker()):
            print(f"{name}: not with {options.mpi} here")
            continue
        ranks = maker().ranks
        kinds = [kind for kind in options.hang or hangs.CLASSES if kind not in NOT.get(name, ())]
        for number in range(options.runs if kinds else 0):
            kind = kinds[number % len(kinds)]
            nodes = choice.choice([0] + [-(-ranks // count) for count in (1, 2, 3, 4)])
            runs.append((maker, kind, choice.randrange(ranks), choice.uniform(*options.after), nodes))
    choice.shuffle(runs)
    return runs


def perform(options, runs):
    """All runs, some side by side; their outcomes, each also as a line of --log."""
    library, outcomes, lock = hangs.injector(options.mpi), [], threading.Lock()
    queue = list(enumerate(runs))

    def work():
        while True:
            with lock:
                if not queue:
                    return
                number, (maker, kind, rank, after, nodes) = queue.pop(0)
                workload = maker()
            outcome = hangs.run(workload, library, kind, rank, after, options.action, nodes, options.limit,
                               options.keep)
            with lock:
                outcomes.append(outcome)
                print(f"{number + 1:4} {outcome.text()}", flush=True)
                if options.log:
                    with open(options.log, "a", encoding="utf-8") as file:
                        file.write(json.dumps(outcome.row()) + "\n")

    workers = [threading.Thread(target=work, daemon=True) for _ in range(options.parallel)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return outcomes
