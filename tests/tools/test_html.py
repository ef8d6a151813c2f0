# SPDX-License-Identifier: Apache-2.0
"""scripts/resil html: one file, nothing from outside, names that are text and nothing else, a sentence wherever no file holds the data. What
a browser makes of it: browser_test.py."""

import html.parser
import json
import os
import re
import sys
import time
import unittest

import support
from resil_tool import html_data, html_parts, html_report, records, stacks, summary
from support import Case, record, report_object, ring_bytes
from test_ending import HANG

sys.path.insert(0, os.path.join(support.ROOT, "tests", "bench"))
import report_files  # noqa: E402

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202e\"'&"
VOID = {"meta", "link", "br", "img", "input", "hr"}
SELF_CLOSED = {"rect", "line", "path"}


def setUpModule():
    support.limit_time()


def tearDownModule():
    support.release_time()


class Page(html.parser.HTMLParser):
    """Elements, whether they close, and the text outside scripts and styles."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.wrong, self.said, self.scripts, self.ids = [], [], [], [], [], []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID and tag not in SELF_CLOSED:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag in SELF_CLOSED:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        (self.scripts if inside == "script" else self.said if inside != "style" else []).append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.said))

    def numbers(self):
        return json.loads(next(part for part in self.scripts if part.startswith('{"ranks"')))


class Html(Case):
    def page(self, status=0):
        done, out, error = self.tool("html", self.directory, "--output", "-")
        self.assertEqual(done, status, error)
        page = Page(out)
        self.assertEqual((page.wrong, page.open), ([], []))
        self.assertEqual(len(page.ids), len(set(page.ids)))
        for target in re.findall(r'href="#([^"]+)"', out):
            self.assertIn(target, page.ids)
        for tag, attributes in page.elements:  # nothing is fetched, nothing runs that is not ours
            self.assertNotIn(tag, ("link", "img", "iframe", "object", "base", "form"))
            self.assertFalse([name for name in attributes if name.startswith("on") or name == "src"], (tag, attributes))
        self.assertEqual(len([1 for tag, _ in page.elements if tag == "script"]), 3)
        policy = next(attributes["content"] for _, attributes in page.elements if attributes.get("http-equiv"))
        self.assertTrue(policy.startswith("default-src 'none';"))
        self.assertNotIn("\x1b", out)
        return page

    def test_clean_job_of_four(self):
        for rank in range(4):
            self.report(rank=rank, size=4)
        page = self.page()
        self.assertIn("CLEAN 4 of 4 ranks finished, no findings", page.text)
        self.assertIn("No flight recorder of this job is here", page.text)
        self.assertIn("No stacks: no rank has written a dump", page.text)
        self.assertIn("S_out as hang detection saw it is recorded with RESIL_LOG=debug only", page.text)
        self.assertIn("RESIL_SIGNAL", page.text)
        data = page.numbers()
        self.assertEqual(data["ranks"]["share"], [15.0, 25.0, 35.0, 45.0])
        self.assertEqual(data["traffic"]["cells"], [[0, 1, 4096], [1, 2, 4097], [2, 3, 4098], [3, 0, 4099]])
        self.assertEqual((data["time"], data["statistics"]), (None, None))
        for name in ("findings", "hang", "timeline", "time", "messages", "sizes-of-messages", "coverage", "settings", "files"):
            self.assertIn(name, page.ids)

    def test_stacks_that_the_helper_threads_gathered(self):
        self.report(rank=0, size=1)
        self.write("stacks-0.json", json.dumps({"schema_version": 1, "of": EVIL, "ranks": 1, "threads": 1, "stacks": [
            {"ranks": "0", "threads": 1, "frames": ["app+0x10", EVIL, "last+0x20"]}]}))
        page = self.page()
        self.assertIn("Of all ranks, by the helper threads with", page.text)
        self.assertIn("0: app+0x10", page.text)
        self.assertNotIn("No stacks", page.text)

    def test_names_are_text(self):
        finding = {"kind": EVIL, "confidence": EVIL, "message": EVIL, "to_do": EVIL, "culprit_ranks": [0], "evidence": {EVIL: EVIL}}
        self.report(rank=0, size=2, host=EVIL, executable="/opt/" + EVIL, mpi={"library": EVIL, "abi": EVIL}, modes=EVIL, notes=[EVIL],
                    findings=[finding], config={EVIL: EVIL}, calls={EVIL: {"count": 1, "seconds": 1, "bytes": 8}}, resil_version=EVIL)
        self.write("rank-00001.json", '{"schema_version": 1, "x": "%s' % EVIL)
        self.write("hang-0.json", dict(HANG, message=EVIL, evidence=["rank 1: MPI_Recv from rank 0 " + EVIL, "ranks 2-3: " + EVIL]))
        self.write("dump-00000-0.txt", "rank 0 of 2\nThreads: 1\n  Thread 1 (x), the main thread, writes this dump\n    #0 f%s+0x1\n    #1 main\n" % EVIL)
        self.write("hang.log", "1795453029339954381 notice %s\n" % EVIL)
        page = self.page(3)
        self.assertGreater(page.text.count("alert(1)"), 10)  # as text
        self.assertNotIn("alert(1)", "".join(part for part in page.scripts if not part.startswith('{"ranks"')))
        self.assertIn("truncated", page.text)
        self.assertEqual(page.numbers()["ranks"]["hosts"][0], page.numbers()["ranks"]["hosts"][0].replace("\x1b", ""))

    def test_hang(self):
        for rank in range(4):
            self.report(rank=rank, size=4, outcome="running", pid=support.NO_PROCESS + rank, calls={}, peers=[], start_time=time.time() - 1500)
            done = [record("MPI_Allreduce", 80 - i, None, 0.5, sequence=i + 1, bytes_=4096) for i in range(10 + (rank != 1))]
            self.write("rank-%05d.ring" % rank, ring_bytes(rank=rank, size=4, pid=support.NO_PROCESS + rank, records=done, now=time.time() - 500,
                                                          term=("slurmstepd", 9, 15)))
            where = "recv+0x1" if rank == 1 else "PMPI_Barrier+0x2"
            self.write("dump-%05d-0.txt" % rank, "rank %d of 4\nThreads: 2\n  Thread 5 (app), the main thread, writes this dump\n    #0 %s\n    #1 step+0x3\n"
                       "    #2 main+0x4\n    #3 __libc_start_main+0x5\n  Thread 6 (x)\n    #0 poll+0x1\n" % (rank, where))
        self.write("hang-0.json", HANG)
        self.write("hang-trace.txt", "# x\n10.0 1 4 5 0 0.0 0.0\n10.5 2 4 6 0 0 0\nbad line\n11 9 4 1 1 1 1\n")
        page = self.page()
        self.assertIn("rank 0 waits for rank 1 (accused) (cycle): call 4 of MPI_Barrier", page.text)
        self.assertIn("ranks 0-3: 4 main+0x4 › step+0x3", page.text)
        self.assertLess(page.text.index("rank 1 recv+0x1"), page.text.index("ranks 0,2-3: 3 PMPI_Barrier+0x2"))
        self.assertEqual(len([1 for tag, attributes in page.elements if tag == "line"]), 3)
        data = page.numbers()
        self.assertEqual(data["statistics"], {"seconds": [0.0, 0.5], "outside": [25.0, 50.0]})
        self.assertEqual((data["time"]["of"], data["time"]["steps"]), (4, False))
        self.assertEqual((data["time"]["progress"]["low"][-1], data["time"]["progress"]["high"][-1]), (10, 11))
        self.assertEqual((max(data["time"]["outside"]), data["time"]["outside"][-1]), (100.0, 100.0))
        self.assertEqual(data["time"]["sizes"][12], 43)

    def test_4096_ranks_are_small(self):
        report_files.make(self.directory, "nodes", 4096)
        begin = time.process_time()
        directory = records.read_directory(self.directory)
        for rank in directory.ranks.values():
            rank.state = rank.outcome
        text = html_report.build(directory, summary.merge(directory))
        self.assertLess(time.process_time() - begin, 10)
        self.assertLess(len(text.encode()), 5 << 20)
        data = Page(text).numbers()
        self.assertEqual((len(data["ranks"]["share"]), data["traffic"]["side"], data["traffic"]["group"]), (4096, 128, 32))
        self.assertEqual(sum(cell[2] for cell in data["traffic"]["cells"]), sum(data["ranks"]["sent"]))

    def test_file_is_whole_and_in_its_place(self):
        self.report(rank=0, size=1)
        told = json.loads(self.tool("html", "--json", self.directory)[1])
        self.assertEqual((os.path.realpath(told["file"]), told["bytes"], told["verdict"]), (
            os.path.join(self.directory, "report.html"), os.path.getsize(told["file"]), "CLEAN"))
        self.assertEqual(self.tool("html", self.directory)[0], 0)
        with open(os.path.join(self.directory, "report.html"), encoding="utf-8") as file:
            self.assertTrue(file.read().endswith("</html>\n"))
        self.assertEqual(sorted(os.listdir(self.directory)), ["rank-00000.json", "report.html"])
        self.assertEqual(self.tool("report", self.directory)[0], 0)  # it is no file that the report stumbles over

    def test_a_place_that_cannot_be_written(self):
        """What to do stands there, and nothing is left; root may write anywhere, so the place is no directory, or is in none."""
        self.report(rank=0, size=1)
        os.makedirs(os.path.join(self.top, "taken"))
        for path in ("taken", "nowhere/report.html"):
            path = os.path.join(self.top, path)
            before = sorted(os.listdir(self.top))
            status, out, error = self.tool("html", "--output", path, self.directory)
            self.assertEqual((status, out), (2, ""))
            self.assertRegex(error, r"^resil: %s cannot be written: [^:;]+; --output FILE puts it elsewhere\n$" % re.escape(path))
            self.assertEqual(sorted(os.listdir(self.top)), before)

    def test_odd_numbers(self):
        for value in (None, -1, 2**63, 1e300, float("nan"), "x", []):
            self.write("rank-00000.json", report_object(elapsed_seconds=value, calls={"MPI_Send": {"count": value, "seconds": value, "bytes": value}},
                                                        peers=[{"rank": value, "sent_messages": value, "sent_bytes": value}], world_size=value))
            self.write("rank-00000.ring", ring_bytes(records=[record("MPI_Send", 5, None, 1e20, bytes_=2**60)], pid=support.NO_PROCESS))
            self.page(0 if self.tool("report", "--json", self.directory)[0] != 2 and not json.loads(
                self.tool("report", "--json", self.directory)[1])["unreadable"] else 3)


class Pieces(unittest.TestCase):
    def test_deep_and_wide_trees(self):
        members = [((0, rank), ["main+0x1"] + ["f%d+0x1" % (rank % 100)] * 60) for rank in range(300)]
        root = stacks._node("all", members, 0)
        self.assertEqual(root["children"][0]["count"], 300)
        self.assertEqual(len(root["children"][0]["children"]), stacks.MOST_CHILDREN)
        self.assertEqual(Page(html_parts.tree(root)).wrong, [])

    def test_graph_of_one_and_of_many(self):
        for count in (1, 2, 3, 40):
            nodes = [{"ranks": str(i), "count": 1, "call": "MPI_Recv", "state": "blocked", "culprit": not i} for i in range(count)]
            one = {"nodes": nodes, "edges": [[i, (i + 1) % count, "x"] for i in range(count)], "cycle": list(range(count))}
            page = Page(html_parts.graph(one))
            self.assertEqual(page.wrong, [])
            self.assertNotIn("nan", html_parts.graph(one).replace("nan>", ""))

    def test_shares_stay_in_range(self):
        spans = [[(0.0, 5.0, False), (6.0, 6.0, True)], [(2.0, 3.0, False)]]
        shares = html_data._outside(spans, 0.0, 10.0, 10.0 / html_data.BINS)
        self.assertTrue(all(value is None or 0 <= value <= 100 for value in shares))
        self.assertEqual((shares[0], shares[-1]), (0.0, 50.0))


if __name__ == "__main__":
    unittest.main()
