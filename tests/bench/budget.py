# SPDX-License-Identifier: Apache-2.0
"""What each kind of calls (instructions.c) may cost of libresil.so's own code, on one rank: instructions, branches and clock
reads by callgrind, so that a crowded machine changes nothing; cache lines by lackey's trace. docs/BUDGET.md has the counts that
were committed; what has grown beyond them is told."""
import collections
import glob
import os
import re
import subprocess
import sys

from bench.instructions import MODES
from bench.turns import SOURCES, compiled
from harness import mpi as jobs

PAGE = os.path.join(os.path.dirname(os.path.dirname(SOURCES)), "docs", "BUDGET.md")
BEGIN, END = "<!-- made by scripts/bench budget: begin -->", "<!-- made by scripts/bench budget: end -->"
ROUNDS, TURNS = 100, 3
ALLOWED = 0.02  # more instructions than this fail
COMPILER = "12"  # g++, of which the committed counts are
SLACK = 2  # instructions a round: half a per cent of the shortest paths is less than one
TIMED = 40  # instructions of a call's way out when it is timed, which on the fast path depends on how long it took
# By the address of the freed type, which the length of a path may shift, eight or sixteen call sites more are looked at (forget_type):
# 253 and 423 were seen. By the addresses of requests, one of 32 may find its first place in their table taken, and lie elsewhere
# (claim_elsewhere): 790 were seen in mode strict.
COLLISION = {"type_free": 440, "type_used": 440, "waitall_many": 900}
Cost = collections.namedtuple("Cost", "instructions branches clock")
Lines = collections.namedtuple("Lines", "touched written")

# What a round of each kind does, in the order of instructions.c.
ROUND = {
    "round": "`MPI_Irecv`, `MPI_Isend`, `MPI_Waitall`, `MPI_Allreduce`",
    "recv_any": "`MPI_Isend`, `MPI_Recv` from any source, `MPI_Wait`",
    "isend_wait": "`MPI_Isend`, `MPI_Recv`, `MPI_Wait`",
    "irecv_wait": "`MPI_Irecv`, `MPI_Send`, `MPI_Wait`",
    "irecv_test": "`MPI_Irecv`, `MPI_Send`, `MPI_Test`",
    "waitall": "`MPI_Irecv`, `MPI_Isend`, `MPI_Waitall`",
    "waitany": "`MPI_Irecv`, `MPI_Isend`, two `MPI_Waitany`",
    "waitall_many": "16 `MPI_Irecv`, 16 `MPI_Isend`, `MPI_Waitall`",
    "derived": "as waitall, with a vector type",
    "sendrecv": "`MPI_Sendrecv`",
    "persistent": "`MPI_Startall` and `MPI_Waitall` of two",
    "allreduce": "`MPI_Allreduce`, one int",
    "allreduce_double": "`MPI_Allreduce`, eight doubles",
    "bcast": "`MPI_Bcast`",
    "alltoall": "`MPI_Alltoall`, one int for each rank",
    "iallreduce": "`MPI_Iallreduce`, `MPI_Wait`",
    "barrier": "`MPI_Barrier`",
    "iprobe": "`MPI_Iprobe` in vain",
    "local": "`MPI_Comm_rank`",
    "type_free": "a type made, committed, freed",
    "type_used": "a type made, used once, freed",
    "put": "`MPI_Put`, `MPI_Win_flush`",
    "comm_dup": "`MPI_Comm_dup`, `MPI_Comm_free`",
}


def clock_instructions(library):
    """Addresses of the library's instructions that read the processor's clock."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", library], check=True, stdout=subprocess.PIPE, text=True).stdout
    return {int(found, 16) for found in re.findall(r"^ *([0-9a-f]+):\s+rdtscp?\b", text, re.MULTILINE)}


def own_cost(path, library, clock):
    """(name of the kind, Cost of a round) of one of callgrind's dumps; None: not one that the program asked for."""
    name, events, names, own, inclusive, address, callee = None, [], {}, False, False, 0, ""
    total = collections.Counter()
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("desc: Trigger: Client Request: "):
                name = line.rsplit(" ", 1)[1].strip()
            elif line.startswith("events: "):
                events = line.split()[1:]
            elif line.startswith("ob="):
                number, _, text = line[3:].strip().partition(" ")
                names[number] = text or names.get(number, "")
                own = names[number] == library
            elif line.startswith("cob="):
                number, _, text = line[4:].strip().partition(" ")
                names[number] = text or names.get(number, "")
            elif line.startswith("cfn="):
                number, _, text = line[4:].strip().partition(" ")
                names["f" + number] = text or names.get("f" + number, "")
                callee = names["f" + number]
            elif line.startswith("fn="):
                number, _, text = line[3:].strip().partition(" ")
                names["f" + number] = text or names.get("f" + number, "")
            elif line.startswith("calls="):
                inclusive = True  # the next line is what the callee took, which has lines of its own
                if own and "clock_gettime" in callee:
                    total["clock"] += int(line[6:].split()[0])
            elif re.match(r"(0x|[+\-*])", line):
                where, _, *costs = line.split()
                address = int(where, 16) if where.startswith("0x") else address if where == "*" else address + int(where)
                if own and not inclusive and costs:
                    counts = dict(zip(events, map(int, costs)))
                    total["instructions"] += counts["Ir"]
                    total["branches"] += counts.get("Bc", 0) + counts.get("Bi", 0)
                    total["clock"] += counts["Ir"] if address in clock else 0
                inclusive = False
    return None if name is None else (name, Cost(*(total[what] / ROUNDS for what in Cost._fields)))


def job(mpi, mode, folder, tool, program, *arguments):
    env = {**MODES[mode], "RESIL_LOG": "quiet", "RESIL_DIR": os.path.join(folder, "report"), "LD_PRELOAD": jobs.library()}
    options = ["--mca", "osc", "^ucx"] if mpi == "openmpi" else []  # under valgrind that one makes no window
    given = [f"{name}={value}" for name, value in env.items()]
    result = jobs.run(mpi, 1, ["env", *given, "valgrind", *tool, program, *arguments], preload=False, timeout=900,
                      options=options, cwd=folder)
    if result.returncode != 0:
        sys.exit(f"bench: failed\n{result.text()}")
    return [line for line in result.stdout.decode(errors="replace").split() if line in ROUND]


def costs(mpi, mode):
    """{kind: Cost}: the least of some turns."""
    library, folder = os.path.realpath(jobs.library()), jobs.scratch()
    for old in glob.glob(f"{folder}/counts.*"):
        os.unlink(old)
    job(mpi, mode, folder, ["--tool=callgrind", "--dump-instr=yes", "--branch-sim=yes", "--separate-threads=yes", "-q",
                            f"--callgrind-out-file={folder}/counts.%p"], compiled(mpi, "instructions"), str(ROUNDS), str(TURNS))
    clock, least = clock_instructions(library), {}
    for path in sorted(glob.glob(f"{folder}/counts.*-01")):
        found = own_cost(path, library, clock)
        if found is not None:
            kind, cost = found
            least[kind] = min(cost, least.get(kind, cost))
    return least


def lines(mpi, mode):
    """{kind: Lines}: the least of five rounds. Two minutes of processor time each."""
    folder = jobs.scratch()
    program, reader, pipe, facts = (os.path.join(folder, name) for name in ("lines", "touched_lines", "trace", "facts"))
    subprocess.run([f"mpicc.{mpi}", "-O2", "-no-pie", "-Wno-stringop-overflow", "-o", program,
                    os.path.join(SOURCES, "instructions.c")], check=True)
    subprocess.run(["cc", "-O2", "-o", reader, os.path.join(SOURCES, "touched_lines.c")], check=True)
    symbols = subprocess.run(["nm", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    address = {name: value for value, _, name in re.findall(r"^([0-9a-f]+) (\w) (\w+)$", symbols, re.MULTILINE)}
    if os.path.exists(pipe):
        os.unlink(pipe)
    os.mkfifo(pipe)
    with open(pipe + ".read", "w", encoding="ascii") as out, \
         subprocess.Popen(["sh", "-c", 'exec "$0" "$1" "$2" "$3" < "$4"', reader, facts, address["round_begins"],
                           address["kind_ends"], pipe], stdout=out) as reading:
        try:
            kinds = job(mpi, mode, folder, ["--tool=lackey", "--basic-counts=no", "--trace-mem=yes", f"--log-file={pipe}"],
                        program, "5", "1", facts)
        except BaseException:
            reading.kill()
            raise
    with open(pipe + ".read", encoding="ascii") as file:
        rows = [Lines(*map(int, row.split())) for row in file]
    if len(rows) != len(kinds):
        sys.exit(f"bench: {len(rows)} kinds in the trace, {len(kinds)} were run")
    return dict(zip(kinds, rows))


def tables_of(text):
    """{(mode, mpi): {kind: [instructions, branches, clock reads, lines, written]}} of the page; None where it was not counted."""
    found, key = {}, None
    for line in text.splitlines():
        heading = re.match(r"### (\w+), (\w+)$", line)
        if heading:
            key = heading.groups()
            found[key] = {}
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if key and line.startswith("|") and cells[0].replace(" ", "_") in ROUND:
            found[key][cells[0].replace(" ", "_")] = [None if cell == "–" else float(cell.replace(",", "")) for cell in cells[2:]]
    return found


def committed():
    """tables_of the page as it is."""
    with open(PAGE, encoding="utf-8") as file:
        return tables_of(file.read())


def page_of(budget):
    """The tables as the page has them."""
    out = []
    for mode in MODES:
        for mpi in jobs.MPIS:
            rows = budget.get((mode, mpi))
            if not rows:
                continue
            out += [f"### {mode}, {mpi}", "", "| kind | a round | instructions | branches | clock reads | lines touched | written |",
                    "|---|---|---:|---:|---:|---:|---:|"]
            for kind, cells in rows.items():
                shown = ["–" if cell is None else f"{cell:,.0f}" for cell in cells]
                out.append(f"| {kind.replace('_', ' ')} | {ROUND[kind]} | " + " | ".join(shown) + " |")
            out.append("")
    return "\n".join(out)


def grown(kind, before, now):
    """Of a row of the page and a Cost: whether the second has more instructions than are allowed."""
    timed = max(0, now.clock - max(0, before[2] - 0.5))  # the page has whole reads
    return now.instructions > before[0] * (1 + ALLOWED) + SLACK + TIMED * timed + COLLISION.get(kind, 0)


def budget(options):
    """Compares with the page, or writes it (--write)."""
    kept, counted, out, over, missing = committed(), {}, [], [], []
    for mode in options.only or list(MODES):
        found = costs(options.mpi, mode)
        more = lines(options.mpi, mode) if options.lines else {}
        rows, counted[mode, options.mpi] = kept.get((mode, options.mpi), {}), {}
        for kind in [kind for kind in ROUND if kind in found]:
            before = rows.get(kind)
            touched = list(more[kind]) if kind in more else before[3:] if before else [None, None]
            if before is None:
                missing.append(f"{mode}, {kind}: not on the page")
            elif grown(kind, before, found[kind]):
                over.append(f"{mode}, {kind}: {found[kind].instructions:,.0f} instructions a round, {before[0]:,.0f} allowed")
            counted[mode, options.mpi][kind] = [*found[kind], *touched]
            change = "" if before is None else f" [{found[kind].instructions - before[0]:+,.0f}]"
            out.append(f"{mode:<7}{kind:<18}{found[kind].instructions:>9,.0f}{change:<10} instructions, "
                       f"{found[kind].branches:,.0f} branches, {found[kind].clock:.0f} clock reads" + (f", {touched[0]} lines, {touched[1]} written" if kind in more else ""))
    if options.write:
        with open(PAGE, encoding="utf-8") as file:
            text = file.read()
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(f"{text.split(BEGIN)[0]}{BEGIN}\n\n{page_of({**tables_of(text), **counted})}\n{END}{text.split(END)[1]}")
        return [*out, f"written: {os.path.relpath(PAGE)}"]
    options.failed = bool(over or missing)
    return [*out, *over, *missing, f"OVER THE BUDGET: {len(over)} of {len(out)}" if over else
            "NOT ON THE PAGE: scripts/bench budget --write" if missing else f"{options.mpi}: {len(out)} paths within the budget"]


def add(commands):
    command = commands.add_parser("budget")
    command.set_defaults(function=budget)
    command.add_argument("--mpi", choices=jobs.MPIS, default="openmpi")
    command.add_argument("--only", action="append", choices=MODES, help="only this mode; may be repeated")
    command.add_argument("--lines", action="store_true", help="cache lines, too: two minutes of processor time a mode")
    command.add_argument("--write", action="store_true", help="writes what was counted into docs/BUDGET.md")
    command.add_argument("--markdown", metavar="FILE", help="append what is printed to FILE")
