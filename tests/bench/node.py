# SPDX-License-Identifier: Apache-2.0
"""scripts/bench node: what a node full of ranks pays, natively and with libresil.so in the same turn (node.c): time of MPI_Init and
MPI_Finalize, processor time of a rank in them, its private memory, and /dev/shm. Ranks that wait sleep. Touches scratch
directories and the jobs that it starts."""
import re
import statistics
import sys

from bench.turns import compiled
from harness import mpi as jobs

VARIANTS = {"native": None, "off": {"RESIL_MODE": "off"}, "watch": {}, "watch, RESIL_HANG=off": {"RESIL_HANG": "off"},
            "lazy": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "lazy"}, "order": {"RESIL_REDUCE": "order"}}


def one(mpi, ranks, program, settings, pairs):
    """(seconds of the job, [the five numbers of node.c of each rank], bytes)"""
    options = ["--oversubscribe", "--bind-to", "none"] if mpi == "openmpi" else []
    result = jobs.run(mpi, ranks, [program, *(["pairs"] if pairs else [])], preload=settings is not None, timeout=900,
                      env={"RESIL_FILES": "node", "RESIL_LOG": "quiet", **(settings or {})}, options=options,
                      cwd=jobs.scratch())
    text = result.stdout.decode()
    found = [[float(value) for value in line.split()[1:]] for line in re.findall(r"(?m)^node [\d. -]+$", text)]
    if result.returncode != 0 or len(found) != ranks:
        sys.exit(f"bench: failed\n{result.text()}")
    return result.seconds, found, int(re.search(r"(?m)^shm (\d+)$", text)[1])


def node(options):
    program = compiled(options.mpi, "node", "-rdynamic")
    lines = [f"{options.mpi}, {options.runs} turns, medians; of a rank: the mean over all", "",
             "| ranks | | job, s | `MPI_Init`, s | processor, ms | `MPI_Finalize`, s | processor, ms | private, KiB | most | `/dev/shm`, MiB |",
             "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for ranks in options.ranks or [16, 64, 128]:
        found = {name: [] for name in options.only or VARIANTS}
        for _ in range(options.runs):
            for name, runs in found.items():
                seconds, rows, shared = one(options.mpi, ranks, program, VARIANTS[name], options.pairs)
                mean = [statistics.mean(column) for column in zip(*rows)]
                runs.append([seconds, mean[0], 1e3 * mean[1], mean[2], 1e3 * mean[3], mean[4], max(row[4] for row in rows),
                             shared / 2 ** 20])
        for name, runs in found.items():
            middle = [statistics.median(column) for column in zip(*runs)]
            lines.append(f"| {ranks} | {name} | " + " | ".join(
                f"{value:,.{digits}f}" for value, digits in zip(middle, (2, 2, 1, 2, 2, 0, 0, 1))) + " |")
            print(lines[-1], file=sys.stderr, flush=True)
    return lines


def add(commands):
    command = commands.add_parser("node")
    command.set_defaults(function=node)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--ranks", type=int, action="append", help="may be repeated (default 16, 64, 128)")
    command.add_argument("--runs", type=int, default=3, help="turns (default 3)")
    command.add_argument("--only", action="append", choices=VARIANTS, help="only this; may be repeated")
    command.add_argument("--pairs", action="store_true", help="each rank exchanges data with all others, too")
    command.add_argument("--markdown", metavar="FILE", help="append the table to FILE")
