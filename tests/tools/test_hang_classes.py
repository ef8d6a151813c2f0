# SPDX-License-Identifier: Apache-2.0
"""How scripts/campaign classes judges an answer: class, rank, line, victims; and that its programs have the lines that it looks for."""

import os
import sys
import types
import unittest

import support

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from harness import hang_classes  # noqa: E402

setUpModule, tearDownModule = support.limit_time, support.release_time
SOURCE = {"C": "stuck.c", "C++": "stuck.c", "Fortran": "stuck.f90", "Python": "stuck.py"}


def run(kind, language="C", ranks=4, rank=1, nodes=0, **told):
    programs = types.SimpleNamespace(mpi="openmpi", command=lambda of: ([], os.path.join(hang_classes.SOURCES, SOURCE[of])))
    made = hang_classes.Run(programs, kind, language, ranks, rank, nodes)
    made.told = {"verdict": "deadlock", "detail": "", "culprits": [], "at": {}, "places": [], "message": "", **told}
    return made


class Judge(unittest.TestCase):
    def test_every_class_has_its_line_in_every_language(self):
        for kind, what in hang_classes.KINDS.items():
            for language in what.languages if what.line else ():
                self.assertTrue(hang_classes.lines_of(os.path.join(hang_classes.SOURCES, SOURCE[language]), kind), (kind, language))

    def test_lines_are_those_of_the_class_alone(self):
        path = os.path.join(hang_classes.SOURCES, "stuck.c")
        self.assertFalse(hang_classes.lines_of(path, "livelock") & hang_classes.lines_of(path, "livelock_all"))

    def test_right(self):
        line = min(hang_classes.lines_of(os.path.join(hang_classes.SOURCES, "stuck.c"), "order"))
        made = run("order", culprits=[1], at={"1": "stand_still at stuck.c:%d" % line})
        self.assertTrue(made.good())

    def test_another_class_rank_or_line(self):
        self.assertFalse(run("order", verdict="moving", culprits=[1]).class_right)
        self.assertFalse(run("order", culprits=[2]).rank_right)
        self.assertFalse(run("order", culprits=[]).rank_right)
        self.assertFalse(run("order", culprits=[1], at={"1": "main at stuck.c:1"}).line_right)

    def test_a_victim(self):
        self.assertEqual(run("order", culprits=[1, 2]).accused, [2])
        made = run("order", culprits=[1])
        made.finding = {"culprit_ranks": [3], "class": "deadlock", "confidence": "proved"}
        self.assertEqual(made.accused, [3])
        self.assertFalse(made.good())

    def test_what_a_rank_does_outside_mpi_counts(self):
        never = hang_classes.NEVER
        self.assertTrue(run("stopped", verdict=never, detail="stopped", culprits=[1]).class_right)
        self.assertFalse(run("stopped", verdict=never, detail="computing", culprits=[1]).class_right)
        self.assertFalse(run("stopped", verdict=never, detail="unreachable", culprits=[1]).class_right)
        self.assertTrue(run("stopped", verdict=never, detail="unreachable", culprits=[1], nodes=1).class_right)

    def test_who_only_is_slow(self):
        self.assertTrue(run("slow", verdict="moving").good())
        self.assertFalse(run("slow", verdict=hang_classes.NEVER, culprits=[1]).good())

    def test_of_two_ranks_what_can_be_known(self):
        self.assertTrue(run("order", ranks=2, culprits=[0, 1]).rank_right)
        self.assertFalse(run("order", ranks=2, culprits=[0]).rank_right)
        self.assertFalse(run("order", ranks=2, culprits=[]).rank_right)
        self.assertTrue(run("mismatch", ranks=2, verdict="collective mismatch", culprits=[]).rank_right)
        self.assertTrue(run("finished", ranks=2, verdict="unmatched message", culprits=[1]).class_right)
        self.assertFalse(run("finished", ranks=2, verdict=hang_classes.NEVER, detail="finished", culprits=[1]).class_right)
        self.assertFalse(run("finished", ranks=3, verdict="unmatched message", culprits=[1]).class_right)

    def test_all_of_them_and_no_fewer(self):
        self.assertFalse(run("pair", culprits=[1]).rank_right)
        self.assertTrue(run("pair", culprits=[1, 2]).rank_right)
        self.assertFalse(run("cycle", culprits=[0, 1]).rank_right)

    def test_a_job_that_the_launcher_ended(self):
        made = run("killed")
        made.ended = True
        self.assertFalse(made.good())
        made.reported = True
        self.assertTrue(made.good())
        other = run("computing")
        other.ended = other.reported = True
        self.assertFalse(other.good())

    def test_a_sample_has_every_class_with_every_mpi(self):
        runs = [run(kind, language) for kind, what in hang_classes.KINDS.items() for language in what.languages for _ in range(2)]
        few = hang_classes.few_of(runs, len(hang_classes.KINDS))
        self.assertEqual({one.kind for one in few}, set(hang_classes.KINDS))
        self.assertEqual({one.language for one in few}, {"C", "C++", "Fortran", "Python"})

    def test_percentages_have_their_counts(self):
        self.assertEqual(hang_classes.part([True, False, None, True]), "66.7 % (2 of 3)")
        self.assertEqual(hang_classes.part([None]), "–")


if __name__ == "__main__":
    unittest.main()
