# SPDX-License-Identifier: Apache-2.0
"""--nagios of `resil report` and `resil hosts`: one line as monitoring reads it, exit status 0 to 3."""

import json
import os
import re
import unittest

import support
from support import Case, report_object

# The guidelines' grammar: text, then 'label'=value[UOM];[warn];[crit];[min];[max], separated by blanks.
DATUM = r"'[^'=|]+'=-?[\d.]+(?:s|%|B|c)?(?:;-?[\d.]*){0,4}"
LINE = re.compile(r"RESIL (OK|WARNING|CRITICAL|UNKNOWN) - ([^|\n]*?)(?: \| (%s(?: %s)*))?\n" % (DATUM, DATUM))
FOUND = {"kind": "divergence", "culprit_ranks": [1], "victim_ranks": [], "message": "a | in the text"}


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


class Nagios(Case):
    def plugin(self, *arguments):
        status, out, error = self.tool(*arguments, "--nagios")
        whole = LINE.fullmatch(out)
        self.assertTrue(whole and error == "", (out, error))
        self.assertEqual(status, ("OK", "WARNING", "CRITICAL", "UNKNOWN").index(whole[1]), out)
        return whole[1], whole[2], dict(one.split("=", 1) for one in (whole[3] or "").replace("'", "").split())

    def test_clean(self):
        for rank in range(4):
            self.report(rank=rank, size=4)
        word, text, data = self.plugin("report", self.directory)
        self.assertEqual(word, "OK")
        self.assertTrue(text.startswith("CLEAN: 4 of 4 ranks finished"), text)
        self.assertEqual((data["findings"], data["ranks_reported"], data["certain_findings"]), ("0;;;0", "4;;;0", "0;;0;0"))

    def test_findings(self):
        for confidence, wanted, certain in (("proved", "CRITICAL", "1"), ("suspected", "WARNING", "0")):
            self.report(rank=0, size=2, findings=[dict(FOUND, confidence=confidence)])
            self.report(rank=1, size=2)
            word, _, data = self.plugin("report", self.directory)
            self.assertEqual((word, data["certain_findings"].split(";")[0]), (wanted, certain))

    def test_incomplete(self):
        self.report(rank=0, size=3)
        word, text, data = self.plugin("report", self.directory)
        self.assertEqual((word, data["ranks_reported"], data["ranks_expected"]), ("WARNING", "1;;;0", "3;;;0"))
        self.assertIn("no report of ranks 1-2", text)

    def test_unknown(self):
        self.assertEqual(self.plugin("report", os.path.join(self.top, "no-such-directory"))[0], "UNKNOWN")
        self.assertEqual(self.plugin("hosts", os.path.join(self.top, "no-such-directory"))[0], "UNKNOWN")

    def test_hosts(self):
        def job(number, culprit):
            place = os.path.join(self.top, "all", "resil-app-20261122T1315Z-%d.0" % number)
            self.write("node-x-0.jsonl", "\n".join(json.dumps(report_object(
                rank=rank, size=8, host="n%d" % ((rank + number) % 9 if rank else 0), launch="%016x" % number, launch_agreed=True,
                findings=[dict(FOUND, confidence="proved", culprit_ranks=[culprit])] if rank == 0 else [])) for rank in range(8)), place)
        job(1, 5)
        word, _, data = self.plugin("hosts", os.path.join(self.top, "all"))
        self.assertEqual((word, data["jobs"]), ("OK", "1;;;0"))
        for number in range(2, 9):
            job(number, 0)
        word, text, data = self.plugin("hosts", os.path.join(self.top, "all"))
        self.assertEqual((word, text, data["suspect_hosts"]), ("WARNING", "keeps showing up: n0", "1;0;;0"))


if __name__ == "__main__":
    unittest.main()
