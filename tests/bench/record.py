# SPDX-License-Identifier: Apache-2.0
"""scripts/bench record: what recording and verifying cost an application, and how large recordings are."""
import os
import statistics
import sys

from bench import turns
from harness import mpi as jobs

VARIANTS = ("native", "watch", "order", "record", "verify")
PARTS = ("lammps", "stencil", "messages")
AIMS = (("record", 1.03), ("verify", 1.05))
LEGEND = """\
Ratios are formed within each turn, median [least .. greatest]. order: watch with `RESIL_REDUCE=order`, which record and
verify do as well. Verify goes on after a difference (`RESIL_ON_MISMATCH=log`): the programs sum their timings at their end,
after the loop that is measured. Ranks are pinned, one a core. Recordings lie in a file system that other work uses, too."""


class Recorder:
    """Runs one variant; keeps one recording of each command for verify, and the size of the last one."""

    def __init__(self, mpi):
        self.mpi, self.kept, self.sizes = mpi, {}, {}

    def launch(self, ranks, command, variant):
        if variant == "verify" and tuple(command) not in self.kept:
            self.launch(ranks, command, "record")
        settings = {"native": None, "watch": {}, "order": {"RESIL_REDUCE": "order"}}.get(variant, {})
        if variant in ("record", "verify"):
            recording = os.path.join(jobs.scratch(), "recording") if variant == "record" else self.kept[tuple(command)]
            settings = {"RESIL_MODE": variant, "RESIL_RECORD": recording, "RESIL_ON_MISMATCH": "log"}
        pin = ["--bind-to", "core"] if self.mpi == "openmpi" else ["-bind-to", "core"]
        result = jobs.run(self.mpi, ranks, command, env={} if settings is None else {**settings, "RESIL_LOG": "quiet"},
                          preload=settings is not None, timeout=300, options=pin, cwd=jobs.scratch())
        if result.returncode != 0:
            sys.exit(f"bench: failed as {variant}\n{result.text()}")
        if variant == "record":
            self.kept[tuple(command)] = recording
            calls = sum(part["calls"] for rank in result.ranks().values() for part in [rank["record"]])
            self.sizes[tuple(command)] = (sum(os.path.getsize(os.path.join(recording, name))
                                              for name in os.listdir(recording)), calls)
        if variant == "verify" and not all(rank["verify"]["calls"] for rank in result.ranks().values()):
            sys.exit(f"bench: nothing was verified\n{result.text()}")
        return result.stdout.decode()


def record(options):
    parts, share = options.only or PARTS, options.per_cent
    programs = turns.lammps(options.mpi, 25 * share) if "lammps" in parts else []
    if "stencil" in parts:
        programs.append((2, [turns.compiled(options.mpi, "stencil"), str(40 * share)], turns.measured))
    if "messages" in parts:
        programs.append((2, [turns.compiled(options.mpi, "messages"), str(max(1, share // 10))], turns.measured))
    recorder = Recorder(options.mpi)
    where = turns.machine()
    samples, units = turns.take(programs, list(VARIANTS), options.runs, recorder.launch)
    lines = [f"{options.mpi}, {options.runs} turns; {where}", "", LEGEND, "",
             "| measured | native | " + " | ".join(f"{v} / native" for v in VARIANTS[1:]) + " |",
             "|---|---:|" + "---:|" * (len(VARIANTS) - 1)]
    for name, values in samples.items():
        cells = [name.replace("_", " "), f"{statistics.median(values['native']):.1f} {units[name]}"]
        lines.append("| " + " | ".join(cells + [turns.spread(turns.ratios(values, v, "native")) for v in VARIANTS[1:]]) + " |")
    lines.append("")
    for variant, most in AIMS:
        if "lammps_loop" in samples:
            middle = statistics.median(turns.ratios(samples["lammps_loop"], variant, "native"))
            lines.append(f"{variant} adds at most {100 * (most - 1):.0f} % to LAMMPS: {100 * (middle - 1):.1f} %, "
                         + ("reached" if middle <= most else "NOT reached"))
    for command, (size, calls) in recorder.sizes.items():
        lines.append(f"{os.path.basename(command[0])}: {size:,} bytes for {calls:,} calls of all ranks, {size / calls:.1f} a call")
    return lines
