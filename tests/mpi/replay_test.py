#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RESIL_MODE=record and verify: programs whose results differ from run to run repeat the recorded run bit for bit, and
what differs from it is found, in the right rank, between the right calls.

Usage: replay_test.py BUILD openmpi|mpich [VERIFICATIONS]
"""
import glob
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import gpu, mpi as jobs, patience, report as reports  # noqa: E402
from harness.main import LeftOut, run_checks, shared  # noqa: E402

# MPICH 4.0.2 itself loses messages with more than two ranks here.
RANKS = {"openmpi": 4, "mpich": 2}
ROUNDS = "60"
OF_EACH_KIND = {"openmpi": "60", "mpich": "20"}  # MPICH's ranks spin for each other's core
# What the first line of the report says of a verification.
AGREE = r"; ([\d,]+) calls and the contents of ([\d,]+) values \(([\d,]+) messages, [\d.,]+ .?i?B\) agree with the recording"
LONG = {"openmpi": "12000", "mpich": "60000"}  # seconds
KINDS = ("recv", "probe", "iprobe", "mprobe", "improbe", "waitany", "testany", "waitsome", "testsome", "each",
         "any-waitany", "any-testsome", "any-each", "persistent-waitany", "persistent-testany", "persistent-waitsome",
         "persistent-testsome")
# With two ranks there is one worker: only how often nothing was there, or how much at once, can vary.
VARIES = {"openmpi": ("recv", "mprobe", "waitany", "any-waitany"), "mpich": ("iprobe", "tickets")}


class Setting:
    def __init__(self, build, mpi):
        self.mpi, self.ranks = mpi, RANKS[mpi]
        self._recv = None
        self.program = os.path.join(build, f"replay.{mpi}")
        self.fortran = os.path.join(build, f"replay_fortran.{mpi}")

    def run(self, mode, recording, command, env=None, ranks=None, preload=True):
        env = {"RESIL_MODE": mode, "RESIL_RECORD": recording, "RESIL_LOG": "quiet", **(env or {})}
        return jobs.run(self.mpi, ranks or self.ranks, command, env=env, timeout=120, preload=preload)

    def record(self, command, env=None):
        recording = os.path.join(jobs.scratch(), "recording")
        result = self.run("record", recording, command, env)
        assert result.returncode == 0, result.text()
        return recording, result


    def recv(self):
        """(recording, result) of one run of the kind `recv` that several checks verify against."""
        if self._recv is None:
            self._recv = self.record([self.program, "recv", ROUNDS])
        return self._recv


def is_clean(result, recorded):
    assert result.returncode == 0 and result.stdout == recorded.stdout, f"{recorded.text()}\n{result.text()}"
    for rank, report in result.ranks().items():
        assert report["findings"] == [] and report["verify"]["divergences"] == 0, f"rank {rank}: {report}"
        assert report["verify"]["calls"] > 0 and report["verify"]["unmatched"] == 0, f"rank {rank}: {report['verify']}"
    return result.ranks()[0]["verify"]


def repeats(s, command, times, env=None, least=1):
    recording, recorded = s.record(command, env)
    for _ in range(times):
        seen = is_clean(s.run("verify", recording, command, env), recorded)
    assert seen["forced"] >= least, seen
    return f"{seen['calls']} calls, {seen['forced']} forced, {seen['failing_polls']} failing polls"


def all_repeat(s, kinds, times):
    """All kinds in one job: each takes its messages in a recorded order. When they differ, each kind alone, to name it."""
    rounds = OF_EACH_KIND[s.mpi]
    messages = int(rounds) * (s.ranks - 1)
    try:
        return repeats(s, [s.program, ",".join(kinds), rounds], times, least=messages * len(kinds))
    except AssertionError:
        for kind in kinds:
            repeats(s, [s.program, kind, rounds], times, least=messages)
        raise


def on_devices(s, kind):
    """The same with buffers on a device that goes through pinned memory, every second one."""
    recording = os.path.join(jobs.scratch(), "recording")

    def run(mode):
        env = {"RESIL_MODE": mode, "RESIL_RECORD": recording, "RESIL_LOG": "quiet", "RESIL_STAGE": "on"}
        return gpu.run(s.mpi, s.ranks, [s.program, kind, ROUNDS], how="2", settings="latency=20", env=env)

    recorded, verified = run("record"), run("verify")
    assert recorded.buffers > 200 and recorded.result.returncode == 0, recorded.result.text()
    assert is_clean(verified.result, recorded.result)["forced"] > 0, verified.result.text()
    assert all(report["staging"]["messages"]["calls"] > 10 for report in verified.result.ranks().values())


def varies(s, kinds):
    """Else the other checks prove less: that is said. Whether a kind varies is up to how busy the machine is."""
    seen = {kind: set() for kind in kinds}
    for _ in range(12):
        for line in s.run("watch", "unused", [s.program, ",".join(kinds), OF_EACH_KIND[s.mpi]]).stdout.decode().splitlines():
            seen[line.split()[0]].add(line)
        if all(len(lines) > 1 for lines in seen.values()):
            return "another result in each run"
    raise LeftOut(f"12 runs gave {seen}")


def only_finding(result, status):
    """{rank: its finding}; the job ended with that status."""
    assert result.returncode == status, result.text()
    found = {rank: report["findings"] for rank, report in result.ranks().items() if report["findings"]}
    assert found and all(len(list_) == 1 for list_ in found.values()), f"{found}\n{result.text()}"
    return {rank: list_[0] for rank, list_ in found.items()}


def flipped_bit(s):
    """In the memory of the last rank, in round 7: found before the value leaves it, so that nobody else differs."""
    command, rank = [s.program, "recv", ROUNDS], s.ranks - 1
    recording, _ = s.recv()
    result = s.run("verify", recording, command, {"REPLAY_FLIP": f"{rank}:7"})
    found = only_finding(result, 91)
    assert list(found) == [rank], found
    finding = found[rank]
    assert finding["kind"] == "divergence" and finding["culprit_ranks"] == [rank], finding
    evidence = finding["evidence"]
    # Calls of a worker: one Send and one Recv a round; the Send of round 7 (from 0) is number 15.
    assert evidence["call"].startswith("number 15 of stream 1, MPI_Send at replay."), evidence
    assert evidence["after"].startswith("call 14 (MPI_Recv at replay."), evidence
    assert evidence["xor"] == "0000000000100000 (1 bits)" and evidence["distance"].startswith("1048576 units"), evidence
    assert re.match(r"-?0x1\.[0-9a-f]+p[+-]\d+ \(", evidence["expected"]), evidence
    assert float.fromhex(evidence["expected"].split()[0]) != float.fromhex(evidence["found"].split()[0]), evidence
    assert evidence["inputs_agreed"] == "yes" and "backtrace_0" in evidence, evidence
    assert b"resil: divergence" in result.stderr, result.text()


def flipped_bit_logged(s):
    """With log the job goes on: the culprit is one rank, whoever got something else from it is a victim."""
    command, rank = [s.program, "recv", ROUNDS], s.ranks - 1
    recording, _ = s.recv()
    result = s.run("verify", recording, command, {"REPLAY_FLIP": f"{rank}:7", "RESIL_ON_MISMATCH": "log"})
    found = only_finding(result, 0)
    assert found[rank]["kind"] == "divergence" and found[rank]["culprit_ranks"] == [rank], found
    assert found[0]["kind"] == "divergent_input", found
    assert found[0]["culprit_ranks"] == [] and found[0]["victim_ranks"] == [0], found
    assert found[0]["evidence"]["source"] == f"rank {rank}", found
    for other in set(found) - {rank}:
        assert found[other]["kind"] == "divergent_input", found
    report = jobs.run_tool("report", "--json", result.directory)
    assert all(finding["culprit_ranks"] == [rank] for finding in report["findings"]), report["findings"]
    assert report["findings"][0]["kind"] == "divergence", report["findings"]


def other_way(s):
    """A program that does something else: said as the call that is another one."""
    command = [s.program, "recv", ROUNDS]
    recording, _ = s.recv()
    found = only_finding(s.run("verify", recording, command, {"REPLAY_WAY": "1:5"}), 91)
    assert list(found) == [1] and found[1]["kind"] == "divergence", found
    evidence = found[1]["evidence"]
    assert "tag 7" in evidence["found"] and "tag 2" in evidence["expected"], evidence
    more = [s.program, "recv", str(int(ROUNDS) + 1)]  # a rank that makes more calls, and one that makes fewer
    assert s.run("verify", recording, more).returncode == 91
    fewer = [s.program, "recv", str(int(ROUNDS) - 1)]
    assert s.run("verify", recording, fewer).returncode == 91


def never_comes(s):
    """A rank has stopped sending and the job goes on: who waits for it in a forced receive says so and ends the job."""
    command, rank = [s.program, "recv", ROUNDS], s.ranks - 1
    recording, _ = s.recv()
    result = s.run("verify", recording, command, {"REPLAY_STOP": f"{rank}:9", "RESIL_ON_MISMATCH": "log",
                                                  "RESIL_VERIFY_SECONDS": "1"})
    assert result.returncode == 91, result.text()
    found = {number: report["findings"] for number, report in result.ranks().items()}
    assert [finding["kind"] for finding in found[0]] == ["replay_stuck"], found
    assert found[0][0]["culprit_ranks"] == [rank] and found[0][0]["victim_ranks"] == [0], found
    assert [finding["kind"] for finding in found[rank]] == ["divergence"], found


def clock(s):
    """MPI_Wtime in the data: a difference with its cause where it is not recorded, and none where it is."""
    command, rank = [s.program, "recv", ROUNDS], s.ranks - 1
    env = {"REPLAY_TIME": f"{rank}:0", "RESIL_RECORD_TIME": "none"}
    recording, recorded = s.record(command, env)
    result = s.run("verify", recording, command, env)
    found = only_finding(result, 0)
    assert list(found) == [rank] and found[rank]["confidence"] == "suspected", found
    assert re.match(r"MPI_Wtime was read \d+ times", found[rank]["evidence"]["unrecorded"]), found
    assert result.stdout == recorded.stdout, result.text()  # each number was taken from the recording
    del env["RESIL_RECORD_TIME"]
    return repeats(s, command, 1, env)


def bad_input(s):
    command = [s.program, "recv", ROUNDS]
    recording, _ = s.recv()
    names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(recording, "rank-*.rec")))
    assert len(names) == s.ranks, names

    def refused(what, mode="verify", directory=recording, program=command, ranks=None, env=None):
        result = s.run(mode, directory, program, env, ranks)
        assert result.returncode == 93, f"{what}\n{result.text()}"
        lines = [line for line in result.stderr.decode().splitlines() if line.startswith("resil:")]
        assert len(lines) == 1 and lines[0].endswith("Stopping with exit status 93."), f"{what}: {lines}\n{result.text()}"

    refused("missing", directory=os.path.join(jobs.scratch(), "nothing"))
    refused("another number of ranks", ranks=s.ranks - 1 if s.ranks > 2 else 1, program=[s.program, "recv", ROUNDS])
    refused("another program", program=[s.fortran, ROUNDS])
    refused("both", mode="record,verify")
    occupied = jobs.scratch()
    with open(os.path.join(occupied, "thesis.txt"), "w", encoding="ascii") as file:
        file.write("mine\n")
    untouched = os.stat(occupied).st_mtime_ns
    refused("not empty", mode="record", directory=occupied)
    # Not even for a moment: a rank that is killed there would leave it behind.
    assert os.listdir(occupied) == ["thesis.txt"] and os.stat(occupied).st_mtime_ns == untouched
    for what, change in (("truncated", lambda data: data[:len(data) * 2 // 3]),
                         ("not a recording", lambda data: b"x" * len(data))):
        copy = os.path.join(jobs.scratch(), "copy")
        shutil.copytree(recording, copy)
        for name in names:
            with open(os.path.join(copy, name), "rb") as file:
                data = file.read()
            with open(os.path.join(copy, name), "wb") as file:
                file.write(change(data))
        refused(what, directory=copy)


def killed(s):
    """What was written before a kill is verified; what comes after is not, and that is said."""
    recording = os.path.join(jobs.scratch(), "recording")
    directory = os.path.join(jobs.scratch(), "report")
    command = [s.program, "recv", LONG[s.mpi]]
    line = jobs.launcher(s.mpi, s.ranks, jobs.rank_environment(True, directory, {
        "RESIL_MODE": "record", "RESIL_RECORD": recording, "RESIL_LOG": "quiet"})) + command
    files = os.path.join(recording, "rank-*.rec")
    with subprocess.Popen(line, env=jobs.clean_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        limit = patience.Patience(60)
        while len(glob.glob(files)) < s.ranks or min(os.path.getsize(path) for path in glob.glob(files)) < 12000:
            assert not limit.over() and job.poll() is None, "it ended, or nothing is recorded"
            time.sleep(0.01)
        for report in reports.load(directory).values():
            try:
                os.kill(report["pid"], signal.SIGKILL)
            except ProcessLookupError:
                pass  # the launcher was faster
        patience.wait_for(lambda: job.poll() is not None, "the launcher's end", 60)
    jobs.remove_rings(directory)
    result = s.run("verify", recording, command)
    assert result.returncode == 0, result.text()
    for rank, report in result.ranks().items():
        seen = report["verify"]
        assert report["findings"] == [] and seen["calls"] > 100, f"rank {rank}: {report}"
        assert any("not verified" in note for note in report["notes"]), report["notes"]
        assert seen["complete"] is False, seen
    summary = jobs.run_tool("report", result.directory, "--json")
    early = AGREE + r", which ENDS EARLY \(\d of \d ranks\): the rest was not compared$"
    assert summary["verdict"] == "CLEAN" and re.search(early, summary["reason"]), summary["reason"]


def ends_unevenly(s):
    """The master's recording ends before the workers' do, as a kill may leave them: from there on it takes messages in another order and
    answers otherwise. That is nobody's fault, and no finding."""
    command = [s.program, "recv", "4000"]
    recording, _ = s.record(command)
    with open(os.path.join(recording, "rank-00000.rec"), "r+b") as file:
        file.truncate(os.path.getsize(file.name) // 6)
        # FileState in checksum/record/layout.h: it still runs.
        state = struct.pack("<I52x", 1)
        file.seek(4096 - 60)
        file.write(struct.pack("<I", zlib.crc32(state)) + state)
    result = s.run("verify", recording, command)
    assert result.returncode == 0, result.text()
    for rank, report in result.ranks().items():
        assert report["findings"] == [] and report["verify"]["divergences"] == 0, f"rank {rank}: {report}"
        # A worker may be given its messages as in the recording: then it is compared to its end.
        assert rank == 0 or report["verify"]["complete"] or \
            any("the recording of another rank has ended" in note for note in report["notes"]), f"rank {rank}: {report}"


def says_how_much(s):
    """The line at the end of verify and the first one of the report: calls, contents, messages and bytes compared."""
    command = [s.program, "recv", ROUNDS]
    recording, recorded = s.recv()
    result = s.run("verify", recording, command, {"RESIL_LOG": "info"})
    is_clean(result, recorded)
    seen = [report["verify"] for _, report in sorted(result.ranks().items())]
    counted = "rank 0 compared %(calls)d calls, %(messages)d messages, %(values)d values of %(bytes)d bytes" % seen[0]
    assert f"{counted} with the recording; next: resil report ".encode() in result.stderr, f"{counted}\n{result.text()}"
    total = {name: sum(one[name] for one in seen) for name in seen[0] if isinstance(seen[0][name], int)}
    # Rank 0 receives a double of each worker a round, and each worker its answer, and all sum up one or two at the end.
    sent = int(ROUNDS) * (s.ranks - 1)
    assert total["messages"] >= sent and total["bytes"] >= 8 * 2 * sent and total["unread"] == 0, total
    first = "CLEAN: " + jobs.run_tool("report", result.directory, "--json")["reason"]
    found = re.fullmatch(r"CLEAN: \d of \d ranks finished, no findings" + AGREE, first)
    assert found, first
    assert [int(text.replace(",", "")) for text in found.groups()] == [total[n] for n in ("calls", "values", "messages")], first
    return first


def threads(s, build):
    """Each thread against its own recording. What cannot be told apart is no finding."""
    program = os.path.join(build, f"threads.{s.mpi}")
    recording = os.path.join(jobs.scratch(), "recording")
    for mode in ("record", "verify"):
        result = s.run(mode, recording, [program], ranks=2)
        assert result.returncode == 0, result.text()
    for rank, report in result.ranks().items():
        assert report["findings"] == [] and report["verify"]["calls"] > 1000, f"rank {rank}: {report}"
    return f"{report['verify']['calls']} calls"


def mixed(s):
    """Recorded beside checksums; verified beside them, and without."""
    command = [s.program, "any-waitany", ROUNDS]
    recording = os.path.join(jobs.scratch(), "recording")
    recorded = s.run("checksum,record", recording, command)
    assert recorded.returncode == 0, recorded.text()
    for modes in ("checksum,verify", "verify"):
        result = s.run(modes, recording, command)
        is_clean(result, recorded)
        if "checksum" in modes:
            for report in result.ranks().values():
                assert report["checksum"]["mismatches"] == 0 and report["checksum"]["unverified"] == 0, report


def main(build, mpi, times="1"):
    jobs.require(f"mpirun.{mpi}")
    s, times = Setting(build, mpi), int(times)
    checks = [(f"{' '.join(VARIES[mpi])}: vary without a recording ({mpi})", lambda: varies(s, VARIES[mpi])),
              (f"{len(KINDS)} kinds repeat ({mpi})", lambda: all_repeat(s, KINDS, times)),
              (f"device buffers repeat ({mpi})", lambda: on_devices(s, "any-waitany,testsome"))]
    checks += [(f"Fortran repeats ({mpi})", lambda: repeats(s, [s.fortran, ROUNDS], times)),
               (f"a flipped bit ({mpi})", lambda: flipped_bit(s)),
               (f"a flipped bit, logged ({mpi})", lambda: flipped_bit_logged(s)),
               (f"another way ({mpi})", lambda: other_way(s)),
               (f"what never comes ({mpi})", lambda: never_comes(s)),
               (f"the clock ({mpi})", lambda: clock(s)),
               (f"bad input ({mpi})", lambda: bad_input(s)),
               (f"killed while recording ({mpi})", lambda: killed(s)),
               (f"a recording that ends unevenly ({mpi})", lambda: ends_unevenly(s)),
               (f"what verify says it compared ({mpi})", lambda: says_how_much(s)),
               (f"threads ({mpi})", lambda: threads(s, build)),
               (f"recorded with checksums ({mpi})", lambda: mixed(s))]
    checks = shared(checks, mpi)
    if mpi == "mpich":  # one-sided calls of Open MPI 4.1 do not work on every machine that tests this
        checks += [(f"tickets repeats ({mpi})", lambda: repeats(s, [s.program, "tickets", ROUNDS], times))]
    return run_checks(checks)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
