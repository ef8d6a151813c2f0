#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RESIL_MODE=verify and what no recording holds (docs/RECORD.md, "What no recording holds"): the cause of a difference is only
suspected once the rank has read a clock, a random device, a process id, the use of memory or the date of a file, or has had
threads of its own; the job goes on with the recorded number; one run says what would have to be ignored. A fault in a rank
that has read nothing of the kind is proved and ends the job.

Usage: sources_test.py BUILD openmpi|mpich
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, patience  # noqa: E402
from harness.main import LeftOut, run_checks, shared  # noqa: E402

# What the finding says for each KIND of sources.c; None: the number agrees unless it is flipped.
KINDS = {"clock": "clock (clock_gettime, 1)", "time": "clock (time, 1)", "time-early": "clock (time, 0)",
         "getpid": "process ids (getpid, 1)", "urandom": "random numbers (open, 1)",
         "getrusage": "use of memory (getrusage, 1)", "stat": "dates of files (", "threads": "threads (pthread_create, 8)",
         "threads-early": "threads ("}
FORTRAN = {"system_clock": "clock (_gfortran_system_clock", "cpu_time": "clock (_gfortran_cpu_time",
           "date": "clock (_gfortran_date_and_time, 1)", "random": "random numbers ("}


class Setting:
    def __init__(self, build, mpi):
        self.mpi = mpi
        self.program, self.fortran = (os.path.join(build, f"{name}.{mpi}") for name in ("sources", "sources_fortran"))

    def run(self, mode, recording, command, env=None):
        return jobs.run(self.mpi, 2, command, timeout=120, env={
            "RESIL_MODE": mode, "RESIL_RECORD": recording, "RESIL_LOG": "quiet", **(env or {})})

    def record(self, command, env=None):
        recording = os.path.join(jobs.scratch(), "recording")
        result = self.run("record", recording, command, env)
        assert result.returncode == 0, result.text()
        return recording, result


def findings(result):
    return {rank: report["findings"] for rank, report in result.ranks().items() if report["findings"]}


def suspected(s, command, word, env=None):
    """Told, counted, healed; with what it advises nothing is told, and the result is the recorded one again."""
    recording, recorded = s.record(command)
    result = s.run("verify", recording, command, env)
    assert result.returncode == 0 and result.stdout == recorded.stdout, f"{recorded.text()}\n{result.text()}"
    found = findings(result)
    assert found and all(len(list_) == 1 for list_ in found.values()), result.text()
    for rank, (finding,) in found.items():
        evidence = finding["evidence"]
        assert finding["kind"] == "divergence" and finding["confidence"] == "suspected", finding
        assert evidence["place"] == "proved: the runs part here, in this rank", evidence
        assert word in evidence["unrecorded"], evidence
        assert "source_1" in evidence or "MPI_Wtime" in word, evidence
        seen = result.ranks()[rank]["verify"]
        assert seen["suspected"] == 1 and seen["from_recording"] == 1, seen
        site = evidence["call"].rsplit(" ", 1)[1]
        assert evidence["if_it_may_differ"] == f"RESIL_VERIFY_IGNORE={site}" and seen["to_ignore"] == site, (evidence, seen)
        assert result.stderr.count(f"RESIL_VERIFY_IGNORE={site}\n".encode()) == len(found) + 1, result.text()
    again = s.run("verify", recording, command, {**(env or {}), "RESIL_VERIFY_IGNORE": site})
    assert again.returncode == 0 and again.stdout == recorded.stdout and not findings(again), again.text()
    # Threads of another rank, and its clock, may have said the same this time.
    assert sum(report["verify"]["ignored"] for report in again.ranks().values()) >= 1, again.text()


def flipped(s, kind, word):
    """The same with a difference that is certain to be there, in one rank."""
    suspected(s, [s.program, kind], word, {"SOURCES_FLIP": "1"})


def bound_at_load(program):
    """What a program has bound when it was loaded it may have called before MPI_Init, so that each source is open. Debian 13's
    wrappers of MPICH link so."""
    return b"BIND_NOW" in patience.run(["readelf", "-d", program], capture_output=True, timeout=60).stdout


def proved(s, kind):
    """No source is open: the cause is proved, and the job ends before the value has left its rank."""
    if kind == "ucx" and jobs.emulated(s.program):
        raise LeftOut("the emulator's thread is not told apart where a library has made one")
    recording, recorded = s.record([s.program, kind])
    if b"a thread was made" in recorded.stdout:
        raise LeftOut("a library has made a thread, or glibc does not say whether: one that it has not made is not told apart")
    result = s.run("verify", recording, [s.program, kind], {"SOURCES_FLIP": "1"})
    found = findings(result)
    assert result.returncode == 91 and list(found) == [1] and len(found[1]) == 1, result.text()
    assert found[1][0]["confidence"] == "proved" and found[1][0]["culprit_ranks"] == [1], found
    assert found[1][0]["evidence"]["place"].startswith("proved"), found
    assert result.ranks()[1]["verify"]["sources"] == [], result.ranks()[1]["verify"]
    clean = s.run("verify", recording, [s.program, kind])
    assert clean.returncode == 0 and not findings(clean), clean.text()


def logged(s):
    """RESIL_ON_MISMATCH=log leaves everything as it is."""
    command = [s.program, "getpid"]
    recording, recorded = s.record(command)
    result = s.run("verify", recording, command, {"RESIL_ON_MISMATCH": "log"})
    assert result.returncode == 0 and result.stdout != recorded.stdout, result.text()
    assert all(report["verify"]["from_recording"] == 0 for report in result.ranks().values()), result.ranks()


def array(s):
    """Of an array there is a digest only: it stays as it is, the job goes on, and the site is named once."""
    command = [s.program, "array"]
    recording, recorded = s.record(command)
    result = s.run("verify", recording, command)
    assert result.returncode == 0 and result.stdout != recorded.stdout, result.text()
    for report in result.ranks().values():
        seen = report["verify"]
        assert seen["from_recording"] == 0 and seen["suspected"] == 2, seen  # what it gives, what it gets
        assert len(seen["sites"]) == 1 and seen["sites"][0]["differed"] == 2, seen
        assert seen["to_ignore"] == seen["sites"][0]["site"], seen
    assert result.stderr.count(b"If these data may differ: RESIL_VERIFY_IGNORE=") == 1, result.text()
    summary = jobs.run_tool("report", result.directory, "--json")
    assert summary["verify"]["to_ignore"] == seen["to_ignore"] and summary["verify"]["suspected"] == 4, summary["verify"]
    assert [source["name"] for source in summary["verify"]["sources"]] == ["clock_gettime"], summary["verify"]
    again = s.run("verify", recording, command, {"RESIL_VERIFY_IGNORE": seen["to_ignore"]})
    assert again.returncode == 0 and not findings(again), again.text()


def by_its_looks(s, kind, says):
    """The data itself says why it differs; it would be proved otherwise, as nothing else is known that is another in each run."""
    with open("/proc/sys/kernel/randomize_va_space", encoding="ascii") as file:
        if kind != "name" and (file.read().strip() == "0" or jobs.emulated(s.program)):
            raise LeftOut("addresses are the same in each run here")
    command = [s.program, kind]
    recording, _ = s.record(command)
    result = s.run("verify", recording, command)
    assert result.returncode == 0, result.text()
    if kind == "name" and result.ranks()[0]["pid"] < 100:  # a process id of two digits stands anywhere
        raise LeftOut("process ids are small here")
    found = findings(result)[0]
    assert len(found) == 1 and found[0]["confidence"] == "suspected" and re.match(says, found[0]["evidence"]["data"]), found
    assert found[0]["evidence"]["unrecorded"].startswith(found[0]["evidence"]["data"][:60]), found


def spread(s):
    """A call site that mostly agrees is not advised: what is wrong there would never be seen again."""
    command = [s.program, "spread"]
    recording, _ = s.record(command)
    result = s.run("verify", recording, command)
    assert result.returncode == 0, result.text()
    for report in result.ranks().values():
        seen = report["verify"]
        assert seen["to_ignore"] == "" and seen["sites"][0]["not_advised"].startswith("most values"), seen
        assert "if_it_may_differ" not in report["findings"][0]["evidence"], report["findings"]
        assert any("must not be ignored: 1" in note for note in report["notes"]), report["notes"]
    assert b"RESIL_VERIFY_IGNORE=" not in result.stderr, result.text()


def given_back(s, command, env):
    """Clocks say what they said then: nothing differs, and no source is open."""
    recording, recorded = s.record(command, env)
    result = s.run("verify", recording, command, env)
    assert result.returncode == 0 and result.stdout == recorded.stdout and not findings(result), result.text()
    for rank, report in result.ranks().items():
        seen = report["verify"]
        assert seen["sources"] == [] and seen["times_not_recorded"] == 0 and seen["suspected"] == 0, seen
        assert seen["times"] == recorded.ranks()[rank]["record"]["times"] > 0, (seen, recorded.ranks()[rank]["record"])
    size = max(os.path.getsize(os.path.join(recording, name)) for name in os.listdir(recording))
    return f"{seen['times']} values, {size} bytes"


def in_place(s):
    """MPI_IN_PLACE is no address: what is given stands where the result comes. Of a number it is replaced there."""
    command = [s.program, "in-place"]
    recording, recorded = s.record(command)
    result = s.run("verify", recording, command)
    assert result.returncode == 0 and result.stdout == recorded.stdout, result.text()
    assert all(report["verify"]["from_recording"] == 1 for report in result.ranks().values()), result.text()


def by_caller(s):
    """A program that calls MPI through a place of its own: the caller is advised whose data differ, and the others' are compared on."""
    command = [s.program, "wrapper"]
    recording, recorded = s.record(command)
    result = s.run("verify", recording, command)
    assert result.returncode == 0 and result.stdout == recorded.stdout, result.text()
    for report in result.ranks().values():
        seen = report["verify"]
        assert seen["suspected"] == 2 and len(seen["sites"]) == 1, seen
        site = seen["sites"][0]
        assert site["not_advised"] == "" and seen["to_ignore"] == site["callers"] != site["site"], seen
        assert report["findings"][0]["evidence"]["may_not_be_ignored"].startswith("most values"), report["findings"]
    where = patience.run(["addr2line", "-fe", s.program, seen["to_ignore"].split("+")[1]], capture_output=True, timeout=60).stdout
    assert where.startswith(b"sum_of_times\n"), (where, seen)
    ignoring = {"RESIL_VERIFY_IGNORE": seen["to_ignore"]}
    again = s.run("verify", recording, command, ignoring)
    assert again.returncode == 0 and again.stdout == recorded.stdout and not findings(again), again.text()
    assert all(report["verify"]["ignored"] == 2 for report in again.ranks().values()), again.text()
    faulty = s.run("verify", recording, command, {**ignoring, "SOURCES_FLIP": "1"})
    assert list(findings(faulty)) == [1] and findings(faulty)[1][0]["evidence"]["found"].endswith("(0.25)"), faulty.text()


def too_many(s):
    """A loop that waits by looking at the clock: what is recorded is bounded, and what is not recorded is a source."""
    command = [s.program, "wtime-flood"]
    recording, recorded = s.record(command)
    size = max(os.path.getsize(os.path.join(recording, name)) for name in os.listdir(recording))
    kept, left = (recorded.ranks()[0]["record"][name] for name in ("times", "times_left_out"))
    assert kept < 4200000 and left > 300000 and size < 8 * kept, (kept, left, size)
    result = s.run("verify", recording, command)
    assert result.returncode == 0, result.text()
    for report in result.ranks().values():
        assert report["verify"]["times"] == kept and report["verify"]["times_not_recorded"] > 300000, report["verify"]
    assert all(finding["confidence"] == "suspected" for list_ in findings(result).values() for finding in list_), findings(result)
    return f"{kept} values, {size} bytes"


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    s = Setting(build, mpi)
    if bound_at_load(s.program):
        print("skipped: the MPI's wrapper links with -z now: any source may have been read before MPI_Init")
        return 77
    checks = [("a fault without a source", lambda: proved(s, "none")), ("a fault beside an emulator's thread", lambda: proved(s, "emulated")),
              ("a fault beside UCX's thread", lambda: proved(s, "ucx"))]
    checks += [(f"{kind}", lambda kind=kind, word=word: suspected(s, [s.program, kind], word))
               for kind, word in KINDS.items() if kind in ("clock", "getpid", "urandom", "getrusage")]
    checks += [(f"{kind}, flipped", lambda kind=kind, word=word: flipped(s, kind, word))
               for kind, word in KINDS.items() if kind in ("time", "time-early", "stat", "threads", "threads-early")]
    checks += [(f"Fortran: {kind}", lambda kind=kind, word=word: suspected(s, [s.fortran, kind], word))
               for kind, word in FORTRAN.items()]
    checks += [("logged", lambda: logged(s)), ("an array", lambda: array(s)), ("a site that mostly agrees", lambda: spread(s)),
               ("MPI_IN_PLACE", lambda: in_place(s)), ("a wrapper of the program's own", lambda: by_caller(s))]
    checks += [(f"what data says: {kind}", lambda kind=kind, says=says: by_its_looks(s, kind, says)) for kind, says in (
        ("address", "both values look like addresses"), ("addresses", "2 of its first 8 words are addresses"),
        ("name", r"it holds this process's id, \d+$"))]
    none, every = {"RESIL_RECORD_TIME": "none"}, {"RESIL_RECORD_TIME": "all"}
    checks += [("MPI_Wtime, not recorded", lambda: suspected(s, [s.program, "wtime"], "MPI_Wtime was read 2 times", none)),
               ("MPI_Wtime, a fault", lambda: proved(s, "wtime"))]
    checks += [(f"given back: {os.path.basename(program)} {kind}", lambda program=program, kind=kind, env=env: given_back(s, [program, kind], env))
               for program, kind, env in ((s.program, "wtime", {}), (s.program, "wtime-many", {}), (s.program, "clock", every),
                                          (s.program, "time", every), (s.fortran, "wtime", {}), (s.fortran, "system_clock", every),
                                          (s.fortran, "date", every))]
    checks += [("more MPI_Wtime than a recording takes", lambda: too_many(s))]
    return run_checks(shared([(f"{name} ({mpi})", check) for name, check in checks], mpi))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
