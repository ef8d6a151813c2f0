# SPDX-License-Identifier: Apache-2.0
"""scripts/resil report on checksum runs: what was checked and what not, findings merged over ranks, the odd host, the
rate, call sites in words, and sections that make no sense."""

import json
import os
import re
import random
import shutil
import subprocess
import unittest

import support
from resil_tool import report
from support import Case, captured, report_object


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


def section(**members):
    """Member "checksum" of a rank that saw 1,000 messages, all checked."""
    return dict({
        "mode": "lazy", "blame": "cheap", "connected": True, "messages_total": 1000, "messages_checked": 1000,
        "bytes_total": 1 << 20, "bytes_checked": 1 << 20, "messages_uncovered": {}, "bytes_uncovered": {},
        "unverified": 0, "deferred": 0, "mismatches": 0, "mismatch_rate": 0.0, "verdicts": {},
        "drains": {"count": 1, "seconds": 0.01, "timeouts": 0, "silent_ranks": []},
        "collectives": {"agreements": 7}, "one_sided": {}}, **members)


def corrupted(sender, receiver, message=None, **evidence):
    return {"kind": "message_corrupted", "confidence": "proved", "culprit_ranks": [sender],
            "victim_ranks": [receiver], "message": message or "message %d -> %d differs" % (sender, receiver),
            "evidence": dict({"verdict": "transit or staging"}, **evidence)}


class Checksums(Case):
    def rank(self, rank, size, checksum=None, **members):
        self.report(rank=rank, size=size, modes="watch,checksum",
                    checksum=section() if checksum is None else checksum, **members)

    def run_report(self, *arguments):
        status, out, error = self.tool("report", self.directory, *arguments)
        self.assertEqual(error, "")
        if "--json" not in arguments:
            lines = out.splitlines()
            self.assertLessEqual(len(lines), 40, out)
            self.assertFalse([line for line in lines[:-1] if len(line) > 100], out)
        return status, out

    def words(self):
        """The screen as one line: where a sentence breaks is of no interest."""
        return " ".join(self.run_report()[1].split())

    def summary(self):
        return json.loads(self.run_report("--json")[1])

    def job_of_nodes(self, hosts, findings):
        """One rank a host, all talking to all alike; findings of (sender, receiver) pairs, at the receiver."""
        count = len(hosts)
        for rank, host in enumerate(hosts):
            mine = [corrupted(a, b, "packet %d of tag 7 differs" % k) for k, (a, b) in enumerate(findings) if b == rank]
            peers = [{"rank": other, "sent_messages": 100, "sent_bytes": 800, "received_messages": 100,
                      "received_bytes": 800} for other in range(count) if other != rank]
            self.rank(rank, count, section(messages_checked=1000 - len(mine), mismatches=len(mine)), host=host,
                      findings=mine, peers=peers)

    # -- coverage -----------------------------------------------------------------------------------------------

    def test_clean_says_how_much_was_checked_in_the_same_line(self):
        for rank in range(4):
            self.rank(rank, 4)
        status, out = self.run_report()
        self.assertEqual(status, 0)
        self.assertEqual(out.splitlines()[0], "CLEAN: 4 of 4 ranks finished, no findings in all 4,000 messages, "
                                              "all 4.0 MiB")
        self.assertIn("coverage   checked: all 4,000 messages, all 4.0 MiB (lazy, blame cheap)", out)
        self.assertIn("findings   none in all 4,000 messages", out)

    def test_every_line_that_says_no_findings_says_what_of(self):
        for checksum in (section(), section(messages_checked=1), section(messages_total=0, messages_checked=0,
                                                                         bytes_total=0, bytes_checked=0), None):
            for rank in range(2):
                if checksum is None:
                    self.report(rank=rank, size=2)
                else:
                    self.rank(rank, 2, checksum)
            for line in self.run_report()[1].splitlines():
                if "no findings" in line or "none" in line:
                    self.assertRegex(line, r"all \d|\d %|not checked|no message to check", line)

    def test_share_is_never_rounded_up(self):
        self.rank(0, 1, section(messages_total=10**9, messages_checked=10**9 - 1, bytes_total=10**15,
                                bytes_checked=10**15 - 1, messages_uncovered={"datatype": 1},
                                bytes_uncovered={"datatype": 1}))
        out = self.run_report()[1]
        self.assertIn("99.99 % of 1,000,000,000 messages, 99.99 % of 909.5 TiB", out)
        self.assertNotIn("100", out.splitlines()[0].replace("1,000", ""))

    def test_reasons_are_summed_over_ranks_and_said_in_words(self):
        for rank in range(3):
            self.rank(rank, 3, section(messages_checked=790, bytes_checked=1 << 19, messages_uncovered={
                "device_buffer": 200, "user_operator": 9, "some_new_reason": 1}, bytes_uncovered={
                    "device_buffer": 1 << 19}))
        status, out = self.run_report()
        self.assertEqual(status, 0)
        self.assertIn("79.00 % of 3,000 messages, 50.00 % of 3.0 MiB", out.splitlines()[0])
        self.assertIn("NOT checked: 600 messages, 1.5 MiB: the data is, or may be, in a GPU's memory", out)
        self.assertIn("NOT checked: 27 messages, 0 B: reductions by an operator of the program", out)
        self.assertIn("NOT checked: 3 messages, 0 B: some new reason", out)
        self.assertEqual(self.summary()["checksum"]["messages_uncovered"],
                         {"device_buffer": 600, "user_operator": 27, "some_new_reason": 3})

    def test_every_reason_of_the_library_has_words(self):
        from resil_tool import checksum
        with open(os.path.join(support.ROOT, "checksum", "messages.h"), encoding="utf-8") as file:
            names = re.findall(r"^RESIL_REASON\(\s*(\w+)", file.read(), re.MULTILINE)
        self.assertEqual(sorted(names), sorted(checksum.REASONS))

    def test_messages_without_a_reason_are_told(self):
        self.rank(0, 1, section(messages_checked=900))
        self.assertIn("NOT checked: 100 messages without a stated reason", self.run_report()[1])

    def test_unverified_names_who_owes_and_is_not_clean(self):
        self.rank(0, 2, section(messages_checked=990, unverified=10, drains={
            "count": 1, "seconds": 5.0, "timeouts": 1, "silent_ranks": [1]}))
        self.rank(1, 2)
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertTrue(out.startswith("INCOMPLETE: 10 messages unverified; rank 1 owed records"), out)
        self.assertIn("UNVERIFIED: 10 received messages, of which the sender's record did not come; rank 1 owed "
                      "records", " ".join(out.split()))

    def test_nothing_checked_is_not_clean(self):
        for rank in range(2):
            self.rank(rank, 2, section(messages_checked=0, bytes_checked=0, connected=False, messages_uncovered={
                "not_connected": 1000}))
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertTrue(out.startswith("INCOMPLETE: not one of 2,000 messages could be checked"), out)
        self.assertIn("no channel between the ranks on rank 0-1", out)

    def test_a_killed_rank_does_not_count_as_covered(self):
        self.rank(0, 2)
        self.rank(1, 2, section(messages_total=0, messages_checked=0), outcome="running", pid=support.NO_PROCESS)
        status, out = self.run_report()
        self.assertEqual(status, 3)
        self.assertIn("not known: coverage of rank 1", out)

    def test_deferred_and_late_drains(self):
        self.rank(0, 1, section(mode="strict", deferred=4, drains={"count": 9, "seconds": 5, "timeouts": 2,
                                                                  "silent_ranks": []}))
        words = self.words()
        self.assertIn("(strict, blame cheap)", words)
        self.assertIn("4 messages checked after the receive had returned", words)
        self.assertIn("2 drains ran out of time; all was verified later", words)

    # -- findings -----------------------------------------------------------------------------------------------

    def test_one_finding_with_its_evidence(self):
        self.rank(0, 2)
        self.rank(1, 2, section(mismatches=1, messages_total=5000, messages_checked=4999), findings=[corrupted(
            0, 1, "packet 17 of tag 3 differs", bytes="4096", first_difference="byte 1007, one bit")])
        status, out = self.run_report()
        self.assertEqual(status, 1)
        lines = out.splitlines()
        self.assertEqual(lines[0], "FINDINGS: 1 finding: 1 corrupted message")
        self.assertTrue(lines[1].startswith("findings   proved, message_corrupted: packet 17 of tag 3 differs "
                                            "(culprit: rank 0)"), out)
        self.assertIn("first_difference  byte 1007, one bit", out)
        self.assertIn("1 of 6,000 checked messages differs (1 in 6,000)", " ".join(out.split()))
        self.assertNotIn("SYSTEMIC", out)
        self.assertIn("checked: all 6,000 messages", out)

    def test_same_pair_of_hosts_is_one_entry(self):
        hosts = ["nid%04d" % k for k in range(40, 48)]
        self.job_of_nodes(hosts, [(2, 3)] * 12 + [(5, 7)])
        status, out = self.run_report()
        self.assertEqual(status, 1)
        words = " ".join(out.split())
        self.assertTrue(out.startswith("FINDINGS: 13 findings: 13 corrupted messages"), out)
        self.assertIn("proved: 12 of 13 corrupted messages came over nid0042 -> nid0043 (ranks 2 -> 3): transit or "
                      "staging; the first: packet 0 of tag 7 differs [rank-00003.json]", words)
        self.assertEqual([(f["count"], f["hosts"]) for f in self.summary()["findings"]],
                         [(12, ["nid0042", "nid0043"]), (1, ["nid0045", "nid0047"])])

    def test_odd_host_is_named(self):
        hosts = ["nid%04d" % k for k in range(16)]
        self.job_of_nodes(hosts, [(4, k) for k in range(16) if k != 4] + [(1, 2)])
        self.assertIn("suspect nid0004 is an end of 15 of 16 findings, but of only 12 % of all messages, and its "
                      "partners differ: suspect this host first", self.words())
        self.assertEqual(self.summary()["suspect_host"]["host"], "nid0004")

    def test_no_host_is_named_without_evidence(self):
        hosts = ["nid%04d" % k for k in range(8)]
        for findings in ([(0, 1), (2, 3), (4, 5), (6, 7)],   # spread over all
                         [(0, 1)] * 9,                       # one pair: either of the two
                         [(0, 1), (0, 2)]):                  # two may be chance
            self.job_of_nodes(hosts, findings)
            self.assertIsNone(self.summary()["suspect_host"], findings)

    def test_two_hosts_prove_nothing(self):
        self.job_of_nodes(["a", "b"], [(0, 1)] * 9 + [(1, 0)])
        self.assertIsNone(self.summary()["suspect_host"])

    def test_a_program_error_blames_no_host(self):
        hosts = ["nid%04d" % k for k in range(16)]
        for rank, host in enumerate(hosts):
            self.rank(rank, 16, host=host, findings=[dict(corrupted(4, rank, "m %d" % rank),
                                                          kind="send_buffer_modified")] if rank != 4 else [])
        self.assertIsNone(self.summary()["suspect_host"])

    def test_hosts_of_the_evidence_come_before_the_ranks(self):
        self.rank(0, 2, host="h0")
        self.rank(1, 2, host="h1", findings=[corrupted(0, 1, "m%d" % k, sender_host="nid0001", receiver_host="nid0002")
                                             for k in range(2)])
        self.assertIn("2 of 2 corrupted messages came over nid0001 -> nid0002", self.words())

    def test_same_words_from_two_ranks_are_one_finding(self):
        same = {"kind": "collective_mismatch", "confidence": "proved", "culprit_ranks": [1], "victim_ranks": [],
                "message": "MPI_Allreduce 17 differs", "evidence": {}}
        for rank in range(3):
            self.rank(rank, 3, findings=[same])
        summary = self.summary()
        self.assertEqual([(f["count"], f["reports"]) for f in summary["findings"]], [(1, 3)])

    def test_same_words_twice_from_one_rank_are_two(self):
        self.rank(0, 2, host="a", findings=[corrupted(1, 0)] * 2)
        self.rank(1, 2, host="b")
        self.assertEqual(self.summary()["findings"][0]["count"], 2)

    def test_rate_above_one_in_a_thousand_is_systemic(self):
        for rank in range(2):
            self.rank(rank, 2, section(messages_checked=994, mismatches=6), findings=[
                corrupted(1 - rank, rank, "m%d" % k) for k in range(6)])
        words = self.words()
        self.assertIn("12 of 2,000 checked messages differ (1 in 166): SYSTEMIC (more than 1 in 1,000)", words)
        self.assertTrue(self.summary()["checksum"]["systemic"])

    def test_rate_below_is_not(self):
        self.rank(0, 1, section(mismatches=9, messages_total=10**6, messages_checked=10**6 - 9))
        self.assertFalse(self.summary()["checksum"]["systemic"])

    def test_a_program_error_or_one_slipped_lane_is_not_systemic(self):
        self.rank(0, 1, section(mismatches=9, verdicts={"send_buffer_modified_while_pending": 9}))
        self.assertFalse(self.summary()["checksum"]["systemic"])
        self.rank(0, 1, section(mismatches=900, messages_total=10**5, messages_checked=10**5 - 900, systemic=False))
        self.assertFalse(self.summary()["checksum"]["systemic"])

    def test_few_mismatches_on_each_of_many_ranks_are_systemic(self):
        for rank in range(4):
            self.rank(rank, 4, section(mismatches=2, messages_checked=998, systemic=False))
        self.assertTrue(self.summary()["checksum"]["systemic"])

    def test_what_the_library_writes(self):
        self.rank(0, 2, host="nid1")
        self.rank(1, 2, section(mismatches=2, messages_checked=998), host="nid2", findings=[{
            "kind": "message_corrupted", "confidence": "proved", "culprit_ranks": [], "victim_ranks": [1],
            "message": "what rank 1 on nid2 received in MPI_Recv is not what rank 0 on nid1 sent it, packet %d" % k,
            "evidence": {"verdict": "transit or staging", "packet": "number %d of rank 0 to rank 1, tag 7" % k,
                         "sender_host": "nid1", "receiver_host": "nid2"}} for k in range(2)])
        self.assertIn("2 of 2 corrupted messages came over nid1 -> nid2 (ranks 0 -> 1): transit or staging",
                      self.words())

    def test_collectives_and_one_sided_as_the_library_writes_them(self):
        for rank in range(4):
            self.rank(rank, 4, section(collectives={"calls_checked": 5, "calls_agreement_only": 2, "calls_uncovered": {
                "reduction": 1}}), host="nid%d" % rank, findings=[] if rank != 1 else [
                    {"kind": "collective_mismatch", "confidence": "verified", "culprit_ranks": [3], "victim_ranks": [3],
                     "message": "MPI_Bcast number %d differs" % k,
                     "evidence": {"rank_host": "rank 1 on nid1, rank 3 on nid3"}} for k in range(3)] + [
                    {"kind": "one_sided_corrupted", "confidence": "proved", "culprit_ranks": [], "victim_ranks": [2],
                     "message": "MPI_Put %d differs" % k,
                     "evidence": {"origin": "rank 0 on nid0", "target": "rank 2 on nid2"}} for k in range(2)])
        words = self.words()
        self.assertIn("FINDINGS: 5 findings: 2 corrupted one-sided transfers, 3 collectives with different results on different ranks", words)
        self.assertIn("3 of 3 collectives with different results on different ranks on nid3 (rank 3); the first", words)
        self.assertIn("2 of 2 corrupted one-sided transfers came over nid0 -> nid2 (ranks 0 -> 2)", words)
        self.assertIn("of 8 collective calls only that all ranks got the same", words)

    def test_what_to_do_stands_under_the_first_finding(self):
        self.rank(0, 1, findings=[dict(corrupted(0, 0), to_do="run again with nid1 excluded (srun --exclude=nid1).")])
        self.assertIn("to do run again with nid1 excluded (srun --exclude=nid1).", self.words())
        self.assertEqual(self.summary()["findings"][0]["to_do"], "run again with nid1 excluded (srun --exclude=nid1).")

    def test_systemic_findings_of_many_ranks_are_one_and_come_last(self):
        for rank in range(5):
            self.rank(rank, 5, findings=[
                {"kind": "systemic", "confidence": "verified", "culprit_ranks": [], "victim_ranks": [rank],
                 "message": "%d of 1,000 messages differ" % (rank + 4), "evidence": {}}, corrupted(0, rank)])
        found = self.summary()["findings"]
        self.assertEqual([f["kind"] for f in found].count("systemic"), 1)
        self.assertEqual(found[-1]["kind"], "systemic")
        self.assertTrue(self.run_report()[1].startswith("FINDINGS: 5 findings: 5 corrupted messages"))

    def test_injected_faults_are_told(self):
        self.rank(0, 1, faults_injected={"flip": 1, "swap": 0}, findings=[corrupted(0, 0)])
        status, out = self.run_report()
        self.assertEqual(status, 1)
        self.assertIn("data was DAMAGED ON PURPOSE (RESIL_FAULT)", out.splitlines()[0])
        self.assertIn("faults     made on purpose: 1 flip", out)

    def test_a_fault_that_was_not_found_is_not_plainly_clean(self):
        self.rank(0, 1, config={"RESIL_FAULT": "flip,nth=3"}, faults_injected={"flip": 1})
        out = self.run_report()[1]
        self.assertTrue(out.startswith("CLEAN: data was DAMAGED ON PURPOSE, no findings in all"), out)
        self.assertIn("made on purpose: 1 flip; RESIL_FAULT=flip,nth=3", out)

    def test_the_rank_that_damages_is_gone(self):
        """The count of a rank that the stop kills is lost; that the data was damaged must not be."""
        config = {"RESIL_FAULT": "flip,rank=1,nth=3"}
        self.rank(0, 2, config=config, outcome="stopped", exit_status=90, findings=[corrupted(1, 0)])
        self.rank(1, 2, section(messages_total=0), config=config, outcome="running", pid=support.NO_PROCESS)
        words = self.words()
        self.assertIn("FINDINGS: 1 finding: 1 corrupted message; data was DAMAGED ON PURPOSE", words)
        self.assertIn("RESIL_FAULT=flip,rank=1,nth=3", words)
        self.assertIn("stopped by resil with status 90: 0", words)

    def test_dropped_findings_are_told(self):
        self.rank(0, 1, findings=[corrupted(0, 0)], findings_dropped=36)
        self.assertIn("and 36 more findings of which no details were kept", self.run_report()[1])

    def test_call_sites_become_lines(self):
        compiler = shutil.which("cc")
        if not compiler or not shutil.which("addr2line"):
            self.skipTest("no cc or no addr2line")
        source = self.write("site.c", "int deep(int x) { return x + 1; }\nint main(void) { return deep(1); }\n",
                            self.top)
        program = os.path.join(self.top, "app")
        subprocess.run([compiler, "-g", "-O0", "-no-pie", "-o", program, source], check=True)
        table = subprocess.run(["nm", program], check=True, stdout=subprocess.PIPE).stdout.decode()
        address = next(int(line.split()[0], 16) for line in table.splitlines() if line.endswith(" T deep"))
        self.rank(0, 1, executable=program, start_time=4e9, findings=[corrupted(
            0, 0, "sent at app+%#x" % (address + 5), sender_site="app+%#x" % (address + 5), other="nobody+0x12")])
        words = self.words()
        self.assertIn("sent at deep at site.c:1", words)
        self.assertEqual(self.summary()["findings"][0]["evidence"]["sender_site"], "deep at site.c:1")
        self.assertIn("nobody+0x12", words)

    def test_many_findings_fit_one_screen(self):
        for rank in range(200):
            self.rank(rank, 200, section(messages_checked=900, messages_uncovered={
                "reason_%d" % k: k for k in range(1, 12)}, unverified=3, deferred=2, connected=rank > 4, mismatches=3),
                host="node%03d" % rank, faults_injected={"flip": 1}, findings_dropped=2,
                findings=[corrupted((rank + k) % 200, rank, "m%d " % k * 40, **{
                    "e%d" % i: "v" * 130 for i in range(20)})
                          for k in range(1, 4)])
        status, _ = self.run_report()
        self.assertEqual(status, 1)

    # -- nonsense -----------------------------------------------------------------------------------------------

    def test_sections_that_make_no_sense(self):
        for value in (None, 5, "x", [], {"drains": 7}, {"messages_total": -1}, {"connected": "yes"},
                      {"messages_uncovered": [1, 2]}, {"verdicts": {"x": []}}, {"drains": {"silent_ranks": {"a": 1}}},
                      {"messages_checked": 1e999}, {"collectives": {"a": {"b": {"c": {"d": {"e": 1}}}}}},
                      {"mode": {"a": 1}, "blame": None}):
            self.report(rank=0, size=1, modes="checksum", checksum=value)
            status, out = self.run_report()
            self.assertIn(status, (0, 3), out)

    def test_more_checked_than_there_were(self):
        self.rank(0, 1, section(messages_total=5, messages_checked=50, bytes_total=1, bytes_checked=9, unverified=2))
        self.assertEqual(self.summary()["checksum"]["messages_total"], 52)

    def test_escape_sequences_in_evidence(self):
        self.rank(0, 1, findings=[corrupted(0, 0, sender_host="\033]0;x\007", **{
            "\033[1m": "\033[31m", "x": [1], "y": 2})])
        self.assertNotIn("\033", self.run_report()[1])

    def test_fuzz(self):
        random_ = random.Random(7)
        values = [None, True, -1, 2**70, 1e308, 1e999, "x", "\0", [], {}, [[]], {"a": {}}, "\ud800", -5.5, [None] * 3]

        def mutate(value):
            if isinstance(value, dict):
                return {k: random_.choice(values) if random_.random() < 0.15 else mutate(v) for k, v in value.items()}
            if isinstance(value, list):
                return [random_.choice(values) if random_.random() < 0.3 else mutate(v) for v in value]
            return value if random_.random() > 0.15 else random_.choice(values)

        for _ in range(200):
            for rank in range(2):
                one = report_object(rank=rank, size=2, modes="checksum", faults_injected={"flip": 1},
                                    findings_dropped=3, host="h%d" % rank)
                part = {"checksum": section(messages_uncovered={"device_buffer": 3}, verdicts={"a": 1}),
                        "findings": [corrupted(1 - rank, rank, "m%d" % k, sender_host="a") for k in range(3)],
                        "findings_dropped": 1, "faults_injected": {"flip": 1}}
                self.write("rank-%05d.json" % rank, json.dumps(dict(one, **mutate(part))))
            for as_json in (False, True):
                _, out = captured(report.run, self.directory, as_json)
                self.assertTrue(out)


if __name__ == "__main__":
    unittest.main()
