# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: programs built for one MPI, runs of one variant with pinned ranks, and taking turns, so
that drift of the machine hits all variants alike. Touches scratch directories only."""
import os
import re
import statistics
import subprocess
import sys

from harness import mpi as jobs

SOURCES = os.path.join(jobs.ROOT, "tests", "bench")
MELT = "/usr/share/lammps/examples/melt/in.melt"
# What the ranks get; None: no library at all.
ENVIRONMENT = {
    "native": None,
    "watch": {"RESIL_MODE": "watch"},
    "off": {"RESIL_MODE": "off"},
    "no_hang": {"RESIL_MODE": "watch", "RESIL_HANG": "off"},
    "lazy": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "lazy", "RESIL_BLAME": "cheap"},
    "full": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "lazy", "RESIL_BLAME": "full"},
    "strict": {"RESIL_MODE": "checksum", "RESIL_CHECKSUM": "strict", "RESIL_BLAME": "cheap"},
}


def compiled(mpi, name, *more):
    """The program, built with this MPI's wrapper into a scratch directory."""
    source = next(os.path.join(SOURCES, name + ending) for ending in (".c", ".f90")
                  if os.path.exists(os.path.join(SOURCES, name + ending)))
    wrapper = ("mpif90." if source.endswith(".f90") else "mpicc.") + mpi
    output = os.path.join(jobs.scratch(), name)
    flags = [*more] if source.endswith(".f90") else ["-Wno-stringop-overflow", *more]
    subprocess.run([wrapper, "-O2", *flags, "-o", output, source], check=True)
    return output


def run(mpi, ranks, command, variant, timeout=300, may_hang=False):
    """Runs one variant with its ranks pinned to cores; the Result. Ends the benchmark when the job fails, or, unless
    may_hang, does not end."""
    pin = ["--bind-to", "core"] if mpi == "openmpi" else ["-bind-to", "core"]
    settings = ENVIRONMENT[variant]
    env = {} if settings is None else {**settings, "RESIL_LOG": "quiet"}
    result = jobs.run(mpi, ranks, command, env=env, preload=settings is not None, timeout=timeout, options=pin,
                      cwd=jobs.scratch())
    if result.returncode != 0 and not (may_hang and result.timed_out):
        sys.exit(f"bench: failed as {variant}\n{result.text()}")
    return result


def launch(mpi, ranks, command, variant):
    """Its standard output as text."""
    return run(mpi, ranks, command, variant).stdout.decode()


def measured(text):
    """{name: (value, unit)} of lines "name value unit"."""
    return {name: (float(value), unit)
            for name, value, unit in re.findall(r"(?m)^(\w+) +([\d.]+) (ns|ms|s|KiB|messages)$", text)}


def melt(steps=2500):
    """The packaged melt with more steps: some seconds."""
    path = os.path.join(jobs.scratch(), "in.melt")
    with open(MELT, encoding="ascii") as source, open(path, "w", encoding="ascii") as target:
        target.write(re.sub(r"(?m)^run\s+\d+", f"run {steps}", source.read()))
    return path


def loop_time(text):
    """LAMMPS's own time of its loop."""
    return {"lammps_loop": (float(re.search(r"Loop time of ([\d.]+)", text)[1]) * 1e3, "ms")}


def lammps(mpi, steps=2500):
    """[(ranks, command, reader)], or [] where it is not installed."""
    if mpi != "openmpi" or not jobs.installed("lmp") or not jobs.installed(MELT):
        return []
    return [(2, ["lmp", "-in", melt(steps), "-log", "none"], loop_time)]


def take(programs, variants, runs, one):
    """Runs every program in all variants, runs + 1 times, beginning with another variant each turn; the first turn
    warms up and is not counted. one(ranks, command, variant) -> text. Returns samples and
    units: {name: {variant: values}}, {name: unit}."""
    samples, units = {}, {}
    for ranks, command, reader in programs:
        for turn in range(runs + 1):
            first = turn % len(variants)
            for variant in variants[first:] + variants[:first]:
                for name, (value, unit) in reader(one(ranks, command, variant)).items():
                    units[name] = unit
                    if turn:
                        samples.setdefault(name, {}).setdefault(variant, []).append(value)
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return samples, units


def spread(values, form="{:.3f}"):
    """Median with the least and the greatest."""
    return f"{form.format(statistics.median(values))} [{form.format(min(values))} .. {form.format(max(values))}]"


def adds(values, variant, base):
    """variant - base, formed within each turn."""
    return [b - a for a, b in zip(values[base], values[variant])]


def ratios(values, variant, base):
    return [b / a for a, b in zip(values[base], values[variant])]


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    return (f"{model[1] if model else os.uname().machine}, {os.cpu_count()} cores, Linux {os.uname().release}, "
            f"load {os.getloadavg()[0]:.1f} at the start")
