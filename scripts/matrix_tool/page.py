# SPDX-License-Identifier: Apache-2.0
"""The part of docs/PLATFORMS.md between two marks: tables made of kept results. A cell of which nothing is kept here has
the lines that it had in the page."""
import re

from . import launchers
from .across import comparable, together
from .cells import BY_NAME, CELLS, DEBIAN, TESTS, THERE

BEGIN, END = "<!-- made by scripts/matrix page: begin -->", "<!-- made by scripts/matrix page: end -->"
HEAD = ("cell", "system", "MPI", "ABI", "architecture", "launcher", *TESTS, "library, date")
ACROSS = ("cell", "verifies the recording", "reductions, 2 ranks: order", "exact", "3 ranks: order", "exact")


def result_of(kept, tests):
    """"9 of 9", and what is not well."""
    if tests is TESTS["built there"]:
        tests = [*tests, *sorted(test for test in kept.tests if test.startswith(THERE))]
    ran = [test for test in tests if kept.tests.get(test, {}).get("result") in ("OK", "FAIL", "TIMEOUT", "ERROR")]
    good = [test for test in ran if kept.tests[test]["result"] == "OK"]
    if not ran:
        return "not run"
    text = f"{len(good)} of {len(ran)}"
    bad = [test for test in ran if test not in good]
    return text + (f": not {', '.join(bad)}" if bad else "")


def row_of(cell, kept):
    shown = [test for name, test in kept.tests.items() if name not in BY_NAME]
    libraries = {test["library"][:8] for test in shown}
    dates = [test["date"] for test in shown]
    return (cell.name, kept.facts.get("system", f"Debian {DEBIAN[cell.release]}"), re.sub(r"^mpirun\S* \((Open MPI|OpenRTE)\)", "Open MPI", kept.facts.get("MPI", cell.mpi)),
            "standard" if cell.abi == "standard" else "its own", kept.facts.get("architecture", "x86_64"),
            kept.facts.get("launcher", f"mpirun.{cell.mpi}"), *(result_of(kept, tests) for tests in TESTS.values()),
            f"{', '.join(sorted(libraries))}, {max(dates)}")


def across_of(cell, kept, kept_cells):
    """Digests are of what all cells have: MPI 4 has more calls than MPI 3, and long double is another type on aarch64."""
    cells = []
    for name in ("order 2", "exact 2", "order 3", "exact 3"):
        tables = [comparable(CELLS[other], told) for other, told in
                  ((other, one.facts.get("across", {}).get("digests", {}).get(name)) for other, one in kept_cells.items()) if told]
        mine = kept.facts["across"].get("digests", {}).get(name)
        common = sorted(set.intersection(*map(set, tables))) if tables else []
        cells.append(f"{together(mine, common)[:12]} of {len(common)}" if mine else "not run")
    return cell.name, kept.facts["across"].get("verify", "not run"), *cells


def line(words):
    return "| " + " | ".join(str(word).replace("|", "\\|") for word in words) + " |"


def old_lines(text, title):
    """{cell: line} of the table under a title."""
    found, inside = {}, False
    for one in text.splitlines():
        if one.startswith("### "):
            inside = one == f"### {title}"
        cell = re.match(r"\| ([a-z0-9-]+) \|", one)
        if inside and cell and cell[1] in CELLS:
            found[cell[1]] = one
    return found


def table(title, head, rows, old):
    lines = [line(rows[name]) if name in rows else old[name] for name in CELLS if name in rows or name in old]
    return [f"### {title}", "", line(head), "|" + "---|" * len(head), *lines, ""]


def failures(kept_cells, old):
    """Lines for what did not end well or was left out, by cell."""
    lines = []
    for name in CELLS:
        kept = kept_cells.get(name)
        if not kept or not kept.tests:
            lines += [one for one in old if one.startswith(f"- {name}, ")]
            continue
        for test, told in sorted(kept.tests.items()):
            if told["result"] not in ("OK", "SKIP") or told["why"]:
                what = {"OK": "left out", "SKIP": "skipped"}.get(told["result"], told["result"].lower())
                lines.append(f"- {name}, `{test}`: {what}{': ' if told['why'] else ''}{told['why']}")
    return lines


def written(text, kept_cells):
    """The page with its tables made anew. kept_cells: {cell: Kept}"""
    begin, end = text.index(BEGIN), text.index(END)
    old = text[begin:end]
    rows = {name: row_of(CELLS[name], kept) for name, kept in kept_cells.items() if set(kept.tests) - set(BY_NAME)}
    across = {name: across_of(CELLS[name], kept, kept_cells) for name, kept in kept_cells.items() if kept.facts.get("across")}
    said = [one for one in old.splitlines() if re.match(r"- [a-z0-9-]+, `", one)]
    lines = [BEGIN, "",
             *table("Tests", HEAD, rows, old_lines(old, "Tests")),
             *table("One recording, the same bits", ACROSS, across, old_lines(old, "One recording, the same bits")),
             "### Not well, skipped, left out", "", *failures(kept_cells, said), ""]
    return text[:begin] + "\n".join(lines) + text[end:]


LAUNCHERS = tuple(mark.replace("page:", "page, launchers:") for mark in (BEGIN, END))
WORDS = {"OK": "yes", "SHORT": "no (1)", "FAIL": "FAILED"}


def with_launchers(text, kept):
    """The page with the table of launchers made anew. kept: {launcher: Kept}; what is not kept here keeps its lines."""
    begin, end = (text.find(mark) for mark in LAUNCHERS)
    if begin < 0 or end < 0 or not any(one.tests for one in kept.values()):
        return text
    old = {word[1]: one for one in text[begin:end].splitlines() for word in [re.match(r"\| ([a-z0-9-]+) \|", one)] if word}
    checks = [*launchers.CHECKS, *launchers.SLURM_CHECKS]
    lines = [LAUNCHERS[0], "", line(("name", "system", "launcher", "MPI", "hosts x ranks", *checks, "library, date")),
             "|" + "---|" * (len(checks) + 6)]
    notes = []
    for name, one in kept.items():
        if not one.tests:
            lines += [old[name]] if name in old else []
            continue
        facts = [one.facts.get(word, "") for word in ("system", "launcher", "MPI", "hosts")]
        ran = [WORDS[one.tests[check]["result"]] if check in one.tests else "" for check in checks]
        libraries = sorted({told["library"][:8] for told in one.tests.values()})
        lines.append(line((name, *facts, *ran, f"{', '.join(libraries)}, {max(told['date'] for told in one.tests.values())}")))
        notes += [f"- {name}, {check}: {WORDS[told['result']].split()[0]}: {' '.join(told['why'].split())[:300]}"
                  for check, told in one.tests.items() if told["why"]]
    return text[:begin] + "\n".join(lines + ["", *notes, ""]) + text[end:]
