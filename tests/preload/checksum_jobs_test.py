#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mode checksum on point-to-point traffic: everything checked and no false alarm, whatever the order, the communicator
or the end; drains that cannot succeed are bounded and said; settings that differ between ranks; exit statuses.

Usage: checksum_jobs_test.py BUILD openmpi|mpich      (BUILD holds wildcards.MPI, late.MPI, awkward.MPI, ends.MPI)
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import mpi as jobs, transparent  # noqa: E402
from harness.main import LeftOut, run_checks, shared  # noqa: E402

BUILD = MPI = ""
LAZY, STRICT = {}, {"RESIL_CHECKSUM": "strict"}
MESSAGES = {"RESIL_NODE_RANKS": "1"}  # ranks on nodes of their own: records travel as messages
STRICT_MESSAGES = {**STRICT, **MESSAGES}
WHILE_STOPPED = "2"  # seconds: the drain in MPI_Finalize, for which nobody is stopped, does not take as long on a crowded machine
FULL, STRICT_FULL = {"RESIL_BLAME": "full"}, {"RESIL_CHECKSUM": "strict", "RESIL_BLAME": "full"}


def run(words, env=None, ranks=2, preload=True, **more):
    command = [os.path.join(BUILD, f"{words[0]}.{MPI}"), *words[1:]]
    env = {"RESIL_MODE": "checksum", **(env or {})} if preload else {}
    return jobs.run(MPI, ranks, command, env=env, preload=preload, cwd=jobs.scratch(), **more)


def books(result):
    """Sums over the ranks' reports; asserts that there was neither hang nor finding."""
    assert result.returncode == 0, result.text()
    total = {"uncovered": {}}
    for report in result.ranks().values():
        assert report["findings"] == [], f"{report['findings']}\n{result.text()}"
        for name, value in report["checksum"]["messages_uncovered"].items():
            total["uncovered"][name] = total["uncovered"].get(name, 0) + value
        for name in ("messages_checked", "messages_total", "unverified", "deferred"):
            total[name] = total.get(name, 0) + report["checksum"][name]
        total["timeouts"] = total.get("timeouts", 0) + report["checksum"]["drains"]["timeouts"]
    assert total["messages_total"] == total["messages_checked"] + sum(total["uncovered"].values()) + total["unverified"], total
    return total


def wildcards(seed, env, ranks=2):
    def check():
        result = run(["wildcards", seed], env, ranks)
        total = books(result)
        sent = int(re.search(rb"wildcards (\d+) messages", result.stdout)[1])
        assert total["messages_checked"] == total["messages_total"] == sent, (sent, total)
        assert total["timeouts"] == 0 and total["deferred"] == 0, total
    return check


def traffic(case, messages, *modes, uncovered=None):
    """A case of late.c: so many messages, all checked but what `uncovered` says, at once."""
    def check():
        if case == "unmatched" and MPI == "mpich" and jobs.mpich_version() >= (4, 1):
            raise LeftOut("MPICH from 4.1 on ends such a job itself, in MPI_Finalize")
        if case == "truncated" and jobs.before_mpi4(MPI):
            raise LeftOut("MPICH 3.4.1 tells a message that is too long in MPI_Irecv already")
        for env in modes:
            total = books(run(["late", case], env))
            if jobs.before_mpi4(MPI):  # whether MPICH 3.4.1 completes receives before their communicator is gone depends on time
                assert set(total["uncovered"]) <= set(uncovered or {}), total
            else:
                assert total["uncovered"] == (uncovered or {}), total
            assert total["messages_total"] == messages and total["unverified"] == 0, total
            assert total["timeouts"] == 0 and total["deferred"] == 0, f"somebody waited in vain: {total}"
    return check


def stopped():
    """A rank that does not answer: the drain ends, says who owes how much, and what came later is verified later."""
    result = run(["late", "file-stopped"], {"RESIL_DRAIN_SECONDS": WHILE_STOPPED, **MESSAGES})
    total = books(result)
    assert total["messages_checked"] == total["messages_total"] == 7 and total["timeouts"] == 1, total
    notes = result.ranks()[0]["notes"]
    assert any(re.match(r"6 received messages were not verified at MPI_File_close: no records from 1 rank \(1\)", n) for n in notes), notes


def stopped_nearby():
    """The same on one node: its records are here."""
    total = books(run(["late", "file-stopped"], {"RESIL_DRAIN_SECONDS": WHILE_STOPPED}))
    assert total["messages_checked"] == total["messages_total"] == 7 and total["timeouts"] == 0, total


def media(result):
    """Records by shared memory and by messages, all ranks."""
    records = [report["checksum"]["records"] for report in result.ranks().values()]
    return sum(r["shared_memory"] for r in records), sum(r["messages"] for r in records)


def same_on_both_media():
    """What is checked does not depend on how the records travel, and each medium is the one that it should be."""
    for mode in (LAZY, STRICT):
        shared, messages = run(["wildcards", "8"], mode), run(["wildcards", "8"], {**mode, **MESSAGES})
        assert books(shared) == books(messages), f"{books(shared)}\n{books(messages)}"
        assert media(shared)[0] > 0 and media(messages)[0] == 0, (media(shared), media(messages))
        assert sum(media(shared)) == sum(media(messages)), (media(shared), media(messages))


def no_shared_memory():
    """No file of that size may be made: messages, and the report says it."""
    for mode in (LAZY, STRICT):
        shell = ["/bin/sh", "-c", 'ulimit -f 128 && exec "$@"', "sh", os.path.join(BUILD, f"wildcards.{MPI}"), "9"]  # 64 KiB
        result = jobs.run(MPI, 2, shell, env={"RESIL_MODE": "checksum", **mode}, cwd=jobs.scratch(),
                          options=["--mca", "btl", "self,tcp"])  # with no such files of the MPI's own
        total = books(result)
        assert total["messages_checked"] == total["messages_total"] > 0 and media(result)[0] == 0 < media(result)[1], total
        for report in result.ranks().values():
            assert any("no shared memory for records" in note for note in report["notes"]), report["notes"]


def swept():
    """Ranks that are killed leave their memory to the next job's sweep; ranks that end take it along."""
    def left(name):
        return [path for path in os.listdir("/dev/shm") if path.startswith(name) and path.endswith(".node")]
    result = run(["ends", "kill"], timeout=30)
    names = [os.path.basename(path).rsplit("-", 2)[0] for path in jobs.live_rings(result.directory)]
    here = names and left(names[0])
    for _ in range(10):  # the sweep has no time that it must keep, so that the first job may leave it to the next
        run(["late", "careless"])
        if not any(left(name) for name in names):
            break
    assert not any(left(name) for name in names), [left(name) for name in names]
    return "" if here else "a job of another test has swept before"  # any job's start sweeps


def killed():
    """A rank dies before it has sent its records: the drain ends and names it, MPI_Abort's too."""
    env = {"RESIL_DRAIN_SECONDS": "0.5", "RESIL_NODE_RANKS": "1"}  # as on another node: records need the sender
    # The launcher takes its directory along when it has seen the death, and sharedfp/sm opens a file there.
    options = ["--enable-recovery", "--mca", "sharedfp", "individual"]
    result = run(["late", "file-killed"], env, options=options, timeout=30)
    assert result.returncode is not None and b"late file-killed" in result.stdout, result.text()
    report = result.ranks()[0]
    assert report["findings"] == [] and report["checksum"]["mismatches"] == 0, report["findings"]
    assert any(re.match(r"5 received messages were not verified at MPI_File_close: no records from 1 rank \(1\)", n)
               for n in report["notes"]), report["notes"]
    assert any(n.startswith("5 received messages were not verified at MPI_Abort") for n in report["notes"]), report["notes"]


def late_for_finalize():
    """MPI_Finalize waits no longer than it may; what was not verified by then is said, and nothing is alleged."""
    for mode in (LAZY, STRICT):
        result = run(["late", "late-finalize"], {"RESIL_DRAIN_SECONDS": "0.2", "RESIL_NODE_RANKS": "1", **mode})
        total = books(result)
        assert total["messages_total"] == 17 and total["messages_checked"] + total["unverified"] == 17, total
        assert mode == STRICT or total["unverified"] >= 5 and total["timeouts"] >= 1, total


def no_patience():
    """RESIL_DRAIN_SECONDS=0: nobody waits, and what is not verified is said."""
    for mode in (LAZY, STRICT):
        total = books(run(["late", "careless"], {"RESIL_DRAIN_SECONDS": "0", **mode}))
        assert total["messages_total"] == 12, total


def same_status(case, *modes):
    def check():
        for _ in range(transparent.NATIVE_RUNS):
            plain = run(["late", case], preload=False)
            if plain.returncode != 0:
                break  # hydra of MPICH 4.2 says 0 now and then
        assert plain.returncode not in (0, None), plain.text()
        for env in modes:
            result = run(["late", case], env, timeout=30)
            native = transparent.of_same_status(plain, result, lambda: run(["late", case], preload=False))
            assert result.returncode == native.returncode, f"{result.text()}\nplain: {native.returncode}"
            assert not any(report["findings"] for report in result.ranks().values()), result.text()
    return check


OF_MPI4 = ("partitioned", "persistent-collectives", "empty-exchanges")


def awkward(case, checked, *modes, uncovered=None):
    """A case of awkward.c, which ends well: so many messages are checked, the rest is uncovered, nobody waits in vain."""
    def check():
        if case in OF_MPI4 and jobs.before_mpi4(MPI):
            raise LeftOut("MPICH 3.4.1 has MPI 3.1")
        for env in modes:
            total = books(run(["awkward", case, os.path.join(jobs.scratch(), "file")], {"RESIL_HANG": "off", **env}))
            assert (total["messages_checked"], total["uncovered"]) == (checked, uncovered or {}), total
            assert total["unverified"] == 0 and total["timeouts"] == 0 and total["deferred"] == 0, total
    return check


def shared_memory(case, number):
    """Operations that were pending together received into one place: uncovered, or right by chance; nobody is accused."""
    def check():
        for env in (LAZY, STRICT_FULL):
            result = run(["awkward", case, "-"], env)
            total = books(result)
            assert number in (total["messages_total"], None) and set(total["uncovered"]) == {"overlapped"}, total
            assert total["unverified"] == 0 and total["uncovered"]["overlapped"] >= (number or 200) // 4, total
            for report in result.ranks().values():
                assert any("received into the same memory" in note for note in report["notes"]), report["notes"]
    return check


def never_paired():
    """Collectives that did not match: 100 drains wait once, and MPI_Finalize, where the other has said all, does not."""
    limits = {"RESIL_HANG": "off", "RESIL_DRAIN_SECONDS": "2"}
    result = run(["awkward", "mismatched", os.path.join(jobs.scratch(), "file")], limits)
    total = books(result)
    assert total["unverified"] == 1 and total["timeouts"] == 1, total  # each wait in vain counts, however short
    drains = result.ranks()[0]["checksum"]["drains"]
    assert drains["count"] == 102 and drains["seconds"] >= 2, drains  # more than 3 on a machine that is busy with others


def damaged(case, status, mode):
    """One packet is damaged on its way: the job ends with 90, or goes on as it would have; both name the packet."""
    def check():
        for env in (LAZY, STRICT_FULL):
            result = run(["late", case], {"RESIL_FAULT": "flip,nth=3,rank=0", "RESIL_ON_MISMATCH": mode, **env})
            assert result.returncode == status, result.text()
            findings = [f for report in result.ranks().values() for f in report["findings"] if f["kind"] == "message_corrupted"]
            assert len(findings) == 1, result.text()
            assert re.match(r"number \d+ of rank 0 to rank 1, tag 3 on MPI_COMM_WORLD", findings[0]["evidence"]["packet"]), findings
    return check


def parts(environments):
    """Two ranks with an environment each; None: without the library."""
    directory = os.path.join(jobs.scratch(), "report")
    line = jobs.launcher_of_parts(MPI, [
        ({} if env is None else {"LD_PRELOAD": jobs.library(), "RESIL_DIR": directory, **env},
         [os.path.join(BUILD, f"late.{MPI}"), "careless"]) for env in environments])
    result = jobs.start(line, directory, timeout=30)
    assert not result.timed_out, result.text()
    return result


def different(one, other, what):
    def check():
        result = parts([one, other])
        text = result.stderr.decode()
        assert result.returncode == 93, result.text()
        assert re.search(rf"resil: .*rank [01] has {what}", text), result.text()
        assert b"late careless" not in result.stdout, "the program ran"
        jobs.remove_rings(directory=result.directory)
    return check


def one_without():
    result = parts([{"RESIL_MODE": "checksum"}, None])
    assert result.returncode == 0 and result.stdout == b"late careless\n", result.text()
    report = result.ranks()[0]
    assert report["checksum"]["connected"] is False and report["checksum"]["messages_checked"] == 0, report["checksum"]
    assert any("checksum" in note and "no message of this rank is checked" in note for note in report["notes"]), report["notes"]
    assert report["findings"] == []


def main(build, mpi):
    global BUILD, MPI  # pylint: disable=global-statement
    BUILD, MPI = build, mpi
    jobs.require(f"mpirun.{mpi}")
    checksum = {"RESIL_MODE": "checksum"}
    checks = [
        ("wildcards", wildcards("2", LAZY)), ("wildcards, strict", wildcards("3", STRICT)),
        ("wildcards, full", wildcards("4", FULL)), ("wildcards, strict and full", wildcards("5", STRICT_FULL)),
        ("cancelled receives", traffic("cancelled", 24, LAZY, STRICT_FULL)),
        ("a receive freed while active", traffic("freed", 29, LAZY, STRICT_FULL, uncovered={"order_lost": 21, "request_freed": 1})),
        ("receives outlive their communicator", traffic("comm", 400, LAZY, STRICT, uncovered={"unknown_communicator": 320})),
        ("truncated receives, in MPI_Sendrecv too", traffic("truncated", 62, LAZY, STRICT_FULL, uncovered={"error": 30})),
        ("MPI_PROC_NULL", traffic("null", 20, LAZY, STRICT_FULL)),
        ("12,000 persistent requests", traffic("untracked", 200, LAZY, FULL)),
        ("12,000 persistent sends only", traffic("untracked-sends", 200, LAZY, FULL)),
        ("500 communicators", traffic("communicators", 1000, LAZY, STRICT)),
        ("intercommunicator", traffic("intercommunicator", 100, LAZY, STRICT_FULL)),
        ("sends that nobody receives", traffic("unmatched", 2, LAZY, STRICT)),
        ("threads on one lane", traffic("threads", 2880, LAZY)),
        ("MPI_Sendrecv against MPI_Recv and MPI_Send", traffic("crossing", 100, LAZY, STRICT)),
        ("MPI_File_close while the other waits in MPI_Recv", traffic("file-receive", 6, LAZY, STRICT)),
        ("MPI_File_close while the other waits in MPI_Barrier", traffic("file-barrier", 5, LAZY, STRICT)),
        ("MPI_File_close while the other is stopped", stopped), ("no patience", no_patience),
        ("late for MPI_Finalize", late_for_finalize),
        ("MPI_File_close while the other, on this node, is stopped", stopped_nearby),
        ("the same is checked on both media", same_on_both_media),
        ("memory of killed ranks", swept),
        ("cancelled receives, records by messages", traffic("cancelled", 24, {**LAZY, **MESSAGES}, STRICT_MESSAGES)),
        ("threads on one lane, records by messages", traffic("threads", 2880, {**LAZY, **MESSAGES})),
        ("writes to a file, completed together", awkward("writes", 0, LAZY, STRICT, uncovered={"file": 400})),
        ("collective writes to a file, completed together", awkward("writes-all", 0, LAZY, uncovered={"file": 400})),
        ("writes and messages, completed together",
         awkward("writes-and-messages", 20, LAZY, STRICT_FULL, uncovered={"file": 400})),
        ("strict: a rank in the MPI's own MPI_Waitall keeps nobody waiting",
         awkward("waits-beside", 400, STRICT, STRICT_MESSAGES, uncovered={"file": 200})),
        ("collectives that did not match", never_paired),
        ("two receives into one place", shared_memory("same-room", 40)),
        ("ten pending MPI_Iallreduce into one place", shared_memory("same-result", 300)),
        ("blocks of one MPI_Ialltoallw share memory", shared_memory("same-blocks", 40)),
        ("blocking calls receive where a pending one does", shared_memory("same-beside", None)),
        ("another communicator's operations receive where a pending one does", shared_memory("same-elsewhere", None)),
        ("MPI_Abort", same_status("abort", LAZY, STRICT)), ("exit without MPI_Finalize", same_status("exit", LAZY)),
        ("status of the program", same_status("status", LAZY, STRICT)),
        ("damage, abort", damaged("careless", 90, "abort")), ("damage, log", damaged("careless", 0, "log")),
        ("damage, log, status of the program", damaged("status", 7, "log")),
        ("different RESIL_MODE", different(checksum, {"RESIL_MODE": "watch"}, ".*RESIL_MODE=watch")),
        ("different RESIL_CHECKSUM", different(checksum, {**checksum, **STRICT}, "other values of RESIL_ variables")),
        ("different RESIL_BLAME", different(checksum, {**checksum, **FULL}, "other values of RESIL_ variables")),
        ("a rank without the library", one_without),
    ]
    checks = shared(checks, mpi)
    if mpi == "mpich":  # only MPICH has MPI 4.0 here
        checks += [
            ("partitioned requests, completed together", awkward("partitioned", 20, LAZY, STRICT_FULL)),
            ("persistent collectives, completed together", awkward("persistent-collectives", 300, LAZY)),
            ("MPI_Isendrecv of no bytes", awkward("empty-exchanges", 201, LAZY, STRICT)),
        ]
    else:  # MPICH 4.0.2 over UCX has no ports
        checks.append(("ranks of one world, joined by MPI_Comm_accept and connect", awkward("joined", 17, LAZY, STRICT)))
    if mpi == "openmpi":  # MPICH's launcher kills the survivor
        checks.append(("MPI_File_close and MPI_Abort when the other is dead", killed))
    if mpi == "openmpi":  # MPICH's ranks poll: more of them than cores take minutes
        checks += [("no shared memory", no_shared_memory), ("wildcards on 5 ranks", wildcards("6", LAZY, 5)), ("wildcards on 4 ranks, strict and full", wildcards("7", STRICT_FULL, 4))]
    return run_checks([(f"{name} ({mpi})", check) for name, check in checks])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
