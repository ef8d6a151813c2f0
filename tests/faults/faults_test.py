#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every kind of fault, in every mode of checking: found, rightly explained; status 90 where a mismatch ends the job.

Usage: faults_test.py BUILD openmpi|mpich      (BUILD holds messages.MPI, collectives.MPI, puts.MPI)
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from harness import faults, gpu, mpi as jobs  # noqa: E402
from harness.main import run_checks, shared  # noqa: E402

RANKS = 2
# Of some length, so that no damaged packet is by chance equal to another one.
KINDS = {"flip": "p=0.01", "swap": "p=0.01", "zero": "p=0.01", "truncate": "p=0.01", "stale": "p=0.02",
         "duplicate": "p=0.05", "transpose": "p=0.05", "modify": "p=0.05", "early": "p=0.05"}
EVERY_KIND = ";".join(f"{kind},rank=1,min=256,{chance}" for kind, chance in KINDS.items())


class Traffic:
    def __init__(self, build, mpi):
        self.build, self.mpi = build, mpi

    def run(self, program, rounds, fault=None, **env):
        env = {"RESIL_MODE": "checksum", "RESIL_ON_MISMATCH": "log",
               **{f"RESIL_{name.upper()}": value for name, value in env.items()}}
        if fault:
            env["RESIL_FAULT"] = fault
        command = [os.path.join(self.build, f"{program}.{self.mpi}"), str(rounds)]
        result = jobs.run(self.mpi, RANKS, command, env=env, timeout=120, options=faults.OPTIONS[self.mpi])
        jobs.remove_rings(result.directory)
        return result

    def every_kind(self, checksum, blame):
        def check():
            # Strict: how long a receive waits for the explanation of a sender that may be waiting itself.
            patience = "5" if checksum == "lazy" else "0.3"
            result = self.run("messages", 250, EVERY_KIND, checksum=checksum, blame=blame, drain_seconds=patience)
            assert result.returncode == 0, result.text()
            injected, strangers, dropped = faults.read(result.directory)
            kinds = {injection.kind for injection in injected}
            assert kinds == set(KINDS), f"not injected: {set(KINDS) - kinds}"
            assert not dropped, f"{dropped} findings dropped: too many faults for one job"
            assert not strangers, "found, but not injected: " + strangers[0][1]["message"]
            outcomes = {kind: [i.outcome() for i in injected if i.kind == kind] for kind in KINDS}
            wrong = [i.text() for i in injected if i.outcome() == "wrong"]
            assert not wrong, "wrongly blamed:\n" + "\n".join(wrong)
            for kind, found in outcomes.items():
                missed = [i.text() for i in injected if i.kind == kind and not i.found]
                assert not missed, "missed:\n" + "\n".join(missed)
                if blame == "full" and checksum == "lazy":
                    assert "right" in found, f"{kind} was never explained: {found}"
            if blame == "full":  # strict: a sender that waits in the library's own blocking calls cannot answer in time
                assert any("right" in found for found in outcomes.values()), f"nothing was explained: {outcomes}"
            for report in result.ranks().values():
                assert any("on purpose" in note for note in report["notes"]), "no note says that faults are injected"
            made = sum(sum(report["faults_injected"].values()) for report in result.ranks().values())
            assert made == len(injected), f"the reports count {made} faults, the lists {len(injected)}"
        return check

    def one_of_each(self, program, rounds, checksum="lazy"):
        """With full blame each kind of fault in each kind of traffic is explained rightly, at the first try."""
        def check():
            # One after the other: two faults in one result would be found as one.
            places = {kind: 1 + 3 * place for place, kind in enumerate(KINDS)} | {"duplicate": 1}  # which are few
            least = {"duplicate": 16}
            fault = ";".join(f"{kind},rank=1,min={least.get(kind, 64)},nth={places[kind]}" for kind in KINDS)
            result = self.run(program, rounds, fault, checksum=checksum, blame="full", drain_seconds="2")
            assert result.returncode == 0, result.text()
            injected, strangers, dropped = faults.read(result.directory)
            kinds = {injection.kind for injection in injected}
            assert kinds == set(KINDS), f"not injected: {set(KINDS) - kinds}"
            assert not dropped and not strangers, "found, but not injected: " + strangers[0][1]["message"]
            bad = [f"{injection.outcome()}: {injection.text()}" for injection in injected if injection.outcome() != "right"]
            assert not bad, "\n".join(bad)
        return check

    def bytes_of_large_ones(self):
        """A flipped bit anywhere in a message is shown with the bytes around it, not only in the first 4 KiB."""
        result = self.run("messages", 150, "flip,rank=1,min=8192,p=0.1", blame="full", drain_seconds="5")
        assert result.returncode == 0, result.text()
        injected = [one for one in faults.read(result.directory)[0] if one.found]
        behind = 0
        for finding in (finding for _, finding in faults.findings(result.directory)[0] if finding["kind"] == "message_corrupted"):
            evidence = finding["evidence"]
            assert evidence["differing"].startswith("1 byte, 1 bit,") and evidence["expected"] != evidence["found"], finding
            behind += int(evidence["first_difference"].split()[1]) >= 4096
        assert behind > 2 and behind <= len(injected), (behind, len(injected))
        return f"{behind} of {len(injected)} behind the first 4 KiB"

    def ends_job(self, checksum, kind):
        def check():
            fault = f"{kind},rank=1,min=64,nth=3"
            result = self.run("messages", 100, fault, checksum=checksum, on_mismatch="abort", blame="full",
                              drain_seconds="1")
            assert result.returncode == 90, result.text()
            injected, strangers, _ = faults.read(result.directory)
            assert [i.kind for i in injected] == [kind] and not strangers
            assert injected[0].found, "status 90 without a finding"
        return check

    def clean(self, program, rounds, checksum, blame):
        def check():
            result = self.run(program, rounds, checksum=checksum, blame=blame)
            assert result.returncode == 0 and b" 0 wrong" in result.stdout, result.text()
            found, _ = faults.findings(result.directory)
            assert not found, "false alarm: " + found[0][1]["message"]
            checked = sum(report["checksum"]["messages_checked"] for report in result.ranks().values())
            assert checked > rounds, f"only {checked} packets were checked"
        return check

    def on_devices(self, checksum, blame):
        """Staged messages, damaged between their pinned copies by either side. Each sender can answer, so that nothing waits longer
        than a sender needs to get a core: at low priority beside others that is more than a second."""
        def check():
            env = {"RESIL_MODE": "checksum", "RESIL_STAGE": "on", "RESIL_ON_MISMATCH": "log", "RESIL_CHECKSUM": checksum,
                   "RESIL_BLAME": blame, "RESIL_DRAIN_SECONDS": "30", "RESIL_FAULT": ";".join((
                       *(f"{kind},rank=1,min=64,p=0.05" for kind in ("flip", "swap", "zero")),
                       "duplicate,rank=1,min=16,call=MPI_Irecv,p=0.1"))}
            job = gpu.run(self.mpi, RANKS, [os.path.join(self.build, f"messages.{self.mpi}"), "40"], env=env)
            assert job.result.returncode == 0 and job.buffers > 100, job.result.text()
            injected, strangers, _ = faults.read(job.result.directory)
            jobs.remove_rings(job.result.directory)
            assert {injection.side for injection in injected} == {"send", "receive"}, injected
            assert len(injected) > 10 and not strangers, strangers
            bad = [injection.text() for injection in injected if injection.outcome() in ("missed", "wrong")]
            assert not bad, "\n".join(bad)
            explained = sum(injection.outcome() == "right" for injection in injected)
            assert blame == "cheap" or explained > len(injected) // 2, [injection.text() for injection in injected]
            for report in job.result.ranks().values():
                assert report["device_digests"]["mismatches"] == 0, job.result.text()
            return f"{len(injected)} found, {explained} explained"
        return check

    def seen_by_program(self):
        """Without checksums: the program itself sees as many wrong packets as were injected."""
        result = self.run("messages", 100, "flip,rank=1,p=0.03", mode="watch")
        made = len(faults.injections(result.directory))
        assert made > 0 and f", {made} wrong".encode() in result.stdout, f"{made} injected; {result.text()}"

    def bad_value(self):
        result = self.run("messages", 1, "flip,rnk=1")
        assert result.returncode == 93, result.text()
        assert b"RESIL_FAULT='flip,rnk=1': 'rnk' is not a known key" in result.stderr, result.text()
        assert b"(did you mean rank?)" in result.stderr, result.text()


def main(build, mpi):
    jobs.require(f"mpirun.{mpi}")
    traffic = Traffic(build, mpi)
    checks = [("the program sees what was injected", traffic.seen_by_program), ("bad value", traffic.bad_value)]
    for checksum in ("lazy", "strict"):
        for blame in ("cheap", "full"):
            checks.append((f"every kind ({checksum}, {blame})", traffic.every_kind(checksum, blame)))
        kind = "flip" if checksum == "lazy" else "stale"
        checks.append((f"status 90 ({checksum})", traffic.ends_job(checksum, kind)))
        checks.append((f"clean messages ({checksum})", traffic.clean("messages", 200, checksum, "full")))
    for program, rounds in (("messages", 150), ("collectives", 400), ("puts", 80)):
        checks.append((f"one of each ({program})", traffic.one_of_each(program, rounds)))
    checks.append(("bytes of large messages", traffic.bytes_of_large_ones))
    checks += [(f"device buffers ({checksum}, {blame})", traffic.on_devices(checksum, blame))
               for checksum, blame in (("lazy", "cheap"), ("strict", "full"))]
    checks += [("clean collectives", traffic.clean("collectives", 200, "lazy", "cheap")),
               ("clean puts", traffic.clean("puts", 50, "lazy", "cheap"))]
    return run_checks(shared(checks, mpi))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
