# SPDX-License-Identifier: Apache-2.0
"""What scripts/resil smoke says: the table, the verdict, the exit status. Touches nothing."""

from __future__ import annotations

from .text import clean, integer, wrap

GOOD, BETWEEN, STOP = 0, 1, 2
WORDS = {GOOD: "good", BETWEEN: "between", STOP: "stop"}
ENOUGH, TOO_LITTLE = 0.8, 0.5  # of the peak


def size_name(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return "%d %s" % (size // unit, name)
    return "%d B" % size


class Result:
    def __init__(self, peak: float | None, launcher: str):
        self.peak, self.launcher = peak, launcher
        self.rows: list[dict] = []       # of the program
        self.problems: list[dict] = []   # a run that failed
        self.skipped: dict[str, str] = {}

    def skip(self, kind: str, why: str) -> None:
        self.skipped[kind] = clean(why)

    def fail(self, kind: str, ranks: int, why: str, output: str) -> None:
        self.problems.append({"memory": kind, "processes": ranks, "problem": why,
                              "output": [clean(line, 200) for line in output.splitlines()[-8:]]})

    def add(self, kind: str, ranks: int, sizes: list[int], job) -> None:
        rows = [row for row in job.rows if not row.get("skipped")]
        self.rows += rows
        if job.status is None:
            self.fail(kind, ranks, "did not end within %g s" % job.limit, job.output)
        elif job.status != 0:
            self.fail(kind, ranks, "ended with status %d" % job.status, job.output)
        elif [row["bytes"] for row in rows] != sizes:
            self.fail(kind, ranks, "said nothing about some sizes", job.output)
        elif any(row["packets"] == 0 for row in rows):
            self.fail(kind, ranks, "moved no messages", job.output)

    def bad(self) -> int:
        return sum(row["bad_packets"] for row in self.rows)

    def best(self) -> list[dict]:
        """For each memory and number of processes the size with the most GB/s: small packets never reach the peak."""
        runs: dict[tuple, dict] = {}
        for row in self.rows:
            key = (row["memory"], row["processes"])
            if key not in runs or row["worst_node_gbs"] > runs[key]["worst_node_gbs"]:
                runs[key] = row
        return list(runs.values())

    def status(self) -> int:
        if self.bad() or self.problems or not self.rows:
            return STOP
        if self.peak is None:
            return GOOD
        least = min(row["worst_node_gbs"] for row in self.best()) / self.peak
        return GOOD if least >= ENOUGH else BETWEEN if least >= TOO_LITTLE else STOP

    def reason(self) -> str:
        packets = sum(row["packets"] for row in self.rows)
        if self.bad():
            return "%s of %s messages arrived with wrong bytes" % (integer(self.bad()), integer(packets))
        if self.problems:
            first = self.problems[0]
            return "the run with %d processes, %s memory, %s" % (first["processes"], first["memory"], first["problem"])
        if not self.rows:
            return "nothing was measured"
        right = "all %s messages right" % integer(packets)
        if self.peak is None:
            return right + "; no verdict on bandwidth without --peak GB/s"
        row = min(self.best(), key=lambda one: one["worst_node_gbs"])
        return "%s; slowest node %.3g of %g GB/s, %.0f %% (%s memory, %d processes)" % (
            right, row["worst_node_gbs"], self.peak, 100 * row["worst_node_gbs"] / self.peak, row["memory"],
            row["processes"])

    def summary(self) -> dict:
        return {"schema_version": 1, "verdict": WORDS[self.status()], "status": self.status(), "reason": self.reason(),
                "peak_gbs": self.peak, "launcher": self.launcher, "runs": self.rows, "problems": self.problems,
                "skipped": self.skipped}

    def lines(self, sizes: list[int]) -> list[str]:
        head = "%-7s %9s %6s" % ("memory", "processes", "nodes")
        out = ["GB/s that a node receives (in both directions at once); every message compared with known values", "",
               head + "".join("%10s" % size_name(size) for size in sizes) + "%12s" % "messages"]
        for kind, ranks in dict.fromkeys((row["memory"], row["processes"]) for row in self.rows):
            rows = {row["bytes"]: row for row in self.rows if (row["memory"], row["processes"]) == (kind, ranks)}
            cells = ["%10.3g" % rows[size]["node_gbs"] if size in rows else "%10s" % "-" for size in sizes]
            wrong = sum(row["bad_packets"] for row in rows.values())
            packets = integer(sum(row["packets"] for row in rows.values()))
            out.append("%-7s %9d %6d" % (kind, ranks, max(row["nodes"] for row in rows.values())) + "".join(cells)
                       + "%12s" % packets + ("  %s WRONG" % integer(wrong) if wrong else ""))
        for kind, why in self.skipped.items():
            out += wrap("%s memory: %s" % (kind, why), "", "  ")
        for bad in [bad for row in self.rows for bad in row["bad"]][:4]:
            out += wrap("wrong: message %d from rank %d (%s) to rank %d (%s): %s words, the first at byte %s: %s, not %s" % (
                bad["packet"], bad["from"], clean(bad["from_host"]), bad["to"], clean(bad["to_host"]),
                integer(bad["words"]), integer(bad["offset"]), clean(bad["found"]), clean(bad["expected"])), "", "  ")
        for problem in self.problems[:3]:
            out += wrap("%(memory)s memory, %(processes)d processes: %(problem)s" % problem, "", "  ")
            out += ["  | " + line for line in problem["output"]]
        out += [""] + wrap("%s: %s" % (WORDS[self.status()], self.reason()), "", "  ")
        return out
