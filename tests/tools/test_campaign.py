# SPDX-License-Identifier: Apache-2.0
"""What scripts/campaign hangs and quiet make of a run: findings, log lines and the injector's word become an outcome."""

import json
import os
import shutil
import sys
import tempfile
import types
import unittest

import support

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import findings, hang_campaign, hangs, quiet  # noqa: E402

setUpModule, tearDownModule = support.limit_time, support.release_time

INSTANT = 10**18
SECOND = 10**9


class Campaign(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="resil-test-")
        self.addCleanup(shutil.rmtree, self.directory)
        self.number = 0

    def say(self, seconds, culprits, kind="computation", confidence="verified"):
        row = {"time_ns": INSTANT + int(seconds * SECOND), "class": kind, "confidence": confidence,
               "culprit_ranks": culprits}
        with open(os.path.join(self.directory, f"hang-{self.number}.json"), "w", encoding="utf-8") as file:
            json.dump(row, file)
        self.number += 1

    def log(self, seconds, kind, text="text of it", end="\n"):
        with open(os.path.join(self.directory, "hang.log"), "a", encoding="utf-8") as file:
            file.write(f"{INSTANT + int(seconds * SECOND)} {kind} {text}{end}")

    def judge(self, status=None, action="report", ended=None, injected=True):
        workload = types.SimpleNamespace(name="program", mpi="openmpi", ranks=4)
        outcome = hangs.Outcome(workload, "sleep", 2, action, 0)
        outcome.injected = outcome.hung = injected
        said = findings.HangLog(self.directory)
        said.look()
        word = {"time_ns": INSTANT, "where": "in user code"} if injected else None
        hangs.judge(outcome, word, said, types.SimpleNamespace(returncode=status), ended)
        return outcome

    def test_found(self):
        self.log(1.5, "suspected")
        self.log(4, "verified")
        self.say(4, [2])
        outcome = self.judge()
        self.assertEqual((outcome.suspected, outcome.found, outcome.right, outcome.false_alarms), (1.5, 4.0, True, 0))
        self.assertFalse(outcome.failed())

    def test_a_notice_is_of_this_rank_and_later(self):
        self.log(-1, "notice", "rank 2 is stopped")
        self.log(1, "notice", "rank 21 is stopped")
        self.log(2, "notice", "rank 2 is stopped (by a signal)")
        self.assertEqual(self.judge().noticed, 2.0)

    def test_proved_without_a_suspicion_counts_as_both(self):
        self.say(2, [2], "deadlock", "proved")
        outcome = self.judge()
        self.assertEqual((outcome.suspected, outcome.found, outcome.confidence), (2.0, 2.0, "proved"))

    def test_wrong_rank_and_one_rank_too_many_are_not_right(self):
        for culprits in ([1], [1, 2], []):
            self.say(1, culprits)
            outcome = self.judge()
            self.assertEqual((outcome.right, outcome.wrong, outcome.failed()), (False, culprits != [], culprits != []))
            self.setUp()

    def test_both_ends_of_a_message(self):
        self.say(1, [1, 2], "unmatched_message", "proved")
        outcome = self.judge()
        self.assertFalse(outcome.right)
        outcome.kind = "tag"
        self.assertTrue(outcome.right)

    def test_the_first_finding_counts(self):
        self.say(3, [2])
        self.say(2, [0])
        self.assertEqual(self.judge().culprits, [0])

    def test_what_was_said_before_is_a_false_alarm(self):
        self.say(-1, [2])
        self.log(-2, "suspected")
        outcome = self.judge()
        self.assertEqual((outcome.false_alarms, outcome.early_suspicions), (1, 1))
        self.assertEqual((outcome.found, outcome.suspected), (None, None))
        self.assertTrue(outcome.failed())

    def test_without_an_injection_every_finding_is_false(self):
        self.say(1, [2])
        self.assertEqual(self.judge(injected=False).false_alarms, 1)

    def test_missed(self):
        outcome = self.judge()
        self.assertTrue(outcome.hung and outcome.found is None)
        self.assertTrue(outcome.failed())

    def test_a_job_that_its_launcher_ended_did_not_hang(self):
        self.assertFalse(self.judge(status=1, ended=INSTANT).hung)

    def test_abort(self):
        self.say(4, [2])
        outcome = self.judge(92, "abort", INSTANT + 10 * SECOND)
        self.assertEqual((outcome.ended, outcome.failed()), (6.0, False))
        self.assertIn("1 of 1 jobs ended with status 92", hang_campaign.ends([outcome]))
        other = self.judge(1, "abort", INSTANT + 10 * SECOND)
        self.assertTrue(other.failed())

    def test_half_written_files_are_read_when_they_are_whole(self):
        said = findings.HangLog(self.directory)
        self.log(1, "suspected", end="")
        path = os.path.join(self.directory, "hang-0.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"time_ns": ')
        said.look()
        self.assertEqual((said.findings, said.lines, len(said.notes)), ([], [], 1))
        with open(os.path.join(self.directory, "hang.log"), "a", encoding="utf-8") as file:
            file.write("\nnonsense\n")
        self.say(1, [0])
        said.look()
        said.look()
        self.assertEqual((len(said.findings), said.count("suspected"), len(said.notes)), (1, 1, 2))

    def test_table(self):
        outcomes = []
        for seconds in (1, 2, 9):
            self.setUp()
            self.say(seconds, [2])
            outcomes.append(self.judge())
        row = hang_campaign.line(outcomes, "name", "sleep")
        self.assertEqual(row, ("name", "sleep", 3, 3, "100 %", "3, 0, 0", "–", "2.0, 9.0 s", "2.0, 9.0 s",
                               "verified computation", 0))
        self.assertEqual(hang_campaign.spread([]), "–")
        self.assertEqual(hang_campaign.spread(range(1, 101)), "50.5, 95.0 s")

    def test_a_stopped_rank_may_be_called_stopped_while_it_is(self):
        disturber = quiet.Disturber.__new__(quiet.Disturber)
        disturber.stops = [(INSTANT, INSTANT + 3 * SECOND, [1])]

        def explained(seconds, kind, ranks):
            return disturber.explains({"class": kind, "time_ns": INSTANT + int(seconds * SECOND),
                                       "culprit_ranks": ranks})
        self.assertTrue(explained(2, "rank_stopped", [1]))
        self.assertFalse(explained(2, "rank_stopped", [0]))
        self.assertFalse(explained(2, "computation", [1]))
        self.assertFalse(explained(9, "rank_stopped", [1]))


if __name__ == "__main__":
    unittest.main()
