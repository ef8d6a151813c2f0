# SPDX-License-Identifier: Apache-2.0
"""scripts/bench checksum: what checking costs, in time and memory, against a native and a watched run in the same turn;
and that it did check: a mode that looks at nothing is cheap."""
import os
import statistics

from bench import turns
from harness import mpi as jobs

VARIANTS = ("native", "watch", "lazy", "full", "strict")
CHECKING = ("lazy", "full", "strict")
LONGEST = 200  # seconds for one run of the memory cases
PARTS = ("messages", "apps", "collectives", "memory")
LEGEND = """\
Ranks are pinned, one a core. lazy = `RESIL_MODE=checksum`; full = lazy with `RESIL_BLAME=full`; strict =
`RESIL_CHECKSUM=strict`. Columns: what the variant adds to the native run of the same turn, median [least .. greatest];
for lazy also what it adds to watch, which every mode includes. A ping-pong figure is one way, half of there and back.
plain: nobody touches the data; touch: the sender writes all of it before, the receiver reads all of it afterwards."""


class Coverage:
    """What the checksum runs say that they have checked: total and the worst run."""

    def __init__(self):
        self.total, self.checked, self.worst, self.open, self.jobs = {}, {}, {}, {}, {}

    def note(self, variant, ranks):
        sections = [report.get("checksum", {}) for report in ranks.values()]
        total = sum(section.get("messages_total", 0) for section in sections)
        checked = sum(section.get("messages_checked", 0) for section in sections)
        self.total[variant] = self.total.get(variant, 0) + total
        self.checked[variant] = self.checked.get(variant, 0) + checked
        self.worst[variant] = min(self.worst.get(variant, 1.0), checked / total if total else 0.0)
        self.open[variant] = self.open.get(variant, 0) + sum(section.get("unverified", 0) for section in sections)
        self.jobs[variant] = self.jobs.get(variant, 0) + 1

    def lines(self):
        return [f"{variant}: {self.checked[variant]:,} of {self.total[variant]:,} messages checked in "
                f"{self.jobs[variant]} runs, worst run {100 * self.worst[variant]:.3f} %, {self.open[variant]} unverified"
                for variant in CHECKING if variant in self.total]


def _programs(mpi, parts, per_cent):
    chosen = []
    if "messages" in parts:
        chosen.append((2, [turns.compiled(mpi, "messages"), str(per_cent)], turns.measured))
    if "apps" in parts:
        chosen.append((2, [turns.compiled(mpi, "stencil"), str(40 * per_cent)], turns.measured))
        chosen += turns.lammps(mpi, 25 * per_cent)
    if "collectives" in parts:
        chosen.append((2, [turns.compiled(mpi, "collective"), str(per_cent)], turns.measured))
    return chosen


def _times(samples, units):
    lines = ["| measured | native | watch adds | lazy adds | lazy over watch | full adds | strict adds |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    for name, values in samples.items():
        form = "{:.1f}"
        cells = [name.replace("_", " "), f"{statistics.median(values['native']):.1f} {units[name]}",
                 turns.spread(turns.adds(values, "watch", "native"), form),
                 turns.spread(turns.adds(values, "lazy", "native"), form),
                 turns.spread(turns.adds(values, "lazy", "watch"), form),
                 turns.spread(turns.adds(values, "full", "native"), form),
                 turns.spread(turns.adds(values, "strict", "native"), form)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| measured | watch / native | lazy / native | lazy / watch | full / native | strict / native |",
              "|---|---:|---:|---:|---:|---:|"]
    for name, values in samples.items():
        pairs = (("watch", "native"), ("lazy", "native"), ("lazy", "watch"), ("full", "native"), ("strict", "native"))
        lines.append("| " + " | ".join([name.replace("_", " ")] + [turns.spread(turns.ratios(values, *pair))
                                                                   for pair in pairs]) + " |")
    return lines


def _aims(samples):
    """Each aim, what is compared with what, and whether the median reaches it."""
    rows = []

    def aim(text, compared, name, values, most, form):
        if name not in samples:
            return
        found = values(samples[name])
        rows.append(f"| {text} | {compared}, {name.replace('_', ' ')} | {turns.spread(found, form)} | "
                    f"{'yes' if statistics.median(found) <= most else '**no**'} |")

    for touch in ("plain", "touch"):
        for size in (8, 1024):
            aim("lazy adds at most 20 ns to a small message", "lazy - watch, one message in a window of 64",
                f"window64_message_{touch}_{size}", lambda v: turns.adds(v, "lazy", "watch"), 20, "{:.1f} ns")
        aim("lazy adds at most 25 % to an 8-byte ping-pong", "lazy / native - 1, one way, watch included",
            f"pingpong_{touch}_8", lambda v: [100 * (r - 1) for r in turns.ratios(v, "lazy", "native")], 25, "{:.1f} %")
        for size, most in ((8, 250), (64, 250), (256, 250), (1024, 250), (4096, 400)):
            aim(f"strict adds at most {most} ns to {size} bytes", "strict - native, one way, watch included",
                f"pingpong_{touch}_{size}", lambda v: turns.adds(v, "strict", "native"), most, "{:.1f} ns")
    for name in ("lammps_loop", "stencil_loop"):
        aim("lazy adds at most 2 % to an application", "lazy / native - 1, watch included", name,
            lambda v: [100 * (r - 1) for r in turns.ratios(v, "lazy", "native")], 2, "{:.2f} %")
    return ["| aim | compared | median | reached |", "|---|---|---:|---|"] + rows if rows else []


def _memory(mpi, runs, count, coverage):
    """Resident memory in the two hard cases."""
    program, hung = turns.compiled(mpi, "memory"), []

    def one(ranks, command, variant):
        # A flag of its own for each run: the one of the run before is there already.
        line = [*command, os.path.join(jobs.scratch(), "flag")] if "silent" in command else command
        result = turns.run(mpi, ranks, line, variant, timeout=LONGEST, may_hang=True)
        if result.timed_out:
            hung.append(f"{variant}, {command[1]}: NOT at its end after {LONGEST} s; what it had printed counts")
            jobs.remove_rings(result.directory)
        elif variant in CHECKING:
            coverage.note(variant, result.ranks())
        return result.stdout.decode()
    lines = []
    # Open MPI takes 150 sends from the program and walks over the others again and again: 100,000 take it a minute.
    sent = count if mpi == "mpich" else max(1, count // 50)
    for case, number, title in (("pending", count, "receives posted before the first send"),
                                ("silent", sent, "small messages sent to a rank that calls no MPI meanwhile")):
        title = f"{number:,} {title}"
        samples, units = turns.take([(2, [program, case, str(number)], turns.measured)], list(VARIANTS), runs, one)
        lines += ["", f"Resident memory, MiB (VmRSS); {title}. `mapped`: of it, files of resil.", "",
                  "| moment | native | watch | lazy | full | strict | lazy over watch |",
                  "|---|---:|---:|---:|---:|---:|---:|"]
        for name, values in samples.items():
            part = 1024 if units[name] == "KiB" else 1
            form = "{:.1f}" if part > 1 else "{:.0f}"
            cells = [name.replace("_", " ")]
            cells += [form.format(statistics.median(values[variant]) / part) if values.get(variant) else "none"
                      for variant in VARIANTS]
            cells.append(turns.spread([value / part for value in turns.adds(values, "lazy", "watch")], form)
                         if values.get("lazy") and values.get("watch") else "none")
            lines.append("| " + " | ".join(cells) + " |")
    return lines + [""] * bool(hung) + hung


def checksum(options):
    """The lines of the whole table."""
    parts, where, coverage = options.only or PARTS, turns.machine(), Coverage()

    def one(ranks, command, variant):
        result = turns.run(options.mpi, ranks, command, variant, timeout=600)
        if variant in CHECKING:
            coverage.note(variant, result.ranks())
        return result.stdout.decode()
    samples, units = turns.take(_programs(options.mpi, parts, options.per_cent), list(VARIANTS), options.runs, one)
    lines = [f"{options.mpi}, {options.runs} turns; {where}", "", *LEGEND.splitlines()]
    if samples:
        lines += ["", *_times(samples, units)]
        aims = _aims(samples)
        lines += ["", *aims] if aims else []
    if "memory" in parts:
        # Once is enough: memory does not vary as times do.
        lines += _memory(options.mpi, 1 if options.runs < 3 else 2, 10000 * options.per_cent, coverage)
    return lines + ["", *coverage.lines()]
