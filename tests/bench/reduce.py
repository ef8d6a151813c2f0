# SPDX-License-Identifier: Apache-2.0
"""scripts/bench reduce: deterministic reductions against native ones in the same turn, and a model for more ranks."""
import os
import re
import statistics
import sys

from bench import turns
from harness import mpi as jobs

VARIANTS = ("native", "watch", "order", "collectives", "exact", "p2p")
RANKS = ("2", "4", "8")
ENVIRONMENT = {
    "native": None,
    "watch": {},
    "order": {"RESIL_REDUCE": "order"},
    "collectives": {"RESIL_REDUCE": "order", "RESIL_REDUCE_SHARED": "0"},
    "exact": {"RESIL_REDUCE": "exact"},
    "p2p": {"RESIL_REDUCE": "order", "RESIL_REDUCE_P2P": "1"},
}
LEGEND = """\
Each figure is the time of one call as the slowest rank saw it, best batch of a run, median over the runs; ratios are
formed within each turn, median [least .. greatest]. watch: the library preloaded with `RESIL_REDUCE=native`; p2p: order
with `RESIL_REDUCE_P2P=1`, which has no nonblocking form; collectives: order with `RESIL_REDUCE_SHARED=0`. Bandwidth relative to native is the inverse of the ratio.
Ranks are pinned while there is a core for each; with more ranks than cores the scheduler is measured as well."""

BASE = "base"  # order with another library


def _launch(mpi, ranks, command, variant, library, more):
    os.environ["RESIL_TEST_LIBRARY"] = library
    variant = "order" if variant == BASE else variant
    settings = ENVIRONMENT[variant]
    env = {} if settings is None else {**settings, **more, "RESIL_LOG": "quiet"}
    bind = "core" if ranks <= (os.cpu_count() or 1) else "none"
    options = ["--bind-to" if mpi == "openmpi" else "-bind-to", bind]
    result = jobs.run(mpi, ranks, command, env=env, preload=settings is not None, timeout=600, options=options,
                      cwd=jobs.scratch())
    if result.returncode != 0:
        sys.exit(f"bench: failed as {variant}\n{result.text()}")
    if variant in ("order", "collectives", "exact", "p2p"):
        seen = result.ranks()[0]["reductions"]
        if seen["order" if variant == "collectives" else variant]["calls"] == 0 or seen["native"]["calls"] != 0:
            sys.exit(f"bench: {variant} was not measured: {seen}")
    return result.stdout.decode()


def _model(latency_us, gbytes):
    """Time of one MPI_Allreduce in us, for a step of `latency_us` and links of `gbytes` GB/s each way."""
    lines = [f"Model, not measured: {latency_us} us a step, {gbytes} GB/s each way, arithmetic not counted. tree = the "
             "best of recursive doubling and reduce-scatter with allgather (what libraries choose); order = allgather up "
             "to 64 KiB in all; from 64 ranks on the tree of messages for vectors up to 64 KiB; else an exchange of "
             "blocks in P - 1 steps and a ring of as many.", "",
             "| ranks | doubles | tree us | order us | order / tree |", "|---:|---:|---:|---:|---:|"]
    for ranks in (16, 64, 256, 1024):
        steps = ranks.bit_length() - 1
        for doubles in (1, 1024, 1048576):
            wire = 8e-3 * doubles / gbytes
            tree = min(steps * (latency_us + wire), 2 * steps * latency_us + 2 * wire * (ranks - 1) / ranks)
            if 8 * doubles * ranks <= 65536:
                order = steps * latency_us + wire * (ranks - 1)
            elif ranks >= 64 and 8 * doubles <= 65536:
                order = 2 * steps * (latency_us + wire)
            else:
                order = 2 * (ranks - 1) * latency_us + 2 * wire * (ranks - 1) / ranks
            lines.append(f"| {ranks} | {doubles} | {tree:.1f} | {order:.1f} | {order / tree:.2f} |")
    return lines


def reduce(options):
    program, own = turns.compiled(options.mpi, "reduce"), jobs.library()
    variants = [variant for variant in VARIANTS if not options.variant or variant in ("native", *options.variant)]
    variants += [BASE] if options.base else []
    lines = [f"{options.mpi}, {options.runs} turns; {turns.machine()}", "", LEGEND]
    lines += [f"base: order with {options.base}."] if options.base else []
    more = {"RESIL_NODE_RANKS": str(options.node_ranks)} if options.node_ranks else {}
    lines += [f"Simulated nodes of {options.node_ranks} ranks: resil takes the ranks of one for the only ones that it shares memory with; the library does not."] if more else []
    for ranks in map(int, options.only or RANKS):
        samples, _ = turns.take([(ranks, [program, str(options.per_cent), str(options.most), str(options.batches), *options.call[:1]], turns.measured)],
                                variants, options.runs,
                                lambda ranks, command, variant: _launch(options.mpi, ranks, command, variant,
                                                                                os.path.abspath(options.base) if variant == BASE else own, more))
        lines += ["", f"{ranks} ranks", "",
                  "| call, doubles | native us | " + " | ".join(f"{v} / native" for v in variants[1:]) + " | least, us: "
                  + ", ".join(variants) + " |", "|---|---:|" + "---:|" * len(variants)]
        for name, values in samples.items():
            kind, doubles = re.fullmatch(r"(\w+)_(\d+)", name).groups()
            cells = [f"{kind} {int(doubles):,}", f"{statistics.median(values['native']) / 1000:.2f}"]
            cells += [turns.spread(turns.ratios(values, v, "native"), "{:.2f}") for v in variants[1:]]
            cells.append(", ".join(f"{min(values[v]) / 1000:.4g}" for v in variants))
            lines.append("| " + " | ".join(cells) + " |")
    return lines + ([""] + _model(1.5, 12.5) if options.most >= 1 << 20 else [])
