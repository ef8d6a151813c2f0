# SPDX-License-Identifier: Apache-2.0
"""scripts/campaign correctness: the programs of tests/correctness, each wrong in one place, and their corrected twins.

Builds them for one MPI, runs each wrong one and each twin once in each mode, several side by side, and counts what was
found, with which class, whether a line that counts was named, how long it took, and every word about a correct program.
"""
import collections
import concurrent.futures
import json
import os
import re
import subprocess

from correctness import language, mistakes

from . import hostile, mpi as jobs
from . import report as reports
from .hang_campaign import spread

FILE = 60  # programs in one source file
LIMIT = 60  # seconds for one run
NATIVE_LIMIT = 4  # natively; who has not ended by then, hangs
SUFFIX = {"c": ".c", "mpif": ".f90", "use_mpi": ".f90", "f08": ".f90"}
SITE = re.compile(r"([\w.-]+)\+0x([0-9a-f]+)")


BANNER = re.compile(r"resil: [A-Z]+: [\w, ]+ on \d+ ranks, .*; finished; next: resil report ")  # each run's last line


class Built:
    """The executables: which one has a program, and which of its lines count."""

    def __init__(self, directory):
        self.directory, self.executables, self.marks, self.failed = directory, {}, {}, []

    def lines_of(self, executable, text):
        """Numbers of the source lines of this executable that the text names as object+0xoffset."""
        offsets = sorted({int(offset, 16) - 1 for name, offset in SITE.findall(text) if name == os.path.basename(executable)})
        if not offsets:
            return set()
        answer = subprocess.run(["addr2line", "-i", "-e", executable, *(hex(offset) for offset in offsets)], capture_output=True,
                                text=True, check=True).stdout
        return {int(number) for number in re.findall(r":(\d+)", answer)}


def build(mpi, programs, directory, parallel):
    """Every program twice: as it is wrong (name_bad) and corrected (name_good)."""
    os.makedirs(directory, exist_ok=True)
    built, units = Built(directory), []
    for binding in language.BINDINGS:
        mine = [program for program in programs if program.binding == binding]
        for newest in (False, True):
            some = [program for program in mine if program.newest == newest]
            for start in range(0, len(some), FILE):
                units.append((binding, newest, start // FILE, some[start:start + FILE]))

    def compile_unit(unit):
        binding, newest, number, some = unit
        name = f"{binding}{'_newest' if newest else ''}_{number}"
        bodies = [(f"{program.name}_{side}", getattr(program, side)) for program in some for side in ("bad", "good")]
        text, marks = language.source(binding, bodies)
        path = os.path.join(directory, name + SUFFIX[binding])
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        compiler = ["mpicc." + mpi] if binding == "c" else ["mpifort." + mpi, "-ffree-line-length-none", "-fallow-argument-mismatch"]
        command = [*compiler, "-g", "-O0", "-w", path, "-o", os.path.join(directory, name)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=directory)
        return name, some, marks, result

    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        for name, some, marks, result in pool.map(compile_unit, units):
            if result.returncode:
                built.failed.append((name, len(some), result.stderr.strip().splitlines()[:8]))
                continue
            for program in some:
                built.executables[program.name] = os.path.join(directory, name)
            built.marks.update(marks)
    return built


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def judge(built, program, side, directory, result):
    """A row of the log: what was said of one run."""
    executable = built.executables[program.name]
    row = {"name": program.name, "side": side, "family": program.family, "mistake": program.mistake, "binding": program.binding,
           "ranks": program.ranks, "expect": program.expect, "status": result.returncode, "seconds": round(result.seconds, 2)}
    text, classes, confidence, after = "", set(), "", None
    found = read(os.path.join(directory, "hang-0.json"))
    if found:
        hang = json.loads(found)
        classes.add(hang["class"])
        confidence = hang["confidence"]
        text += hang["message"] + "\n" + "\n".join(hang["evidence"])
        ages = [rank["age"] for rank in hang["ranks"] if rank.get("state") == "blocked" and "age" in rank]
        after = round(min(ages), 2) if ages else None
    log = [line for line in read(os.path.join(directory, "hang.log")).splitlines() if re.search(r"^\d+ (suspected|verified|proved) ", line)]
    withdrawn = sum(" withdrawn" in line for line in read(os.path.join(directory, "hang.log")).splitlines())
    logged = {match.group(1) for line in log if (match := re.search(r"(?:suspected|verified|proved) (\w+):", line))}
    findings = []
    for world in reports.worlds(directory).values() if os.path.isdir(directory) else ():
        for report in world.values():
            findings += report.get("findings", [])
    kinds = {finding["kind"] for finding in findings}
    text += "\n".join(log) + "\n".join(finding["message"] + json.dumps(finding.get("evidence", {})) for finding in findings)
    said = [line for line in result.stderr.decode(errors="replace").splitlines()
            if line.startswith("resil:") and not BANNER.match(line)]
    row.update(classes=sorted(classes), confidence=confidence, logged=sorted(logged), kinds=sorted(kinds), after=after, withdrawn=withdrawn,
               said=len(said), finished=b"done" in result.stdout, timed_out=result.timed_out)
    lines = built.lines_of(executable, text)
    named = [bool(lines.intersection(mark)) for mark in built.marks[f"{program.name}_{side}"]]
    row["line"], row["all_lines"] = any(named), all(named)
    if side == "bad":
        words = classes or logged or kinds
        row["found"] = bool(classes) if program.expect == mistakes.HANGS else bool(words)
        row["right"] = bool((classes or logged | kinds) & program.classes)
        row["text"] = text[:600]
    else:
        seen = len(reports.load(directory)) == program.ranks  # else the library was not there
        row["alarm"] = bool(classes or log or kinds or said or result.returncode != 0 or not seen)
        if row["alarm"]:
            row["text"] = result.text()[:3000] + "\n" + text[:1000]
    return row


def run_one(built, program, side, options, mode):
    scratch = jobs.scratch("correctness-")
    directory = os.path.join(scratch, "report")
    environment = {**hostile.MODES[mode], "RESIL_HANG": "abort", "RESIL_RECORD": os.path.join(scratch, "recording")}
    command = [built.executables[program.name], f"{program.name}_{side}"]
    try:
        if options.native:
            result = jobs.run(options.mpi, program.ranks, command, timeout=NATIVE_LIMIT, directory=directory, preload=False)
            return {"name": program.name, "side": side, "family": program.family, "mistake": program.mistake, "expect": program.expect,
                    "status": result.returncode, "finished": b"done" in result.stdout, "timed_out": result.timed_out}
        result = jobs.run(options.mpi, program.ranks, command, env=environment, timeout=LIMIT, directory=directory)
        return judge(built, program, side, directory, result)
    finally:
        jobs.discard(scratch)


def share(part, whole):
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "–"


def table(rows):
    """Rows of the table of docs/RESULTS.md: by what has to be said, and by mistake where something is missing."""
    lines = ["| programs | found | right class, of these | a line that counts, of these | every line that counts | after the last rank blocked: median, 95 % |",
             "|---|---|---|---|---|---|"]

    def line(name, some):
        found = [row for row in some if row["found"]]
        lines.append(f"| {name} | {share(len(found), len(some))} | {share(sum(row['right'] for row in found), len(found))} | "
                     f"{share(sum(row['line'] for row in found), len(found))} | {share(sum(row['all_lines'] for row in found), len(found))} | "
                     f"{spread([row['after'] for row in found if row['after'] is not None])} |")

    bad = [row for row in rows if row["side"] == "bad"]
    for expect, name in ((mistakes.HANGS, "**must hang**"), (mistakes.DIFFERS, "**calls differ**")):
        some = [row for row in bad if row["expect"] == expect]
        if some:
            line(name, some)
    groups = collections.defaultdict(list)
    for row in bad:
        groups[re.sub(r" \(.*|, \d ranks|of \d", "", row["mistake"])].append(row)
    for name, some in sorted(groups.items()):
        line(name, some)
    good = [row for row in rows if row["side"] == "good"]
    alarms = sum(row["alarm"] for row in good)
    return "\n".join(lines) + f"\n\n{len(good)} corrected twins: {alarms} with a word of resil's or another end."


def campaign(options):
    """Runs it; the exit status is 1 if there was a word on a correct program."""
    jobs.require(f"mpirun.{options.mpi}", f"mpicc.{options.mpi}", f"mpifort.{options.mpi}", "addr2line")
    if not options.native and not os.path.exists(jobs.library()):
        print(f"{jobs.library()}: not there; build it, or set RESIL_TEST_LIBRARY")
        return 2
    newest = options.mpi == "mpich" or jobs.openmpi_version() >= (5,)
    every = [program for program in mistakes.programs(newest)
             if (not options.family or any(word in f"{program.family}: {program.mistake}" for word in options.family))
             and (options.ranks is None or program.ranks <= options.ranks)]
    chosen = every[options.first::options.every]
    directory = options.keep or jobs.scratch("correctness-build-")
    built = build(options.mpi, chosen, directory, options.parallel)
    for name, number, lines in built.failed:
        print(f"does not compile: {name} ({number} programs)\n  " + "\n  ".join(lines))
    ready = [program for program in chosen if program.name in built.executables]
    print(f"{len(ready)} wrong programs and as many corrected twins, {options.mpi}", flush=True)
    rows = []
    for mode in options.modes:
        work = [(program, side) for program in ready for side in options.sides]
        with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
            for row in pool.map(lambda one, mode=mode: run_one(built, *one, options, mode), work):
                rows.append({"mode": mode, **row})
                if options.log:
                    with open(options.log, "a", encoding="utf-8") as file:
                        file.write(json.dumps(rows[-1]) + "\n")
                if options.native:
                    continue
                missed = row["side"] == "bad" and not (row["found"] and row["right"] and row["line"])
                if missed or row.get("alarm"):
                    print(f"{mode} {row['name']}_{row['side']} {row['family']}: {row['mistake']}: " +
                          ("word on a correct program" if row["side"] == "good" else
                           f"{row['classes'] or row['logged'] or row['kinds'] or 'nothing'}{'' if row['line'] else ', no line'}") +
                          f", status {row['status']}", flush=True)
        if not options.native:
            text = table([row for row in rows if row["mode"] == mode])
            print(f"\nRESIL_MODE={mode}, {options.mpi}\n\n{text}\n", flush=True)
            if options.markdown:
                with open(options.markdown, "a", encoding="utf-8") as file:
                    file.write(f"RESIL_MODE={mode}, {options.mpi}\n\n{text}\n\n")
    if options.native:
        odd = [row for row in rows if (row["side"] == "good" and not row["finished"]) or
               (row["side"] == "bad" and row["expect"] == mistakes.HANGS and not row["timed_out"])]
        for row in odd:
            print(f"natively: {row['name']}_{row['side']} {row['family']}: {row['mistake']}: status {row['status']}, "
                  f"{'finished' if row['finished'] else 'hung' if row['timed_out'] else 'ended'}")
        print(f"{len(rows)} runs, {len(odd)} not as they are meant")
        return int(bool(odd))
    return int(any(row.get("alarm") for row in rows) or bool(built.failed))
