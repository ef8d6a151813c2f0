# SPDX-License-Identifier: Apache-2.0
"""Reads the reports of a job: rank-NNNNN.json, or node-HOST-ID.jsonl of large jobs. Only reads."""
import glob
import json
import os


def load(directory):
    """{rank: report object}. The last line of a rank in a node file wins. Raises on JSON that is not valid."""
    ranks = {}
    for path in sorted(glob.glob(os.path.join(directory or "", "rank-*.json"))):
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        ranks[report["rank"]] = report
    for path in sorted(glob.glob(os.path.join(directory or "", "node-*.jsonl"))):
        with open(path, encoding="utf-8") as file:
            for line in filter(str.strip, file):
                report = json.loads(line)
                ranks[report["rank"]] = report
    return ranks


def worlds(directory):
    """{number: ranks} of the first world and of all spawned ones."""
    found = {0: load(directory)}
    for path in glob.glob(os.path.join(directory, "world-*")):
        found[int(path.rsplit("-", 1)[1])] = load(path)
    return found


def rings(directory):
    """Ring files that the reports, of spawned worlds too, name."""
    if not directory or not os.path.isdir(directory):
        return []
    return [report["ring"] for ranks in worlds(directory).values() for report in ranks.values() if report.get("ring")]


def counts(report):
    """{function: number of calls}."""
    return {name: call["count"] for name, call in report["calls"].items()}
