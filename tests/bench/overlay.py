# SPDX-License-Identifier: Apache-2.0
"""scripts/bench overlay: the tree between nodes with N simulated leaders on this machine, no MPI. Builds
overlay_bench.cpp in a scratch directory."""
import glob
import os
import re
import statistics
import subprocess
import sys

from bench import turns
from harness import mpi as jobs

WHAT = {
    "attached_and_known_at_the_root": "opening until the root knows of all",
    "round_256_bytes_median": "round, answers merged to 256 bytes, median",
    "round_256_bytes_greatest": "the same, greatest",
    "round_256_bytes_a_node_median": "round, 256 bytes a node appended, median",
    "round_256_bytes_a_node_greatest": "the same, greatest",
    "round_256_bytes_partial": "rounds that missed somebody (starved of a processor)",
    "round_256_bytes_a_node_partial": "rounds that missed somebody (starved of a processor)",
    "round_leader_dead_partial": "rounds that missed somebody (starved of a processor)",
    "answer_median": "answer to `resil why`: five rounds, 1,800 bytes of states a node, median",
    "answer_greatest": "the same, greatest",
    "answer_partial": "rounds that missed somebody (starved of a processor)",
    "answer_leaf_stopped": "answer while a leaf has just been stopped",
    "answer_leaf_stopped_partial": "rounds of it that missed somebody else (starved of a processor)",
    "answer_root_stopped": "answer of who takes the root's place, which has just been stopped, to a question to a leaf",
    "answer_root_stopped_missed": "other nodes that were not in it",
    "idle_bytes_a_node_and_second": "sent by an idle tree, a node and second",
    "idle_cpu_a_node_and_second": "CPU of an idle leader a second",
    "round_leaf_stopped": "round that finds a leaf stopped",
    "next_round_leaf_stopped": "the next one",
    "leader_dead_until_all_others_answer": "a leader with children dies: until a round misses it only",
    "that_round": "that round",
    "round_leader_dead_median": "rounds afterwards, median",
    "round_leader_dead_greatest": "the same, greatest",
    "round_inner_leader_stopped": "round that finds a leader with children stopped",
    "nodes_missed_then": "its nodes missed by that round",
    "inner_leader_stopped_until_all_others_answer": "until its children are elsewhere and answer",
}


def overlay(options):
    """The table: each figure as median of the runs [least .. greatest]."""
    program = os.path.join(jobs.scratch(), "overlay_bench")
    sources = glob.glob(os.path.join(jobs.ROOT, "detectors", "hang", "overlay", "*.cpp"))
    subprocess.run(["c++", "-std=c++20", "-O2", "-I", jobs.ROOT, "-o", program,
                    os.path.join(turns.SOURCES, "overlay_bench.cpp"), *sources], check=True)
    values, units = {}, {}
    for _ in range(options.runs):
        result = subprocess.run([program, str(options.leaders), str(options.processes), str(options.rounds),
                                 str(options.fan_out)], capture_output=True, text=True, timeout=300, check=False)
        if result.returncode != 0:
            sys.exit(f"bench: failed\n{result.stdout}{result.stderr}")
        for name, value, unit in re.findall(r"(?m)^(\w+) ([\d.]+) (.+)$", result.stdout):
            values.setdefault(name, []).append(float(value))
            units[name] = unit
    lines = [f"{options.leaders} leaders in {options.processes} processes, fan-out {options.fan_out}, "
             f"{options.rounds} rounds of a kind, {options.runs} runs; {turns.machine()}", "",
             "| measured | median of the runs | least .. greatest |", "|---|---:|---:|"]
    for name, all_values in values.items():
        lines.append(f"| {WHAT.get(name, name)} | {statistics.median(all_values):g} {units[name]} | "
                     f"{min(all_values):g} .. {max(all_values):g} |")
    return lines
