#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command in a block of README and of the pages runs as printed and ends as the page says (tests/harness/launch_lines.py: blocks;
those that need Slurm: slurm_test.py), but for those whose page says why not; of the pages for users (README, docs/using) none is left out.
Output that these pages show has the shape of what is printed (shown.py). Commands, options and settings within sentences and tables of all pages are held against the command's parser and the
library's table (inline_commands.py); those of the pages for users that can be run are.

Usage: doc_commands_test.py [PAGE...]
Touches scratch directories, and the jobs that it starts.
"""
import glob
import html
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import inline_commands, launch_lines, mpi as jobs, patience, shown  # noqa: E402
from harness.main import LeftOut, Long, run_checks  # noqa: E402


class Place:
    """Where the commands of one page run, one after the other, as a reader would."""

    def __init__(self):
        self.path = launch_lines.place("openmpi")
        self.mpi = "openmpi"
        launch_lines.add_command(self.path)

    def use(self, mpi):
        """mpirun and mpicc are this MPI's."""
        for name in ("mpirun", "mpicc") if mpi != self.mpi else ():
            with open(os.path.join(self.path, "bin", name), "w", encoding="ascii") as file:
                file.write(f'#!/bin/sh\nexec {name}.{mpi} "$@"\n')
        self.mpi = mpi

    def newest(self):
        """What a page calls DIR: the newest reports."""
        found = [os.path.join(self.path, name) for name in os.listdir(self.path) if name.startswith("resil-")
                 and name != "resil-record" and os.path.isdir(os.path.join(self.path, name))]
        return max(found, key=os.path.getmtime, default="DIR")

    def run(self, line, expected, job=""):
        said = {"DIR": self.newest, "4711": lambda: job}
        line = "".join(said.get(part, lambda part=part: part)() for part in re.split(r"(?<![^ ])(DIR(?=[ /]|$)|4711(?= |$))", line))
        for left in (1, 0):
            done = jobs.start(["sh", "-c", line], env=launch_lines.environment(self.path), cwd=self.path, timeout=90)
            if not (left and done.timed_out and self.mpi == "mpich"):  # MPICH 4.0.2 by itself
                break
        assert expected is None or done.returncode in expected, f"expected {expected}: {done.text()}"
        return done

    def beside(self):
        """A job that goes on until end()."""
        job = jobs.Running([os.path.join(self.path, "bin", "resil"), "run", "mpirun", "-np", "2", "./app"], env=launch_lines.environment(self.path), cwd=self.path)
        launch_lines.wait_until_moving(job, lambda: jobs.start(
            [os.path.join(self.path, "bin", "resil"), "status", "--json", self.newest()], cwd=self.path))
        return job

    def end(self, job):
        with open(os.path.join(self.path, "stop"), "wb"):
            pass
        patience.wait_for(lambda: job.poll() is not None, "the end of the job beside", 60)
        os.unlink(os.path.join(self.path, "stop"))
        done = job.end()
        assert done.returncode == 0, done.text()


def commands(place, block):
    """Runs a block; what it printed."""
    if not jobs.installed("mpirun." + block.mpi):
        raise LeftOut(f"mpirun.{block.mpi} is not installed")
    place.use(block.mpi)
    launch_lines.compile_app(place.path, block.app)
    job = place.beside() if "beside" in block.flags else None
    outputs = []
    for line, expected in block.commands:
        done = place.run(line, (expected,), str(job.process.pid) if job else "")
        outputs += [done.stdout, done.stderr]
    if job:
        place.end(job)
    return outputs


def shown_by_itself(block):
    """What the command that a comment names prints."""
    mpi = block.options.get("mpi", "openmpi")
    if not jobs.installed("mpirun." + mpi):
        return None
    place = Place()
    place.use(mpi)
    launch_lines.compile_app(place.path, block.options["app"])
    done = place.run(block.line, None)
    return [done.stdout, done.stderr]


def page_runs(page):
    def check():
        place, said, compared, left, outputs = Place(), 0, 0, 0, None
        for block in launch_lines.parts(page):
            if isinstance(block, launch_lines.NotRun):
                left += len(block.lines)
            elif isinstance(block, launch_lines.Block):
                if not block.flags & {"slurm", "ci"}:
                    outputs = commands(place, block)
                    said += len(block.commands)
            elif block.kind == "site file":
                site_file(place, block)
                said += 1
            else:
                found = shown_by_itself(block) if block.line else outputs
                if found:
                    shown.compare(block.text, found, block.page)
                    compared += 1
        return f"{said} commands run, {compared} outputs compared" + (f", {left} lines left out" if left else "")
    return check


def site_file(place, block):
    """The library takes every line of it."""
    path = os.path.join(place.path, "shown.conf")
    with open(path, "w", encoding="utf-8") as file:
        file.write(block.text)
    done = place.run(f"RESIL_CONF={path} resil env --set", (0,))
    lines = [line for line in block.text.splitlines() if line.startswith("RESIL_")]
    assert lines and all(line.split("=")[0].encode() in done.stdout for line in lines), done.text()


def left_out():
    """Pages for users leave nothing out; elsewhere the test that is named is one."""
    with_blocks = {page: [block for block in launch_lines.parts(page) if isinstance(block, launch_lines.NotRun)]
                   for page in launch_lines.pages() + launch_lines.reference_pages()}
    assert not any(with_blocks[page] for page in launch_lines.pages())
    known = set()
    for path in glob.glob(os.path.join(jobs.ROOT, "tests", "*", "meson.build")):
        with open(path, encoding="utf-8") as file:
            known.update(re.findall(r"'([\w-]+)'", file.read()))  # names, and words that loops make names of
    named = [(block, test) for blocks in with_blocks.values() for block in blocks for test in block.tests]
    for block, test in named:
        assert any(test in (one, f"{one}-openmpi", f"{one}-mpich") or one == test.split("-")[0] + "-" for one in known), (block.page, test)
    assert len(named) >= 5, named
    return f"{len(named)} blocks left to other tests, {sum(len(blocks) for blocks in with_blocks.values()) - len(named)} for what they need"


def within_sentences():
    """Every command, option, setting and variable in inline code is one."""
    looked, wrong = dict.fromkeys(("tool", "script", "launcher", "setting", "variable", "option"), 0), []
    users = launch_lines.pages()
    for page in users + launch_lines.reference_pages():
        for number, code in inline_commands.inline(page):
            kind = inline_commands.kind(code)
            if not kind or (kind == "option" and page not in users):  # elsewhere of many programs
                continue
            looked[kind] += 1
            why = inline_commands.wrong(code)
            if why:
                wrong.append(f"{os.path.relpath(page, jobs.ROOT)}:{number}: `{code}`: {why}")
    assert not wrong, "\n".join(wrong)
    assert min(looked.values()) >= 10, looked
    return "parsed: " + ", ".join(f"{count} {kind}s" for kind, count in looked.items())


def mistakes_are_seen():
    """What must not pass does not."""
    for code in ("resil raport DIR", "resil report --jsn DIR", "scripts/resil dump --signl", "scripts/nowhere", "scripts/bench nothing",
                 "RESIL_HANG=abrt", "RESIL_HNAG", "mpirun -x RESIL_MODE=chekcsum ./app", "--is-my-data-rigth", "--set on_mismatch=lgo"):
        assert inline_commands.kind(code) and inline_commands.wrong(code), code
    text = "resil: hang [deadlock, proved] Rank 0 (1 of 2) has waited 1.4 s\nat app+0x1203 on vm"
    shown.compare(text, [b"x\nresil: hang [deadlock, proved] Rank 1 (2 of 24) has waited 10.25 s at a.out+0xfe on host-7. y"], "here")
    for printed in (b"resil: hang [deadlock, verified] Rank 0 (1 of 2) has waited 1.4 s at app+0x1203 on vm", b""):
        try:
            shown.compare(text, [printed], "here")
        except AssertionError:
            continue
        raise RuntimeError("another shape was taken for the same")


def runnable():
    """Lines in inline code of the pages for users that are whole: what they read is there, and they end."""
    found = {}
    for page in launch_lines.pages():
        for _, code in inline_commands.inline(page):
            words = code.replace("…", "").split()
            if inline_commands.kind(code) != "tool" or len(words) < 2 or words[1] == "smoke":  # as long as an allocation is wide
                continue
            if words[1] in ("run", "doctor") and "./app" not in words:
                continue  # named, not to be typed
            found.setdefault(" ".join(words), os.path.basename(page))
    return found


def lines_within_sentences():
    """They run in a directory with reports, while a job runs beside."""
    place = Place()
    place.run("resil run mpirun -np 2 ./app", (0,))
    reports, said = place.newest(), 0
    launch_lines.compile_app(place.path, "long")
    job = place.beside()
    lines = runnable()
    for line, page in lines.items():
        if "./app" not in line:
            done = place.run(line.replace("DIR", reports), (0, 1, 3))
            assert b"Traceback" not in done.stderr, (page, done.text())
            said += 1
    place.end(job)
    launch_lines.compile_app(place.path, "ring")
    for line in (line for line in lines if "./app" in line):
        place.run(line, (0,))
        said += 1
    assert said >= 8 and said == len(lines), lines
    return f"{said} lines run"


def picture_of_a_terminal():
    """scripts/pictures makes the same now, but for numbers and places."""
    folder = jobs.scratch()
    done = jobs.start([sys.executable, os.path.join(jobs.ROOT, "scripts", "pictures"), "--output", folder, "hang.svg"], timeout=120,
                      env={"RESIL_TEST_LIBRARY": jobs.library()})
    assert done.returncode == 0, done.text()
    texts = []
    for place in (os.path.join(jobs.ROOT, "docs", "pictures"), folder):
        with open(os.path.join(place, "hang.svg"), encoding="utf-8") as file:
            texts.append("\n".join(html.unescape(re.sub(r"<[^>]+>", "", line)) for line in re.findall(r"<text.*?</text>", file.read())))
    assert len(texts[0].splitlines()) > 10, texts[0]
    shown.compare(texts[0], [texts[1].encode()], "docs/pictures/hang.svg")


def ci_runs_them():
    """What is left to .ci/run is in what it runs."""
    script = ""
    for name in (".ci/run", "scripts/demo", "scripts/test"):
        with open(os.path.join(jobs.ROOT, name), encoding="utf-8") as file:
            script += file.read()
    lines = [line for page in launch_lines.pages() + launch_lines.reference_pages() for block in launch_lines.blocks(page) if "ci" in block.flags for line in block.lines
             if not line.startswith(".ci/run ")]
    words = {word for line in lines for word in re.findall(r"scripts/\w[\w-]*|(?<![/\w])(?:meson|ninja) \S+", line)}
    missing = [word for word in words if word.split("/")[-1] not in script]
    assert len(words) >= 3 and not missing, (words, missing)


def main(*names):
    jobs.require("mpirun.openmpi", "mpicc.openmpi")
    pages = [page for page in launch_lines.pages() + launch_lines.reference_pages() if launch_lines.parts(page)
             and (not names or os.path.basename(page) in names)]
    assert names or len(pages) > 18, pages
    reference = launch_lines.reference_pages()
    return run_checks([(os.path.basename(page), Long(page_runs(page)) if page in reference else page_runs(page)) for page in pages] + [
        ("commands within sentences", within_sentences), ("commands within sentences that are whole", lines_within_sentences),
        ("the picture of a terminal", picture_of_a_terminal), ("mistakes are seen", mistakes_are_seen), ("left to .ci/run", ci_runs_them),
        ("left to other tests", left_out)], side_by_side=2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
