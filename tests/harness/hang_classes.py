# SPDX-License-Identifier: Apache-2.0
"""scripts/campaign classes: a hang of every class of docs/WHY.md in a small solver, in every language, on one to four nodes; what `resil why`
and the finding say of it against the truth: class, culprit, the line where it stands, and that no other rank is accused.

The truth is the program's own (tests/faults/stuck.*): which rank, and lines marked "AT CLASS".
"""
import collections
import functools
import glob
import json
import os
import random
import re
import subprocess
import sys
import threading
import time

from . import mpi as jobs, patience
from .findings import HangLog
from .hangs import LEAVE_ALONE

SOURCES = os.path.join(jobs.ROOT, "tests", "faults")
TOOL = os.path.join(jobs.ROOT, "scripts", "resil")
PYTHON = "/usr/bin/python3"
START, ASK, EACH = 60, 40, 60  # seconds: until the hang is there; for an answer that is not "moving"; for one answer
AFTER, LEARN = 2.5, 4.5  # until the first question; while slow programs are not looked at
NEVER = "a rank never arrived"
ONE, TWO, NOBODY, ALL = "the rank", "the rank and the next one", "nobody", "all of them"


class Kind:
    """A class: the one verdict that is right, whom it names, whether that rank's line can be known, and in which languages. Exactly these
    ranks are to be named, no fewer. `few`: with fewer ranks than `least` (two: nobody is in the majority) what is right instead, as
    (verdict, accused)."""

    def __init__(self, verdict, accused=ONE, line=True, languages="C C++ Fortran Python", mpis=("openmpi", "mpich"), least=2, few=None, detail=""):
        self.verdict, self.accused, self.line, self.detail = verdict, accused, line, detail
        self.languages, self.mpis, self.least, self.few = languages.split(), mpis, least, few


KINDS = {
    "cycle": Kind("deadlock", ALL),
    "pair": Kind("deadlock", TWO, languages="C C++"),
    "nonblocking": Kind("deadlock", TWO, languages="C C++"),
    "order": Kind("deadlock", least=3, few=("deadlock", ALL)),
    "subset": Kind("deadlock", languages="C C++", least=3),
    "mismatch": Kind("collective mismatch", languages="C C++ Fortran", least=3, few=("collective mismatch", NOBODY)),
    "behind": Kind("collective mismatch", languages="Fortran", least=4, few=("deadlock", ALL)),  # the same, others wait for messages before
    "tag": Kind("unmatched message", TWO),
    # Of two, the message of the step before is one with another tag, to the rank that waits: a near miss.
    "nobody": Kind("deadlock", TWO, languages="C C++", least=3, few=("unmatched message", TWO)),
    "large": Kind("unmatched message", TWO, languages="C C++"),  # the receive of the next one has another tag
    "computing": Kind(NEVER, detail="computing"),
    "asleep": Kind(NEVER, languages="C C++", detail="asleep"),
    "stopped": Kind(NEVER, line=False, detail="stopped"),
    "finished": Kind(NEVER, languages="C C++ Fortran", detail="finished", least=3, few=("unmatched message", ONE)),  # of two: one message, no more
    "killed": Kind(NEVER, line=False, detail="gone"),
    "left": Kind(NEVER, line=False, languages="C C++", detail="gone"),
    "kernel": Kind(NEVER, line=False, languages="C C++", detail="in the kernel"),
    "file_open": Kind("file I/O", detail="in open("),
    "file_read": Kind("file I/O", languages="C C++", detail="in read("),
    "device": Kind("device wait", languages="C C++"),
    "livelock": Kind("busy-wait livelock", TWO, languages="C C++"),
    "livelock_all": Kind("busy-wait livelock", ALL, languages="C C++ Fortran"),
    "inside_one": Kind("inside MPI with everyone arrived", ONE, line=False, languages="C"),
    "inside_all": Kind("inside MPI with everyone arrived", NOBODY, line=False, languages="C"),
    "lose": Kind("inside MPI with everyone arrived", NOBODY, line=False, languages="C"),
    "slow": Kind("moving", NOBODY, line=False),
}
MAY_END = ("killed", "left", "stopped")  # the launcher may end all others before anybody asks: then the report is judged
HEADER = ("class", "runs", "class right", "rank right", "line right", "victims accused", "proved, verified, suspected", "finding: right class, rank")


class Programs:
    """The compiled programs of one MPI, made once."""

    def __init__(self, mpi):
        self.mpi, self.folder = mpi, jobs.scratch()

    @functools.cached_property
    def inside(self):
        output = os.path.join(self.folder, "stuck_inside.so")
        subprocess.run([f"mpicc.{self.mpi}", "-std=gnu11", "-O1", "-g", "-w", "-shared", "-fPIC", "-o", output,
                        os.path.join(SOURCES, "stuck_inside.c")], check=True)
        return output

    @functools.cache  # pylint: disable=method-cache-max-size-none
    def command(self, language):
        """(the command, its source file); None: not with this MPI here."""
        if language == "Python":
            probe = [PYTHON, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())"]
            done = subprocess.run(probe, capture_output=True, text=True, check=False)
            name = {"openmpi": "Open MPI", "mpich": "MPICH"}[self.mpi]
            source = os.path.join(SOURCES, "stuck.py")
            return ([PYTHON, source], source) if name in done.stdout else None
        source = os.path.join(SOURCES, "stuck.f90" if language == "Fortran" else "stuck.c")
        compiler = {"C": ["mpicc", "-std=gnu11"], "C++": ["mpicxx", "-x", "c++"], "Fortran": ["mpifort"]}[language]
        output = os.path.join(self.folder, "stuck_" + language.replace("+", "p"))
        subprocess.run([f"{compiler[0]}.{self.mpi}", *compiler[1:], "-O0", "-g", "-w", "-o", output, source, *(
            ["-x", "none"] if language == "C++" else []), "-ldl"], cwd=self.folder, check=True)
        return [output], source


@functools.cache
def lines_of(source, kind):
    with open(source, encoding="utf-8") as file:
        return {number for number, line in enumerate(file, 1) if re.search(rf"AT {kind}\b(?!_)", line)}


class Run:
    """One run and what was said. `truth`: ranks that may be named."""

    def __init__(self, programs, kind, language, ranks, rank, nodes):
        self.programs, self.kind, self.language, self.ranks, self.rank, self.nodes = programs, kind, language, ranks, rank, nodes
        self.what, self.mpi = KINDS[kind], programs.mpi
        self.told, self.finding, self.problem, self.status = {}, None, "", None
        self.dumped = ""  # of a Python program: what `resil dump` says, which has its lines
        self.ended = False  # before anybody could ask: no hang
        self.refused = ""  # why the last question had no answer
        self.asked = 0  # how often until the answer was no "moving"
        self.reported = False  # then: whether `resil report` says that this rank ended first

    @property
    def right(self):
        """(verdict, whom it names)."""
        return self.what.few if self.what.few and self.ranks < self.what.least else (self.what.verdict, self.what.accused)

    @property
    def truth(self):
        accused = self.right[1]
        return {NOBODY: set(), ALL: set(range(self.ranks)), TWO: {self.rank, (self.rank + 1) % self.ranks}, ONE: {self.rank}}[accused]

    def whom(self, culprits):
        """Exactly the right ones."""
        return set(culprits) == self.truth

    @property
    def unseen(self):
        """Whether nobody is left on the rank's (simulated) node who could tell what became of it."""
        return self.nodes == 1 and self.kind in ("stopped", "killed", "left")

    @property
    def class_right(self):
        verdict, detail = self.told.get("verdict"), self.told.get("detail", "")
        if self.unseen and detail == "unreachable":
            return verdict == NEVER
        return verdict == self.right[0] and (self.right[0] != self.what.verdict or self.what.detail in detail)

    @property
    def rank_right(self):
        return self.whom(self.told.get("culprits", []))

    @property
    def line_right(self):
        """None: this class has no line, or nobody is accused."""
        accused = set(self.told.get("culprits", []))
        if not self.what.line or not accused or self.told["verdict"] == "moving":
            return None
        _, source = self.programs.command(self.language)
        name, wanted = os.path.basename(source), lines_of(source, self.kind)
        text = json.dumps([self.told.get("at"), self.told.get("places"), self.told.get("message")]) + self.dumped
        return any(f"{name}:{line}" in text or f'{name}", line {line} in' in text for line in wanted)

    @property
    def accused(self):
        """Ranks that are named and have nothing to do with it."""
        named = set(self.told.get("culprits", []))
        if self.finding:
            named |= set(self.finding["culprit_ranks"])
        return sorted(named - self.truth)

    @property
    def finding_right(self):
        return None if self.finding is None else self.whom(self.finding["culprit_ranks"])

    def good(self):
        if self.ended:
            return self.kind in MAY_END and self.reported
        return not self.problem and self.class_right and self.rank_right and self.line_right is not False and not self.accused and \
            self.finding_right is not False

    def name(self):
        nodes = -(-self.ranks // self.nodes) if self.nodes else 1
        return f"{self.kind} {self.language} {self.mpi}×{self.ranks} on {nodes}, rank {self.rank}"

    def text(self):
        told = self.told
        if self.ended:
            return f"{'ended' if self.good() else 'WRONG'} {self.name()}: ended with {self.status}, {'told' if self.reported else 'not told'} by the report"
        finding = f"; finding {self.finding['confidence']} {self.finding['class']} {self.finding['culprit_ranks']}" if self.finding else ""
        return (f"{'ok   ' if self.good() else 'WRONG'} {self.name()}: {self.problem}{told.get('confidence')} {told.get('verdict')} "
                f"({told.get('detail')}) {told.get('culprits')}, line {self.line_right} {told.get('at')}{finding}")

    def row(self):
        return {"name": self.name(), "kind": self.kind, "language": self.language, "mpi": self.mpi, "good": self.good(), "told": self.told,
                "ended": self.ended, "asked": self.asked, "finding": self.finding, "problem": self.problem, "status": self.status}

    # -- the run --

    def perform(self, keep=None):
        folder = jobs.scratch()
        directory = os.path.join(folder, "report")
        os.mkfifo(os.path.join(folder, "fifo"))
        command, _ = self.programs.command(self.language)
        env = {"RESIL_LOG": "quiet", **({"RESIL_NODE_RANKS": str(self.nodes)} if self.nodes else {})}
        tools = []
        if self.kind == "device":
            env.update(LD_LIBRARY_PATH=os.path.join(os.path.dirname(jobs.library()), "tests", "fakegpu"), FAKEGPU="fault=lost-stream:2",
                       RESIL_GPU="check", RESIL_GPU_LOST="0.2")
        if self.kind in ("inside_one", "inside_all", "lose"):
            tools = [self.programs.inside]
            env.update({"STUCK_LOSE": "1"} if self.kind == "lose" else
                       {"STUCK_RANK": str(self.rank if self.kind == "inside_one" else -1), "STUCK_FOLDER": folder})
        env = jobs.rank_environment(True, directory, env, tools_after=tools)
        options = LEAVE_ALONE.get((self.mpi, {"killed": "kill", "left": "exit", "finished": "exit"}.get(self.kind)), ())
        line = jobs.launcher(self.mpi, self.ranks, env, options) + [*command, self.kind, str(self.rank), folder]
        job, said = jobs.Running(line, directory, cwd=folder), HangLog(directory)
        try:
            self._watch(job, directory, os.path.join(folder, "injected"))
        except AssertionError as error:
            self.problem = f"{error}; "
        finally:
            said.look()
            result = job.end()
            self.status = result.returncode
            if self.ended:
                self._read_report(directory)
            jobs.remove_rings(directory)
        if said.findings:
            self.finding = said.findings[0]
        if self.kind == "slow" and not self.problem and (result.returncode != 0 or b"right" not in result.stdout):
            self.problem = f"ended with {result.returncode}; "
        if not self.good():
            self.problem += result.stderr.decode(errors="replace")[-300:].replace("\n", " ") if self.problem else ""
            said.keep(keep, re.sub(r"\W+", "-", self.name()))
        jobs.discard(folder)

    def _watch(self, job, directory, injected):
        def there():
            return os.path.exists(injected) or job.poll() is not None
        patience.wait_for(there, "the hang", START, 0.05)
        time.sleep(0.5 if self.kind in ("killed", "left") else 0)  # the launcher may end the others
        self.ended = job.poll() is not None
        if self.ended:
            return
        limit, began = patience.Patience(ASK), time.monotonic()
        if self.kind == "slow":  # asked again and again, in every pause: never accused
            answers = []
            while job.poll() is None:
                answer = self._ask(directory)
                if time.monotonic() - began > LEARN:  # the job's first pause is longer than any before
                    answers.append(answer)
                assert not limit.over(), "it does not end"
            answers = [one for one in answers if one]
            assert answers, f"no answer, {self.refused or 'the last question came too early'}"
            self.told = next((one for one in answers if one["verdict"] != "moving"), answers[0])
            return
        time.sleep(AFTER)  # a user asks later
        while not limit.over():
            self.asked += 1
            self.told = self._ask(directory) or self.told
            assert job.poll() is None, f"ended with {job.poll()}"
            if self.told.get("verdict") not in (None, "moving", "not known"):
                break
        if self.language == "Python" and self.what.line and job.poll() is None:
            patience.run([sys.executable, TOOL, "dump", directory], capture_output=True, timeout=EACH, env=jobs.clean_environment())
            for path in glob.glob(os.path.join(directory, "dump-*.txt")):
                with open(path, encoding="utf-8", errors="replace") as file:
                    self.dumped += file.read()

    def _read_report(self, directory):
        done = patience.run([sys.executable, TOOL, "report", directory], capture_output=True, timeout=EACH, env=jobs.clean_environment())
        text = " ".join(done.stdout.decode(errors="replace").split())
        self.reported = re.search(rf"\brank {self.rank} (ended first|was killed|ended|was ended|has ended|left|died)", text) is not None
        self.problem = "" if self.reported else text[:600]

    def _ask(self, directory):
        words = ["--no-stacks"] if self.kind == "slow" else []
        done = patience.run([sys.executable, TOOL, "why", "--json", *words, directory], capture_output=True, timeout=EACH,
                            env=jobs.clean_environment())
        try:
            if done.returncode not in (0, 1):
                self.refused = f"status {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}"
                return None
            return json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"no answer: {done.stderr.decode(errors='replace')[-600:]}") from None


def plan(options):
    """Runs in random order: each class in each language, numbers of ranks and nodes at random."""
    choice, runs = random.Random(options.seed), []
    for mpi in [options.mpi] if options.mpi else jobs.MPIS:
        if not jobs.installed(f"mpirun.{mpi}"):
            continue
        programs = Programs(mpi)
        for kind in options.hang or KINDS:
            what = KINDS[kind]
            for language in what.languages:
                if mpi not in what.mpis or (kind == "subset" and jobs.loses_messages(mpi)) or not programs.command(language) or (options.language and language not in options.language):
                    continue
                for _ in range(options.runs):
                    few = [2] if jobs.loses_messages(mpi) else [2, 3, 4, 4, 6, 8, 12, 16]
                    ranks = options.ranks or choice.choice([n for n in few if n >= min(what.least, few[-1])])
                    count = choice.choice([1, 1, 2, 3, 4])
                    nodes = -(-ranks // count) if count > 1 else 0
                    runs.append(Run(programs, kind, language, ranks, choice.randrange(ranks), nodes))
    choice.shuffle(runs)
    return few_of(runs, options.sample) if options.sample else runs


def few_of(runs, count):
    """A sample of so many: each class with each MPI first, then those whose class, language and MPI were taken least."""
    taken, left, seen = [], list(runs), collections.Counter()
    while left and len(taken) < count:
        best = min(left, key=lambda run: (seen[run.kind, run.mpi], seen[run.language], seen[run.kind, run.language], seen[run.nodes, run.mpi]))
        left.remove(best)
        taken.append(best)
        seen.update([(best.kind, best.mpi), best.language, (best.kind, best.language), (best.nodes, best.mpi)])
    return taken


def perform(options, runs):
    lock, queue, done = threading.Lock(), list(enumerate(runs)), []

    def work():
        while True:
            with lock:
                if not queue:
                    return
                number, run = queue.pop(0)
            run.perform(options.keep)
            with lock:
                done.append(run)
                print(f"{number + 1:4} {run.text()}", flush=True)
                if options.log:
                    with open(options.log, "a", encoding="utf-8") as file:
                        file.write(json.dumps(run.row()) + "\n")

    workers = [threading.Thread(target=work, daemon=True) for _ in range(options.parallel)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return done


def part(flags):
    """"98.0 % (49 of 50)" of these, None left out."""
    counted = [bool(flag) for flag in flags if flag is not None]
    return f"{100 * sum(counted) / len(counted):.1f} % ({sum(counted)} of {len(counted)})" if counted else "–"


def line(runs, name):
    said = collections.Counter(run.told.get("confidence") for run in runs)
    return (name, len(runs), part(run.class_right for run in runs), part(run.rank_right for run in runs), part(run.line_right for run in runs),
            sum(bool(run.accused) for run in runs), ", ".join(str(said[word]) for word in ("proved", "verified", "suspected")),
            part(run.finding_right for run in runs))


def table_rows(runs):
    runs = [run for run in runs if not run.ended]
    groups = collections.defaultdict(list)
    for run in runs:
        groups[run.kind].append(run)
    rows = [line(groups[kind], kind) for kind in KINDS if kind in groups]
    for language in ("C", "C++", "Fortran", "Python"):
        if some := [run for run in runs if run.language == language]:
            rows.append(line(some, language))
    for mpi in jobs.MPIS:
        if some := [run for run in runs if run.mpi == mpi]:
            rows.append(line(some, mpi))
    return rows + [line(runs, "**all**")]
